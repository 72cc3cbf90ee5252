/* SPDX-License-Identifier: ISC */
/* Mode ping: one request under way on each tunnel, the next when its response is there. */
#include <stddef.h>

#include "message.h"

static void
ask(struct load *l, struct conn *c)
{
	c->waiting = true;
	c->started_ns = now_ns();
	message_send(l, c);
}

static void
opened(struct load *l, struct conn *c)
{
	/* All are set up first; the origin's end is known by the first request. */
	(void)l;
	c->waiting = false;
}

static void
client(struct load *l, struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && c->out > 0 && message_send(l, c) < 0)
		return;
	if ((events & ~(uint32_t)EPOLLOUT) == 0 || message_receive(l, c) != 1)
		return;
	histogram_add(&l->res.latency, now_ns() - c->started_ns);
	l->res.requests++;
	c->waiting = false;
	c->seq++;
	if (l->running)
		ask(l, c);
}

static void
origin(struct load *l, struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && c->out > 0) {
		if (message_send(l, c) == 1)
			c->seq++;
		return;
	}
	if (!l->closing) {
		if (message_receive(l, c) == 1 && message_send(l, c) == 1)
			c->seq++;
	} else if (message_expect_end(l, c) == 1) {
		conn_close(l, c);
	}
}

static const struct handlers handlers = { opened, client, origin, NULL };

static bool
any_waits(const struct load *l)
{
	for (unsigned i = 0; i < l->opt.conns; i++)
		if (l->clients[i].waiting)
			return true;
	return false;
}

static void
run(struct load *l)
{
	l->handlers = &handlers;
	open_all(l, 64);
	l->running = true;
	for (unsigned i = 0; i < l->opt.conns; i++)
		if (l->clients[i].step == STEP_OPEN)
			ask(l, &l->clients[i]);
	window(l, NULL);
	phase_begin(l, "last responses", 30);
	while (any_waits(l))
		turn(l);
	close_all(l);
	l->res.checked = true;
}

static void
print(const struct load *l)
{
	print_latency(l, "requests", "rps", l->window.requests);
}

const struct mode mode_ping = { "ping", 64, 0, run, print };

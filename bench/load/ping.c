/* SPDX-License-Identifier: ISC */
/* Mode ping: one request under way on each tunnel, the next when its response is there. */
#include <stddef.h>

#include "message.h"

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
	if (message_answered(l, c, events) && l->running)
		message_ask(l, c);
}

static const struct handlers handlers = { opened, client, message_origin, NULL };

static void
run(struct load *l)
{
	l->handlers = &handlers;
	open_all(l, 64);
	l->running = true;
	for (unsigned i = 0; i < l->opt.conns; i++)
		if (l->clients[i].step == STEP_OPEN)
			message_ask(l, &l->clients[i]);
	window(l, NULL);
	phase_begin(l, "last responses", 30);
	while (conn_any_waits(l))
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

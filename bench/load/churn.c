/* SPDX-License-Identifier: ISC */
/*
 * Mode churn: sessions one after the other on each of --conns places: connect,
 * handshake, one request, one response, then the client ends its stream and
 * waits for the end of the other.  The client ends first, so that the proxy is
 * not the one that is left with sockets in TIME_WAIT on its listening side.
 */
#include <stddef.h>

#include "message.h"

#define ERRORS_MAX 10000	/* then nothing works: no use in going on */

static void
next_session(struct load *l, struct conn *c)
{
	if (l->res.errors > ERRORS_MAX)
		fatal("%llu sessions failed", (unsigned long long)l->res.errors);
	c->seq++;
	if (l->running)
		conn_start(l, c);
}

static void
opened(struct load *l, struct conn *c)
{
	c->waiting = true;
	message_send(l, c);
}

static void
client(struct load *l, struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && c->out > 0 && message_send(l, c) < 0)
		return;
	if ((events & ~(uint32_t)EPOLLOUT) == 0)
		return;
	if (!c->shut) {
		if (message_receive(l, c) == 1)
			conn_shut(l, c);
		return;
	}
	if (message_expect_end(l, c) != 1)
		return;
	histogram_add(&l->res.latency, now_ns() - c->started_ns);
	l->res.sessions++;
	conn_close(l, c);
	next_session(l, c);
}

static void
broken(struct load *l, struct conn *c)
{
	if (c->end == END_CLIENT)
		next_session(l, c);
}

static void
origin(struct load *l, struct conn *c, uint32_t events)
{
	if (c->out > 0) {
		if ((events & EPOLLOUT) != 0)
			message_send(l, c);
	} else if (!c->answered) {
		if (message_receive(l, c) == 1) {
			c->answered = true;
			message_send(l, c);
		}
	} else if (message_expect_end(l, c) == 1) {
		conn_close(l, c);
	}
}

static const struct handlers handlers = { opened, client, origin, broken };

static bool
any_waits(const struct load *l)
{
	for (unsigned i = 0; i < l->opt.conns; i++)
		if (l->clients[i].step != STEP_CLOSED)
			return true;
	return false;
}

/* Start the places little by little: a proxy's backlog may be short. */
static void
start_more(struct load *l)
{
	for (unsigned i = 0; i < 8 && l->started < l->opt.conns; i++)
		conn_start(l, &l->clients[l->started++]);
}

static void
run(struct load *l)
{
	l->handlers = &handlers;
	window(l, start_more);
	phase_begin(l, "last sessions", 30);
	while (any_waits(l) || l->origins > 0)
		turn(l);
	l->res.checked = true;
}

static void
print(const struct load *l)
{
	print_latency(l, "sessions", "sps", l->window.sessions);
}

const struct mode mode_churn = { "churn", 1024, 250, run, print };

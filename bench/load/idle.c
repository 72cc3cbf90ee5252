/* SPDX-License-Identifier: ISC */
/*
 * Mode idle: tunnels that are set up, used once and then held, so that somebody
 * can look at the proxy meanwhile; used once more at the end.
 * Mode idle-clients: connections to the proxy that say nothing.
 */
#include <stdio.h>

#include "message.h"

#define AT_ONCE 64	/* handshakes and messages under way */

static void
client(struct load *l, struct conn *c, uint32_t events)
{
	message_answered(l, c, events);
}

static const struct handlers handlers = { message_ask, client, message_origin, NULL };

static void
ready(const struct load *l)
{
	printf("{\"ready\":true,\"conns\":%u,\"errors\":%llu}\n", l->opt.conns,
	    (unsigned long long)l->res.errors);
	fflush(stdout);
}

/* Nothing is expected to happen: what does is handled, and an end is an error. */
static void
hold(struct load *l)
{
	uint64_t end, began;

	window_begin(l);
	ready(l);
	began = now_ns();
	end = began + (uint64_t)(l->opt.seconds * (double)NS_PER_S);
	phase_begin(l, "hold", l->opt.seconds + 10);
	while (l->now_ns < end) {
		l->progress++;
		turn(l);
	}
	window_end(l, began);
	l->window = l->res;
}

static void
ask_all(struct load *l)
{
	unsigned next = 0, oldest = 0;

	phase_begin(l, "messages after the hold", 120);
	while (oldest < l->opt.conns) {
		while (oldest < next && !l->clients[oldest].waiting)
			oldest++;
		for (; next < l->opt.conns && next - oldest < AT_ONCE; next++)
			if (l->clients[next].step == STEP_OPEN)
				message_ask(l, &l->clients[next]);
		turn(l);
	}
}

static void
run(struct load *l)
{
	l->handlers = &handlers;
	l->blocking = true;
	open_all(l, AT_ONCE);
	hold(l);
	ask_all(l);
	if (l->res.requests != l->opt.conns)
		error(l, "%llu of %u tunnels answered after the hold",
		    (unsigned long long)l->res.requests, l->opt.conns);
	l->window.requests = l->res.requests;
	l->window.latency = l->res.latency;
	close_all(l);
	l->res.checked = true;
}

static void
print(const struct load *l)
{
	/* Of the messages after the hold; a rate would mean nothing. */
	printf(",\"requests\":%llu,\"p50_us\":%.2f,\"p99_us\":%.2f",
	    (unsigned long long)l->window.requests,
	    (double)histogram_quantile(&l->window.latency, 0.5) / 1e3,
	    (double)histogram_quantile(&l->window.latency, 0.99) / 1e3);
}

const struct mode mode_idle = { "idle", 64, 250, run, print };

/* -- idle-clients */

static void
silent_opened(struct load *l, struct conn *c)
{
	(void)l;
	c->waiting = false;
}

static void
silent_client(struct load *l, struct conn *c, uint32_t events)
{
	(void)events;
	conn_fail(l, c, "the proxy said something, or closed");
}

/* Where the proxy connects at once, as a forwarder does. */
static void
silent_origin(struct load *l, struct conn *c, uint32_t events)
{
	(void)events;
	if (message_expect_end(l, c) == 1)
		conn_close(l, c);
}

static const struct handlers silent = { silent_opened, silent_client, silent_origin, NULL };

static void
run_silent(struct load *l)
{
	l->handlers = &silent;
	l->blocking = true;
	l->opt.silent = true;
	open_all(l, AT_ONCE);
	hold(l);
	close_all(l);
}

const struct mode mode_idle_clients = { "idle-clients", 64, 250, run_silent, NULL };

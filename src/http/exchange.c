/* SPDX-License-Identifier: ISC */
#include "http/exchange_internal.h"

#include <assert.h>
#include <stdlib.h>

static void
log_upstream(struct exchange *x, const char *cause, int err)
{
	char to[TARGET_TEXT_MAX], client[ADDR_TEXT_MAX];

	target_authority(&x->target, 80, to);
	log_info(LOG_C_UPSTREAM, exchange_who(x), "exchange failed client=%s target=%s cause=\"%s\" error=\"%s\"",
	    addr_format(x->client.peer, client), to, cause, err < 0 ? io_strerror(err) : "none");
}

/* ---- the end ---- */

static void
end_now(struct exchange *x)
{
	const struct exchange_owner *calls = x->owner_calls;
	void *owner = x->owner;
	enum exchange_end end = x->end;
	struct reply reply = x->reply;

	assert(x->upstream == NULL && x->dial == NULL);
	assert(!io_armed(&x->up) && !io_armed(&x->down) && !io_armed(&x->out));
	io_timer_stop(exchange_loop(x), &x->timer);
	input_free(&x->in);
	free(x->req_head);
	free(x->resp_head);
	free(x);
	calls->end(owner, end, end == EXCHANGE_ANSWER ? &reply : NULL);
}

void
exchange_maybe_end(struct exchange *x)
{
	if (x->ending && x->upstream == NULL && !io_armed(&x->out))
		end_now(x);
}

static void
on_upstream_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct stream *s = stream_of_sock(sock);
	struct exchange *x = s->owner;

	(void)loop;
	stream_free(s);
	x->upstream = NULL;
	exchange_maybe_end(x);
}

/*
 * May free x: nothing may touch it after a call that can end it.  Relays end
 * with the upstream's close; a send to the client is only ever armed here when
 * the client is to be cut.
 */
void
exchange_finish(struct exchange *x, enum exchange_end how, const struct reply *reply)
{
	if (x->ending)
		return;
	x->ending = true;
	x->end = how;
	if (reply != NULL)
		x->reply = *reply;
	io_timer_stop(exchange_loop(x), &x->timer);
	if (x->dial != NULL)
		dial_cancel(x->dial);
	x->dial = NULL;
	io_cancel(&x->out);
	if (x->upstream != NULL) {
		x->upstream->owner = x;
		/* An unfinished request must not look like a finished one. */
		if (how == EXCHANGE_KEEP || x->request == REQUEST_DONE)
			stream_close(x->upstream, on_upstream_closed);
		else
			stream_close_reset(x->upstream, on_upstream_closed);
		return;
	}
	exchange_maybe_end(x);
}

void
exchange_fail(struct exchange *x, enum counter which, struct reply reply, int err)
{
	if (x->ending)
		return;
	counters_add(x->client.env->count, which, 1);
	log_upstream(x, reply.cause, err);
	exchange_finish(x, exchange_unanswerable(x) ? EXCHANGE_CUT : EXCHANGE_ANSWER, &reply);
}

void
exchange_cut(struct exchange *x)
{
	exchange_finish(x, EXCHANGE_CUT, NULL);
}

/* ---- time ---- */

/* Nothing can happen before the client sends, or takes, some bytes. */
static bool
waits_for_client(const struct exchange *x)
{
	if (io_armed(&x->out))
		return true;
	if (exchange_relay_holds(&x->down))
		return true;
	if (x->request == REQUEST_BODY)
		return !io_armed(&x->up) ||
		    (x->up.kind == IO_RELAY && io_relay_held(&x->up) == 0);
	return false;
}

/* A send is under way, in either direction. */
static bool
exchange_holds_bytes(const struct exchange *x)
{
	return io_armed(&x->out) || (io_armed(&x->up) && x->up.kind == IO_SEND) ||
	    exchange_relay_holds(&x->up) || exchange_relay_holds(&x->down);
}

static uint64_t
last_progress(const struct exchange *x)
{
	uint64_t t = x->last_ns;

	if (io_armed(&x->up) && x->up.kind == IO_RELAY && x->up.u.relay.last_ns > t)
		t = x->up.u.relay.last_ns;
	if (io_armed(&x->down) && x->down.kind == IO_RELAY && x->down.u.relay.last_ns > t)
		t = x->down.u.relay.last_ns;
	return t;
}

static void
timed_out(struct exchange *x)
{
	static const struct reply slow_origin = {
		504, "http_response_timeout", "the origin did not answer in time", 0
	};
	static const struct reply slow_client = {
		408, NULL, "the request's body did not arrive in time", 0
	};

	if (!waits_for_client(x)) {
		exchange_fail(x, COUNT_UPSTREAM_TIMEOUT, slow_origin, IO_ETIMEDOUT);
		return;
	}
	counters_add(x->client.env->count, COUNT_IDLE_TIMEOUT, 1);
	exchange_finish(x, exchange_unanswerable(x) ? EXCHANGE_CUT : EXCHANGE_ANSWER, &slow_client);
}

/* Looks when the time would be up had nothing moved since: traffic costs no timer. */
void
exchange_on_timer(struct io_loop *loop, struct io_timer *t)
{
	struct exchange *x = io_container_of(t, struct exchange, timer);
	uint32_t idle_s = x->client.env->conf->limits.idle_timeout_s;
	uint64_t limit_s = waits_for_client(x) && idle_s != 0 ? idle_s : UPSTREAM_TIMEOUT_S;
	uint64_t at_ns = last_progress(x) + limit_s * NS_PER_S;
	uint64_t acked_bytes = stream_acked_bytes(x->client.stream) + stream_acked_bytes(x->upstream);

	/* A peer that takes a large send a little at a time is slow, not idle. */
	if (at_ns <= io_now(loop) && acked_bytes != x->acked_bytes && exchange_holds_bytes(x))
		at_ns = io_now(loop) + limit_s * NS_PER_S;
	x->acked_bytes = acked_bytes;
	if (at_ns > io_now(loop)) {
		uint64_t look_ns = io_now(loop) + UPSTREAM_TIMEOUT_S * NS_PER_S;

		/* Whom it waits for may change in between: look again soon enough for either. */
		io_timer_set(loop, t, at_ns < look_ns ? at_ns : look_ns, exchange_on_timer);
		return;
	}
	timed_out(x);
}

/* ---- start ---- */

static void
on_dialed(void *owner, const struct dial_result *r)
{
	struct exchange *x = owner;
	struct env *env = x->client.env;

	x->dial = NULL;
	if (r->status != DIAL_OK) {
		exchange_fail(x, r->status == DIAL_DENIED ? COUNT_REFUSED_LOOP :
		    r->status == DIAL_FAILED || r->status == DIAL_NO_RESOURCES ? COUNT_CONNECT_FAILED :
		    COUNT_RESOLVE_FAILED, reply_for_dial(r), r->err);
		return;
	}
	x->upstream = r->stream;
	exchange_progress(x);
	io_timer_set(env->loop, &x->timer, io_now(env->loop) + UPSTREAM_TIMEOUT_S * NS_PER_S, exchange_on_timer);
	exchange_send_up(x, x->up_rest, 0);
	exchange_response_step(x);
}

static void
on_dial_timeout(struct io_loop *loop, struct io_timer *t)
{
	struct exchange *x = io_container_of(t, struct exchange, timer);
	struct dial_result r = { .status = DIAL_FAILED, .err = IO_ETIMEDOUT };

	(void)loop;
	exchange_fail(x, COUNT_CONNECT_TIMEOUT, reply_for_dial(&r), IO_ETIMEDOUT);
}

static bool
may_dial(void *owner, const struct addr *a)
{
	struct exchange *x = owner;

	return !env_is_self(x->client.env, a);
}

/* The head as the origin gets it, in x->req_head. */
static int
rewrite_request(struct exchange *x, const struct http1_head *head, const struct http1_where *where)
{
	/* One request an upstream connection, and the origin is told so. */
	struct http1_write_opts opts = { .via = x->client.env->via, .conn = HTTP1_CONN_CLOSE };
	size_t cap = head->used + HEAD_GROWTH;
	ssize_t n;

	if ((x->req_head = malloc(cap)) == NULL)
		return -1;
	if ((n = http1_write_request(head, where, &x->req, &opts, x->req_head, cap)) < 0)
		return -1;
	x->up_rest = span_of(x->req_head, (size_t)n);
	return 0;
}

struct exchange *
exchange_start(const struct exchange_client *client, const struct http1_head *head,
    const struct http1_where *where, bool close, const struct exchange_owner *calls, void *owner)
{
	struct exchange *x = calloc(1, sizeof *x);
	struct env *env = client->env;
	struct dial_request req = { .target = &where->target, .permit = may_dial };

	if (x == NULL)
		return NULL;
	x->client = *client;
	x->owner_calls = calls;
	x->owner = owner;
	x->target = where->target;
	x->method = head->method;
	x->client_is_10 = head->minor == 0;
	x->close_after = close;
	http1_request_body(head, &x->req);
	x->req_left = x->req.length;
	http1_chunked_init(&x->req_chunks);
	input_init(&x->in, env->pool);
	if (rewrite_request(x, head, where) != 0 ||
	    (x->dial = dial_start(env->dialer, &req, on_dialed, x)) == NULL) {
		free(x->req_head);
		free(x);
		return NULL;
	}
	input_consume(client->input, head->used);
	counters_add(env->count, COUNT_HTTP_REQUESTS, 1);
	exchange_progress(x);
	if (env->conf->limits.connect_timeout_s != 0)
		io_timer_set(env->loop, &x->timer, io_now(env->loop) +
		    env->conf->limits.connect_timeout_s * NS_PER_S, on_dial_timeout);
	return x;
}

void
exchange_input(struct exchange *x)
{
	if (x->ending)
		return;
	if (input_bytes(x->client.input).len == 0) {	/* the client ended inside a chunked body */
		exchange_cut(x);
		return;
	}
	exchange_progress(x);
	exchange_request_step(x);
}

void
exchange_close_after(struct exchange *x)
{
	if (!x->answered)
		x->close_after = true;
}

void
exchange_abort(struct exchange *x)
{
	exchange_cut(x);
}

uint64_t
exchange_stalled_since(const struct exchange *x)
{
	uint64_t since = UINT64_MAX;

	if (exchange_relay_holds(&x->up))
		since = x->up.u.relay.last_ns;
	if (exchange_relay_holds(&x->down) && x->down.u.relay.last_ns < since)
		since = x->down.u.relay.last_ns;
	/* Bytes received from the origin that the client does not take pin a block too. */
	if (io_armed(&x->out) && input_bytes(&x->in).len > 0 && x->last_ns < since)
		since = x->last_ns;
	return since;
}

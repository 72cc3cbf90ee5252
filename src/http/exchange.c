/* SPDX-License-Identifier: ISC */
#include "http/exchange_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static void
log_upstream(struct exchange *x, const char *cause, int err)
{
	char to[TARGET_TEXT_MAX], client[ADDR_TEXT_MAX];

	target_authority(&x->target, 80, to);
	log_info(LOG_C_UPSTREAM, exchange_who(x), "exchange failed client=%s target=%s cause=\"%s\" error=\"%s\"",
	    addr_format(x->client.peer, client), to, cause, err < 0 ? io_strerror(err) : "none");
}

/* One line a request, also for one that was cut. */
static void
log_access(struct exchange *x)
{
	struct access_entry *e = &x->entry;

	if (x->client.env->access == NULL)
		return;
	e->status = x->status != 0 ? x->status : x->reply.status;
	e->bytes = x->body_down;
	e->up = x->body_up;
	e->dur_us = (io_now(exchange_loop(x)) - x->client.start_ns) / 1000;
	if (x->upstream_addr.len != 0)
		e->upstream = &x->upstream_addr;
	e->acl = x->judge.cause == JUDGE_NONE ? ACCESS_ACL_ALLOW : ACCESS_ACL_DENY;
	e->rule = span_str(x->judge.rule != NULL ? x->judge.rule : "");
	accesslog_write(x->client.env->access, e);
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
	log_access(x);
	judge_close(&x->judge);
	free(x->entry_text);
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
		504, "http_response_timeout", "the origin did not answer in time", 0, NULL
	};
	static const struct reply slow_client = {
		408, NULL, "the request's body did not arrive in time", 0, NULL
	};

	if (!waits_for_client(x)) {
		exchange_fail(x, COUNT_UPSTREAM_TIMEOUT, slow_origin, IO_ETIMEDOUT);
		return;
	}
	counters_add(x->client.env->count, COUNT_IDLE_TIMEOUT, 1);
	exchange_finish(x, exchange_unanswerable(x) ? EXCHANGE_CUT : EXCHANGE_ANSWER, &slow_client);
}

/* Whom it waits for may change in between: look again soon enough for either. */
static uint64_t
next_look(const struct exchange *x)
{
	uint32_t upstream_s = x->client.conf->http.upstream_timeout_s;
	uint32_t idle_s = x->client.conf->limits.idle_timeout_s;

	return io_now(exchange_loop(x)) +
	    (idle_s != 0 && idle_s < upstream_s ? idle_s : upstream_s) * NS_PER_S;
}

/* Looks when the time would be up had nothing moved since: traffic costs no timer. */
void
exchange_on_timer(struct io_loop *loop, struct io_timer *t)
{
	struct exchange *x = io_container_of(t, struct exchange, timer);
	uint32_t idle_s = x->client.conf->limits.idle_timeout_s;
	uint64_t limit_s = waits_for_client(x) && idle_s != 0 ? idle_s : x->client.conf->http.upstream_timeout_s;
	uint64_t at_ns = last_progress(x) + limit_s * NS_PER_S;
	uint64_t acked_bytes = stream_acked_bytes(x->client.stream) + stream_acked_bytes(x->upstream);

	/* A peer that takes a large send a little at a time is slow, not idle. */
	if (at_ns <= io_now(loop) && acked_bytes != x->acked_bytes && exchange_holds_bytes(x))
		at_ns = io_now(loop) + limit_s * NS_PER_S;
	x->acked_bytes = acked_bytes;
	if (at_ns > io_now(loop)) {
		uint64_t look_ns = next_look(x);

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
	if (r->status == DIAL_DENIED) {
		exchange_fail(x, x->judge.cause == JUDGE_ACL ? COUNT_REFUSED_ACL :
		    x->judge.cause == JUDGE_LOCAL ? COUNT_REFUSED_LOCAL : COUNT_REFUSED_LOOP,
		    reply_for_judge(&x->judge), 0);
		return;
	}
	x->upstream_addr = r->peer;
	if (r->status != DIAL_OK) {
		if (r->status == DIAL_NO_NAME || r->status == DIAL_DNS_FAILED || r->status == DIAL_DNS_TIMEOUT)
			log_info(LOG_C_RESOLVE, exchange_who(x), "cannot resolve target=%s cause=\"%s\"",
			    x->target.host, resolve_strerror(r->dns));
		exchange_fail(x, r->status == DIAL_FAILED || r->status == DIAL_NO_RESOURCES ? COUNT_CONNECT_FAILED :
		    COUNT_RESOLVE_FAILED, reply_for_dial(r), r->err);
		return;
	}
	x->upstream = r->stream;
	exchange_progress(x);
	io_timer_set(env->loop, &x->timer, next_look(x), exchange_on_timer);
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

	return judge_permits(&x->judge, a, env_is_self(x->client.env, a));
}

/* http.forwarded_for: append.  What came, and the client; malloc'ed, NULL when out of memory. */
static char *
forwarded_for(const struct exchange *x, const struct http1_head *head)
{
	size_t len = ADDR_TEXT_MAX, used = 0;
	char addr[ADDR_TEXT_MAX], *text;

	for (ssize_t i = -1; (i = http1_find(head, HTTP1_F_X_FORWARDED_FOR, (size_t)(i + 1))) >= 0;)
		len += head->fields[i].value.len + 2;
	if ((text = malloc(len)) == NULL)
		return NULL;
	for (ssize_t i = -1; (i = http1_find(head, HTTP1_F_X_FORWARDED_FOR, (size_t)(i + 1))) >= 0;) {
		struct span v = head->fields[i].value;

		if (v.len == 0)
			continue;
		memcpy(text + used, v.base, v.len);
		memcpy(text + used + v.len, ", ", 2);
		used += v.len + 2;
	}
	snprintf(text + used, len - used, "%s", addr_format_ip(x->client.peer, addr));
	return text;
}

/* The head as the origin gets it, in x->req_head. */
static int
rewrite_request(struct exchange *x, const struct http1_head *head, const struct http1_where *where)
{
	static const enum http1_field_id drop = HTTP1_F_X_FORWARDED_FOR;
	enum conf_forwarded_for ff = x->client.conf->http.forwarded_for;
	struct http1_extra extra = { span_str("X-Forwarded-For"), { NULL, 0 } };
	/* One request an upstream connection, and the origin is told so. */
	struct http1_write_opts opts = { .via = exchange_via(x), .conn = HTTP1_CONN_CLOSE };
	size_t cap = head->used + head->field_count + HEAD_GROWTH;
	char *text = NULL;
	ssize_t n = -1;

	if (ff != CONF_FORWARDED_OFF) {
		opts.drop = &drop;
		opts.drop_count = 1;
	}
	if (ff == CONF_FORWARDED_APPEND) {
		if ((text = forwarded_for(x, head)) == NULL)
			return -1;
		extra.value = span_str(text);
		opts.extra = &extra;
		opts.extra_count = 1;
	}
	if ((x->req_head = malloc(cap)) != NULL)
		n = http1_write_request(head, where, &x->req, &opts, x->req_head, cap);
	free(text);
	if (n < 0)
		return -1;
	x->up_rest = span_of(x->req_head, (size_t)n);
	return 0;
}

/* The head is gone when the line is due. */
static void
keep_entry(struct exchange *x, const struct http1_head *head)
{
	char host[TARGET_TEXT_MAX];

	if (x->client.env->access == NULL)
		return;
	x->entry = (struct access_entry){
		.start_us = x->client.start_us, .client = x->client.peer, .proto = "http",
		.id = x->client.session_id, .method = head->method_text, .target = head->target_text,
		.version = span_str(head->minor == 0 ? "HTTP/1.0" : "HTTP/1.1"),
		.host = span_of(host, target_authority(&x->target, 80, host)),
		.user = x->client.user, .rule = span_of("", 0)
	};
	x->entry_text = access_entry_keep(&x->entry);
}

struct exchange *
exchange_start(const struct exchange_client *client, const struct http1_head *head,
    const struct http1_where *where, struct judge *judge, bool close,
    const struct exchange_owner *calls, void *owner)
{
	struct exchange *x = calloc(1, sizeof *x);
	struct env *env = client->env;
	struct dial_request req = { .permit = may_dial };

	if (x == NULL)
		return NULL;
	x->client = *client;
	x->owner_calls = calls;
	x->owner = owner;
	x->target = where->target;
	x->judge = *judge;
	x->judge.request.target = &x->target;
	if (!judge->routed)
		x->judge.dial = &x->target;
	req.target = x->judge.dial;
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
	keep_entry(x, head);
	input_consume(client->input, head->used);
	counters_add(env->count, COUNT_HTTP_REQUESTS, 1);
	exchange_progress(x);
	if (x->client.conf->limits.connect_timeout_s != 0)
		io_timer_set(env->loop, &x->timer, io_now(env->loop) +
		    x->client.conf->limits.connect_timeout_s * NS_PER_S, on_dial_timeout);
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

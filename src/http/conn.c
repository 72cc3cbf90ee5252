/* SPDX-License-Identifier: ISC */
#include "http/conn_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "util/accesslog.h"

/* Pipelined bytes kept while an exchange runs: beyond it the client is not read, and its reset not seen. */
enum { WATCH_BYTES = 16 * 1024 };

static void on_received(struct io_loop *, struct io_op *);
static void on_timer(struct io_loop *, struct io_timer *);

void
conn_set_timer_s(struct http_conn *c, uint32_t seconds)
{
	if (seconds == 0)
		io_timer_stop(c->env->loop, &c->timer);
	else
		io_timer_set(c->env->loop, &c->timer, io_now(c->env->loop) + seconds * NS_PER_S,
		    on_timer);
}

/* ---- the end ---- */

void
conn_free(struct http_conn *c)
{
	assert(c->exchange == NULL && !io_armed(&c->recv) && !io_armed(&c->send));
	io_timer_stop(c->env->loop, &c->timer);
	auth_leave(&c->auth);
	snapshot_drop(c->snapshot);
	free((char *)(uintptr_t)c->user.base);
	free(c->answer);
	free(c);
}

static void
gone(void *arg)
{
	struct http_conn *c = arg;
	const struct http_conn_owner *calls = c->owner_calls;
	void *owner = c->owner;

	input_free(c->in);
	conn_free(c);
	calls->end(owner);
}

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct stream *s = stream_of_sock(sock);
	struct http_conn *c = s->owner;

	(void)loop;
	stream_free(s);
	gone(c);
}

void
conn_close(struct http_conn *c, bool reset)
{
	if (c->state == CONN_CLOSING)
		return;
	auth_leave(&c->auth);
	c->state = CONN_CLOSING;
	io_timer_stop(c->env->loop, &c->timer);
	c->client->owner = c;
	if (reset)
		stream_close_reset(c->client, on_closed);
	else
		stream_close(c->client, on_closed);
}

static void
farewell(struct http_conn *c)
{
	c->state = CONN_FAREWELL;
	farewell_start(&c->farewell, c->env, c->client, c->answer_rest, gone, c);
}

void
conn_stop(struct http_conn *c)
{
	io_timer_stop(c->env->loop, &c->timer);
	c->state = CONN_STOPPING;
	if (io_armed(&c->recv))
		io_cancel(&c->recv);	/* farewell reads for itself */
	else
		farewell(c);
}

/* ---- answers of our own ---- */

static void
on_answer_sent(struct io_loop *loop, struct io_op *op)
{
	struct http_conn *c = io_container_of(op, struct http_conn, send);

	(void)loop;
	if (c->state == CONN_CLOSING)
		return;
	if (op->res < 0) {
		conn_close(c, true);
		return;
	}
	c->answer_rest = span_of(c->answer_rest.base + op->res, c->answer_rest.len - (size_t)op->res);
	if (c->answer_rest.len > 0) {
		stream_send(c->client, &c->send, c->answer_rest.base, c->answer_rest.len, on_answer_sent);
		return;
	}
	free(c->answer);
	c->answer = NULL;
	c->state = CONN_HEAD;
	conn_process(c);
}

void
conn_answer(struct http_conn *c, const struct reply *r, bool keep)
{
	size_t len = 0;

	keep = keep && !c->draining;
	assert(c->answer == NULL);
	if ((c->answer = malloc(REPLY_MAX)) != NULL)
		len = reply_write(r, keep, c->is_head, c->answer);
	c->answer_rest = span_of(c->answer, len);
	if (!keep || len == 0) {
		conn_stop(c);
		return;
	}
	c->state = CONN_ANSWERING;
	conn_set_timer_s(c, c->snapshot->conf->limits.handshake_timeout_s);
	stream_send(c->client, &c->send, c->answer_rest.base, c->answer_rest.len, on_answer_sent);
}

/* ---- reading ---- */

void
conn_receive(struct http_conn *c)
{
	if (io_armed(&c->recv) || c->client_ended)
		return;
	if (input_park(c->in) != 0) {
		if (c->exchange != NULL)
			exchange_abort(c->exchange);
		else
			conn_close(c, true);
		return;
	}
	stream_recv_pool(c->client, &c->recv, c->env->pool, IO_USE_RESERVE, on_received);
}

static void
give_back(struct http_conn *c, struct io_op *op)
{
	for (unsigned i = 0; i < op->u.pool.n; i++)
		io_buf_put(c->env->pool, &op->u.pool.bufs[i]);
}

/* During an exchange the client is watched: what it sends waits, its end is noted, its reset ends all. */
static void
received_in_exchange(struct http_conn *c)
{
	if (c->wants_input) {
		c->wants_input = false;
		exchange_input(c->exchange);
	} else if (input_park(c->in) != 0)
		exchange_abort(c->exchange);
	else if (c->request_read)
		conn_watch(c);
}

void
conn_watch(struct http_conn *c)
{
	if (input_bytes(c->in).len < WATCH_BYTES)
		conn_receive(c);
}

static void
on_received(struct io_loop *loop, struct io_op *op)
{
	struct http_conn *c = io_container_of(op, struct http_conn, recv);

	(void)loop;
	if (c->state == CONN_CLOSING || c->state == CONN_STOPPING) {
		give_back(c, op);
		if (c->state == CONN_STOPPING)
			farewell(c);
		return;
	}
	if (op->res == IO_ECANCELED) {	/* by conn_process */
		if (c->state == CONN_HEAD)
			conn_process(c);
		return;
	}
	c->client_ended = op->res <= 0;
	if (op->res < 0 || (op->res > 0 && input_add(c->in, op) != 0)) {
		if (c->state == CONN_EXCHANGE)
			exchange_abort(c->exchange);
		else
			conn_close(c, true);
		return;
	}
	if (c->state == CONN_EXCHANGE)
		received_in_exchange(c);
	else if (c->state == CONN_HEAD)
		conn_process(c);
}

static void
on_timer(struct io_loop *loop, struct io_timer *t)
{
	struct http_conn *c = io_container_of(t, struct http_conn, timer);
	static const struct reply late = { 408, NULL, "the request did not arrive in time", 0, NULL };

	(void)loop;
	if (c->state == CONN_HEAD && c->head_begun) {
		c->is_head = c->is_10 = false;
		conn_refuse(c, COUNT_HANDSHAKE_TIMEOUT, &late, false, "handshake_timeout");
	} else
		conn_close(c, c->state == CONN_ANSWERING || c->state == CONN_VERIFY);
}

/* handshake_timeout_s: of the first head from accept on, of the others from their first byte. */
static void
set_head_timer(struct http_conn *c)
{
	uint32_t timeout_s = c->snapshot->conf->limits.handshake_timeout_s;

	if (c->accepted_ns == 0)
		conn_set_timer_s(c, timeout_s);
	else
		io_timer_set(c->env->loop, &c->timer, c->accepted_ns + timeout_s * NS_PER_S, on_timer);
	c->accepted_ns = 0;
}

void
conn_process(struct http_conn *c)
{
	const struct conf_limits *limits = &c->snapshot->conf->limits;
	struct span bytes = input_bytes(c->in);
	enum http1_verdict v;

	assert(c->state == CONN_HEAD && !io_armed(&c->send));
	/* A watch that is still armed would add to the input under the parser: on_received comes back here. */
	if (bytes.len > 0 && io_armed(&c->recv)) {
		io_cancel(&c->recv);
		return;
	}
	if (bytes.len == 0) {
		if (c->client_ended || c->draining) {
			conn_stop(c);
			return;
		}
		conn_set_timer_s(c, c->snapshot->conf->http.keepalive_timeout_s);
		conn_receive(c);
		return;
	}
	if (!c->head_begun) {
		http1_head_init(&c->head, c->env->fields, c->env->field_max, limits->header_bytes);
		c->head_begun = true;
		c->is_head = c->is_10 = c->authenticated = false;
		c->start_us = access_now_us();
		c->start_ns = io_now(c->env->loop);
		set_head_timer(c);
	}
	v = http1_parse_request(&c->head, bytes);
	if (v == HTTP1_OK)
		conn_begin_request(c);
	else if (v != HTTP1_MORE)
		conn_refuse_verdict(c, v);
	else if (c->client_ended)
		conn_stop(c);
	else
		conn_receive(c);
}

/* ---- for the owner ---- */

int
http_conn_start(struct http_conn **out, struct env *env, const struct http_client *client,
    struct stream *stream, struct input *in, const struct http_conn_owner *calls, void *owner)
{
	struct http_conn *c = calloc(1, sizeof *c);

	if (c == NULL)
		return -ENOMEM;
	c->env = env;
	c->session_id = client->session_id;
	c->peer = *client->peer;
	c->snapshot = snapshot_hold(client->snapshot);
	c->listen = client->listen;
	c->accepted_ns = client->accepted_ns;
	c->client = stream;
	c->in = in;
	c->owner_calls = calls;
	c->owner = owner;
	*out = c;
	conn_process(c);
	return 0;
}

void
http_conn_drain(struct http_conn *c)
{
	c->draining = true;
	if (c->state == CONN_EXCHANGE)
		exchange_close_after(c->exchange);
	else if (c->state == CONN_HEAD && !c->head_begun)
		conn_stop(c);
}

void
http_conn_abort(struct http_conn *c)
{
	switch (c->state) {
	case CONN_EXCHANGE:
		exchange_abort(c->exchange);
		break;
	case CONN_FAREWELL:
		farewell_abort(&c->farewell);
		break;
	default:
		conn_close(c, true);
	}
}

uint64_t
http_conn_stalled_since(const struct http_conn *c)
{
	return c->state == CONN_EXCHANGE ? exchange_stalled_since(c->exchange) : UINT64_MAX;
}

/* SPDX-License-Identifier: ISC */
#include "http/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "http/exchange.h"
#include "net/farewell.h"

enum {
	KEEPALIVE_S = 60	/* an idle connection between two requests */
};

#define NS_PER_S UINT64_C(1000000000)

enum conn_state {
	CONN_HEAD,		/* idle, or reading a request's head */
	CONN_EXCHANGE,
	CONN_ANSWERING,		/* an answer of ours, then the next request */
	CONN_STOPPING,		/* waiting for our receive to end, then FAREWELL */
	CONN_FAREWELL,
	CONN_CLOSING
};

struct http_conn {
	struct env		*env;
	uint64_t		 session_id;
	struct addr		 peer;
	struct stream		*client;
	struct input		*in;		/* the owner's */
	const struct http_conn_owner *owner_calls;
	void			*owner;

	enum conn_state		 state;
	struct io_op		 recv;
	struct io_op		 send;		/* ANSWERING */
	struct io_timer		 timer;
	struct http1_head	 head;		/* of the request being read */
	struct exchange		*exchange;
	bool			 head_begun;	/* bytes of the next head are here: handshake_timeout_s runs */
	bool			 client_ended;	/* FIN seen */
	bool			 draining;
	bool			 wants_input;	/* the exchange does */
	bool			 request_read;	/* of the exchange under way */
	/* Of the request that is being answered, for answers of our own. */
	bool			 is_head, is_10, keep;

	struct farewell		 farewell;
	char			*answer;
	struct span		 answer_rest;
};

static void conn_process(struct http_conn *);
static void on_received(struct io_loop *, struct io_op *);
static void on_timer(struct io_loop *, struct io_timer *);

static struct log_who
who(const struct http_conn *c)
{
	return env_who(c->env, c->session_id);
}

static void
set_timer_s(struct http_conn *c, uint32_t seconds)
{
	if (seconds == 0)
		io_timer_stop(c->env->loop, &c->timer);
	else
		io_timer_set(c->env->loop, &c->timer, io_now(c->env->loop) + seconds * NS_PER_S,
		    on_timer);
}

/* ---- the end ---- */

static void
conn_free(struct http_conn *c)
{
	assert(c->exchange == NULL && !io_armed(&c->recv) && !io_armed(&c->send));
	io_timer_stop(c->env->loop, &c->timer);
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

static void
conn_close(struct http_conn *c, bool reset)
{
	if (c->state == CONN_CLOSING)
		return;
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

/* Sends what is in answer_rest, then closes so that the client can read it. */
static void
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

static void
answer(struct http_conn *c, const struct reply *r, bool keep)
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
	set_timer_s(c, c->env->conf->limits.handshake_timeout_s);
	stream_send(c->client, &c->send, c->answer_rest.base, c->answer_rest.len, on_answer_sent);
}

/* A request that is no request, or one that we do not serve. */
static void
refuse(struct http_conn *c, enum counter which, const struct reply *r)
{
	char client[ADDR_TEXT_MAX];

	counters_add(c->env->count, which, 1);
	counters_add(c->env->count, COUNT_HTTP_REQUESTS, 1);
	log_info(LOG_C_PROTOCOL, who(c), "request refused client=%s status=%u cause=\"%s\"",
	    addr_format(&c->peer, client), r->status, r->cause);
	answer(c, r, false);
}

static void
refuse_verdict(struct http_conn *c, enum http1_verdict v)
{
	struct reply r = { http1_verdict_status(v), "http_request_error", http1_verdict_cause(v), 0 };

	refuse(c, COUNT_MALFORMED, &r);
}

/* ---- reading ---- */

static void
receive(struct http_conn *c)
{
	if (io_armed(&c->recv) || c->client_ended)
		return;
	if (input_park(c->in) != 0) {
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
	static const struct reply late = { 408, NULL, "the request did not arrive in time", 0 };

	(void)loop;
	if (c->state == CONN_HEAD && c->head_begun) {
		c->is_head = c->is_10 = false;
		refuse(c, COUNT_HANDSHAKE_TIMEOUT, &late);
	} else
		conn_close(c, c->state == CONN_ANSWERING);
}

/* ---- exchanges ---- */

static void
on_need_input(void *owner)
{
	struct http_conn *c = owner;

	if (c->client_ended) {
		exchange_abort(c->exchange);
		return;
	}
	c->wants_input = true;
	receive(c);
}

/* With pipelined bytes here already nothing is read: that is the limit on what is kept. */
static void
watch(struct http_conn *c)
{
	if (input_bytes(c->in).len == 0)
		receive(c);
}

static void
on_request_read(void *owner)
{
	struct http_conn *c = owner;

	c->request_read = true;
	watch(c);
}

static void
on_exchange_end(void *owner, enum exchange_end end, const struct reply *reply)
{
	struct http_conn *c = owner;

	c->exchange = NULL;
	c->wants_input = false;
	switch (end) {
	case EXCHANGE_KEEP:
		c->state = CONN_HEAD;
		conn_process(c);
		break;
	case EXCHANGE_CLOSE:
		conn_stop(c);
		break;
	case EXCHANGE_ANSWER:
		answer(c, reply, c->keep && c->request_read);
		break;
	case EXCHANGE_CUT:
		conn_close(c, true);
		break;
	}
}

static const struct exchange_owner exchange_owner = {
	.need_input = on_need_input,
	.request_read = on_request_read,
	.end = on_exchange_end
};

static void
start_exchange(struct http_conn *c, const struct http1_where *where)
{
	static const struct reply no_memory = { 503, "proxy_internal_error", "out of memory", 1 };
	struct exchange_client client = {
		.env = c->env, .session_id = c->session_id, .peer = &c->peer,
		.stream = c->client, .input = c->in
	};
	struct http1_framing body;

	c->state = CONN_EXCHANGE;
	c->exchange = exchange_start(&client, &c->head, where, !c->keep || c->draining,
	    &exchange_owner, c);
	if (c->exchange == NULL) {
		refuse(c, COUNT_REFUSED_POOL, &no_memory);
		return;
	}
	/* Without a body the request is read already, though not sent yet. */
	http1_request_body(&c->head, &body);
	c->request_read = body.body == HTTP1_BODY_NONE;
	if (c->request_read)
		watch(c);
}

static void
hand_over_connect(struct http_conn *c, const struct target *target)
{
	const struct http_conn_owner *calls = c->owner_calls;
	void *owner = c->owner;
	struct stream *client = c->client;
	struct target to = *target;
	bool is_10 = c->is_10;

	input_consume(c->in, c->head.used);
	conn_free(c);
	calls->connect(owner, client, &to, is_10);
}

static void
handle_request(struct http_conn *c)
{
	static const struct reply busy = { 503, "connection_limit_reached", "relay memory is exhausted", 1 };
	static const struct reply loop = { 508, "proxy_loop_detected", "the request has been here before", 0 };
	static const struct reply origin_form = {
		400, "http_request_error",
		"this is a proxy: the request needs an absolute URI (http://host/path)", 0
	};
	struct http1_where where;
	enum http1_verdict v;

	io_timer_stop(c->env->loop, &c->timer);
	c->head_begun = false;
	c->is_head = c->head.method == HTTP1_M_HEAD;
	c->is_10 = c->head.minor == 0;
	c->keep = http1_keep_alive(&c->head);
	if ((v = http1_request_target(&c->head, &where)) != HTTP1_OK)
		refuse_verdict(c, v);
	else if (where.form == HTTP1_FORM_AUTHORITY)
		hand_over_connect(c, &where.target);
	else if (http1_via_names(&c->head, c->env->via))
		refuse(c, COUNT_REFUSED_LOOP, &loop);
	else if (where.form != HTTP1_FORM_ABSOLUTE)
		refuse(c, COUNT_MALFORMED, &origin_form);
	else if (env_overloaded(c->env))
		refuse(c, COUNT_REFUSED_POOL, &busy);
	else
		start_exchange(c, &where);
}

/* CONN_HEAD: the next request, or what to wait for. */
static void
conn_process(struct http_conn *c)
{
	const struct conf_limits *limits = &c->env->conf->limits;
	struct span bytes = input_bytes(c->in);
	enum http1_verdict v;

	assert(c->state == CONN_HEAD && !io_armed(&c->send));
	if (bytes.len == 0) {
		if (c->client_ended || c->draining) {
			conn_stop(c);
			return;
		}
		set_timer_s(c, KEEPALIVE_S);
		receive(c);
		return;
	}
	if (!c->head_begun) {
		http1_head_init(&c->head, c->env->fields, limits->header_count, limits->header_bytes);
		c->head_begun = true;
		c->is_head = c->is_10 = false;
		set_timer_s(c, limits->handshake_timeout_s);
	}
	v = http1_parse_request(&c->head, bytes);
	if (v == HTTP1_OK)
		handle_request(c);
	else if (v != HTTP1_MORE)
		refuse_verdict(c, v);
	else if (c->client_ended)
		conn_stop(c);
	else
		receive(c);
}

/* ---- for the owner ---- */

int
http_conn_start(struct http_conn **out, struct env *env, uint64_t session_id,
    const struct addr *peer, struct stream *client, struct input *in,
    const struct http_conn_owner *calls, void *owner)
{
	struct http_conn *c = calloc(1, sizeof *c);

	if (c == NULL)
		return -ENOMEM;
	c->env = env;
	c->session_id = session_id;
	c->peer = *peer;
	c->client = client;
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

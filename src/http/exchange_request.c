/* SPDX-License-Identifier: ISC */
/* The request on its way to the origin. */
#include "http/exchange_internal.h"

#include <errno.h>
#include <stdlib.h>

static void on_up_sent(struct io_loop *, struct io_op *);
static void on_up_relayed(struct io_loop *, struct io_op *);

void
exchange_send_up(struct exchange *x, struct span bytes, size_t taken)
{
	x->up_rest = bytes;
	x->up_taken = taken;
	stream_send(x->upstream, &x->up, bytes.base, bytes.len, on_up_sent);
}

static void
request_done(struct exchange *x)
{
	x->request = REQUEST_DONE;
	x->owner_calls->request_read(x->owner);
}

static void
request_chunks(struct exchange *x)
{
	struct span bytes = input_bytes(x->client.input);
	static const struct reply too_large = {
		413, "http_request_error", "the request's body is larger than this proxy allows", 0, NULL
	};
	uint64_t body_max = x->client.conf->http.max_body_bytes;
	size_t used = 0;
	enum http1_verdict v;

	if (x->req_last) {
		request_done(x);
		return;
	}
	if (bytes.len == 0) {
		x->owner_calls->need_input(x->owner);
		return;
	}
	v = http1_chunked_walk(&x->req_chunks, bytes, &used);
	if (v != HTTP1_OK && v != HTTP1_MORE) {
		struct reply bad = { http1_verdict_status(v), "http_request_error", http1_verdict_cause(v), 0, NULL };

		counters_add(x->client.env->count, COUNT_MALFORMED, 1);
		log_info(LOG_C_PROTOCOL, exchange_who(x), "malformed request body cause=\"%s\"", bad.cause);
		exchange_finish(x, exchange_unanswerable(x) ? EXCHANGE_CUT : EXCHANGE_ANSWER, &bad);
		return;
	}
	if (body_max != 0 && x->req_chunks.body_bytes > body_max) {
		counters_add(x->client.env->count, COUNT_REFUSED_BODY, 1);
		exchange_finish(x, exchange_unanswerable(x) ? EXCHANGE_CUT : EXCHANGE_ANSWER, &too_large);
		return;
	}
	x->req_last = v == HTTP1_OK;
	exchange_send_up(x, span_of(bytes.base, used), used);
}

void
exchange_request_step(struct exchange *x)
{
	struct span bytes = input_bytes(x->client.input);

	x->request = REQUEST_BODY;
	if (x->req.body == HTTP1_BODY_CHUNKED) {
		request_chunks(x);
		return;
	}
	if (x->req.body != HTTP1_BODY_LENGTH || x->req_left == 0) {
		request_done(x);
		return;
	}
	if (bytes.len > 0) {
		if (bytes.len > x->req_left)
			bytes.len = (size_t)x->req_left;
		x->req_left -= bytes.len;
		exchange_send_up(x, bytes, bytes.len);
		return;
	}
	io_relay(&x->up, &x->client.stream->sock, &x->upstream->sock, x->client.env->pool,
	    x->req_left, &x->client.env->count->n[COUNT_BYTES_UP], on_up_relayed);
}

/* An origin may answer and close without reading everything: `down` will tell. */
static void
request_failed(struct exchange *x, const struct io_op *op)
{
	x->request = REQUEST_FAILED;
	/*
	 * Linux says EPIPE to the first call when the origin's FIN came before its
	 * reset (tcp_reset()): then its answer was whole.  Behind a short send it
	 * says nothing: a ring may have kept the reset to itself.
	 */
	x->up_after_fin = op->kind == IO_SEND && op->syserr == EPIPE && !x->up_short;
}

static void
on_up_sent(struct io_loop *loop, struct io_op *op)
{
	struct exchange *x = io_container_of(op, struct exchange, up);

	(void)loop;
	if (x->ending)
		return;
	if (op->res < 0) {
		request_failed(x, op);
		return;
	}
	exchange_progress(x);
	x->up_short = (size_t)op->res < x->up_rest.len;
	x->up_rest = span_of(x->up_rest.base + op->res, x->up_rest.len - (size_t)op->res);
	if (x->up_rest.len > 0) {
		stream_send(x->upstream, &x->up, x->up_rest.base, x->up_rest.len, on_up_sent);
		return;
	}
	counters_add(x->client.env->count, COUNT_BYTES_UP, x->up_taken);
	x->body_up += x->up_taken;
	input_consume(x->client.input, x->up_taken);
	free(x->req_head);
	x->req_head = NULL;
	exchange_request_step(x);
}

static void
on_up_relayed(struct io_loop *loop, struct io_op *op)
{
	struct exchange *x = io_container_of(op, struct exchange, up);

	(void)loop;
	x->body_up += op->u.relay.moved;
	if (x->ending)
		return;
	exchange_progress(x);
	if (op->res < 0 && op->u.relay.dst_failed) {
		request_failed(x, op);
		return;
	}
	if (op->res < 0 || op->u.relay.moved < x->req_left) {
		log_debug(exchange_who(x), "client left in the middle of its request's body");
		exchange_cut(x);
		return;
	}
	x->req_left = 0;
	request_done(x);
}

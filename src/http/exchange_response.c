/* SPDX-License-Identifier: ISC */
/* The answer on its way to the client. */
#include "http/exchange_internal.h"

#include <stdlib.h>

static void on_down_received(struct io_loop *, struct io_op *);
static void on_down_relayed(struct io_loop *, struct io_op *);
static void on_out_sent(struct io_loop *, struct io_op *);

static void
fail_protocol(struct exchange *x, const char *cause)
{
	exchange_fail(x, COUNT_UPSTREAM_BROKEN,
	    (struct reply){ 502, "http_protocol_error", cause, 0, NULL }, 0);
}

static void
receive_down(struct exchange *x)
{
	struct reply nomem = { 503, "proxy_internal_error", "out of memory", 1, NULL };

	if (input_park(&x->in) != 0) {
		exchange_fail(x, COUNT_REFUSED_POOL, nomem, IO_ENOMEM);
		return;
	}
	stream_recv_pool(x->upstream, &x->down, x->client.env->pool,
	    x->response == RESPONSE_HEAD ? IO_USE_RESERVE : 0, on_down_received);
}

static void
send_out(struct exchange *x, struct span bytes, size_t taken)
{
	x->out_rest = bytes;
	x->out_taken = taken;
	stream_send(x->client.stream, &x->out, bytes.base, bytes.len, on_out_sent);
}

static void
response_done(struct exchange *x)
{
	exchange_finish(x, x->close_after ? EXCHANGE_CLOSE : EXCHANGE_KEEP, NULL);
}

/* What the client gets: a 1.0 client knows no chunks (RFC 9112 section 7.1). */
static struct http1_framing
framing_for_client(const struct exchange *x)
{
	struct http1_framing f = x->resp;

	if (f.body == HTTP1_BODY_CHUNKED && x->client_is_10)
		f.body = HTTP1_BODY_CLOSE;
	return f;
}

static void
forward_head(struct exchange *x, const struct http1_framing *framing, bool interim)
{
	size_t cap = x->head.used + x->head.field_count + HEAD_GROWTH;
	struct http1_write_opts opts = { .via = exchange_via(x) };
	ssize_t n;

	if (!interim)
		opts.conn = x->close_after ? HTTP1_CONN_CLOSE :
		    x->client_is_10 ? HTTP1_CONN_KEEP_ALIVE : HTTP1_CONN_UNSAID;
	free(x->resp_head);
	if ((x->resp_head = malloc(cap)) == NULL ||
	    (n = http1_write_response(&x->head, framing, &opts, x->resp_head, cap)) < 0) {
		fail_protocol(x, "the origin's answer could not be rewritten");
		return;
	}
	input_consume(&x->in, x->head.used);
	x->answered = x->answered || !interim;
	if (!interim)
		x->status = x->head.status;
	x->response = interim ? RESPONSE_INTERIM : RESPONSE_BODY;
	send_out(x, span_of(x->resp_head, (size_t)n), 0);
}

static void
interim_response(struct exchange *x)
{
	struct http1_framing none = { .body = HTTP1_BODY_NONE };

	/* 101: we never ask for an upgrade. */
	if (x->head.status == 101 || ++x->interim > INTERIM_MAX) {
		fail_protocol(x, x->head.status == 101 ? "the origin switched protocols unasked" :
		    "the origin sent too many interim answers");
		return;
	}
	if (x->client_is_10) {		/* knows no 1xx (RFC 9110 section 15.2) */
		input_consume(&x->in, x->head.used);
		exchange_response_step(x);
		return;
	}
	forward_head(x, &none, true);
}

static void
final_response(struct exchange *x)
{
	struct http1_framing framing;

	http1_response_body(&x->head, x->method, &x->resp);
	framing = framing_for_client(x);
	x->resp_left = x->resp.length;
	http1_chunked_init(&x->resp_chunks);
	/* A body still on its way in can't be told from the next request any more. */
	if (x->request != REQUEST_DONE || framing.body == HTTP1_BODY_CLOSE)
		x->close_after = true;
	forward_head(x, &framing, false);
}

static void
response_head(struct exchange *x)
{
	struct span bytes = input_bytes(&x->in);
	enum http1_verdict v = HTTP1_MORE;

	x->head.fields = x->client.env->fields;
	x->head.field_max = x->client.env->field_max;
	if (bytes.len > 0)
		v = http1_parse_response(&x->head, bytes);
	if (v == HTTP1_MORE) {
		receive_down(x);
		return;
	}
	if (v != HTTP1_OK) {
		fail_protocol(x, http1_verdict_cause(v));
		return;
	}
	if (x->head.status < 200)
		interim_response(x);
	else
		final_response(x);
}

/*
 * Moves the data of whole and partial chunks to the front of the buffer, so
 * that a million small chunks are still one send.
 */
static enum http1_verdict
unchunk(struct exchange *x, struct span bytes, size_t *used, size_t *data_len)
{
	char *to = (char *)(uintptr_t)bytes.base;	/* ours to write: the input's own memory */
	enum http1_verdict v;

	*used = *data_len = 0;
	do {
		size_t n = 0;
		struct span data = { NULL, 0 };

		v = http1_chunked_next(&x->resp_chunks,
		    span_of(bytes.base + *used, bytes.len - *used), &n, &data);
		if (v == HTTP1_DATA) {
			memmove(to + *data_len, data.base, data.len);
			*data_len += data.len;
		}
		*used += n;
	} while (v == HTTP1_DATA && *used < bytes.len);
	return v == HTTP1_DATA ? HTTP1_MORE : v;
}

static void
response_chunks(struct exchange *x)
{
	struct span bytes = input_bytes(&x->in);
	size_t used = 0, len;
	enum http1_verdict v;

	if (x->resp_last) {
		response_done(x);
		return;
	}
	if (bytes.len == 0) {
		receive_down(x);
		return;
	}
	if (x->client_is_10)
		v = unchunk(x, bytes, &used, &len);
	else {
		v = http1_chunked_walk(&x->resp_chunks, bytes, &used);
		len = used;
	}
	if (v != HTTP1_OK && v != HTTP1_MORE) {
		fail_protocol(x, http1_verdict_cause(v));
		return;
	}
	x->resp_last = v == HTTP1_OK;
	if (len > 0)
		send_out(x, span_of(bytes.base, len), used);
	else {
		input_consume(&x->in, used);
		response_chunks(x);
	}
}

static void
response_body(struct exchange *x)
{
	struct span bytes = input_bytes(&x->in);
	bool length = x->resp.body == HTTP1_BODY_LENGTH;

	if (x->resp.body == HTTP1_BODY_CHUNKED) {
		response_chunks(x);
		return;
	}
	if (x->resp.body == HTTP1_BODY_NONE || (length && x->resp_left == 0)) {
		response_done(x);
		return;
	}
	if (bytes.len > 0) {
		if (length && bytes.len > x->resp_left)
			bytes.len = (size_t)x->resp_left;
		x->resp_left -= length ? bytes.len : 0;
		send_out(x, bytes, bytes.len);
		return;
	}
	io_relay(&x->down, &x->upstream->sock, &x->client.stream->sock, x->client.env->pool,
	    length ? x->resp_left : UINT64_MAX, &x->client.env->count->n[COUNT_BYTES_DOWN],
	    on_down_relayed);
}

void
exchange_response_step(struct exchange *x)
{
	switch (x->response) {
	case RESPONSE_INTERIM:
		x->response = RESPONSE_HEAD;
		/* fall through */
	case RESPONSE_HEAD:
		http1_head_init(&x->head, x->client.env->fields,
		    x->client.env->field_max, x->client.conf->limits.header_bytes);
		response_head(x);
		break;
	case RESPONSE_BODY:
		response_body(x);
		break;
	}
}

static void
upstream_ended(struct exchange *x, int err)
{
	struct reply r = { 502, "connection_terminated", "the origin closed without an answer", 0, NULL };

	if (x->response != RESPONSE_HEAD)
		r.cause = "the origin closed in the middle of its answer";
	else if (input_bytes(&x->in).len > 0)
		r.proxy_error = "http_response_incomplete";
	exchange_fail(x, COUNT_UPSTREAM_BROKEN, r, err);
}

static void
on_down_received(struct io_loop *loop, struct io_op *op)
{
	struct exchange *x = io_container_of(op, struct exchange, down);
	int res = op->res;

	(void)loop;
	if (res > 0 && input_add(&x->in, op) != 0)
		res = IO_ENOMEM;
	if (x->ending)
		return;
	exchange_progress(x);
	if (res <= 0) {
		upstream_ended(x, res);
		return;
	}
	if (x->response == RESPONSE_HEAD)
		response_head(x);
	else
		exchange_response_step(x);
}

static void
on_out_sent(struct io_loop *loop, struct io_op *op)
{
	struct exchange *x = io_container_of(op, struct exchange, out);

	(void)loop;
	if (x->ending) {
		exchange_maybe_end(x);
		return;
	}
	if (op->res < 0) {
		exchange_cut(x);
		return;
	}
	exchange_progress(x);
	counters_add(x->client.env->count, COUNT_BYTES_DOWN, (uint64_t)op->res);
	if (x->resp_head == NULL)
		x->body_down += (uint64_t)op->res;
	x->out_rest = span_of(x->out_rest.base + op->res, x->out_rest.len - (size_t)op->res);
	if (x->out_rest.len > 0) {
		stream_send(x->client.stream, &x->out, x->out_rest.base, x->out_rest.len, on_out_sent);
		return;
	}
	input_consume(&x->in, x->out_taken);
	free(x->resp_head);
	x->resp_head = NULL;
	exchange_response_step(x);
}

/*
 * A body whose end is the close has ended, but was it the origin's FIN?  With a
 * send under way the reset that cut it may have been told to that one.
 */
static bool
cut_by_reset(const struct exchange *x)
{
	return x->request != REQUEST_DONE && !x->up_after_fin && stream_was_reset(x->upstream);
}

static void
on_down_relayed(struct io_loop *loop, struct io_op *op)
{
	struct exchange *x = io_container_of(op, struct exchange, down);
	bool length = x->resp.body == HTTP1_BODY_LENGTH;

	(void)loop;
	x->body_down += op->u.relay.moved;
	if (x->ending)
		return;
	if (op->res < 0 && op->u.relay.dst_failed)
		exchange_cut(x);
	else if (op->res < 0 || (length && op->u.relay.moved < x->resp_left))
		upstream_ended(x, op->res);
	else if (!length && cut_by_reset(x))
		upstream_ended(x, IO_ERESET);
	else
		response_done(x);
}

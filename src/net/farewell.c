/* SPDX-License-Identifier: ISC */
#include "net/farewell.h"

static void on_sent(struct io_loop *, struct io_op *);
static void on_drained(struct io_loop *, struct io_op *);

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct stream *s = stream_of_sock(sock);
	struct farewell *l = s->owner;

	(void)loop;
	stream_free(s);
	l->done(l->owner);
}

static void
finish(struct farewell *l)
{
	io_timer_stop(l->env->loop, &l->timer);
	if (stream_open(l->stream))
		stream_close(l->stream, on_closed);
}

static void
on_timer(struct io_loop *loop, struct io_timer *t)
{
	(void)loop;
	finish(io_container_of(t, struct farewell, timer));
}

static void
drain(struct farewell *l)
{
	stream_recv_pool(l->stream, &l->op, l->env->pool, IO_USE_RESERVE, on_drained);
}

static void
on_drained(struct io_loop *loop, struct io_op *op)
{
	struct farewell *l = io_container_of(op, struct farewell, op);

	(void)loop;
	for (unsigned i = 0; i < op->u.pool.n; i++)
		io_buf_put(l->env->pool, &op->u.pool.bufs[i]);
	if (!stream_open(l->stream))
		return;
	if (op->res <= 0 || (l->drained += (size_t)op->res) >= FAREWELL_DRAIN_BYTES)
		finish(l);
	else
		drain(l);
}

static void
send_rest(struct farewell *l)
{
	if (l->rest.len > 0) {
		stream_send(l->stream, &l->op, l->rest.base, l->rest.len, on_sent);
		return;
	}
	if (stream_shutdown(l->stream) != 0)
		finish(l);
	else
		drain(l);
}

static void
on_sent(struct io_loop *loop, struct io_op *op)
{
	struct farewell *l = io_container_of(op, struct farewell, op);

	(void)loop;
	if (!stream_open(l->stream))
		return;
	if (op->res < 0) {
		finish(l);
		return;
	}
	l->rest = span_of(l->rest.base + op->res, l->rest.len - (size_t)op->res);
	send_rest(l);
}

void
farewell_start(struct farewell *l, struct env *env, struct stream *s, struct span answer,
    farewell_cb *done, void *owner)
{
	memset(l, 0, sizeof *l);
	l->env = env;
	l->stream = s;
	l->rest = answer;
	l->done = done;
	l->owner = owner;
	s->owner = l;
	io_timer_set(env->loop, &l->timer, io_now(env->loop) + FAREWELL_MS * UINT64_C(1000000), on_timer);
	send_rest(l);
}

void
farewell_abort(struct farewell *l)
{
	finish(l);
}

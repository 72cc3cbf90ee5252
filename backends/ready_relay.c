/* SPDX-License-Identifier: ISC */
/*
 * Relays over readiness.  A direction reads only when it holds nothing, so what
 * it holds is bounded by one read: 64 KiB in blocks, or one pipe.
 *
 *	            full reads (relay_policy.h), a pipe to be had
 *	  COPY  ------------------------------------------------->  SPLICE
 *	        <-------------------------------------------------
 *	            small reads, urgent data, a socket that can't
 *
 * The mode changes only when nothing is held.  Waiting for src holds neither
 * block nor pipe: idle tunnels cost nothing.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pipe.h"
#include "ready.h"
#include "relay_policy.h"

enum { MODE_COPY, MODE_SPLICE };

/* op->flags */
enum {
	RF_SRC_ENDED	= OPF_BE0,
	RF_NO_SPLICE	= OPF_BE1	/* this pair of sockets can't */
};

/* op->be: 0 is ready.c's. */
enum {
	BE_TURN		= 1,		/* the turn in which BE_BYTES were held or read */
	BE_BYTES	= 2,
	BE_OFFSET	= 3,		/* bytes of bufs[first] that dst has taken */
	BE_LAST		= 4		/* size of the last read, until the policy has seen it */
};

/* ---- what is held ---- */

static void
pipe_home(struct io_loop *l, struct io_op *op)
{
	if (op->u.relay.pipe == NULL)
		return;
	io_pipe_put(l, op->u.relay.pipe, op->u.relay.held == 0);
	op->u.relay.pipe = NULL;
}

void
ready_relay_drop(struct ready *r, struct io_op *op)
{
	pipe_home(r->loop, op);
	while (op->u.relay.first < op->u.relay.nbufs)
		io_buf_put(op->u.relay.pool, &op->u.relay.bufs[op->u.relay.first++]);
	op->u.relay.first = op->u.relay.nbufs = 0;
	op->u.relay.held = 0;
}

static void
relay_end(struct ready *r, struct io_op *op, int e)
{
	ready_relay_drop(r, op);
	ready_end(r, op, e == 0 ? 0 : io_err_of(e), e);
}

/* The first step of a turn: what is held from earlier ones will be handed over in this. */
static void
count_turn(struct io_loop *l, struct io_op *op)
{
	if (op->be[BE_TURN] == l->stats.turns)
		return;
	op->be[BE_TURN] = l->stats.turns;
	op->be[BE_BYTES] = op->u.relay.held;
}

/* What may still be read in this turn (C29), or at all. */
static size_t
room(const struct io_op *op)
{
	uint64_t left = op->u.relay.max - op->u.relay.moved;
	uint64_t turn = op->be[BE_BYTES] < RELAY_TURN_BYTES ?
	    RELAY_TURN_BYTES - op->be[BE_BYTES] : 0;

	return (size_t)(turn < left ? turn : left);
}

static void
received(struct io_loop *l, struct io_op *op, size_t n)
{
	assert(op->u.relay.held == 0);
	op->u.relay.held = (uint32_t)n;
	op->u.relay.last_ns = l->now_ns;
	op->be[BE_BYTES] += n;
	op->be[BE_LAST] = n;
}

static void
handed_over(struct io_loop *l, struct io_op *op, size_t n)
{
	assert(n <= op->u.relay.held);
	op->u.relay.held -= (uint32_t)n;
	op->u.relay.moved += n;
	op->u.relay.last_ns = l->now_ns;
	io_tally_add(op->u.relay.tally, n);
}

/* ---- splice ---- */

static void
to_copy(struct io_loop *l, struct io_op *op)
{
	pipe_home(l, op);
	op->u.relay.mode = MODE_COPY;
	op->u.relay.streak = 0;
	l->stats.splice_off++;
}

#ifdef SPLICE_F_NONBLOCK
static void
to_splice(struct io_loop *l, struct io_op *op)
{
	if (l->cfg.no_splice || (op->flags & RF_NO_SPLICE) != 0 ||
	    op->u.relay.max - op->u.relay.moved < RELAY_FULL_BYTES ||
	    (op->u.relay.pipe = io_pipe_get(l)) == NULL)
		return;
	op->u.relay.mode = MODE_SPLICE;
	op->u.relay.streak = 0;
	l->stats.splice_on++;
}

static ssize_t
splice_out(struct io_op *op)
{
	return splice(op->u.relay.pipe->rd, NULL, op->u.relay.dst->fd, NULL,
	    op->u.relay.held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

/* One splice into an empty pipe.  False: the op has ended. */
static bool
fill_pipe(struct ready *r, struct io_op *op, size_t max)
{
	struct io_loop *l = r->loop;
	struct io_sock *src = op->sock;
	ssize_t n;

	if (op->u.relay.pipe == NULL && (op->u.relay.pipe = io_pipe_get(l)) == NULL) {
		to_copy(l, op);
		return true;
	}
	if (max > op->u.relay.pipe->cap)
		max = op->u.relay.pipe->cap;
	do
		n = splice(src->fd, NULL, op->u.relay.pipe->wr, NULL, max,
		    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (n == -1 && errno == EINTR);
	if (n > 0) {
		/* Short says nothing here: a pipe has slots, and small segments use them up. */
		received(l, op, (size_t)n);
		return true;
	}
	if (n == 0) {
		op->flags |= RF_SRC_ENDED;
		return true;
	}
	if (ready_would_block(errno)) {
		/* The pipe is empty, so it is the socket that is dry, or stands at an urgent mark. */
		if (r->ops->tells_urgent ? ready_believed(src, RDY_URGENT) :
		    sockatmark(src->fd) == 1)
			to_copy(l, op);
		else
			ready_read_dry(src);
		return true;
	}
	if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOMEM) {
		op->flags |= RF_NO_SPLICE;
		to_copy(l, op);
		return true;
	}
	relay_end(r, op, errno);
	return false;
}
#else
static void
to_splice(struct io_loop *l, struct io_op *op)
{
	(void)l;
	(void)op;
}

static ssize_t
splice_out(struct io_op *op)
{
	(void)op;
	errno = ENOSYS;
	return -1;
}

static bool
fill_pipe(struct ready *r, struct io_op *op, size_t max)
{
	(void)max;
	to_copy(r->loop, op);
	return true;
}
#endif

/* ---- copy ---- */

/* False: the op has ended, or waits for a block. */
static bool
fill_blocks(struct ready *r, struct io_op *op, size_t max)
{
	unsigned nbufs;
	ssize_t n;

	n = ready_read_pool(op->sock, op->u.relay.pool, false, max, op->u.relay.bufs, &nbufs);
	if (n > 0) {
		op->u.relay.nbufs = (uint8_t)nbufs;
		op->u.relay.first = 0;
		op->be[BE_OFFSET] = 0;
		received(r->loop, op, (size_t)n);
		return true;
	}
	if (n == 0) {
		op->flags |= RF_SRC_ENDED;
		return true;
	}
	if (n == -EAGAIN)
		return true;
	if (n == -ENOBUFS)
		io_pool_wait(op->u.relay.pool, op, false);
	else
		relay_end(r, op, (int)-n);
	return false;
}

static ssize_t
send_blocks(struct io_op *op)
{
	struct iovec iov[IO_RECV_BUFS_MAX];
	struct msghdr mh = { .msg_iov = iov };
	size_t offset = op->be[BE_OFFSET];
	unsigned n = 0;

	for (unsigned i = op->u.relay.first; i < op->u.relay.nbufs; i++) {
		struct io_buf *b = &op->u.relay.bufs[i];

		iov[n++] = (struct iovec){ .iov_base = b->base + offset,
		    .iov_len = b->len - offset };
		offset = 0;
	}
	if (n == 1)
		return send(op->u.relay.dst->fd, iov[0].iov_base, iov[0].iov_len, MSG_NOSIGNAL);
	mh.msg_iovlen = n;
	return sendmsg(op->u.relay.dst->fd, &mh, MSG_NOSIGNAL);
}

static void
blocks_home(struct io_op *op, size_t sent)
{
	while (op->u.relay.first < op->u.relay.nbufs) {
		struct io_buf *b = &op->u.relay.bufs[op->u.relay.first];
		size_t rest = b->len - op->be[BE_OFFSET];

		if (sent < rest) {
			op->be[BE_OFFSET] += sent;
			return;
		}
		sent -= rest;
		op->be[BE_OFFSET] = 0;
		op->u.relay.first++;
		io_buf_put(op->u.relay.pool, b);
	}
	op->u.relay.first = op->u.relay.nbufs = 0;
}

/* ---- a step ---- */

/* Hands over what is held.  False: the op has ended, or waits for dst. */
static bool
flush(struct ready *r, struct io_op *op)
{
	struct io_sock *dst = op->u.relay.dst;
	bool splicing = op->u.relay.mode == MODE_SPLICE;

	while (op->u.relay.held > 0) {
		ssize_t n;

		if (!ready_believed(dst, RDY_WRITE)) {
			(void)ready_await(r, op, dst, RDY_WRITE);
			return false;
		}
		n = splicing ? splice_out(op) : send_blocks(op);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1 && ready_would_block(errno)) {
			ready_write_full(dst);
			continue;
		}
		if (n == -1) {
			int e = errno;

			op->u.relay.dst_failed = true;
			relay_end(r, op, e);
			return false;
		}
		handed_over(r->loop, op, (size_t)n);
		if (!splicing) {
			blocks_home(op, (size_t)n);
			if (op->u.relay.held > 0)
				ready_write_short(dst);
		}
	}
	return true;
}

/* By the size of the last read, now that nothing is held. */
static void
adapt(struct io_loop *l, struct io_op *op)
{
	uint32_t n = (uint32_t)op->be[BE_LAST];

	if (n == 0)
		return;
	op->be[BE_LAST] = 0;
	if (op->u.relay.mode == MODE_SPLICE) {
		if (relay_wants_copy(&op->u.relay.streak, n))
			to_copy(l, op);
	} else if (relay_wants_splice(&op->u.relay.streak, n)) {
		to_splice(l, op);
	}
}

void
ready_relay(struct ready *r, struct io_op *op)
{
	struct io_loop *l = r->loop;
	struct io_sock *src = op->sock;

	count_turn(l, op);
	while (flush(r, op)) {
		size_t max = room(op);

		if ((op->flags & RF_SRC_ENDED) != 0 || op->u.relay.moved == op->u.relay.max) {
			relay_end(r, op, 0);
			return;
		}
		adapt(l, op);
		if (!ready_believed(src, RDY_READ)) {
			pipe_home(l, op);
			(void)ready_await(r, op, src, RDY_READ);
			return;
		}
		if (max == 0) {		/* others are waiting: go on in the next turn */
			pipe_home(l, op);
			(void)ready_queue(r, src);
			return;
		}
		if (op->u.relay.mode == MODE_SPLICE ? !fill_pipe(r, op, max) :
		    !fill_blocks(r, op, max))
			return;
	}
}

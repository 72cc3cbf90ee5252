/* SPDX-License-Identifier: ISC */
/*
 * One direction of a relay on the ring.
 *
 *	            full receives (relay_policy.h), a pipe to be had
 *	  COPY  --------------------------------------------------->  SPLICE
 *	  RECV -> SEND -> RECV ...                        SPLICE_IN -> [SPLICE_OUT] -> ...
 *	        <---------------------------------------------------
 *	            small receives, no pipe, sockets that can't
 *
 * Copying receives into blocks that the kernel chooses, then sends them whole
 * (MSG_WAITALL: the kernel goes on after a short send), then receives again: at
 * most 64 KiB are held.  Splicing waits for readiness on the ring and calls
 * splice(2) here, because the ring's own splice always runs on a kernel thread
 * (130 threads for 64 pairs).  The mode changes only when nothing is held and
 * nothing is in flight, so no byte can overtake another.
 *
 * A direction that waits for src holds neither block nor pipe: taking an idle
 * pipe from the loop's list and putting it back are a few pointer moves, and
 * idle tunnels must not keep others from having one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "pipe.h"
#include "relay_policy.h"
#include "uring.h"

enum { MODE_COPY, MODE_SPLICE };

/* op->flags; OPF_BE0 is OPF_ENDED. */
enum {
	RF_SRC_ENDED	= OPF_BE1,
	RF_NO_SPLICE	= OPF_BE2	/* this pair of sockets can't */
};

/* op->be; 0 is the stage. */
enum {
	BE_OFFSET	= 1,		/* bytes of bufs[first] that dst has taken */
	BE_DRY		= 2		/* the last receive left nothing behind */
};

static void splice_wait(struct uring *u, struct io_op *op);

/* ---- what is held ---- */

static void
pipe_home(struct uring *u, struct io_op *op)
{
	if (op->u.relay.pipe == NULL)
		return;
	io_pipe_put(u->loop, op->u.relay.pipe, op->u.relay.held == 0);
	op->u.relay.pipe = NULL;
}

void
uring_relay_drop(struct uring *u, struct io_op *op)
{
	pipe_home(u, op);
	while (op->u.relay.first < op->u.relay.nbufs)
		io_buf_put(op->u.relay.pool, &op->u.relay.bufs[op->u.relay.first++]);
	op->u.relay.first = op->u.relay.nbufs = 0;
	op->u.relay.held = 0;
}

static void
relay_end(struct uring *u, struct io_op *op, int rc)
{
	uring_relay_drop(u, op);
	uring_end_rc(u, op, rc);
}

static uint64_t
left(const struct io_op *op)
{
	return op->u.relay.max - op->u.relay.moved - op->u.relay.held;
}

static void
received(struct uring *u, struct io_op *op, size_t n)
{
	op->u.relay.held += (uint32_t)n;
	op->u.relay.last_ns = u->loop->now_ns;
}

static void
handed_over(struct uring *u, struct io_op *op, size_t n)
{
	assert(n <= op->u.relay.held);
	op->u.relay.held -= (uint32_t)n;
	op->u.relay.moved += n;
	op->u.relay.last_ns = u->loop->now_ns;
	io_tally_add(op->u.relay.tally, n);
}

/* ---- copy ---- */

static struct uring_rx
relay_rx(struct io_op *op)
{
	uint64_t n = left(op);

	return (struct uring_rx){ .pool = op->u.relay.pool, .bufs = op->u.relay.bufs,
	    .want = n < IO_RECV_BYTES_MAX ? (size_t)n : IO_RECV_BYTES_MAX };
}

static void
recv_start(struct uring *u, struct io_op *op)
{
	struct uring_rx rx = relay_rx(op);

	assert(op->u.relay.held == 0 && op->u.relay.nbufs == 0);
	rx.dry = op->be[BE_DRY] != 0;
	uring_rx_start(u, op, &rx);
}

static void
send_start(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);
	struct io_buf *b = &op->u.relay.bufs[op->u.relay.first];
	size_t offset = op->be[BE_OFFSET];
	unsigned n = op->u.relay.nbufs - op->u.relay.first;

	sqe->fd = op->u.relay.dst->fd;
	sqe->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
	if (n == 1) {
		sqe->opcode = IORING_OP_SEND;
		sqe->addr = (uintptr_t)(b->base + offset);
		sqe->len = (uint32_t)(b->len - offset);
	} else {
		struct uring_scratch *s = uring_scratch_of(u, sqe);

		for (unsigned i = 0; i < n; i++, offset = 0)
			s->iov[i] = (struct iovec){ b[i].base + offset, b[i].len - offset };
		s->msg = (struct msghdr){ .msg_iov = s->iov, .msg_iovlen = n };
		sqe->opcode = IORING_OP_SENDMSG;
		sqe->addr = (uintptr_t)&s->msg;
		sqe->len = 1;
	}
	op->be[0] = ST_SEND;
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

static void next_recv(struct uring *u, struct io_op *op);

/*
 * Most of what is relayed is one small block into an empty socket: send(2) has
 * taken it before a request for the ring is filled in, and the block is back
 * at once, where 1,000 connections would drain the receive ring (measured: 0.56
 * of the CPU a message at 1,000, 0.97 at 64).  What it does not take the ring
 * goes on with.
 */
static void
send_now(struct uring *u, struct io_op *op)
{
	struct io_buf *b = &op->u.relay.bufs[0];
	ssize_t n = -1;

	errno = EAGAIN;
	if (op->u.relay.nbufs == 1)
		n = send(op->u.relay.dst->fd, b->base, b->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n == -1 && !uring_transient(-errno)) {
		op->u.relay.dst_failed = true;
		relay_end(u, op, -errno);
		return;
	}
	if (n > 0) {
		handed_over(u, op, (size_t)n);
		blocks_home(op, (size_t)n);
	}
	if (op->u.relay.held > 0)
		send_start(u, op);
	else
		next_recv(u, op);
}

/* A receive has ended. */
static void
recv_done(struct uring *u, struct io_op *op, const struct uring_rx *rx)
{
	if (rx->res <= 0) {
		relay_end(u, op, rx->res);
		return;
	}
	op->u.relay.nbufs = (uint8_t)rx->n;
	op->u.relay.first = 0;
	op->be[BE_OFFSET] = 0;
	op->be[BE_DRY] = rx->dry;
	received(u, op, (size_t)rx->res);
	if (io_op_canceled(op)) {
		relay_end(u, op, -ECANCELED);
		return;
	}
	if (relay_wants_splice(&op->u.relay.streak, (uint32_t)rx->res) &&
	    !u->loop->cfg.no_splice && (op->flags & RF_NO_SPLICE) == 0)
		op->u.relay.mode = MODE_SPLICE;	/* from when these bytes have gone */
	send_now(u, op);
}

static void
next_recv(struct uring *u, struct io_op *op)
{
	if (left(op) == 0) {
		relay_end(u, op, 0);
		return;
	}
	if (op->u.relay.mode == MODE_SPLICE) {
		if ((op->u.relay.pipe = io_pipe_get(u->loop)) != NULL) {
			u->loop->stats.splice_on++;
			splice_wait(u, op);
			return;
		}
		op->u.relay.mode = MODE_COPY;
	}
	recv_start(u, op);
}

static void
send_completed(struct uring *u, struct io_op *op, int res)
{
	if (res > 0) {		/* also of a canceled one: what had gone has gone */
		handed_over(u, op, (size_t)res);
		blocks_home(op, (size_t)res);
	}
	if (io_op_canceled(op)) {
		/* All of it there, nothing left to do: that is the result (C17). */
		relay_end(u, op, left(op) == 0 && op->u.relay.held == 0 ? 0 : -ECANCELED);
	} else if (res < 0 && !uring_transient(res)) {
		op->u.relay.dst_failed = true;
		relay_end(u, op, res);
	} else if (op->u.relay.held > 0) {
		send_start(u, op);
	} else {
		next_recv(u, op);
	}
}

/* ---- splice ---- */

static void
to_copy(struct uring *u, struct io_op *op)
{
	assert(op->u.relay.held == 0);
	pipe_home(u, op);
	op->u.relay.mode = MODE_COPY;
	op->u.relay.streak = 0;
	op->be[BE_DRY] = false;
	u->loop->stats.splice_off++;
	recv_start(u, op);
}

static ssize_t
splice_retry(int from, int to, size_t n)
{
	ssize_t rc;

	do
		rc = splice(from, NULL, to, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (rc == -1 && errno == EINTR);
	return rc;
}

/* Empties the pipe.  False: the op has ended, or waits for dst. */
static bool
pipe_out(struct uring *u, struct io_op *op)
{
	while (op->u.relay.held > 0) {
		ssize_t n = splice_retry(op->u.relay.pipe->rd, op->u.relay.dst->fd,
		    op->u.relay.held);

		if (n > 0) {
			handed_over(u, op, (size_t)n);
		} else if (n == -1 && errno == EAGAIN) {
			op->be[0] = ST_SPLICE_OUT;
			uring_poll_add(u, op, op->u.relay.dst->fd, POLLOUT);
			return false;
		} else {
			op->u.relay.dst_failed = true;
			relay_end(u, op, n == 0 ? -EIO : -errno);
			return false;
		}
	}
	return true;
}

enum filled { FILLED, FILLED_NOTHING, FILLED_ENDED };

/* One splice into the empty pipe. */
static enum filled
pipe_in(struct uring *u, struct io_op *op, size_t room)
{
	uint64_t n = left(op);
	ssize_t got;

	if (n > op->u.relay.pipe->cap)
		n = op->u.relay.pipe->cap;
	if (n > room)
		n = room;
	got = splice_retry(op->sock->fd, op->u.relay.pipe->wr, (size_t)n);
	if (got > 0) {
		received(u, op, (size_t)got);
		return FILLED;
	}
	if (got == 0) {
		op->flags |= RF_SRC_ENDED;
		return FILLED_NOTHING;
	}
	if (errno == EAGAIN)
		return FILLED_NOTHING;
	if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOMEM) {
		op->flags |= RF_NO_SPLICE;
		to_copy(u, op);
	} else {
		relay_end(u, op, -errno);
	}
	return FILLED_ENDED;
}

static void
splice_wait(struct uring *u, struct io_op *op)
{
	pipe_home(u, op);
	op->be[0] = ST_SPLICE_IN;
	uring_poll_add(u, op, op->sock->fd, POLLIN);
}

/* The pipe is there and empty: moves what there is, at most RELAY_TURN_BYTES. */
static void
splice_step(struct uring *u, struct io_op *op)
{
	uint32_t round = 0;

	uring_make_nonblocking(op->sock);
	uring_make_nonblocking(op->u.relay.dst);
	while (round < RELAY_TURN_BYTES) {
		enum filled f = pipe_in(u, op, RELAY_TURN_BYTES - round);

		if (f == FILLED_ENDED)
			return;
		if (f == FILLED_NOTHING)
			break;
		round += op->u.relay.held;
		if (!pipe_out(u, op))
			return;
		if (left(op) == 0)
			break;
	}
	if ((op->flags & RF_SRC_ENDED) != 0 || left(op) == 0)
		relay_end(u, op, 0);
	else if (round == 0 || relay_wants_copy(&op->u.relay.streak, round))
		/*
		 * Readable, and yet nothing to splice: it stands at an urgent mark
		 * (tcp(7)), which only recv(2) passes.
		 */
		to_copy(u, op);
	else
		splice_wait(u, op);
}

static void
splice_completed(struct uring *u, struct io_op *op, int res)
{
	if (io_op_canceled(op) || (res < 0 && !uring_transient(res))) {
		relay_end(u, op, io_op_canceled(op) ? -ECANCELED : res);
		return;
	}
	if (op->be[0] == ST_SPLICE_OUT) {
		if (!pipe_out(u, op))
			return;
		if ((op->flags & RF_SRC_ENDED) != 0 || left(op) == 0)
			relay_end(u, op, 0);
		else
			splice_wait(u, op);
		return;
	}
	if ((op->u.relay.pipe = io_pipe_get(u->loop)) == NULL)
		to_copy(u, op);
	else
		splice_step(u, op);
}

/* ---- */

void
uring_relay_start(struct uring *u, struct io_op *op)
{
	recv_start(u, op);
}

void
uring_relay_resume(struct uring *u, struct io_op *op)
{
	struct uring_rx rx = relay_rx(op);

	if (uring_rx_resume(u, op, &rx) == RECV_DONE)
		recv_done(u, op, &rx);
}

void
uring_relay_completed(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	struct uring_rx rx;

	switch (op->be[0]) {
	case ST_RECV:
	case ST_RECV_POLL:
		rx = relay_rx(op);
		if (uring_rx_completed(u, op, &rx, cqe) == RECV_DONE)
			recv_done(u, op, &rx);
		break;
	case ST_SEND:
		send_completed(u, op, cqe->res);
		break;
	default:
		splice_completed(u, op, cqe->res);
		break;
	}
}

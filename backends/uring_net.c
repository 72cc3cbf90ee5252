/* SPDX-License-Identifier: ISC */
/* Streams and readiness on the ring: accept, connect, recv, recv_pool, send, poll. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "uring.h"

/* ---- accept ---- */

static void
accept_start(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);

	/* Multishot has one place for addresses only, so the peer is asked for later (C14). */
	sqe->opcode = IORING_OP_ACCEPT;
	sqe->fd = op->sock->fd;
	sqe->ioprio = IORING_ACCEPT_MULTISHOT;
	sqe->accept_flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
}

static void
accept_deliver(struct uring *u, struct io_op *op, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;

	/* ENOTCONN: gone again before we looked; skipped like any aborted connection. */
	if (op->sock->state != SOCK_OPEN ||
	    getpeername(fd, (struct sockaddr *)&peer, &len) == -1) {
		io_close_fd(fd);
		return;
	}
	op->res = 0;
	op->syserr = 0;
	op->u.accept.fd = fd;
	op->u.accept.peer = (struct sockaddr *)&peer;
	op->u.accept.peerlen = len;
	io_op_emit(u->loop, op);
}

/* accept(2): errors of the connection that was not accepted, not of the listener. */
static bool
accept_skips(int e)
{
	switch (e) {
	case ECONNABORTED: case EPROTO: case EPERM: case ENETDOWN: case ENOPROTOOPT:
	case EHOSTDOWN: case ENONET: case EHOSTUNREACH: case ENETUNREACH:
	case ETIMEDOUT: case ECONNRESET: case EINTR: case EAGAIN:
		return true;
	default:
		return false;
	}
}

static void
accept_completed(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	if (cqe->res >= 0)
		accept_deliver(u, op, cqe->res);
	/* Still armed in the kernel; or canceled and ended by the callback, when it was not. */
	if ((cqe->flags & IORING_CQE_F_MORE) || op->state != OP_ARMED)
		return;
	op->u.accept.fd = IO_FD_NONE;
	op->u.accept.peer = NULL;
	if (io_op_canceled(op))
		uring_end(u, op, IO_ECANCELED, 0);
	else if (cqe->res >= 0 || accept_skips(-cqe->res))
		accept_start(u, op);	/* a full completion queue ends a multishot */
	else
		uring_end_rc(u, op, cqe->res);
}

/* ---- one-shot requests ---- */

static void
connect_start(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);

	sqe->opcode = IORING_OP_CONNECT;
	sqe->fd = op->sock->fd;
	sqe->addr = (uintptr_t)op->u.connect.to;
	sqe->off = op->u.connect.tolen;
}

static void
recv_start(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);

	sqe->opcode = IORING_OP_RECV;
	sqe->fd = op->sock->fd;
	sqe->addr = (uintptr_t)op->u.recv.base;
	sqe->len = op->u.recv.len > INT32_MAX ? INT32_MAX : (uint32_t)op->u.recv.len;
}

static void
send_start(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);

	sqe->opcode = IORING_OP_SEND;
	sqe->fd = op->sock->fd;
	sqe->addr = (uintptr_t)op->u.send.base;
	sqe->len = op->u.send.len > INT32_MAX ? INT32_MAX : (uint32_t)op->u.send.len;
	sqe->msg_flags = MSG_NOSIGNAL;
}

static void
poll_start(struct uring *u, struct io_op *op)
{
	unsigned want = op->u.poll.want;

	uring_poll_add(u, op, op->sock->fd,
	    (want & IO_POLL_IN ? POLLIN : 0) | (want & IO_POLL_OUT ? POLLOUT : 0));
}

static void
poll_completed(struct uring *u, struct io_op *op, int res)
{
	unsigned got = 0;

	if (res < 0) {
		uring_end_rc(u, op, res);
		return;
	}
	if (res & POLLIN)
		got |= IO_POLL_IN;
	if (res & POLLOUT)
		got |= IO_POLL_OUT;
	if (res & (POLLHUP | POLLERR | POLLNVAL))
		got |= IO_POLL_HUP;
	op->u.poll.got = got;
	uring_end(u, op, (int32_t)got, 0);
}

/* ---- recv_pool ---- */

static struct uring_rx
pool_rx(struct io_op *op)
{
	return (struct uring_rx){ .pool = op->u.pool.pool, .bufs = op->u.pool.bufs,
	    .want = IO_RECV_BYTES_MAX };
}

static void
pool_done(struct uring *u, struct io_op *op, const struct uring_rx *rx)
{
	op->u.pool.n = rx->n;
	uring_end_rc(u, op, rx->res);
}

/* ---- */

void
uring_net_submit(struct uring *u, struct io_op *op)
{
	struct uring_rx rx;

	switch (op->kind) {
	case IO_ACCEPT:
		accept_start(u, op);
		break;
	case IO_CONNECT:
		connect_start(u, op);
		break;
	case IO_RECV:
		recv_start(u, op);
		break;
	case IO_RECV_POOL:
		rx = pool_rx(op);
		uring_rx_start(u, op, &rx);
		break;
	case IO_SEND:
		send_start(u, op);
		break;
	default:
		assert(op->kind == IO_POLL);
		poll_start(u, op);
		break;
	}
}

void
uring_net_resume(struct uring *u, struct io_op *op)
{
	struct uring_rx rx = pool_rx(op);

	assert(op->kind == IO_RECV_POOL);
	if (uring_rx_resume(u, op, &rx) == RECV_DONE)
		pool_done(u, op, &rx);
}

void
uring_net_completed(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	struct uring_rx rx;

	if (op->kind == IO_ACCEPT) {
		accept_completed(u, op, cqe);
		return;
	}
	if (op->kind == IO_RECV_POOL) {
		rx = pool_rx(op);
		if (uring_rx_completed(u, op, &rx, cqe) == RECV_DONE)
			pool_done(u, op, &rx);
		return;
	}
	if (uring_transient(cqe->res)) {
		if (io_op_canceled(op))
			uring_end(u, op, IO_ECANCELED, 0);
		else
			uring_net_submit(u, op);
		return;
	}
	if (op->kind == IO_POLL)
		poll_completed(u, op, cqe->res);
	else
		uring_end_rc(u, op, cqe->res);
}

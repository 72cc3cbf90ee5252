/* SPDX-License-Identifier: ISC */
/* Streams and readiness on the ring: accept, connect, recv, recv_pool, send, poll. */
#include <errno.h>
#include <poll.h>

#include "uring.h"

/* ---- accept ---- */

/* op->be of an accept */
enum { BE_TURN = 1 };	/* the turn in which it was readable last */

/*
 * The ring waits for readability, and accept4(2) takes from here what the
 * callback wants.  The ring's own multishot accept empties the whole backlog
 * before the first callback can say that there is room for no more (measured:
 * of 30 who waited for 5 places, 25 had to be reset; epoll serves them all).
 */
static void
accept_start(struct uring *u, struct io_op *op)
{
	op->u.accept.fd = IO_FD_NONE;
	op->u.accept.peer = NULL;
	uring_make_nonblocking(op->sock);
	uring_poll_add(u, op, op->sock->fd, POLLIN);
}

/* accept(2): errors of the connection that was not accepted, not of the listener. */
static bool
accept_skips(int e)
{
	switch (e) {
	case ECONNABORTED: case EPROTO: case EPERM: case ENETDOWN: case ENOPROTOOPT:
	case EHOSTDOWN: case ENONET: case EHOSTUNREACH: case ENETUNREACH:
	case ETIMEDOUT: case ECONNRESET: case EINTR:
		return true;
	default:
		return false;
	}
}

static void
accept_completed(struct uring *u, struct io_op *op, int res)
{
	/*
	 * Finding nobody costs accept4(2) a socket: it looks for more than one only
	 * when the turn before had one too.  And a listener that only fails must
	 * not hold up the turn.
	 */
	bool crowd = op->be[BE_TURN] + 1 >= u->loop->stats.turns;
	unsigned tries = crowd ? 4 * u->loop->budget : 1;

	op->be[BE_TURN] = u->loop->stats.turns;
	if (io_op_canceled(op)) {
		uring_end(u, op, IO_ECANCELED, 0);
		return;
	}
	if (res < 0 && !uring_transient(res)) {
		uring_end_rc(u, op, res);
		return;
	}
	while (tries-- > 0 && u->loop->budget > u->ngathered) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof peer;
		int fd = accept4(op->sock->fd, (struct sockaddr *)&peer, &len,
		    SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd == -1 && errno == EAGAIN)
			break;
		if (fd == -1 && accept_skips(errno))
			continue;
		if (fd == -1) {		/* EMFILE and the like: it stays in the backlog */
			uring_end_rc(u, op, -errno);
			return;
		}
		op->res = 0;
		op->syserr = 0;
		op->u.accept.fd = fd;
		op->u.accept.peer = (struct sockaddr *)&peer;
		op->u.accept.peerlen = len;
		io_op_emit(u->loop, op);
		if (op->state != OP_ARMED)	/* canceled by its own callback */
			return;
	}
	accept_start(u, op);
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
		accept_completed(u, op, cqe->res);
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

/* SPDX-License-Identifier: ISC */
/* Streams over readiness: accept, connect, receive, send; and poll. */
#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>

#include "ready.h"

/* ---- accept ---- */

static io_fd
accept_one(io_fd fd, struct sockaddr_storage *ss, socklen_t *len)
{
#ifdef __APPLE__
	io_fd c = accept(fd, (struct sockaddr *)ss, len);

	if (c != -1) {
		(void)fcntl(c, F_SETFD, FD_CLOEXEC);
		(void)fcntl(c, F_SETFL, O_NONBLOCK);
	}
	return c;
#else
	return accept4(fd, (struct sockaddr *)ss, len, SOCK_NONBLOCK | SOCK_CLOEXEC);
#endif
}

/*
 * Errors of the connection, not of the listener: accept(2) passes on what was
 * pending on the new socket, and a firewall may refuse one (EPERM).
 */
static bool
accept_skips(int e)
{
	switch (e) {
	case EINTR: case ECONNABORTED: case EPROTO: case EPERM: case ENOPROTOOPT:
	case ENETDOWN: case EHOSTDOWN: case EHOSTUNREACH: case ENETUNREACH:
#ifdef ENONET
	case ENONET:
#endif
		return true;
	default:
		return false;
	}
}

void
ready_accept(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	struct sockaddr_storage ss;
	/* A listener that only fails must not hold up the turn. */
	unsigned tries = 4 * r->loop->budget;

	while (tries-- > 0 && r->loop->budget > 0) {
		socklen_t len = sizeof ss;
		io_fd fd = accept_one(s->fd, &ss, &len);

		if (fd == -1 && ready_would_block(errno)) {
			ready_read_dry(s);
			(void)ready_await(r, op, s, RDY_READ);
			return;
		}
		if (fd == -1 && accept_skips(errno))
			continue;
		if (fd == -1) {
			/* EMFILE and the like leave the connection in the backlog: still readable. */
			ready_end_errno(r, op, errno);
			return;
		}
		op->res = 0;
		op->u.accept.fd = fd;
		op->u.accept.peer = (const struct sockaddr *)&ss;
		op->u.accept.peerlen = len;
		io_op_emit(r->loop, op);
		if (op->state != OP_ARMED)	/* cancelled by its own callback */
			return;
		op->u.accept.fd = IO_FD_NONE;
		op->u.accept.peer = NULL;
	}
	(void)ready_queue(r, s);
}

/* ---- connect ---- */

void
ready_connect(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;

	if (connect(s->fd, op->u.connect.to, op->u.connect.tolen) == 0) {
		ready_end(r, op, 0, 0);
	} else if (errno == EINPROGRESS || errno == EINTR) {
		/* What was known of the unconnected socket (ready, hung up) is worth nothing now. */
		s->be[1] &= ~(uint64_t)(RDY_READ | RDY_WRITE | RDY_EOF);
		(void)ready_await(r, op, s, RDY_WRITE);
	} else if (ready_would_block(errno)) {
		if (io_list_empty(&r->connects))
			r->connects_ns = io_clock() + READY_RECONNECT_NS;
		io_list_add_tail(&r->connects, &op->link);
	} else {
		ready_end_errno(r, op, errno);
	}
}

void
ready_reconnect(struct ready *r)
{
	struct io_link todo;

	if (io_list_empty(&r->connects) || r->loop->now_ns < r->connects_ns)
		return;
	io_list_init(&todo);
	io_list_splice_tail(&todo, &r->connects);
	while (!io_list_empty(&todo) && r->loop->budget > 0) {
		struct io_op *op = io_container_of(todo.next, struct io_op, link);

		io_list_del(&op->link);
		ready_connect(r, op);
	}
	io_list_splice_tail(&r->connects, &todo);
}

void
ready_connected(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	socklen_t len = sizeof(int);
	int e = 0;

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len) == -1)
		e = errno;
	/*
	 * Asked again, connect(2) says whether it is so; and Linux takes the
	 * socket for connecting until then, so that a later connect would succeed.
	 */
	if (e == 0 && connect(s->fd, op->u.connect.to, op->u.connect.tolen) == -1 &&
	    errno != EISCONN)
		e = errno;
	if (e == EALREADY || e == EINPROGRESS || e == EINTR) {
		ready_write_full(s);
		(void)ready_await(r, op, s, RDY_WRITE);
		return;
	}
	ready_end(r, op, e == 0 ? 0 : io_err_of(e), e);
}

/* ---- receive and send ---- */

static size_t
clamp(size_t len)
{
	return len < INT32_MAX ? len : INT32_MAX;	/* op->res has 31 bits */
}

void
ready_recv(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	size_t len = clamp(op->u.recv.len);
	ssize_t n;

	do
		n = recv(s->fd, op->u.recv.base, len, 0);
	while (n == -1 && errno == EINTR);
	if (n == -1 && ready_would_block(errno)) {
		ready_read_dry(s);
		(void)ready_await(r, op, s, RDY_READ);
	} else if (n == -1) {
		ready_end_errno(r, op, errno);
	} else {
		if (n > 0 && (size_t)n < len)
			ready_read_short(s);
		ready_end(r, op, (int32_t)n, 0);
	}
}

/* Blocks for a read; how many depends on whether the last one filled its own. */
static unsigned
take_blocks(struct io_sock *s, struct io_pool *pool, bool use_reserve, size_t max,
    struct io_buf *bufs, struct iovec *iov)
{
	unsigned n = 0, want = ready_believed(s, RDY_BULK) ? IO_RECV_BUFS_MAX : 1;

	while (n < want && max > 0 && io_pool_take(pool, use_reserve, &bufs[n])) {
		size_t len = bufs[n].cap < max ? bufs[n].cap : max;

		iov[n] = (struct iovec){ .iov_base = bufs[n].base, .iov_len = len };
		n++;
		max -= len;
	}
	return n;
}

ssize_t
ready_read_pool(struct io_sock *s, struct io_pool *pool, bool use_reserve,
    size_t max, struct io_buf *bufs, unsigned *nbufs)
{
	struct iovec iov[IO_RECV_BUFS_MAX];
	unsigned n = take_blocks(s, pool, use_reserve,
	    max < IO_RECV_BYTES_MAX ? max : IO_RECV_BYTES_MAX, bufs, iov);
	size_t room = 0, left;
	unsigned used = 0;
	ssize_t got;
	int e;

	*nbufs = 0;
	if (n == 0)
		return -ENOBUFS;
	for (unsigned i = 0; i < n; i++)
		room += iov[i].iov_len;
	do
		got = n == 1 ? recv(s->fd, iov[0].iov_base, iov[0].iov_len, 0) :
		    readv(s->fd, iov, (int)n);
	while (got == -1 && errno == EINTR);
	e = errno;
	left = got > 0 ? (size_t)got : 0;
	for (; left > 0; used++) {
		size_t len = iov[used].iov_len < left ? iov[used].iov_len : left;

		bufs[used].len = (uint32_t)len;
		left -= len;
	}
	*nbufs = used;
	while (n > used)	/* in reverse: the same block comes first next time */
		io_buf_put(pool, &bufs[--n]);
	if (got == -1 && ready_would_block(e)) {
		ready_read_dry(s);
		return -EAGAIN;
	}
	if (got == -1)
		return -e;
	if ((size_t)got == room) {
		s->be[1] |= RDY_BULK;
	} else if (got > 0) {
		ready_read_short(s);
		if ((size_t)got < iov[0].iov_len)
			s->be[1] &= ~(uint64_t)RDY_BULK;
	}
	return got;
}

void
ready_recv_pool(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	struct io_pool *pool = op->u.pool.pool;
	bool use_reserve = (op->flags & IO_USE_RESERVE) != 0;
	ssize_t n = ready_read_pool(s, pool, use_reserve, SIZE_MAX, op->u.pool.bufs,
	    &op->u.pool.n);

	if (n == -ENOBUFS)
		io_pool_wait(pool, op, use_reserve);
	else if (n == -EAGAIN)
		(void)ready_await(r, op, s, RDY_READ);
	else if (n < 0)
		ready_end_errno(r, op, (int)-n);
	else
		ready_end(r, op, (int32_t)n, 0);
}

void
ready_send(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	size_t len = clamp(op->u.send.len);
	ssize_t n;

	do
		n = send(s->fd, op->u.send.base, len, MSG_NOSIGNAL);
	while (n == -1 && errno == EINTR);
	if (n == -1 && ready_would_block(errno)) {
		ready_write_full(s);
		(void)ready_await(r, op, s, RDY_WRITE);
	} else if (n == -1) {
		ready_end_errno(r, op, errno);
	} else {
		if ((size_t)n < len)
			ready_write_short(s);
		ready_end(r, op, (int32_t)n, 0);
	}
}

/* ---- poll ---- */

/* Asks poll(2), not the belief: others may have read the socket meanwhile (c-ares does). */
void
ready_poll(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	unsigned want = op->u.poll.want;
	struct pollfd p = {
		.fd = s->fd,
		.events = (short)((want & IO_POLL_IN ? POLLIN : 0) |
		    (want & IO_POLL_OUT ? POLLOUT : 0))
	};

	if (poll(&p, 1, 0) == 1) {
		op->u.poll.got = (p.revents & POLLIN ? IO_POLL_IN : 0) |
		    (p.revents & POLLOUT ? IO_POLL_OUT : 0) |
		    (p.revents & (POLLHUP | POLLERR | POLLNVAL) ? IO_POLL_HUP : 0);
		ready_end(r, op, (int32_t)op->u.poll.got, 0);
		return;
	}
	if (want & IO_POLL_IN) {
		ready_read_dry(s);
		if (!ready_await(r, op, s, RDY_READ))
			return;
	}
	if (want & IO_POLL_OUT) {
		ready_write_full(s);
		(void)ready_await(r, op, s, RDY_WRITE);
	}
}

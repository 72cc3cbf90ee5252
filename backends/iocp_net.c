/* SPDX-License-Identifier: ISC */
/* Accept, connect, receive and send on streams. */
#include <string.h>

#include "iocp.h"

enum {
	ACCEPTS		= 16,		/* AcceptEx in flight a listener: so many come in one turn */
	SEND_BYTES_MAX	= 256 * 1024	/* of a send that may lie pinned, its progress unknown */
};

int
iocp_started(int rc)
{
	int e = rc == 0 ? 0 : WSAGetLastError();

	return e == WSA_IO_PENDING ? 0 : e;
}

/* ---- accept ---- */

static int
protocol_of(io_fd fd, WSAPROTOCOL_INFOW *info)
{
	int len = sizeof *info;

	return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL_INFOW, (char *)info, &len) == 0 ? 0 :
	    WSAGetLastError();
}

/* One more AcceptEx, with the socket that it will fill.  0 or a WSA code. */
static int
accept_one(struct io_loop *l, struct io_op *op)
{
	struct iocp *b = iocp_of(l);
	io_fd lst = op->sock->fd;
	struct iocp_req *r;
	WSAPROTOCOL_INFOW info;
	DWORD n;
	int e;

	if ((e = protocol_of(lst, &info)) != 0)
		return e;
	if ((r = iocp_req_new(l, op, lst, REQ_ACCEPT)) == NULL)
		return WSA_NOT_ENOUGH_MEMORY;
	r->u.accept.fd = WSASocketW(info.iAddressFamily, info.iSocketType, info.iProtocol, NULL,
	    0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
	if (r->u.accept.fd == IO_FD_NONE) {
		e = WSAGetLastError();
		iocp_req_undo(l, r);
		return e;
	}
	e = iocp_started(b->calls.accept_ex(lst, r->u.accept.fd, r->u.accept.addrs, 0,
	    IOCP_ADDR_BYTES, IOCP_ADDR_BYTES, &n, &r->ov) ? 0 : -1);
	if (e != 0) {
		io_close_fd(r->u.accept.fd);
		iocp_req_undo(l, r);
	}
	return e;
}

/*
 * Keeps ACCEPTS in flight.  With fewer it goes on: sockets that are there
 * already can be filled although no further one is to be had (EMFILE).
 */
static void
accept_more(struct io_loop *l, struct io_op *op)
{
	int e = 0;

	while (op->krefs < ACCEPTS && (e = accept_one(l, op)) == 0)
		;
	if (op->krefs == 0)
		iocp_end_wsa(l, op, e);
}

void
iocp_accept(struct io_loop *l, struct io_op *op)
{
	BOOL listens = FALSE;
	int len = sizeof listens;

	/* AcceptEx itself says EINVAL on Windows; under wine it would wait for ever. */
	if (getsockopt(op->sock->fd, SOL_SOCKET, SO_ACCEPTCONN, (char *)&listens, &len) == 0 &&
	    !listens)
		iocp_end_wsa(l, op, WSAEINVAL);
	else
		accept_more(l, op);
}

/* Errors of the connection, not of the listener. */
static bool
accept_skips(int e)
{
	switch (e) {
	case WSAECONNRESET: case WSAECONNABORTED: case WSAENETRESET: case WSAENOTCONN:
	case WSAENETDOWN: case WSAEHOSTUNREACH: case WSAENETUNREACH: case WSAETIMEDOUT:
	case ERROR_NETNAME_DELETED: case ERROR_SEM_TIMEOUT:
		return true;
	default:
		return false;
	}
}

/* Makes an ordinary connected socket of what AcceptEx left.  0 or a WSA code. */
static int
accept_update(io_fd lst, io_fd fd)
{
	u_long on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (const char *)&lst,
	    sizeof lst) != 0)
		return WSAGetLastError();
	(void)ioctlsocket(fd, FIONBIO, &on);
	return 0;
}

static void
accept_emit(struct io_loop *l, struct io_op *op, struct iocp_req *r)
{
	struct sockaddr *local, *peer;
	int local_len, peer_len;

	iocp_of(l)->calls.accept_addrs(r->u.accept.addrs, 0, IOCP_ADDR_BYTES,
	    IOCP_ADDR_BYTES, &local, &local_len, &peer, &peer_len);
	op->res = 0;
	op->u.accept.fd = r->u.accept.fd;
	op->u.accept.peer = peer;
	op->u.accept.peerlen = peer_len;
	io_op_emit(l, op);
	if (op->state == OP_ARMED) {
		op->u.accept.fd = IO_FD_NONE;
		op->u.accept.peer = NULL;
	}
}

void
iocp_accept_done(struct io_loop *l, struct io_op *op, struct iocp_req *r, int err)
{
	if (err == 0)
		err = accept_update(r->fd, r->u.accept.fd);
	/* Only a close discards (C15). */
	if (err == 0 && op->sock->state != SOCK_CLOSING)
		accept_emit(l, op, r);
	else
		io_close_fd(r->u.accept.fd);
	if (op->state != OP_ARMED)	/* cancelled by its own callback, with nothing in flight */
		return;
	if (err != 0 && !accept_skips(err) && !io_op_canceled(op) &&
	    (op->flags & OPF_FAILED) == 0) {
		op->flags |= OPF_FAILED;
		op->be[BE_OWN] = (uint64_t)err;
		(void)iocp_cancel_reqs(op);
	}
	if (!io_op_canceled(op) && (op->flags & OPF_FAILED) == 0)
		accept_more(l, op);
	else if (op->krefs == 0 && io_op_canceled(op))
		iocp_end(l, op, IO_ECANCELED, 0);
	else if (op->krefs == 0)
		iocp_end_wsa(l, op, (int)op->be[BE_OWN]);
}

/* ---- connect ---- */

/* ConnectEx wants a bound socket; one that its owner has bound says EINVAL. */
static int
bind_any(io_fd fd, int family)
{
	struct sockaddr_storage any = { .ss_family = (ADDRESS_FAMILY)family };
	int len = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (bind(fd, (struct sockaddr *)&any, len) == 0 || WSAGetLastError() == WSAEINVAL)
		return 0;
	return WSAGetLastError();
}

static int
start_connect(struct io_loop *l, struct io_op *op)
{
	const struct sockaddr *to = op->u.connect.to;
	io_fd fd = op->sock->fd;
	struct iocp_req *r;
	WSAPROTOCOL_INFOW info;
	int e;

	if ((e = protocol_of(fd, &info)) != 0)
		return e;
	if (info.iAddressFamily != to->sa_family)
		return WSAEAFNOSUPPORT;
	if (info.iSocketType != SOCK_STREAM) {
		/* A datagram socket: only a name is noted. */
		if (connect(fd, to, op->u.connect.tolen) != 0)
			return WSAGetLastError();
		iocp_end(l, op, 0, 0);
		return 0;
	}
	if ((e = bind_any(fd, to->sa_family)) != 0)
		return e;
	if ((r = iocp_req_new(l, op, fd, REQ_CONNECT)) == NULL)
		return WSA_NOT_ENOUGH_MEMORY;
	e = iocp_started(iocp_of(l)->calls.connect_ex(fd, to, op->u.connect.tolen, NULL, 0,
	    NULL, &r->ov) ? 0 : -1);
	if (e != 0)
		iocp_req_undo(l, r);
	return e;
}

void
iocp_connect(struct io_loop *l, struct io_op *op)
{
	int e = start_connect(l, op);

	if (e != 0)
		iocp_end_wsa(l, op, e);
}

void
iocp_connect_done(struct io_loop *l, struct io_op *op, int err)
{
	/* Until then shutdown and getpeername do not know that it is connected. */
	if (err == 0 && setsockopt(op->sock->fd, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, NULL,
	    0) != 0)
		err = WSAGetLastError();
	if (err == 0)
		iocp_end(l, op, 0, 0);
	else
		iocp_end_wsa(l, op, err);
}

/* ---- receive ---- */

void
iocp_recv(struct io_loop *l, struct io_op *op)
{
	struct iocp_req *r = iocp_req_new(l, op, op->sock->fd, REQ_RECV);
	size_t len = op->u.recv.len < INT32_MAX ? op->u.recv.len : INT32_MAX;
	WSABUF buf = { .len = (ULONG)len, .buf = op->u.recv.base };
	DWORD flags = 0;
	int e = r == NULL ? WSA_NOT_ENOUGH_MEMORY :
	    iocp_started(WSARecv(r->fd, &buf, 1, NULL, &flags, &r->ov, NULL));

	if (e == 0)
		return;
	if (r != NULL)
		iocp_req_undo(l, r);
	iocp_end_wsa(l, op, e);
}

void
iocp_recv_done(struct io_loop *l, struct io_op *op, int err, DWORD bytes)
{
	if (err == 0)
		iocp_end(l, op, (int32_t)bytes, 0);
	else
		iocp_end_wsa(l, op, err);
}

void
iocp_await_bytes(struct io_loop *l, struct io_op *op)
{
	struct iocp_req *r = iocp_req_new(l, op, op->sock->fd, REQ_ZERO);
	WSABUF none = { .len = 0, .buf = NULL };
	DWORD flags = 0;
	int e = r == NULL ? WSA_NOT_ENOUGH_MEMORY :
	    iocp_started(WSARecv(r->fd, &none, 1, NULL, &flags, &r->ov, NULL));

	if (e == 0)
		return;
	if (r != NULL)
		iocp_req_undo(l, r);
	iocp_end_wsa(l, op, e);
}

int64_t
iocp_read_pool(struct io_sock *s, struct io_pool *pool, bool use_reserve, uint64_t max,
    struct io_buf *bufs, unsigned *nbufs)
{
	unsigned want = (s->be[0] & SOCKF_BULK) != 0 ? IO_RECV_BUFS_MAX : 1, n = 0, used = 0;
	WSABUF v[IO_RECV_BUFS_MAX];
	DWORD got = 0, flags = 0, room = 0, left;
	int e;

	*nbufs = 0;
	if (max > IO_RECV_BYTES_MAX)
		max = IO_RECV_BYTES_MAX;
	while (n < want && room < max && io_pool_take(pool, use_reserve, &bufs[n])) {
		ULONG len = bufs[n].cap < max - room ? bufs[n].cap : (ULONG)(max - room);

		v[n] = (WSABUF){ .len = len, .buf = (char *)bufs[n].base };
		n++;
		room += len;
	}
	if (n == 0)
		return IOCP_NO_BLOCK;
	e = WSARecv(s->fd, v, n, &got, &flags, NULL, NULL) == 0 ? 0 : WSAGetLastError();
	for (left = e == 0 ? got : 0; left > 0; used++) {
		bufs[used].len = v[used].len < left ? v[used].len : left;
		left -= bufs[used].len;
	}
	*nbufs = used;
	while (n > used)
		io_buf_put(pool, &bufs[--n]);
	if (e != 0)
		return -(int64_t)e;
	if (got == room)
		s->be[0] |= SOCKF_BULK;
	else if (got < v[0].len)
		s->be[0] &= ~(uint64_t)SOCKF_BULK;
	return got;
}

void
iocp_recv_pool(struct io_loop *l, struct io_op *op)
{
	struct io_pool *pool = op->u.pool.pool;
	bool use_reserve = (op->flags & IO_USE_RESERVE) != 0;
	int64_t n = iocp_read_pool(op->sock, pool, use_reserve, UINT64_MAX, op->u.pool.bufs,
	    &op->u.pool.n);

	if (n == IOCP_NO_BLOCK)
		io_pool_wait(pool, op, use_reserve);
	else if (n == -WSAEWOULDBLOCK)
		iocp_await_bytes(l, op);
	else if (n < 0)
		iocp_end_wsa(l, op, (int)-n);
	else
		iocp_end(l, op, (int32_t)n, 0);
}

void
iocp_recv_pool_done(struct io_loop *l, struct io_op *op, int err)
{
	/* Cancelled, and something came at the same time: it stays in the socket. */
	if (io_op_canceled(op))
		iocp_end(l, op, IO_ECANCELED, 0);
	else if (err != 0)
		iocp_end_wsa(l, op, err);
	else
		iocp_recv_pool(l, op);
}

/* ---- send ---- */

void
iocp_send(struct io_loop *l, struct io_op *op)
{
	struct iocp_req *r = iocp_req_new(l, op, op->sock->fd, REQ_SEND);
	size_t len = op->u.send.len < SEND_BYTES_MAX ? op->u.send.len : SEND_BYTES_MAX;
	WSABUF buf = { .len = (ULONG)len, .buf = (char *)(uintptr_t)op->u.send.base };
	int e = r == NULL ? WSA_NOT_ENOUGH_MEMORY :
	    iocp_started(WSASend(r->fd, &buf, 1, NULL, 0, &r->ov, NULL));

	if (e == 0)
		return;
	if (r != NULL)
		iocp_req_undo(l, r);
	iocp_end_wsa(l, op, e);
}

void
iocp_send_done(struct io_loop *l, struct io_op *op, int err, DWORD bytes)
{
	/* Cancelled or failed half-way: what went out is the result (C17), the error is the next send's. */
	if (err == 0 || bytes > 0)
		iocp_end(l, op, (int32_t)bytes, 0);
	else
		iocp_end_wsa(l, op, err);
}

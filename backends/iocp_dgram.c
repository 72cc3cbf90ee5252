/* SPDX-License-Identifier: ISC */
/*
 * Batches of datagrams.  Receiving waits by a poll, so that an idle socket holds
 * no block, and then gathers by WSARecvMsg without blocking.  (A receive of no
 * bytes would wait too, but it cuts the datagram, and whether a packet follows
 * such a warning at once is not written down.)  Sending calls without blocking,
 * and overlapped for the one datagram that finds no room.  A datagram of several
 * segments goes out in as many calls.
 */
#include <string.h>

#include "iocp.h"

/* send: op->be */
enum {
	BE_OFFSET	= BE_OWN,	/* bytes of the datagram at hand that went, as segments */
	BE_RETRIED			/* the datagram at hand has been tried again */
};

/* A socket that brings nothing but errors must not hold up the turn. */
enum { ERRORS_MAX = 16 };

/* Room for PKTINFO of both families. */
union control {
	WSACMSGHDR	align;
	char		bytes[WSA_CMSG_SPACE(sizeof(struct in6_pktinfo)) +
			    WSA_CMSG_SPACE(sizeof(struct in_pktinfo))];
};

/* ICMP's, about some earlier datagram, whosever (adopt turns most of them off). */
static bool
is_icmp(int e)
{
	switch (e) {
	case WSAECONNRESET: case WSAENETRESET: case WSAECONNREFUSED: case WSAEHOSTUNREACH:
	case WSAENETUNREACH: case WSAEHOSTDOWN: case WSAENETDOWN: case ERROR_PORT_UNREACHABLE:
		return true;
	default:
		return false;
	}
}

/* ---- where a datagram was sent to, and is sent from ---- */

static void
read_control(WSAMSG *m, struct io_dgram *d)
{
	d->local.ss_family = AF_UNSPEC;
	for (WSACMSGHDR *c = WSA_CMSG_FIRSTHDR(m); c != NULL; c = WSA_CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct sockaddr_in sin = { .sin_family = AF_INET };
			struct in_pktinfo pi;

			memcpy(&pi, WSA_CMSG_DATA(c), sizeof pi);
			sin.sin_addr = pi.ipi_addr;
			memcpy(&d->local, &sin, sizeof sin);
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
			struct in6_pktinfo pi;

			memcpy(&pi, WSA_CMSG_DATA(c), sizeof pi);
			sin6.sin6_addr = pi.ipi6_addr;
			if (IN6_IS_ADDR_LINKLOCAL(&pi.ipi6_addr))
				sin6.sin6_scope_id = pi.ipi6_ifindex;
			memcpy(&d->local, &sin6, sizeof sin6);
		}
	}
}

static void
write_control(WSAMSG *m, union control *u, const struct io_dgram *d)
{
	struct in6_pktinfo pi6 = { .ipi6_ifindex = 0 };
	struct in_pktinfo pi = { .ipi_ifindex = 0 };
	bool v6 = d->local.ss_family == AF_INET6;
	size_t len = v6 ? sizeof pi6 : sizeof pi;
	WSACMSGHDR *c;

	if (v6) {
		const struct sockaddr_in6 *sin6 = (const void *)&d->local;

		pi6.ipi6_addr = sin6->sin6_addr;
		pi6.ipi6_ifindex = sin6->sin6_scope_id;
	} else {
		pi.ipi_addr = ((const struct sockaddr_in *)(const void *)&d->local)->sin_addr;
	}
	memset(u, 0, sizeof *u);
	m->Control.buf = u->bytes;
	m->Control.len = (ULONG)WSA_CMSG_SPACE(len);
	c = WSA_CMSG_FIRSTHDR(m);
	c->cmsg_level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	c->cmsg_type = v6 ? IPV6_PKTINFO : IP_PKTINFO;
	c->cmsg_len = WSA_CMSG_LEN(len);
	memcpy(WSA_CMSG_DATA(c), v6 ? (void *)&pi6 : (void *)&pi, len);
}

/* ---- receive ---- */

/* One datagram into d, whose block is there.  0 or a WSA code. */
static int
recv_one(struct io_loop *l, struct io_sock *s, struct io_dgram *d)
{
	WSABUF buf = { .len = d->buf.cap, .buf = (char *)d->buf.base };
	union control ctl;
	WSAMSG m = { .name = (struct sockaddr *)&d->peer, .namelen = sizeof d->peer,
	    .lpBuffers = &buf, .dwBufferCount = 1,
	    .Control = { .len = sizeof ctl, .buf = ctl.bytes } };
	DWORD got = 0;
	int e = iocp_of(l)->calls.recv_msg(s->fd, &m, &got, NULL, NULL) == 0 ? 0 :
	    WSAGetLastError();

	d->trunc = e == WSAEMSGSIZE || e == ERROR_MORE_DATA || (m.dwFlags & MSG_TRUNC) != 0;
	if (e != 0 && !d->trunc)
		return e;
	/* Of a cut one some providers count all, some nothing. */
	d->buf.len = d->trunc || got > d->buf.cap ? d->buf.cap : got;
	d->nvec = 0;
	d->res = (int32_t)d->buf.len;
	d->peerlen = m.namelen;
	d->gso = 0;
	read_control(&m, d);
	return 0;
}

/* Fills op->u.batch.v.  0; a WSA code that stopped it; IOCP_NO_BLOCK. */
static int
gather(struct io_loop *l, struct io_op *op)
{
	unsigned errors = 0;

	op->u.batch.n = 0;
	while (op->u.batch.n < op->u.batch.max) {
		struct io_dgram *d = &op->u.batch.v[op->u.batch.n];
		int e;

		if (!io_pool_take(op->u.batch.pool, false, &d->buf))
			return IOCP_NO_BLOCK;
		if ((e = recv_one(l, op->sock, d)) == 0) {
			op->u.batch.n++;
			continue;
		}
		io_buf_put(op->u.batch.pool, &d->buf);
		if (!is_icmp(e))
			return e;
		l->stats.icmp_swallowed++;
		if (++errors == ERRORS_MAX)
			return WSAEWOULDBLOCK;	/* others first; the poll says it again */
	}
	return 0;
}

void
iocp_recv_batch_done(struct io_loop *l, struct io_op *op, int err)
{
	op->u.batch.n = 0;
	if (io_op_canceled(op)) {
		iocp_end(l, op, IO_ECANCELED, 0);
		return;
	}
	if (err == 0)
		err = gather(l, op);
	if (op->u.batch.n > 0) {
		op->res = (int32_t)op->u.batch.n;
		io_op_emit(l, op);
		/* An error behind them is there at the next look too. */
		if (op->state == OP_ARMED)
			iocp_await_poll(l, op, IO_POLL_IN);
	} else if (err == IOCP_NO_BLOCK) {
		io_pool_wait(op->u.batch.pool, op, false);
	} else if (err == 0 || err == WSAEWOULDBLOCK) {
		iocp_await_poll(l, op, IO_POLL_IN);
	} else {
		iocp_end_wsa(l, op, err);
	}
}

/* ---- send ---- */

static size_t
whole_len(const struct io_dgram *d)
{
	size_t len = d->nvec == 0 ? d->buf.len : 0;

	for (uint32_t i = 0; i < d->nvec; i++)
		len += d->vec[i].len;
	return len;
}

/* Of the datagram at hand, or its next segment. */
static size_t
part_len(const struct io_op *op)
{
	const struct io_dgram *d = &op->u.batch.v[op->u.batch.n];
	size_t len = whole_len(d) - (size_t)op->be[BE_OFFSET];

	return d->gso != 0 && len > d->gso ? d->gso : len;
}

/* The pieces that the part consists of: how many.  Not cast: a WSABUF has its members in another order. */
static DWORD
part_pieces(const struct io_op *op, WSABUF out[IO_DGRAM_VECS_MAX])
{
	const struct io_dgram *d = &op->u.batch.v[op->u.batch.n];
	const struct io_vec whole = { d->buf.base, d->buf.len };
	const struct io_vec *vec = d->nvec == 0 ? &whole : d->vec;
	uint32_t nvec = d->nvec == 0 ? 1 : d->nvec;
	size_t skip = (size_t)op->be[BE_OFFSET], left = part_len(op);
	DWORD n = 0;

	assert(nvec <= IO_DGRAM_VECS_MAX);
	for (uint32_t i = 0; i < nvec && left > 0; i++) {
		size_t at = skip < vec[i].len ? skip : vec[i].len;
		size_t len = vec[i].len - at < left ? vec[i].len - at : left;

		skip -= at;
		left -= len;
		if (len > 0)
			out[n++] = (WSABUF){ .len = (ULONG)len, .buf = (char *)vec[i].base + at };
	}
	if (n == 0)		/* an empty datagram */
		out[n++] = (WSABUF){ .len = 0, .buf = (char *)d->buf.base };
	return n;
}

/* ov NULL: without blocking.  0 or a WSA code. */
static int
send_part(struct io_loop *l, struct io_op *op, OVERLAPPED *ov)
{
	struct io_dgram *d = &op->u.batch.v[op->u.batch.n];
	WSABUF buf[IO_DGRAM_VECS_MAX];	/* the provider copies them before it returns (WSASendTo) */
	union control ctl;
	WSAMSG m = { .name = (struct sockaddr *)&d->peer, .namelen = d->peerlen,
	    .lpBuffers = buf, .dwBufferCount = part_pieces(op, buf) };
	DWORD bytes;
	int rc;

	if (d->peerlen == 0) {
		rc = WSASend(op->sock->fd, buf, m.dwBufferCount, ov == NULL ? &bytes : NULL, 0, ov, NULL);
	} else if (d->local.ss_family == AF_UNSPEC) {
		rc = WSASendTo(op->sock->fd, buf, m.dwBufferCount, ov == NULL ? &bytes : NULL,
		    0, m.name, m.namelen, ov, NULL);
	} else {
		write_control(&m, &ctl, d);
		rc = iocp_of(l)->calls.send_msg(op->sock->fd, &m, 0,
		    ov == NULL ? &bytes : NULL, ov, NULL);
	}
	return iocp_started(rc);
}

/* What became of the part at hand. */
static void
part_sent(struct io_loop *l, struct io_op *op, int e)
{
	struct io_dgram *d = &op->u.batch.v[op->u.batch.n];

	/* Perhaps the answer to an earlier datagram, to another peer: once more. */
	if (is_icmp(e) && op->be[BE_RETRIED] == 0) {
		op->be[BE_RETRIED] = 1;
		l->stats.icmp_swallowed++;
		return;
	}
	op->be[BE_RETRIED] = 0;
	if (e == 0) {
		op->be[BE_OFFSET] += part_len(op);
		if (op->be[BE_OFFSET] < whole_len(d))
			return;
		d->res = (int32_t)op->be[BE_OFFSET];
	} else {
		d->res = io_err_of(e);
	}
	op->be[BE_OFFSET] = 0;
	op->u.batch.n++;
}

/* The datagrams not sent yet get `err`; none out: that is the op's result too. */
static void
batch_end(struct io_loop *l, struct io_op *op, int32_t err)
{
	int32_t out = 0;

	for (unsigned i = 0; i < op->u.batch.max; i++) {
		if (i >= op->u.batch.n)
			op->u.batch.v[i].res = err;
		out += op->u.batch.v[i].res >= 0;
	}
	iocp_end(l, op, out == 0 && op->u.batch.n < op->u.batch.max ? err : out, 0);
}

void
iocp_send_batch(struct io_loop *l, struct io_op *op)
{
	while (op->u.batch.n < op->u.batch.max) {
		int e = send_part(l, op, NULL);

		if (e == WSAEWOULDBLOCK) {
			struct iocp_req *r = iocp_req_new(l, op, op->sock->fd, REQ_SEND);

			if (r == NULL) {
				batch_end(l, op, IO_ENOMEM);
				return;
			}
			if ((e = send_part(l, op, &r->ov)) == 0)
				return;
			iocp_req_undo(l, r);
		}
		part_sent(l, op, e);
	}
	batch_end(l, op, 0);
}

void
iocp_send_batch_done(struct io_loop *l, struct io_op *op, int err, DWORD bytes)
{
	(void)bytes;
	if (err != WSA_OPERATION_ABORTED)
		part_sent(l, op, err);
	if (io_op_canceled(op) && op->u.batch.n < op->u.batch.max)
		batch_end(l, op, IO_ECANCELED);
	else
		iocp_send_batch(l, op);
}

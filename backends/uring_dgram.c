/* SPDX-License-Identifier: ISC */
/*
 * Batches of datagrams.  Receiving is a multishot recvmsg: the kernel writes
 * its own header, the peer's address and the control data in front of the
 * payload.  Those take exactly the block's headroom, so the payload begins where
 * the block does, as on every backend.  What one reap finds is handed over in
 * as few callbacks as `max` allows.
 *
 * Sending is sendmmsg(2), which has sent the whole batch by the time a request
 * for the ring would have been filled in; the ring only waits for room.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>

#include "uring.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT	103
#endif
#ifndef UDP_GRO
#define UDP_GRO		104
#endif

enum {
	/* struct sockaddr_in6 rounded up, so that the control data are aligned. */
	NAME_BYTES	= 32,
	CONTROL_BYTES	= IO_HEADROOM - (int)sizeof(struct io_uring_recvmsg_out) - NAME_BYTES
};

_Static_assert(CONTROL_BYTES >= CMSG_SPACE(sizeof(struct in6_pktinfo)) +
    CMSG_SPACE(sizeof(struct in_pktinfo)) + CMSG_SPACE(sizeof(int)),
    "both kinds of PKTINFO and UDP_GRO fit before the payload");
_Static_assert(CONTROL_BYTES % 8 == 0 && IO_HEADROOM % 64 == 0, "aligned");

void
uring_dgram_init(struct uring *u)
{
	u->dgram_msg.msg_namelen = NAME_BYTES;
	u->dgram_msg.msg_controllen = CONTROL_BYTES;
}

/* ---- control data ---- */

static void
local_set4(struct sockaddr_storage *ss, const struct in_addr *a)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;

	sin->sin_family = AF_INET;
	sin->sin_addr = *a;
}

static void
local_set6(struct sockaddr_storage *ss, const struct in6_pktinfo *pi)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	sin6->sin6_family = AF_INET6;
	sin6->sin6_addr = pi->ipi6_addr;
	if (IN6_IS_ADDR_LINKLOCAL(&pi->ipi6_addr))
		sin6->sin6_scope_id = pi->ipi6_ifindex;
}

/* The address that the datagram came to, and the size of its segments. */
static void
control_read(struct io_dgram *d, struct msghdr *m)
{
	struct in_pktinfo pi4;
	struct in6_pktinfo pi6;
	int gso;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO &&
		    c->cmsg_len >= CMSG_LEN(sizeof pi4)) {
			memcpy(&pi4, CMSG_DATA(c), sizeof pi4);
			/* Not ipi_addr: a broadcast address is nothing to send from. */
			if (d->local.ss_family == AF_UNSPEC)
				local_set4(&d->local, &pi4.ipi_spec_dst);
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO &&
		    c->cmsg_len >= CMSG_LEN(sizeof pi6)) {
			memcpy(&pi6, CMSG_DATA(c), sizeof pi6);
			local_set6(&d->local, &pi6);
		} else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO &&
		    c->cmsg_len >= CMSG_LEN(sizeof gso)) {
			memcpy(&gso, CMSG_DATA(c), sizeof gso);
			if (gso > 0 && (uint32_t)gso < d->buf.len)
				d->gso = (uint16_t)gso;
		}
	}
}

static void
control_add(struct msghdr *m, size_t room, int level, int type, const void *data, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)((uint8_t *)m->msg_control + m->msg_controllen);

	assert(m->msg_controllen + CMSG_SPACE(len) <= room);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	m->msg_controllen += CMSG_SPACE(len);
}

static void
control_write(struct msghdr *m, size_t room, const struct io_dgram *d)
{
	if (d->local.ss_family == AF_INET) {
		struct in_pktinfo pi = { .ipi_spec_dst =
		    ((const struct sockaddr_in *)&d->local)->sin_addr };

		control_add(m, room, IPPROTO_IP, IP_PKTINFO, &pi, sizeof pi);
	} else if (d->local.ss_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&d->local;
		struct in6_pktinfo pi = { .ipi6_addr = sin6->sin6_addr,
		    .ipi6_ifindex = sin6->sin6_scope_id };

		control_add(m, room, IPPROTO_IPV6, IPV6_PKTINFO, &pi, sizeof pi);
	}
	if (d->gso != 0 && d->buf.len > d->gso)
		control_add(m, room, IPPROTO_UDP, UDP_SEGMENT, &d->gso, sizeof d->gso);
	if (m->msg_controllen == 0)
		m->msg_control = NULL;
}

/* ---- receiving ---- */

void
uring_recv_batch_start(struct uring *u, struct io_op *op)
{
	struct uring_group *g = uring_group_ready(u, op->u.batch.pool, true);
	struct io_uring_sqe *sqe;

	if (g == NULL) {
		op->be[0] = ST_RECV_POLL;
		uring_poll_add(u, op, op->sock->fd, POLLIN);
		return;
	}
	sqe = uring_sqe_op(u, op);
	sqe->opcode = IORING_OP_RECVMSG;
	sqe->fd = op->sock->fd;
	sqe->addr = (uintptr_t)&u->dgram_msg;
	sqe->len = 1;
	sqe->ioprio = IORING_RECV_MULTISHOT;
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->buf_group = g->bgid;
	op->be[0] = ST_RECV;
}

static void
batch_deliver(struct uring *u, struct io_op *op)
{
	io_list_del(&op->link);
	u->ngathered--;
	op->res = (int32_t)op->u.batch.n;
	op->syserr = 0;
	io_op_emit(u->loop, op);
	op->u.batch.n = 0;
}

void
uring_dgram_flush(struct uring *u)
{
	while (!io_list_empty(&u->gathered))
		batch_deliver(u, io_container_of(u->gathered.next, struct io_op, link));
}

static void
batch_end(struct uring *u, struct io_op *op, int rc)
{
	if (op->u.batch.n > 0)
		batch_deliver(u, op);
	/* The callback may have canceled it; with nothing in the kernel that has ended it. */
	if (op->state == OP_ARMED)
		uring_end_rc(u, op, rc);
}

/* A place in the batch, cleared. */
static struct io_dgram *
batch_slot(struct io_op *op)
{
	struct io_dgram *d = &op->u.batch.v[op->u.batch.n];

	assert(op->u.batch.n < op->u.batch.max);
	memset(d, 0, sizeof *d);
	return d;
}

/* The slot is filled. */
static void
batch_add(struct uring *u, struct io_op *op)
{
	if (op->u.batch.n++ == 0) {
		io_list_add_tail(&u->gathered, &op->link);
		u->ngathered++;
	}
	if (op->u.batch.n == op->u.batch.max)
		batch_deliver(u, op);
}

/* A completion with a buffer: header, name, control data, payload. */
static void
batch_take(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	struct io_pool *p = op->u.batch.pool;
	struct uring_pool *up = p->bed;
	const struct io_uring_recvmsg_out *out;
	struct io_dgram *d;
	struct io_buf b;
	struct msghdr m = { 0 };

	uring_group_took(p, &up->dgram, cqe->flags, &b);
	if (op->sock->state != SOCK_OPEN || cqe->res < (int)IO_HEADROOM) {
		io_buf_put(p, &b);
		return;
	}
	out = (const struct io_uring_recvmsg_out *)(b.base - IO_HEADROOM);
	d = batch_slot(op);
	d->buf = b;
	d->buf.len = (uint32_t)cqe->res - IO_HEADROOM;
	d->res = (int32_t)d->buf.len;
	d->trunc = (out->flags & MSG_TRUNC) != 0;
	d->peerlen = out->namelen < NAME_BYTES ? out->namelen : NAME_BYTES;
	memcpy(&d->peer, out + 1, d->peerlen);
	m.msg_control = b.base - CONTROL_BYTES;
	m.msg_controllen = out->controllen < CONTROL_BYTES ? out->controllen : CONTROL_BYTES;
	control_read(d, &m);
	batch_add(u, op);
}

/*
 * Errors that an earlier datagram caused, told by ICMP.  They say nothing of
 * the socket (C28).
 */
static bool
is_icmp(int e)
{
	switch (e) {
	case ECONNREFUSED: case ECONNRESET: case EHOSTUNREACH: case ENETUNREACH:
	case EHOSTDOWN: case ENETDOWN: case ENOPROTOOPT: case EPROTO: case ENONET:
		return true;
	default:
		return false;
	}
}

/*
 * With IP_RECVERR errors also stay in a queue and keep the socket ready until
 * they are read (ip(7)): the loop would spin.  How many there were.
 */
static unsigned
drain_errors(struct uring *u, struct io_op *op)
{
	struct msghdr m = { 0 };
	unsigned n = 0;

	for (; recvmsg(op->sock->fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0; n++)
		m = (struct msghdr){ 0 };
	u->loop->stats.icmp_swallowed += n;
	return n;
}

static void
swallow(struct uring *u, struct io_op *op)
{
	if (drain_errors(u, op) == 0)
		u->loop->stats.icmp_swallowed++;
}

/* While receiving, a path's MTU or an administrative prohibition too can only be an ICMP error. */
static bool
recv_swallows(struct uring *u, struct io_op *op, int e)
{
	if (!is_icmp(e) && e != EMSGSIZE && e != EACCES && e != ETIMEDOUT)
		return false;
	swallow(u, op);
	return true;
}

/* One datagram by recvmsg(2): bytes, or a negative errno; -ENOBUFS without a block. */
static int
batch_take_direct(struct uring *u, struct io_op *op)
{
	struct io_pool *p = op->u.batch.pool;
	struct io_dgram *d;
	struct io_buf b;
	struct iovec iov;
	uint64_t control[CONTROL_BYTES / 8];
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
	    .msg_controllen = sizeof control };
	ssize_t n;

	if (!io_pool_take(p, false, &b))
		return -ENOBUFS;
	d = batch_slot(op);
	iov = (struct iovec){ b.base, b.cap };
	m.msg_name = &d->peer;
	m.msg_namelen = sizeof d->peer;
	if ((n = recvmsg(op->sock->fd, &m, MSG_DONTWAIT)) == -1) {
		int e = errno;

		io_buf_put(p, &b);
		return e == ENOBUFS ? -ENOMEM : -e;
	}
	d->buf = b;
	d->buf.len = (uint32_t)n;
	d->res = (int32_t)n;
	d->trunc = (m.msg_flags & MSG_TRUNC) != 0;
	d->peerlen = m.msg_namelen;
	control_read(d, &m);
	batch_add(u, op);
	return (int)n;
}

/* The socket is readable and the receive ring empty: one batch from the stack. */
static void
batch_direct(struct uring *u, struct io_op *op, unsigned events)
{
	unsigned took = 0;
	int rc = 0;

	if (events & POLLERR)
		drain_errors(u, op);
	while (took < op->u.batch.max && op->state == OP_ARMED && !io_op_canceled(op)) {
		rc = batch_take_direct(u, op);
		if (rc >= 0)
			took++;
		else if (rc != -EINTR && !recv_swallows(u, op, -rc))
			break;
	}
	if (op->state != OP_ARMED)
		return;
	if (io_op_canceled(op)) {
		batch_end(u, op, -ECANCELED);
	} else if (rc >= 0 || rc == -EAGAIN) {
		uring_recv_batch_start(u, op);
	} else if (rc != -ENOBUFS) {
		batch_end(u, op, rc);
	} else if (op->u.batch.n > 0 || took > 0 ||
	    uring_group_ready(u, op->u.batch.pool, true) != NULL) {
		uring_recv_batch_start(u, op);
	} else {
		io_pool_wait(op->u.batch.pool, op, false);
	}
}

void
uring_recv_batch_completed(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	if (op->be[0] == ST_RECV && cqe->res >= 0 && (cqe->flags & IORING_CQE_F_BUFFER))
		batch_take(u, op, cqe);
	if ((cqe->flags & IORING_CQE_F_MORE) || op->state != OP_ARMED)
		return;
	if (io_op_canceled(op))
		batch_end(u, op, -ECANCELED);
	else if (op->be[0] == ST_RECV_POLL && cqe->res >= 0)
		batch_direct(u, op, (unsigned)cqe->res);
	else if (cqe->res >= 0 || cqe->res == -ENOBUFS || uring_transient(cqe->res) ||
	    recv_swallows(u, op, -cqe->res))
		uring_recv_batch_start(u, op);
	else
		batch_end(u, op, cqe->res);
}

void
uring_recv_batch_resume(struct uring *u, struct io_op *op)
{
	/* A batch is told of in reap only: the poll completes at once. */
	op->be[0] = ST_RECV_POLL;
	uring_poll_add(u, op, op->sock->fd, POLLIN);
}

/* ---- sending ---- */

/* In op->be: how many of those done went out. */
enum { BE_SENT = 1 };

struct out {
	struct mmsghdr	m[IO_BATCH_MAX];
	struct iovec	iov[IO_BATCH_MAX];
	uint64_t	control[IO_BATCH_MAX][CONTROL_BYTES / 8];
};

static void
out_fill(struct out *o, const struct io_op *op)
{
	for (unsigned i = op->u.batch.n; i < op->u.batch.max; i++) {
		struct io_dgram *d = &op->u.batch.v[i];
		struct msghdr *m = &o->m[i].msg_hdr;

		o->iov[i] = (struct iovec){ d->buf.base, d->buf.len };
		memset(m, 0, sizeof *m);
		m->msg_name = d->peerlen > 0 ? &d->peer : NULL;
		m->msg_namelen = d->peerlen;
		m->msg_iov = &o->iov[i];
		m->msg_iovlen = 1;
		m->msg_control = o->control[i];
		control_write(m, sizeof o->control[i], d);
		o->m[i].msg_len = 0;
	}
}

/* Sends until all are done (true) or there is no room. */
static bool
send_try(struct uring *u, struct io_op *op)
{
	struct out o;
	unsigned n = op->u.batch.max, retried = n;
	int rc, e;

	out_fill(&o, op);
	while (op->u.batch.n < n) {
		unsigned i = op->u.batch.n;

		rc = sendmmsg(op->sock->fd, o.m + i, n - i, MSG_DONTWAIT | MSG_NOSIGNAL);
		e = errno;
		if (rc > 0) {
			for (int k = 0; k < rc; k++, i++)
				op->u.batch.v[i].res = (int32_t)o.m[i].msg_len;
			op->be[BE_SENT] += (unsigned)rc;
			op->u.batch.n = i;
			/* What stopped it short may have been an ICMP error, which it keeps to itself. */
			if (i < n)
				drain_errors(u, op);
		} else if (e == EAGAIN) {
			return false;
		} else if (e == EINTR) {
			continue;
		} else if (retried != i && is_icmp(e)) {
			/* It may have been the answer to an earlier one, to another peer: once more. */
			swallow(u, op);
			retried = i;
		} else {
			op->u.batch.v[i].res = io_err_of(e);
			op->u.batch.n++;
		}
	}
	return true;
}

static void
send_end(struct uring *u, struct io_op *op)
{
	uring_end(u, op, (int32_t)op->be[BE_SENT], 0);
}

static void
send_wait(struct uring *u, struct io_op *op)
{
	uring_poll_add(u, op, op->sock->fd, POLLOUT);
}

void
uring_send_batch_start(struct uring *u, struct io_op *op)
{
	if (send_try(u, op))
		send_end(u, op);
	else
		send_wait(u, op);
}

void
uring_send_batch_completed(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	int rc = io_op_canceled(op) ? -ECANCELED : cqe->res;

	if (rc >= 0 || uring_transient(rc)) {
		uring_send_batch_start(u, op);
		return;
	}
	for (unsigned i = op->u.batch.n; i < op->u.batch.max; i++)
		op->u.batch.v[i].res = io_err_of(-rc);
	/* Something went out: that is the real result (C17). */
	if (op->be[BE_SENT] > 0)
		send_end(u, op);
	else
		uring_end_rc(u, op, rc);
}

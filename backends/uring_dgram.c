/* SPDX-License-Identifier: ISC */
/*
 * Batches of datagrams.  Receiving is a multishot recvmsg: the kernel writes
 * its own header, the peer's address and the control data in front of the
 * payload.  Those take exactly the block's headroom, so the payload begins where
 * the block does, as on every backend.  What one reap finds is handed over in
 * as few callbacks as `max` allows: until then an op's blocks form a chain through
 * their headrooms, as completions of other ops come in between and the caller's
 * array may be theirs too.
 *
 * Sending is sendmmsg(2), which has sent the whole batch by the time a request
 * for the ring would have been filled in; the ring only waits for room.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "dgram.h"
#include "uring.h"

enum {
	/* struct sockaddr_in6 rounded up, so that the control data are aligned. */
	NAME_BYTES	= 32,
	CONTROL_BYTES	= IO_HEADROOM - (int)sizeof(struct io_uring_recvmsg_out) - NAME_BYTES
};

_Static_assert((int)CONTROL_BYTES >= (int)DGRAM_CONTROL_IN,
    "both kinds of PKTINFO and UDP_GRO fit before the payload");
_Static_assert(CONTROL_BYTES % 8 == 0 && IO_HEADROOM % 64 == 0, "aligned");

void
uring_dgram_init(struct uring *u)
{
	u->dgram_msg.msg_namelen = NAME_BYTES;
	u->dgram_msg.msg_controllen = CONTROL_BYTES;
}

/* op->be, while receiving; [0] is the stage. */
enum {
	BE_HELD	= 1,		/* datagrams in the chain */
	BE_FIRST, BE_LAST,	/* their blocks' numbers */
	BE_AGAIN		/* enum again: at the end of the reap */
};

enum again {
	AGAIN_NOT,
	AGAIN_START,
	AGAIN_BLOCK		/* the socket is readable: not without a block */
};

/* What of the kernel's header is needed later, and where the chain goes on: in the header's place. */
struct held {
	uint32_t	next;	/* block number */
	uint32_t	len;
	uint8_t		namelen, controllen;
	bool		trunc;
};

_Static_assert(sizeof(struct held) <= sizeof(struct io_uring_recvmsg_out) &&
    CONTROL_BYTES <= UINT8_MAX, "what is held fits in the place of the kernel's header");

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

static struct held *
held_at(const struct io_pool *p, uint32_t bid)
{
	return (struct held *)(void *)(io_pool_base(p, bid) - IO_HEADROOM);
}

/* Only what is not written in any case is cleared: a batch may be 64 of these. */
static void
held_read(const struct io_pool *p, uint32_t bid, struct io_dgram *d)
{
	const struct held *h = held_at(p, bid);
	uint8_t *base = io_pool_base(p, bid);
	struct msghdr m = { .msg_control = base - CONTROL_BYTES, .msg_controllen = h->controllen };

	d->buf = (struct io_buf){ .base = base, .len = h->len, .cap = p->block_bytes, .bid = bid };
	d->nvec = 0;
	d->res = (int32_t)h->len;
	d->trunc = h->trunc;
	d->peerlen = h->namelen;
	d->peer.ss_family = AF_UNSPEC;
	memcpy(&d->peer, base - CONTROL_BYTES - NAME_BYTES, h->namelen);
	dgram_read_control(&m, d);
}

void
uring_recv_batch_drop(struct uring *u, struct io_op *op)
{
	struct io_pool *p = op->u.batch.pool;
	uint32_t bid = (uint32_t)op->be[BE_FIRST];

	if (op->be[BE_HELD] == 0)
		return;
	io_list_del(&op->link);
	u->ngathered--;
	for (; op->be[BE_HELD] > 0; op->be[BE_HELD]--) {
		struct io_buf b = { .base = io_pool_base(p, bid), .bid = bid };

		bid = held_at(p, bid)->next;
		io_buf_put(p, &b);
	}
}

static void
batch_deliver(struct uring *u, struct io_op *op)
{
	struct io_pool *p = op->u.batch.pool;
	unsigned n = (unsigned)op->be[BE_HELD];
	uint32_t bid = (uint32_t)op->be[BE_FIRST];

	if (op->sock->state != SOCK_OPEN) {
		uring_recv_batch_drop(u, op);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		held_read(p, bid, &op->u.batch.v[i]);
		bid = held_at(p, bid)->next;
	}
	io_list_del(&op->link);
	u->ngathered--;
	op->be[BE_HELD] = 0;
	op->u.batch.n = n;
	op->res = (int32_t)n;
	op->syserr = 0;
	io_op_emit(u->loop, op);
	op->u.batch.n = 0;
}

/* A datagram more: its block's headroom has name and control data. */
static void
batch_hold(struct uring *u, struct io_op *op, uint32_t bid, struct held h)
{
	struct io_pool *p = op->u.batch.pool;

	*held_at(p, bid) = h;
	if (op->be[BE_HELD]++ == 0) {
		op->be[BE_FIRST] = bid;
		io_list_add_tail(&u->gathered, &op->link);
		u->ngathered++;
	} else {
		held_at(p, (uint32_t)op->be[BE_LAST])->next = bid;
	}
	op->be[BE_LAST] = bid;
	if (op->be[BE_HELD] == op->u.batch.max)
		batch_deliver(u, op);
}

/*
 * No blocks: those that are held come home with the batches, so to go on after
 * these takes no more of them than are in use, which stay in cache.
 */
static void
batch_again(struct uring *u, struct io_op *op, enum again how)
{
	op->be[BE_AGAIN] = how;
	if (op->be[BE_HELD] == 0)
		io_list_add_tail(&u->gathered, &op->link);
}

static void
batch_go_on(struct uring *u, struct io_op *op)
{
	struct io_pool *p = op->u.batch.pool;
	bool wait = op->be[BE_AGAIN] == AGAIN_BLOCK && p->nfree <= p->reserve &&
	    uring_group_ready(u, p, true) == NULL;

	op->be[BE_AGAIN] = AGAIN_NOT;
	if (wait)
		io_pool_wait(p, op, false);
	else
		uring_recv_batch_start(u, op);
}

void
uring_dgram_flush(struct uring *u)
{
	struct io_link again;

	io_list_init(&again);
	while (!io_list_empty(&u->gathered)) {
		struct io_op *op = io_container_of(u->gathered.next, struct io_op, link);

		if (op->be[BE_HELD] > 0)
			batch_deliver(u, op);
		else
			io_list_del(&op->link);
		if (op->state == OP_ARMED && op->be[BE_AGAIN] != AGAIN_NOT)
			io_list_add_tail(&again, &op->link);
	}
	/* The callbacks above may have canceled some of these, which took them off. */
	while (!io_list_empty(&again)) {
		struct io_op *op = io_container_of(again.next, struct io_op, link);

		io_list_del(&op->link);
		batch_go_on(u, op);
	}
}

static void
batch_end(struct uring *u, struct io_op *op, int rc)
{
	if (op->be[BE_HELD] > 0)
		batch_deliver(u, op);
	/* The callback may have canceled it; with nothing in the kernel that has ended it. */
	if (op->state == OP_ARMED)
		uring_end_rc(u, op, rc);
}

/* A completion with a buffer: header, name, control data, payload. */
static void
batch_take(struct uring *u, struct io_op *op, const struct io_uring_cqe *cqe)
{
	struct io_pool *p = op->u.batch.pool;
	struct uring_pool *up = p->bed;
	struct io_uring_recvmsg_out out;
	struct io_buf b;

	uring_group_took(p, &up->dgram, cqe->flags, &b);
	if (op->sock->state != SOCK_OPEN || cqe->res < (int)IO_HEADROOM) {
		io_buf_put(p, &b);
		return;
	}
	memcpy(&out, b.base - IO_HEADROOM, sizeof out);
	batch_hold(u, op, b.bid, (struct held){
	    .len = (uint32_t)cqe->res - IO_HEADROOM,
	    .namelen = (uint8_t)(out.namelen < NAME_BYTES ? out.namelen : NAME_BYTES),
	    .controllen = (uint8_t)(out.controllen < CONTROL_BYTES ? out.controllen : CONTROL_BYTES),
	    .trunc = (out.flags & MSG_TRUNC) != 0 });
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

static bool
recv_swallows(struct uring *u, struct io_op *op, int e)
{
	if (!dgram_recv_is_icmp(e))
		return false;
	swallow(u, op);
	return true;
}

/* One datagram by recvmsg(2), laid out as the ring does: bytes, or a negative errno; -ENOBUFS without a block. */
static int
batch_take_direct(struct uring *u, struct io_op *op)
{
	struct io_pool *p = op->u.batch.pool;
	struct io_buf b;
	struct iovec iov;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_namelen = NAME_BYTES,
	    .msg_controllen = CONTROL_BYTES };
	ssize_t n;

	if (!io_pool_take(p, false, &b))
		return -ENOBUFS;
	iov = (struct iovec){ b.base, b.cap };
	m.msg_control = b.base - CONTROL_BYTES;
	m.msg_name = b.base - CONTROL_BYTES - NAME_BYTES;
	if ((n = recvmsg(op->sock->fd, &m, MSG_DONTWAIT)) == -1) {
		int e = errno;

		io_buf_put(p, &b);
		return e == ENOBUFS ? -ENOMEM : -e;
	}
	batch_hold(u, op, b.bid, (struct held){
	    .len = (uint32_t)n,
	    .namelen = (uint8_t)(m.msg_namelen < NAME_BYTES ? m.msg_namelen : NAME_BYTES),
	    .controllen = (uint8_t)m.msg_controllen,
	    .trunc = (m.msg_flags & MSG_TRUNC) != 0 });
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
	} else {
		batch_again(u, op, took > 0 ? AGAIN_START : AGAIN_BLOCK);
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
	else if (cqe->res == -ENOBUFS)
		batch_again(u, op, AGAIN_START);
	else if (cqe->res >= 0 || uring_transient(cqe->res) ||
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
	struct mmsghdr	 m[IO_BATCH_MAX];
	struct dgram_out d[IO_BATCH_MAX];
};

/* From `from` on, up to one that can't be sent here or the end: where that is. */
static unsigned
out_fill(struct uring *u, struct out *o, const struct io_op *op, unsigned from)
{
	for (; from < op->u.batch.max; from++) {
		if (!dgram_fill(u->loop, op->sock->fd, &o->m[from].msg_hdr, &o->d[from],
		    &op->u.batch.v[from]))
			break;
	}
	return from;
}

/* Sends until all are done (true) or there is no room. */
static bool
send_try(struct uring *u, struct io_op *op)
{
	struct out o;
	unsigned filled = out_fill(u, &o, op, op->u.batch.n), retried = op->u.batch.max;
	int rc, e;

	while (op->u.batch.n < op->u.batch.max) {
		unsigned i = op->u.batch.n;

		if (i == filled) {
			op->u.batch.v[i].res = IO_ENOTSUP;
			op->u.batch.n++;
			filled = out_fill(u, &o, op, i + 1);
			continue;
		}
		rc = sendmmsg(op->sock->fd, o.m + i, filled - i, MSG_DONTWAIT | MSG_NOSIGNAL);
		e = errno;
		if (rc > 0) {
			for (int k = 0; k < rc; k++, i++)
				op->u.batch.v[i].res = (int32_t)o.m[i].msg_len;
			op->be[BE_SENT] += (unsigned)rc;
			op->u.batch.n = i;
			/* What stopped it short may have been an ICMP error, which it keeps to itself. */
			if (i < filled)
				drain_errors(u, op);
		} else if (e == EAGAIN) {
			return false;
		} else if (e == EINTR) {
			continue;
		} else if (retried != i && dgram_is_icmp(e)) {
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

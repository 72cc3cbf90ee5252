/* SPDX-License-Identifier: ISC */
/*
 * Provided buffers.  Each pool has a small ring of blocks for streams and one
 * for datagrams, made at first use, that the kernel takes a block from only
 * when there is something to put in: idle sockets hold none.  The rings are
 * refilled from the pool's stack, and by blocks that come home.
 *
 * A receive on an empty ring fails with ENOBUFS at once, even if the socket has
 * nothing to say.  So when the stack has no more for the ring, the op waits for
 * readability first, then takes blocks of its own (an op that may use the
 * reserve finds one on the stack) and calls recvmsg(2); only one that has data
 * and gets no block waits in the pool's line.  Cases: C27.
 *
 * Receive bundles are not used: on a full transfer the kernel tries again with
 * what the socket holds in place of the length that was asked for (6.18: 7 KiB
 * for a request of 4), which breaks the limits on what an op may hold and on
 * what a relay may move.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "uring.h"

enum {
	HOT_BYTES	= 2 * 1024 * 1024,	/* stays in a core's L2 cache */
	HOT_MAX		= 256,
	/*
	 * Whatever the block's size: datagrams touch only the start of a block, and a
	 * burst takes one each.  Bursts over 64 sockets cost 15 % more with 32 and 5 %
	 * with 64, no less with 256; runs of 64 KiB (UDP_GRO) the same with all of them.
	 */
	HOT_DGRAM	= 128,
	/* Smaller pools have no such ring, so that one block stays outside even beside the other ring. */
	STREAM_POOL_MIN	= 2,
	DGRAM_POOL_MIN	= 4,
	BID_MAX		= UINT16_MAX		/* what the kernel has room for */
};

static uint32_t
next_power_of_2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

/*
 * What is in a ring can't be taken back, and is no use to those who wait for
 * the stack: of a small pool each ring gets a third at the most, of a tiny one
 * none.
 */
static void
group_size(struct uring_group *g, const struct io_pool *p, uint32_t want, uint32_t pool_min)
{
	uint32_t blocks = p->ceiling - p->reserve;

	if (want > HOT_MAX)
		want = HOT_MAX;
	if (want > blocks / 3)
		want = blocks / 3;
	g->hot = want > 0 ? want : 1;
	g->entries = next_power_of_2(g->hot);
	if (blocks < pool_min)
		g->refused = true;
}

int
uring_pool_bind(struct io_loop *l, struct io_pool *p)
{
	struct uring_pool *up = calloc(1, sizeof *up);

	if (up == NULL)
		return -ENOMEM;
	up->dgram.dgram = true;
	up->stream.refused = up->dgram.refused = uring_of(l)->no_ring;
	group_size(&up->stream, p, HOT_BYTES / p->block_bytes, STREAM_POOL_MIN);
	group_size(&up->dgram, p, HOT_DGRAM, DGRAM_POOL_MIN);
	p->bed = up;
	return 0;
}

static size_t
group_bytes(const struct uring_group *g)
{
	return g->entries * sizeof g->br->bufs[0];
}

static void
group_unmake(struct uring *u, struct uring_group *g)
{
	if (g->br == NULL)
		return;
	(void)io_uring_unregister_buf_ring(&u->ring, g->bgid);
	munmap(g->br, group_bytes(g));
	g->br = NULL;
}

void
uring_pool_unbind(struct io_loop *l, struct io_pool *p)
{
	struct uring_pool *up = p->bed;

	group_unmake(uring_of(l), &up->stream);
	group_unmake(uring_of(l), &up->dgram);
	free(up);
	p->bed = NULL;
}

static bool
group_make(struct uring *u, struct uring_group *g)
{
	struct io_uring_buf_reg reg = { .ring_entries = g->entries };
	void *mem = mmap(NULL, group_bytes(g), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return false;
	reg.ring_addr = (uintptr_t)mem;
	reg.bgid = u->next_bgid;
	if (io_uring_register_buf_ring(&u->ring, &reg, 0) < 0) {
		munmap(mem, group_bytes(g));
		return false;
	}
	g->bgid = u->next_bgid++;
	g->br = mem;
	return true;
}

static void
group_add(struct io_pool *p, struct uring_group *g, uint32_t bid)
{
	uint8_t *base = io_pool_base(p, bid);
	uint32_t len = p->block_bytes;

	assert(g->filled < g->entries && bid <= BID_MAX);
	if (g->dgram) {
		base -= IO_HEADROOM;
		len += IO_HEADROOM;
	}
	io_uring_buf_ring_add(g->br, base, len, (unsigned short)bid,
	    io_uring_buf_ring_mask(g->entries), 0);
	io_uring_buf_ring_advance(g->br, 1);
	g->filled++;
}

static void
group_fill(struct io_pool *p, struct uring_group *g)
{
	/* Those who wait in line come first. */
	if (!io_list_empty(&p->waiters) || !io_list_empty(&p->waiters_reserve))
		return;
	while (g->filled < g->hot && p->nfree > p->reserve &&
	    p->free[p->nfree - 1] <= BID_MAX)
		group_add(p, g, p->free[--p->nfree]);
}

struct uring_group *
uring_group_ready(struct uring *u, struct io_pool *p, bool dgram)
{
	struct uring_pool *up = p->bed;
	struct uring_group *g = dgram ? &up->dgram : &up->stream;

	if (g->br == NULL) {
		if (g->refused)
			return NULL;
		if (!group_make(u, g)) {
			g->refused = true;	/* slower, but it works without */
			return NULL;
		}
	}
	/* A quarter left: fill up in one go. */
	if (g->filled <= g->hot / 4)
		group_fill(p, g);
	return g->filled > 0 ? g : NULL;
}

void
uring_group_took(struct io_pool *p, struct uring_group *g, uint32_t cqe_flags,
    struct io_buf *b)
{
	assert(g->filled > 0);
	g->filled--;
	io_pool_lend(p, cqe_flags >> IORING_CQE_BUFFER_SHIFT, b);
}

bool
uring_pool_keep(struct io_loop *l, struct io_pool *p, uint32_t bid)
{
	struct uring_pool *up = p->bed;
	struct uring_group *g = &up->stream;

	(void)l;
	if (g->br == NULL || g->filled >= g->hot)
		g = &up->dgram;
	if (g->br == NULL || g->filled >= g->hot || bid > BID_MAX)
		return false;
	group_add(p, g, bid);
	return true;
}

/* ---- receives into blocks ---- */

static void
rx_ring(struct uring *u, struct io_op *op, struct uring_rx *rx, struct uring_group *g)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);

	sqe->opcode = IORING_OP_RECV;
	sqe->fd = op->sock->fd;
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->buf_group = g->bgid;
	sqe->len = (uint32_t)(rx->want < rx->pool->block_bytes ? rx->want : rx->pool->block_bytes);
	/* Nothing was left: to try before waiting costs a twentieth of a small message, for nothing. */
	if (rx->dry)
		sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
	op->be[0] = ST_RECV;
}

void
uring_rx_start(struct uring *u, struct io_op *op, struct uring_rx *rx)
{
	struct uring_group *g = uring_group_ready(u, rx->pool, false);

	if (g != NULL) {
		rx_ring(u, op, rx, g);
		return;
	}
	op->be[0] = ST_RECV_POLL;
	uring_poll_add(u, op, op->sock->fd, POLLIN);
}

/*
 * One receive into blocks off the stack, after those that the op has: bytes, 0
 * at the end, a negative errno; -ENOBUFS without a block.
 */
static int
rx_direct(struct io_op *op, struct uring_rx *rx, size_t want)
{
	struct io_buf *b = &rx->bufs[rx->n];
	struct iovec iov[IO_RECV_BUFS_MAX];
	struct msghdr m = { .msg_iov = iov };
	size_t room = 0, rest;
	unsigned used = 0;
	ssize_t n;
	int rc;

	/* The reserve is for one block each. */
	while (rx->n + m.msg_iovlen < IO_RECV_BUFS_MAX && room < want &&
	    io_pool_take(rx->pool, (op->flags & IO_USE_RESERVE) != 0 &&
	    rx->n + m.msg_iovlen == 0, &b[m.msg_iovlen])) {
		struct iovec *v = &iov[m.msg_iovlen];

		v->iov_base = b[m.msg_iovlen].base;
		v->iov_len = b[m.msg_iovlen].cap < want - room ? b[m.msg_iovlen].cap : want - room;
		room += v->iov_len;
		m.msg_iovlen++;
	}
	if (m.msg_iovlen == 0)
		return -ENOBUFS;
	do
		n = recvmsg(op->sock->fd, &m, MSG_DONTWAIT);
	while (n == -1 && errno == EINTR);
	rc = n >= 0 ? (int)n : errno == ENOBUFS ? -ENOMEM : -errno;
	for (rest = n > 0 ? (size_t)n : 0; rest > 0; used++) {
		b[used].len = (uint32_t)(rest < iov[used].iov_len ? rest : iov[used].iov_len);
		rest -= b[used].len;
	}
	rx->n += used;
	/* Back in the order in which they came, the hottest last. */
	for (unsigned i = (unsigned)m.msg_iovlen; i > used; i--)
		io_buf_put(rx->pool, &b[i - 1]);
	return rc;
}

/* The socket is readable. */
static enum uring_recv
rx_take(struct uring *u, struct io_op *op, struct uring_rx *rx)
{
	struct uring_group *g;

	rx->res = rx_direct(op, rx, rx->want);
	if (rx->res == -ENOBUFS) {
		/* The stack is empty; a block may have come home to the ring meanwhile. */
		if ((g = uring_group_ready(u, rx->pool, false)) != NULL)
			rx_ring(u, op, rx, g);
		else
			io_pool_wait(rx->pool, op, (op->flags & IO_USE_RESERVE) != 0);
		return RECV_PENDING;
	}
	if (uring_transient(rx->res)) {
		uring_rx_start(u, op, rx);
		return RECV_PENDING;
	}
	return RECV_DONE;
}

/*
 * A block came full and the kernel says that there is more: to receive it now
 * saves a round through the ring.  Once only, for what the kernel has told of:
 * a further receive might find, and so take away, the socket's error.
 */
static void
rx_top_up(struct io_op *op, struct uring_rx *rx)
{
	int n;

	if (rx->bufs[0].len < rx->bufs[0].cap || (size_t)rx->res >= rx->want)
		return;
	n = rx_direct(op, rx, rx->want - (size_t)rx->res);
	if (n > 0)
		rx->res += n;
}

enum uring_recv
uring_rx_completed(struct uring *u, struct io_op *op, struct uring_rx *rx,
    const struct io_uring_cqe *cqe)
{
	struct uring_pool *up = rx->pool->bed;

	rx->n = 0;
	rx->dry = false;
	rx->res = cqe->res;
	/* On errors the kernel keeps the buffer, whatever the flag says (6.12 sets it by mistake). */
	if (op->be[0] == ST_RECV && cqe->res >= 0 && (cqe->flags & IORING_CQE_F_BUFFER)) {
		uring_group_took(rx->pool, &up->stream, cqe->flags, &rx->bufs[0]);
		if (cqe->res > 0) {
			rx->bufs[0].len = (uint32_t)cqe->res;
			rx->n = 1;
			rx->dry = (cqe->flags & IORING_CQE_F_SOCK_NONEMPTY) == 0;
			if ((cqe->flags & IORING_CQE_F_SOCK_NONEMPTY) && !io_op_canceled(op))
				rx_top_up(op, rx);
		} else {
			io_buf_put(rx->pool, &rx->bufs[0]);
		}
		return RECV_DONE;
	}
	if (io_op_canceled(op)) {
		if (rx->res > 0 || rx->res == -ENOBUFS || uring_transient(rx->res))
			rx->res = -ECANCELED;
		return RECV_DONE;
	}
	if (op->be[0] == ST_RECV_POLL)
		return rx->res < 0 ? RECV_DONE : rx_take(u, op, rx);
	if (rx->res == -ENOBUFS || uring_transient(rx->res)) {
		uring_rx_start(u, op, rx);
		return RECV_PENDING;
	}
	return RECV_DONE;
}

enum uring_recv
uring_rx_resume(struct uring *u, struct io_op *op, struct uring_rx *rx)
{
	rx->n = 0;
	rx->dry = false;
	return rx_take(u, op, rx);
}

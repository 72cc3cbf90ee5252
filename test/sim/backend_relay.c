/* SPDX-License-Identifier: ISC */
/* Reads into blocks of the pool, and the relay: a read only when nothing is held. */
#include <errno.h>

#include "backend.h"
#include "relay_policy.h"

long
sim_read_pool(struct kfile *f, struct io_pool *pool, bool use_reserve, size_t max,
    struct io_buf *bufs, unsigned *n)
{
	unsigned want = 1 + (unsigned)sim_below(IO_RECV_BUFS_MAX);
	long total = 0, got = 0;

	*n = 0;
	if (max > IO_RECV_BYTES_MAX)
		max = IO_RECV_BYTES_MAX;
	if (f->kind == K_STREAM && !(k_poll(f) & K_IN))
		return -EAGAIN;
	while (*n < want && max > 0 && (*n == 0 || f->end->rx.visible > 0)) {
		struct io_buf *b = &bufs[*n];

		if (!io_pool_take(pool, use_reserve, b))
			return *n > 0 ? total : -ENOBUFS;
		got = k_recv(f, b->base, b->cap < max ? b->cap : max, false);
		if (got <= 0) {
			io_buf_put(pool, b);
			return *n > 0 ? total : got;
		}
		b->len = (uint32_t)got;
		total += got;
		max -= (size_t)got;
		(*n)++;
	}
	return total;
}

void
sim_relay_drop(struct io_op *op)
{
	while (op->u.relay.first < op->u.relay.nbufs)
		io_buf_put(op->u.relay.pool, &op->u.relay.bufs[op->u.relay.first++]);
	op->u.relay.first = op->u.relay.nbufs = 0;
	op->u.relay.held = 0;
}

static void
relay_failed(struct sim_loop *sl, struct io_op *op, long rc, bool dst)
{
	op->u.relay.dst_failed = dst;
	sim_relay_drop(op);
	sim_op_failed(sl, op, rc);
}

/* False: waits for dst, or has ended. */
static bool
hand_over(struct sim_loop *sl, struct io_op *op)
{
	struct kfile *dst = sim_sock_of(op->u.relay.dst)->file;

	while (op->u.relay.held > 0) {
		struct io_buf *b = &op->u.relay.bufs[op->u.relay.first];
		size_t at = op->be[BE_OFFSET];
		long n = k_send(dst, b->base + at, b->len - at);

		if (n == -EAGAIN)
			return false;
		if (n < 0) {
			relay_failed(sl, op, n, true);
			return false;
		}
		op->u.relay.held -= (uint32_t)n;
		op->u.relay.moved += (uint64_t)n;
		op->u.relay.last_ns = sl->loop->now_ns;
		if (op->u.relay.tally != NULL)
			*op->u.relay.tally += (uint64_t)n;
		op->be[BE_OFFSET] += (uint64_t)n;
		if (op->be[BE_OFFSET] == b->len) {
			op->be[BE_OFFSET] = 0;
			op->u.relay.first++;
			io_buf_put(op->u.relay.pool, b);
		}
	}
	op->u.relay.first = op->u.relay.nbufs = 0;
	return true;
}

void
sim_relay(struct sim_loop *sl, struct io_op *op)
{
	struct kfile *src = sim_sock_of(op->sock)->file;

	if (op->be[BE_TURN] != sl->loop->stats.turns) {
		op->be[BE_TURN] = sl->loop->stats.turns;
		op->be[BE_BYTES] = op->u.relay.held;
	}
	while (hand_over(sl, op)) {
		uint64_t left = op->u.relay.max - op->u.relay.moved;
		unsigned nbufs;
		long n;

		if (left == 0 || (op->be[BE_FLAGS] & OPB_SRC_ENDED)) {
			sim_op_done(sl, op, 0, 0);
			return;
		}
		if (op->be[BE_BYTES] >= RELAY_TURN_BYTES) {
			sim_look(sim_sock_of(op->sock));
			return;
		}
		n = RELAY_TURN_BYTES - (long)op->be[BE_BYTES];
		n = sim_read_pool(src, op->u.relay.pool, false, left < (uint64_t)n ? left : (size_t)n,
		    op->u.relay.bufs, &nbufs);
		if (n == -EAGAIN)
			return;
		if (n == -ENOBUFS) {
			seen(SEEN_POOL_EMPTY);
			io_pool_wait(op->u.relay.pool, op, false);
			return;
		}
		if (n < 0) {
			relay_failed(sl, op, n, false);
			return;
		}
		if (n == 0)
			op->be[BE_FLAGS] |= OPB_SRC_ENDED;
		op->u.relay.nbufs = (uint8_t)nbufs;
		op->u.relay.first = 0;
		op->u.relay.held = (uint32_t)n;
		op->be[BE_BYTES] += (uint64_t)n;
		op->u.relay.last_ns = sl->loop->now_ns;
	}
}

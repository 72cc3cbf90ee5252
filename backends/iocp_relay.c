/* SPDX-License-Identifier: ISC */
/*
 * Relays, on the copy path (Windows has no splice).  A direction holds at most
 * one read of 64 KiB and reads only when it holds nothing; each read needs a
 * packet first, so that a turn moves no more than that.
 *
 *	wait for src (no buffer) ---> read into blocks ---> WSASend to dst
 *	      ^                             |  ^                  |
 *	      +--------- nothing there -----+  +----- all sent ---+
 */
#include "iocp.h"

/* Bytes of bufs[first] that dst has taken: op->be[BE_OWN]. */

void
iocp_relay_drop(struct io_op *op)
{
	while (op->u.relay.first < op->u.relay.nbufs)
		io_buf_put(op->u.relay.pool, &op->u.relay.bufs[op->u.relay.first++]);
	op->u.relay.first = op->u.relay.nbufs = 0;
	op->u.relay.held = 0;
}

static void
relay_end(struct io_loop *l, struct io_op *op, int err, bool dst_failed)
{
	iocp_relay_drop(op);
	op->u.relay.dst_failed = dst_failed;
	if (io_op_canceled(op))
		iocp_end(l, op, IO_ECANCELED, 0);
	else if (err == 0)
		iocp_end(l, op, 0, 0);
	else
		iocp_end_wsa(l, op, err);
}

static void
relay_send(struct io_loop *l, struct io_op *op)
{
	struct iocp_req *r = iocp_req_new(l, op, op->u.relay.dst->fd, REQ_SEND);
	WSABUF v[IO_RECV_BUFS_MAX];
	uint32_t offset = (uint32_t)op->be[BE_OWN];
	unsigned n = 0;
	int e = WSA_NOT_ENOUGH_MEMORY;

	for (unsigned i = op->u.relay.first; i < op->u.relay.nbufs; i++) {
		struct io_buf *b = &op->u.relay.bufs[i];

		v[n++] = (WSABUF){ .len = b->len - offset, .buf = (char *)b->base + offset };
		offset = 0;
	}
	if (r != NULL && (e = iocp_started(WSASend(r->fd, v, n, NULL, 0, &r->ov, NULL))) != 0)
		iocp_req_undo(l, r);
	if (e != 0)
		relay_end(l, op, e, true);
}

void
iocp_relay_read(struct io_loop *l, struct io_op *op)
{
	uint64_t left = op->u.relay.max - op->u.relay.moved;
	unsigned nbufs;
	int64_t n;

	assert(op->u.relay.held == 0);
	if (left == 0) {
		relay_end(l, op, 0, false);
		return;
	}
	n = iocp_read_pool(op->sock, op->u.relay.pool, false, left, op->u.relay.bufs, &nbufs);
	if (n > 0) {
		op->u.relay.nbufs = (uint8_t)nbufs;
		op->u.relay.first = 0;
		op->u.relay.held = (uint32_t)n;
		op->u.relay.last_ns = l->now_ns;
		op->be[BE_OWN] = 0;
		relay_send(l, op);
	} else if (n == IOCP_NO_BLOCK) {
		io_pool_wait(op->u.relay.pool, op, false);
	} else if (n == -WSAEWOULDBLOCK) {
		iocp_await_bytes(l, op);
	} else {
		relay_end(l, op, (int)-n, false);
	}
}

static void
sent(struct io_loop *l, struct io_op *op, uint32_t bytes)
{
	assert(bytes <= op->u.relay.held);
	op->u.relay.held -= bytes;
	op->u.relay.moved += bytes;
	op->u.relay.last_ns = l->now_ns;
	io_tally_add(op->u.relay.tally, bytes);
	while (op->u.relay.first < op->u.relay.nbufs) {
		struct io_buf *b = &op->u.relay.bufs[op->u.relay.first];
		uint32_t rest = b->len - (uint32_t)op->be[BE_OWN];

		if (bytes < rest) {
			op->be[BE_OWN] += bytes;
			return;
		}
		bytes -= rest;
		op->be[BE_OWN] = 0;
		op->u.relay.first++;
		io_buf_put(op->u.relay.pool, b);
	}
	op->u.relay.first = op->u.relay.nbufs = 0;
}

void
iocp_relay_done(struct io_loop *l, struct io_op *op, struct iocp_req *r, int err,
    DWORD bytes)
{
	if (r->what == REQ_SEND && bytes > 0)
		sent(l, op, bytes);
	if (err != 0 || io_op_canceled(op))
		relay_end(l, op, err, err != 0 && r->what == REQ_SEND && !io_op_canceled(op));
	else if (op->u.relay.held > 0)
		relay_send(l, op);
	else
		iocp_relay_read(l, op);
}

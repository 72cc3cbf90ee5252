/* SPDX-License-Identifier: ISC */
/* What each operation tries when its socket has changed. */
#include <errno.h>

#include "backend.h"

enum { ACCEPTS_AHEAD = 8 };	/* what a ring takes before its user says stop */

static void
try_accept(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	unsigned n = 0;

	for (struct io_link *k = bs->accepted.next; k != &bs->accepted; k = k->next)
		n++;
	/* What is in the backlog stays there until the op has been told of these. */
	while (n < ACCEPTS_AHEAD && !(op->be[BE_FLAGS] & OPB_DONE)) {
		struct sim_taken *t;
		struct kfile *f;
		int rc;

		if (k_poll(bs->file) == 0)
			break;
		if (sim_chance(sim.faults.accept_permille)) {
			sim_note(SIM_T_FAULT, 1, 0, 0);
			sim_op_failed(sl, op, sim_chance(500) ? -ENFILE : -ENOMEM);
			return;
		}
		if (!k_fd_room()) {
			seen(SEEN_FD_LIMIT);
			sim_op_failed(sl, op, -EMFILE);
			return;
		}
		t = sim_alloc(sizeof *t);
		if ((rc = k_accept(bs->file, &f, &t->peer, &t->len)) < 0) {
			sim_free(t);
			sim_op_failed(sl, op, rc);
			return;
		}
		f->nonblock = f->cloexec = true;
		t->fd = k_fd_new(f);
		io_list_add_tail(&bs->accepted, &t->link);
		n++;
	}
	if (n > 0 && !(op->be[BE_FLAGS] & OPB_LISTED))
		sim_list_op(sl, op, sim_late());
}

static void
try_connect(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	int rc;

	if (op->be[BE_FLAGS] & OPB_STARTED)
		rc = k_connect_result(bs->file);
	else
		rc = k_connect(bs->file, op->u.connect.to, op->u.connect.tolen);
	op->be[BE_FLAGS] |= OPB_STARTED;
	if (rc == 0)
		sim_op_done(sl, op, 0, 0);
	else if (rc != -EINPROGRESS)
		sim_op_failed(sl, op, rc);
}

/* In the turn, so that blocks are lent when their receiver is told.  False: nothing yet. */
bool
sim_recv_pool(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	bool use_reserve = (op->flags & IO_USE_RESERVE) != 0;
	long n = sim_read_pool(bs->file, op->u.pool.pool, use_reserve, IO_RECV_BYTES_MAX,
	    op->u.pool.bufs, &op->u.pool.n);

	if (n == -EAGAIN)
		return false;
	if (n == -ENOBUFS) {
		if (!(op->flags & OPF_CANCEL)) {
			seen(SEEN_POOL_EMPTY);
			io_pool_wait(op->u.pool.pool, op, use_reserve);
		}
		return false;
	}
	if (n >= 0)
		sim_op_done(sl, op, (int32_t)n, 0);
	else
		sim_op_failed(sl, op, n);
	return true;
}

static void
try_bytes(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	size_t done = op->be[BE_OFFSET];
	long n;

	if (op->kind == IO_RECV)
		n = k_recv(bs->file, op->u.recv.base, op->u.recv.len, false);
	else
		n = k_send(bs->file, (const uint8_t *)op->u.send.base + done, op->u.send.len - done);
	if (n == -EAGAIN)
		return;
	if (op->kind == IO_SEND && n >= 0) {
		op->be[BE_OFFSET] = done += (size_t)n;
		/* As MSG_WAITALL: what is under way does not show; or as send(2): short. */
		if (done < op->u.send.len && sim_chance(700)) {
			sim_look(bs);
			return;
		}
		n = (long)done;
	} else if (n < 0 && done > 0)
		n = (long)done;			/* the error is the next call's */
	if (n < 0)
		sim_op_failed(sl, op, n);
	else
		sim_op_done(sl, op, (int32_t)n, 0);
}

static void
try_poll(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	unsigned k = k_poll(bs->file), got;

	got = (k & K_IN ? IO_POLL_IN : 0) | (k & K_OUT ? IO_POLL_OUT : 0);
	got = (got & op->u.poll.want) | (k & K_HUP ? IO_POLL_HUP : 0);
	if (got == 0)
		return;
	op->u.poll.got = got;
	sim_op_done(sl, op, (int32_t)got, 0);
}

void
sim_attempt(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	uint64_t flags;

	if (op == NULL || (op->be[BE_FLAGS] & OPB_DONE))
		return;
	assert(op->state == OP_ARMED);	/* else the core let go of what the kernel still holds */
	flags = op->be[BE_FLAGS];
	if (!(flags & OPB_LISTED) && io_pool_waits(op))
		return;
	switch ((enum io_kind)op->kind) {
	case IO_ACCEPT:
		try_accept(sl, bs, op);
		break;
	case IO_CONNECT:
		try_connect(sl, bs, op);
		break;
	case IO_RECV:
	case IO_SEND:
		try_bytes(sl, bs, op);
		break;
	case IO_RECV_POOL:
	case IO_RECV_BATCH:
		if (!(flags & OPB_LISTED) && (k_poll(bs->file) & K_IN))
			sim_list_op(sl, op, sim_late());
		break;
	case IO_SEND_BATCH:
		sim_send_batch(sl, op);
		break;
	case IO_RELAY:
		if (!(flags & OPB_LISTED))
			sim_list_op(sl, op, sim_late());
		break;
	case IO_POLL:
		try_poll(sl, bs, op);
		break;
	case IO_NONE:
		assert(!"an op of no kind is armed");
	}
}

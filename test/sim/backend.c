/* SPDX-License-Identifier: ISC */
#include "backend.h"

#include <errno.h>
#include <stdio.h>

enum { TURN_NS = 20000 };	/* a turn costs time */

void (*sim_backend_adopted)(struct kfile *);

static struct sim_loop *
sl_of(struct io_loop *l)
{
	return l->bed;
}

/* ---- ops that have ended in the kernel ---- */

void
sim_list_op(struct sim_loop *sl, struct io_op *op, uint64_t due_ns)
{
	struct io_link *at;

	op->be[BE_DUE] = due_ns;
	io_list_del(&op->link);
	for (at = sl->done.prev; at != &sl->done; at = at->prev)
		if (io_container_of(at, struct io_op, link)->be[BE_DUE] <= due_ns)
			break;
	io_list_add_head(at, &op->link);
	op->be[BE_FLAGS] |= OPB_LISTED;
}

uint64_t
sim_late(void)
{
	uint64_t now = sim_now();

	return sim_chance(sim.faults.late_permille) ? now + sim_below(sim.faults.late_ns + 1) : now;
}

/* The kernel lets go of the op. */
static void
disown(struct io_op *op)
{
	struct sim_sock *bs = sim_sock_of(op->sock);

	for (int side = 0; side < 2; side++)
		if (bs->op[side] == op)
			bs->op[side] = NULL;
	if (op->kind == IO_RELAY) {
		bs = sim_sock_of(op->u.relay.dst);
		assert(bs->op[1] == op);
		bs->op[1] = NULL;
	}
}

void
sim_op_done(struct sim_loop *sl, struct io_op *op, int32_t res, int32_t syserr)
{
	if (sl->at_submit) {
		disown(op);
		io_op_defer(sl->loop, op, res, syserr);
		return;
	}
	op->be[BE_FLAGS] |= OPB_DONE;
	op->be[BE_RES] = (uint64_t)(uint32_t)res << 32 | (uint32_t)syserr;
	/*
	 * A reset is told once, to whichever call comes first; the next receive
	 * finds an end.  So an error is never overtaken by what came after it.  And
	 * a send is cut because there was no room: it tells so while that is true.
	 */
	if (res < 0 || (op->kind == IO_SEND && (size_t)res < op->u.send.len))
		sim_list_op(sl, op, sim_now());
	else
		sim_list_op(sl, op, sim_late());
}

void
sim_look(struct sim_sock *bs)
{
	if (io_list_empty(&bs->ready))
		io_list_add_tail(&bs->sl->ready, &bs->ready);
}

static void
on_change(struct kwatch *w)
{
	sim_look(io_container_of(w, struct sim_sock, watch));
}

/* ---- the turn ---- */

static void
look_at_all(struct sim_loop *sl)
{
	struct io_link todo;

	io_list_init(&todo);
	io_list_splice_tail(&todo, &sl->ready);
	while (!io_list_empty(&todo)) {
		struct sim_sock *bs = io_container_of(todo.next, struct sim_sock, ready);

		io_list_del(&bs->ready);
		sim_attempt(sl, bs, bs->op[0]);
		if (bs->op[1] != bs->op[0])
			sim_attempt(sl, bs, bs->op[1]);
	}
}

static uint64_t
first_due(const struct sim_loop *sl)
{
	return io_list_empty(&sl->done) ? UINT64_MAX :
	    io_container_of(sl->done.next, struct io_op, link)->be[BE_DUE];
}

/* One step nearer to `until`; false: nothing will ever happen. */
static bool
pass_time(uint64_t until)
{
	enum { SLICE_NS = 500000 };	/* io_wake can come from a signal handler, where nothing can be signalled */

	if (sim.threads) {
		uint64_t soon = sim_now() + SLICE_NS;

		sim_wait(soon < until ? soon : until);
		return true;
	}
	if (sim_next() <= until && sim_next() != UINT64_MAX) {
		sim_run_next();
		return true;
	}
	if (until == UINT64_MAX)
		return false;
	if (until > sim.now_ns)
		sim.now_ns = until;
	return true;
}

static int
sim_be_wait(struct io_loop *l, uint64_t timeout_ns)
{
	struct sim_loop *sl = sl_of(l);
	uint64_t now = sim_now(), end, due;

	end = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
	sim_lock();
	sim_run_due();
	look_at_all(sl);
	while (!atomic_load(&sl->woken) && (due = first_due(sl)) > sim_now() && sim_now() < end) {
		if (!pass_time(due < end ? due : end))
			sim_fail("stuck: sessions are left, and nothing will ever happen");
		look_at_all(sl);
	}
	if (atomic_exchange(&sl->woken, false)) {
		(void)atomic_exchange_explicit(&l->wake_pending, false, memory_order_acq_rel);
		l->stats.wakes++;
	}
	sim_unlock();
	if (!sim.threads) {
		sim.now_ns += 1 + sim_below(TURN_NS);
		if (sim_chance(sim.faults.oversleep_permille))
			sim.now_ns += sim_below(5 * SIM_MS);
	}
	return 0;
}

static void
give_up_accepted(struct sim_sock *bs)
{
	while (!io_list_empty(&bs->accepted)) {
		struct sim_taken *t = io_container_of(bs->accepted.next, struct sim_taken, link);

		io_list_del(&t->link);
		k_fd_close(t->fd);
		sim_free(t);
	}
}

/* The next accepted connection; false: none (or nobody wants to know any more, C15). */
static bool
emit_accepted(struct sim_loop *sl, struct sim_sock *bs, struct io_op *op)
{
	struct sim_taken *t;

	if (op->sock->state == SOCK_CLOSING) {
		sim_lock();
		give_up_accepted(bs);
		sim_unlock();
	}
	if (io_list_empty(&bs->accepted))
		return false;
	t = io_container_of(bs->accepted.next, struct sim_taken, link);
	io_list_del(&t->link);
	op->res = 0;
	op->syserr = 0;
	op->u.accept.fd = t->fd;
	op->u.accept.peer = (const struct sockaddr *)&t->peer;
	op->u.accept.peerlen = t->len;
	sim_note(SIM_T_EMIT, t->fd, 0, 0);
	io_op_emit(sl->loop, op);
	sim_free(t);
	op->u.accept.fd = IO_FD_NONE;
	op->u.accept.peer = NULL;
	return true;
}

static void
finish(struct sim_loop *sl, struct io_op *op)
{
	int32_t res, syserr;

	/* What arrived before the cancel did is delivered, now and then. */
	if (!(op->be[BE_FLAGS] & OPB_DONE) && op->kind == IO_RECV_POOL && sim_chance(500)) {
		sim_lock();
		if (sim_recv_pool(sl, sim_sock_of(op->sock), op))
			io_list_del(&op->link);
		sim_unlock();
	}
	res = (int32_t)(op->be[BE_RES] >> 32);
	syserr = (int32_t)(uint32_t)op->be[BE_RES];
	if (!(op->be[BE_FLAGS] & OPB_DONE)) {
		res = IO_ECANCELED;
		syserr = 0;
		if (op->kind == IO_SEND && op->be[BE_OFFSET] > 0)
			res = (int32_t)op->be[BE_OFFSET];
		else if (op->kind == IO_RECV_POOL)
			op->u.pool.n = 0;
		else if (op->kind == IO_RECV_BATCH)
			op->u.batch.n = 0;
		else if (op->kind == IO_RELAY)
			sim_relay_drop(op);
	}
	if ((op->flags & OPF_CANCEL) && (op->be[BE_FLAGS] & OPB_DONE) && res >= 0)
		seen(SEEN_CANCEL_TOO_LATE);
	sim_note(SIM_T_FINISH, op->kind, res, op->sock->fd);
	disown(op);
	io_op_finish(sl->loop, op, res, syserr);
}

static void
deliver(struct sim_loop *sl, struct io_op *op)
{
	struct sim_sock *bs = sim_sock_of(op->sock);
	bool ends = (op->be[BE_FLAGS] & (OPB_DONE | OPB_CANCELING)) != 0;

	op->be[BE_FLAGS] &= ~(uint64_t)OPB_LISTED;
	if (op->kind == IO_ACCEPT && emit_accepted(sl, bs, op)) {
		/* Its callback may have cancelled it, or closed the socket. */
		ends = (op->be[BE_FLAGS] & (OPB_DONE | OPB_CANCELING)) != 0;
		sim_lock();
		if (!(op->be[BE_FLAGS] & OPB_LISTED) && (ends || !io_list_empty(&bs->accepted)))
			sim_list_op(sl, op, sim_now());
		sim_look(bs);
		sim_unlock();
		return;
	}
	if (!ends && (op->kind == IO_RELAY || op->kind == IO_RECV_POOL)) {
		sim_lock();
		if (op->kind == IO_RELAY)
			sim_relay(sl, op);
		else if (sim_recv_pool(sl, bs, op)) {
			io_list_del(&op->link);
			ends = true;
		}
		sim_unlock();
	} else if (op->kind == IO_RECV_BATCH && !ends) {
		sim_lock();
		ends = sim_recv_batch(op);
		sim_unlock();
		if (ends)
			io_op_emit(sl->loop, op);
		sim_lock();
		if (!io_pool_waits(op))
			sim_look(bs);
		sim_unlock();
		return;
	}
	if (ends)
		finish(sl, op);
}

static void
sim_be_reap(struct io_loop *l)
{
	struct sim_loop *sl = sl_of(l);

	while (l->budget > 0 && first_due(sl) <= l->now_ns) {
		struct io_op *op = io_container_of(sl->done.next, struct io_op, link);

		io_list_del(&op->link);
		deliver(sl, op);
	}
	l->backlog = first_due(sl) <= l->now_ns;
}

/* ---- starting and stopping ---- */

static void
take_side(struct io_sock *s, int side, struct io_op *op)
{
	struct sim_sock *bs = sim_sock_of(s);

	assert(bs->op[side] == NULL);	/* else the kernel still works on the last one */
	bs->op[side] = op;
}

static void
sim_be_submit(struct io_loop *l, struct io_op *op)
{
	struct sim_loop *sl = sl_of(l);
	struct sim_sock *bs = sim_sock_of(op->sock);

	sim_lock();
	sim_note(SIM_T_SUBMIT, op->kind, op->sock->fd, 0);
	if (op->sock->rd == op)
		take_side(op->sock, 0, op);
	if (op->sock->wr == op)
		take_side(op->sock, 1, op);
	if (op->kind == IO_RELAY)
		take_side(op->u.relay.dst, 1, op);
	if ((op->kind == IO_SEND || op->kind == IO_CONNECT || op->kind == IO_POLL) && sim_chance(500)) {
		sl->at_submit = true;
		sim_attempt(sl, bs, op);
		sl->at_submit = false;
	} else
		sim_look(bs);
	sim_unlock();
}

static void
sim_be_cancel(struct io_loop *l, struct io_op *op)
{
	struct sim_loop *sl = sl_of(l);
	bool waits;

	sim_lock();
	sim_note(SIM_T_CANCEL, op->kind, op->sock->fd, (int64_t)op->be[BE_FLAGS]);
	waits = !(op->be[BE_FLAGS] & OPB_LISTED) && io_pool_waits(op);
	if (op->be[BE_FLAGS] & OPB_DONE) {
		;	/* too late: the result is on its way */
	} else if (op->kind == IO_ACCEPT || op->kind == IO_RECV_BATCH || (!waits && sim_chance(600))) {
		op->be[BE_FLAGS] |= OPB_CANCELING;
		sim_list_op(sl, op, sim_late());
	} else {
		int32_t res = IO_ECANCELED;

		if (op->kind == IO_RELAY)
			sim_relay_drop(op);
		else if (op->kind == IO_SEND && op->be[BE_OFFSET] > 0)
			res = (int32_t)op->be[BE_OFFSET];
		disown(op);
		io_op_defer(l, op, res, 0);
	}
	sim_unlock();
}

static void
sim_be_resume(struct io_loop *l, struct io_op *op)
{
	(void)l;
	sim_lock();
	sim_look(sim_sock_of(op->sock));
	sim_unlock();
}

static void
sim_be_adopt(struct io_loop *l, struct io_sock *s)
{
	struct sim_sock *bs = sim_alloc(sizeof *bs);

	sim_lock();
	bs->sl = sl_of(l);
	bs->sock = s;
	bs->file = k_fd(s->fd);
	assert(bs->file != NULL);	/* a socket of the simulation, not of the system */
	bs->file->nonblock = true;
	io_list_init(&bs->ready);
	io_list_init(&bs->accepted);
	s->be[0] = (uint64_t)(uintptr_t)bs;
	k_watch(bs->file, &bs->watch, on_change);
	if (sim_backend_adopted != NULL)
		sim_backend_adopted(bs->file);
	sim_unlock();
}

static void
sim_be_release(struct io_loop *l, struct io_sock *s)
{
	struct sim_sock *bs = sim_sock_of(s);

	(void)l;
	sim_lock();
	assert(bs->op[0] == NULL && bs->op[1] == NULL);	/* else the kernel still works on one */
	give_up_accepted(bs);
	io_list_del(&bs->ready);
	k_unwatch(&bs->watch);
	sim_free(bs);
	s->be[0] = 0;
	sim_unlock();
	io_close_fd(s->fd);
}

static void
sim_be_wake(struct io_loop *l)
{
	atomic_store(&sl_of(l)->woken, true);
}

static enum io_probe
sim_be_probe(struct io_choice *c, int level)
{
	(void)c;
	(void)level;
	return PROBE_OK;
}

static int
sim_be_init(struct io_loop *l, const struct io_config *cfg)
{
	struct sim_loop *sl = sim_alloc(sizeof *sl);

	(void)cfg;
	sl->loop = l;
	io_list_init(&sl->ready);
	io_list_init(&sl->done);
	l->bed = sl;
	return 0;
}

static void
sim_be_fini(struct io_loop *l)
{
	struct sim_loop *sl = sl_of(l);

	assert(io_list_empty(&sl->ready) && io_list_empty(&sl->done));
	sim_free(sl);
}

const struct io_backend io_backend_sim = {
	.name		= "sim",
	.probe		= sim_be_probe,
	.init		= sim_be_init,
	.fini		= sim_be_fini,
	.adopt		= sim_be_adopt,
	.submit		= sim_be_submit,
	.cancel		= sim_be_cancel,
	.resume		= sim_be_resume,
	.release	= sim_be_release,
	.wait		= sim_be_wait,
	.reap		= sim_be_reap,
	.wake		= sim_be_wake
};

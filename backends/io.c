/* SPDX-License-Identifier: ISC */
/* The life of an op, the turn, and the close protocol: the same on every backend. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef _WIN32
#include <errno.h>
#include <unistd.h>
#endif

#include "internal.h"
#ifndef _WIN32
#include "pipe.h"
#endif

/*
 * Callbacks a turn.  Large enough that the cost of a turn (one kernel entry)
 * vanishes, small enough that a due timer is at most about a millisecond late.
 */
enum { TURN_MAX_DEFAULT = 512 };

uint64_t
io_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void
io_close_fd(io_fd fd)
{
#ifdef _WIN32
	closesocket(fd);
#else
	close(fd);	/* never retried after EINTR: the fd is gone on Linux (close(2)) */
#endif
}

/* ---- loop ---- */

_Thread_local char io_thread;

int
io_loop_new(struct io_loop **out, const struct io_config *cfg)
{
	struct io_loop *l;
	int rc;

	assert(cfg->choice != NULL && cfg->choice->backend != NULL);
	if ((l = calloc(1, sizeof *l)) == NULL)
		return -ENOMEM;
	l->be = cfg->choice->backend;
	l->cfg = *cfg;
	l->turn_max = cfg->turn_max ? cfg->turn_max : TURN_MAX_DEFAULT;
	memcpy(l->why, cfg->choice->why, sizeof l->why);
	io_list_init(&l->ready);
	io_list_init(&l->closed);
	io_list_init(&l->pools);
	l->now_ns = io_clock();
	if ((rc = l->be->init(l, cfg)) < 0) {
		free(l);
		return rc;
	}
	*out = l;
	return 0;
}

void
io_loop_bind(struct io_loop *l)
{
	assert(l->owner == NULL || io_bound_here(l));
	l->owner = &io_thread;
}

void
io_loop_free(struct io_loop *l)
{
	assert(!l->in_turn && l->inflight == 0);
	assert(io_list_empty(&l->ready) && io_list_empty(&l->closed));
	assert(io_list_empty(&l->pools));
	l->be->fini(l);
#ifndef _WIN32
	io_pipes_free(l);
#endif
	free(l);
}

static void
run_final(struct io_loop *l, struct io_op *op)
{
	op->state = OP_IDLE;
	op->more = false;
	l->inflight--;
	io_callback_begin(l);
	op->cb(l, op);
	io_callback_end(l);
}

/* After an op's end: if its socket is closing and this was the last op, let go. */
static void
sock_maybe_release(struct io_loop *l, struct io_sock *s)
{
	if (s->state != SOCK_CLOSING || s->rd != NULL || s->wr != NULL)
		return;
	l->be->release(l, s);
	s->state = SOCK_RELEASED;
	io_list_add_tail(&l->closed, &s->link);
}

/* Frees the sides of the sockets that the op held. */
static void
detach(struct io_op *op)
{
	struct io_sock *s = op->sock;

	if (s->rd == op)
		s->rd = NULL;
	if (s->wr == op)
		s->wr = NULL;
	if (op->kind == IO_RELAY && op->u.relay.dst->wr == op)
		op->u.relay.dst->wr = NULL;
}

/* The final callback, then what waited for the op's end.  The op may be gone after the callback. */
static void
deliver(struct io_loop *l, struct io_op *op)
{
	struct io_sock *s = op->sock;
	struct io_sock *dst = op->kind == IO_RELAY ? op->u.relay.dst : NULL;
	/* A socket in CLOSING stays put until its close callback (C20), an open one need not. */
	bool s_closing = s->state == SOCK_CLOSING;
	bool d_closing = dst != NULL && dst->state == SOCK_CLOSING;

	detach(op);
	run_final(l, op);
	if (s_closing)
		sock_maybe_release(l, s);
	if (d_closing)
		sock_maybe_release(l, dst);
}

void
io_op_emit(struct io_loop *l, struct io_op *op)
{
	assert(op->state == OP_ARMED && l->in_turn);
#if IO_MUTANT == IO_MUTANT_DROPPED_ACCEPT
	static unsigned count;
	if (op->kind == IO_ACCEPT && ++count % 3 == 0) {
		io_close_fd(op->u.accept.fd);
		return;
	}
#elif IO_MUTANT == IO_MUTANT_STALE_PEER
	static struct sockaddr_storage before;
	if (op->kind == IO_RECV_BATCH) {
		struct sockaddr_storage now = op->u.batch.v[0].peer;
		if (before.ss_family == now.ss_family)
			op->u.batch.v[0].peer = before;
		before = now;
	}
#endif
	op->more = true;
	io_callback_begin(l);
	op->cb(l, op);
	io_callback_end(l);
}

static void
set_result(struct io_op *op, int32_t res, int32_t syserr)
{
#if IO_MUTANT == IO_MUTANT_LOST_LAST_BYTE
	if ((op->kind == IO_RECV || op->kind == IO_RECV_POOL) && res > 1) {
		res--;
		if (op->kind == IO_RECV_POOL)	/* what its users look at */
			op->u.pool.bufs[op->u.pool.n - 1].len--;
	}
#endif
	assert(res >= 0 || res >= IO_EOTHER);
	op->res = res;
	op->syserr = syserr;
}

void
io_op_finish(struct io_loop *l, struct io_op *op, int32_t res, int32_t syserr)
{
	assert(op->state == OP_ARMED && l->in_turn);
	io_list_del(&op->link);
	set_result(op, res, syserr);
	deliver(l, op);
#if IO_MUTANT == IO_MUTANT_DOUBLE_FINAL
	static unsigned count;
	if (++count % 7 == 0 && op->state == OP_IDLE) {
		l->inflight++;
		run_final(l, op);
	}
#endif
}

void
io_op_defer(struct io_loop *l, struct io_op *op, int32_t res, int32_t syserr)
{
	assert(op->state == OP_ARMED);
	io_list_del(&op->link);
	set_result(op, res, syserr);
#if IO_MUTANT == IO_MUTANT_INLINE_CALLBACK
	bool was = l->in_callback;
	l->in_callback = false;
	deliver(l, op);
	l->in_callback = was;
	return;
#endif
	op->state = OP_READY;
	io_list_add_tail(&l->ready, &op->link);
}

/* Ops that were ready, and sockets that were released, before this turn began. */
static void
run_ready(struct io_loop *l, struct io_link *ready, struct io_link *closed,
    unsigned floor)
{
	while (!io_list_empty(ready) && l->budget > floor) {
		struct io_op *op = io_container_of(ready->next, struct io_op, link);

		io_list_del(&op->link);
		assert(op->state == OP_READY);
		deliver(l, op);
	}
	while (!io_list_empty(closed) && l->budget > floor) {
		struct io_sock *s = io_container_of(closed->next, struct io_sock, link);

		io_list_del(&s->link);
		assert(s->state == SOCK_RELEASED);
		s->state = SOCK_NONE;
		l->inflight--;
		io_callback_begin(l);
		s->closed(l, s);
		io_callback_end(l);
	}
}

static uint64_t
turn_timeout(const struct io_loop *l, bool may_block)
{
	uint64_t at;

	if (!may_block || l->backlog || !io_list_empty(&l->ready) ||
	    !io_list_empty(&l->closed) || io_posts_pending(l) || io_pools_kicked(l))
		return 0;
	if ((at = io_timer_next(l)) == UINT64_MAX)
		return UINT64_MAX;
	/* now_ns is as old as the last turn: ask the clock, or timers drift late. */
	uint64_t now = io_clock();
	return at > now ? at - now : 0;
}

int
io_loop_turn(struct io_loop *l, bool may_block)
{
	struct io_link ready, closed;
	uint64_t before = l->stats.callbacks, spent;
	unsigned floor;
	int rc;

	assert(io_called_by_owner(l) && !l->in_turn);
	io_list_init(&ready);
	io_list_init(&closed);
	if ((rc = l->be->wait(l, turn_timeout(l, may_block))) < 0)
		return rc;
	l->now_ns = io_clock();
	l->stats.turns++;
	l->backlog = false;
	l->in_turn = true;
	l->budget = l->turn_max;
	/* Kernel completions keep a quarter of the turn (every other turn if it is a single callback). */
	floor = l->turn_max > 1 ? (l->turn_max + 3) / 4 : (unsigned)(l->stats.turns & 1);
	io_list_splice_tail(&ready, &l->ready);
	io_list_splice_tail(&closed, &l->closed);

	io_run_posts(l);
	io_ready_timers(l);
	io_pools_kick(l);
	run_ready(l, &ready, &closed, floor);
	/* What did not fit stays ahead of what became ready meanwhile. */
	io_list_splice_tail(&ready, &l->ready);
	io_list_splice_tail(&l->ready, &ready);
	io_list_splice_tail(&closed, &l->closed);
	io_list_splice_tail(&l->closed, &closed);
	l->be->reap(l);

	l->in_turn = false;
	if ((spent = io_clock() - l->now_ns) > l->stats.turn_ns_max)
		l->stats.turn_ns_max = spent;
	return (int)(l->stats.callbacks - before);
}

uint64_t
io_now(const struct io_loop *l)
{
	return l->now_ns;
}

uint32_t
io_inflight(const struct io_loop *l)
{
	return l->inflight;
}

const char *
io_backend_name(const struct io_loop *l)
{
	return l->be->name;
}

const char *
io_backend_why(const struct io_loop *l)
{
	return l->why;
}

struct io_stats
io_loop_stats(const struct io_loop *l)
{
	return l->stats;
}

/* ---- sockets ---- */

void
io_adopt(struct io_loop *l, struct io_sock *s, io_fd fd)
{
	assert(io_called_by_owner(l) && fd != IO_FD_NONE);
	memset(s, 0, sizeof *s);
	s->loop = l;
	s->fd = fd;
	s->state = SOCK_OPEN;
	io_list_init(&s->link);
	l->be->adopt(l, s);
}

bool
io_sock_open(const struct io_sock *s)
{
	return s->state == SOCK_OPEN;
}

void
io_close(struct io_sock *s, io_sock_cb *cb)
{
	struct io_loop *l = s->loop;
	struct io_op *rd, *wr;

	assert(io_called_by_owner(l));
	assert(s->state == SOCK_OPEN);		/* C21: closing twice */
	s->state = SOCK_CLOSING;
	s->closed = cb;
	l->inflight++;
	rd = s->rd;
	wr = s->wr;
#if IO_MUTANT == IO_MUTANT_EARLY_FREE
	if (rd != NULL || wr != NULL) {
		s->state = SOCK_RELEASED;
		io_list_add_tail(&l->closed, &s->link);
		return;
	}
#endif
	if (rd != NULL)
		io_cancel(rd);
	if (wr != NULL && wr != rd)
		io_cancel(wr);
	sock_maybe_release(l, s);
}

void
io_close_reset(struct io_sock *s, io_sock_cb *cb)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	/* Harmless where it fails (Unix sockets): the close is then an ordinary one. */
	(void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, (const void *)&now, sizeof now);
	io_close(s, cb);
}

int
io_shutdown(struct io_sock *s)
{
	assert(io_called_by_owner(s->loop));
	assert(s->state == SOCK_OPEN && s->wr == NULL);		/* C22 */
#ifdef _WIN32
	return shutdown(s->fd, SD_SEND) == 0 ? 0 : io_err_of(WSAGetLastError());
#else
	/* shutdown(2), not the ring's: that always runs on a kernel worker, 7 to 130 us. */
	return shutdown(s->fd, SHUT_WR) == 0 ? 0 : io_err_of(errno);
#endif
}

/* ---- operations ---- */

enum { SIDE_RD = 1, SIDE_WR = 2 };

static void
op_begin(struct io_op *op, struct io_sock *s, enum io_kind kind, unsigned sides,
    io_cb *cb)
{
	assert(io_called_by_owner(s->loop));
	assert(op->state == OP_IDLE && s->state == SOCK_OPEN && cb != NULL);
	op->cb = cb;
	op->sock = s;
	op->kind = (uint8_t)kind;
	op->state = OP_ARMED;
	op->flags = 0;
	op->krefs = 0;
	op->more = false;
	op->res = 0;
	op->syserr = 0;
	io_list_init(&op->link);
	memset(op->be, 0, sizeof op->be);
	if (sides & SIDE_RD) {
		assert(s->rd == NULL);		/* C9 */
		s->rd = op;
	}
	if (sides & SIDE_WR) {
		assert(s->wr == NULL);
		s->wr = op;
	}
	s->loop->inflight++;
}

static void
op_submit(struct io_op *op)
{
	op->sock->loop->be->submit(op->sock->loop, op);
}

void
io_accept(struct io_op *op, struct io_sock *s, io_cb *cb)
{
	op_begin(op, s, IO_ACCEPT, SIDE_RD, cb);
	op->u.accept.fd = IO_FD_NONE;
	op->u.accept.peer = NULL;
	op_submit(op);
}

void
io_connect(struct io_op *op, struct io_sock *s, const struct sockaddr *to,
    socklen_t tolen, io_cb *cb)
{
	op_begin(op, s, IO_CONNECT, SIDE_WR, cb);
	op->u.connect.to = to;
	op->u.connect.tolen = tolen;
	op_submit(op);
}

void
io_recv(struct io_op *op, struct io_sock *s, void *base, size_t len, io_cb *cb)
{
	assert(len > 0);
	op_begin(op, s, IO_RECV, SIDE_RD, cb);
	op->u.recv.base = base;
	op->u.recv.len = len;
	op_submit(op);
}

void
io_recv_pool(struct io_op *op, struct io_sock *s, struct io_pool *pool,
    unsigned flags, io_cb *cb)
{
	op_begin(op, s, IO_RECV_POOL, SIDE_RD, cb);
	op->flags |= flags & IO_USE_RESERVE;
	op->u.pool.pool = pool;
	op->u.pool.n = 0;
	op_submit(op);
}

void
io_send(struct io_op *op, struct io_sock *s, const void *base, size_t len, io_cb *cb)
{
	assert(len > 0);
	op_begin(op, s, IO_SEND, SIDE_WR, cb);
	op->u.send.base = base;
	op->u.send.len = len;
	op_submit(op);
}

void
io_recv_batch(struct io_op *op, struct io_sock *s, struct io_pool *pool,
    struct io_dgram *v, unsigned max, io_cb *cb)
{
	assert(max > 0 && max <= IO_BATCH_MAX);
	op_begin(op, s, IO_RECV_BATCH, SIDE_RD, cb);
	op->u.batch.pool = pool;
	op->u.batch.v = v;
	op->u.batch.max = max;
	op->u.batch.n = 0;
	op_submit(op);
}

void
io_send_batch(struct io_op *op, struct io_sock *s, struct io_dgram *v, unsigned n,
    io_cb *cb)
{
	assert(n > 0 && n <= IO_BATCH_MAX);
#if IO_MUTANT == IO_MUTANT_LOST_PIECE
	for (unsigned i = 0; i < n; i++)
		v[i].nvec -= v[i].nvec > 1;
#endif
	op_begin(op, s, IO_SEND_BATCH, SIDE_WR, cb);
	op->u.batch.pool = NULL;
	op->u.batch.v = v;
	op->u.batch.max = n;
	op->u.batch.n = 0;
	op_submit(op);
}

void
io_relay(struct io_op *op, struct io_sock *src, struct io_sock *dst,
    struct io_pool *pool, uint64_t max, uint64_t *tally, io_cb *cb)
{
	assert(src != dst && src->loop == dst->loop && max > 0);
	assert(dst->state == SOCK_OPEN && dst->wr == NULL);
	op_begin(op, src, IO_RELAY, SIDE_RD, cb);
	dst->wr = op;
	memset(&op->u.relay, 0, sizeof op->u.relay);
	op->u.relay.dst = dst;
	op->u.relay.pool = pool;
	op->u.relay.max = max;
	op->u.relay.tally = tally;
	op->u.relay.last_ns = src->loop->now_ns;
	op_submit(op);
}

void
io_poll(struct io_op *op, struct io_sock *s, unsigned want, io_cb *cb)
{
	assert((want & (IO_POLL_IN | IO_POLL_OUT)) != 0);
	op_begin(op, s, IO_POLL, (want & IO_POLL_IN ? SIDE_RD : 0) |
	    (want & IO_POLL_OUT ? SIDE_WR : 0), cb);
	op->u.poll.want = want;
	op->u.poll.got = 0;
	op_submit(op);
}

void
io_cancel(struct io_op *op)
{
	struct io_loop *l;

	if (op->state != OP_ARMED || (op->flags & OPF_CANCEL) != 0)
		return;
	l = op->sock->loop;
	assert(io_called_by_owner(l));
	op->flags |= OPF_CANCEL;
#if IO_MUTANT == IO_MUTANT_CANCEL_BEFORE_TARGET
	io_op_defer(l, op, IO_ECANCELED, 0);
	return;
#endif
	l->be->cancel(l, op);
}

bool
io_armed(const struct io_op *op)
{
	return op->state != OP_IDLE;
}

uint32_t
io_relay_held(const struct io_op *op)
{
	assert(op->kind == IO_RELAY);
	return op->u.relay.held;
}

/* SPDX-License-Identifier: ISC */
#include <stdio.h>

#include "suite.h"

/* What the case waits for comes in milliseconds; this is for a machine that is very busy. */
#define WATCH_NS	(6 * 1000000000ull * (n_is_wine() ? 4 : 1)) /* each call asks its server */

/* ---- loops ---- */

static _Thread_local struct {
	struct io_loop	*in_turn;
	unsigned	 in_callback;
	uint64_t	 number;
} turn;

struct io_config
t_config(void)
{
	return (struct io_config){ .choice = &t_opts.choice, .no_ring = t_opts.no_ring,
	    .no_splice = t_opts.no_splice };
}

struct io_loop *
t_loop_of(const struct io_config *cfg)
{
	struct io_loop *l;
	int rc = io_loop_new(&l, cfg);

	if (rc != 0)
		FAIL("io_loop_new: %d", rc);
	return l;
}

struct io_loop *
t_loop_turn_max(unsigned turn_max)
{
	struct io_config cfg = t_config();

	cfg.turn_max = turn_max;
	return t_loop_of(&cfg);
}

struct io_loop *
t_loop(void)
{
	return t_loop_turn_max(0);
}

void
t_loops_forget(void)
{
	memset(&turn, 0, sizeof turn);
}

int
t_turn(struct io_loop *l, bool may_block)
{
	int rc;

	turn.in_turn = l;
	turn.number++;
	rc = io_loop_turn(l, may_block);
	turn.in_turn = NULL;
	if (rc < 0)
		FAIL("io_loop_turn: %d", rc);
	return rc;
}

uint64_t
t_turn_number(void)
{
	return turn.number;
}

void
t_enter(struct io_loop *l)
{
	if (turn.in_turn == NULL)
		FAIL("a callback outside io_loop_turn (C2, C3)");
	if (turn.in_turn != l)
		FAIL("a callback of one loop in another's turn (C1)");
	if (turn.in_callback++ != 0)
		FAIL("a callback inside another (C3)");
}

void
t_leave(struct io_loop *l)
{
	(void)l;
	turn.in_callback--;
}

static void
watch_fired(struct io_loop *l, struct io_timer *t)
{
	struct t_watch *w = io_container_of(t, struct t_watch, timer);

	(void)l;
	t_fail(w->file, w->line, "waited in vain for: %s", w->what);
}

void
t_watch_begin(struct io_loop *l, struct t_watch *w, const char *file, int line,
    const char *what)
{
	memset(w, 0, sizeof *w);
	w->file = file;
	w->line = line;
	w->what = what;
	t_at(file, line);
	io_timer_set(l, &w->timer, n_now_ns() + WATCH_NS, watch_fired);
}

void
t_watch_end(struct io_loop *l, struct t_watch *w)
{
	io_timer_stop(l, &w->timer);
}

struct pause {
	struct io_timer	timer;
	bool		over;
};

static void
pause_over(struct io_loop *l, struct io_timer *t)
{
	(void)l;
	io_container_of(t, struct pause, timer)->over = true;
}

void
t_turn_for_ms(struct io_loop *l, unsigned ms)
{
	struct pause p = { 0 };

	io_timer_set(l, &p.timer, n_now_ns() + ms * 1000000ull, pause_over);
	while (!p.over)
		t_turn(l, true);
}

void
t_drain(struct io_loop *l)
{
	TURN_UNTIL(l, io_inflight(l) == 0);
}

void
t_loop_end(struct io_loop *l)
{
	t_drain(l);
	io_loop_free(l);
}

/* ---- sockets ---- */

void
t_adopt(struct io_loop *l, struct t_sock *s, io_fd fd)
{
	memset(s, 0, sizeof *s);
	io_adopt(l, &s->s, fd);
}

static void
sock_closed(struct io_loop *l, struct io_sock *is)
{
	struct t_sock *s = io_container_of(is, struct t_sock, s);

	t_enter(l);
	s->closed++;
	s->closed_turn = turn.number;
	if (s->then != NULL)
		s->then(s);
	t_leave(l);
}

void
t_close(struct t_sock *s)
{
	io_close(&s->s, sock_closed);
}

void
t_close_reset(struct t_sock *s)
{
	io_close_reset(&s->s, sock_closed);
}

void
t_close_wait(struct t_sock *s)
{
	struct io_loop *l = s->s.loop;

	t_close(s);
	TURN_UNTIL(l, s->closed != 0);
}

/* ---- ops ---- */

static void
op_called(struct io_loop *l, struct io_op *iop)
{
	struct t_op *o = io_container_of(iop, struct t_op, op);

	t_enter(l);
	if (!o->armed)
		FAIL("a callback for an op that is idle: kind %d, res %d (C8)",
		    iop->kind, iop->res);
	if (turn.number <= o->started_turn)
		FAIL("an op completes in the turn that started it (C3)");
	if (iop->res < IO_EOTHER)
		FAIL("res %d is outside the closed set (C10)", iop->res);
	if (iop->more != io_armed(iop))
		FAIL("more is %d, io_armed %d (C8)", iop->more, io_armed(iop));
	if (iop->more && iop->kind != IO_ACCEPT && iop->kind != IO_RECV_BATCH)
		FAIL("a one-shot op of kind %d says more (C8)", iop->kind);
	o->calls++;
	o->res = iop->res;
	o->syserr = iop->syserr;
	o->turn = turn.number;
	if (iop->res > 0)
		o->total += iop->res;
	if (!iop->more) {
		o->finals++;
		o->armed = false;
	}
	if (iop->kind == IO_ACCEPT && iop->res < 0)
		iop->u.accept.fd = IO_FD_NONE;
	bool accepted = iop->kind == IO_ACCEPT && iop->more;
	if (o->then != NULL)
		o->then(o);		/* may free o, unless it is an accept's */
	if (accepted && iop->u.accept.fd != IO_FD_NONE) {
		o->fds = realloc(o->fds, (o->nfds + 1) * sizeof *o->fds);
		o->fds[o->nfds++] = iop->u.accept.fd;
		iop->u.accept.fd = IO_FD_NONE;
	}
	t_leave(l);
}

static void
arm(struct t_op *o)
{
	if (o->armed)
		FAIL("the case starts an op twice");
	o->armed = true;
	o->started_turn = turn.number;
}

void
t_accept(struct t_op *o, struct t_sock *s)
{
	arm(o);
	io_accept(&o->op, &s->s, op_called);
}

void
t_connect(struct t_op *o, struct t_sock *s, const struct sockaddr *to, socklen_t len)
{
	arm(o);
	io_connect(&o->op, &s->s, to, len, op_called);
}

void
t_recv(struct t_op *o, struct t_sock *s, void *buf, size_t len)
{
	arm(o);
	io_recv(&o->op, &s->s, buf, len, op_called);
}

void
t_recv_pool(struct t_op *o, struct t_sock *s, struct io_pool *p, unsigned flags)
{
	arm(o);
	io_recv_pool(&o->op, &s->s, p, flags, op_called);
}

void
t_send(struct t_op *o, struct t_sock *s, const void *buf, size_t len)
{
	arm(o);
	io_send(&o->op, &s->s, buf, len, op_called);
}

void
t_recv_batch(struct t_op *o, struct t_sock *s, struct io_pool *p, struct io_dgram *v,
    unsigned max)
{
	arm(o);
	io_recv_batch(&o->op, &s->s, p, v, max, op_called);
}

void
t_send_batch(struct t_op *o, struct t_sock *s, struct io_dgram *v, unsigned n)
{
	arm(o);
	io_send_batch(&o->op, &s->s, v, n, op_called);
}

void
t_relay(struct t_op *o, struct t_sock *src, struct t_sock *dst, struct io_pool *p,
    uint64_t max, uint64_t *tally)
{
	arm(o);
	io_relay(&o->op, &src->s, &dst->s, p, max, tally, op_called);
}

void
t_poll(struct t_op *o, struct t_sock *s, unsigned want)
{
	arm(o);
	io_poll(&o->op, &s->s, want, op_called);
}

void
t_fds_close(struct t_op *o)
{
	while (o->nfds > 0)
		n_close(o->fds[--o->nfds]);
	free(o->fds);
	o->fds = NULL;
}

size_t
t_pool_take(struct t_op *o, void *to)
{
	struct io_op *op = &o->op;
	char *p = to;
	size_t n = 0;

	if (op->u.pool.n > IO_RECV_BUFS_MAX)
		FAIL("%u buffers in one completion (C26)", op->u.pool.n);
	for (unsigned i = 0; i < op->u.pool.n; i++) {
		struct io_buf *b = &op->u.pool.bufs[i];

		if (b->len == 0 || b->len > b->cap)
			FAIL("buffer %u of %u: len %u, cap %u", i, op->u.pool.n, b->len, b->cap);
		if (p != NULL)
			memcpy(p + n, b->base, b->len);
		n += b->len;
		io_buf_put(op->u.pool.pool, b);
	}
	if (n != (op->res > 0 ? (size_t)op->res : 0))
		FAIL("res %d, but %zu bytes in %u buffers (C26)", op->res, n, op->u.pool.n);
	if (n > IO_RECV_BYTES_MAX)
		FAIL("%zu bytes in one completion (C9)", n);
	return n;
}

struct io_pool *
t_pool(struct io_loop *l, uint32_t block_bytes, uint32_t ceiling, uint32_t reserve)
{
	struct io_pool *p;
	int rc = io_pool_new(&p, l, block_bytes, ceiling, reserve);

	if (rc != 0)
		FAIL("io_pool_new: %d", rc);
	return p;
}

/* ---- data ---- */

/* splitmix64: all seeds are good ones. */
uint64_t
t_rand(struct t_rand *r)
{
	uint64_t z = r->s += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

unsigned
t_rand_below(struct t_rand *r, unsigned n)
{
	return (unsigned)(t_rand(r) % n);
}

/* A prime: no shift by whole blocks or pages maps the stream onto itself. */
enum { PATTERN_BYTES = 262139 };
static uint8_t pattern[PATTERN_BYTES];

__attribute__((constructor)) static void
pattern_init(void)
{
	struct t_rand r = { 1 };

	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (uint8_t)t_rand(&r);
}

void
t_pattern(uint64_t seed, uint64_t off, void *buf, size_t len)
{
	uint8_t *p = buf;

	for (size_t n; len > 0; p += n, off += n, len -= n) {
		size_t at = (size_t)((seed * 7919 + off) % PATTERN_BYTES);

		n = len < PATTERN_BYTES - at ? len : PATTERN_BYTES - at;
		memcpy(p, pattern + at, n);
	}
}

bool
t_pattern_ok(uint64_t seed, uint64_t off, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	for (size_t n; len > 0; p += n, off += n, len -= n) {
		size_t at = (size_t)((seed * 7919 + off) % PATTERN_BYTES);

		n = len < PATTERN_BYTES - at ? len : PATTERN_BYTES - at;
		if (memcmp(p, pattern + at, n) != 0)
			return false;
	}
	return true;
}

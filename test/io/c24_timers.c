/* SPDX-License-Identifier: ISC */
/*
 * C24: never early; equal deadlines in the order set; stop is synchronous.
 * C25: a timeout is a timer plus io_cancel.
 */
#include "suite.h"

struct tick {
	struct io_timer	 t;
	uint64_t	 at;
	unsigned	 fired, number;
	struct tick	*stop, *set;
};

static unsigned fired_order[16], fired_n;

static void
ticked(struct io_loop *l, struct io_timer *t)
{
	struct tick *k = io_container_of(t, struct tick, t);

	t_enter(l);
	k->fired++;
	if (io_now(l) < k->at || n_now_ns() < k->at)
		FAIL("a timer fires early");
	if (io_timer_armed(t))
		FAIL("a timer that fires is still armed");
	if (fired_n < 16)
		fired_order[fired_n++] = k->number;
	if (k->stop != NULL)
		io_timer_stop(l, &k->stop->t);
	if (k->set != NULL)
		io_timer_set(l, &k->set->t, k->set->at, ticked);
	t_leave(l);
}

static void
tick_set(struct io_loop *l, struct tick *k, uint64_t at)
{
	k->at = at;
	io_timer_set(l, &k->t, at, ticked);
}

CASE(timer_never_fires_early_and_wakes_a_blocking_turn, "C24")
{
	struct io_loop *l = t_loop();
	struct tick k = { 0 };
	struct t_rand r = { 24 };

	for (unsigned i = 1; i <= 60; i++) {
		/* From a microsecond to four milliseconds: rounding down would show. */
		tick_set(l, &k, n_now_ns() + 1000 + t_rand_below(&r, 4000000));
		CHECK(io_timer_armed(&k.t));
		while (k.fired < i)
			t_turn(l, true);
	}
	t_loop_end(l);
}

CASE(blocking_turn_with_a_far_timer_does_not_spin, "C24 C3")
{
	struct io_loop *l = t_loop();
	struct tick k = { 0 };
	unsigned turns = 0;

	tick_set(l, &k, n_now_ns() + 200000000);
	while (k.fired == 0) {
		t_turn(l, true);
		turns++;
	}
	CHECK(turns < 20);
	t_loop_end(l);
}

/* Whatever wakes the loop for a timer that is far off must not be in the way of a nearer or later one. */
CASE(far_timers_that_come_nearer_or_go_fire_in_time, "C24")
{
	enum { MS = 1000000 };
	struct io_loop *l = t_loop();
	struct tick hour = { 0 }, soon = { 0 }, gone = { 0 };

	tick_set(l, &hour, n_now_ns() + UINT64_C(3600000) * MS);
	for (unsigned i = 1; i <= 10; i++) {
		io_wake(l);		/* out of a wait for the far one */
		t_turn(l, true);
		/* Sooner than all before it, so that it is the next; then later again. */
		tick_set(l, &gone, n_now_ns() + 15 * MS);
		tick_set(l, &soon, n_now_ns() + UINT64_C(30) * MS);
		if (i % 2 == 0)
			t_turn(l, false);
		while (gone.fired < i && i % 3 == 0)
			t_turn(l, true);
		io_timer_stop(l, &gone.t);
		gone.fired = i;
		while (soon.fired < i)
			t_turn(l, true);
		CHECK(hour.fired == 0);
	}
	io_timer_stop(l, &hour.t);
	t_loop_end(l);
}

CASE(equal_deadlines_fire_in_the_order_set, "C24")
{
	struct io_loop *l = t_loop();
	struct tick k[10] = { 0 };
	static const unsigned order[10] = { 3, 9, 0, 5, 1, 8, 2, 7, 4, 6 };
	uint64_t at = n_now_ns() + 2000000;

	fired_n = 0;
	for (unsigned i = 0; i < 10; i++)
		k[i].number = i;
	/* Set once in another order, then all again: the last call counts. */
	for (unsigned i = 0; i < 10; i++)
		tick_set(l, &k[i], at);
	for (unsigned i = 0; i < 10; i++)
		tick_set(l, &k[order[i]], at);
	TURN_UNTIL(l, fired_n == 10);
	for (unsigned i = 0; i < 10; i++)
		CHECK_EQ(fired_order[i], order[i]);
	t_loop_end(l);
}

CASE(stop_of_a_due_timer_from_another_s_callback_is_synchronous, "C24")
{
	struct io_loop *l = t_loop();
	struct tick a = { 0 }, b = { 0 }, c = { 0 };
	uint64_t past = n_now_ns() - 1000000;

	a.stop = &b;
	tick_set(l, &a, past);
	tick_set(l, &b, past);
	tick_set(l, &c, past);
	TURN_UNTIL(l, c.fired == 1);
	CHECK_EQ(a.fired, 1);
	CHECK_EQ(b.fired, 0);
	CHECK(!io_timer_armed(&b.t));
	io_timer_stop(l, &b.t);		/* idle: nothing happens */
	t_turn_for_ms(l, 2);
	CHECK_EQ(b.fired, 0);
	t_loop_end(l);
}

CASE(timer_set_in_a_timer_callback_fires_in_a_later_turn, "C24 C3")
{
	struct io_loop *l = t_loop();
	struct tick a = { 0 };

	a.set = &a;
	tick_set(l, &a, n_now_ns() - 1000000);
	for (unsigned i = 1; i <= 50; i++) {
		t_turn(l, true);
		CHECK_EQ(a.fired, i);
	}
	io_timer_stop(l, &a.t);
	t_turn_for_ms(l, 2);
	CHECK_EQ(a.fired, 50);
	t_loop_end(l);
}

CASE(due_timers_respect_turn_max, "C24 C3")
{
	struct io_loop *l = t_loop_turn_max(3);
	struct tick k[10] = { 0 };
	unsigned sum = 0;

	for (int i = 0; i < 10; i++)
		tick_set(l, &k[i], n_now_ns() - 1);
	while (sum < 10) {
		CHECK(t_turn(l, true) <= 3);
		sum = 0;
		for (int i = 0; i < 10; i++)
			sum += k[i].fired;
	}
	t_loop_end(l);
}

/* Random sets and stops against a table; every deadline is either fired in time or stopped. */
CASE(ten_thousand_random_sets_and_stops_agree_with_a_model, "C24")
{
	enum { TIMERS = 200, STEPS = 10000 };
	struct io_loop *l = t_loop();
	static struct tick k[TIMERS];
	static uint64_t due[TIMERS];	/* 0: not set */
	static unsigned fired[TIMERS];
	struct t_rand r = { 2400 };
	uint64_t hour_ns = 3600000000000u;

	for (int step = 0; step < STEPS; step++) {
		unsigned i = t_rand_below(&r, TIMERS);

		switch (t_rand_below(&r, 4)) {
		case 0:
			io_timer_stop(l, &k[i].t);
			due[i] = 0;
			break;
		case 1:
			due[i] = n_now_ns() + hour_ns + t_rand_below(&r, 1000);
			tick_set(l, &k[i], due[i]);
			break;
		default:
			due[i] = n_now_ns() + t_rand_below(&r, 300000);
			tick_set(l, &k[i], due[i]);
		}
		if (t_rand_below(&r, 8) != 0)
			continue;
		t_turn(l, false);
		for (unsigned j = 0; j < TIMERS; j++) {
			bool must = due[j] != 0 && due[j] <= io_now(l);

			if (k[j].fired != fired[j] + must)
				FAIL("seed 2400, step %d: timer %u fired %u times, not %u", step,
				    j, k[j].fired, fired[j] + must);
			fired[j] = k[j].fired;
			if (must)
				due[j] = 0;
			CHECK_EQ(io_timer_armed(&k[j].t), due[j] != 0);
		}
	}
	for (int i = 0; i < TIMERS; i++)
		io_timer_stop(l, &k[i].t);
	t_loop_end(l);
}

/* ---- C25 ---- */

struct timed {
	struct io_timer	 t;
	struct t_op	 r;
	bool		 timed_out;
};

static void
give_up(struct io_loop *l, struct io_timer *t)
{
	struct timed *x = io_container_of(t, struct timed, t);

	t_enter(l);
	x->timed_out = true;
	io_cancel(&x->r.op);
	t_leave(l);
}

static void
in_time(struct t_op *o)
{
	struct timed *x = io_container_of(o, struct timed, r);

	io_timer_stop(o->op.sock->loop, &x->t);
}

CASE(timer_and_cancel_make_a_timeout, "C25 C17")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct timed x;
	char c;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (int i = 0; i < 20; i++) {
		memset(&x, 0, sizeof x);
		x.r.then = in_time;
		t_recv(&x.r, &a, &c, 1);
		io_timer_set(l, &x.t, n_now_ns() + (i % 2 ? 1000000 : 5000000000u), give_up);
		if (i % 2 == 0)
			n_send(fd[1], "x", 1);
		TURN_UNTIL(l, !x.r.armed);
		CHECK_EQ(x.r.res, i % 2 ? IO_ECANCELED : 1);
		CHECK_EQ(x.timed_out, i % 2);
		CHECK(!io_timer_armed(&x.t));
	}
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

/* SPDX-License-Identifier: ISC */
/* C4: in a turn posts come first, then due timers, then completions. */
#include "suite.h"

static char order[16];
static unsigned steps;

static void
note(struct io_loop *l, char c)
{
	t_enter(l);
	if (steps < sizeof order - 1)
		order[steps++] = c;
	t_leave(l);
}

static void post_ran(struct io_loop *l, struct io_post *p) { (void)p; note(l, 'p'); }
static void timer_fired(struct io_loop *l, struct io_timer *t) { (void)t; note(l, 't'); }

static void
received(struct t_op *o)
{
	(void)o;
	order[steps++] = 'c';
}

CASE(posts_then_timers_then_completions, "C4")
{
	struct io_loop *l = t_loop();

	for (int i = 0; i < 20; i++) {
		struct t_sock a;
		struct t_op r = { .then = received };
		struct io_timer t = { 0 };
		struct io_post p = { 0 };
		char buf[4];
		io_fd fd[2];

		steps = 0;
		memset(order, 0, sizeof order);
		n_pair(fd);
		t_adopt(l, &a, fd[0]);
		t_recv(&r, &a, buf, sizeof buf);
		t_turn(l, false);
		n_send(fd[1], "x", 1);
		n_sleep_ms(1);
		io_timer_set(l, &t, n_now_ns() - 1, timer_fired);
		io_post(l, &p, post_ran);
		TURN_UNTIL(l, steps == 3);
		if (strcmp(order, "ptc") != 0)
			FAIL("order %s instead of ptc", order);
		t_close_wait(&a);
		n_close(fd[1]);
	}
	t_loop_end(l);
}

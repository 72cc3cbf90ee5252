/* SPDX-License-Identifier: ISC */
/* C5: io_now is monotonic and constant within a turn; EINTR is hidden. */
#ifndef _WIN32
#include <signal.h>
#include <sys/time.h>
#endif

#include "suite.h"

static uint64_t seen[2];
static unsigned n_seen;

static void
slow_post(struct io_loop *l, struct io_post *p)
{
	(void)p;
	t_enter(l);
	seen[n_seen++] = io_now(l);
	n_sleep_ms(3);
	if (io_now(l) != seen[n_seen - 1])
		FAIL("io_now moved inside a callback");
	t_leave(l);
}

CASE(now_stands_still_within_a_turn_and_moves_between_turns, "C5")
{
	struct io_loop *l = t_loop();
	struct io_post p[2] = { 0 };
	uint64_t last = 0;

	io_post(l, &p[0], slow_post);
	io_post(l, &p[1], slow_post);
	TURN_UNTIL(l, n_seen == 2);
	CHECK_EQ(seen[0], seen[1]);
	t_turn(l, false);
	CHECK(io_now(l) > seen[1]);
	for (int i = 0; i < 100; i++) {
		t_turn(l, false);
		CHECK(io_now(l) >= last);
		last = io_now(l);
	}
	t_loop_end(l);
}

#ifndef _WIN32
static volatile sig_atomic_t alarms;
static void on_alarm(int sig) { (void)sig; alarms++; }

CASE(signals_do_not_disturb_blocking_turns_and_ops, "C5 C10")
{
	struct io_loop *l = t_loop();
	struct sigaction sa = { .sa_handler = on_alarm };	/* no SA_RESTART */
	struct itimerval every = { { 0, 700 }, { 0, 700 } }, off = { { 0, 0 }, { 0, 0 } };
	struct t_sock a, b;
	struct t_op r = { 0 }, s = { 0 };
	char in, out = 'x';
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_adopt(l, &b, fd[1]);
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 30; i++) {
		t_recv(&r, &a, &in, 1);
		t_turn_for_ms(l, 3);
		CHECK(r.armed);
		t_send(&s, &b, &out, 1);
		TURN_UNTIL(l, !r.armed && !s.armed);
		CHECK_EQ(r.res, 1);
		CHECK_EQ(s.res, 1);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	CHECK(alarms > 10);
	t_close(&a);
	t_close(&b);
	t_loop_end(l);
}
#else
CASE_NOT_HERE(signals_do_not_disturb_blocking_turns_and_ops, "C5 C10", "Windows has no signals")
#endif

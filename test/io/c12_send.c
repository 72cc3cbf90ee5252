/* SPDX-License-Identifier: ISC */
/* C12: send may be short, and tells how much went; never SIGPIPE (it is at its default here). */
#include "suite.h"

enum { BIG = 8 * 1024 * 1024 };
static char big[BIG];

/* Sends until the socket is full: the op of the last send stays armed. */
static int64_t
fill(struct io_loop *l, struct t_sock *s, struct t_op *o)
{
	t_pattern(2, 0, big, BIG);
	for (;;) {
		CHECK(o->total < BIG);
		t_send(o, s, big + o->total, BIG - (size_t)o->total);
		t_turn_for_ms(l, 20);
		if (o->armed)
			return o->total;
		CHECK(o->res > 0);
	}
}

CASE(blocked_send_that_is_cancelled_tells_what_went, "C12 C17")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	static char in[65536];
	uint64_t got = 0;
	long n;
	io_fd fd[2];

	n_pair_buffers(fd, 16384, 16384);
	t_adopt(l, &a, fd[0]);
	fill(l, &a, &s);
	io_cancel(&s.op);
	TURN_UNTIL(l, !s.armed);
	CHECK(s.res > 0 || s.res == IO_ECANCELED);
	/* What the results add up to is what the peer gets. */
	CHECK_EQ(io_shutdown(&a.s), 0);
	while ((n = n_recv(fd[1], in, sizeof in, NULL)) > 0) {
		CHECK(t_pattern_ok(2, got, in, (size_t)n));
		got += (uint64_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, s.total);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(blocked_send_goes_on_when_the_peer_reads, "C12")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	static char in[65536];
	uint64_t got = 0;
	long n;
	io_fd fd[2];

	n_pair_buffers(fd, 16384, 16384);
	t_adopt(l, &a, fd[0]);
	fill(l, &a, &s);
	while (s.armed) {
		if ((n = n_try_recv(fd[1], in, sizeof in)) > 0) {
			CHECK(t_pattern_ok(2, got, in, (size_t)n));
			got += (uint64_t)n;
		}
		t_turn(l, false);
	}
	CHECK(s.res > 0);
	CHECK_EQ(io_shutdown(&a.s), 0);
	while ((n = n_recv(fd[1], in, sizeof in, NULL)) > 0) {
		CHECK(t_pattern_ok(2, got, in, (size_t)n));
		got += (uint64_t)n;
	}
	CHECK_EQ(got, s.total);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(blocked_send_ends_when_the_peer_resets, "C10 C12")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	io_fd fd[2];

	n_pair_buffers(fd, 16384, 16384);
	t_adopt(l, &a, fd[0]);
	fill(l, &a, &s);
	n_reset(fd[1]);
	TURN_UNTIL(l, !s.armed);
	/* What had gone out of this send, or the reset; then nothing but the reset. */
	CHECK(s.res > 0 || s.res == IO_ERESET);
	t_send(&s, &a, big, 100);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(s.res, IO_ERESET);
	t_close(&a);
	t_loop_end(l);
}

CASE(send_to_a_peer_that_is_gone_is_reset_without_sigpipe, "C10 C12")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	n_close(fd[1]);
	for (int i = 0; i < 50 && (i == 0 || s.res >= 0); i++) {
		t_send(&s, &a, "x", 1);
		TURN_UNTIL(l, !s.armed);
		n_sleep_ms(1);
	}
	CHECK_EQ(s.res, IO_ERESET);
	/* Again: EPIPE now, which is the same thing to the caller. */
	t_send(&s, &a, "x", 1);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(s.res, IO_ERESET);
	CHECK(s.syserr != 0);
	t_close(&a);
	t_loop_end(l);
}

CASE(send_after_own_shutdown_is_reset_without_sigpipe, "C10 C12")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	CHECK_EQ(io_shutdown(&a.s), 0);
	t_send(&s, &a, "x", 1);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(s.res, IO_ERESET);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

/* SPDX-License-Identifier: ISC */
/*
 * C3: callbacks run only from io_loop_turn and are never nested (suite.c looks
 * at each one); at most turn_max a turn; no blocking while anything is ready;
 * nobody starves.
 */
#include "suite.h"

enum { PAIRS = 12 };

struct talker {
	struct t_sock	 a, b;
	struct t_op	 recv, send;
	unsigned	 rounds, left;
	char		 in, out;
	bool		 quit;
};

static void
again_recv(struct t_op *o)
{
	struct talker *t = o->arg;

	CHECK_EQ(o->res, 1);
	t->rounds++;
	if (t->left > 0 && --t->left > 0)
		t_recv(o, &t->a, &t->in, 1);
}

static void
talker_start(struct io_loop *l, struct talker *t, unsigned rounds)
{
	io_fd fd[2];
	char bytes[1000] = { 0 };

	memset(t, 0, sizeof *t);
	n_pair(fd);
	t_adopt(l, &t->a, fd[0]);
	t_adopt(l, &t->b, fd[1]);
	n_send(fd[1], bytes, rounds);
	t->left = rounds;
	t->recv.arg = t;
	t->recv.then = again_recv;
	t_recv(&t->recv, &t->a, &t->in, 1);
}

static void
turn_max_holds(unsigned turn_max)
{
	struct io_loop *l = t_loop_turn_max(turn_max);
	struct talker t[PAIRS];
	unsigned left = 1;
	uint64_t t0 = n_now_ns();

	for (int i = 0; i < PAIRS; i++)
		talker_start(l, &t[i], 100);
	while (left > 0) {
		int n = t_turn(l, true);

		CHECK(n >= 0 && (unsigned)n <= turn_max);
		left = 0;
		for (int i = 0; i < PAIRS; i++)
			left += t[i].left;
		if (n_now_ns() - t0 > 6000000000u)
			FAIL("%u of %u receives are still to come", left, PAIRS * 100);
	}
	for (int i = 0; i < PAIRS; i++) {
		CHECK_EQ(t[i].rounds, 100);
		t_close(&t[i].a);
		t_close(&t[i].b);
	}
	while (io_inflight(l) > 0)
		CHECK((unsigned)t_turn(l, true) <= turn_max);
	t_loop_end(l);
}

CASE(turn_of_one_callback_serves_everybody, "C3") { turn_max_holds(1); }
CASE(turn_of_two_callbacks_serves_everybody, "C3") { turn_max_holds(2); }
CASE(turn_of_four_callbacks_serves_everybody, "C3") { turn_max_holds(4); }

/* Sends and receives for ever, its result always at hand. */
static void
again_for_ever(struct t_op *o)
{
	struct talker *t = o->arg;

	t->rounds++;
	if (!t->quit)
		t_recv(o, &t->a, &t->in, 1);
}

static void
busy_does_not_starve_quiet(unsigned turn_max)
{
	struct io_loop *l = t_loop_turn_max(turn_max);
	struct talker busy, quiet;
	static char bytes[100000];
	uint64_t t0;

	talker_start(l, &busy, 1);
	talker_start(l, &quiet, 0);
	busy.recv.then = again_for_ever;
	quiet.recv.then = again_for_ever;
	for (unsigned i = 0; i < 20; i++) {
		/* As much as goes: it need not be read as fast as it comes. */
		(void)n_try_send(busy.b.s.fd, bytes, 3000);
		n_send(quiet.b.s.fd, bytes, 1);
		t0 = n_now_ns();
		while (quiet.rounds <= i) {
			CHECK((unsigned)t_turn(l, true) <= turn_max);
			if (n_now_ns() - t0 > 3000000000u)
				FAIL("one byte waits behind a busy socket, turn_max %u", turn_max);
		}
	}
	busy.quit = quiet.quit = true;
	t_close(&busy.a);
	t_close(&busy.b);
	t_close(&quiet.a);
	t_close(&quiet.b);
	t_loop_end(l);
}

CASE(busy_socket_does_not_starve_a_quiet_one, "C3")
{
	busy_does_not_starve_quiet(1);
	busy_does_not_starve_quiet(2);
	busy_does_not_starve_quiet(4);
	busy_does_not_starve_quiet(64);
}

/* Ops whose result is at hand at the start (deferred) against results from the kernel. */
static void
again_shut_send(struct t_op *o)
{
	struct talker *t = o->arg;

	t->rounds++;
	if (!t->quit)
		t_send(o, &t->a, &t->out, 1);
}

CASE(immediate_results_do_not_starve_the_kernel_s, "C3")
{
	for (unsigned turn_max = 1; turn_max <= 4; turn_max *= 2) {
		struct io_loop *l = t_loop_turn_max(turn_max);
		struct talker spin[4], quiet;
		struct t_op r = { 0 };
		char c;

		for (int i = 0; i < 4; i++) {
			talker_start(l, &spin[i], 1);
			TURN_UNTIL(l, spin[i].left == 0);
			CHECK_EQ(io_shutdown(&spin[i].a.s), 0);
			spin[i].send.arg = &spin[i];
			spin[i].send.then = again_shut_send;
			t_send(&spin[i].send, &spin[i].a, &spin[i].out, 1);
		}
		talker_start(l, &quiet, 1);
		TURN_UNTIL(l, quiet.left == 0);
		t_recv(&r, &quiet.a, &c, 1);
		n_send(quiet.b.s.fd, "q", 1);
		TURN_UNTIL(l, !r.armed);
		for (int i = 0; i < 4; i++) {
			CHECK(spin[i].rounds > 0);
			spin[i].quit = true;
			t_close(&spin[i].a);
			t_close(&spin[i].b);
		}
		t_close(&quiet.a);
		t_close(&quiet.b);
		t_loop_end(l);
	}
}

struct step {
	struct io_post	 post;
	uint64_t	 turn;
	bool		 ran;
	struct io_loop	*l;
	struct step	*next;
};

static void
step_ran(struct io_loop *l, struct io_post *p)
{
	struct step *s = io_container_of(p, struct step, post);

	t_enter(l);
	s->ran = true;
	s->turn = t_turn_number();
	if (s->next != NULL)
		io_post(l, &s->next->post, step_ran);
	t_leave(l);
}

CASE(post_made_in_a_callback_runs_in_a_later_turn, "C3 C6")
{
	struct io_loop *l = t_loop();
	struct step s[20] = { 0 };

	for (int i = 0; i < 19; i++)
		s[i].next = &s[i + 1];
	io_post(l, &s[0].post, step_ran);
	TURN_UNTIL(l, s[19].ran);
	for (int i = 1; i < 20; i++)
		CHECK(s[i].turn > s[i - 1].turn);
	t_loop_end(l);
}

/* A blocking turn with ready work returns: a wrong timeout would hang here. */
CASE(loop_does_not_block_while_anything_is_ready, "C3")
{
	struct io_loop *l = t_loop_turn_max(1);
	struct t_sock s[6];
	struct step p[6] = { 0 };
	unsigned closed, turns = 0;
	uint64_t t0 = n_now_ns();

	for (int i = 0; i < 6; i++) {
		t_adopt(l, &s[i], n_tcp(AF_INET));
		t_close(&s[i]);
		io_post(l, &p[i].post, step_ran);
	}
	do {
		t_turn(l, true);
		closed = 0;
		for (int i = 0; i < 6; i++)
			closed += s[i].closed + p[i].ran;
		if (++turns > 10000 || n_now_ns() - t0 > 5000000000u)
			FAIL("%u of 12 after %u turns", closed, turns);
	} while (closed < 12);
	t_loop_end(l);
}

CASE(turn_that_may_not_block_returns_at_once, "C3")
{
	struct io_loop *l = t_loop();
	uint64_t t0 = n_now_ns();

	for (int i = 0; i < 100; i++)
		CHECK_EQ(t_turn(l, false), 0);
	CHECK(n_now_ns() - t0 < 2000000000u);
	CHECK_EQ(io_inflight(l), 0);
	t_loop_end(l);
}

/* SPDX-License-Identifier: ISC */
/*
 * C27: exhaustion is back-pressure, never an error: armed, silent, counted once
 * an episode, resumes by itself after puts.  An idle connection holds no buffer.
 */
#include "suite.h"

enum { CONNS = 10, BLOCKS = 4, RESERVE = 1 };

struct world {
	struct io_loop	*l;
	struct io_pool	*p;
	struct t_sock	 a[CONNS];
	struct t_op	 r[CONNS];
	io_fd		 fd[CONNS][2];
	struct io_buf	 hold[BLOCKS];
	unsigned	 n_hold;
};

static struct world w;

static void
setup(void)
{
	memset(&w, 0, sizeof w);
	w.l = t_loop();
	w.p = t_pool(w.l, 4096, BLOCKS, RESERVE);
	for (int i = 0; i < CONNS; i++) {
		n_pair(w.fd[i]);
		t_adopt(w.l, &w.a[i], w.fd[i][0]);
	}
}

static void
teardown(void)
{
	for (int i = 0; i < CONNS; i++) {
		if (io_sock_open(&w.a[i].s))
			t_close(&w.a[i]);
		n_close(w.fd[i][1]);
	}
	t_drain(w.l);
	while (w.n_hold > 0)
		io_buf_put(w.p, &w.hold[--w.n_hold]);
	CHECK_EQ(io_pool_stats(w.p).lent, 0);
	io_pool_free(w.p);
	t_loop_end(w.l);
}

/* Takes every block that is not reserved, by receives: also those that a backend keeps in its ring. */
static void
exhaust(int by)
{
	while (w.n_hold < BLOCKS - RESERVE) {
		n_send(w.fd[by][1], "hold", 4);
		t_recv_pool(&w.r[by], &w.a[by], w.p, 0);
		TURN_UNTIL(w.l, !w.r[by].armed);
		CHECK_EQ(w.r[by].res, 4);
		CHECK_EQ(w.r[by].op.u.pool.n, 1);
		w.hold[w.n_hold++] = w.r[by].op.u.pool.bufs[0];
	}
	CHECK_EQ(io_pool_stats(w.p).lent, BLOCKS - RESERVE);
}

static void
put_one(void)
{
	CHECK(w.n_hold > 0);
	io_buf_put(w.p, &w.hold[--w.n_hold]);
}

/* A receive that has ended with buffers nobody has taken yet; 0: none. */
static int
with_bytes(void)
{
	for (int i = 1; i < CONNS; i++)
		if (!w.r[i].armed && w.r[i].finals > 0 && w.r[i].op.u.pool.n > 0)
			return i;
	return 0;
}

CASE(exhausted_pool_is_silent_counted_once_and_resumes_by_itself, "C27")
{
	static char in[IO_RECV_BYTES_MAX];
	struct io_stats before, after;

	setup();
	exhaust(0);
	CHECK_EQ(io_pool_stats(w.p).starved, 0);
	for (unsigned episode = 1; episode <= 3; episode++) {
		unsigned done = 0;

		for (int i = 1; i < CONNS; i++) {
			t_recv_pool(&w.r[i], &w.a[i], w.p, 0);
			n_send(w.fd[i][1], "waits", 5);
		}
		before = io_loop_stats(w.l);
		t_turn_for_ms(w.l, 30);
		after = io_loop_stats(w.l);
		/* Nine sockets are readable all the time: the loop must not spin on them. */
		CHECK(after.turns - before.turns < 60);
		for (int i = 1; i < CONNS; i++)
			CHECK(w.r[i].armed);
		CHECK_EQ(io_pool_stats(w.p).starved, episode);
		CHECK_EQ(after.pool_starved, episode);
		CHECK(io_pool_stats(w.p).starved_since_ns != 0);
		/* A single block serves them all, one after another. */
		put_one();
		while (done < CONNS - 1) {
			int i;

			TURN_UNTIL(w.l, (i = with_bytes()) != 0);
			CHECK_EQ(t_pool_take(&w.r[i], in), 5);
			w.r[i].op.u.pool.n = 0;
			CHECK(memcmp(in, "waits", 5) == 0);
			done++;
		}
		t_turn(w.l, false);
		t_turn(w.l, false);
		CHECK_EQ(io_pool_stats(w.p).starved_since_ns, 0);
		exhaust(0);
	}
	teardown();
}

CASE(reserve_serves_those_who_ask_while_the_rest_waits, "C27 C26")
{
	setup();
	exhaust(0);
	t_recv_pool(&w.r[1], &w.a[1], w.p, 0);
	n_send(w.fd[1][1], "waits", 5);
	t_turn_for_ms(w.l, 5);
	CHECK(w.r[1].armed);
	for (int i = 0; i < 10; i++) {
		t_recv_pool(&w.r[2], &w.a[2], w.p, IO_USE_RESERVE);
		if (i % 2)
			t_turn(w.l, false);
		n_send(w.fd[2][1], "handshake", 9);
		TURN_UNTIL(w.l, !w.r[2].armed);
		CHECK_EQ(t_pool_take(&w.r[2], NULL), 9);
		t_turn_for_ms(w.l, 1);
		CHECK(w.r[1].armed);
	}
	put_one();
	TURN_UNTIL(w.l, !w.r[1].armed);
	CHECK_EQ(t_pool_take(&w.r[1], NULL), 5);
	teardown();
}

CASE(waiting_receive_can_be_cancelled_and_closed, "C27 C17 C20")
{
	setup();
	exhaust(0);
	for (int i = 1; i < 5; i++) {
		t_recv_pool(&w.r[i], &w.a[i], w.p, 0);
		n_send(w.fd[i][1], "waits", 5);
	}
	t_turn_for_ms(w.l, 5);
	io_cancel(&w.r[1].op);
	t_close(&w.a[2]);
	TURN_UNTIL(w.l, !w.r[1].armed && w.a[2].closed);
	CHECK_EQ(w.r[1].res, IO_ECANCELED);
	CHECK_EQ(w.r[2].res, IO_ECANCELED);
	CHECK(w.r[3].armed && w.r[4].armed);
	put_one();
	/* The block goes to one that still waits. */
	TURN_UNTIL(w.l, !w.r[3].armed || !w.r[4].armed);
	int first = w.r[3].armed ? 4 : 3;
	CHECK_EQ(t_pool_take(&w.r[first], NULL), 5);
	TURN_UNTIL(w.l, !w.r[7 - first].armed);
	CHECK_EQ(t_pool_take(&w.r[7 - first], NULL), 5);
	/* The cancelled one's bytes are still there. */
	t_recv_pool(&w.r[1], &w.a[1], w.p, 0);
	TURN_UNTIL(w.l, !w.r[1].armed);
	CHECK_EQ(t_pool_take(&w.r[1], NULL), 5);
	teardown();
}

/* An end of stream that arrives while the pool is empty must not get lost. */
CASE(end_of_stream_during_exhaustion_arrives, "C27 C11")
{
	setup();
	exhaust(0);
	t_recv_pool(&w.r[1], &w.a[1], w.p, 0);
	t_recv_pool(&w.r[2], &w.a[2], w.p, 0);
	t_recv_pool(&w.r[3], &w.a[3], w.p, 0);
	n_send(w.fd[1][1], "last", 4);
	t_turn_for_ms(w.l, 3);
	n_shutdown(w.fd[1][1]);
	n_shutdown(w.fd[2][1]);
	t_turn_for_ms(w.l, 10);
	CHECK(w.r[1].armed && w.r[3].armed);
	/* Blocks come home with nobody's data there yet, then data. */
	put_one();
	TURN_UNTIL(w.l, !w.r[1].armed);
	CHECK_EQ(t_pool_take(&w.r[1], NULL), 4);
	TURN_UNTIL(w.l, !w.r[2].armed);
	CHECK_EQ(w.r[2].res, 0);
	t_recv_pool(&w.r[1], &w.a[1], w.p, 0);
	n_send(w.fd[3][1], "late", 4);
	TURN_UNTIL(w.l, !w.r[1].armed && !w.r[3].armed);
	CHECK_EQ(w.r[1].res, 0);
	CHECK_EQ(t_pool_take(&w.r[3], NULL), 4);
	teardown();
}

static bool
any_armed(void)
{
	for (int i = 1; i < CONNS; i++)
		if (w.r[i].armed)
			return true;
	return false;
}

/* Puts and waits at the same moment, many times: every lost wake-up hangs. */
CASE(no_wake_up_is_lost_between_puts_and_waits, "C27")
{
	struct t_rand rnd = { 27 };
	unsigned served = 0;

	setup();
	exhaust(0);
	while (served < 3000) {
		int i = 1 + (int)t_rand_below(&rnd, CONNS - 1);

		if (!w.r[i].armed) {
			t_recv_pool(&w.r[i], &w.a[i], w.p, 0);
			n_send(w.fd[i][1], "x", 1);
		}
		if (w.n_hold > 0 && t_rand_below(&rnd, 2))
			put_one();
		t_turn(w.l, false);
		/* From time to time all must be served by a single block. */
		if (t_rand_below(&rnd, 20) == 0) {
			if (w.n_hold == BLOCKS - RESERVE)
				put_one();
			while (any_armed()) {
				TURN_UNTIL(w.l, (i = with_bytes()) != 0);
				t_pool_take(&w.r[i], NULL);
				w.r[i].op.u.pool.n = 0;
			}
		}
		for (i = 1; i < CONNS; i++) {
			if (w.r[i].armed || w.r[i].finals == 0 || w.r[i].op.u.pool.n == 0)
				continue;
			served++;
			/* Keep it or give it back. */
			if (w.n_hold < BLOCKS - RESERVE && t_rand_below(&rnd, 2))
				w.hold[w.n_hold++] = w.r[i].op.u.pool.bufs[0];
			else
				io_buf_put(w.p, &w.r[i].op.u.pool.bufs[0]);
			w.r[i].op.u.pool.n = 0;
		}
	}
	for (int i = 1; i < CONNS; i++)
		io_cancel(&w.r[i].op);
	t_drain(w.l);
	for (int i = 1; i < CONNS; i++)
		if (w.r[i].finals > 0 && w.r[i].op.u.pool.n > 0)
			t_pool_take(&w.r[i], NULL);
	teardown();
}

CASE(thousand_idle_receives_hold_no_block, "C27")
{
	enum { N = 1000 };
	struct io_loop *l = t_loop();
	struct io_pool *p = t_pool(l, 16384, 64, 0);
	static struct t_sock a[N];
	static struct t_op r[N];
	static io_fd fd[N][2];

	for (int i = 0; i < N; i++) {
		n_pair(fd[i]);
		t_adopt(l, &a[i], fd[i][0]);
		t_recv_pool(&r[i], &a[i], p, 0);
	}
	t_turn_for_ms(l, 10);
	CHECK_EQ(io_pool_stats(p).lent, 0);
	CHECK_EQ(io_pool_stats(p).starved, 0);
	CHECK_EQ(io_inflight(l), N);
	/* Any of them is served at once, twice around. */
	for (int i = 0; i < 2 * N; i += 7) {
		int k = i % N;

		n_send(fd[k][1], "x", 1);
		TURN_UNTIL(l, !r[k].armed);
		CHECK_EQ(t_pool_take(&r[k], NULL), 1);
		t_recv_pool(&r[k], &a[k], p, 0);
	}
	CHECK_EQ(io_pool_stats(p).lent, 0);
	for (int i = 0; i < N; i++) {
		t_close(&a[i]);
		n_close(fd[i][1]);
	}
	t_drain(l);
	for (int i = 0; i < N; i++)
		if (r[i].res > 0 && r[i].op.u.pool.n > 0 && r[i].turn == t_turn_number())
			t_pool_take(&r[i], NULL);
	CHECK_EQ(io_pool_stats(p).lent, 0);
	io_pool_free(p);
	t_loop_end(l);
}

/* SPDX-License-Identifier: ISC */
/* C26: a pool lends blocks, each the callee's until io_buf_put, once, in any order. */
#include "suite.h"

CASE(blocks_are_lent_once_and_come_home, "C26")
{
	enum { N = 32 };
	struct io_loop *l = t_loop();
	struct io_pool *p = t_pool(l, 4096, N, 8);
	struct io_buf b[N], none;
	struct io_pool_stats st = io_pool_stats(p);

	CHECK_EQ(st.block_bytes, 4096);
	CHECK_EQ(st.ceiling, N);
	CHECK_EQ(st.reserve, 8);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			/* The reserve is for those who ask for it. */
			if (i >= N - 8)
				CHECK(!io_buf_get(p, 0, &none));
			CHECK(io_buf_get(p, i >= N - 8 ? IO_USE_RESERVE : 0, &b[i]));
			CHECK_EQ(b[i].cap, 4096);
			memset(b[i].base, i, b[i].cap);
			CHECK_EQ(io_pool_stats(p).lent, i + 1);
		}
		CHECK(!io_buf_get(p, IO_USE_RESERVE, &none));
		/* No two share a byte. */
		for (int i = 0; i < N; i++)
			CHECK(b[i].base[0] == i && b[i].base[4095] == i);
		/* 11 and 32 have no common factor: every one, in an odd order. */
		for (int i = 0; i < N; i++)
			io_buf_put(p, &b[i * 11 % N]);
		CHECK_EQ(io_pool_stats(p).lent, 0);
	}
	io_pool_free(p);
	t_loop_end(l);
}

CASE_DIES(putting_a_buffer_twice_asserts, "C26")
{
	struct io_pool *p = t_pool(t_loop(), 4096, 4, 0);
	struct io_buf b, c;

	CHECK(io_buf_get(p, 0, &b) && io_buf_get(p, 0, &c));
	io_buf_put(p, &b);
	t_expect_abort();
	io_buf_put(p, &b);
}

CASE_DIES(freeing_a_pool_that_has_lent_a_block_asserts, "C26 C23")
{
	struct io_pool *p = t_pool(t_loop(), 4096, 4, 0);
	struct io_buf b;

	CHECK(io_buf_get(p, 0, &b));
	t_expect_abort();
	io_pool_free(p);
}

/* A whole stream through pool receives, for block sizes of all sorts. */
static void
stream_through(uint32_t block_bytes, uint32_t ceiling)
{
	enum { BYTES = 2000000 };
	struct io_loop *l = t_loop();
	struct io_pool *p = t_pool(l, block_bytes, ceiling, 0);
	struct t_sock a;
	struct t_op r = { 0 };
	static char out[65536], in[IO_RECV_BYTES_MAX];
	uint64_t sent = 0, got = 0;
	unsigned several = 0;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	while (got < BYTES) {
		while (sent < BYTES) {
			size_t n = BYTES - sent < sizeof out ? BYTES - sent : sizeof out;
			long k;

			t_pattern(26, sent, out, n);
			if ((k = n_try_send(fd[1], out, n)) <= 0)
				break;
			sent += (uint64_t)k;
		}
		t_recv_pool(&r, &a, p, 0);
		TURN_UNTIL(l, !r.armed);
		CHECK(r.res > 0);
		several += r.op.u.pool.n > 1;
		for (unsigned i = 0; i < r.op.u.pool.n; i++)
			CHECK_EQ(r.op.u.pool.bufs[i].cap, block_bytes);
		t_pool_take(&r, in);
		CHECK(t_pattern_ok(26, got, in, (size_t)r.res));
		got += (uint64_t)r.res;
	}
	t_note("blocks of %u: %u receives, %u with several buffers", block_bytes, r.calls, several);
	CHECK_EQ(io_pool_stats(p).lent, 0);
	CHECK_EQ(io_pool_stats(p).starved, 0);
	t_close(&a);
	t_drain(l);
	io_pool_free(p);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(pool_receives_deliver_up_to_four_buffers_of_64_kib_in_all, "C26 C9")
{
	stream_through(16384, 64);
	stream_through(65536, 16);
	stream_through(32768, 16);
	stream_through(4096, 64);
}

CASE(pool_smaller_than_one_receive_still_works, "C26 C27")
{
	stream_through(2048, 3);
	stream_through(16384, 1);
}

CASE(two_pools_of_a_loop_do_not_mix, "C26")
{
	struct io_loop *l = t_loop();
	struct io_pool *p[2] = { t_pool(l, 2048, 16, 0), t_pool(l, 16384, 16, 0) };
	struct t_sock a[2];
	struct t_op r[2] = { 0 };
	static char in[IO_RECV_BYTES_MAX];
	io_fd fd[2][2];

	for (int k = 0; k < 2; k++) {
		n_pair(fd[k]);
		t_adopt(l, &a[k], fd[k][0]);
	}
	for (int i = 0; i < 50; i++) {
		for (int k = 0; k < 2; k++) {
			/* Each socket by turns from each pool. */
			t_recv_pool(&r[k], &a[k], p[(i + k) % 2], 0);
			n_send(fd[k][1], k ? "second" : "first!", 6);
		}
		TURN_UNTIL(l, !r[0].armed && !r[1].armed);
		for (int k = 0; k < 2; k++) {
			CHECK_EQ(r[k].op.u.pool.bufs[0].cap, (i + k) % 2 ? 16384 : 2048);
			CHECK_EQ(io_pool_stats(p[(i + k) % 2]).lent, 1);
			CHECK_EQ(t_pool_take(&r[k], in), 6);
			CHECK(memcmp(in, k ? "second" : "first!", 6) == 0);
			CHECK_EQ(io_pool_stats(p[(i + k) % 2]).lent, 0);
		}
	}
	for (int k = 0; k < 2; k++) {
		t_close(&a[k]);
		n_close(fd[k][1]);
	}
	t_drain(l);
	io_pool_free(p[0]);
	io_pool_free(p[1]);
	t_loop_end(l);
}

/* Buffers kept for a while by their owners, given back in any order. */
CASE(blocks_are_conserved_under_random_holding, "C26 C27")
{
	enum { CONNS = 12, HELD = 40, STEPS = 4000 };
	struct io_loop *l = t_loop();
	struct io_pool *p = t_pool(l, 4096, HELD + 8, 0);
	struct t_sock a[CONNS];
	struct t_op r[CONNS] = { 0 };
	struct io_buf held[HELD + 8];
	unsigned n_held = 0;
	uint64_t sent[CONNS] = { 0 }, got[CONNS] = { 0 };
	struct t_rand rnd = { 26 };
	static char out[9000];
	io_fd fd[CONNS][2];

	for (unsigned i = 0; i < CONNS; i++) {
		n_pair(fd[i]);
		t_adopt(l, &a[i], fd[i][0]);
		t_recv_pool(&r[i], &a[i], p, 0);
	}
	for (int step = 0; step < STEPS; step++) {
		unsigned i = t_rand_below(&rnd, CONNS), n = 1 + t_rand_below(&rnd, sizeof out - 1);
		long k;

		t_pattern(i, sent[i], out, n);
		if (sent[i] - got[i] < 100000 && (k = n_try_send(fd[i][1], out, n)) > 0)
			sent[i] += (uint64_t)k;
		t_turn(l, false);
		for (i = 0; i < CONNS; i++) {
			if (r[i].armed)
				continue;
			CHECK(r[i].res > 0);
			for (unsigned b = 0; b < r[i].op.u.pool.n; b++) {
				struct io_buf *x = &r[i].op.u.pool.bufs[b];

				CHECK(t_pattern_ok(i, got[i], x->base, x->len));
				got[i] += x->len;
				held[n_held++] = *x;
			}
			t_recv_pool(&r[i], &a[i], p, 0);
		}
		CHECK_EQ(io_pool_stats(p).lent, n_held);
		for (unsigned back = t_rand_below(&rnd, n_held + 1); back > 0; back--) {
			i = t_rand_below(&rnd, n_held);
			io_buf_put(p, &held[i]);
			held[i] = held[--n_held];
		}
	}
	for (unsigned i = 0; i < CONNS; i++) {
		t_close(&a[i]);
		n_close(fd[i][1]);
	}
	t_drain(l);
	for (unsigned i = 0; i < CONNS; i++)
		if (r[i].res > 0)
			t_pool_take(&r[i], NULL);
	while (n_held > 0)
		io_buf_put(p, &held[--n_held]);
	CHECK_EQ(io_pool_stats(p).lent, 0);
	io_pool_free(p);
	t_loop_end(l);
}

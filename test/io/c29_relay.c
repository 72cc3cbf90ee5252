/* SPDX-License-Identifier: ISC */
/* C29: how a relay begins and ends: end of src, max, errors on either side, cancel, close. */
#include "relay_rig.h"

CASE(relay_ends_with_its_source_and_leaves_the_target_open, "C29 C13")
{
	struct rig g;
	struct t_op s = { 0 };
	char buf[8];

	rig_open(&g, t_loop(), 0, 0, 16);
	rig_start(&g, UINT64_MAX);
	CHECK_EQ(rig_feed(&g, 5000), 5000);
	TURN_UNTIL(g.l, g.relay.op.u.relay.moved == 5000);
	n_shutdown(g.in);
	TURN_UNTIL(g.l, !g.relay.armed);
	CHECK_EQ(g.relay.res, 0);
	CHECK_EQ(g.relay.op.u.relay.moved, 5000);
	CHECK_EQ(g.tally, 5000);
	CHECK_EQ(io_relay_held(&g.relay.op), 0);
	while (g.got < 5000)
		rig_read(&g, 5000);
	/* Not shut down: that is the caller's word. */
	n_sleep_ms(2);
	CHECK_EQ(n_try_recv(g.out, buf, 1), -1);
	t_send(&s, &g.dst, "more", 4);
	TURN_UNTIL(g.l, !s.armed);
	CHECK_EQ(s.res, 4);
	n_recv_all(g.out, buf, 4);
	CHECK_EQ(io_shutdown(&g.dst.s), 0);
	CHECK(n_eof(g.out));
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(relay_of_an_ended_source_ends_at_once_with_0, "C29 C11")
{
	struct rig g;

	rig_open(&g, t_loop(), 0, 0, 16);
	n_shutdown(g.in);
	for (unsigned i = 1; i <= 3; i++) {
		rig_start(&g, UINT64_MAX);
		TURN_UNTIL(g.l, !g.relay.armed);
		CHECK_EQ(g.relay.res, 0);
		CHECK_EQ(g.relay.op.u.relay.moved, 0);
	}
	rig_free(&g);
	t_loop_end(g.l);
}

/* Bytes behind max stay in src, to the byte: the next request of a connection is there. */
static void
max_is_exact(uint64_t max, uint64_t behind)
{
	struct rig g;
	struct t_op r = { 0 };
	static char buf[65536];
	uint64_t at = max;

	rig_open(&g, t_loop(), 0, 0, 32);
	rig_start(&g, max);
	while (g.relay.armed || g.sent < max + behind) {
		if (g.sent < max + behind)
			rig_feed(&g, (size_t)(max + behind - g.sent));
		rig_read(&g, 1 << 20);
		if (g.relay.armed)
			t_turn(g.l, false);
	}
	CHECK_EQ(g.relay.res, 0);
	CHECK_EQ(g.relay.op.u.relay.moved, max);
	CHECK_EQ(g.tally, max);
	while (g.got < max)
		if (rig_read(&g, 1 << 20) == 0)
			n_sleep_ms(1);
	n_sleep_ms(2);
	CHECK_EQ(rig_read(&g, 1), 0);
	while (at < max + behind) {
		t_recv(&r, &g.src, buf, sizeof buf);
		TURN_UNTIL(g.l, !r.armed);
		CHECK(r.res > 0);
		CHECK(t_pattern_ok(g.seed, at, buf, (size_t)r.res));
		at += (uint64_t)r.res;
	}
	CHECK_EQ(at, max + behind);
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(relay_of_max_bytes_stops_there_and_leaves_the_rest, "C29")
{
	static const uint64_t sizes[] = { 1, 2, 4095, 16384, 16385, 65536, 65537, 100000,
	    1048583, 4194304, 9000001 };

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		max_is_exact(sizes[i], 1);
		max_is_exact(sizes[i], 40000);
	}
}

CASE(relay_of_max_bytes_ends_early_with_its_source, "C29")
{
	struct rig g;

	rig_open(&g, t_loop(), 0, 0, 16);
	rig_start(&g, 10000);
	rig_feed(&g, 9999);
	n_shutdown(g.in);
	TURN_UNTIL(g.l, !g.relay.armed);
	CHECK_EQ(g.relay.res, 0);
	CHECK_EQ(g.relay.op.u.relay.moved, 9999);
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(relays_of_some_bytes_follow_one_another, "C29 C8")
{
	struct rig g;
	struct t_rand r = { 290 };
	uint64_t moved = 0;

	rig_open(&g, t_loop(), 0, 0, 16);
	while (moved < 2000000) {
		uint64_t max = 1 + t_rand_below(&r, 60000);

		rig_start(&g, max);
		while (g.relay.armed) {
			if (g.sent < 3000000)
				rig_feed(&g, 50000);
			rig_read(&g, 1 << 20);
			t_turn(g.l, false);
		}
		CHECK_EQ(g.relay.res, 0);
		CHECK_EQ(g.relay.op.u.relay.moved, max);
		moved += max;
		CHECK_EQ(g.tally, moved);
	}
	CHECK_EQ(io_shutdown(&g.dst.s), 0);
	CHECK_EQ(rig_read_all(&g), moved);
	g.tally = g.relay.op.u.relay.moved;
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(reset_of_the_source_is_told_as_the_source_s, "C29 C10")
{
	struct rig g;

	for (int bulk = 0; bulk < 2; bulk++) {
		if (bulk && n_is_wine())
			SKIP("in bulk: wine reads a reset that came while nothing waited as an end");
		rig_open(&g, t_loop(), 0, 0, 16);
		rig_start(&g, UINT64_MAX);
		while (g.sent < (bulk ? 3000000 : 100)) {
			rig_feed(&g, bulk ? 200000 : 100);
			t_turn(g.l, false);
			rig_read(&g, 1 << 20);
		}
		if (n_is_wine())
			t_turn_for_ms(g.l, 20);	/* until it waits: see above */
		n_reset(g.in);
		while (g.relay.armed) {
			t_turn(g.l, false);
			rig_read(&g, 1 << 20);
		}
		CHECK_EQ(g.relay.res, IO_ERESET);
		CHECK(!g.relay.op.u.relay.dst_failed);
		CHECK(g.relay.op.u.relay.moved <= g.sent);
		CHECK_EQ(io_pool_stats(g.pool).lent, 0);
		rig_close(&g);
		/* What was said to be moved arrives. */
		CHECK_EQ(rig_read_all(&g), g.relay.op.u.relay.moved);
		g.in = n_tcp(AF_INET);
		rig_free(&g);
		t_loop_end(g.l);
	}
}

/* SIGPIPE is at its default here: neither send nor splice may raise it. */
CASE(reset_of_the_target_is_told_as_the_target_s, "C29 C10 C12")
{
	struct rig g;

	for (int bulk = 0; bulk < 3; bulk++) {
		rig_open(&g, t_loop(), 0, 0, 16);
		rig_start(&g, UINT64_MAX);
		if (bulk)
			while (g.got < 4000000) {
				rig_feed(&g, 200000);
				t_turn(g.l, false);
				rig_read(&g, 1 << 20);
			}
		/* Blocked on the target, or not. */
		for (int i = 0; bulk == 2 && i < 200; i++) {
			rig_feed(&g, 200000);
			t_turn(g.l, false);
		}
		n_reset(g.out);
		for (int i = 0; i < 4000 && g.relay.armed; i++) {
			rig_feed(&g, bulk ? 100000 : 100);
			t_turn(g.l, false);
			n_sleep_ms(0);
		}
		CHECK(!g.relay.armed);
		CHECK_EQ(g.relay.res, IO_ERESET);
		CHECK(g.relay.op.u.relay.dst_failed);
		CHECK_EQ(io_pool_stats(g.pool).lent, 0);
		g.out = n_tcp(AF_INET);
		rig_free(&g);
		t_loop_end(g.l);
	}
}

/* Ended at random moments of bulk traffic: what `moved` says is what the reader gets. */
static void
cut_short(int how, int sndbuf, int rcvbuf)
{
	struct io_loop *l = t_loop();
	struct t_rand r = { 291 + (uint64_t)how };

	for (int round = 0; round < 60; round++) {
		struct rig g;
		unsigned steps = t_rand_below(&r, 120);
		bool lazy = t_rand_below(&r, 2);

		rig_open(&g, l, sndbuf, rcvbuf, 16);
		rig_start(&g, UINT64_MAX);
		while (steps-- > 0) {
			rig_feed(&g, 1 + t_rand_below(&r, 200000));
			if (t_rand_below(&r, 4) != 0)
				t_turn(l, false);
			if (!lazy || t_rand_below(&r, 8) == 0)
				rig_read(&g, 1 + t_rand_below(&r, 200000));
		}
		if (how == 0)
			io_cancel(&g.relay.op);
		else if (how == 1)
			t_close(&g.src);
		else
			t_close(&g.dst);
		TURN_UNTIL(l, !g.relay.armed);
		CHECK_EQ(g.relay.finals, 1);
		CHECK_EQ(g.relay.res, IO_ECANCELED);
		CHECK(g.relay.op.u.relay.moved >= g.got);
		CHECK_EQ(io_pool_stats(g.pool).lent, 0);
		rig_close(&g);
		if (how != 0)
			CHECK((how == 1 ? g.src.closed_turn : g.dst.closed_turn) >= g.relay.turn);
		if (rig_read_all(&g) != (int64_t)g.relay.op.u.relay.moved)
			FAIL("seed %d, round %d: moved %llu, the reader got %llu", 291 + how,
			    round, (unsigned long long)g.relay.op.u.relay.moved,
			    (unsigned long long)g.got);
		rig_free(&g);
	}
	t_loop_end(l);
}

CASE(cancelled_relay_tells_exactly_what_it_moved, "C29 C17 C18") { cut_short(0, 0, 0); }
CASE(cancelled_relay_with_small_buffers_tells_exactly_what_it_moved, "C29 C17")
{
	cut_short(0, 16384, 16384);
}
CASE(closing_the_source_ends_the_relay_first, "C29 C21 C20") { cut_short(1, 0, 0); }
CASE(closing_the_target_ends_the_relay_first, "C29 C21 C20") { cut_short(2, 0, 0); }

CASE(closing_both_ends_of_two_relays_at_once, "C29 C21 C20")
{
	struct io_loop *l = t_loop();
	struct t_rand r = { 292 };

	for (int round = 0; round < 60; round++) {
		struct rig g;
		struct t_op back = { 0 };
		char junk[3000] = { 0 };

		rig_open(&g, l, 0, 0, 16);
		rig_start(&g, UINT64_MAX);
		t_relay(&back, &g.dst, &g.src, g.pool, UINT64_MAX, NULL);
		for (unsigned i = t_rand_below(&r, 20); i > 0; i--) {
			rig_feed(&g, 1 + t_rand_below(&r, 100000));
			(void)n_try_send(g.out, junk, sizeof junk);
			t_turn(l, false);
		}
		if (round % 2) {
			t_close(&g.src);
			t_close(&g.dst);
		} else {
			t_close(&g.dst);
			t_close(&g.src);
		}
		rig_close(&g);
		CHECK(!back.armed);
		CHECK_EQ(back.finals, 1);
		CHECK_EQ(io_inflight(l), 0);
		rig_free(&g);
	}
	t_loop_end(l);
}

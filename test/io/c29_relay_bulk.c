/* SPDX-License-Identifier: ISC */
/* C29: much data, many relays, slow readers, little memory; when splice is used and when not. */
#include "relay_rig.h"

enum { MIB = 1024 * 1024 };

/* Turns the loop until the relay has ended, looking at the promises at every turn. */
static void
run(struct rig *g)
{
	struct io_op *op = &g->relay.op;
	uint32_t held_most = 0, lent_most = 0;

	while (g->relay.armed) {
		uint64_t before = op->u.relay.moved, tally = g->tally;

		t_turn(g->l, true);
		if (op->u.relay.moved - before > 256 * 1024)
			FAIL("%llu bytes in one turn",
			    (unsigned long long)(op->u.relay.moved - before));
		CHECK_EQ(g->tally - tally, op->u.relay.moved - before);
		if (op->u.relay.moved != before)
			CHECK_EQ(op->u.relay.last_ns, io_now(g->l));
		CHECK(op->u.relay.last_ns <= io_now(g->l));
		if (!g->relay.armed)
			break;
		if (io_relay_held(op) > held_most)
			held_most = io_relay_held(op);
		if (io_pool_stats(g->pool).lent > lent_most)
			lent_most = io_pool_stats(g->pool).lent;
	}
	t_note("held at most %u bytes and %u blocks", held_most, lent_most);
	/* 64 KiB in blocks, or a pipe of 256 KiB. */
	CHECK(held_most <= 256 * 1024);
	CHECK(lent_most <= IO_RECV_BUFS_MAX);
}

static void
bulk(uint64_t bytes, int sndbuf, int rcvbuf, unsigned piece_max, unsigned reader_pause)
{
	struct rig g;
	struct rig_pump w = { .rig = &g, .bytes = bytes, .piece_max = piece_max };
	struct rig_pump r = { .rig = &g, .piece_max = piece_max, .pause_every = reader_pause };
	struct io_stats st;

	rig_open(&g, t_loop(), sndbuf, rcvbuf, 32);
	rig_start(&g, UINT64_MAX);
	rig_write_thread(&w);
	rig_read_thread(&r);
	run(&g);
	CHECK_EQ(g.relay.res, 0);
	CHECK_EQ(g.relay.op.u.relay.moved, bytes);
	CHECK_EQ(g.tally, bytes);
	CHECK_EQ(io_shutdown(&g.dst.s), 0);
	n_join(&w.thread);
	n_join(&r.thread);
	CHECK_EQ(g.got, bytes);
	st = io_loop_stats(g.l);
	t_note("splice on %llu, off %llu, no pipe %llu", (unsigned long long)st.splice_on,
	    (unsigned long long)st.splice_off, (unsigned long long)st.pipe_none);
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(bulk_of_64_mib_arrives_byte_for_byte, "C29") { bulk(64 * MIB, 0, 0, 1 << 20, 0); }
CASE(bulk_through_small_socket_buffers_arrives_byte_for_byte, "C29")
{
	bulk(16 * MIB, 16384, 16384, 100000, 0);
}
CASE(bulk_in_small_random_pieces_arrives_byte_for_byte, "C29") { bulk(4 * MIB, 0, 0, 3000, 0); }
CASE(slow_reader_holds_the_relay_back_and_loses_nothing, "C29")
{
	bulk(8 * MIB, 0, 65536, 65536, 4);
}
CASE(slow_reader_with_small_buffers_loses_nothing, "C29") { bulk(2 * MIB, 16384, 16384, 20000, 5); }

/* ---- when to splice ---- */

static void
chat(struct rig *g, struct t_op *back, unsigned rounds)
{
	char c[64] = { 0 };

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t want = g->got + sizeof c;

		CHECK_EQ(rig_feed(g, sizeof c), sizeof c);
		TURN_UNTIL(g->l, (rig_read(g, sizeof c), g->got == want));
		if (back == NULL)
			continue;
		n_send(g->out, c, sizeof c);
		TURN_UNTIL(g->l, n_try_recv(g->in, c, sizeof c) == (long)sizeof c);
	}
}

CASE(chatty_traffic_stays_on_the_copy_path, "C29")
{
	struct rig g;
	struct t_op back = { 0 };

	rig_open(&g, t_loop(), 0, 0, 16);
	rig_start(&g, UINT64_MAX);
	t_relay(&back, &g.dst, &g.src, g.pool, UINT64_MAX, NULL);
	/* More in all than any threshold by total would allow. */
	chat(&g, &back, 6000);
	CHECK_EQ(io_loop_stats(g.l).splice_on, 0);
	CHECK_EQ(io_loop_stats(g.l).pipes, 0);
	rig_free(&g);
	CHECK_EQ(back.finals, 1);
	t_loop_end(g.l);
}

static void
feed_bulk(struct rig *g, uint64_t bytes)
{
	uint64_t end = g->sent + bytes;

	while (g->got < end) {
		if (g->sent < end)
			rig_feed(g, (size_t)(end - g->sent));
		t_turn(g->l, false);
		rig_read(g, 1 << 20);
	}
}

CASE(bulk_is_spliced_and_chat_goes_back_to_copying, "C29")
{
	struct rig g;
	struct io_stats st;

	rig_open(&g, t_loop(), 0, 0, 16);
	rig_start(&g, UINT64_MAX);
	for (unsigned i = 1; i <= 3; i++) {
		feed_bulk(&g, 16 * MIB);
		st = io_loop_stats(g.l);
		if (t_opts.no_splice || strcmp(io_backend_name(g.l), "iocp") == 0) {
			CHECK_EQ(st.splice_on, 0);
			CHECK_EQ(st.pipes, 0);
		} else if (st.splice_on == 0 && st.pipe_none > 0) {
			SKIP("the kernel gives no pipe");
		} else {
			CHECK(st.splice_on >= i);
		}
		chat(&g, NULL, 100);
		st = io_loop_stats(g.l);
		CHECK_EQ(st.splice_off, st.splice_on);
	}
	/* The pipe is kept for the next one: three changes, one pipe. */
	CHECK(st.pipes <= 1);
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(idle_relay_holds_neither_block_nor_pipe, "C29 C27")
{
	struct rig g;

	rig_open(&g, t_loop(), 0, 0, 16);
	rig_start(&g, UINT64_MAX);
	t_turn_for_ms(g.l, 5);
	CHECK_EQ(io_pool_stats(g.pool).lent, 0);
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			feed_bulk(&g, 8 * MIB);
		else
			chat(&g, NULL, 50);
		t_turn_for_ms(g.l, 20);
		CHECK_EQ(io_relay_held(&g.relay.op), 0);
		CHECK_EQ(io_pool_stats(g.pool).lent, 0);
		CHECK(g.relay.op.u.relay.pipe == NULL);
		CHECK(g.relay.armed);
	}
	rig_free(&g);
	t_loop_end(g.l);
}

/* A loop that may have no pipes at all, or one for two relays, still moves everything. */
CASE(relays_without_a_pipe_go_on_copying, "C29")
{
	for (unsigned pipes = 0; pipes < 2; pipes++) {
		struct io_config cfg = t_config();
		struct io_loop *l;
		struct rig g[2];

		cfg.pipes_max = pipes == 0 ? UINT32_MAX : 1;
		l = t_loop_of(&cfg);
		for (int i = 0; i < 2; i++) {
			rig_open(&g[i], l, 0, 0, 16);
			rig_start(&g[i], UINT64_MAX);
		}
		while (g[0].got < 12 * MIB || g[1].got < 12 * MIB) {
			for (int i = 0; i < 2; i++) {
				if (g[i].sent < 12 * MIB)
					rig_feed(&g[i], (size_t)(12 * MIB - g[i].sent));
				rig_read(&g[i], 1 << 20);
			}
			t_turn(l, false);
		}
		CHECK(io_loop_stats(l).pipes <= pipes);
		if (!t_opts.no_splice && pipes == 0)
			CHECK_EQ(io_loop_stats(l).splice_on, 0);
		rig_free(&g[0]);
		rig_free(&g[1]);
		t_loop_end(l);
	}
}

/* ---- memory ---- */

CASE(relay_waits_silently_while_the_pool_is_exhausted, "C29 C27")
{
	enum { BLOCKS = 4 };
	struct rig g;
	struct t_op r = { 0 };
	struct io_buf held[BLOCKS];
	struct io_stats before;
	io_fd fd[2];
	struct t_sock a;

	rig_open(&g, t_loop(), 0, 0, BLOCKS);
	n_pair(fd);
	t_adopt(g.l, &a, fd[0]);
	/* By receives, so that blocks in a backend's ring are taken too. */
	for (int i = 0; i < BLOCKS; i++) {
		n_send(fd[1], "x", 1);
		t_recv_pool(&r, &a, g.pool, 0);
		TURN_UNTIL(g.l, !r.armed);
		CHECK_EQ(r.op.u.pool.n, 1);
		held[i] = r.op.u.pool.bufs[0];
	}
	rig_start(&g, UINT64_MAX);
	CHECK_EQ(rig_feed(&g, 100000), 100000);
	t_turn_for_ms(g.l, 5);
	before = io_loop_stats(g.l);
	t_turn_for_ms(g.l, 20);
	CHECK(io_loop_stats(g.l).turns - before.turns < 40);
	CHECK(g.relay.armed);
	CHECK_EQ(g.relay.op.u.relay.moved, 0);
	CHECK_EQ(io_pool_stats(g.pool).starved, 1);
	io_buf_put(g.pool, &held[0]);
	while (g.got < 100000) {
		t_turn(g.l, false);
		rig_read(&g, 100000);
	}
	/* And again, with a cancel while it waits. */
	t_turn_for_ms(g.l, 2);
	n_send(fd[1], "x", 1);
	t_recv_pool(&r, &a, g.pool, 0);
	TURN_UNTIL(g.l, !r.armed);
	held[0] = r.op.u.pool.bufs[0];
	rig_feed(&g, 100);
	t_turn_for_ms(g.l, 2);
	io_cancel(&g.relay.op);
	TURN_UNTIL(g.l, !g.relay.armed);
	CHECK_EQ(g.relay.res, IO_ECANCELED);
	CHECK_EQ(g.relay.op.u.relay.moved, 100000);
	for (int i = 0; i < BLOCKS; i++)
		io_buf_put(g.pool, &held[i]);
	t_close_wait(&a);
	n_close(fd[1]);
	rig_free(&g);
	t_loop_end(g.l);
}

CASE(relay_that_cannot_send_holds_a_bounded_amount, "C29 C27")
{
	struct rig g;
	uint64_t last;

	rig_open(&g, t_loop(), 16384, 16384, 64);
	rig_start(&g, UINT64_MAX);
	do {
		last = g.sent;
		for (int i = 0; i < 20; i++) {
			rig_feed(&g, 1 << 20);
			t_turn_for_ms(g.l, 1);
		}
	} while (g.sent != last);
	CHECK(io_relay_held(&g.relay.op) <= IO_RECV_BYTES_MAX);
	CHECK(io_pool_stats(g.pool).lent <= IO_RECV_BUFS_MAX);
	/* Then the reader wakes up. */
	while (g.got < g.sent) {
		rig_read(&g, 1 << 20);
		t_turn(g.l, false);
	}
	CHECK_EQ(g.relay.op.u.relay.moved, g.sent);
	rig_free(&g);
	t_loop_end(g.l);
}

/* ---- many ---- */

CASE(two_hundred_relays_at_once_each_move_their_own, "C29 C27")
{
	enum { N = 200, BYTES = 150000 };
	struct io_loop *l = t_loop();
	/* Far fewer blocks than relays: they must take turns. */
	struct io_pool *pool = t_pool(l, 16384, 48, 0);
	static struct rig g[N];
	unsigned done = 0;
	uint64_t t0 = n_now_ns();

	for (unsigned i = 0; i < N; i++) {
		rig_open_on(&g[i], l, pool, 0, 0);
		g[i].seed = i;
		rig_start(&g[i], UINT64_MAX);
	}
	while (done < N) {
		done = 0;
		for (unsigned i = 0; i < N; i++) {
			if (g[i].sent < BYTES) {
				rig_feed(&g[i], BYTES - (size_t)g[i].sent);
				if (g[i].sent == BYTES)
					n_shutdown(g[i].in);
			}
			rig_read(&g[i], BYTES);
			done += !g[i].relay.armed && g[i].got == BYTES;
		}
		t_turn(l, false);
		if (n_now_ns() - t0 > 40000000000u)
			FAIL("%u of %u relays are through", done, N);
	}
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(g[i].relay.res, 0);
		CHECK_EQ(g[i].relay.op.u.relay.moved, BYTES);
		rig_free(&g[i]);
	}
	CHECK_EQ(io_pool_stats(pool).lent, 0);
	io_pool_free(pool);
	t_loop_end(l);
}

static _Atomic bool flood_over;

static void
flood(void *p)
{
	static _Thread_local char junk[65536];
	io_fd fd = *(io_fd *)p;

	while (!flood_over)
		if (n_try_send(fd, junk, sizeof junk) < 0)
			n_sleep_ms(0);
}

static void
sink(void *p)
{
	static _Thread_local char junk[65536];
	io_fd fd = *(io_fd *)p;

	while (!flood_over)
		if (n_try_recv(fd, junk, sizeof junk) < 0)
			n_sleep_ms(0);
}

CASE(bulk_relay_does_not_starve_a_chatty_one, "C29 C3")
{
	struct io_loop *l = t_loop();
	struct rig big, small;
	struct n_thread w, r;

	rig_open(&big, l, 0, 0, 32);
	rig_open(&small, l, 0, 0, 32);
	rig_start(&big, UINT64_MAX);
	rig_start(&small, UINT64_MAX);
	n_thread(&w, flood, &big.in);
	n_thread(&r, sink, &big.out);
	chat(&small, NULL, 200);
	TURN_UNTIL(l, big.relay.op.u.relay.moved > 20 * MIB);
	chat(&small, NULL, 200);
	flood_over = true;
	n_join(&w);
	n_join(&r);
	rig_free(&big);
	rig_free(&small);
	t_loop_end(l);
}

CASE(bulk_relays_share_the_loop, "C29 C3")
{
	enum { N = 4 };
	struct io_loop *l = t_loop();
	struct rig g[N];
	uint64_t least = 0;

	for (int i = 0; i < N; i++) {
		rig_open(&g[i], l, 0, 0, 32);
		rig_start(&g[i], UINT64_MAX);
	}
	/* All are fed and read alike: none falls far behind. */
	while (least < 6 * MIB) {
		uint64_t most = 0;

		least = UINT64_MAX;
		for (int i = 0; i < N; i++) {
			rig_feed(&g[i], 256 * 1024);
			rig_read(&g[i], 1 << 20);
			if (g[i].got < least)
				least = g[i].got;
			if (g[i].got > most)
				most = g[i].got;
		}
		t_turn(l, false);
		if (most - least > 32 * MIB)
			FAIL("one relay is at %llu, another at %llu", (unsigned long long)most,
			    (unsigned long long)least);
	}
	for (int i = 0; i < N; i++)
		rig_free(&g[i]);
	t_loop_end(l);
}

/* SPDX-License-Identifier: ISC */
/* C17: io_cancel is a request; the op ends with CANCELED or its real result. */
#include "suite.h"

CASE(cancel_of_an_idle_op_does_nothing, "C17")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[8];
	io_fd fd[2];

	io_cancel(&r.op);		/* never started */
	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	n_send(fd[1], "x", 1);
	t_recv(&r, &a, buf, sizeof buf);
	TURN_UNTIL(l, !r.armed);
	io_cancel(&r.op);		/* ended */
	io_cancel(&r.op);
	t_turn_for_ms(l, 5);
	CHECK_EQ(r.calls, 1);
	/* The next run of the op is not touched by an earlier request. */
	t_recv(&r, &a, buf, sizeof buf);
	t_turn_for_ms(l, 5);
	CHECK(r.armed);
	n_send(fd[1], "y", 1);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 1);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(cancel_twice_is_cancel_once, "C17 C8")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[8];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (int i = 0; i < 100; i++) {
		t_recv(&r, &a, buf, sizeof buf);
		if (i % 2)
			t_turn(l, false);
		for (int k = 0; k <= i % 4; k++)
			io_cancel(&r.op);
		t_turn(l, false);
		io_cancel(&r.op);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, IO_ECANCELED);
		CHECK_EQ(r.calls, i + 1);
	}
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(every_kind_of_op_can_be_cancelled, "C17 C18")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 16, 0);
	struct t_sock lst, a, b, u;
	struct t_op o[6] = { 0 };
	struct io_dgram v[4];
	struct n_addr at;
	io_fd fa[2], fb[2];
	char c;

	t_adopt(l, &lst, n_listen("127.0.0.1", 4, &at));
	n_pair(fa);
	n_pair(fb);
	t_adopt(l, &a, fa[0]);
	t_adopt(l, &b, fb[0]);
	t_adopt(l, &u, n_udp("127.0.0.1", NULL));
	for (int round = 0; round < 6; round++) {
		t_accept(&o[0], &lst);
		t_recv_batch(&o[1], &u, pool, v, 4);
		if (round % 3 == 0)
			t_recv(&o[2], &a, &c, 1);
		else if (round % 3 == 1)
			t_recv_pool(&o[2], &a, pool, 0);
		else
			t_poll(&o[2], &a, IO_POLL_IN);
		t_relay(&o[3], &b, &a, pool, UINT64_MAX, NULL);
		if (round & 1)
			t_turn_for_ms(l, 2);
		for (int i = 0; i < 4; i++)
			io_cancel(&o[i].op);
		TURN_UNTIL(l, !o[0].armed && !o[1].armed && !o[2].armed && !o[3].armed);
		for (int i = 0; i < 4; i++)
			CHECK_EQ(o[i].res, IO_ECANCELED);
		CHECK_EQ(io_inflight(l), 0);
		CHECK_EQ(io_pool_stats(pool).lent, 0);
	}
	t_close(&lst);
	t_close(&a);
	t_close(&b);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(fa[1]);
	n_close(fb[1]);
}

/*
 * Data sent at the moment of the cancel: whatever the result, no byte is lost
 * and none comes twice.  A cancelled receive must give back what it had taken.
 */
static void
race(bool pooled, bool wait_first)
{
	enum { ROUNDS = 1500 };
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 16, 0);
	struct t_sock a;
	struct t_op r = { 0 };
	struct t_rand rnd = { 17 };
	static char buf[IO_RECV_BYTES_MAX];
	uint64_t sent = 0, got = 0;
	unsigned canceled = 0;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (int i = 0; i < ROUNDS; i++) {
		char out[8];
		unsigned n = 1 + t_rand_below(&rnd, sizeof out);
		bool before = t_rand_below(&rnd, 2);

		if (pooled)
			t_recv_pool(&r, &a, pool, 0);
		else
			t_recv(&r, &a, buf, sizeof buf);
		if (wait_first)
			t_turn(l, false);
		t_pattern(17, sent, out, n);
		if (before)
			n_send(fd[1], out, n);
		io_cancel(&r.op);
		if (!before)
			n_send(fd[1], out, n);
		sent += n;
		TURN_UNTIL(l, !r.armed);
		if (r.res == IO_ECANCELED) {
			canceled++;
			CHECK(!pooled || r.op.u.pool.n == 0);
			continue;
		}
		CHECK(r.res > 0);
		if (pooled)
			t_pool_take(&r, buf);
		CHECK(t_pattern_ok(17, got, buf, (size_t)r.res));
		got += (uint64_t)r.res;
	}
	while (got < sent) {
		t_recv(&r, &a, buf, sizeof buf);
		TURN_UNTIL(l, !r.armed);
		CHECK(r.res > 0);
		CHECK(t_pattern_ok(17, got, buf, (size_t)r.res));
		got += (uint64_t)r.res;
	}
	t_note("%u of %u receives ended cancelled", canceled, (unsigned)ROUNDS);
	CHECK_EQ(got, sent);
	CHECK_EQ(io_pool_stats(pool).lent, 0);
	t_close(&a);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(cancel_racing_data_loses_no_byte, "C17 C18 C19")
{
	race(false, false);
	race(false, true);
}

CASE(cancel_racing_data_loses_no_byte_of_a_pool_receive, "C17 C18 C26")
{
	race(true, false);
	race(true, true);
}

static void
cancel_other(struct t_op *o)
{
	io_cancel(o->arg);
}

/* Two results in one turn: the first cancels the second, which keeps its result or its bytes. */
CASE(cancel_from_another_op_s_callback_in_the_same_batch_loses_nothing, "C17 C19")
{
	struct io_loop *l = t_loop();
	struct t_sock s[2];
	io_fd fa[2], fb[2];
	char buf[2][4];

	n_pair(fa);
	n_pair(fb);
	t_adopt(l, &s[0], fa[0]);
	t_adopt(l, &s[1], fb[0]);
	for (int i = 0; i < 200; i++) {
		struct t_op o[2] = { { .then = cancel_other, .arg = &o[1].op },
		    { .then = cancel_other, .arg = &o[0].op } };

		for (int k = 0; k < 2; k++)
			t_recv(&o[k], &s[k], buf[k], 4);
		t_turn(l, false);
		n_send(fa[1], "aa", 2);
		n_send(fb[1], "bb", 2);
		TURN_UNTIL(l, !o[0].armed && !o[1].armed);
		for (int k = 0; k < 2; k++) {
			if (o[k].res == IO_ECANCELED) {
				o[k].then = NULL;
				t_recv(&o[k], &s[k], buf[k], 4);
				TURN_UNTIL(l, !o[k].armed);
			}
			CHECK_EQ(o[k].res, 2);
			CHECK(memcmp(buf[k], k == 0 ? "aa" : "bb", 2) == 0);
		}
	}
	t_close(&s[0]);
	t_close(&s[1]);
	t_loop_end(l);
	n_close(fa[1]);
	n_close(fb[1]);
}

CASE(op_restarted_right_after_a_cancelled_run_gets_the_next_data, "C17 C19")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 }, r2 = { 0 };
	char buf[2][8];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (int i = 0; i < 300; i++) {
		/* Alternate ops, so that an address that the kernel remembers would show. */
		struct t_op *x = i % 2 ? &r : &r2;

		t_recv(x, &a, buf[0], 8);
		t_turn(l, false);
		io_cancel(&x->op);
		TURN_UNTIL(l, !x->armed);
		x = i % 3 ? &r : &r2;
		t_recv(x, &a, buf[1], 8);
		t_turn(l, false);
		n_send(fd[1], "12345678", 8);
		TURN_UNTIL(l, !x->armed);
		CHECK_EQ(x->res, 8);
		CHECK(memcmp(buf[1], "12345678", 8) == 0);
	}
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

/* SPDX-License-Identifier: ISC */
/*
 * C7, C18, C19: op and buffers are the loop's from the start until the final
 * callback begins, and not a moment longer.
 */
#include "suite.h"

CASE(receive_writes_inside_its_buffer_only, "C7")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	struct { char before[16], buf[10], after[16]; } m;
	static char stream[1000];
	int64_t at = 0;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_pattern(7, 0, stream, sizeof stream);
	n_send(fd[1], stream, sizeof stream);
	while (at < (int64_t)sizeof stream) {
		memset(&m, 0x5a, sizeof m);
		t_recv(&r, &a, m.buf, sizeof m.buf);
		TURN_UNTIL(l, !r.armed);
		CHECK(r.res > 0 && r.res <= (int)sizeof m.buf);
		for (size_t i = 0; i < 16; i++)
			CHECK(m.before[i] == 0x5a && m.after[i] == 0x5a);
		CHECK(t_pattern_ok(7, (uint64_t)at, m.buf, (size_t)r.res));
		at += r.res;
	}
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

/* The buffer is overwritten as soon as the send has ended: nothing may read it any more. */
CASE(send_buffer_is_free_after_the_final_callback, "C7 C19")
{
	enum { CHUNK = 100000, TIMES = 30 };
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	static char out[CHUNK], in[CHUNK];
	uint64_t sent = 0, got = 0;
	long n;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	while (sent < CHUNK * TIMES) {
		t_pattern(8, sent, out, CHUNK);
		t_send(&s, &a, out, CHUNK);
		while (s.armed) {
			t_turn(l, false);
			if ((n = n_try_recv(fd[1], in, CHUNK)) > 0) {
				CHECK(t_pattern_ok(8, got, in, (size_t)n));
				got += (uint64_t)n;
			}
		}
		memset(out, 0xee, CHUNK);
		CHECK(s.res > 0);
		sent += (uint64_t)s.res;
	}
	CHECK_EQ(io_shutdown(&a.s), 0);
	while ((n = n_recv(fd[1], in, CHUNK, NULL)) > 0) {
		CHECK(t_pattern_ok(8, got, in, (size_t)n));
		got += (uint64_t)n;
	}
	CHECK_EQ(got, sent);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(cancelled_receive_writes_nothing_afterwards, "C18 C19 C17")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[8], other[8];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (int i = 0; i < 20; i++) {
		t_recv(&r, &a, buf, sizeof buf);
		t_turn(l, false);
		io_cancel(&r.op);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, IO_ECANCELED);
		memset(buf, 0x11, sizeof buf);
		n_send(fd[1], "new data", 8);
		t_turn_for_ms(l, 2);
		for (size_t k = 0; k < sizeof buf; k++)
			CHECK(buf[k] == 0x11);
		/* The bytes are still there, for the next receive. */
		t_recv(&r, &a, other, sizeof other);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, 8);
		CHECK(memcmp(other, "new data", 8) == 0);
	}
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(cancelled_pool_receive_takes_nothing_and_loses_nothing, "C17 C18 C26")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 8, 0);
	struct t_sock a;
	struct t_op r = { 0 };
	static char in[IO_RECV_BYTES_MAX];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (int i = 0; i < 20; i++) {
		t_recv_pool(&r, &a, pool, 0);
		t_turn(l, false);
		io_cancel(&r.op);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, IO_ECANCELED);
		CHECK_EQ(r.op.u.pool.n, 0);
		CHECK_EQ(io_pool_stats(pool).lent, 0);
		n_send(fd[1], "new data", 8);
		t_turn_for_ms(l, 2);
		CHECK_EQ(io_pool_stats(pool).lent, 0);
		t_recv_pool(&r, &a, pool, 0);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(t_pool_take(&r, in), 8);
		CHECK(memcmp(in, "new data", 8) == 0);
	}
	t_close(&a);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(fd[1]);
}

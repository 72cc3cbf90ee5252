/* SPDX-License-Identifier: ISC */
/* C11: bytes, or 0 at an orderly end, again if asked again; bytes before a FIN come first. */
#include "suite.h"

CASE(bytes_before_a_fin_come_before_the_end, "C11")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[4];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	n_send(fd[1], "abcdefghij", 10);
	n_close(fd[1]);
	for (int i = 0; i < 3; i++) {
		t_recv(&r, &a, buf, sizeof buf);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, i < 2 ? 4 : 2);
		CHECK(memcmp(buf, &"abcdefghij"[4 * i], (size_t)r.res) == 0);
	}
	for (int i = 0; i < 3; i++) {
		t_recv(&r, &a, buf, sizeof buf);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, 0);
	}
	t_close(&a);
	t_loop_end(l);
}

CASE(end_that_arrives_while_a_receive_waits_ends_it_with_0, "C11")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[4];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_recv(&r, &a, buf, sizeof buf);
	t_turn_for_ms(l, 5);
	CHECK(r.armed);
	n_shutdown(fd[1]);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 0);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(pool_receive_gives_bytes_then_the_end_twice, "C11 C26")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 16, 0);
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[IO_RECV_BYTES_MAX];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	n_send(fd[1], "some bytes", 10);
	n_close(fd[1]);
	t_recv_pool(&r, &a, pool, 0);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(t_pool_take(&r, buf), 10);
	CHECK(memcmp(buf, "some bytes", 10) == 0);
	for (int i = 0; i < 3; i++) {
		t_recv_pool(&r, &a, pool, 0);
		TURN_UNTIL(l, !r.armed);
		CHECK_EQ(r.res, 0);
		CHECK_EQ(r.op.u.pool.n, 0);
		CHECK_EQ(io_pool_stats(pool).lent, 0);
	}
	t_close(&a);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
}

CASE(long_stream_arrives_whole_and_in_order, "C11")
{
	enum { BYTES = 3000000 };
	struct io_loop *l = t_loop();
	struct t_sock a, b;
	struct t_op r = { 0 }, s = { 0 };
	static char out[BYTES], in[70000];
	size_t sent = 0;
	struct t_rand rnd = { 11 };
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_adopt(l, &b, fd[1]);
	t_pattern(1, 0, out, sizeof out);
	while (r.total < BYTES) {
		int64_t before = r.total;

		if (!s.armed && (sent = (size_t)s.total) < BYTES)
			t_send(&s, &b, out + sent, BYTES - sent);
		t_recv(&r, &a, in, 1 + t_rand_below(&rnd, sizeof in - 1));
		TURN_UNTIL(l, !r.armed);
		CHECK(r.res > 0);
		CHECK(t_pattern_ok(1, (uint64_t)before, in, (size_t)r.res));
	}
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(s.total, BYTES);
	t_close(&a);
	t_close(&b);
	t_loop_end(l);
}

CASE(reset_by_the_peer_ends_a_receive_with_reset, "C10 C11")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[16];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_recv(&r, &a, buf, sizeof buf);
	t_turn(l, false);
	n_reset(fd[1]);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, IO_ERESET);
	CHECK(r.syserr != 0);
	t_close(&a);
	t_loop_end(l);
}

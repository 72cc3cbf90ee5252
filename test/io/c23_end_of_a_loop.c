/* SPDX-License-Identifier: ISC */
/* C23: io_loop_free asserts that nothing is armed; close all, turn until io_inflight is 0. */
#include "suite.h"

static struct t_sock a;
static struct t_op o;
static char byte;

CASE_DIES(freeing_a_loop_with_an_armed_op_asserts, "C23")
{
	struct io_loop *l = t_loop();
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_recv(&o, &a, &byte, 1);
	t_turn(l, false);
	t_expect_abort();
	io_loop_free(l);
}

CASE_DIES(freeing_a_loop_with_a_closing_socket_asserts, "C23")
{
	struct io_loop *l = t_loop();

	t_adopt(l, &a, n_tcp(AF_INET));
	t_close(&a);
	t_expect_abort();
	io_loop_free(l);
}

static struct io_loop *the_loop;

static void
free_inside(struct t_op *op)
{
	(void)op;
	io_loop_free(the_loop);
}

CASE_DIES(freeing_a_loop_inside_a_turn_asserts, "C23 C3")
{
	struct io_loop *l = the_loop = t_loop();
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	o.then = free_inside;
	t_send(&o, &a, &byte, 1);
	t_expect_abort();
	TURN_UNTIL(l, !o.armed);
}

static struct io_loop *nest_loop;

static void
turn_inside(struct t_op *op)
{
	(void)op;
	io_loop_turn(nest_loop, false);
}

CASE_DIES(turning_inside_a_callback_asserts, "C3")
{
	struct io_loop *l = nest_loop = t_loop();
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	o.then = turn_inside;
	t_send(&o, &a, &byte, 1);
	t_expect_abort();
	TURN_UNTIL(l, !o.armed);
}

CASE(close_everything_and_turn_until_nothing_is_in_flight, "C23 C20")
{
	enum { N = 200 };
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 64, 0);
	static struct t_sock s[N][2];
	static struct t_op op[N][3];
	static char buf[N][8];
	io_fd fa[2], fb[2];

	for (int i = 0; i < N; i++) {
		n_pair(fa);
		n_pair(fb);
		t_adopt(l, &s[i][0], fa[0]);
		t_adopt(l, &s[i][1], fb[0]);
		if (i % 3 == 0) {
			t_relay(&op[i][0], &s[i][0], &s[i][1], pool, UINT64_MAX, NULL);
			t_relay(&op[i][1], &s[i][1], &s[i][0], pool, UINT64_MAX, NULL);
		} else if (i % 3 == 1) {
			t_recv_pool(&op[i][0], &s[i][0], pool, 0);
			t_poll(&op[i][1], &s[i][1], IO_POLL_IN);
		} else {
			t_recv(&op[i][0], &s[i][0], buf[i], 8);
			t_recv(&op[i][1], &s[i][1], buf[i], 8);
		}
		n_close(fb[1]);
		if (i % 2)
			n_send(fa[1], "data", 4);
		n_close(fa[1]);
	}
	t_turn(l, false);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < 2; k++)
			t_close(&s[i][k]);
	CHECK(io_inflight(l) >= 2 * N);
	t_drain(l);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < 2; k++) {
			CHECK_EQ(s[i][k].closed, 1);
			CHECK(!op[i][k].armed);
			if (i % 3 == 1 && k == 0)
				t_pool_take(&op[i][0], NULL);
		}
	CHECK_EQ(io_pool_stats(pool).lent, 0);
	io_pool_free(pool);
	io_loop_free(l);
}

CASE(loops_come_and_go_without_leaving_descriptors, "C23")
{
	io_fd before, after;

	io_loop_free(t_loop());
	before = n_tcp(AF_INET);
	n_close(before);
	for (int i = 0; i < 20; i++) {
		struct io_loop *l = t_loop();
		struct io_pool *p = t_pool(l, 16384, 8, 1);

		t_turn(l, false);
		io_pool_free(p);
		io_loop_free(l);
	}
	after = n_tcp(AF_INET);
	CHECK_EQ(after, before);
	n_close(after);
}

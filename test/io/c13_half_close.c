/* SPDX-License-Identifier: ISC */
/* C13: after io_shutdown receiving still works; C22: it asserts that no write-side op is armed. */
#include "suite.h"

CASE(receiving_goes_on_after_shutdown, "C13")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 }, s = { 0 };
	char buf[32];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_recv(&r, &a, buf, sizeof buf);
	t_send(&s, &a, "request", 7);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(io_shutdown(&a.s), 0);
	n_recv_all(fd[1], buf + 20, 7);
	CHECK(n_eof(fd[1]));
	t_turn_for_ms(l, 5);
	CHECK(r.armed);
	n_send(fd[1], "answer", 6);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 6);
	CHECK(memcmp(buf, "answer", 6) == 0);
	n_close(fd[1]);
	t_recv(&r, &a, buf, sizeof buf);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 0);
	t_close(&a);
	t_loop_end(l);
}

CASE(sending_goes_on_after_the_peer_s_shutdown, "C13 C11")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 }, s = { 0 };
	char buf[32];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	n_shutdown(fd[1]);
	t_recv(&r, &a, buf, sizeof buf);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 0);
	t_send(&s, &a, "upload", 6);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(s.res, 6);
	n_recv_all(fd[1], buf, 6);
	t_close(&a);
	t_loop_end(l);
	CHECK(n_eof(fd[1]));
	n_close(fd[1]);
}

static struct t_op op;
static struct t_sock a, b;
static char big[4 * 1024 * 1024];

CASE_DIES(shutdown_with_an_armed_send_asserts, "C22")
{
	struct io_loop *l = t_loop();
	io_fd fd[2];

	n_pair_buffers(fd, 16384, 16384);
	t_adopt(l, &a, fd[0]);
	t_send(&op, &a, big, sizeof big);
	t_expect_abort();
	io_shutdown(&a.s);
}

CASE_DIES(shutdown_of_a_relay_s_target_asserts, "C22")
{
	struct io_loop *l = t_loop();
	io_fd fa[2], fb[2];

	n_pair(fa);
	n_pair(fb);
	t_adopt(l, &a, fa[0]);
	t_adopt(l, &b, fb[0]);
	t_relay(&op, &a, &b, t_pool(l, 16384, 4, 0), UINT64_MAX, NULL);
	t_turn(l, false);
	t_expect_abort();
	io_shutdown(&b.s);
}

CASE_DIES(shutdown_of_a_closing_socket_asserts, "C22 C21")
{
	struct io_loop *l = t_loop();

	t_adopt(l, &a, n_tcp(AF_INET));
	t_close(&a);
	t_expect_abort();
	io_shutdown(&a.s);
}

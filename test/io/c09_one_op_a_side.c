/* SPDX-License-Identifier: ISC */
/* C9: at most one read-side and one write-side op a socket; a second asserts. */
#include "suite.h"

struct world {
	struct io_loop	*l;
	struct io_pool	*pool;
	struct t_sock	 a, b;
	struct t_op	 x, y, z;
	io_fd		 pa[2], pb[2];
	char		 buf[64];
};

static struct world w;

static void
setup(void)
{
	memset(&w, 0, sizeof w);
	w.l = t_loop();
	w.pool = t_pool(w.l, 16384, 8, 0);
	n_pair(w.pa);
	n_pair(w.pb);
	t_adopt(w.l, &w.a, w.pa[0]);
	t_adopt(w.l, &w.b, w.pb[0]);
}

CASE_DIES(second_receive_asserts, "C9")
{
	setup();
	t_recv(&w.x, &w.a, w.buf, 1);
	t_expect_abort();
	t_recv(&w.y, &w.a, w.buf, 1);
}

CASE_DIES(second_pool_receive_asserts, "C9")
{
	setup();
	t_recv_pool(&w.x, &w.a, w.pool, 0);
	t_turn(w.l, false);
	t_expect_abort();
	t_recv(&w.y, &w.a, w.buf, 1);
}

CASE_DIES(second_send_asserts, "C9")
{
	setup();
	t_send(&w.x, &w.a, w.buf, 1);
	t_expect_abort();
	t_send(&w.y, &w.a, w.buf, 1);
}

CASE_DIES(poll_for_reading_beside_a_receive_asserts, "C9")
{
	setup();
	t_recv(&w.x, &w.a, w.buf, 1);
	t_expect_abort();
	t_poll(&w.y, &w.a, IO_POLL_IN);
}

CASE_DIES(poll_for_writing_beside_a_send_asserts, "C9")
{
	setup();
	t_send(&w.x, &w.a, w.buf, 1);
	t_expect_abort();
	t_poll(&w.y, &w.a, IO_POLL_OUT);
}

CASE_DIES(poll_for_both_takes_both_sides, "C9")
{
	setup();
	t_poll(&w.x, &w.a, IO_POLL_IN | IO_POLL_OUT);
	t_expect_abort();
	t_send(&w.y, &w.a, w.buf, 1);
}

CASE_DIES(relay_takes_the_read_side_of_src, "C9")
{
	setup();
	t_relay(&w.x, &w.a, &w.b, w.pool, UINT64_MAX, NULL);
	t_expect_abort();
	t_recv(&w.y, &w.a, w.buf, 1);
}

CASE_DIES(relay_takes_the_write_side_of_dst, "C9")
{
	setup();
	t_relay(&w.x, &w.a, &w.b, w.pool, UINT64_MAX, NULL);
	t_expect_abort();
	t_send(&w.y, &w.b, w.buf, 1);
}

CASE_DIES(relay_into_a_socket_that_is_sending_asserts, "C9")
{
	setup();
	t_send(&w.x, &w.b, w.buf, 1);
	t_expect_abort();
	t_relay(&w.y, &w.a, &w.b, w.pool, UINT64_MAX, NULL);
}

CASE_DIES(starting_an_armed_op_again_asserts, "C9")
{
	setup();
	t_recv(&w.x, &w.a, w.buf, 1);
	w.x.armed = false;
	t_expect_abort();
	t_recv(&w.x, &w.b, w.buf, 1);
}

CASE(both_sides_of_a_socket_work_at_once, "C9")
{
	char c = 'x';

	setup();
	/* Receive and send; then poll for one side beside an op of the other. */
	t_recv(&w.x, &w.a, w.buf, sizeof w.buf);
	t_send(&w.y, &w.a, &c, 1);
	TURN_UNTIL(w.l, !w.y.armed);
	CHECK(w.x.armed);
	t_poll(&w.y, &w.a, IO_POLL_OUT);
	TURN_UNTIL(w.l, !w.y.armed);
	CHECK(w.x.armed);
	n_send(w.pa[1], "yz", 2);
	TURN_UNTIL(w.l, !w.x.armed);
	CHECK_EQ(w.x.res, 2);
	t_poll(&w.x, &w.a, IO_POLL_IN);
	t_send(&w.y, &w.a, &c, 1);
	TURN_UNTIL(w.l, !w.y.armed);
	CHECK(w.x.armed);
	n_send(w.pa[1], "z", 1);
	TURN_UNTIL(w.l, !w.x.armed);
	t_close(&w.a);
	t_close(&w.b);
	t_drain(w.l);
	io_pool_free(w.pool);
	t_loop_end(w.l);
	n_close(w.pa[1]);
	n_close(w.pb[1]);
}

CASE(relays_run_both_ways_between_two_sockets, "C9 C29")
{
	char buf[8];

	setup();
	t_relay(&w.x, &w.a, &w.b, w.pool, UINT64_MAX, NULL);
	t_relay(&w.y, &w.b, &w.a, w.pool, UINT64_MAX, NULL);
	n_send(w.pa[1], "ping", 4);
	TURN_UNTIL(w.l, w.x.op.u.relay.moved == 4);
	n_recv_all(w.pb[1], buf, 4);
	CHECK(memcmp(buf, "ping", 4) == 0);
	n_send(w.pb[1], "pong!", 5);
	TURN_UNTIL(w.l, w.y.op.u.relay.moved == 5);
	n_recv_all(w.pa[1], buf, 5);
	CHECK(memcmp(buf, "pong!", 5) == 0);
	t_close(&w.a);
	t_close(&w.b);
	t_drain(w.l);
	CHECK_EQ(w.x.finals, 1);
	CHECK_EQ(w.y.finals, 1);
	io_pool_free(w.pool);
	t_loop_end(w.l);
	n_close(w.pa[1]);
	n_close(w.pb[1]);
}

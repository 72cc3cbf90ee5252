/* SPDX-License-Identifier: ISC */
/* C9, C8: io_poll is one-shot, takes the sides of its events, and tells IN, OUT and HUP. */
#include "suite.h"

static char big[1 << 20];

static void
stuff(io_fd fd)
{
	/* Twice, with a pause: the peer's window may open once more, and a delayed ACK takes 40 ms. */
	for (int i = 0; i < 2; i++) {
		while (n_try_send(fd, big, sizeof big) > 0)
			;
		n_sleep_ms(50);
	}
}

CASE(poll_tells_when_there_is_something_to_read, "C9 C8")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op p = { 0 };
	char buf[8];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	for (unsigned i = 1; i <= 10; i++) {
		t_poll(&p, &a, IO_POLL_IN);
		t_turn_for_ms(l, 2);
		CHECK(p.armed);
		n_send(fd[1], "x", 1);
		TURN_UNTIL(l, !p.armed);
		CHECK(p.res >= 0);
		CHECK(p.op.u.poll.got & IO_POLL_IN);
		CHECK(!(p.op.u.poll.got & IO_POLL_OUT));
		/* The bytes are still there; once said, it is silent. */
		t_turn_for_ms(l, 2);
		CHECK_EQ(p.calls, 2 * i - 1);
		/* Level, not edge: asked again, it says so again. */
		t_poll(&p, &a, IO_POLL_IN);
		TURN_UNTIL(l, !p.armed);
		CHECK_EQ(n_try_recv(fd[0], buf, sizeof buf), 1);
	}
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(poll_tells_when_there_is_room_to_write, "C9")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op p = { 0 };
	io_fd fd[2];

	n_pair_buffers(fd, 16384, 16384);
	t_adopt(l, &a, fd[0]);
	t_poll(&p, &a, IO_POLL_OUT);
	TURN_UNTIL(l, !p.armed);
	CHECK_EQ(p.op.u.poll.got, IO_POLL_OUT);
	stuff(fd[0]);
	t_poll(&p, &a, IO_POLL_OUT);
	t_turn_for_ms(l, 10);
	CHECK(p.armed);
	while (p.armed) {
		(void)n_try_recv(fd[1], big, sizeof big);
		t_turn(l, false);
	}
	CHECK(p.op.u.poll.got & IO_POLL_OUT);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(poll_for_both_tells_what_there_is, "C9")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op p = { 0 };
	io_fd fd[2];

	n_pair_buffers(fd, 16384, 16384);
	t_adopt(l, &a, fd[0]);
	stuff(fd[0]);
	t_poll(&p, &a, IO_POLL_IN | IO_POLL_OUT);
	t_turn_for_ms(l, 5);
	CHECK(p.armed);
	n_send(fd[1], "x", 1);
	TURN_UNTIL(l, !p.armed);
	/* The byte's segment acknowledges too and may free room: OUT is allowed. */
	CHECK(p.op.u.poll.got & IO_POLL_IN);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(poll_tells_hang_up_and_errors_unasked, "C9")
{
	struct io_loop *l = t_loop();

	for (int i = 0; i < 6; i++) {
		struct t_sock a;
		struct t_op p = { 0 };
		io_fd fd[2];

		n_pair_buffers(fd, 16384, 16384);
		t_adopt(l, &a, fd[0]);
		if (i % 2)
			stuff(fd[0]);
		t_poll(&p, &a, i % 2 ? IO_POLL_OUT : IO_POLL_IN);
		if (i < 4)
			t_turn_for_ms(l, 2);
		n_reset(fd[1]);
		TURN_UNTIL(l, !p.armed);
		CHECK(p.res >= 0);
		CHECK(p.op.u.poll.got & IO_POLL_HUP);
		t_close_wait(&a);
	}
	t_loop_end(l);
}

CASE(poll_for_reading_tells_the_end_of_the_stream, "C9 C11")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op p = { 0 };
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_poll(&p, &a, IO_POLL_IN);
	t_turn(l, false);
	n_shutdown(fd[1]);
	TURN_UNTIL(l, !p.armed);
	CHECK(p.op.u.poll.got & IO_POLL_IN);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

/* What c-ares does: poll for writing tells how a foreign connect(2) went. */
CASE(poll_for_writing_tells_the_end_of_a_connect, "C9")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op p = { 0 };
	struct n_addr at;
	io_fd lfd = n_listen("127.0.0.1", 4, &at), fd;

	fd = n_tcp(AF_INET);
	n_nonblock(fd, true);
	(void)connect(fd, n_sa(&at), at.len);
	t_adopt(l, &a, fd);
	t_poll(&p, &a, IO_POLL_OUT);
	TURN_UNTIL(l, !p.armed);
	CHECK(p.op.u.poll.got & IO_POLL_OUT);
	t_close(&a);
	t_loop_end(l);
	n_close(lfd);
}

CASE(poll_on_a_datagram_socket, "C9")
{
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op p = { 0 };
	struct n_addr at;
	char buf[8];
	io_fd fd = n_udp("127.0.0.1", &at), peer = n_udp("127.0.0.1", NULL);

	t_adopt(l, &u, fd);
	for (int i = 0; i < 50; i++) {
		t_poll(&p, &u, IO_POLL_IN);
		if (i % 2)
			t_turn(l, false);
		n_sendto(peer, "q", 1, &at);
		TURN_UNTIL(l, !p.armed);
		CHECK(p.op.u.poll.got & IO_POLL_IN);
		CHECK_EQ(n_try_recv(fd, buf, sizeof buf), 1);
	}
	t_close(&u);
	t_loop_end(l);
	n_close(peer);
}

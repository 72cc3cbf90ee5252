/* SPDX-License-Identifier: ISC */
/*
 * C15: after io_cancel a multishot accept delivers what had completed, then its
 * final; to stop without loss: cancel, final, accept(2) until EAGAIN, close.
 * Only io_close discards, and closes what it discards.
 */
#include "suite.h"

/* Connections come at every moment around the cancel; each is accounted for. */
CASE(cancel_of_accept_loses_no_connection, "C15 C17")
{
	struct io_loop *l = t_loop();
	struct t_rand rnd = { 15 };

	for (int round = 0; round < 60; round++) {
		struct t_sock lst;
		struct t_op acc = { 0 };
		struct n_addr at;
		unsigned before = t_rand_below(&rnd, 8), after = t_rand_below(&rnd, 4);
		unsigned turns = t_rand_below(&rnd, 3), n = 0, rest = 0;
		io_fd c[16], fd, lfd = n_listen("127.0.0.1", 32, &at);

		t_adopt(l, &lst, lfd);
		t_accept(&acc, &lst);
		if (t_rand_below(&rnd, 2))
			t_turn(l, false);
		while (n < before)
			c[n++] = n_connect(&at);
		while (turns-- > 0)
			t_turn(l, false);
		io_cancel(&acc.op);
		while (n < before + after)
			c[n++] = n_connect(&at);
		TURN_UNTIL(l, acc.finals == 1);
		CHECK(acc.res == IO_ECANCELED);
		while ((fd = n_try_accept(lfd)) != IO_FD_NONE) {
			n_close(fd);
			rest++;
		}
		if (acc.nfds + rest != n)
			FAIL("round %d: %u connections, %u accepted, %u left", round, n,
			    acc.nfds, rest);
		t_close_wait(&lst);
		t_fds_close(&acc);
		while (n > 0)
			n_close(c[--n]);
	}
	t_loop_end(l);
}

struct stopper {
	struct t_op	 acc;
	unsigned	 stop_after;
};

static void
stop_soon(struct t_op *o)
{
	struct stopper *s = io_container_of(o, struct stopper, acc);

	if (o->op.more && o->calls == s->stop_after)
		io_cancel(&o->op);
}

/* The usual place to stop is inside an accept callback (a limit was reached). */
CASE(cancel_inside_an_accept_callback_loses_no_connection, "C15")
{
	for (unsigned turn_max = 1; turn_max <= 64; turn_max *= 4) {
		struct io_loop *l = t_loop_turn_max(turn_max);
		struct t_sock lst;
		struct stopper s = { .acc.then = stop_soon, .stop_after = 3 };
		struct n_addr at;
		unsigned rest = 0;
		io_fd c[10], fd, lfd = n_listen("127.0.0.1", 32, &at);

		for (int i = 0; i < 10; i++)
			c[i] = n_connect(&at);
		t_adopt(l, &lst, lfd);
		t_accept(&s.acc, &lst);
		TURN_UNTIL(l, s.acc.finals == 1);
		CHECK_EQ(s.acc.res, IO_ECANCELED);
		CHECK(s.acc.nfds >= 3);
		while ((fd = n_try_accept(lfd)) != IO_FD_NONE) {
			n_close(fd);
			rest++;
		}
		CHECK_EQ(s.acc.nfds + rest, 10);
		t_close_wait(&lst);
		t_fds_close(&s.acc);
		for (int i = 0; i < 10; i++)
			n_close(c[i]);
		t_loop_end(l);
	}
}

#ifndef _WIN32
/* Whoever is over a limit waits, to be served later: he is not taken out to be thrown away. */
CASE(accept_takes_no_more_than_its_callback_wants, "C15")
{
	for (unsigned turn_max = 1; turn_max <= 64; turn_max *= 4) {
		struct io_loop *l = t_loop_turn_max(turn_max);
		struct t_sock lst;
		struct stopper s = { .acc.then = stop_soon, .stop_after = 3 };
		struct n_addr at;
		io_fd c[30];

		t_adopt(l, &lst, n_listen("127.0.0.1", 64, &at));
		t_accept(&s.acc, &lst);
		t_turn(l, false);
		for (int i = 0; i < 30; i++)
			c[i] = n_connect(&at);
		for (unsigned took = 3; took <= 30; took += 3) {
			s.stop_after = s.acc.calls + 3;
			if (!s.acc.armed)
				t_accept(&s.acc, &lst);
			TURN_UNTIL(l, !s.acc.armed);
			CHECK_EQ(s.acc.nfds, took);
		}
		t_close_wait(&lst);
		t_fds_close(&s.acc);
		for (int i = 0; i < 30; i++)
			n_close(c[i]);
		t_loop_end(l);
	}
}
#else
CASE_NOT_HERE(accept_takes_no_more_than_its_callback_wants, "C15", "AcceptEx takes what it was asked for in advance")
#endif

/* A limit on accepted connections by cancel and re-arm serves everybody in the end. */
CASE(accept_cancelled_and_rearmed_many_times_serves_everybody, "C15 C14")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_addr at;
	io_fd c[100];

	t_adopt(l, &lst, n_listen("127.0.0.1", 128, &at));
	for (unsigned i = 0; i < 100; i++) {
		c[i] = n_connect(&at);
		t_accept(&acc, &lst);
		if (i % 3 == 0)
			t_turn(l, false);
		io_cancel(&acc.op);
		TURN_UNTIL(l, !acc.armed);
	}
	t_accept(&acc, &lst);
	TURN_UNTIL(l, acc.nfds == 100);
	for (int i = 0; i < 100; i++)
		n_close(c[i]);
	t_fds_close(&acc);
	t_close(&lst);
	t_loop_end(l);
}

struct closer {
	struct t_op	 acc;
	struct t_sock	*lst;
};

static void
close_at_once(struct t_op *o)
{
	struct closer *c = io_container_of(o, struct closer, acc);

	if (o->op.more && o->calls == 1)
		t_close(c->lst);
}

CASE(close_of_a_listener_closes_what_it_discards, "C15 C20 C22")
{
	for (int round = 0; round < 3; round++) {
		struct io_loop *l = t_loop();
		struct t_sock lst;
		struct closer cl = { .acc.then = close_at_once, .lst = &lst };
		struct n_addr at;
		io_fd c[10], extra = IO_FD_NONE;
		unsigned i, delivered;

		if (round == 1)
			cl.acc.then = NULL;
		t_adopt(l, &lst, n_listen("127.0.0.1", 32, &at));
		if (round != 2)
			t_accept(&cl.acc, &lst);
		for (i = 0; i < 10; i++)
			c[i] = n_connect(&at);
		if (round == 2)
			t_accept(&cl.acc, &lst);
		if (round == 1)
			t_close(&lst);
		TURN_UNTIL(l, lst.closed == 1);
		CHECK_EQ(cl.acc.finals, 1);
		CHECK_EQ(cl.acc.res, IO_ECANCELED);
		/* Nobody listens any more. */
		CHECK(n_try_connect(&at, &extra) != 0);
		/* Delivered ones are ours to close; after that each client sees an end. */
		delivered = cl.acc.nfds;
		t_fds_close(&cl.acc);
		for (i = 0; i < 10; i++) {
			char b;
			long n = n_recv(c[i], &b, 1, NULL);

			if (n > 0 || (n < 0 && n_try_recv(c[i], &b, 1) == -1))
				FAIL("client %u of 10 (%u delivered) hangs on", i, delivered);
			n_close(c[i]);
		}
		t_loop_end(l);
	}
}

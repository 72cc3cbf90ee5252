/* SPDX-License-Identifier: ISC */
/*
 * C20: io_close cancels every armed op, delivers their finals, releases the
 * fd, then calls back, always later; memory may go there.  C21, C22: what must
 * not be done to a closing socket, and what the peer has seen by then.
 */
#include "suite.h"

CASE(close_of_an_idle_socket_calls_back_once_and_later, "C20")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	CHECK(io_sock_open(&a.s));
	t_close(&a);
	CHECK(!io_sock_open(&a.s));
	CHECK_EQ(a.closed, 0);
	CHECK_EQ(io_inflight(l), 1);
	TURN_UNTIL(l, a.closed == 1);
	CHECK_EQ(io_inflight(l), 0);
	CHECK(!n_fd_open(fd[0]));
	CHECK(n_eof(fd[1]));
	t_turn_for_ms(l, 5);
	CHECK_EQ(a.closed, 1);
	t_loop_end(l);
	n_close(fd[1]);
}

/* ---- finals, then the close callback, then nothing ---- */

struct ender {
	struct t_sock	 s;
	struct t_op	 rd, wr;
	io_fd		 fd;
	unsigned	 finals;
	bool		 closed, fd_was_open;
	char		 in[16];
};

static char big[4 * 1024 * 1024];

static void
ender_final(struct t_op *o)
{
	struct ender *e = o->arg;

	if (e->closed)
		FAIL("a final callback after the close callback");
	if (!o->op.more)
		e->finals++;
}

static void
ender_closed(struct t_sock *s)
{
	struct ender *e = io_container_of(s, struct ender, s);

	if (e->rd.armed || e->wr.armed)
		FAIL("the close callback comes before a final one");
	e->closed = true;
	e->fd_was_open = n_fd_open(e->fd);
}

static void
ender_init(struct io_loop *l, struct ender *e, io_fd fd)
{
	memset(e, 0, sizeof *e);
	t_adopt(l, &e->s, fd);
	e->fd = fd;
	e->s.then = ender_closed;
	e->rd.arg = e->wr.arg = e;
	e->rd.then = e->wr.then = ender_final;
}

CASE(close_with_both_sides_armed_gives_two_finals_then_the_callback, "C20 C8")
{
	struct io_loop *l = t_loop();

	for (int round = 0; round < 20; round++) {
		struct ender e;
		io_fd fd[2];

		n_pair_buffers(fd, 16384, 16384);
		ender_init(l, &e, fd[0]);
		t_recv(&e.rd, &e.s, e.in, sizeof e.in);
		t_send(&e.wr, &e.s, big, sizeof big);
		for (int i = 0; i < round % 4; i++)
			t_turn(l, false);
		/* On copy paths sends may have ended short: fill up. */
		while (round % 4 > 0 && !e.wr.armed) {
			t_send(&e.wr, &e.s, big, sizeof big);
			t_turn_for_ms(l, 2);
		}
		t_close(&e.s);
		CHECK(e.rd.armed);
		TURN_UNTIL(l, e.closed);
		CHECK_EQ(e.rd.res, IO_ECANCELED);
		CHECK(e.wr.res > 0 || e.wr.res == IO_ECANCELED);
		CHECK_EQ(e.rd.finals, 1);
		CHECK(!e.fd_was_open);
		CHECK_EQ(io_inflight(l), 0);
		t_turn_for_ms(l, 2);
		CHECK_EQ(e.rd.calls, 1);
		n_close(fd[1]);
	}
	t_loop_end(l);
}

CASE(close_with_an_armed_op_of_each_kind, "C20 C26")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 16, 0);
	struct io_dgram v[4];
	struct n_addr at;

	for (int round = 0; round < 12; round++) {
		struct ender e;
		io_fd fd[2];
		int kind = round % 6;

		n_pair(fd);
		if (kind == 0)
			ender_init(l, &e, n_listen("127.0.0.1", 4, &at));
		else if (kind == 1)
			ender_init(l, &e, n_udp("127.0.0.1", NULL));
		else
			ender_init(l, &e, fd[0]);
		if (kind == 0)
			t_accept(&e.rd, &e.s);
		else if (kind == 1)
			t_recv_batch(&e.rd, &e.s, pool, v, 4);
		else if (kind == 2)
			t_recv_pool(&e.rd, &e.s, pool, 0);
		else if (kind == 3)
			t_poll(&e.rd, &e.s, IO_POLL_IN);
		else
			t_recv(&e.rd, &e.s, e.in, sizeof e.in);
		if (kind == 5)
			t_poll(&e.wr, &e.s, IO_POLL_OUT);
		if (round >= 6)
			t_turn_for_ms(l, 2);
		t_close(&e.s);
		TURN_UNTIL(l, e.closed);
		CHECK_EQ(e.rd.finals, 1);
		CHECK_EQ(e.rd.res, IO_ECANCELED);
		CHECK(!e.fd_was_open);
		CHECK_EQ(io_pool_stats(pool).lent, 0);
		if (kind < 2)
			n_close(fd[0]);
		n_close(fd[1]);
		t_fds_close(&e.rd);
	}
	io_pool_free(pool);
	t_loop_end(l);
}

/* ---- memory goes in the close callback; stale events of the same batch ---- */

struct conn {
	struct t_sock	 s;
	struct t_op	 r;
	struct conn	*victim;
	struct conn	**me;
	unsigned	*freed;
	char		 buf[8];
};

static void
conn_free(struct t_sock *s)
{
	struct conn *c = io_container_of(s, struct conn, s);

	*c->me = NULL;
	(*c->freed)++;
	memset(c, 0xa5, sizeof *c);
	free(c);
}

static void
conn_kill(struct t_op *o)
{
	struct conn *c = io_container_of(o, struct conn, r);

	if (c->victim != NULL && io_sock_open(&c->victim->s.s)) {
		c->victim->victim = NULL;
		t_close(&c->victim->s);
	}
	if (io_sock_open(&c->s.s))
		t_close(&c->s);
}

/* Both have an event in one batch; whose comes first closes the other. */
CASE(callback_closes_another_socket_whose_event_is_in_the_same_batch, "C19 C20")
{
	struct io_loop *l = t_loop();
	unsigned freed = 0;

	for (unsigned i = 0; i < 300; i++) {
		struct conn *c[2];
		io_fd fa[2], fb[2];

		n_pair(fa);
		n_pair(fb);
		for (int k = 0; k < 2; k++) {
			c[k] = calloc(1, sizeof *c[k]);
			t_adopt(l, &c[k]->s, k == 0 ? fa[0] : fb[0]);
			c[k]->s.then = conn_free;
			c[k]->r.then = conn_kill;
			c[k]->me = &c[k];
			c[k]->freed = &freed;
		}
		c[0]->victim = c[1];
		c[1]->victim = c[0];
		for (int k = 0; k < 2; k++)
			t_recv(&c[k]->r, &c[k]->s, c[k]->buf, sizeof c[k]->buf);
		t_turn(l, false);
		n_send(fa[1], "aa", 2);
		if (i % 2)
			n_send(fb[1], "bb", 2);
		else
			n_reset(fb[1]);
		TURN_UNTIL(l, freed == 2 * i + 2);
		n_close(fa[1]);
		if (i % 2)
			n_close(fb[1]);
	}
	t_loop_end(l);
}

static void
closes_in_final(struct t_op *o)
{
	struct ender *e = o->arg;

	e->finals++;
	if (io_sock_open(&e->s.s))
		t_close(&e->s);
}

CASE(close_from_the_final_callback_of_one_side_ends_the_other, "C20")
{
	struct io_loop *l = t_loop();

	for (int i = 0; i < 50; i++) {
		struct ender e;
		io_fd fd[2];

		n_pair_buffers(fd, 16384, 16384);
		ender_init(l, &e, fd[0]);
		e.rd.then = closes_in_final;
		t_recv(&e.rd, &e.s, e.in, sizeof e.in);
		t_send(&e.wr, &e.s, big, sizeof big);
		t_turn(l, false);
		n_send(fd[1], "x", 1);
		TURN_UNTIL(l, e.closed);
		CHECK_EQ(e.rd.calls, 1);
		CHECK(!e.wr.armed && e.wr.finals == 1);
		n_close(fd[1]);
	}
	t_loop_end(l);
}

/* ---- what the peer sees ---- */

CASE(close_with_an_armed_receive_sends_its_fin, "C22")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 }, s = { 0 };
	char buf[16];
	io_fd fd[2];

	for (int i = 0; i < 20; i++) {
		n_pair(fd);
		t_adopt(l, &a, fd[0]);
		t_recv(&r, &a, buf, sizeof buf);
		t_send(&s, &a, "last words", 10);
		TURN_UNTIL(l, !s.armed);
		t_close_wait(&a);
		n_recv_all(fd[1], buf, 10);
		CHECK(memcmp(buf, "last words", 10) == 0);
		CHECK(n_try_recv(fd[1], buf, 1) == 0 || n_eof(fd[1]));
		n_close(fd[1]);
	}
	t_loop_end(l);
}

CASE(fin_comes_after_what_is_in_the_send_queue, "C22 C12")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op s = { 0 };
	static char in[65536];
	uint64_t got = 0;
	long n;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_pattern(22, 0, big, sizeof big);
	t_send(&s, &a, big, 300000);
	while (s.armed) {
		t_turn(l, false);
		if ((n = n_try_recv(fd[1], in, 4096)) > 0) {
			CHECK(t_pattern_ok(22, got, in, (size_t)n));
			got += (uint64_t)n;
		}
	}
	t_close_wait(&a);
	while ((n = n_recv(fd[1], in, sizeof in, NULL)) > 0) {
		CHECK(t_pattern_ok(22, got, in, (size_t)n));
		got += (uint64_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, s.total);
	n_close(fd[1]);
	t_loop_end(l);
}

CASE(close_reset_resets, "C22")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char c;
	io_fd fd[2];

	for (int i = 0; i < 4; i++) {
		n_pair(fd);
		t_adopt(l, &a, fd[0]);
		if (i % 2)
			t_recv(&r, &a, &c, 1);
		t_turn(l, false);
		t_close_reset(&a);
		TURN_UNTIL(l, a.closed == 1);
		CHECK(n_reset_seen(fd[1]));
		n_close(fd[1]);
	}
	t_loop_end(l);
}

CASE(closed_listener_refuses_in_its_close_callback, "C22 C15")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_addr at;
	io_fd c;

	for (int i = 0; i < 6; i++) {
		t_adopt(l, &lst, n_listen("127.0.0.1", 8, &at));
		t_accept(&acc, &lst);
		if (i % 3 > 0) {
			c = n_connect(&at);
			if (i % 3 == 1)
				TURN_UNTIL(l, acc.nfds == 1);
			n_close(c);
		}
		t_close_wait(&lst);
		CHECK(!acc.armed);
		CHECK(n_try_connect(&at, &c) != 0);
		t_fds_close(&acc);
	}
	t_loop_end(l);
}

/* ---- what must not be done ---- */

static struct t_sock a_sock, b_sock;
static struct t_op an_op;
static char byte;

static struct io_loop *
closing(void)
{
	struct io_loop *l = t_loop();
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a_sock, fd[0]);
	t_adopt(l, &b_sock, fd[1]);
	t_close(&a_sock);
	return l;
}

CASE_DIES(receiving_on_a_closing_socket_asserts, "C21")
{
	closing();
	t_expect_abort();
	t_recv(&an_op, &a_sock, &byte, 1);
}

CASE_DIES(sending_on_a_closing_socket_asserts, "C21")
{
	closing();
	t_expect_abort();
	t_send(&an_op, &a_sock, &byte, 1);
}

CASE_DIES(relay_into_a_closing_socket_asserts, "C21")
{
	struct io_loop *l = closing();
	struct io_pool *p = t_pool(l, 16384, 4, 0);

	t_expect_abort();
	t_relay(&an_op, &b_sock, &a_sock, p, UINT64_MAX, NULL);
}

CASE_DIES(closing_twice_asserts, "C21")
{
	closing();
	t_expect_abort();
	t_close(&a_sock);
}

CASE_DIES(closing_again_after_the_callback_asserts, "C21")
{
	struct io_loop *l = closing();

	t_drain(l);
	t_expect_abort();
	t_close(&a_sock);
}

CASE_DIES(starting_in_a_cancelled_final_callback_of_a_closing_socket_asserts, "C21")
{
	struct io_loop *l = t_loop();
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a_sock, fd[0]);
	t_recv(&an_op, &a_sock, &byte, 1);
	t_turn(l, false);
	t_close(&a_sock);
	t_expect_abort();
	TURN_UNTIL(l, !an_op.armed);
	t_recv(&an_op, &a_sock, &byte, 1);
}

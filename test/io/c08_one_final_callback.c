/* SPDX-License-Identifier: ISC */
/*
 * C8: one-shot ops call back once; multishot ones any number of times with
 * more, then once without; then the op is idle and may be restarted or freed.
 */
#include "suite.h"

CASE(one_shot_ops_call_back_exactly_once, "C8")
{
	struct io_loop *l = t_loop();
	struct t_sock a, b;
	struct t_op recv = { 0 }, send = { 0 };
	char buf[100], out[10] = { 0 };
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_adopt(l, &b, fd[1]);
	for (int i = 0; i < 40; i++) {
		t_recv(&recv, &a, buf, sizeof buf);
		t_send(&send, &b, out, sizeof out);
		TURN_UNTIL(l, !recv.armed && !send.armed);
		CHECK_EQ(recv.finals, i + 1);
		CHECK_EQ(recv.calls, i + 1);
		CHECK_EQ(send.finals, i + 1);
		CHECK(!io_armed(&recv.op) && !io_armed(&send.op));
	}
	n_sleep_ms(2);
	t_turn_for_ms(l, 10);
	CHECK_EQ(recv.calls, 40);
	CHECK_EQ(send.calls, 40);
	CHECK_EQ(recv.total, 400);
	t_close(&a);
	t_close(&b);
	t_loop_end(l);
}

CASE(multishot_accept_says_more_and_ends_once, "C8 C14")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_addr at;
	io_fd c[20];

	t_adopt(l, &lst, n_listen("127.0.0.1", 32, &at));
	t_accept(&acc, &lst);
	for (unsigned i = 0; i < 20; i++) {
		c[i] = n_connect(&at);
		if (i % 5 == 4)
			TURN_UNTIL(l, acc.nfds == i + 1);
	}
	CHECK_EQ(acc.calls, 20);
	CHECK_EQ(acc.finals, 0);
	CHECK(io_armed(&acc.op));
	io_cancel(&acc.op);
	TURN_UNTIL(l, acc.finals == 1);
	CHECK_EQ(acc.res, IO_ECANCELED);
	CHECK_EQ(acc.calls, 21);
	t_turn_for_ms(l, 5);
	CHECK_EQ(acc.calls, 21);
	for (int i = 0; i < 20; i++)
		n_close(c[i]);
	t_fds_close(&acc);
	t_close(&lst);
	t_loop_end(l);
}

/* ---- memory may go in the final callback ---- */

struct once {
	struct t_op	 o;
	struct t_sock	*s;
	unsigned	*done;
	char		 buf[32];
};

static void
free_once(struct t_op *o)
{
	struct once *x = io_container_of(o, struct once, o);

	(*x->done)++;
	memset(x, 0xa5, sizeof *x);
	free(x);
}

static struct once *
once_new(struct t_sock *s, unsigned *done)
{
	struct once *x = calloc(1, sizeof *x);

	x->s = s;
	x->done = done;
	x->o.then = free_once;
	return x;
}

/* Every result: data, the end, cancel, an error. */
CASE(op_may_be_freed_in_its_final_callback, "C8 C19")
{
	struct io_loop *l = t_loop();
	unsigned done = 0, want = 0;

	for (int i = 0; i < 60; i++) {
		struct t_sock a;
		struct once *r, *s;
		io_fd fd[2];

		n_pair(fd);
		t_adopt(l, &a, fd[0]);
		r = once_new(&a, &done);
		s = once_new(&a, &done);
		t_recv(&r->o, &a, r->buf, sizeof r->buf);
		t_send(&s->o, &a, s->buf, sizeof s->buf);
		want += 2;
		if (i % 4 == 0)
			n_send(fd[1], "x", 1);
		else if (i % 4 == 1)
			n_reset(fd[1]);
		else if (i % 4 == 2)
			n_shutdown(fd[1]);
		else
			io_cancel(&r->o.op);
		TURN_UNTIL(l, done == want);
		t_close_wait(&a);
		if (i % 4 != 1)
			n_close(fd[1]);
	}
	t_loop_end(l);
}

static void
close_and_free_op(struct t_op *o)
{
	struct once *x = io_container_of(o, struct once, o);

	t_close(x->s);
	free_once(o);
}

CASE(op_closes_its_socket_and_is_freed_in_its_final_callback, "C8 C20")
{
	struct io_loop *l = t_loop();
	unsigned done = 0;

	for (unsigned i = 0; i < 30; i++) {
		struct t_sock a;
		struct once *r;
		io_fd fd[2];

		n_pair(fd);
		t_adopt(l, &a, fd[0]);
		r = once_new(&a, &done);
		r->o.then = close_and_free_op;
		t_recv(&r->o, &a, r->buf, sizeof r->buf);
		n_send(fd[1], "x", 1);
		TURN_UNTIL(l, done == i + 1 && a.closed == 1);
		n_close(fd[1]);
	}
	t_loop_end(l);
}

static void
accept_again(struct t_op *o)
{
	if (!o->op.more && o->finals < 5)
		t_accept(o, o->arg);
}

CASE(multishot_op_restarted_in_its_final_callback_goes_on, "C8")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { .then = accept_again, .arg = &lst };
	struct n_addr at;
	io_fd c;

	t_adopt(l, &lst, n_listen("127.0.0.1", 8, &at));
	t_accept(&acc, &lst);
	for (unsigned i = 1; i <= 4; i++) {
		io_cancel(&acc.op);
		TURN_UNTIL(l, acc.finals == i);
		CHECK(acc.armed);
		c = n_connect(&at);
		TURN_UNTIL(l, acc.nfds == i);
		n_close(c);
	}
	t_close(&lst);
	t_drain(l);
	CHECK_EQ(acc.finals, 5);
	t_fds_close(&acc);
	t_loop_end(l);
}

/* SPDX-License-Identifier: ISC */
/* C1: a loop belongs to one thread; only io_post and io_wake may be called elsewhere. */
#include "suite.h"

struct world {
	struct io_loop	*l;
	struct t_sock	 s;
	struct t_op	 o;
	struct io_timer	 timer;
	struct io_pool	*pool;
	char		 buf[64];
	io_fd		 pair[2];
};

static void
setup(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->l = t_loop();
	n_pair(w->pair);
	t_adopt(w->l, &w->s, w->pair[0]);
	w->pool = t_pool(w->l, 4096, 4, 1);
	t_turn(w->l, false);
}

static void
dies_in_thread(void (*fn)(void *))
{
	struct world w;
	struct n_thread t;

	setup(&w);
	t_expect_abort();
	n_thread(&t, fn, &w);
	n_join(&t);
}

static void
nothing(struct io_loop *l, struct io_timer *t)
{
	(void)l;
	(void)t;
}

static void
do_recv(void *p)
{
	struct world *w = p;
	t_recv(&w->o, &w->s, w->buf, sizeof w->buf);
}

static void
do_send(void *p)
{
	struct world *w = p;
	t_send(&w->o, &w->s, w->buf, sizeof w->buf);
}

static void
do_timer(void *p)
{
	struct world *w = p;
	io_timer_set(w->l, &w->timer, 0, nothing);
}

static void
do_turn(void *p)
{
	struct world *w = p;
	io_loop_turn(w->l, false);
}

static void
do_close(void *p)
{
	struct world *w = p;
	t_close(&w->s);
}

static void
do_get(void *p)
{
	struct world *w = p;
	struct io_buf b;
	io_buf_get(w->pool, 0, &b);
}

CASE_DIES(receiving_from_another_thread_asserts, "C1") { dies_in_thread(do_recv); }
CASE_DIES(sending_from_another_thread_asserts, "C1") { dies_in_thread(do_send); }
CASE_DIES(timer_from_another_thread_asserts, "C1") { dies_in_thread(do_timer); }
CASE_DIES(turning_in_another_thread_asserts, "C1") { dies_in_thread(do_turn); }
CASE_DIES(closing_from_another_thread_asserts, "C1") { dies_in_thread(do_close); }
CASE_DIES(buffers_from_another_thread_assert, "C1") { dies_in_thread(do_get); }

struct echo {
	struct io_loop	*l;		/* made by another thread if not NULL */
	unsigned	 rounds;
	bool		 done;
};

/* Ping-pong over a socket pair, both ends on the loop of this thread. */
static void
echo_thread(void *p)
{
	struct echo *e = p;
	struct io_loop *l = e->l != NULL ? e->l : t_loop();
	struct t_sock a, b;
	struct t_op send = { 0 }, recv = { 0 };
	uint32_t in, out;
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_adopt(l, &b, fd[1]);
	for (unsigned i = 0; i < e->rounds; i++) {
		out = i;
		in = ~i;
		t_recv(&recv, &b, &in, sizeof in);
		t_send(&send, &a, &out, sizeof out);
		TURN_UNTIL(l, !recv.armed && !send.armed);
		CHECK_EQ(recv.res, sizeof in);
		CHECK_EQ(in, i);
	}
	t_close(&a);
	t_close(&b);
	t_loop_end(l);
	e->done = true;
}

CASE(loops_in_two_threads_work_side_by_side, "C1 C31")
{
	struct echo e[2] = { { .rounds = 3000 }, { .rounds = 3000 } };
	struct n_thread t[2];

	for (int i = 0; i < 2; i++)
		n_thread(&t[i], echo_thread, &e[i]);
	for (int i = 0; i < 2; i++)
		n_join(&t[i]);
	CHECK(e[0].done && e[1].done);
}

/* A ring for a single issuer must not be tied to the thread that made the loop. */
CASE(loop_may_be_made_in_one_thread_and_used_in_another, "C1")
{
	struct echo e = { .l = t_loop(), .rounds = 100 };
	struct n_thread t;

	n_thread(&t, echo_thread, &e);
	n_join(&t);
	CHECK(e.done);
}

/* SPDX-License-Identifier: ISC */
/*
 * C19: nothing refers to an op after its final callback, nor to a socket after
 * its close callback: descriptor numbers and memory come back at once, and no
 * completion of an old connection lands on a new one.
 */
#include "suite.h"

enum { SLOTS = 16, LIVES = 2500 };

struct life {
	struct t_sock	 s;
	struct t_op	 rd, wr;
	struct slot	*slot;
	io_fd		 peer;
	uint32_t	 tag;
	uint32_t	 in[4], out[64];
};

struct slot {
	struct life	*life;
	unsigned	 lives;
};

static struct io_loop *loop;
static struct slot slots[SLOTS];
static struct t_rand rnd = { 19 };
static uint32_t next_tag = 1;
static unsigned lives_over;

static void life_start(struct slot *);

static void
life_over(struct t_sock *s)
{
	struct life *f = io_container_of(s, struct life, s);
	struct slot *sl = f->slot;

	CHECK(!f->rd.armed && !f->wr.armed);
	if (f->peer != IO_FD_NONE)
		n_close(f->peer);
	memset(f, 0xa5, sizeof *f);
	free(f);
	sl->life = NULL;
	lives_over++;
	/* In the callback: the number of the descriptor is taken again at once. */
	if (lives_over + SLOTS <= LIVES)
		life_start(sl);
}

static void
life_got(struct t_op *o)
{
	struct life *f = io_container_of(o, struct life, rd);

	for (int i = 0; i < o->res / 4; i++)
		if (f->in[i] != f->tag)
			FAIL("connection %u received a byte of connection %u", f->tag, f->in[i]);
	if (!io_sock_open(&f->s.s))
		return;
	/* Close it, or another one, whose event may be in the same batch. */
	if (t_rand_below(&rnd, 3) == 0) {
		struct life *other = slots[t_rand_below(&rnd, SLOTS)].life;

		if (other != NULL && io_sock_open(&other->s.s))
			t_close(&other->s);
	}
	if (!io_sock_open(&f->s.s))
		return;
	if (o->res <= 0 || t_rand_below(&rnd, 2))
		t_close(&f->s);
	else
		t_recv(o, &f->s, f->in, sizeof f->in);
}

static void
life_start(struct slot *sl)
{
	struct life *f = calloc(1, sizeof *f);
	io_fd fd[2];

	n_pair(fd);
	f->slot = sl;
	f->tag = next_tag++;
	f->peer = fd[1];
	f->s.then = NULL;
	t_adopt(loop, &f->s, fd[0]);
	f->s.then = life_over;
	f->rd.then = life_got;
	for (int i = 0; i < 64; i++)
		f->out[i] = f->tag;
	sl->life = f;
	t_recv(&f->rd, &f->s, f->in, sizeof f->in);
	if (t_rand_below(&rnd, 2))
		t_send(&f->wr, &f->s, f->out, sizeof f->out);
}

/* Something happens to a connection from outside. */
static void
disturb(struct life *f)
{
	uint32_t two[2] = { f->tag, f->tag };

	switch (t_rand_below(&rnd, 8)) {
	case 0:
		n_reset(f->peer);
		f->peer = IO_FD_NONE;
		break;
	case 1:
		n_shutdown(f->peer);
		break;
	case 2:
		if (io_sock_open(&f->s.s))
			t_close(&f->s);
		break;
	default:
		/* The loop's side may be gone already: failure is fine. */
		(void)n_try_send(f->peer, two, sizeof two);
	}
}

CASE(descriptor_numbers_and_memory_are_reused_in_a_storm, "C19 C20")
{
	uint64_t t0 = n_now_ns();

	loop = t_loop();
	for (int i = 0; i < SLOTS; i++)
		life_start(&slots[i]);
	while (lives_over < LIVES) {
		for (int i = 0; i < SLOTS; i++)
			if (slots[i].life != NULL && slots[i].life->peer != IO_FD_NONE &&
			    t_rand_below(&rnd, 3) == 0)
				disturb(slots[i].life);
		for (int i = 0; i < SLOTS; i++)
			if (slots[i].life != NULL && slots[i].life->peer == IO_FD_NONE &&
			    io_sock_open(&slots[i].life->s.s) && !slots[i].life->rd.armed)
				t_close(&slots[i].life->s);
		t_turn(loop, false);
		if (n_now_ns() - t0 > 50000000000u)
			FAIL("%u of %u connections came to an end", lives_over, LIVES);
	}
	t_loop_end(loop);
}

/* One number, over and over, with the old connection's data still on its way. */
CASE(next_owner_of_a_descriptor_number_gets_only_its_own_data, "C19 C20")
{
	struct io_loop *l = t_loop();
	unsigned same = 0;
	io_fd last = IO_FD_NONE;

	for (uint32_t i = 0; i < 400; i++) {
		struct t_sock a;
		struct t_op r = { 0 };
		uint32_t in = 0;
		io_fd fd[2];

		n_pair(fd);
		same += fd[0] == last;
		last = fd[0];
		t_adopt(l, &a, fd[0]);
		t_recv(&r, &a, &in, sizeof in);
		if (i % 3 != 0)
			t_turn(l, false);
		if (i % 2 == 0) {
			n_send(fd[1], &i, sizeof i);
			TURN_UNTIL(l, !r.armed);
			CHECK_EQ(r.res, sizeof in);
			CHECK_EQ(in, i);
			t_recv(&r, &a, &in, sizeof in);
		}
		n_send(fd[1], "junk", 4);
		t_close(&a);
		TURN_UNTIL(l, a.closed == 1);
		CHECK(!r.armed);
		n_close(fd[1]);
	}
	CHECK(same > 100);
	t_loop_end(l);
}

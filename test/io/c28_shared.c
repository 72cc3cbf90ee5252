/* SPDX-License-Identifier: ISC */
/*
 * C28, C26: the array of a batch receive is filled right before a callback and
 * not looked at otherwise, so all receivers of a loop may share one.  Here they
 * do, and it is spoilt after each callback.
 */
#include "suite.h"

enum { BLOCK = 2048, SOCKS_MAX = 64, SENDERS = 3 };

struct letter {
	uint32_t	to, seq;	/* receiver, and the how manieth for it */
	uint8_t		rest[40];
};

struct receiver {
	struct t_sock	 u;
	struct t_op	 o;
	struct n_addr	 at;
	uint32_t	 id, sent, got;
	uint32_t	 next;		/* letter */
	unsigned	 starts;
	bool		 closing;
};

/* What a case has. */
struct shared {
	struct io_loop	*l;
	struct io_pool	*pool;
	struct io_dgram	 v[IO_BATCH_MAX];
	struct receiver	 r[SOCKS_MAX];
	unsigned	 n, got, callbacks, largest;
	io_fd		 sender[SENDERS];
	struct n_addr	 from[SENDERS];
	bool		 lossy;		/* letters may be lost, never come late */
	void		(*then)(struct shared *, struct receiver *);
};

static struct shared x;

static void
letters_arrived(struct t_op *o)
{
	struct receiver *r = o->arg;
	struct io_op *op = &o->op;

	if (op->res < 0) {
		CHECK_EQ(op->u.batch.n, 0);
		return;
	}
	CHECK(!r->closing);		/* nothing is told of after the close */
	CHECK(op->u.batch.n > 0 && op->u.batch.n <= op->u.batch.max);
	for (unsigned i = 0; i < op->u.batch.n; i++) {
		struct io_dgram *d = &x.v[i];
		const struct n_addr *from;
		struct letter m;

		CHECK_EQ(d->buf.len, sizeof m);
		CHECK_EQ(d->res, sizeof m);
		CHECK_EQ(d->nvec, 0);
		CHECK_EQ(d->gso, 0);
		CHECK(!d->trunc);
		CHECK_EQ(d->local.ss_family, AF_UNSPEC);
		memcpy(&m, d->buf.base, sizeof m);
		CHECK_EQ(m.to, r->id);
		CHECK(m.seq == r->next || (x.lossy && m.seq > r->next));
		CHECK(t_pattern_ok(m.to, m.seq, m.rest, sizeof m.rest));
		from = &x.from[(m.to + m.seq) % SENDERS];
		CHECK(n_same(from, (const struct sockaddr *)(const void *)&d->peer, d->peerlen));
		io_buf_put(x.pool, &d->buf);
		r->next = m.seq + 1;
		r->got++;
		x.got++;
	}
	if (op->u.batch.n > x.largest)
		x.largest = op->u.batch.n;
	x.callbacks++;
	memset(x.v, 0xa5, sizeof x.v);
	if (x.then != NULL)
		x.then(&x, r);
}

static void
shared_open(unsigned n, unsigned max, uint32_t blocks)
{
	memset(&x, 0, sizeof x);
	x.l = t_loop();
	x.pool = t_pool(x.l, BLOCK, blocks, 0);
	x.n = n;
	for (unsigned i = 0; i < SENDERS; i++)
		x.sender[i] = n_udp("127.0.0.1", &x.from[i]);
	for (unsigned i = 0; i < n; i++) {
		struct receiver *r = &x.r[i];

		r->id = i;
		r->o.then = letters_arrived;
		r->o.arg = r;
		t_adopt(x.l, &r->u, n_udp("127.0.0.1", &r->at));
		t_recv_batch(&r->o, &r->u, x.pool, x.v, max);
		r->starts = 1;
	}
	memset(x.v, 0xa5, sizeof x.v);
}

static void
post_letter(struct receiver *r)
{
	struct letter m = { .to = r->id, .seq = r->sent };

	t_pattern(m.to, m.seq, m.rest, sizeof m.rest);
	n_sendto(x.sender[(r->id + r->sent) % SENDERS], &m, sizeof m, &r->at);
	r->sent++;
}

static void
shared_close(void)
{
	for (unsigned i = 0; i < x.n; i++)
		if (!x.r[i].closing)
			t_close(&x.r[i].u);
	t_drain(x.l);
	for (unsigned i = 0; i < x.n; i++) {
		CHECK(!x.r[i].o.armed);
		CHECK_EQ(x.r[i].o.finals, x.r[i].starts);
		CHECK_EQ(x.r[i].u.closed, 1);
	}
	CHECK_EQ(io_pool_stats(x.pool).lent, 0);
	io_pool_free(x.pool);
	t_loop_end(x.l);
	for (unsigned i = 0; i < SENDERS; i++)
		n_close(x.sender[i]);
}

/* `each` letters to each of n receivers, in turn, `rounds` times. */
static void
interleaved(unsigned n, unsigned max, unsigned each, uint32_t blocks)
{
	shared_open(n, max, blocks);
	for (unsigned round = 1; round <= 5; round++) {
		for (unsigned k = 0; k < each; k++)
			for (unsigned i = 0; i < n; i++)
				post_letter(&x.r[i]);
		TURN_UNTIL(x.l, x.got == round * each * n);
	}
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(x.r[i].got, x.r[i].sent);
		CHECK(x.r[i].o.armed);
	}
	t_note("%u letters in %u callbacks, the largest with %u", x.got, x.callbacks, x.largest);
	shared_close();
}

CASE(two_receivers_share_an_array, "C28 C26") { interleaved(2, IO_BATCH_MAX, 20, 256); }
CASE(sixty_four_receivers_share_an_array, "C28 C26") { interleaved(64, IO_BATCH_MAX, 8, 512); }
CASE(receivers_with_small_batches_share_an_array, "C28 C26") { interleaved(10, 3, 16, 256); }
CASE(receivers_share_an_array_and_a_small_pool, "C28 C27") { interleaved(16, IO_BATCH_MAX, 8, 12); }

/* A fair share of the traffic changes its order in the kernel's eyes: sizes of runs by chance. */
CASE(receivers_share_an_array_under_random_traffic, "C28 C26")
{
	struct t_rand rnd = { 28 };
	unsigned sent = 0;

	shared_open(12, 16, 128);
	for (unsigned step = 0; step < 400; step++) {
		struct receiver *r = &x.r[t_rand_below(&rnd, x.n)];

		for (unsigned n = 1 + t_rand_below(&rnd, 6); n > 0; n--, sent++)
			post_letter(r);
		if (t_rand_below(&rnd, 4) == 0)
			t_turn(x.l, false);
		if (t_rand_below(&rnd, 16) == 0)
			TURN_UNTIL(x.l, x.got == sent);
	}
	TURN_UNTIL(x.l, x.got == sent);
	shared_close();
}

static void
close_the_others(struct shared *s, struct receiver *self)
{
	for (unsigned i = 0; i < s->n; i++)
		if (&s->r[i] != self && !s->r[i].closing) {
			s->r[i].closing = true;
			t_close(&s->r[i].u);
		}
}

static void
cancel_the_others(struct shared *s, struct receiver *self)
{
	for (unsigned i = 0; i < s->n; i++)
		if (&s->r[i] != self)
			io_cancel(&s->r[i].o.op);
}

static void
close_all(struct shared *s, struct receiver *self)
{
	close_the_others(s, self);
	if (!self->closing) {
		self->closing = true;
		t_close(&self->u);
	}
}

static unsigned
armed(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < x.n; i++)
		n += x.r[i].o.armed;
	return n;
}

/* Letters wait for all when the first callback does something to the receivers. */
static void
stopped(void (*then)(struct shared *, struct receiver *), unsigned max)
{
	for (unsigned round = 0; round < 12; round++) {
		unsigned n = 2 + round % 4 * 10;

		shared_open(n, max, round % 2 ? 256 : 24);
		x.then = then;
		for (unsigned k = 0; k < round; k++)
			t_turn(x.l, false);
		for (unsigned k = 0; k < 1 + round % 5; k++)
			for (unsigned i = 0; i < n; i++)
				post_letter(&x.r[i]);
		TURN_UNTIL(x.l, x.callbacks > 0);
		t_turn_for_ms(x.l, 1);
		if (then == cancel_the_others)
			TURN_UNTIL(x.l, armed() <= 1);
		shared_close();
	}
}

CASE(close_of_others_from_a_batch_gives_their_blocks_back, "C20 C26") { stopped(close_the_others, 64); }
CASE(close_of_others_from_a_full_batch_gives_their_blocks_back, "C20 C26") { stopped(close_the_others, 2); }
CASE(close_of_all_from_a_batch_gives_their_blocks_back, "C20 C26") { stopped(close_all, 64); }
CASE(cancel_of_others_from_a_batch_gives_their_blocks_back, "C17 C26") { stopped(cancel_the_others, 64); }

static void
cancel_some(struct shared *s, struct receiver *self)
{
	io_cancel(&s->r[(self->id + self->got) % s->n].o.op);
}

CASE(receivers_cancelled_and_started_again_lose_no_block, "C17 C26")
{
	shared_open(8, 16, 64);
	x.then = cancel_some;
	x.lossy = true;
	for (unsigned round = 0; round < 100; round++) {
		for (unsigned i = 0; i < x.n; i++) {
			struct receiver *r = &x.r[i];

			for (unsigned k = 0; k < 3; k++)
				post_letter(r);
			if (r->o.armed)
				continue;
			t_recv_batch(&r->o, &r->u, x.pool, x.v, 1 + round % 16);
			r->starts++;
		}
		t_turn(x.l, false);
	}
	CHECK(x.got > 0);
	shared_close();
}

/* SPDX-License-Identifier: ISC */
/*
 * C28, C3: a batch is sent from within the callback that received it, or from
 * the one of the send before, as a relay does: each datagram goes back once,
 * unaltered, in its peer's order, and its block is held just as long.
 */
#include "suite.h"

enum { BLOCK = 2048, PEERS = 3, HELD_MAX = 512, MARK_BYTES = 1 };

struct letter {
	uint32_t	from, seq;
	uint8_t		rest[200];
};

static struct {
	struct io_loop	*l;
	struct io_pool	*pool;
	struct t_sock	 u;
	struct t_op	 r, s;
	struct n_addr	 at;
	struct io_dgram	 v[IO_BATCH_MAX];
	struct io_dgram	 held[HELD_MAX];	/* received, to be sent; the first `flying` are being sent */
	unsigned	 count, flying, sends, from_receive;
	bool		 by_vec;
	uint8_t		 mark[MARK_BYTES];	/* in front of what goes back by vector */
	struct io_vec	 vec[IO_BATCH_MAX][2];
	io_fd		 peer[PEERS];
} e;

static void
send_held(void)
{
	e.flying = e.count < IO_BATCH_MAX ? e.count : IO_BATCH_MAX;
	if (e.flying == 0)
		return;
	for (unsigned i = 0; i < e.flying && e.by_vec; i++) {
		struct io_dgram *d = &e.held[i];

		e.vec[i][0] = (struct io_vec){ e.mark, sizeof e.mark };
		e.vec[i][1] = (struct io_vec){ d->buf.base, d->buf.len };
		d->vec = e.vec[i];
		d->nvec = 2;
	}
	e.sends++;
	t_send_batch(&e.s, &e.u, e.held, e.flying);
}

static void
batch_arrived(struct t_op *o)
{
	struct io_op *op = &o->op;

	for (unsigned i = 0; i < op->u.batch.n; i++) {
		CHECK(e.count < HELD_MAX);
		e.held[e.count] = e.v[i];
		e.held[e.count].local.ss_family = AF_UNSPEC;
		e.held[e.count++].gso = 0;
	}
	memset(e.v, 0xa5, sizeof e.v);
	if (e.s.armed || e.count == 0)
		return;
	e.from_receive++;
	send_held();
}

static void
batch_sent(struct t_op *o)
{
	(void)o;
	for (unsigned i = 0; i < e.flying; i++) {
		CHECK_EQ(e.held[i].res, sizeof(struct letter) + (e.by_vec ? MARK_BYTES : 0));
		io_buf_put(e.pool, &e.held[i].buf);
	}
	e.count -= e.flying;
	memmove(e.held, e.held + e.flying, e.count * sizeof e.held[0]);
	send_held();
}

static bool
came_back(unsigned peer, uint32_t *next)
{
	uint8_t buf[sizeof(struct letter) + MARK_BYTES + 1];
	struct letter m;
	size_t head = e.by_vec ? MARK_BYTES : 0;
	long n = n_try_recv(e.peer[peer], buf, sizeof buf);

	if (n < 0)
		return false;
	CHECK_EQ(n, head + sizeof m);
	CHECK(head == 0 || buf[0] == e.mark[0]);
	memcpy(&m, buf + head, sizeof m);
	CHECK_EQ(m.from, peer);
	CHECK_EQ(m.seq, *next);
	CHECK(t_pattern_ok(m.from, m.seq, m.rest, sizeof m.rest));
	++*next;
	return true;
}

/* Bursts of `each` from every peer; all of one burst must be back before the next. */
static void
echoed(unsigned each, unsigned rounds, uint32_t blocks, bool by_vec)
{
	uint32_t sent[PEERS] = { 0 }, back[PEERS] = { 0 };
	struct n_addr from;

	memset(&e, 0, sizeof e);
	e.by_vec = by_vec;
	e.mark[0] = 'e';
	e.l = t_loop();
	e.pool = t_pool(e.l, BLOCK, blocks, 0);
	for (unsigned p = 0; p < PEERS; p++)
		e.peer[p] = n_udp("127.0.0.1", &from);
	t_adopt(e.l, &e.u, n_udp("127.0.0.1", &e.at));
	e.r.then = batch_arrived;
	e.s.then = batch_sent;
	t_recv_batch(&e.r, &e.u, e.pool, e.v, IO_BATCH_MAX);
	for (unsigned round = 1; round <= rounds; round++) {
		for (unsigned k = 0; k < each * PEERS; k++) {
			struct letter m = { .from = k % PEERS, .seq = sent[k % PEERS]++ };

			t_pattern(m.from, m.seq, m.rest, sizeof m.rest);
			n_sendto(e.peer[m.from], &m, sizeof m, &e.at);
		}
		for (unsigned p = 0; p < PEERS; p++)
			while (back[p] < sent[p])
				if (!came_back(p, &back[p]))
					t_turn(e.l, false);
	}
	TURN_UNTIL(e.l, !e.s.armed);
	CHECK(e.from_receive > 0);
	t_note("%u letters in %u sends, %u of them from within a receive", rounds * each * PEERS, e.sends, e.from_receive);
	t_close(&e.u);
	t_drain(e.l);
	CHECK_EQ(e.r.finals, 1);
	CHECK_EQ(io_pool_stats(e.pool).lent, 0);
	io_pool_free(e.pool);
	t_loop_end(e.l);
	for (unsigned p = 0; p < PEERS; p++)
		n_close(e.peer[p]);
}

CASE(single_datagrams_echoed_from_the_receive, "C28 C3") { echoed(1, 200, 64, false); }
CASE(bursts_echoed_from_the_receive, "C28 C3") { echoed(30, 50, 256, false); }
CASE(bursts_echoed_with_a_head_from_the_receive, "C28 C3") { echoed(30, 50, 256, true); }
CASE(bursts_echoed_out_of_a_small_pool, "C28 C27") { echoed(30, 50, 12, true); }

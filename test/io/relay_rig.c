/* SPDX-License-Identifier: ISC */
#include "relay_rig.h"

enum { BLOCK = 16384, PIECE = 65536 };

void
rig_open_on(struct rig *g, struct io_loop *l, struct io_pool *pool, int sndbuf, int rcvbuf)
{
	io_fd a[2], b[2];

	memset(g, 0, sizeof *g);
	g->l = l;
	g->pool = pool;
	if (sndbuf == 0 && rcvbuf == 0) {
		n_pair(a);
		n_pair(b);
	} else {
		n_pair_buffers(a, sndbuf, rcvbuf);
		n_pair_buffers(b, sndbuf, rcvbuf);
	}
	t_adopt(l, &g->src, a[0]);
	t_adopt(l, &g->dst, b[0]);
	g->in = a[1];
	g->out = b[1];
	g->seed = 29;
}

void
rig_open(struct rig *g, struct io_loop *l, int sndbuf, int rcvbuf, uint32_t blocks)
{
	rig_open_on(g, l, t_pool(l, BLOCK, blocks, 0), sndbuf, rcvbuf);
	g->own_pool = true;
}

void
rig_start(struct rig *g, uint64_t max)
{
	t_relay(&g->relay, &g->src, &g->dst, g->pool, max, &g->tally);
}

size_t
rig_feed(struct rig *g, size_t n)
{
	static _Thread_local char buf[PIECE];
	size_t done = 0;
	long k = 1;

	while (done < n && k > 0) {
		size_t want = n - done < sizeof buf ? n - done : sizeof buf;

		t_pattern(g->seed, g->sent, buf, want);
		if ((k = n_try_send(g->in, buf, want)) > 0) {
			g->sent += (uint64_t)k;
			done += (size_t)k;
		}
	}
	return done;
}

size_t
rig_read(struct rig *g, size_t n)
{
	static _Thread_local char buf[PIECE];
	size_t done = 0;
	long k = 1;

	while (done < n && k > 0) {
		size_t want = n - done < sizeof buf ? n - done : sizeof buf;

		if ((k = n_try_recv(g->out, buf, want)) > 0) {
			if (!t_pattern_ok(g->seed, g->got, buf, (size_t)k))
				FAIL("a relayed byte near %llu is not the one sent",
				    (unsigned long long)g->got);
			g->got += (uint64_t)k;
			done += (size_t)k;
		}
	}
	return done;
}

int64_t
rig_read_all(struct rig *g)
{
	static char buf[PIECE];
	int err = 0;
	long k;

	while ((k = n_recv(g->out, buf, sizeof buf, &err)) > 0) {
		if (!t_pattern_ok(g->seed, g->got, buf, (size_t)k))
			FAIL("a relayed byte near %llu is not the one sent",
			    (unsigned long long)g->got);
		g->got += (uint64_t)k;
	}
	if (k < 0)
		FAIL("the reader met error %d after %llu bytes", err, (unsigned long long)g->got);
	return (int64_t)g->got;
}

void
rig_close(struct rig *g)
{
	if (io_sock_open(&g->src.s))
		t_close(&g->src);
	if (io_sock_open(&g->dst.s))
		t_close(&g->dst);
	TURN_UNTIL(g->l, g->src.closed && g->dst.closed);
	CHECK(!g->relay.armed);
	CHECK_EQ(g->tally, g->relay.finals ? g->relay.op.u.relay.moved : g->tally);
}

void
rig_free(struct rig *g)
{
	rig_close(g);
	n_close(g->in);
	n_close(g->out);
	if (g->own_pool) {
		CHECK_EQ(io_pool_stats(g->pool).lent, 0);
		io_pool_free(g->pool);
	}
}

static void
write_main(void *p)
{
	struct rig_pump *m = p;
	struct rig *g = m->rig;
	struct t_rand r = { 4711 };
	static _Thread_local char buf[1 << 20];

	while (g->sent < m->bytes) {
		size_t n = 1 + t_rand_below(&r, m->piece_max);

		if (n > m->bytes - g->sent)
			n = (size_t)(m->bytes - g->sent);
		t_pattern(g->seed, g->sent, buf, n);
		n_send(g->in, buf, n);
		g->sent += n;
		if (m->pause_every != 0 && t_rand_below(&r, m->pause_every) == 0)
			n_sleep_ms(1);
	}
	n_shutdown(g->in);
	m->done = true;
}

static void
read_main(void *p)
{
	struct rig_pump *m = p;
	struct rig *g = m->rig;
	struct t_rand r = { 1147 };
	static _Thread_local char buf[1 << 20];
	long k;

	while ((k = n_recv(g->out, buf, 1 + t_rand_below(&r, m->piece_max), NULL)) > 0) {
		if (!t_pattern_ok(g->seed, g->got, buf, (size_t)k))
			FAIL("a relayed byte near %llu is not the one sent",
			    (unsigned long long)g->got);
		g->got += (uint64_t)k;
		if (m->pause_every != 0 && t_rand_below(&r, m->pause_every) == 0)
			n_sleep_ms(1);
	}
	if (k < 0)
		FAIL("the reader met an error after %llu bytes", (unsigned long long)g->got);
	m->done = true;
}

void
rig_write_thread(struct rig_pump *m)
{
	n_thread(&m->thread, write_main, m);
}

void
rig_read_thread(struct rig_pump *m)
{
	n_thread(&m->thread, read_main, m);
}

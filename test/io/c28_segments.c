/* SPDX-License-Identifier: ISC */
/*
 * C28: datagrams sent in pieces, and as runs of segments.  What arrives at a
 * plain socket is exactly what the pieces hold; where the system makes no
 * segments such a datagram ends with IO_ENOTSUP, and nothing of it is sent.
 */
#ifdef __linux__
#include <netinet/udp.h>
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#endif

#include "suite.h"

enum { SEED = 2801, HEAD = 10, PEER_BYTES = 4 * 1024 * 1024 };

/* The sender, a plain receiver, and one array of pieces for a datagram. */
struct rig {
	struct io_loop	*l;
	struct t_sock	 u;
	struct t_op	 s;
	struct n_addr	 to;
	io_fd		 peer;
	struct io_vec	 vec[IO_DGRAM_VECS_MAX];
	uint32_t	 nvec;
};

static void
rig_open(struct rig *r)
{
	memset(r, 0, sizeof *r);
	r->l = t_loop();
	r->peer = n_udp("127.0.0.1", &r->to);
	n_buffers(r->peer, 0, PEER_BYTES);
	t_adopt(r->l, &r->u, n_udp("127.0.0.1", NULL));
}

static void
rig_close(struct rig *r)
{
	t_close(&r->u);
	t_loop_end(r->l);
	n_close(r->peer);
}

static void
piece(struct rig *r, const void *base, size_t len)
{
	CHECK(r->nvec < IO_DGRAM_VECS_MAX);
	r->vec[r->nvec++] = (struct io_vec){ (void *)(uintptr_t)base, len };
}

/* What the pieces say; a buffer that must not be looked at beside them. */
static void
dgram_of(struct rig *r, struct io_dgram *d, uint16_t gso)
{
	memset(d, 0, sizeof *d);
	d->buf.base = (uint8_t *)"WRONG";
	d->buf.len = 5;
	d->vec = r->vec;
	d->nvec = r->nvec;
	d->peer = r->to.ss;
	d->peerlen = r->to.len;
	d->gso = gso;
}

static void
plain(struct rig *r, struct io_dgram *d, const void *base, uint32_t len)
{
	r->nvec = 0;
	dgram_of(r, d, 0);
	d->buf.base = (uint8_t *)(uintptr_t)base;
	d->buf.len = len;
}

static void
send_all(struct rig *r, struct io_dgram *d, unsigned n)
{
	t_send_batch(&r->s, &r->u, d, n);
	TURN_UNTIL(r->l, !r->s.armed);
}

/* The next one at the peer is `len` bytes of the pattern from `off` on, behind `head` bytes of 'h'. */
static void
expect(struct rig *r, size_t head, size_t len, uint64_t off)
{
	static uint8_t buf[70000];

	CHECK_EQ(n_recvfrom(r->peer, buf, sizeof buf, NULL), head + len);
	for (size_t i = 0; i < head; i++)
		CHECK_EQ(buf[i], 'h');
	CHECK(t_pattern_ok(SEED, off, buf + head, len));
}

static void
expect_text(struct rig *r, const char *text)
{
	char buf[100] = { 0 };

	CHECK_EQ(n_recvfrom(r->peer, buf, sizeof buf, NULL), strlen(text));
	CHECK_EQ(strcmp(buf, text), 0);
}

/* After a datagram with segments, whose batch had "single" behind it.  False: there are none here. */
static bool
segmented(struct rig *r, const struct io_dgram d[2], size_t len)
{
	CHECK_EQ(d[1].res, 6);
	if (d[0].res == IO_ENOTSUP) {
		CHECK_EQ(r->s.res, 1);
		expect_text(r, "single");	/* and nothing before it */
		return false;
	}
	CHECK_EQ(d[0].res, len);
	CHECK_EQ(r->s.res, 2);
	return true;
}

CASE(pieces_arrive_as_one_datagram, "C28")
{
	static const uint32_t counts[] = { 1, 2, 3, 8, 9, 64, IO_DGRAM_VECS_MAX };
	struct rig r;
	struct io_dgram d[2];
	static uint8_t data[8000];

	rig_open(&r);
	t_pattern(SEED, 0, data, sizeof data);
	for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++) {
		size_t off = 0;

		plain(&r, &d[1], "single", 6);
		for (uint32_t i = 0; i < counts[c]; i++) {
			size_t len = i % 5 == 3 ? 0 : 1 + i * 7 % 90;	/* empty pieces too */

			piece(&r, data + off, len);
			off += len;
		}
		dgram_of(&r, &d[0], 0);
		send_all(&r, d, 2);
		CHECK_EQ(r.s.res, 2);
		CHECK_EQ(d[0].res, off);
		expect(&r, 0, off, 0);
		expect_text(&r, "single");
	}
	rig_close(&r);
}

CASE(empty_pieces_make_an_empty_datagram, "C28")
{
	struct rig r;
	struct io_dgram d[2];

	rig_open(&r);
	plain(&r, &d[1], "single", 6);
	piece(&r, "", 0);
	piece(&r, "", 0);
	dgram_of(&r, &d[0], 0);
	send_all(&r, d, 2);
	CHECK_EQ(r.s.res, 2);
	CHECK_EQ(d[0].res, 0);
	expect_text(&r, "");
	expect_text(&r, "single");
	rig_close(&r);
}

CASE(pieces_that_are_too_long_are_refused, "C28 C10")
{
	struct rig r;
	struct io_dgram d[2];
	static uint8_t data[40000];

	rig_open(&r);
	plain(&r, &d[1], "single", 6);
	piece(&r, data, sizeof data);
	piece(&r, data, sizeof data);
	dgram_of(&r, &d[0], 0);
	send_all(&r, d, 2);
	CHECK_EQ(r.s.res, 1);
	CHECK_EQ(d[0].res, IO_EMSGSIZE);
	CHECK_EQ(d[1].res, 6);
	expect_text(&r, "single");
	rig_close(&r);
}

/* n segments of `size`, the last of them `last` long. */
static void
headers(bool insert, unsigned n, uint16_t size, uint16_t last)
{
	static uint8_t data[IO_BATCH_MAX * 1024], head[HEAD];
	struct rig r;
	struct io_dgram d[2];
	size_t stride = insert ? size : size + HEAD, whole = 0;

	rig_open(&r);
	memset(head, 'h', sizeof head);
	t_pattern(SEED, 0, data, sizeof data);
	CHECK(n * stride <= sizeof data);
	for (int round = 0; round < 3; round++) {
		plain(&r, &d[1], "single", 6);
		whole = 0;
		for (unsigned i = 0; i < n; i++) {
			size_t len = i == n - 1 ? last : size;

			if (insert)
				piece(&r, head, HEAD);
			piece(&r, data + i * stride + (insert ? 0 : HEAD), len);
			whole += len + (insert ? HEAD : 0);
		}
		dgram_of(&r, &d[0], (uint16_t)(size + (insert ? HEAD : 0)));
		send_all(&r, d, 2);
		if (!segmented(&r, d, whole)) {
			rig_close(&r);
			t_note("no segments here: refused, as it should be");
			return;
		}
		for (unsigned i = 0; i < n; i++)
			expect(&r, insert ? HEAD : 0, i == n - 1 ? last : size,
			    i * stride + (insert ? 0 : HEAD));
		expect_text(&r, "single");
	}
	rig_close(&r);
}

CASE(segments_arrive_with_a_header_put_before_each, "C28") { headers(true, 40, 512, 512); }
CASE(segments_arrive_without_the_headers_between_them, "C28") { headers(false, 40, 512, 512); }
CASE(last_segment_may_be_short, "C28") { headers(true, 7, 300, 1); headers(false, 7, 300, 299); }
CASE(sixty_four_segments_with_their_headers_are_128_pieces, "C28") { headers(true, 64, 100, 100); }
CASE(one_segment_is_a_datagram, "C28") { headers(true, 1, 300, 300); headers(false, 1, 300, 20); }

CASE(datagrams_with_and_without_segments_keep_their_order, "C28")
{
	enum { N = 24, SEGS = 3, SIZE = 120 };
	static struct io_vec vec[N][2];
	static uint8_t data[SEGS * SIZE];
	struct rig r;
	struct io_dgram d[N];

	rig_open(&r);
	t_pattern(SEED, 0, data, sizeof data);
	for (unsigned i = 0; i < N; i++) {
		plain(&r, &d[i], "single", 6);
		if (i % 3 == 0)
			continue;
		vec[i][0] = (struct io_vec){ data, 50 };
		vec[i][1] = (struct io_vec){ data + 50, sizeof data - 50 };
		d[i].vec = vec[i];
		d[i].nvec = 2;
		d[i].gso = i % 3 == 1 ? SIZE : 0;
	}
	send_all(&r, d, N);
	for (unsigned i = 0; i < N; i++) {
		bool gso = d[i].gso != 0, sent = !gso || d[i].res != IO_ENOTSUP;

		if (sent)
			CHECK_EQ(d[i].res, i % 3 == 0 ? 6 : (int)sizeof data);
		if (i % 3 == 0)
			expect_text(&r, "single");
		else if (!gso)
			expect(&r, 0, sizeof data, 0);
		for (unsigned k = 0; gso && sent && k < SEGS; k++)
			expect(&r, 0, SIZE, k * SIZE);
	}
	rig_close(&r);
}

#ifdef __linux__
/* More than any kernel makes (128, older ones 64): an error of this one alone. */
CASE(too_many_segments_are_an_error_of_that_datagram, "C28 C10")
{
	struct rig r;
	struct io_dgram d[2];
	static uint8_t data[1000];

	rig_open(&r);
	plain(&r, &d[1], "single", 6);
	piece(&r, data, sizeof data);
	dgram_of(&r, &d[0], 4);
	send_all(&r, d, 2);
	CHECK_EQ(r.s.res, 1);
	CHECK(d[0].res == IO_EINVAL || d[0].res == IO_ENOTSUP);
	CHECK_EQ(d[1].res, 6);
	expect_text(&r, "single");
	rig_close(&r);
}

struct runs {
	struct t_op	 o;
	struct io_pool	*pool;
	struct io_dgram	 v[8];
	uint64_t	 bytes;
	unsigned	 buffers, size;
};

static void
run_arrived(struct t_op *o)
{
	struct runs *x = io_container_of(o, struct runs, o);

	for (unsigned i = 0; o->op.res > 0 && i < o->op.u.batch.n; i++) {
		struct io_dgram *d = &x->v[i];

		CHECK(!d->trunc);
		CHECK(d->buf.len <= x->size ? d->gso == 0 : d->gso == x->size);
		CHECK(t_pattern_ok(SEED, x->bytes, d->buf.base, d->buf.len));
		x->bytes += d->buf.len;
		x->buffers++;
		io_buf_put(x->pool, &d->buf);
	}
}

/* Blocks of 64 KiB take a whole run; its segments come in one buffer. */
CASE(run_of_segments_comes_in_one_buffer, "C28 C26")
{
	enum { SIZE = 512, SEGS = 60, ROUNDS = 5 };
	static uint8_t data[ROUNDS * SEGS * SIZE];
	static struct runs in;
	struct rig r;
	struct t_sock w;
	struct io_dgram d;
	struct n_addr at;
	int one = 1;
	io_fd fd = n_udp("127.0.0.1", &at);

	if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one) != 0)
		SKIP("no UDP_GRO");
	rig_open(&r);
	r.to = at;
	memset(&in, 0, sizeof in);
	in.pool = t_pool(r.l, 65536, 64, 0);
	in.size = SIZE;
	in.o.then = run_arrived;
	t_adopt(r.l, &w, fd);
	t_recv_batch(&in.o, &w, in.pool, in.v, 8);
	t_pattern(SEED, 0, data, sizeof data);
	for (unsigned k = 0; k < ROUNDS; k++) {
		r.nvec = 0;
		piece(&r, data + k * SEGS * SIZE, 100);
		piece(&r, data + k * SEGS * SIZE + 100, SEGS * SIZE - 100);
		dgram_of(&r, &d, SIZE);
		send_all(&r, &d, 1);
		if (d.res < 0)
			SKIP("this kernel has no UDP_SEGMENT");
		TURN_UNTIL(r.l, in.bytes == (k + 1) * SEGS * SIZE);
	}
	t_note("%u segments in %u buffers", ROUNDS * SEGS, in.buffers);
	CHECK(in.buffers < ROUNDS * SEGS);
	t_close_wait(&w);
	CHECK_EQ(io_pool_stats(in.pool).lent, 0);
	io_pool_free(in.pool);
	rig_close(&r);
}
#else
CASE_NOT_HERE(too_many_segments_are_an_error_of_that_datagram, "C28 C10", "no UDP_SEGMENT here")
CASE_NOT_HERE(run_of_segments_comes_in_one_buffer, "C28 C26", "no UDP_GRO here")
#endif

#ifndef _WIN32
/* A Unix datagram socket blocks when its peer does not read: the pieces are gone through again. */
CASE(pieces_wait_for_room_and_go_out_whole, "C28 C12")
{
	enum { PIECES = 3, BATCHES = 20 };
	static uint32_t data[BATCHES][IO_BATCH_MAX][PIECES];
	static struct io_vec vec[BATCHES][IO_BATCH_MAX][PIECES];
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d[IO_BATCH_MAX];
	uint32_t got[PIECES + 1], arrived = 0, out = 0, batch;
	int fd[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), 0);
	t_adopt(l, &u, fd[0]);
	memset(d, 0, sizeof d);
	for (batch = 0; batch < BATCHES && !s.armed; batch++) {
		for (unsigned i = 0; i < IO_BATCH_MAX; i++, out++) {
			for (unsigned k = 0; k < PIECES; k++) {
				data[batch][i][k] = out * PIECES + k;
				vec[batch][i][k] = (struct io_vec){ &data[batch][i][k], 4 };
			}
			d[i].vec = vec[batch][i];
			d[i].nvec = PIECES;
		}
		t_send_batch(&s, &u, d, IO_BATCH_MAX);
		t_turn_for_ms(l, 5);
	}
	CHECK(s.armed);
	while (s.armed || arrived < out) {
		long n = n_try_recv(fd[1], got, sizeof got);

		for (unsigned k = 0; n >= 0 && k < PIECES; k++)
			CHECK_EQ(got[k], arrived * PIECES + k);
		CHECK(n < 0 || n == PIECES * 4);
		arrived += n >= 0;
		t_turn(l, false);
	}
	CHECK_EQ(s.res, IO_BATCH_MAX);
	for (unsigned i = 0; i < IO_BATCH_MAX; i++)
		CHECK_EQ(d[i].res, PIECES * 4);
	CHECK_EQ(n_try_recv(fd[1], got, sizeof got), -1);
	t_close(&u);
	t_loop_end(l);
	n_close(fd[1]);
}
#else
CASE_NOT_HERE(pieces_wait_for_room_and_go_out_whole, "C28 C12",
    "no datagram socket that blocks here")
#endif

/* SPDX-License-Identifier: ISC */
/*
 * C28, C26: batches of datagrams.  Oversized ones arrive cut with `trunc`; ICMP
 * errors on unconnected sockets are swallowed; a result for each one sent.
 */
#ifdef __linux__
#include <netinet/udp.h>
#endif

#include "suite.h"

#ifndef IPV6_RECVPKTINFO
#define IPV6_RECVPKTINFO IPV6_PKTINFO	/* Windows: one name for both */
#endif

enum { BLOCK = 2048, SEEN_MAX = 256 };

/* Everything that arrived, copied out. */
struct inbox {
	struct t_op	 o;
	struct io_pool	*pool;
	struct io_dgram	 v[IO_BATCH_MAX];
	unsigned	 n, callbacks, largest;
	bool		 keep;		/* blocks are not given back */
	struct io_buf	 kept[SEEN_MAX];
	struct {
		struct n_addr	peer, local;
		uint32_t	len;
		uint16_t	gso;
		bool		trunc;
		uint8_t		data[BLOCK];
	} got[SEEN_MAX];
};

static struct inbox in;

static void
batch_arrived(struct t_op *o)
{
	struct inbox *x = io_container_of(o, struct inbox, o);
	struct io_op *op = &o->op;

	if (op->res < 0) {
		CHECK(!op->more);
		CHECK_EQ(op->u.batch.n, 0);
		return;
	}
	CHECK(op->u.batch.n <= op->u.batch.max);
	CHECK(!op->more || op->u.batch.n > 0);
	x->callbacks++;
	if (op->u.batch.n > x->largest)
		x->largest = op->u.batch.n;
	for (unsigned i = 0; i < op->u.batch.n; i++) {
		struct io_dgram *d = &op->u.batch.v[i];

		CHECK(x->n < SEEN_MAX);
		CHECK(d->buf.len <= d->buf.cap && d->buf.cap <= BLOCK);
		x->got[x->n].peer.ss = d->peer;
		x->got[x->n].peer.len = d->peerlen;
		x->got[x->n].local.ss = d->local;
		x->got[x->n].len = d->buf.len;
		x->got[x->n].gso = d->gso;
		x->got[x->n].trunc = d->trunc;
		memcpy(x->got[x->n].data, d->buf.base, d->buf.len);
		if (x->keep)
			x->kept[x->n] = d->buf;
		else
			io_buf_put(x->pool, &d->buf);
		x->n++;
	}
}

static void
inbox_start(struct t_sock *u, struct io_pool *pool, unsigned max)
{
	memset(&in, 0, sizeof in);
	in.pool = pool;
	in.o.then = batch_arrived;
	t_recv_batch(&in.o, u, pool, in.v, max);
}

static void
inbox_end(struct io_loop *l)
{
	io_cancel(&in.o.op);
	TURN_UNTIL(l, !in.o.armed);
	CHECK_EQ(in.o.res, IO_ECANCELED);
	CHECK_EQ(in.o.finals, 1);
	CHECK_EQ(io_pool_stats(in.pool).lent, 0);
}

CASE(datagrams_arrive_whole_with_their_peers, "C26 C28 C9")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 256, 0);
	struct t_sock u;
	struct n_addr at, from;
	char msg[1400];
	io_fd peer;

	t_adopt(l, &u, n_udp("127.0.0.1", &at));
	peer = n_udp("127.0.0.1", &from);
	inbox_start(&u, pool, 16);
	for (unsigned i = 0; i < 100; i++) {
		memset(msg, (int)i, sizeof msg);
		n_sendto(peer, msg, i * 14, &at);	/* the first one is empty */
		if (i % 10 == 9)
			TURN_UNTIL(l, in.n == i + 1);
	}
	CHECK_EQ(in.n, 100);
	for (unsigned i = 0; i < 100; i++) {
		CHECK_EQ(in.got[i].len, i * 14);
		CHECK(!in.got[i].trunc);
		CHECK(n_same(&from, n_sa(&in.got[i].peer), in.got[i].peer.len));
		for (unsigned k = 0; k < in.got[i].len; k++)
			CHECK_EQ(in.got[i].data[k], i);
	}
	CHECK(in.o.armed);
	CHECK_EQ(io_pool_stats(pool).starved, 0);
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(peer);
}

/* More in the queue than one callback may carry: several, each with 1..max. */
CASE(full_queue_comes_in_batches_of_at_most_max, "C26 C8")
{
	for (unsigned max = 1; max <= IO_BATCH_MAX; max *= 4) {
		struct io_loop *l = t_loop();
		struct io_pool *pool = t_pool(l, BLOCK, 256, 0);
		struct t_sock u;
		struct n_addr at;
		io_fd peer;

		t_adopt(l, &u, n_udp("127.0.0.1", &at));
		peer = n_udp("127.0.0.1", NULL);
		for (unsigned i = 0; i < 100; i++)
			n_sendto(peer, &i, sizeof i, &at);
		inbox_start(&u, pool, max);
		TURN_UNTIL(l, in.n == 100);
		CHECK(in.largest <= max);
		CHECK_EQ(in.o.finals, 0);
		for (unsigned i = 0; i < 100; i++)
			CHECK_EQ(memcmp(in.got[i].data, &i, sizeof i), 0);
		t_note("max %u: %u callbacks, the largest with %u", max, in.callbacks, in.largest);
		inbox_end(l);
		t_close(&u);
		t_drain(l);
		io_pool_free(pool);
		t_loop_end(l);
		n_close(peer);
	}
}

CASE(oversized_datagram_arrives_cut, "C28")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 16, 0);
	struct t_sock u;
	struct n_addr at;
	static char big[20000];
	io_fd peer;

	t_adopt(l, &u, n_udp("127.0.0.1", &at));
	peer = n_udp("127.0.0.1", NULL);
	inbox_start(&u, pool, 8);
	t_pattern(28, 0, big, sizeof big);
	for (unsigned i = 0; i < 12; i++) {
		n_sendto(peer, big, i % 2 ? sizeof big : 100, &at);
		TURN_UNTIL(l, in.n == i + 1);
		CHECK_EQ(in.got[i].trunc, i % 2);
		if (i % 2)
			CHECK(in.got[i].len > 1000 && in.got[i].len <= BLOCK);
		else
			CHECK_EQ(in.got[i].len, 100);
		CHECK(t_pattern_ok(28, 0, in.got[i].data, in.got[i].len));
	}
	CHECK(in.o.armed);
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(peer);
}

CASE(datagrams_wait_while_the_pool_is_exhausted, "C27 C26")
{
	enum { BLOCKS = 6 };
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, BLOCKS, 0);
	struct t_sock u;
	struct n_addr at;
	struct io_stats before;
	unsigned held;
	io_fd peer;

	t_adopt(l, &u, n_udp("127.0.0.1", &at));
	peer = n_udp("127.0.0.1", NULL);
	inbox_start(&u, pool, 4);
	in.keep = true;
	for (unsigned i = 0; i < 40; i++)
		n_sendto(peer, &i, sizeof i, &at);
	t_turn_for_ms(l, 10);
	before = io_loop_stats(l);
	t_turn_for_ms(l, 20);
	CHECK(io_loop_stats(l).turns - before.turns < 40);
	held = in.n;
	CHECK(held > 0 && held <= BLOCKS);
	CHECK(in.o.armed);
	CHECK_EQ(io_pool_stats(pool).starved, 1);
	in.keep = false;
	for (unsigned i = 0; i < held; i++)
		io_buf_put(pool, &in.kept[i]);
	TURN_UNTIL(l, in.n == 40);
	for (unsigned i = 0; i < 40; i++)
		CHECK_EQ(memcmp(in.got[i].data, &i, sizeof i), 0);
	CHECK_EQ(in.o.finals, 0);
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(peer);
}

CASE(close_ends_a_batch_receive_and_gives_its_blocks_back, "C20 C26")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 64, 0);

	for (int round = 0; round < 20; round++) {
		struct t_sock u;
		struct n_addr at;
		io_fd peer;

		t_adopt(l, &u, n_udp("127.0.0.1", &at));
		peer = n_udp("127.0.0.1", NULL);
		inbox_start(&u, pool, 8);
		for (int i = 0; i < round % 4; i++)
			t_turn(l, false);
		for (int i = 0; i < round % 5; i++)
			n_sendto(peer, "x", 1, &at);
		if (round % 3 == 0)
			t_turn(l, false);
		t_close(&u);
		TURN_UNTIL(l, u.closed);
		CHECK(!in.o.armed);
		CHECK_EQ(in.o.finals, 1);
		CHECK_EQ(io_pool_stats(pool).lent, 0);
		n_close(peer);
	}
	io_pool_free(pool);
	t_loop_end(l);
}

static void
dgram_to(struct io_dgram *d, const void *data, uint32_t len, const struct n_addr *to)
{
	memset(d, 0, sizeof *d);
	d->buf.base = (uint8_t *)(uintptr_t)data;
	d->buf.len = d->buf.cap = len;
	d->peer = to->ss;
	d->peerlen = to->len;
}

/* IPv4 address of a local that is known. */
static uint32_t
local4(const struct n_addr *a)
{
	return ntohl(((const struct sockaddr_in *)(const void *)&a->ss)->sin_addr.s_addr);
}

CASE(local_address_is_told_when_asked_for_and_can_be_chosen, "C26 C28")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 64, 0);
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d;
	struct n_addr at, to, here, from;
	int one = 1;
	char buf[16];
	io_fd fd, peer;

	fd = n_udp("0.0.0.0", &at);
	peer = n_udp("127.0.0.1", &here);
	if (setsockopt(fd, IPPROTO_IP, IP_PKTINFO, (const void *)&one, sizeof one) != 0)
		SKIP("no IP_PKTINFO");
	t_adopt(l, &u, fd);
	inbox_start(&u, pool, 8);
	for (unsigned i = 0; i < 3; i++) {
		char ip[] = "127.0.0.2";

		ip[8] = (char)('2' + i);
		n_addr4(&to, ip, n_port(&at));
		n_sendto(peer, "ask", 3, &to);
		TURN_UNTIL(l, in.n == i + 1);
		CHECK_EQ(in.got[i].local.ss.ss_family, AF_INET);
		CHECK_EQ(local4(&in.got[i].local), 0x7f000002 + i);
		/* The answer leaves from there. */
		dgram_to(&d, "answer", 6, &here);
		d.local = in.got[i].local.ss;
		t_send_batch(&s, &u, &d, 1);
		TURN_UNTIL(l, !s.armed);
		CHECK_EQ(d.res, 6);
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, &from), 6);
		/* wine's WSASendMsg does not look at its control messages. */
		CHECK(n_is_wine() || n_same(&to, n_sa(&from), from.len));
	}
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	/* Nobody asked: not known. */
	t_adopt(l, &u, n_udp("127.0.0.1", &at));
	inbox_start(&u, pool, 8);
	n_sendto(peer, "ask", 3, &at);
	TURN_UNTIL(l, in.n == 1);
	CHECK_EQ(in.got[0].local.ss.ss_family, AF_UNSPEC);
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(peer);
}

CASE(local_address_is_told_on_ipv6, "C26 C28")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 64, 0);
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d;
	struct n_addr at, to, here, from;
	int one = 1;
	char buf[16];
	io_fd fd = socket(AF_INET6, SOCK_DGRAM, 0), peer;

	n_addr6(&to, "::1", 0);
	if (fd == IO_FD_NONE || bind(fd, n_sa(&to), to.len) != 0)
		SKIP("no IPv6 loopback here");
	n_close(fd);
	fd = n_udp("::", &at);
	peer = n_udp("::1", &here);
	CHECK_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, (const void *)&one, sizeof one),
	    0);
	t_adopt(l, &u, fd);
	inbox_start(&u, pool, 8);
	n_addr6(&to, "::1", n_port(&at));
	n_sendto(peer, "ask", 3, &to);
	TURN_UNTIL(l, in.n == 1);
	CHECK_EQ(in.got[0].local.ss.ss_family, AF_INET6);
	CHECK(memcmp(&((struct sockaddr_in6 *)(void *)&in.got[0].local.ss)->sin6_addr,
	    &in6addr_loopback, 16) == 0);
	dgram_to(&d, "answer", 6, &here);
	d.local = in.got[0].local.ss;
	t_send_batch(&s, &u, &d, 1);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(d.res, 6);
	CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, &from), 6);
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(peer);
}

/* Errors of a destination come back as ICMP: no business of the socket's other peers. */
static void
icmp_is_swallowed(bool ask_for_errors)
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 64, 0);
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d[2];
	struct n_addr at, dead, good;
	struct io_stats before;
	int one = 1;
	char buf[16];
	io_fd fd = n_udp("127.0.0.1", &at), peer = n_udp("127.0.0.1", &good);

	n_close(n_udp("127.0.0.1", &dead));
#ifdef __linux__
	if (ask_for_errors)
		CHECK_EQ(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one), 0);
#else
	(void)one;
#endif
	t_adopt(l, &u, fd);
	inbox_start(&u, pool, 8);
	t_turn(l, false);
	for (unsigned i = 0; i < 20; i++) {
		dgram_to(&d[0], "lost", 4, &dead);
		dgram_to(&d[1], "found", 5, &good);
		/*
		 * In one batch and in two: sendmmsg(2) may eat the error itself, a
		 * receive or the next batch meets it.
		 */
		t_send_batch(&s, &u, d, i % 2 ? 2 : 1);
		TURN_UNTIL(l, !s.armed);
		CHECK_EQ(s.res, i % 2 ? 2 : 1);
		if (i % 2 == 0) {
			if (i % 4 == 0)
				t_turn_for_ms(l, 1);
			t_send_batch(&s, &u, d + 1, 1);
			TURN_UNTIL(l, !s.armed);
			CHECK_EQ(s.res, 1);
		}
		CHECK_EQ(d[1].res, 5);
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), 5);
		t_turn_for_ms(l, 1);
		CHECK(in.o.armed);
		n_sendto(peer, "still here", 10, &at);
		TURN_UNTIL(l, in.n == i + 1);
		CHECK_EQ(in.got[i].len, 10);
	}
	CHECK(in.o.armed);
	if (ask_for_errors)
		CHECK(io_loop_stats(l).icmp_swallowed > 0);
	/* An error queue that nobody empties must not keep the loop awake. */
	before = io_loop_stats(l);
	t_turn_for_ms(l, 20);
	CHECK(io_loop_stats(l).turns - before.turns < 40);
	inbox_end(l);
	t_close(&u);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(peer);
}

CASE(icmp_errors_do_not_disturb_an_unconnected_socket, "C28") { icmp_is_swallowed(false); }
#ifdef __linux__
CASE(icmp_errors_that_surface_are_counted_and_swallowed, "C28") { icmp_is_swallowed(true); }
#else
CASE_NOT_HERE(icmp_errors_that_surface_are_counted_and_swallowed, "C28",
    "no way to ask for such errors on an unconnected socket")
#endif

CASE(each_datagram_of_a_batch_has_its_own_result, "C28 C10")
{
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d[6];
	struct n_addr good, forbidden;
	static char huge[70000], buf[2000];
	io_fd peer = n_udp("127.0.0.1", &good);

	n_addr4(&forbidden, "127.255.255.255", 9);
	t_adopt(l, &u, n_udp("127.0.0.1", NULL));
	for (int round = 0; round < 5; round++) {
		dgram_to(&d[0], "one", 3, &good);
		dgram_to(&d[1], huge, sizeof huge, &good);
		dgram_to(&d[2], "three", 5, &good);
		dgram_to(&d[3], "x", 1, &forbidden);
		dgram_to(&d[4], "", 0, &good);
		dgram_to(&d[5], huge, 1500, &good);
		t_send_batch(&s, &u, d, 6);
		TURN_UNTIL(l, !s.armed);
		CHECK_EQ(s.calls, round + 1);
		CHECK_EQ(s.res, 4);
		CHECK_EQ(d[0].res, 3);
		CHECK_EQ(d[1].res, IO_EMSGSIZE);
		CHECK_EQ(d[2].res, 5);
		CHECK_EQ(d[3].res, IO_EACCES);
		CHECK_EQ(d[4].res, 0);
		CHECK_EQ(d[5].res, 1500);
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), 3);
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), 5);
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), 0);
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), 1500);
	}
	t_close(&u);
	t_loop_end(l);
	n_close(peer);
}

CASE(batch_of_64_goes_out_whole, "C28")
{
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d[IO_BATCH_MAX];
	uint32_t data[IO_BATCH_MAX], got;
	struct n_addr to;
	io_fd peer = n_udp("127.0.0.1", &to);

	t_adopt(l, &u, n_udp("127.0.0.1", NULL));
	for (int round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < IO_BATCH_MAX; i++) {
			data[i] = i;
			dgram_to(&d[i], &data[i], sizeof data[i], &to);
		}
		t_send_batch(&s, &u, d, IO_BATCH_MAX);
		TURN_UNTIL(l, !s.armed);
		CHECK_EQ(s.res, IO_BATCH_MAX);
		for (uint32_t i = 0; i < IO_BATCH_MAX; i++) {
			CHECK_EQ(d[i].res, 4);
			CHECK_EQ(n_recvfrom(peer, &got, sizeof got, NULL), 4);
			CHECK_EQ(got, i);
		}
	}
	t_close(&u);
	t_loop_end(l);
	n_close(peer);
}

#ifndef _WIN32
/* A Unix datagram socket blocks when its peer does not read. */
static void
blocked_batch(bool cancel)
{
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d[IO_BATCH_MAX];
	struct n_addr none = { 0 };
	uint32_t data[IO_BATCH_MAX], got, arrived = 0, out, batches = 0;
	int fd[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), 0);
	t_adopt(l, &u, fd[0]);
	for (uint32_t i = 0; i < IO_BATCH_MAX; i++)
		data[i] = i;
	for (out = 0; batches < 20 && !s.armed; batches++) {
		for (uint32_t i = 0; i < IO_BATCH_MAX; i++)
			dgram_to(&d[i], &data[i], sizeof data[i], &none);
		t_send_batch(&s, &u, d, IO_BATCH_MAX);
		t_turn_for_ms(l, 5);
		if (!s.armed) {
			CHECK_EQ(s.res, IO_BATCH_MAX);
			out += IO_BATCH_MAX;
		}
	}
	CHECK(s.armed);
	if (cancel)
		io_cancel(&s.op);
	while (s.armed) {
		t_turn(l, false);
		if (!cancel && n_try_recv(fd[1], &got, sizeof got) == sizeof got)
			arrived++;
	}
	CHECK(s.res >= 0 || s.res == IO_ECANCELED);
	if (!cancel)
		CHECK_EQ(s.res, IO_BATCH_MAX);
	for (uint32_t i = 0, n = 0; i < IO_BATCH_MAX; i++) {
		CHECK(d[i].res == 4 || (cancel && d[i].res < 0));
		n += d[i].res == 4;
		if (i == IO_BATCH_MAX - 1) {
			CHECK(s.res < 0 ? n == 0 : n == (uint32_t)s.res);
			out += n;
		}
	}
	while (n_try_recv(fd[1], &got, sizeof got) == sizeof got)
		arrived++;
	CHECK_EQ(arrived, out);
	t_close(&u);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(blocked_batch_goes_on_when_there_is_room, "C28 C12") { blocked_batch(false); }
CASE(blocked_batch_that_is_cancelled_tells_what_went, "C28 C17") { blocked_batch(true); }
#else
CASE_NOT_HERE(blocked_batch_goes_on_when_there_is_room, "C28 C12",
    "no datagram socket that blocks here")
CASE_NOT_HERE(blocked_batch_that_is_cancelled_tells_what_went, "C28 C17",
    "no datagram socket that blocks here")
#endif

#if defined(__linux__) || defined(_WIN32)
CASE(segmented_datagram_arrives_in_its_segments, "C28")
{
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d[2];
	struct n_addr to;
	static char data[5500], buf[2000];
	io_fd peer = n_udp("127.0.0.1", &to);

	t_adopt(l, &u, n_udp("127.0.0.1", NULL));
	t_pattern(29, 0, data, sizeof data);
	for (int round = 0; round < 3; round++) {
		dgram_to(&d[0], data, sizeof data, &to);
		d[0].gso = 1000;
		dgram_to(&d[1], "single", 6, &to);
		t_send_batch(&s, &u, d, 2);
		TURN_UNTIL(l, !s.armed);
		if (d[0].res < 0)
			SKIP("this kernel has no UDP_SEGMENT");
		CHECK_EQ(s.res, 2);
		CHECK_EQ(d[0].res, sizeof data);
		for (unsigned i = 0; i < 6; i++) {
			CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), i < 5 ? 1000 : 500);
			CHECK(t_pattern_ok(29, i * 1000, buf, i < 5 ? 1000 : 500));
		}
		CHECK_EQ(n_recvfrom(peer, buf, sizeof buf, NULL), 6);
	}
	t_close(&u);
	t_loop_end(l);
	n_close(peer);
}
#endif

#ifdef __linux__
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* With UDP_GRO a run of datagrams may come as one buffer, with the segment size told. */
CASE(coalesced_datagrams_tell_their_segment_size, "C28 C26")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, BLOCK, 64, 0);
	struct t_sock u, w;
	struct t_op s = { 0 };
	struct io_dgram d;
	struct n_addr to;
	static char data[1500];
	unsigned bytes = 0, seen = 0;
	int one = 1;
	io_fd fd = n_udp("127.0.0.1", &to);

	if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one) != 0)
		SKIP("no UDP_GRO");
	t_adopt(l, &u, fd);
	t_adopt(l, &w, n_udp("127.0.0.1", NULL));
	inbox_start(&u, pool, 8);
	t_pattern(30, 0, data, sizeof data);
	dgram_to(&d, data, sizeof data, &to);
	d.gso = 300;
	t_send_batch(&s, &w, &d, 1);
	TURN_UNTIL(l, !s.armed);
	if (d.res < 0)
		SKIP("this kernel has no UDP_SEGMENT");
	while (bytes < sizeof data) {
		TURN_UNTIL(l, in.n > seen);
		for (; seen < in.n; seen++) {
			CHECK(!in.got[seen].trunc);
			CHECK(in.got[seen].len <= 300 || in.got[seen].gso == 300);
			CHECK(t_pattern_ok(30, bytes, in.got[seen].data, in.got[seen].len));
			bytes += in.got[seen].len;
		}
	}
	CHECK_EQ(bytes, sizeof data);
	inbox_end(l);
	t_close(&u);
	t_close(&w);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
}
#else
CASE_NOT_HERE(coalesced_datagrams_tell_their_segment_size, "C28 C26", "no UDP_GRO here")
#endif

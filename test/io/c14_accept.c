/* SPDX-License-Identifier: ISC */
/* C14: accept is multishot and gives ready-made descriptors with their peers. */
#ifndef _WIN32
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>
#endif

#include "suite.h"

struct arrivals {
	struct t_op	 acc;
	struct n_addr	 peer[64];
	unsigned	 n;
};

static void
arrived(struct t_op *o)
{
	struct arrivals *a = io_container_of(o, struct arrivals, acc);
	struct io_op *op = &o->op;

	if (!op->more)
		return;
	CHECK(op->res >= 0);
	CHECK(op->u.accept.fd != IO_FD_NONE);
	CHECK(op->u.accept.peer != NULL);
	CHECK(a->n < 64);
	memcpy(&a->peer[a->n].ss, op->u.accept.peer, op->u.accept.peerlen);
	a->peer[a->n++].len = op->u.accept.peerlen;
}

static void
peers_are_told(const char *ip)
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct arrivals a = { .acc.then = arrived };
	struct n_addr at, from;
	io_fd c[30];

	t_adopt(l, &lst, n_listen(ip, 64, &at));
	t_accept(&a.acc, &lst);
	for (unsigned i = 0; i < 30; i++) {
		c[i] = n_connect(&at);
		if (i % 7 == 0)
			TURN_UNTIL(l, a.n == i + 1);
	}
	TURN_UNTIL(l, a.n == 30);
	for (unsigned i = 0; i < 30; i++) {
		unsigned k = 0;
		char byte = (char)i, back;

		n_local(c[i], &from);
		while (k < 30 && !n_same(&from, n_sa(&a.peer[k]), a.peer[k].len))
			k++;
		CHECK(k < 30);
		n_send(c[i], &byte, 1);
		n_nonblock(a.acc.fds[k], false);
		n_recv_all(a.acc.fds[k], &back, 1);
		CHECK_EQ(back, byte);
		n_close(c[i]);
	}
	t_fds_close(&a.acc);
	t_close(&lst);
	t_loop_end(l);
}

CASE(accept_tells_the_peer_of_each_connection, "C14") { peers_are_told("127.0.0.1"); }

CASE(accept_tells_the_peer_on_ipv6, "C14")
{
	struct n_addr a;
	io_fd fd = socket(AF_INET6, SOCK_STREAM, 0);

	if (fd == IO_FD_NONE || !n_addr6(&a, "::1", 0) || bind(fd, n_sa(&a), a.len) != 0)
		SKIP("no IPv6 loopback here");
	n_close(fd);
	peers_are_told("::1");
}

static bool
passes_to_children(io_fd fd)
{
#ifdef _WIN32
	DWORD flags = 0;

	return !GetHandleInformation((HANDLE)fd, &flags) || (flags & HANDLE_FLAG_INHERIT) != 0;
#else
	return (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
#endif
}

/* Nobody has sent anything. */
static bool
blocks(io_fd fd)
{
#ifdef _WIN32
	char c;

	return recv(fd, &c, 1, 0) >= 0 || WSAGetLastError() != WSAEWOULDBLOCK;
#else
	return (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
#endif
}

CASE(accepted_descriptors_are_nonblocking_and_close_on_exec, "C14")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_addr at;
	io_fd c[3];

	t_adopt(l, &lst, n_listen("127.0.0.1", 8, &at));
	t_accept(&acc, &lst);
	for (unsigned i = 0; i < 3; i++)
		c[i] = n_connect(&at);
	TURN_UNTIL(l, acc.nfds == 3);
	for (unsigned i = 0; i < 3; i++) {
		CHECK(!blocks(acc.fds[i]));
		CHECK(!passes_to_children(acc.fds[i]));
		n_close(c[i]);
	}
	t_fds_close(&acc);
	t_close(&lst);
	t_loop_end(l);
}

#ifndef _WIN32
CASE(accept_works_on_unix_sockets, "C14")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct arrivals a = { .acc.then = arrived };
	struct n_addr at = { 0 };
	struct sockaddr_un *un = (void *)&at.ss;
	io_fd lfd = socket(AF_UNIX, SOCK_STREAM, 0), c[5];

	un->sun_family = AF_UNIX;
	/* Abstract where there is such a thing, so that nothing is left behind. */
	snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "rw-io-suite-%d", (int)getpid());
	at.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
	    strlen(un->sun_path + 1));
	if (bind(lfd, n_sa(&at), at.len) != 0)
		SKIP("no abstract Unix sockets here");
	CHECK_EQ(listen(lfd, 8), 0);
	t_adopt(l, &lst, lfd);
	t_accept(&a.acc, &lst);
	for (unsigned i = 0; i < 5; i++)
		c[i] = n_connect(&at);
	TURN_UNTIL(l, a.n == 5);
	for (unsigned i = 0; i < 5; i++) {
		CHECK_EQ(a.peer[i].ss.ss_family, AF_UNIX);
		n_close(c[i]);
	}
	t_fds_close(&a.acc);
	t_close(&lst);
	t_loop_end(l);
}

/* The descriptors run out; later there is room again, and who waited is served. */
CASE_ALONE(accept_ends_when_descriptors_run_out_and_goes_on_when_rearmed, "C14 C10")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_addr at;
	struct rlimit lim;
	io_fd c[12];
	unsigned got;
	int next;

	t_adopt(l, &lst, n_listen("127.0.0.1", 32, &at));
	for (int i = 0; i < 12; i++)
		c[i] = n_tcp(AF_INET);
	next = dup(c[0]);
	close(next);
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = (rlim_t)next + 4;	/* room for four */
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &lim), 0);
	/* Armed now: a ring takes the limit over when the accept is started. */
	t_accept(&acc, &lst);
	t_turn(l, false);
	for (int i = 0; i < 12; i++)
		CHECK_EQ(connect(c[i], n_sa(&at), at.len), 0);
	t_turn_for_ms(l, 20);
	if (acc.finals == 0)
		FAIL("%u of 12 accepted, room for 4, and no error", acc.nfds);
	CHECK_EQ(acc.res, IO_EMFILE);
	CHECK_EQ(acc.syserr, EMFILE);
	CHECK_EQ(acc.nfds, 4);
	/* Again at once: the same, and no spinning inside. */
	t_accept(&acc, &lst);
	TURN_UNTIL(l, acc.finals == 2);
	CHECK_EQ(acc.res, IO_EMFILE);
	got = acc.nfds;
	for (unsigned i = 0; i < got; i++)
		n_close(acc.fds[i]);
	lim.rlim_cur = lim.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &lim), 0);
	t_accept(&acc, &lst);
	TURN_UNTIL(l, acc.nfds == 12);
	CHECK(acc.armed);
	for (unsigned i = got; i < 12; i++)
		n_close(acc.fds[i]);
	for (int i = 0; i < 12; i++)
		n_close(c[i]);
	free(acc.fds);
	t_close(&lst);
	t_loop_end(l);
}
#else
CASE_NOT_HERE(accept_works_on_unix_sockets, "C14", "AcceptEx knows no Unix sockets")
CASE_NOT_HERE(accept_ends_when_descriptors_run_out_and_goes_on_when_rearmed, "C14 C10",
    "no limit on a process's sockets can be set")
#endif

CASE(connections_aborted_in_the_queue_do_no_harm, "C14")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_addr at;
	unsigned before;
	io_fd good;

	t_adopt(l, &lst, n_listen("127.0.0.1", 64, &at));
	for (int i = 0; i < 20; i++)
		n_reset(n_connect(&at));
	t_accept(&acc, &lst);
	t_turn_for_ms(l, 5);
	CHECK_EQ(acc.finals, 0);
	before = acc.nfds;
	good = n_connect(&at);
	TURN_UNTIL(l, acc.nfds == before + 1);
	CHECK_EQ(acc.finals, 0);
	n_close(good);
	t_fds_close(&acc);
	t_close(&lst);
	t_loop_end(l);
}

static struct n_addr crowd_at;
enum { CROWD = 400 };
static io_fd crowd[CROWD];

static void
crowd_comes(void *p)
{
	(void)p;
	for (int i = 0; i < CROWD; i++)
		crowd[i] = n_connect(&crowd_at);
}

CASE(no_connection_is_lost_in_a_crowd, "C14")
{
	struct io_loop *l = t_loop();
	struct t_sock lst;
	struct t_op acc = { 0 };
	struct n_thread t;

	t_adopt(l, &lst, n_listen("127.0.0.1", 1000, &crowd_at));
	t_accept(&acc, &lst);
	n_thread(&t, crowd_comes, NULL);
	TURN_UNTIL(l, acc.nfds == CROWD);
	n_join(&t);
	CHECK_EQ(acc.finals, 0);
	for (int i = 0; i < CROWD; i++)
		n_close(crowd[i]);
	t_fds_close(&acc);
	t_close(&lst);
	t_loop_end(l);
}

/* Several loops arm the same listening descriptor (Unix sockets, activated sockets). */
CASE(several_loops_share_a_listening_descriptor, "C14 C1")
{
	enum { LOOPS = 3, CLIENTS = 90 };
	struct io_loop *l[LOOPS];
	struct t_sock lst[LOOPS];
	struct t_op acc[LOOPS] = { 0 };
	struct n_addr at;
	io_fd fd = n_listen("127.0.0.1", 128, &at), c[CLIENTS];
	unsigned sum = 0;
	uint64_t t0 = n_now_ns();

	for (int i = 0; i < LOOPS; i++) {
		l[i] = t_loop();
#ifdef _WIN32
		if (i > 0)
			SKIP("a descriptor belongs to one port for good");
		t_adopt(l[i], &lst[i], fd);
#else
		t_adopt(l[i], &lst[i], dup(fd));
#endif
		t_accept(&acc[i], &lst[i]);
		t_turn(l[i], false);
	}
	for (int i = 0; i < CLIENTS; i++)
		c[i] = n_connect(&at);
	while (sum < CLIENTS) {
		sum = 0;
		for (int i = 0; i < LOOPS; i++) {
			t_turn(l[i], false);
			sum += acc[i].nfds;
		}
		if (n_now_ns() - t0 > 5000000000u)
			FAIL("%u of %u connections arrived", sum, CLIENTS);
	}
	/* One loop lets go: the others still get everything. */
	t_close_wait(&lst[0]);
	io_fd more[20];
	for (int i = 0; i < 20; i++)
		more[i] = n_connect(&at);
	while (sum < CLIENTS + 20) {
		sum = acc[0].nfds;
		for (int i = 1; i < LOOPS; i++) {
			t_turn(l[i], false);
			sum += acc[i].nfds;
		}
		if (n_now_ns() - t0 > 5000000000u)
			FAIL("%u of %u connections arrived", sum, CLIENTS + 20);
	}
	for (int i = 0; i < CLIENTS; i++)
		n_close(c[i]);
	for (int i = 0; i < 20; i++)
		n_close(more[i]);
	for (int i = 0; i < LOOPS; i++) {
		t_fds_close(&acc[i]);
		if (i > 0)
			t_close(&lst[i]);
		t_loop_end(l[i]);
	}
	n_close(fd);
}

CASE(accepted_descriptor_may_be_adopted_by_another_loop, "C14")
{
	struct io_loop *l = t_loop(), *m = t_loop();
	struct t_sock lst, s;
	struct t_op acc = { 0 }, r = { 0 };
	struct n_addr at;
	io_fd c;
	char buf[4];

	t_adopt(l, &lst, n_listen("127.0.0.1", 4, &at));
	t_accept(&acc, &lst);
	c = n_connect(&at);
	TURN_UNTIL(l, acc.nfds == 1);
	t_adopt(m, &s, acc.fds[0]);
	acc.nfds = 0;
	t_recv(&r, &s, buf, sizeof buf);
	t_turn(m, false);
	n_send(c, "ab", 2);
	TURN_UNTIL(m, !r.armed);
	CHECK_EQ(r.res, 2);
	t_close(&s);
	t_close(&lst);
	t_loop_end(m);
	t_loop_end(l);
	t_fds_close(&acc);
	n_close(c);
}

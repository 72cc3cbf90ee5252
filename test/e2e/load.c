/* SPDX-License-Identifier: ISC */
/*
 * load: many connections from one small process, for the tests that need more
 * than threads in Python can hold.  One thread, epoll.
 *
 *	load origin echo|source|http PORT
 *		listens on 127.0.0.1; echo returns what comes, source sends
 *		without end after the first byte, http answers any head with a
 *		response of nearly endless length.  Prints "listening".
 *	load hold|stall|drain KIND PROXYPORT ORIGINPORT COUNT WINDOW
 *		opens COUNT tunnels of KIND (socks5, connect, forward), at most
 *		WINDOW handshakes at a time, then prints
 *		"ready ok=N failed=N" and takes commands on stdin:
 *		ping (every tunnel sends its own tag and must get it back),
 *		alive (how many are still open), quit.
 *		stall asks for a download and never reads it, drain reads it.
 *	load storm KIND PROXYPORT ORIGINPORT COUNT WINDOW SEED
 *		COUNT short connections, each with a tag of its own sent right
 *		behind the request; half of them are reset as soon as their tag
 *		is out.  A tag that comes back on another connection is foreign.
 *		Prints "storm ok=N reset=N failed=N foreign=N".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define TAG_BYTES	16
#define HEAD_MAX	4096
#define STALL_RCVBUF	8192		/* small: thousands of them are full at once */
#define MAX_EVENTS	512
#define CHUNK		65536

enum kind { KIND_SOCKS5, KIND_CONNECT, KIND_FORWARD };
enum mode { MODE_HOLD, MODE_STALL, MODE_DRAIN, MODE_STORM };
enum state { ST_FREE, ST_CONNECTING, ST_GREETED, ST_ASKED, ST_OPEN, ST_PINGED };

struct conn {
	int		fd;
	enum state	state;
	uint64_t	id;
	uint64_t	round;
	uint32_t	got;			/* bytes of the expected tag so far */
	uint32_t	head_len;
	uint8_t		head[512];
};

struct load {
	int		ep;
	enum kind	kind;
	enum mode	mode;
	int		proxy_port;
	int		origin_port;
	unsigned	count;
	unsigned	window;
	unsigned	started;
	unsigned	in_flight;
	unsigned	ok, failed, foreign, reset;
	unsigned	pings_due, pings_ok;
	uint64_t	round;
	uint64_t	seed;
	struct conn	*conns;
};

static uint8_t junk[CHUNK];

static void
die(const char *what)
{
	perror(what);
	exit(3);
}

static void
raise_nofile(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static struct sockaddr_in
loopback(int port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };

	sin.sin_port = htons((uint16_t)port);
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return sin;
}

static void
watch(int ep, int fd, uint32_t events, void *ptr, bool add)
{
	struct epoll_event ev = { .events = events, .data.ptr = ptr };

	if (epoll_ctl(ep, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &ev) != 0)
		die("epoll_ctl");
}

/* --- origins ------------------------------------------------------------- */

struct peer {
	int		fd;
	bool		talking;		/* source, http: the first byte has come */
	bool		ended;			/* the other side has sent FIN */
	uint32_t	kept, kept_at;		/* echo: bytes not yet returned */
	uint8_t		buf[4096];		/* longer than any tag: echo is for tags */
};

static void
peer_drop(struct peer *p)
{
	close(p->fd);
	free(p);
}

/* Returns false when the peer is gone. */
static bool
peer_echo(int ep, struct peer *p)
{
	for (;;) {
		while (p->kept_at < p->kept) {
			ssize_t n = send(p->fd, p->buf + p->kept_at, p->kept - p->kept_at, MSG_NOSIGNAL);
			if (n < 0 && errno == EAGAIN) {
				watch(ep, p->fd, EPOLLOUT, p, false);
				return true;
			}
			if (n < 0)
				return false;
			p->kept_at += (uint32_t)n;
		}
		ssize_t n = recv(p->fd, p->buf, sizeof(p->buf), 0);
		if (n < 0 && errno == EAGAIN) {
			watch(ep, p->fd, EPOLLIN, p, false);
			return true;
		}
		if (n <= 0)
			return false;
		p->kept = (uint32_t)n;
		p->kept_at = 0;
	}
}

static bool
peer_source(int ep, struct peer *p, bool http, uint32_t events)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";

	if (events & (EPOLLERR | EPOLLHUP))
		return false;
	if (!p->ended && (events & EPOLLIN)) {
		ssize_t n = recv(p->fd, junk, sizeof(junk), 0);
		if (n < 0 && errno != EAGAIN)
			return false;
		if (n == 0)
			p->ended = true;
		if (n > 0 && !p->talking) {
			p->talking = true;
			if (http && send(p->fd, head, sizeof(head) - 1, MSG_NOSIGNAL) < 0)
				return false;
		}
		if (p->ended && !p->talking)
			return false;
	}
	if (p->talking) {
		/* one send a turn: thousands of peers share this thread */
		if (send(p->fd, junk, sizeof(junk), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
			return false;
		watch(ep, p->fd, EPOLLOUT | (p->ended ? 0 : EPOLLIN), p, false);
	}
	return true;
}

static _Noreturn void
origin(const char *what, int port)
{
	struct sockaddr_in sin = loopback(port);
	struct epoll_event ev[MAX_EVENTS];
	bool source = strcmp(what, "echo") != 0, http = strcmp(what, "http") == 0;
	int one = 1, small = 8192;
	int ep = epoll_create1(EPOLL_CLOEXEC);
	int lfd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (source)
		setsockopt(lfd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	if (bind(lfd, (struct sockaddr *)&sin, sizeof(sin)) != 0 || listen(lfd, 16384) != 0)
		die("listen");
	watch(ep, lfd, EPOLLIN, NULL, true);
	puts("listening");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, -1);
		for (int i = 0; i < n; i++) {
			struct peer *p = ev[i].data.ptr;
			if (p == NULL) {
				int fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
				if (fd < 0)
					continue;
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				p = calloc(1, sizeof(*p));
				if (p == NULL)
					die("calloc");
				p->fd = fd;
				watch(ep, fd, EPOLLIN, p, true);
			} else if (!(source ? peer_source(ep, p, http, ev[i].events) : peer_echo(ep, p))) {
				peer_drop(p);
			}
		}
	}
}

/* --- clients --------------------------------------------------------------- */

static void
tag_of(const struct load *l, const struct conn *c, uint8_t tag[TAG_BYTES])
{
	uint64_t a = c->id + 1, b = (c->id + 1) * 0x9e3779b97f4a7c15u ^ c->round ^ l->seed;

	memcpy(tag, &a, 8);
	memcpy(tag + 8, &b, 8);
}

static void
conn_end(struct load *l, struct conn *c, unsigned *counter)
{
	if (c->state != ST_OPEN && c->state != ST_PINGED)
		l->in_flight--;
	close(c->fd);
	c->fd = -1;
	c->state = ST_FREE;
	(*counter)++;
}

static void
conn_reset(struct load *l, struct conn *c)
{
	struct linger hard = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	conn_end(l, c, &l->reset);
}

/* The request's bytes; in a storm and for downloads the first payload rides behind. */
static size_t
request_of(const struct load *l, const struct conn *c, uint8_t *out)
{
	size_t n = 0;

	switch (l->kind) {
	case KIND_SOCKS5: {
		static const uint8_t head[] = { 5, 1, 0, 1, 127, 0, 0, 1 };
		memcpy(out, head, sizeof(head));
		n = sizeof(head);
		out[n++] = (uint8_t)(l->origin_port >> 8);
		out[n++] = (uint8_t)l->origin_port;
		break;
	}
	case KIND_CONNECT:
		n = (size_t)sprintf((char *)out, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
		    l->origin_port, l->origin_port);
		break;
	case KIND_FORWARD:
		n = (size_t)sprintf((char *)out, "GET http://127.0.0.1:%d/%llu HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
		    l->origin_port, (unsigned long long)c->id, l->origin_port);
		return n;
	}
	if (l->mode == MODE_STORM) {
		tag_of(l, c, out + n);
		n += TAG_BYTES;
	} else if (l->mode != MODE_HOLD) {
		out[n++] = 'x';
	}
	return n;
}

static void
conn_start(struct load *l, struct conn *c)
{
	struct sockaddr_in sin = loopback(l->proxy_port);
	int one = 1, small = STALL_RCVBUF;

	c->id = l->started++;
	c->state = ST_CONNECTING;
	c->got = c->head_len = 0;
	l->in_flight++;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		die("socket");
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (l->mode == MODE_STALL)
		setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (connect(c->fd, (struct sockaddr *)&sin, sizeof(sin)) != 0 && errno != EINPROGRESS) {
		conn_end(l, c, &l->failed);
		return;
	}
	watch(l->ep, c->fd, EPOLLOUT, c, true);
}

static bool
send_all(int fd, const void *data, size_t len)
{
	return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static void
conn_opened(struct load *l, struct conn *c)
{
	c->state = ST_OPEN;
	l->in_flight--;
	if (l->mode != MODE_STORM)
		l->ok++;
	if (l->mode == MODE_STALL)
		watch(l->ep, c->fd, EPOLLRDHUP, c, false);	/* never read; only learn of an end */
}

/* How many bytes of `head` are the proxy's answer; 0 = not whole yet, -1 = refused. */
static int
answer_len(const struct load *l, const struct conn *c)
{
	if (l->kind == KIND_SOCKS5) {
		if (c->head_len >= 2 && c->head[1] != 0)
			return -1;
		return c->head_len >= 10 ? 10 : 0;
	}
	const uint8_t *end = memmem(c->head, c->head_len, "\r\n\r\n", 4);
	if (end == NULL)
		return c->head_len == sizeof(c->head) ? -1 : 0;
	if (memcmp(c->head, "HTTP/1.1 200", 12) != 0)
		return -1;
	return (int)(end + 4 - c->head);
}

/* Payload: count the tag's bytes; false when the connection was ended here. */
static void
conn_payload(struct load *l, struct conn *c, const uint8_t *data, size_t len)
{
	uint8_t tag[TAG_BYTES];

	if (l->mode == MODE_DRAIN || l->mode == MODE_STALL)
		return;
	tag_of(l, c, tag);
	if (c->got + len > TAG_BYTES || memcmp(tag + c->got, data, len) != 0) {
		conn_end(l, c, &l->foreign);
		return;
	}
	c->got += (uint32_t)len;
	if (c->got < TAG_BYTES)
		return;
	if (l->mode == MODE_STORM) {
		conn_end(l, c, &l->ok);
	} else {
		c->state = ST_OPEN;
		l->pings_ok++;
	}
}

static void
conn_answer(struct load *l, struct conn *c)
{
	size_t want = sizeof(c->head) - c->head_len;

	/* Never more than the answer: a SOCKS5 reply is 10 bytes, a head is read as it comes. */
	if (l->kind == KIND_SOCKS5)
		want = 10 - c->head_len;
	ssize_t n = recv(c->fd, c->head + c->head_len, want, 0);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		conn_end(l, c, &l->failed);
		return;
	}
	c->head_len += (uint32_t)n;
	int len = answer_len(l, c);
	if (len < 0) {
		conn_end(l, c, &l->failed);
	} else if (len > 0) {
		uint32_t extra = c->head_len - (uint32_t)len;
		conn_opened(l, c);
		if (extra > 0)
			conn_payload(l, c, c->head + len, extra);
	}
}

static void
conn_writable(struct load *l, struct conn *c)
{
	uint8_t out[HEAD_MAX];
	int err = 0;
	socklen_t len = sizeof(err);
	size_t n;

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0) {
		conn_end(l, c, &l->failed);
		return;
	}
	if (l->kind == KIND_SOCKS5) {
		memcpy(out, "\x05\x01\x00", 3);
		n = 3;
		c->state = ST_GREETED;
	} else {
		n = request_of(l, c, out);
		c->state = ST_ASKED;
	}
	if (!send_all(c->fd, out, n)) {
		conn_end(l, c, &l->failed);
		return;
	}
	watch(l->ep, c->fd, EPOLLIN, c, false);
	if (l->mode == MODE_STORM && l->kind != KIND_SOCKS5 && (c->id & 1))
		conn_reset(l, c);
}

static void
conn_greeting(struct load *l, struct conn *c)
{
	uint8_t out[HEAD_MAX];
	ssize_t n = recv(c->fd, c->head + c->head_len, 2 - c->head_len, 0);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		conn_end(l, c, &l->failed);
		return;
	}
	c->head_len += (uint32_t)n;
	if (c->head_len < 2)
		return;
	if (c->head[0] != 5 || c->head[1] != 0 || !send_all(c->fd, out, request_of(l, c, out))) {
		conn_end(l, c, &l->failed);
		return;
	}
	c->head_len = 0;
	c->state = ST_ASKED;
	if (l->mode == MODE_STORM && (c->id & 1))
		conn_reset(l, c);
}

static void
conn_event(struct load *l, struct conn *c, uint32_t events)
{
	ssize_t n;

	switch (c->state) {
	case ST_FREE:
		break;
	case ST_CONNECTING:
		conn_writable(l, c);
		break;
	case ST_GREETED:
		conn_greeting(l, c);
		break;
	case ST_ASKED:
		conn_answer(l, c);
		break;
	case ST_OPEN:
	case ST_PINGED:
		if (l->mode == MODE_STALL) {
			if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
				conn_end(l, c, &l->reset);
			break;
		}
		n = recv(c->fd, junk, sizeof(junk), 0);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0)
			conn_end(l, c, l->mode == MODE_STORM ? &l->failed : &l->reset);
		else
			conn_payload(l, c, junk, (size_t)n);
		break;
	}
}

static void
turn(struct load *l, int timeout_ms)
{
	struct epoll_event ev[MAX_EVENTS];
	int n = epoll_wait(l->ep, ev, MAX_EVENTS, timeout_ms);

	for (int i = 0; i < n; i++)
		if (ev[i].data.ptr != NULL)
			conn_event(l, ev[i].data.ptr, ev[i].events);
}

static unsigned
open_now(const struct load *l)
{
	unsigned n = 0;

	for (unsigned i = 0; i < l->count; i++)
		n += l->conns[i].state == ST_OPEN || l->conns[i].state == ST_PINGED;
	return n;
}

/* Every open tunnel sends a tag that no other has and no earlier round had. */
static void
ping(struct load *l)
{
	uint8_t tag[TAG_BYTES];

	l->round++;
	l->pings_due = l->pings_ok = 0;
	for (unsigned i = 0; i < l->count; i++) {
		struct conn *c = &l->conns[i];
		if (c->state != ST_OPEN)
			continue;
		c->round = l->round;
		c->got = 0;
		c->state = ST_PINGED;
		tag_of(l, c, tag);
		if (send_all(c->fd, tag, sizeof(tag)))
			l->pings_due++;
		else
			conn_end(l, c, &l->reset);
		if (i % 256 == 255)
			turn(l, 0);
	}
	for (int idle = 0; l->pings_ok + l->foreign < l->pings_due && idle < 2000; idle++) {
		unsigned before = l->pings_ok;
		turn(l, 10);
		if (l->pings_ok != before)
			idle = 0;
	}
	printf("ping ok=%u due=%u foreign=%u\n", l->pings_ok, l->pings_due, l->foreign);
	fflush(stdout);
}

static void
commands(struct load *l)
{
	char line[64];
	size_t len = 0;
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };

	epoll_ctl(l->ep, EPOLL_CTL_ADD, 0, &ev);
	fcntl(0, F_SETFL, O_NONBLOCK);
	for (;;) {
		ssize_t n = read(0, line + len, sizeof(line) - 1 - len);
		if (n == 0)
			return;
		if (n < 0) {
			turn(l, -1);
			continue;
		}
		len += (size_t)n;
		line[len] = '\0';
		if (strchr(line, '\n') == NULL)
			continue;
		len = 0;
		if (strncmp(line, "ping", 4) == 0) {
			ping(l);
		} else if (strncmp(line, "alive", 5) == 0) {
			turn(l, 0);
			printf("alive open=%u reset=%u foreign=%u\n", open_now(l), l->reset, l->foreign);
			fflush(stdout);
		} else {
			return;
		}
	}
}

static int
client(int argc, char **argv)
{
	struct load l = { 0 };

	if (argc < 7)
		return 2;
	l.mode = strcmp(argv[1], "hold") == 0 ? MODE_HOLD : strcmp(argv[1], "stall") == 0 ? MODE_STALL :
	    strcmp(argv[1], "drain") == 0 ? MODE_DRAIN : MODE_STORM;
	l.kind = strcmp(argv[2], "socks5") == 0 ? KIND_SOCKS5 : strcmp(argv[2], "connect") == 0 ?
	    KIND_CONNECT : KIND_FORWARD;
	l.proxy_port = atoi(argv[3]);
	l.origin_port = atoi(argv[4]);
	l.count = (unsigned)atoi(argv[5]);
	l.window = (unsigned)atoi(argv[6]);
	l.seed = argc > 7 ? strtoull(argv[7], NULL, 10) : 1;
	l.ep = epoll_create1(EPOLL_CLOEXEC);
	/* a storm re-uses its slots, everything else keeps them */
	unsigned slots = l.mode == MODE_STORM ? l.window : l.count;
	l.conns = calloc(slots, sizeof(*l.conns));
	if (l.conns == NULL)
		die("calloc");

	unsigned next = 0;
	unsigned ended = 0;
	do {
		if (l.mode == MODE_STORM) {
			for (unsigned i = 0; i < slots && l.started < l.count; i++)
				if (l.conns[i].state == ST_FREE)
					conn_start(&l, &l.conns[i]);
		} else {
			while (next < l.count && l.in_flight < l.window)
				conn_start(&l, &l.conns[next++]);
		}
		turn(&l, 1000);
		ended = l.ok + l.failed + l.foreign + l.reset;
	} while (l.mode == MODE_STORM ? ended < l.count : next < l.count || l.in_flight > 0);

	if (l.mode == MODE_STORM) {
		printf("storm ok=%u reset=%u failed=%u foreign=%u\n", l.ok, l.reset, l.failed, l.foreign);
		return l.foreign != 0;
	}
	printf("ready ok=%u failed=%u\n", l.ok, l.failed);
	fflush(stdout);
	commands(&l);
	return 0;
}

int
main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	raise_nofile();
	if (argc == 4 && strcmp(argv[1], "origin") == 0)
		origin(argv[2], atoi(argv[3]));
	if (argc >= 7)
		return client(argc, argv);
	fprintf(stderr, "usage: load origin|hold|stall|drain|storm ...\n");
	return 2;
}

/* SPDX-License-Identifier: ISC */
#include "test_resolve_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	PACKET_MAX = 4096, WAITING_MAX = 64, POLL_MS = 5, BACKLOG = 512,
	/* Below the range that the kernel picks from: other tests may have used that up. */
	PORT_FIRST = 10240, PORT_COUNT = 22528, PORT_TRIES = 200
};

struct waiting {
	uint64_t		due_ms;
	size_t			len;
	uint8_t			packet[512];
	struct sockaddr_in	to;
};

struct dns_server {
	struct dns_rule	*rules;
	pthread_t	 thread;
	int		 udp, tcp;
	uint16_t	 port;
	atomic_bool	 stop;
	atomic_uint	 asked, asked_tcp;
	struct waiting	 waiting[WAITING_MAX];
	unsigned	 waiting_count;
};

uint64_t
net_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint16_t
net_pick_port(void)
{
	static uint64_t seed;

	if (seed == 0)
		seed = net_ms() ^ (uint64_t)getpid() << 20;
	seed = seed * 6364136223846793005u + 1442695040888963407u;	/* Knuth's LCG */
	return (uint16_t)(PORT_FIRST + (seed >> 33) % PORT_COUNT);
}

int
net_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n - 3;	/* ".", "..", the folder itself */
}

/* ---- the server ---- */

static size_t
put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return 2;
}

static size_t
put_name(uint8_t *p, const char *name)
{
	size_t at = 0;

	while (*name != '\0') {
		size_t len = strcspn(name, ".");

		p[at++] = (uint8_t)len;
		memcpy(p + at, name, len);
		at += len;
		name += len + (name[len] == '.');
	}
	p[at++] = 0;
	return at;
}

/* The question as text; its length on the wire without type and class, 0 if malformed. */
static size_t
get_name(const uint8_t *p, size_t len, char *out)
{
	size_t at = 0, o = 0;

	while (at < len && p[at] != 0) {
		if (p[at] > 63 || at + 1 + p[at] >= len || o + p[at] + 2 > 255)
			return 0;
		memcpy(out + o, p + at + 1, p[at]);
		o += p[at];
		out[o++] = '.';
		at += 1u + p[at];
	}
	out[o > 0 ? o - 1 : 0] = '\0';
	return at < len ? at + 1 : 0;
}

static bool
matches(const char *pattern, const char *name)
{
	size_t n = strlen(name), p = strlen(pattern) - 1;

	if (pattern[0] != '*')
		return strcasecmp(pattern, name) == 0;
	return n > p && strcasecmp(name + n - p, pattern + 1) == 0;
}

static struct dns_rule *
find_rule(struct dns_server *s, const char *name, int type, bool *exists)
{
	struct dns_rule *r;

	*exists = false;
	for (r = s->rules; r->name != NULL; r++) {
		if (!matches(r->name, name))
			continue;
		*exists = true;
		if (r->type == type)
			return r;
	}
	return NULL;
}

static size_t
put_record(uint8_t *p, const uint8_t *owner, size_t owner_len, int type, unsigned ttl_s,
    const void *data, size_t data_len)
{
	size_t at = owner_len;

	memcpy(p, owner, owner_len);
	at += put16(p + at, (unsigned)type);
	at += put16(p + at, 1);
	at += put16(p + at, ttl_s >> 16);
	at += put16(p + at, ttl_s & 0xffff);
	at += put16(p + at, (unsigned)data_len);
	memcpy(p + at, data, data_len);
	return at + data_len;
}

static size_t
put_answers(uint8_t *p, const struct dns_rule *r, int type, unsigned *count)
{
	static const char *const made_up[] = { "192.0.2.1", "2001:db8::1" };
	uint8_t owner[256] = { 0xc0, 12 }, ip[16];
	size_t owner_len = 2, at = 0;
	int family = type == DNS_AAAA ? AF_INET6 : AF_INET;
	const char *text;

	*count = 0;
	if (r->cname != NULL) {
		uint8_t target[256];
		size_t len = put_name(target, r->cname);

		at += put_record(p, owner, owner_len, DNS_CNAME, r->cname_ttl_s, target, len);
		memcpy(owner, target, len);
		owner_len = len;
		++*count;
	}
	for (unsigned i = 0; i < DNS_RULE_ADDRS; i++) {
		text = r->addrs[i];
		if (text == NULL && i == 0 && r->cname == NULL)
			text = made_up[family == AF_INET6];
		if (text == NULL)
			break;
		cr_assert_eq(inet_pton(family, text, ip), 1, "%s", text);
		at += put_record(p + at, owner, owner_len, type, r->ttl_s, ip,
		    family == AF_INET6 ? 16 : 4);
		++*count;
	}
	return at;
}

/* Length of the reply, 0 = none. */
static size_t
reply_to(struct dns_server *s, const uint8_t *q, size_t len, bool is_tcp, uint8_t *out,
    unsigned *delay_ms)
{
	char name[256];
	bool exists;
	struct dns_rule *r;
	unsigned flags = 0x8180, answers = 0;	/* QR RD RA */
	size_t name_len, at;
	int type;

	*delay_ms = 0;
	name_len = len > 12 ? get_name(q + 12, len - 12, name) : 0;
	if (name_len == 0 || 12 + name_len + 4 > len)
		return 0;
	type = q[12 + name_len] << 8 | q[12 + name_len + 1];
	s->asked++;
	if (is_tcp)
		s->asked_tcp++;
	r = find_rule(s, name, type, &exists);
	if (r != NULL) {
		r->asked++;
		*delay_ms = r->delay_ms;
		if (r->action == DNS_DROP)
			return 0;
		flags |= r->action == DNS_NXDOMAIN ? 3 : r->action == DNS_SERVFAIL ? 2 :
		    r->action == DNS_REFUSED ? 5 : 0;
		if (r->action == DNS_TRUNCATE && !is_tcp)
			flags |= 0x0200;
	} else if (!exists) {
		flags |= 3;
	}
	at = 12 + name_len + 4;
	memcpy(out, q, at);
	if (r != NULL && (r->action == DNS_ANSWER || (r->action == DNS_TRUNCATE && is_tcp)))
		at += put_answers(out + at, r, type, &answers);
	if (r != NULL && r->action == DNS_GARBAGE)
		answers = 7;
	put16(out + 2, flags);
	put16(out + 4, 1);
	put16(out + 6, answers);
	put16(out + 8, 0);
	put16(out + 10, 0);
	return at;
}

static bool
serve_udp(struct dns_server *s)
{
	uint8_t q[PACKET_MAX], out[PACKET_MAX];
	struct sockaddr_in from;
	socklen_t from_len = sizeof(from);
	unsigned delay_ms;
	ssize_t n = recvfrom(s->udp, q, sizeof(q), 0, (struct sockaddr *)&from, &from_len);
	size_t len;

	if (n <= 0)
		return false;
	len = reply_to(s, q, (size_t)n, false, out, &delay_ms);
	if (len == 0)
		return true;
	if (delay_ms > 0 && s->waiting_count < WAITING_MAX && len <= sizeof(s->waiting[0].packet)) {
		struct waiting *w = &s->waiting[s->waiting_count++];

		w->due_ms = net_ms() + delay_ms;
		w->len = len;
		w->to = from;
		memcpy(w->packet, out, len);
		return true;
	}
	sendto(s->udp, out, len, 0, (struct sockaddr *)&from, from_len);
	return true;
}

static void
serve_waiting(struct dns_server *s)
{
	for (unsigned i = 0; i < s->waiting_count;) {
		struct waiting *w = &s->waiting[i];

		if (net_ms() < w->due_ms) {
			i++;
			continue;
		}
		sendto(s->udp, w->packet, w->len, 0, (struct sockaddr *)&w->to, sizeof(w->to));
		*w = s->waiting[--s->waiting_count];
	}
}

/* One question a connection. */
static void
serve_tcp(struct dns_server *s)
{
	struct timeval limit = { .tv_sec = 1 };
	uint8_t q[PACKET_MAX], out[PACKET_MAX + 2];
	unsigned delay_ms;
	size_t len;
	int fd = accept4(s->tcp, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (recv(fd, q, 2, MSG_WAITALL) == 2) {
		len = (size_t)(q[0] << 8 | q[1]);
		if (len <= sizeof(q) && recv(fd, q, len, MSG_WAITALL) == (ssize_t)len) {
			len = reply_to(s, q, len, true, out + 2, &delay_ms);
			put16(out, (unsigned)len);
			if (len > 0 && send(fd, out, len + 2, MSG_NOSIGNAL) < 0)
				perror("dns server: send");
		}
	}
	close(fd);
}

static void *
serve(void *arg)
{
	struct dns_server *s = arg;
	struct pollfd p[2] = { { .fd = s->udp, .events = POLLIN },
	    { .fd = s->tcp, .events = POLLIN } };

	while (!s->stop) {
		poll(p, 2, POLL_MS);
		while (p[0].revents != 0 && serve_udp(s))
			;
		if (p[1].revents != 0)
			serve_tcp(s);
		serve_waiting(s);
	}
	return NULL;
}

struct dns_server *
dns_server_start(struct dns_rule *rules)
{
	struct dns_server *s = calloc(1, sizeof(*s));
	struct sockaddr_in in = { .sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int rc = -1;

	cr_assert_not_null(s);
	s->rules = rules;
	for (int i = 0; i < PORT_TRIES && rc != 0; i++) {
		in.sin_port = htons(net_pick_port());
		s->udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		s->tcp = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		rc = bind(s->udp, (struct sockaddr *)&in, sizeof(in));
		if (rc == 0)
			rc = bind(s->tcp, (struct sockaddr *)&in, sizeof(in));
		if (rc != 0) {
			close(s->udp);
			close(s->tcp);
		}
	}
	cr_assert_eq(rc, 0);
	cr_assert_eq(listen(s->tcp, 16), 0);
	s->port = ntohs(in.sin_port);
	cr_assert_eq(pthread_create(&s->thread, NULL, serve, s), 0);
	return s;
}

void
dns_server_stop(struct dns_server *s)
{
	s->stop = true;
	pthread_join(s->thread, NULL);
	close(s->udp);
	close(s->tcp);
	free(s);
}

uint16_t
dns_server_port(const struct dns_server *s)
{
	return s->port;
}

unsigned
dns_server_asked(const struct dns_server *s)
{
	return s->asked;
}

unsigned
dns_server_asked_tcp(const struct dns_server *s)
{
	return s->asked_tcp;
}

/* ---- the fixture ---- */

void
net_setup(struct net_fixture *f, const char *backend, struct dns_rule *rules)
{
	struct io_config config = { .choice = &f->choice };

	memset(f, 0, sizeof(*f));
	if (io_choose(&f->choice, backend, -1) != 0)
		cr_skip_test("%s: %s", backend, f->choice.why);
	cr_assert_eq(io_loop_new(&f->loop, &config), 0);
	cr_assert_eq(resolver_global_init(), 0);
	f->dns = dns_server_start(rules);
	cr_assert(addr_parse_ip(span_str("127.0.0.1"), dns_server_port(f->dns), &f->server));
	f->conf.resolver = (struct conf_resolver){
		.servers = &f->server, .server_count = 1, .prefer = CONF_PREFER_AUTO,
		.timeout_ms = 2000, .attempts = 2, .cache_entries = 1000,
		.max_ttl_s = 3600, .negative_ttl_s = 5,
	};
	f->conf.outbound.happy_eyeballs_ms = 250;
	f->fds = net_open_fds();
}

void
net_resolver(struct net_fixture *f, const char *hosts_path)
{
	cr_assert_eq(resolver_new(&f->resolver, f->loop, &f->conf.resolver, hosts_path), 0);
}

static void
set_flag(void *owner)
{
	*(bool *)owner = true;
}

void
net_close_resolver(struct net_fixture *f)
{
	bool done = false;

	resolver_close(f->resolver, set_flag, &done);
	cr_assert(!done, "done inside resolver_close");
	net_until(f, &done, 3000);
	f->resolver = NULL;
}

void
net_teardown(struct net_fixture *f)
{
	if (f->resolver != NULL)
		net_close_resolver(f);
	net_pass(f, 0);
	cr_assert_eq(io_inflight(f->loop), 0);
	/* The server's thread may be about to close its end of a TCP connection. */
	for (int i = 0; i < 400 && net_open_fds() != f->fds; i++)
		usleep(5000);
	cr_expect_eq(net_open_fds(), f->fds, "descriptors: %d before, %d now", f->fds,
	    net_open_fds());
	io_loop_free(f->loop);
	dns_server_stop(f->dns);
}

struct alarm {
	struct io_timer	timer;
	bool		rang;
};

static void
on_alarm(struct io_loop *loop, struct io_timer *timer)
{
	(void)loop;
	io_container_of(timer, struct alarm, timer)->rang = true;
}

void
net_until(struct net_fixture *f, const bool *flag, unsigned timeout_ms)
{
	struct alarm alarm = { .rang = false };

	/* A turn that waits for nothing: io_now() may be from long ago. */
	io_loop_turn(f->loop, false);
	io_timer_set(f->loop, &alarm.timer, io_now(f->loop) + timeout_ms * UINT64_C(1000000),
	    on_alarm);
	while (!*flag && !alarm.rang)
		cr_assert_geq(io_loop_turn(f->loop, true), 0);
	io_timer_stop(f->loop, &alarm.timer);
	cr_assert(*flag, "nothing happened within %u ms", timeout_ms);
}

void
net_pass(struct net_fixture *f, unsigned ms)
{
	struct alarm alarm = { .rang = false };

	io_loop_turn(f->loop, false);
	io_timer_set(f->loop, &alarm.timer, io_now(f->loop) + ms * UINT64_C(1000000), on_alarm);
	while (!alarm.rang)
		cr_assert_geq(io_loop_turn(f->loop, true), 0);
}

/* ---- listeners ---- */

static int
listen_on(const struct addr *addr, int backlog)
{
	int one = 1, fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_geq(fd, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (addr->sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, &addr->sa, addr->len) == 0 && listen(fd, backlog) == 0)
		return fd;
	close(fd);
	return -1;
}

int
net_listener(const char *ip, uint16_t *port, int backlog)
{
	struct addr addr;
	int fd = -1;

	cr_assert(addr_parse_ip(span_str(ip), *port, &addr));
	if (*port != 0)
		return listen_on(&addr, backlog);
	for (int i = 0; i < PORT_TRIES && fd < 0; i++) {
		*port = net_pick_port();
		addr_set_port(&addr, *port);
		fd = listen_on(&addr, backlog);
	}
	cr_assert_geq(fd, 0, "no port is free on %s", ip);
	return fd;
}

bool
net_black_hole(const char *ip, uint16_t *port, int fds[NET_HOLE_FDS])
{
	struct addr addr;

	fds[0] = net_listener(ip, port, 0);
	if (fds[0] < 0)
		return false;
	cr_assert(addr_parse_ip(span_str(ip), *port, &addr));
	for (int i = 1; i < NET_HOLE_FDS; i++) {
		fds[i] = socket(addr.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		cr_assert_geq(fds[i], 0);
		if (connect(fds[i], &addr.sa, addr.len) != 0)
			cr_assert_eq(errno, EINPROGRESS);
	}
	usleep(20000);	/* until the handshakes are done */
	return true;
}

int
net_black_hole_beside(const char *hole_ip, const char *ip, uint16_t *port,
    int fds[NET_HOLE_FDS])
{
	int fd;

	for (int i = 0; i < 100; i++) {
		*port = 0;
		fd = net_listener(ip, port, BACKLOG);
		cr_assert_geq(fd, 0);
		if (net_black_hole(hole_ip, port, fds))
			return fd;
		close(fd);
	}
	cr_assert_fail("no port is free on %s and %s", hole_ip, ip);
	return -1;
}

void
net_close_all(int *fds, int n)
{
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

uint16_t
net_listeners(int fds[2])
{
	uint16_t port = 0;

	for (int i = 0; i < 100; i++) {
		port = 0;
		fds[0] = net_listener("127.0.0.1", &port, BACKLOG);
		cr_assert_geq(fds[0], 0);
		fds[1] = net_listener("::1", &port, BACKLOG);
		if (fds[1] >= 0)
			return port;
		close(fds[0]);
	}
	cr_assert_fail("no port is free in both families (is there no ::1?)");
	return 0;
}

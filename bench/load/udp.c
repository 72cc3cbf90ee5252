/* SPDX-License-Identifier: ISC */
/*
 * Mode udp: SOCKS5 associations (RFC 1928 section 7), each with datagrams under
 * way up to a window, so that what is measured is the relay and not how fast
 * its receive buffer is overrun.  One direction: to the origin, or with --down
 * from it, after one datagram of each client has told the origin where to send.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "handshake.h"
#include "message.h"
#include "udp.h"

#define HEADER_BYTES 10u	/* SOCKS5 over IPv4 */
#define WINDOW 64u		/* datagrams per association */
#define WINDOW_SUM 2048u	/* of all together */
#define BUFFER_BYTES (32 << 20)

struct association {
	struct conn socket;	/* the client's, for datagrams */
	struct sockaddr_in from, relay;
	struct flow flow;
};

struct udp {
	struct conn origin;
	struct association *v;
	unsigned count, batch, turn;
	uint64_t expired_ns;
};

/* As root past net.core.rmem_max, socket(7). */
static void
set_buffer(int fd, int forced, int plain)
{
	int size = BUFFER_BYTES;

	if (setsockopt(fd, SOL_SOCKET, forced, &size, sizeof(size)) < 0)
		setsockopt(fd, SOL_SOCKET, plain, &size, sizeof(size));
}

static void
make_socket(struct load *l, struct conn *c, struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int on = 1;

	*c = (struct conn){ .end = END_DATAGRAMS, .step = STEP_OPEN };
	c->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || bind(c->fd, (struct sockaddr *)at, len) < 0 ||
	    getsockname(c->fd, (struct sockaddr *)at, &len) < 0)
		fatal("socket for datagrams at port %u: %s", ntohs(at->sin_port), strerror(errno));
	set_buffer(c->fd, SO_RCVBUFFORCE, SO_RCVBUF);
	set_buffer(c->fd, SO_SNDBUFFORCE, SO_SNDBUF);
	if (l->opt.gso && setsockopt(c->fd, SOL_UDP, UDP_GRO, &on, sizeof(on)) < 0)
		fatal("UDP_GRO: %s", strerror(errno));
}

/* A datagram at the origin: of which association it is, it says itself. */
static void
at_origin(struct load *l, void *arg, const unsigned char *data, size_t len,
    const struct sockaddr_in *from)
{
	struct udp *u = arg;
	struct message_head h;
	struct association *a;

	if (len >= sizeof(h))
		memcpy(&h, data, sizeof(h));
	if (len < sizeof(h) || h.id >= u->count) {
		l->res.altered++;
		error(l, "a datagram of %zu bytes names no association", len);
		return;
	}
	a = &u->v[h.id];
	if (!l->opt.down) {
		flow_receive(l, &a->flow, data, len);
	} else if (message_right(data, 0, len, MESSAGE_REQUEST, h.id, 0)) {
		a->flow.to = *from;
		a->flow.fd = u->origin.fd;
		l->clients[h.id].waiting = false;
		l->progress++;
	}
}

static void
at_client(struct load *l, void *arg, const unsigned char *data, size_t len,
    const struct sockaddr_in *from)
{
	struct association *a = arg;
	unsigned char header[HEADER_BYTES] = { 0, 0, 0, 1 };

	(void)from;
	memcpy(header + 4, &l->origin.sin_addr, 4);
	memcpy(header + 8, &l->origin.sin_port, 2);
	if (len < HEADER_BYTES + MESSAGE_HEAD_BYTES || memcmp(data, header, HEADER_BYTES) != 0) {
		l->res.altered++;
		error(l, "association %u: a datagram of %zu bytes without the origin's header",
		    a->flow.id, len);
		return;
	}
	flow_receive(l, &a->flow, data + HEADER_BYTES, len - HEADER_BYTES);
}

/* The handshake of the control connection is done: its answer says where the relay is. */
static void
opened(struct load *l, struct conn *c)
{
	struct association *a = c->mode;
	unsigned char *prefix = a->flow.prefix;

	if (handshake_bound(c, &a->relay) < 0) {
		conn_fail(l, c, "the relay has no IPv4 address");
		return;
	}
	if (a->relay.sin_addr.s_addr == htonl(INADDR_ANY))
		a->relay.sin_addr = l->opt.proxy.sin_addr;
	if (connect(a->socket.fd, (struct sockaddr *)&a->relay, sizeof(a->relay)) < 0)
		fatal("connect to the relay: %s", strerror(errno));
	a->flow.fd = a->socket.fd;
	a->flow.id = c->id;
	a->flow.kind = l->opt.down ? MESSAGE_RESPONSE : MESSAGE_REQUEST;
	if (!l->opt.down) {
		a->flow.prefix_len = HEADER_BYTES;
		prefix[3] = 1;
		memcpy(prefix + 4, &l->origin.sin_addr, 4);
		memcpy(prefix + 8, &l->origin.sin_port, 2);
	}
}

/* The origin must not send before it knows the relay. */
static void
introduce(struct load *l, struct association *a)
{
	unsigned char *p = l->scratch;
	size_t len = HEADER_BYTES + l->opt.payload;

	memcpy(p, "\0\0\0\1", 4);
	memcpy(p + 4, &l->origin.sin_addr, 4);
	memcpy(p + 8, &l->origin.sin_port, 2);
	message_make(p + HEADER_BYTES, l->opt.payload, MESSAGE_REQUEST, a->flow.id, 0);
	if (send(a->socket.fd, p, len, 0) != (ssize_t)len)
		fatal("the first datagram of association %u: %s", a->flow.id, strerror(errno));
}

static void
control_event(struct load *l, struct conn *c, uint32_t events)
{
	(void)events;
	conn_fail(l, c, "the control connection ended, or brought bytes");
}

static const struct handlers handlers = { opened, control_event, control_event, NULL };

static void
datagram_event(struct load *l, struct conn *c)
{
	struct receiver r = { at_client, c->mode };

	if (c == &l->udp->origin)
		r = (struct receiver){ at_origin, l->udp };
	datagrams_receive(l, c->fd, &r);
}

/* One burst for the next association that has credit for a whole one. */
static void
step(struct load *l)
{
	struct udp *u = l->udp;

	if (l->now_ns > u->expired_ns + NS_PER_MS) {
		u->expired_ns = l->now_ns;
		for (unsigned i = 0; i < u->count; i++)
			flow_expire(l, &u->v[i].flow);
	}
	/* Losses are no progress, but a relay that loses everything is not stuck here. */
	for (unsigned i = 0, bursts = 0; i < u->count && bursts < 4; i++) {
		struct association *a = &u->v[u->turn++ % u->count];

		if (a->flow.credit < u->batch || l->clients[a->flow.id].step != STEP_OPEN)
			continue;
		flow_send(l, &a->flow, u->batch);
		bursts++;
	}
}

static void
set_up(struct load *l, struct udp *u)
{
	unsigned each = WINDOW_SUM / l->opt.conns;

	if (each > WINDOW)
		each = WINDOW;
	if (l->opt.window != 0)
		each = l->opt.window;
	if (each == 0)
		each = 1;
	u->count = l->opt.conns;
	u->batch = each > BATCH ? BATCH : each;
	u->v = calloc(u->count, sizeof(u->v[0]));
	if (u->v == NULL)
		fatal("out of memory");
	l->udp = u;
	l->datagram_event = datagram_event;
	make_socket(l, &u->origin, &l->origin);
	conn_watch(l, &u->origin, EPOLLIN);
	for (unsigned i = 0; i < u->count; i++) {
		struct association *a = &u->v[i];

		a->from.sin_family = AF_INET;
		a->from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		make_socket(l, &a->socket, &a->from);
		a->socket.mode = a;
		conn_watch(l, &a->socket, EPOLLIN);
		a->flow.credit = each;
		l->clients[i].mode = a;
		l->clients[i].from = &a->from;
	}
}

/* Datagrams may be lost: say it again until the origin has heard it. */
static void
introduce_all(struct load *l, struct udp *u)
{
	uint64_t again = 0;
	bool more = true;

	phase_begin(l, "first datagrams", 10);
	for (unsigned i = 0; i < u->count; i++)
		l->clients[i].waiting = l->clients[i].step == STEP_OPEN;
	while (more) {
		bool say = l->now_ns >= again;

		more = false;
		for (unsigned i = 0; i < u->count; i++) {
			if (!l->clients[i].waiting)
				continue;
			more = true;
			if (say)
				introduce(l, &u->v[i]);
		}
		if (say)
			again = l->now_ns + 200 * NS_PER_MS;
		turn(l);
	}
}

static void
run(struct load *l)
{
	struct udp u = { 0 };

	l->handlers = &handlers;
	set_up(l, &u);
	open_all(l, 16);
	if (l->opt.down)
		introduce_all(l, &u);
	window(l, step);
	close_all(l);
	for (unsigned i = 0; i < u.count; i++)
		close(u.v[i].socket.fd);
	close(u.origin.fd);
	free(u.v);
	l->udp = NULL;
	l->res.checked = true;
}

static void
print(const struct load *l)
{
	const struct result *r = &l->window;

	printf(",\"sent\":%llu,\"received\":%llu,\"lost\":%llu,\"dup\":%llu,\"altered\":%llu,"
	    "\"pps\":%.1f", (unsigned long long)r->sent, (unsigned long long)r->received,
	    (unsigned long long)r->lost, (unsigned long long)r->dup,
	    (unsigned long long)r->altered, (double)r->received / r->seconds);
}

const struct mode mode_udp = { "udp", 512, 0, run, print };

/* SPDX-License-Identifier: ISC */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"
#include "handshake.h"

const char *
conn_step_name(const struct conn *c)
{
	static const char *const names[] = {
		[STEP_CLOSED] = "closed", [STEP_CONNECTING] = "connecting",
		[STEP_GREETING] = "waits for the SOCKS method",
		[STEP_ANSWER] = "waits for the proxy's answer", [STEP_OPEN] = "open",
	};

	return names[c->step];
}

void
set_congestion(struct load *l, int fd)
{
	const char *name = l->opt.congestion;

	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) < 0)
		fatal("congestion control %s: %s", name, strerror(errno));
}

/* Messages go at once. */
static void
no_delay(const struct load *l, int fd)
{
	int on = 1;

	if (l->opt.mode == &mode_bulk)
		return;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		fatal("TCP_NODELAY: %s", strerror(errno));
}

bool
conn_any_waits(const struct load *l)
{
	for (unsigned i = 0; i < l->opt.conns; i++)
		if (l->clients[i].waiting)
			return true;
	return false;
}

void
conn_watch(struct load *l, struct conn *c, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = c };

	c->events = events;
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &ev) < 0)
		fatal("epoll_ctl: %s", strerror(errno));
}

void
conn_want(struct load *l, struct conn *c, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = c };

	if (c->events == events)
		return;
	c->events = events;
	if (epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &ev) < 0)
		fatal("epoll_ctl: %s", strerror(errno));
}

void
conn_setup(struct load *l)
{
	struct sockaddr_in *a = &l->origin;
	socklen_t len = sizeof(*a);
	int on = 1, fd;

	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a->sin_port = htons(l->opt.origin_port);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fatal("socket: %s", strerror(errno));
	/* Accepted sockets inherit the congestion control. */
	set_congestion(l, fd);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (struct sockaddr *)a, len) < 0 || listen(fd, 65535) < 0 ||
	    getsockname(fd, (struct sockaddr *)a, &len) < 0)
		fatal("origin on 127.0.0.1:%u: %s", l->opt.origin_port, strerror(errno));
	if (l->opt.proxy.sin_port == 0)
		l->opt.proxy = *a;
	l->clients = calloc(l->opt.conns, sizeof(l->clients[0]));
	l->listening = calloc(1, sizeof(*l->listening));
	if (l->clients == NULL || l->listening == NULL)
		fatal("out of memory");
	for (unsigned i = 0; i < l->opt.conns; i++)
		l->clients[i] = (struct conn){ .fd = -1, .id = i };
	l->listening->fd = fd;
	l->listening->end = END_LISTENER;
	l->listening->step = STEP_OPEN;
	conn_watch(l, l->listening, EPOLLIN);
}

void
conn_close(struct load *l, struct conn *c)
{
	if (c->step == STEP_CLOSED)
		return;
	close(c->fd);
	c->fd = -1;
	c->step = STEP_CLOSED;
	c->waiting = false;
	if (c->peer != NULL) {
		c->peer->peer = NULL;
		c->peer->peer_shut = c->shut;
		c->peer->peer_out = c->out;
	}
	c->peer = NULL;
	l->progress++;
	if (c->end == END_ORIGIN) {
		/* An event for it may still be in this round. */
		c->next = l->dead;
		l->dead = c;
		l->origins--;
	}
}

void
conn_fail(struct load *l, struct conn *c, const char *why)
{
	if (c->end == END_ORIGIN && !c->known)
		error(l, "origin's end of an unknown connection: %s", why);
	else
		error(l, "%s %u, %s, message %llu, in %llu, out %llu: %s",
		    c->end == END_ORIGIN ? "origin's end of connection" : "connection", c->id,
		    conn_step_name(c), (unsigned long long)c->seq, (unsigned long long)c->in,
		    (unsigned long long)c->out, why);
	conn_close(l, c);
	if (l->handlers->broken != NULL)
		l->handlers->broken(l, c);
}

void
conn_shut(struct load *l, struct conn *c)
{
	c->shut = true;
	if (shutdown(c->fd, SHUT_WR) < 0)
		conn_fail(l, c, strerror(errno));
}

void
conn_start(struct load *l, struct conn *c)
{
	unsigned addresses = l->opt.mode->addresses;
	int on = 1;

	*c = (struct conn){ .id = c->id, .seq = c->seq, .mode = c->mode, .from = c->from,
	    .waiting = true, .started_ns = now_ns() };
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		fatal("socket for connection %u: %s", c->id, strerror(errno));
	set_congestion(l, c->fd);
	no_delay(l, c->fd);
	if (addresses > 0) {
		struct sockaddr_in from = { .sin_family = AF_INET };

		/* Each address has its own ports, chosen at connect(2) by both addresses: ip(7). */
		from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + l->source++ % addresses);
		if (setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) < 0 ||
		    bind(c->fd, (struct sockaddr *)&from, sizeof(from)) < 0)
			fatal("bind to a client address: %s", strerror(errno));
	}
	c->step = STEP_CONNECTING;
	if (connect(c->fd, (struct sockaddr *)&l->opt.proxy, sizeof(l->opt.proxy)) < 0 &&
	    errno != EINPROGRESS) {
		conn_fail(l, c, strerror(errno));
		return;
	}
	conn_watch(l, c, EPOLLOUT);
}

static void
accept_all(struct load *l)
{
	for (;;) {
		int fd = accept4(l->listening->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct conn *c;

		if (fd < 0) {
			if (errno == EAGAIN || errno == ECONNABORTED)
				return;
			fatal("accept at the origin: %s", strerror(errno));
		}
		c = calloc(1, sizeof(*c));
		if (c == NULL)
			fatal("out of memory");
		no_delay(l, fd);
		c->fd = fd;
		c->end = END_ORIGIN;
		c->step = STEP_OPEN;
		l->origins++;
		l->progress++;
		conn_watch(l, c, EPOLLIN);
	}
}

void
conn_event(struct load *l, struct conn *c, uint32_t events)
{
	if (c->step == STEP_CLOSED)
		return;
	if (c->end == END_LISTENER) {
		accept_all(l);
	} else if (c->end == END_DATAGRAMS) {
		l->datagram_event(l, c);
	} else if (c->end == END_ORIGIN) {
		l->handlers->origin(l, c, events);
	} else if (c->step == STEP_OPEN) {
		l->handlers->client(l, c, events);
	} else if (handshake_step(l, c)) {
		c->step = STEP_OPEN;
		c->waiting = false;
		conn_want(l, c, EPOLLIN);
		l->progress++;
		l->handlers->opened(l, c);
	}
}

int
conn_join(struct load *l, struct conn *c, uint32_t id, uint64_t seq)
{
	struct conn *client;

	if (id >= l->opt.conns) {
		conn_fail(l, c, "the first bytes name no client");
		return -1;
	}
	client = &l->clients[id];
	if (client->step != STEP_OPEN || client->peer != NULL || client->seq != seq) {
		conn_fail(l, c, "the first bytes name a client that has another origin, or none");
		return -1;
	}
	c->id = id;
	c->seq = seq;
	c->known = true;
	c->peer = client;
	client->peer = c;
	return 0;
}

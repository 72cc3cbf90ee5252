/* SPDX-License-Identifier: ISC */
/*
 * bare splice|copy PORT ORIGIN-PORT: the least that a relay can be, for the
 * benchmark alone.  It passes everything between 127.0.0.1:PORT and
 * 127.0.0.1:ORIGIN-PORT by epoll_wait(2) and splice(2), or recv(2) and send(2),
 * and has no protocol, no timeout, no limit and no log.  What it costs is the
 * kernel's part, below which no relay of its kind can come.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG		4096
#define EVENTS_MAX	256
#define PIPE_BYTES	(256 * 1024)	/* as ringway's */
#define COPY_BYTES	(16 * 1024)	/* as nginx' */
#define TURN_BYTES	(256 * 1024)

/* One side of a tunnel.  What was read from it and has not gone to the other is held. */
struct end {
	struct end *other;
	struct end *next_closed;
	int fd;
	int pipe[2];
	uint32_t events;	/* what epoll watches for */
	size_t held, offset;
	bool ended;		/* nothing more comes from it */
	bool shut;		/* nothing more goes to it */
	bool closed;
	char bytes[];		/* COPY_BYTES, in place of the pipe */
};

static bool splicing;
static int ep;
static struct end *closed;

static void
fatal(const char *what)
{
	fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
	exit(1);
}

static ssize_t
take(struct end *e)
{
	if (splicing)
		return splice(e->fd, NULL, e->pipe[1], NULL, PIPE_BYTES,
		    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	e->offset = 0;
	return recv(e->fd, e->bytes, COPY_BYTES, 0);
}

static ssize_t
give(struct end *e)
{
	if (splicing)
		return splice(e->pipe[0], NULL, e->other->fd, NULL, e->held,
		    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	return send(e->other->fd, e->bytes + e->offset, e->held, MSG_NOSIGNAL);
}

static void
close_end(struct end *e)
{
	close(e->fd);
	if (splicing) {
		close(e->pipe[0]);
		close(e->pipe[1]);
	}
	e->closed = true;
	e->next_closed = closed;	/* events of this batch may still name it */
	closed = e;
}

static void
close_both(struct end *e)
{
	close_end(e->other);
	close_end(e);
}

static void
watch(struct end *e)
{
	struct epoll_event ev = { .data.ptr = e };

	ev.events = (!e->ended && e->held == 0 ? EPOLLIN : 0) |
	    (e->other->held > 0 ? EPOLLOUT : 0);
	if (ev.events == e->events)
		return;
	e->events = ev.events;
	if (epoll_ctl(ep, EPOLL_CTL_MOD, e->fd, &ev) == -1)
		fatal("epoll_ctl");
}

/* False: an error other than that it has to wait. */
static bool
pass(struct end *e)
{
	size_t total = 0;
	ssize_t n;

	while (e->held > 0 || (!e->ended && total < TURN_BYTES)) {
		if (e->held == 0) {
			if ((n = take(e)) < 0)
				return errno == EAGAIN;
			e->ended = n == 0;
			e->held = (size_t)n;
			total += (size_t)n;
			if (n == 0)
				break;
		}
		if ((n = give(e)) < 0)
			return errno == EAGAIN;
		e->held -= (size_t)n;
		e->offset += (size_t)n;
		/* A copy that was no full buffer has emptied the socket. */
		if (!splicing && e->held == 0 && e->offset < COPY_BYTES)
			break;
	}
	return true;
}

static void
move(struct end *e)
{
	bool ok = pass(e);

	if (ok && e->ended && e->held == 0 && !e->other->shut) {
		e->other->shut = true;
		shutdown(e->other->fd, SHUT_WR);
	}
	if (!ok || (e->shut && e->other->shut)) {
		close_both(e);
		return;
	}
	watch(e);
	watch(e->other);
}

static struct end *
end_new(int fd)
{
	struct end *e = calloc(1, sizeof(*e) + (splicing ? 0 : COPY_BYTES));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = e };
	int on = 1;

	if (e == NULL)
		fatal("calloc");
	e->fd = fd;
	e->events = EPOLLIN;
	if (splicing && (pipe2(e->pipe, O_NONBLOCK) == -1 ||
	    fcntl(e->pipe[0], F_SETPIPE_SZ, PIPE_BYTES) == -1))
		fatal("pipe");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == -1 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) == -1 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == -1)
		fatal("a connection");
	return e;
}

static void
open_tunnel(int client, const struct sockaddr_in *origin)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct end *a, *b;

	/* On loopback it does not wait. */
	if (fd == -1 || connect(fd, (const struct sockaddr *)origin, sizeof(*origin)) == -1) {
		if (fd != -1)
			close(fd);
		close(client);
		return;
	}
	a = end_new(client);
	b = end_new(fd);
	a->other = b;
	b->other = a;
}

static int
listen_at(const struct sockaddr_in *at)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1 ||
	    bind(fd, (const struct sockaddr *)at, sizeof(*at)) == -1 || listen(fd, BACKLOG) == -1 ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == -1)
		fatal("listen");
	return fd;
}

int
main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in origin = at;
	struct epoll_event ev[EVENTS_MAX];
	int listener, fd;

	if (argc != 4 || (strcmp(argv[1], "splice") != 0 && strcmp(argv[1], "copy") != 0)) {
		fputs("usage: bare splice|copy PORT ORIGIN-PORT\n", stderr);
		return 2;
	}
	splicing = strcmp(argv[1], "splice") == 0;
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	origin.sin_port = htons((uint16_t)atoi(argv[3]));
	signal(SIGPIPE, SIG_IGN);
	if ((ep = epoll_create1(EPOLL_CLOEXEC)) == -1)
		fatal("epoll_create1");
	listener = listen_at(&at);
	for (;;) {
		int n = epoll_wait(ep, ev, EVENTS_MAX, -1);

		for (int i = 0; i < n; i++) {
			struct end *e = ev[i].data.ptr;

			if (e == NULL) {
				while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) != -1)
					open_tunnel(fd, &origin);
				continue;
			}
			if ((ev[i].events & EPOLLOUT) != 0 && !e->closed)
				move(e->other);
			if ((ev[i].events & ~(uint32_t)EPOLLOUT) != 0 && !e->closed)
				move(e);
		}
		while (closed != NULL) {
			struct end *e = closed;

			closed = e->next_closed;
			free(e);
		}
	}
}

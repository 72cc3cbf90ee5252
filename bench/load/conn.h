/* SPDX-License-Identifier: ISC */
/*
 * Connections: a client's, through the proxy, with its handshake; and the
 * origin's end of the same tunnel.  A tunnel's first 16 bytes tell the origin
 * which client it belongs to; see message.h.
 *
 *   STEP_CLOSED -> CONNECTING -> [GREETING] -> ANSWER -> OPEN -> CLOSED    (client)
 *   STEP_OPEN -> CLOSED                                                    (origin)
 */
#ifndef BENCH_CONN_H
#define BENCH_CONN_H

#include <sys/epoll.h>

#include "load.h"

#define CONN_HEAD_BYTES 280	/* the longest SOCKS5 answer is 262 */

enum step {
	STEP_CLOSED,
	STEP_CONNECTING,
	STEP_GREETING,	/* SOCKS5: waits for the choice of a method */
	STEP_ANSWER,	/* waits for the proxy's answer to the request */
	STEP_OPEN,
};

enum end { END_CLIENT, END_ORIGIN, END_LISTENER, END_DATAGRAMS };

struct conn {
	int fd;
	enum end end;
	enum step step;
	uint32_t id;		/* the client's number; of an origin's end: valid once known */
	bool known;		/* origin: the client is known */
	bool waiting;		/* for something that must come: what a stuck run names */
	bool shut;		/* has sent its end of stream */
	bool answered;		/* mode churn: the origin has */
	bool ended;		/* has got the other's */
	uint32_t events;	/* that epoll waits for */
	uint32_t head_len;
	uint64_t seq;		/* of the message or the session */
	uint64_t in, out;	/* bytes of the stream, or of the message */
	uint64_t started_ns;
	struct conn *peer;	/* the other end, once known, until it is closed; then: */
	bool peer_shut;		/* it had ended its stream */
	uint64_t peer_out;	/* after so many bytes */
	struct conn *next;	/* on the list of the dead */
	const struct sockaddr_in *from;	/* asks for an association of datagrams from here; else NULL */
	void *mode;		/* the mode's own */
	unsigned char head[CONN_HEAD_BYTES];
};

/* A listener for the origin at 127.0.0.1, and the array of clients. */
void conn_setup(struct load *l);

/* Connect a client's end; handlers->opened is called when the tunnel stands. */
void conn_start(struct load *l, struct conn *c);

/* An event of any end: handshakes here, the rest to the handlers. */
void conn_event(struct load *l, struct conn *c, uint32_t events);

/* Close; an origin's end must not be used after the handler has returned. */
void conn_close(struct load *l, struct conn *c);

/* Count an error, close, and tell the mode. */
void conn_fail(struct load *l, struct conn *c, const char *why);

/* Whether something must still come for one of the clients. */
bool conn_any_waits(const struct load *l);

void conn_want(struct load *l, struct conn *c, uint32_t events);

/* Send the end of the stream. */
void conn_shut(struct load *l, struct conn *c);

/* Have epoll report on an end that the mode made itself (datagrams). */
void conn_watch(struct load *l, struct conn *c, uint32_t events);

/* The id and sequence in an origin's first bytes name its client: join the two, or fail. */
int conn_join(struct load *l, struct conn *c, uint32_t id, uint64_t seq);

const char *conn_step_name(const struct conn *c);

void set_congestion(struct load *l, int fd);

#endif

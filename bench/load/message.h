/* SPDX-License-Identifier: ISC */
/*
 * Messages of a fixed size (--payload): 16 bytes that name kind, client and
 * number, then bytes that follow from those.  They are checked to the last byte
 * as they arrive.
 */
#ifndef BENCH_MESSAGE_H
#define BENCH_MESSAGE_H

#include "conn.h"

#define MESSAGE_HEAD_BYTES 16u
#define MESSAGE_MAX 65536u

struct message_head {
	uint32_t kind;
	uint32_t id;
	uint64_t seq;
};

#define MESSAGE_REQUEST 0x52657175u	/* by the client */
#define MESSAGE_RESPONSE 0x52657370u	/* by the origin */

/* Write len bytes of a message (with its head), or of a datagram, to buf. */
void message_make(unsigned char *buf, size_t len, uint32_t kind, uint32_t id, uint64_t seq);

/* Whether n bytes at position `at` of that message are as they should be. */
bool message_right(const unsigned char *buf, size_t at, size_t n, uint32_t kind, uint32_t id,
    uint64_t seq);

/*
 * Send what is left of the message c->seq, from position c->out on.
 * Returns 1 when all of it has gone (c->out is 0 again), 0 when an event has to
 * come first, -1 when the connection failed.
 */
int message_send(struct load *l, struct conn *c);

/*
 * Receive the message c->seq from position c->in on, and check it.  The first
 * message to an origin's end says which client it is.
 * Returns 1 when it is complete (c->in is 0 again), 0 not yet, -1 failed, also
 * at the end of the stream.
 */
int message_receive(struct load *l, struct conn *c);

/* A client sends its next request; it waits from now on. */
void message_ask(struct load *l, struct conn *c);

/* An event of a client: true when it brought the whole answer, which is counted. */
bool message_answered(struct load *l, struct conn *c, uint32_t events);

/* An event of an origin's end, which answers each request. */
void message_origin(struct load *l, struct conn *c, uint32_t events);

/* Expect the end of the stream: 1 it came, 0 not yet, -1 failed. */
int message_expect_end(struct load *l, struct conn *c);

#endif

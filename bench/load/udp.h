/* SPDX-License-Identifier: ISC */
/*
 * Numbered datagrams from a sender to a receiver of the same process: what was
 * sent, came, was lost, came twice or altered.  Knows nothing of SOCKS but that
 * a datagram has a prefix.
 */
#ifndef BENCH_UDP_H
#define BENCH_UDP_H

#include "conn.h"

#define FLOW_RING 1024u		/* datagrams remembered; a power of two */
#define FLOW_PREFIX_MAX 10u
#define BATCH 32u

enum datagram_state { DATAGRAM_NONE, DATAGRAM_UNDER_WAY, DATAGRAM_CAME, DATAGRAM_LOST };

struct flow {
	int fd;				/* of the sender */
	struct sockaddr_in to;		/* port 0: the socket is connected */
	uint32_t id;
	uint32_t kind;			/* MESSAGE_REQUEST or MESSAGE_RESPONSE */
	unsigned char prefix[FLOW_PREFIX_MAX];	/* sent before each; length: flow_prefix */
	unsigned prefix_len;
	unsigned credit;		/* datagrams that may be sent now */
	uint64_t next, oldest;		/* sequence numbers: to be sent, maybe under way */
	uint64_t sent_ns[FLOW_RING];
	unsigned char state[FLOW_RING];
};

/* Send up to n datagrams (at most BATCH), as one with UDP_SEGMENT if gso. */
void flow_send(struct load *l, struct flow *f, unsigned n);

/* Count what has been under way for longer than 50 ms as lost; its credit returns. */
void flow_expire(struct load *l, struct flow *f);

/* A datagram without its prefix came: check and count it. */
void flow_receive(struct load *l, struct flow *f, const unsigned char *data, size_t len);

/* What a socket has now, one call for each datagram (those the kernel joined are split). */
struct receiver {
	void (*datagram)(struct load *, void *arg, const unsigned char *data, size_t len,
	    const struct sockaddr_in *from);
	void *arg;
};
void datagrams_receive(struct load *l, int fd, const struct receiver *r);

#endif

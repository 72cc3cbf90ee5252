/* SPDX-License-Identifier: ISC */
/*
 * udp_out: datagrams on their way out of an association, gathered so that those
 * of one size to one peer go as one message with a segment size (UDP_SEGMENT,
 * udp(7)): one way through the kernel's stack for up to 64 of them.  The bytes
 * are never copied: messages are lists of pieces of received buffers, which the
 * out holds until all is sent.  It sends nothing by itself.
 *
 * Datagrams to one peer keep their order: a datagram joins the last message to
 * its peer or begins one behind it.
 *
 *	EMPTY --udp_out_add()--> filling --full, or sent--> the owner's until udp_out_clear()
 */
#ifndef RW_RELAY_UDP_OUT_H
#define RW_RELAY_UDP_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "util/addr.h"

enum {
	UDP_OUT_SEGMENTS_MAX = 64,	/* UDP_MAX_SEGMENTS of kernels before 6.9 */
	/* A whole segmented message may be as long as one datagram of IPv4, udp(7). */
	UDP_OUT_MESSAGE_BYTES = 65507,
	UDP_OUT_BUFS_MAX = 256
};

/* Somebody to whom datagrams are sent: the client or a destination. */
struct udp_peer {
	struct addr	 to;		/* in the socket's family */
	struct addr	 local;		/* to send from; len 0 = the kernel chooses */
	uint64_t	 open_serial;	/* the out that has a message of ours, the last is open_message */
	uint16_t	 open_message;
	uint16_t	 gso_max;	/* largest segment worth trying; 0 = no segmented sends to it */
	uint16_t	 gso_proven;	/* largest one that will not be refused */
	bool		 on_trial;	/* a message with longer ones is under way: one at a time */
};

struct udp_message {
	struct udp_peer	*peer;
	uint32_t	 bytes;		/* with headers */
	uint32_t	 payload_bytes;
	uint16_t	 segment_bytes;	/* of the first: all but the last are as long */
	uint8_t		 segments;
	uint8_t		 pieces;	/* of each segment: 1, or 2 for a header and a payload */
	bool		 closed;	/* a shorter segment, or an empty one, is the last */
	bool		 down;		/* to the client */
	bool		 trial;		/* its peer's, see there */
	bool		 again;		/* went wrong in one piece: its segments are still to be sent */
};

struct udp_out {
	struct udp_out		*next;		/* the owner's */
	uint64_t		 serial;	/* of this filling; never 0 */
	uint64_t		 begun_ns;	/* the owner's: nothing in it is older */
	uint16_t		 count;		/* messages */
	uint16_t		 buf_count;
	uint16_t		 message_max, vec_max, buf_max;	/* vec_max of each message */
	bool			 sealed;	/* the owner's: takes no more */
	int16_t			 redoing;	/* the owner's: message whose segments are under way, -1 = none */
	struct udp_message	*messages;
	struct io_dgram		*v;		/* for io_send_batch() */
	struct io_vec		*vecs;
	struct io_buf		*bufs;		/* held */
	void			*block;		/* private: what was allocated */
};

/* Sizes: most outs have a datagram or two, and a small one stays in the cache. */
enum udp_out_size { UDP_OUT_SMALL, UDP_OUT_BIG, UDP_OUT_SIZES };
enum { UDP_OUT_SMALL_MAX = 8 };	/* messages, pieces of each, buffers */

/* NULL when out of memory.  colour: a number that differs from one to the next, see udp_out.c. */
struct udp_out	*udp_out_new(enum udp_out_size, unsigned colour);
void		 udp_out_free(struct udp_out *);	/* NULL is fine; holds nothing */
void		 udp_out_begin(struct udp_out *, uint64_t serial);

/* A datagram to add. */
struct udp_datagram {
	struct udp_peer	*peer;
	struct io_vec	 piece[2];
	uint8_t		 pieces;
	uint8_t		 header_bytes;	/* of ours, in front of the payload */
	bool		 down;
};

/*
 * False: there is no room, or it might overtake others; to be tried with the
 * next out.  gso_segments: how many the kernel takes, 0 = none.  The pieces'
 * memory must be in a buffer that this out, or one sent later, holds.
 */
bool	udp_out_add(struct udp_out *, const struct udp_datagram *, unsigned gso_segments);

/* There is room: buf_count < buf_max. */
static inline void
udp_out_hold(struct udp_out *o, const struct io_buf *buf)
{
	o->bufs[o->buf_count++] = *buf;
}

/*
 * After the whole out was sent: message i again, as one message a segment in
 * v[0...].  Returns how many.
 */
unsigned udp_out_split(struct udp_out *, unsigned i);
/* Payload of segment k of a message that was split. */
size_t	udp_out_split_payload(const struct udp_out *, unsigned i, unsigned k);

/* A segmented message went out. */
void	udp_peer_gso_sent(struct udp_peer *, uint16_t segment_bytes);
/*
 * A segmented message was refused: what is to be tried from now on.  EINVAL and
 * EMSGSIZE mean "longer than the path's MTU", all else that this device can't.
 */
void	udp_peer_gso_refused(struct udp_peer *, uint16_t segment_bytes, int err);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * input: bytes received from a peer and not consumed yet.  While one block
 * holds them they are parsed where the kernel put them; what has to wait for
 * more is parked in memory of its own, so that a peer that sends a byte a
 * second never pins a block of the pool.
 */
#ifndef RW_NET_INPUT_H
#define RW_NET_INPUT_H

#include "io/io.h"
#include "util/span.h"

struct input {
	struct io_pool	*pool;
	struct io_buf	 block;		/* base NULL = none */
	char		*text;		/* parked bytes; NULL = none */
	size_t		 cap;
	size_t		 from, to;	/* what is left, in whichever holds it */
};

void		input_init(struct input *, struct io_pool *);
void		input_free(struct input *);
/*
 * Takes over the buffers of a recv_pool completion, also when it fails: 0 or
 * -ENOMEM.  The caller bounds the total by not receiving more.
 */
int		input_add(struct input *, struct io_op *recv_pool);
struct span	input_bytes(const struct input *);	/* valid until the next call */
void		input_consume(struct input *, size_t);
/* Gives the block back; what is left moves to memory of our own.  0 or -ENOMEM. */
int		input_park(struct input *);

#endif

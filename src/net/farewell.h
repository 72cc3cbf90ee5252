/* SPDX-License-Identifier: ISC */
/*
 * farewell: a last answer to a client, so that it is read.  Sends, shuts the
 * write side down, reads and drops what the client still sends (2 MiB or 2 s),
 * closes.  Closing with unread input would make the kernel send a reset, which
 * can overtake the answer (RFC 9112 section 9.6).
 */
#ifndef RW_NET_FAREWELL_H
#define RW_NET_FAREWELL_H

#include "net/env.h"
#include "net/stream.h"

enum {
	/* More than 64 KiB: a client that is in the middle of a 1 MiB body would not read a 407 then. */
	FAREWELL_DRAIN_BYTES = 2 * 1024 * 1024,
	FAREWELL_MS = 2000		/* for all of it, from the start */
};

typedef void farewell_cb(void *owner);

/* Embedded in its owner; all fields private. */
struct farewell {
	struct env	*env;
	struct stream	*stream;
	struct io_op	 op;
	struct io_timer	 timer;
	struct span	 rest;		/* not sent yet */
	size_t		 drained;
	farewell_cb	*done;
	void		*owner;
};

/*
 * Takes the stream over; `answer` must stay until `done`, which is the last
 * word: the stream is closed and freed.  Never calls back from inside.
 */
void	farewell_start(struct farewell *, struct env *, struct stream *, struct span answer,
	    farewell_cb *done, void *owner);
/* Close now; `done` still comes. */
void	farewell_abort(struct farewell *);

#endif

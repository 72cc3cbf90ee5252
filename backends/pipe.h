/* SPDX-License-Identifier: ISC */
/*
 * pipe: the pipes of one loop, for relays that splice.  Only an empty pipe is
 * kept for reuse; the number that exist is bounded by io_config.pipes_max.
 */
#ifndef IO_PIPE_H
#define IO_PIPE_H

#include "internal.h"

struct io_pipe {
	int		 rd, wr;	/* non-blocking, close-on-exec */
	uint32_t	 cap;		/* bytes, as the kernel gave it (F_GETPIPE_SZ) */
	uint32_t	 idle;		/* while idle: how many are, up to this one */
	struct io_pipe	*next;
};

/*
 * NULL when none is to be had: the ceiling, EMFILE, or a kernel that gives less
 * than RELAY_PIPE_MIN_BYTES (pipe-user-pages-soft); counted in stats.pipe_none,
 * and not asked for again for a while, so that the copy path does not pay.
 */
struct io_pipe	*io_pipe_get(struct io_loop *);
/* empty: the caller knows that nothing is left inside. */
void		 io_pipe_put(struct io_loop *, struct io_pipe *, bool empty);
void		 io_pipes_free(struct io_loop *);	/* asserts that all are home */

#endif

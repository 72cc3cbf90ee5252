/* SPDX-License-Identifier: ISC */
/* relay_rig: one relay direction on a loop, with plain sockets and threads around it. */
#ifndef RW_IO_RELAY_RIG_H
#define RW_IO_RELAY_RIG_H

#include "suite.h"

struct rig {
	struct io_loop	*l;
	struct io_pool	*pool;
	struct t_sock	 src, dst;
	struct t_op	 relay;
	uint64_t	 tally;
	bool		 own_pool;
	io_fd		 in, out;	/* the plain ends: written to, read from */
	uint64_t	 seed;
	uint64_t	 sent, got;	/* plain bytes written and read so far */
};

/* Buffers as n_pair_buffers; a pool of `blocks` times 16 KiB. */
void	rig_open(struct rig *, struct io_loop *, int sndbuf, int rcvbuf, uint32_t blocks);
/* As rig_open, with a pool of the caller's. */
void	rig_open_on(struct rig *, struct io_loop *, struct io_pool *, int sndbuf, int rcvbuf);
void	rig_start(struct rig *, uint64_t max);
/* Write or read what goes without blocking, at most n bytes; how many. */
size_t	rig_feed(struct rig *, size_t n);
size_t	rig_read(struct rig *, size_t n);
/* Reads to the end (the loop's side is closed or shut down); how much in all.  An error fails the case. */
int64_t	rig_read_all(struct rig *);
/* Closes both sockets and waits; then the relay has ended and everything is home. */
void	rig_close(struct rig *);
/* What is left of it; frees the pool if rig_open made it. */
void	rig_free(struct rig *);

/* A thread that writes `bytes`, in random pieces, then shuts down; one that reads to the end. */
struct rig_pump {
	struct rig	*rig;
	struct n_thread	 thread;
	uint64_t	 bytes;
	unsigned	 piece_max;
	unsigned	 pause_every;	/* pieces; 0: none */
	_Atomic bool	 done;
};
void	rig_write_thread(struct rig_pump *);
void	rig_read_thread(struct rig_pump *);

#endif

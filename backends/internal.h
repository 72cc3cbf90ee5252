/* SPDX-License-Identifier: ISC */
/*
 * internal: what the loop's core (io.c, timer.c, pool.c, post.c) and the
 * backends share.  Callers of io.h never include this.
 *
 * Division of work.  The core checks the contract's preconditions, keeps each
 * op's state, the sides of each socket, timers, posts, pools and the close
 * protocol, and runs every callback.  A backend starts and cancels operations
 * in its kernel and tells the core what came of them, by exactly three calls:
 *
 *	io_op_emit()	an intermediate result of a multishot op   } from reap()
 *	io_op_finish()	the final result; runs the callback now    } only
 *	io_op_defer()	the final result; the callback runs in a later turn
 *			(from submit, cancel, resume: anywhere but reap too)
 *
 * A backend must not touch an op after io_op_finish() or io_op_defer() on it,
 * nor a socket after release(), and must look at nothing that belongs to the
 * caller after io_op_emit() without checking that the op is still ARMED.
 */
#ifndef IO_INTERNAL_H
#define IO_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>

#include "io/io.h"
#include "io/mutant.h"

enum io_op_state {
	OP_IDLE,
	OP_ARMED,	/* with the backend */
	OP_READY	/* final result known, callback in a later turn */
};

enum io_sock_state {
	SOCK_NONE,	/* zeroed memory */
	SOCK_OPEN,
	SOCK_CLOSING,	/* io_close called, ops still ending */
	SOCK_RELEASED	/* fd gone, close callback queued */
};

/* op->flags: bit 0 is IO_USE_RESERVE; backends own bits 4 to 7. */
enum {
	OPF_CANCEL	= 1 << 1,	/* io_cancel was called on this run of the op */
	OPF_BE0		= 1 << 4,
	OPF_BE1		= 1 << 5,
	OPF_BE2		= 1 << 6,
	OPF_BE3		= 1 << 7
};

enum io_probe { PROBE_OK, PROBE_NEXT, PROBE_FATAL };

struct io_backend {
	const char	*name;
	/*
	 * Can this kernel do it?  Does real operations.  NEXT: not here, try
	 * another; FATAL: a limit was hit that would hide itself (C30).  Fills
	 * choice->why and choice->uring_level.  level -1 = climb down the ladder.
	 */
	enum io_probe	(*probe)(struct io_choice *, int level);
	int		(*init)(struct io_loop *, const struct io_config *);
	void		(*fini)(struct io_loop *);
	void		(*adopt)(struct io_loop *, struct io_sock *);
	/* Start op (op->kind, op->u, op->flags are set).  May io_op_defer(). */
	void		(*submit)(struct io_loop *, struct io_op *);
	/* op is ARMED.  Ends it, at once by io_op_defer(CANCELED) or when its kernel says so. */
	void		(*cancel)(struct io_loop *, struct io_op *);
	/* An op that io_pool_wait()ed may try again: there is a block, or a pool kick. */
	void		(*resume)(struct io_loop *, struct io_op *);
	/* Every op of the socket has ended: forget it and close the fd. */
	void		(*release)(struct io_loop *, struct io_sock *);
	/* Block at most timeout_ns (0 = poll, UINT64_MAX = for ever) until there is something to reap. */
	int		(*wait)(struct io_loop *, uint64_t timeout_ns);
	/* Deliver what had completed when the turn began, while loop->budget > 0. */
	void		(*reap)(struct io_loop *);
	void		(*wake)(struct io_loop *);	/* async-signal-safe */
	int		(*pool_bind)(struct io_loop *, struct io_pool *);	/* may be NULL */
	void		(*pool_unbind)(struct io_loop *, struct io_pool *);	/* may be NULL */
	/* A block came home.  True: the backend keeps it (receive ring).  May be NULL. */
	bool		(*pool_keep)(struct io_loop *, struct io_pool *, uint32_t bid);
};

extern const struct io_backend io_backend_uring, io_backend_epoll,
    io_backend_kqueue, io_backend_iocp;

struct io_timers {
	struct io_timer	*root;
	uint64_t	 seq;
};

struct io_loop {
	const struct io_backend	*be;
	void			*bed;		/* the backend's own state */
	struct io_config	 cfg;
	char			 why[160];
	const char		*owner;		/* &io_thread of the loop's thread; NULL before io_loop_bind() */
	bool			 in_turn, in_callback;
	bool			 backlog;	/* reap stopped by budget with results left: do not block */
	uint64_t		 now_ns;
	unsigned		 turn_max, budget;
	uint32_t		 inflight;
	struct io_link		 ready;		/* ops in OP_READY */
	struct io_link		 closed;	/* sockets in SOCK_RELEASED */
	struct io_link		 pools;
	struct io_timers	 timers;
	_Atomic(struct io_post *) posts;	/* newest first */
	struct io_post		*posts_todo;	/* taken, oldest first */
	atomic_bool		 wake_pending;
	struct io_pipe		*pipes_idle;	/* see pipe.h */
	uint64_t		 pipes_retry_ns; /* no pipe is asked for before this */
	bool			 segments;	/* a socket has said that UDP_SEGMENT is there, see dgram.c */
	struct io_stats		 stats;
};

struct io_pool {
	struct io_loop	*loop;
	struct io_link	 link;			/* on loop->pools */
	uint8_t		*base;			/* ceiling * stride, touched lazily */
	uint32_t	 block_bytes, ceiling, reserve;
	uint32_t	 stride;		/* block and the headroom before it */
	uint32_t	*free;			/* stack of block numbers: last in, first out stays in cache */
	uint32_t	 nfree;
	uint32_t	 lent;			/* with callers or relays; not those in a backend's ring */
	struct io_link	 waiters;		/* ops by op->link, oldest first */
	struct io_link	 waiters_reserve;	/* those with IO_USE_RESERVE */
	bool		 kick;			/* waiters may go on in the next turn */
	uint64_t	 starved, starved_since_ns;
	void		*bed;			/* the backend's own state */
};

/* ---- for backends ---- */

static inline uint8_t *
io_pool_base(const struct io_pool *p, uint32_t bid)
{
	return p->base + (size_t)bid * p->stride + IO_HEADROOM;
}

/* Intermediate result: op->res, op->u are set by the backend before. */
void	io_op_emit(struct io_loop *, struct io_op *);
void	io_op_finish(struct io_loop *, struct io_op *, int32_t res, int32_t syserr);
void	io_op_defer(struct io_loop *, struct io_op *, int32_t res, int32_t syserr);
/* As io_op_finish with the result of a system call: a negative errno in syscall_res. */
static inline bool io_op_canceled(const struct io_op *op) { return op->flags & OPF_CANCEL; }

/* Other threads read it at any time; only the loop's writes. */
static inline void
io_tally_add(uint64_t *tally, uint64_t n)
{
	if (tally != NULL)
		__atomic_store_n(tally, *tally + n, __ATOMIC_RELAXED);
}

int32_t	io_err_of(int sys);		/* positive errno (or WSA code) to enum io_err */

/* A block off the pool's stack; `len` 0.  False when only the reserve (or nothing) is left. */
bool	io_pool_take(struct io_pool *, bool use_reserve, struct io_buf *);
/* Block number to buffer, and the lent count: for backends whose kernel chose the block. */
void	io_pool_lend(struct io_pool *, uint32_t bid, struct io_buf *);
/* The op waits for a block: armed, silent, counted once an episode (C27).  Ended by resume, or by finish or defer. */
void	io_pool_wait(struct io_pool *, struct io_op *, bool use_reserve);
bool	io_pool_waits(const struct io_op *);

void	io_close_fd(io_fd);

/* ---- core, between its files ---- */

uint64_t io_clock(void);
void	io_ready_timers(struct io_loop *);	/* runs due timers, budget permitting */
uint64_t io_timer_next(const struct io_loop *);	/* ns deadline, UINT64_MAX = none */
void	io_run_posts(struct io_loop *);
bool	io_posts_pending(const struct io_loop *);
void	io_pools_kick(struct io_loop *);	/* resumes waiters of kicked pools */
bool	io_pools_kicked(const struct io_loop *);
/*
 * Its address tells threads apart.  Nearly every call of io.h asserts on it: by
 * pthread_self() that was half of a block's way home and out again (bench/micro pool).
 */
extern _Thread_local char io_thread;
static inline bool
io_bound_here(const struct io_loop *l)
{
	return l->owner == &io_thread;
}
static inline bool
io_called_by_owner(struct io_loop *l)
{
	if (l->owner == NULL)
		io_loop_bind(l);
	return io_bound_here(l);
}
static inline void
io_callback_begin(struct io_loop *l)
{
	assert(!l->in_callback);	/* C3: never nested */
	l->in_callback = true;
	l->stats.callbacks++;
	if (l->budget > 0)
		l->budget--;
}
static inline void
io_callback_end(struct io_loop *l)
{
	l->in_callback = false;
}

#endif

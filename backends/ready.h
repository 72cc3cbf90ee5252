/* SPDX-License-Identifier: ISC */
/*
 * ready: completions emulated over readiness, shared by epoll and kqueue.  An
 * op is tried when its socket is believed ready, and otherwise waits for the
 * kernel to say so; a poller (struct ready_ops) says how that is asked.  It
 * never calls back from inside an io_ call: results found outside reap() are
 * deferred by the core.
 *
 *	submit -> try now (send, connect, poll)  -> done: io_op_defer
 *	       -> believed readable: run queue   -> reap: try -> done: io_op_finish
 *	       -> otherwise ready_need()         -> wait: ready_event -> run queue
 *
 * A socket gets a slot at its first need.  What the kernel keeps is the slot's
 * key (number and generation), never a pointer, so an event for a socket that
 * has gone finds nothing (C19).
 */
#ifndef IO_READY_H
#define IO_READY_H

#include <errno.h>
#include <sys/types.h>

#include "internal.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0		/* macOS: SO_NOSIGPIPE, set by ready_adopt() */
#endif

/* What is believed of a socket, in sock->be[1]; the first four also say what an event brings. */
enum {
	RDY_READ	= 1 << 0,	/* a read is worth trying */
	RDY_WRITE	= 1 << 1,
	RDY_EOF		= 1 << 2,	/* end or error announced: a short read was not all */
	RDY_URGENT	= 1 << 3,	/* a read stops at the urgent mark: a short read was not all */
	RDY_TCP		= 1 << 4,	/* a short read or write means dry or full, see ready_read_short() */
	RDY_LISTEN	= 1 << 5,	/* others may hold the listener: say goodbye to the poller */
	RDY_BULK	= 1 << 6,	/* the last read filled its buffer */
	RDY_ARMED_RD	= 1 << 7,	/* poller: read readiness has been asked for */
	RDY_ARMED_WR	= 1 << 8
};

struct ready_slot {
	struct io_sock	*sock;		/* NULL: free, or released while still in the run queue */
	uint32_t	 gen;		/* never 0 in a key */
	uint32_t	 next;		/* run queue or free list; READY_NONE at the end */
	bool		 queued;
};

#define READY_NONE UINT32_MAX

/* A Unix listener whose backlog is full gives no event when it has room: ask again so often. */
#define READY_RECONNECT_NS UINT64_C(5000000)

struct ready;

/* One kernel's way to wait. */
struct ready_ops {
	/* RDY_URGENT is told of, so a short read on TCP can be trusted: see ready_read_short(). */
	bool	tells_urgent;
	/* Tell of RDY_READ or RDY_WRITE by ready_event(), once or more.  0 or a negative errno. */
	int	(*need)(struct ready *, struct io_sock *, unsigned bit);
	/* The descriptor is about to be closed. */
	void	(*forget)(struct ready *, struct io_sock *);
	/* Blocks; calls ready_event(); clears loop->wake_pending when woken.  0 or a negative errno. */
	int	(*wait)(struct ready *, uint64_t timeout_ns);
};

/* Embedded in the poller's own state; loop->bed points here. */
struct ready {
	struct io_loop		*loop;
	const struct ready_ops	*ops;
	struct ready_slot	*slots;
	uint32_t		 nslots, cap;
	uint32_t		 free;		/* first free slot */
	uint32_t		 head, tail, queued;	/* run queue, by slot number */
	bool			 reaping;
	struct io_link		 connects;	/* ops whose listener (Unix) had a full backlog */
	uint64_t		 connects_ns;	/* when to try them again */
};

/* ---- for pollers ---- */

void		ready_init(struct ready *, struct io_loop *, const struct ready_ops *);
void		ready_fini(struct ready *);
/* bits: RDY_READ, RDY_WRITE, RDY_EOF, RDY_URGENT.  A key of the past is dropped. */
void		ready_event(struct ready *, uintptr_t key, unsigned bits);
/* The poller could not do what ready_need() asked for: ends the ops that wait. */
void		ready_need_failed(struct ready *, uintptr_t key, int syserr);
uintptr_t	ready_key(const struct ready *, const struct io_sock *);
/* NULL when the socket that had this key has gone. */
struct io_sock	*ready_sock(const struct ready *, uintptr_t key);

/* The backend's entries that do not depend on the poller. */
void	ready_adopt(struct io_loop *, struct io_sock *);
void	ready_submit(struct io_loop *, struct io_op *);
void	ready_cancel(struct io_loop *, struct io_op *);
void	ready_resume(struct io_loop *, struct io_op *);
void	ready_release(struct io_loop *, struct io_sock *);
int	ready_wait(struct io_loop *, uint64_t timeout_ns);
void	ready_reap(struct io_loop *);

/* ---- between ready.c, ready_net.c, ready_dgram.c and ready_relay.c ---- */

/* The op waits until `s` is ready.  False: that can't be asked for, and the op has ended. */
bool	ready_await(struct ready *, struct io_op *, struct io_sock *s, unsigned bit);
/* Serve the socket in the next turn.  False: no memory for a slot (only before its first wait). */
bool	ready_queue(struct ready *, struct io_sock *);
/* Final result: by finish inside reap, by defer elsewhere. */
void	ready_end(struct ready *, struct io_op *, int32_t res, int32_t syserr);
void	ready_end_errno(struct ready *, struct io_op *, int e);
/*
 * Up to `max` bytes into blocks of the pool: fills bufs[0..*n-1] with their
 * lengths.  Bytes; 0 at the end; -EAGAIN; -ENOBUFS when there is no block; or
 * another negative errno.  Takes no block home unless it returns more than 0.
 */
ssize_t	ready_read_pool(struct io_sock *, struct io_pool *, bool use_reserve,
	    size_t max, struct io_buf *bufs, unsigned *n);

/* Tries: each ends the op, emits, or makes it wait. */
void	ready_accept(struct ready *, struct io_op *);
void	ready_connect(struct ready *, struct io_op *);	/* the first call */
void	ready_connected(struct ready *, struct io_op *); /* what came of it */
void	ready_reconnect(struct ready *);		/* those on r->connects that are due */
void	ready_recv(struct ready *, struct io_op *);
void	ready_recv_pool(struct ready *, struct io_op *);
void	ready_send(struct ready *, struct io_op *);
void	ready_poll(struct ready *, struct io_op *);
void	ready_recv_batch(struct ready *, struct io_op *);
void	ready_send_batch(struct ready *, struct io_op *);
/* The datagrams not sent yet get `err`; how many went out, or `err` if none did. */
int32_t	ready_send_batch_cut(struct io_op *, int32_t err);
void	ready_relay(struct ready *, struct io_op *);
/* Gives back what the relay holds; before its end or cancel. */
void	ready_relay_drop(struct ready *, struct io_op *);

static inline struct ready *
ready_of(struct io_loop *l)
{
	return l->bed;
}

static inline bool
ready_believed(const struct io_sock *s, unsigned bits)
{
	return (s->be[1] & bits) != 0;
}

/*
 * A read came short of its buffer.  On TCP the queue was then empty, and what
 * comes later makes an event, so the read that would find nothing is saved;
 * not with an end announced already (its event has come), nor near urgent data
 * (tcp(7): a read stops at the mark).  Unix sockets stop at passed descriptors,
 * datagrams at their end: those must read until EAGAIN.
 */
static inline void
ready_read_short(struct io_sock *s)
{
	if ((s->be[1] & (RDY_TCP | RDY_EOF | RDY_URGENT)) == RDY_TCP)
		s->be[1] &= ~(uint64_t)RDY_READ;
}

/* EAGAIN. */
static inline void
ready_read_dry(struct io_sock *s)
{
	s->be[1] &= ~(uint64_t)(RDY_READ | RDY_EOF | RDY_URGENT);
}

/* A write came short: TCP has marked the socket for a write-space event (SOCK_NOSPACE). */
static inline void
ready_write_short(struct io_sock *s)
{
	if (s->be[1] & RDY_TCP)
		s->be[1] &= ~(uint64_t)RDY_WRITE;
}

static inline void
ready_write_full(struct io_sock *s)
{
	s->be[1] &= ~(uint64_t)RDY_WRITE;
}

/* EAGAIN and EWOULDBLOCK are one on every system here but need not be (POSIX). */
static inline bool
ready_would_block(int e)
{
	return e == EAGAIN || e == EWOULDBLOCK;
}

#endif

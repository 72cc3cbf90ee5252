/* SPDX-License-Identifier: ISC */
/*
 * backend: the I/O contract over simulated sockets.  It behaves like whichever
 * kernel is worst: operations complete late and in any order between sockets,
 * a cancel may come too late and the op then ends with its real result, sends
 * and receives move less than asked, an accept takes more than was wanted.
 * What it never does is break a rule of the contract.
 */
#ifndef RW_SIM_BACKEND_H
#define RW_SIM_BACKEND_H

#include "internal.h"
#include "kernel.h"

extern const struct io_backend io_backend_sim;

/* Called for each socket that a loop adopts; may be NULL. */
extern void (*sim_backend_adopted)(struct kfile *);

struct sim_loop {
	struct io_loop	*loop;
	struct io_link	 ready;		/* sockets to look at */
	struct io_link	 done;		/* ops by op->link, earliest due first */
	atomic_bool	 woken;
	bool		 at_submit;	/* results found now are deferred by the core */
};

/* The kernel's side of an adopted socket; outlives no release. */
struct sim_sock {
	struct kwatch	 watch;
	struct io_link	 ready;
	struct sim_loop	*sl;
	struct kfile	*file;
	struct io_sock	*sock;
	struct io_op	*op[2];		/* what the kernel works on: read side, write side */
	struct io_link	 accepted;	/* struct sim_taken */
};

/* op->be */
enum {
	BE_FLAGS, BE_DUE, BE_RES, BE_OFFSET, BE_TURN, BE_BYTES
};
/*
 * On sl->done without DONE or CANCELING: there is something to do at BE_DUE,
 * inside the turn (receives into blocks, batches, steps of a relay).
 */
enum {
	OPB_DONE	= 1 << 0,	/* BE_RES is the final result */
	OPB_CANCELING	= 1 << 1,	/* the cancel takes effect at BE_DUE */
	OPB_LISTED	= 1 << 2,	/* on sl->done */
	OPB_SRC_ENDED	= 1 << 3,
	OPB_STARTED	= 1 << 4	/* the connect is under way */
};

/* A connection that was accepted and not told of yet. */
struct sim_taken {
	struct io_link	link;
	int		fd;
	struct sockaddr_storage peer;
	socklen_t	len;
};

static inline struct sim_sock *
sim_sock_of(const struct io_sock *s)
{
	return (struct sim_sock *)(uintptr_t)s->be[0];
}

void	sim_op_done(struct sim_loop *, struct io_op *, int32_t res, int32_t syserr);
static inline void
sim_op_failed(struct sim_loop *sl, struct io_op *op, long rc)
{
	sim_op_done(sl, op, io_err_of((int)-rc), (int32_t)-rc);
}
/* On sl->done: something to deliver, or to do, at due_ns. */
void	sim_list_op(struct sim_loop *, struct io_op *, uint64_t due_ns);
uint64_t sim_late(void);		/* now, or a little later */
/* Look at the socket again before the next block. */
void	sim_look(struct sim_sock *);

/* backend_try.c */
void	sim_attempt(struct sim_loop *, struct sim_sock *, struct io_op *);
/* In the turn, so that blocks are lent when their receiver is told.  False: nothing yet. */
bool	sim_recv_pool(struct sim_loop *, struct sim_sock *, struct io_op *);
/* backend_relay.c */
void	sim_relay(struct sim_loop *, struct io_op *);
void	sim_relay_drop(struct io_op *);
/* Blocks and bytes off the socket: bytes, 0 at the end, -EAGAIN, -ENOBUFS or an error. */
long	sim_read_pool(struct kfile *, struct io_pool *, bool use_reserve, size_t max,
	    struct io_buf *, unsigned *n);
/* backend_dgram.c */
bool	sim_recv_batch(struct io_op *);		/* filled: emit it */
void	sim_send_batch(struct sim_loop *, struct io_op *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * uring: private to the io_uring backend.  One ring a loop, entered once a
 * turn.  Each operation is at most one request in the kernel plus, when it is
 * being canceled, one cancel request; op->krefs counts the completions that are
 * still owed, and no final callback runs before they are in (C19).
 *
 *	uring.c        the ring: set-up, wait, reap, cancel, wake
 *	uring_probe.c  can this kernel do it?
 *	uring_pool.c   provided buffers, and receives into a pool's blocks
 *	uring_net.c    accept, connect, recv, recv_pool, send, poll
 *	uring_dgram.c  batches of datagrams
 *	uring_relay.c  one direction of a relay
 */
#ifndef IO_URING_BACKEND_H
#define IO_URING_BACKEND_H

#include <liburing.h>
#include <sys/uio.h>

#include "alarm.h"
#include "internal.h"

/*
 * Low bits of user_data: which of an op's requests completed.  An op is aligned
 * to 8, so there is room.
 */
enum {
	TAG_TARGET	= 0,
	TAG_CANCEL	= 1,
	TAG_WAKE	= 2,
	TAG_ALARM	= 3,
	TAG_MASK	= 7
};

/* op->flags: the result is in op->res and op->syserr, a cancel's completion is still owed. */
#define OPF_ENDED OPF_BE0

/* What an op's request in the kernel is for, in op->be[0]. */
enum uring_stage {
	ST_NONE,
	ST_RECV,	/* receive into a provided buffer */
	ST_RECV_POLL,	/* waits for readability, then a block is taken and recv(2) called */
	ST_SEND,
	ST_SPLICE_IN,	/* relay: waits for src to become readable */
	ST_SPLICE_OUT	/* relay: waits for dst to become writable */
};

/* Storage that must stay until a request has been submitted; one for each submission slot. */
struct uring_scratch {
	struct msghdr	msg;
	struct iovec	iov[IO_RECV_BUFS_MAX];
};

/* A ring of buffers that the kernel chooses from.  Its blocks are neither lent nor on the pool's stack. */
struct uring_group {
	struct io_uring_buf_ring *br;	/* NULL: not made, or refused */
	uint32_t	 entries;	/* a power of two, at least hot */
	uint32_t	 hot;		/* blocks kept inside when there are enough */
	uint32_t	 filled;	/* blocks given to the kernel and not seen in a completion */
	uint16_t	 bgid;
	bool		 refused;	/* the kernel would not have it: do not ask again */
	bool		 dgram;		/* buffers begin IO_HEADROOM bytes earlier, see uring_dgram.c */
};

/* pool->bed */
struct uring_pool {
	struct uring_group stream, dgram;
};

struct uring {
	struct io_uring	 ring;
	struct io_loop	*loop;
	unsigned	 level;		/* rung of the flag ladder */
	bool		 enabled;	/* bound to the thread that turns the loop */
	bool		 taskrun_flag;	/* the kernel tells in shared memory when it wants to be entered */
	bool		 no_ring;	/* tests: no provided buffers */
	bool		 reaping;
	int		 wakefd;
	bool		 wake_armed;
	uint64_t	 wake_value;	/* where the ring reads the eventfd's counter to */
	struct io_alarm	 alarm;
	bool		 alarm_polled;
	uint32_t	 reap_tail;	/* completions before this one were there when the turn began */
	uint16_t	 next_bgid;
	struct uring_scratch *scratch;
	/* Completions taken out of a full queue so that a submission could go on; oldest first. */
	struct io_uring_cqe *saved;
	uint32_t	 nsaved, saved_at, saved_cap;
	/* Receivers of datagrams with something to do at the end of this reap, by op->link. */
	struct io_link	 gathered;
	uint32_t	 ngathered;	/* those that hold a batch: a callback each */
	struct msghdr	 dgram_msg;	/* the shape of a received datagram, see uring_dgram.c */
};

static inline struct uring *
uring_of(const struct io_loop *l)
{
	return l->bed;
}

/* ---- uring.c ---- */

/* Flags and sizes of one rung; tried by the probe, used by the loops. */
enum { URING_LEVELS = 3 };
int	uring_setup(struct io_uring *, unsigned level, unsigned entries);
/* Binds it to the calling thread; needed once, before anything is submitted. */
int	uring_enable(struct io_uring *, unsigned level);

/* A cleared slot; never fails: submits what there is when the queue is full. */
struct io_uring_sqe *uring_sqe(struct uring *);
/* As uring_sqe, for the op's own request: a completion more is owed. */
struct io_uring_sqe *uring_sqe_op(struct uring *, struct io_op *);
struct uring_scratch *uring_scratch_of(struct uring *, const struct io_uring_sqe *);
/* The final result; waits for a cancel's completion, is deferred outside of reap. */
void	uring_end(struct uring *, struct io_op *, int32_t res, int32_t syserr);
/* As uring_end; rc is a request's result, negative errno or not. */
void	uring_end_rc(struct uring *, struct io_op *, int rc);
void	uring_poll_add(struct uring *, struct io_op *, int fd, unsigned events);
/*
 * For accept4(2), and for splice(2), which heeds the socket's own flag and not
 * only SPLICE_F_NONBLOCK.  sock->be[0] remembers that it is set.
 */
void	uring_make_nonblocking(struct io_sock *);
static inline bool
uring_transient(int rc)
{
	return rc == -EINTR || rc == -EAGAIN;
}

/* ---- uring_probe.c ---- */

enum io_probe uring_probe(struct io_choice *, int level);

/* ---- uring_pool.c ---- */

enum uring_recv { RECV_PENDING, RECV_DONE };

int	uring_pool_bind(struct io_loop *, struct io_pool *);
void	uring_pool_unbind(struct io_loop *, struct io_pool *);
bool	uring_pool_keep(struct io_loop *, struct io_pool *, uint32_t bid);
/* The group with at least one block inside, or NULL: use the stack. */
struct uring_group *uring_group_ready(struct uring *, struct io_pool *, bool dgram);
/* The buffer of a completion, lent. */
void	uring_group_took(struct io_pool *, struct uring_group *, uint32_t cqe_flags, struct io_buf *);

/* A receive of up to `want` bytes into blocks of the pool, for recv_pool and relay. */
struct uring_rx {
	struct io_pool	*pool;
	struct io_buf	*bufs;		/* room for IO_RECV_BUFS_MAX */
	unsigned	 n;		/* out */
	size_t		 want;
	bool		 dry;		/* out: the kernel had no more; in: as the receive before said */
	int		 res;		/* out: bytes, 0 at the end, or a negative errno */
};
void	uring_rx_start(struct uring *, struct io_op *, struct uring_rx *);
enum uring_recv uring_rx_completed(struct uring *, struct io_op *, struct uring_rx *,
	    const struct io_uring_cqe *);
/* The op waited for a block and may have got one. */
enum uring_recv uring_rx_resume(struct uring *, struct io_op *, struct uring_rx *);

/* ---- uring_net.c ---- */

void	uring_net_submit(struct uring *, struct io_op *);
void	uring_net_completed(struct uring *, struct io_op *, const struct io_uring_cqe *);
void	uring_net_resume(struct uring *, struct io_op *);

/* ---- uring_dgram.c ---- */

void	uring_dgram_init(struct uring *);
void	uring_recv_batch_start(struct uring *, struct io_op *);
void	uring_recv_batch_completed(struct uring *, struct io_op *, const struct io_uring_cqe *);
void	uring_recv_batch_resume(struct uring *, struct io_op *);
/* Gives back the blocks of a batch that is gathered and not delivered. */
void	uring_recv_batch_drop(struct uring *, struct io_op *);
/* Delivers the batches that were gathered. */
void	uring_dgram_flush(struct uring *);
void	uring_send_batch_start(struct uring *, struct io_op *);
void	uring_send_batch_completed(struct uring *, struct io_op *, const struct io_uring_cqe *);

/* ---- uring_relay.c ---- */

void	uring_relay_start(struct uring *, struct io_op *);
void	uring_relay_completed(struct uring *, struct io_op *, const struct io_uring_cqe *);
void	uring_relay_resume(struct uring *, struct io_op *);
void	uring_relay_drop(struct uring *, struct io_op *);	/* gives back what it holds */

#endif

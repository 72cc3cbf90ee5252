/* SPDX-License-Identifier: ISC */
/*
 * io: a completion-style I/O interface over io_uring, epoll, kqueue and IOCP.
 *
 * A caller embeds a struct io_op in its own object, starts it with one of the
 * io_...() calls, and gets a callback from io_loop_turn() when it is done.  The
 * calls return nothing: an immediate failure is a later callback.  The rules
 * are numbered C1 to C32 (test/io has at least one case for each); the ones a
 * caller must know are repeated at the calls.  This layer knows nothing of
 * proxies.
 *
 *	           io_X()               last completion
 *	  IDLE ------------> ARMED ------------------------> IDLE + final callback
 *	                       |  io_cancel(): a request      (op->more == false)
 *	                       +--> still ARMED; ends with CANCELED or its real result
 */
#ifndef IO_IO_H
#define IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/list.h"

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN	/* else windows.h takes names such as `byte` */
#endif
#include <winsock2.h>
#include <ws2tcpip.h>
typedef SOCKET io_fd;
#define IO_FD_NONE INVALID_SOCKET
#else
#include <sys/socket.h>
typedef int io_fd;
#define IO_FD_NONE (-1)
#endif

struct io_loop;			/* opaque */
struct io_pool;			/* opaque: fixed-size blocks, owned by one loop */
struct io_pipe;			/* opaque */
struct io_op;
struct io_sock;
struct io_timer;
struct io_post;

/*
 * Closed set (C10); op->syserr keeps the raw errno or WSA code for the log.
 * EAGAIN, EINTR and ENOBUFS never surface; EPIPE is IO_ERESET.
 */
enum io_err {
	IO_OK			= 0,
	IO_ECANCELED		= -1,
	IO_EREFUSED		= -2,
	IO_ERESET		= -3,	/* RST, EPIPE, ECONNABORTED */
	IO_ETIMEDOUT		= -4,
	IO_ENETUNREACH		= -5,
	IO_EHOSTUNREACH		= -6,
	IO_EADDRINUSE		= -7,
	IO_EADDRNOTAVAIL	= -8,	/* bad family too */
	IO_EMFILE		= -9,	/* EMFILE, ENFILE: the caller backs off */
	IO_ENOMEM		= -10,
	IO_EMSGSIZE		= -11,
	IO_EACCES		= -12,	/* EPERM too: a local firewall says so */
	IO_EINVAL		= -13,
	IO_ENOTSUP		= -14,
	IO_EOTHER		= -15
};

enum io_kind {
	IO_NONE, IO_ACCEPT, IO_CONNECT, IO_RECV, IO_RECV_POOL, IO_SEND,
	IO_RECV_BATCH, IO_SEND_BATCH, IO_RELAY, IO_POLL
};

/* Owner by io_container_of(). */
typedef void io_cb(struct io_loop *, struct io_op *);
typedef void io_sock_cb(struct io_loop *, struct io_sock *);
typedef void io_timer_cb(struct io_loop *, struct io_timer *);
typedef void io_post_cb(struct io_loop *, struct io_post *);

enum {
	IO_RECV_BYTES_MAX	= 64 * 1024,	/* one recv_pool completion, and what a relay direction may hold */
	IO_RECV_BUFS_MAX	= 4,		/* buffers in one recv_pool completion */
	IO_BATCH_MAX		= 64,		/* datagrams in one batch */
	IO_DGRAM_VECS_MAX	= 128,		/* pieces of one datagram: a header and a payload each of 64 segments */
	IO_HEADROOM		= 192		/* bytes before a block that are its holder's too: for a header
						   put in front; the ring's datagrams need them (uring_dgram.c) */
};

/* One block lent by a pool; give it back once by io_buf_put(). */
struct io_buf {
	uint8_t		*base;
	uint32_t	 len;		/* bytes of payload */
	uint32_t	 cap;
	uint32_t	 bid;		/* private to the pool */
};

/* A piece of a datagram to send; on POSIX laid out as struct iovec. */
struct io_vec {
	void		*base;
	size_t		 len;
};

/* One datagram, in or out; with `gso` a run of them, each that long but the last, to or from one peer. */
struct io_dgram {
	struct io_buf		 buf;		/* send side: only base and len are read, and only when nvec is 0 */
	const struct io_vec	*vec;		/* send side: the bytes in pieces; they stay until the final callback */
	uint32_t		 nvec;		/* at most IO_DGRAM_VECS_MAX; 0 = buf */
	struct sockaddr_storage	 peer;
	struct sockaddr_storage	 local;		/* family AF_UNSPEC: not known, or let the kernel choose */
	socklen_t		 peerlen;
	int32_t			 res;		/* send side: bytes, or enum io_err */
	uint16_t		 gso;		/* segment size, 0 = a single datagram */
	bool			 trunc;		/* arrived cut (C28) */
};

struct io_op {
	/* Set by the io_...() call; read-only for the owner. */
	io_cb		*cb;
	struct io_sock	*sock;
	uint8_t		 kind;		/* enum io_kind */
	uint8_t		 state;		/* private: enum io_op_state */
	uint8_t		 flags;		/* private: IO_USE_RESERVE, backend bits */
	uint8_t		 krefs;		/* private: completions the kernel still owes */
	/* Results; valid only inside the callback. */
	bool		 more;		/* the op stays armed after this callback */
	int32_t		 res;		/* >= 0, or enum io_err */
	int32_t		 syserr;
	union {
		struct {
			io_fd			 fd;	/* yours: adopt or close it */
			const struct sockaddr	*peer;	/* valid inside the callback */
			socklen_t		 peerlen;
		} accept;
		struct {
			const struct sockaddr	*to;
			socklen_t		 tolen;
		} connect;
		struct {
			void			*base;
			size_t			 len;
		} recv;
		struct {
			struct io_pool		*pool;
			struct io_buf		 bufs[IO_RECV_BUFS_MAX];
			unsigned		 n;	/* buffers delivered; 0 at the end or on error */
		} pool;
		struct {
			const void		*base;
			size_t			 len;
		} send;
		struct {
			struct io_pool		*pool;	/* receive side only */
			struct io_dgram		*v;
			unsigned		 max;	/* capacity of v, or datagrams to send */
			unsigned		 n;	/* received in this callback, or sent so far */
		} batch;
		struct {
			struct io_sock		*dst;
			struct io_pool		*pool;
			struct io_pipe		*pipe;	/* private: lent while in splice mode */
			struct io_buf		 bufs[IO_RECV_BUFS_MAX]; /* private: received, not yet sent */
			uint64_t		 max;	/* bytes to move; UINT64_MAX = until the end */
			uint64_t		 moved;	/* bytes handed to dst; read any time (C29) */
			uint64_t		 last_ns; /* io_now() of the last move in either side */
			uint64_t		*tally;	/* added to with each move, relaxed; may be NULL */
			uint32_t		 held;	/* private: bytes received, not yet sent (in bufs or pipe) */
			uint8_t			 nbufs, first; /* private */
			uint8_t			 mode;	/* private to the backend */
			uint8_t			 streak; /* private: see relay_policy.h */
			bool			 dst_failed; /* the error was dst's, not src's */
		} relay;
		struct {
			unsigned		 want, got; /* IO_POLL_ bits */
		} poll;
	} u;
	struct io_link	 link;		/* private: ready queue, or a pool's waiters */
	uint64_t	 be[6];		/* private: backend scratch */
};

enum { IO_USE_RESERVE = 1 };		/* io_recv_pool(): may dip into the pool's reserve (handshakes) */
enum { IO_POLL_IN = 1, IO_POLL_OUT = 2, IO_POLL_HUP = 4 }; /* HUP and errors are reported unasked, as HUP */

struct io_sock {
	struct io_loop	*loop;
	io_fd		 fd;
	struct io_op	*rd, *wr;	/* private: the one armed op a side (C9) */
	io_sock_cb	*closed;	/* private */
	struct io_link	 link;		/* private: closed queue */
	uint8_t		 state;		/* private: enum io_sock_state */
	uint64_t	 be[2];		/* private */
};

/* Zeroed before its first use. */
struct io_timer {
	io_timer_cb	*cb;
	uint64_t	 at_ns;
	uint64_t	 seq;		/* private: equal deadlines fire in the order set */
	struct io_timer	*child, *next, *prev; /* private: see timer.c */
	bool		 armed;		/* private */
};

/* May be embedded in an object of any thread; must stay put until its callback begins. */
struct io_post {
	io_post_cb	*cb;
	struct io_post	*next;		/* private */
};

/* Filled by io_choose(), once a process, before threads start (C30). */
struct io_choice {
	const struct io_backend	*backend;
	char			 why[160];	/* why an earlier one was passed over, "" if none was */
	unsigned		 uring_level;	/* rung of the flag ladder that the probe reached */
};

struct io_config {
	const struct io_choice	*choice;
	uint32_t	 entries;	/* submission queue; 0 = default */
	uint32_t	 turn_max;	/* callbacks a turn; 0 = default */
	uint32_t	 pipes_max;	/* pipes a loop may hold for splicing; 0 = default, UINT32_MAX = none */
	bool		 no_ring;	/* tests: io_uring without the shared receive ring */
	bool		 no_splice;	/* tests: relays stay on the copy path */
};

struct io_stats {
	uint64_t	turns, callbacks, wakes;
	uint64_t	pool_starved;	/* episodes in which a receiver waited for a block (C27) */
	uint64_t	icmp_swallowed;	/* ICMP errors on unconnected sockets (C28) */
	uint64_t	splice_on, splice_off; /* directions that changed over */
	uint64_t	pipe_none;	/* wanted a pipe: none free, or the kernel gave a small one */
	uint32_t	pipes;		/* pipes that exist now */
	uint64_t	turn_ns_max;	/* longest time spent in callbacks of one turn */
};

/* ---- choice of backend (C30) ---- */

/*
 * name: "auto" or a backend's.  uring_level -1, or a rung (0..2) to force for
 * tests.  0; or a negative errno with the reason in choice->why.  A named
 * backend is strict.  Probes by doing real operations.
 */
int		 io_choose(struct io_choice *, const char *name, int uring_level);
const char	*io_choice_name(const struct io_choice *);
const char	*io_backends_compiled(void);		/* "io_uring epoll" */

/* ---- loop: one thread; only io_post and io_wake from elsewhere (C1) ---- */

int		 io_loop_new(struct io_loop **, const struct io_config *);
/* Binds the loop to the calling thread; implied by the first call of another kind. */
void		 io_loop_bind(struct io_loop *);
void		 io_loop_free(struct io_loop *);	/* asserts that nothing is armed (C23) */
/* Runs at most turn_max callbacks; returns how many ran.  0 or more; a negative errno if the backend broke. */
int		 io_loop_turn(struct io_loop *, bool may_block);
uint64_t	 io_now(const struct io_loop *);	/* ns, monotonic, constant in a turn (C5) */
uint32_t	 io_inflight(const struct io_loop *);	/* armed ops and closing sockets */
const char	*io_backend_name(const struct io_loop *);
const char	*io_backend_why(const struct io_loop *);
struct io_stats	 io_loop_stats(const struct io_loop *);
const char	*io_strerror(int err);			/* "connection refused" */

/* ---- sockets ---- */

/* Once for life (C14).  fd must be a socket; it is made non-blocking where the backend needs it. */
void	io_adopt(struct io_loop *, struct io_sock *, io_fd);
/* Cancels every armed op, delivers their finals, releases the fd, then calls back, always later (C20). */
void	io_close(struct io_sock *, io_sock_cb *);
/* As io_close, but the peer sees a reset (SO_LINGER 0). */
void	io_close_reset(struct io_sock *, io_sock_cb *);
/* Write side, synchronous; asserts that no write-side op is armed.  0 or enum io_err. */
int	io_shutdown(struct io_sock *);
bool	io_sock_open(const struct io_sock *);

/* ---- operations: never fail, never call back from inside the call ---- */

void	io_accept(struct io_op *, struct io_sock *, io_cb *);	/* multishot */
/* `to` must stay until the final callback. */
void	io_connect(struct io_op *, struct io_sock *, const struct sockaddr *to,
	    socklen_t, io_cb *);
void	io_recv(struct io_op *, struct io_sock *, void *, size_t, io_cb *);
/* One-shot; up to IO_RECV_BUFS_MAX buffers, res = bytes in all.  flags: IO_USE_RESERVE. */
void	io_recv_pool(struct io_op *, struct io_sock *, struct io_pool *,
	    unsigned flags, io_cb *);
void	io_send(struct io_op *, struct io_sock *, const void *, size_t, io_cb *);
/*
 * Multishot.  v has room for max datagrams and stays until the final callback.  It is filled right before a callback
 * and not looked at otherwise, so all of a loop's receiving ops may share one.
 */
void	io_recv_batch(struct io_op *, struct io_sock *, struct io_pool *,
	    struct io_dgram *v, unsigned max, io_cb *);
/*
 * Completes once; a result in each datagram, res = number that went out.  Read are buf or vec, peer, local and gso; all
 * that they point to stays until the final callback.  With gso where the system makes no segments: IO_ENOTSUP; more of
 * them than it allows (64, newer Linux 128): IO_EINVAL.
 */
void	io_send_batch(struct io_op *, struct io_sock *, struct io_dgram *v,
	    unsigned n, io_cb *);
/*
 * Moves src to dst until the end of src (res 0), `max` bytes (res 0), an error
 * or cancel.  Never shuts dst down itself.  `tally` may be NULL.
 */
void	io_relay(struct io_op *, struct io_sock *src, struct io_sock *dst,
	    struct io_pool *, uint64_t max, uint64_t *tally, io_cb *);
void	io_poll(struct io_op *, struct io_sock *, unsigned want, io_cb *); /* one-shot */
void	io_cancel(struct io_op *);		/* a request; idempotent, no completion of its own (C17) */
bool	io_armed(const struct io_op *);
/* Bytes a relay holds that dst has not taken yet. */
uint32_t io_relay_held(const struct io_op *);

/* ---- pool ---- */

struct io_pool_stats {
	uint32_t	block_bytes, ceiling, reserve;
	uint32_t	lent;		/* blocks with callers or filled and waiting to be sent */
	uint64_t	starved;	/* episodes */
	uint64_t	starved_since_ns; /* io_now() at which the present episode began, 0 = none */
};

/* `reserve` blocks of `ceiling` go only to those who ask with IO_USE_RESERVE. */
int	io_pool_new(struct io_pool **, struct io_loop *, uint32_t block_bytes,
	    uint32_t ceiling, uint32_t reserve);
void	io_pool_free(struct io_pool *);		/* asserts that every block is home */
/* A block for the caller's own use; false when there is none (never waits). */
bool	io_buf_get(struct io_pool *, unsigned flags, struct io_buf *);
void	io_buf_put(struct io_pool *, struct io_buf *);
struct io_pool_stats io_pool_stats(const struct io_pool *);

/* ---- timers: user space, the same code on every backend (C24) ---- */

void	io_timer_set(struct io_loop *, struct io_timer *, uint64_t at_ns, io_timer_cb *);
void	io_timer_stop(struct io_loop *, struct io_timer *);
static inline bool
io_timer_armed(const struct io_timer *t)
{
	return t->armed;
}

/* ---- from other threads; io_wake from signal handlers too (C6) ---- */

/* False, and nothing queued, once the loop was told to refuse (C32). */
bool	io_post(struct io_loop *, struct io_post *, io_post_cb *);
void	io_post_refuse(struct io_loop *);	/* loop thread: no further posts; those queued still run */
void	io_wake(struct io_loop *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * iocp: Windows' completion ports under the contract; loop->bed is a struct iocp.
 *
 * Each call that the kernel has under way is a request with an OVERLAPPED of
 * its own, from a list of the loop's; an op owns none, one, or (accept) several
 * of them.  An op ends only when the packet of its last request has been taken
 * from the port, so nothing refers to it afterwards (C19).
 *
 *	submit ---> request in flight ---> packet ---> iocp_X_done ---> emit, finish
 *	       \--> failed at once: io_op_defer   (no packet comes then)
 *	cancel ---> CancelIoEx on each request: their packets still come
 *
 * A call that succeeds at once makes a packet as well (the ports' default mode),
 * so there is one way through for all.  What must not hold memory while it
 * waits (pool receives, relays, batches) waits without a buffer, by a receive of
 * no bytes or by a poll of AFD, and then calls the socket without blocking.
 */
#ifndef IO_IOCP_H
#define IO_IOCP_H

#include <winsock2.h>
#include <ws2tcpip.h>
#include <mswsock.h>
#include <windows.h>

#include "internal.h"

/* What a request asked the kernel for. */
enum iocp_what {
	REQ_ACCEPT, REQ_CONNECT, REQ_RECV,
	REQ_ZERO,			/* a receive of no bytes: there is something to read, or the end */
	REQ_SEND, REQ_POLL,
	REQ_KICK			/* a packet of our own: go on in reap */
};

/* IOCTL_AFD_POLL's buffer, for one handle; not in any public header. */
struct iocp_afd_poll {
	LARGE_INTEGER	timeout;
	ULONG		handles;
	ULONG		exclusive;
	HANDLE		handle;
	ULONG		events;
	LONG		status;
};

/* AcceptEx wants 16 bytes more than an address for each end. */
enum { IOCP_ADDR_BYTES = sizeof(struct sockaddr_in6) + 16 };

struct iocp_req {
	OVERLAPPED	 ov;
	struct io_op	*op;
	struct iocp_req	*next;		/* of the same op, or free */
	io_fd		 fd;		/* the socket it was asked of */
	uint8_t		 what;		/* enum iocp_what */
	union {
		struct {
			io_fd	 fd;
			char	 addrs[2 * IOCP_ADDR_BYTES];
		} accept;
		struct iocp_afd_poll poll;
	} u;
};

enum { IOCP_CHUNK = 64, IOCP_ENTRIES = 256 };

struct iocp_chunk {
	struct iocp_chunk *next;
	struct iocp_req	   reqs[IOCP_CHUNK];
};

/* The extension calls: WSAIoctl gives their addresses. */
struct iocp_calls {
	LPFN_ACCEPTEX			accept_ex;
	LPFN_GETACCEPTEXSOCKADDRS	accept_addrs;
	LPFN_CONNECTEX			connect_ex;
	LPFN_WSARECVMSG			recv_msg;
	LPFN_WSASENDMSG			send_msg;
};

struct iocp {
	HANDLE			 port;
	struct iocp_calls	 calls;
	struct iocp_chunk	*chunks;
	struct iocp_req		*free;
	bool			 reaping;
	struct io_link		 cancels;	/* ops whose CancelIoEx found nothing: see iocp_cancel() */
	ULONG			 next, n;	/* packets taken from the port, not yet delivered */
	OVERLAPPED_ENTRY	 entries[IOCP_ENTRIES];
};

/* sock->be[0] */
enum {
	SOCKF_DGRAM	= 1 << 0,
	SOCKF_BULK	= 1 << 1,	/* the last read filled its buffers */
	SOCKF_FOREIGN	= 1 << 2	/* belongs to another port for good: no op can work */
};

/* op->be: the requests in flight; what else it needs is its kind's. */
enum { BE_REQS = 0, BE_OWN = 1 };

/* op->flags */
enum { OPF_FAILED = OPF_BE0 };		/* accept: be[BE_OWN] is the error it will end with */

static inline struct iocp *
iocp_of(struct io_loop *l)
{
	return l->bed;
}

/* ---- iocp.c ---- */

/* A request of the op's, in flight from now on; NULL: no memory. */
struct iocp_req	*iocp_req_new(struct io_loop *, struct io_op *, io_fd, enum iocp_what);
/* The call failed at once: no packet will come. */
void		 iocp_req_undo(struct io_loop *, struct iocp_req *);
/* CancelIoEx on every request of the op.  False: one of them could not be found. */
bool		 iocp_cancel_reqs(struct io_op *);
/* A final result: by finish where that may be, else by defer. */
void		 iocp_end(struct io_loop *, struct io_op *, int32_t res, int32_t syserr);
/* ... from a WSA error code; CANCELED when the op was cancelled and the call aborted. */
void		 iocp_end_wsa(struct io_loop *, struct io_op *, int err);
/* Ask for a packet that brings the op back to reap.  False: the op has ended. */
bool		 iocp_kick(struct io_loop *, struct io_op *);

/* ---- iocp_net.c ---- */

/* Outcome of iocp_read_pool other than bytes or a WSA code (negative). */
enum { IOCP_NO_BLOCK = -1 };
/* Up to `max` bytes into blocks, without blocking.  Bytes, 0 at the end, IOCP_NO_BLOCK, -WSA... */
int64_t	iocp_read_pool(struct io_sock *, struct io_pool *, bool use_reserve,
	    uint64_t max, struct io_buf *bufs, unsigned *n);
/* The op waits, without a buffer, until its socket has bytes or an end to read. */
void	iocp_await_bytes(struct io_loop *, struct io_op *);
/* The result of an overlapped call as a WSA code: what msafd makes of success or failure. */
int	iocp_started(int rc);

void	iocp_accept(struct io_loop *, struct io_op *);
void	iocp_accept_done(struct io_loop *, struct io_op *, struct iocp_req *, int err);
void	iocp_connect(struct io_loop *, struct io_op *);
void	iocp_connect_done(struct io_loop *, struct io_op *, int err);
void	iocp_recv(struct io_loop *, struct io_op *);
void	iocp_recv_done(struct io_loop *, struct io_op *, int err, DWORD bytes);
void	iocp_recv_pool(struct io_loop *, struct io_op *);
void	iocp_recv_pool_done(struct io_loop *, struct io_op *, int err);
void	iocp_send(struct io_loop *, struct io_op *);
void	iocp_send_done(struct io_loop *, struct io_op *, int err, DWORD bytes);

/* ---- iocp_dgram.c ---- */

void	iocp_recv_batch_done(struct io_loop *, struct io_op *, int err);
void	iocp_send_batch(struct io_loop *, struct io_op *);
void	iocp_send_batch_done(struct io_loop *, struct io_op *, int err, DWORD bytes);

/* ---- iocp_relay.c ---- */

void	iocp_relay_read(struct io_loop *, struct io_op *);
void	iocp_relay_done(struct io_loop *, struct io_op *, struct iocp_req *, int err,
	    DWORD bytes);
void	iocp_relay_drop(struct io_op *);

/* ---- iocp_poll.c ---- */

/* The op waits until AFD says one of `want` (IO_POLL_ bits) of its socket; ends it when that can't be asked. */
void	 iocp_await_poll(struct io_loop *, struct io_op *, unsigned want);
void	 iocp_poll_done(struct io_loop *, struct io_op *, struct iocp_req *, int err);
/* IO_POLL_ bits of a completed request; want: what was asked for. */
unsigned iocp_poll_bits(const struct iocp_req *, unsigned want);
/* A completed request's status as a WSA code. */
int	 iocp_poll_error(const struct iocp_req *);
/* Asks AFD about a socket of the port.  0, or an NTSTATUS; then no packet comes. */
LONG	 iocp_afd_poll(struct iocp_req *, unsigned want);

#endif

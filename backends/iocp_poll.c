/* SPDX-License-Identifier: ISC */
/*
 * Readiness on a completion port: the poll of AFD, the driver below Winsock.
 * select() and WSAPoll() are made of it, but no header says so; the numbers here
 * have been the same since Windows 2000 and are relied on by libuv and others.
 * It completes once, at once if something is true already.  It is asked through
 * the socket's own handle, as select() does, so the answer comes to the port
 * that the socket belongs to.
 */
#include <winternl.h>

#include "iocp.h"

enum { IOCTL_AFD_POLL = 0x12024 };

/* What AFD tells. */
enum {
	AFD_RECEIVE	 = 1 << 0,
	AFD_SEND	 = 1 << 2,
	AFD_DISCONNECT	 = 1 << 3,	/* the peer's FIN */
	AFD_ABORT	 = 1 << 4,	/* the peer's RST */
	AFD_LOCAL_CLOSE	 = 1 << 5,
	AFD_ACCEPT	 = 1 << 7,
	AFD_CONNECT_FAIL = 1 << 8
};

#define NT_CANCELLED	((LONG)0xc0000120)
#define NT_PENDING	((LONG)0x00000103)

LONG
iocp_afd_poll(struct iocp_req *r, unsigned want)
{
	struct iocp_afd_poll *p = &r->u.poll;
	LONG status;

	p->timeout.QuadPart = INT64_MAX;	/* for ever */
	p->handles = 1;
	p->exclusive = FALSE;
	p->handle = (HANDLE)r->fd;
	p->events = AFD_ABORT | AFD_LOCAL_CLOSE | AFD_CONNECT_FAIL;
	p->status = 0;
	if (want & IO_POLL_IN)
		p->events |= AFD_RECEIVE | AFD_DISCONNECT | AFD_ACCEPT;
	if (want & IO_POLL_OUT)
		p->events |= AFD_SEND;
	/* Internal and InternalHigh are an IO_STATUS_BLOCK; the packet carries the context. */
	r->ov.Internal = (ULONG_PTR)NT_PENDING;
	status = NtDeviceIoControlFile((HANDLE)r->fd, NULL, NULL, &r->ov,
	    (IO_STATUS_BLOCK *)(void *)&r->ov.Internal, IOCTL_AFD_POLL, p, sizeof *p, p,
	    sizeof *p);
	return status == NT_PENDING ? 0 : status;
}

unsigned
iocp_poll_bits(const struct iocp_req *r, unsigned want)
{
	ULONG ev = r->u.poll.handles > 0 ? r->u.poll.events : 0;
	unsigned got = 0;

	if (ev & (AFD_RECEIVE | AFD_DISCONNECT | AFD_ACCEPT))
		got |= IO_POLL_IN;
	if (ev & AFD_SEND)
		got |= IO_POLL_OUT;
	/* Whoever waits must look: the next call on the socket says what it is. */
	if (ev & (AFD_ABORT | AFD_LOCAL_CLOSE | AFD_CONNECT_FAIL))
		got |= IO_POLL_HUP | want;
	return got & (want | IO_POLL_HUP);
}

int
iocp_poll_error(const struct iocp_req *r)
{
	LONG status = (LONG)r->ov.Internal;

	if (status == 0)
		return 0;
	return status == NT_CANCELLED ? WSA_OPERATION_ABORTED :
	    (int)RtlNtStatusToDosError(status);
}

void
iocp_await_poll(struct io_loop *l, struct io_op *op, unsigned want)
{
	struct iocp_req *r = iocp_req_new(l, op, op->sock->fd, REQ_POLL);
	LONG status;

	if (r == NULL) {
		iocp_end(l, op, IO_ENOMEM, WSA_NOT_ENOUGH_MEMORY);
		return;
	}
	if ((status = iocp_afd_poll(r, want)) == 0)
		return;
	iocp_req_undo(l, r);
	iocp_end_wsa(l, op, (int)RtlNtStatusToDosError(status));
}

void
iocp_poll_done(struct io_loop *l, struct io_op *op, struct iocp_req *r, int err)
{
	unsigned got = err == 0 ? iocp_poll_bits(r, op->u.poll.want) : 0;

	if (err != 0) {
		iocp_end_wsa(l, op, err);
	} else if (got != 0) {
		op->u.poll.got = got;
		iocp_end(l, op, (int32_t)got, 0);
	} else if (io_op_canceled(op)) {
		iocp_end(l, op, IO_ECANCELED, 0);
	} else {
		iocp_await_poll(l, op, op->u.poll.want);
	}
}

/* SPDX-License-Identifier: ISC */
/* The port, the requests, the turn's two halves, and the probe. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "iocp.h"

/* Keys of packets: a request's, or a wake-up. */
enum { KEY_REQ = 1, KEY_WAKE = 2 };

enum {
	PROBE_MS	= 2000,		/* what is asked of it is there at once */
	CANCEL_AGAIN_NS	= 5000000
};

/* ---- requests ---- */

static bool
reqs_grow(struct iocp *b)
{
	struct iocp_chunk *c = calloc(1, sizeof *c);

	if (c == NULL)
		return false;
	c->next = b->chunks;
	b->chunks = c;
	for (unsigned i = 0; i < IOCP_CHUNK; i++) {
		c->reqs[i].next = b->free;
		b->free = &c->reqs[i];
	}
	return true;
}

static struct iocp_req *
reqs_of(const struct io_op *op)
{
	return (struct iocp_req *)(uintptr_t)op->be[BE_REQS];
}

struct iocp_req *
iocp_req_new(struct io_loop *l, struct io_op *op, io_fd fd, enum iocp_what what)
{
	struct iocp *b = iocp_of(l);
	struct iocp_req *r;

	if (b->free == NULL && !reqs_grow(b))
		return NULL;
	r = b->free;
	b->free = r->next;
	memset(&r->ov, 0, sizeof r->ov);
	r->op = op;
	r->fd = fd;
	r->what = (uint8_t)what;
	r->next = reqs_of(op);
	op->be[BE_REQS] = (uintptr_t)r;
	op->krefs++;
	return r;
}

/* No longer the op's; its contents stay until it is given back. */
static void
req_detach(struct iocp_req *r)
{
	struct iocp_req *at = reqs_of(r->op);

	assert(r->op->krefs > 0);
	r->op->krefs--;
	if (at == r) {
		r->op->be[BE_REQS] = (uintptr_t)r->next;
		return;
	}
	while (at->next != r)
		at = at->next;
	at->next = r->next;
}

static void
req_free(struct iocp *b, struct iocp_req *r)
{
	r->op = NULL;
	r->next = b->free;
	b->free = r;
}

void
iocp_req_undo(struct io_loop *l, struct iocp_req *r)
{
	req_detach(r);
	req_free(iocp_of(l), r);
}

bool
iocp_cancel_reqs(struct io_op *op)
{
	bool all = true;

	for (struct iocp_req *r = reqs_of(op); r != NULL; r = r->next)
		if (!CancelIoEx((HANDLE)r->fd, &r->ov))
			all = false;
	return all;
}

void
iocp_end(struct io_loop *l, struct io_op *op, int32_t res, int32_t syserr)
{
	assert(op->krefs == 0);
	/* A packet may bring two callbacks (an accepted socket, and the end): the turn may be spent. */
	if (iocp_of(l)->reaping && !l->in_callback && l->budget > 0)
		io_op_finish(l, op, res, syserr);
	else
		io_op_defer(l, op, res, syserr);
}

void
iocp_end_wsa(struct io_loop *l, struct io_op *op, int err)
{
	if (err == WSA_OPERATION_ABORTED && io_op_canceled(op))
		iocp_end(l, op, IO_ECANCELED, 0);
	else
		iocp_end(l, op, io_err_of(err), err);
}

bool
iocp_kick(struct io_loop *l, struct io_op *op)
{
	struct iocp_req *r = iocp_req_new(l, op, op->sock->fd, REQ_KICK);

	if (r != NULL && PostQueuedCompletionStatus(iocp_of(l)->port, 0, KEY_REQ, &r->ov))
		return true;
	if (r != NULL)
		iocp_req_undo(l, r);
	iocp_end(l, op, IO_ENOMEM, WSA_NOT_ENOUGH_MEMORY);
	return false;
}

/* ---- operations ---- */

static void
iocp_adopt(struct io_loop *l, struct io_sock *s)
{
	u_long on = 1;
	int type = 0, len = sizeof type;

	/* For life: a socket can't leave its port (C14). */
	if (CreateIoCompletionPort((HANDLE)s->fd, iocp_of(l)->port, KEY_REQ, 0) == NULL)
		s->be[0] |= SOCKF_FOREIGN;
	/* Overlapped calls do not care; those without an OVERLAPPED must not block. */
	(void)ioctlsocket(s->fd, FIONBIO, &on);
	(void)getsockopt(s->fd, SOL_SOCKET, SO_TYPE, (char *)&type, &len);
	if (type == SOCK_DGRAM) {
		BOOL off = FALSE;
		DWORD n;

		s->be[0] |= SOCKF_DGRAM;
		/* Else a datagram nobody wanted fails the next receive, whosever that is (C28). */
		(void)WSAIoctl(s->fd, SIO_UDP_CONNRESET, &off, sizeof off, NULL, 0, &n,
		    NULL, NULL);
#ifdef SIO_UDP_NETRESET
		(void)WSAIoctl(s->fd, SIO_UDP_NETRESET, &off, sizeof off, NULL, 0, &n,
		    NULL, NULL);
#endif
	}
}

static void
iocp_submit(struct io_loop *l, struct io_op *op)
{
	if ((op->sock->be[0] & SOCKF_FOREIGN) != 0 || (op->kind == IO_RELAY &&
	    (op->u.relay.dst->be[0] & SOCKF_FOREIGN) != 0)) {
		iocp_end(l, op, IO_EINVAL, WSAEINVAL);
		return;
	}
	switch ((enum io_kind)op->kind) {
	case IO_ACCEPT:
		iocp_accept(l, op);
		break;
	case IO_CONNECT:
		iocp_connect(l, op);
		break;
	case IO_RECV:
		iocp_recv(l, op);
		break;
	case IO_RECV_POOL:
	case IO_RELAY:
		iocp_await_bytes(l, op);
		break;
	case IO_SEND:
		iocp_send(l, op);
		break;
	case IO_RECV_BATCH:
		iocp_await_poll(l, op, IO_POLL_IN);
		break;
	case IO_SEND_BATCH:
		iocp_send_batch(l, op);
		break;
	case IO_POLL:
		iocp_await_poll(l, op, op->u.poll.want);
		break;
	case IO_NONE:
		assert(!"an op of no kind is armed");
	}
}

static void
iocp_cancel(struct io_loop *l, struct io_op *op)
{
	if (op->krefs > 0) {
		/*
		 * Not found: it has completed, and its packet is on its way.  Or so
		 * Windows; wine also loses the request of a send that is just being
		 * tried again and then waits on (8.0).  So ask again until the packet
		 * is there: iocp_wait().
		 */
		if (!iocp_cancel_reqs(op))
			io_list_add_tail(&iocp_of(l)->cancels, &op->link);
		return;
	}
	/* It waits for a block, or this is its own callback. */
	if (op->kind == IO_RELAY)
		iocp_relay_drop(op);
	else if (op->kind == IO_RECV_POOL)
		op->u.pool.n = 0;
	else if (op->kind == IO_RECV_BATCH)
		op->u.batch.n = 0;
	io_op_defer(l, op, IO_ECANCELED, 0);
}

static void
iocp_resume(struct io_loop *l, struct io_op *op)
{
	if (op->kind == IO_RECV_POOL)
		iocp_recv_pool(l, op);
	else if (op->kind == IO_RELAY)
		iocp_relay_read(l, op);
	else
		(void)iocp_kick(l, op);	/* a batch is an emission, which only reap may make */
}

static void
iocp_release(struct io_loop *l, struct io_sock *s)
{
	(void)l;
	/* No request refers to it: the ops have ended, so their packets are through. */
	io_close_fd(s->fd);
}

/* ---- the turn ---- */

/* In milliseconds, rounded up: a timer early would turn the loop in vain. */
static DWORD
milliseconds(uint64_t ns)
{
	uint64_t ms;

	if (ns == UINT64_MAX)
		return INFINITE;
	ms = ns / 1000000u + (ns % 1000000u != 0);
	return ms < 1000000000u ? (DWORD)ms : 1000000000u;
}

static void
cancel_again(struct iocp *b)
{
	struct io_link *k = b->cancels.next, *next;

	for (; k != &b->cancels; k = next) {
		struct io_op *op = io_container_of(k, struct io_op, link);

		next = k->next;
		if (iocp_cancel_reqs(op))
			io_list_del(k);
	}
}

static int
iocp_wait(struct io_loop *l, uint64_t timeout_ns)
{
	struct iocp *b = iocp_of(l);
	ULONG n = 0, kept = 0;

	if (b->next < b->n)		/* the last turn's, which did not fit */
		return 0;
	if (!io_list_empty(&b->cancels)) {
		cancel_again(b);
		if (timeout_ns > CANCEL_AGAIN_NS)
			timeout_ns = CANCEL_AGAIN_NS;
	}
	b->next = b->n = 0;
	if (!GetQueuedCompletionStatusEx(b->port, b->entries, IOCP_ENTRIES, &n,
	    milliseconds(timeout_ns), FALSE)) {
		DWORD e = GetLastError();

		return e == WAIT_TIMEOUT ? 0 : -EIO;
	}
	for (ULONG i = 0; i < n; i++) {
		if (b->entries[i].lpCompletionKey != KEY_WAKE) {
			b->entries[kept++] = b->entries[i];
			continue;
		}
		/* Cleared before the core looks at the posts: a waker that still saw `true` had left its post. */
		(void)atomic_exchange_explicit(&l->wake_pending, false, memory_order_acq_rel);
		l->stats.wakes++;
	}
	b->n = kept;
	return 0;
}

static int
result_of(const struct iocp_req *r)
{
	DWORD bytes, flags;

	if (r->what == REQ_KICK)
		return 0;
	if (r->what == REQ_POLL)
		return iocp_poll_error(r);
	if (WSAGetOverlappedResult(r->fd, (OVERLAPPED *)(uintptr_t)&r->ov, &bytes, FALSE, &flags))
		return 0;
	return WSAGetLastError();
}

static void
completed(struct io_loop *l, struct iocp_req *r, DWORD bytes)
{
	struct io_op *op = r->op;
	int err = result_of(r);

	assert(op->state == OP_ARMED);
	req_detach(r);
	switch ((enum io_kind)op->kind) {
	case IO_ACCEPT:
		iocp_accept_done(l, op, r, err);
		break;
	case IO_CONNECT:
		iocp_connect_done(l, op, err);
		break;
	case IO_RECV:
		iocp_recv_done(l, op, err, bytes);
		break;
	case IO_RECV_POOL:
		iocp_recv_pool_done(l, op, err);
		break;
	case IO_SEND:
		iocp_send_done(l, op, err, bytes);
		break;
	case IO_RECV_BATCH:
		iocp_recv_batch_done(l, op, err);
		break;
	case IO_SEND_BATCH:
		iocp_send_batch_done(l, op, err, bytes);
		break;
	case IO_RELAY:
		iocp_relay_done(l, op, r, err, bytes);
		break;
	case IO_POLL:
		iocp_poll_done(l, op, r, err);
		break;
	case IO_NONE:
		assert(!"a packet for an op of no kind");
	}
	req_free(iocp_of(l), r);
}

static void
iocp_reap(struct io_loop *l)
{
	struct iocp *b = iocp_of(l);

	b->reaping = true;
	while (b->next < b->n && l->budget > 0) {
		OVERLAPPED_ENTRY *e = &b->entries[b->next++];

		completed(l, io_container_of(e->lpOverlapped, struct iocp_req, ov),
		    e->dwNumberOfBytesTransferred);
	}
	b->reaping = false;
	l->backlog = b->next < b->n;
}

static void
iocp_wake(struct io_loop *l)
{
	(void)PostQueuedCompletionStatus(iocp_of(l)->port, 0, KEY_WAKE, NULL);
}

/* ---- life ---- */

static bool
call_of(io_fd fd, GUID id, void *out, DWORD size)
{
	DWORD n;

	return WSAIoctl(fd, SIO_GET_EXTENSION_FUNCTION_POINTER, &id, sizeof id, out, size,
	    &n, NULL, NULL) == 0;
}

/* Any socket of the provider's will do.  False: one is missing. */
static bool
calls_get(struct iocp_calls *c)
{
	io_fd tcp = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
	io_fd udp = WSASocketW(AF_INET, SOCK_DGRAM, IPPROTO_UDP, NULL, 0, WSA_FLAG_OVERLAPPED);
	bool ok = tcp != IO_FD_NONE && udp != IO_FD_NONE &&
	    call_of(tcp, (GUID)WSAID_ACCEPTEX, &c->accept_ex, sizeof c->accept_ex) &&
	    call_of(tcp, (GUID)WSAID_GETACCEPTEXSOCKADDRS, &c->accept_addrs,
		sizeof c->accept_addrs) &&
	    call_of(tcp, (GUID)WSAID_CONNECTEX, &c->connect_ex, sizeof c->connect_ex) &&
	    call_of(udp, (GUID)WSAID_WSARECVMSG, &c->recv_msg, sizeof c->recv_msg) &&
	    call_of(udp, (GUID)WSAID_WSASENDMSG, &c->send_msg, sizeof c->send_msg);

	if (tcp != IO_FD_NONE)
		io_close_fd(tcp);
	if (udp != IO_FD_NONE)
		io_close_fd(udp);
	return ok;
}

static int
iocp_init(struct io_loop *l, const struct io_config *cfg)
{
	struct iocp *b;

	(void)cfg;
	if ((b = calloc(1, sizeof *b)) == NULL)
		return -ENOMEM;
	/* One thread takes from it: no concurrency to be had. */
	if (!calls_get(&b->calls) ||
	    (b->port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1)) == NULL) {
		free(b);
		return -EMFILE;
	}
	io_list_init(&b->cancels);
	l->bed = b;
	return 0;
}

static void
iocp_fini(struct io_loop *l)
{
	struct iocp *b = iocp_of(l);
	struct iocp_chunk *c;

	assert(b->next == b->n);
	CloseHandle(b->port);
	while ((c = b->chunks) != NULL) {
		b->chunks = c->next;
		free(c);
	}
	free(b);
}

/* ---- probe ---- */

/* The packet of this very request within PROBE_MS. */
static bool
probe_packet(HANDLE port, const struct iocp_req *r)
{
	OVERLAPPED *ov = NULL;
	ULONG_PTR key;
	DWORD bytes;

	/* False also says that the request failed, with its packet taken. */
	(void)GetQueuedCompletionStatus(port, &bytes, &key, &ov, PROBE_MS);
	return ov == &r->ov;
}

/* An accept that pends, is cancelled, and comes back as cancelled. */
static bool
probe_accept(HANDLE port, const struct iocp_calls *c, io_fd lst, io_fd fd)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static struct iocp_req r;	/* static: were the packet late, the kernel would still own it */
	DWORD n, flags;

	memset(&r, 0, sizeof r);
	if (bind(lst, (struct sockaddr *)&a, sizeof a) != 0 || listen(lst, 1) != 0 ||
	    CreateIoCompletionPort((HANDLE)lst, port, KEY_REQ, 0) == NULL)
		return false;
	if (c->accept_ex(lst, fd, r.u.accept.addrs, 0, IOCP_ADDR_BYTES, IOCP_ADDR_BYTES, &n,
	    &r.ov) || WSAGetLastError() != WSA_IO_PENDING)
		return false;
	return CancelIoEx((HANDLE)lst, &r.ov) && probe_packet(port, &r) &&
	    !WSAGetOverlappedResult(lst, &r.ov, &n, FALSE, &flags) &&
	    WSAGetLastError() == WSA_OPERATION_ABORTED;
}

/* A new datagram socket can be written to, and AFD knows. */
static bool
probe_poll(HANDLE port, io_fd udp)
{
	static struct iocp_req r;

	memset(&r, 0, sizeof r);
	r.fd = udp;
	return CreateIoCompletionPort((HANDLE)udp, port, KEY_REQ, 0) != NULL &&
	    iocp_afd_poll(&r, IO_POLL_OUT) == 0 && probe_packet(port, &r) &&
	    iocp_poll_bits(&r, IO_POLL_OUT) == IO_POLL_OUT;
}

static enum io_probe
iocp_probe(struct io_choice *c, int level)
{
	io_fd fd[3] = { IO_FD_NONE, IO_FD_NONE, IO_FD_NONE };
	struct iocp_calls calls;
	const char *what = NULL;
	HANDLE port;
	WSADATA data;

	(void)level;
	/* Counted by the system; never undone, the process goes on using sockets. */
	if (WSAStartup(MAKEWORD(2, 2), &data) != 0) {
		snprintf(c->why, sizeof c->why, "WSAStartup 2.2 failed");
		return PROBE_NEXT;
	}
	port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
	for (int i = 0; i < 3; i++)
		fd[i] = WSASocketW(AF_INET, i < 2 ? SOCK_STREAM : SOCK_DGRAM, 0, NULL, 0,
		    WSA_FLAG_OVERLAPPED);
	if (port == NULL || fd[0] == IO_FD_NONE || fd[1] == IO_FD_NONE || fd[2] == IO_FD_NONE)
		what = "no port or no socket";
	else if (!calls_get(&calls))
		what = "AcceptEx, ConnectEx, WSARecvMsg or WSASendMsg is missing";
	else if (!probe_accept(port, &calls, fd[0], fd[1]))
		what = "an AcceptEx that is cancelled does not come back";
	else if (!probe_poll(port, fd[2]))
		what = "AFD does not answer a poll";
	for (int i = 0; i < 3; i++)
		if (fd[i] != IO_FD_NONE)
			io_close_fd(fd[i]);
	if (port != NULL)
		CloseHandle(port);
	if (what == NULL)
		return PROBE_OK;
	snprintf(c->why, sizeof c->why, "%s", what);
	return PROBE_NEXT;
}

const struct io_backend io_backend_iocp = {
	.name		= "iocp",
	.probe		= iocp_probe,
	.init		= iocp_init,
	.fini		= iocp_fini,
	.adopt		= iocp_adopt,
	.submit		= iocp_submit,
	.cancel		= iocp_cancel,
	.resume		= iocp_resume,
	.release	= iocp_release,
	.wait		= iocp_wait,
	.reap		= iocp_reap,
	.wake		= iocp_wake
};

/* SPDX-License-Identifier: ISC */
/* Slots, the run queue, the backend's entries.  What an op does is in ready_net.c and beside. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "ready.h"

enum { SLOTS_FIRST = 64 };

/* Half of a key each for slot number and generation; kqueue's udata is a pointer wide. */
enum { KEY_HALF = sizeof(uintptr_t) * 4 };
static const uintptr_t key_mask = ((uintptr_t)1 << KEY_HALF) - 1;

/* ---- slots ---- */

void
ready_init(struct ready *r, struct io_loop *l, const struct ready_ops *ops)
{
	r->loop = l;
	r->ops = ops;
	r->free = r->head = r->tail = READY_NONE;
	io_list_init(&r->connects);
	l->bed = r;
}

void
ready_fini(struct ready *r)
{
	assert(io_list_empty(&r->connects));
	free(r->slots);
}

static int
slots_grow(struct ready *r)
{
	uint32_t cap = r->cap ? r->cap * 2 : SLOTS_FIRST;
	struct ready_slot *v;

	if (cap - 1 > key_mask || (v = realloc(r->slots, cap * sizeof *v)) == NULL)
		return -ENOMEM;
	r->slots = v;
	r->cap = cap;
	return 0;
}

/* sock->be[0] is the slot's number + 1. */
static int
slot_take(struct ready *r, struct io_sock *s)
{
	uint32_t i = r->free;
	int rc;

	if (s->be[0] != 0)
		return 0;
	if (i != READY_NONE) {
		r->free = r->slots[i].next;
	} else {
		if (r->nslots == r->cap && (rc = slots_grow(r)) < 0)
			return rc;
		i = r->nslots++;
		r->slots[i] = (struct ready_slot){ .gen = 1 };
	}
	r->slots[i].sock = s;
	r->slots[i].next = READY_NONE;
	s->be[0] = (uint64_t)i + 1;
	return 0;
}

static void
slot_free(struct ready *r, uint32_t i)
{
	r->slots[i].next = r->free;
	r->free = i;
}

uintptr_t
ready_key(const struct ready *r, const struct io_sock *s)
{
	uint32_t i = (uint32_t)s->be[0] - 1;

	return ((uintptr_t)r->slots[i].gen << KEY_HALF) | i;
}

struct io_sock *
ready_sock(const struct ready *r, uintptr_t key)
{
	uintptr_t i = key & key_mask;

	if (i >= r->nslots || r->slots[i].gen != key >> KEY_HALF)
		return NULL;
	return r->slots[i].sock;
}

bool
ready_queue(struct ready *r, struct io_sock *s)
{
	uint32_t i;

	if (slot_take(r, s) < 0)
		return false;
	i = (uint32_t)s->be[0] - 1;
	if (r->slots[i].queued)
		return true;
	r->slots[i].queued = true;
	r->slots[i].next = READY_NONE;
	if (r->tail == READY_NONE)
		r->head = i;
	else
		r->slots[r->tail].next = i;
	r->tail = i;
	r->queued++;
	r->loop->backlog = true;	/* the next wait must not block */
	return true;
}

/* ---- what the kernel says ---- */

void
ready_event(struct ready *r, uintptr_t key, unsigned bits)
{
	struct io_sock *s = ready_sock(r, key);

	if (s == NULL)		/* closed since: C19 */
		return;
	s->be[1] |= bits;
	/* Without an op the belief is enough; the next submit looks at it. */
	if ((s->rd != NULL && (bits & RDY_READ)) || (s->wr != NULL && (bits & RDY_WRITE)))
		(void)ready_queue(r, s);
}

void
ready_need_failed(struct ready *r, uintptr_t key, int syserr)
{
	struct io_sock *s = ready_sock(r, key);
	struct io_op *v[2];

	if (s == NULL)
		return;
	v[0] = s->rd;
	v[1] = s->wr != s->rd ? s->wr : NULL;
	for (unsigned i = 0; i < 2; i++) {
		if (v[i] == NULL || v[i]->state != OP_ARMED)
			continue;
		if (v[i]->kind == IO_RELAY)
			ready_relay_drop(r, v[i]);
		ready_end(r, v[i], io_err_of(syserr), syserr);
	}
}

void
ready_end(struct ready *r, struct io_op *op, int32_t res, int32_t syserr)
{
	/* Inside a callback it is a submit that asks: never inline (C2). */
	if (r->reaping && !r->loop->in_callback)
		io_op_finish(r->loop, op, res, syserr);
	else
		io_op_defer(r->loop, op, res, syserr);
}

void
ready_end_errno(struct ready *r, struct io_op *op, int e)
{
	ready_end(r, op, io_err_of(e), e);
}

bool
ready_await(struct ready *r, struct io_op *op, struct io_sock *s, unsigned bit)
{
	int rc = slot_take(r, s);

	if (rc == 0)
		rc = r->ops->need(r, s, bit);
	if (rc == 0)
		return true;
	if (op->kind == IO_RELAY)
		ready_relay_drop(r, op);
	ready_end_errno(r, op, -rc);
	return false;
}

/* ---- serving ---- */

static void
attempt(struct ready *r, struct io_op *op)
{
	switch ((enum io_kind)op->kind) {
	case IO_ACCEPT:
		ready_accept(r, op);
		break;
	case IO_CONNECT:
		ready_connected(r, op);
		break;
	case IO_RECV:
		ready_recv(r, op);
		break;
	case IO_RECV_POOL:
		ready_recv_pool(r, op);
		break;
	case IO_SEND:
		ready_send(r, op);
		break;
	case IO_RECV_BATCH:
		ready_recv_batch(r, op);
		break;
	case IO_SEND_BATCH:
		ready_send_batch(r, op);
		break;
	case IO_RELAY:
		ready_relay(r, op);
		break;
	case IO_POLL:
		ready_poll(r, op);
		break;
	case IO_NONE:
		assert(!"an op of no kind is armed");
	}
}

/* One side of a socket whose turn it is. */
static void
serve_side(struct ready *r, struct io_sock *s, struct io_op *op)
{
	/* op->link: it waits for a block, or for a Unix listener; not for readiness. */
	if (op == NULL || op->state != OP_ARMED || io_pool_waits(op))
		return;
	/* An op started in this turn runs in a later one (C3); nor is there a callback left to spend. */
	if (op->be[0] == r->loop->stats.turns || r->loop->budget == 0)
		(void)ready_queue(r, s);
	else
		attempt(r, op);
}

static void
serve(struct ready *r, uint32_t i)
{
	struct io_sock *s = r->slots[i].sock;
	uint32_t gen = r->slots[i].gen;

	if (ready_believed(s, RDY_READ))
		serve_side(r, s, s->rd);
	/* Its callback may have closed the socket. */
	if (r->slots[i].gen == gen && ready_believed(s, RDY_WRITE))
		serve_side(r, s, s->wr);
}

void
ready_reap(struct io_loop *l)
{
	struct ready *r = ready_of(l);

	r->reaping = true;
	ready_reconnect(r);
	/* Those queued from here on have had their share: next turn. */
	for (uint32_t n = r->queued; n > 0 && l->budget > 0; n--) {
		uint32_t i = r->head;

		assert(i != READY_NONE);
		if ((r->head = r->slots[i].next) == READY_NONE)
			r->tail = READY_NONE;
		r->slots[i].queued = false;
		r->queued--;
		if (r->slots[i].sock == NULL)
			slot_free(r, i);
		else
			serve(r, i);
	}
	r->reaping = false;
	l->backlog = r->queued > 0;
}

int
ready_wait(struct io_loop *l, uint64_t timeout_ns)
{
	struct ready *r = ready_of(l);

	if (!io_list_empty(&r->connects) && timeout_ns > READY_RECONNECT_NS)
		timeout_ns = READY_RECONNECT_NS;
	return r->ops->wait(r, timeout_ns);
}

/* ---- the rest of the backend ---- */

static bool
is_tcp(io_fd fd)
{
#ifdef SO_PROTOCOL
	int proto = 0;
	socklen_t len = sizeof proto;

	return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) == 0 &&
	    proto == IPPROTO_TCP;
#else
	(void)fd;
	return false;
#endif
}

void
ready_adopt(struct io_loop *l, struct io_sock *s)
{
	int fl = fcntl(s->fd, F_GETFL);

	if (fl != -1 && (fl & O_NONBLOCK) == 0)
		(void)fcntl(s->fd, F_SETFL, fl | O_NONBLOCK);
	s->be[1] = RDY_WRITE;	/* a write is always worth trying first */
	if (ready_of(l)->ops->tells_urgent && is_tcp(s->fd))
		s->be[1] |= RDY_TCP;
#ifdef SO_NOSIGPIPE
	(void)setsockopt(s->fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){ 1 }, sizeof(int));
#endif
}

void
ready_submit(struct io_loop *l, struct io_op *op)
{
	struct ready *r = ready_of(l);
	struct io_sock *s = op->sock;

	op->be[0] = l->stats.turns;
	switch ((enum io_kind)op->kind) {
	case IO_CONNECT:
		ready_connect(r, op);
		return;
	case IO_POLL:
		ready_poll(r, op);
		return;
	case IO_SEND:
	case IO_SEND_BATCH:
		/* At once: the bytes leave earlier, and the caller's data are in cache. */
		if (ready_believed(s, RDY_WRITE))
			attempt(r, op);
		else
			(void)ready_await(r, op, s, RDY_WRITE);
		return;
	case IO_ACCEPT:
		/* Look on each arming: another loop's share of events may have told of what is there. */
		s->be[1] |= RDY_LISTEN | RDY_READ;
		break;
	default:
		break;
	}
	if (!ready_believed(s, RDY_READ))
		(void)ready_await(r, op, s, RDY_READ);
	else if (!ready_queue(r, s))
		ready_end(r, op, IO_ENOMEM, ENOMEM);
}

void
ready_cancel(struct io_loop *l, struct io_op *op)
{
	int32_t res = IO_ECANCELED;

	if (op->kind == IO_RELAY)
		ready_relay_drop(ready_of(l), op);
	else if (op->kind == IO_RECV_POOL)
		op->u.pool.n = 0;
	else if (op->kind == IO_RECV_BATCH)
		op->u.batch.n = 0;
	else if (op->kind == IO_SEND_BATCH && op->u.batch.n > 0)
		res = ready_send_batch_cut(op, IO_ECANCELED);
	io_op_defer(l, op, res, 0);
}

void
ready_resume(struct io_loop *l, struct io_op *op)
{
	struct ready *r = ready_of(l);

	/* A batch is an emission, which only reap may make. */
	if (op->kind == IO_RECV_BATCH)
		(void)ready_queue(r, op->sock);
	else
		attempt(r, op);
}

void
ready_release(struct io_loop *l, struct io_sock *s)
{
	struct ready *r = ready_of(l);
	uint32_t i;

	if (s->be[0] != 0) {
		i = (uint32_t)s->be[0] - 1;
		r->ops->forget(r, s);
		r->slots[i].sock = NULL;
		/* Half a pointer's width, and 0 is the waker's. */
		if ((r->slots[i].gen = (r->slots[i].gen + 1) & (uint32_t)key_mask) == 0)
			r->slots[i].gen = 1;
		if (!r->slots[i].queued)
			slot_free(r, i);
		s->be[0] = 0;
	}
	io_close_fd(s->fd);
}

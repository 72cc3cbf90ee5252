/* SPDX-License-Identifier: ISC */
/*
 * Batches of datagrams over readiness: recvmmsg(2) and sendmmsg(2) where they
 * are, one message a call where not; callers can't tell.
 */
#include "dgram.h"
#include "ready.h"

#if defined(__linux__) || defined(__FreeBSD__)
#ifndef READY_ONE_MESSAGE		/* tests of the fall-back define it */
#define HAVE_MMSG 1
#endif
#endif

#ifndef HAVE_MMSG
struct dgram_hdr {
	struct msghdr	msg_hdr;
	unsigned	msg_len;
};
#define recv_many	recv_one
#define send_many	send_one
#else
#define dgram_hdr mmsghdr
#define recv_many(fd, v, n)	recvmmsg(fd, v, n, 0, NULL)
#define send_many(fd, v, n)	sendmmsg(fd, v, n, MSG_NOSIGNAL)
#endif

/* op->be */
enum {
	BE_GUESS	= 1,		/* receive: datagrams asked for next */
	BE_RETRIED	= 1		/* send: the datagram at hand has been tried again */
};

enum {
	GUESS_FIRST	= 4,		/* one or two a wake-up is the common load */
	BATCHES_A_TURN	= 4		/* of one socket: 256 datagrams, then others */
};

/* ---- one message a call ---- */

#ifndef HAVE_MMSG
/* As recvmmsg: how many came, or -1 when not even one did. */
static int
recv_one(int fd, struct dgram_hdr *v, unsigned n)
{
	unsigned i = 0;

	for (; i < n; i++) {
		ssize_t len = recvmsg(fd, &v[i].msg_hdr, 0);

		if (len == -1)
			return i > 0 ? (int)i : -1;
		v[i].msg_len = (unsigned)len;
	}
	return (int)i;
}

static int
send_one(int fd, struct dgram_hdr *v, unsigned n)
{
	unsigned i = 0;

	for (; i < n; i++) {
		ssize_t len = sendmsg(fd, &v[i].msg_hdr, MSG_NOSIGNAL);

		if (len == -1)
			return i > 0 ? (int)i : -1;
		v[i].msg_len = (unsigned)len;
	}
	return (int)i;
}
#endif

/* ---- receive ---- */

/* Blocks for up to n datagrams; 0 when there is none. */
static unsigned
take_blocks(struct io_op *op, unsigned n)
{
	unsigned i = 0;

	while (i < n && io_pool_take(op->u.batch.pool, false, &op->u.batch.v[i].buf))
		i++;
	return i;
}

/* Into v[0..n-1], whose blocks are there.  As recvmmsg. */
static int
recv_some(struct io_op *op, unsigned n)
{
	struct io_dgram *v = op->u.batch.v;
	struct dgram_hdr mm[IO_BATCH_MAX];
	struct iovec iov[IO_BATCH_MAX];
	union dgram_control_in ctl[IO_BATCH_MAX];
	int got;

	for (unsigned i = 0; i < n; i++) {
		iov[i] = (struct iovec){ .iov_base = v[i].buf.base, .iov_len = v[i].buf.cap };
		mm[i].msg_hdr = (struct msghdr){
			.msg_name = &v[i].peer, .msg_namelen = sizeof v[i].peer,
			.msg_iov = &iov[i], .msg_iovlen = 1,
			.msg_control = ctl[i].bytes, .msg_controllen = sizeof ctl[i].bytes
		};
		mm[i].msg_len = 0;
	}
	do
		got = recv_many(op->sock->fd, mm, n);
	while (got == -1 && errno == EINTR);
	for (int i = 0; i < got; i++) {
		struct io_dgram *d = &v[i];

		d->buf.len = mm[i].msg_len < d->buf.cap ? mm[i].msg_len : d->buf.cap;
		d->nvec = 0;
		d->peerlen = mm[i].msg_hdr.msg_namelen;
		if (d->peerlen == 0)
			d->peer.ss_family = AF_UNSPEC;
		d->res = (int32_t)d->buf.len;
		d->trunc = (mm[i].msg_hdr.msg_flags & MSG_TRUNC) != 0;
		dgram_read_control(&mm[i].msg_hdr, d);
	}
	return got;
}

static void
adjust_guess(struct io_op *op, unsigned asked, unsigned got)
{
	if (got == asked && asked < op->u.batch.max)
		op->be[BE_GUESS] = asked * 2 < op->u.batch.max ? asked * 2 : op->u.batch.max;
	else if (got < asked / 4 && asked > GUESS_FIRST)
		op->be[BE_GUESS] = asked / 2;
}

/* One batch and its callback.  False: nothing more to do now. */
static bool
recv_batch_once(struct ready *r, struct io_op *op)
{
	struct io_sock *s = op->sock;
	unsigned guess = op->be[BE_GUESS] ? (unsigned)op->be[BE_GUESS] : GUESS_FIRST;
	unsigned n = take_blocks(op, guess < op->u.batch.max ? guess : op->u.batch.max);
	unsigned home = n;
	int got, e;

	if (n == 0) {
		io_pool_wait(op->u.batch.pool, op, false);
		return false;
	}
	got = recv_some(op, n);
	e = errno;
	while (home > (got > 0 ? (unsigned)got : 0))
		io_buf_put(op->u.batch.pool, &op->u.batch.v[--home].buf);
	if (got > 0) {
		adjust_guess(op, n, (unsigned)got);
		/*
		 * Fewer than asked for: the last look found nothing.  An error that
		 * ended the batch has made an event of its own.
		 */
		if ((unsigned)got < n && r->ops->tells_urgent)
			ready_read_dry(s);
		op->u.batch.n = (unsigned)got;
		op->res = got;
		io_op_emit(r->loop, op);
		return op->state == OP_ARMED;
	}
	if (ready_would_block(e)) {
		ready_read_dry(s);
	} else if (dgram_recv_is_icmp(e)) {
		r->loop->stats.icmp_swallowed++;
	} else {
		op->u.batch.n = 0;
		ready_end(r, op, io_err_of(e), e);
		return false;
	}
	return true;
}

void
ready_recv_batch(struct ready *r, struct io_op *op)
{
	for (unsigned i = 0; i < BATCHES_A_TURN && r->loop->budget > 0; i++) {
		if (!ready_believed(op->sock, RDY_READ))
			break;
		if (!recv_batch_once(r, op))
			return;
		/*
		 * What it sends on ends in the next turn: a second batch could only
		 * queue behind the first, and a relay would have to drop the fourth.
		 */
		if (op->sock->wr != NULL)
			break;
	}
	if (ready_believed(op->sock, RDY_READ))
		(void)ready_queue(r, op->sock);
	else
		(void)ready_await(r, op, op->sock, RDY_READ);
}

/* ---- send ---- */

/*
 * v[0..n-1], from op->u.batch.n on, up to one that this system can't send: `asked`
 * is how many there were before it.  As sendmmsg; 0 when there was none.
 */
static int
send_some(struct ready *r, struct io_op *op, unsigned *asked)
{
	struct io_dgram *v = op->u.batch.v + op->u.batch.n;
	unsigned n = op->u.batch.max - op->u.batch.n, k;
	struct dgram_hdr mm[IO_BATCH_MAX];
	struct dgram_out out[IO_BATCH_MAX];
	int sent;

	for (k = 0; k < n; k++) {
		mm[k].msg_len = 0;
		if (!dgram_fill(r->loop, op->sock->fd, &mm[k].msg_hdr, &out[k], &v[k]))
			break;
	}
	*asked = k;
	if (k == 0)
		return 0;
	do
		sent = send_many(op->sock->fd, mm, k);
	while (sent == -1 && errno == EINTR);
	for (int i = 0; i < sent; i++)
		v[i].res = (int32_t)mm[i].msg_len;
	return sent;
}

int32_t
ready_send_batch_cut(struct io_op *op, int32_t err)
{
	int32_t out = 0;

	for (unsigned i = 0; i < op->u.batch.max; i++) {
		if (i >= op->u.batch.n)
			op->u.batch.v[i].res = err;
		else if (op->u.batch.v[i].res >= 0)
			out++;
	}
	return out > 0 ? out : err;
}

void
ready_send_batch(struct ready *r, struct io_op *op)
{
	int32_t out = 0;
	bool cut = false;

	while (op->u.batch.n < op->u.batch.max) {
		unsigned asked;
		int n = send_some(r, op, &asked);

		if (asked == 0) {
			op->u.batch.v[op->u.batch.n++].res = IO_ENOTSUP;
			continue;
		}
		if (n > 0) {
			/*
			 * sendmmsg(2) keeps to itself why it stopped short.  If the
			 * datagram goes out now, it was an error left by another.
			 */
			r->loop->stats.icmp_swallowed += cut;
			cut = (unsigned)n < asked;
			op->u.batch.n += (unsigned)n;
			op->be[BE_RETRIED] = 0;
			continue;
		}
		if (ready_would_block(errno)) {
			ready_write_full(op->sock);
			(void)ready_await(r, op, op->sock, RDY_WRITE);
			return;
		}
		/* Perhaps the answer to an earlier datagram, to another peer: once more. */
		if (dgram_is_icmp(errno) && !op->be[BE_RETRIED]) {
			op->be[BE_RETRIED] = 1;
			r->loop->stats.icmp_swallowed++;
			continue;
		}
		op->u.batch.v[op->u.batch.n++].res = io_err_of(errno);
		op->be[BE_RETRIED] = 0;
	}
	for (unsigned i = 0; i < op->u.batch.max; i++)
		out += op->u.batch.v[i].res >= 0;
	ready_end(r, op, out, 0);
}

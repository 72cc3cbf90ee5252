/* SPDX-License-Identifier: ISC */
/*
 * Batches of datagrams over readiness: recvmmsg(2) and sendmmsg(2) where they
 * are, one message a call where not; callers can't tell.
 */
#ifdef __APPLE__
#define __APPLE_USE_RFC_3542	/* else netinet6/in6.h keeps IPV6_PKTINFO to itself */
#endif
#include <netinet/in.h>
#include <string.h>
#include <sys/uio.h>

#include "ready.h"

#if defined(__linux__) || defined(__FreeBSD__)
#ifndef READY_ONE_MESSAGE		/* tests of the fall-back define it */
#define HAVE_MMSG 1
#endif
#endif

#ifdef __linux__
#ifndef UDP_SEGMENT
#define UDP_SEGMENT	103		/* linux/udp.h: since 4.18 */
#endif
#ifndef UDP_GRO
#define UDP_GRO		104		/* since 5.0 */
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

/* Room for PKTINFO of both families and a segment size. */
union control {
	struct cmsghdr	align;
	char		bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) +
			    CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(int))];
};

/*
 * ICMP errors that Linux leaves on a socket for the next call, whatever peer
 * that one is about (ip(7), udp(7)).
 */
static bool
is_icmp(int e)
{
	switch (e) {
	case ECONNREFUSED: case ECONNRESET: case EHOSTUNREACH: case ENETUNREACH:
	case EHOSTDOWN: case ENETDOWN: case ENOPROTOOPT: case EPROTO:
#ifdef ENONET
	case ENONET:
#endif
		return true;
	default:
		return false;
	}
}

/* ---- where a datagram was sent to, and is sent from ---- */

static void
put_in(struct sockaddr_storage *out, const struct in_addr *a)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr = *a };

	memcpy(out, &sin, sizeof sin);
}

static void
put_in6(struct sockaddr_storage *out, const struct in6_addr *a, unsigned ifindex)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_addr = *a };

	if (IN6_IS_ADDR_LINKLOCAL(a))
		sin6.sin6_scope_id = ifindex;
	memcpy(out, &sin6, sizeof sin6);
}

static void
read_control(struct msghdr *mh, struct io_dgram *d)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c != NULL; c = CMSG_NXTHDR(mh, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo pi;

			memcpy(&pi, CMSG_DATA(c), sizeof pi);
			put_in6(&d->local, &pi.ipi6_addr, (unsigned)pi.ipi6_ifindex);
#ifdef IP_PKTINFO
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo pi;

			memcpy(&pi, CMSG_DATA(c), sizeof pi);
			/* Not ipi_addr: that may be a broadcast address, which nobody can send from. */
			put_in(&d->local, &pi.ipi_spec_dst);
#endif
#ifdef IP_RECVDSTADDR
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVDSTADDR) {
			struct in_addr a;

			memcpy(&a, CMSG_DATA(c), sizeof a);
			put_in(&d->local, &a);
#endif
#ifdef UDP_GRO
		} else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
			int size;

			memcpy(&size, CMSG_DATA(c), sizeof size);
			if (size > 0 && (uint32_t)size < d->buf.len)
				d->gso = (uint16_t)size;
#endif
		}
	}
}

/* Appends one control message. */
static void
add_control(struct msghdr *mh, union control *u, int level, int type,
    const void *data, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)(void *)(u->bytes + mh->msg_controllen);

	/* sizeof a union is a multiple of its alignment, so the next header is aligned too. */
	assert(mh->msg_controllen + CMSG_SPACE(len) <= sizeof u->bytes);
	memset(c, 0, CMSG_SPACE(len));
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	mh->msg_control = u->bytes;
	mh->msg_controllen += CMSG_SPACE(len);
}

static void
write_control(struct msghdr *mh, union control *u, const struct io_dgram *d)
{
	if (d->local.ss_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const void *)&d->local;
		struct in6_pktinfo pi = { .ipi6_addr = sin6->sin6_addr,
		    .ipi6_ifindex = sin6->sin6_scope_id };

		add_control(mh, u, IPPROTO_IPV6, IPV6_PKTINFO, &pi, sizeof pi);
	} else if (d->local.ss_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)&d->local;
#ifdef IP_PKTINFO
		struct in_pktinfo pi = { .ipi_spec_dst = sin->sin_addr };

		add_control(mh, u, IPPROTO_IP, IP_PKTINFO, &pi, sizeof pi);
#else
		add_control(mh, u, IPPROTO_IP, IP_SENDSRCADDR, &sin->sin_addr,
		    sizeof sin->sin_addr);
#endif
	}
#ifdef UDP_SEGMENT
	if (d->gso != 0)
		add_control(mh, u, IPPROTO_UDP, UDP_SEGMENT, &d->gso, sizeof d->gso);
#endif
}

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
	union control ctl[IO_BATCH_MAX];
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
		d->peerlen = mm[i].msg_hdr.msg_namelen;
		d->local.ss_family = AF_UNSPEC;
		d->res = (int32_t)d->buf.len;
		d->gso = 0;
		d->trunc = (mm[i].msg_hdr.msg_flags & MSG_TRUNC) != 0;
		read_control(&mm[i].msg_hdr, d);
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
	} else if (is_icmp(e)) {
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
	}
	if (ready_believed(op->sock, RDY_READ))
		(void)ready_queue(r, op->sock);
	else
		(void)ready_await(r, op, op->sock, RDY_READ);
}

/* ---- send ---- */

/* v[0..n-1], from op->u.batch.n on.  As sendmmsg. */
static int
send_some(struct io_op *op)
{
	struct io_dgram *v = op->u.batch.v + op->u.batch.n;
	unsigned n = op->u.batch.max - op->u.batch.n;
	struct dgram_hdr mm[IO_BATCH_MAX];
	struct iovec iov[IO_BATCH_MAX];
	union control ctl[IO_BATCH_MAX];
	int sent;

	for (unsigned i = 0; i < n; i++) {
		iov[i] = (struct iovec){ .iov_base = v[i].buf.base, .iov_len = v[i].buf.len };
		mm[i].msg_hdr = (struct msghdr){
			.msg_name = v[i].peerlen ? &v[i].peer : NULL,
			.msg_namelen = v[i].peerlen,
			.msg_iov = &iov[i], .msg_iovlen = 1
		};
		mm[i].msg_len = 0;
		write_control(&mm[i].msg_hdr, &ctl[i], &v[i]);
	}
	do
		sent = send_many(op->sock->fd, mm, n);
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
		unsigned asked = op->u.batch.max - op->u.batch.n;
		int n = send_some(op);

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
		if (is_icmp(errno) && !op->be[BE_RETRIED]) {
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

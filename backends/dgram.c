/* SPDX-License-Identifier: ISC */
#include <errno.h>
#include <string.h>

#include "dgram.h"

/* So a datagram's pieces are handed to the kernel as they are. */
_Static_assert(sizeof(struct io_vec) == sizeof(struct iovec) &&
    offsetof(struct io_vec, base) == offsetof(struct iovec, iov_base) &&
    offsetof(struct io_vec, len) == offsetof(struct iovec, iov_len),
    "struct io_vec is laid out as struct iovec");

bool
dgram_is_icmp(int e)
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

bool
dgram_recv_is_icmp(int e)
{
	return dgram_is_icmp(e) || e == EMSGSIZE || e == EACCES || e == ETIMEDOUT;
}

/* ---- receiving ---- */

static void
local_set4(struct sockaddr_storage *out, const struct in_addr *a)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr = *a };

	memcpy(out, &sin, sizeof sin);
}

static void
local_set6(struct sockaddr_storage *out, const struct in6_pktinfo *pi)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_addr = pi->ipi6_addr };

	if (IN6_IS_ADDR_LINKLOCAL(&pi->ipi6_addr))
		sin6.sin6_scope_id = (unsigned)pi->ipi6_ifindex;
	memcpy(out, &sin6, sizeof sin6);
}

/*
 * A dual-stack socket is told of an IPv4 datagram in both ways, IPv4's last:
 * that one stays, as only it never is a broadcast address.
 */
void
dgram_read_control(struct msghdr *m, struct io_dgram *d)
{
	d->local.ss_family = AF_UNSPEC;
	d->gso = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo pi;

			memcpy(&pi, CMSG_DATA(c), sizeof pi);
			local_set6(&d->local, &pi);
#ifdef IP_PKTINFO
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo pi;

			memcpy(&pi, CMSG_DATA(c), sizeof pi);
			/* Not ipi_addr: a broadcast address is nothing to send from. */
			local_set4(&d->local, &pi.ipi_spec_dst);
#endif
#ifdef IP_RECVDSTADDR
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVDSTADDR) {
			struct in_addr a;

			memcpy(&a, CMSG_DATA(c), sizeof a);
			local_set4(&d->local, &a);
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

/* ---- sending ---- */

/* Appends one control message. */
static void
control_add(struct msghdr *m, struct dgram_out *o, int level, int type, const void *data,
    size_t len)
{
	/* Lengths are multiples of the alignment, so the next header is aligned too. */
	struct cmsghdr *c = (struct cmsghdr *)(void *)(o->control.bytes + m->msg_controllen);

	assert(m->msg_controllen + CMSG_SPACE(len) <= sizeof o->control.bytes);
	memset(c, 0, CMSG_SPACE(len));
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	m->msg_control = o->control.bytes;
	m->msg_controllen += CMSG_SPACE(len);
}

static void
control_add_local(struct msghdr *m, struct dgram_out *o, const struct io_dgram *d)
{
	if (d->local.ss_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const void *)&d->local;
		struct in6_pktinfo pi = { .ipi6_addr = sin6->sin6_addr,
		    .ipi6_ifindex = sin6->sin6_scope_id };

		control_add(m, o, IPPROTO_IPV6, IPV6_PKTINFO, &pi, sizeof pi);
	} else if (d->local.ss_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)&d->local;
#ifdef IP_PKTINFO
		struct in_pktinfo pi = { .ipi_spec_dst = sin->sin_addr };

		control_add(m, o, IPPROTO_IP, IP_PKTINFO, &pi, sizeof pi);
#else
		control_add(m, o, IPPROTO_IP, IP_SENDSRCADDR, &sin->sin_addr, sizeof sin->sin_addr);
#endif
	}
}

/* An older kernel ignores the control message and would send one long datagram: ask it first. */
static bool
can_segment(struct io_loop *l, io_fd fd)
{
#ifdef UDP_SEGMENT
	int size;
	socklen_t len = sizeof size;

	if (!l->segments)
		l->segments = getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, &len) == 0;
	return l->segments;
#else
	(void)l;
	(void)fd;
	return false;
#endif
}

bool
dgram_fill(struct io_loop *l, io_fd fd, struct msghdr *m, struct dgram_out *o,
    struct io_dgram *d)
{
	assert(d->nvec <= IO_DGRAM_VECS_MAX);
	*m = (struct msghdr){ .msg_name = d->peerlen > 0 ? &d->peer : NULL,
	    .msg_namelen = d->peerlen, .msg_iov = &o->iov, .msg_iovlen = 1 };
	if (d->nvec == 0) {
		o->iov = (struct iovec){ .iov_base = d->buf.base, .iov_len = d->buf.len };
	} else {
		m->msg_iov = (struct iovec *)(uintptr_t)d->vec;
		m->msg_iovlen = d->nvec;
	}
	control_add_local(m, o, d);
	if (d->gso == 0)
		return true;
	if (!can_segment(l, fd))
		return false;
#ifdef UDP_SEGMENT
	control_add(m, o, IPPROTO_UDP, UDP_SEGMENT, &d->gso, sizeof d->gso);
#endif
	return true;
}

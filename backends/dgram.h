/* SPDX-License-Identifier: ISC */
/*
 * dgram: what the POSIX backends' batches of datagrams share: the control data
 * of a message, and a datagram to send made into a message.  Calls nothing that
 * receives or sends.
 */
#ifndef IO_DGRAM_H
#define IO_DGRAM_H

#ifdef __APPLE__
#define __APPLE_USE_RFC_3542	/* else netinet6/in6.h keeps IPV6_PKTINFO to itself */
#endif
#include <netinet/in.h>
#include <sys/uio.h>

#include "internal.h"

#ifdef __linux__
#ifndef UDP_SEGMENT
#define UDP_SEGMENT	103		/* linux/udp.h: since 4.18 */
#endif
#ifndef UDP_GRO
#define UDP_GRO		104		/* since 5.0 */
#endif
#endif

/* Room for the PKTINFO of both families (a dual-stack socket may be told both) and the size of segments. */
enum {
	DGRAM_CONTROL_IN	= CMSG_SPACE(sizeof(struct in6_pktinfo)) +
	    CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(int)),
	DGRAM_CONTROL_OUT	= CMSG_SPACE(sizeof(struct in6_pktinfo)) +
	    CMSG_SPACE(sizeof(uint16_t))
};

union dgram_control_in {
	struct cmsghdr	align;
	char		bytes[DGRAM_CONTROL_IN];
};

/* What a message to send points to, besides its datagram. */
struct dgram_out {
	struct iovec	iov;
	union {
		struct cmsghdr	align;
		char		bytes[DGRAM_CONTROL_OUT];
	} control;
};

/*
 * ICMP's errors, which Linux leaves on a socket for the next call, whatever
 * peer that one is about (ip(7), udp(7)): they say nothing of the socket (C28).
 */
bool	dgram_is_icmp(int e);
/* The same for a receive, where a path's MTU or a prohibition too can only be ICMP's. */
bool	dgram_recv_is_icmp(int e);
/* Sets local and gso from a received message's control data; d->buf.len is set. */
void	dgram_read_control(struct msghdr *, struct io_dgram *);
/*
 * The message for a datagram; both must stay as long as it.  False: it wants
 * segments and the system does not make them, so it must not be sent.
 */
bool	dgram_fill(struct io_loop *, io_fd, struct msghdr *, struct dgram_out *, struct io_dgram *);

#endif

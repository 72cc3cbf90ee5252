/* SPDX-License-Identifier: ISC */
/*
 * udpsock: makes the UDP sockets of associations, each on a port of its own out
 * of udp.port_range, and remembers which ports are in use so that a full range
 * costs a look and not thousands of refused binds.  It never sends, receives or
 * talks to a loop.
 */
#ifndef RW_NET_UDPSOCK_H
#define RW_NET_UDPSOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "net/sockopt.h"

/* The ports that our associations have; shared by all threads, never locked. */
struct udpports;

/* `start`: where the first search begins, modulo the range.  NULL when out of memory. */
struct udpports	*udpports_new(uint32_t start);
void		 udpports_free(struct udpports *);	/* NULL is fine */
/* Does an association of this process have it?  Any thread, at any time. */
bool		 udpports_taken(const struct udpports *, uint16_t port);

struct udpsock {
	int		fd;
	uint16_t	port;
	bool		dual;	/* [::] for both families; false: 0.0.0.0, a machine without IPv6 */
};

/*
 * A socket on [::] for IPv4 and IPv6, or on 0.0.0.0 where there is no IPv6:
 * non-blocking, close-on-exec, the local address of each datagram told
 * (IP_PKTINFO, IPV6_RECVPKTINFO), UDP_GRO where the kernel has it, outbound.mark.
 * outbound.bind_* and outbound.interface are not looked at: the same socket
 * talks to the client.  The caller closes the descriptor, then gives the port
 * back with udpsock_port_release().
 *
 * 0 or a negative errno with `text`: -EADDRINUSE when no port from `low` to
 * `high` is to be had, -EMFILE and -ENFILE from socket(2) itself, -EPERM for a
 * mark that may not be set.  Any thread.
 */
int	udpsock_open(struct udpports *, uint16_t low, uint16_t high, const struct conf_outbound *,
	    struct udpsock *out, char text[SOCKOPT_TEXT_MAX]);
void	udpsock_port_release(struct udpports *, uint16_t port);

/*
 * How many packets the kernel has dropped in front of this socket since it was
 * made, modulo 2^32: its buffer was full, or a checksum wrong (SO_MEMINFO,
 * SK_MEMINFO_DROPS).  0 where the kernel does not tell.
 */
uint32_t udpsock_kernel_drops(int fd);

/*
 * How many datagrams one send may carry by UDP_SEGMENT, udp(7): 0 = the kernel
 * has it not.  Asks the kernel: keep the answer.  Any thread.
 */
unsigned udpsock_gso_segments(void);

#endif

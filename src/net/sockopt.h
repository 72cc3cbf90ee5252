/* SPDX-License-Identifier: ISC */
/*
 * sockopt: makes sockets and sets their options: listeners, outbound TCP
 * sockets, and by inheritance accepted ones.  It never connects, accepts or talks to a loop.
 *
 * Every descriptor is non-blocking and close-on-exec.  What can fail returns a
 * negative errno and writes a sentence that names what failed ("bind to
 * 127.0.0.1:80: Permission denied"); `text` may be NULL where nobody reads it.
 */
#ifndef RW_NET_SOCKOPT_H
#define RW_NET_SOCKOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"
#include "util/addr.h"

enum { SOCKOPT_TEXT_MAX = 256 };

enum {
	SOCKOPT_REUSEPORT	= 1 << 0,	/* one listener of several, a worker each */
	SOCKOPT_V6ONLY		= 1 << 1	/* see sockopt_v6only() */
};

/*
 * "::" takes IPv4 connections too, as users of haproxy expect, unless the
 * configuration has an IPv4 listener on the same port: then "::" keeps to IPv6
 * and the IPv4 listener gets IPv4.  Other addresses are of one family anyway.
 * `all` may contain `addr` itself.
 */
bool	sockopt_v6only(const struct addr *addr, const struct conf_listen *all, size_t count);

/*
 * A bound and listening TCP socket, SO_REUSEADDR always set; the descriptor, or
 * a negative errno.
 */
int	sockopt_listen(const struct addr *, unsigned flags, unsigned backlog,
	    char text[SOCKOPT_TEXT_MAX]);

/*
 * Could a lone process have this address?  Binds without SO_REUSEPORT, then
 * closes: two instances that both set SO_REUSEPORT would
 * otherwise share a port without noticing (SPEC section 1).  Port 0 is always
 * free.  0 or a negative errno.
 */
int	sockopt_probe_bind(const struct addr *, unsigned flags, char text[SOCKOPT_TEXT_MAX]);

/*
 * A listening Unix socket.  A socket file that nobody accepts on is a leftover
 * and is replaced; one with somebody behind it is -EADDRINUSE, and a file that
 * is no socket is never removed.  Mode 0666: like a loopback port, any local
 * user may connect; the directory's mode is how to narrow that.
 */
int	sockopt_listen_unix(const char *path, unsigned backlog, char text[SOCKOPT_TEXT_MAX]);

/*
 * A TCP socket for connecting to an address of `family`: no delay, keepalive,
 * source address (the port is chosen at connect, IP_BIND_ADDRESS_NO_PORT, so
 * that 64k connections a destination fit), interface and mark.  -EMFILE and
 * -ENFILE come from socket(2) itself.
 */
int	sockopt_outbound(int family, const struct conf_outbound *, char text[SOCKOPT_TEXT_MAX]);

/*
 * On a listener, for what it accepts from now on: accepted sockets inherit these
 * options, and setting five of them on each cost a twentieth of a short
 * session.  Unix sockets are left alone.  keepalive_s 0 = off.  Never fails.
 */
void	sockopt_to_inherit(int listener, uint32_t keepalive_s);

#endif

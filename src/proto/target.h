/* SPDX-License-Identifier: ISC */
/*
 * target: where a client wants to go, in the one form that SOCKS, CONNECT and
 * forwarded requests all produce and that policy, resolver and log all read.
 * Never resolves anything.
 *
 * A literal address is in `addr` and has no host text, however the client spelt
 * it (domain form, brackets, IPv4-mapped); everything else is a name in `host`,
 * lower case and without a trailing dot.  Both may be missing only in the hint
 * of a UDP ASSOCIATE.
 */
#ifndef RW_PROTO_TARGET_H
#define RW_PROTO_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/addr.h"
#include "util/span.h"

enum {
	TARGET_HOST_MAX = 255,		/* one length byte in SOCKS5, RFC 1928 section 5 */
	TARGET_TEXT_MAX = 255 + 8,	/* brackets are shorter: name ":65535" and a NUL */
};

struct target {
	struct addr	addr;		/* len != 0: a literal; its port is `port` */
	uint16_t	port;		/* host order */
	uint8_t		host_len;	/* 0 when literal */
	bool		loopback_name;	/* localhost, *.localhost: never asked of DNS (RFC 6761) */
	char		host[TARGET_HOST_MAX + 1];	/* NUL-terminated */
};

static inline bool
target_is_literal(const struct target *t)
{
	return t->addr.len != 0;
}

/* Neither address nor name, port 0. */
static inline void
target_clear(struct target *t)
{
	t->addr.sa.sa_family = AF_UNSPEC;	/* addr_same_ip looks at it even so */
	t->addr.len = 0;
	t->port = 0;
	t->host_len = 0;
	t->loopback_name = false;
	t->host[0] = '\0';
}

/*
 * Takes the host part of whatever protocol: an address in any accepted form or
 * a name of letters, digits, "-", "_" and single dots.  Sets addr, host_len,
 * loopback_name and host; false (and no host) when it can be neither.
 */
bool	target_set_host(struct target *, struct span host, uint16_t port);
void	target_set_addr(struct target *, const struct addr *);
/* From the wire: `ip_len` is 4 or 16, network order. */
void	target_set_ip(struct target *, const void *ip, size_t ip_len, uint16_t port);
/* "name", "1.2.3.4", "::1": literals in canonical form, written to `scratch`. */
struct span target_host(const struct target *, char scratch[ADDR_TEXT_MAX]);
/*
 * "name:80", "[::1]:80"; the port is left out when it equals `implied_port`.
 * Returns the length without the NUL.
 */
size_t	target_authority(const struct target *, uint16_t implied_port,
	    char out[TARGET_TEXT_MAX]);

#endif

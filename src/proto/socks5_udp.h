/* SPDX-License-Identifier: ISC */
/*
 * socks5_udp: the header in front of every datagram between a client and its
 * UDP association (RFC 1928 section 7).  Bytes in and a verdict out; never
 * judges policy and never looks at the payload.
 *
 *	RSV (2, zero) | FRAG (1) | ATYP (1) | DST.ADDR | DST.PORT (2) | payload
 */
#ifndef RW_PROTO_SOCKS5_UDP_H
#define RW_PROTO_SOCKS5_UDP_H

#include <stddef.h>
#include <stdint.h>

#include "proto/target.h"
#include "util/addr.h"
#include "util/span.h"

enum {
	SOCKS5_UDP_HEADER_MAX = 4 + 1 + 255 + 2,
	SOCKS5_UDP_HEADER_ADDR_MAX = 4 + 16 + 2		/* of those that we write */
};

enum socks5_udp_verdict {
	SOCKS5_UDP_OK,
	SOCKS5_UDP_SHORT,	/* the datagram ends inside its header */
	SOCKS5_UDP_RSV,		/* the reserved bytes are not zero: something else was sent here */
	SOCKS5_UDP_FRAG,	/* a fragment: an option of the RFC that nobody sends, not supported */
	SOCKS5_UDP_ATYP,
	SOCKS5_UDP_HOST,	/* a domain that no resolver could know */
	SOCKS5_UDP_PORT		/* port 0 */
};

struct socks5_udp_head {
	struct target	target;		/* as socks5.h's: a literal address, however it was spelt, or a name */
	size_t		header_len;	/* where the payload begins; it may be empty */
};

/*
 * `datagram` is one whole datagram.  The head is complete only for
 * SOCKS5_UDP_OK; for HOST and PORT header_len is set as well.
 */
enum socks5_udp_verdict socks5_udp_parse(struct span datagram, struct socks5_udp_head *);
const char *socks5_udp_verdict_text(enum socks5_udp_verdict);	/* for the log */

/* The header of a datagram that came from `from` (IPv4 or IPv6); mapped is written as IPv4.  10 or 22. */
size_t	socks5_udp_write(const struct addr *from, uint8_t out[SOCKS5_UDP_HEADER_ADDR_MAX]);

#endif

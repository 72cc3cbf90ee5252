/* SPDX-License-Identifier: ISC */
/*
 * socks5_addr: the address block that requests, replies and datagrams of SOCKS5
 * have in common (RFC 1928 sections 4 to 7).  For socks5.c and socks5_udp.c.
 *
 *	ATYP (1) | ADDR (4, 16, or 1 + 0 to 255) | PORT (2)
 */
#ifndef RW_PROTO_SOCKS5_ADDR_H
#define RW_PROTO_SOCKS5_ADDR_H

#include <stddef.h>
#include <stdint.h>

#include "proto/target.h"
#include "util/addr.h"
#include "util/span.h"

enum { SOCKS5_ADDR_MAX = 1 + 16 + 2 };	/* of those that we write */

enum socks5_addr_verdict {
	SOCKS5_ADDR_OK,
	SOCKS5_ADDR_MORE,	/* so far so good */
	SOCKS5_ADDR_BAD_ATYP,	/* its length is unknown */
	SOCKS5_ADDR_BAD_HOST	/* complete; a domain that no resolver could know */
};

/* `in` begins with ATYP.  *len, the block's length, and the port are set for OK and BAD_HOST. */
enum socks5_addr_verdict socks5_addr_parse(struct span in, struct target *, size_t *len);
/* `addr` NULL, without an address or not IP: 0.0.0.0:0; mapped as IPv4.  7 or 19 bytes. */
size_t	socks5_addr_write(const struct addr *, uint8_t out[SOCKS5_ADDR_MAX]);

#endif

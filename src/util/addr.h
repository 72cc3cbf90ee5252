/* SPDX-License-Identifier: ISC */
/*
 * addr: an IPv4 or IPv6 address with a port, small enough to copy.  Parsing is
 * strict (inet_pton's forms only): "127.1", "0x7f.1" and "2130706433" are not
 * addresses here, so they can't slip past a rule in another spelling.
 */
#ifndef RW_UTIL_ADDR_H
#define RW_UTIL_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "util/span.h"

struct addr {
	union {
		struct sockaddr		sa;
		struct sockaddr_in	in;
		struct sockaddr_in6	in6;
	};
	socklen_t	len;	/* 0 = no address; AF_UNIX peers have no more than the family */
};

/* "[" IPv6 "]" brackets are accepted around IPv6; a zone is not.  Port set to `port`. */
bool	addr_parse_ip(struct span text, uint16_t port, struct addr *);
/* Copies any sockaddr; an unknown family becomes "no address" of that family. */
void	addr_from_sockaddr(struct addr *, const struct sockaddr *, socklen_t);
uint16_t addr_port(const struct addr *);
void	addr_set_port(struct addr *, uint16_t port);
/* ::ffff:a.b.c.d becomes a.b.c.d; anything else is left as it is. */
void	addr_unmap(struct addr *);
bool	addr_is_loopback(const struct addr *);	/* 127/8, ::1, mapped too */
bool	addr_is_wildcard(const struct addr *);	/* 0.0.0.0, ::; of an IP address */
bool	addr_same_ip(const struct addr *, const struct addr *);	/* mapped = IPv4; port ignored */
/* Hash of the address without port, for tables; the seed is the process's secret. */
uint64_t addr_hash_ip(const struct addr *, uint64_t seed);

enum { ADDR_TEXT_MAX = 64 };	/* "[v6 text]:65535" and its NUL fit */
/* "1.2.3.4:80", "[::1]:80", "unix", "-"; returns `out`. */
char	*addr_format(const struct addr *, char out[ADDR_TEXT_MAX]);
/* Without port and brackets. */
char	*addr_format_ip(const struct addr *, char out[ADDR_TEXT_MAX]);

#endif

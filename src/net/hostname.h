/* SPDX-License-Identifier: ISC */
/*
 * hostname: which names may be asked of DNS.  Text only, no look-ups.
 */
#ifndef RW_NET_HOSTNAME_H
#define RW_NET_HOSTNAME_H

#include <stdbool.h>
#include <stddef.h>

#include "util/span.h"

enum {
	HOSTNAME_MAX	= 253,		/* RFC 1035 section 2.3.4, as text without the final dot */
	HOSTNAME_LABEL_MAX = 63
};

/*
 * Lower case without the final dot into `out`, NUL-terminated; its length, or 0
 * when it is no name that may be asked for: length, empty label, a byte other
 * than letters, digits, "-" and "_", or a last label that is a number ("127.1",
 * "0x7f.1", "2130706433": addresses in disguise, see resolve.h).
 */
size_t	hostname_normalise(struct span, char out[HOSTNAME_MAX + 1]);

/* "localhost" and everything below it (RFC 6761 section 6.3); of a normalised name. */
bool	hostname_is_loopback(struct span);

#endif

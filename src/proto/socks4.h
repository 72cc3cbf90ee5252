/* SPDX-License-Identifier: ISC */
/*
 * socks4: SOCKS4 and 4a CONNECT.  As socks5: called with all bytes so far, the
 * bytes behind `used` are the caller's.  Never judges policy; the user id is
 * the client's claim and nothing more.
 */
#ifndef RW_PROTO_SOCKS4_H
#define RW_PROTO_SOCKS4_H

#include <stddef.h>
#include <stdint.h>

#include "proto/target.h"
#include "util/span.h"

enum {
	SOCKS4_TEXT_MAX = 255,	/* user id and 4a domain, each without its NUL */
	SOCKS4_REQUEST_MAX = 8 + 2 * (SOCKS4_TEXT_MAX + 1),
	SOCKS4_REPLY_LEN = 8
};

enum socks4_verdict {
	SOCKS4_OK,
	SOCKS4_MORE,
	SOCKS4_MALFORMED,	/* not SOCKS4, or a text without end */
	SOCKS4_BAD_COMMAND,	/* BIND or unknown */
	SOCKS4_BAD_HOST,
	SOCKS4_BAD_PORT		/* 0 */
};

enum socks4_rep {
	SOCKS4_REP_GRANTED = 90,
	SOCKS4_REP_REFUSED = 91
};

struct socks4_request {
	uint8_t		cmd;
	struct span	user;	/* into the input; may be empty */
	size_t		used;
	struct target	target;
};

enum socks4_verdict socks4_parse_request(struct span in, struct socks4_request *);
const char *socks4_verdict_text(enum socks4_verdict);
/* `bnd` NULL or not IPv4: 0.0.0.0:0, as the format has no IPv6. */
size_t	socks4_write_reply(enum socks4_rep, const struct addr *bnd,
	    uint8_t out[SOCKS4_REPLY_LEN]);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * socks5: RFC 1928 and RFC 1929 messages.  Every parser is called with all
 * bytes received so far and starts from the first; messages are under 600
 * bytes, so nothing is kept between calls.  `used` counts the bytes that
 * belong to the message: what is behind them is the caller's (the next message
 * or early payload).  Never judges policy.
 */
#ifndef RW_PROTO_SOCKS5_H
#define RW_PROTO_SOCKS5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/target.h"
#include "util/span.h"

enum {
	SOCKS5_GREETING_MAX = 2 + 255,
	SOCKS5_USERPASS_MAX = 3 + 255 + 255,
	SOCKS5_REQUEST_MAX = 4 + 1 + 255 + 2,
	SOCKS5_METHOD_REPLY_LEN = 2,
	SOCKS5_USERPASS_REPLY_LEN = 2,
	SOCKS5_REPLY_MAX = 4 + 16 + 2
};

enum socks5_verdict {
	SOCKS5_OK,
	SOCKS5_MORE,		/* so far so good */
	SOCKS5_MALFORMED,	/* not this protocol */
	SOCKS5_BAD_COMMAND,	/* BIND or unknown; request complete, target filled if it could be */
	SOCKS5_BAD_ATYP,	/* its length is unknown: `used` is 0 */
	SOCKS5_BAD_HOST,	/* a domain that no resolver could know: empty, NUL, space ... */
	SOCKS5_BAD_PORT		/* CONNECT to port 0 */
};

enum socks5_method {
	SOCKS5_METHOD_NONE = 0x00,
	SOCKS5_METHOD_USERPASS = 0x02,
	SOCKS5_METHOD_UNACCEPTABLE = 0xff
};

enum socks5_cmd {
	SOCKS5_CONNECT = 1,
	SOCKS5_BIND = 2,
	SOCKS5_UDP_ASSOCIATE = 3
};

enum socks5_atyp {
	SOCKS5_ATYP_IPV4 = 1,
	SOCKS5_ATYP_DOMAIN = 3,
	SOCKS5_ATYP_IPV6 = 4
};

enum socks5_rep {
	SOCKS5_REP_OK = 0,
	SOCKS5_REP_GENERAL = 1,
	SOCKS5_REP_NOT_ALLOWED = 2,
	SOCKS5_REP_NET_UNREACHABLE = 3,
	SOCKS5_REP_HOST_UNREACHABLE = 4,
	SOCKS5_REP_REFUSED = 5,
	SOCKS5_REP_TTL_EXPIRED = 6,	/* timed out, as clients read it */
	SOCKS5_REP_COMMAND = 7,
	SOCKS5_REP_ATYP = 8
};

struct socks5_greeting {
	bool	offers_none;
	bool	offers_userpass;
	size_t	used;
};

struct socks5_userpass {
	struct span	user;	/* into the input; never empty */
	struct span	pass;	/* may be empty */
	size_t		used;
};

struct socks5_request {
	uint8_t		cmd;	/* as sent: may be none of enum socks5_cmd */
	uint8_t		atyp;
	size_t		used;
	struct target	target;	/* a hint, possibly without host and port, in UDP ASSOCIATE */
};

enum socks5_verdict socks5_parse_greeting(struct span in, struct socks5_greeting *);
enum socks5_method socks5_choose_method(const struct socks5_greeting *, bool password_needed);
size_t	socks5_write_method(enum socks5_method, uint8_t out[SOCKS5_METHOD_REPLY_LEN]);

enum socks5_verdict socks5_parse_userpass(struct span in, struct socks5_userpass *);
size_t	socks5_write_userpass_reply(bool granted, uint8_t out[SOCKS5_USERPASS_REPLY_LEN]);

enum socks5_verdict socks5_parse_request(struct span in, struct socks5_request *);
/* What to answer to a verdict of the request parser; SOCKS5_REP_OK for OK and MORE. */
enum socks5_rep socks5_rep_for(enum socks5_verdict);
const char *socks5_verdict_text(enum socks5_verdict);	/* for the log */
/* `bnd` NULL, without an address or not IP: 0.0.0.0:0.  10 or 22 bytes. */
size_t	socks5_write_reply(enum socks5_rep, const struct addr *bnd,
	    uint8_t out[SOCKS5_REPLY_MAX]);

#endif

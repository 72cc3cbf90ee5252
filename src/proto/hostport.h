/* SPDX-License-Identifier: ISC */
/*
 * hostport: "host:port" as in CONNECT, absolute URIs and Host (RFC 3986
 * section 3.2.2 and 3.2.3, narrowed to what can be connected to).  Never
 * guesses: an unbracketed IPv6 address, userinfo or a port with anything but
 * digits is refused.
 */
#ifndef RW_PROTO_HOSTPORT_H
#define RW_PROTO_HOSTPORT_H

#include "proto/target.h"

enum hostport_verdict {
	HOSTPORT_OK,
	HOSTPORT_BAD_HOST,
	HOSTPORT_BAD_PORT,	/* missing without a default, 0, above 65535, not digits */
	HOSTPORT_USERINFO
};

/* default_port 0: the port has to be there. */
enum hostport_verdict hostport_parse(struct span text, uint16_t default_port,
	    struct target *);

#endif

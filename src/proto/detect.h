/* SPDX-License-Identifier: ISC */
/*
 * detect: which protocol a client speaks, told by its first byte.  Never needs
 * a second one.  Whether the listener serves that protocol is the caller's.
 */
#ifndef RW_PROTO_DETECT_H
#define RW_PROTO_DETECT_H

#include <stdint.h>

enum detect_proto {
	DETECT_UNKNOWN,		/* TLS (0x16), h2 over nothing, noise */
	DETECT_SOCKS4,
	DETECT_SOCKS5,
	DETECT_HTTP
};

enum detect_proto detect_first_byte(uint8_t);

#endif

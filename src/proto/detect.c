/* SPDX-License-Identifier: ISC */
#include "proto/detect.h"

#include "proto/chars.h"

enum {
	SOCKS4_VERSION = 4,
	SOCKS5_VERSION = 5
};

enum detect_proto
detect_first_byte(uint8_t byte)
{
	if (byte == SOCKS5_VERSION)
		return DETECT_SOCKS5;
	if (byte == SOCKS4_VERSION)
		return DETECT_SOCKS4;
	/* An empty line may come before a request (RFC 9112 section 2.2). */
	return byte == '\r' || chars_is((char)byte, CHARS_TOKEN) ? DETECT_HTTP : DETECT_UNKNOWN;
}

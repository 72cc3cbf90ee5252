/* SPDX-License-Identifier: ISC */
#include "proto/socks5_addr.h"

#include <string.h>

#include "proto/socks5.h"

enum { PORT_LEN = 2 };

static uint8_t
byte_at(struct span in, size_t i)
{
	return (uint8_t)in.base[i];
}

/* Length of ADDR with its own length byte; 0 = not known yet, -1 = no such type. */
static int
addr_len(struct span in)
{
	switch (byte_at(in, 0)) {
	case SOCKS5_ATYP_IPV4:
		return 4;
	case SOCKS5_ATYP_IPV6:
		return 16;
	case SOCKS5_ATYP_DOMAIN:
		return in.len > 1 ? 1 + byte_at(in, 1) : 0;
	default:
		return -1;
	}
}

static bool
set_target(struct span in, size_t len, struct target *target)
{
	const char *at = in.base + 1;
	uint16_t port = (uint16_t)(byte_at(in, 1 + len) << 8 | byte_at(in, 1 + len + 1));

	if (byte_at(in, 0) == SOCKS5_ATYP_DOMAIN)
		return target_set_host(target, span_of(at + 1, len - 1), port);
	target_set_ip(target, at, len, port);
	return true;
}

enum socks5_addr_verdict
socks5_addr_parse(struct span in, struct target *target, size_t *out_len)
{
	int len;

	*out_len = 0;
	if (in.len == 0)
		return SOCKS5_ADDR_MORE;
	len = addr_len(in);
	if (len < 0)
		return SOCKS5_ADDR_BAD_ATYP;
	if (len == 0 || in.len < 1 + (size_t)len + PORT_LEN)
		return SOCKS5_ADDR_MORE;
	*out_len = 1 + (size_t)len + PORT_LEN;
	return set_target(in, (size_t)len, target) ? SOCKS5_ADDR_OK : SOCKS5_ADDR_BAD_HOST;
}

size_t
socks5_addr_write(const struct addr *from, uint8_t out[SOCKS5_ADDR_MAX])
{
	struct addr addr = { .len = 0 };

	if (from != NULL)
		addr = *from;
	/* Ours is a dual-stack socket at times; the client asked for IPv4. */
	addr_unmap(&addr);
	if (addr.len != 0 && addr.sa.sa_family == AF_INET6) {
		out[0] = SOCKS5_ATYP_IPV6;
		memcpy(out + 1, &addr.in6.sin6_addr, 16);
		memcpy(out + 17, &addr.in6.sin6_port, PORT_LEN);
		return 19;
	}
	out[0] = SOCKS5_ATYP_IPV4;
	memset(out + 1, 0, 6);
	if (addr.len != 0 && addr.sa.sa_family == AF_INET) {
		memcpy(out + 1, &addr.in.sin_addr, 4);
		memcpy(out + 5, &addr.in.sin_port, PORT_LEN);
	}
	return 7;
}

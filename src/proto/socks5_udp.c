/* SPDX-License-Identifier: ISC */
#include "proto/socks5_udp.h"

#include "proto/socks5_addr.h"

enum { HEAD_LEN = 3 };	/* RSV RSV FRAG; ATYP belongs to the address block */

enum socks5_udp_verdict
socks5_udp_parse(struct span datagram, struct socks5_udp_head *out)
{
	size_t len;
	bool host_ok;

	out->header_len = 0;
	target_clear(&out->target);
	if (datagram.len <= HEAD_LEN)
		return SOCKS5_UDP_SHORT;
	if (datagram.base[0] != 0 || datagram.base[1] != 0)
		return SOCKS5_UDP_RSV;
	/* RFC 1928 section 7: who does not implement it must drop all but 0. */
	if (datagram.base[2] != 0)
		return SOCKS5_UDP_FRAG;
	datagram = span_of(datagram.base + HEAD_LEN, datagram.len - HEAD_LEN);
	switch (socks5_addr_parse(datagram, &out->target, &len)) {
	case SOCKS5_ADDR_MORE:
		return SOCKS5_UDP_SHORT;
	case SOCKS5_ADDR_BAD_ATYP:
		return SOCKS5_UDP_ATYP;
	case SOCKS5_ADDR_OK:
		host_ok = true;
		break;
	default:
		host_ok = false;
	}
	out->header_len = HEAD_LEN + len;
	if (!host_ok)
		return SOCKS5_UDP_HOST;
	return out->target.port != 0 ? SOCKS5_UDP_OK : SOCKS5_UDP_PORT;
}

const char *
socks5_udp_verdict_text(enum socks5_udp_verdict verdict)
{
	switch (verdict) {
	case SOCKS5_UDP_OK:
		return "ok";
	case SOCKS5_UDP_SHORT:
		return "incomplete header";
	case SOCKS5_UDP_RSV:
		return "reserved bytes are not zero";
	case SOCKS5_UDP_FRAG:
		return "fragment";
	case SOCKS5_UDP_ATYP:
		return "address type not supported";
	case SOCKS5_UDP_HOST:
		return "invalid host name";
	case SOCKS5_UDP_PORT:
		return "port 0";
	}
	return "unknown verdict";
}

size_t
socks5_udp_write(const struct addr *from, uint8_t out[SOCKS5_UDP_HEADER_ADDR_MAX])
{
	out[0] = out[1] = out[2] = 0;
	return HEAD_LEN + socks5_addr_write(from, out + HEAD_LEN);
}

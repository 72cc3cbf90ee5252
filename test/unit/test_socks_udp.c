/* SPDX-License-Identifier: ISC */
/* Headers of SOCKS5 datagrams (CASES 43 to 45 as far as it is parsing). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "proto/socks5_udp.h"

#define BYTES(lit) { lit, sizeof(lit) - 1 }

Test(socks_udp, header_table)
{
	static const struct {
		struct span		 in;
		enum socks5_udp_verdict	 verdict;
		size_t			 header_len;
		const char		*authority;
	} rows[] = {
		{ BYTES(""), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0"), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0\0\0"), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0\0\0\x01"), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0\0\0\x01\x7f\0\0\x01\0"), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0\0\0\x01\x7f\0\0\x01\0\x35"), SOCKS5_UDP_OK, 10, "127.0.0.1:53" },
		{ BYTES("\0\0\0\x01\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_OK, 10, "127.0.0.1:53" },
		{ BYTES("\0\0\0\x01\0\0\0\0\xff\xff"), SOCKS5_UDP_OK, 10, "0.0.0.0:65535" },
		{ BYTES("\0\0\0\x01\x7f\0\0\x01\0\0payload"), SOCKS5_UDP_PORT, 10, NULL },
		{ BYTES("\0\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x35z"), SOCKS5_UDP_OK,
		    22, "[2001:db8::1]:53" },
		{ BYTES("\0\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0"), SOCKS5_UDP_SHORT, 0,
		    NULL },
		{ BYTES("\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\0\x50"), SOCKS5_UDP_OK,
		    22, "192.0.2.1:80" },
		{ BYTES("\0\0\0\x03"), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0\0\0\x03\x0b" "example.com\0"), SOCKS5_UDP_SHORT, 0, NULL },
		{ BYTES("\0\0\0\x03\x0b" "Example.COM\0\x35q"), SOCKS5_UDP_OK, 18, "example.com:53" },
		{ BYTES("\0\0\0\x03\x09" "127.0.0.1\0\x35q"), SOCKS5_UDP_OK, 16, "127.0.0.1:53" },
		{ BYTES("\0\0\0\x03\0\0\x35q"), SOCKS5_UDP_HOST, 7, NULL },
		{ BYTES("\0\0\0\x03\x03" "a\0b\0\x35"), SOCKS5_UDP_HOST, 10, NULL },
		{ BYTES("\0\0\0\x03\x03" "a b\0\0"), SOCKS5_UDP_HOST, 10, NULL },
		{ BYTES("\0\0\x01\x01\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_FRAG, 0, NULL },
		{ BYTES("\0\0\x80\x01\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_FRAG, 0, NULL },
		{ BYTES("\x01\0\0\x01\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_RSV, 0, NULL },
		{ BYTES("\0\x01\0\x01\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_RSV, 0, NULL },
		{ BYTES("\0\0\0\0\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_ATYP, 0, NULL },
		{ BYTES("\0\0\0\x02\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_ATYP, 0, NULL },
		{ BYTES("\0\0\0\xff\x7f\0\0\x01\0\x35payload"), SOCKS5_UDP_ATYP, 0, NULL },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char authority[TARGET_TEXT_MAX] = "";
		struct socks5_udp_head head;

		cr_expect_eq(socks5_udp_parse(rows[i].in, &head), rows[i].verdict, "row %zu", i);
		cr_expect_eq(head.header_len, rows[i].header_len, "row %zu: %zu", i, head.header_len);
		if (rows[i].authority == NULL)
			continue;
		target_authority(&head.target, 0, authority);
		cr_expect_str_eq(authority, rows[i].authority, "row %zu", i);
	}
}

Test(socks_udp, longest_name_fits)
{
	char in[SOCKS5_UDP_HEADER_MAX + 3] = "\0\0\0\x03\xff";
	struct socks5_udp_head head;

	memset(in + 5, 'a', 255);
	in[5 + 63] = in[5 + 127] = in[5 + 191] = '.';
	in[5 + 255 + 1] = 53;
	for (size_t len = 0; len < SOCKS5_UDP_HEADER_MAX; len++)
		cr_assert_eq(socks5_udp_parse(span_of(in, len), &head), SOCKS5_UDP_SHORT, "%zu", len);
	cr_expect_eq(socks5_udp_parse(span_of(in, sizeof(in)), &head), SOCKS5_UDP_OK);
	cr_expect_eq(head.header_len, (size_t)SOCKS5_UDP_HEADER_MAX);
	cr_expect_eq(head.target.host_len, 255);
}

static size_t
written(const char *ip, uint8_t out[SOCKS5_UDP_HEADER_ADDR_MAX])
{
	struct addr addr;

	cr_assert(addr_parse_ip(span_str(ip), 0x1234, &addr));
	return socks5_udp_write(&addr, out);
}

Test(socks_udp, header_names_the_source)
{
	uint8_t out[SOCKS5_UDP_HEADER_ADDR_MAX];

	cr_assert_eq(written("192.0.2.1", out), 10u);
	cr_expect_eq(memcmp(out, "\0\0\0\x01\xc0\0\x02\x01\x12\x34", 10), 0);
	cr_assert_eq(written("::ffff:192.0.2.1", out), 10u);
	cr_expect_eq(memcmp(out, "\0\0\0\x01\xc0\0\x02\x01\x12\x34", 10), 0);
	cr_assert_eq(written("2001:db8::1", out), 22u);
	cr_expect_eq(memcmp(out, "\0\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x12\x34", 22), 0);
}

Test(socks_udp, each_verdict_has_words)
{
	for (int v = SOCKS5_UDP_OK; v <= SOCKS5_UDP_PORT; v++)
		cr_expect_str_neq(socks5_udp_verdict_text((enum socks5_udp_verdict)v),
		    "unknown verdict");
}

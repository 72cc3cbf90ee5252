/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "util/addr.h"

static struct addr
ip(const char *text, uint16_t port)
{
	struct addr addr;

	cr_assert(addr_parse_ip(span_str(text), port, &addr), "%s", text);
	return addr;
}

Test(addr, parses_and_formats)
{
	static const char *const cases[][3] = {
		{ "192.0.2.1", "192.0.2.1:80", "192.0.2.1" },
		{ "255.255.255.255", "255.255.255.255:80", "255.255.255.255" },
		{ "::1", "[::1]:80", "::1" },
		{ "[::1]", "[::1]:80", "::1" },
		{ "2001:DB8:0:0::0001", "[2001:db8::1]:80", "2001:db8::1" },
		{ "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:80", "::ffff:192.0.2.1" },
		{ "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
		    "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:80",
		    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" },
	};
	char out[ADDR_TEXT_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct addr addr = ip(cases[i][0], 80);

		cr_expect_str_eq(addr_format(&addr, out), cases[i][1]);
		cr_expect_str_eq(addr_format_ip(&addr, out), cases[i][2]);
		cr_expect_eq(addr_port(&addr), 80);
	}
}

Test(addr, other_spellings_are_no_addresses)
{
	static const char *const cases[] = {
		"", "127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.01",
		"127.0.0.1.", ".127.0.0.1", "127.0.0.256", "127.0.0.1 ", " 127.0.0.1", "1.2.3",
		"1.2.3.4.5", "[127.0.0.1]", "[::1", "::1]", "[]", "[[::1]]", "fe80::1%lo",
		"fe80::1%1", "::1/128", ":::", "1::2::3", "12345::", "localhost", "*", "-1.2.3.4",
		"127.0.0.1:80", "[::1]:80", "::ffff:127.1",
		"0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000",
	};
	struct addr addr;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_not(addr_parse_ip(span_str(cases[i]), 0, &addr), "%s", cases[i]);
	cr_expect_not(addr_parse_ip(span_of("127.0.0.1\0x", 11), 0, &addr));
	/* Only as long as the span says. */
	cr_expect(addr_parse_ip(span_of("127.0.0.123", 9), 0, &addr));
	cr_expect_eq(addr.in.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

/* Ours reads and writes IPv4 without the C library, which says what is right. */
Test(addr, ipv4_is_what_the_library_reads_and_writes)
{
	static const char bytes[] = "0123456789.0125. -+x";
	uint32_t state = 1;

	for (unsigned i = 0; i < 200000; i++) {
		char text[20], out[ADDR_TEXT_MAX], expected[INET_ADDRSTRLEN];
		size_t len = 0, changes;
		struct in_addr right;
		struct addr addr;
		bool good;

		state = state * 1664525 + 1013904223;
		len = (size_t)snprintf(text, sizeof(text), "%u.%u.%u.%u", state >> 24, state >> 16 & 255,
		    state >> 8 & 255, (state >> 4 & 255) * (i % 2));
		for (changes = state >> 7 & 3; changes > 0; changes--) {
			state = state * 1664525 + 1013904223;
			text[(state >> 8) % len] = bytes[(state >> 16) % (sizeof(bytes) - 1)];
		}
		good = inet_pton(AF_INET, text, &right) == 1;
		cr_assert_eq(addr_parse_ip(span_of(text, len), 0, &addr), good, "%s", text);
		if (!good)
			continue;
		cr_assert_eq(addr.in.sin_addr.s_addr, right.s_addr, "%s", text);
		inet_ntop(AF_INET, &right, expected, sizeof(expected));
		cr_assert_str_eq(addr_format_ip(&addr, out), expected);
	}
}

Test(addr, ports_are_set)
{
	struct addr v4 = ip("192.0.2.1", 1), v6 = ip("::1", 1), none = { .len = 0 };

	addr_set_port(&v4, 65535);
	addr_set_port(&v6, 443);
	addr_set_port(&none, 5);
	cr_expect_eq(addr_port(&v4), 65535);
	cr_expect_eq(addr_port(&v6), 443);
	cr_expect_eq(addr_port(&none), 0);
}

Test(addr, mapped_addresses_become_ipv4)
{
	struct addr mapped = ip("::ffff:192.0.2.1", 53), compatible = ip("::192.0.2.1", 53);
	char out[ADDR_TEXT_MAX];

	addr_unmap(&mapped);
	cr_expect_str_eq(addr_format(&mapped, out), "192.0.2.1:53");
	cr_expect_eq(mapped.len, sizeof(struct sockaddr_in));
	addr_unmap(&compatible);
	cr_expect_eq(compatible.sa.sa_family, AF_INET6);
}

Test(addr, loopback_in_every_form)
{
	static const char *const yes[] = { "127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.9" };
	static const char *const no[] = { "128.0.0.1", "126.255.255.255", "0.0.0.0", "::", "::2",
	    "::ffff:10.0.0.1", "::127.0.0.1" };
	struct addr addr, none = { .len = 0 };

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		addr = ip(yes[i], 0);
		cr_expect(addr_is_loopback(&addr), "%s", yes[i]);
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		addr = ip(no[i], 0);
		cr_expect_not(addr_is_loopback(&addr), "%s", no[i]);
	}
	cr_expect_not(addr_is_loopback(&none));
}

Test(addr, the_same_ip_hashes_alike)
{
	struct addr a = ip("192.0.2.1", 1), b = ip("::ffff:192.0.2.1", 2), c = ip("192.0.2.2", 1);
	struct addr d = ip("2001:db8::1", 1), e = ip("2001:db8::1", 9), f = ip("2001:db8::2", 1);
	struct addr none = { .len = 0 };

	cr_expect(addr_same_ip(&a, &b));
	cr_expect_not(addr_same_ip(&a, &c));
	cr_expect(addr_same_ip(&d, &e));
	cr_expect_not(addr_same_ip(&d, &f));
	cr_expect_not(addr_same_ip(&a, &d));
	cr_expect_not(addr_same_ip(&a, &none));
	cr_expect_eq(addr_hash_ip(&a, 7), addr_hash_ip(&b, 7));
	cr_expect_eq(addr_hash_ip(&d, 7), addr_hash_ip(&e, 7));
	cr_expect_neq(addr_hash_ip(&a, 7), addr_hash_ip(&c, 7));
	cr_expect_neq(addr_hash_ip(&a, 7), addr_hash_ip(&a, 8));
	addr_hash_ip(&none, 7);
}

Test(addr, link_local_addresses_of_two_links_differ)
{
	struct addr a = ip("fe80::1", 0), b = a;

	a.in6.sin6_scope_id = 1;
	b.in6.sin6_scope_id = 2;
	cr_expect_not(addr_same_ip(&a, &b));
}

Test(addr, any_sockaddr_is_taken)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/x" };
	struct sockaddr_storage odd = { .ss_family = 250 };
	struct addr v4 = ip("192.0.2.1", 80), copy;
	char out[ADDR_TEXT_MAX];

	addr_from_sockaddr(&copy, &v4.sa, v4.len);
	cr_expect_str_eq(addr_format(&copy, out), "192.0.2.1:80");
	addr_from_sockaddr(&copy, &v4.sa, v4.len - 1);
	cr_expect_eq(copy.len, 0u);
	cr_expect_str_eq(addr_format(&copy, out), "-");
	addr_from_sockaddr(&copy, (struct sockaddr *)&un, sizeof(un));
	cr_expect_eq(copy.len, sizeof(sa_family_t));
	cr_expect_str_eq(addr_format(&copy, out), "unix");
	cr_expect_eq(addr_port(&copy), 0);
	addr_from_sockaddr(&copy, (struct sockaddr *)&un, 0);
	cr_expect_str_eq(addr_format(&copy, out), "-");
	addr_from_sockaddr(&copy, (struct sockaddr *)&odd, sizeof(odd));
	cr_expect_eq(copy.len, 0u);
	cr_expect_eq(copy.sa.sa_family, 250);
	cr_expect_str_eq(addr_format_ip(&copy, out), "-");
	addr_from_sockaddr(&copy, NULL, 0);
	cr_expect_eq(copy.len, 0u);
}

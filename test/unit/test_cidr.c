/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/cidr.h"

static struct addr
ip(const char *text)
{
	struct addr addr;

	cr_assert(addr_parse_ip(span_str(text), 0, &addr), "%s", text);
	return addr;
}

static struct cidr_set *
set_of(const char *const *entries)
{
	struct cidr_set *set = cidr_new();
	char why[CIDR_WHY_MAX];

	cr_assert_not_null(set);
	for (; *entries != NULL; entries++)
		cr_assert_lt(cidr_add(set, span_str(*entries), why), CIDR_BAD, "%s", *entries);
	cr_assert_eq(cidr_seal(set), 0);
	return set;
}

static bool
has(const struct cidr_set *set, const char *text)
{
	struct addr addr = ip(text);

	return cidr_has(set, &addr);
}

Test(cidr, members_and_edges)
{
	static const char *const entries[] = { "10.0.0.0/8", "192.0.2.7", "192.0.2.8/31",
	    "172.16.0.0/12", "255.255.255.255", "2001:db8::/32", "::1", "fe80::/10", "[2001:db9::]/65",
	    "10.1.0.0/16", "::ffff:198.51.100.0/120", NULL };
	static const char *const in[] = { "10.0.0.0", "10.255.255.255", "10.1.2.3", "192.0.2.7",
	    "192.0.2.8", "192.0.2.9", "172.31.255.255", "255.255.255.255", "2001:db8::",
	    "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "::1", "fe80::1", "febf::1", "2001:db9::7fff:0:0:0",
	    "::ffff:10.1.2.3", "198.51.100.255", "::ffff:198.51.100.1" };
	static const char *const out[] = { "9.255.255.255", "11.0.0.0", "192.0.2.6", "192.0.2.10",
	    "172.32.0.0", "172.15.255.255", "255.255.255.254", "0.0.0.0", "2001:db7:ffff::",
	    "2001:db9:0:0:8000::", "::", "::2", "fec0::1", "::ffff:11.0.0.1", "::10.0.0.1",
	    "198.51.101.0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" };
	struct cidr_set *set = set_of(entries);

	for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
		cr_expect(has(set, in[i]), "%s", in[i]);
	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++)
		cr_expect_not(has(set, out[i]), "%s", out[i]);
	cr_expect_eq(cidr_count(set), 11);
	cidr_free(set);
}

Test(cidr, everything_of_one_family)
{
	static const char *const v4[] = { "0.0.0.0/0", NULL }, *const v6[] = { "::/0", NULL },
	    *const none[] = { NULL };
	struct cidr_set *set = set_of(v4);
	struct addr nothing = { .len = 0 }, unix_peer = { .len = sizeof(sa_family_t) };

	cr_expect(has(set, "0.0.0.0") && has(set, "255.255.255.255") && has(set, "::ffff:1.2.3.4"));
	cr_expect_not(has(set, "::1"));
	unix_peer.sa.sa_family = AF_UNIX;
	cr_expect_not(cidr_has(set, &nothing));
	cr_expect_not(cidr_has(set, &unix_peer));
	cidr_free(set);
	set = set_of(v6);
	cr_expect(has(set, "::") && has(set, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
	cr_expect_not(has(set, "1.2.3.4") || has(set, "::ffff:1.2.3.4"));
	cidr_free(set);
	set = set_of(none);
	cr_expect_not(has(set, "::1") || has(set, "127.0.0.1"));
	cidr_free(set);
	cidr_free(NULL);
}

Test(cidr, bad_entries_are_refused_with_a_reason)
{
	static const char *const bad[] = { "", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1",
	    "10.0.0.0/08", "10.0.0.0/+8", "10.0.0/8", "10/8", "::/129", "0x7f.1", "127.1", "2130706433",
	    "10.0.0.0/255.0.0.0", "10.0.0.0 /8", "10.0.0.0/8/8", "localhost", "fe80::1%eth0",
	    "10.0.0.0/4294967304", "*", "[10.0.0.1]" };
	struct cidr_set *set = cidr_new();
	char why[CIDR_WHY_MAX];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why[0] = '\0';
		cr_expect_eq(cidr_add(set, span_str(bad[i]), why), CIDR_BAD, "%s", bad[i]);
		cr_expect_not_null(strchr(why, '('), "%s", why);
	}
	cr_expect_eq(cidr_add(set, span_of("10.0.0.1\0", 9), why), CIDR_BAD);
	cr_expect_eq(cidr_count(set), 0);
	cidr_free(set);
}

Test(cidr, bits_behind_the_prefix_are_cut_with_a_warning)
{
	struct cidr_set *set = cidr_new();
	char why[CIDR_WHY_MAX];

	cr_expect_eq(cidr_add(set, span_str("10.1.2.3/8"), why), CIDR_HOST_BITS);
	cr_expect_str_eq(why, "\"10.1.2.3/8\" has bits set behind its prefix (it is taken as 10.0.0.0/8)");
	cr_expect_eq(cidr_add(set, span_str("2001:db8::1/32"), why), CIDR_HOST_BITS);
	cr_expect_not_null(strstr(why, "taken as 2001:db8::/32"), "%s", why);
	cr_expect_eq(cidr_add(set, span_str("::ffff:192.0.2.9/120"), why), CIDR_HOST_BITS);
	cr_expect_not_null(strstr(why, "taken as 192.0.2.0/24"), "%s", why);
	cr_assert_eq(cidr_seal(set), 0);
	cr_expect(has(set, "10.200.0.1") && has(set, "2001:db8:1::") && has(set, "192.0.2.1"));
	cidr_free(set);
}

Test(cidr, a_file_with_comments_and_every_bad_line_reported)
{
	static const char text[] = "\xef\xbb\xbf# front\r\n10.0.0.0/8 # lb\r\n;x\n\n  192.0.2.1;y\n"
	    "nonsense\n2001:db8::/32\n10.0.0.0/40\n198.51.100.1/24";
	char path[] = "/tmp/ringway-cidr.XXXXXX", line[128];
	struct conf_problems problems = { 0 };
	struct cidr_set *set = cidr_new();
	int fd = mkstemp(path);

	cr_assert_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	cr_expect_eq(cidr_load(set, path, "auth.whitelist_file", &problems), -EINVAL);
	cr_assert_eq(problems.errors, 2);
	cr_assert_eq(problems.warnings, 1);
	snprintf(line, sizeof(line), "%s:6: auth.whitelist_file: \"nonsense\" is no address", path);
	cr_expect_eq(strncmp(problems.list[0].text, line, strlen(line)), 0, "%s", problems.list[0].text);
	snprintf(line, sizeof(line), "%s:8: ", path);
	cr_expect_eq(strncmp(problems.list[1].text, line, strlen(line)), 0, "%s", problems.list[1].text);
	cr_assert_eq(cidr_seal(set), 0);
	cr_expect(has(set, "10.2.3.4") && has(set, "192.0.2.1") && has(set, "198.51.100.77"));
	cidr_free(set);
	conf_problems_free(&problems);
	unlink(path);
	set = cidr_new();
	cr_expect_eq(cidr_load(set, path, NULL, &problems), -EINVAL);
	cr_expect_eq(cidr_load(set, "/", NULL, &problems), -EINVAL);
	cr_expect_eq(cidr_load(set, "/dev/null", NULL, &problems), 0);
	cr_expect_eq(problems.errors, 2);
	cidr_free(set);
	conf_problems_free(&problems);
}

/* ---- against a plain list ------------------------------------------------ */

struct plain {
	uint8_t		 ip[16];
	unsigned	 bits;
	bool		 v4;
};

static uint64_t state;

static uint64_t
pick(uint64_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 0x2545f4914f6cdd1dULL >> 16) % below;
}

static struct addr
addr_of(const uint8_t bytes[16], bool v4)
{
	struct addr addr = { .len = 0 };

	if (v4) {
		addr.in.sin_family = AF_INET;
		memcpy(&addr.in.sin_addr, bytes, 4);
		addr.len = sizeof(addr.in);
	} else {
		addr.in6.sin6_family = AF_INET6;
		memcpy(&addr.in6.sin6_addr, bytes, 16);
		addr.len = sizeof(addr.in6);
	}
	return addr;
}

static bool
plain_has(const struct plain *p, const uint8_t bytes[16], bool v4)
{
	if (p->v4 != v4)
		return false;
	for (unsigned bit = 0; bit < p->bits; bit++)
		if (((p->ip[bit / 8] ^ bytes[bit / 8]) >> (7 - bit % 8) & 1) != 0)
			return false;
	return true;
}

/* Few values a byte, so that prefixes nest and addresses hit. */
static void
random_bytes(uint8_t bytes[16], unsigned spread)
{
	for (unsigned i = 0; i < 16; i++)
		bytes[i] = pick(4) == 0 ? (uint8_t)(255 * pick(2)) : (uint8_t)pick(spread);
	bytes[0] = (uint8_t)(0x20 + pick(3));	/* not ::ffff:0:0/96 */
}

Test(cidr, same_as_a_plain_list)
{
	enum { ENTRIES = 200, ASKED = 400 };
	struct plain plain[ENTRIES];

	for (unsigned round = 0; round < 60; round++) {
		struct cidr_set *set = cidr_new();
		char why[CIDR_WHY_MAX], text[ADDR_TEXT_MAX + 8], ip_text[ADDR_TEXT_MAX];
		unsigned count = 1 + round * 3, spread = round % 3 == 0 ? 4 : 256;

		state = round + 1;
		for (unsigned i = 0; i < count; i++) {
			struct plain *p = &plain[i];
			struct addr addr;

			p->v4 = pick(2) == 0;
			p->bits = 8 + (unsigned)pick(p->v4 ? 25 : 121);
			random_bytes(p->ip, spread);
			addr = addr_of(p->ip, p->v4);
			snprintf(text, sizeof(text), "%s/%u", addr_format_ip(&addr, ip_text), p->bits);
			cr_assert_lt(cidr_add(set, span_str(text), why), CIDR_BAD, "%s", text);
		}
		cr_assert_eq(cidr_seal(set), 0);
		for (unsigned i = 0; i < ASKED; i++) {
			uint8_t bytes[16];
			bool v4 = pick(2) == 0, expected = false;
			struct addr addr;

			if (pick(2) == 0) {
				const struct plain *p = &plain[pick(count)];

				memcpy(bytes, p->ip, 16);
				bytes[pick(16)] ^= (uint8_t)(1 << pick(8));
				v4 = p->v4;
			} else {
				random_bytes(bytes, spread);
			}
			if (!v4 && bytes[0] == 0)
				bytes[0] = 1;
			for (unsigned k = 0; k < count; k++)
				expected |= plain_has(&plain[k], bytes, v4);
			addr = addr_of(bytes, v4);
			cr_assert_eq(cidr_has(set, &addr), expected, "round %u: %s", round,
			    addr_format_ip(&addr, ip_text));
		}
		cidr_free(set);
	}
}

/* Printed, not asserted: other work may have the processor. */
static void
time_set(const char *name, bool v4, unsigned low_bits, unsigned high_bits)
{
	enum { ENTRIES = 16384, ASKED = 4096, ROUNDS = 200 };
	static struct addr asked[ASKED];
	struct cidr_set *set = cidr_new();
	char why[CIDR_WHY_MAX], text[ADDR_TEXT_MAX + 8], ip_text[ADDR_TEXT_MAX];
	struct timespec before, after;
	unsigned hits = 0;

	state = 7;
	for (unsigned i = 0; i < ENTRIES + ASKED; i++) {
		uint8_t bytes[16];
		struct addr addr;

		for (unsigned k = 0; k < 16; k++)
			bytes[k] = (uint8_t)pick(256);
		if (!v4)
			memcpy(bytes, "\x20\x01\x0d\xb8", 4);
		addr = addr_of(bytes, v4);
		if (i >= ENTRIES) {
			asked[i - ENTRIES] = addr;
			continue;
		}
		snprintf(text, sizeof(text), "%s/%u", addr_format_ip(&addr, ip_text),
		    low_bits + (unsigned)pick(high_bits - low_bits + 1));
		cidr_add(set, span_str(text), why);
	}
	cr_assert_eq(cidr_seal(set), 0);
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < ASKED; i++)
			hits += cidr_has(set, &asked[i]);
	clock_gettime(CLOCK_MONOTONIC, &after);
	fprintf(stderr, "cidr: %s, %u prefixes: %.1f ns a look-up, %u of %u inside\n", name, ENTRIES,
	    ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) /
	    (ASKED * ROUNDS), hits / ROUNDS, ASKED);
	cidr_free(set);
}

Test(cidr, time_of_a_look_up)
{
	time_set("IPv4", true, 12, 32);
	time_set("IPv6", false, 44, 64);
}

/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/udp_dest.h"

#define S UINT64_C(1000000000)

static struct addr
ip(const char *text, uint16_t port)
{
	struct addr addr;

	cr_assert(addr_parse_ip(span_str(text), port, &addr));
	return addr;
}

static union udp_key
key_of(const char *text, uint16_t port)
{
	struct addr addr = ip(text, port);

	return udp_key_of_addr(&addr);
}

static bool
same(const union udp_key *a, const union udp_key *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

Test(udp_dest, header_and_source_address_give_the_same_key)
{
	static const uint8_t v4[] = { 0, 0, 0, 1, 192, 0, 2, 7, 0x1f, 0x90, 'x' };
	static const uint8_t v6[] = { 0, 0, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 53 };
	union udp_key from_header, from_addr = key_of("192.0.2.7", 8080);

	cr_assert(udp_key_of_header(v4, sizeof v4, &from_header));
	cr_assert(same(&from_header, &from_addr));
	cr_assert_eq(from_header.bytes[UDP_KEY_LEN], 10);
	/* What comes back over a socket for both families is mapped. */
	from_addr = key_of("::ffff:192.0.2.7", 8080);
	cr_assert(same(&from_header, &from_addr));
	cr_assert(udp_key_of_header(v6, sizeof v6, &from_header));
	from_addr = key_of("2001:db8::1", 53);
	cr_assert(same(&from_header, &from_addr));
	cr_assert_eq(from_header.bytes[UDP_KEY_LEN], 22);
}

Test(udp_dest, header_that_is_not_in_our_form_gives_no_key)
{
	static const struct {
		uint8_t	bytes[24];
		size_t	len;
	} v[] = {
		{ { 0, 0, 0, 1, 192, 0, 2, 7, 0x1f }, 9 },			/* short */
		{ { 1, 0, 0, 1, 192, 0, 2, 7, 0x1f, 0x90 }, 10 },		/* RSV */
		{ { 0, 1, 0, 1, 192, 0, 2, 7, 0x1f, 0x90 }, 10 },
		{ { 0, 0, 1, 1, 192, 0, 2, 7, 0x1f, 0x90 }, 10 },		/* FRAG */
		{ { 0, 0, 0, 1, 192, 0, 2, 7, 0, 0 }, 10 },			/* port 0 */
		{ { 0, 0, 0, 2, 192, 0, 2, 7, 0x1f, 0x90 }, 10 },		/* ATYP */
		{ { 0, 0, 0, 3, 4, 'h', 'o', 's', 't', 0, 80 }, 11 },		/* a name */
		{ { 0, 0, 0, 4, 0x20, 1, [20] = 0, 53 }, 21 },			/* short */
		{ { 0, 0, 0, 4, [14] = 0xff, 0xff, 192, 0, 2, 7, 0, 53 }, 22 }	/* mapped */
	};
	union udp_key key;

	for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
		cr_assert_not(udp_key_of_header(v[i].bytes, v[i].len, &key), "row %zu", i);
}

Test(udp_dest, beginning_of_a_datagram_is_compared_whole)
{
	union udp_key keys[] = { key_of("192.0.2.7", 8080), key_of("2001:db8::1", 53) };

	for (size_t i = 0; i < 2; i++) {
		size_t len = keys[i].bytes[UDP_KEY_LEN];
		uint8_t datagram[32];

		memset(datagram, 'x', sizeof datagram);
		memcpy(datagram, keys[i].bytes, len);
		cr_assert(udp_key_begins(&keys[i], datagram, sizeof datagram));
		cr_assert(udp_key_begins(&keys[i], datagram, len));
		cr_assert_not(udp_key_begins(&keys[i], datagram, len - 1));
		for (size_t at = 0; at < len; at++) {
			datagram[at] ^= 1;
			cr_assert_not(udp_key_begins(&keys[i], datagram, sizeof datagram), "byte %zu", at);
			datagram[at] ^= 1;
		}
	}
}

Test(udp_dest, each_of_many_is_found_and_stays_where_it_is)
{
	enum { N = 3000 };
	struct udp_dests t;
	struct udp_dest *d[N];
	union udp_key key;

	udp_dests_init(&t, 7);
	key = key_of("10.0.0.1", 1);
	cr_assert_null(udp_dest_find(&t, &key));
	for (int i = 0; i < N; i++) {
		key = key_of(i % 2 ? "10.0.0.1" : "2001:db8::1", (uint16_t)(i + 1));
		d[i] = udp_dest_add(&t, &key, N, S, UINT64_MAX, 0);
		cr_assert_not_null(d[i]);
	}
	for (int i = 0; i < N; i++) {
		key = key_of(i % 2 ? "10.0.0.1" : "2001:db8::1", (uint16_t)(i + 1));
		cr_assert_eq(udp_dest_find(&t, &key), d[i]);
	}
	key = key_of("10.0.0.1", N + 1);
	cr_assert_null(udp_dest_find(&t, &key));
	udp_dests_free(&t);
}

Test(udp_dest, only_the_longest_idle_gives_its_place_up)
{
	struct udp_dests t;
	union udp_key a = key_of("10.0.0.1", 1), b = key_of("10.0.0.2", 1), c = key_of("10.0.0.3", 1);
	struct udp_dest *da, *db;

	udp_dests_init(&t, 7);
	da = udp_dest_add(&t, &a, 2, 10 * S, UINT64_MAX, 0);
	db = udp_dest_add(&t, &b, 2, 10 * S, UINT64_MAX, 2 * S);
	cr_assert_null(udp_dest_add(&t, &c, 2, 10 * S, UINT64_MAX, 9 * S));
	da->last_ns = 5 * S;
	cr_assert_null(udp_dest_add(&t, &c, 2, 10 * S, UINT64_MAX, 11 * S), "b was used at 2 s");
	cr_assert_eq(udp_dest_add(&t, &c, 2, 10 * S, UINT64_MAX, 12 * S), db);
	cr_assert_null(udp_dest_find(&t, &b));
	cr_assert_eq(udp_dest_find(&t, &a), da);
	cr_assert_eq(udp_dest_find(&t, &c), db);
	cr_assert_eq(db->last_ns, 12 * S);
	udp_dests_free(&t);
}

Test(udp_dest, one_with_datagrams_in_flight_keeps_its_place)
{
	struct udp_dests t;
	union udp_key a = key_of("10.0.0.1", 1), b = key_of("10.0.0.2", 1);
	struct udp_dest *d;

	udp_dests_init(&t, 7);
	d = udp_dest_add(&t, &a, 1, 10 * S, UINT64_MAX, 3 * S);
	cr_assert_null(udp_dest_add(&t, &b, 1, 10 * S, 2 * S, 100 * S), "queued since 2 s, used at 3 s");
	cr_assert_null(udp_dest_add(&t, &b, 1, 10 * S, 3 * S, 100 * S));
	cr_assert_eq(udp_dest_add(&t, &b, 1, 10 * S, 4 * S, 100 * S), d);
	udp_dests_free(&t);
}

/* Against a plain array: deletion moves what is behind the hole. */
Test(udp_dest, replacing_at_random_loses_nobody)
{
	enum { MAX = 40, KEYS = 400 };
	struct udp_dests t;
	uint16_t there[MAX] = { 0 };
	unsigned n = 0, seed = 12345;
	uint64_t now_ns = 0;

	udp_dests_init(&t, 99);
	for (int step = 0; step < 20000; step++) {
		uint16_t port = (uint16_t)(rand_r(&seed) % KEYS + 1);
		union udp_key key = key_of("10.0.0.1", port);
		struct udp_dest *d = udp_dest_find(&t, &key);
		unsigned at = 0;

		while (at < n && there[at] != port)
			at++;
		cr_assert_eq(d != NULL, at < n, "step %d port %u", step, port);
		now_ns += S;
		if (d != NULL) {
			memmove(there + at, there + at + 1, (n - 1 - at) * sizeof there[0]);
			there[n - 1] = port;		/* the newest is last */
			d->last_ns = now_ns;
			continue;
		}
		cr_assert_not_null(udp_dest_add(&t, &key, MAX, 0, UINT64_MAX, now_ns));
		if (n == MAX)
			memmove(there, there + 1, --n * sizeof there[0]);
		there[n++] = port;
	}
	cr_assert_eq(t.count, n);
	udp_dests_free(&t);
}

/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <string.h>

#include "util/str.h"

/* The whole module under another name, to reach the general form of the hash. */
#define hash_bytes	tested_hash_bytes
#include "util/hash.c"
#undef hash_bytes

Test(str, quoting_hides_what_could_drive_a_terminal)
{
	char out[STR_QUOTED_MAX], longer[300];

	cr_expect_str_eq(str_quote(span_str("plain"), out), "\"plain\"");
	cr_expect_str_eq(str_quote(span_str("a\n\x1b\"\\\x7f\xff"), out),
	    "\"a\\x0a\\x1b\\x22\\x5c\\x7f\\xff\"");
	cr_expect_str_eq(str_quote(span_of("a\0b", 3), out), "\"a\\x00b\"");
	cr_expect_str_eq(str_quote(span_str(""), out), "\"\"");
	memset(longer, '\n', sizeof(longer));
	str_quote(span_of(longer, sizeof(longer)), out);
	cr_expect_lt(strlen(out), (size_t)STR_QUOTED_MAX);
	cr_expect_str_eq(out + strlen(out) - 4, "...\"");
}

Test(str, distance)
{
	static const struct {
		const char	*a, *b;
		unsigned	 distance;
	} cases[] = {
		{ "", "", 0 }, { "", "abc", 3 }, { "abc", "abc", 0 }, { "abc", "ab", 1 },
		{ "abc", "xbc", 1 }, { "abc", "acb", 1 }, { "wrokers", "workers", 1 },
		{ "kitten", "sitting", 3 }, { "ab", "ba", 1 }, { "abcd", "badc", 2 },
	};
	char longer[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct span a = span_str(cases[i].a), b = span_str(cases[i].b);

		cr_expect_eq(str_distance(a, b), cases[i].distance, "%s %s", cases[i].a, cases[i].b);
		cr_expect_eq(str_distance(b, a), cases[i].distance, "%s %s", cases[i].b, cases[i].a);
	}
	memset(longer, 'x', sizeof(longer));
	cr_expect_eq(str_distance(span_of(longer, sizeof(longer)), span_str("x")), (unsigned)STR_FAR);
}

Test(str, numbers_are_decimal_digits_only)
{
	static const char *const bad[] = { "", "-1", "+1", " 1", "1 ", "01", "00", "0x1", "1e3", "1.0",
	    "18446744073709551616", "99999999999999999999999", "1_0" };
	uint64_t value;

	cr_expect(str_to_u64(span_str("0"), &value) && value == 0);
	cr_expect(str_to_u64(span_str("18446744073709551615"), &value) && value == UINT64_MAX);
	cr_expect(str_to_u64(span_of("123x", 3), &value) && value == 123);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_not(str_to_u64(span_str(bad[i]), &value), "%s", bad[i]);
}

Test(str, utf8_of_rfc3629_only)
{
	static const struct {
		const char	*text;
		size_t		 valid;
	} cases[] = {
		{ "", 0 }, { "abc", 3 }, { "\xc3\xa9", 2 }, { "\xe2\x82\xac!", 4 },
		{ "\xf0\x9f\x98\x80", 4 }, { "\xf4\x8f\xbf\xbf", 4 }, { "\xef\xbf\xbf", 3 },
		{ "a\x80", 1 }, { "a\xc3", 1 }, { "\xc0\x80", 0 }, { "\xc1\xbf", 0 },
		{ "\xe0\x9f\xbf", 0 }, { "\xed\xa0\x80", 0 }, { "\xf0\x8f\xbf\xbf", 0 },
		{ "\xf4\x90\x80\x80", 0 }, { "\xf5\x80\x80\x80", 0 }, { "\xff", 0 },
		{ "\xe2\x82", 0 }, { "\xe2\x82(", 0 }, { "\xe2(\xa1", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(str_utf8_valid_bytes(span_str(cases[i].text)), cases[i].valid, "case %zu", i);
}

/* The vector of the paper's appendix A, which is for SipHash-2-4. */
Test(hash, siphash_vector)
{
	uint8_t input[15];

	for (uint8_t i = 0; i < sizeof(input); i++)
		input[i] = i;
	cr_expect_eq(sip_hash(input, sizeof(input), 0x0706050403020100u, 0x0f0e0d0c0b0a0908u, 2, 4),
	    0xa129ca6149be45e5u);
}

Test(hash, depends_on_every_byte_and_on_the_seed)
{
	uint8_t input[24] = { 0 };
	uint64_t plain = tested_hash_bytes(input, sizeof(input), 1);

	for (size_t i = 0; i < sizeof(input); i++) {
		input[i] = 1;
		cr_expect_neq(tested_hash_bytes(input, sizeof(input), 1), plain);
		input[i] = 0;
	}
	cr_expect_neq(tested_hash_bytes(input, sizeof(input), 2), plain);
	cr_expect_neq(tested_hash_bytes(input, sizeof(input) - 1, 1), plain);
}

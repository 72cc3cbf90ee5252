/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "proto/basic.h"

static enum basic_verdict
parse(const char *value, struct basic_credentials *c)
{
	return basic_parse(span_str(value), c);
}

/* "Basic " and the base64 of it. */
static struct span
field(const char *text, size_t len, char *out)
{
	memcpy(out, "Basic ", 6);
	basic_base64_encode(text, len, out + 6);
	return span_of(out, 6 + basic_base64_len(len));
}

Test(basic, reads_the_examples_of_rfc_7617)
{
	struct basic_credentials c;

	cr_assert_eq(parse("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", &c), BASIC_OK);
	cr_expect(span_is(basic_user(&c), "Aladdin"));
	cr_expect(span_is(basic_pass(&c), "open sesame"));
	cr_assert_eq(parse("Basic dGVzdDoxMjPCow==", &c), BASIC_OK);
	cr_expect(span_is(basic_user(&c), "test"));
	cr_expect(span_is(basic_pass(&c), "123\xc2\xa3"));
}

Test(basic, scheme_in_any_case_and_several_spaces)
{
	struct basic_credentials c;

	cr_expect_eq(parse("bAsIc   QWxhZGRpbjpvcGVuIHNlc2FtZQ==", &c), BASIC_OK);
	cr_expect(span_is(basic_user(&c), "Aladdin"));
	cr_expect_eq(parse("Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", &c), BASIC_OTHER_SCHEME);
	cr_expect_eq(parse("BasicQWxhZGRpbjpvcGVuIHNlc2FtZQ==", &c), BASIC_OTHER_SCHEME);
	cr_expect_eq(parse("Basi", &c), BASIC_OTHER_SCHEME);
	cr_expect_eq(parse("", &c), BASIC_OTHER_SCHEME);
	cr_expect_eq(parse("Basic", &c), BASIC_MALFORMED);
	cr_expect_eq(parse("Basic ", &c), BASIC_MALFORMED);
	cr_expect_eq(parse("Basic\tYTpi", &c), BASIC_OTHER_SCHEME);
}

Test(basic, first_colon_divides_and_parts_may_be_empty)
{
	struct basic_credentials c;
	char out[64];

	cr_assert_eq(basic_parse(field("a:b:c", 5, out), &c), BASIC_OK);
	cr_expect(span_is(basic_user(&c), "a") && span_is(basic_pass(&c), "b:c"));
	cr_assert_eq(basic_parse(field("a:", 2, out), &c), BASIC_OK);
	cr_expect(span_is(basic_user(&c), "a") && span_is(basic_pass(&c), ""));
	cr_assert_eq(basic_parse(field(":", 1, out), &c), BASIC_OK);
	cr_expect(span_is(basic_user(&c), "") && span_is(basic_pass(&c), ""));
	cr_expect_eq(basic_parse(field("alice", 5, out), &c), BASIC_MALFORMED);
}

Test(basic, control_bytes_are_refused_and_nothing_is_left)
{
	static const char bad[] = { '\0', '\n', '\r', '\t', 0x1f, 0x7f };
	struct basic_credentials c;
	char out[64], text[] = "al:ce";

	for (size_t i = 0; i < sizeof(bad); i++) {
		text[1] = bad[i];
		cr_expect_eq(basic_parse(field(text, 5, out), &c), BASIC_MALFORMED, "0x%02x", bad[i]);
		cr_expect(c.user_len == 0 && c.pass_len == 0);
	}
}

Test(basic, up_to_255_bytes_each)
{
	struct basic_credentials c;
	char text[600], out[1000];

	memset(text, 'x', sizeof(text));
	text[255] = ':';
	cr_assert_eq(basic_parse(field(text, 511, out), &c), BASIC_OK);
	cr_expect(c.user_len == 255 && c.pass_len == 255);
	cr_expect_eq(basic_parse(field(text, 512, out), &c), BASIC_TOO_LONG);
	text[255] = 'x';
	text[256] = ':';
	cr_expect_eq(basic_parse(field(text, 300, out), &c), BASIC_TOO_LONG);
	cr_expect_eq(basic_parse(field(text, 600, out), &c), BASIC_TOO_LONG);
}

Test(basic, base64_has_one_spelling)
{
	static const struct { const char *text; bool good; const char *bytes; } v[] = {
		/* RFC 4648 section 10. */
		{ "", true, "" }, { "Zg==", true, "f" }, { "Zm8=", true, "fo" },
		{ "Zm9v", true, "foo" }, { "Zm9vYg==", true, "foob" }, { "Zm9vYmE=", true, "fooba" },
		{ "Zm9vYmFy", true, "foobar" }, { "+/+/", true, "\xfb\xff\xbf" },
		{ "Zg", false, "" }, { "Zg=", false, "" }, { "Zg===", false, "" }, { "Z===", false, "" },
		{ "====", false, "" }, { "==Zg", false, "" }, { "Zg==Zg==", false, "" },
		{ "Zh==", false, "" }, { "Zm9=", false, "" }, { "Zm 9", false, "" },
		{ "Zm9v\n", false, "" }, { "-_-_", false, "" }, { "Zm9vYmF*", false, "" },
	};
	char out[16], back[16];
	size_t len;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		bool good = basic_base64_decode(span_str(v[i].text), out, sizeof(out), &len);

		cr_expect_eq(good, v[i].good, "\"%s\"", v[i].text);
		if (!good || !v[i].good)
			continue;
		cr_expect(span_is(span_of(out, len), v[i].bytes), "\"%s\"", v[i].text);
		basic_base64_encode(out, len, back);
		cr_expect(span_is(span_of(back, basic_base64_len(len)), v[i].text));
	}
	cr_expect(!basic_base64_decode(span_str("Zm9vYmFy"), out, 5, &len), "does not fit");
	cr_expect(basic_base64_decode(span_str("Zm9vYmFy"), out, 6, &len));
}

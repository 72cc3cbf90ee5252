/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "util/accessline.h"

static char line[ACCESS_LINE_MAX + 1];
static struct access_clock second;

static const char *
written(const struct access_entry *e, enum access_format format)
{
	size_t len = access_line(e, format, &second, line);

	cr_assert_leq(len, (size_t)ACCESS_LINE_MAX);
	line[len] = '\0';
	cr_assert_eq(strlen(line), len);
	return line;
}

static struct addr
ip(const char *text, uint16_t port)
{
	struct addr a;

	cr_assert(addr_parse_ip(span_str(text), port, &a));
	return a;
}

/* The one of the specification. */
static struct access_entry
example(const struct addr *client, const struct addr *upstream)
{
	return (struct access_entry){
		.start_us = 1785429394338999,
		.dur_us = 323,
		.client = client,
		.method = span_str("GET"),
		.target = span_str("/resource/1"),
		.version = span_str("HTTP/1.1"),
		.host = span_str("127.0.0.1:19000"),
		.upstream = upstream,
		.status = 200,
		.bytes = 624,
		.up = 17,
		.cache = "HIT",
		.acl = ACCESS_ACL_ALLOW,
		.rule = span_str("default"),
		.user = span_str("alice"),
		.proto = "http",
		.id = 42
	};
}

#define EXPECT(entry, format, text) do { \
	const char *got = written(entry, format); \
	cr_expect_str_eq(got, text, "got  %swant %s", got, text); \
} while (0)

Test(accessline, a_text_line_is_exactly_that_of_the_specification)
{
	struct addr client = ip("127.0.0.1", 51234), upstream = ip("127.0.0.1", 19000);
	struct access_entry e = example(&client, &upstream);

	EXPECT(&e, ACCESS_TEXT, "2026-07-30T16:36:34.338Z 127.0.0.1 \"GET /resource/1 HTTP/1.1\" "
	    "host=127.0.0.1:19000 upstream=127.0.0.1:19000 status=200 bytes=624 cache=HIT acl=ALLOW "
	    "rule=\"default\" dur_us=323 user=alice proto=http up=17 id=42\n");
}

Test(accessline, a_json_line_has_the_same_names)
{
	struct addr client = ip("127.0.0.1", 51234), upstream = ip("127.0.0.1", 19000);
	struct access_entry e = example(&client, &upstream);

	EXPECT(&e, ACCESS_JSON, "{\"time\":\"2026-07-30T16:36:34.338Z\",\"client\":\"127.0.0.1\","
	    "\"request\":\"GET /resource/1 HTTP/1.1\",\"host\":\"127.0.0.1:19000\","
	    "\"upstream\":\"127.0.0.1:19000\",\"status\":200,\"bytes\":624,\"cache\":\"HIT\","
	    "\"acl\":\"ALLOW\",\"rule\":\"default\",\"dur_us\":323,\"user\":\"alice\","
	    "\"proto\":\"http\",\"up\":17,\"id\":42}\n");
}

Test(accessline, what_is_not_known_is_a_dash_or_null)
{
	struct access_entry e = { 0 };

	EXPECT(&e, ACCESS_TEXT, "1970-01-01T00:00:00.000Z - \"-\" host=- upstream=- status=0 bytes=0 "
	    "cache=- acl=- rule=\"-\" dur_us=0 user=- proto=- up=0 id=0\n");
	EXPECT(&e, ACCESS_JSON, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"client\":null,"
	    "\"request\":null,\"host\":null,\"upstream\":null,\"status\":0,\"bytes\":0,\"cache\":null,"
	    "\"acl\":null,\"rule\":null,\"dur_us\":0,\"user\":null,\"proto\":null,\"up\":0,\"id\":0}\n");
}

Test(accessline, a_socks_request_reads_like_connect)
{
	struct addr client = ip("2001:db8::7", 40000), upstream = ip("2001:db8::1", 443);
	struct access_entry e = {
		.start_us = 1785429394000000,
		.client = &client,
		.method = span_str("CONNECT"),
		.target = span_str("example.org:443"),
		.version = span_str("SOCKS5"),
		.host = span_str("example.org:443"),
		.upstream = &upstream,
		.status = 2,
		.acl = ACCESS_ACL_DENY,
		.rule = span_str("deny host example.org"),
		.bytes = UINT64_MAX,
		.up = UINT64_MAX,
		.dur_us = UINT64_MAX,
		.proto = "socks5",
		.id = UINT64_MAX
	};

	EXPECT(&e, ACCESS_TEXT, "2026-07-30T16:36:34.000Z 2001:db8::7 \"CONNECT example.org:443 SOCKS5\" "
	    "host=example.org:443 upstream=[2001:db8::1]:443 status=2 bytes=18446744073709551615 "
	    "cache=- acl=DENY rule=\"deny host example.org\" dur_us=18446744073709551615 user=- "
	    "proto=socks5 up=18446744073709551615 id=18446744073709551615\n");
}

Test(accessline, text_escapes_what_could_break_a_line_or_a_terminal)
{
	struct access_entry e = {
		.target = span_str("GET /\x1b[2J\"\\ \x7f\xc3\xa9\r\n HTTP/1.1"),
		.host = span_str("a b\"\t\\"),
		.rule = span_str("deny host \"x\""),
		.user = span_str("eve acl=ALLOW\n")
	};

	EXPECT(&e, ACCESS_TEXT, "1970-01-01T00:00:00.000Z - "
	    "\"GET /\\x1b[2J\\x22\\x5c \\x7f\\xc3\\xa9\\x0d\\x0a HTTP/1.1\" host=a\\x20b\\x22\\x09\\x5c "
	    "upstream=- status=0 bytes=0 cache=- acl=- rule=\"deny host \\x22x\\x22\" dur_us=0 "
	    "user=eve\\x20acl=ALLOW\\x0a proto=- up=0 id=0\n");
	e = (struct access_entry){ .user = span_str("-"), .host = span_of("\0", 1) };
	EXPECT(&e, ACCESS_TEXT, "1970-01-01T00:00:00.000Z - \"-\" host=\\x00 upstream=- status=0 bytes=0 "
	    "cache=- acl=- rule=\"-\" dur_us=0 user=\\x2d proto=- up=0 id=0\n");
}

static void
expect_json_user(const char *bytes, size_t len, const char *want)
{
	struct access_entry e = { .user = span_of(bytes, len) };
	const char *at = strstr(written(&e, ACCESS_JSON), "\"user\":");

	cr_assert_not_null(at);
	at += strlen("\"user\":");
	cr_expect(strncmp(at, want, strlen(want)) == 0 && strncmp(at + strlen(want), ",\"proto\"", 8) == 0,
	    "want %s, got %s", want, at);
}

#define EXPECT_JSON(bytes, want) expect_json_user(bytes, sizeof(bytes) - 1, want)

Test(accessline, json_keeps_text_and_escapes_the_rest)
{
	EXPECT_JSON("a b", "\"a b\"");
	EXPECT_JSON("\"\\/", "\"\\\"\\\\/\"");
	EXPECT_JSON("\0\x01\n\x1f\x7f", "\"\\u0000\\u0001\\u000a\\u001f\\u007f\"");
	EXPECT_JSON("Zo\xc3\xab \xe2\x82\xac \xf0\x9f\x98\x80", "\"Zo\xc3\xab \xe2\x82\xac \xf0\x9f\x98\x80\"");
	EXPECT_JSON("\xc2\x9b\x31m\xc2\xa0", "\"\\u009b1m\xc2\xa0\"");	/* CSI as UTF-8 */
	EXPECT_JSON("\x9b\xff", "\"\\u009b\\u00ff\"");
	EXPECT_JSON("\xc0\xaf", "\"\\u00c0\\u00af\"");			/* overlong */
	EXPECT_JSON("\xe0\x80\xaf", "\"\\u00e0\\u0080\\u00af\"");
	EXPECT_JSON("\xf0\x8f\xbf\xbf", "\"\\u00f0\\u008f\\u00bf\\u00bf\"");
	EXPECT_JSON("\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\"");	/* a surrogate */
	EXPECT_JSON("\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\"");
	EXPECT_JSON("x\xe2\x82", "\"x\\u00e2\\u0082\"");		/* cut short */
	EXPECT_JSON("\xc3", "\"\\u00c3\"");
	EXPECT_JSON("-", "\"-\"");
}

Test(accessline, whatever_is_too_long_is_cut_and_the_line_is_whole)
{
	static const unsigned char fills[] = { 'a', '"', '\0', 0xff, 0xc3, ' ' };
	static char huge[70000];
	struct addr client = ip("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 65535);

	for (size_t i = 0; i < sizeof fills; i++) {
		struct span all = span_of(huge, sizeof huge);
		struct access_entry e = {
			.client = &client, .upstream = &client, .method = all, .target = all,
			.version = all, .host = all, .rule = all, .user = all, .status = UINT32_MAX,
			.bytes = UINT64_MAX, .up = UINT64_MAX, .dur_us = UINT64_MAX, .id = UINT64_MAX
		};
		const char *text;

		memset(huge, fills[i], sizeof huge);
		text = written(&e, ACCESS_TEXT);
		cr_expect(strstr(text, "...\" host=") != NULL && strstr(text, "... upstream=") != NULL);
		cr_expect_str_eq(strstr(text, " up="), " up=18446744073709551615 id=18446744073709551615\n");
		text = written(&e, ACCESS_JSON);
		cr_expect(strstr(text, "...\",\"host\":\"") != NULL && strstr(text, "...\",\"proto\":") != NULL);
		cr_expect_str_eq(strstr(text, ",\"up\":"), ",\"up\":18446744073709551615,\"id\":18446744073709551615}\n");
	}
}

Test(accessline, a_name_or_rule_of_255_bytes_is_never_cut)
{
	static char name[255];
	struct span all = span_of(name, sizeof name);
	struct access_entry e = { .host = all, .rule = all, .user = all };

	memset(name, 0x01, sizeof name);
	cr_expect_null(strstr(written(&e, ACCESS_TEXT), "..."));
	cr_expect_null(strstr(written(&e, ACCESS_JSON), "..."));
}

Test(accessline, no_bytes_break_a_line)
{
	unsigned seed = 20260730;
	static char noise[6][300];

	for (int round = 0; round < 2000; round++) {
		struct span s[6];
		int quotes = 0;

		for (int i = 0; i < 6; i++) {
			s[i] = span_of(noise[i], (size_t)rand_r(&seed) % sizeof noise[i]);
			for (size_t k = 0; k < s[i].len; k++)
				noise[i][k] = (char)rand_r(&seed);
		}
		struct access_entry e = {
			.method = s[0], .target = s[1], .version = s[2], .host = s[3], .rule = s[4], .user = s[5]
		};
		const char *text = written(&e, ACCESS_TEXT);

		for (const char *p = text; *p != '\0'; p++) {
			cr_assert(p[1] == '\0' ? *p == '\n' : *p >= 0x20 && *p < 0x7f, "round %d", round);
			quotes += *p == '"';
		}
		cr_assert_eq(quotes, 4, "round %d: %s", round, text);
		text = written(&e, ACCESS_JSON);
		for (const char *p = text; *p != '\0'; p++)
			cr_assert(p[1] == '\0' ? *p == '\n' : (unsigned char)*p >= 0x20 && *p != 0x7f,
			    "round %d", round);
	}
}

Test(accessline, the_time_follows_the_second)
{
	struct access_entry e = { .start_us = UINT64_C(1709251199999999) };

	cr_expect_eq(strncmp(written(&e, ACCESS_TEXT), "2024-02-29T23:59:59.999Z ", 25), 0, "%s", line);
	e.start_us++;
	cr_expect_eq(strncmp(written(&e, ACCESS_TEXT), "2024-03-01T00:00:00.000Z ", 25), 0, "%s", line);
	e.start_us -= 500000;
	cr_expect_eq(strncmp(written(&e, ACCESS_TEXT), "2024-02-29T23:59:59.500Z ", 25), 0, "%s", line);
}

Test(accessline, a_kept_entry_outlives_the_head)
{
	static char head[70000];
	struct access_entry e = {
		.method = span_str("GET"), .target = span_of(head, sizeof head), .host = span_str("h"),
		.user = span_str("u"), .status = 204
	};
	char *before, *block;

	memset(head, 'p', sizeof head);
	cr_assert_not_null(before = strdup(written(&e, ACCESS_TEXT)));
	cr_assert_not_null(block = access_entry_keep(&e));
	memset(head, 'X', sizeof head);
	EXPECT(&e, ACCESS_TEXT, before);
	free(block);
	free(before);
}

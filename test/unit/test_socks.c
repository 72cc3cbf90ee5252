/* SPDX-License-Identifier: ISC */
/* Protocol detection, SOCKS5 and SOCKS4 messages (CASES 1 to 3, 43 as far as it is parsing). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "proto/detect.h"
#include "proto/socks4.h"
#include "proto/socks5.h"

#define BYTES(lit) span_of(lit, sizeof(lit) - 1)

static const char *
host_text(const struct target *target)
{
	static char text[TARGET_HOST_MAX + 1];
	char scratch[ADDR_TEXT_MAX];
	struct span host = target_host(target, scratch);

	snprintf(text, sizeof(text), "%.*s", (int)host.len, host.base);
	return text;
}

Test(detect, first_byte_tells_the_protocol)
{
	cr_assert_eq(detect_first_byte(5), DETECT_SOCKS5);
	cr_assert_eq(detect_first_byte(4), DETECT_SOCKS4);
	cr_assert_eq(detect_first_byte('G'), DETECT_HTTP);
	cr_assert_eq(detect_first_byte('c'), DETECT_HTTP);
	cr_assert_eq(detect_first_byte('!'), DETECT_HTTP);
	cr_assert_eq(detect_first_byte(0x16), DETECT_UNKNOWN);
	cr_assert_eq(detect_first_byte(0), DETECT_UNKNOWN);
	cr_assert_eq(detect_first_byte(' '), DETECT_UNKNOWN);
	cr_assert_eq(detect_first_byte('\r'), DETECT_HTTP);
	cr_assert_eq(detect_first_byte(0xff), DETECT_UNKNOWN);
}

Test(socks5, greeting_table)
{
	static const struct {
		struct span	 in;
		enum socks5_verdict verdict;
		bool		 none, userpass;
		size_t		 used;
	} rows[] = {
		{ { "", 0 }, SOCKS5_MORE, false, false, 0 },
		{ { "\x05", 1 }, SOCKS5_MORE, false, false, 0 },
		{ { "\x05\x01", 2 }, SOCKS5_MORE, false, false, 0 },
		{ { "\x05\x01\x00", 3 }, SOCKS5_OK, true, false, 3 },
		{ { "\x05\x02\x01\x02", 4 }, SOCKS5_OK, false, true, 4 },
		{ { "\x05\x01\x02", 3 }, SOCKS5_OK, false, true, 3 },
		{ { "\x05\x03\x00\x01\x02rest", 9 }, SOCKS5_OK, true, true, 5 },
		{ { "\x05\x00", 2 }, SOCKS5_OK, false, false, 2 },
		{ { "\x04\x01", 2 }, SOCKS5_MALFORMED, false, false, 0 },
		{ { "GET", 3 }, SOCKS5_MALFORMED, false, false, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct socks5_greeting got;

		cr_expect_eq(socks5_parse_greeting(rows[i].in, &got), rows[i].verdict, "row %zu", i);
		cr_expect_eq(got.offers_none, rows[i].none, "row %zu", i);
		cr_expect_eq(got.offers_userpass, rows[i].userpass, "row %zu", i);
		cr_expect_eq(got.used, rows[i].used, "row %zu", i);
	}
}

Test(socks5, method_is_the_right_one_or_ff)
{
	struct socks5_greeting none = { .offers_none = true };
	struct socks5_greeting pass = { .offers_userpass = true };
	struct socks5_greeting both = { .offers_none = true, .offers_userpass = true };
	uint8_t out[SOCKS5_METHOD_REPLY_LEN];

	cr_expect_eq(socks5_choose_method(&none, false), SOCKS5_METHOD_NONE);
	cr_expect_eq(socks5_choose_method(&none, true), SOCKS5_METHOD_UNACCEPTABLE);
	cr_expect_eq(socks5_choose_method(&pass, false), SOCKS5_METHOD_UNACCEPTABLE);
	cr_expect_eq(socks5_choose_method(&pass, true), SOCKS5_METHOD_USERPASS);
	cr_expect_eq(socks5_choose_method(&both, false), SOCKS5_METHOD_NONE);
	cr_expect_eq(socks5_choose_method(&both, true), SOCKS5_METHOD_USERPASS);
	cr_expect_eq(socks5_write_method(SOCKS5_METHOD_UNACCEPTABLE, out), 2);
	cr_expect_arr_eq(out, "\x05\xff", 2);
}

Test(socks5, userpass)
{
	struct span whole = BYTES("\x01\x03" "bob\x02" "pwX");
	struct socks5_userpass got;
	uint8_t out[SOCKS5_USERPASS_REPLY_LEN];

	for (size_t len = 0; len < whole.len - 1; len++)
		cr_expect_eq(socks5_parse_userpass(span_of(whole.base, len), &got), SOCKS5_MORE,
		    "%zu bytes", len);
	cr_assert_eq(socks5_parse_userpass(whole, &got), SOCKS5_OK);
	cr_expect(span_is(got.user, "bob"));
	cr_expect(span_is(got.pass, "pw"));
	cr_expect_eq(got.used, 8);
	cr_expect_eq(socks5_parse_userpass(BYTES("\x01\x01" "a\x00"), &got), SOCKS5_OK);
	cr_expect_eq(got.pass.len, 0);
	cr_expect_eq(socks5_parse_userpass(BYTES("\x01\x00\x01" "a"), &got), SOCKS5_MALFORMED);
	cr_expect_eq(socks5_parse_userpass(BYTES("\x05\x01"), &got), SOCKS5_MALFORMED);
	socks5_write_userpass_reply(true, out);
	cr_expect_arr_eq(out, "\x01\x00", 2);
	socks5_write_userpass_reply(false, out);
	cr_expect_arr_eq(out, "\x01\x01", 2);
}

struct request_row {
	struct span	 in;
	enum socks5_verdict verdict;
	const char	*host;
	uint16_t	 port;
	bool		 literal;
};

static const struct request_row requests[] = {
	{ { "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", 10 }, SOCKS5_OK, "127.0.0.1", 80, true },
	/* RSV is not looked at. */
	{ { "\x05\x01\x7f\x01\x7f\x00\x00\x01\x00\x50", 10 }, SOCKS5_OK, "127.0.0.1", 80, true },
	{ { "\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb", 22 }, SOCKS5_OK, "::1",
	    443, true },
	{ { "\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01\x01\xbb", 22 }, SOCKS5_OK,
	    "10.0.0.1", 443, true },
	{ { "\x05\x01\x00\x03\x01" "a" "\x00\x50", 8 }, SOCKS5_OK, "a", 80, false },
	{ { "\x05\x01\x00\x03\x0c" "Example.COM." "\xff\xff", 19 }, SOCKS5_OK, "example.com",
	    65535, false },
	{ { "\x05\x01\x00\x03\x09" "127.0.0.1" "\x00\x50", 16 }, SOCKS5_OK, "127.0.0.1", 80, true },
	{ { "\x05\x01\x00\x03\x0a" "127.0.0.1." "\x00\x50", 17 }, SOCKS5_OK, "127.0.0.1", 80, true },
	{ { "\x05\x01\x00\x03\x03" "::1" "\x00\x50", 10 }, SOCKS5_OK, "::1", 80, true },
	{ { "\x05\x01\x00\x03\x05" "[::1]" "\x00\x50", 12 }, SOCKS5_OK, "::1", 80, true },
	{ { "\x05\x01\x00\x03\x07" "fe80::a" "\x00\x50", 14 }, SOCKS5_OK, "fe80::a", 80, true },
	/* Other spellings of an address stay names: nothing here counts in octal. */
	{ { "\x05\x01\x00\x03\x05" "127.1" "\x00\x50", 12 }, SOCKS5_OK, "127.1", 80, false },
	{ { "\x05\x01\x00\x03\x00" "\x00\x50", 7 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x01" "." "\x00\x50", 8 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x03" "a\0b" "\x00\x50", 10 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x03" "a b" "\x00\x50", 10 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x04" "a..b" "\x00\x50", 11 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x02" ".a" "\x00\x50", 9 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x03" "a.." "\x00\x50", 10 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x03" "\xc3\xa4z" "\x00\x50", 10 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x0a" "127.0.0.1\0" "\x00\x50", 17 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x03\x09" "[1.2.3.4]" "\x00\x50", 16 }, SOCKS5_BAD_HOST, "", 0, false },
	{ { "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00", 10 }, SOCKS5_BAD_PORT, "127.0.0.1", 0, true },
	{ { "\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", 10 }, SOCKS5_BAD_COMMAND, "127.0.0.1", 80,
	    true },
	{ { "\x05\x09\x00\x03\x01" "a" "\x00\x50", 8 }, SOCKS5_BAD_COMMAND, "a", 80, false },
	{ { "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", 10 }, SOCKS5_OK, "0.0.0.0", 0, true },
	/* PySocks names its unknown address so (CASES 43). */
	{ { "\x05\x03\x00\x03\x01" "0" "\x00\x00", 8 }, SOCKS5_OK, "0", 0, false },
	{ { "\x05\x03\x00\x03\x00" "\x00\x00", 7 }, SOCKS5_OK, "", 0, false },
};

Test(socks5, request_table_at_every_split)
{
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		const struct request_row *row = &requests[i];
		struct socks5_request got;
		char with_more[64];

		for (size_t len = 0; len < row->in.len; len++)
			cr_expect_eq(socks5_parse_request(span_of(row->in.base, len), &got),
			    SOCKS5_MORE, "row %zu, %zu bytes", i, len);
		memcpy(with_more, row->in.base, row->in.len);
		memcpy(with_more + row->in.len, "early", 5);
		cr_expect_eq(socks5_parse_request(span_of(with_more, row->in.len + 5), &got),
		    row->verdict, "row %zu", i);
		cr_expect_eq(got.used, row->in.len, "row %zu", i);
		if (row->verdict == SOCKS5_BAD_HOST)
			continue;
		cr_expect_eq(got.target.port, row->port, "row %zu", i);
		cr_expect_eq(target_is_literal(&got.target), row->literal, "row %zu", i);
		if (row->host[0] != '\0')
			cr_expect_str_eq(host_text(&got.target), row->host, "row %zu", i);
	}
}

Test(socks5, domain_of_255_bytes)
{
	char in[SOCKS5_REQUEST_MAX] = "\x05\x01\x00\x03\xff";
	struct socks5_request got;

	memset(in + 5, 'A', 255);
	in[261] = 1;
	cr_assert_eq(socks5_parse_request(span_of(in, 261), &got), SOCKS5_MORE);
	cr_assert_eq(socks5_parse_request(span_of(in, 262), &got), SOCKS5_OK);
	cr_expect_eq(got.used, SOCKS5_REQUEST_MAX);
	cr_expect_eq(got.target.host_len, 255);
	cr_expect_eq(strlen(got.target.host), 255);
	cr_expect_eq(got.target.host[254], 'a');
}

Test(socks5, request_errors_that_need_no_more)
{
	struct socks5_request got;

	cr_expect_eq(socks5_parse_request(BYTES("\x04"), &got), SOCKS5_MALFORMED);
	cr_expect_eq(socks5_parse_request(BYTES("\x05\x01\x00\x02"), &got), SOCKS5_BAD_ATYP);
	cr_expect_eq(socks5_parse_request(BYTES("\x05\x02\x00\x00"), &got), SOCKS5_BAD_ATYP);
}

Test(socks5, localhost_is_flagged)
{
	struct socks5_request got;

	socks5_parse_request(BYTES("\x05\x01\x00\x03\x0a" "LocalHost." "\x00\x50"), &got);
	cr_expect(got.target.loopback_name);
	socks5_parse_request(BYTES("\x05\x01\x00\x03\x0b" "a.localhost" "\x00\x50"), &got);
	cr_expect(got.target.loopback_name);
	socks5_parse_request(BYTES("\x05\x01\x00\x03\x0a" "alocalhost" "\x00\x50"), &got);
	cr_expect_not(got.target.loopback_name);
}

Test(socks5, pipelined_greeting_and_request)
{
	struct span in = BYTES("\x05\x01\x00" "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x16" "SSH");
	struct socks5_greeting greeting;
	struct socks5_request request;

	cr_assert_eq(socks5_parse_greeting(in, &greeting), SOCKS5_OK);
	in = span_of(in.base + greeting.used, in.len - greeting.used);
	cr_assert_eq(socks5_parse_request(in, &request), SOCKS5_OK);
	in = span_of(in.base + request.used, in.len - request.used);
	cr_expect(span_is(in, "SSH"));
}

Test(socks5, reply_codes)
{
	cr_expect_eq(socks5_rep_for(SOCKS5_OK), 0);
	cr_expect_eq(socks5_rep_for(SOCKS5_MALFORMED), 1);
	cr_expect_eq(socks5_rep_for(SOCKS5_BAD_PORT), 1);
	cr_expect_eq(socks5_rep_for(SOCKS5_BAD_HOST), 4);
	cr_expect_eq(socks5_rep_for(SOCKS5_BAD_COMMAND), 7);
	cr_expect_eq(socks5_rep_for(SOCKS5_BAD_ATYP), 8);
}

Test(socks5, replies_have_exact_lengths)
{
	uint8_t out[SOCKS5_REPLY_MAX];
	struct addr addr;

	cr_assert_eq(socks5_write_reply(SOCKS5_REP_REFUSED, NULL, out), 10);
	cr_expect_arr_eq(out, "\x05\x05\x00\x01\0\0\0\0\0\0", 10);
	cr_assert(addr_parse_ip(span_str("10.1.2.3"), 0x1234, &addr));
	cr_assert_eq(socks5_write_reply(SOCKS5_REP_OK, &addr, out), 10);
	cr_expect_arr_eq(out, "\x05\x00\x00\x01\x0a\x01\x02\x03\x12\x34", 10);
	cr_assert(addr_parse_ip(span_str("::2"), 0x1234, &addr));
	cr_assert_eq(socks5_write_reply(SOCKS5_REP_OK, &addr, out), 22);
	cr_expect_arr_eq(out, "\x05\x00\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\x12\x34", 22);
	cr_assert(addr_parse_ip(span_str("::ffff:10.1.2.3"), 0x1234, &addr));
	cr_assert_eq(socks5_write_reply(SOCKS5_REP_OK, &addr, out), 10);
	cr_expect_arr_eq(out, "\x05\x00\x00\x01\x0a\x01\x02\x03\x12\x34", 10);
}

Test(socks4, request_table_at_every_split)
{
	static const struct {
		struct span	 in;
		enum socks4_verdict verdict;
		const char	*user, *host;
		uint16_t	 port;
	} rows[] = {
		{ { "\x04\x01\x00\x50\x0a\0\0\x01\0", 9 }, SOCKS4_OK, "", "10.0.0.1", 80 },
		{ { "\x04\x01\x00\x50\x0a\0\0\x01" "bob\0", 12 }, SOCKS4_OK, "bob", "10.0.0.1", 80 },
		{ { "\x04\x01\x00\x50\0\0\0\x01" "b\0Ex.org\0", 17 }, SOCKS4_OK, "b", "ex.org", 80 },
		{ { "\x04\x01\x00\x50\0\0\0\x01" "\0::1\0", 13 }, SOCKS4_OK, "", "::1", 80 },
		/* 0.0.0.0 is an address, not 4a. */
		{ { "\x04\x01\x00\x50\0\0\0\0\0", 9 }, SOCKS4_OK, "", "0.0.0.0", 80 },
		{ { "\x04\x02\x00\x50\x0a\0\0\x01\0", 9 }, SOCKS4_BAD_COMMAND, "", "10.0.0.1", 80 },
		{ { "\x04\x01\x00\x00\x0a\0\0\x01\0", 9 }, SOCKS4_BAD_PORT, "", "10.0.0.1", 0 },
		{ { "\x04\x01\x00\x50\0\0\0\x01" "\0\0", 10 }, SOCKS4_BAD_HOST, "", "", 80 },
		{ { "\x04\x01\x00\x50\0\0\0\x01" "\0a b\0", 13 }, SOCKS4_BAD_HOST, "", "", 80 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct socks4_request got;
		char with_more[64];

		for (size_t len = 0; len < rows[i].in.len; len++)
			cr_expect_eq(socks4_parse_request(span_of(rows[i].in.base, len), &got),
			    SOCKS4_MORE, "row %zu, %zu bytes", i, len);
		memcpy(with_more, rows[i].in.base, rows[i].in.len);
		memcpy(with_more + rows[i].in.len, "early", 5);
		cr_expect_eq(socks4_parse_request(span_of(with_more, rows[i].in.len + 5), &got),
		    rows[i].verdict, "row %zu", i);
		cr_expect_eq(got.used, rows[i].in.len, "row %zu", i);
		cr_expect(span_is(got.user, rows[i].user), "row %zu", i);
		if (rows[i].host[0] != '\0')
			cr_expect_str_eq(host_text(&got.target), rows[i].host, "row %zu", i);
		cr_expect_eq(got.target.port, rows[i].port, "row %zu", i);
	}
}

Test(socks4, texts_are_bounded)
{
	char in[SOCKS4_REQUEST_MAX + 8] = "\x04\x01\x00\x50\x00\x00\x00\x01";
	struct socks4_request got;

	memset(in + 8, 'u', sizeof(in) - 8);
	cr_expect_eq(socks4_parse_request(span_of(in, 8 + 255), &got), SOCKS4_MORE);
	cr_expect_eq(socks4_parse_request(span_of(in, 8 + 256), &got), SOCKS4_MALFORMED);
	in[8 + 255] = '\0';
	cr_expect_eq(socks4_parse_request(span_of(in, 8 + 256 + 255), &got), SOCKS4_MORE);
	cr_expect_eq(socks4_parse_request(span_of(in, 8 + 256 + 256), &got), SOCKS4_MALFORMED);
	in[8 + 256 + 255] = '\0';
	cr_expect_eq(socks4_parse_request(span_of(in, sizeof(in)), &got), SOCKS4_OK);
	cr_expect_eq(got.used, SOCKS4_REQUEST_MAX);
	cr_expect_eq(socks4_parse_request(BYTES("\x05"), &got), SOCKS4_MALFORMED);
}

Test(socks4, replies)
{
	uint8_t out[SOCKS4_REPLY_LEN];
	struct addr addr;

	cr_assert_eq(socks4_write_reply(SOCKS4_REP_REFUSED, NULL, out), 8);
	cr_expect_arr_eq(out, "\x00\x5b\0\0\0\0\0\0", 8);
	cr_assert(addr_parse_ip(span_str("10.1.2.3"), 0x1234, &addr));
	cr_assert_eq(socks4_write_reply(SOCKS4_REP_GRANTED, &addr, out), 8);
	cr_expect_arr_eq(out, "\x00\x5a\x12\x34\x0a\x01\x02\x03", 8);
}

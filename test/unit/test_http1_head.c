/* SPDX-License-Identifier: ISC */
/* HTTP/1 heads and framing: RFC 9112, CASES 18, 19, 21, 24, 25. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

enum {
	FIELDS = 16,
	BYTES = 4096
};

static struct http1_field fields[FIELDS];

static enum http1_verdict
parse(struct http1_head *head, bool response, struct span in)
{
	return response ? http1_parse_response(head, in) : http1_parse_request(head, in);
}

/* From a block of the exact size, so that the sanitizer sees every step beyond it. */
static enum http1_verdict
once(struct http1_head *head, bool response, struct span in)
{
	static char *copy;

	free(copy);
	copy = malloc(in.len != 0 ? in.len : 1);
	memcpy(copy, in.base, in.len);
	http1_head_init(head, fields, FIELDS, BYTES);
	return parse(head, response, span_of(copy, in.len));
}

/* The same head in two pieces at every place, and a byte at a time. */
static void
check_splits(bool response, struct span in, enum http1_verdict want, size_t used)
{
	struct http1_head head;
	enum http1_verdict got;

	for (size_t first = 1; first < in.len; first++) {
		http1_head_init(&head, fields, FIELDS, BYTES);
		got = parse(&head, response, span_of(in.base, first));
		if (got == HTTP1_MORE)
			got = parse(&head, response, in);
		if (want == HTTP1_OK) {
			cr_expect_eq(got, want, "split at %zu: %s", first, http1_verdict_cause(got));
			cr_expect_eq(head.used, used, "split at %zu", first);
		} else {
			cr_expect_gt(got, HTTP1_DATA, "split at %zu of %.*s", first, (int)in.len,
			    in.base);
		}
	}
	http1_head_init(&head, fields, FIELDS, BYTES);
	got = HTTP1_MORE;
	for (size_t len = 1; len <= in.len && got == HTTP1_MORE; len++)
		got = parse(&head, response, span_of(in.base, len));
	if (want == HTTP1_OK)
		cr_expect_eq(got, want);
	else
		cr_expect_gt(got, HTTP1_DATA);
}

struct row {
	const char		*text;
	enum http1_verdict	 verdict;
};

#define H "Host: a\r\n"

static const struct row request_rows[] = {
	{ "GET / HTTP/1.1\r\n" H "\r\n", HTTP1_OK },
	{ "GET / HTTP/1.1\r\nhOsT:a\r\n\r\n", HTTP1_OK },
	{ "GET / HTTP/1.0\r\n\r\n", HTTP1_OK },
	{ "GET / HTTP/1.9\r\n" H "\r\n", HTTP1_OK },
	{ "\r\nGET / HTTP/1.1\r\n" H "\r\n", HTTP1_OK },
	{ "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", HTTP1_OK },
	{ "\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "BREW-IT /pot HTTP/1.1\r\n" H "\r\n", HTTP1_OK },
	{ "GET / HTTP/1.1\r\n" H "X:\r\nY: \t \r\n\r\n", HTTP1_OK },
	{ "GET / HTTP/1.1\r\n" H "X: tab\tin \xc3\xa4 the middle\r\n\r\n", HTTP1_OK },
	/* request lines */
	{ "GET / HTTP/2.0\r\n" H "\r\n", HTTP1_BAD_VERSION },
	{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP1_BAD_VERSION },
	{ "GET / HTTP/0.9\r\n" H "\r\n", HTTP1_BAD_VERSION },
	{ "GET / HTTP/1.10\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET / http/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET / HTTP/1,1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET / HTTP/1.1 \r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET  / HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET /  HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET /a b HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET /#top HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET\t/ HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET /\r\n\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET\r\n\r\n", HTTP1_BAD_REQUEST_LINE },
	{ " GET / HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "G(T / HTTP/1.1\r\n" H "\r\n", HTTP1_BAD_REQUEST_LINE },
	{ "GET / HTTP/1.1\n" H "\r\n", HTTP1_BARE_LF },
	{ "GET / HTTP/1.1\r" H "\r\n", HTTP1_BARE_CR },
	/* field lines, CASES 21 */
	{ "GET / HTTP/1.1\r\n" H "X: a\nY: b\r\n\r\n", HTTP1_BARE_LF },
	{ "GET / HTTP/1.1\r\n" H "X: a\rY: b\r\n\r\n", HTTP1_BARE_CR },
	{ "GET / HTTP/1.1\r\n" H "X: a\r\n\n", HTTP1_BARE_LF },
	{ "GET / HTTP/1.1\nHost: a\n\n", HTTP1_BARE_LF },
	{ "GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n", HTTP1_OBS_FOLD },
	{ "GET / HTTP/1.1\r\n" H "X: a\r\n\tb\r\n\r\n", HTTP1_OBS_FOLD },
	{ "GET / HTTP/1.1\r\n Host: a\r\n\r\n", HTTP1_OBS_FOLD },
	{ "GET / HTTP/1.1\r\nHost : a\r\n\r\n", HTTP1_SPACE_BEFORE_COLON },
	{ "GET / HTTP/1.1\r\n" H "Content-Length\t: 5\r\n\r\n", HTTP1_SPACE_BEFORE_COLON },
	{ "GET / HTTP/1.1\r\n" H ": a\r\n\r\n", HTTP1_BAD_FIELD_NAME },
	{ "GET / HTTP/1.1\r\n" H "nocolon\r\n\r\n", HTTP1_BAD_FIELD_NAME },
	{ "GET / HTTP/1.1\r\n" H "\xc3\xa4: a\r\n\r\n", HTTP1_BAD_FIELD_NAME },
	{ "GET / HTTP/1.1\r\n" H "X\xff: a\r\n\r\n", HTTP1_BAD_FIELD_NAME },
	{ "GET / HTTP/1.1\r\n" H "X(: a\r\n\r\n", HTTP1_BAD_FIELD_NAME },
	{ "GET / HTTP/1.1\r\n" H "X: a\x01\r\n\r\n", HTTP1_CONTROL_BYTE },
	{ "GET / HTTP/1.1\r\n" H "X: aaaaaaaaaaaa\x7f" "bbbbbbbbbbb\r\n\r\n", HTTP1_CONTROL_BYTE },
	{ "GET / HTTP/1.1\r\n" H "X\x0b: a\r\n\r\n", HTTP1_CONTROL_BYTE },
	/* Host */
	{ "GET / HTTP/1.1\r\n\r\n", HTTP1_NO_HOST },
	{ "CONNECT a:1 HTTP/1.1\r\n\r\n", HTTP1_NO_HOST },
	{ "GET / HTTP/1.1\r\n" H H "\r\n", HTTP1_REPEATED_HOST },
	{ "GET / HTTP/1.0\r\n" H "host: b\r\n\r\n", HTTP1_REPEATED_HOST },
	/* Content-Length, CASES 19 */
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", HTTP1_OK },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length:  9223372036854775807 \r\n\r\n", HTTP1_OK },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 9223372036854775808\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 18446744073709551617\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: -5\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 0x5\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 5 5\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 5, 5\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 5.0\r\n\r\n", HTTP1_BAD_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
	    HTTP1_REPEATED_LENGTH },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 5\r\ncontent-length: 6\r\n\r\n",
	    HTTP1_REPEATED_LENGTH },
	/* Transfer-Encoding, CASES 18 */
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", HTTP1_OK },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n", HTTP1_OK },
	{ "PUT / HTTP/1.1\r\n" H "transfer-encoding:CHUNKED\t\r\n\r\n", HTTP1_OK },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	    HTTP1_LENGTH_AND_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\n",
	    HTTP1_LENGTH_AND_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	    HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, chunked\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: \"chunked\"\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked;q=1\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: ,\r\n\r\n", HTTP1_BAD_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", HTTP1_UNKNOWN_CODING },
	{ "PUT / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
	    HTTP1_UNKNOWN_CODING },
	{ "PUT / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n", HTTP1_CODING_IN_10 },
};

Test(http1_head, requests)
{
	for (size_t i = 0; i < sizeof(request_rows) / sizeof(request_rows[0]); i++) {
		struct span in = span_str(request_rows[i].text);
		struct http1_head head;
		enum http1_verdict got = once(&head, false, in);

		cr_expect_eq(got, request_rows[i].verdict, "%s\n-> %s, not %s", in.base,
		    http1_verdict_cause(got), http1_verdict_cause(request_rows[i].verdict));
		check_splits(false, in, request_rows[i].verdict, in.len);
	}
}

Test(http1_head, nul_bytes_are_refused)
{
	static const char name[] = "GET / HTTP/1.1\r\nHo\0st: a\r\n\r\n";
	static const char value[] = "GET / HTTP/1.1\r\nHost: a\0.b\r\n\r\n";
	static const char line[] = "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n";
	struct http1_head head;

	cr_expect_eq(once(&head, false, span_of(name, sizeof(name) - 1)), HTTP1_CONTROL_BYTE);
	cr_expect_eq(once(&head, false, span_of(value, sizeof(value) - 1)), HTTP1_CONTROL_BYTE);
	cr_expect_eq(once(&head, false, span_of(line, sizeof(line) - 1)), HTTP1_CONTROL_BYTE);
}

Test(http1_head, every_control_byte_at_every_offset_of_a_value)
{
	char text[] = "GET / HTTP/1.1\r\nHost: a\r\nX: 0123456789abcdefghijklm\r\n\r\n";
	char *value = strstr(text, "0123");
	struct http1_head head;

	for (int c = 0; c < 256; c++) {
		bool good = c == '\t' || (c >= ' ' && c != 0x7f);

		for (size_t at = 1; at < 22; at++) {
			char kept = value[at];

			value[at] = (char)c;
			cr_expect_eq(once(&head, false, span_of(text, sizeof(text) - 1)) == HTTP1_OK,
			    good, "byte %d at %zu", c, at);
			value[at] = kept;
		}
	}
}

Test(http1_head, spans_and_fields)
{
	struct span in = span_str("\r\nPOST http://a/b?c HTTP/1.1\r\nHost: a\r\n"
	    "X-One:  two words \t\r\nCONNECTION: Keep-Alive , , Upgrade\r\nTE: trailers;q=1, x\r\n"
	    "te:trailers\r\nContent-Length: 12\r\n\r\nbody");
	struct http1_head head;

	cr_assert_eq(once(&head, false, in), HTTP1_OK);
	cr_expect_eq(head.used, in.len - 4);
	cr_expect_eq(head.method, HTTP1_M_POST);
	cr_expect(span_is(head.method_text, "POST"));
	cr_expect(span_is(head.target_text, "http://a/b?c"));
	cr_expect_eq(head.minor, 1);
	cr_assert_eq(head.field_count, 6);
	cr_expect(span_is(head.fields[1].name, "X-One"));
	cr_expect(span_is(head.fields[1].value, "two words"));
	cr_expect_eq(head.fields[1].id, HTTP1_F_OTHER);
	cr_expect_eq(head.fields[2].id, HTTP1_F_CONNECTION);
	cr_expect(head.conn_keep_alive && head.conn_upgrade && !head.conn_close);
	cr_expect(head.te_trailers);
	cr_expect(head.has_length);
	cr_expect_eq(head.length, 12);
	cr_expect_eq(http1_find(&head, HTTP1_F_TE, 0), 3);
	cr_expect_eq(http1_find(&head, HTTP1_F_TE, 4), 4);
	cr_expect_eq(http1_find(&head, HTTP1_F_TE, 5), -1);
	cr_expect_eq(http1_find(&head, HTTP1_F_COOKIE, 0), -1);
	cr_expect_eq(http1_find_name(&head, "x-oNe", 0), 1);
}

Test(http1_head, known_names_in_any_case)
{
	static const struct {
		const char *name;
		enum http1_field_id id;
	} rows[] = {
		{ "Accept", HTTP1_F_ACCEPT },
		{ "Accept-Encoding", HTTP1_F_ACCEPT_ENCODING },
		{ "Accept-Language", HTTP1_F_ACCEPT_LANGUAGE },
		{ "Accept-Ranges", HTTP1_F_ACCEPT_RANGES },
		{ "Age", HTTP1_F_AGE },
		{ "Allow", HTTP1_F_ALLOW },
		{ "Authorization", HTTP1_F_AUTHORIZATION },
		{ "Cache-Control", HTTP1_F_CACHE_CONTROL },
		{ "Cache-Status", HTTP1_F_CACHE_STATUS },
		{ "CDN-Cache-Control", HTTP1_F_CDN_CACHE_CONTROL },
		{ "Connection", HTTP1_F_CONNECTION },
		{ "Content-Encoding", HTTP1_F_CONTENT_ENCODING },
		{ "Content-Length", HTTP1_F_CONTENT_LENGTH },
		{ "Content-Location", HTTP1_F_CONTENT_LOCATION },
		{ "Content-Range", HTTP1_F_CONTENT_RANGE },
		{ "Content-Type", HTTP1_F_CONTENT_TYPE },
		{ "Cookie", HTTP1_F_COOKIE },
		{ "Date", HTTP1_F_DATE },
		{ "ETag", HTTP1_F_ETAG },
		{ "Expect", HTTP1_F_EXPECT },
		{ "Expires", HTTP1_F_EXPIRES },
		{ "Forwarded", HTTP1_F_FORWARDED },
		{ "Host", HTTP1_F_HOST },
		{ "If-Match", HTTP1_F_IF_MATCH },
		{ "If-Modified-Since", HTTP1_F_IF_MODIFIED_SINCE },
		{ "If-None-Match", HTTP1_F_IF_NONE_MATCH },
		{ "If-Range", HTTP1_F_IF_RANGE },
		{ "If-Unmodified-Since", HTTP1_F_IF_UNMODIFIED_SINCE },
		{ "Keep-Alive", HTTP1_F_KEEP_ALIVE },
		{ "Last-Modified", HTTP1_F_LAST_MODIFIED },
		{ "Location", HTTP1_F_LOCATION },
		{ "Max-Forwards", HTTP1_F_MAX_FORWARDS },
		{ "Origin", HTTP1_F_ORIGIN },
		{ "Pragma", HTTP1_F_PRAGMA },
		{ "Proxy-Authenticate", HTTP1_F_PROXY_AUTHENTICATE },
		{ "Proxy-Authentication-Info", HTTP1_F_PROXY_AUTHENTICATION_INFO },
		{ "Proxy-Authorization", HTTP1_F_PROXY_AUTHORIZATION },
		{ "Proxy-Connection", HTTP1_F_PROXY_CONNECTION },
		{ "Proxy-Status", HTTP1_F_PROXY_STATUS },
		{ "Range", HTTP1_F_RANGE },
		{ "Referer", HTTP1_F_REFERER },
		{ "Retry-After", HTTP1_F_RETRY_AFTER },
		{ "Server", HTTP1_F_SERVER },
		{ "Set-Cookie", HTTP1_F_SET_COOKIE },
		{ "TE", HTTP1_F_TE },
		{ "Trailer", HTTP1_F_TRAILER },
		{ "Transfer-Encoding", HTTP1_F_TRANSFER_ENCODING },
		{ "Upgrade", HTTP1_F_UPGRADE },
		{ "User-Agent", HTTP1_F_USER_AGENT },
		{ "Vary", HTTP1_F_VARY },
		{ "Via", HTTP1_F_VIA },
		{ "Warning", HTTP1_F_WARNING },
		{ "WWW-Authenticate", HTTP1_F_WWW_AUTHENTICATE },
		{ "X-Forwarded-For", HTTP1_F_X_FORWARDED_FOR },
	};

	cr_assert_eq(sizeof(rows) / sizeof(rows[0]), HTTP1_F_COUNT - 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[32];
		size_t len = strlen(rows[i].name);

		cr_expect_eq(http1_field_lookup(span_str(rows[i].name)), rows[i].id, "%s",
		    rows[i].name);
		snprintf(name, sizeof(name), "%s", rows[i].name);
		for (size_t k = 0; k < len; k++)
			if (name[k] >= 'a' && name[k] <= 'z')
				name[k] = (char)(name[k] - 32);
		cr_expect_eq(http1_field_lookup(span_of(name, len)), rows[i].id, "%s", name);
		name[len - 1] ^= 1;
		cr_expect_eq(http1_field_lookup(span_of(name, len)), HTTP1_F_OTHER, "%s", name);
	}
	cr_expect_eq(http1_field_lookup(span_str("Content_Length")), HTTP1_F_OTHER);
	cr_expect_eq(http1_field_lookup(span_str("")), HTTP1_F_OTHER);
}

Test(http1_head, limits)
{
	static char big[BYTES + 100];
	struct http1_head head;
	size_t len;

	/* A request line that fills the limit: 414, whole or in pieces. */
	memset(big, 'a', sizeof(big));
	memcpy(big, "GET /", 5);
	cr_expect_eq(once(&head, false, span_of(big, BYTES - 1)), HTTP1_MORE);
	cr_expect_eq(parse(&head, false, span_of(big, BYTES)), HTTP1_URI_TOO_LONG);
	cr_expect_eq(once(&head, false, span_of(big, sizeof(big))), HTTP1_URI_TOO_LONG);
	/* Fields that do: 431. */
	memcpy(big, "GET / HTTP/1.1\r\nHost: a\r\nX: ", 28);
	cr_expect_eq(once(&head, false, span_of(big, BYTES)), HTTP1_HEAD_TOO_LARGE);
	cr_expect_eq(once(&head, true, span_of("HTTP/1.1 200 ", 13)), HTTP1_MORE);
	/* A head of exactly the limit is fine, one byte more is not. */
	memcpy(big + BYTES - 4, "\r\n\r\nrest", 8);
	cr_expect_eq(once(&head, false, span_of(big, sizeof(big))), HTTP1_OK);
	cr_expect_eq(head.used, BYTES);
	memcpy(big + BYTES - 4, "a\r\n\r\nrest", 9);
	cr_expect_eq(once(&head, false, span_of(big, sizeof(big))), HTTP1_HEAD_TOO_LARGE);
	/* Count of fields. */
	len = (size_t)snprintf(big, sizeof(big), "GET / HTTP/1.1\r\nHost: a\r\n");
	for (int i = 1; i < FIELDS; i++)
		len += (size_t)snprintf(big + len, sizeof(big) - len, "A: b\r\n");
	memcpy(big + len, "\r\n", 2);
	cr_expect_eq(once(&head, false, span_of(big, len + 2)), HTTP1_OK);
	cr_expect_eq(head.field_count, FIELDS);
	memcpy(big + len, "A: b\r\n\r\n", 8);
	cr_expect_eq(once(&head, false, span_of(big, len + 8)), HTTP1_TOO_MANY_FIELDS);
	cr_expect_eq(http1_verdict_status(HTTP1_TOO_MANY_FIELDS), 431);
	cr_expect_eq(http1_verdict_status(HTTP1_HEAD_TOO_LARGE), 431);
	cr_expect_eq(http1_verdict_status(HTTP1_URI_TOO_LONG), 414);
}

Test(http1_head, a_byte_at_a_time_is_not_parsed_again_each_time)
{
	/* The resume offset follows the input, but for a CR whose LF is not there. */
	struct span in = span_str("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n");
	struct http1_head head;

	http1_head_init(&head, fields, FIELDS, BYTES);
	for (size_t len = 1; len < in.len; len++) {
		cr_assert_eq(http1_parse_request(&head, span_of(in.base, len)), HTTP1_MORE);
		cr_assert_geq(head.scanned + 1, len);
	}
	cr_assert_eq(http1_parse_request(&head, in), HTTP1_OK);
}

Test(http1_head, every_verdict_has_status_and_cause)
{
	for (enum http1_verdict v = HTTP1_OK; v < HTTP1_VERDICT_COUNT; v++) {
		cr_expect_neq(http1_verdict_status(v), 0, "verdict %d", (int)v);
		cr_expect_not_null(http1_verdict_cause(v), "verdict %d", (int)v);
	}
}

/* ---- responses --------------------------------------------------------- */

static const struct row response_rows[] = {
	{ "HTTP/1.1 200 OK\r\n\r\n", HTTP1_OK },
	{ "HTTP/1.1 200 \r\n\r\n", HTTP1_OK },
	{ "HTTP/1.1 200\r\n\r\n", HTTP1_OK },
	{ "HTTP/1.0 404 Not \xc3\xa4 Found\r\nServer: x\r\n\r\n", HTTP1_OK },
	{ "HTTP/1.1 2000 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "HTTP/1.1 20 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "HTTP/1.1 099 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "HTTP/1.1  200 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "HTTP/1.1 2x0 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "HTTP/2.0 200 OK\r\n\r\n", HTTP1_BAD_VERSION },
	{ "ICY 200 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "\r\nHTTP/1.1 200 OK\r\n\r\n", HTTP1_BAD_STATUS_LINE },
	{ "SSH-2.0-x\r\n", HTTP1_BAD_STATUS_LINE },
	{ "HTTP/1.1 200 OK\n\n", HTTP1_BARE_LF },
	{ "HTTP/1.1 200 O\rK\r\n\r\n", HTTP1_BARE_CR },
	{ "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", HTTP1_OBS_FOLD },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
	    HTTP1_REPEATED_LENGTH },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	    HTTP1_LENGTH_AND_CODING },
	{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", HTTP1_BAD_CODING },
	{ "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_CODING_IN_10 },
	{ "HTTP/1.1 200 OK\r\nHost: a\r\nHost: b\r\n\r\n", HTTP1_OK },
};

Test(http1_head, responses)
{
	for (size_t i = 0; i < sizeof(response_rows) / sizeof(response_rows[0]); i++) {
		struct span in = span_str(response_rows[i].text);
		struct http1_head head;
		enum http1_verdict got = once(&head, true, in);

		cr_expect_eq(got, response_rows[i].verdict, "%s\n-> %s", in.base,
		    http1_verdict_cause(got));
		check_splits(true, in, response_rows[i].verdict, in.len);
	}
}

Test(http1_head, response_spans)
{
	struct http1_head head;

	cr_assert_eq(once(&head, true, span_str("HTTP/1.0 503 So sorry\r\n\r\n")), HTTP1_OK);
	cr_expect_eq(head.status, 503);
	cr_expect_eq(head.minor, 0);
	cr_expect(span_is(head.reason, "So sorry"));
}

/* ---- framing ----------------------------------------------------------- */

struct framing_row {
	const char		*text;
	enum http1_method	 method;
	enum http1_body		 body;
	uint64_t		 length;
	bool			 reusable;
};

#define R11 "HTTP/1.1 "
#define CL5 "Content-Length: 5\r\n"
#define TEC "Transfer-Encoding: chunked\r\n"

static const struct framing_row response_framings[] = {
	{ R11 "200 a\r\n" CL5 "\r\n", HTTP1_M_GET, HTTP1_BODY_LENGTH, 5, true },
	{ R11 "200 a\r\n" TEC "\r\n", HTTP1_M_GET, HTTP1_BODY_CHUNKED, 0, true },
	{ R11 "200 a\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_CLOSE, 0, false },
	{ R11 "200 a\r\n" CL5 "Connection: close\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_LENGTH, 5, false },
	{ "HTTP/1.0 200 a\r\n" CL5 "\r\n", HTTP1_M_GET, HTTP1_BODY_LENGTH, 5, false },
	{ "HTTP/1.0 200 a\r\n" CL5 "Connection: keep-alive\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_LENGTH, 5,
	    true },
	{ R11 "200 a\r\n" CL5 "\r\n", HTTP1_M_HEAD, HTTP1_BODY_NONE, 0, true },
	{ R11 "200 a\r\n" TEC "\r\n", HTTP1_M_HEAD, HTTP1_BODY_NONE, 0, true },
	{ R11 "304 a\r\n" CL5 "\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, true },
	{ R11 "204 a\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, true },
	{ R11 "204 a\r\nContent-Length: 0\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, true },
	/* Whoever announces a body with 204 may send it: that connection is not used again. */
	{ R11 "204 a\r\n" CL5 "\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, false },
	{ R11 "204 a\r\n" TEC "\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, false },
	{ R11 "100 a\r\n\r\n", HTTP1_M_PUT, HTTP1_BODY_NONE, 0, true },
	{ R11 "103 a\r\nLink: x\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, true },
	{ R11 "101 a\r\nConnection: upgrade\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_TUNNEL, 0, false },
	{ R11 "200 a\r\n" CL5 "\r\n", HTTP1_M_CONNECT, HTTP1_BODY_TUNNEL, 0, false },
	{ R11 "407 a\r\n" CL5 "\r\n", HTTP1_M_CONNECT, HTTP1_BODY_LENGTH, 5, true },
};

Test(http1_head, response_framing)
{
	for (size_t i = 0; i < sizeof(response_framings) / sizeof(response_framings[0]); i++) {
		const struct framing_row *row = &response_framings[i];
		struct http1_framing got;
		struct http1_head head;

		cr_assert_eq(once(&head, true, span_str(row->text)), HTTP1_OK, "row %zu", i);
		http1_response_body(&head, row->method, &got);
		cr_expect_eq(got.body, row->body, "row %zu", i);
		cr_expect_eq(got.length, row->length, "row %zu", i);
		cr_expect_eq(got.reusable, row->reusable, "row %zu", i);
	}
}

static const struct framing_row request_framings[] = {
	{ "GET / HTTP/1.1\r\n" H "\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, true },
	{ "GET / HTTP/1.1\r\n" H CL5 "\r\n", HTTP1_M_GET, HTTP1_BODY_LENGTH, 5, true },
	{ "POST / HTTP/1.1\r\n" H TEC "\r\n", HTTP1_M_POST, HTTP1_BODY_CHUNKED, 0, true },
	{ "POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", HTTP1_M_POST, HTTP1_BODY_LENGTH,
	    0, true },
	{ "GET / HTTP/1.0\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, false },
	{ "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0, true },
	{ "GET / HTTP/1.1\r\n" H "Connection: foo, CLOSE\r\n\r\n",
	    HTTP1_M_GET, HTTP1_BODY_NONE, 0, false },
	{ "GET / HTTP/1.1\r\n" H "Connection: close, keep-alive\r\n\r\n", HTTP1_M_GET, HTTP1_BODY_NONE, 0,
	    false },
	{ "CONNECT a:1 HTTP/1.1\r\n" H "\r\n", HTTP1_M_CONNECT, HTTP1_BODY_NONE, 0, true },
	{ "CONNECT a:1 HTTP/1.1\r\n" H CL5 "\r\n", HTTP1_M_CONNECT, HTTP1_BODY_NONE, 0, false },
};

Test(http1_head, request_framing)
{
	for (size_t i = 0; i < sizeof(request_framings) / sizeof(request_framings[0]); i++) {
		const struct framing_row *row = &request_framings[i];
		struct http1_framing got;
		struct http1_head head;

		cr_assert_eq(once(&head, false, span_str(row->text)), HTTP1_OK, "row %zu", i);
		http1_request_body(&head, &got);
		cr_expect_eq(head.method, row->method, "row %zu", i);
		cr_expect_eq(got.body, row->body, "row %zu", i);
		cr_expect_eq(got.length, row->length, "row %zu", i);
		cr_expect_eq(got.reusable, row->reusable, "row %zu", i);
	}
}

/* ---- connection -------------------------------------------------------- */

static bool
stays_behind(const struct http1_head *head, const char *name)
{
	ssize_t i = http1_find_name(head, name, 0);

	cr_assert_geq(i, 0, "%s", name);
	return http1_is_hop_by_hop(head, (size_t)i);
}

Test(http1_head, hop_by_hop)
{
	struct http1_head head;

	cr_assert_eq(once(&head, false, span_str("GET / HTTP/1.1\r\nHost: a\r\n"
	    "Connection: close, Cache-Control, Host , content-length,X-Mine\r\n"
	    "Connection: Connection, Cookie\r\n"
	    "Cache-Control: no-cache\r\nContent-Length: 3\r\nx-mine: 1\r\nX-Yours: 1\r\n"
	    "Cookie: c\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\n"
	    "Proxy-Whatever: x\r\nTE: gzip\r\nUpgrade: h2c\r\n\r\n")), HTTP1_OK);
	cr_expect(stays_behind(&head, "Connection"));
	cr_expect_not(stays_behind(&head, "Host"));
	cr_expect_not(stays_behind(&head, "Cache-Control"));
	cr_expect_not(stays_behind(&head, "Content-Length"));
	cr_expect_not(stays_behind(&head, "Cookie"));
	cr_expect_not(stays_behind(&head, "X-Yours"));
	cr_expect(stays_behind(&head, "X-Mine"));
	cr_expect(stays_behind(&head, "Keep-Alive"));
	cr_expect(stays_behind(&head, "Proxy-Connection"));
	cr_expect(stays_behind(&head, "Proxy-Authorization"));
	cr_expect(stays_behind(&head, "Proxy-Whatever"));
	cr_expect(stays_behind(&head, "TE"));
	cr_expect(stays_behind(&head, "Upgrade"));
	cr_expect(head.conn_close);
	cr_assert_eq(once(&head, true, span_str(R11 "200 a\r\nProxy-Status: x\r\n"
	    "Proxy-Authenticate: Basic\r\nTransfer-Encoding: chunked\r\n\r\n")), HTTP1_OK);
	cr_expect_not(stays_behind(&head, "Proxy-Status"));
	cr_expect(stays_behind(&head, "Proxy-Authenticate"));
	cr_expect(stays_behind(&head, "Transfer-Encoding"));
}

Test(http1_head, helpers)
{
	struct http1_head head;

	cr_assert_eq(once(&head, false, span_str("GET / HTTP/1.1\r\n" H
	    "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nExpect: 100-Continue\r\n"
	    "Via: 1.0 fred, 1.1 Ringway (x, y)\r\n\r\n")), HTTP1_OK);
	cr_expect(http1_wants_websocket(&head));
	cr_expect(http1_expects_continue(&head));
	cr_expect(http1_via_names(&head, "ringway"));
	cr_expect(http1_via_names(&head, "fred"));
	cr_expect_not(http1_via_names(&head, "1.1"));
	cr_assert_eq(once(&head, false, span_str("GET / HTTP/1.0\r\n" H
	    "Upgrade: websocket\r\nExpect: 100-continue\r\nVia: ringway, 1.1 x\r\n\r\n")), HTTP1_OK);
	cr_expect_not(http1_wants_websocket(&head));
	cr_expect_not(http1_expects_continue(&head));
	cr_expect_not(http1_via_names(&head, "ringway"));
	cr_assert_eq(once(&head, false, span_str("GET / HTTP/1.1\r\n" H
	    "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n")), HTTP1_OK);
	cr_expect_not(http1_wants_websocket(&head));
}

Test(http1_head, lists)
{
	struct span rest = span_str(" ,a ,, \"b,\\\"c\" ; d\t,e"), member;

	cr_assert(http1_list_next(&rest, &member));
	cr_expect(span_is(member, "a"));
	cr_assert(http1_list_next(&rest, &member));
	cr_expect(span_is(member, "\"b,\\\"c\" ; d"));
	cr_assert(http1_list_next(&rest, &member));
	cr_expect(span_is(member, "e"));
	cr_expect_not(http1_list_next(&rest, &member));
	cr_expect_not(http1_list_next(&rest, &member));
	rest = span_str("\"open, a");
	cr_assert(http1_list_next(&rest, &member));
	cr_expect_not(http1_list_next(&rest, &member));
}

/* SPDX-License-Identifier: ISC */
/* Heads that we write: CASES 23 and 24 as far as it is writing. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/http1.h"

enum {
	FIELDS = 24,
	BYTES = 4096
};

static struct http1_field fields[FIELDS];
static char out[BYTES];

static const char *
request(const char *text, const struct http1_write_opts *opts)
{
	struct http1_head head;
	struct http1_where where;
	struct http1_framing framing;
	ssize_t len;

	http1_head_init(&head, fields, FIELDS, BYTES);
	cr_assert_eq(http1_parse_request(&head, span_str(text)), HTTP1_OK, "%s", text);
	cr_assert_eq(http1_request_target(&head, &where), HTTP1_OK, "%s", text);
	http1_request_body(&head, &framing);
	len = http1_write_request(&head, &where, &framing, opts, out, sizeof(out) - 1);
	cr_assert_gt(len, 0);
	/* One byte less does not fit, and is not written beyond. */
	for (size_t cap = 0; cap < (size_t)len; cap++) {
		static char small[BYTES];

		small[cap] = 42;
		cr_assert_eq(http1_write_request(&head, &where, &framing, opts, small, cap), -ENOSPC);
		cr_assert_eq(small[cap], 42);
	}
	out[len] = '\0';
	return out;
}

static const char *
response(const char *text, enum http1_method method, const struct http1_write_opts *opts)
{
	struct http1_head head;
	struct http1_framing framing;
	ssize_t len;

	http1_head_init(&head, fields, FIELDS, BYTES);
	cr_assert_eq(http1_parse_response(&head, span_str(text)), HTTP1_OK, "%s", text);
	http1_response_body(&head, method, &framing);
	len = http1_write_response(&head, &framing, opts, out, sizeof(out) - 1);
	cr_assert_gt(len, 0);
	out[len] = '\0';
	return out;
}

Test(http1_write, absolute_becomes_origin_form)
{
	struct http1_write_opts opts = { .via = HTTP1_PSEUDONYM, .conn = HTTP1_CONN_CLOSE };

	cr_expect_str_eq(request("GET http://Ex.org:8080/a?b HTTP/1.1\r\nUser-Agent: x\r\n"
	    "host: other\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\n"
	    "Accept: */*\r\n\r\n", &opts),
	    "GET /a?b HTTP/1.1\r\nHost: ex.org:8080\r\nUser-Agent: x\r\nAccept: */*\r\n"
	    "Via: 1.1 ringway\r\nConnection: close\r\n\r\n");
}

Test(http1_write, small_forms)
{
	struct http1_write_opts opts = { .via = NULL };

	cr_expect_str_eq(request("GET http://a:80 HTTP/1.0\r\n\r\n", &opts),
	    "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	cr_expect_str_eq(request("GET http://a?q HTTP/1.0\r\n\r\n", &opts),
	    "GET /?q HTTP/1.1\r\nHost: a\r\n\r\n");
	cr_expect_str_eq(request("OPTIONS http://[::1]:8 HTTP/1.0\r\n\r\n", &opts),
	    "OPTIONS * HTTP/1.1\r\nHost: [::1]:8\r\n\r\n");
	opts.via = "ringway";
	opts.conn = HTTP1_CONN_KEEP_ALIVE;
	cr_expect_str_eq(request("GET http://a/ HTTP/1.0\r\nVia: 1.1 x\r\n\r\n", &opts),
	    "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x\r\nVia: 1.0 ringway\r\n"
	    "Connection: keep-alive\r\n\r\n");
}

Test(http1_write, framing_is_written_once)
{
	struct http1_write_opts opts = { .via = NULL };

	cr_expect_str_eq(request("PUT http://a/ HTTP/1.1\r\nHost: a\r\n"
	    "Connection: content-length, host, cache-control, x-y\r\nX-Y: 1\r\n"
	    "Cache-Control: no-store\r\nContent-Length: 007\r\n\r\n", &opts),
	    "PUT / HTTP/1.1\r\nHost: a\r\nCache-Control: no-store\r\nContent-Length: 7\r\n\r\n");
	cr_expect_str_eq(request("PUT http://a/ HTTP/1.1\r\nHost: a\r\n"
	    "Connection: transfer-encoding\r\nTransfer-Encoding: CHUNKED,\r\n\r\n", &opts),
	    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
	cr_expect_str_eq(request("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
	    &opts), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
}

Test(http1_write, te_and_upgrade)
{
	struct http1_write_opts opts = { .upgrade = true };
	const char *text = "GET http://a/ HTTP/1.1\r\nHost: a\r\nTE: gzip, trailers\r\n"
	    "Connection: TE, keep-alive, Upgrade\r\nUpgrade: websocket\r\nHTTP2-Settings: x\r\n\r\n";

	cr_expect_str_eq(request(text, &opts), "GET / HTTP/1.1\r\nHost: a\r\nHTTP2-Settings: x\r\n"
	    "TE: trailers\r\nUpgrade: websocket\r\nConnection: TE, upgrade\r\n\r\n");
	opts.upgrade = false;
	opts.conn = HTTP1_CONN_CLOSE;
	cr_expect_str_eq(request(text, &opts), "GET / HTTP/1.1\r\nHost: a\r\nHTTP2-Settings: x\r\n"
	    "TE: trailers\r\nConnection: close, TE\r\n\r\n");
}

Test(http1_write, extra_fields_and_drops)
{
	static const enum http1_field_id drop[] = { HTTP1_F_MAX_FORWARDS, HTTP1_F_X_FORWARDED_FOR };
	struct http1_extra extra = { span_str("Max-Forwards"), span_str("4") };
	struct http1_write_opts opts = { .extra = &extra, .extra_count = 1, .drop = drop,
	    .drop_count = 2 };

	cr_expect_str_eq(request("TRACE http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 5\r\n"
	    "X-Forwarded-For: 1\r\nX: y\r\n\r\n", &opts),
	    "TRACE / HTTP/1.1\r\nHost: a\r\nX: y\r\nMax-Forwards: 4\r\n\r\n");
}

Test(http1_write, nothing_added_can_break_a_line)
{
	static const struct http1_extra bad[] = {
		{ { "X", 1 }, { "a\r\nY: b", 7 } },
		{ { "X", 1 }, { "a\nb", 3 } },
		{ { "X", 1 }, { "a\0b", 3 } },
		{ { "X:", 2 }, { "a", 1 } },
		{ { "X Y", 3 }, { "a", 1 } },
		{ { "", 0 }, { "a", 1 } },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct http1_own own = { .status = 400, .extra = &bad[i], .extra_count = 1 };

		cr_expect_eq(http1_own_reply(&own, out, sizeof(out)), -EINVAL, "row %zu", i);
	}
}

Test(http1_write, responses)
{
	struct http1_write_opts opts = { .via = "ringway" };

	cr_expect_str_eq(response("HTTP/1.0 200 Fine\r\nServer: x\r\nKeep-Alive: 5\r\n"
	    "Connection: keep-alive, x-hop\r\nX-Hop: 1\r\nContent-Length: 5\r\nHost: x\r\n\r\n",
	    HTTP1_M_GET, &opts),
	    "HTTP/1.1 200 Fine\r\nServer: x\r\nHost: x\r\nContent-Length: 5\r\nVia: 1.0 ringway\r\n\r\n");
	opts.via = NULL;
	cr_expect_str_eq(response("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_M_GET,
	    &opts), "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n");
	/* Until close: the client has to be told. */
	cr_expect_str_eq(response("HTTP/1.1 200 a\r\n\r\n", HTTP1_M_GET, &opts),
	    "HTTP/1.1 200 a\r\nConnection: close\r\n\r\n");
	/* Lengths that describe, lengths that lie. */
	cr_expect_str_eq(response("HTTP/1.1 200 a\r\nContent-Length: 5\r\n\r\n", HTTP1_M_HEAD, &opts),
	    "HTTP/1.1 200 a\r\nContent-Length: 5\r\n\r\n");
	cr_expect_str_eq(response("HTTP/1.1 304 a\r\nContent-Length: 5\r\n\r\n", HTTP1_M_GET, &opts),
	    "HTTP/1.1 304 a\r\nContent-Length: 5\r\n\r\n");
	cr_expect_str_eq(response("HTTP/1.1 204 a\r\nContent-Length: 5\r\n\r\n", HTTP1_M_GET, &opts),
	    "HTTP/1.1 204 a\r\n\r\n");
	opts.conn = HTTP1_CONN_CLOSE;
	cr_expect_str_eq(response("HTTP/1.1 103 a\r\nLink: x\r\n\r\n", HTTP1_M_GET, &opts),
	    "HTTP/1.1 103 a\r\nLink: x\r\n\r\n");
	opts.conn = HTTP1_CONN_UNSAID;
	opts.upgrade = true;
	cr_expect_str_eq(response("HTTP/1.1 101 a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	    HTTP1_M_GET, &opts),
	    "HTTP/1.1 101 a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
}

Test(http1_write, own_replies)
{
	struct http1_extra extra = { span_str("Proxy-Authenticate"),
	    span_str("Basic realm=\"ringway\", charset=\"UTF-8\"") };
	struct http1_own own = { .status = 502, .cause = "no such host", .proxy_error = "dns_error",
	    .conn = HTTP1_CONN_CLOSE };
	ssize_t len = http1_own_reply(&own, out, sizeof(out));

	cr_assert_gt(len, 0);
	out[len] = '\0';
	cr_expect_str_eq(out, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\n"
	    "Content-Length: 13\r\nProxy-Status: ringway; error=dns_error\r\nConnection: close\r\n\r\n"
	    "no such host\n");
	own = (struct http1_own){ .status = 407, .head_only = true, .conn = HTTP1_CONN_KEEP_ALIVE,
	    .extra = &extra, .extra_count = 1 };
	len = http1_own_reply(&own, out, sizeof(out));
	cr_assert_gt(len, 0);
	out[len] = '\0';
	cr_expect_str_eq(out, "HTTP/1.1 407 Proxy Authentication Required\r\n"
	    "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 30\r\n"
	    "Proxy-Status: ringway\r\nConnection: keep-alive\r\n"
	    "Proxy-Authenticate: Basic realm=\"ringway\", charset=\"UTF-8\"\r\n\r\n");
	for (size_t cap = 0; cap < (size_t)len; cap++)
		cr_assert_eq(http1_own_reply(&own, out, cap), -ENOSPC);
	len = http1_connect_reply(out, sizeof(out));
	cr_expect(span_is(span_of(out, (size_t)len),
	    "HTTP/1.1 200 Connection established\r\n\r\n"));
}

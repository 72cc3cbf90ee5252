/* SPDX-License-Identifier: ISC */
/* Authorities and request targets: CASES 22 and the reading part of 38. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "proto/hostport.h"
#include "proto/http1.h"

static const char *
authority_text(const struct target *target, uint16_t implied)
{
	static char text[TARGET_TEXT_MAX];
	size_t len = target_authority(target, implied, text);

	cr_expect_eq(len, strlen(text));
	return text;
}

Test(http1_target, hostport_table)
{
	static const struct {
		const char *in;
		uint16_t implied;
		enum hostport_verdict verdict;
		const char *text;
	} rows[] = {
		{ "example.com:80", 0, HOSTPORT_OK, "example.com:80" },
		{ "EXAMPLE.com.:0080", 0, HOSTPORT_OK, "example.com:80" },
		{ "a:65535", 0, HOSTPORT_OK, "a:65535" },
		{ "a", 80, HOSTPORT_OK, "a:80" },
		{ "a:", 80, HOSTPORT_OK, "a:80" },
		{ "a_b-c.d:1", 0, HOSTPORT_OK, "a_b-c.d:1" },
		{ "1.2.3.4:1", 0, HOSTPORT_OK, "1.2.3.4:1" },
		{ "[::1]:443", 0, HOSTPORT_OK, "[::1]:443" },
		{ "[2001:DB8::0:1]:443", 0, HOSTPORT_OK, "[2001:db8::1]:443" },
		{ "[::ffff:127.0.0.1]:443", 0, HOSTPORT_OK, "127.0.0.1:443" },
		{ "[::1]", 80, HOSTPORT_OK, "[::1]:80" },
		{ "[::1]:", 80, HOSTPORT_OK, "[::1]:80" },
		{ "a:0", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:65536", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:65616", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:4294967376", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:000080", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:-1", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:+80", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:80x", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:8 0", 80, HOSTPORT_BAD_PORT, NULL },
		{ "a:", 0, HOSTPORT_BAD_PORT, NULL },
		{ "a", 0, HOSTPORT_BAD_PORT, NULL },
		{ "[::1]", 0, HOSTPORT_BAD_PORT, NULL },
		{ "", 80, HOSTPORT_BAD_HOST, NULL },
		{ ":80", 80, HOSTPORT_BAD_HOST, NULL },
		{ ".:80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "::1", 80, HOSTPORT_BAD_HOST, NULL },
		{ "::1:443", 0, HOSTPORT_BAD_HOST, NULL },
		{ "[::1", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[::1]x", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[::1]80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[]:80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[a]:80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[1.2.3.4]:80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[fe80::1%25eth0]:80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "[v1.a:b]:80", 80, HOSTPORT_BAD_HOST, NULL },
		{ "a,b", 80, HOSTPORT_BAD_HOST, NULL },
		{ "a%41", 80, HOSTPORT_BAD_HOST, NULL },
		{ "a b", 80, HOSTPORT_BAD_HOST, NULL },
		{ "http://a:80", 0, HOSTPORT_BAD_HOST, NULL },
		{ "a/b:80", 0, HOSTPORT_BAD_HOST, NULL },
		{ "u@a:80", 0, HOSTPORT_USERINFO, NULL },
		{ "u:p@a:80", 0, HOSTPORT_USERINFO, NULL },
		{ "@a:80", 0, HOSTPORT_USERINFO, NULL },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct target target;

		cr_expect_eq(hostport_parse(span_str(rows[i].in), rows[i].implied, &target),
		    rows[i].verdict, "%s", rows[i].in);
		if (rows[i].text != NULL)
			cr_expect_str_eq(authority_text(&target, 0), rows[i].text, "%s", rows[i].in);
	}
}

Test(http1_target, longest_host)
{
	char text[300];
	struct target target;

	memset(text, 'a', sizeof(text));
	memcpy(text + 255, ":65535", 6);
	cr_assert_eq(hostport_parse(span_of(text, 261), 0, &target), HOSTPORT_OK);
	cr_expect_eq(target.host_len, 255);
	cr_expect_eq(strlen(authority_text(&target, 80)), 261);
	memset(text, 'a', sizeof(text));
	cr_expect_eq(hostport_parse(span_of(text, 256), 80, &target), HOSTPORT_BAD_HOST);
}

struct row {
	const char		*line;	/* method and target */
	const char		*host;	/* NULL = HTTP/1.0 without one */
	enum http1_verdict	 verdict;
	enum http1_form		 form;
	const char		*authority;
	const char		*path;
	bool			 slash;
};

static const struct row rows[] = {
	{ "GET http://a/b?c", "a", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "/b?c", false },
	{ "GET HTTP://A.:8080/", "a", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:8080", "/", false },
	{ "GET http://a", NULL, HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "/", false },
	{ "GET http://a:/", "", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "/", false },
	{ "GET http://a?q=/x", "a", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "?q=/x", true },
	{ "GET http://a/http://b@c/", "a", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "/http://b@c/", false },
	{ "GET http://[::1]:81/x", "[::1]:81", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "[::1]:81", "/x", false },
	{ "OPTIONS http://a", "a", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "*", false },
	{ "OPTIONS http://a/", "a", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "/", false },
	{ "OPTIONS *", "a:81", HTTP1_OK, HTTP1_FORM_ASTERISK, "a:81", "*", false },
	{ "GET /x", "A:81", HTTP1_OK, HTTP1_FORM_ORIGIN, "a:81", "/x", false },
	{ "GET //admin/x", "a", HTTP1_OK, HTTP1_FORM_ORIGIN, "a:80", "//admin/x", false },
	{ "CONNECT a:443", "a", HTTP1_OK, HTTP1_FORM_AUTHORITY, "a:443", "", false },
	{ "CONNECT [::1]:443", NULL, HTTP1_OK, HTTP1_FORM_AUTHORITY, "[::1]:443", "", false },
	/* The authority wins over another Host... */
	{ "GET http://a/", "b:99", HTTP1_OK, HTTP1_FORM_ABSOLUTE, "a:80", "/", false },
	/* ... but not over one that is no host. */
	{ "GET http://a/", "b, a", HTTP1_BAD_HOST, 0, NULL, NULL, false },
	{ "GET http://a/", "u@a", HTTP1_BAD_HOST, 0, NULL, NULL, false },
	{ "CONNECT a:1", "a:99999", HTTP1_BAD_HOST, 0, NULL, NULL, false },
	{ "GET /", "", HTTP1_BAD_HOST, 0, NULL, NULL, false },
	{ "GET /", "a b", HTTP1_BAD_HOST, 0, NULL, NULL, false },
	{ "GET /", "a:0", HTTP1_BAD_HOST, 0, NULL, NULL, false },
	{ "GET /", NULL, HTTP1_NO_HOST, 0, NULL, NULL, false },
	{ "GET *", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET a", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET a:80", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET http:/a", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET http:///a", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET http://", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET http://a\\b/", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET ://a/", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "GET http://a:0/", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "GET http://a:99999/", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "GET http://u:p@a/", "a", HTTP1_USERINFO, 0, NULL, NULL, false },
	{ "GET https://a/", "a", HTTP1_HTTPS_URI, 0, NULL, NULL, false },
	{ "GET ftp://a/", "a", HTTP1_UNKNOWN_SCHEME, 0, NULL, NULL, false },
	{ "CONNECT a", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "CONNECT a:", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "CONNECT a:0", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "CONNECT a:65616", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "CONNECT a:-1", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "CONNECT a:80x", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
	{ "CONNECT u@a:80", "a", HTTP1_USERINFO, 0, NULL, NULL, false },
	{ "CONNECT http://a:80", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "CONNECT http://a:80/", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "CONNECT ::1:80", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "CONNECT :80", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "CONNECT /", "a", HTTP1_BAD_TARGET, 0, NULL, NULL, false },
	{ "CONNECT *", "a", HTTP1_BAD_PORT, 0, NULL, NULL, false },
};

Test(http1_target, request_targets)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		struct http1_field fields[4];
		struct http1_head head;
		struct http1_where where;
		enum http1_verdict got;
		char text[256];

		if (row->host != NULL)
			snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: %s\r\n\r\n", row->line,
			    row->host);
		else
			snprintf(text, sizeof(text), "%s HTTP/1.0\r\n\r\n", row->line);
		http1_head_init(&head, fields, 4, sizeof(text));
		cr_assert_eq(http1_parse_request(&head, span_str(text)), HTTP1_OK, "%s", text);
		got = http1_request_target(&head, &where);
		if (row->verdict == HTTP1_BAD_PORT && got == HTTP1_BAD_TARGET)
			got = HTTP1_BAD_PORT;	/* both are 400; which one is said does not matter */
		cr_expect_eq(got, row->verdict, "%s -> %s", row->line, http1_verdict_cause(got));
		if (row->verdict != HTTP1_OK || got != HTTP1_OK)
			continue;
		cr_expect_eq(where.form, row->form, "%s", row->line);
		cr_expect_str_eq(authority_text(&where.target, 0), row->authority, "%s", row->line);
		cr_expect(span_is(where.path, row->path), "%s -> %.*s", row->line,
		    (int)where.path.len, where.path.base);
		cr_expect_eq(where.slash_first, row->slash, "%s", row->line);
	}
}

Test(http1_target, statuses)
{
	cr_expect_eq(http1_verdict_status(HTTP1_HTTPS_URI), 501);
	cr_expect_not_null(strstr(http1_verdict_cause(HTTP1_HTTPS_URI), "CONNECT"));
	cr_expect_eq(http1_verdict_status(HTTP1_UNKNOWN_SCHEME), 501);
	cr_expect_eq(http1_verdict_status(HTTP1_USERINFO), 400);
	cr_expect_eq(http1_verdict_status(HTTP1_BAD_PORT), 400);
	cr_expect_eq(http1_verdict_status(HTTP1_BAD_VERSION), 505);
}

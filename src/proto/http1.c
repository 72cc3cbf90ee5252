/* SPDX-License-Identifier: ISC */
#include "proto/http1.h"

#include <string.h>

struct verdict_row {
	unsigned	 status;
	const char	*cause;
};

static const struct verdict_row verdicts[HTTP1_VERDICT_COUNT] = {
	[HTTP1_OK] = { 200, "ok" },
	[HTTP1_MORE] = { 408, "incomplete" },
	[HTTP1_DATA] = { 200, "data" },
	[HTTP1_BAD_REQUEST_LINE] = { 400, "malformed request line" },
	[HTTP1_BAD_STATUS_LINE] = { 400, "malformed status line" },
	[HTTP1_BAD_VERSION] = { 505, "HTTP version not supported" },
	[HTTP1_URI_TOO_LONG] = { 414, "request line too long" },
	[HTTP1_HEAD_TOO_LARGE] = { 431, "header section too large" },
	[HTTP1_TOO_MANY_FIELDS] = { 431, "too many header fields" },
	[HTTP1_CONTROL_BYTE] = { 400, "control byte in the header section" },
	[HTTP1_BARE_CR] = { 400, "CR without LF" },
	[HTTP1_BARE_LF] = { 400, "LF without CR" },
	[HTTP1_OBS_FOLD] = { 400, "folded header line" },
	[HTTP1_BAD_FIELD_NAME] = { 400, "invalid field name" },
	[HTTP1_SPACE_BEFORE_COLON] = { 400, "white space before the colon" },
	[HTTP1_BAD_LENGTH] = { 400, "invalid Content-Length" },
	[HTTP1_REPEATED_LENGTH] = { 400, "repeated Content-Length" },
	[HTTP1_LENGTH_AND_CODING] = { 400, "both Transfer-Encoding and Content-Length" },
	[HTTP1_BAD_CODING] = { 400, "invalid Transfer-Encoding" },
	[HTTP1_UNKNOWN_CODING] = { 501, "transfer coding not supported" },
	[HTTP1_CODING_IN_10] = { 400, "Transfer-Encoding in HTTP/1.0" },
	[HTTP1_NO_HOST] = { 400, "missing Host" },
	[HTTP1_REPEATED_HOST] = { 400, "repeated Host" },
	[HTTP1_BAD_HOST] = { 400, "invalid Host" },
	[HTTP1_BAD_TARGET] = { 400, "invalid request target" },
	[HTTP1_BAD_PORT] = { 400, "invalid or missing port" },
	[HTTP1_USERINFO] = { 400, "user information in the request target" },
	[HTTP1_HTTPS_URI] = { 501, "https is not fetched for clients: use CONNECT" },
	[HTTP1_UNKNOWN_SCHEME] = { 501, "URI scheme not supported" },
	[HTTP1_BAD_CHUNK_SIZE] = { 400, "invalid chunk size" },
	[HTTP1_BAD_CHUNK_END] = { 400, "chunk not ended by CRLF" },
	[HTTP1_BAD_CHUNK_EXT] = { 400, "invalid chunk extension" },
	[HTTP1_CHUNK_EXT_TOO_LONG] = { 400, "chunk extensions too long" },
	[HTTP1_BAD_TRAILER] = { 400, "invalid trailer section" },
	[HTTP1_TRAILER_TOO_LONG] = { 431, "trailer section too large" },
};

unsigned
http1_verdict_status(enum http1_verdict verdict)
{
	return verdict < HTTP1_VERDICT_COUNT ? verdicts[verdict].status : 500;
}

const char *
http1_verdict_cause(enum http1_verdict verdict)
{
	return verdict < HTTP1_VERDICT_COUNT ? verdicts[verdict].cause : "unknown verdict";
}

/* ---- names ------------------------------------------------------------- */

struct known {
	const char	*name;	/* lower case */
	enum http1_field_id id;
};

enum {
	KNOWN_LEN_MAX = 25,
	KNOWN_PER_LEN = 7	/* most names of one length, and a NULL */
};

/* By length, which alone rules out nearly everything. */
static const struct known known_names[KNOWN_LEN_MAX + 1][KNOWN_PER_LEN] = {
	[2] = { { "te", HTTP1_F_TE } },
	[3] = { { "age", HTTP1_F_AGE }, { "via", HTTP1_F_VIA } },
	[4] = { { "host", HTTP1_F_HOST }, { "date", HTTP1_F_DATE }, { "etag", HTTP1_F_ETAG },
	    { "vary", HTTP1_F_VARY } },
	[5] = { { "range", HTTP1_F_RANGE }, { "allow", HTTP1_F_ALLOW } },
	[6] = { { "accept", HTTP1_F_ACCEPT }, { "cookie", HTTP1_F_COOKIE },
	    { "server", HTTP1_F_SERVER }, { "origin", HTTP1_F_ORIGIN },
	    { "pragma", HTTP1_F_PRAGMA }, { "expect", HTTP1_F_EXPECT } },
	[7] = { { "expires", HTTP1_F_EXPIRES }, { "referer", HTTP1_F_REFERER },
	    { "upgrade", HTTP1_F_UPGRADE }, { "trailer", HTTP1_F_TRAILER },
	    { "warning", HTTP1_F_WARNING } },
	[8] = { { "location", HTTP1_F_LOCATION }, { "if-match", HTTP1_F_IF_MATCH },
	    { "if-range", HTTP1_F_IF_RANGE } },
	[9] = { { "forwarded", HTTP1_F_FORWARDED } },
	[10] = { { "connection", HTTP1_F_CONNECTION }, { "user-agent", HTTP1_F_USER_AGENT },
	    { "set-cookie", HTTP1_F_SET_COOKIE }, { "keep-alive", HTTP1_F_KEEP_ALIVE } },
	[11] = { { "retry-after", HTTP1_F_RETRY_AFTER } },
	[12] = { { "content-type", HTTP1_F_CONTENT_TYPE }, { "cache-status", HTTP1_F_CACHE_STATUS },
	    { "max-forwards", HTTP1_F_MAX_FORWARDS }, { "proxy-status", HTTP1_F_PROXY_STATUS } },
	[13] = { { "cache-control", HTTP1_F_CACHE_CONTROL },
	    { "last-modified", HTTP1_F_LAST_MODIFIED }, { "accept-ranges", HTTP1_F_ACCEPT_RANGES },
	    { "authorization", HTTP1_F_AUTHORIZATION }, { "if-none-match", HTTP1_F_IF_NONE_MATCH },
	    { "content-range", HTTP1_F_CONTENT_RANGE } },
	[14] = { { "content-length", HTTP1_F_CONTENT_LENGTH } },
	[15] = { { "accept-encoding", HTTP1_F_ACCEPT_ENCODING },
	    { "accept-language", HTTP1_F_ACCEPT_LANGUAGE },
	    { "x-forwarded-for", HTTP1_F_X_FORWARDED_FOR } },
	[16] = { { "content-encoding", HTTP1_F_CONTENT_ENCODING },
	    { "proxy-connection", HTTP1_F_PROXY_CONNECTION },
	    { "content-location", HTTP1_F_CONTENT_LOCATION },
	    { "www-authenticate", HTTP1_F_WWW_AUTHENTICATE } },
	[17] = { { "transfer-encoding", HTTP1_F_TRANSFER_ENCODING },
	    { "if-modified-since", HTTP1_F_IF_MODIFIED_SINCE },
	    { "cdn-cache-control", HTTP1_F_CDN_CACHE_CONTROL } },
	[18] = { { "proxy-authenticate", HTTP1_F_PROXY_AUTHENTICATE } },
	[19] = { { "proxy-authorization", HTTP1_F_PROXY_AUTHORIZATION },
	    { "if-unmodified-since", HTTP1_F_IF_UNMODIFIED_SINCE } },
	[25] = { { "proxy-authentication-info", HTTP1_F_PROXY_AUTHENTICATION_INFO } },
};

_Static_assert(HTTP1_F_COUNT <= 64, "struct http1_head's seen is a 64-bit mask");

static uint64_t
load_lower(const char *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word | 0x2020202020202020u;
}

/*
 * `sent` is a token and `known` made of a-z and "-", for which setting bit 5 is
 * lower-casing: the one other byte that becomes "-" is CR, no token character.
 */
static bool
same_name(const char *sent, const char *known, size_t len)
{
	size_t i = 0;

	for (; i + 8 <= len; i += 8)
		if (load_lower(sent + i) != load_lower(known + i))
			return false;
	for (; i < len; i++)
		if ((sent[i] | 0x20) != known[i])
			return false;
	return true;
}

enum http1_field_id
http1_field_lookup(struct span name)
{
	const struct known *row;
	char first;

	if (name.len == 0 || name.len > KNOWN_LEN_MAX)
		return HTTP1_F_OTHER;
	row = known_names[name.len];
	first = (char)(name.base[0] | 0x20);
	for (; row->name != NULL; row++)
		if (row->name[0] == first && same_name(name.base, row->name, name.len))
			return row->id;
	return HTTP1_F_OTHER;
}

ssize_t
http1_find(const struct http1_head *head, enum http1_field_id id, size_t from)
{
	if ((head->seen & (uint64_t)1 << id) == 0)
		return -1;
	for (size_t i = from; i < head->field_count; i++)
		if (head->fields[i].id == id)
			return (ssize_t)i;
	return -1;
}

ssize_t
http1_find_name(const struct http1_head *head, const char *name, size_t from)
{
	for (size_t i = from; i < head->field_count; i++)
		if (span_iis(head->fields[i].name, name))
			return (ssize_t)i;
	return -1;
}

const char *
http1_method_name(enum http1_method method)
{
	static const char *const names[] = {
		[HTTP1_M_OTHER] = NULL,
		[HTTP1_M_GET] = "GET",
		[HTTP1_M_HEAD] = "HEAD",
		[HTTP1_M_POST] = "POST",
		[HTTP1_M_PUT] = "PUT",
		[HTTP1_M_DELETE] = "DELETE",
		[HTTP1_M_CONNECT] = "CONNECT",
		[HTTP1_M_OPTIONS] = "OPTIONS",
		[HTTP1_M_TRACE] = "TRACE",
		[HTTP1_M_PATCH] = "PATCH",
	};

	return names[method];
}

bool
http1_method_is_safe(enum http1_method method)
{
	return method == HTTP1_M_GET || method == HTTP1_M_HEAD ||
	    method == HTTP1_M_OPTIONS || method == HTTP1_M_TRACE;
}

/* ---- lists ------------------------------------------------------------- */

static bool
is_ows(char c)
{
	return c == ' ' || c == '\t';
}

static struct span
trim(const char *begin, const char *end)
{
	while (begin < end && is_ows(*begin))
		begin++;
	while (end > begin && is_ows(end[-1]))
		end--;
	return span_of(begin, (size_t)(end - begin));
}

bool
http1_list_next(struct span *rest, struct span *member)
{
	const char *at = rest->base, *begin;
	const char *end = rest->len != 0 ? at + rest->len : at;

	while (at < end) {
		bool quoted = false;

		for (begin = at; at < end && (quoted || *at != ','); at++) {
			if (*at == '"')
				quoted = !quoted;
			else if (quoted && *at == '\\' && at + 1 < end)
				at++;
		}
		*member = trim(begin, at);
		if (at < end)
			at++;	/* the comma */
		if (member->len != 0) {
			*rest = span_of(at, (size_t)(end - at));
			return true;
		}
	}
	*rest = span_of(end, 0);
	return false;
}

/* Does any field `id` list `word`? */
static bool
lists(const struct http1_head *head, enum http1_field_id id, struct span word)
{
	struct span rest, member;

	for (ssize_t i = -1; (i = http1_find(head, id, (size_t)(i + 1))) >= 0;) {
		rest = head->fields[i].value;
		while (http1_list_next(&rest, &member))
			if (span_ieq(member, word))
				return true;
	}
	return false;
}

/* ---- connection -------------------------------------------------------- */

bool
http1_keep_alive(const struct http1_head *head)
{
	if (head->conn_close)
		return false;
	return head->minor >= 1 || head->conn_keep_alive;
}

bool
http1_is_hop_by_hop(const struct http1_head *head, size_t i)
{
	const struct http1_field *field = &head->fields[i];

	switch (field->id) {
	case HTTP1_F_CONNECTION:
	case HTTP1_F_KEEP_ALIVE:
	case HTTP1_F_PROXY_AUTHENTICATE:
	case HTTP1_F_PROXY_AUTHENTICATION_INFO:
	case HTTP1_F_PROXY_AUTHORIZATION:
	case HTTP1_F_PROXY_CONNECTION:
	case HTTP1_F_TE:
	case HTTP1_F_TRANSFER_ENCODING:
	case HTTP1_F_UPGRADE:
		return true;
	case HTTP1_F_PROXY_STATUS:
		/* A response's is for the client, RFC 9209 section 2; a request has none. */
		return !head->is_response;
	case HTTP1_F_OTHER:
		if (field->name.len >= 6 && span_iis(span_of(field->name.base, 6), "proxy-"))
			return true;
		return lists(head, HTTP1_F_CONNECTION, field->name);
	default:
		return false;
	}
}

bool
http1_wants_websocket(const struct http1_head *head)
{
	ssize_t i = http1_find(head, HTTP1_F_UPGRADE, 0);

	return i >= 0 && head->conn_upgrade && span_iis(head->fields[i].value, "websocket") &&
	    http1_find(head, HTTP1_F_UPGRADE, (size_t)i + 1) < 0;
}

/* received-by of "1.1 name (comment)" or "HTTP/1.1 name:port". */
static struct span
received_by(struct span member)
{
	const char *at = member.base, *end = at + member.len, *begin;

	while (at < end && !is_ows(*at))
		at++;
	while (at < end && is_ows(*at))
		at++;
	for (begin = at; at < end && !is_ows(*at);)
		at++;
	return span_of(begin, (size_t)(at - begin));
}

bool
http1_via_names(const struct http1_head *head, const char *pseudonym)
{
	struct span rest, member;

	for (ssize_t i = -1; (i = http1_find(head, HTTP1_F_VIA, (size_t)(i + 1))) >= 0;) {
		rest = head->fields[i].value;
		while (http1_list_next(&rest, &member))
			if (span_iis(received_by(member), pseudonym))
				return true;
	}
	return false;
}

bool
http1_expects_continue(const struct http1_head *head)
{
	/* A 1.0 client does not wait for it (RFC 9110 section 10.1.1). */
	return head->minor >= 1 && lists(head, HTTP1_F_EXPECT, span_str("100-continue"));
}

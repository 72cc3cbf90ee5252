/* SPDX-License-Identifier: ISC */
/*
 * Heads that we write.  Everything that came from outside was validated by the
 * parser; what callers add is validated here, so nothing can break a line.
 */
#include "proto/http1.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "proto/chars.h"
#include "util/digits.h"

struct out {
	char	*base;
	size_t	 len;
	size_t	 cap;
	int	 err;	/* first error; nothing is written after it */
};

enum { HTTP_PORT = 80 };

/* Where `bytes` more go, or NULL: then the error is set. */
static char *
room(struct out *out, size_t bytes)
{
	if (out->err != 0)
		return NULL;
	if (bytes > out->cap - out->len) {
		out->err = -ENOSPC;
		return NULL;
	}
	out->len += bytes;
	return out->base + out->len - bytes;
}

static void
put(struct out *out, struct span text)
{
	char *at = room(out, text.len);

	if (at != NULL && text.len != 0)
		memcpy(at, text.base, text.len);
}

/* Inline, so that a constant's length is one. */
static inline void
put_str(struct out *out, const char *text)
{
	put(out, span_str(text));
}

static void
put_number(struct out *out, uint64_t number)
{
	char text[DIGITS_MAX];

	put(out, span_of(text, (size_t)(digits_put(text, number) - text)));
}

static void
put_field(struct out *out, struct span name, struct span value)
{
	char *at = room(out, name.len + value.len + 4);

	if (at == NULL)
		return;
	memcpy(at, name.base, name.len);
	at += name.len;
	*at++ = ':';
	*at++ = ' ';
	if (value.len != 0)
		memcpy(at, value.base, value.len);
	at += value.len;
	*at++ = '\r';
	*at = '\n';
}

/* A field of a head that was parsed: nearly all came as "name: value" and go on in one piece. */
static void
put_received(struct out *out, const struct http1_field *field)
{
	const char *behind = field->name.base + field->name.len;
	size_t len = field->name.len + 2 + field->value.len;
	char *at;

	if (field->value.base != behind + 2 || memcmp(behind, ": ", 2) != 0) {
		put_field(out, field->name, field->value);
		return;
	}
	at = room(out, len + 2);
	if (at == NULL)
		return;
	memcpy(at, field->name.base, len);
	at[len] = '\r';
	at[len + 1] = '\n';
}

static bool
all_of(struct span text, unsigned class)
{
	for (size_t i = 0; i < text.len; i++)
		if (!chars_is(text.base[i], class))
			return false;
	return true;
}

static void
put_extra(struct out *out, const struct http1_extra *extra, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (extra[i].name.len == 0 || !all_of(extra[i].name, CHARS_TOKEN) ||
		    !all_of(extra[i].value, CHARS_VALUE)) {
			if (out->err == 0)
				out->err = -EINVAL;
			return;
		}
		put_field(out, extra[i].name, extra[i].value);
	}
}

static bool
is_dropped(const struct http1_write_opts *opts, enum http1_field_id id)
{
	for (size_t i = 0; i < opts->drop_count; i++)
		if (opts->drop[i] == id)
			return id != HTTP1_F_OTHER;
	return false;
}

/* The fields that go on as they are. */
static void
put_fields(struct out *out, const struct http1_head *head, const struct http1_write_opts *opts)
{
	for (size_t i = 0; i < head->field_count; i++) {
		const struct http1_field *field = &head->fields[i];

		if (field->id == HTTP1_F_CONTENT_LENGTH ||
		    (field->id == HTTP1_F_HOST && !head->is_response) ||
		    is_dropped(opts, field->id) || http1_is_hop_by_hop(head, i))
			continue;
		put_received(out, field);
	}
}

/* What is said between us and the next hop, and Via. */
static void
put_hop(struct out *out, const struct http1_head *head, enum http1_conn conn, bool te,
    const struct http1_write_opts *opts)
{
	ssize_t upgrade = opts->upgrade ? http1_find(head, HTTP1_F_UPGRADE, 0) : -1;
	const char *comma = "";

	if (opts->via != NULL) {
		put_str(out, head->minor != 0 ? "Via: 1.1 " : "Via: 1.0 ");
		put_str(out, opts->via);
		put_str(out, "\r\n");
	}
	if (te)
		put_str(out, "TE: trailers\r\n");
	for (ssize_t i = upgrade; i >= 0; i = http1_find(head, HTTP1_F_UPGRADE, (size_t)i + 1))
		put_field(out, span_str("Upgrade"), head->fields[i].value);
	if (conn == HTTP1_CONN_UNSAID && !te && upgrade < 0)
		return;
	put_str(out, "Connection: ");
	if (conn != HTTP1_CONN_UNSAID) {
		put_str(out, conn == HTTP1_CONN_CLOSE ? "close" : "keep-alive");
		comma = ", ";
	}
	if (te) {
		put_str(out, comma);
		put_str(out, "TE");	/* RFC 9110 section 10.1.4 */
		comma = ", ";
	}
	if (upgrade >= 0) {
		put_str(out, comma);
		put_str(out, "upgrade");
	}
	put_str(out, "\r\n");
}

/* Exactly one framing field, or none. */
static void
put_framing(struct out *out, const struct http1_framing *framing)
{
	if (framing->body == HTTP1_BODY_CHUNKED) {
		put_str(out, "Transfer-Encoding: chunked\r\n");
	} else if (framing->body == HTTP1_BODY_LENGTH) {
		put_str(out, "Content-Length: ");
		put_number(out, framing->length);
		put_str(out, "\r\n");
	}
}

static ssize_t
result(const struct out *out)
{
	return out->err != 0 ? out->err : (ssize_t)out->len;
}

ssize_t
http1_write_request(const struct http1_head *head, const struct http1_where *where,
    const struct http1_framing *framing, const struct http1_write_opts *opts, char *buf,
    size_t cap)
{
	struct out out = { .base = buf, .cap = cap };
	char authority[TARGET_TEXT_MAX];
	size_t len = target_authority(&where->target, HTTP_PORT, authority);

	assert(!head->is_response && where->form != HTTP1_FORM_AUTHORITY);
	assert(len != 0 && where->path.len != 0);
	put(&out, head->method_text);
	put_str(&out, where->slash_first ? " /" : " ");
	put(&out, where->path);
	put_str(&out, " HTTP/1.1\r\n");
	/* First, as RFC 9110 section 7.2 recommends. */
	put_field(&out, span_str("Host"), span_of(authority, len));
	put_fields(&out, head, opts);
	put_framing(&out, framing);
	put_hop(&out, head, opts->conn, head->te_trailers, opts);
	put_extra(&out, opts->extra, opts->extra_count);
	put_str(&out, "\r\n");
	return result(&out);
}

ssize_t
http1_write_response(const struct http1_head *head, const struct http1_framing *framing,
    const struct http1_write_opts *opts, char *buf, size_t cap)
{
	struct out out = { .base = buf, .cap = cap };
	enum http1_conn conn = opts->conn;
	bool interim = head->status < 200;

	assert(head->is_response);
	put_str(&out, "HTTP/1.1 ");
	put_number(&out, head->status);
	put_str(&out, " ");
	put(&out, head->reason);
	put_str(&out, "\r\n");
	put_fields(&out, head, opts);
	put_framing(&out, framing);
	if (framing->body == HTTP1_BODY_NONE && head->has_length && !interim &&
	    head->status != 204) {
		put_str(&out, "Content-Length: ");
		put_number(&out, head->length);
		put_str(&out, "\r\n");
	}
	if (framing->body == HTTP1_BODY_CLOSE)
		conn = HTTP1_CONN_CLOSE;	/* it is what ends the body */
	else if (interim)
		conn = HTTP1_CONN_UNSAID;
	put_hop(&out, head, conn, false, opts);
	put_extra(&out, opts->extra, opts->extra_count);
	put_str(&out, "\r\n");
	return result(&out);
}

/* ---- answers of ours --------------------------------------------------- */

const char *
http1_reason(unsigned status)
{
	switch (status) {
	case 200: return "OK";
	case 400: return "Bad Request";
	case 403: return "Forbidden";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 407: return "Proxy Authentication Required";
	case 408: return "Request Timeout";
	case 413: return "Content Too Large";
	case 414: return "URI Too Long";
	case 416: return "Range Not Satisfiable";
	case 417: return "Expectation Failed";
	case 421: return "Misdirected Request";
	case 426: return "Upgrade Required";
	case 429: return "Too Many Requests";
	case 431: return "Request Header Fields Too Large";
	case 500: return "Internal Server Error";
	case 501: return "Not Implemented";
	case 502: return "Bad Gateway";
	case 503: return "Service Unavailable";
	case 504: return "Gateway Timeout";
	case 505: return "HTTP Version Not Supported";
	case 508: return "Loop Detected";
	default: return "Error";
	}
}

ssize_t
http1_own_reply(const struct http1_own *own, char *buf, size_t cap)
{
	struct out out = { .base = buf, .cap = cap };
	const char *cause = own->cause != NULL ? own->cause : http1_reason(own->status);

	assert(own->status >= 200 && own->status <= 599);
	put_str(&out, "HTTP/1.1 ");
	put_number(&out, own->status);
	put_str(&out, " ");
	put_str(&out, http1_reason(own->status));
	put_str(&out, "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ");
	put_number(&out, strlen(cause) + 1);
	put_str(&out, "\r\nProxy-Status: " HTTP1_PSEUDONYM);
	if (own->proxy_error != NULL) {
		assert(all_of(span_str(own->proxy_error), CHARS_TOKEN));
		put_str(&out, "; error=");
		put_str(&out, own->proxy_error);
	}
	put_str(&out, "\r\n");
	if (own->conn != HTTP1_CONN_UNSAID)
		put_str(&out, own->conn == HTTP1_CONN_CLOSE ? "Connection: close\r\n" :
		    "Connection: keep-alive\r\n");
	put_extra(&out, own->extra, own->extra_count);
	put_str(&out, "\r\n");
	if (!own->head_only) {
		put_str(&out, cause);
		put_str(&out, "\n");
	}
	return result(&out);
}

ssize_t
http1_connect_reply(char *buf, size_t cap)
{
	struct out out = { .base = buf, .cap = cap };

	put_str(&out, "HTTP/1.1 200 Connection established\r\n\r\n");
	return result(&out);
}

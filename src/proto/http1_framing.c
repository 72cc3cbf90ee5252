/* SPDX-License-Identifier: ISC */
/*
 * Where a message ends (RFC 9112 section 6.3).  Stricter than it has to be: a
 * head that two recipients could frame differently is an error, even where the
 * RFC would let us repair it.
 */
#include "proto/http1.h"

#include "proto/chars.h"
#include "proto/http1_internal.h"

enum { LENGTH_DIGITS_MAX = 19 };	/* of 2^63 - 1 */

static bool
has(const struct http1_head *head, enum http1_field_id id)
{
	return (head->seen & (uint64_t)1 << id) != 0;
}

static enum http1_verdict
parse_length(struct http1_head *head)
{
	struct span text = head->fields[http1_find(head, HTTP1_F_CONTENT_LENGTH, 0)].value;
	uint64_t length = 0;

	if (text.len == 0 || text.len > LENGTH_DIGITS_MAX)
		return HTTP1_BAD_LENGTH;
	for (size_t i = 0; i < text.len; i++) {
		if (!chars_is(text.base[i], CHARS_DIGIT))
			return HTTP1_BAD_LENGTH;
		/* 19 nines fit into 64 bits, so this can't wrap. */
		length = length * 10 + (unsigned)(text.base[i] - '0');
	}
	if (length > INT64_MAX)
		return HTTP1_BAD_LENGTH;
	head->has_length = true;
	head->length = length;
	return HTTP1_OK;
}

/*
 * RFC 9112 sections 6.1 and 6.3: chunked must come last, once; what comes before
 * it we can't undo.
 */
static enum http1_verdict
parse_coding(struct http1_head *head)
{
	struct span rest, member;
	unsigned codings = 0, chunked = 0;
	bool last_chunked = false;

	if (head->minor == 0)
		return HTTP1_CODING_IN_10;
	for (ssize_t i = -1;
	    (i = http1_find(head, HTTP1_F_TRANSFER_ENCODING, (size_t)(i + 1))) >= 0;) {
		rest = head->fields[i].value;
		while (http1_list_next(&rest, &member)) {
			codings++;
			last_chunked = span_iis(member, "chunked");
			chunked += last_chunked;
		}
	}
	if (!last_chunked || chunked != 1)
		return HTTP1_BAD_CODING;
	if (codings != 1)
		return HTTP1_UNKNOWN_CODING;
	head->is_chunked = true;
	return HTTP1_OK;
}

static void
parse_connection(struct http1_head *head)
{
	struct span rest, member;

	for (ssize_t i = -1; (i = http1_find(head, HTTP1_F_CONNECTION, (size_t)(i + 1))) >= 0;) {
		rest = head->fields[i].value;
		while (http1_list_next(&rest, &member)) {
			if (span_iis(member, "close"))
				head->conn_close = true;
			else if (span_iis(member, "keep-alive"))
				head->conn_keep_alive = true;
			else if (span_iis(member, "upgrade"))
				head->conn_upgrade = true;
		}
	}
}

static void
parse_te(struct http1_head *head)
{
	struct span rest, member;

	for (ssize_t i = -1; (i = http1_find(head, HTTP1_F_TE, (size_t)(i + 1))) >= 0;) {
		rest = head->fields[i].value;
		while (http1_list_next(&rest, &member))
			if (span_iis(member, "trailers"))
				head->te_trailers = true;
	}
}

enum http1_verdict
http1_derive(struct http1_head *head)
{
	bool length = has(head, HTTP1_F_CONTENT_LENGTH);
	bool coding = has(head, HTTP1_F_TRANSFER_ENCODING);

	head->conn_close = head->conn_keep_alive = head->conn_upgrade = false;
	head->te_trailers = head->has_length = head->is_chunked = false;
	head->length = 0;
	if (has(head, HTTP1_F_CONNECTION))
		parse_connection(head);
	if (has(head, HTTP1_F_TE))
		parse_te(head);
	if (!head->is_response && head->minor >= 1 && !has(head, HTTP1_F_HOST))
		return HTTP1_NO_HOST;
	if (length && coding)
		return HTTP1_LENGTH_AND_CODING;
	if (length)
		return parse_length(head);
	return coding ? parse_coding(head) : HTTP1_OK;
}

void
http1_request_body(const struct http1_head *head, struct http1_framing *framing)
{
	*framing = (struct http1_framing){
		.body = HTTP1_BODY_NONE,
		.reusable = http1_keep_alive(head)
	};
	if (head->method == HTTP1_M_CONNECT) {
		/*
		 * RFC 9110 section 9.3.6: no content.  If one is announced, what
		 * follows could be that or the tunnel's first bytes: after a refusal
		 * nothing more is read from there.
		 */
		if (head->is_chunked || head->length != 0)
			framing->reusable = false;
	} else if (head->is_chunked) {
		framing->body = HTTP1_BODY_CHUNKED;
	} else if (head->has_length) {
		framing->body = HTTP1_BODY_LENGTH;
		framing->length = head->length;
	}
}

void
http1_response_body(const struct http1_head *head, enum http1_method method,
    struct http1_framing *framing)
{
	bool announced = head->is_chunked || head->length != 0;

	*framing = (struct http1_framing){
		.body = HTTP1_BODY_NONE,
		.reusable = http1_keep_alive(head)
	};
	if (head->status == 101 || (method == HTTP1_M_CONNECT && head->status / 100 == 2)) {
		framing->body = HTTP1_BODY_TUNNEL;
		framing->reusable = false;
	} else if (head->status < 200 || head->status == 204) {
		/* Whoever announces a body here may send one: into the next answer. */
		if (announced)
			framing->reusable = false;
	} else if (method == HTTP1_M_HEAD || head->status == 304) {
		/* Its framing fields describe what GET would have got. */
	} else if (head->is_chunked) {
		framing->body = HTTP1_BODY_CHUNKED;
	} else if (head->has_length) {
		framing->body = HTTP1_BODY_LENGTH;
		framing->length = head->length;
	} else {
		framing->body = HTTP1_BODY_CLOSE;
		framing->reusable = false;
	}
}

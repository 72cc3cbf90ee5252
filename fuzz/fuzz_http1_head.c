/* SPDX-License-Identifier: ISC */
/*
 * HTTP heads.  First byte: bit 0 response, bit 1 small limits; second byte:
 * seed of the fragments.  The rest is the message.  Checked: spans lie within
 * the head, fragments give the same as the whole, what we write parses again to
 * the same target, framing and fields, and holds nothing that must stay behind.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

enum {
	FIELDS = 64,
	FIELDS_SMALL = 4,
	BYTES = 65536,
	BYTES_SMALL = 64,
	OUT = 2 * BYTES
};

static enum http1_verdict
parse(struct http1_head *head, bool response, struct span in)
{
	return response ? http1_parse_response(head, in) : http1_parse_request(head, in);
}

static void
check_inside(struct span part, struct span whole)
{
	assert(part.base >= whole.base && part.base + part.len <= whole.base + whole.len);
}

static void
check_spans(const struct http1_head *head, struct span in)
{
	struct span whole = span_of(in.base, head->used);

	assert(head->used <= in.len && head->used <= head->bytes_max);
	assert(head->used >= 4 && memcmp(in.base + head->used - 2, "\r\n", 2) == 0);
	assert(head->field_count <= head->field_max);
	for (size_t i = 0; i < head->field_count; i++) {
		check_inside(head->fields[i].name, whole);
		check_inside(head->fields[i].value, whole);
		assert(head->fields[i].name.len != 0);
		assert(head->fields[i].name.base[head->fields[i].name.len] == ':');
	}
	if (head->is_response) {
		check_inside(head->reason, whole);
		assert(head->status >= 100 && head->status <= 999);
	} else {
		check_inside(head->method_text, whole);
		check_inside(head->target_text, whole);
	}
	assert(!(head->has_length && head->is_chunked));
}

static void
check_fragments(const struct http1_head *whole, enum http1_verdict verdict, struct span in,
    unsigned seed)
{
	struct http1_field fields[FIELDS];
	struct http1_head head;
	enum http1_verdict got = HTTP1_MORE;
	size_t len = 0;

	http1_head_init(&head, fields, whole->field_max, whole->bytes_max);
	while (got == HTTP1_MORE && len < in.len) {
		seed = seed * 1103515245 + 12345;
		len += 1 + (seed >> 16) % 7;
		if (len > in.len)
			len = in.len;
		got = parse(&head, whole->is_response, span_of(in.base, len));
	}
	assert((got == HTTP1_OK) == (verdict == HTTP1_OK));
	if (verdict == HTTP1_MORE)
		assert(got == HTTP1_MORE);
	if (got != HTTP1_OK)
		return;
	assert(head.used == whole->used && head.field_count == whole->field_count);
	assert(head.seen == whole->seen && head.length == whole->length);
	for (size_t i = 0; i < head.field_count; i++)
		assert(head.fields[i].name.base == whole->fields[i].name.base &&
		    span_eq(head.fields[i].value, whole->fields[i].value) &&
		    head.fields[i].id == whole->fields[i].id);
}

/* Every field that may go on is there again, in order, and none that may not. */
static void
check_fields(const struct http1_head *in, const struct http1_head *out)
{
	size_t at = 0;

	for (size_t i = 0; i < in->field_count; i++) {
		const struct http1_field *field = &in->fields[i];

		if (http1_is_hop_by_hop(in, i) || field->id == HTTP1_F_HOST ||
		    field->id == HTTP1_F_CONTENT_LENGTH)
			continue;
		while (at < out->field_count && !(span_eq(out->fields[at].name, field->name) &&
		    span_eq(out->fields[at].value, field->value)))
			at++;
		assert(at < out->field_count);
		at++;
	}
	assert(http1_find(out, HTTP1_F_PROXY_AUTHORIZATION, 0) < 0);
	assert(http1_find(out, HTTP1_F_KEEP_ALIVE, 0) < 0);
}

static void
check_request(const struct http1_head *head)
{
	static char out[OUT];
	struct http1_write_opts opts = { .via = "x", .conn = HTTP1_CONN_CLOSE };
	struct http1_field fields[FIELDS + 8];
	struct http1_framing framing, framing_again;
	struct http1_where where, where_again;
	struct http1_head again;
	ssize_t len;

	if (http1_request_target(head, &where) != HTTP1_OK)
		return;
	assert(where.target.port != 0);
	assert(where.target.addr.len != 0 || where.target.host_len != 0);
	http1_request_body(head, &framing);
	(void)http1_via_names(head, "x");
	(void)http1_wants_websocket(head);
	if (where.form == HTTP1_FORM_AUTHORITY)
		return;
	len = http1_write_request(head, &where, &framing, &opts, out, sizeof(out));
	assert(len > 0);
	assert(http1_write_request(head, &where, &framing, &opts, out, (size_t)len - 1) == -ENOSPC);
	len = http1_write_request(head, &where, &framing, &opts, out, sizeof(out));
	http1_head_init(&again, fields, FIELDS + 8, sizeof(out));
	assert(http1_parse_request(&again, span_of(out, (size_t)len)) == HTTP1_OK);
	assert(again.used == (size_t)len && again.minor == 1 && again.conn_close);
	assert(span_eq(again.method_text, head->method_text));
	assert(http1_request_target(&again, &where_again) == HTTP1_OK);
	assert(where_again.target.port == where.target.port);
	assert(where_again.target.host_len == where.target.host_len);
	assert(memcmp(where_again.target.host, where.target.host, where.target.host_len) == 0);
	assert(addr_same_ip(&where_again.target.addr, &where.target.addr));
	http1_request_body(&again, &framing_again);
	assert(framing_again.body == framing.body && framing_again.length == framing.length);
	check_fields(head, &again);
}

static void
check_response(const struct http1_head *head)
{
	static char out[OUT];
	static const enum http1_method methods[] = { HTTP1_M_GET, HTTP1_M_HEAD, HTTP1_M_CONNECT };
	struct http1_write_opts opts = { .via = "x" };
	struct http1_field fields[FIELDS + 8];
	struct http1_framing framing, framing_again;
	struct http1_head again;
	ssize_t len;

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		http1_response_body(head, methods[i], &framing);
		if (framing.body == HTTP1_BODY_TUNNEL)
			continue;
		len = http1_write_response(head, &framing, &opts, out, sizeof(out));
		assert(len > 0);
		http1_head_init(&again, fields, FIELDS + 8, sizeof(out));
		assert(http1_parse_response(&again, span_of(out, (size_t)len)) == HTTP1_OK);
		assert(again.used == (size_t)len && again.status == head->status);
		http1_response_body(&again, methods[i], &framing_again);
		assert(framing_again.body == framing.body);
		assert(framing_again.length == framing.length);
		check_fields(head, &again);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http1_field fields[FIELDS];
	struct http1_head head;
	enum http1_verdict verdict;
	bool response, small;
	char *copy;
	size_t len;

	if (size < 2)
		return 0;
	response = data[0] & 1;
	small = data[0] & 2;
	len = size - 2;
	copy = malloc(len != 0 ? len : 1);
	assert(copy != NULL);
	memcpy(copy, data + 2, len);
	http1_head_init(&head, fields, small ? FIELDS_SMALL : FIELDS, small ? BYTES_SMALL : BYTES);
	verdict = parse(&head, response, span_of(copy, len));
	assert(verdict != HTTP1_DATA && verdict < HTTP1_VERDICT_COUNT);
	assert(http1_verdict_status(verdict) != 0);
	if (verdict == HTTP1_OK) {
		check_spans(&head, span_of(copy, len));
		if (response)
			check_response(&head);
		else
			check_request(&head);
	}
	check_fragments(&head, verdict, span_of(copy, len), data[1]);
	free(copy);
	return 0;
}

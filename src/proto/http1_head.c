/* SPDX-License-Identifier: ISC */
/*
 * Heads of requests and responses.  The first call parses what is there in one
 * pass, as nearly every head comes whole.  If it was not whole, later calls only
 * look for the end (and for bytes that no head may hold), from where the last
 * one stopped, and the head is parsed once more when the end is there.  So a
 * client that sends a byte at a time costs each byte a constant.
 */
#include "proto/http1.h"

#include <assert.h>
#include <string.h>

#include "proto/chars.h"
#include "proto/http1_internal.h"

enum {
	/* RFC 9112 section 2.2 asks for one; old clients sent one after a POST's body too. */
	LEADING_LINES_MAX = 2,
	VERSION_LEN = 8,		/* "HTTP/1.1" */
	STATUS_LEN = 3
};

static const uint64_t ONES = 0x0101010101010101u;
static const uint64_t HIGHS = 0x8080808080808080u;

void
http1_head_init(struct http1_head *head, struct http1_field *fields, size_t field_max,
    size_t bytes_max)
{
	memset(head, 0, sizeof(*head));
	head->fields = fields;
	head->field_max = field_max;
	head->bytes_max = bytes_max;
}

/*
 * First byte that may not stand in a field value.  Eight bytes at a time while
 * none of them is below 0x20 (tab too, which the second loop lets pass) or DEL.
 * Borrows can only mark bytes above a true hit, so the lowest mark is right.
 */
static const char *
skip_value(const char *at, const char *end)
{
	uint64_t word, del, hit;

	while (end - at >= 8) {
		memcpy(&word, at, sizeof(word));
		del = word ^ ONES * 0x7f;
		hit = (((word - ONES * 0x20) & ~word) | ((del - ONES) & ~del)) & HIGHS;
		if (hit != 0) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
			at += __builtin_ctzll(hit) / 8;
#endif
			break;
		}
		at += 8;
	}
	while (at < end && chars_is(*at, CHARS_VALUE))
		at++;
	return at;
}

static const char *
skip_class(const char *at, const char *end, unsigned class)
{
	while (at < end && chars_is(*at, class))
		at++;
	return at;
}

/* What a byte means that ended something where only CRLF may. */
static enum http1_verdict
line_end(const char *at, const char *end, enum http1_verdict otherwise)
{
	if (at == end)
		return HTTP1_MORE;
	if (*at == '\r') {
		if (at + 1 == end)
			return HTTP1_MORE;
		return at[1] == '\n' ? HTTP1_OK : HTTP1_BARE_CR;
	}
	if (*at == '\n')
		return HTTP1_BARE_LF;
	return chars_is(*at, CHARS_VALUE) ? otherwise : HTTP1_CONTROL_BYTE;
}

static enum http1_method
method_of(struct span text)
{
	for (enum http1_method m = HTTP1_M_GET; m <= HTTP1_M_PATCH; m++)
		if (span_is(text, http1_method_name(m)))
			return m;
	return HTTP1_M_OTHER;
}

/* "HTTP/" DIGIT "." DIGIT, which must be all there. */
static enum http1_verdict
parse_version(const char *at, uint8_t *minor, enum http1_verdict malformed)
{
	if (memcmp(at, "HTTP/", 5) != 0 || !chars_is(at[5], CHARS_DIGIT) || at[6] != '.' ||
	    !chars_is(at[7], CHARS_DIGIT))
		return malformed;
	if (at[5] != '1')
		return HTTP1_BAD_VERSION;
	*minor = at[7] != '0';
	return HTTP1_OK;
}

/* Leading empty lines before a request. */
static const char *
skip_leading(const char *at, const char *end)
{
	for (int i = 0; i < LEADING_LINES_MAX && end - at >= 2; i++, at += 2)
		if (at[0] != '\r' || at[1] != '\n')
			break;
	return at;
}

static enum http1_verdict
parse_request_line(struct http1_head *head, const char **cursor, const char *end)
{
	const char *at = *cursor, *begin = at;
	enum http1_verdict verdict;

	at = skip_class(at, end, CHARS_TOKEN);
	if (at == end)
		return HTTP1_MORE;
	/* A lone CR here may become an empty line. */
	if (at == begin || *at != ' ') {
		verdict = line_end(at, end, HTTP1_BAD_REQUEST_LINE);
		return verdict == HTTP1_OK ? HTTP1_BAD_REQUEST_LINE : verdict;
	}
	head->method_text = span_of(begin, (size_t)(at - begin));
	begin = ++at;
	at = skip_class(at, end, CHARS_TARGET);
	if (at == end)
		return HTTP1_MORE;
	if (at == begin || *at != ' ') {
		verdict = line_end(at, end, HTTP1_BAD_REQUEST_LINE);
		return verdict == HTTP1_OK ? HTTP1_BAD_REQUEST_LINE : verdict;
	}
	head->target_text = span_of(begin, (size_t)(at - begin));
	begin = ++at;
	at = skip_value(at, end);
	verdict = line_end(at, end, HTTP1_BAD_REQUEST_LINE);
	if (verdict != HTTP1_OK)
		return verdict;
	if (at - begin != VERSION_LEN)
		return HTTP1_BAD_REQUEST_LINE;
	*cursor = at + 2;
	head->method = method_of(head->method_text);
	return parse_version(begin, &head->minor, HTTP1_BAD_REQUEST_LINE);
}

/* "HTTP/1.1 200 reason"; the space before an empty reason is often forgotten. */
static enum http1_verdict
parse_status_line(struct http1_head *head, const char **cursor, const char *end)
{
	const char *begin = *cursor, *digits = begin + VERSION_LEN + 1;
	const char *at = skip_value(begin, end);
	enum http1_verdict verdict = line_end(at, end, HTTP1_BAD_STATUS_LINE);

	if (verdict != HTTP1_OK)
		return verdict;
	if (at - begin < VERSION_LEN + 1 + STATUS_LEN || digits[-1] != ' ')
		return HTTP1_BAD_STATUS_LINE;
	verdict = parse_version(begin, &head->minor, HTTP1_BAD_STATUS_LINE);
	if (verdict != HTTP1_OK)
		return verdict;
	head->status = 0;
	for (int i = 0; i < STATUS_LEN; i++) {
		if (!chars_is(digits[i], CHARS_DIGIT))
			return HTTP1_BAD_STATUS_LINE;
		head->status = (uint16_t)(head->status * 10 + (digits[i] - '0'));
	}
	if (head->status < 100)
		return HTTP1_BAD_STATUS_LINE;
	digits += STATUS_LEN;
	if (digits < at && *digits++ != ' ')
		return HTTP1_BAD_STATUS_LINE;
	head->reason = span_of(digits, (size_t)(at - digits));
	*cursor = at + 2;
	return HTTP1_OK;
}

/* What is wrong with a line whose name ended at `at` with something else than a colon. */
static enum http1_verdict
bad_name(const char *begin, const char *at, const char *end)
{
	enum http1_verdict verdict;

	if (*at == ' ' || *at == '\t')
		return at == begin ? HTTP1_OBS_FOLD : HTTP1_SPACE_BEFORE_COLON;
	verdict = line_end(at, end, HTTP1_BAD_FIELD_NAME);
	return verdict == HTTP1_OK ? HTTP1_BAD_FIELD_NAME : verdict;
}

static enum http1_verdict
note_field(struct http1_head *head, enum http1_field_id id)
{
	uint64_t bit = (uint64_t)1 << id;

	if ((head->seen & bit) != 0) {
		if (id == HTTP1_F_CONTENT_LENGTH)
			return HTTP1_REPEATED_LENGTH;
		if (id == HTTP1_F_HOST && !head->is_response)
			return HTTP1_REPEATED_HOST;
	}
	head->seen |= bit;
	return HTTP1_OK;
}

/* Field lines up to and with the empty line. */
static enum http1_verdict
parse_fields(struct http1_head *head, const char **cursor, const char *end)
{
	const char *at = *cursor, *begin, *stop;
	struct http1_field *field = head->fields;
	enum http1_verdict verdict;

	for (;; field++) {
		begin = at;
		at = skip_class(at, end, CHARS_TOKEN);
		if (at == end)
			return HTTP1_MORE;
		if (at == begin && *at == '\r') {
			verdict = line_end(at, end, HTTP1_BAD_FIELD_NAME);
			if (verdict != HTTP1_OK)
				return verdict;
			break;
		}
		if (*at != ':' || at == begin)
			return bad_name(begin, at, end);
		if (field == head->fields + head->field_max)
			return HTTP1_TOO_MANY_FIELDS;
		field->name = span_of(begin, (size_t)(at - begin));
		for (at++; at < end && (*at == ' ' || *at == '\t');)
			at++;
		begin = at;
		at = skip_value(at, end);
		verdict = line_end(at, end, HTTP1_CONTROL_BYTE);
		if (verdict != HTTP1_OK)
			return verdict;
		for (stop = at; stop > begin && (stop[-1] == ' ' || stop[-1] == '\t');)
			stop--;
		field->value = span_of(begin, (size_t)(stop - begin));
		field->id = http1_field_lookup(field->name);
		if (field->id != HTTP1_F_OTHER) {
			verdict = note_field(head, field->id);
			if (verdict != HTTP1_OK)
				return verdict;
		}
		at += 2;
	}
	head->field_count = (size_t)(field - head->fields);
	*cursor = at + 2;
	return HTTP1_OK;
}

static enum http1_verdict
parse_first_line(struct http1_head *head, const char **cursor, const char *end)
{
	if (head->is_response)
		return parse_status_line(head, cursor, end);
	*cursor = skip_leading(*cursor, end);
	return parse_request_line(head, cursor, end);
}

static enum http1_verdict
parse_all(struct http1_head *head, struct span in)
{
	const char *at = in.base, *end = in.base + in.len;
	enum http1_verdict verdict;

	head->seen = 0;
	head->field_count = 0;
	verdict = parse_first_line(head, &at, end);
	if (verdict == HTTP1_OK)
		verdict = parse_fields(head, &at, end);
	if (verdict != HTTP1_OK)
		return verdict;
	head->used = (size_t)(at - in.base);
	return http1_derive(head);
}

/*
 * Goes on looking for the empty line from head->scanned, and moves that to the
 * first byte that has to be seen again (a CR whose LF has not come).  The first
 * line is judged as soon as it ends: a peer that speaks something else would
 * never send an empty line.
 */
static enum http1_verdict
scan_on(struct http1_head *head, struct span in)
{
	const char *end = in.base + in.len;
	const char *start = head->is_response ? in.base : skip_leading(in.base, end);
	const char *at = in.base + head->scanned;
	enum http1_verdict verdict;

	if (at < start)
		at = start;
	for (;;) {
		at = skip_value(at, end);
		verdict = line_end(at, end, HTTP1_CONTROL_BYTE);
		head->scanned = (size_t)(at - in.base);
		if (verdict != HTTP1_OK)
			return verdict;
		if (at == start || at[-1] == '\n')
			return HTTP1_OK;
		if (!head->line_checked) {
			const char *line = in.base;

			verdict = parse_first_line(head, &line, end);
			if (verdict != HTTP1_OK)
				return verdict;
			head->line_checked = true;
		}
		at += 2;
	}
}

/* The limit was reached before the end. */
static enum http1_verdict
too_large(const struct http1_head *head, struct span in)
{
	const char *end = in.base + in.len, *at = in.base;

	if (head->is_response)
		return HTTP1_HEAD_TOO_LARGE;
	at = skip_leading(at, end);
	return at < end && memchr(at, '\n', (size_t)(end - at)) == NULL ? HTTP1_URI_TOO_LONG :
	    HTTP1_HEAD_TOO_LARGE;
}

static enum http1_verdict
parse(struct http1_head *head, struct span in)
{
	struct span seen = in;
	enum http1_verdict verdict;

	if (in.len == 0)
		return HTTP1_MORE;
	if (seen.len > head->bytes_max)
		seen.len = head->bytes_max;
	if (head->scanned == 0) {
		verdict = parse_all(head, seen);
		if (verdict == HTTP1_MORE && seen.len != 0)
			head->scanned = seen.len - (seen.base[seen.len - 1] == '\r');
	} else {
		assert(head->scanned <= seen.len);
		verdict = scan_on(head, seen);
		if (verdict == HTTP1_OK) {
			verdict = parse_all(head, seen);
			assert(verdict != HTTP1_MORE);
		}
	}
	if (verdict == HTTP1_MORE && in.len >= head->bytes_max)
		verdict = too_large(head, seen);
	return verdict;
}

enum http1_verdict
http1_parse_request(struct http1_head *head, struct span in)
{
	head->is_response = false;
	return parse(head, in);
}

enum http1_verdict
http1_parse_response(struct http1_head *head, struct span in)
{
	head->is_response = true;
	return parse(head, in);
}

/* SPDX-License-Identifier: ISC */
/*
 * The chunked coding (RFC 9112 section 7.1), walked a byte at a time but for
 * its data, which is skipped in one step.  Only what the grammar has to offer
 * is taken: no white space around sizes, CRLF and nothing else ends a line.
 */
#include "proto/http1.h"

#include <assert.h>
#include <string.h>

#include "proto/chars.h"

enum { SIZE_DIGITS_MAX = 16 };

enum state {
	SIZE,
	EXT,
	SIZE_LF,
	DATA,
	DATA_CR,
	DATA_LF,
	TRAILER_BEGIN,
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LF,
	END_LF,
	DONE
};

void
http1_chunked_init(struct http1_chunked *walk)
{
	memset(walk, 0, sizeof(*walk));
}

static enum http1_verdict
size_byte(struct http1_chunked *walk, char c)
{
	if (chars_is(c, CHARS_HEX)) {
		if (walk->digits == SIZE_DIGITS_MAX)
			return HTTP1_BAD_CHUNK_SIZE;
		walk->digits++;
		walk->left = walk->left << 4 | chars_hex_value(c);
		return HTTP1_OK;
	}
	if (walk->digits == 0 || (c != ';' && c != '\r') || walk->left > INT64_MAX)
		return HTTP1_BAD_CHUNK_SIZE;
	walk->state = c == ';' ? EXT : SIZE_LF;
	walk->ext_bytes = 0;
	walk->ext_quoted = walk->ext_escaped = false;
	return HTTP1_OK;
}

static enum http1_verdict
ext_byte(struct http1_chunked *walk, char c)
{
	if (c == '\r') {
		walk->state = SIZE_LF;
		return walk->ext_quoted ? HTTP1_BAD_CHUNK_EXT : HTTP1_OK;
	}
	/* Passed on as it is, so only what every parser reads alike: no 8-bit bytes, no open quote. */
	if (!chars_is(c, CHARS_VALUE) || (uint8_t)c >= 0x80)
		return HTTP1_BAD_CHUNK_EXT;
	if (walk->ext_escaped)
		walk->ext_escaped = false;
	else if (walk->ext_quoted && c == '\\')
		walk->ext_escaped = true;
	else if (c == '"')
		walk->ext_quoted = !walk->ext_quoted;
	if (++walk->ext_bytes > HTTP1_CHUNK_EXT_MAX ||
	    ++walk->ext_total_bytes > HTTP1_CHUNK_EXT_TOTAL_MAX)
		return HTTP1_CHUNK_EXT_TOO_LONG;
	return HTTP1_OK;
}

static enum http1_verdict
size_end(struct http1_chunked *walk, char c)
{
	if (c != '\n')
		return HTTP1_BAD_CHUNK_SIZE;
	if (walk->left > INT64_MAX - walk->body_bytes)
		return HTTP1_BAD_CHUNK_SIZE;
	walk->body_bytes += walk->left;
	walk->state = walk->left != 0 ? DATA : TRAILER_BEGIN;
	return HTTP1_OK;
}

static enum http1_verdict
data_end(struct http1_chunked *walk, char c)
{
	if (c != (walk->state == DATA_CR ? '\r' : '\n'))
		return HTTP1_BAD_CHUNK_END;
	if (walk->state == DATA_CR) {
		walk->state = DATA_LF;
	} else {
		walk->state = SIZE;
		walk->digits = 0;
		walk->left = 0;
	}
	return HTTP1_OK;
}

/*
 * Fields that frame, route or authenticate a message don't come after it (RFC
 * 9110 section 6.5.1): a recipient that merges trailers would take them for the
 * head's.
 */
static bool
trailer_allowed(const struct http1_chunked *walk)
{
	struct span name = span_of(walk->name, walk->name_len);

	if (name.len >= 6 && span_iis(span_of(name.base, 6), "proxy-"))
		return false;
	switch (http1_field_lookup(name)) {
	case HTTP1_F_AUTHORIZATION:
	case HTTP1_F_CONNECTION:
	case HTTP1_F_CONTENT_LENGTH:
	case HTTP1_F_HOST:
	case HTTP1_F_KEEP_ALIVE:
	case HTTP1_F_TE:
	case HTTP1_F_TRAILER:
	case HTTP1_F_TRANSFER_ENCODING:
	case HTTP1_F_UPGRADE:
		return false;
	default:
		return true;
	}
}

static enum http1_verdict
trailer_name_byte(struct http1_chunked *walk, char c)
{
	if (c == ':') {
		walk->state = TRAILER_VALUE;
		return trailer_allowed(walk) ? HTTP1_OK : HTTP1_BAD_TRAILER;
	}
	if (!chars_is(c, CHARS_TOKEN))
		return HTTP1_BAD_TRAILER;
	/* A name that fills the buffer is longer than any known one. */
	if (walk->name_len < HTTP1_TRAILER_NAME_KEPT)
		walk->name[walk->name_len++] = c;
	return HTTP1_OK;
}

static enum http1_verdict
trailer_byte(struct http1_chunked *walk, char c)
{
	if (++walk->trailer_bytes > HTTP1_TRAILER_BYTES_MAX)
		return HTTP1_TRAILER_TOO_LONG;
	switch (walk->state) {
	case TRAILER_BEGIN:
		walk->state = c == '\r' ? END_LF : TRAILER_NAME;
		walk->name_len = 0;
		if (c == '\r')
			return HTTP1_OK;
		return c != ':' ? trailer_name_byte(walk, c) : HTTP1_BAD_TRAILER;
	case TRAILER_NAME:
		return trailer_name_byte(walk, c);
	case TRAILER_VALUE:
		if (c == '\r')
			walk->state = TRAILER_LF;
		else if (!chars_is(c, CHARS_VALUE))
			return HTTP1_BAD_TRAILER;
		return HTTP1_OK;
	default:
		if (c != '\n')
			return HTTP1_BAD_TRAILER;
		walk->state = walk->state == END_LF ? DONE : TRAILER_BEGIN;
		return HTTP1_OK;
	}
}

static enum http1_verdict
step(struct http1_chunked *walk, char c)
{
	switch (walk->state) {
	case SIZE:
		return size_byte(walk, c);
	case EXT:
		return ext_byte(walk, c);
	case SIZE_LF:
		return size_end(walk, c);
	case DATA_CR:
	case DATA_LF:
		return data_end(walk, c);
	default:
		return trailer_byte(walk, c);
	}
}

enum http1_verdict
http1_chunked_next(struct http1_chunked *walk, struct span in, size_t *used, struct span *data)
{
	size_t i = 0;

	*used = 0;
	*data = span_of(in.base, 0);
	assert(walk->state <= DONE);
	while (walk->failed == HTTP1_OK && walk->state != DONE) {
		if (i == in.len) {
			*used = i;
			return HTTP1_MORE;
		}
		if (walk->state == DATA) {
			*data = span_of(in.base + i, in.len - i);
			if (data->len > walk->left)
				data->len = (size_t)walk->left;
			walk->left -= data->len;
			if (walk->left == 0)
				walk->state = DATA_CR;
			*used = i + data->len;
			return HTTP1_DATA;
		}
		walk->failed = step(walk, in.base[i]);
		if (walk->failed == HTTP1_OK)
			i++;
	}
	*used = i;
	return walk->failed;
}

enum http1_verdict
http1_chunked_walk(struct http1_chunked *walk, struct span in, size_t *used)
{
	enum http1_verdict verdict;
	struct span data;
	size_t part;

	*used = 0;
	do {
		verdict = http1_chunked_next(walk, span_of(in.base + *used, in.len - *used), &part,
		    &data);
		*used += part;
	} while (verdict == HTTP1_DATA);
	return verdict;
}

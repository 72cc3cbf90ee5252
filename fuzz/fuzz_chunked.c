/* SPDX-License-Identifier: ISC */
/*
 * The chunked coding.  First byte: seed of the fragments; the rest is the body.
 * Whole, in fragments and by http1_chunked_walk it comes to the same verdict,
 * length and data; an independent, slow reader agrees about what it accepts.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

struct result {
	enum http1_verdict	 verdict;
	size_t			 used;
	size_t			 len;
	char			*data;
};

/* seed 0: all at once */
static void
walk(struct span in, unsigned seed, struct result *result)
{
	struct http1_chunked walker;
	struct span data;
	size_t end = 0, used;

	http1_chunked_init(&walker);
	result->verdict = HTTP1_MORE;
	result->used = result->len = 0;
	while (result->verdict == HTTP1_MORE && end < in.len) {
		seed = seed * 1103515245 + 12345;
		end = seed == 12345 ? in.len : result->used + 1 + (seed >> 16) % 9;
		if (end > in.len)
			end = in.len;
		do {
			struct span part = span_of(in.base + result->used, end - result->used);

			result->verdict = http1_chunked_next(&walker, part, &used, &data);
			assert(used <= part.len);
			assert(data.base >= part.base && data.base + data.len <= part.base + used);
			assert((result->verdict == HTTP1_DATA) == (data.len != 0));
			memcpy(result->data + result->len, data.base, data.len);
			result->len += data.len;
			result->used += used;
		} while (result->verdict == HTTP1_DATA);
		assert(result->verdict != HTTP1_MORE || result->used == end);
	}
	assert(walker.body_bytes >= result->len);
}

/* Reads well-formed bodies only, in the plainest way; false when it is none. */
static bool
read_plainly(struct span in, size_t *used, size_t *data_len)
{
	const char *at = in.base, *end = in.base + in.len;

	*data_len = 0;
	for (;;) {
		const char *line = at;
		uint64_t size = 0;

		at = memchr(line, '\n', (size_t)(end - line));
		if (at == NULL || at == line || at[-1] != '\r')
			return false;
		for (; line < at && strchr("0123456789abcdefABCDEF", *line) != NULL &&
		    *line != '\0'; line++) {
			char digit[2] = { *line, '\0' };

			size = size << 4 | strtoul(digit, NULL, 16);
		}
		at++;
		if (size == 0)
			break;
		if (size + 2 > (uint64_t)(end - at))
			return false;
		*data_len += size;
		at += size;
		if (memcmp(at, "\r\n", 2) != 0)
			return false;
		at += 2;
	}
	/* Trailers up to an empty line. */
	while (end - at >= 2 && memcmp(at, "\r\n", 2) != 0) {
		at = memchr(at, '\n', (size_t)(end - at));
		if (at == NULL)
			return false;
		at++;
	}
	if (end - at < 2)
		return false;
	*used = (size_t)(at + 2 - in.base);
	return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct result once, parts;
	struct http1_chunked walker;
	size_t len, used, plain_used, plain_len;
	char *copy;
	struct span in;

	if (size < 1)
		return 0;
	len = size - 1;
	copy = malloc(len != 0 ? len : 1);
	once.data = malloc(len + 1);
	parts.data = malloc(len + 1);
	assert(copy != NULL && once.data != NULL && parts.data != NULL);
	memcpy(copy, bytes + 1, len);
	in = span_of(copy, len);

	walk(in, 0, &once);
	walk(in, 1 + bytes[0], &parts);
	assert(once.verdict == parts.verdict && once.used == parts.used);
	assert(once.len == parts.len && memcmp(once.data, parts.data, once.len) == 0);
	http1_chunked_init(&walker);
	assert(http1_chunked_walk(&walker, in, &used) == once.verdict && used == once.used);
	if (once.verdict == HTTP1_OK) {
		assert(read_plainly(in, &plain_used, &plain_len));
		assert(plain_used == once.used && plain_len == once.len);
	}
	free(copy);
	free(once.data);
	free(parts.data);
	return 0;
}

/* SPDX-License-Identifier: ISC */
/* The chunked coding, CASES 20. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

/* Walks `in` in pieces of `piece` bytes; `data` gets the body. */
static enum http1_verdict
walk_pieces(struct span in, size_t piece, size_t *used, char *data, size_t *data_len)
{
	struct http1_chunked walk;
	enum http1_verdict verdict = HTTP1_MORE;

	http1_chunked_init(&walk);
	*used = *data_len = 0;
	while (verdict == HTTP1_MORE && *used < in.len) {
		size_t len = in.len - *used < piece ? in.len - *used : piece, taken = 0, part;

		do {
			struct span found;

			verdict = http1_chunked_next(&walk, span_of(in.base + *used + taken,
			    len - taken), &part, &found);
			if (verdict == HTTP1_DATA) {
				memcpy(data + *data_len, found.base, found.len);
				*data_len += found.len;
			}
			taken += part;
		} while (verdict == HTTP1_DATA);
		if (verdict == HTTP1_MORE)
			cr_assert_eq(taken, len);
		*used += taken;
	}
	return verdict;
}

static const struct {
	const char		*in;
	enum http1_verdict	 verdict;
	const char		*data;
	const char		*rest;
} rows[] = {
	{ "0\r\n\r\nGET", HTTP1_OK, "", "GET" },
	{ "5\r\nhello\r\n0\r\n\r\n", HTTP1_OK, "hello", "" },
	{ "5\r\nhello\r\n0006\r\n world\r\n000\r\n\r\nX", HTTP1_OK, "hello world", "X" },
	{ "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", HTTP1_OK, "01234567890123456789", "" },
	{ "0000000000000001\r\na\r\n0\r\n\r\n", HTTP1_OK, "a", "" },
	{ "1;x\r\na\r\n0;y=\"z\"\r\n\r\n", HTTP1_OK, "a", "" },
	{ "0\r\nA: b\r\nLong-Name-That-Nobody-Knows-At-All: \xc3\xa4\t\r\nC:\r\n\r\n1",
	    HTTP1_OK, "", "1" },
	{ "5\r\nhel", HTTP1_MORE, "hel", "" },
	{ "7fffffffffffffff\r\na", HTTP1_MORE, "a", "" },
	{ "1\r\na\r\n7fffffffffffffff\r\na", HTTP1_BAD_CHUNK_SIZE, "a", NULL },
	{ "8000000000000000\r\na", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "ffffffffffffffff\r\na", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "00000000000000001\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "0x1\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "+1\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "-1\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "1 \r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ " 1\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "1 ;x\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "1\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "1\r\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ ";x\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "g\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "1;x\na\r\n", HTTP1_BAD_CHUNK_EXT, "", NULL },
	{ "1;x\x01\r\na\r\n", HTTP1_BAD_CHUNK_EXT, "", NULL },
	{ "1;x\ry\r\na\r\n", HTTP1_BAD_CHUNK_SIZE, "", NULL },
	{ "1\r\nab\r\n", HTTP1_BAD_CHUNK_END, "a", NULL },
	{ "1\r\na\n0\r\n\r\n", HTTP1_BAD_CHUNK_END, "a", NULL },
	{ "1\r\na\rb", HTTP1_BAD_CHUNK_END, "a", NULL },
	{ "0\r\nA : b\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\n: b\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nA: b\r\n c\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nA: b\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nA: b\rc\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nAbc\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\n\rX", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\n\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nContent-Length: 5\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\ntransfer-encoding: chunked\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nHost: b\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
	{ "0\r\nProxy-Authorization: b\r\n\r\n", HTTP1_BAD_TRAILER, "", NULL },
};

Test(http1_chunked, table_in_pieces_of_every_size)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct span in = span_str(rows[i].in);

		for (size_t piece = 1; piece <= in.len; piece++) {
			char data[64];
			size_t used, len;
			enum http1_verdict got = walk_pieces(in, piece, &used, data, &len);

			cr_expect_eq(got, rows[i].verdict, "%s by %zu: %s", in.base, piece,
			    http1_verdict_cause(got));
			cr_expect(span_is(span_of(data, len), rows[i].data), "%s by %zu", in.base,
			    piece);
			if (rows[i].rest != NULL)
				cr_expect_str_eq(in.base + used, rows[i].rest);
		}
	}
}

Test(http1_chunked, errors_and_ends_stay)
{
	struct http1_chunked walk;
	size_t used;

	http1_chunked_init(&walk);
	cr_expect_eq(http1_chunked_walk(&walk, span_str("1\r\nab\r\n"), &used), HTTP1_BAD_CHUNK_END);
	cr_expect_eq(used, 4);
	cr_expect_eq(http1_chunked_walk(&walk, span_str("\r\n0\r\n\r\n"), &used), HTTP1_BAD_CHUNK_END);
	cr_expect_eq(used, 0);
	http1_chunked_init(&walk);
	cr_expect_eq(http1_chunked_walk(&walk, span_str("0\r\n\r\nxx"), &used), HTTP1_OK);
	cr_expect_eq(used, 5);
	cr_expect_eq(http1_chunked_walk(&walk, span_str("xx"), &used), HTTP1_OK);
	cr_expect_eq(used, 0);
}

Test(http1_chunked, a_million_one_byte_chunks)
{
	enum { CHUNKS = 1000000 };
	char *in = malloc(CHUNKS * 6 + 5);
	struct http1_chunked walk;
	size_t used;

	for (size_t i = 0; i < CHUNKS; i++)
		memcpy(in + i * 6, "1\r\nx\r\n", 6);
	memcpy(in + CHUNKS * 6, "0\r\n\r\n", 5);
	http1_chunked_init(&walk);
	cr_expect_eq(http1_chunked_walk(&walk, span_of(in, CHUNKS * 6 + 5), &used), HTTP1_OK);
	cr_expect_eq(used, CHUNKS * 6 + 5);
	cr_expect_eq(walk.body_bytes, CHUNKS);
	free(in);
}

Test(http1_chunked, extensions_and_trailers_are_bounded)
{
	static char big[HTTP1_TRAILER_BYTES_MAX + 64];
	struct http1_chunked walk;
	enum http1_verdict verdict = HTTP1_MORE;
	size_t used, total = 0;

	memset(big, 'x', sizeof(big));
	http1_chunked_init(&walk);
	cr_expect_eq(http1_chunked_walk(&walk, span_str("1;"), &used), HTTP1_MORE);
	cr_expect_eq(http1_chunked_walk(&walk, span_of(big, HTTP1_CHUNK_EXT_MAX), &used), HTTP1_MORE);
	cr_expect_eq(http1_chunked_walk(&walk, span_of(big, 1), &used), HTTP1_CHUNK_EXT_TOO_LONG);

	/* Extensions of allowed length without end. */
	memcpy(big, "1;", 2);
	memcpy(big + 1000, "\r\nx\r\n", 5);
	http1_chunked_init(&walk);
	while (verdict == HTTP1_MORE && total < 10 * HTTP1_CHUNK_EXT_TOTAL_MAX) {
		verdict = http1_chunked_walk(&walk, span_of(big, 1005), &used);
		total += used;
	}
	cr_expect_eq(verdict, HTTP1_CHUNK_EXT_TOO_LONG);

	memset(big, 'x', sizeof(big));
	memcpy(big, "0\r\nA:", 5);
	http1_chunked_init(&walk);
	cr_expect_eq(http1_chunked_walk(&walk, span_of(big, sizeof(big)), &used),
	    HTTP1_TRAILER_TOO_LONG);
}

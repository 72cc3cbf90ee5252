/* SPDX-License-Identifier: ISC */
#include "util/str.h"

#include <stdio.h>

char *
str_quote(struct span text, char out[STR_QUOTED_MAX])
{
	/* Room for one more escape, the mark, the quote and the NUL. */
	const size_t limit = STR_QUOTED_MAX - sizeof("\\xNN...\"");
	size_t used = 0, i;

	out[used++] = '"';
	for (i = 0; i < text.len && used < limit; i++) {
		unsigned char c = (unsigned char)text.base[i];

		if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
			used += (size_t)snprintf(out + used, 5, "\\x%02x", c);
		else
			out[used++] = (char)c;
	}
	snprintf(out + used, STR_QUOTED_MAX - used, "%s\"", i < text.len ? "..." : "");
	return out;
}

unsigned
str_distance(struct span a, struct span b)
{
	enum { LONGEST = 80 };
	/* Rows i-2, i-1 and i of the usual table. */
	unsigned rows[3][LONGEST + 1];

	if (a.len > LONGEST || b.len > LONGEST)
		return STR_FAR;
	for (size_t j = 0; j <= b.len; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a.len; i++) {
		unsigned *now = rows[i % 3], *above = rows[(i - 1) % 3], *two = rows[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= b.len; j++) {
			unsigned best = above[j - 1] + (a.base[i - 1] != b.base[j - 1]);

			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a.base[i - 1] == b.base[j - 2] &&
			    a.base[i - 2] == b.base[j - 1] && two[j - 2] + 1 < best)
				best = two[j - 2] + 1;
			now[j] = best;
		}
	}
	return rows[a.len % 3][b.len];
}

bool
str_to_u64(struct span text, uint64_t *out)
{
	uint64_t value = 0;

	if (text.len == 0 || (text.base[0] == '0' && text.len > 1))
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (text.base[i] < '0' || text.base[i] > '9')
			return false;
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(text.base[i] - '0'), &value))
			return false;
	}
	*out = value;
	return true;
}

/* Bytes in the sequence that `p` begins with, 0 when it is malformed. */
static size_t
utf8_sequence(const unsigned char *p, size_t left)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t len;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (left < len)
		return 0;
	/* RFC 3629 section 4: the second byte's range depends on the first. */
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

size_t
str_utf8_valid_bytes(struct span text)
{
	size_t at = 0, len;

	while (at < text.len) {
		len = utf8_sequence((const unsigned char *)text.base + at, text.len - at);
		if (len == 0)
			break;
		at += len;
	}
	return at;
}

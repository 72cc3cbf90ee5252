/* SPDX-License-Identifier: ISC */
#include "proto/basic.h"

enum {
	DECODED_MAX = BASIC_PART_MAX + 1 + BASIC_PART_MAX,
	TEXT_MAX = (DECODED_MAX + 2) / 3 * 4
};

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* -1: not of the alphabet. */
static int
digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool
basic_base64_decode(struct span text, void *out, size_t room, size_t *len)
{
	uint8_t *to = out;
	size_t pad = 0, used = 0;

	if (text.len % 4 != 0)
		return false;
	while (pad < 2 && pad < text.len && text.base[text.len - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < text.len; i += 4) {
		size_t bytes = i + 4 == text.len ? 3 - pad : 3;
		uint32_t word = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = k <= bytes ? digit(text.base[i + k]) : 0;

			if (d < 0)
				return false;
			word = word << 6 | (uint32_t)d;
		}
		/* RFC 4648 section 3.5: bits that no byte holds must be zero. */
		if ((word & (0xffffffu >> (8 * bytes)) & 0xffffffu) != 0 || room - used < bytes)
			return false;
		for (size_t k = 0; k < bytes; k++)
			to[used++] = (uint8_t)(word >> (16 - 8 * k));
	}
	*len = used;
	return true;
}

void
basic_base64_encode(const void *data, size_t len, char *out)
{
	const uint8_t *p = data;

	for (; len > 0; out += 4) {
		size_t bytes = len < 3 ? len : 3;
		uint32_t word = 0;

		for (size_t k = 0; k < 3; k++)
			word = word << 8 | (k < bytes ? p[k] : 0u);
		for (size_t k = 0; k < 4; k++)
			out[k] = k <= bytes ? alphabet[word >> (18 - 6 * k) & 63] : '=';
		p += bytes;
		len -= bytes;
	}
}

/* The barrier: else the compiler may leave out stores that nobody reads. */
static void
wipe(void *p, size_t len)
{
	memset(p, 0, len);
	__asm__ __volatile__("" : : "r"(p) : "memory");
}

void
basic_wipe(struct basic_credentials *c)
{
	wipe(c, sizeof(*c));
}

/* "Basic" 1*SP token68 (RFC 9110 section 11.4). */
static bool
take_scheme(struct span *value)
{
	static const char name[] = "Basic";
	const size_t len = sizeof(name) - 1;
	size_t at = len;

	if (value->len <= len || !span_ieq(span_of(value->base, len), span_of(name, len)) ||
	    value->base[at] != ' ')
		return false;
	while (at < value->len && value->base[at] == ' ')
		at++;
	*value = span_of(value->base + at, value->len - at);
	return true;
}

/* RFC 7617 section 2: the first colon divides, control characters are not allowed. */
static enum basic_verdict
split(const char *text, size_t len, struct basic_credentials *out)
{
	const char *colon = memchr(text, ':', len);
	size_t user_len, pass_len;

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return BASIC_MALFORMED;
	if (colon == NULL)
		return BASIC_MALFORMED;
	user_len = (size_t)(colon - text);
	pass_len = len - user_len - 1;
	if (user_len > BASIC_PART_MAX || pass_len > BASIC_PART_MAX)
		return BASIC_TOO_LONG;
	memcpy(out->user, text, user_len);
	memcpy(out->pass, colon + 1, pass_len);
	out->user_len = (uint8_t)user_len;
	out->pass_len = (uint8_t)pass_len;
	return BASIC_OK;
}

enum basic_verdict
basic_parse(struct span value, struct basic_credentials *out)
{
	char text[TEXT_MAX / 4 * 3];
	enum basic_verdict v = BASIC_MALFORMED;
	size_t len = 0;

	memset(out, 0, sizeof(*out));
	if (!take_scheme(&value))
		return span_iis(value, "Basic") ? BASIC_MALFORMED : BASIC_OTHER_SCHEME;
	if (value.len > TEXT_MAX)
		return BASIC_TOO_LONG;
	if (basic_base64_decode(value, text, sizeof(text), &len))
		v = split(text, len, out);
	wipe(text, sizeof(text));
	return v;
}

const char *
basic_verdict_text(enum basic_verdict v)
{
	switch (v) {
	case BASIC_OK:
		return "ok";
	case BASIC_OTHER_SCHEME:
		return "not the Basic scheme";
	case BASIC_MALFORMED:
		return "malformed Basic credentials";
	case BASIC_TOO_LONG:
		return "Basic credentials too long";
	}
	return "?";
}

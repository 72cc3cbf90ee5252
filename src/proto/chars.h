/* SPDX-License-Identifier: ISC */
/*
 * chars: which bytes may stand where in HTTP heads and host names, as one
 * table.  Never consults the locale.
 */
#ifndef RW_PROTO_CHARS_H
#define RW_PROTO_CHARS_H

#include <stdbool.h>
#include <stdint.h>

enum chars_class {
	CHARS_TOKEN = 1 << 0,	/* tchar, RFC 9110 section 5.6.2 */
	CHARS_HOST = 1 << 1,	/* letters, digits, "-", "_": what names are made of */
	CHARS_TARGET = 1 << 2,	/* in a request target: visible ASCII but "#" */
	CHARS_VALUE = 1 << 3,	/* in a field value: visible, obs-text, space, tab */
	CHARS_HEX = 1 << 4,
	CHARS_DIGIT = 1 << 5,
	CHARS_ALPHA = 1 << 6
};

extern const uint8_t chars_table[256];

static inline bool
chars_is(char c, unsigned classes)
{
	return (chars_table[(uint8_t)c] & classes) != 0;
}

/* Value of a digit that is known to be CHARS_HEX. */
static inline unsigned
chars_hex_value(char c)
{
	return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

#endif

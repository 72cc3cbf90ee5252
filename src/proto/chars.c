/* SPDX-License-Identifier: ISC */
#include "proto/chars.h"

enum {
	VISIBLE = CHARS_TARGET | CHARS_VALUE,
	SYMBOL = VISIBLE | CHARS_TOKEN,
	DIGIT = SYMBOL | CHARS_HOST | CHARS_HEX | CHARS_DIGIT,
	LETTER = SYMBOL | CHARS_HOST | CHARS_ALPHA
};

const uint8_t chars_table[256] = {
	['\t'] = CHARS_VALUE,
	[' '] = CHARS_VALUE,
	['!'] = SYMBOL,
	['"'] = VISIBLE,
	['#'] = CHARS_VALUE | CHARS_TOKEN,	/* a fragment is never sent (RFC 9112 section 3.2) */
	['$'] = SYMBOL,
	['%'] = SYMBOL,
	['&'] = SYMBOL,
	['\''] = SYMBOL,
	['('] = VISIBLE,
	[')'] = VISIBLE,
	['*'] = SYMBOL,
	['+'] = SYMBOL,
	[','] = VISIBLE,
	['-'] = SYMBOL | CHARS_HOST,
	['.'] = SYMBOL,
	['/'] = VISIBLE,
	['0' ... '9'] = DIGIT,
	[':' ... '@'] = VISIBLE,
	['A' ... 'F'] = LETTER | CHARS_HEX,
	['G' ... 'Z'] = LETTER,
	['['] = VISIBLE,
	['\\'] = VISIBLE,
	[']'] = VISIBLE,
	['^'] = SYMBOL,
	['_'] = SYMBOL | CHARS_HOST,
	['`'] = SYMBOL,
	['a' ... 'f'] = LETTER | CHARS_HEX,
	['g' ... 'z'] = LETTER,
	['{'] = VISIBLE,
	['|'] = SYMBOL,
	['}'] = VISIBLE,
	['~'] = SYMBOL,
	[0x80 ... 0xff] = CHARS_VALUE,		/* obs-text, RFC 9110 section 5.5 */
};

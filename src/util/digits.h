/* SPDX-License-Identifier: ISC */
/*
 * digits: numbers as decimal text, for what is written once a request, where
 * snprintf() would be most of the cost (70 to 100 ns a call, bench/micro).
 */
#ifndef RW_UTIL_DIGITS_H
#define RW_UTIL_DIGITS_H

#include <stdint.h>

enum { DIGITS_MAX = 20 };	/* of a uint64_t */

/* No NUL; returns the end of what was written, at most DIGITS_MAX bytes behind `at`. */
static inline char *
digits_put(char *at, uint64_t n)
{
	unsigned len = 1;
	char *end;

	for (uint64_t power = 10; len < DIGITS_MAX && n >= power; power *= 10)
		len++;
	end = at + len;
	for (at = end; len > 0; len--, n /= 10)
		*--at = (char)('0' + n % 10);
	return end;
}

#endif

/* SPDX-License-Identifier: ISC */
/*
 * span: a pointer and a length into somebody else's bytes.  Never owns, never
 * assumes a terminating NUL.  Valid as long as the buffer it points into.
 */
#ifndef RW_UTIL_SPAN_H
#define RW_UTIL_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
	const char	*base;
	size_t		 len;
};

static inline struct span
span_of(const void *base, size_t len)
{
	return (struct span){ base, len };
}

static inline struct span
span_str(const char *s)
{
	return (struct span){ s, strlen(s) };
}

static inline bool
span_eq(struct span a, struct span b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.base, b.base, a.len) == 0);
}

/* ASCII lower case only: locale must never change what a protocol means. */
static inline char
span_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static inline bool
span_ieq(struct span a, struct span b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++)
		if (span_lower(a.base[i]) != span_lower(b.base[i]))
			return false;
	return true;
}

static inline bool
span_is(struct span a, const char *s)
{
	return span_eq(a, span_str(s));
}

static inline bool
span_iis(struct span a, const char *s)
{
	return span_ieq(a, span_str(s));
}

#endif

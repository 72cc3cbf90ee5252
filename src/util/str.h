/* SPDX-License-Identifier: ISC */
/*
 * str: what people read and type: text quoted for a message, and the distance
 * between a word and the one that was meant.  Never for the relay path.
 */
#ifndef RW_UTIL_STR_H
#define RW_UTIL_STR_H

#include <stdbool.h>
#include <stddef.h>

#include "util/span.h"

enum { STR_QUOTED_MAX = 128 };	/* longer text is cut and marked with "..." */
/* In double quotes; anything but printable ASCII, and quotes and backslashes, as \xNN. */
char	*str_quote(struct span, char out[STR_QUOTED_MAX]);

/*
 * Edit distance (insert, delete, replace, swap of two neighbours: one each), or
 * STR_FAR when one of them is longer than any key could be.
 */
enum { STR_FAR = 1000 };
unsigned str_distance(struct span, struct span);

/* Decimal digits only, no sign, no space, no leading zero but "0" itself. */
bool	str_to_u64(struct span, uint64_t *);

/*
 * Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629:
 * no overlong forms, no surrogates, nothing above U+10FFFF), or len.
 */
size_t	str_utf8_valid_bytes(struct span);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * values: from a value's text to the field that a schema row describes, and
 * back.  Knows nothing of YAML, files or other keys.  `base` is the struct conf
 * or, for a key of a record, the record.
 */
#ifndef RW_CONF_VALUES_H
#define RW_CONF_VALUES_H

#include <stdbool.h>
#include <stdio.h>

#include "conf/schema.h"
#include "util/span.h"

/* What is wrong and, in parentheses, what would be right. */
enum { CONF_WHY_MAX = 512 };

/* A value's text; `quoted` (or a block scalar) makes it a text and never a number. */
struct conf_text {
	struct span	bytes;
	bool		quoted;
};

/* Sets one value; false and `why` when the text is no value of this key. */
bool	conf_value_set(const struct conf_row *, void *base, struct conf_text,
	    char why[CONF_WHY_MAX]);
/* Lists: after conf_value_clear(), add entries and look at their number at the end. */
bool	conf_value_add(const struct conf_row *, void *base, struct conf_text,
	    char why[CONF_WHY_MAX]);
bool	conf_value_end(const struct conf_row *, const void *base, char why[CONF_WHY_MAX]);
/* Lists of texts: replaces an entry, or adds one at the end. */
bool	conf_value_put(const struct conf_row *, void *base, size_t index, struct conf_text,
	    char why[CONF_WHY_MAX]);
/* The whole of a value from one text, lists as "a,b" or "[a, b]". */
bool	conf_value_from_text(const struct conf_row *, void *base, struct span,
	    char why[CONF_WHY_MAX]);

/* "a whole number of seconds from 1 to 3600": completes "must be ...". */
char	*conf_value_expect(const struct conf_row *, char out[CONF_WHY_MAX]);
/* In the form that the file takes, on one line. */
void	conf_text_print(const char *text, FILE *out);	/* with quotes if it needs them */
void	conf_value_print(const struct conf_row *, const void *base, FILE *);

#endif

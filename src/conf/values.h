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

bool	conf_type_is_list(enum conf_type);	/* flags and servers, not records */

/* Sets one value; false and `why` when the text is no value of this key. */
bool	conf_value_set(const struct conf_row *, void *base, struct conf_text,
	    char why[CONF_WHY_MAX]);
/* Lists: empty it, add an entry, and look at the number of entries at the end. */
void	conf_value_clear(const struct conf_row *, void *base);
bool	conf_value_add(const struct conf_row *, void *base, struct conf_text,
	    char why[CONF_WHY_MAX]);
bool	conf_value_end(const struct conf_row *, const void *base, char why[CONF_WHY_MAX]);
/* The whole of a value from one text, lists as "a,b" or "[a, b]". */
bool	conf_value_from_text(const struct conf_row *, void *base, struct span,
	    char why[CONF_WHY_MAX]);

/* "a whole number of seconds from 1 to 3600": completes "must be ...". */
char	*conf_value_expect(const struct conf_row *, char out[CONF_WHY_MAX]);
/* In the form that the file takes. */
void	conf_value_print(const struct conf_row *, const void *base, FILE *);
/* Gives back what the field owns.  Records: their fields first, by the caller. */
void	conf_value_free(const struct conf_row *, void *base);

#endif

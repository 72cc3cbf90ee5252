/* SPDX-License-Identifier: ISC */
/*
 * field: the place in memory that a schema row describes: read, copied,
 * compared, given back.  Knows nothing of texts.  `base` is the struct conf or,
 * for a key of a record, the record.  For the other files of conf only.
 */
#ifndef RW_CONF_FIELD_H
#define RW_CONF_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/schema.h"

bool	conf_type_is_list(enum conf_type);	/* of values in one field: not records */
bool	conf_type_is_texts(enum conf_type);	/* a list whose entries have places of their own */

static inline void *
conf_field(const struct conf_row *row, void *base)
{
	return (char *)base + row->offset;
}

static inline const void *
conf_field_const(const struct conf_row *row, const void *base)
{
	return (const char *)base + row->offset;
}

/* Fields differ in width only: 2, 4 or 8 bytes, unsigned. */
void		 conf_field_set_uint(const struct conf_row *, void *base, uint64_t value);
uint64_t	 conf_field_uint(const struct conf_row *, const void *base);
/* Ranges: the two numbers, the lower one first. */
uint16_t	*conf_field_range(const struct conf_row *, void *base);
/* Lists: how many entries. */
size_t		 conf_field_count(const struct conf_row *, const void *base);
void		 conf_field_set_count(const struct conf_row *, void *base, size_t count);
/* Lists of texts. */
const char	*conf_field_text(const struct conf_row *, const void *base, size_t index);

/* Empties a list.  Records: their fields first, by the caller. */
void	conf_value_clear(const struct conf_row *, void *base);
/* Gives back what the field owns. */
void	conf_value_free(const struct conf_row *, void *base);
/* Not for records. */
bool	conf_value_equal(const struct conf_row *, const void *a, const void *b);
/* Over what `to` holds, which stays when memory is short (false).  Not for records. */
bool	conf_value_copy(const struct conf_row *, void *to, const void *from);

#endif

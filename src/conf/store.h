/* SPDX-License-Identifier: ISC */
/*
 * store: the lists of records inside a struct conf, and where each key was set.
 * For the other files of conf only.
 */
#ifndef RW_CONF_STORE_H
#define RW_CONF_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "conf/conf.h"
#include "conf/schema.h"

/* `list` is the row of a list of records. */
size_t	 conf_records_count(const struct conf_row *list, const struct conf *);
void	*conf_record_at(const struct conf_row *list, struct conf *, size_t index);
const void *conf_record_at_const(const struct conf_row *list, const struct conf *, size_t index);
/* A new last record with its defaults; NULL when out of memory.  Moves the others. */
void	*conf_record_append(const struct conf_row *list, struct conf *);
void	 conf_records_clear(const struct conf_row *list, struct conf *);

/* Remembers that `path` ("listen.0.port") was set at `where`; copies both. */
bool		 conf_origin_note(struct conf *, const char *path, const char *where);
/*
 * Where it was set last, or the entry or list that it is in ("listen.0", "listen");
 * NULL for a default.  Valid until the next change.
 */
const char	*conf_origin_of(const struct conf *, const char *path);
bool		 conf_origin_has(const struct conf *, const char *path);	/* set itself? */
/* Its value was refused, so that checks across keys would judge a value that nobody wrote. */
void		 conf_origin_mark_bad(struct conf *, const char *path);
bool		 conf_origin_is_bad(const struct conf *, const char *path);
/* Forgets those of the list's entries: it is about to be replaced. */
void		 conf_origins_drop_below(struct conf *, const char *list);
void		 conf_origins_free(struct conf *);

#endif

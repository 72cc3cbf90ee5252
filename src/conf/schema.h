/* SPDX-License-Identifier: ISC */
/*
 * schema: one row a configuration key.  Defaults, parsing, ranges, `-o`, the
 * nearest known key and the man page's test all come from this table; to add a
 * key, add a field to conf.h and a row here.  It holds no values.
 *
 * A path "listen[].port" is a key of each record in the list "listen", whose own
 * row comes before.  People write such a path as "listen.0.port".
 */
#ifndef RW_CONF_SCHEMA_H
#define RW_CONF_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/span.h"

enum conf_type {
	CONF_BOOL,		/* bool */
	CONF_NUMBER,		/* unsigned field of 2, 4 or 8 bytes */
	CONF_SIZE,		/* the same, KiB, MiB and GiB allowed */
	CONF_ENUM,		/* 4 bytes; one of `words` */
	CONF_STRING,		/* char *, never NULL; min and max count bytes */
	CONF_IPV4,		/* struct addr; "" = none */
	CONF_IPV6,		/* struct addr; "" = none */
	CONF_IP,		/* struct addr of either family; "" = none */
	CONF_LISTEN_ADDR,	/* char *: IPv4, IPv6 or unix:/path */
	/* Lists; min and max count entries. */
	CONF_FLAGS,		/* 4 bytes, bits of `words` */
	CONF_RANGE,		/* two fields of 2 bytes side by side, [low, high]; min, not 0, and max are of each */
	CONF_SERVERS,		/* struct addr * and size_t: address with an optional port */
	CONF_STRINGS,		/* char ** and size_t: short texts without commas */
	CONF_LINES,		/* char ** and size_t: texts that may hold commas and tabs */
	CONF_RECORDS		/* struct * and size_t */
};

enum conf_reload {
	CONF_NEW_SESSIONS,	/* a reload applies it to what begins afterwards */
	CONF_RESTART		/* fixed when the process starts */
};

struct conf_word {
	const char	*name;
	uint32_t	 value;
};

struct conf_row {
	const char	*path;
	enum conf_type	 type;
	/*
	 * Default, as `-o` takes it.  A list of records: settings separated by
	 * spaces, "0.addr=127.0.0.1 1.addr=::1".  A text in a record that may not be
	 * empty (min 1) but is by default: conf_validate() misses it.
	 */
	const char	*initial;
	uint64_t	 min, max;
	enum conf_reload reload;
	const char	*unit;		/* plural noun for messages: "seconds"; "" = none */
	const char	*help;		/* one line, no full stop */
	const struct conf_word *words;	/* enum and flags; ends with a NULL name */
	bool		 secret;	/* messages don't repeat the value */
	size_t		 offset;	/* in struct conf, or in the record for "x[].y" */
	size_t		 width;		/* bytes of the field; of one entry for lists */
	size_t		 count_offset;	/* lists: where the size_t is */
};

extern const struct conf_row conf_schema[];
extern const size_t conf_schema_count;

/* The row with this very path, or NULL. */
const struct conf_row	*conf_schema_find(const char *path);
/* "limits", "listen[].tls": no key by itself, but keys below it.  The first of them, or NULL. */
const struct conf_row	*conf_schema_section(const char *path);
/* Is `row` a key of the records in `list`? */
bool	conf_schema_is_item(const struct conf_row *list, const struct conf_row *row);
/* The list of records that `row` is in, or NULL. */
const struct conf_row	*conf_schema_list_of(const struct conf_row *row);

/* A key of a record without a default: it must be there. */
bool	conf_schema_is_required(const struct conf_row *);

/*
 * "listen.0.port" becomes "listen[].port" with *index 0.  Without a number *index
 * is SIZE_MAX.  False when there are two numbers, or the text doesn't fit.
 */
enum { CONF_PATH_MAX = 128 };
bool	conf_schema_pattern(const char *path, char pattern[CONF_PATH_MAX], size_t *index);

/*
 * What the writer of an unknown key may have meant: "nearest known key:
 * limits.idle_timeout_s", else the keys that there are beside it.
 */
enum { CONF_HINT_MAX = 384 };
char	*conf_schema_hint(const char *pattern, char hint[CONF_HINT_MAX]);

#endif

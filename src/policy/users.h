/* SPDX-License-Identifier: ISC */
/*
 * users: names and their password records.  Filled while a configuration is
 * loaded, then only read, by any thread; belongs to the snapshot.  An unknown
 * name gets a record too, of a cost that a known one could have, so that the
 * time of an answer does not tell which names there are.
 */
#ifndef RW_POLICY_USERS_H
#define RW_POLICY_USERS_H

#include <stdbool.h>
#include <stddef.h>

#include "conf/problems.h"
#include "policy/password.h"
#include "util/span.h"

enum { USERS_NAME_MAX = 255 };	/* what RFC 1929 can carry */

struct users;

struct users	*users_new(void);	/* empty; NULL when out of memory or entropy */
void		 users_free(struct users *);
/*
 * One of auth.users: `where` and `key` are for the problems.  0, or -EINVAL
 * (also out of memory) after adding an error.
 */
int		 users_add(struct users *, struct span name, struct span record, const char *where,
		    const char *key, struct conf_problems *);
/*
 * auth.users_file: NAME:RECORD a line, "#" begins a comment.  Every bad line is
 * an error "FILE:LINE: ..."; readable by others is a warning.  0 or -EINVAL.
 */
int		 users_load_file(struct users *, const char *path, struct conf_problems *);

/* Copies the user's record, or for an unknown name one that no password fits.  True when known. */
bool		 users_find(const struct users *, struct span name, struct password_record *);
size_t		 users_count(const struct users *);
struct span	 users_name(const struct users *, size_t i);	/* in the order added */

#endif

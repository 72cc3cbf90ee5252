/* SPDX-License-Identifier: ISC */
/*
 * acl_set: patterns, and which of them a text matches: by hash, so that a list
 * of a million names costs no more than one of ten.  Filled once, sealed, then
 * only read.  Knows nothing of hosts or paths: texts come in the form in which
 * they are to be compared.
 *
 * Each pattern has a `tag`, which must be equal too (a port, or a form of a
 * path), and an id of the caller's.
 */
#ifndef RW_POLICY_ACL_SET_H
#define RW_POLICY_ACL_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/span.h"

enum acl_pattern {
	ACL_LITERAL = 1 << 0,
	ACL_SUFFIX = 1 << 1,	/* text begins with "." */
	ACL_PREFIX = 1 << 2,	/* empty text: matches everything */
	ACL_PATTERNS = ACL_LITERAL | ACL_SUFFIX | ACL_PREFIX
};

#define ACL_SET_NONE UINT32_MAX

struct acl_set;

struct acl_set	*acl_set_new(void);
void		 acl_set_free(struct acl_set *);
/* 0 or -ENOMEM.  A pattern that is there already keeps the lower id. */
int		 acl_set_add(struct acl_set *, enum acl_pattern, uint16_t tag, struct span text,
		    uint32_t id);
int		 acl_set_seal(struct acl_set *);	/* 0 or -ENOMEM */
/*
 * The lowest id of the patterns of `kinds` that `text` matches, or ACL_SET_NONE.
 * An ACL_SUFFIX matches at a "." only.
 */
uint32_t	 acl_set_find(const struct acl_set *, unsigned kinds, uint16_t tag, struct span text);
bool		 acl_set_has_tags(const struct acl_set *);	/* any but 0 */
size_t		 acl_set_count(const struct acl_set *);

#endif

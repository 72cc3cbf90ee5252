/* SPDX-License-Identifier: ISC */
/*
 * cidr: a set of IPv4 and IPv6 prefixes: whitelists, trusted senders, `client`
 * and `dst` of the ACL.  Filled once, sealed, then only read, by any number of
 * threads; a look-up neither allocates nor locks.
 *
 *	cidr_new -> cidr_add / cidr_load ... -> cidr_seal -> cidr_has ... -> cidr_free
 *
 * An IPv4-mapped address is its IPv4 address, in entries too (::ffff:10.0.0.0/104
 * is 10.0.0.0/8).  No other IPv6 prefix covers IPv4: ::/0 is IPv6 only.
 */
#ifndef RW_POLICY_CIDR_H
#define RW_POLICY_CIDR_H

#include <stdbool.h>
#include <stddef.h>

#include "conf/problems.h"
#include "util/addr.h"
#include "util/span.h"

struct cidr_set;

enum cidr_verdict {
	CIDR_OK,
	CIDR_HOST_BITS,		/* taken as its prefix ("10.1.2.3/8" is 10.0.0.0/8); warn with `why` */
	CIDR_BAD,		/* not taken; `why` says what is wrong and what would be right */
	CIDR_NOMEM
};

enum { CIDR_WHY_MAX = 320 };

struct cidr_set	*cidr_new(void);		/* NULL when out of memory */
void		 cidr_free(struct cidr_set *);	/* NULL is fine */
/* "10.0.0.0/8", "::1", "[2001:db8::]/32", "192.0.2.7".  `why` is set for all but OK. */
enum cidr_verdict cidr_add(struct cidr_set *, struct span text, char why[CIDR_WHY_MAX]);
/*
 * One entry a line, "#" and ";" comments.  0, or -EINVAL after adding at least
 * one error "PATH:LINE: ..."; `key` (a schema path or NULL) goes into the text.
 * All bad lines are reported.  An empty file is an empty set, without a word.
 */
int	cidr_load(struct cidr_set *, const char *path, const char *key, struct conf_problems *);
/* 0 or -ENOMEM.  After it nothing may be added, before it nothing looked up. */
int	cidr_seal(struct cidr_set *);
/* Unix peers and "no address" are in no set. */
bool	cidr_has(const struct cidr_set *, const struct addr *);
/* Entries added, also those that others cover: 0 = nobody. */
size_t	cidr_count(const struct cidr_set *);

#endif

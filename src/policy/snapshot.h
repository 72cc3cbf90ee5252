/* SPDX-License-Identifier: ISC */
/*
 * snapshot: one loaded configuration with everything made from it: access
 * lists, whitelist, users.  Immutable once built and reference-counted; a reload
 * builds a new one, whole, and hands it to each worker.  Sessions hold the one
 * that they started with, so nothing on a hot path synchronises to read it.
 */
#ifndef RW_POLICY_SNAPSHOT_H
#define RW_POLICY_SNAPSHOT_H

#include <stdbool.h>

#include "conf/conf.h"
#include "policy/acl.h"
#include "policy/cidr.h"
#include "policy/users.h"

struct snapshot {
	const struct conf	*conf;		/* owned */
	const struct acl	*acl;
	const struct cidr_set	*whitelist;	/* NULL = every source */
	const struct users	*users;
	unsigned		 generation;	/* 1 at start, one more with each reload */
};

/*
 * Takes the conf over, also on failure.  NULL after adding at least one error
 * (all that there are); warnings may be added in any case.
 */
struct snapshot	*snapshot_new(struct conf *, unsigned generation, struct conf_problems *);
/* Any thread.  `hold` returns its argument. */
struct snapshot	*snapshot_hold(struct snapshot *);
void		 snapshot_drop(struct snapshot *);	/* NULL is fine */

/* May a client from this address speak to us at all? */
bool		 snapshot_admits(const struct snapshot *, const struct addr *peer);
/* Would both be served by one socket? */
bool		 snapshot_same_listener(const struct conf_listen *, const struct conf_listen *);
/* The listener of this snapshot with the address of that of another one, or NULL. */
const struct conf_listen *snapshot_find_listener(const struct snapshot *, const struct conf_listen *);
/* Does a listener of this snapshot ask for a password? */
bool		 snapshot_wants_password(const struct snapshot *, const struct conf_listen *);

#endif

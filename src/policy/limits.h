/* SPDX-License-Identifier: ISC */
/*
 * limits: how many sessions there may be, in all and from one address.  Shared
 * by all workers; asked once a connection, never on the relay path.
 */
#ifndef RW_POLICY_LIMITS_H
#define RW_POLICY_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/addr.h"

struct limits;

enum limits_verdict {
	LIMITS_OK,
	LIMITS_SESSIONS,	/* as many sessions as there may be */
	LIMITS_PER_IP,
	LIMITS_NOMEM
};

/* 0 = no limit, for both. */
struct limits	*limits_new(uint32_t max_sessions, uint32_t max_per_ip);
void		 limits_free(struct limits *);
/* Reload; any thread.  Sessions that are there stay. */
void		 limits_set(struct limits *, uint32_t max_sessions, uint32_t max_per_ip);
/* OK must be matched by one limits_leave() with the same address. */
enum limits_verdict limits_enter(struct limits *, const struct addr *);
void		 limits_leave(struct limits *, const struct addr *);
/* Lock-free; for a look before accepting. */
bool		 limits_full(const struct limits *);
uint32_t	 limits_sessions(const struct limits *);

#endif

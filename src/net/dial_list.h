/* SPDX-License-Identifier: ISC */
/*
 * dial_list: the addresses of one dial in the order in which they are tried:
 * the families alternate for as long as both have some (RFC 8305 section 4), and
 * addresses that come late join their family's end.  No I/O.
 */
#ifndef RW_NET_DIAL_LIST_H
#define RW_NET_DIAL_LIST_H

#include <stdbool.h>

#include "net/dial.h"
#include "util/addr.h"

/* Index of everything kept by family. */
enum dial_family { DIAL_V4, DIAL_V6, DIAL_FAMILIES };

struct dial_list {
	enum dial_family turn;		/* whose turn it is */
	unsigned	 count[DIAL_FAMILIES];
	unsigned	 next[DIAL_FAMILIES];	/* the first that was not taken */
	struct addr	 addrs[DIAL_FAMILIES][DIAL_ADDRS_MAX];
};

/* Of a mapped address: IPv4. */
enum dial_family	dial_family_of(const struct addr *);
void			dial_list_init(struct dial_list *, enum dial_family lead);
/*
 * IPv4-mapped addresses become IPv4 (for policy, and for the source address);
 * those that are there already, and those beyond DIAL_ADDRS_MAX, are left out.
 */
void			dial_list_add(struct dial_list *, const struct addr *);
bool			dial_list_more(const struct dial_list *);
/* NULL when there is none; valid as long as the list. */
const struct addr	*dial_list_next(struct dial_list *);

#endif

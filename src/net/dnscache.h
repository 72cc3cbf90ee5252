/* SPDX-License-Identifier: ISC */
/*
 * dnscache: answers by (name, family) with an end of life, bounded, least
 * recently used out first.  An entry is also where those who wait for the same
 * question meet.  Never asks anybody, never calls back.
 *
 *	 dnscache_get            entry->pending = true        dnscache_settle
 *	--------------> NEW ---------------------> PENDING -----------------> STORED (in the LRU)
 *	                                              ^                          |   or gone (TTL 0)
 *	                                              +---- expired, asked again-+
 */
#ifndef RW_NET_DNSCACHE_H
#define RW_NET_DNSCACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "io/list.h"
#include "net/resolve.h"

/* One outcome, shared by its cache entry and by those who are still to be told. */
struct dns_answer {
	unsigned		refs;
	enum resolve_status	status;
	uint64_t		expires_ns;
	unsigned		count;
	struct addr		addrs[];
};

/* One reference for the caller; NULL when out of memory. */
struct dns_answer	*dns_answer_new(enum resolve_status, const struct addr *, unsigned count);
void			 dns_answer_unref(struct dns_answer *);

struct dns_entry {
	struct dns_entry	*next;		/* in the bucket */
	struct io_link		 lru;		/* off the list while pending */
	struct io_link		 waiters;	/* the user's, by the user's links */
	void			*owner;		/* the user's */
	struct dns_answer	*answer;	/* NULL until the first one came */
	uint64_t		 hash;
	bool			 pending;
	bool			 v6;
	uint8_t			 name_len;
	char			 name[];	/* NUL-terminated */
};

struct dnscache;

struct dnscache	*dnscache_new(uint64_t seed, uint32_t max_entries);
/* No entry may be pending. */
void		 dnscache_free(struct dnscache *);
/* Fewer than before: the oldest go at once. */
void		 dnscache_set_max(struct dnscache *, uint32_t max_entries);
uint32_t	 dnscache_stored(const struct dnscache *);

/* Finds it (and makes it the youngest) or makes it; NULL when out of memory. */
struct dns_entry *dnscache_get(struct dnscache *, struct span name, bool v6);
/* A question for it is under way: it can't be evicted. */
void		 dnscache_set_pending(struct dnscache *, struct dns_entry *);
/*
 * The question is over.  With `answer` it is stored (the cache takes a reference
 * of its own) and the oldest may go for it; without, the entry is freed.  So use
 * the waiters first.
 */
void		 dnscache_settle(struct dnscache *, struct dns_entry *, struct dns_answer *answer);

#endif

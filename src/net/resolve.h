/* SPDX-License-Identifier: ISC */
/*
 * resolve: names to addresses for one worker, by c-ares in the worker's own
 * loop, with a cache that obeys TTLs.  One family a question; dial.h asks both.
 * It never blocks, has no threads, and never calls back from inside
 * resolve_start() or resolve_cancel().
 *
 * Order: literal -> localhost (RFC 6761: always loopback) -> the hosts file ->
 * cache -> DNS.  A name that the hosts file has for one family only has no
 * address in the other; DNS is not asked.  Names are asked for exactly as
 * given: no search domains, so what policy judged is what is looked up.
 *
 * Names that end in a number ("127.1", "0x7f.1", "2130706433", "1.2.3") are
 * refused: inet_aton() and most resolvers read them as IPv4 addresses, so
 * they'd carry a denied address past the rules in another spelling; no top
 * level domain is numeric (RFC 3696 section 2), so nothing is lost.
 */
#ifndef RW_NET_RESOLVE_H
#define RW_NET_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"
#include "io/io.h"
#include "util/addr.h"
#include "util/span.h"

enum resolve_status {
	RESOLVE_OK,
	RESOLVE_NXDOMAIN,	/* no such name */
	RESOLVE_NODATA,		/* the name exists, without an address of this family */
	RESOLVE_SERVFAIL,	/* servers failed, or answered nonsense */
	RESOLVE_TIMEOUT,	/* no server answered in time */
	RESOLVE_REFUSED,	/* servers refused, or could not be reached at all */
	RESOLVE_BAD_NAME,	/* never asked: not a name, or an address in disguise */
	RESOLVE_NO_MEMORY,	/* of descriptors too */
	RESOLVE_CLOSED		/* resolver_close() came first */
};

enum { RESOLVE_ADDRS_MAX = 16 };	/* more are cut: nobody tries them all */

struct resolve_result {
	enum resolve_status	 status;
	const struct addr	*addrs;		/* port 0; valid inside the callback */
	unsigned		 count;		/* 0 unless RESOLVE_OK */
	uint32_t		 ttl_s;		/* what is left of it, clamped as configured */
};

/* Figures of one worker; each only grows, except `entries` and `pending`. */
struct resolver_stats {
	uint64_t	lookups;	/* resolve_start() calls */
	uint64_t	local;		/* literal, localhost, hosts file, refused names */
	uint64_t	hits;		/* from the cache, with addresses */
	uint64_t	negative_hits;	/* from the cache: "there is none", or "it just failed" */
	uint64_t	shared;		/* joined a question already under way */
	uint64_t	misses;		/* asked DNS */
	uint64_t	failures;	/* DNS questions that ended in an error other than no name, no data */
	uint64_t	timeouts;	/* of those */
	uint64_t	entries;	/* cached answers now */
	uint64_t	pending;	/* DNS questions under way now */
};

struct resolver;
struct resolve_query;

typedef void resolve_cb(void *owner, const struct resolve_result *);

/*
 * Once a process, before threads start (ares_library_init is not thread-safe).
 * 0 or a negative errno.
 */
int	resolver_global_init(void);

/*
 * 0 or a negative errno.  The settings are copied.  hosts_path NULL: /etc/hosts;
 * "" : none.
 */
int	resolver_new(struct resolver **, struct io_loop *, const struct conf_resolver *,
	    const char *hosts_path);
/*
 * For reload: later questions use the new settings and servers, those under way
 * end on the old ones, cached answers stay.  On error nothing has changed.
 */
int	resolver_set_conf(struct resolver *, const struct conf_resolver *);
/*
 * Pending queries get RESOLVE_CLOSED, sockets close, then `done`, later; the
 * resolver's memory is gone when `done` runs.  No further resolve_start().
 */
void	resolver_close(struct resolver *, void (*done)(void *owner), void *owner);
/* May be called from any thread while the resolver lives. */
struct resolver_stats resolver_stats(const struct resolver *);

/*
 * family: AF_INET or AF_INET6.  Exactly one later callback unless cancelled;
 * the handle is dead when it runs.  NULL when out of memory: no callback then.
 */
struct resolve_query *resolve_start(struct resolver *, struct span host, int family,
	    resolve_cb *, void *owner);
/* No callback afterwards.  The question itself goes on and fills the cache. */
void	resolve_cancel(struct resolve_query *);

const char *resolve_strerror(enum resolve_status);

#endif

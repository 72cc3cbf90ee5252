/* SPDX-License-Identifier: ISC */
/*
 * acl: who may go where, and routes: the lines of acl.file and acl.rules as one
 * immutable object that any number of threads may ask.  Never resolves, never
 * logs.  A text with one bad line gives no acl at all.  ringway-acl(5) is the
 * grammar.
 *
 * The first rule that matches decides.  `dst` conditions look at the address
 * dialled, so there are two questions:
 *
 *	acl_check()      before resolving: ALLOW and DENY are final
 *	   DEPENDS_ON_DST ->
 *	acl_check_dst()  for each address before it is dialled (or a cached object
 *	                 that came from it is served); never DEPENDS_ON_DST
 *
 * Where a request can be read in more than one way (paths: see acl_path.h), a
 * deny matches if one reading does, an allow only if all do.
 */
#ifndef RW_POLICY_ACL_H
#define RW_POLICY_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "conf/problems.h"
#include "proto/target.h"
#include "util/addr.h"
#include "util/span.h"

struct acl;

enum acl_kind {
	ACL_HTTP,		/* a forwarded request: method and path are visible */
	ACL_CONNECT,		/* `method connect` */
	ACL_SOCKS		/* `method socks`: SOCKS4 and 5, TCP and UDP */
};

struct acl_request {
	enum acl_kind		 kind;
	struct span		 method;	/* as sent; ACL_HTTP only */
	const struct target	*target;	/* as the client asked for it, before any route */
	struct span		 path;		/* as sent, with query; ACL_HTTP only */
	const struct addr	*client;	/* after a trusted PROXY header */
	struct span		 user;		/* authenticated name; empty = none */
	uint16_t		 listener_port;	/* 0 for Unix sockets */
	bool			 no_routes;	/* UDP: routes are for connections */
};

enum acl_verdict {
	ACL_ALLOW,
	ACL_DENY,
	ACL_DEPENDS_ON_DST
};

/* The strings live as long as the acl. */
struct acl_result {
	enum acl_verdict verdict;
	const char	*rule;		/* as written, blanks single, at most 255 bytes; "default" */
	const char	*where;		/* "FILE:LINE", "acl.rules[N]"; "" = the default was not set */
};

/*
 * `file` may be NULL or "" (none); `rules` are more lines, behind the file's.
 * Relative @FILE names are taken from the folder of the file that has the line;
 * those in `rules` from `dir` (NULL = the working directory).
 * NULL after adding at least one error: "FILE:LINE: ..." or "acl.rules[N]: ...".
 * Without any line: everything is allowed.
 */
struct acl	*acl_load(const char *file, const char *const *rules, size_t rule_count,
		    const char *dir, struct conf_problems *);
/* The same from a text in memory; `name` stands for FILE.  For tests and tools. */
struct acl	*acl_load_text(const char *name, struct span text, const char *dir,
		    struct conf_problems *);
void		 acl_free(struct acl *);	/* NULL is fine */

struct acl_result acl_check(const struct acl *, const struct acl_request *);
/* `dst` is the address about to be dialled: the resolved one, or the route's. */
struct acl_result acl_check_dst(const struct acl *, const struct acl_request *,
		    const struct addr *dst);
/*
 * Where an explicit route leads, or NULL: an address (in `addr`, with port) that
 * is dialled in place of `target`, and to which protect_local does not apply.
 * acl_check() knows of it: with a route it never answers DEPENDS_ON_DST.
 */
const struct target *acl_route(const struct acl *, const struct target *);
size_t		 acl_rule_count(const struct acl *);	/* deny, allow and route lines */
/* All lines as they were understood, comments gone; loads to the same decisions. */
void		 acl_print(const struct acl *, FILE *);

/*
 * For protect_local: loopback, link-local, unspecified, 0.0.0.0/8, limited
 * broadcast and multicast that stays on the link or the host; and any IPv6
 * address that stands for such an IPv4 address (mapped, compatible, translated,
 * NAT64, 6to4, Teredo).
 */
bool		 acl_is_local_address(const struct addr *);

#endif

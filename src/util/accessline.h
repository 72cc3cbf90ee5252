/* SPDX-License-Identifier: ISC */
/*
 * accessline: one line of the access log, from plain fields to bytes, as text
 * or as JSON.  Nothing that a client sends can break a line, forge a field or
 * drive a terminal.  Never allocates (but for access_entry_keep), never does
 * I/O, never fails: what is too long is cut and ends in "...".
 */
#ifndef RW_UTIL_ACCESSLINE_H
#define RW_UTIL_ACCESSLINE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "util/addr.h"
#include "util/span.h"

enum access_format { ACCESS_TEXT, ACCESS_JSON };

enum access_acl {
	ACCESS_ACL_NONE,	/* not known: "-" */
	ACCESS_ACL_ALLOW,
	ACCESS_ACL_DENY		/* by a rule, or by whatever else refused it: `rule` says which */
};

enum {
	/* With its newline.  The longest request line kept, escapes counted, is half of it. */
	ACCESS_LINE_MAX = 16384
};

/*
 * A zeroed one is valid: empty spans, NULL and addresses without a family are
 * "-" (null in JSON).  Spans and pointers need to be good for the call only.
 */
struct access_entry {
	uint64_t		 start_us;	/* wall clock, since 1970: access_now_us() */
	uint64_t		 dur_us;	/* by the monotonic clock, start to last byte */
	const struct addr	*client;	/* shown without its port */
	/*
	 * "GET" "/a?b" "HTTP/1.1", "CONNECT" "host:443" "SOCKS5".  Empty ones are
	 * left out, so a malformed first line goes into `target` alone.
	 */
	struct span		 method, target, version;
	struct span		 host;		/* as asked for, with port */
	const struct addr	*upstream;	/* dialled; NULL for a hit or a refusal */
	unsigned		 status;	/* HTTP status or SOCKS reply (0 = granted) */
	uint64_t		 bytes;		/* body or tunnel bytes to the client */
	uint64_t		 up;		/* the same from the client */
	const char		*cache;		/* "HIT", "MISS", ...: a word */
	enum access_acl		 acl;
	struct span		 rule;		/* of the ACL, or what else refused: "whitelist" */
	struct span		 user;
	const char		*proto;		/* "http", "connect", "socks5", ...: a word */
	uint64_t		 id;		/* the session's, as in the error log */
};

/* For `start_us`. */
uint64_t access_now_us(void);

/*
 * Copies method, target, version, host, user and rule to one block and points
 * the entry at the copies, for callers whose head is gone when the line is due.
 * free() it; NULL when out of memory: then the six are empty.  A target that
 * would be cut anyway is cut here.
 */
char	*access_entry_keep(struct access_entry *);

/* The formatted second of the line before: one for each thread, zeroed at first. */
struct access_clock {
	time_t	second;
	char	text[24];	/* "2026-07-30T16:36:34" */
};

/* Length of the line with its newline; no NUL behind it. */
size_t	access_line(const struct access_entry *, enum access_format, struct access_clock *,
	    char out[ACCESS_LINE_MAX]);

#endif

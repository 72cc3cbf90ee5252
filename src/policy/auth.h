/* SPDX-License-Identifier: ISC */
/*
 * auth: is this the user's password?  One a worker, used on its thread only.
 * What was right before is answered at once from a cache; the rest by kdf's
 * threads, with a callback.  The cache holds no password but an HMAC, under a
 * secret of this process, of name, password and record: after a record has
 * changed, the old password is not found any more.  Never logs, never decides
 * what the client is told.
 *
 * A session embeds one struct auth_request, zeroed:
 *
 *	switch (auth_check(env->auth, users, &s->peer, user, pass, &s->auth, on_auth)) {
 *	case AUTH_PENDING:	return;			on_auth(&s->auth, verdict) comes later
 *	default:		session_auth_end(s, verdict);
 *	}
 *
 * and calls auth_leave() before it is freed or answers for another reason (its
 * timer, an abort, a client that has gone).  name and password are copied.
 */
#ifndef RW_POLICY_AUTH_H
#define RW_POLICY_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"
#include "policy/kdf.h"
#include "policy/users.h"
#include "util/addr.h"
#include "util/span.h"

struct auth;
struct auth_job;
struct auth_request;

enum auth_verdict {
	AUTH_OK,
	AUTH_DENIED,
	AUTH_THROTTLED,		/* this source failed too often: denied without a look at the password */
	AUTH_BUSY,		/* too many are waiting: not the user's fault, to be tried again */
	AUTH_PENDING		/* from auth_check() only */
};

/* Never from inside auth_check().  The request is idle again and may be reused. */
typedef void auth_cb(struct auth_request *, enum auth_verdict);

struct auth_request {
	struct io_link	 link;		/* private */
	struct auth_job	*job;		/* private; NULL = idle */
	auth_cb		*cb;
};

/* Written by the worker alone, read by anyone. */
struct auth_stats {
	uint64_t	ok;		/* cache hits included */
	uint64_t	cache_hits;
	uint64_t	failed;		/* wrong password or no such user */
	uint64_t	throttled;
	uint64_t	busy;
	uint64_t	shared;		/* requests that joined another one's job */
	uint64_t	pending;	/* requests that wait now */
};

/* 0 or -errno.  cache_entries 0 = default. */
int		 auth_new(struct auth **, struct io_loop *, struct kdf *, uint32_t cache_entries);
enum auth_verdict auth_check(struct auth *, const struct users *, const struct addr *source,
		    struct span user, struct span pass, struct auth_request *, auth_cb *);
/* Forgets the request, without a callback; nothing if it is idle. */
void		 auth_leave(struct auth_request *);
static inline bool
auth_pending(const struct auth_request *r)
{
	return r->job != NULL;
}

/* Reload: nothing is known any more. */
void		 auth_flush(struct auth *);
struct auth_stats auth_stats(const struct auth *);
const char	*auth_verdict_text(enum auth_verdict);	/* for the log */

/*
 * No request may be pending.  Calls back from a later turn, when no thread of
 * kdf can touch the loop any more for a job of ours; frees itself before.
 */
void		 auth_close(struct auth *, void (*closed)(void *owner), void *owner);

#endif

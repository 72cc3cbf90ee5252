/* SPDX-License-Identifier: ISC */
/*
 * judge: one request's way through the rules of its snapshot: ACL, then for
 * each address about to be dialled `dst` rules, protect_local and "is that us".
 * The same for SOCKS, CONNECT and forwarded requests.  Never resolves, never
 * answers anybody.
 *
 *	judge_open -> ALLOW -> judge_permits() for each address -> judge_close
 *	           -> DENY  -> judge_close
 */
#ifndef RW_POLICY_JUDGE_H
#define RW_POLICY_JUDGE_H

#include "policy/snapshot.h"

enum judge_cause {
	JUDGE_NONE,
	JUDGE_ACL,		/* a rule, see `rule` */
	JUDGE_LOCAL,		/* protect_local */
	JUDGE_SELF,		/* one of our own listeners */
	JUDGE_NOMEM
};

struct judge {
	struct snapshot		*snapshot;	/* held; NULL = closed */
	struct acl_request	 request;	/* its spans are empty or in `kept` once it was opened */
	char			*kept;		/* method, path and user, where dst rules will look again */
	bool			 depends;	/* the ACL's answer depends on the address */
	bool			 routed;
	const struct target	*dial;		/* where to connect: the request's target, or its route */
	enum judge_cause	 cause;		/* of the last refusal */
	const char		*rule;		/* that decided, as long as the snapshot is held */
};

/*
 * The request's target and client must stay until judge_close(); of the spans
 * what is needed later is copied.  True: go on.  False: `cause`, `rule` say why.  Either way to be closed.
 */
bool	judge_open(struct judge *, struct snapshot *, const struct acl_request *);
/* Before an address is dialled; is_self: it is one of our listeners. */
bool	judge_permits(struct judge *, const struct addr *, bool is_self);
void	judge_close(struct judge *);
const char *judge_cause_text(enum judge_cause);

#endif

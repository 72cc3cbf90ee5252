/* SPDX-License-Identifier: ISC */
#include "policy/judge.h"

#include <stdlib.h>
#include <string.h>

static void
keep_one(struct span *s, char **to)
{
	if (s->len > 0)
		memcpy(*to, s->base, s->len);
	s->base = *to;
	*to += s->len;
}

/* The head that they point into is gone when the address is known. */
static bool
keep_spans(struct judge *j)
{
	struct acl_request *r = &j->request;
	char *to;

	if ((j->kept = malloc(r->method.len + r->path.len + r->user.len + 1)) == NULL)
		return false;
	to = j->kept;
	keep_one(&r->method, &to);
	keep_one(&r->path, &to);
	keep_one(&r->user, &to);
	return true;
}

static bool
refuse(struct judge *j, enum judge_cause cause)
{
	j->cause = cause;
	if (cause != JUDGE_ACL)
		j->rule = judge_cause_text(cause);
	return false;
}

bool
judge_open(struct judge *j, struct snapshot *snapshot, const struct acl_request *request)
{
	const struct target *route;
	struct acl_result result;

	memset(j, 0, sizeof *j);
	j->snapshot = snapshot_hold(snapshot);
	j->request = *request;
	result = acl_check(snapshot->acl, &j->request);
	j->rule = result.rule;
	if (result.verdict == ACL_DENY)
		return refuse(j, JUDGE_ACL);
	if ((j->depends = result.verdict == ACL_DEPENDS_ON_DST))
		j->rule = "";		/* not decided before there is an address */
	route = request->no_routes ? NULL : acl_route(snapshot->acl, request->target);
	j->routed = route != NULL;
	j->dial = j->routed ? route : request->target;
	if (j->depends && !keep_spans(j))
		return refuse(j, JUDGE_NOMEM);
	if (!j->depends)
		j->request.method = j->request.path = j->request.user = span_of("", 0);
	return true;
}

bool
judge_permits(struct judge *j, const struct addr *a, bool is_self)
{
	if (is_self)
		return refuse(j, JUDGE_SELF);
	if (j->depends) {
		struct acl_result result = acl_check_dst(j->snapshot->acl, &j->request, a);

		j->rule = result.rule;
		if (result.verdict == ACL_DENY)
			return refuse(j, JUDGE_ACL);
	}
	/* A client on loopback (or a Unix socket) could reach those addresses by itself. */
	if (j->snapshot->conf->acl.protect_local && !j->routed &&
	    j->request.client->sa.sa_family != AF_UNIX && !addr_is_loopback(j->request.client) &&
	    acl_is_local_address(a))
		return refuse(j, JUDGE_LOCAL);
	return true;
}

void
judge_close(struct judge *j)
{
	free(j->kept);
	j->kept = NULL;
	snapshot_drop(j->snapshot);
	j->snapshot = NULL;
}

const char *
judge_cause_text(enum judge_cause cause)
{
	switch (cause) {
	case JUDGE_ACL:
		return "acl";
	case JUDGE_LOCAL:
		return "protect_local";
	case JUDGE_SELF:
		return "proxy_loop";
	case JUDGE_NOMEM:
		return "memory";
	case JUDGE_NONE:
		break;
	}
	return "none";
}

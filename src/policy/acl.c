/* SPDX-License-Identifier: ISC */
#include "policy/acl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "policy/acl_addr.h"
#include "policy/acl_internal.h"
#include "policy/acl_path.h"

/* Most paths are shorter: no allocation for them. */
enum { PATH_ON_STACK = 256 };

/* One question, and what was worked out for it when first needed. */
struct query {
	const struct acl_request *request;
	const struct addr *dst;			/* NULL = not known yet */
	struct addr	 embedded[ACL_EMBEDDED_MAX];
	size_t		 embedded_count;
	struct span	 host;			/* base NULL = not made yet */
	char		 host_scratch[ADDR_TEXT_MAX];
	struct acl_path	 paths[ACL_PATH_READINGS_MAX];
	size_t		 path_count;		/* 0 = not read yet */
	char		*path_heap;
	char		 path_scratch[ACL_PATH_SCRATCH(PATH_ON_STACK)];
	bool		 no_memory;
};

static void
free_rule(struct acl_rule *rule)
{
	if (rule->shown != rule->text)
		free(rule->shown);
	free(rule->text);
	free(rule->where);
}

void
acl_free(struct acl *acl)
{
	if (acl == NULL)
		return;
	for (size_t i = 0; i < acl->rule_count; i++)
		free_rule(&acl->rules[i]);
	for (size_t i = 0; i < acl->route_count; i++)
		free_rule(&acl->routes[i].line);
	for (size_t i = 0; i < acl->step_count; i++)
		for (size_t field = 0; field < ACL_F_COUNT; field++)
			acl_values_free(&acl->steps[i].values[field]);
	acl_values_free(&acl->route_hosts);
	free(acl->rules);
	free(acl->steps);
	free(acl->routes);
	free(acl->default_where);
	free(acl);
}

size_t
acl_rule_count(const struct acl *acl)
{
	return acl->rule_count + acl->route_count;
}

void
acl_print(const struct acl *acl, FILE *out)
{
	if (acl->default_where != NULL)
		fprintf(out, "default %s\n", acl->default_allow ? "allow" : "deny");
	for (size_t i = 0; i < acl->rule_count; i++)
		fprintf(out, "%s\n", acl->rules[i].text);
	for (size_t i = 0; i < acl->route_count; i++)
		fprintf(out, "%s\n", acl->routes[i].line.text);
}

/* ---- one condition ------------------------------------------------------- */

static uint32_t
find_host(const struct acl_values *hosts, struct span host, uint16_t port)
{
	uint32_t found = acl_set_find(hosts->set, ACL_PATTERNS, 0, host), with_port;

	if (port == 0 || !acl_set_has_tags(hosts->set))
		return found;
	with_port = acl_set_find(hosts->set, ACL_PATTERNS, port, host);
	return with_port < found ? with_port : found;
}

static struct span
query_host(struct query *q)
{
	if (q->host.base == NULL)
		q->host = target_host(q->request->target, q->host_scratch);
	return q->host;
}

/*
 * An HTTP method may be spelt like one of our two words: no origin knows it, but
 * a deny is held against it, and an allow meant for tunnels does not let it pass.
 */
static bool
method_matches(const struct acl_values *values, const struct query *q, bool allow)
{
	const struct acl_request *request = q->request;
	char lower[ACL_METHOD_MAX];
	struct span method = request->method;

	if (request->kind == ACL_CONNECT)
		method = span_str("connect");
	else if (request->kind == ACL_SOCKS)
		method = span_str("socks");
	else if (allow && (span_iis(method, "connect") || span_iis(method, "socks")))
		method = span_str("");
	if (method.len > sizeof(lower))
		method.len = sizeof(lower);
	for (size_t i = 0; i < method.len; i++)
		lower[i] = span_lower(method.base[i]);
	return acl_set_find(values->set, ACL_PATTERNS, 0, span_of(lower, method.len)) != ACL_SET_NONE;
}

static bool
read_paths(struct query *q)
{
	struct span path = q->request->path;
	char *scratch = q->path_scratch;

	if (q->path_count != 0)
		return true;
	if (path.len > PATH_ON_STACK) {
		q->path_heap = scratch = malloc(ACL_PATH_SCRATCH(path.len));
		if (scratch == NULL) {
			q->no_memory = true;
			return false;
		}
	}
	q->path_count = acl_path_read(path, scratch, q->paths);
	return true;
}

static bool
find_path(const struct acl_values *values, const struct acl_path *path, enum acl_path_form form)
{
	if (acl_set_find(values->set, ACL_PATTERNS, (uint16_t)form, path->path) != ACL_SET_NONE)
		return true;
	/* An ending is that of the path, never the query's. */
	return values->query && path->whole.len != path->path.len &&
	    acl_set_find(values->set, ACL_LITERAL | ACL_PREFIX, (uint16_t)form, path->whole) !=
	    ACL_SET_NONE;
}

static bool
reading_matches(const struct acl_values *values, const struct acl_path *path)
{
	if (find_path(values, path, ACL_PATH_ANY))
		return true;
	if (!acl_set_has_tags(values->set))
		return false;
	switch (path->form) {
	case ACL_PATH_ANY:
		return find_path(values, path, ACL_PATH_RAW) ||
		    find_path(values, path, ACL_PATH_NORMAL) || find_path(values, path, ACL_PATH_LENIENT);
	case ACL_PATH_RAW:
		/* "/~a" as sent is what the pattern "/%7Ea" means. */
		return find_path(values, path, ACL_PATH_RAW) || find_path(values, path, ACL_PATH_NORMAL);
	case ACL_PATH_NORMAL:
	case ACL_PATH_LENIENT:
		break;
	}
	return find_path(values, path, path->form);
}

static bool
path_matches(const struct acl_values *values, struct query *q, bool allow)
{
	if (q->request->kind != ACL_HTTP || q->request->path.len == 0 || !read_paths(q))
		return false;
	for (size_t i = 0; i < q->path_count; i++) {
		const struct acl_path *path = &q->paths[i];

		/* Who allows a path with ";" means its parameters, which that one lacks. */
		if (allow && path->cut_params && values->params)
			continue;
		if (reading_matches(values, path) != allow)
			return !allow;
	}
	return allow;
}

/* An IPv4 address in an IPv6 one is denied as itself; allowed is what is named. */
static bool
dst_matches(const struct acl_values *values, const struct query *q, bool allow)
{
	if (cidr_has(values->cidr, q->dst))
		return true;
	for (size_t i = 0; !allow && i < q->embedded_count; i++)
		if (cidr_has(values->cidr, &q->embedded[i]))
			return true;
	return false;
}

/* ---- rules --------------------------------------------------------------- */

static bool
has(const struct acl_step *step, enum acl_field field)
{
	return step->values[field].present;
}

/* Do all conditions but `dst` hold?  The cheap ones first. */
static bool
step_matches(const struct acl_step *step, struct query *q, bool allow)
{
	const struct acl_values *v = step->values;
	const struct acl_request *request = q->request;

	if (has(step, ACL_F_PORT) && !acl_ports_has(v[ACL_F_PORT].ports, request->target->port))
		return false;
	if (has(step, ACL_F_LISTENER) &&
	    !acl_ports_has(v[ACL_F_LISTENER].ports, request->listener_port))
		return false;
	if (has(step, ACL_F_CLIENT) && (request->client == NULL ||
	    !cidr_has(v[ACL_F_CLIENT].cidr, request->client)))
		return false;
	if (has(step, ACL_F_METHOD) && !method_matches(&v[ACL_F_METHOD], q, allow))
		return false;
	if (has(step, ACL_F_USER) && (request->user.len == 0 ||
	    acl_set_find(v[ACL_F_USER].set, ACL_PATTERNS, 0, request->user) == ACL_SET_NONE))
		return false;
	if (has(step, ACL_F_HOST) &&
	    find_host(&v[ACL_F_HOST], query_host(q), request->target->port) == ACL_SET_NONE)
		return false;
	return !has(step, ACL_F_PATH) || path_matches(&v[ACL_F_PATH], q, allow);
}

static struct acl_result
result_of(const struct acl *acl, const struct acl_rule *rule)
{
	if (rule == NULL)
		return (struct acl_result){ acl->default_allow ? ACL_ALLOW : ACL_DENY, "default",
		    acl->default_where != NULL ? acl->default_where : "" };
	return (struct acl_result){ rule->allow ? ACL_ALLOW : ACL_DENY, rule->shown, rule->where };
}

/* The rule of this step that matches, or NULL.  *needs_dst: it would if `dst` does. */
static const struct acl_rule *
step_decides(const struct acl *acl, const struct acl_step *step, struct query *q, bool *needs_dst)
{
	const struct acl_rule *rule = &acl->rules[step->rule];

	*needs_dst = false;
	if (step->hosts_only) {
		uint32_t found;

		found = find_host(&step->values[ACL_F_HOST], query_host(q), q->request->target->port);
		return found != ACL_SET_NONE ? &acl->rules[found] : NULL;
	}
	if (!step_matches(step, q, rule->allow))
		return NULL;
	if (!has(step, ACL_F_DST))
		return rule;
	*needs_dst = q->dst == NULL;
	return *needs_dst || dst_matches(&step->values[ACL_F_DST], q, rule->allow) ? rule : NULL;
}

/*
 * Rules that need an address not known yet are passed by.  If all of them deny,
 * and so does the first that matches for certain, the address need not be asked
 * for: a denial costs no upstream work.
 */
static struct acl_result
decide(const struct acl *acl, struct query *q)
{
	const struct acl_rule *waiting = NULL, *rule = NULL;
	struct acl_result result;
	bool may_allow = false, needs_dst;

	for (size_t i = 0; i < acl->step_count && !may_allow; i++) {
		rule = step_decides(acl, &acl->steps[i], q, &needs_dst);
		if (q->no_memory)
			return (struct acl_result){ ACL_DENY, "out of memory", "" };
		if (rule != NULL && !needs_dst)
			break;
		if (rule != NULL) {
			waiting = waiting != NULL ? waiting : rule;
			may_allow = rule->allow;
		}
		rule = NULL;
	}
	result = result_of(acl, rule);
	if (waiting != NULL && (may_allow || result.verdict == ACL_ALLOW)) {
		result = result_of(acl, waiting);
		result.verdict = ACL_DEPENDS_ON_DST;
	}
	return result;
}

static struct acl_result
ask(const struct acl *acl, const struct acl_request *request, const struct addr *dst)
{
	struct query q;
	struct acl_result result;

	/* Field by field: the scratch need not be cleared. */
	q.request = request;
	q.dst = dst;
	q.embedded_count = dst != NULL ? acl_embedded(dst, q.embedded) : 0;
	q.host = span_of(NULL, 0);
	q.path_count = 0;
	q.path_heap = NULL;
	q.no_memory = false;
	result = decide(acl, &q);
	free(q.path_heap);
	return result;
}

struct acl_result
acl_check(const struct acl *acl, const struct acl_request *request)
{
	const struct target *to = request->no_routes ? NULL : acl_route(acl, request->target);

	if (to == NULL)
		to = request->target;
	return ask(acl, request, target_is_literal(to) ? &to->addr : NULL);
}

struct acl_result
acl_check_dst(const struct acl *acl, const struct acl_request *request, const struct addr *dst)
{
	struct acl_result result = ask(acl, request, dst);

	assert(result.verdict != ACL_DEPENDS_ON_DST);
	return result;
}

const struct target *
acl_route(const struct acl *acl, const struct target *target)
{
	char scratch[ADDR_TEXT_MAX];
	uint32_t found;

	if (acl->route_count == 0 || acl->route_hosts.set == NULL)
		return NULL;
	found = find_host(&acl->route_hosts, target_host(target, scratch), target->port);
	return found != ACL_SET_NONE ? &acl->routes[found].to : NULL;
}

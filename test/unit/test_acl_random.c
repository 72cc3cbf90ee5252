/* SPDX-License-Identifier: ISC */
/* Random rules and requests: the compiled form against one that reads the text. */
#include "test_acl.h"

#include <stdio.h>
#include <stdlib.h>

#include "policy/acl_addr.h"
#include "policy/acl_path.h"

enum { RULES_MAX = 12, TEXT_MAX = 8192 };

static uint64_t state;

static uint64_t
pick(uint64_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 0x2545f4914f6cdd1dULL >> 16) % below;
}

#define ONE_OF(list) list[pick(sizeof(list) / sizeof(list[0]))]

/* ---- words: few, so that they meet --------------------------------------- */

static const char *const methods[] = { "get", "POST", "connect", "socks", "p*", "*" };
static const char *const hosts[] = { "a.org", "b.a.org", "*.a.org", "*.org", "b*", "a*", "*", "a.org:80",
    "*.org:443", "b*:80", "*:443", "10.0.0.1", "::1", "10.*", "[::1]:80", "[::ffff:10.0.0.1]" };
static const char *const paths[] = { "/a", "/a/*", "/a*", "*.x", "*", "/b/c", "/%61/*", "/a%2fb", "/a?q*",
    "/b;v=1", "/.*" };
static const char *const nets[] = { "10.0.0.0/8", "10.0.0.1", "0.0.0.0/0", "::/0", "::1", "2001:db8::/32",
    "169.254.0.0/16", "192.0.2.0/25", "*", "64:ff9b::/96" };
static const char *const users[] = { "alice", "bob", "a*", "*", "*.x" };
static const char *const ports[] = { "80", "443", "1-100", "400-500", "*", "8080" };

static const char *const asked_methods[] = { "GET", "POST", "get", "PUT", "SOCKS", "connect" };
static const char *const asked_hosts[] = { "a.org", "b.a.org", "A.ORG.", "xa.org", "org", "b", "ba.org",
    "10.0.0.1", "[::1]", "::ffff:10.0.0.1", "169.254.1.1", "64:ff9b::a00:1" };
static const char *const asked_paths[] = { "/", "/a", "/a/b", "//a/b", "/%61/b", "/b/../a/x", "/a/../b/c",
    "/a%2fb", "/a%2Fb", "/x.x", "/a?q=1", "/a/?x.x", "/b;v=1", "/b;v=2", "/..a", "/.x", "*", "/a\\b",
    "/a;/b.x", "/b//../a/" };
static const char *const asked_ips[] = { "10.0.0.1", "10.9.9.9", "192.0.2.1", "192.0.2.200", "::1",
    "2001:db8::5", "169.254.169.254", "64:ff9b::a9fe:1", "::ffff:10.0.0.1", "8.8.8.8", "2002:a00:1::" };
static const char *const asked_users[] = { "", "alice", "bob", "carol", "q.x" };
static const uint16_t asked_ports[] = { 80, 443, 8080, 1, 500 };

static const struct {
	const char	*name;
	const char *const *words;
	size_t		 count;
} fields[] = {
	{ "method", methods, sizeof(methods) / sizeof(methods[0]) },
	{ "host", hosts, sizeof(hosts) / sizeof(hosts[0]) },
	{ "path", paths, sizeof(paths) / sizeof(paths[0]) },
	{ "client", nets, sizeof(nets) / sizeof(nets[0]) },
	{ "user", users, sizeof(users) / sizeof(users[0]) },
	{ "port", ports, sizeof(ports) / sizeof(ports[0]) },
	{ "dst", nets, sizeof(nets) / sizeof(nets[0]) },
	{ "listener", ports, sizeof(ports) / sizeof(ports[0]) },
};

enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

static void
make_rule(char *out)
{
	/* Runs of hosts are what the compiler joins. */
	bool host_only = pick(2) == 0;
	size_t field = host_only ? 1 : pick(FIELDS), conditions = host_only ? 1 : 1 + pick(3);
	unsigned used = 0;

	out += sprintf(out, "%s", pick(2) == 0 ? "deny" : "allow");
	for (size_t c = 0; c < conditions; c++, field = (field + 1 + pick(2)) % FIELDS) {
		size_t values = 1 + pick(2);

		if ((used & 1u << field) != 0)
			break;
		used |= 1u << field;
		out += sprintf(out, " %s ", fields[field].name);
		for (size_t v = 0; v < values; v++)
			out += sprintf(out, "%s%s", v != 0 ? "," : "",
			    fields[field].words[pick(fields[field].count)]);
	}
}

/* ---- one that reads the text --------------------------------------------- */

static bool
star_match(const char *pattern, size_t pattern_len, struct span text)
{
	if (pattern_len != 0 && pattern[pattern_len - 1] == '*')
		return text.len >= pattern_len - 1 && memcmp(text.base, pattern, pattern_len - 1) == 0;
	if (pattern_len != 0 && pattern[0] == '*')
		return text.len >= pattern_len - 1 &&
		    memcmp(text.base + text.len - (pattern_len - 1), pattern + 1, pattern_len - 1) == 0;
	return span_eq(span_of(pattern, pattern_len), text);
}

static bool
slow_host(const char *value, const struct target *target)
{
	char scratch[ADDR_TEXT_MAX], canonical[ADDR_TEXT_MAX];
	struct span host = target_host(target, scratch);
	const char *bracket = strchr(value, ']'), *colon = strrchr(value, ':');
	size_t len = strlen(value);
	struct addr addr;

	if (colon != NULL && (bracket != NULL ? colon > bracket : strchr(value, ':') == colon)) {
		if (atoi(colon + 1) != target->port)
			return false;
		len = (size_t)(colon - value);
	}
	if (addr_parse_ip(span_of(value, len), 0, &addr)) {
		addr_unmap(&addr);
		return span_is(host, addr_format_ip(&addr, canonical));
	}
	return star_match(value, len, host);
}

static bool
slow_path(char *const *values, size_t count, const struct acl_request *request, bool allow)
{
	struct acl_path readings[ACL_PATH_READINGS_MAX];
	char scratch[ACL_PATH_SCRATCH(64)], form[64];
	bool params = false;

	if (request->kind != ACL_HTTP || request->path.len == 0)
		return false;
	for (size_t v = 0; v < count; v++)
		params |= strchr(values[v], ';') != NULL;
	for (size_t r = 0, n = acl_path_read(request->path, scratch, readings); r < n; r++) {
		bool hit = false;

		if (allow && params && readings[r].cut_params)
			continue;
		for (size_t v = 0; v < count; v++)
			for (enum acl_path_form f = ACL_PATH_RAW; f <= ACL_PATH_LENIENT; f++) {
				bool ending = values[v][0] == '*' && values[v][1] != '\0';
				size_t len = acl_path_decode(span_str(values[v]), f, form);

				if (readings[r].form != ACL_PATH_ANY && readings[r].form != f &&
				    !(readings[r].form == ACL_PATH_RAW && f == ACL_PATH_NORMAL))
					continue;
				hit |= star_match(form, len, readings[r].path) ||
				    (!ending && strchr(values[v], '?') != NULL &&
				    star_match(form, len, readings[r].whole));
			}
		if (hit != allow)
			return !allow;
	}
	return allow;
}

static bool
slow_net(const char *value, const struct addr *addr)
{
	struct cidr_one { uint8_t bytes[16]; } net = { { 0 } }, ip = { { 0 } };
	const char *slash = strchr(value, '/');
	size_t len = slash != NULL ? (size_t)(slash - value) : strlen(value);
	struct addr base, plain = *addr;
	unsigned bits;

	if (strcmp(value, "*") == 0)
		return true;
	cr_assert(addr_parse_ip(span_of(value, len), 0, &base));
	addr_unmap(&plain);
	if (base.sa.sa_family != plain.sa.sa_family)
		return false;
	if (base.sa.sa_family == AF_INET) {
		memcpy(net.bytes, &base.in.sin_addr, 4);
		memcpy(ip.bytes, &plain.in.sin_addr, 4);
		bits = 32;
	} else {
		memcpy(net.bytes, &base.in6.sin6_addr, 16);
		memcpy(ip.bytes, &plain.in6.sin6_addr, 16);
		bits = 128;
	}
	if (slash != NULL)
		bits = (unsigned)atoi(slash + 1);
	for (unsigned bit = 0; bit < bits; bit++)
		if (((net.bytes[bit / 8] ^ ip.bytes[bit / 8]) >> (7 - bit % 8) & 1) != 0)
			return false;
	return true;
}

static bool
slow_dst(const char *value, const struct addr *dst, bool allow)
{
	struct addr embedded[ACL_EMBEDDED_MAX];
	size_t count = acl_embedded(dst, embedded);

	if (slow_net(value, dst))
		return true;
	for (size_t i = 0; i < count && !allow; i++)
		if (slow_net(value, &embedded[i]))
			return true;
	return false;
}

static bool
slow_port(const char *value, unsigned port)
{
	unsigned low, high;
	int got = sscanf(value, "%u-%u", &low, &high);

	return strcmp(value, "*") == 0 || (got == 2 && port >= low && port <= high) ||
	    (got == 1 && port == low);
}

static bool
slow_method(const char *value, const struct acl_request *r, bool allow)
{
	char lower[32], pattern[32];
	struct span method = r->kind == ACL_CONNECT ? span_str("connect") : r->kind == ACL_SOCKS ?
	    span_str("socks") : r->method;

	if (r->kind == ACL_HTTP && allow && (span_iis(method, "connect") || span_iis(method, "socks")))
		method.len = 0;
	for (size_t i = 0; i < method.len; i++)
		lower[i] = span_lower(method.base[i]);
	for (size_t i = 0; i <= strlen(value); i++)
		pattern[i] = span_lower(value[i]);
	return star_match(pattern, strlen(pattern), span_of(lower, method.len));
}

static bool
slow_one(const char *field, const char *value, const struct acl_request *r, const struct addr *dst,
    bool allow)
{
	if (strcmp(field, "method") == 0)
		return slow_method(value, r, allow);
	if (strcmp(field, "host") == 0)
		return slow_host(value, r->target);
	if (strcmp(field, "client") == 0)
		return slow_net(value, r->client);
	if (strcmp(field, "user") == 0)
		return r->user.len != 0 && star_match(value, strlen(value), r->user);
	if (strcmp(field, "port") == 0)
		return slow_port(value, r->target->port);
	if (strcmp(field, "dst") == 0)
		return slow_dst(value, dst, allow);
	return slow_port(value, r->listener_port);
}

static bool
slow_rule(const char *rule, const struct acl_request *request, const struct addr *dst)
{
	char copy[512], *save, *word, *field = NULL;
	bool allow = rule[0] == 'a';

	strcpy(copy, rule);
	for (word = strtok_r(copy, " ", &save); (field = strtok_r(NULL, " ", &save)) != NULL;) {
		char *values[8], *inner;
		size_t count = 0;
		bool hit = false;

		word = strtok_r(NULL, " ", &save);
		for (char *v = strtok_r(word, ",", &inner); v != NULL; v = strtok_r(NULL, ",", &inner))
			values[count++] = v;
		if (strcmp(field, "path") == 0)
			hit = slow_path(values, count, request, allow);
		else
			for (size_t v = 0; v < count; v++)
				hit |= slow_one(field, values[v], request, dst, allow);
		if (!hit)
			return false;
	}
	return true;
}

/* Index of the rule that decides, or `count` for the default. */
static size_t
slow_decide(char rules[][512], size_t count, const struct acl_request *request,
    const struct addr *dst)
{
	size_t i = 0;

	while (i < count && !slow_rule(rules[i], request, dst))
		i++;
	return i;
}

/* ---- both ---------------------------------------------------------------- */

static void
make_request(struct acl_asked *asked)
{
	struct acl_case c = {
		.kind = (enum acl_kind)pick(3),
		.method = ONE_OF(asked_methods),
		.host = ONE_OF(asked_hosts),
		.path = ONE_OF(asked_paths),
		.client = ONE_OF(asked_ips),
		.user = ONE_OF(asked_users),
		.port = ONE_OF(asked_ports),
		.listener = ONE_OF(asked_ports),
	};

	acl_ask(asked, &c);
}

static void
compare(const struct acl *acl, char rules[][512], size_t count, bool default_allow,
    const struct acl_request *request, const char *text)
{
	struct acl_result first = acl_check(acl, request);
	enum { IPS = sizeof(asked_ips) / sizeof(asked_ips[0]) };

	for (size_t i = 0; i < IPS; i++) {
		struct acl_result result;
		struct addr dst;
		size_t by;
		bool allow;

		cr_assert(addr_parse_ip(span_str(asked_ips[i]), 1, &dst));
		if (target_is_literal(request->target))
			dst = request->target->addr;
		by = slow_decide(rules, count, request, &dst);
		allow = by == count ? default_allow : rules[by][0] == 'a';
		result = acl_check_dst(acl, request, &dst);
		cr_assert_eq(result.verdict, allow ? ACL_ALLOW : ACL_DENY,
		    "seed text:\n%s\n%s host %s path %.*s", text, asked_ips[i], request->target->host,
		    (int)request->path.len, request->path.base);
		cr_assert_str_eq(result.rule, by == count ? "default" : rules[by], "%s", text);
		/* What was final before the address was known is so with any address. */
		cr_assert(first.verdict == ACL_DEPENDS_ON_DST || first.verdict == result.verdict, "%s", text);
		cr_assert(!target_is_literal(request->target) || first.verdict == result.verdict);
	}
}

Test(acl_random, compiled_rules_decide_like_their_text)
{
	for (unsigned round = 0; round < 3000; round++) {
		char rules[RULES_MAX][512], text[TEXT_MAX] = "";
		size_t count;
		bool default_allow;
		struct acl *acl;

		state = round + 1;
		count = 1 + pick(RULES_MAX);
		default_allow = pick(2) == 0;
		sprintf(text, "default %s\n", default_allow ? "allow" : "deny");
		for (size_t i = 0; i < count; i++) {
			make_rule(rules[i]);
			sprintf(text + strlen(text), "%s\n", rules[i]);
		}
		acl = acl_of(text);
		for (unsigned i = 0; i < 12; i++) {
			struct acl_asked asked;

			make_request(&asked);
			compare(acl, rules, count, default_allow, &asked.request, text);
		}
		acl_free(acl);
	}
}

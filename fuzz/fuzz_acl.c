/* SPDX-License-Identifier: ISC */
/*
 * Text of rules, then a NUL, then a request: host, path and user on lines of
 * their own.  A text that is refused says why; one that is taken decides the
 * same after it was printed and read again, a denial before the address is known
 * stays one, and neither the case of a host nor its final dot change anything.
 */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/acl.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static const char *const dsts[] = { "127.0.0.1", "10.1.2.3", "8.8.8.8", "::1", "64:ff9b::a01:203" };

enum { DSTS = sizeof(dsts) / sizeof(dsts[0]) };

static struct span
cut_line(struct span *rest)
{
	const char *end = rest->len != 0 ? memchr(rest->base, '\n', rest->len) : NULL;
	struct span line = span_of(rest->base, end != NULL ? (size_t)(end - rest->base) : rest->len);
	size_t gone = line.len + (end != NULL);

	*rest = span_of(rest->base + gone, rest->len - gone);
	return line;
}

static struct acl *
print_and_load(const struct acl *acl)
{
	struct conf_problems problems = { 0 };
	char *printed = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&printed, &len);
	struct acl *again;

	assert(out != NULL);
	acl_print(acl, out);
	fclose(out);
	again = acl_load_text("again", span_of(printed, len), NULL, &problems);
	assert(again != NULL);
	free(printed);
	conf_problems_free(&problems);
	return again;
}

static void
same(struct acl_result a, struct acl_result b)
{
	assert(a.verdict == b.verdict && strcmp(a.rule, b.rule) == 0);
}

static void
ask(const struct acl *acl, const struct acl *again, const struct acl_request *request)
{
	struct acl_result before = acl_check(acl, request);

	same(before, acl_check(again, request));
	assert((acl_route(acl, request->target) == NULL) == (acl_route(again, request->target) == NULL));
	for (size_t i = 0; i < DSTS; i++) {
		struct acl_result after;
		struct addr dst;

		assert(addr_parse_ip(span_str(dsts[i]), 80, &dst));
		after = acl_check_dst(acl, request, &dst);
		assert(after.verdict != ACL_DEPENDS_ON_DST);
		same(after, acl_check_dst(again, request, &dst));
		if (!target_is_literal(request->target) && acl_route(acl, request->target) == NULL)
			assert(before.verdict == ACL_DEPENDS_ON_DST || before.verdict == after.verdict);
	}
}

/* In capitals and with a final dot, as far as that fits. */
static void
ask_in_capitals(const struct acl *acl, const struct acl_request *request)
{
	char capitals[TARGET_HOST_MAX + 1];
	const struct target *target = request->target;
	struct acl_request other = *request;
	struct target spelt;
	size_t len = target->host_len;

	if (len == 0 || len == TARGET_HOST_MAX)
		return;
	for (size_t i = 0; i < len; i++)
		capitals[i] = (char)(target->host[i] >= 'a' && target->host[i] <= 'z' ?
		    target->host[i] - 0x20 : target->host[i]);
	capitals[len] = '.';
	assert(target_set_host(&spelt, span_of(capitals, len + 1), target->port));
	other.target = &spelt;
	same(acl_check(acl, request), acl_check(acl, &other));
}

static void
ask_all(const struct acl *acl, const struct acl *again, struct span rest)
{
	struct span host = cut_line(&rest), path = cut_line(&rest), user = cut_line(&rest);
	struct acl_request request = { .method = span_str("GET"), .path = path, .user = user,
	    .listener_port = 1080 };
	struct target target;
	struct addr client;

	if (!target_set_host(&target, host, 80))
		assert(target_set_host(&target, span_str("a.org"), 80));
	assert(addr_parse_ip(span_str("10.0.0.1"), 1, &client));
	request.target = &target;
	request.client = &client;
	for (request.kind = ACL_HTTP; request.kind <= ACL_SOCKS; request.kind++) {
		ask(acl, again, &request);
		ask_in_capitals(acl, &request);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct conf_problems problems = { 0 };
	struct acl *acl, *again;
	const uint8_t *nul;
	size_t rules_len;
	char *copy;

	if (len == 0)
		return 0;
	nul = memchr(data, '\0', len);
	rules_len = nul != NULL ? (size_t)(nul - data) : len;
	/* Files of the machine are no input. */
	if (memchr(data, '@', rules_len) != NULL)
		return 0;
	copy = malloc(len + 1);
	assert(copy != NULL);
	memcpy(copy, data, len);
	acl = acl_load_text("fuzz", span_of(copy, rules_len), NULL, &problems);
	assert((acl == NULL) == (problems.errors != 0));
	if (acl != NULL) {
		again = print_and_load(acl);
		assert(acl_rule_count(acl) == acl_rule_count(again));
		ask_all(acl, again, nul != NULL ? span_of(copy + rules_len + 1, len - rules_len - 1) :
		    span_of("", 0));
		acl_free(again);
		acl_free(acl);
	}
	free(copy);
	conf_problems_free(&problems);
	return 0;
}

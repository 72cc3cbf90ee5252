/* SPDX-License-Identifier: ISC */
/* test_acl: what the tests of src/policy/acl.c share. */
#ifndef RW_TEST_ACL_H
#define RW_TEST_ACL_H

#include <criterion/criterion.h>

#include <string.h>

#include "policy/acl.h"

/* What is left out: GET http://www.example.com:80/ by 192.0.2.1, nobody, to port 1080. */
struct acl_case {
	enum acl_kind	 kind;
	const char	*method, *host, *path, *client, *user;
	uint16_t	 port, listener;
};

struct acl_asked {
	struct target	 target;
	struct addr	 client;
	struct acl_request request;
};

/* Not to be copied: it points into itself. */
static inline void
acl_ask(struct acl_asked *asked, const struct acl_case *c)
{
	const char *host = c->host != NULL ? c->host : "www.example.com";
	const char *client = c->client != NULL ? c->client : "192.0.2.1";

	cr_assert(target_set_host(&asked->target, span_str(host), c->port != 0 ? c->port : 80), "%s",
	    host);
	cr_assert(addr_parse_ip(span_str(client), 4711, &asked->client), "%s", client);
	asked->request = (struct acl_request){
		.kind = c->kind,
		.method = span_str(c->method != NULL ? c->method : "GET"),
		.target = &asked->target,
		.path = span_str(c->path != NULL ? c->path : "/"),
		.client = &asked->client,
		.user = span_str(c->user != NULL ? c->user : ""),
		.listener_port = c->listener != 0 ? c->listener : 1080,
	};
}

static inline struct acl *
acl_of(const char *rules)
{
	struct conf_problems problems = { 0 };
	struct acl *acl = acl_load_text("test.acl", span_str(rules), NULL, &problems);

	cr_assert_not_null(acl, "%s: %s", rules, problems.count != 0 ? problems.list[0].text : "");
	conf_problems_free(&problems);
	return acl;
}

static inline enum acl_verdict
acl_verdict_of(const struct acl *acl, struct acl_case c)
{
	struct acl_asked asked;

	acl_ask(&asked, &c);
	return acl_check(acl, &asked.request).verdict;
}

static inline enum acl_verdict
acl_verdict_dst(const struct acl *acl, struct acl_case c, const char *dst)
{
	struct acl_asked asked;
	struct addr addr;

	acl_ask(&asked, &c);
	cr_assert(addr_parse_ip(span_str(dst), 80, &addr), "%s", dst);
	return acl_check_dst(acl, &asked.request, &addr).verdict;
}

#endif

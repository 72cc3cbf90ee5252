/* SPDX-License-Identifier: ISC */
/* Fields, patterns, order, routes.  Paths: test_acl_path.c; errors and files: test_acl_load.c. */
#include "test_acl.h"

#include <stdio.h>
#include <stdlib.h>

struct expected {
	const char	*rules;
	struct acl_case	 c;
	enum acl_verdict verdict;
};

static void
run(const struct expected *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct acl *acl = acl_of(cases[i].rules);

		cr_expect_eq(acl_verdict_of(acl, cases[i].c), cases[i].verdict, "%zu: %s", i,
		    cases[i].rules);
		acl_free(acl);
	}
}

#define RUN(cases) run(cases, sizeof(cases) / sizeof(cases[0]))

Test(acl, host_patterns)
{
	static const struct expected cases[] = {
		{ "deny host ads.com", { .host = "ads.com" }, ACL_DENY },
		{ "deny host ads.com", { .host = "ADS.Com." }, ACL_DENY },
		{ "deny host ADS.com.", { .host = "ads.com", .port = 8080 }, ACL_DENY },
		{ "deny host ads.com", { .host = "www.ads.com" }, ACL_ALLOW },
		{ "deny host ads.com", { .host = "evilads.com" }, ACL_ALLOW },
		{ "deny host ads.com", { .host = "ads.com.evil.org" }, ACL_ALLOW },
		{ "deny host *.ads.com", { .host = "www.ads.com" }, ACL_DENY },
		{ "deny host *.ads.com", { .host = "A.B.ADS.COM." }, ACL_DENY },
		{ "deny host *.ADS.com.", { .host = "a.ads.com" }, ACL_DENY },
		{ "deny host *.ads.com", { .host = "ads.com" }, ACL_ALLOW },
		{ "deny host *.ads.com", { .host = "evilads.com" }, ACL_ALLOW },
		{ "deny host *.ads.com", { .host = "a.ads.com.org" }, ACL_ALLOW },
		{ "deny host *.com", { .host = "a.b" }, ACL_ALLOW },
		{ "deny host ads*", { .host = "ads.example" }, ACL_DENY },
		{ "deny host ads*", { .host = "ads" }, ACL_DENY },
		{ "deny host ads*", { .host = "xads" }, ACL_ALLOW },
		{ "deny host ads.*", { .host = "adsx" }, ACL_ALLOW },
		{ "deny host *", { .host = "anything" }, ACL_DENY },
		{ "deny host *", { .host = "::1" }, ACL_DENY },
		{ "deny host a.org,b.org", { .host = "b.org" }, ACL_DENY },
		{ "deny host a.org,b.org", { .host = "c.org" }, ACL_ALLOW },
		{ "deny host xn--bcher-kva.example", { .host = "XN--Bcher-KVA.example" }, ACL_DENY },
	};

	RUN(cases);
}

Test(acl, host_patterns_with_a_port)
{
	static const struct expected cases[] = {
		{ "deny host a.org:8080", { .host = "a.org", .port = 8080 }, ACL_DENY },
		{ "deny host a.org:8080", { .host = "a.org" }, ACL_ALLOW },
		{ "deny host a.org:8080", { .host = "b.org", .port = 8080 }, ACL_ALLOW },
		{ "deny host *.a.org:443", { .host = "x.a.org", .port = 443 }, ACL_DENY },
		{ "deny host *.a.org:443", { .host = "x.a.org", .port = 444 }, ACL_ALLOW },
		{ "deny host ads*:443", { .host = "ads1", .port = 443 }, ACL_DENY },
		{ "deny host *:25", { .host = "mail", .port = 25 }, ACL_DENY },
		{ "deny host *:25", { .host = "mail", .port = 26 }, ACL_ALLOW },
		{ "deny host [::1]:80", { .host = "::1", .port = 80 }, ACL_DENY },
		{ "deny host [::1]:80", { .host = "::1", .port = 81 }, ACL_ALLOW },
		{ "deny host 10.0.0.1:80", { .host = "10.0.0.1", .port = 80 }, ACL_DENY },
	};

	RUN(cases);
}

Test(acl, hosts_that_are_addresses)
{
	static const struct expected cases[] = {
		{ "deny host 127.0.0.1", { .host = "127.0.0.1" }, ACL_DENY },
		{ "deny host 127.0.0.1", { .host = "127.0.0.1." }, ACL_DENY },
		{ "deny host 127.0.0.1", { .host = "[::ffff:127.0.0.1]" }, ACL_DENY },
		{ "deny host ::ffff:127.0.0.1", { .host = "127.0.0.1" }, ACL_DENY },
		{ "deny host ::1", { .host = "[0:0:0:0:0:0:0:1]" }, ACL_DENY },
		{ "deny host 2001:DB8:0::1", { .host = "2001:db8::1" }, ACL_DENY },
		{ "deny host [2001:db8::1]", { .host = "2001:db8:0:0::1" }, ACL_DENY },
		{ "deny host 10.*", { .host = "10.1.2.3" }, ACL_DENY },
		{ "deny host 10.*", { .host = "100.1.2.3" }, ACL_ALLOW },
	};

	RUN(cases);
}

Test(acl, methods)
{
	static const struct expected cases[] = {
		{ "deny method connect", { .kind = ACL_CONNECT }, ACL_DENY },
		{ "deny method CONNECT", { .kind = ACL_CONNECT, .method = "CONNECT" }, ACL_DENY },
		{ "deny method connect", { .kind = ACL_SOCKS }, ACL_ALLOW },
		{ "deny method connect", { .method = "GET" }, ACL_ALLOW },
		{ "deny method socks", { .kind = ACL_SOCKS }, ACL_DENY },
		{ "deny method socks", { .kind = ACL_CONNECT }, ACL_ALLOW },
		{ "deny method post,put", { .method = "PUT" }, ACL_DENY },
		{ "deny method POST", { .method = "pOsT" }, ACL_DENY },
		{ "deny method post", { .method = "POSTX" }, ACL_ALLOW },
		{ "deny method prop*", { .method = "PROPFIND" }, ACL_DENY },
		{ "deny method *", { .method = "X" }, ACL_DENY },
		/* An HTTP method in the name of a tunnel. */
		{ "default deny\nallow method socks", { .kind = ACL_SOCKS }, ACL_ALLOW },
		{ "default deny\nallow method socks", { .method = "SOCKS" }, ACL_DENY },
		{ "deny method socks", { .method = "SOCKS" }, ACL_DENY },
		{ "default deny\nallow method connect", { .method = "connect" }, ACL_DENY },
		{ "default deny\nallow method get",
		    { .method = "GETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGETGET" },
		    ACL_DENY },
	};

	RUN(cases);
}

Test(acl, other_fields)
{
	static const struct expected cases[] = {
		{ "deny client 10.0.0.0/8", { .client = "10.9.9.9" }, ACL_DENY },
		{ "deny client 10.0.0.0/8", { .client = "::ffff:10.9.9.9" }, ACL_DENY },
		{ "deny client 10.0.0.0/8,2001:db8::/32", { .client = "2001:db8::1" }, ACL_DENY },
		{ "deny client 10.0.0.0/8", { .client = "11.0.0.1" }, ACL_ALLOW },
		{ "deny client *", { .client = "::1" }, ACL_DENY },
		{ "deny user alice,bob", { .user = "bob" }, ACL_DENY },
		{ "deny user alice", { .user = "Alice" }, ACL_ALLOW },
		{ "deny user alice", { .user = "alice2" }, ACL_ALLOW },
		{ "deny user a*", { .user = "alice" }, ACL_DENY },
		{ "deny user *", { .user = "x" }, ACL_DENY },
		{ "deny user *", { .user = "" }, ACL_ALLOW },
		{ "deny port 25", { .port = 25 }, ACL_DENY },
		{ "deny port 25", { .port = 26 }, ACL_ALLOW },
		{ "deny port 1-79,81-65535", { .port = 80 }, ACL_ALLOW },
		{ "deny port 1-79,81-65535", { .port = 79 }, ACL_DENY },
		{ "deny port 1-79,81-65535", { .port = 65535 }, ACL_DENY },
		{ "deny port 90-100,10-20,15-30", { .port = 30 }, ACL_DENY },
		{ "deny port 90-100,10-20,15-30", { .port = 31 }, ACL_ALLOW },
		{ "deny port *", { .port = 31 }, ACL_DENY },
		{ "deny listener 3128", { .listener = 3128 }, ACL_DENY },
		{ "deny listener 3128", { .listener = 1080 }, ACL_ALLOW },
	};

	RUN(cases);
}

Test(acl, all_conditions_and_the_first_match)
{
	static const char lines[] =
	    "# from the manual\n"
	    "default allow\n"
	    "deny  method connect\r\n"
	    "deny  host   *.doubleclick.net\n"
	    "deny  path   /admin/*\t# comment\n"
	    "allow client 10.0.0.0/8 user alice,bob port 443\n"
	    "deny  port   443\n"
	    "deny  dst    169.254.0.0/16\n"
	    "route origin.test 127.0.0.1 19000\n";
	struct acl *acl = acl_of(lines);

	cr_expect_eq(acl_rule_count(acl), 7);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .kind = ACL_CONNECT, .port = 443,
	    .client = "10.1.1.1", .user = "bob" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .port = 443, .client = "10.1.1.1",
	    .user = "bob" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .port = 443, .client = "10.1.1.1",
	    .user = "carol" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .port = 443, .client = "11.1.1.1",
	    .user = "bob" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "ad.doubleclick.net" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .path = "/admin/x" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "8.8.8.8" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "169.254.169.254" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "origin.test" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ 0 }), ACL_DEPENDS_ON_DST);
	acl_free(acl);
}

Test(acl, runs_of_host_rules_keep_their_order)
{
	struct acl *acl = acl_of("allow host good.ads.com\ndeny host *.ads.com\nallow host x*\n"
	    "deny host x1,x2:80\ndeny host x1");
	struct acl_asked asked;
	struct acl_result result;

	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "good.ads.com" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "bad.ads.com" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x1" }), ACL_ALLOW);
	acl_ask(&asked, &(struct acl_case){ .host = "bad.ads.com" });
	result = acl_check(acl, &asked.request);
	cr_expect_str_eq(result.rule, "deny host *.ads.com");
	cr_expect_str_eq(result.where, "test.acl:2");
	acl_free(acl);
	acl = acl_of("deny host x2:80\nallow host x2\ndeny host x*");
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x2" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x2", .port = 81 }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x3" }), ACL_DENY);
	acl_free(acl);
}

Test(acl, the_deciding_rule_is_named)
{
	struct acl *acl = acl_of("\n  deny   host\ta.org   # why\n");
	struct acl_asked asked;
	struct acl_result result;
	char text[1000];

	acl_ask(&asked, &(struct acl_case){ .host = "a.org" });
	result = acl_check(acl, &asked.request);
	cr_expect_str_eq(result.rule, "deny host a.org");
	cr_expect_str_eq(result.where, "test.acl:2");
	acl_ask(&asked, &(struct acl_case){ .host = "b.org" });
	result = acl_check(acl, &asked.request);
	cr_expect_str_eq(result.rule, "default");
	cr_expect_str_eq(result.where, "");
	acl_free(acl);
	/* A long one is cut for the log and whole for acl_print(). */
	strcpy(text, "default deny\nallow host ");
	for (unsigned i = 0; i < 40; i++)
		sprintf(text + strlen(text), "%shost%u.example", i == 0 ? "" : ",", i);
	acl = acl_of(text);
	acl_ask(&asked, &(struct acl_case){ .host = "host39.example" });
	result = acl_check(acl, &asked.request);
	cr_expect_eq(result.verdict, ACL_ALLOW);
	cr_expect_eq(strlen(result.rule), 255);
	cr_expect_str_eq(result.rule + 252, "...");
	acl_ask(&asked, &(struct acl_case){ .host = "b.org" });
	result = acl_check(acl, &asked.request);
	cr_expect_str_eq(result.rule, "default");
	cr_expect_str_eq(result.where, "test.acl:1");
	acl_free(acl);
}

Test(acl, dst_is_asked_for_only_when_it_matters)
{
	struct acl *acl = acl_of("deny dst 10.0.0.0/8");
	struct acl_case named = { .host = "a.org" };

	cr_expect_eq(acl_verdict_of(acl, named), ACL_DEPENDS_ON_DST);
	cr_expect_eq(acl_verdict_dst(acl, named, "10.1.1.1"), ACL_DENY);
	cr_expect_eq(acl_verdict_dst(acl, named, "::ffff:10.1.1.1"), ACL_DENY);
	cr_expect_eq(acl_verdict_dst(acl, named, "11.1.1.1"), ACL_ALLOW);
	/* What is known at once. */
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "10.1.1.1" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "11.1.1.1" }), ACL_ALLOW);
	acl_free(acl);
	/* Whatever the address, it is a denial. */
	acl = acl_of("default deny\ndeny dst 10.0.0.0/8\nallow host b.org");
	cr_expect_eq(acl_verdict_of(acl, named), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "b.org" }), ACL_DEPENDS_ON_DST);
	acl_free(acl);
	acl = acl_of("default deny\nallow dst 10.0.0.0/8");
	cr_expect_eq(acl_verdict_of(acl, named), ACL_DEPENDS_ON_DST);
	cr_expect_eq(acl_verdict_dst(acl, named, "10.1.1.1"), ACL_ALLOW);
	cr_expect_eq(acl_verdict_dst(acl, named, "11.1.1.1"), ACL_DENY);
	acl_free(acl);
	/* Rules behind the first certain match do not count. */
	acl = acl_of("allow host a.org\ndeny dst 10.0.0.0/8");
	cr_expect_eq(acl_verdict_of(acl, named), ACL_ALLOW);
	cr_expect_eq(acl_verdict_dst(acl, named, "10.1.1.1"), ACL_ALLOW);
	acl_free(acl);
	acl = acl_of("deny host a.org dst 10.0.0.0/8\ndefault allow");
	cr_expect_eq(acl_verdict_of(acl, named), ACL_DEPENDS_ON_DST);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "b.org" }), ACL_ALLOW);
	acl_free(acl);
	acl = acl_of("deny host a.org dst *");
	cr_expect_eq(acl_verdict_of(acl, named), ACL_DENY);
	acl_free(acl);
}

Test(acl, dst_in_ipv6_clothes)
{
	static const char *const spelt[] = { "169.254.169.254", "::ffff:169.254.169.254",
	    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "::ffff:0:a9fe:a9fe",
	    "64:ff9b:1::a9fe:a9fe" };
	struct acl *acl = acl_of("deny dst 169.254.0.0/16");

	for (size_t i = 0; i < sizeof(spelt) / sizeof(spelt[0]); i++)
		cr_expect_eq(acl_verdict_dst(acl, (struct acl_case){ 0 }, spelt[i]), ACL_DENY, "%s",
		    spelt[i]);
	cr_expect_eq(acl_verdict_dst(acl, (struct acl_case){ 0 }, "64:ff9b::808:808"), ACL_ALLOW);
	acl_free(acl);
	acl = acl_of("default deny\nallow dst 8.8.8.8,64:ff9b:1::/48");
	cr_expect_eq(acl_verdict_dst(acl, (struct acl_case){ 0 }, "64:ff9b::808:808"), ACL_DENY);
	cr_expect_eq(acl_verdict_dst(acl, (struct acl_case){ 0 }, "64:ff9b:1::909:909"), ACL_ALLOW);
	acl_free(acl);
}

Test(acl, routes)
{
	struct acl *acl = acl_of("route origin.test 127.0.0.1 19000\nroute *.test:81 ::1 81\n"
	    "route origin.test 127.0.0.9 9\nroute 192.0.2.1 [::ffff:10.0.0.1] 7\ndeny dst 127.0.0.0/8");
	static const struct {
		const char *host;
		uint16_t port;
		const char *to;
	} cases[] = {
		{ "origin.test", 80, "127.0.0.1:19000" }, { "ORIGIN.test.", 81, "127.0.0.1:19000" },
		{ "x.test", 81, "[::1]:81" }, { "x.test", 80, NULL }, { "test", 81, NULL },
		{ "[::ffff:192.0.2.1]", 1, "10.0.0.1:7" }, { "192.0.2.2", 1, NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct target *to;
		struct target target;
		char text[ADDR_TEXT_MAX];

		cr_assert(target_set_host(&target, span_str(cases[i].host), cases[i].port));
		to = acl_route(acl, &target);
		if (cases[i].to == NULL)
			cr_expect_null(to, "%s", cases[i].host);
		else
			cr_expect(to != NULL && strcmp(addr_format(&to->addr, text), cases[i].to) == 0,
			    "%s", cases[i].host);
	}
	/* dst looks at where the route leads. */
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "origin.test" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "192.0.2.1" }), ACL_ALLOW);
	acl_free(acl);
}

Test(acl, nothing_at_all_allows)
{
	struct conf_problems problems = { 0 };
	struct acl *acl = acl_load(NULL, NULL, 0, NULL, &problems);

	cr_assert_not_null(acl);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ 0 }), ACL_ALLOW);
	cr_expect_eq(acl_rule_count(acl), 0);
	acl_free(acl);
	acl = acl_load("", NULL, 0, NULL, &problems);
	cr_assert_not_null(acl);
	acl_free(acl);
	acl_free(NULL);
}

Test(acl, a_client_without_an_address_is_in_no_prefix)
{
	struct acl *acl = acl_of("default deny\nallow client 0.0.0.0/0,::/0");
	struct acl_asked asked;

	acl_ask(&asked, &(struct acl_case){ 0 });
	asked.client = (struct addr){ .len = sizeof(sa_family_t) };
	asked.client.sa.sa_family = AF_UNIX;
	cr_expect_eq(acl_check(acl, &asked.request).verdict, ACL_DENY);
	acl_free(acl);
	acl = acl_of("default deny\nallow client *");
	cr_expect_eq(acl_check(acl, &asked.request).verdict, ACL_ALLOW);
	acl_free(acl);
}

Test(acl, local_addresses)
{
	static const char *const local[] = { "127.0.0.1", "127.255.255.255", "0.0.0.0", "0.1.2.3",
	    "169.254.169.254", "::", "::1", "fe80::1", "febf:ffff::1", "::ffff:127.0.0.1",
	    "::ffff:0.0.0.0", "::ffff:169.254.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::",
	    "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:7f00:1:1::5", "2002:a9fe:a9fe::",
	    "2001:0:4136:e378:8000:63bf:80ff:fffe", "::ffff:0:127.0.0.1", "64:ff9b:1::127.0.0.1",
	    "64:ff9b:1:7f00:0:100::", "ff02::1", "ff01::1", "ff12::5", "224.0.0.251", "255.255.255.255" };
	static const char *const other[] = { "8.8.8.8", "10.0.0.1", "192.168.1.1", "128.0.0.1",
	    "126.255.255.255", "169.253.255.255", "1.0.0.0", "2001:db8::1", "fec0::1", "fd00::1",
	    "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::808:808", "2002:808:808::7f00:1", "ff05::1",
	    "2001:0:7f00:1:8000:63bf:3fff:fdd2", "64:ff9b:1::8.8.8.8", "64:ff9c::7f00:1", "224.0.1.1" };
	struct addr addr;

	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		cr_expect(addr_parse_ip(span_str(local[i]), 0, &addr) && acl_is_local_address(&addr), "%s",
		    local[i]);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		cr_expect(addr_parse_ip(span_str(other[i]), 0, &addr) && !acl_is_local_address(&addr), "%s",
		    other[i]);
	cr_expect_not(acl_is_local_address(&(struct addr){ .len = 0 }));
}

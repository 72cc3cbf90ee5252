/* SPDX-License-Identifier: ISC */
#include "test_acl.h"

#include <stdio.h>
#include <stdlib.h>

#include "policy/acl_path.h"

static enum acl_verdict
verdict(const char *rules, const char *path)
{
	struct acl *acl = acl_of(rules);
	enum acl_verdict result = acl_verdict_of(acl, (struct acl_case){ .path = path });

	acl_free(acl);
	return result;
}

Test(acl_path, patterns)
{
	static const struct {
		const char *pattern, *path;
		bool matches;
	} cases[] = {
		{ "/admin/*", "/admin/", true }, { "/admin/*", "/admin/x", true },
		{ "/admin/*", "/admin", false }, { "/admin/*", "/administrator", false },
		{ "/admin*", "/administrator", true }, { "/admin", "/admin", true },
		{ "/admin", "/admin/", false }, { "/admin", "/Admin", false },
		{ "/admin", "/admin?x=1", true }, { "/admin", "/admin?", true },
		{ "*.exe", "/a/b.exe", true }, { "*.exe", "/a/b.exe?x", true },
		{ "*.exe", "/a/b.exe.txt", false }, { "*.exe", "/a?b=c.exe", false },
		{ "*.tar.gz", "/x.tar.gz", true }, { "*.gz", "/x.tar.gz", true },
		{ "*", "/", true }, { "*", "*", true },
		{ "/s?q=*", "/s?q=1", true }, { "/s?q=*", "/s", false }, { "/s?q=1", "/s?q=12", false },
		{ "/s?q=%61*", "/s?q=ab", true }, { "/s?q=a*", "/s?q=%61b", true },
		{ "/s?q=a*", "/./s?q=ab", true },
		{ "/.*", "/.git", true }, { "/.*", "/x", false }, { "/.git/*", "/.git/config", true },
		{ "/~bob/*", "/%7Ebob/x", true }, { "/%7ebob/*", "/~bob/x", true },
		{ "/a%20b", "/a%20b", true }, { "/a%2fb", "/a%2Fb", true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char rules[128];

		snprintf(rules, sizeof(rules), "deny path %s", cases[i].pattern);
		cr_expect_eq(verdict(rules, cases[i].path) == ACL_DENY, cases[i].matches, "%s %s",
		    cases[i].pattern, cases[i].path);
	}
}

Test(acl_path, no_spelling_evades_a_deny)
{
	static const char *const spelt[] = { "/admin/x", "//admin/x", "/%61dmin/x", "/%61%64%6D%69%6e/x",
	    "/a/../admin/x", "/./admin/x", "/admin//x", "/admin/./x", "/admin/y/../x", "/x//../admin/x",
	    "/x/..//admin/x", "///admin///x", "/a/%2e%2e/admin/x", "/a/.%2E/admin/x", "/%2e/admin/x",
	    "/../admin/x", "/../../admin/x", "/admin%2fx", "/admin%2Fx", "/%2fadmin/x", "/a/..%2fadmin/x",
	    "/a%2f..%2fadmin/x", "/\\admin/x", "/admin\\x", "/a\\..\\admin\\x", "/%5cadmin%5Cx",
	    "/admin;v=1/x", "/a/..;/admin/x", "/;x/admin/x", "/%3bx/admin/x", "/admin/../x", "/admin/%2e%2e/x",
	    "//admin/../x", "/admin/x?a=/../..", "/admin/?", "/admin/..", "/admin/x/../../b",
	    "/admin//../x" };

	for (size_t i = 0; i < sizeof(spelt) / sizeof(spelt[0]); i++) {
		cr_expect_eq(verdict("deny path /admin/*", spelt[i]), ACL_DENY, "%s", spelt[i]);
		cr_expect_eq(verdict("default deny\nallow path /x/*,/a/*", spelt[i]), ACL_DENY, "%s",
		    spelt[i]);
	}
	cr_expect_eq(verdict("deny path /admin", "/a/../admin"), ACL_DENY);
	cr_expect_eq(verdict("deny path /admin/", "/admin/x/.."), ACL_DENY);
	cr_expect_eq(verdict("deny path /admin/", "/admin/."), ACL_DENY);
	cr_expect_eq(verdict("deny path *.exe", "/x.%65xe"), ACL_DENY);
	cr_expect_eq(verdict("deny path *.exe", "/x%2eexe"), ACL_DENY);
	cr_expect_eq(verdict("deny path *.exe", "/x.exe;v=1"), ACL_DENY);
	cr_expect_eq(verdict("deny path /my%20docs/*", "/my%20docs%2fa"), ACL_DENY);
	/* Dot segments first or last: "/a//.." is "/a/" or "/". */
	cr_expect_eq(verdict("deny path /a/b/c", "/a//../b//c"), ACL_DENY);
	cr_expect_eq(verdict("deny path /b/c", "/a//../b//c"), ACL_DENY);
	/* Not decoded twice: that is another resource. */
	cr_expect_eq(verdict("deny path /admin/*", "/%2561dmin/x"), ACL_ALLOW);
	cr_expect_eq(verdict("deny path /admin/*", "/xadmin/x"), ACL_ALLOW);
	cr_expect_eq(verdict("deny path /admin/*", "/x/admin/x"), ACL_ALLOW);
	cr_expect_eq(verdict("deny path /admin/*", "/x?/admin/x"), ACL_ALLOW);
	cr_expect_eq(verdict("deny path /admin/*", "/?/../admin/x"), ACL_ALLOW);
	cr_expect_eq(verdict("deny path /", "?x"), ACL_DENY);
}

Test(acl_path, an_allow_is_not_stretched)
{
	static const char rules[] = "default deny\nallow path /pub/*";
	static const char *const good[] = { "/pub/", "/pub/a", "/pub/a/../b", "/pub//a", "/pub/a;v=1/b",
	    "/pub/%41", "/pub/a%2fb", "/pub/?x=/../.." };
	static const char *const bad[] = { "/pub/../admin", "/pub/..%2fadmin", "/pub/%2e%2e/admin",
	    "/pub/..\\admin", "/pub/..;/admin", "/pub//../../admin", "/x/../pub/a", "/%70ub/a", "//pub/a",
	    "/pub/a//../../x", "/pub%2fa" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		cr_expect_eq(verdict(rules, good[i]), ACL_ALLOW, "%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_eq(verdict(rules, bad[i]), ACL_DENY, "%s", bad[i]);
	cr_expect_eq(verdict("default deny\nallow path /a;v=1", "/a;v=1"), ACL_ALLOW);
	cr_expect_eq(verdict("default deny\nallow path /%7Ea/*", "/~a/x"), ACL_ALLOW);
	cr_expect_eq(verdict("default deny\nallow path /%7Ea/*", "/%7Ea/x"), ACL_ALLOW);
	cr_expect_eq(verdict("default deny\nallow path /my%20docs/*", "/my%20docs/a"), ACL_ALLOW);
}

Test(acl_path, only_what_is_visible_has_a_path)
{
	struct acl *acl = acl_of("deny path *");

	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .kind = ACL_CONNECT, .path = "/x" }),
	    ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .kind = ACL_SOCKS, .path = "/x" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .path = "" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .path = "/x" }), ACL_DENY);
	acl_free(acl);
}

Test(acl_path, readings)
{
	static const struct {
		const char *sent;
		enum acl_path_form form;
		const char *reading;
	} cases[] = {
		{ "/a", ACL_PATH_ANY, "/a" }, { "*", ACL_PATH_ANY, "*" }, { "/a?b", ACL_PATH_ANY, "/a?b" },
		{ "/%7e%2f", ACL_PATH_RAW, "/%7e%2f" }, { "/%7e%2f", ACL_PATH_NORMAL, "/~%2F" },
		{ "/%7e%2f", ACL_PATH_LENIENT, "/~/" }, { "/a/b/..", ACL_PATH_NORMAL, "/a/" },
		{ "/a/./b/.", ACL_PATH_NORMAL, "/a/b/" }, { "/..", ACL_PATH_NORMAL, "/" },
		{ "/a//../b", ACL_PATH_NORMAL, "/a/b" }, { "/a//../b", ACL_PATH_NORMAL, "/b" },
		{ "/%", ACL_PATH_NORMAL, "/%" }, { "/%4", ACL_PATH_LENIENT, "/%4" },
		{ "/%zz", ACL_PATH_LENIENT, "/%zz" }, { "?%41", ACL_PATH_NORMAL, "/?A" },
		{ "/..a/.b/c.", ACL_PATH_NORMAL, "/..a/.b/c." }, { "/;x", ACL_PATH_LENIENT, "/" },
		{ "/x?%2e%2e", ACL_PATH_NORMAL, "/x?.." }, { "/x?%3b", ACL_PATH_NORMAL, "/x?%3B" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct acl_path readings[ACL_PATH_READINGS_MAX];
		struct span sent = span_str(cases[i].sent);
		char *scratch = malloc(ACL_PATH_SCRATCH(sent.len));
		size_t count = acl_path_read(sent, scratch, readings);
		bool found = false;

		for (size_t k = 0; k < count; k++)
			found |= readings[k].form == cases[i].form &&
			    span_is(readings[k].whole, cases[i].reading);
		cr_expect(found, "%s %s", cases[i].sent, cases[i].reading);
		free(scratch);
	}
}

Test(acl_path, long_paths_cost_no_more_than_their_length)
{
	enum { LONG = 64000 };
	char *path = malloc(LONG + 1);
	static const char *const pieces[] = { ".", "/", "/..", "/.", "%2e", "%2f", ";", "/a.b", "%5c", "//" };
	struct acl *acl = acl_of("deny path *.exe,*.dll,/admin/*\nallow path /x/*");

	for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
		size_t piece = strlen(pieces[p]), used = 1;

		path[0] = '/';
		for (; used + piece <= LONG; used += piece)
			memcpy(path + used, pieces[p], piece);
		path[used] = '\0';
		for (unsigned i = 0; i < 20; i++)
			cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .path = path }), ACL_ALLOW);
	}
	acl_free(acl);
	free(path);
}

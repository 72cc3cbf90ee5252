/* SPDX-License-Identifier: ISC */
/* Errors, @FILEs and the order of the sources. */
#include "test_acl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/ringway-acl.XXXXXX";

static void
make_dir(void)
{
	cr_assert_not_null(mkdtemp(dir));
}

static void
remove_dir(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_assert_eq(system(command), 0);
}

static const char *
in_dir(const char *name)
{
	static char path[4][128];
	static unsigned next;
	char *out = path[next++ % 4];

	snprintf(out, sizeof(path[0]), "%s/%s", dir, name);
	return out;
}

static void
write_file(const char *name, const char *text)
{
	FILE *file = fopen(in_dir(name), "w");

	cr_assert_not_null(file);
	fputs(text, file);
	fclose(file);
}

static const struct {
	const char *line, *problem;
} bad_lines[] = {
	{ "dney host a.org", "f:1: \"dney\" begins no rule (nearest: deny)" },
	{ "permit", "f:1: \"permit\" begins no rule (deny, allow, route or default)" },
	{ "Deny host a.org", "f:1: \"Deny\" begins no rule (nearest: deny)" },
	{ "deny", "f:1: no condition (deny FIELD VALUE; for everything: deny host *)" },
	{ "allow # x", "f:1: no condition (allow FIELD VALUE; for everything: allow host *)" },
	{ "deny host", "f:1: host has no value (host VALUE[,VALUE...], or host @FILE)" },
	{ "deny hosts a", "f:1: \"hosts\" is no field (nearest: host)" },
	{ "deny a.org", "f:1: \"a.org\" is no field (method, host, path" },
	{ "deny host a.org,", "f:1: host: an empty value (values are separated by one comma" },
	{ "deny host a,,b", "f:1: host: an empty value" },
	{ "deny host a.org host b.org", "f:1: host is there twice" },
	{ "deny host a..b", "f:1: host: \"a..b\" is no host (a name, an address, *" },
	{ "deny host http://a.org/", "f:1: host: \"http://a.org/\" " },
	{ "deny host 10.0.0.0/8", "f:1: host: \"10.0.0.0/8\" is no host (a name or address without" },
	{ "deny host b\xc3\xbc.org", "f:1: host: \"b\\xc3\\xbc.org\" is not ASCII" },
	{ "deny host 127.1", "f:1: host: \"127.1\" is neither a name nor an address" },
	{ "deny host 2130706433", "f:1: host: \"2130706433\" is neither" },
	{ "deny host 0x7f.0x1", "f:1: host: \"0x7f.0x1\" is neither" },
	{ "deny host 10.0.0.300", "f:1: host: \"10.0.0.300\" is neither" },
	{ "deny host a.org:0", "f:1: host: \"a.org:0\" has no good port" },
	{ "deny host a.org:x", "f:1: host: \"a.org:x\" has no good port" },
	{ "deny host :80", "f:1: host: \":80\" is no host" },
	{ "deny host [::1", "f:1: host: \"[::1\" is no host" },
	{ "deny host [::1]x", "f:1: host: \"[::1]x\" is no host" },
	{ "deny host a*b", "f:1: host: \"a*b\" has its * in a place where it means nothing" },
	{ "deny host *a.org", "f:1: host: \"*a.org\" has its *" },
	{ "deny host *.a*", "f:1: host: \"*.a*\" has its *" },
	{ "deny host *.", "f:1: host: \"*.\" has its *" },
	{ "deny host **", "f:1: host: \"**\" has its *" },
	{ "deny host *..a", "f:1: host: \"*..a\" is no host" },
	{ "deny host .a*", "f:1: host: \".a*\" is no host" },
	{ "deny path admin", "f:1: path: \"admin\" matches nothing (a path begins with /" },
	{ "deny path http://a/x", "f:1: path: \"http://a/x\" matches nothing" },
	{ "deny path /a#b", "f:1: path: \"/a#b\" can't be in a path" },
	{ "deny path /b\xc3\xbc", "f:1: path: \"/b\\xc3\\xbc\" can't be in a path" },
	{ "deny path /a//b", "f:1: path: \"/a//b\" holds // (write the path that it leads to)" },
	{ "deny path /a/../b*", "f:1: path: \"/a/../b*\" holds /../" },
	{ "deny path *.a?b", "f:1: path: \"*.a?b\" matches nothing (an ending" },
	{ "deny path *.a/b", "f:1: path: \"*.a/b\" mixes an ending with a folder" },
	{ "deny path */x", "f:1: path: \"*/x\" has its *" },
	{ "deny client 10.0.0.0/33", "f:1: client: \"10.0.0.0/33\" has no good prefix length" },
	{ "deny client a.org", "f:1: client: \"a.org\" is no address" },
	{ "deny dst 1.2.3", "f:1: dst: \"1.2.3\" is no address" },
	{ "deny port 0", "f:1: port: \"0\" is no port (a number from 1 to 65535, or a range" },
	{ "deny port 65536", "f:1: port: \"65536\" is no port" },
	{ "deny port 5-4", "f:1: port: \"5-4\" is no port" },
	{ "deny port 5-", "f:1: port: \"5-\" is no port" },
	{ "deny port -5", "f:1: port: \"-5\" is no port" },
	{ "deny port http", "f:1: port: \"http\" is no port" },
	{ "deny listener 1-2-3", "f:1: listener: \"1-2-3\" is no port" },
	{ "deny method a/b", "f:1: method: \"a/b\" is no method" },
	{ "deny method *.x", "f:1: method: \"*.x\" is no method" },
	{ "deny user a*b", "f:1: user: \"a*b\" has its *" },
	{ "deny host @/nonexistent/x", "f:1: host: \"/nonexistent/x\" can't be read: No such file" },
	{ "deny host @", "f:1: host: \"\" can't be read" },
	{ "deny host a\001b", "f:1: a control character" },
	{ "default", "f:1: default of what? (default allow, or default deny)" },
	{ "default maybe", "f:1: default can't be \"maybe\"" },
	{ "default deny host a", "f:1: \"host\" behind default deny (default has no conditions" },
	{ "default deny\ndefault allow", "f:2: default is set already by f:1" },
	{ "route a.org 127.0.0.1", "f:1: a route has three parts (route HOST ADDR PORT)" },
	{ "route a.org 127.0.0.1 80 x", "f:1: a route has three parts" },
	{ "route a.org b.org 80", "f:1: \"b.org\" is no address (a route leads to an IPv4 or IPv6" },
	{ "route a.org 127.0.0.1 0", "f:1: \"0\" is no port (a number from 1 to 65535)" },
	{ "route a..b 127.0.0.1 80", "f:1: host: \"a..b\" is no host" },
};

Test(acl_load, every_kind_of_bad_line_says_what_would_be_right)
{
	for (size_t i = 0; i < sizeof(bad_lines) / sizeof(bad_lines[0]); i++) {
		struct conf_problems problems = { 0 };

		cr_expect_null(acl_load_text("f", span_str(bad_lines[i].line), NULL, &problems), "%s",
		    bad_lines[i].line);
		cr_expect_eq(problems.errors, 1, "%s", bad_lines[i].line);
		cr_expect_eq(strncmp(problems.list[0].text, bad_lines[i].problem, strlen(bad_lines[i].problem)), 0,
		    "%s", problems.list[0].text);
		conf_problems_free(&problems);
	}
}

Test(acl_load, all_bad_lines_are_reported_at_once)
{
	struct conf_problems problems = { 0 };

	cr_expect_null(acl_load_text("f", span_str("denny host x\n\ndeny port 0,70000 host a..b\n"
	    "allow host ok\nroute x y z\ndefault no"), NULL, &problems));
	cr_expect_eq(problems.errors, 7);
	cr_expect_eq(strncmp(problems.list[0].text, "f:1: ", 5), 0);
	cr_expect_eq(strncmp(problems.list[1].text, "f:3: ", 5), 0);
	cr_expect_eq(strncmp(problems.list[3].text, "f:3: ", 5), 0);
	cr_expect_eq(strncmp(problems.list[6].text, "f:6: ", 5), 0);
	conf_problems_free(&problems);
}

Test(acl_load, values_from_files, .init = make_dir, .fini = remove_dir)
{
	struct conf_problems problems = { 0 };
	struct acl *acl;

	write_file("hosts", "\xef\xbb\xbf# list\r\nads.example\r\n*.tracker.example ; sub\n\n;x\nx*:8080\n");
	write_file("nets", "10.0.0.0/8#a\n2001:db8::/32\n");
	write_file("ports", "80\n8000-8099\n");
	write_file("users", "a,b\n@carol\nbob smith # two words\n");
	write_file("main.acl", "deny host @hosts,more.example\ndeny client @nets port @ports\n"
	    "deny user @users\n");
	acl = acl_load(in_dir("main.acl"), NULL, 0, NULL, &problems);
	cr_assert_not_null(acl, "%s", problems.count != 0 ? problems.list[0].text : "");
	cr_expect_eq(problems.warnings, 0);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "ads.example" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "a.tracker.example" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "more.example" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x1", .port = 8080 }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x1" }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .client = "10.1.1.1" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .client = "10.1.1.1", .port = 81 }), ACL_ALLOW);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .user = "a,b" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .user = "@carol" }), ACL_DENY);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .user = "bob smith" }), ACL_DENY);
	acl_free(acl);
	conf_problems_free(&problems);
}

Test(acl_load, bad_lists_are_named_by_file_and_line, .init = make_dir, .fini = remove_dir)
{
	struct conf_problems problems = { 0 };
	char expected[256];

	write_file("hosts", "good.example\n0.0.0.0 ads.example\na..b\n");
	write_file("main.acl", "\ndeny host @hosts\n");
	cr_expect_null(acl_load(in_dir("main.acl"), NULL, 0, NULL, &problems));
	cr_assert_eq(problems.errors, 2);
	snprintf(expected, sizeof(expected), "%s:2: host: \"0.0.0.0 ads.example\" is no host (one name or "
	    "address, without a blank) [list of %s:2]", in_dir("hosts"), in_dir("main.acl"));
	cr_expect_str_eq(problems.list[0].text, expected);
	conf_problems_free(&problems);
}

Test(acl_load, an_empty_list_matches_nothing_and_is_warned_about, .init = make_dir, .fini = remove_dir)
{
	static const char *const fields[] = { "host", "path", "client", "user", "port", "dst", "listener",
	    "method" };

	write_file("empty", "# nothing\n");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		struct conf_problems problems = { 0 };
		char rule[64];
		const char *const rules[] = { "default deny", rule };
		struct acl *acl;

		snprintf(rule, sizeof(rule), "allow %s @empty", fields[i]);
		acl = acl_load(NULL, rules, 2, dir, &problems);
		cr_assert_not_null(acl);
		cr_expect_eq(problems.warnings, 1);
		cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .user = "x", .host = "1.2.3.4" }),
		    ACL_DENY, "%s", rule);
		acl_free(acl);
		conf_problems_free(&problems);
	}
}

Test(acl_load, inline_rules_follow_the_file, .init = make_dir, .fini = remove_dir)
{
	static const char *const rules[] = { "deny host a.org", "deny host b.org", "# nothing" };
	static const char *const bad[] = { "deny host a.org", "deny hots b.org", "deny host a\ndeny host b" };
	struct conf_problems problems = { 0 };
	struct acl_asked asked;
	struct acl_result result;
	struct acl *acl;

	write_file("main.acl", "allow host a.org\n");
	acl = acl_load(in_dir("main.acl"), rules, 3, NULL, &problems);
	cr_assert_not_null(acl);
	acl_ask(&asked, &(struct acl_case){ .host = "a.org" });
	result = acl_check(acl, &asked.request);
	cr_expect_eq(result.verdict, ACL_ALLOW);
	cr_expect_eq(strstr(result.where, "/main.acl:1") != NULL, 1);
	acl_ask(&asked, &(struct acl_case){ .host = "b.org" });
	result = acl_check(acl, &asked.request);
	cr_expect_eq(result.verdict, ACL_DENY);
	cr_expect_str_eq(result.where, "acl.rules[1]");
	acl_free(acl);
	cr_expect_null(acl_load(in_dir("main.acl"), bad, 3, NULL, &problems));
	cr_assert_eq(problems.errors, 2);
	cr_expect_str_eq(problems.list[0].text, "acl.rules[1]: \"hots\" is no field (nearest: host)");
	cr_expect_eq(strncmp(problems.list[1].text, "acl.rules[2]: more than one line", 32), 0);
	conf_problems_free(&problems);
	cr_expect_null(acl_load(in_dir("none.acl"), rules, 3, NULL, &problems));
	cr_expect_null(acl_load(dir, rules, 3, NULL, &problems));
	cr_assert_eq(problems.errors, 2);
	cr_expect_eq(strstr(problems.list[0].text, "none.acl: can't be read: No such file") != NULL, 1);
	conf_problems_free(&problems);
}

Test(acl_load, host_bits_are_a_warning)
{
	struct conf_problems problems = { 0 };
	struct acl *acl = acl_load_text("f", span_str("deny client 10.1.2.3/8"), NULL, &problems);

	cr_assert_not_null(acl);
	cr_assert_eq(problems.warnings, 1);
	cr_expect_eq(strncmp(problems.list[0].text, "f:1: client: \"10.1.2.3/8\" has bits", 34), 0);
	cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .client = "10.9.9.9" }), ACL_DENY);
	acl_free(acl);
	conf_problems_free(&problems);
}

Test(acl_load, a_file_that_never_ends_is_refused)
{
	struct conf_problems problems = { 0 };

	cr_expect_null(acl_load("/dev/zero", NULL, 0, NULL, &problems));
	cr_assert_eq(problems.errors, 1);
	cr_expect_eq(strcmp(problems.list[0].text, "/dev/zero: can't be read: File too large"), 0);
	conf_problems_free(&problems);
}

Test(acl_load, printed_rules_load_again)
{
	static const char text[] = "default deny\nallow host *.a.org port 80,443\ndeny client 10.0.0.0/8\n"
	    "route x.test 127.0.0.1 80\n";
	struct acl *acl = acl_of("  allow\thost *.a.org   port 80,443 # x\ndeny client 10.0.0.0/8\n\n"
	    "route x.test 127.0.0.1 80\ndefault deny");
	char *printed = NULL;
	size_t len;
	FILE *out = open_memstream(&printed, &len);

	acl_print(acl, out);
	fclose(out);
	cr_expect_str_eq(printed, text);
	free(printed);
	acl_free(acl);
}

static double
ns_between(const struct timespec *a, const struct timespec *b)
{
	return (double)(b->tv_sec - a->tv_sec) * 1e9 + (double)(b->tv_nsec - a->tv_nsec);
}

/* Printed, not asserted.  A list by @FILE and the same as single rules. */
Test(acl_load, time_of_a_large_list, .init = make_dir, .fini = remove_dir)
{
	enum { NAMES = 100000, ASKED = 200000 };
	static const char *const names[] = { "by-file.acl", "by-rules.acl" };
	FILE *list = fopen(in_dir("list"), "w"), *lines = fopen(in_dir("by-rules.acl"), "w");

	for (unsigned i = 0; i < NAMES; i++) {
		fprintf(list, "%sads%u.example%u.com\n", i % 2 == 0 ? "*." : "", i, i % 977);
		fprintf(lines, "deny host %sads%u.example%u.com\n", i % 2 == 0 ? "*." : "", i, i % 977);
	}
	fclose(list);
	fclose(lines);
	write_file("by-file.acl", "deny host @list\n");
	for (unsigned n = 0; n < 2; n++) {
		struct conf_problems problems = { 0 };
		struct timespec t[3];
		struct acl_asked asked;
		struct acl *acl;
		unsigned denied = 0;

		clock_gettime(CLOCK_MONOTONIC, &t[0]);
		acl = acl_load(in_dir(names[n]), NULL, 0, NULL, &problems);
		clock_gettime(CLOCK_MONOTONIC, &t[1]);
		cr_assert_not_null(acl);
		acl_ask(&asked, &(struct acl_case){ .host = "www.static.shop.example.com" });
		for (unsigned i = 0; i < ASKED; i++)
			denied += acl_check(acl, &asked.request).verdict == ACL_DENY;
		clock_gettime(CLOCK_MONOTONIC, &t[2]);
		cr_expect_eq(denied, 0);
		cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "x.ads2.example2.com" }), ACL_DENY);
		cr_expect_eq(acl_verdict_of(acl, (struct acl_case){ .host = "ads3.example3.com" }), ACL_DENY);
		fprintf(stderr, "acl: %s with %u names: loaded in %.0f ms, %.0f ns a question\n", names[n],
		    NAMES, ns_between(&t[0], &t[1]) / 1e6, ns_between(&t[1], &t[2]) / ASKED);
		acl_free(acl);
	}
}

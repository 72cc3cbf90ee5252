/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/sockopt.h"
#include "privs.h"

enum {
	/* In no user database. */
	SOME_UID = 54321,
	SOME_GID = 54322,
	OUTPUT_MAX = 4096,
	/* linux/capability.h */
	BIND_BIT = 1 << 10,
	ADMIN_BIT = 1 << 12
};

static char text[PRIVS_TEXT_MAX];
static char output[OUTPUT_MAX];

static void
need_root(void)
{
	if (geteuid() != 0)
		cr_skip_test("only root can become somebody else");
	if (!privs_have(PRIVS_NET_BIND | PRIVS_NET_ADMIN))
		cr_skip_test("root without CAP_NET_ADMIN and CAP_NET_BIND_SERVICE");
}

/* Runs f in a process of its own, its standard output into `output`; its exit code. */
static int
in_child(void (*f)(void))
{
	int ends[2], status;
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	cr_assert_eq(pipe(ends), 0);
	fflush(NULL);
	if ((pid = fork()) == 0) {
		dup2(ends[1], 1);
		close(ends[0]);
		f();
		fflush(stdout);
		_exit(0);
	}
	cr_assert_gt(pid, 0);
	close(ends[1]);
	while ((n = read(ends[0], output + used, sizeof(output) - 1 - used)) > 0)
		used += (size_t)n;
	output[used] = '\0';
	close(ends[0]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Prints a program's view of its own ids and capabilities; what an exec keeps. */
static void
exec_status(void)
{
	fflush(stdout);
	execl("/bin/sh", "sh", "-c",
	    "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapInh|CapBnd|CapAmb|NoNewPrivs):' /proc/self/status",
	    (char *)NULL);
	_exit(99);
}

static void
drop_or_exit(const struct privs *p, unsigned caps)
{
	if (privs_drop(p, caps, text) != 0) {
		printf("%s\n", text);
		fflush(stdout);
		_exit(1);
	}
}

static const struct privs somebody = {
	.set_user = true, .set_group = true, .uid = SOME_UID, .gid = SOME_GID
};

Test(privs, nobody_is_looked_up_when_neither_is_set)
{
	struct privs p;

	cr_expect_eq(privs_lookup("", NULL, &p, text), 0);
	cr_expect(!p.set_user && !p.set_group);
	cr_expect_eq(privs_allowed(&p, text), 0);
}

Test(privs, a_user_brings_its_primary_group)
{
	const struct passwd *pw = getpwnam("nobody");
	struct privs p;

	if (pw == NULL)
		cr_skip_test("no user \"nobody\" here");
	cr_assert_eq(privs_lookup("nobody", "", &p, text), 0, "%s", text);
	pw = getpwnam("nobody");
	cr_expect(p.set_user && p.set_group);
	cr_expect_eq(p.uid, pw->pw_uid);
	cr_expect_eq(p.gid, pw->pw_gid);
	cr_expect_str_eq(p.name, "nobody");
	cr_assert_eq(privs_lookup("nobody", "54322", &p, text), 0, "%s", text);
	cr_expect_eq(p.gid, (gid_t)SOME_GID);
}

Test(privs, a_number_with_an_entry_is_that_user)
{
	struct privs p;

	cr_assert_eq(privs_lookup("0", "", &p, text), 0, "%s", text);
	cr_expect_eq(p.uid, 0u);
	cr_expect_str_eq(p.name, "root");
}

Test(privs, a_number_without_entry_needs_a_group)
{
	struct privs p;

	if (getpwuid(SOME_UID) != NULL)
		cr_skip_test("uid 54321 exists here");
	cr_expect_eq(privs_lookup("54321", "", &p, text), -EINVAL);
	cr_expect_str_eq(text, "user: \"54321\" is in no user database, so group has to be set too");
	cr_assert_eq(privs_lookup("54321", "54322", &p, text), 0, "%s", text);
	cr_expect_eq(p.uid, (uid_t)SOME_UID);
	cr_expect_str_eq(p.name, "");
}

Test(privs, what_is_not_there_is_named)
{
	static const struct {
		const char	*user, *group, *text;
	} cases[] = {
		{ "no-such-one", "", "user: no such user \"no-such-one\"" },
		{ "root", "no-such-one", "group: no such group \"no-such-one\"" },
		{ "", "no-such-one", "group: no such group \"no-such-one\"" },
		/* (uid_t)-1 means "leave as it is". */
		{ "4294967295", "0", "user: no such user \"4294967295\"" },
		{ "-1", "0", "user: no such user \"-1\"" },
		{ "12x", "0", "user: no such user \"12x\"" },
	};
	struct privs p;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_expect_eq(privs_lookup(cases[i].user, cases[i].group, &p, text), -ENOENT);
		cr_expect_str_eq(text, cases[i].text);
	}
}

static unsigned
needed(const char *key, const char *value)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	unsigned caps;

	cr_assert_eq(conf_set(conf, key, value, &problems), 0);
	cr_assert_eq(conf_validate(conf, &problems), 0);
	caps = privs_needed(conf);
	conf_free(conf);
	conf_problems_free(&problems);
	return caps;
}

static unsigned
needed_for_ports(unsigned first, bool enabled)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char range[32];
	unsigned caps;

	snprintf(range, sizeof(range), "[%u, 50000]", first);
	cr_assert_eq(conf_set(conf, "udp.port_range", range, &problems), 0);
	cr_assert_eq(conf_set(conf, "udp.enabled", enabled ? "true" : "false", &problems), 0);
	caps = privs_needed(conf);
	conf_free(conf);
	conf_problems_free(&problems);
	return caps;
}

Test(privs, capabilities_follow_the_configuration)
{
	char value[16];
	unsigned start = 0;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "r");

	cr_expect_eq(needed("workers", "1"), 0u);
	cr_expect_eq(needed("outbound.mark", "7"), (unsigned)PRIVS_NET_ADMIN);
	if (f == NULL || fscanf(f, "%u", &start) != 1 || start < 2)
		cr_skip_test("every port is unprivileged here");
	fclose(f);
	snprintf(value, sizeof(value), "%u", start - 1);
	cr_expect_eq(needed("listen.0.port", value), (unsigned)PRIVS_NET_BIND);
	cr_expect_eq(needed_for_ports(start - 1, true), (unsigned)PRIVS_NET_BIND);
	cr_expect_eq(needed_for_ports(start - 1, false), 0u);
	cr_expect_eq(needed_for_ports(start, true), 0u);
	snprintf(value, sizeof(value), "%u", start);
	cr_expect_eq(needed("listen.0.port", value), 0u);
}

static void
drop_all(void)
{
	drop_or_exit(&somebody, 0);
	if (setuid(0) == 0 || seteuid(0) == 0 || setgid(0) == 0 || privs_have(PRIVS_NET_BIND))
		_exit(2);
	if (prctl(PR_GET_DUMPABLE) != 0)
		_exit(3);
	exec_status();
}

Test(privs, root_is_gone_for_good)
{
	need_root();
	cr_assert_eq(in_child(drop_all), 0, "%s", output);
	cr_expect_not_null(strstr(output, "Uid:\t54321\t54321\t54321\t54321"), "%s", output);
	cr_expect_not_null(strstr(output, "Gid:\t54322\t54322\t54322\t54322"), "%s", output);
	cr_expect_not_null(strstr(output, "Groups:\t54322"), "%s", output);
	cr_expect_not_null(strstr(output, "CapPrm:\t0000000000000000"), "%s", output);
	cr_expect_not_null(strstr(output, "CapBnd:\t0000000000000000"), "%s", output);
	cr_expect_not_null(strstr(output, "CapAmb:\t0000000000000000"), "%s", output);
	cr_expect_not_null(strstr(output, "NoNewPrivs:\t1"), "%s", output);
}

static void
drop_keeping_two(void)
{
	struct addr low;

	addr_parse_ip(span_str("127.0.0.1"), 81, &low);
	drop_or_exit(&somebody, PRIVS_NET_BIND | PRIVS_NET_ADMIN);
	if (!privs_have(PRIVS_NET_BIND | PRIVS_NET_ADMIN) || setuid(0) == 0)
		_exit(2);
	if (sockopt_listen(&low, 0, 1, text) < 0) {
		printf("%s\n", text);
		fflush(stdout);
		_exit(3);
	}
	exec_status();
}

/* SIGUSR2's program gets them although no_new_privs is set. */
Test(privs, what_is_needed_is_kept_and_passes_an_exec)
{
	char want[64];

	need_root();
	cr_assert_eq(in_child(drop_keeping_two), 0, "%s", output);
	for (const char *const *set = (const char *const []){ "CapPrm", "CapEff", "CapInh", "CapBnd",
	    "CapAmb", NULL }; *set != NULL; set++) {
		snprintf(want, sizeof(want), "%s:\t%016x", *set, BIND_BIT | ADMIN_BIT);
		cr_expect_not_null(strstr(output, want), "%s in\n%s", want, output);
	}
	cr_expect_not_null(strstr(output, "NoNewPrivs:\t1"), "%s", output);
}

static void
drop_twice(void)
{
	drop_or_exit(&somebody, PRIVS_NET_BIND);
	/* As the program that SIGUSR2 starts does. */
	drop_or_exit(&somebody, PRIVS_NET_BIND);
	if (!privs_have(PRIVS_NET_BIND))
		_exit(2);
}

Test(privs, being_that_user_already_is_fine)
{
	need_root();
	cr_expect_eq(in_child(drop_twice), 0, "%s", output);
}

static void
drop_to_named(void)
{
	struct privs p;

	if (privs_lookup("nobody", "", &p, text) != 0)
		_exit(2);
	drop_or_exit(&p, 0);
	exec_status();
}

Test(privs, other_groups_are_the_users_and_not_roots)
{
	const struct passwd *pw = getpwnam("nobody");
	gid_t extra[] = { 0, 4, 6 }, groups[64];
	int count = 64;
	char want[1024], *at = want;

	need_root();
	if (pw == NULL)
		cr_skip_test("no user \"nobody\" here");
	cr_assert_eq(setgroups(3, extra), 0);
	cr_assert_geq(getgrouplist("nobody", pw->pw_gid, groups, &count), 1);
	at += sprintf(at, "Groups:\t");
	for (int i = 0; i < count; i++)
		at += sprintf(at, "%u ", groups[i]);
	cr_assert_eq(in_child(drop_to_named), 0, "%s", output);
	cr_expect_not_null(strstr(output, want), "want %s\n%s", want, output);
}

static void
drop_group_only(void)
{
	struct privs p = { .set_group = true, .gid = SOME_GID };

	drop_or_exit(&p, 0);
	exec_status();
}

Test(privs, a_group_alone_leaves_the_user)
{
	need_root();
	cr_assert_eq(in_child(drop_group_only), 0, "%s", output);
	cr_expect_not_null(strstr(output, "Uid:\t0\t0\t0\t0"), "%s", output);
	cr_expect_not_null(strstr(output, "Gid:\t54322\t"), "%s", output);
}

static void
drop_to_other(void)
{
	struct privs other = somebody;

	if (geteuid() == 0 && (setgid(SOME_GID) != 0 || setuid(SOME_UID) != 0))
		_exit(2);
	other.uid = SOME_UID + 1;
	printf("%d ", privs_allowed(&other, text) == -EPERM);
	printf("%d ", privs_drop(&other, 0, text) == -EPERM);
	printf("%s", text);
}

Test(privs, who_is_not_root_can_become_nobody_else)
{
	char want[128];

	cr_assert_eq(in_child(drop_to_other), 0);
	snprintf(want, sizeof(want), "1 1 user: only root can become uid 54322, and this is uid %lu",
	    geteuid() == 0 ? (unsigned long)SOME_UID : (unsigned long)geteuid());
	cr_expect_str_eq(output, want);
}

static void
twin_after_drop(void)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);
	struct addr a;
	int fd;

	addr_parse_ip(span_str("127.0.0.1"), 0, &a);
	if ((fd = sockopt_listen(&a, SOCKOPT_REUSEPORT, 1, text)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&in, &len) != 0)
		_exit(2);
	addr_from_sockaddr(&a, (struct sockaddr *)&in, len);
	privs_give_socket(&somebody, fd);
	drop_or_exit(&somebody, 0);
	if (sockopt_listen(&a, SOCKOPT_REUSEPORT, 1, text) < 0) {
		printf("%s", text);
		fflush(stdout);
		_exit(3);
	}
}

Test(privs, a_socket_given_away_may_have_twins_later)
{
	need_root();
	cr_expect_eq(in_child(twin_after_drop), 0, "%s", output);
}

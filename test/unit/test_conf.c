/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conf/conf.h"
#include "conf/schema.h"
#include "conf/values.h"

static const struct conf_env roomy = { .nofile_hard = UINT64_MAX, .net_admin = true };

/* "listen[].port" as -o takes it: "listen.0.port". */
static char *
set_path(const struct conf_row *row, char path[CONF_PATH_MAX])
{
	const char *brackets = strstr(row->path, "[]");

	if (brackets == NULL)
		snprintf(path, CONF_PATH_MAX, "%s", row->path);
	else
		snprintf(path, CONF_PATH_MAX, "%.*s.0%s", (int)(brackets - row->path), row->path,
		    brackets + 2);
	return path;
}

/* Sets one value in a fresh conf; the first problem's text goes to `told`. */
static int
try_set(const char *path, const char *value, char told[600])
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	int rc = conf_set(conf, path, value, &problems);

	snprintf(told, 600, "%s", problems.count != 0 ? problems.list[0].text : "");
	cr_expect_eq(rc == 0, problems.errors == 0, "%s=%s: %s", path, value, told);
	conf_problems_free(&problems);
	conf_free(conf);
	return rc;
}

static char *
dump(const struct conf *conf)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	conf_dump(conf, out);
	fclose(out);
	return text;
}

Test(conf_schema, paths_are_unique_and_described)
{
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		cr_expect_eq(conf_schema_find(row->path), row, "%s is there twice", row->path);
		cr_expect_neq(row->help[0], '\0', "%s has no help", row->path);
		cr_expect_leq(row->min, row->max == 0 ? row->min : row->max, "%s", row->path);
		cr_expect_eq(row->words != NULL, row->type == CONF_ENUM || row->type == CONF_FLAGS,
		    "%s", row->path);
		if (strstr(row->path, "[]") != NULL)
			cr_expect_not_null(conf_schema_list_of(row), "%s", row->path);
	}
}

Test(conf_schema, defaults_are_accepted)
{
	char path[CONF_PATH_MAX], told[600];

	for (size_t i = 0; i < conf_schema_count; i++)
		if (conf_schema[i].type != CONF_RECORDS && !conf_schema_is_required(&conf_schema[i]))
			cr_expect_eq(try_set(set_path(&conf_schema[i], path),
			    conf_schema[i].initial, told), 0, "%s", told);
}

Test(conf_schema, numbers_are_kept_within_their_range)
{
	char path[CONF_PATH_MAX], value[32], told[600];

	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type != CONF_NUMBER && row->type != CONF_SIZE)
			continue;
		set_path(row, path);
		snprintf(value, sizeof(value), "%" PRIu64, row->min);
		cr_expect_eq(try_set(path, value, told), 0, "%s", told);
		snprintf(value, sizeof(value), "%" PRIu64, row->max);
		cr_expect_eq(try_set(path, value, told), 0, "%s", told);
		if (row->max != UINT64_MAX) {
			snprintf(value, sizeof(value), "%" PRIu64, row->max + 1);
			cr_expect_neq(try_set(path, value, told), 0, "%s=%s", path, value);
		}
		snprintf(value, sizeof(value), "%" PRId64, (int64_t)row->min - 1);
		cr_expect_neq(try_set(path, value, told), 0, "%s=%s", path, value);
		/* A field too narrow for its range would lose bits. */
		cr_expect(row->width == 8 || row->max >> (8 * row->width) == 0, "%s", path);
	}
}

Test(conf_schema, texts_are_kept_within_their_length)
{
	char path[CONF_PATH_MAX], told[600], value[5000];

	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type != CONF_STRING)
			continue;
		cr_assert_lt(row->max + 1, sizeof(value), "enlarge `value` for %s", row->path);
		set_path(row, path);
		memset(value, 'x', sizeof(value));
		value[row->max] = '\0';
		cr_expect_eq(try_set(path, value, told), 0, "%s", told);
		value[row->max] = 'x';
		value[row->max + 1] = '\0';
		cr_expect_neq(try_set(path, value, told), 0, "%s=%s", path, value);
		value[row->min] = '\0';
		cr_expect_eq(try_set(path, value, told), 0, "%s", told);
	}
}

Test(conf_schema, every_word_is_accepted_and_printed)
{
	char path[CONF_PATH_MAX], told[600];

	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_word *word = conf_schema[i].words;

		for (; word != NULL && word->name != NULL; word++)
			cr_expect_eq(try_set(set_path(&conf_schema[i], path), word->name, told), 0,
			    "%s", told);
	}
	for (enum conf_backend i = CONF_BACKEND_AUTO; i <= CONF_BACKEND_IOCP; i++) {
		cr_expect_eq(try_set("backend", conf_backend_name(i), told), 0, "%s", told);
	}
}

Test(conf, defaults_are_valid_without_warnings)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_validate_in(conf, &roomy, &problems), 0);
	cr_expect_eq(problems.errors + problems.warnings, 0u);
	cr_assert_eq(conf->listen_count, 2u);
	cr_expect_eq(addr_port(&conf->listen[0].sock), 1080);
	cr_expect_eq(conf->listen[0].sock.sa.sa_family, AF_INET);
	cr_expect_eq(conf->listen[1].sock.sa.sa_family, AF_INET6);
	cr_expect(addr_is_loopback(&conf->listen[1].sock));
	cr_expect_eq(conf->listen[0].protocols, (uint32_t)(CONF_PROTO_SOCKS5 | CONF_PROTO_HTTP));
	cr_expect_eq(conf->log_level, LOG_INFO);
	cr_expect_eq(conf->limits.idle_timeout_s, 300u);
	cr_expect_eq(conf->outbound.bind_ipv4.len, 0u);
	conf_free(conf);
}

Test(conf, set_changes_one_key_and_leaves_the_rest)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_set(conf, "listen.0.port", "8080", &problems), 0);
	cr_expect_eq(conf_set(conf, "resolver.servers", "192.0.2.1, [2001:db8::1]:54", &problems), 0);
	cr_expect_eq(conf_set(conf, "outbound.bind_ipv6", "2001:db8::2", &problems), 0);
	cr_expect_eq(conf_set(conf, "limits.header_bytes", "64KiB", &problems), 0);
	cr_expect_eq(problems.count, 0u);
	cr_expect_eq(conf->listen[0].port, 8080);
	cr_expect_eq(conf->listen[1].port, 1080);
	cr_assert_eq(conf->resolver.server_count, 2u);
	cr_expect_eq(addr_port(&conf->resolver.servers[0]), 53);
	cr_expect_eq(addr_port(&conf->resolver.servers[1]), 54);
	cr_expect_eq(conf->outbound.bind_ipv6.sa.sa_family, AF_INET6);
	cr_expect_eq(conf->limits.header_bytes, 65536u);
	conf_free(conf);
}

Test(conf, set_with_the_next_number_adds_an_entry)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_set(conf, "listen.2.addr", "unix:/run/x.sock", &problems), 0);
	cr_assert_eq(conf->listen_count, 3u);
	cr_expect_eq(conf->listen[2].backlog, 4096u);
	cr_expect_eq(conf_validate_in(conf, &roomy, &problems), 0);
	cr_expect_str_eq(conf->listen[2].unix_path, "/run/x.sock");
	cr_expect_eq(conf->listen[2].sock.len, 0u);
	cr_expect_eq(conf_set(conf, "listen.4.port", "1", &problems), -EINVAL);
	cr_assert_eq(problems.count, 1u);
	cr_expect_str_eq(problems.list[0].text,
	    "-o listen.4.port=1: listen.4.port: there are 3 entries, so the next one is listen.3");
	conf_problems_free(&problems);
	conf_free(conf);
}

Test(conf, set_takes_lists_with_and_without_brackets)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_set(conf, "listen.0.protocols", "[ socks4 , http ]", &problems), 0);
	cr_expect_eq(conf->listen[0].protocols, (uint32_t)(CONF_PROTO_SOCKS4 | CONF_PROTO_HTTP));
	cr_expect_eq(conf_set(conf, "resolver.servers", "[::1]", &problems), 0);
	cr_expect_eq(conf->resolver.server_count, 1u);
	cr_expect_eq(conf_set(conf, "resolver.servers", "[::1]:5,[::2]:6", &problems), 0);
	cr_expect_eq(conf->resolver.server_count, 2u);
	cr_expect_eq(conf_set(conf, "resolver.servers", "[]", &problems), 0);
	cr_expect_eq(conf->resolver.server_count, 0u);
	cr_expect_eq(problems.count, 0u);
	cr_expect_eq(conf_set(conf, "listen.0.protocols", "", &problems), -EINVAL);
	conf_problems_free(&problems);
	conf_free(conf);
}

Test(conf, set_explains_a_wrong_path)
{
	static const struct {
		const char	*path, *value, *told;
	} cases[] = {
		{ "listen.0.prot", "1", "-o listen.0.prot=1: listen.0.prot: unknown key "
		    "(nearest known key: listen[].port)" },
		{ "idle_timeout_s", "1", "-o idle_timeout_s=1: idle_timeout_s: unknown key "
		    "(nearest known key: limits.idle_timeout_s)" },
		{ "limits", "1", "-o limits=1: limits: is a section; set one of its keys, "
		    "like limits.max_sessions" },
		{ "listen", "1", "-o listen=1: listen: is a list of entries; set one key of one "
		    "entry, like listen.0.addr" },
		{ "listen.0", "1", "-o listen.0=1: listen.0: is a section; set one of its keys, "
		    "like listen.0.addr" },
		{ "listen[].port", "1", "-o listen[].port=1: listen[].port: unknown key "
		    "(nearest known key: listen[].port)" },
		{ "limits.0.header_count", "1", NULL },
		{ "listen.0.0.port", "1", NULL },
		{ "listen.00.port", "1", NULL },
		{ "listen.99999999999999999999.port", "1", NULL },
		{ "listen.-1.port", "1", NULL },
		{ "", "1", NULL },
		{ ".", "1", NULL },
		{ "workers.", "1", NULL },
		{ ".workers", "1", NULL },
		{ "0.workers", "1", NULL },
		{ "a\nb", "c\x1b", NULL },
		{ "workers", "", "-o workers=: workers: \"\" is not a number (a whole number of "
		    "threads from 0 to 1024)" },
	};
	char told[600];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_expect_neq(try_set(cases[i].path, cases[i].value, told), 0, "%s", cases[i].path);
		cr_expect_null(strpbrk(told, "\n\x1b"), "%s", told);
		if (cases[i].told != NULL)
			cr_expect_str_eq(told, cases[i].told);
	}
}

Test(conf, set_survives_very_long_text)
{
	char *path = calloc(1, 100001), told[600];

	memset(path, 'x', 100000);
	cr_expect_neq(try_set(path, "1", told), 0);
	cr_expect_neq(try_set("workers", path, told), 0);
	cr_expect_neq(try_set("listen.0.addr", path, told), 0);
	memset(path, '.', 100000);
	cr_expect_neq(try_set(path, "1", told), 0);
	free(path);
}

Test(conf, what_is_dumped_can_be_set_again)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new(), *again = conf_new();
	char *first, *second, *line, *next;

	conf_set(conf, "listen.1.addr", "unix:/run/x.sock", &problems);
	conf_set(conf, "resolver.servers", "192.0.2.1:54,::1", &problems);
	conf_set(conf, "outbound.bind_ipv4", "192.0.2.7", &problems);
	conf_set(conf, "auth.whitelist", "10.0.0.0/8, ::1", &problems);
	conf_set(conf, "auth.users.0.name", "alice", &problems);
	conf_set(conf, "auth.users.0.pbkdf2", "sha256$1$a$b", &problems);
	conf_set(conf, "acl.rules", "deny user alice,bob port 80,443", &problems);
	conf_set(conf, "acl.rules.1", "allow\tclient 10.0.0.0/8", &problems);
	conf_set(conf, "access_log.path", "-", &problems);
	first = dump(conf);
	/* The dump is YAML except for its paths; as -o values, only quotes and tabs differ. */
	for (line = first; *line != '\0'; line = next) {
		char *colon = strchr(line, ':'), value[256], path[128];
		size_t len = 0;

		next = strchr(line, '\n') + 1;
		for (const char *at = colon + 2; *at != '\n'; at++) {
			if (*at == '\\')
				value[len++] = *++at == 't' ? '\t' : *at;
			else if (*at != '"')
				value[len++] = *at;
		}
		value[len] = '\0';
		snprintf(path, sizeof(path), "%.*s", (int)(colon - line), line);
		conf_set(again, path, value, &problems);
	}
	second = dump(again);
	cr_expect_eq(problems.count, 0u);
	cr_expect_str_eq(first, second);
	free(first);
	free(second);
	conf_free(conf);
	conf_free(again);
}

Test(conf, warnings_name_where_the_key_was_set)
{
	static const struct conf_env poor = { .nofile_hard = 64, .net_admin = false };
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	conf_set(conf, "listen.1.addr", "192.0.2.1", &problems);
	conf_set_from(conf, "FILE:2:3", "limits.max_sessions", "33", &problems);
	conf_set(conf, "outbound.mark", "7", &problems);
	cr_expect_eq(conf_validate_in(conf, &poor, &problems), 0);
	cr_assert_eq(problems.warnings, 4u);
	cr_expect_eq(strncmp(problems.list[0].text, "-o listen.1.addr=192.0.2.1: ", 28), 0);
	cr_expect_eq(strncmp(problems.list[1].text, "-o listen.1.addr=192.0.2.1: ", 28), 0);
	cr_expect_eq(strncmp(problems.list[2].text, "FILE:2:3: limits.max_sessions: 33 ", 33), 0);
	conf_problems_free(&problems);
	conf_set(conf, "limits.max_sessions", "32", &problems);
	conf_set(conf, "outbound.mark", "0", &problems);
	conf_set(conf, "listen.1.addr", "::ffff:127.0.0.1", &problems);
	conf_set(conf, "listen.1.port", "1", &problems);
	cr_expect_eq(conf_validate_in(conf, &poor, &problems), 0);
	cr_expect_eq(problems.warnings, 0u);
	conf_free(conf);
}

static void
load_repeated(const char *unit, size_t bytes, struct conf_problems *problems)
{
	char *text = malloc(bytes);
	struct conf *conf = conf_new();

	for (size_t i = 0; i < bytes; i++)
		text[i] = unit[i % strlen(unit)];
	cr_expect_eq(conf_load_text(conf, "FILE", text, bytes, problems), -EINVAL);
	conf_free(conf);
	free(text);
}

/* Time and memory stay bounded; the test's own time limit would tell. */
Test(conf, hostile_files_end_soon, .timeout = 30)
{
	static const char *const units[] = {
		"[", "{", "- ", "? ", "a: 1\n", "workers: 1\n", "a: &a [*a]\n", "\t", "\"", "|",
		"listen: [1, 2]\n", "a:\n - b\n", "--- 1\n", "%TAG ! x\n", "x", "{a: [", "!t ",
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		struct conf_problems problems = { .count = 0 };

		load_repeated(units[i], 1 << 18, &problems);
		cr_expect_leq(problems.count, (size_t)CONF_PROBLEMS_MAX);
		conf_problems_free(&problems);
	}
}

Test(conf, long_lists_end_soon, .timeout = 30)
{
	enum { BYTES = 1 << 20 };
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char *text = malloc(BYTES);

	memset(text, '1', BYTES);
	memcpy(text, "listen: [", 9);
	for (size_t i = 10; i < BYTES; i += 2)
		text[i] = ',';
	cr_expect_eq(conf_load_text(conf, "FILE", text, BYTES, &problems), -EINVAL);
	memcpy(text, "resolver: {servers: [", 21);
	cr_expect_eq(conf_load_text(conf, "FILE", text, BYTES, &problems), -EINVAL);
	conf_problems_free(&problems);
	conf_free(conf);
	free(text);
}

Test(conf, too_large_a_file_is_refused)
{
	struct conf_problems problems = { .count = 0 };

	load_repeated("#\n", (4 << 20) + 1, &problems);
	cr_assert_eq(problems.count, 1u);
	cr_expect_str_eq(problems.list[0].text, "FILE: the file is too large (at most 4 MiB)");
	conf_problems_free(&problems);
}

Test(conf, files_that_cannot_be_read_are_told)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_load_file(conf, "/nonexistent/x.yaml", &problems), -EINVAL);
	cr_expect_eq(conf_load_file(conf, "/", &problems), -EINVAL);
	cr_expect_eq(conf_load_file(conf, "/dev/zero", &problems), -EINVAL);
	cr_assert_eq(problems.count, 3u);
	cr_expect_str_eq(problems.list[0].text,
	    "/nonexistent/x.yaml: cannot be read: No such file or directory");
	cr_expect_str_eq(problems.list[1].text, "/: cannot be read: Is a directory");
	conf_problems_free(&problems);
	conf_free(conf);
}

Test(conf, problems_beyond_the_limit_are_counted)
{
	struct conf_problems problems = { .count = 0 };
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	for (int i = 0; i < CONF_PROBLEMS_MAX + 5; i++)
		conf_problems_add(&problems, CONF_ERROR, "w", "k", "%d", i);
	conf_problems_print(&problems, out);
	fclose(out);
	cr_expect_eq(problems.errors, (size_t)CONF_PROBLEMS_MAX + 5);
	cr_expect_not_null(strstr(text, "w: k: 199\n... and 5 more\n"));
	free(text);
	conf_problems_free(&problems);
}

static void
expect_where(const struct conf *conf, const char *path, const char *want)
{
	char where[64];

	cr_expect_eq(conf_where(conf, path, where, sizeof(where)), want[0] != '\0', "%s", path);
	cr_expect_str_eq(where, want, "%s: %s", path, where);
}

Test(conf, places_of_entries_are_known)
{
	static const char text[] =
	    "auth:\n"
	    "  whitelist:\n"
	    "    - 10.0.0.0/8\n"
	    "    - ::1\n"
	    "  users:\n"
	    "    - name: alice\n"
	    "      pbkdf2: x\n"
	    "acl: {rules: [deny host a, default deny]}\n";
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_load_text(conf, "F", text, sizeof(text) - 1, &problems), 0);
	expect_where(conf, "auth.whitelist.1", "F:4:7");
	expect_where(conf, "auth.whitelist.7", "F:3:5");
	expect_where(conf, "auth.users.0.pbkdf2", "F:7:15");
	expect_where(conf, "auth.users.0", "F:6:7");
	expect_where(conf, "acl.rules.1", "F:8:28");
	expect_where(conf, "acl.file", "");
	expect_where(conf, "workers", "");
	conf_set(conf, "auth.whitelist.0", "192.0.2.1", &problems);
	conf_set(conf, "acl.rules", "allow host b,c", &problems);
	expect_where(conf, "auth.whitelist.0", "-o auth.whitelist.0=192.0.2.1");
	expect_where(conf, "auth.whitelist.1", "F:4:7");
	/* The file's second rule is gone, and so is its place. */
	cr_expect_eq(conf->acl.rule_count, 1u);
	expect_where(conf, "acl.rules.0", "-o acl.rules=allow host b,c");
	expect_where(conf, "acl.rules.1", "-o acl.rules=allow host b,c");
	cr_expect_str_eq(conf->auth.whitelist[0], "192.0.2.1");
	cr_expect_eq(problems.count, 0u);
	conf_free(conf);
}

Test(conf, rules_keep_their_commas)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_set(conf, "acl.rules.0", "deny user alice,bob", &problems), 0);
	cr_expect_eq(conf_set(conf, "acl.rules.1", "[x, y]", &problems), 0);
	cr_assert_eq(conf->acl.rule_count, 2u);
	cr_expect_str_eq(conf->acl.rules[0], "deny user alice,bob");
	cr_expect_str_eq(conf->acl.rules[1], "[x, y]");
	cr_expect_eq(conf_set(conf, "acl.rules", "default deny", &problems), 0);
	cr_assert_eq(conf->acl.rule_count, 1u);
	cr_expect_eq(conf_set(conf, "acl.rules", "", &problems), 0);
	cr_expect_eq(conf->acl.rule_count, 0u);
	cr_expect_eq(problems.count, 0u);
	cr_expect_eq(conf_set(conf, "acl.rules.1", "x", &problems), -EINVAL);
	cr_expect_eq(conf_set(conf, "acl.rules.0", "", &problems), -EINVAL);
	cr_expect_eq(conf_set(conf, "acl.rules.0", "a\nb", &problems), -EINVAL);
	cr_expect_eq(conf_set(conf, "acl.rules.0", "\xff", &problems), -EINVAL);
	cr_expect_eq(conf_set(conf, "acl.rules.0", "a\xe2\x80\xa8" "b", &problems), -EINVAL);
	cr_expect_eq(conf->acl.rule_count, 0u);
	conf_problems_free(&problems);
	conf_free(conf);
}

Test(conf, an_incomplete_entry_names_the_option_that_made_it)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();

	cr_expect_eq(conf_set(conf, "auth.users.0.name", "alice", &problems), 0);
	cr_expect_eq(conf_validate_in(conf, &roomy, &problems), -EINVAL);
	cr_assert_eq(problems.count, 1u);
	cr_expect_eq(strncmp(problems.list[0].text, "-o auth.users.0.name=alice: "
	    "auth.users.0.pbkdf2: this key is missing", 66), 0, "%s", problems.list[0].text);
	conf_problems_free(&problems);
	conf_free(conf);
}

Test(conf, password_records_are_in_no_message)
{
	static const char path[] = "auth.users.0.pbkdf2";
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char record[400], where[512];

	memset(record, 'Z', sizeof(record));
	record[sizeof(record) - 1] = '\0';
	cr_expect_eq(conf_set(conf, path, record, &problems), -EINVAL);
	cr_assert_eq(problems.count, 1u);
	cr_expect_null(strstr(problems.list[0].text, "ZZ"), "%s", problems.list[0].text);
	record[20] = '\0';
	cr_expect_eq(conf_set(conf, path, record, &problems), 0);
	conf_where(conf, path, where, sizeof(where));
	cr_expect_str_eq(where, "-o auth.users.0.pbkdf2=...");
	conf_problems_free(&problems);
	conf_free(conf);
}

Test(conf, reload_knows_what_needs_a_restart)
{
	static const char *const changes[][2] = {
		{ "workers", "3" }, { "pin_workers", "true" }, { "backend", "epoll" },
		{ "user", "nobody" }, { "group", "nogroup" }, { "pid_file", "/run/x.pid" },
		{ "limits.tcp_pool_blocks", "64" },
	};
	enum { CHANGES = sizeof(changes) / sizeof(changes[0]) };
	struct conf_problems problems = { .count = 0 };
	struct conf *running = conf_new(), *loaded = conf_new();
	const char *paths[CHANGES];

	conf_set(loaded, "log_level", "debug", &problems);
	conf_set(loaded, "listen.0.port", "99", &problems);
	conf_set(loaded, "acl.rules", "default deny", &problems);
	cr_expect_eq(conf_restart_differences(running, loaded, paths, CHANGES), 0u);
	for (size_t i = 0; i < CHANGES; i++)
		conf_set(loaded, changes[i][0], changes[i][1], &problems);
	cr_expect_eq(problems.count, 0u);
	cr_assert_eq(conf_restart_differences(running, loaded, paths, CHANGES), (size_t)CHANGES);
	for (size_t i = 0; i < CHANGES; i++)
		cr_expect_str_eq(paths[i], changes[i][0]);
	cr_expect_eq(conf_restart_differences(running, loaded, paths, 2), (size_t)CHANGES);
	cr_expect_eq(conf_keep_restart(loaded, running), 0);
	cr_expect_eq(conf_restart_differences(running, loaded, paths, CHANGES), 0u);
	cr_expect_eq(loaded->log_level, LOG_DEBUG);
	cr_expect_eq(loaded->listen[0].port, 99);
	conf_free(running);	/* nothing is shared */
	cr_expect_str_eq(loaded->pid_file, "");
	conf_free(loaded);
}

/* Each entry's place is remembered and found: nothing may take the square of their number. */
Test(conf, long_whitelists_load_soon, .timeout = 30)
{
	enum { ENTRIES = 60000 };
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char *text = NULL, path[64], where[64];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	fputs("auth:\n  whitelist:\n", out);
	for (int i = 0; i < ENTRIES; i++)
		fprintf(out, "    - 10.%d.%d.0/24\n", i / 256, i % 256);
	fclose(out);
	cr_expect_eq(conf_load_text(conf, "F", text, size, &problems), 0);
	cr_assert_eq(conf->auth.whitelist_count, (size_t)ENTRIES);
	for (int i = 0; i < ENTRIES; i++) {
		snprintf(path, sizeof(path), "auth.whitelist.%d", i);
		cr_assert(conf_where(conf, path, where, sizeof(where)));
	}
	cr_expect_str_eq(where, "F:60002:7");
	free(text);
	conf_free(conf);
}

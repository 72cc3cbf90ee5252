/* SPDX-License-Identifier: ISC */
/*
 * conf_write() and conf_write_sample(), and the files in etc/.  The sample is
 * checked in: RW_GOLDEN_UPDATE=1 writes it anew.
 */
#include <criterion/criterion.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"
#include "conf/schema.h"

static const struct conf_env env = { .nofile_hard = 65536, .net_admin = false };

static const char *
source_path(char path[512], const char *name)
{
	const char *dir = getenv("RW_SRCDIR");

	snprintf(path, 512, "%s/%s", dir != NULL ? dir : ".", name);
	return path;
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

static char *
written(const struct conf *conf)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	cr_expect_eq(conf_write(conf, out), 0);
	fclose(out);
	return text;
}

static char *
sample(void)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	cr_expect_eq(conf_write_sample(out), 0);
	fclose(out);
	return text;
}

/* What is written loads without a word, to the same values, and is then written the same. */
static void
expect_round_trip(const struct conf *conf, const char *about)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *again = conf_new();
	char *text = written(conf), *text_again, *want = dump(conf), *got;

	conf_load_text(again, "WRITTEN", text, strlen(text), &problems);
	cr_expect_eq(problems.count, 0u, "%s: %s\n%s", about,
	    problems.count != 0 ? problems.list[0].text : "", text);
	got = dump(again);
	cr_expect_str_eq(got, want, "%s\n-- want:\n%s-- got:\n%s-- file:\n%s", about, want, got,
	    text);
	text_again = written(again);
	cr_expect_str_eq(text_again, text, "%s", about);
	free(text);
	free(text_again);
	free(want);
	free(got);
	conf_problems_free(&problems);
	conf_free(again);
}

Test(conf_write, defaults_are_an_empty_file)
{
	struct conf *conf = conf_new();
	char *text = written(conf);

	cr_expect_str_eq(text, "");
	free(text);
	conf_free(conf);
}

Test(conf_write, only_what_differs)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char *text;

	conf_set(conf, "listen.1.port", "99", &problems);
	conf_set(conf, "limits.idle_timeout_s", "7", &problems);
	conf_set(conf, "auth.users.0.name", "off", &problems);
	conf_set(conf, "auth.users.0.pbkdf2", "x:", &problems);
	conf_set(conf, "auth.whitelist", "::1,10.0.0.0/8", &problems);
	conf_set(conf, "acl.rules.0", "deny \"x\" \\ # y", &problems);
	conf_set(conf, "access_log.path", "-", &problems);
	cr_expect_eq(problems.count, 0u);
	text = written(conf);
	cr_expect_str_eq(text,
	    "listen:\n"
	    "  - addr: 127.0.0.1\n"
	    "  - addr: \"::1\"\n"
	    "    port: 99\n"
	    "auth:\n"
	    "  whitelist:\n"
	    "    - \"::1\"\n"
	    "    - 10.0.0.0/8\n"
	    "  users:\n"
	    "    - name: \"off\"\n"
	    "      pbkdf2: \"x:\"\n"
	    "limits:\n"
	    "  idle_timeout_s: 7\n"
	    "acl:\n"
	    "  rules:\n"
	    "    - \"deny \\\"x\\\" \\\\ # y\"\n"
	    "access_log:\n"
	    "  path: \"-\"\n", "%s", text);
	expect_round_trip(conf, "by hand");
	free(text);
	conf_free(conf);
}

Test(conf_write, every_good_file_survives)
{
	struct conf_problems problems = { .count = 0 };
	char pattern[512], yaml[512];
	glob_t found;

	cr_assert_eq(glob(source_path(pattern, "test/conf/*.ok"), 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct conf *conf = conf_new();

		snprintf(yaml, sizeof(yaml), "%.*s.yaml", (int)strlen(found.gl_pathv[i]) - 3,
		    found.gl_pathv[i]);
		cr_expect_eq(conf_load_file(conf, yaml, &problems), 0, "%s", yaml);
		cr_expect_eq(conf_validate_in(conf, &env, &problems), 0, "%s", yaml);
		expect_round_trip(conf, yaml);
		conf_free(conf);
	}
	conf_problems_free(&problems);
	globfree(&found);
}

/* Whatever the words and texts look like to YAML. */
Test(conf_write, texts_of_all_kinds_survive)
{
	static const char *const texts[] = {
		"-", "---", "...", "~", "null", "NULL", "true", "No", "off", "y", "123", "0x10", "1:30",
		"a:", "a: b", ":", "::", "#", "a #b", " a ", "a ", "'", "\"", "\\", "\\n", "[", "]", "{}",
		"*a", "&a", "!a", "|", ">", "%", "@", "`", "?", "? a", "- a", ",", "a,b", "=", "<<",
		"\xc3\xa4", "\xf0\x9f\x98\x80", "\xc2\xa0", "/etc/x",
	};
	struct conf_problems problems = { .count = 0 };
	char path[64];
	struct conf *conf = conf_new();

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		snprintf(path, sizeof(path), "acl.rules.%zu", i);
		conf_set(conf, path, texts[i], &problems);
		snprintf(path, sizeof(path), "auth.whitelist.%zu", i);
		conf_set(conf, path, texts[i], &problems);
		snprintf(path, sizeof(path), "auth.users.%zu.name", i);
		conf_set(conf, path, texts[i], &problems);
		snprintf(path, sizeof(path), "auth.users.%zu.pbkdf2", i);
		conf_set(conf, path, texts[i], &problems);
		conf_set(conf, "auth.realm", texts[i], &problems);
		cr_expect_eq(problems.count, 0u, "%s", texts[i]);
		expect_round_trip(conf, texts[i]);
	}
	conf_free(conf);
}

Test(conf_write, the_sample_is_checked_in)
{
	char path[512], *want = sample(), *got = calloc(1, 1 << 18);
	FILE *file;

	source_path(path, "etc/ringway.full.yaml");
	if (getenv("RW_GOLDEN_UPDATE") != NULL) {
		file = fopen(path, "w");
		cr_assert_not_null(file, "%s", path);
		fputs(want, file);
		fclose(file);
	}
	file = fopen(path, "r");
	cr_assert_not_null(file, "%s", path);
	cr_expect_gt(fread(got, 1, (1 << 18) - 1, file), 0u);
	fclose(file);
	cr_expect_str_eq(got, want, "%s is out of date (RW_GOLDEN_UPDATE=1 writes it anew)", path);
	free(got);
	free(want);
}

/* Both files in etc/: good, without warnings, and nothing but the defaults. */
Test(conf_write, files_in_etc_are_the_defaults)
{
	static const char *const names[] = { "etc/ringway.full.yaml", "etc/ringway.yaml" };
	struct conf_problems problems = { .count = 0 };
	struct conf *defaults = conf_new();
	char path[512], *want, *got;

	conf_validate_in(defaults, &env, &problems);
	want = dump(defaults);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct conf *conf = conf_new();

		conf_load_file(conf, source_path(path, names[i]), &problems);
		conf_validate_in(conf, &env, &problems);
		cr_expect_eq(problems.count, 0u, "%s",
		    problems.count != 0 ? problems.list[0].text : "");
		got = dump(conf);
		cr_expect_str_eq(got, want, "%s", names[i]);
		free(got);
		conf_free(conf);
	}
	free(want);
	conf_problems_free(&problems);
	conf_free(defaults);
}

/* In its order, with what it is for. */
Test(conf_write, the_sample_has_every_key)
{
	char *text = sample(), *at = text, key[128], *joined;
	size_t length = strlen(text);

	/* Comments are broken into lines; help is looked for without regard to that. */
	joined = calloc(1, length + 1);
	for (size_t i = 0, used = 0; i < length; i++) {
		bool blank = strchr(" \n#", text[i]) != NULL;

		if (!blank || (used != 0 && joined[used - 1] != ' '))
			joined[used++] = blank ? ' ' : text[i];
	}
	for (size_t i = 0; i < conf_schema_count; i++) {
		const char *leaf = strrchr(conf_schema[i].path, '.');
		char *found;

		snprintf(key, sizeof(key), " %s:", leaf != NULL ? leaf + 1 : conf_schema[i].path);
		if (leaf == NULL)
			key[0] = '\n';
		found = strstr(at, key);
		cr_expect_not_null(found, "%s is missing or in the wrong place", conf_schema[i].path);
		if (found != NULL)
			at = found + 1;
		cr_expect_not_null(strstr(joined, conf_schema[i].help + 1), "%s: %s",
		    conf_schema[i].path, conf_schema[i].help);
	}
	free(joined);
	free(text);
}

/* An entry of a list that is empty is shown as a comment, which must be right as well. */
Test(conf_write, the_sample_of_an_entry_is_good)
{
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char *text = sample(), *users = strstr(text, "users: []"), *end;

	cr_assert_not_null(users);
	memcpy(users + strlen("users: "), "  ", 2);
	end = strstr(users, "users_file");
	for (char *at = users; at != NULL && at < end; at = strchr(at, '\n')) {
		if (*at == '\n')
			at++;
		if (*at == '#')
			*at = ' ';
	}
	/* As it is there, the name has to be filled in. */
	for (char *at = strstr(users, "\"\""); at != NULL && at < end; at = strstr(at, "\"\""))
		memcpy(at, "xy", 2);
	conf_load_text(conf, "SAMPLE", text, strlen(text), &problems);
	cr_expect_eq(problems.count, 0u, "%s\n%s", problems.count != 0 ? problems.list[0].text : "",
	    text);
	cr_expect_eq(conf->auth.user_count, 1u);
	conf_problems_free(&problems);
	conf_free(conf);
	free(text);
}

/* SPDX-License-Identifier: ISC */
/*
 * Each test/conf/NAME.yaml is loaded and checked.  NAME.ok holds the warnings
 * and what the file changes in conf_dump()'s output; NAME.err all problems, the
 * file's name left out.  After a change that is meant, RW_GOLDEN_UPDATE=1 writes
 * them anew: read the difference before committing it.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conf/conf.h"

enum { CASES_MAX = 400 };

struct golden {
	char	name[128];	/* without ".yaml" */
};

static const char *
source_dir(void)
{
	const char *dir = getenv("RW_SRCDIR");

	return dir != NULL ? dir : ".";
}

static void
golden_path(char path[512], const char *name, const char *suffix)
{
	snprintf(path, 512, "%s/test/conf/%s%s", source_dir(), name, suffix);
}

/* The whole file with a NUL behind it, or NULL. */
static char *
read_all(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	char *text = NULL;
	size_t size = 0;
	FILE *copy;
	int c;

	if (file == NULL)
		return NULL;
	copy = open_memstream(&text, &size);
	while ((c = fgetc(file)) != EOF)
		fputc(c, copy);
	fclose(copy);
	fclose(file);
	if (bytes != NULL)
		*bytes = size;
	return text;
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

/* Lines of `text` that `base` does not have. */
static void
put_new_lines(const char *text, const char *base, FILE *out)
{
	while (*text != '\0') {
		size_t len = strcspn(text, "\n") + 1;
		char *line = strndup(text, len);

		if (strstr(base, line) == NULL)
			fputs(line, out);
		free(line);
		text += len;
	}
}

/* What the .ok or .err file should hold. */
static char *
outcome(const char *yaml, size_t bytes, bool *good)
{
	struct conf_problems problems = { .count = 0 };
	const struct conf_env env = { .nofile_hard = 65536, .net_admin = false };
	struct conf *conf = conf_new(), *defaults = conf_new();
	char *text = NULL, *mine, *base;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	conf_load_text(conf, "FILE", yaml, bytes, &problems);
	conf_validate_in(conf, &env, &problems);
	*good = problems.errors == 0;
	for (size_t i = 0; i < problems.count; i++) {
		const char *line = problems.list[i].text;

		cr_assert_eq(strncmp(line, "FILE:", 5), 0, "no place in: %s", line);
		fprintf(out, "%s%s\n", problems.list[i].severity == CONF_WARNING ?
		    "warning: " : "", line + 5);
	}
	mine = dump(conf);
	base = dump(defaults);
	if (*good)
		put_new_lines(mine, base, out);
	fclose(out);
	free(mine);
	free(base);
	conf_problems_free(&problems);
	conf_free(conf);
	conf_free(defaults);
	return text;
}

ParameterizedTestParameters(conf_golden, file)
{
	static struct golden cases[CASES_MAX];
	size_t count = 0;
	char pattern[512];
	glob_t found;

	golden_path(pattern, "*", ".yaml");
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (; count < found.gl_pathc && count < CASES_MAX; count++) {
			const char *name = strrchr(found.gl_pathv[count], '/') + 1;

			snprintf(cases[count].name, sizeof(cases[count].name), "%.*s",
			    (int)(strlen(name) - strlen(".yaml")), name);
		}
		globfree(&found);
	}
	return cr_make_param_array(struct golden, cases, count);
}

ParameterizedTest(struct golden *golden, conf_golden, file)
{
	char *yaml, *got, *want = NULL;
	char path[512];
	size_t bytes;
	bool good;

	golden_path(path, golden->name, ".yaml");
	yaml = read_all(path, &bytes);
	cr_assert_not_null(yaml, "%s", path);
	got = outcome(yaml, bytes, &good);
	golden_path(path, golden->name, good ? ".ok" : ".err");
	if (getenv("RW_GOLDEN_UPDATE") != NULL) {
		FILE *out = fopen(path, "w");

		cr_assert_not_null(out, "%s", path);
		fputs(got, out);
		fclose(out);
	}
	want = read_all(path, NULL);
	cr_assert_not_null(want, "%s.yaml is %s, but there is no %s", golden->name,
	    good ? "accepted" : "refused", path);
	cr_expect_str_eq(got, want, "%s.yaml\n-- want:\n%s-- got:\n%s", golden->name, want, got);
	golden_path(path, golden->name, good ? ".err" : ".ok");
	cr_expect_neq(access(path, F_OK), 0, "%s.yaml has both an .ok and an .err file",
	    golden->name);
	free(yaml);
	free(got);
	free(want);
}

Test(conf_golden, there_are_enough_cases)
{
	char pattern[512];
	glob_t found;

	golden_path(pattern, "*", ".err");
	cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
	cr_expect_geq(found.gl_pathc, 120u);
	globfree(&found);
	golden_path(pattern, "*", ".ok");
	cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
	cr_expect_geq(found.gl_pathc, 40u);
	globfree(&found);
}

Test(conf_golden, defaults)
{
	struct conf *conf = conf_new();
	char path[512], *got = dump(conf), *want;

	golden_path(path, "defaults", ".dump");
	if (getenv("RW_GOLDEN_UPDATE") != NULL) {
		FILE *out = fopen(path, "w");

		fputs(got, out);
		fclose(out);
	}
	want = read_all(path, NULL);
	cr_assert_not_null(want, "%s", path);
	cr_expect_str_eq(got, want, "-- want:\n%s-- got:\n%s", want, got);
	free(got);
	free(want);
	conf_free(conf);
}

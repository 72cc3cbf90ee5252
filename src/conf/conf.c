/* SPDX-License-Identifier: ISC */
#include "conf/conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conf/field.h"
#include "conf/schema.h"
#include "conf/store.h"
#include "conf/values.h"
#include "util/str.h"

/* "0.addr=127.0.0.1 1.addr=::1": the records that a list has without a file. */
static bool
set_initial_records(struct conf *conf, const struct conf_row *list)
{
	struct conf_problems problems = { .count = 0 };
	char path[CONF_PATH_MAX], value[CONF_PATH_MAX];
	const char *at = list->initial;
	bool ok = true;
	size_t len;

	while (ok && *at != '\0') {
		len = strcspn(at, "=");
		snprintf(path, sizeof(path), "%s.%.*s", list->path, (int)len, at);
		at += len + 1;
		len = strcspn(at, " ");
		snprintf(value, sizeof(value), "%.*s", (int)len, at);
		at += len + (at[len] != '\0');
		/* No origin: it is a default. */
		ok = conf_set_from(conf, NULL, path, value, &problems) == 0;
	}
	conf_problems_free(&problems);
	return ok;
}

struct conf *
conf_new(void)
{
	struct conf *conf = calloc(1, sizeof(*conf));
	char why[CONF_WHY_MAX];
	bool ok = conf != NULL;

	for (size_t i = 0; ok && i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type == CONF_RECORDS)
			ok = set_initial_records(conf, row);
		else if (conf_schema_list_of(row) == NULL)
			ok = conf_value_from_text(row, conf, span_str(row->initial), why);
	}
	if (ok)
		return conf;
	conf_free(conf);
	return NULL;
}

void
conf_free(struct conf *conf)
{
	if (conf == NULL)
		return;
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type == CONF_RECORDS)
			conf_records_clear(row, conf);
		else if (conf_schema_list_of(row) == NULL)
			conf_value_free(row, conf);
	}
	conf_origins_free(conf);
	free(conf);
}

int
conf_set(struct conf *conf, const char *path, const char *value, struct conf_problems *problems)
{
	size_t len = strlen(path) + strlen(value) + sizeof("-o =..."), index;
	char *where = malloc(len), pattern[CONF_PATH_MAX];
	const struct conf_row *row = NULL;
	int rc;

	if (conf_schema_pattern(path, pattern, &index))
		row = conf_schema_find(pattern);
	/* Messages end up in logs. */
	if (where != NULL)
		snprintf(where, len, "-o %s=%s", path, row != NULL && row->secret ? "..." : value);
	rc = conf_set_from(conf, where != NULL ? where : "-o", path, value, problems);
	free(where);
	return rc;
}

/* The row of the list of texts that "acl.rules[]" is an entry of, or NULL. */
static const struct conf_row *
find_texts(const char *pattern)
{
	size_t len = strlen(pattern);
	char path[CONF_PATH_MAX];
	const struct conf_row *row;

	if (len < 2 || strcmp(pattern + len - 2, "[]") != 0)
		return NULL;
	snprintf(path, sizeof(path), "%.*s", (int)len - 2, pattern);
	row = conf_schema_find(path);
	return row != NULL && conf_type_is_texts(row->type) ? row : NULL;
}

/*
 * The row that `path` means, or NULL after saying why there is none.  With an
 * *index, it is an entry of that list.
 */
static const struct conf_row *
find_key(const char *where, const char *path, size_t *index, struct conf_problems *problems)
{
	char pattern[CONF_PATH_MAX], hint[CONF_HINT_MAX], quoted[STR_QUOTED_MAX];
	const struct conf_row *row = NULL;
	bool readable = conf_schema_pattern(path, pattern, index);
	const char *key = str_quote(span_str(path), quoted);

	if (readable && *index != SIZE_MAX && (row = find_texts(pattern)) != NULL)
		return row;
	if (readable)
		row = conf_schema_find(pattern);
	if (row != NULL && row->type == CONF_RECORDS) {
		conf_problems_add(problems, CONF_ERROR, where, row->path,
		    "is a list of entries; set one key of one entry, like %s.0.%s", row->path,
		    row[1].path + strlen(row->path) + 3);
		return NULL;
	}
	if (row != NULL && conf_schema_list_of(row) != NULL && *index == SIZE_MAX)
		row = NULL;	/* somebody wrote "listen[].port" */
	if (row != NULL)
		return row;
	if (readable && conf_schema_section(pattern) != NULL) {
		conf_problems_add(problems, CONF_ERROR, where, path,
		    "is a section; set one of its keys, like %s.%s", path,
		    conf_schema_section(pattern)->path + strlen(pattern) + 1);
		return NULL;
	}
	conf_schema_hint(readable ? pattern : path, hint);
	conf_problems_add(problems, CONF_ERROR, where, strpbrk(path, " \t\"\\") == NULL ? path : key,
	    "unknown key%s%s%s", hint[0] != '\0' ? " (" : "", hint, hint[0] != '\0' ? ")" : "");
	return NULL;
}

/* The last record of the list was added there: for what is missing in it. */
static bool
note_record(struct conf *conf, const struct conf_row *list, const char *where)
{
	char path[CONF_PATH_MAX];

	snprintf(path, sizeof(path), "%s.%zu", list->path, conf_records_count(list, conf) - 1);
	return where == NULL || conf_origin_note(conf, path, where);
}

/* The record `index`, a new one when it is the next. */
static void *
record_for(struct conf *conf, const struct conf_row *list, size_t index, const char *where,
    const char *path, struct conf_problems *problems)
{
	size_t count = conf_records_count(list, conf);
	void *record = NULL;

	if (index < count)
		return conf_record_at(list, conf, index);
	if (index > count)
		conf_problems_add(problems, CONF_ERROR, where, path,
		    "there are %zu entries, so the next one is %s.%zu", count, list->path, count);
	else if (count >= list->max)
		conf_problems_add(problems, CONF_ERROR, where, path,
		    "there are %zu entries already, and no more are allowed", count);
	else if ((record = conf_record_append(list, conf)) == NULL || !note_record(conf, list, where))
		conf_problems_add(problems, CONF_ERROR, where, path, "out of memory");
	return record;
}

static bool
set_value(const struct conf_row *row, void *base, size_t index, struct span text,
    char why[CONF_WHY_MAX])
{
	size_t count;

	if (!conf_type_is_texts(row->type) || index == SIZE_MAX)
		return conf_value_from_text(row, base, text, why);
	count = conf_field_count(row, base);
	if (index > count) {
		snprintf(why, CONF_WHY_MAX, "there are %zu entries, so the next one is %s.%zu",
		    count, row->path, count);
		return false;
	}
	return conf_value_put(row, base, index, (struct conf_text){ text, true }, why);
}

int
conf_set_from(struct conf *conf, const char *where, const char *path, const char *value,
    struct conf_problems *problems)
{
	const struct conf_row *row, *list;
	char why[CONF_WHY_MAX];
	void *base = conf;
	size_t index;

	row = find_key(where, path, &index, problems);
	if (row == NULL)
		return -EINVAL;
	list = conf_schema_list_of(row);
	if (list != NULL) {
		base = record_for(conf, list, index, where, path, problems);
		index = SIZE_MAX;
	}
	if (base == NULL)
		return -EINVAL;
	if (where != NULL && index == SIZE_MAX && conf_type_is_texts(row->type))
		conf_origins_drop_below(conf, path);
	if (where != NULL && !conf_origin_note(conf, path, where)) {
		conf_problems_add(problems, CONF_ERROR, where, path, "out of memory");
		return -EINVAL;
	}
	if (!set_value(row, base, index, span_str(value), why)) {
		conf_problems_add(problems, CONF_ERROR, where, path, "%s", why);
		conf_origin_mark_bad(conf, path);
		return -EINVAL;
	}
	return 0;
}

static void
dump_records(const struct conf *conf, const struct conf_row *list, FILE *out)
{
	size_t count = conf_records_count(list, conf);

	if (count == 0)
		fprintf(out, "%s: []\n", list->path);
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < conf_schema_count; j++) {
			const struct conf_row *row = &conf_schema[j];

			if (!conf_schema_is_item(list, row))
				continue;
			fprintf(out, "%s.%zu.%s: ", list->path, i,
			    row->path + strlen(list->path) + 3);
			conf_value_print(row, conf_record_at_const(list, conf, i), out);
			fputc('\n', out);
		}
	}
}

/* Each as `-o` takes it: a line may hold commas. */
static void
dump_lines(const struct conf *conf, const struct conf_row *row, FILE *out)
{
	for (size_t i = 0; i < conf_field_count(row, conf); i++) {
		fprintf(out, "%s.%zu: ", row->path, i);
		conf_text_print(conf_field_text(row, conf, i), out);
		fputc('\n', out);
	}
}

void
conf_dump(const struct conf *conf, FILE *out)
{
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type == CONF_RECORDS) {
			dump_records(conf, row, out);
		} else if (row->type == CONF_LINES && conf_field_count(row, conf) != 0) {
			dump_lines(conf, row, out);
		} else if (conf_schema_list_of(row) == NULL) {
			fprintf(out, "%s: ", row->path);
			conf_value_print(row, conf, out);
			fputc('\n', out);
		}
	}
}

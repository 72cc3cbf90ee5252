/* SPDX-License-Identifier: ISC */
/*
 * A configuration as YAML: conf_write() and conf_write_sample() of conf.h.  A
 * section's name is written in front of the first of its keys that is; the rows
 * of a section follow each other in the schema.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "conf/conf.h"
#include "conf/field.h"
#include "conf/schema.h"
#include "conf/store.h"
#include "conf/values.h"

enum {
	INDENT = 2,
	LINE_BYTES_MAX = 90	/* of comments */
};

struct writer {
	FILE		*out;
	const char	*margin;	/* in front of every line: "" or "#" */
	const char	*section;	/* the path whose section is open; "" = none */
	unsigned	 outer;		/* columns that all of it is indented */
	bool		 dash;		/* the next key is the first of an entry */
};

static void
put_margin(struct writer *w, unsigned level)
{
	unsigned columns = w->outer + level * INDENT;

	fprintf(w->out, "%s%*s%s", w->margin, (int)(columns - (w->dash ? INDENT : 0)), "",
	    w->dash ? "- " : "");
	w->dash = false;
}

/* Bytes of `path` up to and with the dot behind its `level`-th part; 0 for none. */
static size_t
prefix_len(const char *path, unsigned level)
{
	const char *dot = path;

	for (; level > 0 && dot != NULL; level--)
		if ((dot = strchr(dot, '.')) != NULL)
			dot++;
	return dot != NULL ? (size_t)(dot - path) : 0;
}

static unsigned
level_of(const char *path)
{
	unsigned level = 0;

	for (; (path = strchr(path, '.')) != NULL; path++)
		level++;
	return level;
}

/* The names of the sections that `path` is in and the one before was not. */
static void
open_sections(struct writer *w, const char *path)
{
	for (unsigned level = 1; level <= level_of(path); level++) {
		size_t outer = prefix_len(path, level - 1), len = prefix_len(path, level);

		if (strncmp(w->section, path, len) == 0)
			continue;
		put_margin(w, level - 1);
		fprintf(w->out, "%.*s:\n", (int)(len - outer - 1), path + outer);
	}
	w->section = path;
}

/* "key:", without what comes behind it. */
static void
put_key(struct writer *w, const char *path)
{
	unsigned level = level_of(path);

	open_sections(w, path);
	put_margin(w, level);
	fprintf(w->out, "%s:", path + prefix_len(path, level));
}

static void
put_pair(struct writer *w, const struct conf_row *row, const char *path, const void *base)
{
	put_key(w, path);
	if (!conf_type_is_texts(row->type) || conf_field_count(row, base) == 0) {
		fputc(' ', w->out);
		conf_value_print(row, base, w->out);
		fputc('\n', w->out);
		return;
	}
	fputc('\n', w->out);
	for (size_t i = 0; i < conf_field_count(row, base); i++) {
		put_margin(w, level_of(path) + 1);
		fputs("- ", w->out);
		conf_text_print(conf_field_text(row, base, i), w->out);
		fputc('\n', w->out);
	}
}

static const char *
item_path(const struct conf_row *list, const struct conf_row *row)
{
	return row->path + strlen(list->path) + strlen("[].");
}

/* ---- the saved configuration ---- */

/* Its first key, and those that are not as in `initial`. */
static void
write_record(struct writer *w, const struct conf_row *list, const void *record,
    const void *initial)
{
	bool first = true;

	w->dash = true;
	w->section = "";
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (!conf_schema_is_item(list, row))
			continue;
		if (first || !conf_value_equal(row, record, initial))
			put_pair(w, row, item_path(list, row), record);
		first = false;
	}
}

static bool
same_records(const struct conf_row *list, const struct conf *a, const struct conf *b)
{
	size_t count = conf_records_count(list, a);

	if (count != conf_records_count(list, b))
		return false;
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < conf_schema_count; j++)
			if (conf_schema_is_item(list, &conf_schema[j]) &&
			    !conf_value_equal(&conf_schema[j], conf_record_at_const(list, a, i),
			    conf_record_at_const(list, b, i)))
				return false;
	return true;
}

/* `defaults` gets a further record, to compare with. */
static int
write_records(struct writer *w, const struct conf_row *list, const struct conf *conf,
    struct conf *defaults)
{
	size_t count = conf_records_count(list, conf);
	struct writer items = *w;
	const void *initial;

	put_key(w, list->path);
	fputs(count == 0 ? " []\n" : "\n", w->out);
	initial = conf_record_append(list, defaults);
	if (initial == NULL)
		return -ENOMEM;
	items.outer += (level_of(list->path) + 2) * INDENT;
	for (size_t i = 0; i < count; i++)
		write_record(&items, list, conf_record_at_const(list, conf, i), initial);
	return 0;
}

int
conf_write(const struct conf *conf, FILE *out)
{
	struct writer w = { .out = out, .margin = "", .section = "" };
	struct conf *defaults = conf_new();
	int rc = defaults != NULL ? 0 : -ENOMEM;

	for (size_t i = 0; rc == 0 && i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type == CONF_RECORDS) {
			if (!same_records(row, conf, defaults))
				rc = write_records(&w, row, conf, defaults);
		} else if (conf_schema_list_of(row) == NULL && !conf_value_equal(row, conf, defaults)) {
			put_pair(&w, row, row->path, conf);
		}
	}
	conf_free(defaults);
	return rc != 0 ? rc : fflush(out) != 0 || ferror(out) ? -EIO : 0;
}

/* ---- the sample ---- */

static void
put_comment(struct writer *w, unsigned level, const char *text)
{
	size_t column = w->outer + level * INDENT + 2, len, used = 0;

	for (; *text != '\0'; text += len + strspn(text + len, " "), used += len + 1) {
		len = strcspn(text, " ");
		if (used == 0 || column + used + len > LINE_BYTES_MAX) {
			fprintf(w->out, "%s%s%*s#", used != 0 ? "\n" : "", w->margin,
			    (int)column - 2, "");
			used = 0;
		}
		fprintf(w->out, " %.*s", (int)len, text);
	}
	fputc('\n', w->out);
}

/* What the key is for, and what it takes. */
static void
put_help(struct writer *w, const struct conf_row *row, const char *path)
{
	char expect[CONF_WHY_MAX], text[2 * CONF_WHY_MAX];
	unsigned level = level_of(path);

	snprintf(text, sizeof(text), "%s", row->help);
	text[0] = text[0] >= 'a' && text[0] <= 'z' ? (char)(text[0] - 'a' + 'A') : text[0];
	put_comment(w, level, text);
	conf_value_expect(row, expect);
	snprintf(text, sizeof(text), "(%s%s)", expect,
	    row->reload == CONF_RESTART ? "; a change needs a restart" : "");
	put_comment(w, level, text);
}

/* One key of the sample; where a section begins there is an empty line. */
static void
put_sample(struct writer *w, const struct conf_row *row, const char *path, const void *base,
    bool help)
{
	if (help && !w->dash) {
		if (w->margin[0] == '\0' && w->outer == 0)
			fputc('\n', w->out);
		open_sections(w, path);
		put_help(w, row, path);
	}
	if (row->type == CONF_RECORDS)
		put_key(w, path);
	else
		put_pair(w, row, path, base);
}

static void
sample_record(struct writer *w, const struct conf_row *list, const void *record, bool help)
{
	w->section = "";
	w->dash = true;
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (!conf_schema_is_item(list, row))
			continue;
		/* Above the dash: below it the entry has begun. */
		if (help && w->dash) {
			w->dash = false;
			put_help(w, row, item_path(list, row));
			w->dash = true;
		}
		put_sample(w, row, item_path(list, row), record, help);
	}
}

static int
sample_records(struct writer *w, const struct conf_row *list, struct conf *conf)
{
	size_t count = conf_records_count(list, conf);
	struct writer items = *w;

	put_sample(w, list, list->path, conf, true);
	fputs(count == 0 ? " []\n" : "\n", w->out);
	items.outer += (level_of(list->path) + 2) * INDENT;
	for (size_t i = 0; i < count; i++)
		sample_record(&items, list, conf_record_at_const(list, conf, i), i == 0);
	if (count != 0)
		return 0;
	put_comment(w, level_of(list->path), "Entries look like this, in place of the []:");
	if (conf_record_append(list, conf) == NULL)
		return -ENOMEM;
	items.margin = "#";
	sample_record(&items, list, conf_record_at_const(list, conf, 0), true);
	return 0;
}

int
conf_write_sample(FILE *out)
{
	struct writer w = { .out = out, .margin = "", .section = "" };
	struct conf *conf = conf_new();
	int rc = conf != NULL ? 0 : -ENOMEM;

	fputs("# ringway.yaml: every key at its default.  Nothing of this has to be in a\n"
	    "# configuration; ringway.yaml(5) tells more about each.\n", out);
	for (size_t i = 0; rc == 0 && i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->type == CONF_RECORDS)
			rc = sample_records(&w, row, conf);
		else if (conf_schema_list_of(row) == NULL)
			put_sample(&w, row, row->path, conf, true);
	}
	conf_free(conf);
	return rc != 0 ? rc : fflush(out) != 0 || ferror(out) ? -EIO : 0;
}

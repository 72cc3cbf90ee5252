/* SPDX-License-Identifier: ISC */
/*
 * conf_load_file() and conf_load_text() of conf.h: one pass over libyaml's
 * events, straight into the struct conf.  Everything that YAML can do and a
 * configuration does not need (anchors, tags, several documents, keys that are
 * lists) is an error, so that a file means what it looks like.
 */
#include <yaml.h>

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"
#include "conf/field.h"
#include "conf/file.h"
#include "conf/schema.h"
#include "conf/store.h"
#include "conf/values.h"
#include "util/str.h"

enum {
	DEPTH_MAX = 16,			/* the schema needs four */
	WHERE_MAX = 1024,
	KEYS_MAX = 64			/* known keys in one mapping */
};

struct loader {
	yaml_parser_t		 parser;
	yaml_event_t		 event;		/* the current one */
	struct conf		*conf;
	const char		*name;		/* of the file, for messages */
	struct conf_problems	*problems;
	struct span		 text;
	size_t			 bad_byte;	/* the first that is not text, or text.len */
	size_t			 usable_bytes;	/* the lines before that one */
	unsigned		 depth;
	bool			 ended;		/* no event follows: the end, or a fatal error */
};

/* The mapping that is being read. */
struct scope {
	const char	*pattern;	/* "", "limits", "listen[]" */
	const char	*path;		/* "", "limits", "listen.0" */
	void		*base;		/* struct conf or a record */
};

static const char *
where_of(const struct loader *loader, size_t line, size_t column, char where[WHERE_MAX])
{
	snprintf(where, WHERE_MAX, "%s:%zu:%zu", loader->name, line + 1, column + 1);
	return where;
}

static const char *
here(const struct loader *loader, char where[WHERE_MAX])
{
	return where_of(loader, loader->event.start_mark.line, loader->event.start_mark.column,
	    where);
}

#define ERROR_HERE(loader, key, ...) do { \
	char where_buf[WHERE_MAX]; \
	conf_problems_add((loader)->problems, CONF_ERROR, here(loader, where_buf), key, __VA_ARGS__); \
} while (0)

/* Is the indentation of this line made with a tab?  The commonest YAML error of all. */
static bool
tab_indents_line(const struct loader *loader, size_t line)
{
	const char *at = loader->text.base, *end = at + loader->text.len;

	for (; line > 0 && at != NULL; line--) {
		at = memchr(at, '\n', (size_t)(end - at));
		if (at != NULL)
			at++;
	}
	while (at != NULL && at < end && *at == ' ')
		at++;
	return at != NULL && at < end && *at == '\t';
}

static void
report_syntax(struct loader *loader)
{
	const yaml_parser_t *parser = &loader->parser;
	const char *problem = parser->problem != NULL ? parser->problem : "unknown error";
	char where[WHERE_MAX], context[128] = "";

	/* What was cut off is reported by itself; this would only be its echo. */
	if (loader->usable_bytes < loader->text.len && parser->error != YAML_MEMORY_ERROR)
		return;
	if (parser->error == YAML_MEMORY_ERROR)
		problem = "out of memory";
	if (parser->context != NULL)
		snprintf(context, sizeof(context), ", %s that begins in line %zu", parser->context,
		    parser->context_mark.line + 1);
	conf_problems_add(loader->problems, CONF_ERROR, where_of(loader, parser->problem_mark.line,
	    parser->problem_mark.column, where), NULL, "this is not YAML: %s%s%s", problem, context,
	    tab_indents_line(loader, parser->problem_mark.line) ?
	    " (indent with spaces, not with tabs)" : "");
}

/* Moves on to the next event; false when there is none. */
static bool
next(struct loader *loader)
{
	if (loader->ended)
		return false;
	yaml_event_delete(&loader->event);
	if (!yaml_parser_parse(&loader->parser, &loader->event)) {
		report_syntax(loader);
		loader->ended = true;
		return false;
	}
	switch (loader->event.type) {
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		if (++loader->depth <= DEPTH_MAX)
			break;
		ERROR_HERE(loader, NULL, "nested too deeply (at most %d levels)", DEPTH_MAX);
		loader->ended = true;
		break;
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
		loader->depth--;
		break;
	case YAML_STREAM_END_EVENT:
		loader->ended = true;
		break;
	default:
		break;
	}
	return !loader->ended;
}

/* Passes over the current node; after it the current event is its last. */
static void
skip(struct loader *loader)
{
	unsigned outside;

	if (loader->event.type != YAML_MAPPING_START_EVENT &&
	    loader->event.type != YAML_SEQUENCE_START_EVENT)
		return;
	outside = loader->depth - 1;
	while (next(loader) && loader->depth > outside)
		continue;
}

static struct span
scalar_text(const struct loader *loader)
{
	return span_of(loader->event.data.scalar.value, loader->event.data.scalar.length);
}

static bool
is_quoted(const struct loader *loader)
{
	return loader->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

/* YAML 1.1's ways to write nothing; a quoted "" is a value. */
static bool
is_null(const struct loader *loader)
{
	static const char *const words[] = { "", "~", "null", "Null", "NULL" };

	if (loader->event.type != YAML_SCALAR_EVENT || is_quoted(loader))
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (span_is(scalar_text(loader), words[i]))
			return true;
	return false;
}

/* Anchors, aliases and tags: reports them; false when there is no node to read. */
static bool
check_node(struct loader *loader, const char *key)
{
	const yaml_event_t *event = &loader->event;
	const yaml_char_t *anchor = NULL, *tag = NULL;

	switch (event->type) {
	case YAML_ALIAS_EVENT:
		ERROR_HERE(loader, key, "an alias (*name) is not allowed here (write the value)");
		return false;
	case YAML_SCALAR_EVENT:
		anchor = event->data.scalar.anchor;
		tag = event->data.scalar.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = event->data.mapping_start.anchor;
		tag = event->data.mapping_start.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = event->data.sequence_start.anchor;
		tag = event->data.sequence_start.tag;
		break;
	default:
		break;
	}
	if (anchor != NULL)
		ERROR_HERE(loader, key, "an anchor (&name) is not allowed here (leave it out)");
	if (tag != NULL)
		ERROR_HERE(loader, key, "a tag (!name) is not allowed here (leave it out)");
	return true;
}

static const char *
kind_of(const struct loader *loader)
{
	switch (loader->event.type) {
	case YAML_MAPPING_START_EVENT:
		return "a group of keys";
	case YAML_SEQUENCE_START_EVENT:
		return "a list";
	default:
		return is_null(loader) ? "empty" : "a single value";
	}
}

/* Reports the current node as being of the wrong kind, and passes over it. */
static void
refuse_kind(struct loader *loader, const char *key, const char *right)
{
	ERROR_HERE(loader, key, "this is %s (must be %s)", kind_of(loader), right);
	skip(loader);
}

static void
note_origin(struct loader *loader, const char *path)
{
	char where[WHERE_MAX];

	if (!conf_origin_note(loader->conf, path, here(loader, where)))
		ERROR_HERE(loader, path, "out of memory");
}

/* The value or record that begins here was refused: later checks must not judge it. */
static void
note_bad(struct loader *loader, const char *path)
{
	note_origin(loader, path);
	conf_origin_mark_bad(loader->conf, path);
}

static void
load_entry(struct loader *loader, const struct conf_row *row, const char *path, void *base)
{
	char why[CONF_WHY_MAX], entry[CONF_PATH_MAX + 24];
	size_t index;

	if (!check_node(loader, path))
		return;
	if (loader->event.type != YAML_SCALAR_EVENT || is_null(loader)) {
		refuse_kind(loader, path, "one entry of the list");
		return;
	}
	index = conf_field_count(row, base);
	if (!conf_value_add(row, base, (struct conf_text){ scalar_text(loader), is_quoted(loader) },
	    why)) {
		ERROR_HERE(loader, path, "%s", why);
	} else if (conf_type_is_texts(row->type)) {
		/* Others will judge these later, one by one. */
		snprintf(entry, sizeof(entry), "%s.%zu", path, index);
		note_origin(loader, entry);
	}
}

static void
load_list(struct loader *loader, const struct conf_row *row, const char *path, void *base)
{
	char why[CONF_WHY_MAX], where[WHERE_MAX];
	size_t errors_before = loader->problems->errors;

	here(loader, where);
	conf_value_clear(row, base);
	conf_origins_drop_below(loader->conf, path);
	while (next(loader) && loader->event.type != YAML_SEQUENCE_END_EVENT)
		load_entry(loader, row, path, base);
	if (loader->problems->errors == errors_before && !conf_value_end(row, base, why))
		conf_problems_add(loader->problems, CONF_ERROR, where, path, "%s", why);
}

static void load_mapping(struct loader *, const struct scope *);

static void
load_records(struct loader *loader, const struct conf_row *row, const char *path)
{
	char item_path[CONF_PATH_MAX + 24], item_pattern[CONF_PATH_MAX];
	struct scope item = { item_pattern, item_path, NULL };
	bool told = false;

	conf_records_clear(row, loader->conf);
	conf_origins_drop_below(loader->conf, path);
	snprintf(item_pattern, sizeof(item_pattern), "%s[]", row->path);
	for (size_t i = 0; next(loader) && loader->event.type != YAML_SEQUENCE_END_EVENT; i++) {
		if (i >= row->max) {
			if (!told)
				ERROR_HERE(loader, path, "too many entries (at most %zu)",
				    (size_t)row->max);
			told = true;
			skip(loader);
			continue;
		}
		snprintf(item_path, sizeof(item_path), "%s.%zu", path, i);
		if (!check_node(loader, item_path)) {
			note_bad(loader, item_path);
			continue;
		}
		if (loader->event.type != YAML_MAPPING_START_EVENT) {
			note_bad(loader, item_path);
			refuse_kind(loader, item_path, "a group of keys, the first behind the dash");
			continue;
		}
		/* Entries that were refused leave a gap, or the numbers would be wrong after it. */
		while (conf_records_count(row, loader->conf) <= i) {
			item.base = conf_record_append(row, loader->conf);
			if (item.base == NULL) {
				ERROR_HERE(loader, item_path, "out of memory");
				loader->ended = true;
				return;
			}
		}
		note_origin(loader, item_path);
		load_mapping(loader, &item);
	}
}

static void
load_row(struct loader *loader, const struct conf_row *row, const char *path, void *base)
{
	bool list = conf_type_is_list(row->type) || row->type == CONF_RECORDS;
	char why[CONF_WHY_MAX];

	if (is_null(loader)) {
		ERROR_HERE(loader, path, "there is no value (must be %s)",
		    conf_value_expect(row, why));
		note_bad(loader, path);
		return;
	}
	if (loader->event.type != (list ? YAML_SEQUENCE_START_EVENT : YAML_SCALAR_EVENT)) {
		note_bad(loader, path);
		refuse_kind(loader, path, conf_value_expect(row, why));
		return;
	}
	note_origin(loader, path);
	if (row->type == CONF_RECORDS)
		load_records(loader, row, path);
	else if (list)
		load_list(loader, row, path, base);
	else if (!conf_value_set(row, base, (struct conf_text){ scalar_text(loader),
	    is_quoted(loader) }, why)) {
		ERROR_HERE(loader, path, "%s", why);
		conf_origin_mark_bad(loader->conf, path);
	}
}

/* Only plain words can be keys; a dot would look like a path into a section. */
static bool
is_key_word(struct span text)
{
	if (text.len == 0 || text.len > CONF_PATH_MAX / 2)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		char c = span_lower(text.base[i]);

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '-')
			return false;
	}
	return true;
}

/* Where in the schema a key or section begins: the same for both spellings of one key. */
static const struct conf_row *
find_known(const char *pattern, bool *section)
{
	const struct conf_row *row = conf_schema_find(pattern);

	*section = row == NULL;
	return row != NULL ? row : conf_schema_section(pattern);
}

/* Lines of the keys that were already there in this mapping. */
struct seen {
	struct {
		const struct conf_row	*row;
		size_t			 line;
	}	keys[KEYS_MAX];
	size_t	count;
};

static void
check_duplicate(struct loader *loader, struct seen *seen, const struct conf_row *row,
    const char *path)
{
	for (size_t i = 0; i < seen->count; i++) {
		if (seen->keys[i].row != row)
			continue;
		ERROR_HERE(loader, path, "this key is there already, in line %zu (only once)",
		    seen->keys[i].line);
		return;
	}
	assert(seen->count < KEYS_MAX);
	seen->keys[seen->count].row = row;
	seen->keys[seen->count++].line = loader->event.start_mark.line + 1;
}

static void
report_unknown(struct loader *loader, const char *pattern, const char *path)
{
	char hint[CONF_HINT_MAX] = "";

	/* Nobody will see the others, and a million guesses take their time. */
	if (loader->problems->count < CONF_PROBLEMS_MAX)
		conf_schema_hint(pattern, hint);
	ERROR_HERE(loader, path, "unknown key%s%s%s", hint[0] != '\0' ? " (" : "", hint,
	    hint[0] != '\0' ? ")" : "");
}

/* The current event is a key; reads it and its value. */
static void
load_pair(struct loader *loader, const struct scope *scope, struct seen *seen)
{
	char pattern[CONF_PATH_MAX], path[CONF_PATH_MAX], quoted[STR_QUOTED_MAX];
	struct scope inner = { pattern, path, scope->base };
	const struct conf_row *row;
	struct span key;
	bool section, good;

	good = check_node(loader, scope->path[0] != '\0' ? scope->path : NULL);
	if (good && loader->event.type != YAML_SCALAR_EVENT) {
		ERROR_HERE(loader, scope->path[0] != '\0' ? scope->path : NULL,
		    "this key is %s (must be a word)", kind_of(loader));
		skip(loader);
		good = false;
	}
	if (!good) {
		if (next(loader))
			skip(loader);
		return;
	}
	key = scalar_text(loader);
	good = is_key_word(key);
	/* A key that is no word goes into the message only, and there in quotes. */
	str_quote(key, quoted);
	snprintf(path, sizeof(path), "%s%s%.*s", scope->path, scope->path[0] != '\0' ? "." : "",
	    good ? (int)key.len : (int)strlen(quoted), good ? key.base : quoted);
	snprintf(pattern, sizeof(pattern), "%s%s%.*s", scope->pattern,
	    scope->pattern[0] != '\0' ? "." : "", (int)key.len, key.base);
	row = good ? find_known(pattern, &section) : NULL;
	if (row == NULL)
		report_unknown(loader, pattern, path);
	else
		check_duplicate(loader, seen, row, path);
	if (!next(loader))
		return;
	if (row == NULL)
		skip(loader);
	else if (!check_node(loader, path))
		note_bad(loader, path);
	else if (!section)
		load_row(loader, row, path, scope->base);
	else if (loader->event.type == YAML_MAPPING_START_EVENT)
		load_mapping(loader, &inner);
	else if (!is_null(loader))	/* a section whose keys are all commented out is fine */
		refuse_kind(loader, path, "a group of keys");
}

/* The current event is the mapping's start. */
static void
load_mapping(struct loader *loader, const struct scope *scope)
{
	struct seen seen = { .count = 0 };

	while (next(loader) && loader->event.type != YAML_MAPPING_END_EVENT)
		load_pair(loader, scope, &seen);
}

static void
load_document(struct loader *loader)
{
	struct scope top = { "", "", loader->conf };

	if (!next(loader) || !check_node(loader, NULL))
		return;
	if (loader->event.type == YAML_MAPPING_START_EVENT)
		load_mapping(loader, &top);
	else if (!is_null(loader))
		refuse_kind(loader, NULL, "keys with values, one a line");
}

/* After the problems of the lines before it. */
static void
report_bad_byte(struct loader *loader)
{
	struct span text = loader->text;
	size_t line = 0, column = 0;
	char where[WHERE_MAX];

	if (loader->bad_byte == text.len)
		return;
	for (size_t i = 0; i < loader->usable_bytes; i++)
		line += text.base[i] == '\n';
	for (size_t i = loader->usable_bytes; i < loader->bad_byte; i++)
		column += ((unsigned char)text.base[i] & 0xc0) != 0x80;
	conf_problems_add(loader->problems, CONF_ERROR, where_of(loader, line, column, where), NULL,
	    "byte 0x%02x is not text in UTF-8, as the file must be; nothing from this line on "
	    "was read", (unsigned char)text.base[loader->bad_byte]);
}

int
conf_load_text(struct conf *conf, const char *name, const void *text, size_t text_bytes,
    struct conf_problems *problems)
{
	struct loader loader = {
		.conf = conf, .name = name, .problems = problems,
		.text = span_of(text, text_bytes),
	};
	size_t errors_before = problems->errors;
	bool document = false;

	if (text_bytes > CONF_FILE_BYTES_MAX) {
		conf_problems_add(problems, CONF_ERROR, name, NULL,
		    "the file is too large (at most %d MiB)", CONF_FILE_BYTES_MAX >> 20);
		return -EINVAL;
	}
	if (!yaml_parser_initialize(&loader.parser)) {
		conf_problems_add(problems, CONF_ERROR, name, NULL, "out of memory");
		return -EINVAL;
	}
	/* With a set encoding libyaml takes a byte order mark for text (seen in 0.2.5). */
	if (text_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		loader.text = span_of(loader.text.base + 3, text_bytes - 3);
	loader.bad_byte = conf_file_bad_byte(loader.text, &loader.usable_bytes);
	/* Set, not guessed: a UTF-16 file is an error as well. */
	yaml_parser_set_encoding(&loader.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&loader.parser, (const unsigned char *)loader.text.base,
	    loader.usable_bytes);
	while (next(&loader)) {
		if (loader.event.type != YAML_DOCUMENT_START_EVENT)
			continue;
		if (document) {
			ERROR_HERE(&loader, NULL, "a second document begins here (only one a file)");
			break;
		}
		document = true;
		load_document(&loader);
	}
	report_bad_byte(&loader);
	yaml_event_delete(&loader.event);
	yaml_parser_delete(&loader.parser);
	return problems->errors == errors_before ? 0 : -EINVAL;
}

int
conf_load_file(struct conf *conf, const char *path, struct conf_problems *problems)
{
	char *text;
	size_t bytes;
	int rc = conf_file_read(path, &text, &bytes);

	if (rc != 0) {
		conf_problems_add(problems, CONF_ERROR, path, NULL, "cannot be read: %s",
		    strerror(-rc));
		return -EINVAL;
	}
	rc = conf_load_text(conf, path, text, bytes, problems);
	free(text);
	return rc;
}

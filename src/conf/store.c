/* SPDX-License-Identifier: ISC */
#include "conf/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/values.h"

struct conf_origin {
	char	*path;
	char	*where;
	bool	 bad;
};

static size_t *
count_of(const struct conf_row *list, struct conf *conf)
{
	return (size_t *)(void *)((char *)conf + list->count_offset);
}

static char **
records_of(const struct conf_row *list, struct conf *conf)
{
	return (char **)(void *)((char *)conf + list->offset);
}

size_t
conf_records_count(const struct conf_row *list, const struct conf *conf)
{
	assert(list->type == CONF_RECORDS);
	return *(const size_t *)(const void *)((const char *)conf + list->count_offset);
}

const void *
conf_record_at_const(const struct conf_row *list, const struct conf *conf, size_t index)
{
	const char *records;

	assert(index < conf_records_count(list, conf));
	records = *(char *const *)(const void *)((const char *)conf + list->offset);
	return records + index * list->width;
}

void *
conf_record_at(const struct conf_row *list, struct conf *conf, size_t index)
{
	assert(index < conf_records_count(list, conf));
	return *records_of(list, conf) + index * list->width;
}

static void
free_record(const struct conf_row *list, void *record)
{
	for (size_t i = 0; i < conf_schema_count; i++)
		if (conf_schema_is_item(list, &conf_schema[i]))
			conf_value_free(&conf_schema[i], record);
}

void *
conf_record_append(const struct conf_row *list, struct conf *conf)
{
	char **records = records_of(list, conf), *grown, *record;
	size_t *count = count_of(list, conf);
	char why[CONF_WHY_MAX];

	grown = reallocarray(*records, *count + 1, list->width);
	if (grown == NULL)
		return NULL;
	*records = grown;
	record = grown + *count * list->width;
	memset(record, 0, list->width);
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		/* A default that is refused can only mean that memory is short. */
		if (conf_schema_is_item(list, row) &&
		    !conf_value_from_text(row, record, span_str(row->initial), why)) {
			free_record(list, record);
			return NULL;
		}
	}
	(*count)++;
	return record;
}

void
conf_records_clear(const struct conf_row *list, struct conf *conf)
{
	for (size_t i = 0; i < conf_records_count(list, conf); i++)
		free_record(list, conf_record_at(list, conf, i));
	conf_value_clear(list, conf);
}

static struct conf_origin *
find_origin(const struct conf *conf, const char *path)
{
	for (size_t i = 0; i < conf->origin_count; i++)
		if (strcmp(conf->origins[i].path, path) == 0)
			return &conf->origins[i];
	return NULL;
}

bool
conf_origin_note(struct conf *conf, const char *path, const char *where)
{
	struct conf_origin *origin = find_origin(conf, path), *grown;
	char *path_copy, *where_copy = strdup(where);
	size_t capacity;

	if (where_copy == NULL)
		return false;
	if (origin != NULL) {
		free(origin->where);
		origin->where = where_copy;
		origin->bad = false;
		return true;
	}
	path_copy = strdup(path);
	if (path_copy == NULL)
		goto fail;
	if (conf->origin_count == conf->origin_capacity) {
		capacity = conf->origin_capacity == 0 ? 16 : conf->origin_capacity * 2;
		grown = reallocarray(conf->origins, capacity, sizeof(*grown));
		if (grown == NULL)
			goto fail;
		conf->origins = grown;
		conf->origin_capacity = capacity;
	}
	conf->origins[conf->origin_count++] = (struct conf_origin){ path_copy, where_copy, false };
	return true;
fail:
	free(path_copy);
	free(where_copy);
	return false;
}

const char *
conf_origin_of(const struct conf *conf, const char *path)
{
	const struct conf_origin *origin = find_origin(conf, path);
	char parent[CONF_PATH_MAX], *dot;

	snprintf(parent, sizeof(parent), "%s", path);
	while (origin == NULL && (dot = strrchr(parent, '.')) != NULL) {
		*dot = '\0';
		origin = find_origin(conf, parent);
	}
	return origin != NULL ? origin->where : NULL;
}

bool
conf_origin_has(const struct conf *conf, const char *path)
{
	return find_origin(conf, path) != NULL;
}

void
conf_origin_mark_bad(struct conf *conf, const char *path)
{
	struct conf_origin *origin = find_origin(conf, path);

	if (origin != NULL)
		origin->bad = true;
}

bool
conf_origin_is_bad(const struct conf *conf, const char *path)
{
	const struct conf_origin *origin = find_origin(conf, path);

	return origin != NULL && origin->bad;
}

void
conf_origins_free(struct conf *conf)
{
	for (size_t i = 0; i < conf->origin_count; i++) {
		free(conf->origins[i].path);
		free(conf->origins[i].where);
	}
	free(conf->origins);
	conf->origins = NULL;
	conf->origin_count = conf->origin_capacity = 0;
}

/* SPDX-License-Identifier: ISC */
#include "conf/store.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/field.h"
#include "conf/values.h"
#include "util/hash.h"

enum { NO_ORIGIN = UINT32_MAX };

struct conf_origin {
	char		*path;
	char		*where;
	uint32_t	 next;		/* in the same bucket */
	bool		 bad;
};

/* A long list has an origin for each entry, so they are found by hash. */
struct conf_origins {
	struct conf_origin	*list;
	uint32_t		*buckets;	/* `capacity` of them */
	size_t			 count, capacity;
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

static bool
set_initial(const struct conf_row *row, void *record)
{
	char why[CONF_WHY_MAX];
	char *empty;

	if (!conf_schema_is_required(row))
		return conf_value_from_text(row, record, span_str(row->initial), why);
	empty = strdup("");
	*(char **)conf_field(row, record) = empty;
	return empty != NULL;
}

void *
conf_record_append(const struct conf_row *list, struct conf *conf)
{
	char **records = records_of(list, conf), *grown, *record;
	size_t *count = count_of(list, conf);

	grown = reallocarray(*records, *count + 1, list->width);
	if (grown == NULL)
		return NULL;
	*records = grown;
	record = grown + *count * list->width;
	memset(record, 0, list->width);
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		/* A default that is refused can only mean that memory is short. */
		if (conf_schema_is_item(list, row) && !set_initial(row, record)) {
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

/* Not for strangers: whoever writes the configuration may slow down its loading. */
static uint32_t *
bucket_of(const struct conf_origins *origins, const char *path)
{
	return &origins->buckets[hash_bytes(path, strlen(path), 0) % origins->capacity];
}

static struct conf_origin *
find_origin(const struct conf *conf, const char *path)
{
	const struct conf_origins *origins = conf->origins;
	uint32_t at = origins == NULL ? NO_ORIGIN : *bucket_of(origins, path);

	while (at != NO_ORIGIN && strcmp(origins->list[at].path, path) != 0)
		at = origins->list[at].next;
	return at != NO_ORIGIN ? &origins->list[at] : NULL;
}

static void
link_origin(struct conf_origins *origins, size_t index)
{
	uint32_t *bucket = bucket_of(origins, origins->list[index].path);

	origins->list[index].next = *bucket;
	*bucket = (uint32_t)index;
}

static void
link_all(struct conf_origins *origins)
{
	for (size_t i = 0; i < origins->capacity; i++)
		origins->buckets[i] = NO_ORIGIN;
	for (size_t i = 0; i < origins->count; i++)
		link_origin(origins, i);
}

/* Room for one more. */
static bool
make_room(struct conf *conf)
{
	struct conf_origins *origins = conf->origins;
	struct conf_origin *list;
	uint32_t *buckets;
	size_t capacity;

	if (origins == NULL)
		origins = conf->origins = calloc(1, sizeof(*origins));
	if (origins == NULL)
		return false;
	if (origins->count < origins->capacity)
		return true;
	capacity = origins->capacity == 0 ? 16 : origins->capacity * 2;
	list = reallocarray(origins->list, capacity, sizeof(*list));
	if (list != NULL)
		origins->list = list;
	buckets = reallocarray(origins->buckets, capacity, sizeof(*buckets));
	if (buckets != NULL)
		origins->buckets = buckets;
	if (list == NULL || buckets == NULL)
		return false;
	origins->capacity = capacity;
	link_all(origins);
	return true;
}

bool
conf_origin_note(struct conf *conf, const char *path, const char *where)
{
	struct conf_origin *origin;
	char *path_copy, *where_copy;

	/* First, so that the table can't stay without buckets, which find_origin() needs. */
	if (!make_room(conf)) {
		if (conf->origins != NULL && conf->origins->capacity == 0)
			conf_origins_free(conf);
		return false;
	}
	where_copy = strdup(where);
	if (where_copy == NULL)
		return false;
	origin = find_origin(conf, path);
	if (origin != NULL) {
		free(origin->where);
		origin->where = where_copy;
		origin->bad = false;
		return true;
	}
	path_copy = strdup(path);
	if (path_copy == NULL) {
		free(where_copy);
		return false;
	}
	conf->origins->list[conf->origins->count] =
	    (struct conf_origin){ path_copy, where_copy, NO_ORIGIN, false };
	link_origin(conf->origins, conf->origins->count++);
	return true;
}

void
conf_origins_drop_below(struct conf *conf, const char *path)
{
	struct conf_origins *origins = conf->origins;
	size_t len = strlen(path), kept = 0;

	if (origins == NULL)
		return;
	for (size_t i = 0; i < origins->count; i++) {
		struct conf_origin *origin = &origins->list[i];

		if (strncmp(origin->path, path, len) == 0 && origin->path[len] == '.') {
			free(origin->path);
			free(origin->where);
		} else {
			origins->list[kept++] = *origin;
		}
	}
	if (kept == origins->count)
		return;
	origins->count = kept;
	link_all(origins);
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
	struct conf_origins *origins = conf->origins;

	if (origins == NULL)
		return;
	for (size_t i = 0; i < origins->count; i++) {
		free(origins->list[i].path);
		free(origins->list[i].where);
	}
	free(origins->list);
	free(origins->buckets);
	free(origins);
	conf->origins = NULL;
}

bool
conf_where(const struct conf *conf, const char *path, char *out, size_t out_bytes)
{
	const char *where = conf_origin_of(conf, path);

	snprintf(out, out_bytes, "%s", where != NULL ? where : "");
	return where != NULL;
}

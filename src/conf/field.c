/* SPDX-License-Identifier: ISC */
#include "conf/field.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "util/addr.h"

bool
conf_type_is_list(enum conf_type type)
{
	return type == CONF_FLAGS || type == CONF_RANGE || type == CONF_SERVERS ||
	    conf_type_is_texts(type);
}

/* A list whose entries have memory of their own. */
static bool
is_allocated(enum conf_type type)
{
	return type == CONF_SERVERS || conf_type_is_texts(type);
}

bool
conf_type_is_texts(enum conf_type type)
{
	return type == CONF_STRINGS || type == CONF_LINES;
}

void
conf_field_set_uint(const struct conf_row *row, void *base, uint64_t value)
{
	void *at = conf_field(row, base);

	switch (row->width) {
	case sizeof(uint16_t):
		*(uint16_t *)at = (uint16_t)value;
		break;
	case sizeof(uint32_t):
		/* By bytes: an enum's field may be written as a plain integer only so. */
		memcpy(at, &(uint32_t){ (uint32_t)value }, sizeof(uint32_t));
		break;
	default:
		assert(row->width == sizeof(uint64_t));
		*(uint64_t *)at = value;
	}
}

uint64_t
conf_field_uint(const struct conf_row *row, const void *base)
{
	const void *at = conf_field_const(row, base);
	uint32_t value;

	switch (row->width) {
	case sizeof(uint16_t):
		return *(const uint16_t *)at;
	case sizeof(uint32_t):
		memcpy(&value, at, sizeof(value));
		return value;
	default:
		assert(row->width == sizeof(uint64_t));
		return *(const uint64_t *)at;
	}
}

uint16_t *
conf_field_range(const struct conf_row *row, void *base)
{
	assert(row->type == CONF_RANGE && row->width == 2 * sizeof(uint16_t));
	return conf_field(row, base);
}

size_t
conf_field_count(const struct conf_row *row, const void *base)
{
	const uint16_t *range = conf_field_const(row, base);

	/* 0 is no value of a range: one that is not there yet. */
	if (row->type == CONF_RANGE)
		return (size_t)(range[0] != 0) + (range[1] != 0);
	if (row->type == CONF_FLAGS)
		return (size_t)__builtin_popcountll(conf_field_uint(row, base));
	return *(const size_t *)(const void *)((const char *)base + row->count_offset);
}

void
conf_field_set_count(const struct conf_row *row, void *base, size_t count)
{
	*(size_t *)(void *)((char *)base + row->count_offset) = count;
}

const char *
conf_field_text(const struct conf_row *row, const void *base, size_t index)
{
	assert(conf_type_is_texts(row->type) && index < conf_field_count(row, base));
	return (*(char *const *const *)conf_field_const(row, base))[index];
}

void
conf_value_clear(const struct conf_row *row, void *base)
{
	void **list = conf_field(row, base);

	if (row->type == CONF_FLAGS || row->type == CONF_RANGE) {
		memset(conf_field(row, base), 0, row->width);
		return;
	}
	for (size_t i = 0; conf_type_is_texts(row->type) && i < conf_field_count(row, base); i++)
		free(((char **)*list)[i]);
	free(*list);
	*list = NULL;
	conf_field_set_count(row, base, 0);
}

void
conf_value_free(const struct conf_row *row, void *base)
{
	if (row->type == CONF_STRING || row->type == CONF_LISTEN_ADDR) {
		free(*(char **)conf_field(row, base));
		*(char **)conf_field(row, base) = NULL;
	} else if (row->type == CONF_RECORDS || is_allocated(row->type)) {
		conf_value_clear(row, base);
	}
}

static bool
same_addr(const struct addr *a, const struct addr *b)
{
	if (a->len == 0 || b->len == 0)
		return a->len == b->len;
	return addr_same_ip(a, b) && addr_port(a) == addr_port(b);
}

static bool
same_entries(const struct conf_row *row, const void *a, const void *b)
{
	size_t count = conf_field_count(row, a);
	const struct addr *x, *y;

	if (count != conf_field_count(row, b))
		return false;
	for (size_t i = 0; i < count; i++) {
		if (conf_type_is_texts(row->type)) {
			if (strcmp(conf_field_text(row, a, i), conf_field_text(row, b, i)) != 0)
				return false;
			continue;
		}
		x = *(struct addr *const *)conf_field_const(row, a);
		y = *(struct addr *const *)conf_field_const(row, b);
		if (!same_addr(&x[i], &y[i]))
			return false;
	}
	return true;
}

bool
conf_value_equal(const struct conf_row *row, const void *a, const void *b)
{
	const void *x = conf_field_const(row, a), *y = conf_field_const(row, b);

	switch (row->type) {
	case CONF_BOOL:
		return *(const bool *)x == *(const bool *)y;
	case CONF_NUMBER:
	case CONF_SIZE:
	case CONF_ENUM:
	case CONF_FLAGS:
		return conf_field_uint(row, a) == conf_field_uint(row, b);
	case CONF_STRING:
	case CONF_LISTEN_ADDR:
		return strcmp(*(char *const *)x, *(char *const *)y) == 0;
	case CONF_IPV4:
	case CONF_IPV6:
	case CONF_IP:
		return same_addr(x, y);
	case CONF_RANGE:
		return memcmp(x, y, row->width) == 0;
	case CONF_SERVERS:
	case CONF_STRINGS:
	case CONF_LINES:
		return same_entries(row, a, b);
	case CONF_RECORDS:
		break;
	}
	assert(!"records are compared key by key");
	return false;
}

/* A copy of the list's memory, or NULL; an empty list has none. */
static void *
copy_entries(const struct conf_row *row, const void *from, size_t count)
{
	const void *list = *(void *const *)conf_field_const(row, from);
	void *copy = calloc(count, row->width);
	char **texts = copy;

	if (copy == NULL)
		return NULL;
	if (!conf_type_is_texts(row->type))
		return memcpy(copy, list, count * row->width);
	for (size_t i = 0; i < count; i++) {
		texts[i] = strdup(conf_field_text(row, from, i));
		if (texts[i] != NULL)
			continue;
		while (i > 0)
			free(texts[--i]);
		free(copy);
		return NULL;
	}
	return copy;
}

bool
conf_value_copy(const struct conf_row *row, void *to, const void *from)
{
	void *copy = NULL;
	size_t count;

	assert(row->type != CONF_RECORDS);
	if (row->type == CONF_STRING || row->type == CONF_LISTEN_ADDR) {
		copy = strdup(*(char *const *)conf_field_const(row, from));
		if (copy == NULL)
			return false;
		conf_value_free(row, to);
		*(char **)conf_field(row, to) = copy;
	} else if (is_allocated(row->type)) {
		count = conf_field_count(row, from);
		if (count != 0 && (copy = copy_entries(row, from, count)) == NULL)
			return false;
		conf_value_clear(row, to);
		*(void **)conf_field(row, to) = copy;
		conf_field_set_count(row, to, count);
	} else {
		memcpy(conf_field(row, to), conf_field_const(row, from), row->width);
	}
	return true;
}

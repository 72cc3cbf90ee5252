/* SPDX-License-Identifier: ISC */
/* The values of a condition: comma lists, @FILEs, and what is not a pattern. */
#include "policy/acl_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/str.h"

struct field {
	const char	*name;
	enum acl_comments comments;	/* in an @FILE */
	/* True with a `why` that is not empty: taken, but say so. */
	bool		(*add)(struct acl_values *, struct span, uint32_t id, char why[ACL_WHY_MAX]);
};

bool
acl_port_parse(struct span text, uint16_t *port)
{
	uint64_t number;

	if (!str_to_u64(text, &number) || number == 0 || number > UINT16_MAX)
		return false;
	*port = (uint16_t)number;
	return true;
}

static bool
add_cidr(struct acl_values *values, struct span value, uint32_t id, char why[ACL_WHY_MAX])
{
	(void)id;
	if (span_is(value, "*")) {
		values->any = true;
		return true;
	}
	switch (cidr_add(values->cidr, value, why)) {
	case CIDR_OK:
	case CIDR_HOST_BITS:
		return true;
	case CIDR_BAD:
	case CIDR_NOMEM:
		break;
	}
	return false;
}

static bool
add_ports(struct acl_values *values, struct span value, uint32_t id, char why[ACL_WHY_MAX])
{
	const char *dash = memchr(value.base, '-', value.len);
	size_t low_len = dash != NULL ? (size_t)(dash - value.base) : value.len;
	struct acl_ports *ports = values->ports;
	struct acl_port_range range;
	char quoted[STR_QUOTED_MAX];

	(void)id;
	if (span_is(value, "*")) {
		values->any = true;
		return true;
	}
	if (!acl_port_parse(span_of(value.base, low_len), &range.low) ||
	    !acl_port_parse(dash != NULL ? span_of(dash + 1, value.len - low_len - 1) : value,
	    &range.high) || range.low > range.high) {
		snprintf(why, ACL_WHY_MAX, "%s is no port (a number from 1 to 65535, or a range such as "
		    "8000-8099)", str_quote(value, quoted));
		return false;
	}
	if (ports->count == ports->room) {
		size_t room = ports->room == 0 ? 4 : ports->room * 2;
		struct acl_port_range *grown = reallocarray(ports->list, room, sizeof(*grown));

		if (grown == NULL) {
			snprintf(why, ACL_WHY_MAX, "out of memory");
			return false;
		}
		ports->list = grown;
		ports->room = room;
	}
	ports->list[ports->count++] = range;
	return true;
}

static const struct field fields[ACL_F_COUNT] = {
	[ACL_F_METHOD]	= { "method", ACL_COMMENT_LIST, acl_pattern_method },
	[ACL_F_HOST]	= { "host", ACL_COMMENT_LIST, acl_pattern_host },
	[ACL_F_PATH]	= { "path", ACL_COMMENT_LIST, acl_pattern_path },
	[ACL_F_CLIENT]	= { "client", ACL_COMMENT_ANYWHERE, add_cidr },
	[ACL_F_USER]	= { "user", ACL_COMMENT_LIST, acl_pattern_user },
	[ACL_F_PORT]	= { "port", ACL_COMMENT_ANYWHERE, add_ports },
	[ACL_F_DST]	= { "dst", ACL_COMMENT_ANYWHERE, add_cidr },
	[ACL_F_LISTENER] = { "listener", ACL_COMMENT_ANYWHERE, add_ports },
};

enum acl_field
acl_field_find(struct span name)
{
	enum acl_field field = 0;

	while (field < ACL_F_COUNT && !span_is(name, fields[field].name))
		field++;
	return field;
}

const char *
acl_field_name(enum acl_field field)
{
	return fields[field].name;
}

/* Makes room for the values that the field has. */
static bool
prepare(struct acl_values *values, enum acl_field field)
{
	values->present = true;
	switch (field) {
	case ACL_F_CLIENT:
	case ACL_F_DST:
		return values->cidr != NULL || (values->cidr = cidr_new()) != NULL;
	case ACL_F_PORT:
	case ACL_F_LISTENER:
		return values->ports != NULL ||
		    (values->ports = calloc(1, sizeof(*values->ports))) != NULL;
	default:
		return values->set != NULL || (values->set = acl_set_new()) != NULL;
	}
}

static void
add_one(struct acl_values *values, enum acl_field field, struct span value,
    const struct acl_value_context *context, const char *where, bool listed)
{
	char why[ACL_WHY_MAX] = "";
	bool ok = fields[field].add(values, value, context->id, why);

	if (!ok || why[0] != '\0')
		conf_problems_add(context->problems, ok ? CONF_WARNING : CONF_ERROR, where, NULL,
		    "%s: %s%s%s%s", fields[field].name, why, listed ? " [list of " : "",
		    listed ? context->where : "", listed ? "]" : "");
}

static void
add_file(struct acl_values *values, enum acl_field field, struct span name,
    const struct acl_value_context *context)
{
	char path[PATH_MAX], where[ACL_WHERE_MAX];
	bool relative = name.len != 0 && name.base[0] != '/' && context->dir != NULL;
	size_t taken = 0;
	struct acl_lines lines;
	struct span line;
	int len, rc;

	len = snprintf(path, sizeof(path), "%s%s%.*s", relative ? context->dir : "",
	    relative ? "/" : "", (int)(name.len < PATH_MAX ? name.len : PATH_MAX), name.base);
	rc = name.len == 0 ? -ENOENT : len < 0 || (size_t)len >= sizeof(path) ? -ENAMETOOLONG :
	    acl_lines_open(&lines, path, fields[field].comments);
	if (rc != 0) {
		char quoted[STR_QUOTED_MAX];

		conf_problems_add(context->problems, CONF_ERROR, context->where, NULL,
		    "%s: %s can't be read: %s (behind @ stands a file with one value a line)",
		    fields[field].name, str_quote(name.len != 0 ? span_str(path) : name, quoted),
		    strerror(-rc));
		return;
	}
	for (; acl_lines_next(&lines, &line); taken++) {
		snprintf(where, sizeof(where), "%.760s:%zu", path, lines.line);
		add_one(values, field, line, context, where, true);
	}
	acl_lines_close(&lines);
	if (taken == 0)
		conf_problems_add(context->problems, CONF_WARNING, context->where, NULL,
		    "%s: %.500s holds no value, so that nothing matches it", fields[field].name, path);
}

void
acl_values_add(struct acl_values *values, enum acl_field field, struct span list,
    const struct acl_value_context *context)
{
	if (!prepare(values, field)) {
		conf_problems_add(context->problems, CONF_ERROR, context->where, NULL, "out of memory");
		return;
	}
	for (bool more = true; more;) {
		const char *comma = memchr(list.base, ',', list.len);
		struct span value = list;

		more = comma != NULL;
		if (more) {
			value.len = (size_t)(comma - list.base);
			list = span_of(comma + 1, list.len - value.len - 1);
		}
		if (value.len == 0)
			conf_problems_add(context->problems, CONF_ERROR, context->where, NULL,
			    "%s: an empty value (values are separated by one comma and no blank)",
			    fields[field].name);
		else if (value.base[0] == '@')
			add_file(values, field, span_of(value.base + 1, value.len - 1), context);
		else
			add_one(values, field, value, context, context->where, false);
	}
}

/* ---- complete ------------------------------------------------------------ */

static int
order_ranges(const void *a, const void *b)
{
	const struct acl_port_range *x = a, *y = b;

	return (x->low > y->low) - (x->low < y->low);
}

static void
join_ranges(struct acl_ports *ports)
{
	size_t kept = 0;

	if (ports->count == 0)
		return;
	qsort(ports->list, ports->count, sizeof(*ports->list), order_ranges);
	for (size_t i = 1; i < ports->count; i++) {
		if (ports->list[i].low > ports->list[kept].high)
			ports->list[++kept] = ports->list[i];
		else if (ports->list[i].high > ports->list[kept].high)
			ports->list[kept].high = ports->list[i].high;
	}
	ports->count = kept + 1;
}

bool
acl_ports_has(const struct acl_ports *ports, uint16_t port)
{
	size_t low = 0, high = ports->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (port > ports->list[middle].high)
			low = middle + 1;
		else if (port < ports->list[middle].low)
			high = middle;
		else
			return true;
	}
	return false;
}

int
acl_values_seal(struct acl_values *values)
{
	int rc = 0;

	if (values->any) {
		acl_values_free(values);
		return 0;
	}
	if (values->set != NULL)
		rc = acl_set_seal(values->set);
	if (rc == 0 && values->cidr != NULL)
		rc = cidr_seal(values->cidr);
	if (values->ports != NULL)
		join_ranges(values->ports);
	return rc;
}

void
acl_values_free(struct acl_values *values)
{
	acl_set_free(values->set);
	cidr_free(values->cidr);
	if (values->ports != NULL)
		free(values->ports->list);
	free(values->ports);
	memset(values, 0, sizeof(*values));
}

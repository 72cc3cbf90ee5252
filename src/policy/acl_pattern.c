/* SPDX-License-Identifier: ISC */
/* Patterns of hosts, paths, users and methods: "*", "*.suffix", "prefix*", literal. */
#include "policy/acl_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/acl_path.h"
#include "proto/chars.h"
#include "util/str.h"

/* false, so that a caller can return it. */
static bool __attribute__((format(printf, 3, 4)))
refuse(char why[ACL_WHY_MAX], struct span value, const char *fmt, ...)
{
	char quoted[STR_QUOTED_MAX];
	va_list ap;
	int used = snprintf(why, ACL_WHY_MAX, "%s ", str_quote(value, quoted));

	va_start(ap, fmt);
	vsnprintf(why + used, ACL_WHY_MAX - (size_t)used, fmt, ap);
	va_end(ap);
	return false;
}

static bool
put(struct acl_values *values, enum acl_pattern kind, uint16_t tag, struct span text, uint32_t id,
    char why[ACL_WHY_MAX])
{
	if (acl_set_add(values->set, kind, tag, text, id) == 0)
		return true;
	snprintf(why, ACL_WHY_MAX, "out of memory");
	return false;
}

/* Which kind it is, and `text` without the star ("*.x" keeps its dot). */
static bool
split_star(struct span value, enum acl_pattern *kind, struct span *text, char why[ACL_WHY_MAX])
{
	const char *star = memchr(value.base, '*', value.len);
	size_t last = value.len - 1;

	*kind = ACL_LITERAL;
	*text = value;
	if (star == NULL)
		return true;
	if (star == value.base + last) {
		*kind = ACL_PREFIX;
		text->len--;
		return true;
	}
	if (star != value.base || value.base[1] != '.' || value.len < 3 ||
	    memchr(value.base + 1, '*', last) != NULL)
		return refuse(why, value, "has its * in a place where it means nothing (write *, "
		    "*.suffix or prefix*)");
	*kind = ACL_SUFFIX;
	*text = span_of(value.base + 1, last);
	return true;
}

bool
acl_looks_like_address(struct span host)
{
	size_t start = host.len;
	struct span label;

	while (start > 0 && host.base[start - 1] != '.')
		start--;
	label = span_of(host.base + start, host.len - start);
	if (label.len > 1 && label.base[0] == '0' && span_lower(label.base[1]) == 'x') {
		for (size_t i = 2; i < label.len; i++)
			if (!chars_is(label.base[i], CHARS_HEX))
				return false;
		return true;
	}
	for (size_t i = 0; i < label.len; i++)
		if (!chars_is(label.base[i], CHARS_DIGIT))
			return false;
	return label.len != 0;
}

/* ---- hosts --------------------------------------------------------------- */

static bool
refuse_host(struct span value, char why[ACL_WHY_MAX])
{
	for (size_t i = 0; i < value.len; i++)
		if ((unsigned char)value.base[i] >= 0x80)
			return refuse(why, value, "is not ASCII (write the name as it goes over the wire, "
			    "xn--...)");
	if (memchr(value.base, '/', value.len) != NULL)
		return refuse(why, value, "is no host (a name or address without scheme and path; for "
		    "a range of addresses use dst 10.0.0.0/8)");
	for (size_t i = 0; i < value.len; i++)
		if (acl_is_blank(value.base[i]))
			return refuse(why, value, "is no host (one name or address, without a blank)");
	return refuse(why, value, "is no host (a name, an address, *, *.suffix or prefix*, and :port "
	    "if need be)");
}

/* Cuts ":port" off; *port 0 = none.  An IPv6 address with a port has brackets. */
static bool
split_port(struct span *host, uint16_t *port, char why[ACL_WHY_MAX])
{
	const struct span value = *host;
	const char *colon = memchr(value.base, ':', value.len);

	*port = 0;
	if (value.base[0] == '[') {
		const char *end = memchr(value.base, ']', value.len);

		if (end == NULL)
			return refuse_host(value, why);
		host->len = (size_t)(end + 1 - value.base);
		if (host->len == value.len)
			return true;
		colon = end + 1;
		if (*colon != ':')
			return refuse_host(value, why);
	} else {
		size_t left;

		if (colon == NULL)
			return true;
		left = value.len - (size_t)(colon + 1 - value.base);
		if (memchr(colon + 1, ':', left) != NULL)
			return true;	/* IPv6 */
		host->len = (size_t)(colon - value.base);
	}
	if (host->len == 0)
		return refuse_host(value, why);
	if (!acl_port_parse(span_of(colon + 1, (size_t)(value.base + value.len - colon - 1)), port))
		return refuse(why, value, "has no good port (a number from 1 to 65535 behind the colon)");
	return true;
}

/* A part of a name, in lower case. */
static bool
copy_part(struct span part, char out[TARGET_HOST_MAX + 1])
{
	if (part.len > TARGET_HOST_MAX)
		return false;
	for (size_t i = 0; i < part.len; i++) {
		if (!chars_is(part.base[i], CHARS_HOST) && part.base[i] != '.')
			return false;
		if (part.base[i] == '.' && i > 0 && part.base[i - 1] == '.')
			return false;
		out[i] = span_lower(part.base[i]);
	}
	return true;
}

bool
acl_pattern_host(struct acl_values *values, struct span value, uint32_t id, char why[ACL_WHY_MAX])
{
	char part[TARGET_HOST_MAX + 1], scratch[ADDR_TEXT_MAX];
	struct span host = value, text;
	enum acl_pattern kind;
	struct target target;
	uint16_t port;

	if (!split_port(&host, &port, why) || !split_star(host, &kind, &text, why))
		return false;
	if (kind == ACL_LITERAL) {
		if (!target_set_host(&target, host, 1))
			return refuse_host(value, why);
		text = target_host(&target, scratch);
		if (!target_is_literal(&target) && acl_looks_like_address(text))
			return refuse(why, value, "is neither a name nor an address (write addresses in "
			    "full, such as 127.0.0.1)");
		return put(values, kind, port, text, id, why);
	}
	if (kind == ACL_SUFFIX && text.len > 2 && text.base[text.len - 1] == '.')
		text.len--;
	if (!copy_part(text, part) || (kind == ACL_PREFIX && text.len != 0 && text.base[0] == '.'))
		return refuse_host(value, why);
	return put(values, kind, port, span_of(part, text.len), id, why);
}

/* ---- paths --------------------------------------------------------------- */

static bool
check_path(struct span value, enum acl_pattern kind, struct span text, char why[ACL_WHY_MAX])
{
	for (size_t i = 0; i < value.len; i++)
		if (!chars_is(value.base[i], CHARS_TARGET))
			return refuse(why, value, "can't be in a path (write blanks, # and what is not ASCII "
			    "as %%XX)");
	if (kind == ACL_SUFFIX && memchr(text.base, '?', text.len) != NULL)
		return refuse(why, value, "matches nothing (an ending is that of the path without its "
		    "query)");
	if (kind == ACL_SUFFIX && memchr(text.base, '/', text.len) != NULL)
		return refuse(why, value, "mixes an ending with a folder (write *.suffix or /prefix*)");
	if (kind != ACL_SUFFIX && text.len != 0 && text.base[0] != '/')
		return refuse(why, value, "matches nothing (a path begins with /; write /admin/*, "
		    "*.suffix or *)");
	/* Such a path never gets so far in its normal form: an allow would be dead. */
	for (size_t i = 0; i + 1 < text.len; i++) {
		static const char *const segments[] = { "//", "/./", "/../" };

		for (size_t s = 0; s < sizeof(segments) / sizeof(segments[0]); s++)
			if (text.len - i >= strlen(segments[s]) &&
			    memcmp(text.base + i, segments[s], strlen(segments[s])) == 0 &&
			    (memchr(text.base, '?', i) == NULL))
				return refuse(why, value, "holds %s (write the path that it leads to)",
				    segments[s]);
	}
	return true;
}

bool
acl_pattern_path(struct acl_values *values, struct span value, uint32_t id, char why[ACL_WHY_MAX])
{
	enum acl_pattern kind;
	struct span text, forms[2];
	char *decoded;
	bool ok;

	if (!split_star(value, &kind, &text, why) || !check_path(value, kind, text, why))
		return false;
	decoded = malloc(text.len * 2 + 1);
	if (decoded == NULL) {
		snprintf(why, ACL_WHY_MAX, "out of memory");
		return false;
	}
	forms[0] = span_of(decoded, acl_path_decode(text, ACL_PATH_NORMAL, decoded));
	forms[1] = span_of(decoded + text.len,
	    acl_path_decode(text, ACL_PATH_LENIENT, decoded + text.len));
	if (span_eq(text, forms[0]) && span_eq(text, forms[1]))
		ok = put(values, kind, ACL_PATH_ANY, text, id, why);
	else
		ok = put(values, kind, ACL_PATH_RAW, text, id, why) &&
		    put(values, kind, ACL_PATH_NORMAL, forms[0], id, why) &&
		    put(values, kind, ACL_PATH_LENIENT, forms[1], id, why);
	free(decoded);
	values->params |= memchr(text.base, ';', text.len) != NULL;
	values->query |= memchr(text.base, '?', text.len) != NULL;
	return ok;
}

/* ---- users and methods --------------------------------------------------- */

bool
acl_pattern_user(struct acl_values *values, struct span value, uint32_t id, char why[ACL_WHY_MAX])
{
	enum acl_pattern kind;
	struct span text;

	for (size_t i = 0; i < value.len; i++)
		if ((unsigned char)value.base[i] < 0x20 || value.base[i] == 0x7f)
			return refuse(why, value, "is no user name (it holds a control character)");
	return split_star(value, &kind, &text, why) && put(values, kind, 0, text, id, why);
}

bool
acl_pattern_method(struct acl_values *values, struct span value, uint32_t id, char why[ACL_WHY_MAX])
{
	char lower[ACL_METHOD_MAX];
	enum acl_pattern kind;
	struct span text;

	if (!split_star(value, &kind, &text, why))
		return false;
	if (kind == ACL_SUFFIX || text.len >= sizeof(lower))
		return refuse(why, value, "is no method (connect, socks, or a method of HTTP such as get)");
	for (size_t i = 0; i < text.len; i++) {
		if (!chars_is(text.base[i], CHARS_TOKEN))
			return refuse(why, value, "is no method (connect, socks, or a method of HTTP such "
			    "as get)");
		lower[i] = span_lower(text.base[i]);
	}
	return put(values, kind, 0, span_of(lower, text.len), id, why);
}

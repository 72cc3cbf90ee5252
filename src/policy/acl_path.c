/* SPDX-License-Identifier: ISC */
#include "policy/acl_path.h"

#include <assert.h>
#include <string.h>

#include "proto/chars.h"

enum order {
	MERGE_ONLY,		/* "//" to "/", dot segments kept */
	MERGE_THEN_DOTS,
	DOTS_THEN_MERGE		/* "/a//../b" is "/a/b", not "/b" */
};

/* RFC 3986 section 2.3. */
static bool
is_unreserved(char c)
{
	return chars_is(c, CHARS_ALPHA | CHARS_DIGIT) || c == '-' || c == '.' || c == '_' || c == '~';
}

static char
upper_hex(char c)
{
	return c >= 'a' && c <= 'f' ? (char)(c - 0x20) : c;
}

size_t
acl_path_decode(struct span text, enum acl_path_form form, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < text.len; i++) {
		char c = text.base[i];

		if (form != ACL_PATH_RAW && c == '%' && text.len - i > 2 &&
		    chars_is(text.base[i + 1], CHARS_HEX) && chars_is(text.base[i + 2], CHARS_HEX)) {
			char byte = (char)(chars_hex_value(text.base[i + 1]) << 4 |
			    chars_hex_value(text.base[i + 2]));

			if (form == ACL_PATH_NORMAL && !is_unreserved(byte)) {
				out[used++] = '%';
				out[used++] = upper_hex(text.base[i + 1]);
				out[used++] = upper_hex(text.base[i + 2]);
				i += 2;
				continue;
			}
			c = byte;
			i += 2;
		}
		out[used++] = form == ACL_PATH_LENIENT && c == '\\' ? '/' : c;
	}
	return used;
}

/* The rest works in place, on a path that begins with "/". */

static size_t
merge_slashes(char *path, size_t len)
{
	size_t used = 0;

	for (size_t i = 0; i < len; i++)
		if (path[i] != '/' || used == 0 || path[used - 1] != '/')
			path[used++] = path[i];
	return used;
}

/* RFC 3986 section 5.2.4. */
static size_t
remove_dots(char *path, size_t len)
{
	size_t used = 0, at = 0;

	while (at < len) {
		/* A segment with the "/" before it. */
		size_t end = at + 1;

		while (end < len && path[end] != '/')
			end++;
		if (end - at == 2 && path[at + 1] == '.') {
			if (end == len)
				path[used++] = '/';
		} else if (end - at == 3 && path[at + 1] == '.' && path[at + 2] == '.') {
			while (used != 0 && path[--used] != '/')
				;
			if (end == len)
				path[used++] = '/';
		} else {
			memmove(path + used, path + at, end - at);
			used += end - at;
		}
		at = end;
	}
	return used;
}

/* ";v=1" up to the next "/". */
static size_t
cut_params(char *path, size_t len)
{
	size_t used = 0;
	bool cutting = false;

	for (size_t i = 0; i < len; i++) {
		if (path[i] == '/')
			cutting = false;
		else if (path[i] == ';')
			cutting = true;
		if (!cutting)
			path[used++] = path[i];
	}
	return used;
}

static size_t
bring_in_order(char *path, size_t len, enum order order)
{
	if (len == 0 || path[0] != '/')	/* "*" */
		return len;
	if (order != DOTS_THEN_MERGE)
		len = merge_slashes(path, len);
	if (order != MERGE_ONLY)
		len = remove_dots(path, len);
	return order == DOTS_THEN_MERGE ? merge_slashes(path, len) : len;
}

/* Can it be read in one way only? */
static bool
is_plain(struct span path, struct span query)
{
	if (path.len == 0 || (path.base[0] != '/' && path.base[0] != '*'))
		return false;
	for (size_t i = 0; i < path.len; i++) {
		char c = path.base[i];

		if (c == '%' || c == '\\' || c == ';' ||
		    (c == '/' && i + 1 < path.len && (path.base[i + 1] == '/' || path.base[i + 1] == '.')))
			return false;
	}
	/* A "\" in a query is changed too, so that texts and patterns stay alike. */
	return query.len == 0 || (memchr(query.base, '%', query.len) == NULL &&
	    memchr(query.base, '\\', query.len) == NULL);
}

struct reader {
	struct span	 path, query;	/* as sent, "/" put in front where it is missing */
	char		*next;		/* free scratch */
	struct acl_path	*out;
	size_t		 count;
};

static void
add(struct reader *r, enum acl_path_form form, enum order order, bool cut)
{
	size_t len = acl_path_decode(r->path, form, r->next), all;
	struct acl_path reading = { .form = form, .cut_params = cut };

	if (cut)
		len = cut_params(r->next, len);
	if (form != ACL_PATH_RAW)
		len = bring_in_order(r->next, len, order);
	all = len + acl_path_decode(r->query, form, r->next + len);
	reading.path = span_of(r->next, len);
	reading.whole = span_of(r->next, all);
	for (size_t i = 0; i < r->count; i++)
		if (r->out[i].form == form && r->out[i].path.len == len &&
		    span_eq(r->out[i].whole, reading.whole))
			return;
	assert(r->count < ACL_PATH_READINGS_MAX);
	r->out[r->count++] = reading;
	r->next += all;
}

size_t
acl_path_read(struct span sent, char *scratch, struct acl_path out[ACL_PATH_READINGS_MAX])
{
	const char *mark = sent.len != 0 ? memchr(sent.base, '?', sent.len) : NULL;
	size_t path_len = mark != NULL ? (size_t)(mark - sent.base) : sent.len;
	struct reader r = { .path = span_of(sent.base, path_len),
	    .query = span_of(sent.base + path_len, sent.len - path_len),
	    .next = scratch, .out = out };

	if (is_plain(r.path, r.query)) {
		out[0] = (struct acl_path){ .path = r.path, .whole = sent, .form = ACL_PATH_ANY };
		return 1;
	}
	if (r.path.len == 0)	/* "?query" goes out with a "/" before it */
		r.path = span_str("/");
	add(&r, ACL_PATH_RAW, MERGE_ONLY, false);
	for (enum acl_path_form form = ACL_PATH_NORMAL; form <= ACL_PATH_LENIENT; form++)
		for (enum order order = MERGE_ONLY; order <= DOTS_THEN_MERGE; order++) {
			add(&r, form, order, false);
			if (form == ACL_PATH_LENIENT)
				add(&r, form, order, true);
		}
	return r.count;
}

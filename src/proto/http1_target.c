/* SPDX-License-Identifier: ISC */
/* Where a request goes: RFC 9112 section 3.2 and 3.3. */
#include "proto/http1.h"

#include <assert.h>
#include <string.h>

#include "proto/chars.h"
#include "proto/hostport.h"

enum { HTTP_PORT = 80 };

static enum http1_verdict
from_hostport(enum hostport_verdict verdict)
{
	switch (verdict) {
	case HOSTPORT_OK:
		return HTTP1_OK;
	case HOSTPORT_BAD_PORT:
		return HTTP1_BAD_PORT;
	case HOSTPORT_USERINFO:
		return HTTP1_USERINFO;
	case HOSTPORT_BAD_HOST:
		break;
	}
	return HTTP1_BAD_TARGET;
}

static struct span
host_value(const struct http1_head *head)
{
	ssize_t i = http1_find(head, HTTP1_F_HOST, 0);

	return i >= 0 ? head->fields[i].value : span_of("", 0);
}

/* The target named by Host alone. */
static enum http1_verdict
by_host(const struct http1_head *head, struct target *target)
{
	if (http1_find(head, HTTP1_F_HOST, 0) < 0)
		return HTTP1_NO_HOST;
	return hostport_parse(host_value(head), HTTP_PORT, target) == HOSTPORT_OK ? HTTP1_OK :
	    HTTP1_BAD_HOST;
}

/*
 * Beside an authority Host is rewritten (RFC 9112 section 3.2.2), so it may
 * differ and even be empty; but one that is no host at all is refused, as the
 * next recipient might read more into it than we do.  `authority` was found good.
 */
static enum http1_verdict
check_host(const struct http1_head *head, struct span authority)
{
	struct span host = host_value(head);
	struct target unused;

	if (host.len == 0 || span_eq(host, authority))
		return HTTP1_OK;
	return hostport_parse(host, HTTP_PORT, &unused) == HOSTPORT_OK ? HTTP1_OK : HTTP1_BAD_HOST;
}

/* Cuts "scheme://" off. */
static enum http1_verdict
take_scheme(struct span *text)
{
	struct span scheme = span_of(text->base, 0);

	if (!chars_is(text->base[0], CHARS_ALPHA))
		return HTTP1_BAD_TARGET;
	while (scheme.len < text->len && (chars_is(text->base[scheme.len], CHARS_ALPHA |
	    CHARS_DIGIT) || memchr("+-.", text->base[scheme.len], 3) != NULL))
		scheme.len++;
	if (text->len - scheme.len < 3 || memcmp(text->base + scheme.len, "://", 3) != 0)
		return HTTP1_BAD_TARGET;
	*text = span_of(text->base + scheme.len + 3, text->len - scheme.len - 3);
	if (span_iis(scheme, "http"))
		return HTTP1_OK;
	return span_iis(scheme, "https") ? HTTP1_HTTPS_URI : HTTP1_UNKNOWN_SCHEME;
}

static enum http1_verdict
absolute(const struct http1_head *head, struct http1_where *where)
{
	struct span text = head->target_text, authority;
	enum http1_verdict verdict = take_scheme(&text);

	if (verdict != HTTP1_OK)
		return verdict;
	authority = span_of(text.base, 0);
	while (authority.len < text.len && text.base[authority.len] != '/' &&
	    text.base[authority.len] != '?')
		authority.len++;
	verdict = from_hostport(hostport_parse(authority, HTTP_PORT, &where->target));
	if (verdict != HTTP1_OK)
		return verdict;
	where->path = span_of(text.base + authority.len, text.len - authority.len);
	if (where->path.len == 0)	/* RFC 9112 section 3.2.4 */
		where->path = span_str(head->method == HTTP1_M_OPTIONS ? "*" : "/");
	else
		where->slash_first = where->path.base[0] == '?';
	return check_host(head, authority);
}

enum http1_verdict
http1_request_target(const struct http1_head *head, struct http1_where *where)
{
	struct span text = head->target_text;
	enum http1_verdict verdict;

	assert(!head->is_response && text.len != 0);
	where->path = text;
	where->slash_first = false;
	target_clear(&where->target);
	if (head->method == HTTP1_M_CONNECT) {
		where->form = HTTP1_FORM_AUTHORITY;
		where->path = span_of(text.base, 0);
		verdict = from_hostport(hostport_parse(text, 0, &where->target));
		return verdict == HTTP1_OK ? check_host(head, text) : verdict;
	}
	if (text.base[0] == '/') {
		where->form = HTTP1_FORM_ORIGIN;
		return by_host(head, &where->target);
	}
	if (span_is(text, "*")) {
		where->form = HTTP1_FORM_ASTERISK;
		if (head->method != HTTP1_M_OPTIONS)
			return HTTP1_BAD_TARGET;
		return by_host(head, &where->target);
	}
	where->form = HTTP1_FORM_ABSOLUTE;
	return absolute(head, where);
}

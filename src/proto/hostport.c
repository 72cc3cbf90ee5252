/* SPDX-License-Identifier: ISC */
#include "proto/hostport.h"

#include <string.h>

#include "proto/chars.h"

enum {
	PORT_MAX = 65535,
	PORT_DIGITS_MAX = 5	/* so that no sum can wrap */
};

/* 0 when it is none: port 0 can't be connected to. */
static uint16_t
parse_port(struct span text)
{
	unsigned port = 0;

	if (text.len > PORT_DIGITS_MAX)
		return 0;
	for (size_t i = 0; i < text.len; i++) {
		if (!chars_is(text.base[i], CHARS_DIGIT))
			return 0;
		port = port * 10 + (unsigned)(text.base[i] - '0');
	}
	return port <= PORT_MAX ? (uint16_t)port : 0;
}

/* Splits behind the host; `port` is empty when there is no colon or nothing behind it. */
static bool
split(struct span text, struct span *host, struct span *port)
{
	const char *end = text.base + text.len, *colon;

	*port = span_of(end, 0);
	if (text.base[0] == '[') {
		const char *bracket = memchr(text.base, ']', text.len);

		/* Inside brackets only an IPv6 address may stand: no name, no IPvFuture. */
		if (bracket == NULL || memchr(text.base, ':', (size_t)(bracket - text.base)) == NULL)
			return false;
		*host = span_of(text.base, (size_t)(bracket + 1 - text.base));
		if (bracket + 1 == end)
			return true;
		if (bracket[1] != ':')
			return false;
		*port = span_of(bracket + 2, (size_t)(end - bracket - 2));
		return true;
	}
	*host = text;
	colon = memchr(text.base, ':', text.len);
	if (colon == NULL)
		return true;
	*host = span_of(text.base, (size_t)(colon - text.base));
	*port = span_of(colon + 1, (size_t)(end - colon - 1));
	/* A second colon: an IPv6 address without brackets, whose port nobody can tell. */
	return port->len == 0 || memchr(port->base, ':', port->len) == NULL;
}

enum hostport_verdict
hostport_parse(struct span text, uint16_t default_port, struct target *target)
{
	struct span host, port_text;
	uint16_t port = default_port;

	target_clear(target);
	if (text.len == 0)
		return HOSTPORT_BAD_HOST;
	if (memchr(text.base, '@', text.len) != NULL)
		return HOSTPORT_USERINFO;
	if (!split(text, &host, &port_text))
		return HOSTPORT_BAD_HOST;
	if (port_text.len != 0)
		port = parse_port(port_text);
	if (!target_set_host(target, host, port))
		return HOSTPORT_BAD_HOST;
	return port != 0 ? HOSTPORT_OK : HOSTPORT_BAD_PORT;
}

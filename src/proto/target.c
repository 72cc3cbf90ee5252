/* SPDX-License-Identifier: ISC */
#include "proto/target.h"

#include <assert.h>
#include <string.h>

#include "proto/chars.h"
#include "util/digits.h"

void
target_set_addr(struct target *target, const struct addr *addr)
{
	target->addr = *addr;
	addr_unmap(&target->addr);
	target->port = addr_port(addr);
	target->host_len = 0;
	target->host[0] = '\0';
	target->loopback_name = false;
}

/* In place and without a copy: every SOCKS request comes through here. */
void
target_set_ip(struct target *target, const void *ip, size_t ip_len, uint16_t port)
{
	struct addr *addr = &target->addr;

	target_clear(target);
	target->port = port;
	if (ip_len == sizeof(addr->in.sin_addr)) {
		addr->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
		memcpy(&addr->in.sin_addr, ip, sizeof(addr->in.sin_addr));
		addr->len = sizeof(addr->in);
	} else {
		assert(ip_len == sizeof(addr->in6.sin6_addr));
		addr->in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6,
		    .sin6_port = htons(port) };
		memcpy(&addr->in6.sin6_addr, ip, sizeof(addr->in6.sin6_addr));
		addr->len = sizeof(addr->in6);
		addr_unmap(addr);
	}
}

/* RFC 6761 section 6.3: the name itself and everything below it. */
static bool
is_localhost(const char *host, size_t len)
{
	static const char name[] = "localhost";
	const size_t name_len = sizeof(name) - 1;

	if (len < name_len || memcmp(host + len - name_len, name, name_len) != 0)
		return false;
	return len == name_len || host[len - name_len - 1] == '.';
}

/*
 * Copies a name in lower case; false when a label is empty or a byte is none of
 * a name's.  Lengths beyond DNS's own limits are the resolver's to refuse.
 */
static bool
copy_name(char *out, struct span name)
{
	bool label_empty = true;

	for (size_t i = 0; i < name.len; i++) {
		char c = name.base[i];

		if (c == '.') {
			if (label_empty)
				return false;
			label_empty = true;
		} else if (chars_is(c, CHARS_HOST)) {
			label_empty = false;
		} else {
			return false;
		}
		out[i] = span_lower(c);
	}
	out[name.len] = '\0';
	return !label_empty;
}

bool
target_set_host(struct target *target, struct span host, uint16_t port)
{
	struct addr addr;
	char last;

	target_clear(target);
	target->port = port;
	if (host.len == 0)
		return false;
	/* "127.0.0.1." would be a name to us and an address to some resolvers. */
	if (host.base[host.len - 1] == '.')
		host.len--;
	if (host.len == 0 || host.len > TARGET_HOST_MAX)
		return false;
	/* Only these endings can be an address: spares most names the attempt. */
	last = host.base[host.len - 1];
	if ((chars_is(last, CHARS_HEX) || last == ':' || last == ']') &&
	    addr_parse_ip(host, port, &addr)) {
		target_set_addr(target, &addr);
		return true;
	}
	if (!copy_name(target->host, host)) {
		target->host[0] = '\0';
		return false;
	}
	target->host_len = (uint8_t)host.len;
	target->loopback_name = is_localhost(target->host, host.len);
	return true;
}

struct span
target_host(const struct target *target, char scratch[ADDR_TEXT_MAX])
{
	if (!target_is_literal(target))
		return span_of(target->host, target->host_len);
	return span_str(addr_format_ip(&target->addr, scratch));
}

size_t
target_authority(const struct target *target, uint16_t implied_port, char out[TARGET_TEXT_MAX])
{
	char scratch[ADDR_TEXT_MAX];
	struct span host = target_host(target, scratch);
	bool v6 = target_is_literal(target) && target->addr.sa.sa_family == AF_INET6;
	size_t len = 0;

	assert(host.len <= TARGET_HOST_MAX);
	if (v6)
		out[len++] = '[';
	memcpy(out + len, host.base, host.len);
	len += host.len;
	if (v6)
		out[len++] = ']';
	if (target->port != implied_port) {
		out[len++] = ':';
		len = (size_t)(digits_put(out + len, target->port) - out);
	}
	out[len] = '\0';
	return len;
}

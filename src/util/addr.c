/* SPDX-License-Identifier: ISC */
#include "util/addr.h"

#include <arpa/inet.h>
#include <string.h>

#include "util/digits.h"
#include "util/hash.h"

static void
set_in(struct addr *addr, const void *ip, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	memcpy(&in.sin_addr, ip, sizeof(in.sin_addr));
	memset(addr, 0, sizeof(*addr));
	addr->in = in;
	addr->len = sizeof(in);
}

/*
 * As inet_pton(AF_INET): four numbers up to 255 without leading zeros.  Ours, as
 * every literal in a request comes through here and every name that ends like one.
 */
static bool
parse_ipv4(struct span text, uint8_t ip[4])
{
	const char *at = text.base, *end = at + text.len, *begin;

	for (unsigned i = 0; i < 4; i++) {
		unsigned value = 0;

		if (i > 0 && (at == end || *at++ != '.'))
			return false;
		for (begin = at; at < end && *at >= '0' && *at <= '9'; at++) {
			value = value * 10 + (unsigned)(*at - '0');
			if (value > 255 || (at > begin && *begin == '0'))
				return false;
		}
		if (at == begin)
			return false;
		ip[i] = (uint8_t)value;
	}
	return at == end;
}

bool
addr_parse_ip(struct span text, uint16_t port, struct addr *addr)
{
	char buf[INET6_ADDRSTRLEN];
	struct in6_addr ip;
	uint8_t ip4[4];
	bool brackets = text.len >= 2 && text.base[0] == '[' && text.base[text.len - 1] == ']';

	if (brackets) {
		text.base++;
		text.len -= 2;
	}
	if (text.len == 0)
		return false;
	if (!brackets && parse_ipv4(text, ip4)) {
		set_in(addr, ip4, port);
		return true;
	}
	/* An embedded NUL would hide what follows it from inet_pton. */
	if (text.len >= sizeof(buf) || memchr(text.base, ':', text.len) == NULL ||
	    memchr(text.base, '\0', text.len) != NULL)
		return false;
	memcpy(buf, text.base, text.len);
	buf[text.len] = '\0';
	if (inet_pton(AF_INET6, buf, &ip) != 1)
		return false;
	memset(addr, 0, sizeof(*addr));
	addr->in6.sin6_family = AF_INET6;
	addr->in6.sin6_port = htons(port);
	addr->in6.sin6_addr = ip;
	addr->len = sizeof(addr->in6);
	return true;
}

void
addr_from_sockaddr(struct addr *addr, const struct sockaddr *sa, socklen_t len)
{
	memset(addr, 0, sizeof(*addr));
	/* accept(2) of an unnamed Unix peer may give less than a family: nothing is known. */
	if (sa == NULL || len < (socklen_t)(offsetof(struct sockaddr, sa_family) +
	    sizeof(sa->sa_family)))
		return;
	addr->sa.sa_family = sa->sa_family;
	if (sa->sa_family == AF_INET && len >= (socklen_t)sizeof(addr->in)) {
		memcpy(&addr->in, sa, sizeof(addr->in));
		addr->len = sizeof(addr->in);
	} else if (sa->sa_family == AF_INET6 && len >= (socklen_t)sizeof(addr->in6)) {
		memcpy(&addr->in6, sa, sizeof(addr->in6));
		addr->len = sizeof(addr->in6);
	} else if (sa->sa_family == AF_UNIX) {
		addr->len = sizeof(sa->sa_family);
	}
}

static bool
is_in(const struct addr *addr)
{
	return addr->len != 0 && addr->sa.sa_family == AF_INET;
}

static bool
is_in6(const struct addr *addr)
{
	return addr->len != 0 && addr->sa.sa_family == AF_INET6;
}

uint16_t
addr_port(const struct addr *addr)
{
	if (is_in(addr))
		return ntohs(addr->in.sin_port);
	return is_in6(addr) ? ntohs(addr->in6.sin6_port) : 0;
}

void
addr_set_port(struct addr *addr, uint16_t port)
{
	if (is_in(addr))
		addr->in.sin_port = htons(port);
	else if (is_in6(addr))
		addr->in6.sin6_port = htons(port);
}

void
addr_unmap(struct addr *addr)
{
	uint8_t ip[4];

	if (!is_in6(addr) || !IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr))
		return;
	memcpy(ip, &addr->in6.sin6_addr.s6_addr[12], sizeof(ip));
	set_in(addr, ip, ntohs(addr->in6.sin6_port));
}

bool
addr_is_wildcard(const struct addr *a)
{
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

bool
addr_is_loopback(const struct addr *addr)
{
	struct addr plain = *addr;

	addr_unmap(&plain);
	if (is_in(&plain))
		return ntohl(plain.in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return is_in6(&plain) && IN6_IS_ADDR_LOOPBACK(&plain.in6.sin6_addr);
}

/* The bytes of the address itself; none for Unix peers and for no address. */
static struct span
ip_bytes(const struct addr *addr)
{
	if (is_in(addr))
		return span_of(&addr->in.sin_addr, sizeof(addr->in.sin_addr));
	if (is_in6(addr))
		return span_of(&addr->in6.sin6_addr, sizeof(addr->in6.sin6_addr));
	return span_of(NULL, 0);
}

/* fe80::1 on one link is not fe80::1 on another (RFC 4007 section 6). */
static uint32_t
scope_of(const struct addr *addr)
{
	return is_in6(addr) && IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr) ?
	    addr->in6.sin6_scope_id : 0;
}

bool
addr_same_ip(const struct addr *a, const struct addr *b)
{
	struct addr x = *a, y = *b;

	addr_unmap(&x);
	addr_unmap(&y);
	return x.sa.sa_family == y.sa.sa_family && scope_of(&x) == scope_of(&y) &&
	    (x.len == 0) == (y.len == 0) && span_eq(ip_bytes(&x), ip_bytes(&y));
}

uint64_t
addr_hash_ip(const struct addr *addr, uint64_t seed)
{
	struct addr plain = *addr;
	struct span ip;

	addr_unmap(&plain);
	ip = ip_bytes(&plain);
	return hash_bytes(ip.len != 0 ? ip.base : "", ip.len, seed);
}

/* Writes the address without a NUL; returns the end. */
static char *
put_ip(const struct addr *addr, char *at)
{
	const uint8_t *ip = (const uint8_t *)&addr->in.sin_addr;
	const char *word;

	if (is_in6(addr)) {
		inet_ntop(AF_INET6, &addr->in6.sin6_addr, at, INET6_ADDRSTRLEN);
		return at + strlen(at);
	}
	if (!is_in(addr)) {
		word = addr->len != 0 && addr->sa.sa_family == AF_UNIX ? "unix" : "-";
		return (char *)memcpy(at, word, strlen(word)) + strlen(word);
	}
	for (unsigned i = 0; i < 4; i++) {
		if (i > 0)
			*at++ = '.';
		at = digits_put(at, ip[i]);
	}
	return at;
}

char *
addr_format_ip(const struct addr *addr, char out[ADDR_TEXT_MAX])
{
	*put_ip(addr, out) = '\0';
	return out;
}

char *
addr_format(const struct addr *addr, char out[ADDR_TEXT_MAX])
{
	char *at = out;

	if (is_in6(addr))
		*at++ = '[';
	at = put_ip(addr, at);
	if (is_in6(addr))
		*at++ = ']';
	if (is_in(addr) || is_in6(addr)) {
		*at++ = ':';
		at = digits_put(at, addr_port(addr));
	}
	*at = '\0';
	return out;
}

/* SPDX-License-Identifier: ISC */
#include "policy/acl_addr.h"

#include <string.h>

#include "policy/acl.h"

static bool
begins(const uint8_t *ip, const void *prefix, size_t len)
{
	return memcmp(ip, prefix, len) == 0;
}

static void
put(struct addr out[], size_t *count, const uint8_t v4[4])
{
	struct addr *addr = &out[(*count)++];

	memset(addr, 0, sizeof(*addr));
	addr->in.sin_family = AF_INET;
	memcpy(&addr->in.sin_addr, v4, 4);
	addr->len = sizeof(addr->in);
}

size_t
acl_embedded(const struct addr *addr, struct addr out[ACL_EMBEDDED_MAX])
{
	static const uint8_t zero[16];
	const uint8_t *ip = addr->in6.sin6_addr.s6_addr;
	size_t count = 0;

	if (addr->len == 0 || addr->sa.sa_family != AF_INET6)
		return 0;
	if (begins(ip, zero, 12)) {
		/* Compatible, RFC 4291 section 2.5.5.1; :: and ::1 are nobody's IPv4. */
		if (!begins(ip + 12, zero, 3) || ip[15] > 1)
			put(out, &count, ip + 12);
	} else if (begins(ip, zero, 10) && begins(ip + 10, "\xff\xff", 2)) {
		put(out, &count, ip + 12);	/* mapped */
	} else if (begins(ip, zero, 8) && begins(ip + 8, "\xff\xff\0\0", 4)) {
		put(out, &count, ip + 12);	/* translated, RFC 2765 section 2.1 */
	} else if (begins(ip, "\0\x64\xff\x9b\0\0\0\0\0\0\0\0", 12)) {
		put(out, &count, ip + 12);	/* NAT64, RFC 6052 section 2.1 */
	} else if (begins(ip, "\0\x64\xff\x9b\0\1", 6)) {
		/*
		 * NAT64 of the network's own, RFC 8215: any length from /48 to /96, so
		 * the IPv4 address is at the end or, for /48, around the byte "u".
		 */
		const uint8_t at48[4] = { ip[6], ip[7], ip[9], ip[10] };

		put(out, &count, ip + 12);
		if (!begins(at48, zero, 4))
			put(out, &count, at48);
	} else if (begins(ip, "\x20\x02", 2)) {
		put(out, &count, ip + 2);	/* 6to4, RFC 3056 section 2 */
	} else if (begins(ip, "\x20\1\0\0", 4)) {
		/* Teredo, RFC 4380 section 4: the client's address is inverted. */
		const uint8_t client[4] = { ip[12] ^ 0xff, ip[13] ^ 0xff, ip[14] ^ 0xff, ip[15] ^ 0xff };

		put(out, &count, client);
	}
	return count;
}

static bool
is_local4(const struct addr *addr)
{
	uint32_t ip = ntohl(addr->in.sin_addr.s_addr);

	return ip >> 24 == 0 || ip >> 24 == 127 || ip >> 16 == 0xa9fe ||
	    ip >> 8 == 0xe00000 ||		/* 224.0.0.0/24, never forwarded: RFC 5771 section 4 */
	    ip == UINT32_MAX;
}

bool
acl_is_local_address(const struct addr *addr)
{
	const struct in6_addr *ip = &addr->in6.sin6_addr;
	struct addr inner[ACL_EMBEDDED_MAX];
	size_t count;

	if (addr->len == 0)
		return false;
	if (addr->sa.sa_family == AF_INET)
		return is_local4(addr);
	if (addr->sa.sa_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_UNSPECIFIED(ip) || IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_LINKLOCAL(ip))
		return true;
	/* Multicast whose scope is the host or the link, RFC 4291 section 2.7. */
	if (ip->s6_addr[0] == 0xff && ((ip->s6_addr[1] & 0xf) == 1 || (ip->s6_addr[1] & 0xf) == 2))
		return true;
	count = acl_embedded(addr, inner);
	for (size_t i = 0; i < count; i++)
		if (is_local4(&inner[i]))
			return true;
	return false;
}

/* SPDX-License-Identifier: ISC */
/*
 * acl_addr: IPv4 addresses in IPv6 clothes.  A packet to such an address may be
 * delivered to the IPv4 one by a translator or tunnel on the way, so a rule
 * against the one has to hold for the other.
 */
#ifndef RW_POLICY_ACL_ADDR_H
#define RW_POLICY_ACL_ADDR_H

#include <stddef.h>

#include "util/addr.h"

enum { ACL_EMBEDDED_MAX = 2 };
/* The IPv4 addresses that an IPv6 one stands for; 0 for most. */
size_t	acl_embedded(const struct addr *, struct addr out[ACL_EMBEDDED_MAX]);

#endif

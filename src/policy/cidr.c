/* SPDX-License-Identifier: ISC */
/*
 * Sealed, a family is an array of disjoint ranges in order.  An index cuts the
 * space from the first to the last range into equal slots, about four a range,
 * and says for each which range is the first that may hold an address in it: a
 * look-up is one load from the index and, unless the entries crowd together,
 * one or two comparisons.
 */
#include "policy/cidr.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/acl_file.h"
#include "util/str.h"

enum {
	SLOTS_MIN = 16,
	SLOTS_MAX = 65536,	/* 256 KiB of index: stays in the second-level cache */
	SCAN_MAX = 4,		/* ranges in a slot that are looked at one by one */
	V4_BITS = 32,
	V6_BITS = 128,
	MAPPED_BITS = 96	/* ::ffff:0:0/96, RFC 4291 section 2.5.5.2 */
};

struct range4 {
	uint32_t	lo, hi;		/* host order, both inside */
};

struct key6 {
	uint64_t	hi, lo;
};

struct range6 {
	struct key6	lo, hi;
};

struct index {
	uint32_t	*first;		/* a slot's first range; one entry more than slots */
	unsigned	 shift;
};

struct cidr_set {
	struct range4	*v4;
	struct range6	*v6;
	size_t		 count4, room4, count6, room6;
	size_t		 added;
	struct index	 index4, index6;
	bool		 sealed;
};

struct cidr_set *
cidr_new(void)
{
	return calloc(1, sizeof(struct cidr_set));
}

void
cidr_free(struct cidr_set *set)
{
	if (set == NULL)
		return;
	free(set->v4);
	free(set->v6);
	free(set->index4.first);
	free(set->index6.first);
	free(set);
}

size_t
cidr_count(const struct cidr_set *set)
{
	return set->added;
}

static inline struct key6
key6_of(const uint8_t ip[16])
{
	struct key6 key = { 0, 0 };

	/* Compilers make two loads of it. */
	for (unsigned i = 0; i < 8; i++) {
		key.hi = key.hi << 8 | ip[i];
		key.lo = key.lo << 8 | ip[i + 8];
	}
	return key;
}

static inline bool
key6_less(struct key6 a, struct key6 b)
{
	return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo;
}

/* ---- adding -------------------------------------------------------------- */

static void *
grow(void *list, size_t count, size_t *room, size_t width)
{
	size_t wanted = *room == 0 ? 8 : *room * 2;

	if (count < *room)
		return list;
	list = reallocarray(list, wanted, width);
	if (list != NULL)
		*room = wanted;
	return list;
}

static enum cidr_verdict
add4(struct cidr_set *set, uint32_t ip, unsigned bits)
{
	uint32_t mask = bits == 0 ? 0 : UINT32_MAX << (V4_BITS - bits);
	struct range4 *grown = grow(set->v4, set->count4, &set->room4, sizeof(*grown));

	assert(!set->sealed);
	if (grown == NULL)
		return CIDR_NOMEM;
	set->v4 = grown;
	set->v4[set->count4++] = (struct range4){ ip & mask, ip | ~mask };
	return (ip & ~mask) != 0 ? CIDR_HOST_BITS : CIDR_OK;
}

static enum cidr_verdict
add6(struct cidr_set *set, struct key6 ip, unsigned bits)
{
	struct key6 mask = {
		bits == 0 ? 0 : bits >= 64 ? UINT64_MAX : UINT64_MAX << (64 - bits),
		bits <= 64 ? 0 : UINT64_MAX << (V6_BITS - bits),
	};
	struct range6 *grown = grow(set->v6, set->count6, &set->room6, sizeof(*grown));

	assert(!set->sealed);
	if (grown == NULL)
		return CIDR_NOMEM;
	set->v6 = grown;
	set->v6[set->count6++] = (struct range6){
		{ ip.hi & mask.hi, ip.lo & mask.lo }, { ip.hi | ~mask.hi, ip.lo | ~mask.lo } };
	return ((ip.hi & ~mask.hi) | (ip.lo & ~mask.lo)) != 0 ? CIDR_HOST_BITS : CIDR_OK;
}

/* The prefix that was added last, as text. */
static char *
format_last(const struct cidr_set *set, bool v4, unsigned bits, char out[ADDR_TEXT_MAX + 8])
{
	struct addr addr = { .len = 0 };
	char ip[ADDR_TEXT_MAX];

	if (v4) {
		addr.in.sin_family = AF_INET;
		addr.in.sin_addr.s_addr = htonl(set->v4[set->count4 - 1].lo);
		addr.len = sizeof(addr.in);
	} else {
		struct key6 lo = set->v6[set->count6 - 1].lo;

		addr.in6.sin6_family = AF_INET6;
		for (unsigned i = 0; i < 8; i++) {
			addr.in6.sin6_addr.s6_addr[i] = (uint8_t)(lo.hi >> (56 - 8 * i));
			addr.in6.sin6_addr.s6_addr[i + 8] = (uint8_t)(lo.lo >> (56 - 8 * i));
		}
		addr.len = sizeof(addr.in6);
	}
	snprintf(out, ADDR_TEXT_MAX + 8, "%s/%u", addr_format_ip(&addr, ip), bits);
	return out;
}

static enum cidr_verdict
add_parsed(struct cidr_set *set, struct addr *addr, unsigned bits, struct span text,
    char why[CIDR_WHY_MAX])
{
	char quoted[STR_QUOTED_MAX], taken[ADDR_TEXT_MAX + 8];
	enum cidr_verdict verdict;
	bool v4;

	if (addr->sa.sa_family == AF_INET6 && bits >= MAPPED_BITS &&
	    IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr)) {
		addr_unmap(addr);
		bits -= MAPPED_BITS;
	}
	v4 = addr->sa.sa_family == AF_INET;
	verdict = v4 ? add4(set, ntohl(addr->in.sin_addr.s_addr), bits) :
	    add6(set, key6_of(addr->in6.sin6_addr.s6_addr), bits);
	if (verdict == CIDR_NOMEM) {
		snprintf(why, CIDR_WHY_MAX, "out of memory");
		return verdict;
	}
	set->added++;
	if (verdict == CIDR_HOST_BITS)
		snprintf(why, CIDR_WHY_MAX, "%s has bits set behind its prefix (it is taken as %s)",
		    str_quote(text, quoted), format_last(set, v4, bits, taken));
	return verdict;
}

enum cidr_verdict
cidr_add(struct cidr_set *set, struct span text, char why[CIDR_WHY_MAX])
{
	const char *slash = text.len != 0 ? memchr(text.base, '/', text.len) : NULL;
	struct span ip = text;
	char quoted[STR_QUOTED_MAX];
	struct addr addr;
	uint64_t bits;
	unsigned bits_max;

	if (slash != NULL)
		ip.len = (size_t)(slash - text.base);
	if (!addr_parse_ip(ip, 0, &addr)) {
		snprintf(why, CIDR_WHY_MAX, "%s is no address (IPv4 or IPv6, alone or as a prefix "
		    "such as 10.0.0.0/8 or 2001:db8::/32)", str_quote(text, quoted));
		return CIDR_BAD;
	}
	bits = bits_max = addr.sa.sa_family == AF_INET ? V4_BITS : V6_BITS;
	if (slash != NULL && (!str_to_u64(span_of(slash + 1, text.len - ip.len - 1), &bits) ||
	    bits > bits_max)) {
		snprintf(why, CIDR_WHY_MAX, "%s has no good prefix length (a number of bits from 0 to %u "
		    "behind the slash)", str_quote(text, quoted), bits_max);
		return CIDR_BAD;
	}
	return add_parsed(set, &addr, (unsigned)bits, text, why);
}

int
cidr_load(struct cidr_set *set, const char *path, const char *key, struct conf_problems *problems)
{
	size_t errors = problems->errors;
	struct acl_lines lines;
	struct span line;
	int rc = acl_lines_open(&lines, path, ACL_COMMENT_ANYWHERE);

	if (rc != 0) {
		conf_problems_add(problems, CONF_ERROR, path, key, "cannot be read: %s", strerror(-rc));
		return -EINVAL;
	}
	while (acl_lines_next(&lines, &line)) {
		char why[CIDR_WHY_MAX], where[700];
		enum cidr_verdict verdict = cidr_add(set, line, why);

		if (verdict == CIDR_OK)
			continue;
		snprintf(where, sizeof(where), "%.660s:%zu", path, lines.line);
		conf_problems_add(problems, verdict == CIDR_HOST_BITS ? CONF_WARNING : CONF_ERROR, where,
		    key, "%s", why);
	}
	acl_lines_close(&lines);
	return problems->errors == errors ? 0 : -EINVAL;
}

/* ---- sealing ------------------------------------------------------------- */

static int
order4(const void *a, const void *b)
{
	const struct range4 *x = a, *y = b;

	return (x->lo > y->lo) - (x->lo < y->lo);
}

static int
order6(const void *a, const void *b)
{
	const struct range6 *x = a, *y = b;

	return key6_less(y->lo, x->lo) - key6_less(x->lo, y->lo);
}

/* Sorted, overlapping ones joined.  Neighbours stay apart: they cost nothing. */
static size_t
join4(struct range4 *list, size_t count)
{
	size_t kept = 0;

	if (count == 0)
		return 0;
	qsort(list, count, sizeof(*list), order4);
	for (size_t i = 1; i < count; i++) {
		if (list[i].lo > list[kept].hi)
			list[++kept] = list[i];
		else if (list[i].hi > list[kept].hi)
			list[kept].hi = list[i].hi;
	}
	return kept + 1;
}

static size_t
join6(struct range6 *list, size_t count)
{
	size_t kept = 0;

	if (count == 0)
		return 0;
	qsort(list, count, sizeof(*list), order6);
	for (size_t i = 1; i < count; i++) {
		if (key6_less(list[kept].hi, list[i].lo))
			list[++kept] = list[i];
		else if (key6_less(list[kept].hi, list[i].hi))
			list[kept].hi = list[i].hi;
	}
	return kept + 1;
}

/* Empty index for `count` ranges that span `width` + 1 addresses (or blocks of 2^64). */
static size_t
index_new(struct index *index, size_t count, uint64_t width)
{
	size_t slots = SLOTS_MIN;

	while (slots < SLOTS_MAX && slots < count * 4)
		slots *= 2;
	index->shift = 0;
	while (width >> index->shift >= slots)
		index->shift++;
	index->first = calloc(slots + 1, sizeof(*index->first));
	return index->first != NULL ? slots : 0;
}

static int
seal4(struct cidr_set *set)
{
	const struct range4 *v4 = set->v4;
	size_t slots, at = 0;

	set->count4 = join4(set->v4, set->count4);
	if (set->count4 == 0)
		return 0;
	slots = index_new(&set->index4, set->count4, v4[set->count4 - 1].hi - v4[0].lo);
	if (slots == 0)
		return -ENOMEM;
	for (size_t slot = 0; slot <= slots; slot++) {
		uint64_t base = v4[0].lo + ((uint64_t)slot << set->index4.shift);

		while (at < set->count4 - 1 && v4[at].hi < base)
			at++;
		set->index4.first[slot] = (uint32_t)at;
	}
	return 0;
}

static int
seal6(struct cidr_set *set)
{
	const struct range6 *v6 = set->v6;
	size_t slots, at = 0;

	set->count6 = join6(set->v6, set->count6);
	if (set->count6 == 0)
		return 0;
	slots = index_new(&set->index6, set->count6, v6[set->count6 - 1].hi.hi - v6[0].lo.hi);
	if (slots == 0)
		return -ENOMEM;
	for (size_t slot = 0; slot <= slots; slot++) {
		uint64_t offset = (uint64_t)slot << set->index6.shift;
		struct key6 base = { v6[0].lo.hi + offset, 0 };

		/* Past the end of all addresses, ::/0 with every slot in use: the last one. */
		if (base.hi < offset || offset >> set->index6.shift != slot)
			base = (struct key6){ UINT64_MAX, UINT64_MAX };
		while (at < set->count6 - 1 && key6_less(v6[at].hi, base))
			at++;
		set->index6.first[slot] = (uint32_t)at;
	}
	return 0;
}

int
cidr_seal(struct cidr_set *set)
{
	int rc = seal4(set);

	if (rc == 0)
		rc = seal6(set);
	set->sealed = rc == 0;
	return rc;
}

/* ---- looking up ---------------------------------------------------------- */

static bool
has4(const struct cidr_set *set, uint32_t ip)
{
	const struct range4 *v4 = set->v4;
	size_t at, end, slot;

	if (set->count4 == 0 || ip < v4[0].lo || ip > v4[set->count4 - 1].hi)
		return false;
	slot = (ip - v4[0].lo) >> set->index4.shift;
	/* The first range that ends at or behind `ip` is one of at..end. */
	at = set->index4.first[slot];
	end = set->index4.first[slot + 1];
	while (end - at > SCAN_MAX) {
		size_t middle = at + (end - at) / 2;

		if (v4[middle].hi < ip)
			at = middle + 1;
		else
			end = middle;
	}
	while (v4[at].hi < ip)
		at++;
	return v4[at].lo <= ip;
}

static bool
has6(const struct cidr_set *set, struct key6 ip)
{
	const struct range6 *v6 = set->v6;
	size_t at, end, slot;

	if (set->count6 == 0 || key6_less(ip, v6[0].lo) || key6_less(v6[set->count6 - 1].hi, ip))
		return false;
	slot = (ip.hi - v6[0].lo.hi) >> set->index6.shift;
	at = set->index6.first[slot];
	end = set->index6.first[slot + 1];
	while (end - at > SCAN_MAX) {
		size_t middle = at + (end - at) / 2;

		if (key6_less(v6[middle].hi, ip))
			at = middle + 1;
		else
			end = middle;
	}
	while (key6_less(v6[at].hi, ip))
		at++;
	return !key6_less(ip, v6[at].lo);
}

bool
cidr_has(const struct cidr_set *set, const struct addr *addr)
{
	assert(set->sealed);
	if (addr->len == 0)
		return false;
	if (addr->sa.sa_family == AF_INET)
		return has4(set, ntohl(addr->in.sin_addr.s_addr));
	if (addr->sa.sa_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr)) {
		uint32_t ip;

		memcpy(&ip, &addr->in6.sin6_addr.s6_addr[12], sizeof(ip));
		return has4(set, ntohl(ip));
	}
	return has6(set, key6_of(addr->in6.sin6_addr.s6_addr));
}

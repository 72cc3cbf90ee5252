/* SPDX-License-Identifier: ISC */
#include "relay/udp_dest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/socks5.h"
#include "proto/socks5_udp.h"
#include "util/hash.h"

enum {
	SLOTS_FIRST = 8,	/* most clients talk to one destination or a few */
	HEADER_IPV4 = 4 + 4 + 2,
	HEADER_IPV6 = 4 + 16 + 2
};

_Static_assert(HEADER_IPV6 == (int)SOCKS5_UDP_HEADER_ADDR_MAX && HEADER_IPV6 < (int)UDP_KEY_LEN, "fits");

struct udp_slot {
	uint32_t	 tag;	/* upper half of the hash: most strangers are told apart without a look at the entry */
	struct udp_dest	*dest;	/* NULL = free */
};

union udp_key
udp_key_of_addr(const struct addr *addr)
{
	union udp_key key = { .words = { 0, 0, 0 } };

	key.bytes[UDP_KEY_LEN] = (uint8_t)socks5_udp_write(addr, key.bytes);
	return key;
}

bool
udp_key_of_header(const uint8_t *datagram, size_t len, union udp_key *key)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	size_t head;

	if (len < HEADER_IPV4 || (datagram[0] | datagram[1] | datagram[2]) != 0)
		return false;
	if (datagram[3] == SOCKS5_ATYP_IPV4)
		head = HEADER_IPV4;
	else if (datagram[3] == SOCKS5_ATYP_IPV6 && len >= HEADER_IPV6 &&
	    memcmp(datagram + 4, mapped, sizeof mapped) != 0)
		head = HEADER_IPV6;
	else
		return false;
	if ((datagram[head - 2] | datagram[head - 1]) == 0)
		return false;
	key->words[0] = key->words[1] = key->words[2] = 0;
	memcpy(key->bytes, datagram, head);
	key->bytes[UDP_KEY_LEN] = (uint8_t)head;
	return true;
}

void
udp_dests_init(struct udp_dests *t, uint64_t seed)
{
	*t = (struct udp_dests){ .seed = seed };
}

void
udp_dests_free(struct udp_dests *t)
{
	for (uint32_t i = 0; i < t->slot_count; i++)
		free(t->slots[i].dest);
	free(t->slots);
	udp_dests_init(t, t->seed);
}

static uint64_t
hash_key(const struct udp_dests *t, const union udp_key *key)
{
	return hash_bytes(key->bytes, sizeof key->bytes, t->seed);
}

static bool
same_key(const union udp_key *a, const union udp_key *b)
{
	return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->words[2] == b->words[2];
}

struct udp_dest *
udp_dest_find(const struct udp_dests *t, const union udp_key *key)
{
	uint64_t hash;

	if (t->count == 0)
		return NULL;
	hash = hash_key(t, key);
	for (uint32_t i = (uint32_t)hash; ; i++) {
		const struct udp_slot *s = &t->slots[i & (t->slot_count - 1)];

		if (s->dest == NULL)
			return NULL;
		if (s->tag == (uint32_t)(hash >> 32) && same_key(&s->dest->key, key))
			return s->dest;
	}
}

static void
insert(struct udp_dests *t, struct udp_dest *d)
{
	uint64_t hash = hash_key(t, &d->key);
	uint32_t i = (uint32_t)hash;

	while (t->slots[i & (t->slot_count - 1)].dest != NULL)
		i++;
	t->slots[i & (t->slot_count - 1)] = (struct udp_slot){ (uint32_t)(hash >> 32), d };
}

/* Never more than three quarters full. */
static bool
make_room(struct udp_dests *t)
{
	struct udp_dests old = *t;

	if (t->count + 1 <= t->slot_count / 4 * 3)
		return true;
	t->slot_count = t->slot_count != 0 ? t->slot_count * 2 : SLOTS_FIRST;
	if ((t->slots = calloc(t->slot_count, sizeof *t->slots)) == NULL) {
		*t = old;
		return false;
	}
	for (uint32_t i = 0; i < old.slot_count; i++)
		if (old.slots[i].dest != NULL)
			insert(t, old.slots[i].dest);
	free(old.slots);
	return true;
}

/* Takes it out of the slots; those behind it move up, so that searches still find them. */
static void
take_out(struct udp_dests *t, uint32_t at)
{
	uint32_t mask = t->slot_count - 1;

	t->slots[at].dest = NULL;
	for (uint32_t i = (at + 1) & mask; t->slots[i].dest != NULL; i = (i + 1) & mask) {
		uint32_t home = (uint32_t)hash_key(t, &t->slots[i].dest->key) & mask;

		/* Its way from home leads past the hole. */
		if (((i - home) & mask) >= ((i - at) & mask)) {
			t->slots[at] = t->slots[i];
			t->slots[i].dest = NULL;
			at = i;
		}
	}
}

/* The one that has been idle the longest, if that is long enough. */
static struct udp_dest *
take_idle(struct udp_dests *t, uint64_t idle_ns, uint64_t queued_ns, uint64_t now_ns)
{
	uint64_t oldest_ns = UINT64_MAX;
	uint32_t at = 0;
	struct udp_dest *d;

	/* Not a scan for each datagram of somebody who goes on trying. */
	if (now_ns < t->full_until_ns)
		return NULL;
	for (uint32_t i = 0; i < t->slot_count; i++) {
		d = t->slots[i].dest;
		if (d != NULL && d->last_ns < oldest_ns) {
			oldest_ns = d->last_ns;
			at = i;
		}
	}
	if (oldest_ns >= queued_ns)
		return NULL;
	if (now_ns - oldest_ns < idle_ns) {
		t->full_until_ns = oldest_ns + idle_ns;
		return NULL;
	}
	d = t->slots[at].dest;
	take_out(t, at);
	t->count--;
	return d;
}

struct udp_dest *
udp_dest_add(struct udp_dests *t, const union udp_key *key, uint32_t max, uint64_t idle_ns, uint64_t queued_ns,
    uint64_t now_ns)
{
	struct udp_dest *d;

	assert(key->bytes[UDP_KEY_LEN] != 0 && udp_dest_find(t, key) == NULL);
	if (t->count >= max)
		d = take_idle(t, idle_ns, queued_ns, now_ns);
	else
		d = make_room(t) ? malloc(sizeof *d) : NULL;
	if (d == NULL)
		return NULL;
	*d = (struct udp_dest){ .key = *key, .last_ns = now_ns };
	insert(t, d);
	t->count++;
	return d;
}

/* SPDX-License-Identifier: ISC */
#include "net/dnscache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

enum { BUCKETS_FIRST = 64 };

struct dnscache {
	struct dns_entry	**buckets;
	uint32_t		 mask;
	uint32_t		 total;		/* stored and pending */
	uint32_t		 stored, max;
	uint64_t		 seed;
	struct io_link		 lru;		/* youngest first */
};

struct dns_answer *
dns_answer_new(enum resolve_status status, const struct addr *addrs, unsigned count)
{
	struct dns_answer *a = malloc(sizeof(*a) + count * sizeof(a->addrs[0]));

	if (a == NULL)
		return NULL;
	a->refs = 1;
	a->status = status;
	a->expires_ns = 0;
	a->count = count;
	if (count > 0)
		memcpy(a->addrs, addrs, count * sizeof(a->addrs[0]));
	return a;
}

void
dns_answer_unref(struct dns_answer *a)
{
	if (a == NULL)
		return;
	assert(a->refs > 0);
	if (--a->refs == 0)
		free(a);
}

struct dnscache *
dnscache_new(uint64_t seed, uint32_t max_entries)
{
	struct dnscache *cache = calloc(1, sizeof(*cache));

	if (cache == NULL)
		return NULL;
	cache->buckets = calloc(BUCKETS_FIRST, sizeof(struct dns_entry *));
	if (cache->buckets == NULL) {
		free(cache);
		return NULL;
	}
	cache->mask = BUCKETS_FIRST - 1;
	cache->seed = seed;
	cache->max = max_entries;
	io_list_init(&cache->lru);
	return cache;
}

static void
remove_entry(struct dnscache *cache, struct dns_entry *entry)
{
	struct dns_entry **at = &cache->buckets[entry->hash & cache->mask];

	assert(io_list_empty(&entry->waiters));
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	if (!io_list_empty(&entry->lru)) {
		io_list_del(&entry->lru);
		cache->stored--;
	}
	cache->total--;
	dns_answer_unref(entry->answer);
	free(entry);
}

static void
evict(struct dnscache *cache)
{
	while (cache->stored > cache->max)
		remove_entry(cache, io_container_of(cache->lru.prev, struct dns_entry, lru));
}

void
dnscache_free(struct dnscache *cache)
{
	if (cache == NULL)
		return;
	cache->max = 0;
	evict(cache);
	assert(cache->total == 0);
	free(cache->buckets);
	free(cache);
}

void
dnscache_set_max(struct dnscache *cache, uint32_t max_entries)
{
	cache->max = max_entries;
	evict(cache);
}

uint32_t
dnscache_stored(const struct dnscache *cache)
{
	return cache->stored;
}

/* By need; when there is no memory the chains just get longer. */
static void
grow(struct dnscache *cache)
{
	uint32_t n = (cache->mask + 1) * 2;
	struct dns_entry **buckets = calloc(n, sizeof(struct dns_entry *)), *entry, *next;

	if (buckets == NULL)
		return;
	for (uint32_t i = 0; i <= cache->mask; i++) {
		for (entry = cache->buckets[i]; entry != NULL; entry = next) {
			next = entry->next;
			entry->next = buckets[entry->hash & (n - 1)];
			buckets[entry->hash & (n - 1)] = entry;
		}
	}
	free(cache->buckets);
	cache->buckets = buckets;
	cache->mask = n - 1;
}

static struct dns_entry *
new_entry(struct dnscache *cache, struct span name, bool v6, uint64_t hash)
{
	struct dns_entry *entry = calloc(1, sizeof(*entry) + name.len + 1), **bucket;

	if (entry == NULL)
		return NULL;
	if (cache->total > cache->mask)
		grow(cache);
	io_list_init(&entry->lru);
	io_list_init(&entry->waiters);
	entry->hash = hash;
	entry->v6 = v6;
	entry->name_len = (uint8_t)name.len;
	memcpy(entry->name, name.base, name.len);
	bucket = &cache->buckets[hash & cache->mask];
	entry->next = *bucket;
	*bucket = entry;
	cache->total++;
	return entry;
}

struct dns_entry *
dnscache_get(struct dnscache *cache, struct span name, bool v6)
{
	uint64_t hash = hash_bytes(name.base, name.len, cache->seed ^ v6);
	struct dns_entry *entry = cache->buckets[hash & cache->mask];

	assert(name.len <= UINT8_MAX);
	for (; entry != NULL; entry = entry->next)
		if (entry->hash == hash && entry->v6 == v6 &&
		    span_eq(span_of(entry->name, entry->name_len), name))
			break;
	if (entry == NULL)
		return new_entry(cache, name, v6, hash);
	if (!io_list_empty(&entry->lru)) {
		io_list_del(&entry->lru);
		io_list_add_head(&cache->lru, &entry->lru);
	}
	return entry;
}

void
dnscache_set_pending(struct dnscache *cache, struct dns_entry *entry)
{
	assert(!entry->pending);
	entry->pending = true;
	if (!io_list_empty(&entry->lru)) {
		io_list_del(&entry->lru);
		cache->stored--;
	}
}

void
dnscache_settle(struct dnscache *cache, struct dns_entry *entry, struct dns_answer *answer)
{
	entry->pending = false;
	if (answer == NULL) {
		remove_entry(cache, entry);
		return;
	}
	answer->refs++;
	dns_answer_unref(entry->answer);
	entry->answer = answer;
	io_list_add_head(&cache->lru, &entry->lru);
	cache->stored++;
	evict(cache);
}

/* SPDX-License-Identifier: ISC */
/*
 * The count by address is a chained hash table under one mutex: an accept costs
 * microseconds in the kernel, the lock tens of nanoseconds.
 */
#include "policy/limits.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

enum { BUCKETS_FIRST = 256 };	/* power of two; doubled when there are more addresses than buckets */

struct entry {
	struct entry	*next;
	struct addr	 addr;
	uint32_t	 sessions;
};

struct limits {
	atomic_uint	 max_sessions, max_per_ip;
	atomic_uint	 sessions;
	pthread_mutex_t	 lock;		/* all below */
	struct entry	**buckets;
	size_t		 bucket_count, entries;
	uint64_t	 seed;
};

struct limits *
limits_new(uint32_t max_sessions, uint32_t max_per_ip)
{
	struct limits *l = calloc(1, sizeof *l);

	if (l == NULL)
		return NULL;
	limits_set(l, max_sessions, max_per_ip);
	l->bucket_count = BUCKETS_FIRST;
	if ((l->buckets = calloc(l->bucket_count, sizeof *l->buckets)) == NULL) {
		free(l);
		return NULL;
	}
	/* Without entropy the table still works; it could only be made slow on purpose. */
	if (getrandom(&l->seed, sizeof l->seed, GRND_NONBLOCK) != sizeof l->seed)
		l->seed = (uint64_t)(uintptr_t)l;
	pthread_mutex_init(&l->lock, NULL);
	return l;
}

void
limits_set(struct limits *l, uint32_t max_sessions, uint32_t max_per_ip)
{
	atomic_store_explicit(&l->max_sessions, max_sessions, memory_order_relaxed);
	atomic_store_explicit(&l->max_per_ip, max_per_ip, memory_order_relaxed);
}

void
limits_free(struct limits *l)
{
	if (l == NULL)
		return;
	for (size_t i = 0; i < l->bucket_count; i++)
		for (struct entry *e = l->buckets[i], *next; e != NULL; e = next) {
			next = e->next;
			free(e);
		}
	pthread_mutex_destroy(&l->lock);
	free(l->buckets);
	free(l);
}

static struct entry **
find(struct limits *l, const struct addr *a)
{
	struct entry **e = &l->buckets[addr_hash_ip(a, l->seed) & (l->bucket_count - 1)];

	while (*e != NULL && !addr_same_ip(&(*e)->addr, a))
		e = &(*e)->next;
	return e;
}

static void
grow(struct limits *l)
{
	size_t n = l->bucket_count * 2;
	struct entry **buckets = calloc(n, sizeof *buckets);

	if (buckets == NULL)
		return;		/* longer chains, nothing worse */
	for (size_t i = 0; i < l->bucket_count; i++)
		for (struct entry *e = l->buckets[i], *next; e != NULL; e = next) {
			size_t b = addr_hash_ip(&e->addr, l->seed) & (n - 1);

			next = e->next;
			e->next = buckets[b];
			buckets[b] = e;
		}
	free(l->buckets);
	l->buckets = buckets;
	l->bucket_count = n;
}

static enum limits_verdict
enter_ip(struct limits *l, const struct addr *a)
{
	uint32_t max = atomic_load_explicit(&l->max_per_ip, memory_order_relaxed);
	struct entry **at = find(l, a);

	if (*at == NULL) {
		struct entry *e = calloc(1, sizeof *e);

		if (e == NULL)
			return LIMITS_NOMEM;
		e->addr = *a;
		*at = e;
		if (++l->entries > l->bucket_count) {
			e->sessions++;
			grow(l);
			return LIMITS_OK;
		}
	}
	if (max != 0 && (*at)->sessions >= max)
		return LIMITS_PER_IP;
	(*at)->sessions++;
	return LIMITS_OK;
}

/*
 * Unix peers have no address: only the total counts.  Counted without a limit
 * too: a reload may set one while they are there.
 */
static bool
counts_by_ip(const struct addr *a)
{
	return a->len != 0 && (a->sa.sa_family == AF_INET || a->sa.sa_family == AF_INET6);
}

enum limits_verdict
limits_enter(struct limits *l, const struct addr *a)
{
	uint32_t max = atomic_load_explicit(&l->max_sessions, memory_order_relaxed);
	enum limits_verdict v = LIMITS_OK;

	if (atomic_fetch_add_explicit(&l->sessions, 1, memory_order_relaxed) >= max && max != 0)
		v = LIMITS_SESSIONS;
	else if (counts_by_ip(a)) {
		pthread_mutex_lock(&l->lock);
		v = enter_ip(l, a);
		pthread_mutex_unlock(&l->lock);
	}
	if (v != LIMITS_OK)
		atomic_fetch_sub_explicit(&l->sessions, 1, memory_order_relaxed);
	return v;
}

void
limits_leave(struct limits *l, const struct addr *a)
{
	unsigned before = atomic_fetch_sub_explicit(&l->sessions, 1, memory_order_relaxed);

	assert(before > 0);
	if (!counts_by_ip(a))
		return;
	pthread_mutex_lock(&l->lock);
	struct entry **at = find(l, a), *e = *at;

	assert(e != NULL && e->sessions > 0);
	if (--e->sessions == 0) {
		*at = e->next;
		l->entries--;
		free(e);
	}
	pthread_mutex_unlock(&l->lock);
}

uint32_t
limits_sessions(const struct limits *l)
{
	return atomic_load_explicit(&l->sessions, memory_order_relaxed);
}

bool
limits_full(const struct limits *l)
{
	uint32_t max = atomic_load_explicit(&l->max_sessions, memory_order_relaxed);

	return max != 0 && limits_sessions(l) >= max;
}

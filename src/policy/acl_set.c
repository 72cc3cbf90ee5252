/* SPDX-License-Identifier: ISC */
/*
 * One table with open addressing for all three kinds; kind and tag go into the
 * hash.  Suffixes are tried at the dots, prefixes at the lengths that occur.
 */
#include "policy/acl_set.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "util/hash.h"

struct entry {
	uint32_t	offset, len;	/* in `text` */
	uint32_t	id;
	uint16_t	tag;
	uint16_t	kind;
};

/* The hash first: a miss seldom touches an entry. */
struct slot {
	uint32_t	hash;
	uint32_t	entry;		/* index + 1; 0 = free */
};

struct acl_set {
	char		*text;
	size_t		 text_bytes, text_room;
	struct entry	*entries;
	size_t		 count, room;
	struct slot	*slots;
	size_t		 slot_mask;
	uint32_t	*prefix_lens;	/* ascending, each once */
	size_t		 prefix_len_count;
	size_t		 suffix_min, suffix_max;	/* lengths that occur */
	unsigned	 kinds;		/* that occur */
	bool		 tags;
	uint64_t	 seed;
};

struct acl_set *
acl_set_new(void)
{
	struct acl_set *set = calloc(1, sizeof(*set));

	if (set == NULL)
		return NULL;
	set->suffix_min = SIZE_MAX;
	/* Lists come from third parties; without entropy they could only be slow. */
	if (getrandom(&set->seed, sizeof(set->seed), GRND_NONBLOCK) != sizeof(set->seed))
		set->seed = (uint64_t)(uintptr_t)set;
	return set;
}

void
acl_set_free(struct acl_set *set)
{
	if (set == NULL)
		return;
	free(set->text);
	free(set->entries);
	free(set->slots);
	free(set->prefix_lens);
	free(set);
}

bool
acl_set_has_tags(const struct acl_set *set)
{
	return set->tags;
}

size_t
acl_set_count(const struct acl_set *set)
{
	return set->count;
}

static int
add_text(struct acl_set *set, struct span text)
{
	size_t room = set->text_room == 0 ? 64 : set->text_room;
	char *grown;

	while (room - set->text_bytes < text.len)
		room *= 2;
	if (room > UINT32_MAX)
		return -ENOMEM;
	if (room != set->text_room) {
		grown = realloc(set->text, room);
		if (grown == NULL)
			return -ENOMEM;
		set->text = grown;
		set->text_room = room;
	}
	if (text.len != 0)
		memcpy(set->text + set->text_bytes, text.base, text.len);
	set->text_bytes += text.len;
	return 0;
}

int
acl_set_add(struct acl_set *set, enum acl_pattern kind, uint16_t tag, struct span text, uint32_t id)
{
	size_t offset = set->text_bytes;

	assert(set->slots == NULL && id != ACL_SET_NONE);
	if (set->count == set->room) {
		size_t room = set->room == 0 ? 4 : set->room * 2;
		struct entry *grown = reallocarray(set->entries, room, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		set->entries = grown;
		set->room = room;
	}
	if (add_text(set, text) != 0)
		return -ENOMEM;
	set->entries[set->count++] = (struct entry){ .offset = (uint32_t)offset,
	    .len = (uint32_t)text.len, .id = id, .tag = tag, .kind = (uint16_t)kind };
	set->kinds |= kind;
	set->tags |= tag != 0;
	if (kind == ACL_SUFFIX) {
		set->suffix_min = text.len < set->suffix_min ? text.len : set->suffix_min;
		set->suffix_max = text.len > set->suffix_max ? text.len : set->suffix_max;
	}
	return 0;
}

/* The slot of that pattern, or the free one where it would go. */
static struct slot *
find_slot(const struct acl_set *set, enum acl_pattern kind, uint16_t tag, struct span text,
    uint32_t *hash)
{
	uint64_t seed = set->seed ^ ((uint64_t)kind << 16 | tag);
	size_t at;

	*hash = (uint32_t)hash_bytes(text.len != 0 ? text.base : "", text.len, seed);
	for (at = *hash & set->slot_mask;; at = (at + 1) & set->slot_mask) {
		struct slot *slot = &set->slots[at];
		const struct entry *entry;

		if (slot->entry == 0)
			return slot;
		entry = &set->entries[slot->entry - 1];
		if (slot->hash == *hash && entry->kind == kind && entry->tag == tag &&
		    span_eq(span_of(set->text + entry->offset, entry->len), text))
			return slot;
	}
}

static int
order_lens(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int
collect_prefix_lens(struct acl_set *set)
{
	size_t count = 0, kept = 0;

	if ((set->kinds & ACL_PREFIX) == 0)
		return 0;
	set->prefix_lens = calloc(set->count, sizeof(*set->prefix_lens));
	if (set->prefix_lens == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < set->count; i++)
		if (set->entries[i].kind == ACL_PREFIX)
			set->prefix_lens[count++] = set->entries[i].len;
	qsort(set->prefix_lens, count, sizeof(*set->prefix_lens), order_lens);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || set->prefix_lens[i] != set->prefix_lens[kept - 1])
			set->prefix_lens[kept++] = set->prefix_lens[i];
	set->prefix_len_count = kept;
	return 0;
}

int
acl_set_seal(struct acl_set *set)
{
	size_t slots = 8;

	assert(set->slots == NULL);
	while (slots < set->count * 2)
		slots *= 2;
	if (set->count >= UINT32_MAX || collect_prefix_lens(set) != 0)
		return -ENOMEM;
	set->slots = calloc(slots, sizeof(*set->slots));
	if (set->slots == NULL)
		return -ENOMEM;
	set->slot_mask = slots - 1;
	for (size_t i = 0; i < set->count; i++) {
		struct entry *entry = &set->entries[i];
		uint32_t hash;
		struct slot *slot = find_slot(set, entry->kind, entry->tag,
		    span_of(set->text + entry->offset, entry->len), &hash);

		if (slot->entry == 0)
			*slot = (struct slot){ hash, (uint32_t)i + 1 };
		else if (set->entries[slot->entry - 1].id > entry->id)
			set->entries[slot->entry - 1].id = entry->id;
	}
	return 0;
}

static uint32_t
look_up(const struct acl_set *set, enum acl_pattern kind, uint16_t tag, struct span text,
    uint32_t best)
{
	uint32_t hash;
	const struct slot *slot = find_slot(set, kind, tag, text, &hash);

	if (slot->entry == 0 || set->entries[slot->entry - 1].id >= best)
		return best;
	return set->entries[slot->entry - 1].id;
}

uint32_t
acl_set_find(const struct acl_set *set, unsigned kinds, uint16_t tag, struct span text)
{
	uint32_t best = ACL_SET_NONE;

	assert(set->slots != NULL);
	kinds &= set->kinds;
	if ((kinds & ACL_LITERAL) != 0)
		best = look_up(set, ACL_LITERAL, tag, text, best);
	/* Never longer than the longest: a path of dots costs no more than a name. */
	if ((kinds & ACL_SUFFIX) != 0)
		for (size_t len = set->suffix_min; len <= set->suffix_max && len <= text.len; len++)
			if (text.base[text.len - len] == '.')
				best = look_up(set, ACL_SUFFIX, tag,
				    span_of(text.base + text.len - len, len), best);
	if ((kinds & ACL_PREFIX) != 0)
		for (size_t i = 0; i < set->prefix_len_count && set->prefix_lens[i] <= text.len; i++)
			best = look_up(set, ACL_PREFIX, tag, span_of(text.base, set->prefix_lens[i]),
			    best);
	return best;
}

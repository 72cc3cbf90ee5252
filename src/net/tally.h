/* SPDX-License-Identifier: ISC */
/*
 * tally: figures that one thread writes and any thread reads.  Not for figures
 * that several threads write.
 */
#ifndef RW_NET_TALLY_H
#define RW_NET_TALLY_H

#include <stdint.h>

static inline void
tally_set(uint64_t *figure, uint64_t value)
{
	__atomic_store_n(figure, value, __ATOMIC_RELAXED);
}

/* Load and store, not a locked add: there is only one writer. */
static inline void
tally_add(uint64_t *figure, uint64_t n)
{
	tally_set(figure, *figure + n);
}

static inline uint64_t
tally_get(const uint64_t *figure)
{
	return __atomic_load_n(figure, __ATOMIC_RELAXED);
}

#endif

/* SPDX-License-Identifier: ISC */
#include "histogram.h"

#define STEPS (1u << HISTOGRAM_STEP_BITS)

static unsigned
slot_of(uint64_t value)
{
	unsigned shift;

	if (value < STEPS)
		return (unsigned)value;
	shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_STEP_BITS;
	return ((shift + 1) << HISTOGRAM_STEP_BITS) + (unsigned)((value >> shift) & (STEPS - 1));
}

static uint64_t
upper_end(unsigned slot)
{
	unsigned shift = slot >> HISTOGRAM_STEP_BITS;

	if (shift == 0)
		return slot;
	shift--;
	return (((uint64_t)STEPS + (slot & (STEPS - 1)) + 1) << shift) - 1;
}

void
histogram_add(struct histogram *h, uint64_t value)
{
	h->count[slot_of(value)]++;
	h->total++;
}

uint64_t
histogram_quantile(const struct histogram *h, double q)
{
	uint64_t want = (uint64_t)((double)h->total * q);
	uint64_t seen = 0;

	if (want >= h->total)
		want = h->total - (h->total > 0);
	for (unsigned i = 0; i < HISTOGRAM_SLOTS; i++) {
		seen += h->count[i];
		if (seen > want)
			return upper_end(i);
	}
	return 0;
}

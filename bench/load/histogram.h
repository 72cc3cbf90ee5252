/* SPDX-License-Identifier: ISC */
/*
 * Counts of durations, log-linear: 64 steps in each power of two, so that a
 * quantile is at most 1.6% too large.  Never allocates.
 */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEP_BITS 6
#define HISTOGRAM_SLOTS ((64 - HISTOGRAM_STEP_BITS + 1) << HISTOGRAM_STEP_BITS)

struct histogram {
	uint64_t total;
	uint64_t count[HISTOGRAM_SLOTS];
};

void histogram_add(struct histogram *h, uint64_t value);

/* The upper end of the slot that the quantile q (0..1) is in; 0 if empty. */
uint64_t histogram_quantile(const struct histogram *h, double q);

#endif

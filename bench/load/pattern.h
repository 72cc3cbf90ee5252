/* SPDX-License-Identifier: ISC */
/*
 * The bytes that are sent: a fixed sequence whose period is a prime, so that a
 * piece that is lost, repeated or moved shows, and sending needs no copy.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define PATTERN_PIECE_MAX (128u * 1024)	/* bytes that may be read at pattern_at() */

void pattern_init(void);

/* The bytes of stream `key` from position `at` on; valid for ever. */
const unsigned char *pattern_at(uint32_t key, uint64_t at);

/* Streams of a connection's two ends. */
static inline uint32_t
pattern_key(uint32_t id, int origin)
{
	return id * 2 + (origin != 0);
}

#endif

/* SPDX-License-Identifier: ISC */
#include <string.h>

#include "pattern.h"

#define PERIOD 65521u	/* the largest prime below 64 KiB: source and table stay in L2 */

static unsigned char table[PERIOD + PATTERN_PIECE_MAX];

void
pattern_init(void)
{
	uint64_t state = 1;

	for (size_t i = 0; i < PERIOD; i++) {
		/* splitmix64 */
		uint64_t z = state += 0x9e3779b97f4a7c15;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
		z = (z ^ z >> 27) * 0x94d049bb133111eb;
		table[i] = (unsigned char)(z >> 56);
	}
	for (size_t i = PERIOD; i < sizeof(table); i++)
		table[i] = table[i - PERIOD];
}

const unsigned char *
pattern_at(uint32_t key, uint64_t at)
{
	return table + (key * 7919ull + at) % PERIOD;
}

/* SPDX-License-Identifier: ISC */
#include "util/hash.h"

#include <string.h>

/*
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), section 2.
 * One compression and three finalization rounds are enough for hash tables.
 */
struct sip {
	uint64_t	v0, v1, v2, v3;
};

static inline uint64_t
rotl(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static void
sip_rounds(struct sip *s, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		s->v0 += s->v1;
		s->v2 += s->v3;
		s->v1 = rotl(s->v1, 13) ^ s->v0;
		s->v3 = rotl(s->v3, 16) ^ s->v2;
		s->v0 = rotl(s->v0, 32);
		s->v2 += s->v1;
		s->v0 += s->v3;
		s->v1 = rotl(s->v1, 17) ^ s->v2;
		s->v3 = rotl(s->v3, 21) ^ s->v0;
		s->v2 = rotl(s->v2, 32);
	}
}

/* Up to 8 bytes, first one lowest: the same on every byte order. */
static uint64_t
load_le(const uint8_t *p, size_t count)
{
	uint64_t word = 0;

	for (size_t i = 0; i < count; i++)
		word |= (uint64_t)p[i] << (8 * i);
	return word;
}

static uint64_t
sip_hash(const uint8_t *p, size_t len, uint64_t k0, uint64_t k1, int compress, int finalize)
{
	struct sip s = {
		k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,	/* "somepseudorandomlygeneratedbytes" */
		k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u,
	};
	uint64_t word;
	size_t at = 0;

	for (; len - at >= 8; at += 8) {
		word = load_le(p + at, 8);
		s.v3 ^= word;
		sip_rounds(&s, compress);
		s.v0 ^= word;
	}
	word = (uint64_t)len << 56 | load_le(p + at, len - at);
	s.v3 ^= word;
	sip_rounds(&s, compress);
	s.v0 ^= word;
	s.v2 ^= 0xff;
	sip_rounds(&s, finalize);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t
hash_bytes(const void *data, size_t len, uint64_t seed)
{
	/* The second half of the key only has to be a fixed function of the first. */
	return sip_hash(data, len, seed, rotl(seed, 29) ^ 0x9e3779b97f4a7c15u, 1, 3);
}

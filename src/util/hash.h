/* SPDX-License-Identifier: ISC */
/*
 * hash: a keyed hash for tables whose keys come from the wire, so that nobody
 * can choose keys that all fall into one bucket.  Not for passwords or tokens.
 */
#ifndef RW_UTIL_HASH_H
#define RW_UTIL_HASH_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-1-3 under a key made from `seed`, the process's secret. */
uint64_t	hash_bytes(const void *, size_t, uint64_t seed);

#endif

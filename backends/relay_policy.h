/* SPDX-License-Identifier: ISC */
/*
 * relay_policy: when a relay direction moves from receive and send to splice,
 * and back.  One policy for every backend that can splice.
 *
 * Splice costs 0.35 to 0.4 of the CPU of a copy for bulk data, but 1.14 to 1.5
 * times as much for 64-byte requests (measured, kernel 6.18), and a pipe costs
 * about 3.3 us.  So the decision is by the size of consecutive receives, never
 * by the total: a long chatty session must stay on the copy path.
 */
#ifndef IO_RELAY_POLICY_H
#define IO_RELAY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RELAY_FULL_BYTES	= 32 * 1024,	/* a receive this large is bulk */
	RELAY_FULL_STREAK	= 4,		/* that many in a row: 128 KiB, a pipe is repaid by 32 KiB */
	RELAY_SMALL_BYTES	= 4 * 1024,	/* a splice this small is chat */
	RELAY_SMALL_STREAK	= 8,		/* that many in a row: back to the copy path */
	RELAY_PIPE_BYTES	= 256 * 1024,	/* 64 KiB pipes cost a tenth more, 1 MiB ones fall out of cache */
	RELAY_PIPE_MIN_BYTES	= 64 * 1024,	/* what pipe-user-pages-soft may leave: not worth it below */
	RELAY_TURN_BYTES	= 256 * 1024	/* one direction, one turn (C29) */
};

/* Copy path: true when the next round should splice.  *streak starts at 0. */
static inline bool
relay_wants_splice(uint8_t *streak, uint32_t received)
{
	*streak = received >= RELAY_FULL_BYTES ? (uint8_t)(*streak + 1) : 0;
	if (*streak < RELAY_FULL_STREAK)
		return false;
	*streak = 0;
	return true;
}

/* Splice path: true when the direction should go back to copying. */
static inline bool
relay_wants_copy(uint8_t *streak, uint32_t spliced)
{
	*streak = spliced <= RELAY_SMALL_BYTES ? (uint8_t)(*streak + 1) : 0;
	if (*streak < RELAY_SMALL_STREAK)
		return false;
	*streak = 0;
	return true;
}

#endif

/* SPDX-License-Identifier: ISC */
/*
 * alarm: wakes a loop for its next timer.  A timerfd that stays set over many
 * waits: with a timeout each wait would program the CPU's timer, in a virtual
 * machine a trap (4 to 6 % of the CPU of a message that comes alone).
 */
#ifndef IO_ALARM_H
#define IO_ALARM_H

#include "internal.h"

enum { ALARM_MIN_NS = 10000000 };	/* what is sooner is left to a timeout */

struct io_alarm {
	int		fd;		/* readable when it rings; need not be read.  -1: none to be had */
	uint64_t	at_ns;		/* when it rings; UINT64_MAX = not set */
};

/* Never fails: without a descriptor the timeouts do it. */
void	 io_alarm_open(struct io_alarm *);
void	 io_alarm_close(struct io_alarm *);
/* The timeout that is left when the alarm wakes too: UINT64_MAX when it rings by the loop's next timer. */
uint64_t io_alarm_for(struct io_alarm *, const struct io_loop *, uint64_t timeout_ns);
/* It was seen to be readable. */
static inline void
io_alarm_rang(struct io_alarm *a)
{
	a->at_ns = UINT64_MAX;
}

#endif

/* SPDX-License-Identifier: ISC */
/*
 * mutant: deliberate faults, compiled in by -DIO_MUTANT=IO_MUTANT_..., each of
 * which test/io must catch.  IO_MUTANT_NONE in every real build.
 */
#ifndef IO_MUTANT_H
#define IO_MUTANT_H

#define IO_MUTANT_NONE			0
#define IO_MUTANT_INLINE_CALLBACK	1	/* an immediate result calls back from inside the io_ call */
#define IO_MUTANT_CANCEL_BEFORE_TARGET	2	/* the final callback comes while the kernel still owns the op */
#define IO_MUTANT_LOST_LAST_BYTE	3	/* a receive reports one byte less */
#define IO_MUTANT_DOUBLE_FINAL		4	/* the final callback comes twice */
#define IO_MUTANT_EARLY_FREE		5	/* close calls back before the ops of the socket have ended */
#define IO_MUTANT_DROPPED_ACCEPT	6	/* every third connection is lost */
#define IO_MUTANT_LOST_PIECE		7	/* the last piece of a datagram is not sent */
#define IO_MUTANT_STALE_PEER		8	/* a batch has the peer of the batch before it, whosever that was */

#ifndef IO_MUTANT
#define IO_MUTANT IO_MUTANT_NONE
#endif

#endif

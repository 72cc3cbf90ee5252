/* SPDX-License-Identifier: ISC */
/*
 * fault: deliberate faults in session code, compiled in by
 * -DRW_FAULT=RW_FAULT_..., each of which test/sim must find.  RW_FAULT_NONE in
 * every real build; io/mutant.h is the same for the I/O layer.
 */
#ifndef RW_UTIL_FAULT_H
#define RW_UTIL_FAULT_H

#define RW_FAULT_NONE			0
#define RW_FAULT_LOST_HALF_CLOSE	1	/* the end of one side of a tunnel is not carried to the other */
#define RW_FAULT_DOUBLE_FREE		2	/* a cancelled dial is freed twice */

#ifndef RW_FAULT
#define RW_FAULT RW_FAULT_NONE
#endif

#endif

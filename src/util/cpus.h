/* SPDX-License-Identifier: ISC */
/*
 * cpus: how many processors this process may use, by affinity mask and by
 * cgroup quota, and which ones.
 */
#ifndef RW_UTIL_CPUS_H
#define RW_UTIL_CPUS_H

/* At least 1.  A quota of 1.5 CPUs counts as 2: rounded up. */
unsigned	cpus_usable(void);
/* Pins the calling thread to the i-th usable CPU (i modulo their number).  0 or a negative errno. */
int		cpus_pin(unsigned i);

#endif

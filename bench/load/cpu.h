/* SPDX-License-Identifier: ISC */
/*
 * CPU time of a proxy: all processes of its trees, with the threads that have
 * ended and the children that were waited for.
 */
#ifndef BENCH_CPU_H
#define BENCH_CPU_H

#include <stdbool.h>

struct cpu_usage;

/* Read the clocks of the trees below the roots.  The caller frees it. */
struct cpu_usage *cpu_read(const int *roots, unsigned n);
void cpu_free(struct cpu_usage *u);

/* Seconds that the processes used from one reading to the next. */
double cpu_between(const struct cpu_usage *from, const struct cpu_usage *to);

/* Seconds that this process has used. */
double cpu_own(void);

/* Returns 0 or a negative errno. */
int cpu_pin(int cpu);

#endif

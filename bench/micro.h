/* SPDX-License-Identifier: ISC */
/*
 * micro: what one call of a hot function costs.  Each case makes its inputs,
 * many different ones, and checks once that the answers are right; then it
 * runs calls without looking at a clock.
 */
#ifndef RW_BENCH_MICRO_H
#define RW_BENCH_MICRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct micro {
	const char	*name;
	const char	*what;		/* one line for --list */
	void		*(*new)(void);	/* inputs, checked */
	/* `calls` calls; the sum of what they gave keeps the compiler from leaving any out. */
	uint64_t	 (*run)(void *, size_t calls);
	void		 (*free)(void *);
};

/* Each ends with an entry without a name. */
extern const struct micro micro_wire[], micro_policy[], micro_loop[];

/* Ends the program: a wrong answer has no speed. */
void	 micro_must(bool, const char *what);
void	*micro_alloc(size_t bytes);	/* zeroed, never NULL */
/* The same numbers in every run. */
uint64_t micro_random(void);
uint32_t micro_below(uint32_t);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * micro [--list] [--quick] [NAME...]: one line of JSON for each case, median and
 * least of many rounds, in nanoseconds a call.
 */
#include "micro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	ROUND_NS_MIN = 5000000,	/* the clock and one interrupt vanish in it */
	ROUNDS = 61,
	ROUNDS_QUICK = 9
};

static const struct micro *const groups[] = { micro_wire, micro_policy, micro_loop };

void
micro_must(bool right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "micro: wrong: %s\n", what);
	exit(1);
}

void *
micro_alloc(size_t bytes)
{
	void *p = calloc(1, bytes);

	micro_must(p != NULL, "out of memory");
	return p;
}

uint64_t
micro_random(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;

	/* xorshift64*, by S. Vigna */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1du;
}

uint32_t
micro_below(uint32_t limit)
{
	return (uint32_t)((micro_random() >> 32) * limit >> 32);
}

/* ---- measuring --------------------------------------------------------- */

static uint64_t
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t
round_ns(const struct micro *m, void *inputs, size_t calls)
{
	static volatile uint64_t sink;
	uint64_t begin = clock_ns();

	sink = sink + m->run(inputs, calls);
	return clock_ns() - begin;
}

static int
order(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void
measure(const struct micro *m, unsigned rounds)
{
	double ns[ROUNDS];
	void *inputs = m->new();
	size_t calls = 1024;

	/* Finds how many calls are a round, and warms up doing so. */
	while (round_ns(m, inputs, calls) < ROUND_NS_MIN)
		calls *= 2;
	for (unsigned i = 0; i < rounds; i++)
		ns[i] = (double)round_ns(m, inputs, calls) / (double)calls;
	m->free(inputs);
	qsort(ns, rounds, sizeof(ns[0]), order);
	printf("{\"micro\":\"%s\",\"ns\":%.2f,\"min_ns\":%.2f,\"rounds\":%u}\n", m->name,
	    ns[rounds / 2], ns[0], rounds);
	fflush(stdout);
}

/* ---- command line ------------------------------------------------------ */

static bool
is_named(const char *name, char **names, int count)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return count == 0;
}

static bool
exists(const char *name)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
		for (const struct micro *m = groups[g]; m->name != NULL; m++)
			if (strcmp(m->name, name) == 0)
				return true;
	return false;
}

int
main(int argc, char **argv)
{
	unsigned rounds = ROUNDS;
	bool list = false;
	int names = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			rounds = ROUNDS_QUICK;
		} else if (strcmp(argv[i], "--list") == 0) {
			list = true;
		} else if (exists(argv[i])) {
			argv[names++] = argv[i];
		} else {
			fprintf(stderr, "usage: micro [--list] [--quick] [NAME...]\n"
			    "%s is no case: --list names them\n", argv[i]);
			return 2;
		}
	}
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
		for (const struct micro *m = groups[g]; m->name != NULL; m++) {
			if (!is_named(m->name, argv, names))
				continue;
			if (list)
				printf("%-22s %s\n", m->name, m->what);
			else
				measure(m, rounds);
		}
	}
	return 0;
}

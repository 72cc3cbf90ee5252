/* SPDX-License-Identifier: ISC */
/*
 * runner: sessions over a simulated kernel, seed by seed.
 *
 *	sim_suite [--seeds N] [--first S] [--seed S] [-v] [--twice N] [--keep-going]
 *
 * Seeds run in children, many to one; what a child was doing is in shared
 * memory, so that a crash or a hang has its seed and its last events too.
 * Every --twice'th seed runs twice, and must do the same again.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

enum { LAST_EVENTS = 50, SEED_LIMIT_S = 20, SEEDS_DEFAULT = 1000, TWICE_DEFAULT = 20, FAILURES_MAX = 10 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIMIT_FACTOR = 6 };
#else
enum { LIMIT_FACTOR = 1 };
#endif

struct shared {
	struct sim_trace trace;
	uint64_t	 seed;		/* under way */
	uint64_t	 done;
	uint64_t	 seen[SEEN_MAX];
};

void	__gcov_dump(void) __attribute__((weak));	/* in a build with --coverage: _exit does not write it */

static struct shared *shared;
static uint64_t first = 1, seeds = SEEDS_DEFAULT, twice = TWICE_DEFAULT;
static unsigned failures_max = FAILURES_MAX;
static const char *self;

static void
run_seed(uint64_t seed, bool again)
{
	uint64_t hash;

	alarm(SEED_LIMIT_S * LIMIT_FACTOR);
	shared->trace.seen = 0;
	world_run(seed, &shared->trace, false);
	if (again) {
		hash = shared->trace.hash;
		world_run(seed, &shared->trace, false);
		if (shared->trace.hash != hash) {
			snprintf(shared->trace.failure, sizeof shared->trace.failure,
			    "the seed did not do the same again");
			_exit(1);
		}
	}
	for (unsigned i = 0; i < SEEN_MAX; i++)
		shared->seen[i] += shared->trace.seen >> i & 1;
}

static void
child(uint64_t from, uint64_t to)
{
	for (uint64_t s = from; s < to; s++) {
		shared->seed = s;
		run_seed(s, twice != 0 && s % twice == 0);
		shared->done++;
	}
	fflush(NULL);
	if (__gcov_dump != NULL)
		__gcov_dump();
	_exit(0);
}

static void
report(int status)
{
	printf("FAIL seed %llu: ", (unsigned long long)shared->seed);
	if (shared->trace.failure[0] != '\0')
		printf("%s\n", shared->trace.failure);
	else if (WIFSIGNALED(status))
		printf("%s\n", WTERMSIG(status) == SIGALRM ? "took too long" : strsignal(WTERMSIG(status)));
	else
		printf("exit status %d\n", WEXITSTATUS(status));
	printf("the last events (kind, then what it says):\n");
	sim_print_trace(&shared->trace, LAST_EVENTS);
	printf("again, with all events and the log: %s --seed %llu -v\n", self,
	    (unsigned long long)shared->seed);
	fflush(stdout);
}

static unsigned
run_all(void)
{
	uint64_t next = first, end = first + seeds;
	unsigned failed = 0;

	while (next < end && failed < failures_max) {
		int status = 0;
		pid_t pid;

		fflush(NULL);
		shared->trace.failure[0] = '\0';
		if ((pid = fork()) == 0)
			child(next, end);
		if (pid == -1 || waitpid(pid, &status, 0) != pid)
			abort();
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			break;
		failed++;
		report(status);
		next = shared->seed + 1;
	}
	return failed;
}

static int
parse(int argc, char **argv, uint64_t *one, bool *verbose)
{
	for (int i = 1; i < argc; i++) {
		uint64_t *to = strcmp(argv[i], "--seeds") == 0 ? &seeds : strcmp(argv[i], "--seed") == 0 ? one :
		    strcmp(argv[i], "--first") == 0 ? &first : strcmp(argv[i], "--twice") == 0 ? &twice : NULL;

		if (strcmp(argv[i], "-v") == 0)
			*verbose = true;
		else if (strcmp(argv[i], "--max-failures") == 0 && i + 1 < argc)
			failures_max = (unsigned)atoi(argv[++i]);
		else if (to != NULL && i + 1 < argc)
			*to = strtoull(argv[++i], NULL, 10);
		else {
			fprintf(stderr, "sim_suite: what is %s?\n", argv[i]);
			return 2;
		}
	}
	return 0;
}

int
main(int argc, char **argv)
{
	uint64_t one = 0;
	bool verbose = false;
	unsigned failed;

	self = argv[0];
	if (parse(argc, argv, &one, &verbose) != 0)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		abort();
	if (one != 0 && verbose) {	/* here, for a debugger */
		setvbuf(stdout, NULL, _IOLBF, 0);
		world_run(one, &shared->trace, true);
		printf("seed %llu: passed, %llu events, hash %016llx\n", (unsigned long long)one,
		    (unsigned long long)shared->trace.count, (unsigned long long)shared->trace.hash);
		return 0;
	}
	if (one != 0) {
		first = one;
		seeds = 1;
	}
	failed = run_all();
	printf("seen in so many seeds:");
	for (unsigned i = 0; i < SEEN_MAX; i++)
		printf("%s %s %llu", i ? "," : "", sim_seen_names[i], (unsigned long long)shared->seen[i]);
	printf("\nsim: %llu passed, %u failed\n", (unsigned long long)shared->done, failed);
	return failed != 0;
}

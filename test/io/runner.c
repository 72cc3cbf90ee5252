/* SPDX-License-Identifier: ISC */
/*
 * runner: the conformance suite of the I/O contract, against one backend.
 *
 *	io-suite [-b BACKEND] [--uring-level N] [--no-ring] [--no-splice]
 *	         [--list] [--case SUBSTRING] [--no-fork] [--time-limit S]
 *	         [--max-failures N] [-v]
 *
 * Exit status 0 if no case failed.  Built as a mutant (io/mutant.h) it also
 * says which cases caught the mutant; --max-failures then saves time.
 */
#include <stdio.h>
#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#include <signal.h>
#endif

#include "io/mutant.h"
#include "suite.h"

enum { RULES = 32, CASE_LIMIT_S = 10, SANITIZER_FACTOR = 6 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

struct t_opts t_opts = { .backend = "auto", .uring_level = -1 };
static struct t_case *cases;
static const char *only_substring, *only_name;
static bool list, no_fork;
static unsigned max_failures;	/* 0: no limit */
static unsigned limit_s = CASE_LIMIT_S * (SANITIZED ? SANITIZER_FACTOR : 1);
#ifdef _WIN32
char t_self[1024];
static uintptr_t only_result;	/* handle of the memory for --only's verdict */
#endif

/* Sorted by file; within a file in the order written. */
void
t_register(struct t_case *c)
{
	struct t_case **at = &cases;

	while (*at != NULL && strcmp((*at)->file, c->file) <= 0)
		at = &(*at)->next;
	c->next = *at;
	*at = c;
}

static bool
wanted(const struct t_case *c)
{
	if (only_name != NULL)
		return strcmp(c->name, only_name) == 0;
	return only_substring == NULL || strstr(c->name, only_substring) != NULL ||
	    strstr(c->file, only_substring) != NULL;
}

static void
mark_rules(const char *tags, bool *covered)
{
	for (const char *p = tags; (p = strchr(p, 'C')) != NULL; p++) {
		long n = strtol(p + 1, NULL, 10);

		if (n >= 1 && n <= RULES)
			covered[n] = true;
	}
}

static int
usage(const char *what)
{
	fprintf(stderr, "io-suite: %s\n", what);
	return 2;
}

static int
parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		bool takes = strcmp(a, "-b") == 0 || strcmp(a, "--uring-level") == 0 ||
		    strcmp(a, "--case") == 0 || strcmp(a, "--only") == 0 ||
		    strcmp(a, "--result") == 0 ||
		    strcmp(a, "--time-limit") == 0 || strcmp(a, "--max-failures") == 0;

		if (takes && i + 1 == argc)
			return usage("an option lacks its value");
		if (strcmp(a, "-b") == 0)
			t_opts.backend = argv[++i];
		else if (strcmp(a, "--uring-level") == 0)
			t_opts.uring_level = atoi(argv[++i]);
		else if (strcmp(a, "--case") == 0)
			only_substring = argv[++i];
		else if (strcmp(a, "--only") == 0)
			only_name = argv[++i];
#ifdef _WIN32
		else if (strcmp(a, "--result") == 0)
			only_result = (uintptr_t)strtoul(argv[++i], NULL, 10);
#endif
		else if (strcmp(a, "--time-limit") == 0)
			limit_s = (unsigned)atoi(argv[++i]);
		else if (strcmp(a, "--max-failures") == 0)
			max_failures = (unsigned)atoi(argv[++i]);
		else if (strcmp(a, "--no-ring") == 0)
			t_opts.no_ring = true;
		else if (strcmp(a, "--no-splice") == 0)
			t_opts.no_splice = true;
		else if (strcmp(a, "--list") == 0)
			list = true;
		else if (strcmp(a, "--no-fork") == 0)
			no_fork = true;
		else if (strcmp(a, "-v") == 0)
			t_opts.verbose = true;
		else
			return usage("unknown option");
	}
	return 0;
}

#ifdef _WIN32
/* Without these the system asks somebody what to do, or starts a debugger. */
static void
aborted(int sig)
{
	(void)sig;
	_Exit(3);
}

static LONG WINAPI
crashed(EXCEPTION_POINTERS *e)
{
	fprintf(stderr, "exception %lx at %p\n", (unsigned long)e->ExceptionRecord->ExceptionCode,
	    e->ExceptionRecord->ExceptionAddress);
	TerminateProcess(GetCurrentProcess(), e->ExceptionRecord->ExceptionCode);
	return EXCEPTION_EXECUTE_HANDLER;
}

/* In a process of its own; the verdict goes to memory that the runner shares. */
static int
run_only(const struct t_case *c)
{
	struct t_case plain = *c;
	struct t_result own = { 0 }, *r = NULL;

	if (only_result != 0)
		r = MapViewOfFile((HANDLE)only_result, FILE_MAP_WRITE, 0, 0, 0);
	if (r == NULL)
		r = &own;
	signal(SIGABRT, aborted);
	SetUnhandledExceptionFilter(crashed);
	/* Its assertion is no news. */
	if ((c->flags & T_DIES) != 0 && freopen("NUL", "w", stderr) == NULL)
		return 1;
	plain.flags = 0;	/* alone here already */
	t_run_here(&plain, r);
	return r->verdict == T_FAIL;
}
#endif

static const char *
variant(void)
{
	static char text[64];
	int n = 0;

	text[0] = '\0';
	if (t_opts.uring_level >= 0)
		n += snprintf(text, sizeof text, " level-%d", t_opts.uring_level);
	snprintf(text + n, sizeof text - (size_t)n, "%s%s", t_opts.no_ring ? " no-ring" : "",
	    t_opts.no_splice ? " no-splice" : "");
	return text;
}

struct tally {
	bool		 covered[RULES + 1];
	unsigned	 passed, failed, skipped;
	char		*report;	/* a line for each failure */
	size_t		 report_len;
	char		 caught_by[400];
};

static void
failed(struct tally *t, const struct t_case *c, const char *reason)
{
	size_t used = strlen(t->caught_by), len;
	char line[700];

	t->failed++;
	len = (size_t)snprintf(line, sizeof line, "FAIL %s (%s): %s\n", c->name, c->rules, reason);
	if ((t->report = realloc(t->report, t->report_len + len + 1)) == NULL)
		abort();
	memcpy(t->report + t->report_len, line, len + 1);
	t->report_len += len;
	snprintf(t->caught_by + used, sizeof t->caught_by - used, " %s", c->name);
}

static void
run_one(struct tally *t, const struct t_case *c)
{
	struct t_result r = { 0 };
	uint64_t t0 = n_now_ns();

	t_run(c, &r, no_fork, limit_s);
	if (t_opts.verbose)
		printf("%-5s %5u ms  %s (%s)\n", r.verdict == T_PASS ? "ok" :
		    r.verdict == T_SKIP ? "skip" : "FAIL",
		    (unsigned)((n_now_ns() - t0) / 1000000), c->name, c->rules);
	switch (r.verdict) {
	case T_PASS:
		t->passed++;
		break;
	case T_SKIP:
		t->skipped++;
		printf("skip %s (%s): %s\n", c->name, c->rules, r.text);
		return;
	case T_FAIL:
		failed(t, c, r.text);
	}
	mark_rules(c->rules, t->covered);
}

/*
 * How often TCP met its memory limit, which is the whole machine's: under that
 * pressure windows shrink, data is dropped and connections are reset, in this
 * suite and out of it.  /proc/net/netstat: a line of names, a line of numbers.
 */
static unsigned long
tcp_memory_pressures(void)
{
	unsigned long sum = 0;
#ifdef __linux__
	static char names[8192], values[8192];
	FILE *f = fopen("/proc/net/netstat", "r");
	char *n, *v, *save_n, *save_v;

	if (f == NULL)
		return 0;
	if (fgets(names, sizeof names, f) != NULL && fgets(values, sizeof values, f) != NULL) {
		n = strtok_r(names, " \n", &save_n);
		v = strtok_r(values, " \n", &save_v);
		for (; n != NULL && v != NULL; n = strtok_r(NULL, " \n", &save_n),
		    v = strtok_r(NULL, " \n", &save_v))
			if (strcmp(n, "TCPMemoryPressuresChrono") == 0 ||
			    strcmp(n, "TCPRcvQDrop") == 0 || strcmp(n, "TCPAbortOnMemory") == 0)
				sum += strtoul(v, NULL, 10);
	}
	fclose(f);
#endif
	return sum;
}

static int
run_all(void)
{
	struct tally t = { 0 };
	unsigned long pressures = tcp_memory_pressures();
	unsigned rules = 0;

	for (const struct t_case *c = cases; c != NULL; c = c->next)
		if (wanted(c) && (max_failures == 0 || t.failed < max_failures))
			run_one(&t, c);
	if (t.report != NULL)
		fputs(t.report, stdout);
	free(t.report);
	if (t.failed > 0 && tcp_memory_pressures() != pressures)
		printf("note: this machine ran short of TCP memory meanwhile (tcp_mem)\n");
	for (int i = 1; i <= RULES; i++)
		rules += t.covered[i];
	if (t.skipped > 0)
		printf("skipped: %u\n", t.skipped);
	if (IO_MUTANT != IO_MUTANT_NONE)
		printf("mutant %d is %s%s\n", IO_MUTANT, t.failed ? "caught by" : "NOT CAUGHT",
		    t.caught_by);
	printf("rules: %u of %d covered\n", rules, RULES);
	printf("io %s%s: %u passed, %u failed\n", io_choice_name(&t_opts.choice), variant(),
	    t.passed, t.failed);
	return t.failed != 0;
}

int
main(int argc, char **argv)
{
	int rc;

	if ((rc = parse(argc, argv)) != 0)
		return rc;
	n_init();
#ifdef _WIN32
	_setmode(_fileno(stdout), _O_BINARY);	/* no CR: others read the counts */
	snprintf(t_self, sizeof t_self, "%s", argv[0]);
#endif
	if (list) {
		for (const struct t_case *c = cases; c != NULL; c = c->next)
			if (wanted(c))
				printf("%s\t%s\t%s\n", c->rules, c->name, strrchr(c->file, '/') ?
				    strrchr(c->file, '/') + 1 : c->file);
		return 0;
	}
	if ((rc = io_choose(&t_opts.choice, t_opts.backend, t_opts.uring_level)) != 0) {
		printf("no backend: %s\n", t_opts.choice.why);
		printf("rules: 0 of %d covered\n", RULES);
		printf("io %s%s: 0 passed, 1 failed\n", t_opts.backend, variant());
		return 1;
	}
#ifdef _WIN32
	for (const struct t_case *c = cases; only_name != NULL && c != NULL; c = c->next)
		if (wanted(c))
			return run_only(c);
#endif
	return run_all();
}

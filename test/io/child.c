/* SPDX-License-Identifier: ISC */
/* child: one case in one process, and the verdicts that cases give. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#ifdef _WIN32
#include <process.h>		/* _spawnv */
#else
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "suite.h"

struct t_result *t_result;

static bool in_process;
static jmp_buf out;
static _Thread_local bool main_thread;

static void
leave(void)
{
	if (in_process && main_thread)
		longjmp(out, 1);
	if (in_process)
		printf("%s\n", t_result->text);
	fflush(stdout);
	_Exit(1);
}

void
t_fail(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	va_list ap;
	int n;

	n = snprintf(t_result->text, sizeof t_result->text, "%s:%d: ",
	    base != NULL ? base + 1 : file, line);
	va_start(ap, fmt);
	vsnprintf(t_result->text + n, sizeof t_result->text - (size_t)n, fmt, ap);
	va_end(ap);
	t_result->verdict = T_FAIL;
	leave();
	abort();
}

void
t_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t_result->text, sizeof t_result->text, fmt, ap);
	va_end(ap);
	t_result->verdict = T_SKIP;
	leave();
	abort();
}

void
t_note(const char *fmt, ...)
{
	va_list ap;

	if (!t_opts.verbose)
		return;
	va_start(ap, fmt);
	printf("\t");
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
}

void
t_at(const char *file, int line)
{
	if (main_thread) {
		t_result->file = file;
		t_result->line = line;
	}
}

void
t_expect_abort(void)
{
	t_result->expects_abort = true;
}

void
t_run_here(const struct t_case *c, struct t_result *r)
{
	main_thread = true;
	in_process = true;
	t_result = r;
	r->verdict = T_PASS;
	if (c->flags & (T_DIES | T_ALONE)) {
		r->verdict = T_SKIP;
		snprintf(r->text, sizeof r->text, "not in this process");
		return;
	}
	t_loops_forget();
	if (setjmp(out) == 0)
		c->fn();
}

#ifdef _WIN32

/*
 * There is no fork: the program is started again for this case alone, and told
 * the handle, which it inherits, of the memory that its verdict goes to.
 */
static intptr_t
start(const struct t_case *c, HANDLE map)
{
	extern char t_self[];
	const char *argv[12];
	char level[16], handle[24];
	unsigned n = 0;

	snprintf(level, sizeof level, "%d", t_opts.uring_level);
	snprintf(handle, sizeof handle, "%lu", (unsigned long)(uintptr_t)map);
	argv[n++] = t_self;
	argv[n++] = "-b";
	argv[n++] = t_opts.backend;
	argv[n++] = "--uring-level";
	argv[n++] = level;
	argv[n++] = "--only";
	argv[n++] = c->name;
	argv[n++] = "--result";
	argv[n++] = handle;
	if (t_opts.no_splice)
		argv[n++] = "--no-splice";
	argv[n] = NULL;
	fflush(stdout);
	return _spawnv(_P_NOWAIT, t_self, argv);
}

static void
judge(const struct t_case *c, struct t_result *r, bool late, DWORD code, unsigned limit_s)
{
	const char *base = strrchr(c->file, '/');
	/* r->file is an address of the other process. */
	char where[120];

	if (!late && r->verdict != T_PASS)
		return;		/* the case spoke for itself */
	snprintf(where, sizeof where, "%.90s, after line %d", base != NULL ? base + 1 : c->file,
	    r->line);
	r->verdict = T_FAIL;
	if (late)
		snprintf(r->text, sizeof r->text, "%s: still running after %u s", where, limit_s);
	else if ((c->flags & T_DIES) == 0 && code == 0)
		r->verdict = T_PASS;
	else if ((c->flags & T_DIES) != 0 && code == 3 && r->expects_abort)
		r->verdict = T_PASS;
	else if ((c->flags & T_DIES) != 0)
		snprintf(r->text, sizeof r->text, "%s: %s (exit code %lx)", where,
		    r->expects_abort ? "the assertion did not fail" :
		    "ended before the point of interest", (unsigned long)code);
	else
		snprintf(r->text, sizeof r->text, "%s: exit code %lx", where, (unsigned long)code);
}

void
t_run(const struct t_case *c, struct t_result *r, bool here, unsigned limit_s)
{
	SECURITY_ATTRIBUTES inherit = { .nLength = sizeof inherit, .bInheritHandle = TRUE };
	struct t_result *shared;
	DWORD code = 0;
	HANDLE map;
	intptr_t h;
	bool late;

	if (here) {
		t_run_here(c, r);
		return;
	}
	map = CreateFileMappingA(INVALID_HANDLE_VALUE, &inherit, PAGE_READWRITE, 0, sizeof *r,
	    NULL);
	if (map == NULL || (shared = MapViewOfFile(map, FILE_MAP_WRITE, 0, 0, 0)) == NULL ||
	    (h = start(c, map)) == -1)
		abort();
	if ((late = WaitForSingleObject((HANDLE)h, limit_s * 1000) != WAIT_OBJECT_0))
		TerminateProcess((HANDLE)h, 1);
	else
		GetExitCodeProcess((HANDLE)h, &code);
	CloseHandle((HANDLE)h);
	*r = *shared;
	UnmapViewOfFile(shared);
	CloseHandle(map);
	judge(c, r, late, code, limit_s);
}

#else

static void
child_main(const struct t_case *c, int err_fd, int alive_fd)
{
	/* A case that hangs must not survive the runner. */
	alarm(300);
	dup2(err_fd, STDERR_FILENO);
	main_thread = true;
	c->fn();
	fflush(stdout);
	/* Not _exit: the leak checker, if there is one, has its say. */
	(void)alive_fd;
	exit(0);
}

/* The line of the child's stderr that says most: an assertion or a sanitizer's headline. */
static void
cause_of(int err_fd, char *to, size_t size)
{
	static char text[16384];
	ssize_t n = pread(err_fd, text, sizeof text - 1, 0);
	char *at, *end;

	to[0] = '\0';
	if (n <= 0)
		return;
	text[n] = '\0';
	if ((at = strstr(text, "Assertion")) == NULL && (at = strstr(text, "ERROR:")) == NULL &&
	    (at = strstr(text, "WARNING:")) == NULL && (at = strstr(text, "runtime error")) == NULL)
		at = text;
	if ((end = strchr(at, '\n')) != NULL)
		*end = '\0';
	snprintf(to, size, ": %.200s", at);
}

static void
judge(const struct t_case *c, struct t_result *r, int status, bool late, unsigned limit_s,
    int err_fd)
{
	const char *base = r->file != NULL ? strrchr(r->file, '/') : NULL;
	char where[120], cause[220];

	base = base != NULL ? base + 1 : r->file != NULL ? r->file : c->file;
	snprintf(where, sizeof where, "%.90s:%d", base, r->line);
	cause_of(err_fd, cause, sizeof cause);
	if (late) {
		r->verdict = T_FAIL;
		snprintf(r->text, sizeof r->text, "%s: still running after %u s", where, limit_s);
	} else if (r->verdict != T_PASS) {
		return;		/* the case spoke for itself */
	} else if (c->flags & T_DIES) {
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && r->expects_abort)
			return;
		r->verdict = T_FAIL;
		snprintf(r->text, sizeof r->text, "%s: %s%s", where, r->expects_abort ?
		    "the assertion did not fail" : "ended before the point of interest", cause);
	} else if (WIFSIGNALED(status)) {
		r->verdict = T_FAIL;
		snprintf(r->text, sizeof r->text, "%s: killed by signal %d (%s)%s", where,
		    WTERMSIG(status), strsignal(WTERMSIG(status)), cause);
	} else if (WEXITSTATUS(status) != 0) {
		r->verdict = T_FAIL;
		snprintf(r->text, sizeof r->text, "%s: exit code %d%s", where,
		    WEXITSTATUS(status), cause);
	}
}

static void
show_stderr(int fd)
{
	char buf[4096];
	ssize_t n;

	for (off_t at = 0; (n = pread(fd, buf, sizeof buf, at)) > 0; at += n)
		(void)!write(STDERR_FILENO, buf, (size_t)n);
}

void
t_run(const struct t_case *c, struct t_result *r, bool here, unsigned limit_s)
{
	struct pollfd p = { .events = POLLIN };
	int alive[2], status, err_fd;
	bool late;
	FILE *err;
	pid_t pid;

	if (here) {
		t_run_here(c, r);
		return;
	}
	t_result = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	    -1, 0);
	err = tmpfile();
	if (t_result == MAP_FAILED || err == NULL || pipe(alive) != 0)
		abort();
	err_fd = fileno(err);
	fflush(stdout);
	if ((pid = fork()) == 0) {
		close(alive[0]);
		child_main(c, err_fd, alive[1]);
	}
	/* The pipe reads as ended when the child is gone: a wait with a limit. */
	close(alive[1]);
	p.fd = alive[0];
	late = poll(&p, 1, (int)limit_s * 1000) == 0;
	if (late)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	close(alive[0]);
	*r = *t_result;
	munmap(t_result, sizeof *r);
	t_result = NULL;
	judge(c, r, status, late, limit_s, err_fd);
	if (t_opts.verbose || (r->verdict == T_FAIL && !(c->flags & T_DIES)))
		show_stderr(err_fd);
	fclose(err);
}

#endif

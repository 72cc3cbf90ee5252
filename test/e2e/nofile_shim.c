/* SPDX-License-Identifier: ISC */
/*
 * nofile_shim: for LD_PRELOAD.  Every way to ask for RLIMIT_NOFILE says 2^30,
 * as it is in some containers, and setting it succeeds: whoever sizes a table
 * or a loop by it shows.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#define HUGE_LIMIT ((rlim_t)1 << 30)

int	nofile_get(struct rlimit *);
int	shim_getrlimit(int, struct rlimit *) __asm__("getrlimit");
int	shim_getrlimit64(int, struct rlimit *) __asm__("getrlimit64");
int	shim_setrlimit(int, const struct rlimit *) __asm__("setrlimit");
int	shim_setrlimit64(int, const struct rlimit *) __asm__("setrlimit64");
int	shim_prlimit(pid_t, int, const struct rlimit *, struct rlimit *) __asm__("prlimit");
int	shim_prlimit64(pid_t, int, const struct rlimit *, struct rlimit *) __asm__("prlimit64");
long	shim_sysconf(int) __asm__("sysconf");
int	shim_getdtablesize(void) __asm__("getdtablesize");

int
nofile_get(struct rlimit *limit)
{
	limit->rlim_cur = HUGE_LIMIT;
	limit->rlim_max = HUGE_LIMIT;
	return 0;
}

static int
real_prlimit(pid_t pid, int what, const struct rlimit *new_limit, struct rlimit *old)
{
	static int (*real)(pid_t, int, const struct rlimit *, struct rlimit *);

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "prlimit64");
	return real(pid, what, new_limit, old);
}

int
shim_prlimit(pid_t pid, int what, const struct rlimit *new_limit, struct rlimit *old)
{
	if (what != RLIMIT_NOFILE)
		return real_prlimit(pid, what, new_limit, old);
	return old != NULL ? nofile_get(old) : 0;
}

int
shim_prlimit64(pid_t pid, int what, const struct rlimit *new_limit, struct rlimit *old)
{
	return shim_prlimit(pid, what, new_limit, old);
}

int
shim_getrlimit(int what, struct rlimit *limit)
{
	return shim_prlimit(0, what, NULL, limit);
}

int
shim_getrlimit64(int what, struct rlimit *limit)
{
	return shim_prlimit(0, what, NULL, limit);
}

int
shim_setrlimit(int what, const struct rlimit *limit)
{
	return shim_prlimit(0, what, limit, NULL);
}

int
shim_setrlimit64(int what, const struct rlimit *limit)
{
	return shim_prlimit(0, what, limit, NULL);
}

long
shim_sysconf(int name)
{
	static long (*real)(int);

	if (name == _SC_OPEN_MAX)
		return (long)HUGE_LIMIT;
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "sysconf");
	return real(name);
}

int
shim_getdtablesize(void)
{
	return (int)HUGE_LIMIT;
}

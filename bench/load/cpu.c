/* SPDX-License-Identifier: ISC */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"

struct process {
	int pid, parent;
	bool ours;
	double used_s;		/* by the process clock: ns, and dead threads count */
	double children_s;	/* of children waited for: clock ticks is all there is */
};

struct cpu_usage {
	size_t n, room;
	struct process v[];
};

static double
seconds_of(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		return 0;
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* proc(5), /proc/PID/stat: the name may hold anything, so count from its end. */
static bool
read_stat(struct process *p)
{
	unsigned long user = 0, system = 0;
	char path[64], line[1024], *end;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", p->pid);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = '\0';
	end = strrchr(line, ')');
	if (end == NULL || sscanf(end + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %lu %lu",
	    &p->parent, &user, &system) != 3)
		return false;
	p->children_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
	return true;
}

static struct cpu_usage *
read_all(void)
{
	struct cpu_usage *u = NULL;
	struct dirent *e;
	DIR *d = opendir("/proc");

	while (d != NULL && (e = readdir(d)) != NULL) {
		struct process p = { .pid = atoi(e->d_name) };

		if (!isdigit((unsigned char)e->d_name[0]) || !read_stat(&p))
			continue;
		if (u == NULL || u->n == u->room) {
			size_t room = u == NULL ? 64 : u->room * 2;
			struct cpu_usage *more = realloc(u, sizeof(*u) + room * sizeof(u->v[0]));

			if (more == NULL)
				break;
			if (u == NULL)
				more->n = 0;
			u = more;
			u->room = room;
		}
		u->v[u->n++] = p;
	}
	if (d != NULL)
		closedir(d);
	return u;
}

static bool
is_ours(const struct cpu_usage *u, const struct process *p, const int *roots, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (p->pid == roots[i])
			return true;
	for (size_t i = 0; i < u->n; i++)
		if (u->v[i].ours && u->v[i].pid == p->parent)
			return true;
	return false;
}

struct cpu_usage *
cpu_read(const int *roots, unsigned n)
{
	struct cpu_usage *u = n == 0 ? NULL : read_all();
	bool more = u != NULL;

	while (more) {
		more = false;
		for (size_t i = 0; i < u->n; i++)
			if (!u->v[i].ours && is_ours(u, &u->v[i], roots, n))
				u->v[i].ours = more = true;
	}
	for (size_t i = 0; u != NULL && i < u->n; i++) {
		clockid_t clock;

		if (u->v[i].ours && clock_getcpuclockid(u->v[i].pid, &clock) == 0)
			u->v[i].used_s = seconds_of(clock);
	}
	return u;
}

void
cpu_free(struct cpu_usage *u)
{
	free(u);
}

double
cpu_between(const struct cpu_usage *from, const struct cpu_usage *to)
{
	double sum = 0;

	for (size_t i = 0; to != NULL && i < to->n; i++) {
		const struct process *p = &to->v[i];

		if (!p->ours)
			continue;
		sum += p->used_s + p->children_s;
		for (size_t k = 0; from != NULL && k < from->n; k++)
			if (from->v[k].ours && from->v[k].pid == p->pid)
				sum -= from->v[k].used_s + from->v[k].children_s;
	}
	/*
	 * A child that was there at the start and has been waited for counts whole in
	 * its parent's sum: what it had used before is not the window's.
	 */
	for (size_t k = 0; from != NULL && to != NULL && k < from->n; k++) {
		bool still = !from->v[k].ours;

		for (size_t i = 0; i < to->n && !still; i++)
			still = to->v[i].pid == from->v[k].pid;
		if (!still)
			sum -= from->v[k].used_s + from->v[k].children_s;
	}
	return sum > 0 ? sum : 0;
}

double
cpu_own(void)
{
	return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

int
cpu_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) < 0 ? -errno : 0;
}

/* SPDX-License-Identifier: ISC */
#include "util/cpus.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* First line of a small file under /sys or /proc; false when it is not there. */
static int
read_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");
	int ok;

	if (f == NULL)
		return 0;
	ok = fgets(line, size, f) != NULL;
	fclose(f);
	return ok;
}

/* The path behind "0::" (cgroup v2) or behind ":cpu,cpuacct:" (v1) in /proc/self/cgroup. */
static int
cgroup_path(const char *controller, char *out, size_t size)
{
	char line[512];
	FILE *f = fopen("/proc/self/cgroup", "re");
	int found = 0;

	if (f == NULL)
		return 0;
	while (!found && fgets(line, sizeof line, f) != NULL) {
		char *names = strchr(line, ':'), *path;

		if (names == NULL || (path = strchr(names + 1, ':')) == NULL)
			continue;
		*path++ = '\0';
		names++;
		path[strcspn(path, "\n")] = '\0';
		if (controller == NULL)
			found = names[0] == '\0';
		else
			for (char *save, *n = strtok_r(names, ",", &save); n != NULL;
			    n = strtok_r(NULL, ",", &save))
				found |= strcmp(n, controller) == 0;
		if (found)
			snprintf(out, size, "%s", strcmp(path, "/") == 0 ? "" : path);
	}
	fclose(f);
	return found;
}

static unsigned
whole_cpus(long quota, long period)
{
	return quota <= 0 || period <= 0 ? 0 : (unsigned)((quota + period - 1) / period);
}

/* 0 = no quota.  The tightest of the group and those above it (cgroups(7)). */
static unsigned
quota_v2(void)
{
	char path[400], file[512], line[64];
	unsigned best = 0;

	if (!cgroup_path(NULL, path, sizeof path))
		return 0;
	for (;;) {
		long quota, period;
		char *slash;

		snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpu.max", path);
		if (read_line(file, line, sizeof line) &&
		    sscanf(line, "%ld %ld", &quota, &period) == 2) {
			unsigned n = whole_cpus(quota, period);

			if (n != 0 && (best == 0 || n < best))
				best = n;
		}
		if ((slash = strrchr(path, '/')) == NULL)
			return best;
		*slash = '\0';
	}
}

static unsigned
quota_v1(void)
{
	static const char *const mounts[] = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct" };
	char path[400], file[512], line[64];
	long quota = 0, period = 0;

	if (!cgroup_path("cpu", path, sizeof path))
		return 0;
	for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
		snprintf(file, sizeof file, "%s%s/cpu.cfs_quota_us", mounts[i], path);
		if (!read_line(file, line, sizeof line) || sscanf(line, "%ld", &quota) != 1)
			continue;
		snprintf(file, sizeof file, "%s%s/cpu.cfs_period_us", mounts[i], path);
		if (read_line(file, line, sizeof line) && sscanf(line, "%ld", &period) == 1)
			return whole_cpus(quota, period);
	}
	return 0;
}

unsigned
cpus_usable(void)
{
	cpu_set_t set;
	unsigned n, quota;

	n = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
	if ((quota = quota_v2()) == 0)
		quota = quota_v1();
	if (quota != 0 && quota < n)
		n = quota;
	return n > 0 ? n : 1;
}

int
cpus_pin(unsigned i)
{
	cpu_set_t set, one;
	unsigned n;

	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return -errno;
	if ((n = (unsigned)CPU_COUNT(&set)) == 0)
		return -EINVAL;
	i %= n;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set) || i-- != 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		return -pthread_setaffinity_np(pthread_self(), sizeof one, &one);
	}
	return -EINVAL;
}

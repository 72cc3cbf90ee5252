/* SPDX-License-Identifier: ISC */
/* What the tests of the access log share: a folder, a log, and a reader of lines. */
#ifndef RW_TEST_UNIT_TEST_ACCESSLOG_H
#define RW_TEST_UNIT_TEST_ACCESSLOG_H

#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/accesslog.h"

enum { SOON_MS = 20000, NEVER_MS = 600000 };	/* longer than a slow machine takes; not in this test */

static struct accesslog_totals totals;
static char dir[] = "/tmp/ringway-accesslog.XXXXXX";
static char path[256], old_path[256];
static FILE *errors;

/* Each test is a process of its own: a folder, and standard error is a file. */
static inline void
set_up(void)
{
	signal(SIGPIPE, SIG_IGN);
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/access.log", dir);
	snprintf(old_path, sizeof old_path, "%s/access.log.1", dir);
	cr_assert_not_null(errors = tmpfile());
	cr_assert(dup2(fileno(errors), STDERR_FILENO) == STDERR_FILENO);
}

static inline void
tear_down(void)
{
	unlink(path);
	unlink(old_path);
	rmdir(dir);
}

static inline const char *
error_log(void)
{
	static char text[65536];
	ssize_t got = pread(fileno(errors), text, sizeof text - 1, 0);

	cr_assert(got >= 0);
	text[got] = '\0';
	return text;
}

static inline uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline uint64_t
total(const uint64_t *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static inline bool
wait_until(bool (*come)(uint64_t), uint64_t n)
{
	uint64_t end = now_ms() + SOON_MS;

	while (!come(n)) {
		if (now_ms() > end)
			return false;
		usleep(1000);
	}
	return true;
}

static inline bool
lines_passed(uint64_t n)
{
	return total(&totals.lines) + total(&totals.dropped) >= n;
}

/* Until so many lines are written or dropped. */
static inline bool
wait_for_lines(uint64_t n)
{
	return wait_until(lines_passed, n);
}

static inline uint64_t
threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) == 0 ? (uint64_t)st.st_nlink - 2 : 0;
}

static inline bool
threads_are(uint64_t n)
{
	return threads() == n;
}

/* Descriptors of this process for the file that is called old_path now. */
static inline bool
old_paths_open_are(uint64_t n)
{
	char name[32], target[sizeof old_path];
	uint64_t count = 0;

	for (int fd = 0; fd < 256; fd++) {
		ssize_t len;

		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		len = readlink(name, target, sizeof target);
		count += len == (ssize_t)strlen(old_path) && memcmp(target, old_path, (size_t)len) == 0;
	}
	return count == n;
}

static inline struct accesslog *
open_log(const char *name, uint32_t flush_ms, uint32_t buffer_bytes)
{
	struct accesslog_config config = {
		.path = name, .flush_ms = flush_ms, .buffer_bytes = buffer_bytes
	};
	struct accesslog *log = NULL;

	cr_assert(accesslog_open(&log, &config, &totals) == 0);
	return log;
}

/* The lane's number is the user, the line's the id. */
static inline void
write_line(struct accesslog_lane *lane, unsigned number, uint64_t id)
{
	char user[16];
	struct access_entry e = {
		.start_us = 1785429394338999, .method = span_str("GET"), .target = span_str("/a/b/c"),
		.version = span_str("HTTP/1.1"), .acl = ACCESS_ACL_ALLOW, .id = id
	};

	snprintf(user, sizeof user, "lane%u", number);
	e.user = span_str(user);
	accesslog_write(lane, &e);
}

/* ---- reading what was written ---- */

enum { LANES_MAX = 8 };

struct seen {
	uint64_t	lines;
	uint64_t	broken;		/* not whole */
	uint64_t	disorder;	/* not behind the one before it of its lane */
	uint64_t	next[LANES_MAX];
};

static inline void
see_line(struct seen *seen, const char *line)
{
	const char *user = strstr(line, " user=lane"), *id = strstr(line, " id=");
	unsigned lane;
	unsigned long long n;
	char end;

	seen->lines++;
	if (strncmp(line, "2026-07-30T16:36:34.338Z - \"GET /a/b/c HTTP/1.1\" host=- ", 55) != 0 ||
	    user == NULL || id == NULL || sscanf(user, " user=lane%u ", &lane) != 1 ||
	    lane >= LANES_MAX || sscanf(id, " id=%llu%c", &n, &end) != 2 || end != '\n') {
		seen->broken++;
		return;
	}
	if (n < seen->next[lane])
		seen->disorder++;
	seen->next[lane] = n + 1;
}

static inline void
see_file(struct seen *seen, const char *name)
{
	FILE *f = fopen(name, "r");
	char line[512];

	if (f == NULL)
		return;
	while (fgets(line, sizeof line, f) != NULL)
		see_line(seen, line);
	fclose(f);
}

static inline void
expect_whole(const struct seen *seen, uint64_t lines)
{
	cr_expect(seen->broken == 0, "%llu broken lines", (unsigned long long)seen->broken);
	cr_expect(seen->disorder == 0, "%llu lines out of order", (unsigned long long)seen->disorder);
	cr_expect(seen->lines == lines, "%llu lines, not %llu", (unsigned long long)seen->lines,
	    (unsigned long long)lines);
}

#endif

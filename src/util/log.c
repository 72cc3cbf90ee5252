/* SPDX-License-Identifier: ISC */
#include "util/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * A line with its newline.  Not above PIPE_BUF (4096, pipe(7)), so that lines of
 * several threads never mix in a pipe to a log collector.
 */
enum { LINE_MAX_BYTES = 2048 };
/* Kept free for the cut mark, " suppressed=18446744073709551615 lost=..." and the newline. */
enum { TAIL_BYTES = 80 };

enum { LINES_PER_SECOND = 10 };

const struct log_who log_main = { .worker = -1, .session = 0 };

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
	[LOG_TRACE] = "trace",
};

/* sd-daemon(3): "<N>" in front of a line is its syslog(3) priority. */
static const char level_priority[] = {
	[LOG_ERROR] = '3',
	[LOG_WARN] = '4',
	[LOG_INFO] = '6',
	[LOG_DEBUG] = '7',
	[LOG_TRACE] = '7',
};

static atomic_int current_level = LOG_INFO;

static struct limiter {
	time_t		second;
	unsigned	written;	/* in that second */
	uint64_t	suppressed;	/* since the last line that was written */
} limiters[LOG_C_MAX];
static pthread_mutex_t limiter_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t lost;		/* under output_lock */

static bool to_journal;
static pthread_once_t journal_once = PTHREAD_ONCE_INIT;

void
log_set_level(enum log_level level)
{
	assert(level >= LOG_ERROR && level <= LOG_TRACE);
	atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

enum log_level
log_get_level(void)
{
	return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

bool
log_enabled(enum log_level level)
{
	return level <= log_get_level();
}

bool
log_level_parse(const char *name, enum log_level *level)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

const char *
log_level_name(enum log_level level)
{
	assert(level >= LOG_ERROR && level <= LOG_TRACE);
	return level_names[level];
}

/* systemd.exec(5), $JOURNAL_STREAM: device and inode must be those of our own stderr. */
static void
find_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device, inode;
	struct stat st;

	if (stream == NULL || fstat(STDERR_FILENO, &st) != 0 ||
	    sscanf(stream, "%ju:%ju", &device, &inode) != 2)
		return;
	to_journal = device == (uintmax_t)st.st_dev && inode == (uintmax_t)st.st_ino;
}

/* False: leave this line out.  True: `*suppressed` were left out before it. */
static bool
may_write(enum log_level level, enum log_cause cause, uint64_t *suppressed)
{
	unsigned allowed = cause == LOG_C_ACCEPT || cause == LOG_C_POOL ? 1 : LINES_PER_SECOND;
	struct limiter *limiter = &limiters[cause];
	struct timespec now;
	bool allow;

	*suppressed = 0;
	if (cause == LOG_C_NONE || level > LOG_INFO)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&limiter_lock);
	if (now.tv_sec != limiter->second) {
		limiter->second = now.tv_sec;
		limiter->written = 0;
	}
	allow = limiter->written < allowed;
	if (allow) {
		limiter->written++;
		*suppressed = limiter->suppressed;
		limiter->suppressed = 0;
	} else {
		limiter->suppressed++;
	}
	pthread_mutex_unlock(&limiter_lock);
	return allow;
}

/* Time (or priority), level, worker, session and a space. */
static size_t
put_head(char *line, enum log_level level, struct log_who who)
{
	char worker[16] = "main", session[24] = "-";
	struct timespec now;
	struct tm tm;
	size_t used;

	if (to_journal) {
		used = (size_t)sprintf(line, "<%c>", level_priority[level]);
	} else {
		clock_gettime(CLOCK_REALTIME, &now);
		gmtime_r(&now.tv_sec, &tm);
		used = strftime(line, 32, "%Y-%m-%dT%H:%M:%S", &tm);
		used += (size_t)sprintf(line + used, ".%03dZ ", (int)(now.tv_nsec / 1000000));
	}
	if (who.worker >= 0)
		snprintf(worker, sizeof(worker), "w%d", who.worker);
	if (who.session != 0)
		snprintf(session, sizeof(session), "%" PRIu64, who.session);
	used += (size_t)sprintf(line + used, "%s %s %s ", level_names[level], worker, session);
	return used;
}

/*
 * Copies the message so that it can neither end the line nor drive a terminal:
 * control bytes, DEL, and everything above ASCII (C1 controls hide there) as
 * \xNN; the backslash too, so that an escape can't be forged.
 */
static size_t
put_escaped(char *line, size_t used, const char *text, bool cut)
{
	const size_t limit = LINE_MAX_BYTES - TAIL_BYTES - 4;

	for (; *text != '\0' && used < limit; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20 || c >= 0x7f || c == '\\')
			used += (size_t)sprintf(line + used, "\\x%02x", c);
		else
			line[used++] = (char)c;
	}
	if (cut || *text != '\0')
		used += (size_t)sprintf(line + used, "...");
	return used;
}

/*
 * One line, whole, or not at all: a reader that has stopped (a pager, Ctrl-S, a
 * log driver under pressure) must not stop a worker and all its sessions with
 * it.  The descriptor may be shared with other processes, so it can't be made
 * non-blocking; but a pipe that polls writable takes PIPE_BUF bytes without
 * waiting (pipe(7)), and no line is longer.  One at a time, so that nobody takes
 * that room in between.
 */
static void
put_line(const char *line, size_t len, uint64_t lost_before)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	_Static_assert(LINE_MAX_BYTES <= PIPE_BUF, "a line must fit into a pipe's one write");
	pthread_mutex_lock(&output_lock);
	if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT)) {
		while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
			continue;
	} else
		lost += lost_before + 1;
	pthread_mutex_unlock(&output_lock);
}

/* Lines that nobody could be told, since the last that was. */
static uint64_t
take_lost(void)
{
	uint64_t n;

	pthread_mutex_lock(&output_lock);
	n = lost;
	lost = 0;
	pthread_mutex_unlock(&output_lock);
	return n;
}

void
log_write(enum log_level level, enum log_cause cause, struct log_who who, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES], text[LINE_MAX_BYTES];
	int saved_errno = errno, len;
	uint64_t suppressed, lost_before;
	size_t used;
	va_list ap;

	assert(cause >= LOG_C_NONE && cause < LOG_C_MAX);
	assert(level >= LOG_ERROR && level <= LOG_TRACE);
	if (!log_enabled(level) || !may_write(level, cause, &suppressed))
		goto out;
	pthread_once(&journal_once, find_journal);
	errno = saved_errno;	/* the caller may have written %m */
	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len < 0)
		snprintf(text, sizeof(text), "(message could not be formatted)");
	lost_before = take_lost();
	used = put_head(line, level, who);
	used = put_escaped(line, used, text, len >= (int)sizeof(text));
	if (suppressed != 0)
		used += (size_t)sprintf(line + used, " suppressed=%" PRIu64, suppressed);
	if (lost_before != 0)
		used += (size_t)sprintf(line + used, " lost=%" PRIu64, lost_before);
	line[used++] = '\n';
	put_line(line, used, lost_before);
out:
	errno = saved_errno;
}

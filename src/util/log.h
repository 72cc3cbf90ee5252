/* SPDX-License-Identifier: ISC */
/*
 * log: the error log.  One line an event:
 *
 *	time level worker session message key=value...
 *
 * to standard error, each line in one write(2) that never waits: when the reader
 * does not read, lines are lost, and the next one says how many (lost=N).  Lines are limited per cause
 * and second; what was left out is counted and told in the next line of that
 * cause.  Bytes that could break a line or a terminal are escaped.  Safe to
 * call from any thread; never called per relayed buffer.
 */
#ifndef RW_UTIL_LOG_H
#define RW_UTIL_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
	LOG_TRACE
};

/*
 * What the rate limit is kept by.  LOG_C_NONE is never limited (start, stop,
 * reload: events that a person caused); debug and trace lines never are.
 */
enum log_cause {
	LOG_C_NONE,
	LOG_C_ACCEPT,		/* EMFILE and its kin at accept: one a second */
	LOG_C_LIMIT,		/* a limit of ours refused a session */
	LOG_C_PROTOCOL,		/* malformed bytes from a client */
	LOG_C_UPSTREAM,		/* connect or response failed */
	LOG_C_RESOLVE,
	LOG_C_AUTH,		/* a password refused */
	LOG_C_ACL,		/* a rule refused */
	LOG_C_TIMEOUT,
	LOG_C_POOL,		/* buffer or pipe pool exhausted, stalled direction reset */
	LOG_C_ACCESSLOG,	/* lines lost, or the file not written */
	LOG_C_INTERNAL,
	LOG_C_MAX
};

/* Who speaks: worker number (-1 = main) and session id (0 = none). */
struct log_who {
	int		worker;
	uint64_t	session;
};

extern const struct log_who log_main;

void		 log_set_level(enum log_level);
enum log_level	 log_get_level(void);
bool		 log_level_parse(const char *name, enum log_level *);
const char	*log_level_name(enum log_level);

/* Drops the level check's cost when the line would not be written. */
bool		 log_enabled(enum log_level);

/* `fmt` is the message and its key=value pairs; string values from the wire go through "%s" and are escaped. */
void		 log_write(enum log_level, enum log_cause, struct log_who,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#define log_error(cause, who, ...)	log_write(LOG_ERROR, cause, who, __VA_ARGS__)
#define log_warn(cause, who, ...)	log_write(LOG_WARN, cause, who, __VA_ARGS__)
#define log_info(cause, who, ...)	log_write(LOG_INFO, cause, who, __VA_ARGS__)
#define log_debug(who, ...) \
	do { if (log_enabled(LOG_DEBUG)) log_write(LOG_DEBUG, LOG_C_NONE, who, __VA_ARGS__); } while (0)
#define log_trace(who, ...) \
	do { if (log_enabled(LOG_TRACE)) log_write(LOG_TRACE, LOG_C_NONE, who, __VA_ARGS__); } while (0)

#endif

/* SPDX-License-Identifier: ISC */
/*
 * accesslog: one line a request or tunnel, from many workers into one file.
 *
 *	worker --accesslog_write--> lane (ring of whole lines) --+
 *	worker --accesslog_write--> lane -------------------------+--> writer thread --> file
 *
 * A worker formats a line and copies it into its own lane: no lock, no system
 * call, but for waking a writer that sleeps (once every flush_ms under load).
 * The writer empties all lanes every flush_ms, as soon as one holds `buffer`
 * bytes, or at once if `immediate`; a lane goes out in one write.  So workers
 * need no timer, and a full disk, a slow disk or a pipe that nobody reads stop
 * no worker: when a lane is full, lines are dropped and counted.
 *
 * Lines are whole and in the order of their lane.  A write that fails in the
 * middle of a line is undone (regular files) or ended by a newline later.
 *
 * "Off" is a NULL lane: the caller's pointer check is all that it costs.
 * SIGPIPE must be ignored in the process.
 */
#ifndef RW_UTIL_ACCESSLOG_H
#define RW_UTIL_ACCESSLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "util/accessline.h"

struct accesslog;		/* a file and its writer thread */
struct accesslog_lane;		/* one worker's way to it */

struct accesslog_config {
	const char		*path;		/* "-" = standard output; copied */
	enum access_format	 format;
	uint32_t		 flush_ms;	/* 0 = immediate */
	uint32_t		 buffer_bytes;	/* a lane holds ACCESSLOG_LANE_BUFFERS of them */
	bool			 immediate;
};

enum { ACCESSLOG_LANE_BUFFERS = 4 };

/* Sums over all logs that were given this one; relaxed atomics, read by anyone. */
struct accesslog_totals {
	uint64_t	lines;		/* written */
	uint64_t	bytes;
	uint64_t	dropped;	/* lines: no room in the lane, or not written */
	uint64_t	errors;		/* failed writes */
};

/*
 * Opens (creates, mode 0640) the file and starts the writer; after daemonizing
 * and, as SIGUSR1 opens the file again, as the user who will run.  `totals` is
 * zeroed by the caller at first and outlives the process's last thread (so it
 * is static).  0 or negative errno.
 */
int	accesslog_open(struct accesslog **, const struct accesslog_config *,
	    struct accesslog_totals *totals);
/*
 * SIGUSR1: what is in the lanes goes to the old file, what comes later to a new
 * one of the same name.  The old one is kept when that can't be opened
 * (negative errno, logged).  From any thread; lines are neither lost nor doubled.
 */
int	accesslog_reopen(struct accesslog *);
/*
 * When all lanes are released, writes what they hold, closes, frees.  Waits up
 * to `wait_ms` for it and returns whether it is done; if not, the log frees
 * itself later or, with an output that takes nothing, gives up after
 * ACCESSLOG_GIVE_UP_MS.  On reload wait 0, at exit ACCESSLOG_GIVE_UP_MS and more.
 */
bool	accesslog_close(struct accesslog *, uint32_t wait_ms);

enum { ACCESSLOG_GIVE_UP_MS = 1000 };

/* A worker takes one and releases it when it stops or moves to another log.  NULL: out of memory. */
struct accesslog_lane *accesslog_lane_new(struct accesslog *);
void	accesslog_lane_release(struct accesslog_lane *);	/* NULL is fine */

/* On the lane's thread alone.  Never blocks. */
void	accesslog_write(struct accesslog_lane *, const struct access_entry *);

#endif

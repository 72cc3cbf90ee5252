/* SPDX-License-Identifier: ISC */
/* daemon_internal: what daemon.c (start and end) and reload.c (while it runs) share. */
#ifndef RW_DAEMON_INTERNAL_H
#define RW_DAEMON_INTERNAL_H

#include <signal.h>

#include "background.h"
#include "daemon.h"
#include "privs.h"
#include "sockets.h"
#include "status.h"
#include "worker.h"

struct daemon {
	const struct daemon_start *start;
	struct snapshot		*snapshot;	/* held: the running one */
	struct accesslog	*access;	/* NULL = none */
	struct worker_shared	 shared;
	struct worker		*workers;
	unsigned		 worker_count;
	struct sockets		 sockets;
	struct privs		 privs;
	struct background	 background;
	struct background_pidfile pidfile;
	struct status		 status;
	bool			 managed;	/* a service manager made the Unix sockets' files: not ours to unlink */
	uint64_t		 nofile;
	char			*program;	/* for SIGUSR2 */
	char			 via[24];	/* "ringway-1a2b3c4d": two of us in a chain are no loop */
	sigset_t		 signals;
	unsigned		 reloads_failed;
	uint64_t		 stats_ms;	/* when the statistics were logged last, or serving began */
	bool			 handed_over;	/* sockets, pid file and manager are the new process's */
};

/* limits.max_sessions, or what the descriptors allow. */
uint32_t	daemon_max_sessions(const struct daemon *, const struct conf *);
/* One for each worker, with the descriptors of new listeners; NULL after logging why not. */
struct worker_plan **daemon_plans(struct daemon *, struct snapshot *, struct accesslog *,
		    struct activation *inherited);
void		daemon_plans_free(struct daemon *, struct worker_plan **);
/* *out NULL when the log is off.  0 or a negative errno after logging. */
int		daemon_open_access(const struct conf *, struct accesslog **out);
void		daemon_log_problems(const struct conf_problems *);
/* One line of what has come since the start, after `what`: "stats", "stopped". */
void		daemon_log_counters(const struct daemon *, const char *what);
void		daemon_log_listeners(const struct snapshot *);
/* Signals until one ends it. */
void		daemon_serve(struct daemon *);

#endif

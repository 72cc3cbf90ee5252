/* SPDX-License-Identifier: ISC */
/*
 * daemon: the process: configuration to snapshot, listeners bound, workers
 * started, signals awaited.  Order of DESIGN's rule C31: signals are blocked
 * before any thread exists, main alone takes them.
 *
 *	SIGHUP	reload: all or nothing		SIGUSR1	open the access log again
 *	SIGUSR2	start the new program, hand the sockets over, drain
 *	SIGINT, SIGTERM	drain; a second one ends at once
 */
#ifndef RW_DAEMON_H
#define RW_DAEMON_H

#include "activation.h"
#include "cli.h"
#include "conf/conf.h"
#include "io/io.h"

struct daemon_start {
	const struct cli	*cli;		/* read again by each reload */
	struct conf		*conf;		/* taken over */
	const struct io_choice	*choice;
	struct activation	*inherited;
	char			**argv;		/* for SIGUSR2 */
};

/* RLIMIT_NOFILE raised to the hard limit; the new soft limit. */
uint64_t	daemon_raise_nofile(void);
/* Runs until a signal ends it; the exit code. */
int		daemon_run(const struct daemon_start *);

#endif

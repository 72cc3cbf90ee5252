/* SPDX-License-Identifier: ISC */
/*
 * daemon: the process: listeners bound, workers started, signals awaited,
 * drained, ended.  Order of DESIGN's rule C31: signals are blocked before any
 * thread exists, main alone takes them.
 */
#ifndef RW_DAEMON_H
#define RW_DAEMON_H

#include "conf/conf.h"
#include "io/io.h"

/* RLIMIT_NOFILE raised to the hard limit; the new soft limit. */
uint64_t	daemon_raise_nofile(void);
/* Runs until a signal ends it; the exit code. */
int		daemon_run(const struct conf *, const struct io_choice *);

#endif

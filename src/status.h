/* SPDX-License-Identifier: ISC */
/*
 * status: the file PIDFILE.reload, in which a script reads what came of the
 * SIGHUP that it sent (contrib/ringway-reload):
 *
 *	RELOAD <n> busy|ok|refused <pid> <unix seconds>
 *	<problems and warnings, as --check prints them>
 *	END <n>
 *
 * Opened before root is given up and then rewritten in place: one write of the
 * whole text, so that a reader sees an END that fits only when all is there.
 */
#ifndef RW_STATUS_H
#define RW_STATUS_H

#include "conf/problems.h"

struct status {
	int		fd;	/* -1 = no pid file, no status file */
	char		*path;
	unsigned	n;	/* of the last reload; 0 = the start */
};

void	status_init(struct status *);
/* "" or NULL = none.  Failing is not fatal: logged, and scripts wait in vain. */
void	status_open(struct status *, const char *pid_file);
/* A reload begins: before the configuration is read. */
void	status_busy(struct status *);
/* What came of it, or of the start (problems NULL). */
void	status_done(struct status *, int ok, const struct conf_problems *);
/* remove: unless the file is another process's by now. */
void	status_close(struct status *, int remove);

#endif

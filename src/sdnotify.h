/* SPDX-License-Identifier: ISC */
/*
 * sdnotify: tells the service manager how we are (sd_notify(3)), by hand over
 * the socket that NOTIFY_SOCKET names.  Without that variable each call does
 * nothing.  It never fails the daemon and never blocks it for more than a
 * second; what went wrong is one debug line in the log.  The variable stays
 * set: the program that SIGUSR2 starts talks to the same manager.
 *
 *	start:		sdnotify_ready()
 *	SIGHUP:		sdnotify_reloading(), then sdnotify_ready() whatever came of it
 *	SIGUSR2:	sdnotify_reloading(); once the new process serves:
 *			sdnotify_handed_over(), which makes it the main process; if
 *			it failed: sdnotify_ready().  The new one does not send READY
 *			at its start: it isn't the main process yet, so the manager
 *			would not listen (NotifyAccess=main).
 *	end:		sdnotify_stopping(); not after a hand-over
 */
#ifndef RW_SDNOTIFY_H
#define RW_SDNOTIFY_H

#include <stdbool.h>
#include <sys/types.h>

/* Is there somebody to tell? */
bool	sdnotify_wanted(void);

/* READY=1 and a status line; NULL = none. */
void	sdnotify_ready(const char *status);
/* RELOADING=1 with MONOTONIC_USEC, which Type=notify-reload needs. */
void	sdnotify_reloading(void);
void	sdnotify_stopping(const char *status);
/* MAINPID=pid and READY=1 in one message: nobody sees a service without either. */
void	sdnotify_handed_over(pid_t);
/* MAINPID=pid alone: after --daemon under a manager. */
void	sdnotify_mainpid(pid_t);
void	sdnotify_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "A=b\nC=d".  1 = sent, 0 = nobody there, or a negative errno. */
int	sdnotify_send(const char *message);

#endif

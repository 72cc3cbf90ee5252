/* SPDX-License-Identifier: ISC */
/*
 * background: --daemon, the word to whoever waits for us to be ready, and the
 * pid file.  It never logs and never exits but in background_detach().
 *
 *	background_detach()	after the configuration is read, before pid file,
 *				sockets, locks and threads; in the process that was
 *				started it does not return
 *	background_ready()	all loops run: that process exits with 0
 *	background_failed()	or they don't: it prints the text and exits with 1
 *
 * A program started by SIGUSR2 calls background_adopt() instead of
 * background_detach() (it is in the background already) and its waiting
 * predecessor background_look().
 */
#ifndef RW_BACKGROUND_H
#define RW_BACKGROUND_H

#include <stdbool.h>
#include <sys/types.h>

enum { BACKGROUND_TEXT_MAX = 512 };

struct background {
	int	ready_fd;	/* -1 = nobody waits */
	bool	detached;
};

/* In the foreground, nobody waits. */
void	background_init(struct background *);

/*
 * Two forks and a session of its own.  The working directory stays, as with
 * nginx: relative paths of the configuration mean the same to the start, to
 * reloads and to upgrades.  Standard streams stay as they are
 * until background_ready(), so that a failing start is seen.  0 in the daemon; a
 * negative errno with text when it couldn't be.  Keeps the signal mask.
 */
int	background_detach(struct background *, char text[BACKGROUND_TEXT_MAX]);
/* The pipe's end from a hand-over; -1 = nobody waits. */
void	background_adopt(struct background *, int ready_fd);
/*
 * Tells it.  After background_detach(), standard input, output and error become
 * /dev/null, except output and error that are regular files: an init script that
 * redirects them wants the log there.
 */
void	background_ready(struct background *);
/* Tells why not; "" or NULL when it stands on standard error already. */
void	background_failed(struct background *, const char *text);

enum background_verdict {
	BACKGROUND_STARTING,
	BACKGROUND_READY,
	BACKGROUND_FAILED	/* text says why; "" = it has said so itself, or just died */
};

/* What the other end has said, waiting for it up to timeout_ms (-1 = for ever, 0 = not at all). */
enum background_verdict	background_look(int ready_fd, int timeout_ms,
	    char text[BACKGROUND_TEXT_MAX]);

/*
 * The pid file.  Holding a flock(2) on it is what says that a process is alive;
 * the number in it is for people and scripts.  A lock belongs to the open file,
 * so a hand-over of the descriptor hands over the lock.
 */
struct background_pidfile {
	char	*path;
	int	 fd;		/* -1 = none */
	pid_t	 owner;		/* whose number we wrote; 0 = none yet */
};

void	background_pid_init(struct background_pidfile *);
/*
 * Creates it with this process's number, whole or not at all; as the final
 * process (after background_detach) and before root is given up.  "" or NULL =
 * no pid file.  -EEXIST with text when a live process holds it.  What a killed
 * process left is replaced.
 */
int	background_pid_take(struct background_pidfile *, const char *path,
	    char text[BACKGROUND_TEXT_MAX]);
/*
 * After a hand-over instead: the lock is held, the number in it is still the
 * old process's until background_pid_write().  pid_fd -1, or a file that is not
 * the one at `path` any more: as background_pid_take().
 */
int	background_pid_adopt(struct background_pidfile *, const char *path, int pid_fd,
	    char text[BACKGROUND_TEXT_MAX]);
/* This process's number, in place; once it serves. 0 or a negative errno. */
int	background_pid_write(struct background_pidfile *);
/*
 * At the end.  Removed if it is still ours: same file, our number in it.  Where
 * the directory forbids removing it (root has been given up), it is emptied.
 */
void	background_pid_release(struct background_pidfile *);

#endif

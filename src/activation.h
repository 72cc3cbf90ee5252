/* SPDX-License-Identifier: ISC */
/*
 * activation: listening sockets that were there before us: given by a service
 * manager (LISTEN_FDS, sd_listen_fds(3)), or handed over by the process that
 * SIGUSR2 told to start this one; and the handing over itself.  It never
 * accepts, binds only in activation_more(), and never decides what is served.
 *
 * The new process:
 *
 *	activation_take(&set)		first thing in main: before anything opens a
 *					descriptor, and before --daemon changes the pid
 *	for each listener:
 *	  activation_find(&set, addr, unix_path) until NULL
 *					every socket on that address; each has a backlog
 *					with clients in it, so each has to be accepted
 *					from, also when there are more than workers
 *					(activation_count() tells before)
 *	  activation_more(first)	for each worker that got none
 *	activation_rest(&set)		those that no listener asked for
 *	activation_free(&set)
 *
 * The old process, on SIGUSR2:
 *
 *	activation_spawn()		every listener's descriptor, pid file's
 *	background_look(child.ready_fd)	until the child serves
 *	then stop its own listeners (DESIGN C15: cancel, final callback, close) and
 *	drain.  Both may accept from one socket meanwhile.  A Unix socket's file now
 *	belongs to the child: don't unlink it.
 *
 * The variable of our own: RINGWAY_HANDOVER="ready=FD;pid=FD;managed;
 * listen=FD@ADDR;...".  ADDR is compared with the socket's own address, so a
 * variable that outlived its descriptors is noticed.
 */
#ifndef RW_ACTIVATION_H
#define RW_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "util/addr.h"

enum { ACTIVATION_TEXT_MAX = 512 };

enum activation_origin {
	ACTIVATION_NONE,
	ACTIVATION_MANAGER,	/* LISTEN_FDS */
	ACTIVATION_HANDOVER	/* the process before us */
};

struct activation_fd {
	int		 fd;		/* -1 once found: it is the caller's then; close-on-exec, non-blocking */
	struct addr	 addr;		/* as bound; len 0 and family AF_UNIX for Unix sockets */
	char		*unix_path;	/* NULL for IP; "@..." for abstract names */
	char		*name;		/* LISTEN_FDNAMES or NULL */
	bool		 reuseport;	/* others may be bound to its address */
	bool		 v6only;
};

struct activation {
	enum activation_origin	 origin;
	struct activation_fd	*fds;
	size_t			 count;
	bool			 managed;	/* by a manager, if long ago: Unix sockets' files are its, don't unlink */
	int			 ready_fd;	/* hand-over: for background_adopt(); else -1 */
	int			 pid_fd;	/* hand-over: for background_pid_adopt(); else -1 */
};

/*
 * Reads and unsets the variables and checks every descriptor.  0, also when
 * there was nothing; -EINVAL with text when a descriptor is not a listening
 * stream socket: starting all the same would bind what the manager holds.
 * activation_free() in all cases.
 */
int	activation_take(struct activation *, char text[ACTIVATION_TEXT_MAX]);
/* Closes what nobody asked for. */
void	activation_free(struct activation *);

/*
 * The next socket on this address, or NULL; its fd is the caller's from then on
 * and the entry lives until activation_free().  `unix_path` NULL = IP.  Port 0
 * matches every port: use the found one's address for the following calls, and
 * ask for such listeners after those with a port.  In the entry returned, `fd` is -1;
 * the descriptor is in *fd.
 */
const struct activation_fd *activation_find(struct activation *, const struct addr *,
	    const char *unix_path, int *fd);
/* How many activation_find() would still give. */
size_t	activation_count(const struct activation *, const struct addr *, const char *unix_path);

/*
 * One more descriptor to accept from on the address of `have`, of which `fd` is
 * open: a socket of its own if `have` was bound with SO_REUSEPORT, else, or when
 * the kernel refuses (other owner), a duplicate: several loops may accept from
 * one socket.  The descriptor or a negative errno.
 */
int	activation_more(const struct activation_fd *have, int fd, unsigned backlog);

/*
 * Sockets that no listener wanted.  From a manager that is a mistake in one of
 * the two configurations: -EADDRNOTAVAIL, and text names them all.  After a
 * hand-over it is a listener that the configuration has lost meanwhile: closed,
 * 0; the old process serves whom it has accepted.  `text` then names them too,
 * or is "".
 */
int	activation_rest(struct activation *, char text[ACTIVATION_TEXT_MAX]);

/* ---- for the old process ---- */

struct activation_handover {
	const int	*fds;		/* listening sockets; the same one twice is passed once */
	size_t		 count;
	int		 pid_fd;	/* background_pidfile.fd or -1 */
	bool		 managed;	/* as activation_take() told us */
};

struct activation_child {
	pid_t	pid;
	int	ready_fd;	/* for background_look(); the caller closes it */
};

/*
 * The program to start on SIGUSR2, asked at start: argv[0] made absolute, with
 * symbolic links left as they are, so that an upgrade that swaps a link or the
 * file is seen (/proc/self/exe is the old file for ever).  Malloc'd; NULL when
 * nothing was found.
 */
char	*activation_program(const char *argv0);

/*
 * Starts it with our environment plus RINGWAY_HANDOVER.  Only listeners, pid
 * file, the ready pipe and the standard streams stay open (all else is
 * close-on-exec).  May be called with threads running.  Credentials, ambient
 * capabilities and the signal mask are the calling thread's: with the signals
 * still blocked, none is lost before the new program waits for them.  0, or a
 * negative errno with text, also when the program can't be executed.  The
 * caller reaps the child.
 */
int	activation_spawn(const char *program, char *const argv[],
	    const struct activation_handover *, struct activation_child *,
	    char text[ACTIVATION_TEXT_MAX]);

#endif

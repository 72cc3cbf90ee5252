/* SPDX-License-Identifier: ISC */
/*
 * sockets: the listening sockets of all workers, as the daemon knows them: bound
 * at start and by reloads, or inherited.  Workers get their descriptors through
 * plans; the daemon keeps a copy of each for the hand-over (SIGUSR2).  A copy
 * left open would keep a port alive that no worker serves: sockets_keep() and
 * sockets_close() let go of them together with the workers.
 */
#ifndef RW_SOCKETS_H
#define RW_SOCKETS_H

#include "activation.h"
#include "policy/snapshot.h"
#include "privs.h"
#include "worker.h"

struct sockets_entry;

struct sockets {
	struct sockets_entry	*entries;	/* list */
	const struct privs	*owner;		/* who the sockets are given to; NULL = nobody */
};

/*
 * For each listener of the snapshot that is not there yet: a descriptor for each
 * of the plans.  `inherited` may be NULL.  0; or -1 after logging every problem:
 * then nothing has changed (what was put into the plans is freed with them).
 */
int	sockets_bind(struct sockets *, const struct snapshot *, struct activation *inherited,
	    struct worker_plan **plans, unsigned plan_count);
/* Lets go of what the snapshot has no listener for. */
void	sockets_keep(struct sockets *, const struct snapshot *);
/* Of all; unlink: Unix socket files that we made go too. */
void	sockets_close(struct sockets *, bool unlink);
/* Malloc'ed array of the copies; *count of them.  NULL when out of memory. */
int	*sockets_fds(const struct sockets *, size_t *count);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * worker: one thread, one loop, its listeners and sessions.  Other threads
 * reach it by worker_apply(), worker_drain() and worker_abort() alone, which
 * post.
 *
 *	worker_start -> (thread) make loop, pool, resolver, dialer -> apply the first
 *	  plan -> report -> turn until draining and no session is left -> tear down
 *	  -> worker_join
 */
#ifndef RW_WORKER_H
#define RW_WORKER_H

#include <pthread.h>
#include <semaphore.h>

#include "listener.h"
#include "net/env.h"
#include "policy/kdf.h"
#include "policy/limits.h"
#include "policy/snapshot.h"
#include "util/accesslog.h"

/* Same for all workers; owned by the daemon, outlives them. */
struct worker_shared {
	const struct io_choice	*choice;
	struct limits		*limits;
	struct kdf		*kdf;
	struct udpports		*udpports;
	uint32_t		 pipes_max;	/* of one worker */
	sem_t			 reported;	/* posted by each worker: up or failed; a plan applied */
};

/*
 * What a worker is to serve from now on: a snapshot, and a descriptor for each
 * of its listeners that the worker has not got yet.
 */
struct worker_plan {
	struct io_post		 post;
	struct worker		*worker;
	struct snapshot		*snapshot;	/* held */
	struct accesslog	*access;	/* NULL = none */
	/* Inherited sockets beyond one a worker: each has a backlog of its own. */
	struct worker_extra {
		size_t	listen;		/* index into conf->listen */
		io_fd	fd;
	}			*extra;		/* malloc'ed */
	size_t			 extra_count;
	size_t			 count;		/* = conf->listen_count */
	io_fd			 fds[];		/* IO_FD_NONE: the listener of that address is kept */
};

struct worker {
	struct worker_shared	*shared;
	unsigned		 number;
	struct env		 env;
	struct counters		 counters;
	struct worker_plan	*first;		/* for the start */

	/* The thread's own. */
	struct io_link		 listeners;
	struct accesslog	*access;	/* whose lane env.access is */
	size_t			 field_room;	/* of env.fields */
	struct io_link		 sessions;
	uint64_t		 next_session_id;	/* steps by the number of workers: unique in the process */
	uint64_t		 id_step;
	bool			 draining, aborting;
	unsigned		 closing;		/* parts that still have to report: listeners, dialer, resolver */
	struct io_timer		 relief;		/* while the pool is exhausted */

	/* For the daemon. */
	pthread_t		 thread;
	bool			 running;		/* the thread was created */
	int			 failed;		/* negative errno of the start, 0 = up */
	char			 failure[256];
	struct io_post		 drain_post, abort_post;
};

/* NULL when out of memory.  Holds the snapshot; all fds are IO_FD_NONE. */
struct worker_plan *worker_plan_new(struct snapshot *, struct accesslog *);
/* Of a plan that was never applied: closes its descriptors too. */
void	worker_plan_free(struct worker_plan *);

/*
 * The worker's number, shared part and first plan are set.  0 or a negative
 * errno; the thread reports through shared->reported and `failed`.
 */
int	worker_start(struct worker *);
/* Takes the plan over; shared->reported is posted when it is in force. */
void	worker_apply(struct worker *, struct worker_plan *);
void	worker_drain(struct worker *);		/* no new sessions, those there are may finish */
void	worker_abort(struct worker *);		/* end all of them now */
void	worker_join(struct worker *);

/* For sessions. */
uint64_t worker_session_begin(struct worker *, struct io_link *);
void	worker_session_end(struct worker *, struct io_link *, const struct addr *peer);

#endif

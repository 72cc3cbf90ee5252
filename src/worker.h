/* SPDX-License-Identifier: ISC */
/*
 * worker: one thread, one loop, its listeners and sessions.  Other threads
 * reach it by worker_drain() and worker_abort() alone, which post.
 *
 *	worker_start -> (thread) make loop, pool, resolver, dialer -> report ->
 *	  turn until draining and no session is left -> tear down -> worker_join
 */
#ifndef RW_WORKER_H
#define RW_WORKER_H

#include <pthread.h>
#include <semaphore.h>

#include "listener.h"
#include "net/env.h"
#include "policy/limits.h"

/* Same for all workers; owned by the daemon, outlives them. */
struct worker_shared {
	const struct conf	*conf;
	const struct io_choice	*choice;
	struct limits		*limits;
	uint32_t		 pipes_max;	/* of one worker */
	sem_t			 started;	/* posted once by each worker, up or failed */
};

struct worker {
	struct worker_shared	*shared;
	unsigned		 number;
	struct env		 env;
	struct counters		 counters;
	struct listener		*listeners;	/* descriptors given by the daemon */
	size_t			 listener_count;

	/* The thread's own. */
	struct resolver		*resolver;
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

/*
 * The worker's number, listeners and shared part are set.  0 or a negative
 * errno; the thread reports through shared->started and `failed`.
 */
int	worker_start(struct worker *);
void	worker_drain(struct worker *);		/* no new sessions, those there are may finish */
void	worker_abort(struct worker *);		/* end all of them now */
void	worker_join(struct worker *);

/* For sessions. */
uint64_t worker_session_begin(struct worker *, struct io_link *);
void	worker_session_end(struct worker *, struct io_link *, const struct addr *peer);

#endif

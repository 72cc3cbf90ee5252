/* SPDX-License-Identifier: ISC */
/*
 * kdf: verifies passwords on a few threads of its own, so that no worker waits
 * for a hash, and keeps count of the sources that get them wrong.
 *
 * Waiting jobs are kept by source address and taken in turn, one of each: a
 * flood from one source delays the others by one hash a round.  A source with
 * failures_per_minute failures in any minute is refused without a hash; jobs
 * that could go beyond that wait until those that run are done, so that the
 * number holds for all workers together.
 *
 *	kdf_submit: QUEUED -> WAITING -> RUNNING -> POSTED -> done()   (the loop's thread)
 *	                         |          |
 *	              kdf_cancel: true   false: done() will come, unless the loop refuses posts
 */
#ifndef RW_POLICY_KDF_H
#define RW_POLICY_KDF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"
#include "policy/password.h"
#include "util/addr.h"

struct kdf;
struct kdf_job;

enum kdf_verdict {
	KDF_MATCH,
	KDF_MISMATCH,
	KDF_THROTTLED		/* too many failures of this source: nothing was compared */
};

enum kdf_admission {
	KDF_QUEUED,
	KDF_REFUSED,		/* throttled */
	KDF_BUSY		/* too many are waiting, in all or from this source; or out of memory */
};

/* On the thread of the loop that submitted; the job is the caller's again. */
typedef void kdf_cb(struct io_loop *, struct kdf_job *);

/* Embedded in an object of its own life: it must stay put until done() or a true kdf_cancel(). */
struct kdf_job {
	/* Set by the caller; copies, since the session may leave before. */
	struct addr		 source;
	struct password_record	 record;
	bool			 known;		/* false: never a match, at the same cost */
	uint8_t			 pass_len;
	char			 pass[PASSWORD_BYTES_MAX]; /* wiped as soon as it was used */
	/* The result, in done(). */
	enum kdf_verdict	 verdict;
	/* Private. */
	uint8_t			 state;
	atomic_bool		 refused;
	struct io_loop		*loop;
	kdf_cb			*done;
	struct kdf_source	*from;
	struct io_link		 link;
	struct io_post		 post;
};

struct kdf_config {
	unsigned	 threads;		/* 0 = default */
	uint32_t	 queue_max;		/* waiting jobs in all; 0 = default */
	uint32_t	 queue_source_max;	/* of one source; 0 = default */
	uint32_t	 failures_per_minute;	/* 0 = no limit */
	uint64_t	(*now_s)(void);		/* tests; NULL = the monotonic clock */
};

struct kdf_stats {
	uint64_t	hashes;		/* done */
	uint64_t	failures;	/* of them, mismatches */
	uint64_t	throttled;	/* refused without a hash, at submission or later */
	uint64_t	busy;
	uint32_t	waiting, running;
	uint32_t	sources;	/* known at present: with jobs, or failures in the last minute */
};

/* 0 or -errno.  After signals were blocked: the threads block all of them. */
int		 kdf_new(struct kdf **, const struct kdf_config *);
/* Asserts that no job is left; waits for the threads. */
void		 kdf_free(struct kdf *);
void		 kdf_set_failures_per_minute(struct kdf *, uint32_t);	/* any thread, on reload */

/* On the loop's thread.  Only KDF_QUEUED will be called back, never from inside. */
enum kdf_admission kdf_submit(struct kdf *, struct io_loop *, struct kdf_job *, kdf_cb *done);
/* True: it will not run and is the caller's again.  False: too late. */
bool		 kdf_cancel(struct kdf *, struct kdf_job *);
/* True once the loop refused the job's post (C32): done() will not come, the job is the caller's. */
bool		 kdf_job_refused(const struct kdf_job *);
/* When it returns, no thread is inside io_post() for a job that was delivered before. */
void		 kdf_settle(struct kdf *);

/* Would a job of this source be refused now?  Any thread; costs nothing while nobody fails. */
bool		 kdf_throttled(struct kdf *, const struct addr *source);
struct kdf_stats kdf_stats(struct kdf *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * Hashers do nothing but hash, at a niceness that leaves the workers their
 * CPUs.  A manager, as nice as the workers, gives them their jobs and posts the
 * results.  One mutex over everything else: workers hold it for a look into a
 * hash table, the manager while it posts, so that kdf_settle() can tell that it
 * has left a loop alone.  No hasher ever holds it: on busy CPUs it could lose
 * its own with the mutex in its hand, and workers would wait for the least
 * important thread of all (0.1 s and more were seen).
 */
#include "policy/kdf.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "util/cpus.h"

enum {
	THREADS_MAX = 16,
	THREADS_DEFAULT = 2,		/* of 50 ms each: 40 new logins a second */
	CPUS_FOR_DEFAULT = 4,		/* below that, one */
	QUEUE_MAX = 512,		/* 12 s at that rate: more would wait for longer than their handshake may take */
	QUEUE_SOURCE_MAX = 128,
	BUCKETS = 1024,			/* power of two */
	SOURCES_MAX = 16384,		/* 3 MB; more failing ones than the threads can make in a minute */
	SLOT_S = 5,
	SLOTS = 60 / SLOT_S + 1,	/* a whole minute, and the slot that is being filled */
	NICE = 10			/* workers come first */
};

enum job_state { JOB_IDLE, JOB_WAITING, JOB_RUNNING, JOB_POSTED };

/* One address, while it has jobs or failures that count. */
struct kdf_source {
	struct kdf_source	*next;		/* in the bucket */
	struct addr		 addr;
	struct io_link		 turn;		/* on kdf->turns while jobs wait */
	struct io_link		 idle;		/* on kdf->idle while none wait or run */
	struct io_link		 jobs;
	uint32_t		 waiting, running;
	uint32_t		 failures;	/* sum of the slots */
	uint32_t		 slot[SLOTS];	/* a ring: slot tick % SLOTS is being filled */
	uint64_t		 tick;
};

struct hasher {
	pthread_t		 thread;
	struct kdf		*kdf;
	sem_t			 go;		/* the manager has set job */
	struct kdf_job		*job;		/* the manager's but between go and done; NULL after go = end */
	atomic_bool		 done;		/* match is set */
	bool			 match;
};

struct kdf {
	pthread_t		 manager;
	sem_t			 events;	/* something for the manager to look at */
	atomic_bool		 called;	/* events is up for what is not looked at yet */
	struct hasher		 hashers[THREADS_MAX];
	unsigned		 threads;	/* hashers that run */
	bool			 managed;	/* the manager runs */
	pthread_mutex_t		 lock;		/* all below, but what is set once */
	uint32_t		 queue_max, queue_source_max;
	uint64_t		(*now_s)(void);
	uint64_t		 seed;
	uint32_t		 limit;		/* failures_per_minute; 0 = none */
	bool			 stopping;
	struct kdf_source	*buckets[BUCKETS];
	atomic_uint		 sources;	/* read without the lock too */
	struct io_link		 turns;		/* sources with waiting jobs, the next one first */
	struct io_link		 idle;		/* sources, idle for longest first */
	struct kdf_stats	 stats;
};

static uint64_t
monotonic_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec;
}

/* ---- sources; with the lock held ---- */

static struct kdf_source **
source_at(struct kdf *k, const struct addr *a)
{
	struct kdf_source **at = &k->buckets[addr_hash_ip(a, k->seed) & (BUCKETS - 1)];

	while (*at != NULL && !addr_same_ip(&(*at)->addr, a))
		at = &(*at)->next;
	return at;
}

/* Forgets the failures that are older than a minute. */
static void
source_age(struct kdf *k, struct kdf_source *s)
{
	uint64_t now = k->now_s() / SLOT_S;

	if (now <= s->tick)
		return;
	/* All of them, when nothing was asked for longer than a minute. */
	for (unsigned i = 0; s->tick < now && i < SLOTS; i++) {
		uint32_t *oldest = &s->slot[++s->tick % SLOTS];

		s->failures -= *oldest;
		*oldest = 0;
	}
	s->tick = now;
}

static void
source_free(struct kdf *k, struct kdf_source *s)
{
	struct kdf_source **at = source_at(k, &s->addr);

	assert(*at == s && s->waiting == 0 && s->running == 0);
	*at = s->next;
	io_list_del(&s->idle);
	atomic_fetch_sub_explicit(&k->sources, 1, memory_order_relaxed);
	free(s);
}

/* Frees those whose last failure no longer counts, and the longest idle while there are too many. */
static void
sources_prune(struct kdf *k)
{
	while (!io_list_empty(&k->idle)) {
		struct kdf_source *s = io_container_of(k->idle.next, struct kdf_source, idle);

		source_age(k, s);
		if (s->failures != 0 && atomic_load_explicit(&k->sources, memory_order_relaxed) <
		    SOURCES_MAX)
			break;
		source_free(k, s);
	}
}

static struct kdf_source *
source_get(struct kdf *k, const struct addr *a)
{
	struct kdf_source **at = source_at(k, a), *s = *at;

	if (s != NULL)
		return s;
	if ((s = calloc(1, sizeof(*s))) == NULL)
		return NULL;
	s->addr = *a;
	s->tick = k->now_s() / SLOT_S;
	io_list_init(&s->turn);
	io_list_init(&s->idle);
	io_list_init(&s->jobs);
	*at = s;
	atomic_fetch_add_explicit(&k->sources, 1, memory_order_relaxed);
	return s;
}

static void
source_release(struct kdf *k, struct kdf_source *s)
{
	if (s->waiting != 0 || s->running != 0)
		return;
	if (s->failures == 0) {
		source_free(k, s);
		return;
	}
	io_list_del(&s->idle);
	io_list_add_tail(&k->idle, &s->idle);
	sources_prune(k);
}

static bool
source_over(const struct kdf *k, const struct kdf_source *s)
{
	return k->limit != 0 && s->failures >= k->limit;
}

/* Those that run could use up what is left of the minute. */
static bool
source_must_wait(const struct kdf *k, const struct kdf_source *s)
{
	return k->limit != 0 && !source_over(k, s) && s->running >= k->limit - s->failures;
}

static void
source_failed(struct kdf *k, struct kdf_source *s)
{
	k->stats.failures++;
	if (k->limit == 0)
		return;		/* nobody would look at it */
	source_age(k, s);
	s->slot[s->tick % SLOTS]++;
	s->failures++;
}

/* ---- the threads ---- */

static void
job_remove(struct kdf *k, struct kdf_job *job)
{
	struct kdf_source *s = job->from;

	assert(job->state == JOB_WAITING && s->waiting > 0 && k->stats.waiting > 0);
	io_list_del(&job->link);
	k->stats.waiting--;
	if (--s->waiting == 0)
		io_list_del(&s->turn);
}

/* The first job of the next source that may have one run. */
static struct kdf_job *
job_pick(struct kdf *k)
{
	for (struct io_link *l = k->turns.next; l != &k->turns; l = l->next) {
		struct kdf_source *s = io_container_of(l, struct kdf_source, turn);
		struct kdf_job *job;

		source_age(k, s);
		if (source_must_wait(k, s))
			continue;
		job = io_container_of(s->jobs.next, struct kdf_job, link);
		io_list_del(&s->turn);
		io_list_add_tail(&k->turns, &s->turn);
		job_remove(k, job);
		return job;
	}
	return NULL;
}

static void
on_posted(struct io_loop *loop, struct io_post *p)
{
	struct kdf_job *job = io_container_of(p, struct kdf_job, post);

	assert(job->state == JOB_POSTED);
	job->state = JOB_IDLE;
	job->done(loop, job);
}

static void
call_manager(struct kdf *k)
{
	if (!atomic_exchange_explicit(&k->called, true, memory_order_acq_rel))
		sem_post(&k->events);
}

static void
wait_for(sem_t *sem)
{
	while (sem_wait(sem) != 0)
		;	/* EINTR */
}

static void *
hasher_main(void *arg)
{
	struct hasher *h = arg;

#ifdef __linux__
	/* A thread's own niceness; elsewhere it would be the whole process's. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	pthread_setname_np(pthread_self(), "ringway-hash");
#endif
	for (;;) {
		struct kdf_job *job;

		wait_for(&h->go);
		if ((job = h->job) == NULL)
			return NULL;
		h->match = password_verify(&job->record, span_of(job->pass, job->pass_len)) & job->known;
		atomic_store_explicit(&h->done, true, memory_order_release);
		call_manager(h->kdf);
	}
}

/* ---- the manager; with the lock held ---- */

static void
job_deliver(struct kdf *k, struct kdf_job *job, enum kdf_verdict verdict)
{
	job->verdict = verdict;
	OPENSSL_cleanse(job->pass, sizeof(job->pass));
	source_release(k, job->from);
	job->from = NULL;
	job->state = JOB_POSTED;
	/* From here on the job is the loop's; or, refused, the caller's. */
	if (!io_post(job->loop, &job->post, on_posted))
		atomic_store_explicit(&job->refused, true, memory_order_release);
}

static void
collect(struct kdf *k, struct hasher *h)
{
	struct kdf_job *job = h->job;

	h->job = NULL;
	atomic_store_explicit(&h->done, false, memory_order_relaxed);
	job->from->running--;
	k->stats.running--;
	k->stats.hashes++;
	if (!h->match)
		source_failed(k, job->from);
	job_deliver(k, job, h->match ? KDF_MATCH : KDF_MISMATCH);
}

/* The next job that needs a hash; those before it are answered at once. */
static struct kdf_job *
job_to_hash(struct kdf *k)
{
	struct kdf_job *job;

	while ((job = job_pick(k)) != NULL && source_over(k, job->from)) {
		k->stats.throttled++;
		job_deliver(k, job, KDF_THROTTLED);
	}
	return job;
}

static void
assign(struct kdf *k, struct hasher *h)
{
	struct kdf_job *job = job_to_hash(k);

	if (job == NULL)
		return;
	job->state = JOB_RUNNING;
	job->from->running++;
	k->stats.running++;
	h->job = job;
	sem_post(&h->go);
}

static void *
manager_main(void *arg)
{
	struct kdf *k = arg;
	bool stopping;

#ifdef __linux__
	pthread_setname_np(pthread_self(), "ringway-kdf");
#endif
	do {
		wait_for(&k->events);
		(void)atomic_exchange_explicit(&k->called, false, memory_order_acq_rel);
		pthread_mutex_lock(&k->lock);
		/* All first: what they found counts for who is next. */
		for (unsigned i = 0; i < k->threads; i++)
			if (atomic_load_explicit(&k->hashers[i].done, memory_order_acquire))
				collect(k, &k->hashers[i]);
		for (unsigned i = 0; i < k->threads; i++)
			if (k->hashers[i].job == NULL)
				assign(k, &k->hashers[i]);
		stopping = k->stopping;
		pthread_mutex_unlock(&k->lock);
	} while (!stopping);
	return NULL;
}

/* ---- for the owner ---- */

static int
start_threads(struct kdf *k, unsigned wanted)
{
	sigset_t all, before;
	int rc = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (k->threads < wanted && rc == 0) {
		struct hasher *h = &k->hashers[k->threads];

		h->kdf = k;
		sem_init(&h->go, 0, 0);
		rc = -pthread_create(&h->thread, NULL, hasher_main, h);
		if (rc == 0)
			k->threads++;
		else
			sem_destroy(&h->go);
	}
	if (rc == 0)
		rc = -pthread_create(&k->manager, NULL, manager_main, k);
	k->managed = rc == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void
stop_threads(struct kdf *k)
{
	pthread_mutex_lock(&k->lock);
	assert(k->stats.waiting == 0 && k->stats.running == 0);
	k->stopping = true;
	pthread_mutex_unlock(&k->lock);
	call_manager(k);
	if (k->managed)
		pthread_join(k->manager, NULL);
	for (unsigned i = 0; i < k->threads; i++) {
		struct hasher *h = &k->hashers[i];

		assert(h->job == NULL);
		sem_post(&h->go);
		pthread_join(h->thread, NULL);
		sem_destroy(&h->go);
	}
}

int
kdf_new(struct kdf **out, const struct kdf_config *c)
{
	struct kdf *k = calloc(1, sizeof(*k));
	unsigned threads = c->threads;
	int rc;

	if (k == NULL)
		return -ENOMEM;
	if (threads == 0)
		threads = cpus_usable() < CPUS_FOR_DEFAULT ? 1 : THREADS_DEFAULT;
	k->queue_max = c->queue_max != 0 ? c->queue_max : QUEUE_MAX;
	k->queue_source_max = c->queue_source_max != 0 ? c->queue_source_max : QUEUE_SOURCE_MAX;
	k->limit = c->failures_per_minute;
	k->now_s = c->now_s != NULL ? c->now_s : monotonic_s;
	io_list_init(&k->turns);
	io_list_init(&k->idle);
	pthread_mutex_init(&k->lock, NULL);
	sem_init(&k->events, 0, 0);
	rc = RAND_bytes((unsigned char *)&k->seed, sizeof(k->seed)) == 1 ? 0 : -EIO;
	if (rc == 0)
		rc = start_threads(k, threads < THREADS_MAX ? threads : THREADS_MAX);
	if (rc != 0) {
		kdf_free(k);
		return rc;
	}
	*out = k;
	return 0;
}

void
kdf_free(struct kdf *k)
{
	if (k == NULL)
		return;
	stop_threads(k);
	while (!io_list_empty(&k->idle))
		source_free(k, io_container_of(k->idle.next, struct kdf_source, idle));
	assert(atomic_load(&k->sources) == 0);
	sem_destroy(&k->events);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

void
kdf_set_failures_per_minute(struct kdf *k, uint32_t limit)
{
	pthread_mutex_lock(&k->lock);
	k->limit = limit;
	pthread_mutex_unlock(&k->lock);
	call_manager(k);
}

static enum kdf_admission
admit(struct kdf *k, struct kdf_job *job)
{
	struct kdf_source *s;

	if (k->stats.waiting >= k->queue_max || (s = source_get(k, &job->source)) == NULL)
		return KDF_BUSY;
	source_age(k, s);
	if (source_over(k, s))
		return KDF_REFUSED;
	if (s->waiting >= k->queue_source_max)
		return KDF_BUSY;
	io_list_del(&s->idle);
	if (s->waiting++ == 0)
		io_list_add_tail(&k->turns, &s->turn);
	io_list_add_tail(&s->jobs, &job->link);
	k->stats.waiting++;
	job->from = s;
	job->state = JOB_WAITING;
	return KDF_QUEUED;
}

enum kdf_admission
kdf_submit(struct kdf *k, struct io_loop *loop, struct kdf_job *job, kdf_cb *done)
{
	enum kdf_admission a;

	assert(job->state == JOB_IDLE);
	atomic_init(&job->refused, false);
	job->loop = loop;
	job->done = done;
	pthread_mutex_lock(&k->lock);
	sources_prune(k);
	a = admit(k, job);
	if (a == KDF_REFUSED)
		k->stats.throttled++;
	else if (a == KDF_BUSY)
		k->stats.busy++;
	pthread_mutex_unlock(&k->lock);
	if (a == KDF_QUEUED)
		call_manager(k);
	return a;
}

bool
kdf_cancel(struct kdf *k, struct kdf_job *job)
{
	bool waiting;

	pthread_mutex_lock(&k->lock);
	waiting = job->state == JOB_WAITING;
	if (waiting) {
		job_remove(k, job);
		source_release(k, job->from);
		job->from = NULL;
		job->state = JOB_IDLE;
	}
	pthread_mutex_unlock(&k->lock);
	if (waiting)
		OPENSSL_cleanse(job->pass, sizeof(job->pass));
	return waiting;
}

bool
kdf_job_refused(const struct kdf_job *job)
{
	return atomic_load_explicit(&job->refused, memory_order_acquire);
}

void
kdf_settle(struct kdf *k)
{
	pthread_mutex_lock(&k->lock);
	pthread_mutex_unlock(&k->lock);
}

bool
kdf_throttled(struct kdf *k, const struct addr *source)
{
	struct kdf_source *s;
	bool over = false;

	if (atomic_load_explicit(&k->sources, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&k->lock);
	sources_prune(k);	/* else the look above would cost a lock for ever after */
	if ((s = *source_at(k, source)) != NULL) {
		source_age(k, s);
		over = source_over(k, s);
	}
	if (over)
		k->stats.throttled++;
	pthread_mutex_unlock(&k->lock);
	return over;
}

struct kdf_stats
kdf_stats(struct kdf *k)
{
	struct kdf_stats st;

	pthread_mutex_lock(&k->lock);
	sources_prune(k);
	st = k->stats;
	st.sources = atomic_load_explicit(&k->sources, memory_order_relaxed);
	pthread_mutex_unlock(&k->lock);
	return st;
}

/* SPDX-License-Identifier: ISC */
/*
 * One mutex over everything but the hashing itself.  Workers hold it for a look
 * into a hash table; the threads hold it while they post, so that kdf_settle()
 * can tell that they have left a loop alone.
 */
#include "policy/kdf.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <pthread.h>
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

struct kdf {
	pthread_mutex_t		 lock;		/* all below, but what is set once */
	pthread_cond_t		 work;
	pthread_t		 thread[THREADS_MAX];
	unsigned		 threads;
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
job_run(struct kdf *k, struct kdf_job *job)
{
	struct kdf_source *s = job->from;
	bool match;

	s->running++;
	k->stats.running++;
	pthread_mutex_unlock(&k->lock);
	match = password_verify(&job->record, span_of(job->pass, job->pass_len)) & job->known;
	pthread_mutex_lock(&k->lock);
	s->running--;
	k->stats.running--;
	k->stats.hashes++;
	job->verdict = match ? KDF_MATCH : KDF_MISMATCH;
	if (!match)
		source_failed(k, s);
	/* Others of this source may have waited for that. */
	pthread_cond_broadcast(&k->work);
}

static void *
thread_main(void *arg)
{
	struct kdf *k = arg;
	struct kdf_job *job;

#ifdef __linux__
	/* A thread's own niceness; elsewhere it would be the whole process's. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	pthread_setname_np(pthread_self(), "ringway-kdf");
#endif
	pthread_mutex_lock(&k->lock);
	for (;;) {
		while ((job = job_pick(k)) == NULL && !k->stopping)
			pthread_cond_wait(&k->work, &k->lock);
		if (job == NULL)
			break;
		job->state = JOB_RUNNING;
		if (source_over(k, job->from)) {
			job->verdict = KDF_THROTTLED;
			k->stats.throttled++;
		} else
			job_run(k, job);
		OPENSSL_cleanse(job->pass, sizeof(job->pass));
		source_release(k, job->from);
		job->from = NULL;
		job->state = JOB_POSTED;
		/* From here on the job is the loop's; or, refused, the caller's. */
		if (!io_post(job->loop, &job->post, on_posted))
			atomic_store_explicit(&job->refused, true, memory_order_release);
	}
	pthread_mutex_unlock(&k->lock);
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
		rc = -pthread_create(&k->thread[k->threads], NULL, thread_main, k);
		if (rc == 0)
			k->threads++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
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
	pthread_cond_init(&k->work, NULL);
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
	pthread_mutex_lock(&k->lock);
	assert(k->stats.waiting == 0 && k->stats.running == 0);
	k->stopping = true;
	pthread_cond_broadcast(&k->work);
	pthread_mutex_unlock(&k->lock);
	for (unsigned i = 0; i < k->threads; i++)
		pthread_join(k->thread[i], NULL);
	while (!io_list_empty(&k->idle))
		source_free(k, io_container_of(k->idle.next, struct kdf_source, idle));
	assert(atomic_load(&k->sources) == 0);
	pthread_cond_destroy(&k->work);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

void
kdf_set_failures_per_minute(struct kdf *k, uint32_t limit)
{
	pthread_mutex_lock(&k->lock);
	k->limit = limit;
	pthread_cond_broadcast(&k->work);
	pthread_mutex_unlock(&k->lock);
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
	if (a == KDF_QUEUED)
		pthread_cond_signal(&k->work);
	else if (a == KDF_REFUSED)
		k->stats.throttled++;
	else
		k->stats.busy++;
	pthread_mutex_unlock(&k->lock);
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

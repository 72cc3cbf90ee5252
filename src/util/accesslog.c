/* SPDX-License-Identifier: ISC */
#include "util/accesslog.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "util/accesslog_output.h"
#include "util/log.h"

enum {
	CACHE_LINE = 64,
	LANE_MIN_BYTES = 4 * ACCESS_LINE_MAX,	/* whatever `buffer` says: several of the longest lines */
	LOOK_MS = 100,		/* how often a writer that can't write looks whether it is still wanted */
	REPORT_EVERY_S = 10	/* error log lines about dropped ones; the first comes at once */
};

#ifdef __APPLE__		/* has no pthread_condattr_setclock() */
#define WAIT_CLOCK CLOCK_REALTIME
#else
#define WAIT_CLOCK CLOCK_MONOTONIC
#endif

/*
 * A ring of whole lines with one producer (the worker: head) and one consumer
 * (the writer: tail).  Both only grow; a place in the ring is its remainder.
 */
struct accesslog_lane {
	struct accesslog	*log;
	struct accesslog_lane	*next;		/* on log->lanes, until the log is freed */
	size_t			 size;
	char			*ring;
	struct access_clock	 clock;
	_Alignas(CACHE_LINE) _Atomic uint64_t head;
	_Alignas(CACHE_LINE) _Atomic uint64_t tail;
	_Alignas(CACHE_LINE) char line[ACCESS_LINE_MAX];
};

/*
 * What a worker has to know: IDLE must be woken by any line, NAPPING by a
 * buffer full of them, AWAKE looks at the lanes by itself.
 */
enum writer_state { WRITER_AWAKE, WRITER_NAPPING, WRITER_IDLE };

struct accesslog {
	enum access_format	 format;
	uint32_t		 flush_ms;
	size_t			 buffer_bytes;
	size_t			 kick_bytes;	/* a lane that holds as much wakes a nap; 1 = immediate */
	char			*path;
	struct accesslog_totals	*totals;
	pthread_t		 thread;

	atomic_int		 state;		/* enum writer_state */
	atomic_bool		 kicked;	/* some worker has woken the writer: others need not */
	_Atomic uint64_t	 dropped;

	pthread_mutex_t		 lock;		/* of all below, up to the writer's own */
	pthread_cond_t		 wake, gone;
	struct accesslog_lane	*lanes;
	unsigned		 lanes_open;
	struct accesslog_output	 next;		/* to be taken when the lanes are empty */
	bool			 poked;		/* look at the lanes now */
	bool			 closing, finished, abandoned;

	/* The writer's own. */
	struct accesslog_output	 out;
	int			 error;		/* errno of the last write, 0 = it went well */
	bool			 alarmed;	/* the error log was told of drops */
	uint64_t		 reported;	/* of `dropped` */
	time_t			 reported_s;
};

static void
count(uint64_t *total, uint64_t n)
{
	__atomic_fetch_add(total, n, __ATOMIC_RELAXED);
}

static void
count_dropped(struct accesslog *log, uint64_t lines)
{
	atomic_fetch_add_explicit(&log->dropped, lines, memory_order_relaxed);
	count(&log->totals->dropped, lines);
}

/* ---- the worker's side ---- */

/*
 * The store of head, then the load of state here, and the writer's store of
 * state, then its loads of the heads: all sequentially consistent, so one of
 * the two sees the other and no line is left to wait for the next one.
 */
static void
wake_if_due(struct accesslog *log, size_t held)
{
	int state = atomic_load(&log->state);

	if (state == WRITER_AWAKE || (state == WRITER_NAPPING && held < log->kick_bytes))
		return;
	if (atomic_exchange(&log->kicked, true))
		return;
	pthread_mutex_lock(&log->lock);
	pthread_cond_signal(&log->wake);
	pthread_mutex_unlock(&log->lock);
}

void
accesslog_write(struct accesslog_lane *lane, const struct access_entry *entry)
{
	struct accesslog *log = lane->log;
	size_t len = access_line(entry, log->format, &lane->clock, lane->line);
	uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_acquire);
	size_t held = (size_t)(head - tail), at = (size_t)(head % lane->size);
	size_t first = len < lane->size - at ? len : lane->size - at;

	if (len > lane->size - held) {
		count_dropped(log, 1);
		return;
	}
	memcpy(lane->ring + at, lane->line, first);
	memcpy(lane->ring, lane->line + first, len - first);
	atomic_store(&lane->head, head + len);
	wake_if_due(log, held + len);
}

/* ---- telling the error log ---- */

static void
report(struct accesslog *log, bool last)
{
	uint64_t dropped = atomic_load_explicit(&log->dropped, memory_order_relaxed);
	unsigned long long more = dropped - log->reported;
	struct timespec now;

	if (more == 0 && !log->alarmed)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (log->alarmed && !last && now.tv_sec - log->reported_s < REPORT_EVERY_S)
		return;
	errno = log->error;
	if (more != 0 && log->error != 0)
		log_error(LOG_C_ACCESSLOG, log_main, "access log lines dropped=%llu path=%s errno=%d cause=\"%m\"",
		    more, log->path, log->error);
	else if (more != 0)
		log_error(LOG_C_ACCESSLOG, log_main,
		    "access log lines dropped=%llu path=%s cause=\"the output is too slow\"", more, log->path);
	else if (log->error == 0)
		log_info(LOG_C_ACCESSLOG, log_main, "access log is whole again path=%s", log->path);
	log->alarmed = more != 0 || log->error != 0;
	log->reported = dropped;
	log->reported_s = now.tv_sec;
}

/* ---- emptying a lane ---- */

static int
lane_pieces(const struct accesslog_lane *lane, uint64_t from, size_t len, struct iovec iov[2])
{
	size_t at = (size_t)(from % lane->size);
	size_t first = len < lane->size - at ? len : lane->size - at;

	iov[0] = (struct iovec){ lane->ring + at, first };
	iov[1] = (struct iovec){ lane->ring, len - first };
	return len > first ? 2 : 1;
}

/* Newlines in it; `*behind` = bytes behind the last one, or all. */
static uint64_t
lane_lines(const struct accesslog_lane *lane, uint64_t from, size_t len, size_t *behind)
{
	struct iovec iov[2];
	int n = lane_pieces(lane, from, len, iov);
	uint64_t lines = 0;

	*behind = len;
	for (int i = 0; i < n; i++) {
		const char *p = iov[i].iov_base, *end = p + iov[i].iov_len, *nl;

		for (; (nl = memchr(p, '\n', (size_t)(end - p))) != NULL; p = nl + 1) {
			lines++;
			*behind = (size_t)(end - nl) - 1 + (i == 0 && n == 2 ? iov[1].iov_len : 0);
		}
	}
	return lines;
}

static void
lane_advance(struct accesslog_lane *lane, size_t len)
{
	uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);

	atomic_store_explicit(&lane->tail, tail + len, memory_order_release);
}

static size_t
lane_held(struct accesslog_lane *lane)
{
	return (size_t)(atomic_load(&lane->head) -
	    atomic_load_explicit(&lane->tail, memory_order_relaxed));
}

/*
 * As much as may go out in one write: to a pipe whole lines up to PIPE_BUF,
 * which neither mix with other writers' nor block after poll(2) (pipe(7)).
 */
static size_t
chunk(const struct accesslog *log, const struct accesslog_lane *lane, uint64_t from, size_t held)
{
	size_t behind, max = PIPE_BUF - 1;	/* and a newline for a torn line */

	if (log->out.regular || held <= max)
		return held;
	return lane_lines(lane, from, max, &behind) > 0 ? max - behind : max;
}

/* False: it takes nothing, and somebody wants the writer to go elsewhere. */
static bool
output_ready(struct accesslog *log)
{
	struct pollfd p = { .fd = log->out.fd, .events = POLLOUT };

	if (log->out.regular)
		return true;
	for (int waited_ms = 0;; waited_ms += LOOK_MS) {
		bool wanted_elsewhere;
		int n = poll(&p, 1, LOOK_MS);

		if (n > 0 || (n < 0 && errno != EINTR))
			return true;
		report(log, false);
		pthread_mutex_lock(&log->lock);
		wanted_elsewhere = log->next.fd >= 0 || (log->closing && log->lanes_open == 0);
		pthread_mutex_unlock(&log->lock);
		if (wanted_elsewhere && waited_ms >= ACCESSLOG_GIVE_UP_MS)
			return false;
	}
}

/* The lane's lines can't be written: they are lost.  `begun` bytes of the first are out already. */
static void
lane_lose(struct accesslog *log, struct accesslog_lane *lane, size_t held, size_t begun)
{
	uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
	size_t behind;

	if (begun > 0 && accesslog_output_undo(&log->out, begun))
		count(&log->totals->bytes, -(uint64_t)begun);
	else if (begun > 0)
		log->out.torn = true;
	count_dropped(log, lane_lines(lane, tail, held, &behind));
	lane_advance(lane, held);
}

/* The output has stopped inside a line, and the rest of that must not begin another output. */
static void
lane_skip_begun(struct accesslog *log, struct accesslog_lane *lane)
{
	uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
	size_t rest = 0;

	while (lane->ring[(tail + rest) % lane->size] != '\n')
		rest++;
	log->out.torn = true;
	lane_lose(log, lane, rest + 1, 0);
}

/* What it holds now.  False: given up, the lines are still there. */
static bool
lane_drain(struct accesslog *log, struct accesslog_lane *lane)
{
	size_t held = lane_held(lane), begun = 0, behind;

	while (held > 0) {
		uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
		struct iovec iov[2];
		uint64_t lines;
		ssize_t res;

		if (!output_ready(log)) {
			if (begun > 0)
				lane_skip_begun(log, lane);
			return false;
		}
		res = accesslog_output_write(&log->out, iov,
		    lane_pieces(lane, tail, chunk(log, lane, tail, held), iov));
		if (res == -EAGAIN) {
			poll(NULL, 0, LOOK_MS);		/* poll(2) promised more than there is */
			continue;
		}
		log->error = res < 0 ? (int)-res : 0;
		if (res < 0) {
			count(&log->totals->errors, 1);
			lane_lose(log, lane, held, begun);
			return true;
		}
		lines = lane_lines(lane, tail, (size_t)res, &behind);
		begun = lines > 0 ? behind : begun + behind;
		count(&log->totals->lines, lines);
		count(&log->totals->bytes, (uint64_t)res);
		lane_advance(lane, (size_t)res);
		held -= (size_t)res;
	}
	return true;
}

/* ---- the writer ---- */

static void
take_next_output(struct accesslog *log)
{
	struct accesslog_output old = { .fd = -1 };

	pthread_mutex_lock(&log->lock);
	if (log->next.fd >= 0) {
		old = log->out;
		log->out = log->next;
		log->next.fd = -1;
	}
	pthread_mutex_unlock(&log->lock);
	accesslog_output_close(&old);	/* may take long, as on NFS: workers must not wait for the lock */
}

/* With the lock held: nobody will write any more. */
static bool
over(const struct accesslog *log)
{
	return log->closing && log->lanes_open == 0;
}

/* All lanes once.  False: that was the last time. */
static bool
pass(struct accesslog *log)
{
	struct accesslog_lane *lanes;
	bool last, swap, given_up = false;

	pthread_mutex_lock(&log->lock);
	lanes = log->lanes;
	last = over(log);
	swap = log->next.fd >= 0;
	log->poked = false;
	atomic_store(&log->kicked, false);
	pthread_mutex_unlock(&log->lock);

	for (struct accesslog_lane *l = lanes; l != NULL && !given_up; l = l->next)
		given_up = !lane_drain(log, l);
	if (given_up) {
		pthread_mutex_lock(&log->lock);
		lanes = log->lanes;
		swap = log->next.fd >= 0;
		last = over(log) && !swap;	/* another output gets what this one did not take */
		pthread_mutex_unlock(&log->lock);
	}
	if (swap)
		take_next_output(log);
	for (struct accesslog_lane *l = lanes; l != NULL && last; l = l->next)
		if (lane_held(l) > 0)
			lane_lose(log, l, lane_held(l), 0);
	report(log, last);
	return !last;
}

static bool
some_lane_holds(struct accesslog *log, size_t bytes)
{
	for (struct accesslog_lane *l = log->lanes; l != NULL; l = l->next)
		if (lane_held(l) >= bytes)
			return true;
	return false;
}

static void
deadline_in(struct timespec *ts, uint32_t ms)
{
	clock_gettime(WAIT_CLOCK, ts);
	ts->tv_sec += ms / 1000;
	ts->tv_nsec += (long)(ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_nsec -= 1000000000;
		ts->tv_sec++;
	}
}

/* Until there is a line, and then until flush_ms later or a buffer is full. */
static void
rest(struct accesslog *log)
{
	struct timespec until;

	pthread_mutex_lock(&log->lock);
	atomic_store(&log->state, WRITER_IDLE);
	if (!some_lane_holds(log, 1))
		while (!atomic_load(&log->kicked) && !log->poked && !over(log))
			pthread_cond_wait(&log->wake, &log->lock);
	if (log->kick_bytes > 1) {
		deadline_in(&until, log->flush_ms);
		atomic_store(&log->kicked, false);
		atomic_store(&log->state, WRITER_NAPPING);
		if (!some_lane_holds(log, log->kick_bytes))
			while (!atomic_load(&log->kicked) && !log->poked && !over(log) &&
			    pthread_cond_timedwait(&log->wake, &log->lock, &until) == 0)
				;
	}
	atomic_store(&log->state, WRITER_AWAKE);
	pthread_mutex_unlock(&log->lock);
}

static void
log_free(struct accesslog *log)
{
	for (struct accesslog_lane *l = log->lanes, *next; l != NULL; l = next) {
		next = l->next;
		free(l->ring);
		free(l);
	}
	accesslog_output_close(&log->next);
	accesslog_output_close(&log->out);
	pthread_cond_destroy(&log->wake);
	pthread_cond_destroy(&log->gone);
	pthread_mutex_destroy(&log->lock);
	free(log->path);
	free(log);
}

static void *
writer(void *arg)
{
	struct accesslog *log = arg;
	bool abandoned;

	while (pass(log))
		rest(log);
	accesslog_output_close(&log->out);
	pthread_mutex_lock(&log->lock);
	abandoned = log->abandoned;
	log->finished = true;
	pthread_cond_signal(&log->gone);
	pthread_mutex_unlock(&log->lock);
	if (abandoned)
		log_free(log);
	return NULL;
}

/* ---- life ---- */

static int
start_writer(struct accesslog *log)
{
	sigset_t all, before;
	int rc;

	/* Main takes the signals; and a file size limit is EFBIG then, no SIGXFSZ that kills. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&log->thread, NULL, writer, log);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
#ifdef __linux__
	if (rc == 0)
		pthread_setname_np(log->thread, "ringway-log");
#endif
	return rc;
}

int
accesslog_open(struct accesslog **out, const struct accesslog_config *config,
    struct accesslog_totals *totals)
{
	struct accesslog *log = calloc(1, sizeof *log);
	pthread_condattr_t attr;
	int rc;

	if (log == NULL)
		return -ENOMEM;
	log->out.fd = log->next.fd = -1;
	log->format = config->format;
	log->flush_ms = config->flush_ms;
	log->buffer_bytes = config->buffer_bytes;
	log->kick_bytes = config->immediate || config->flush_ms == 0 || config->buffer_bytes == 0 ?
	    1 : config->buffer_bytes;
	log->totals = totals;
	pthread_mutex_init(&log->lock, NULL);
	pthread_condattr_init(&attr);
#ifndef __APPLE__
	pthread_condattr_setclock(&attr, WAIT_CLOCK);
#endif
	pthread_cond_init(&log->wake, &attr);
	pthread_cond_init(&log->gone, &attr);
	pthread_condattr_destroy(&attr);
	if ((log->path = strdup(config->path)) == NULL)
		rc = -ENOMEM;
	else if ((rc = accesslog_output_open(&log->out, log->path)) == 0)
		rc = start_writer(log);
	if (rc != 0)
		log_free(log);
	*out = rc == 0 ? log : NULL;
	return rc;
}

int
accesslog_reopen(struct accesslog *log)
{
	struct accesslog_output next = { .fd = -1 }, unused;
	int rc = 0;

	/* There is no other standard output to open; what is held goes out. */
	if (strcmp(log->path, "-") != 0 && (rc = accesslog_output_open(&next, log->path)) != 0) {
		errno = -rc;
		log_error(LOG_C_NONE, log_main,
		    "access log not reopened, the old file is kept path=%s errno=%d cause=\"%m\"",
		    log->path, -rc);
	}
	pthread_mutex_lock(&log->lock);
	assert(!log->closing);
	unused = log->next;
	if (next.fd >= 0)
		log->next = next;
	else
		unused.fd = -1;
	log->poked = true;
	pthread_cond_signal(&log->wake);
	pthread_mutex_unlock(&log->lock);
	accesslog_output_close(&unused);
	return rc;
}

bool
accesslog_close(struct accesslog *log, uint32_t wait_ms)
{
	pthread_t thread = log->thread;
	struct timespec until;
	bool finished;

	deadline_in(&until, wait_ms);
	pthread_mutex_lock(&log->lock);
	log->closing = true;
	pthread_cond_signal(&log->wake);
	while (!log->finished && pthread_cond_timedwait(&log->gone, &log->lock, &until) == 0)
		;
	finished = log->finished;
	log->abandoned = !finished;
	pthread_mutex_unlock(&log->lock);
	if (!finished) {
		pthread_detach(thread);
		return false;
	}
	pthread_join(thread, NULL);
	log_free(log);
	return true;
}

struct accesslog_lane *
accesslog_lane_new(struct accesslog *log)
{
	size_t size = log->buffer_bytes * ACCESSLOG_LANE_BUFFERS;
	struct accesslog_lane *lane = aligned_alloc(CACHE_LINE, sizeof *lane);

	if (lane == NULL)
		return NULL;
	memset(lane, 0, sizeof *lane);
	lane->log = log;
	lane->size = size > LANE_MIN_BYTES ? size : LANE_MIN_BYTES;
	if ((lane->ring = malloc(lane->size)) == NULL) {
		free(lane);
		return NULL;
	}
	pthread_mutex_lock(&log->lock);
	assert(!log->closing);
	lane->next = log->lanes;
	log->lanes = lane;
	log->lanes_open++;
	pthread_mutex_unlock(&log->lock);
	return lane;
}

void
accesslog_lane_release(struct accesslog_lane *lane)
{
	struct accesslog *log;

	if (lane == NULL)
		return;
	log = lane->log;
	pthread_mutex_lock(&log->lock);
	assert(log->lanes_open > 0);
	log->lanes_open--;
	pthread_cond_signal(&log->wake);
	pthread_mutex_unlock(&log->lock);
}

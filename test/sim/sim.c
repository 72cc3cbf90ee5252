/* SPDX-License-Identifier: ISC */
#include "sim.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The linker's --wrap: what lies beneath posix.c. */
void	*__real_calloc(size_t, size_t);
void	*__real_realloc(void *, size_t);
void	 __real_free(void *);
int	 __real_clock_gettime(clockid_t, struct timespec *);

enum { FAILED_STATUS = 66 };

struct sim_world sim;

static struct sim_event **heap;
static unsigned heap_len, heap_cap;
static uint64_t heap_seq;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool changed_made;

/* ---- memory ---- */

void *
sim_alloc(size_t n)
{
	void *p = __real_calloc(1, n);

	if (p == NULL)
		abort();
	return p;
}

void *
sim_grow(void *old, size_t n)
{
	void *p = __real_realloc(old, n);

	if (p == NULL)
		abort();
	return p;
}

void
sim_free(void *p)
{
	__real_free(p);
}

/* ---- lock ---- */

void
sim_lock(void)
{
	if (sim.threads)
		pthread_mutex_lock(&lock);
}

void
sim_unlock(void)
{
	if (sim.threads)
		pthread_mutex_unlock(&lock);
}

void
sim_changed(void)
{
	if (sim.threads)
		pthread_cond_broadcast(&changed);
}

void
sim_wait(uint64_t until_ns)
{
	uint64_t next = sim_next();
	struct timespec ts;

	if (next < until_ns)
		until_ns = next;
	if (until_ns == UINT64_MAX) {
		pthread_cond_wait(&changed, &lock);
	} else {
		ts.tv_sec = (time_t)(until_ns / SIM_S);
		ts.tv_nsec = (long)(until_ns % SIM_S);
		pthread_cond_timedwait(&changed, &lock, &ts);
	}
	sim_run_due();
}

/* ---- the world ---- */

void
sim_begin(uint64_t seed, struct sim_trace *trace, bool threads)
{
	pthread_condattr_t attr;

	memset(&sim, 0, sizeof sim);
	/* Mixed: the generator steps by a constant, so neighbours must not be near each other. */
	sim.rng = seed;
	sim.rng = sim_rand() ^ seed << 32;
	sim.trace = trace;
	sim.threads = threads;
	sim.now_ns = 1000 * SIM_S;	/* as if this machine had been up for a while */
	trace->seed = seed;
	trace->count = 0;
	trace->hash = UINT64_C(0xcbf29ce484222325);
	trace->failure[0] = '\0';
	heap_seq = 0;
	sim.active = true;
	if (changed_made)
		return;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attr);
	changed_made = true;
}

void
sim_end(void)
{
	sim.active = false;
	for (unsigned i = 0; i < heap_len; i++)
		heap[i]->index = 0;
	heap_len = 0;
}

uint64_t
sim_now(void)
{
	struct timespec ts;

	if (!sim.threads)
		return sim.now_ns;
	__real_clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SIM_S + (uint64_t)ts.tv_nsec;
}

/* ---- events: a binary heap by time, then by the order set ---- */

static bool
before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void
put(unsigned i, struct sim_event *e)
{
	heap[i] = e;
	e->index = i + 1;
}

static void
sift(unsigned i, struct sim_event *e)
{
	while (i > 0 && before(e, heap[(i - 1) / 2])) {
		put(i, heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	for (;;) {
		unsigned c = 2 * i + 1;

		if (c + 1 < heap_len && before(heap[c + 1], heap[c]))
			c++;
		if (c >= heap_len || !before(heap[c], e))
			break;
		put(i, heap[c]);
		i = c;
	}
	put(i, e);
}

void
sim_stop(struct sim_event *e)
{
	unsigned i = e->index;
	struct sim_event *last;

	if (i-- == 0)
		return;
	e->index = 0;
	last = heap[--heap_len];
	if (last != e)
		sift(i, last);
}

void
sim_at(struct sim_event *e, uint64_t at_ns, void (*fn)(struct sim_event *))
{
	sim_stop(e);
	e->at_ns = at_ns;
	e->seq = heap_seq++;
	e->fn = fn;
	if (heap_len == heap_cap) {
		heap_cap = heap_cap ? heap_cap * 2 : 256;
		heap = sim_grow(heap, heap_cap * sizeof *heap);
	}
	sift(heap_len++, e);
}

void
sim_after(struct sim_event *e, uint64_t ns, void (*fn)(struct sim_event *))
{
	sim_at(e, sim_now() + ns, fn);
}

uint64_t
sim_next(void)
{
	return heap_len > 0 ? heap[0]->at_ns : UINT64_MAX;
}

void
sim_run_next(void)
{
	struct sim_event *e = heap[0];

	if (!sim.threads && e->at_ns > sim.now_ns)
		sim.now_ns = e->at_ns;
	sim_stop(e);
	e->fn(e);
}

void
sim_run_due(void)
{
	while (sim_next() <= sim_now())
		sim_run_next();
}

/* ---- chance ---- */

uint64_t
sim_rand(void)
{
	/* splitmix64 */
	uint64_t z = sim.rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t
sim_below(uint64_t n)
{
	return sim_rand() % n;
}

uint64_t
sim_between(uint64_t lo, uint64_t hi)
{
	return lo + sim_below(hi - lo + 1);
}

bool
sim_chance(unsigned permille)
{
	return permille > 0 && sim_below(1000) < permille;
}

uint64_t
sim_magnitude(uint64_t max)
{
	unsigned bits = 0;

	while (bits < 63 && max >> bits != 0)
		bits++;
	uint64_t v = sim_rand() & ((UINT64_C(1) << sim_below(bits + 1)) - 1);
	return v > max ? max : v;
}

/* ---- trace ---- */

const char *const sim_seen_names[SEEN_MAX] = {
	"tunnels whole", "tunnels refused", "tunnels timed out", "half-closes up", "half-closes down",
	"resets carried", "early data", "answers whole", "answers of our own", "answers cut", "pipelines",
	"handshake timeouts", "connect timeouts", "idle timeouts", "half-close timeouts",
	"accepts paused", "descriptor limits", "failed allocations", "session limits", "limits by address",
	"pools exhausted", "stalled resets", "cancels too late", "drains", "aborts"
};

void
seen(enum seen what)
{
	sim.trace->seen |= UINT64_C(1) << what;
}

static const char *const whats[SIM_T_MAX] = {
	"note", "connect", "accept", "send", "recv", "fin", "rst", "close", "submit", "cancel",
	"finish", "emit", "client", "origin", "fault"
};

static void
print_record(const struct sim_record *r)
{
	if (r->what < SIM_T_MAX)
		printf("  %4u.%09u %-8s %lld %lld %lld\n",
		    (unsigned)(r->at_ns / SIM_S), (unsigned)(r->at_ns % SIM_S), whats[r->what],
		    (long long)r->a, (long long)r->b, (long long)r->c);
}

void
sim_note(enum sim_what what, int64_t a, int64_t b, int64_t c)
{
	struct sim_trace *t = sim.trace;
	struct sim_record *r = &t->ring[t->count++ % SIM_RECORDS];
	const uint64_t v[] = { sim.now_ns, what, (uint64_t)a, (uint64_t)b, (uint64_t)c };

	if (sim.threads)
		return;
	*r = (struct sim_record){ sim.now_ns, what, a, b, c };
	for (unsigned i = 0; i < sizeof v / sizeof v[0]; i++)
		t->hash = (t->hash ^ v[i]) * UINT64_C(0x100000001b3) ^ t->hash >> 29;
	if (sim.verbose)
		print_record(r);
}

void
sim_print_trace(const struct sim_trace *t, unsigned last)
{
	uint64_t n = t->count < SIM_RECORDS ? t->count : SIM_RECORDS;

	if (last < n)
		n = last;
	for (uint64_t i = t->count - n; i < t->count; i++)
		print_record(&t->ring[i % SIM_RECORDS]);
}

void
sim_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sim.trace->failure, sizeof sim.trace->failure, fmt, ap);
	va_end(ap);
	if (sim.verbose)
		printf("FAIL: %s\n", sim.trace->failure);
	fflush(stdout);
	_exit(FAILED_STATUS);
}

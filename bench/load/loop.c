/* SPDX-License-Identifier: ISC */
/* Turns, phases and the window. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conn.h"
#include "cpu.h"

#define EVENTS_MAX 256
#define STALL_NS (10 * NS_PER_S)
#define ERRORS_SHOWN 5

uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

void
fatal(const char *fmt, ...)
{
	va_list ap;

	fputs("load: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void
error(struct load *l, const char *fmt, ...)
{
	va_list ap;

	if (++l->res.errors > ERRORS_SHOWN)
		return;
	fprintf(stderr, "load: %s: ", l->phase);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void
phase_begin(struct load *l, const char *name, double limit_s)
{
	l->now_ns = now_ns();
	l->phase = name;
	l->phase_end_ns = l->now_ns + (uint64_t)(limit_s * (double)NS_PER_S);
	l->stall_ns = l->now_ns + STALL_NS;
	l->progress_seen = l->progress;
}

static void
stuck(struct load *l, const char *how)
{
	for (unsigned i = 0; i < l->opt.conns; i++) {
		const struct conn *c = &l->clients[i];

		if (!c->waiting)
			continue;
		fatal("phase \"%s\" %s: connection %u: %s, message %llu, bytes in %llu, out %llu, "
		    "origin's end %s; %llu errors before", l->phase, how, c->id, conn_step_name(c),
		    (unsigned long long)c->seq, (unsigned long long)c->in,
		    (unsigned long long)c->out, c->peer != NULL ? "known" : "not known",
		    (unsigned long long)l->res.errors);
	}
	fatal("phase \"%s\" %s; %u ends of the origin are open, %llu errors before", l->phase, how,
	    l->origins, (unsigned long long)l->res.errors);
}

static void
free_dead(struct load *l)
{
	while (l->dead != NULL) {
		struct conn *c = l->dead;

		l->dead = c->next;
		free(c);
	}
}

void
turn(struct load *l)
{
	struct epoll_event ev[EVENTS_MAX];
	int n = epoll_wait(l->epoll, ev, EVENTS_MAX, l->blocking ? 5 : 0);

	if (n < 0 && errno != EINTR)
		fatal("epoll_wait: %s", strerror(errno));
	for (int i = 0; i < n; i++)
		conn_event(l, ev[i].data.ptr, ev[i].events);
	free_dead(l);
	l->now_ns = now_ns();
	if (l->progress != l->progress_seen) {
		l->progress_seen = l->progress;
		l->stall_ns = l->now_ns + STALL_NS;
	} else if (l->now_ns > l->stall_ns) {
		stuck(l, "does not move");
	}
	if (l->now_ns > l->phase_end_ns)
		stuck(l, "takes too long");
}

void
window_begin(struct load *l)
{
	uint64_t errors = l->res.errors;

	memset(&l->res, 0, sizeof(l->res));
	l->res.errors = errors;
	l->cpu = cpu_read(l->opt.pids, l->opt.pid_count);
	l->res.load_cpu_s = -cpu_own();
}

void
window_end(struct load *l, uint64_t began_ns)
{
	struct cpu_usage *cpu;

	l->res.load_cpu_s += cpu_own();
	cpu = cpu_read(l->opt.pids, l->opt.pid_count);
	l->res.seconds = (double)(now_ns() - began_ns) / (double)NS_PER_S;
	l->res.cpu_s = cpu_between(l->cpu, cpu);
	cpu_free(cpu);
	cpu_free(l->cpu);
	l->cpu = NULL;
}

void
window(struct load *l, void (*step)(struct load *))
{
	uint64_t end = now_ns() + (uint64_t)(l->opt.warmup * (double)NS_PER_S), began;

	l->running = true;
	phase_begin(l, "warm-up", l->opt.warmup + 10);
	while (l->now_ns < end) {
		if (step != NULL)
			step(l);
		turn(l);
	}
	phase_begin(l, "window", l->opt.seconds + 10);
	window_begin(l);
	began = now_ns();
	end = began + (uint64_t)(l->opt.seconds * (double)NS_PER_S);
	while (l->now_ns < end) {
		if (step != NULL)
			step(l);
		turn(l);
	}
	window_end(l, began);
	l->window = l->res;
	l->running = false;
}

void
open_all(struct load *l, unsigned at_once)
{
	unsigned next = 0, oldest = 0;

	phase_begin(l, "set-up", 120);
	while (oldest < l->opt.conns) {
		while (oldest < next && !l->clients[oldest].waiting)
			oldest++;
		while (next < l->opt.conns && next - oldest < at_once)
			conn_start(l, &l->clients[next++]);
		turn(l);
	}
	for (unsigned i = 0; i < l->opt.conns; i++)
		if (l->clients[i].step == STEP_OPEN)
			return;
	fatal("not one of %u connections could be set up", l->opt.conns);
}

void
close_all(struct load *l)
{
	uint64_t end;

	l->closing = true;
	phase_begin(l, "closing", 30);
	for (unsigned i = 0; i < l->opt.conns; i++)
		conn_close(l, &l->clients[i]);
	end = now_ns() + NS_PER_S;
	while (l->origins > 0 && l->now_ns < end)
		turn(l);
}

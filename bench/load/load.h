/* SPDX-License-Identifier: ISC */
/*
 * The load generator: one thread that plays the clients of a proxy and the
 * origin behind it, so that it can check every answer and take latencies by one
 * clock.  It uses nothing of ringway, so that a fault of ringway's I/O can't
 * hide from it.  Linux only.
 *
 * It never prints but one line of JSON at the end (mode idle: one before) and
 * messages to standard error.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

#define PIDS_MAX 16

enum via {
	VIA_PLAIN,	/* the proxy forwards whatever comes to the origin */
	VIA_SOCKS5,
	VIA_CONNECT,	/* HTTP CONNECT */
	VIA_HTTP,	/* a request with an absolute URI for each message */
};

struct options {
	const struct mode *mode;
	enum via via;
	struct sockaddr_in proxy;	/* port 0: straight to the origin */
	uint16_t origin_port;		/* 0: any */
	unsigned conns;			/* in mode udp: associations */
	double seconds, warmup;
	int cpu;			/* -1: not pinned */
	int pids[PIDS_MAX];		/* roots of the proxy's processes */
	unsigned pid_count;
	size_t payload;			/* bytes; 0: the mode's own */
	unsigned window;		/* datagrams in flight per association; 0: default */
	const char *congestion;
	bool gso, check, down, sleep;
	bool silent;			/* clients connect, and no more */
	bool half_close;		/* --check expects a half-closed stream to go on */
};

/* What the last line tells.  Counted in the window only, but for errors. */
struct result {
	double seconds;
	uint64_t errors;
	uint64_t bytes, requests, sessions;
	uint64_t sent, received, lost, dup, altered;
	double cpu_s, load_cpu_s;
	bool checked;
	struct histogram latency;	/* ns */
};

struct conn;
struct load;

/* What a mode does with connections; see conn.h for who calls. */
struct handlers {
	void (*opened)(struct load *, struct conn *);	/* a client's tunnel stands */
	void (*client)(struct load *, struct conn *, uint32_t events);
	void (*origin)(struct load *, struct conn *, uint32_t events);
	void (*broken)(struct load *, struct conn *);	/* was closed by conn_fail; may be NULL */
};

struct mode {
	const char *name;
	size_t payload;		/* bytes, unless --payload says so */
	unsigned addresses;	/* of clients: 127.0.0.1, or this many from 127.0.0.2 on */
	void (*run)(struct load *);
	void (*print)(const struct load *);	/* its own fields of the last line */
};

extern const struct mode mode_bulk, mode_ping, mode_churn, mode_idle, mode_idle_clients, mode_udp;

struct load {
	struct options opt;
	struct result res;		/* being counted */
	struct result window;		/* as it was at the window's end */
	const struct handlers *handlers;

	int epoll;
	int listener;
	struct sockaddr_in origin;	/* where the listener is */
	struct conn *clients;		/* opt.conns of them */
	struct conn *dead;		/* ends of the origin, freed after the round of events */
	unsigned origins;		/* open ends of the origin */
	struct conn *listening;		/* stands for the listener */

	bool running;			/* go on when an answer is complete */
	bool closing;			/* ends of streams are expected */
	bool blocking;			/* wait for events instead of spinning */
	unsigned started;		/* mode churn: places */
	struct udp *udp;		/* mode udp */
	void (*datagram_event)(struct load *, struct conn *);
	unsigned streams_checked;	/* mode bulk */
	uint64_t now_ns;		/* of this turn */
	unsigned source;		/* the next client address */

	/* What a stuck run is told by. */
	const char *phase;
	uint64_t phase_end_ns, stall_ns;
	uint64_t progress, progress_seen;

	struct cpu_usage *cpu;		/* at the start of the window */
	unsigned char *scratch;		/* SCRATCH_BYTES */
};

#define SCRATCH_BYTES (1u << 20)

uint64_t now_ns(void);

/* Print to standard error and exit with 1. */
void fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Count an error; the first few are also printed. */
void error(struct load *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Phases.  One that lasts longer than limit_s, or in which nothing moves for
 * ten seconds (l->progress counts), is fatal: the message names the phase and
 * the first connection that waits for something.
 */
void phase_begin(struct load *l, const char *name, double limit_s);

/* Wait for events once, handle them, free what ended. */
void turn(struct load *l);

/*
 * Run turns for the warm-up and then for the window.  Between them the counters
 * of l->res start again and the CPU clocks are read; l->running is false
 * afterwards.  step, if not NULL, is called before each turn.
 */
void window(struct load *l, void (*step)(struct load *));
void window_begin(struct load *l);
void window_end(struct load *l, uint64_t began_ns);

/* Set up all clients, at most this many handshakes at a time, until waiting of each is false. */
void open_all(struct load *l, unsigned at_once);

/* Close all clients and wait until the origin's ends have gone, or a second. */
void close_all(struct load *l);

/* Print a count, its rate and the quantiles of the latency, as fields of the last line. */
void print_latency(const struct load *l, const char *count, const char *rate, uint64_t n);

void parse_options(struct options *opt, int argc, char **argv);

#endif

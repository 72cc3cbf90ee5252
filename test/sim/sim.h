/* SPDX-License-Identifier: ISC */
/*
 * sim: time, chance, events and the trace of a simulated world.  One world at a
 * time.  Everything that happens is decided by the seed, so a run can be
 * repeated exactly; the trace's hash proves it.
 *
 * Two clocks: virtual (it jumps to the next event; one thread) for sessions.c,
 * and real (events fall due as time passes; any threads) for test/io.
 */
#ifndef RW_SIM_SIM_H
#define RW_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_S UINT64_C(1000000000)

/* Embedded in its owner, zeroed before first use. */
struct sim_event {
	uint64_t	at_ns, seq;
	void		(*fn)(struct sim_event *);
	unsigned	index;		/* in the heap, + 1; 0 = not armed */
};

enum sim_what {
	SIM_T_NOTE, SIM_T_CONNECT, SIM_T_ACCEPT, SIM_T_SEND, SIM_T_RECV, SIM_T_FIN, SIM_T_RST,
	SIM_T_CLOSE, SIM_T_SUBMIT, SIM_T_CANCEL, SIM_T_FINISH, SIM_T_EMIT, SIM_T_CLIENT,
	SIM_T_ORIGIN, SIM_T_FAULT, SIM_T_MAX
};

struct sim_record {
	uint64_t	at_ns;
	uint32_t	what;
	int64_t		a, b, c;
};

enum { SIM_RECORDS = 256 };

/* In memory that outlives the process of a seed: see runner.c. */
struct sim_trace {
	uint64_t	 seed, count, hash;
	char		 failure[512];
	struct sim_record ring[SIM_RECORDS];
	uint64_t	 seen;		/* set of enum seen */
};

/* What happened at least once, for the run's summary. */
enum seen {
	SEEN_TUNNEL_WHOLE, SEEN_TUNNEL_REFUSED, SEEN_TUNNEL_TIMEOUT, SEEN_HALF_CLOSE_UP, SEEN_HALF_CLOSE_DOWN,
	SEEN_RESET_CARRIED, SEEN_EARLY_DATA, SEEN_HTTP_WHOLE, SEEN_HTTP_OWN, SEEN_HTTP_CUT, SEEN_HTTP_PIPELINED,
	SEEN_HANDSHAKE_TIMEOUT, SEEN_CONNECT_TIMEOUT, SEEN_IDLE_TIMEOUT, SEEN_HALF_TIMEOUT,
	SEEN_ACCEPT_PAUSED, SEEN_FD_LIMIT, SEEN_NO_MEMORY, SEEN_SESSION_LIMIT, SEEN_IP_LIMIT,
	SEEN_POOL_EMPTY, SEEN_STALLED_RESET, SEEN_CANCEL_TOO_LATE, SEEN_DRAIN, SEEN_ABORT, SEEN_MAX
};
extern const char *const sim_seen_names[SEEN_MAX];
void	seen(enum seen);

/* What a world may do to the code under test; all zero = an ideal kernel. */
struct sim_faults {
	unsigned	short_permille;		/* a send or receive moves only part */
	unsigned	late_permille;		/* a completion, or a cancel, takes its time */
	unsigned	accept_permille;	/* ENFILE or ENOMEM at accept */
	unsigned	alloc_permille_x100;	/* calloc and its kin give nothing: of 100,000 */
	unsigned	fd_limit;		/* EMFILE at this many; 0 = none */
	unsigned	oversleep_permille;	/* the loop wakes late */
	size_t		buf_bytes;		/* of a socket's buffers; 0 = the usual */
	uint64_t	latency_ns;		/* of the network, about */
	uint64_t	late_ns;		/* how late a late completion is, at most */
	bool		purge_on_reset;		/* a reset takes what was not read yet with it */
};

struct sim_world {
	bool			 active;	/* the wrapped calls are simulated */
	bool			 threads;	/* real clock, real threads */
	bool			 verbose;
	uint64_t		 now_ns;
	uint64_t		 rng;
	struct sim_faults	 faults;
	struct sim_trace	*trace;
	int64_t			 allocs;	/* blocks of the code under test that live */
	bool			 allocs_may_fail;
};

extern struct sim_world sim;

void	sim_begin(uint64_t seed, struct sim_trace *, bool threads);
void	sim_end(void);			/* asserts nothing; frees the heap of events */
uint64_t sim_now(void);

void	sim_at(struct sim_event *, uint64_t at_ns, void (*)(struct sim_event *));
void	sim_after(struct sim_event *, uint64_t ns, void (*)(struct sim_event *));
void	sim_stop(struct sim_event *);
static inline bool
sim_armed(const struct sim_event *e)
{
	return e->index != 0;
}
/* UINT64_MAX: none. */
uint64_t sim_next(void);
/* Virtual clock: goes to the next event and runs it.  Real: runs what is due. */
void	sim_run_next(void);
void	sim_run_due(void);

uint64_t sim_rand(void);
uint64_t sim_below(uint64_t n);		/* n > 0 */
uint64_t sim_between(uint64_t lo, uint64_t hi);
bool	sim_chance(unsigned permille);
/* Small ones are as likely as large ones, by magnitude. */
uint64_t sim_magnitude(uint64_t max);

void	sim_note(enum sim_what, int64_t a, int64_t b, int64_t c);
/* The seed has failed: recorded, first one wins, and the process of the seed ends. */
void	sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void	sim_print_trace(const struct sim_trace *, unsigned last);

/* Memory that the accounting of the code under test does not see. */
void	*sim_alloc(size_t);		/* zeroed; aborts when there is none */
void	*sim_grow(void *, size_t);
void	 sim_free(void *);

/* Real clock only: one lock over kernel and backends; sim_wait drops it. */
void	sim_lock(void);
void	sim_unlock(void);
void	sim_changed(void);		/* wakes whoever waits */
void	sim_wait(uint64_t until_ns);

#endif

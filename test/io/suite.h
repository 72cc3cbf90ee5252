/* SPDX-License-Identifier: ISC */
/*
 * suite: what the conformance cases of the I/O contract share.  A case knows
 * io.h and plain sockets, never a backend: it is run unchanged against each.
 *
 * A case is written CASE(name, "C2 C3") { ... }.  It passes by returning, fails
 * by CHECK, is left out by SKIP; each runs in a process of its own.  Failed
 * preconditions are cases too: CASE_DIES, which must end in an assertion after
 * t_expect_abort().
 */
#ifndef RW_IO_SUITE_H
#define RW_IO_SUITE_H

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "net.h"

/* ---- cases ---- */

enum {
	T_DIES	= 1,	/* must end in an assertion */
	T_ALONE	= 2	/* changes the process for good: a limit, a filter, a namespace */
};

struct t_case {
	const char	*name, *rules, *file;
	void		(*fn)(void);
	unsigned	 flags;
	struct t_case	*next;
};

void	t_register(struct t_case *);

#define T_CASE(id, tags, fl)							\
	static void id(void);							\
	static struct t_case case_##id = {					\
		.name = #id, .rules = tags, .file = __FILE__, .fn = id, .flags = fl \
	};									\
	__attribute__((constructor)) static void				\
	register_##id(void)							\
	{									\
		t_register(&case_##id);						\
	}									\
	static void								\
	id(void)
#define CASE(id, tags)		T_CASE(id, tags, 0)
#define CASE_DIES(id, tags)	T_CASE(id, tags, T_DIES)
#define CASE_ALONE(id, tags)	T_CASE(id, tags, T_ALONE)
/* In the #else of a case that this system can't run: it is listed, and skipped with the reason. */
#define CASE_NOT_HERE(id, tags, why) CASE(id, tags) { SKIP(why); }

/* ---- verdicts ---- */

#ifdef _WIN32
#define T_FORMAT gnu_printf	/* plain `printf` means the C library's, which knows no %zu */
#else
#define T_FORMAT printf
#endif
void	t_fail(const char *file, int line, const char *fmt, ...)
	    __attribute__((format(T_FORMAT, 3, 4), noreturn));
void	t_skip(const char *fmt, ...) __attribute__((format(T_FORMAT, 1, 2), noreturn));
void	t_note(const char *fmt, ...) __attribute__((format(T_FORMAT, 1, 2)));
void	t_at(const char *file, int line);	/* the last place seen, for a case that hangs */
void	t_expect_abort(void);			/* from here on, CASE_DIES must abort */

#define FAIL(...)	t_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...)	t_skip(__VA_ARGS__)
#define CHECK(c)								\
	do {									\
		t_at(__FILE__, __LINE__);					\
		if (!(c))							\
			FAIL("%s", #c);						\
	} while (0)
#define CHECK_EQ(a, b)								\
	do {									\
		long long a_ = (long long)(a), b_ = (long long)(b);		\
		t_at(__FILE__, __LINE__);					\
		if (a_ != b_)							\
			FAIL("%s is %lld, not %s (%lld)", #a, a_, #b, b_);	\
	} while (0)

/* ---- the run's options ---- */

struct t_opts {
	const char	*backend;
	int		 uring_level;
	bool		 no_ring, no_splice, verbose;
	struct io_choice choice;
};
extern struct t_opts t_opts;

/* ---- loops ---- */

struct io_loop	*t_loop(void);
struct io_loop	*t_loop_turn_max(unsigned turn_max);
struct io_config t_config(void);
struct io_loop	*t_loop_of(const struct io_config *);
/* Turns until nothing is in flight, then frees. */
void	t_loop_end(struct io_loop *);
int	t_turn(struct io_loop *, bool may_block);
uint64_t t_turn_number(void);		/* of this thread: the present or the last one */
void	t_turn_for_ms(struct io_loop *, unsigned);
void	t_drain(struct io_loop *);	/* until io_inflight is 0 */

/* Every callback of a case begins and ends with these: never nested, never outside a turn. */
void	t_enter(struct io_loop *);
void	t_leave(struct io_loop *);

struct t_watch {
	struct io_timer	 timer;
	const char	*file, *what;
	int		 line;
};
void	t_watch_begin(struct io_loop *, struct t_watch *, const char *file, int line,
	    const char *what);
void	t_watch_end(struct io_loop *, struct t_watch *);

/* Turns, blocking, until cond; fails with the condition's text after a generous while. */
#define TURN_UNTIL(l, cond)							\
	do {									\
		struct t_watch w_;						\
		t_watch_begin(l, &w_, __FILE__, __LINE__, #cond);		\
		while (!(cond))							\
			t_turn(l, true);					\
		t_watch_end(l, &w_);						\
	} while (0)

/* ---- sockets and ops that keep a record ---- */

struct t_sock {
	struct io_sock	 s;
	unsigned	 closed;	/* close callbacks */
	uint64_t	 closed_turn;
	void		(*then)(struct t_sock *);
};

struct t_op {
	struct io_op	 op;
	bool		 armed;		/* started, final not seen */
	unsigned	 calls, finals;
	int32_t		 res, syserr;	/* of the last callback */
	int64_t		 total;		/* sum of positive results */
	uint64_t	 started_turn, turn;
	void		(*then)(struct t_op *);	/* in the callback, after the record is made */
	void		*arg;
	/* accept: descriptors not taken by `then` (which sets op.u.accept.fd to IO_FD_NONE) */
	io_fd		*fds;
	unsigned	 nfds;
};

void	t_adopt(struct io_loop *, struct t_sock *, io_fd);
void	t_close(struct t_sock *);
void	t_close_reset(struct t_sock *);
void	t_close_wait(struct t_sock *);	/* close and turn until its callback */
void	t_accept(struct t_op *, struct t_sock *);
void	t_connect(struct t_op *, struct t_sock *, const struct sockaddr *, socklen_t);
void	t_recv(struct t_op *, struct t_sock *, void *, size_t);
void	t_recv_pool(struct t_op *, struct t_sock *, struct io_pool *, unsigned flags);
void	t_send(struct t_op *, struct t_sock *, const void *, size_t);
void	t_recv_batch(struct t_op *, struct t_sock *, struct io_pool *, struct io_dgram *,
	    unsigned max);
void	t_send_batch(struct t_op *, struct t_sock *, struct io_dgram *, unsigned n);
void	t_relay(struct t_op *, struct t_sock *src, struct t_sock *dst, struct io_pool *,
	    uint64_t max, uint64_t *tally);
void	t_poll(struct t_op *, struct t_sock *, unsigned want);
void	t_fds_close(struct t_op *);	/* the accepted descriptors */
/* Copies the buffers of a recv_pool completion to `to` (may be NULL) and gives them back. */
size_t	t_pool_take(struct t_op *, void *to);

struct io_pool	*t_pool(struct io_loop *, uint32_t block_bytes, uint32_t ceiling,
		    uint32_t reserve);

/* ---- data ---- */

struct t_rand {
	uint64_t	 s;
};
uint64_t t_rand(struct t_rand *);
unsigned t_rand_below(struct t_rand *, unsigned n);

/* The byte at each offset of a stream is known, so that order, loss and repeats all show. */
void	t_pattern(uint64_t seed, uint64_t off, void *buf, size_t len);
bool	t_pattern_ok(uint64_t seed, uint64_t off, const void *buf, size_t len);

/* ---- runner ---- */

enum t_verdict { T_PASS, T_FAIL, T_SKIP };

struct t_result {
	enum t_verdict	 verdict;
	bool		 expects_abort;
	char		 text[400];
	const char	*volatile file;	/* last place seen */
	volatile int	 line;
};
extern struct t_result *t_result;
/* Runs the case in a child process, or here. */
void	t_run(const struct t_case *, struct t_result *, bool in_process, unsigned limit_s);
void	t_loops_forget(void);	/* a case in this process was left by longjmp */
void	t_run_here(const struct t_case *, struct t_result *);

#endif

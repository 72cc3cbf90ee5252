/* SPDX-License-Identifier: ISC */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "pipe.h"
#include "relay_policy.h"

/*
 * Pipes a loop, unless configured.  An unprivileged user may have 16,384 pipe
 * pages (pipe-user-pages-soft, pipe(7)): 256 pipes of 256 KiB.  More loops than
 * one share that allowance; the size check below sees when it is used up.
 */
enum { PIPES_MAX_DEFAULT = 256 };

/*
 * Empty pipes kept, so that a direction which goes bulk pays no 3.3 us for one.
 * An empty pipe is two descriptors and 2.5 KiB of slots: keep a few dozen.
 */
enum { PIPES_IDLE_MAX = 32 };

/* After a failure.  A try costs some 5 us; limits don't move within a second. */
static const uint64_t retry_ns = 1000000000u;

static void
pipe_free(struct io_loop *l, struct io_pipe *p)
{
	close(p->rd);
	close(p->wr);
	free(p);
	assert(l->stats.pipes > 0);
	l->stats.pipes--;
}

#ifdef F_SETPIPE_SZ
/*
 * splice(2) into a socket whose peer has gone raises SIGPIPE, and knows no
 * MSG_NOSIGNAL.  A loop belongs to one thread: blocked there it never arrives
 * (C12), whatever the process does with the signal.
 */
static void
block_sigpipe(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static struct io_pipe *
pipe_new(void)
{
	struct io_pipe *p;
	int fd[2], cap;

	block_sigpipe();
	if (pipe2(fd, O_NONBLOCK | O_CLOEXEC) == -1)
		return NULL;
	/*
	 * Beyond pipe-user-pages-soft pipe2() still succeeds, with one or two
	 * pages, and F_SETPIPE_SZ fails with EPERM: only what F_GETPIPE_SZ says
	 * is true.
	 */
	(void)fcntl(fd[1], F_SETPIPE_SZ, RELAY_PIPE_BYTES);
	cap = fcntl(fd[1], F_GETPIPE_SZ);
	if (cap < RELAY_PIPE_MIN_BYTES || (p = malloc(sizeof *p)) == NULL) {
		close(fd[0]);
		close(fd[1]);
		return NULL;
	}
	*p = (struct io_pipe){ .rd = fd[0], .wr = fd[1], .cap = (uint32_t)cap };
	return p;
}
#else
/* No splice(2) here: every relay stays on the copy path. */
static struct io_pipe *
pipe_new(void)
{
	return NULL;
}
#endif

struct io_pipe *
io_pipe_get(struct io_loop *l)
{
	uint32_t max = l->cfg.pipes_max;
	struct io_pipe *p = l->pipes_idle;

	if (p != NULL) {
		l->pipes_idle = p->next;
		p->next = NULL;
		return p;
	}
	if (max == UINT32_MAX)		/* none wanted: nothing to count */
		return NULL;
	if (max == 0)
		max = PIPES_MAX_DEFAULT;
	if (l->now_ns < l->pipes_retry_ns)
		return NULL;
	if (l->stats.pipes >= max || (p = pipe_new()) == NULL) {
		l->stats.pipe_none++;
		l->pipes_retry_ns = l->now_ns + retry_ns;
		return NULL;
	}
	l->stats.pipes++;
	return p;
}

void
io_pipe_put(struct io_loop *l, struct io_pipe *p, bool empty)
{
	uint32_t idle = l->pipes_idle != NULL ? l->pipes_idle->idle : 0;

	/* What another relay left inside would reach a stranger: never reuse. */
	if (!empty || idle >= PIPES_IDLE_MAX) {
		pipe_free(l, p);
		l->pipes_retry_ns = 0;	/* there is room below the ceiling again */
		return;
	}
	p->idle = idle + 1;
	p->next = l->pipes_idle;
	l->pipes_idle = p;
}

void
io_pipes_free(struct io_loop *l)
{
	struct io_pipe *p;

	while ((p = l->pipes_idle) != NULL) {
		l->pipes_idle = p->next;
		pipe_free(l, p);
	}
	assert(l->stats.pipes == 0);
}

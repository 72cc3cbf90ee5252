/* SPDX-License-Identifier: ISC */
/*
 * kqueue as the poller of ready.c.  An op that must wait adds a one-shot
 * filter; the change rides with the next kevent(2), so a turn is one call.
 * One-shot rather than EV_CLEAR: nothing is reported that nobody waits for.
 *
 * Run on Linux over test/shim only; see SUPPORTED in README.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/event.h>
#include <sys/time.h>
#include <unistd.h>

#include "ready.h"

/* OpenBSD had no EVFILT_USER for long: a pipe wakes it.  Tests define the macro elsewhere. */
#if !defined(EVFILT_USER) && !defined(KQUEUE_WAKE_PIPE)
#define KQUEUE_WAKE_PIPE
#endif

enum {
	EVENTS_MAX	= 512,		/* taken at once; the kernel keeps the rest */
	/* kevent(2) refuses absurd timeouts on some systems; an idle turn a day does no harm. */
	TIMEOUT_MAX_S	= 24 * 60 * 60
};

/* Never a slot's key: generations start at 1. */
static const uintptr_t wake_key = 0;

struct kqueue_poller {
	struct ready	 ready;
	int		 kq;
	int		 wake_rd, wake_wr;	/* -1 with EVFILT_USER */
	struct kevent	*changes;		/* for the next kevent() */
	struct kevent	*events;		/* room for an error of each change */
	int		 nchanges, cap;
};

static struct kqueue_poller *
poller_of(struct ready *r)
{
	return io_container_of(r, struct kqueue_poller, ready);
}

/* ---- interest ---- */

static int
grow(struct kqueue_poller *k)
{
	int cap = k->cap ? k->cap * 2 : EVENTS_MAX;
	struct kevent *v;

	if ((v = realloc(k->changes, (size_t)cap * sizeof *v)) == NULL)
		return -ENOMEM;
	k->changes = v;
	if ((v = realloc(k->events, (size_t)cap * sizeof *v)) == NULL)
		return -ENOMEM;
	k->events = v;
	k->cap = cap;
	return 0;
}

static int
kqueue_need(struct ready *r, struct io_sock *s, unsigned bit)
{
	struct kqueue_poller *k = poller_of(r);
	unsigned armed = bit == RDY_READ ? RDY_ARMED_RD : RDY_ARMED_WR;
	int rc;

	if (s->be[1] & armed)
		return 0;
	if (k->nchanges == k->cap && (rc = grow(k)) < 0)
		return rc;
	EV_SET(&k->changes[k->nchanges], s->fd, bit == RDY_READ ? EVFILT_READ : EVFILT_WRITE,
	    EV_ADD | EV_ONESHOT, 0, 0, (void *)ready_key(r, s));
	k->nchanges++;
	s->be[1] |= armed;
	return 0;
}

/* Filters go with the descriptor (kqueue(2)); live_changes() drops those not made yet. */
static void
kqueue_forget(struct ready *r, struct io_sock *s)
{
	(void)r;
	(void)s;
}

/* Its number may be another socket's by now: leave out the changes of sockets that are gone. */
static int
live_changes(struct kqueue_poller *k)
{
	int n = 0;

	for (int i = 0; i < k->nchanges; i++)
		if (ready_sock(&k->ready, (uintptr_t)k->changes[i].udata) != NULL)
			k->changes[n++] = k->changes[i];
	return n;
}

/* ---- waiting ---- */

static void
woken(struct kqueue_poller *k)
{
	struct io_loop *l = k->ready.loop;
#ifdef KQUEUE_WAKE_PIPE
	char drop[64];

	while (read(k->wake_rd, drop, sizeof drop) == sizeof drop)
		;
#endif
	/* Before the core looks at the posts: a waker that still saw `true` had left its own. */
	(void)atomic_exchange_explicit(&l->wake_pending, false, memory_order_acq_rel);
	l->stats.wakes++;
}

static void
take_event(struct kqueue_poller *k, const struct kevent *ev)
{
	struct ready *r = &k->ready;
	uintptr_t key = (uintptr_t)ev->udata;
	bool read = ev->filter == EVFILT_READ;
	struct io_sock *s = ready_sock(r, key);

	if (s == NULL)
		return;
	s->be[1] &= ~(uint64_t)(read ? RDY_ARMED_RD : RDY_ARMED_WR);	/* one-shot */
	if ((ev->flags & EV_ERROR) != 0 && ev->data != EPIPE) {
		ready_need_failed(r, key, (int)ev->data);
		return;
	}
	/* EPIPE: some systems refuse a filter when the other end has gone; the next call will say so. */
	ready_event(r, key, (read ? RDY_READ : RDY_WRITE) |
	    (ev->flags & (EV_EOF | EV_ERROR) ? RDY_EOF : 0));
}

static int
kqueue_poller_wait(struct ready *r, uint64_t timeout_ns)
{
	struct kqueue_poller *k = poller_of(r);
	struct timespec ts = { .tv_sec = TIMEOUT_MAX_S };
	int n;

	if (timeout_ns / 1000000000u < TIMEOUT_MAX_S) {
		ts.tv_sec = (time_t)(timeout_ns / 1000000000u);
		ts.tv_nsec = (long)(timeout_ns % 1000000000u);
	}
	n = kevent(k->kq, k->changes, live_changes(k), k->events, k->cap,
	    timeout_ns == UINT64_MAX ? NULL : &ts);
	if (n == -1 && errno != EINTR)
		return -errno;
	/* With EINTR too the changes have been made (kqueue(2)). */
	k->nchanges = 0;
	for (int i = 0; i < n; i++) {
		if ((uintptr_t)k->events[i].udata == wake_key)
			woken(k);
		else
			take_event(k, &k->events[i]);
	}
	return 0;
}

static void
kqueue_wake(struct io_loop *l)
{
	struct kqueue_poller *k = poller_of(ready_of(l));
	int saved = errno;	/* may run in a signal handler (C6) */

#ifdef KQUEUE_WAKE_PIPE
	/* A full pipe wakes just as well. */
	while (write(k->wake_wr, "", 1) == -1 && errno == EINTR)
		;
#else
	struct kevent ev;

	EV_SET(&ev, 0, EVFILT_USER, 0, NOTE_TRIGGER, 0, (void *)wake_key);
	while (kevent(k->kq, &ev, 1, NULL, 0, NULL) == -1 && errno == EINTR)
		;
#endif
	errno = saved;
}

/* ---- life ---- */

static const struct ready_ops kqueue_ops = {
	/* A socket's urgent mark can't be asked for by EVFILT_READ: read until EAGAIN. */
	.tells_urgent	= false,
	.need		= kqueue_need,
	.forget		= kqueue_forget,
	.wait		= kqueue_poller_wait
};

static void
close_fds(struct kqueue_poller *k)
{
	if (k->wake_rd != -1) {
		close(k->wake_rd);
		close(k->wake_wr);
	}
	if (k->kq != -1)
		close(k->kq);
}

/* A queue that io_wake can wake.  0 or a negative errno. */
static int
open_fds(struct kqueue_poller *k)
{
	struct kevent ev;
	int rc;

	k->wake_rd = k->wake_wr = -1;
	if ((k->kq = kqueue()) == -1)
		return -errno;
	(void)fcntl(k->kq, F_SETFD, FD_CLOEXEC);
#ifdef KQUEUE_WAKE_PIPE
	int fd[2];

	if (pipe(fd) == -1)
		goto fail;
	k->wake_rd = fd[0];
	k->wake_wr = fd[1];
	for (int i = 0; i < 2; i++) {
		(void)fcntl(fd[i], F_SETFD, FD_CLOEXEC);
		(void)fcntl(fd[i], F_SETFL, O_NONBLOCK);
	}
	EV_SET(&ev, k->wake_rd, EVFILT_READ, EV_ADD, 0, 0, (void *)wake_key);
#else
	EV_SET(&ev, 0, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, (void *)wake_key);
#endif
	if (kevent(k->kq, &ev, 1, NULL, 0, NULL) == -1)
		goto fail;
	return 0;
fail:
	rc = -errno;
	close_fds(k);
	return rc;
}

static enum io_probe
kqueue_probe(struct io_choice *c, int level)
{
	struct kqueue_poller k = { 0 };
	int rc;

	(void)level;
	if ((rc = open_fds(&k)) < 0) {
		snprintf(c->why, sizeof c->why, "kqueue: %s", io_strerror(io_err_of(-rc)));
		return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ?
		    PROBE_FATAL : PROBE_NEXT;
	}
	close_fds(&k);
	return PROBE_OK;
}

static int
kqueue_init(struct io_loop *l, const struct io_config *cfg)
{
	struct kqueue_poller *k;
	int rc;

	(void)cfg;
	if ((k = calloc(1, sizeof *k)) == NULL)
		return -ENOMEM;
	if ((rc = grow(k)) < 0 || (rc = open_fds(k)) < 0) {
		free(k->changes);
		free(k->events);
		free(k);
		return rc;
	}
	ready_init(&k->ready, l, &kqueue_ops);
	return 0;
}

static void
kqueue_fini(struct io_loop *l)
{
	struct kqueue_poller *k = poller_of(ready_of(l));

	ready_fini(&k->ready);
	close_fds(k);
	free(k->changes);
	free(k->events);
	free(k);
}

const struct io_backend io_backend_kqueue = {
	.name		= "kqueue",
	.probe		= kqueue_probe,
	.init		= kqueue_init,
	.fini		= kqueue_fini,
	.adopt		= ready_adopt,
	.submit		= ready_submit,
	.cancel		= ready_cancel,
	.resume		= ready_resume,
	.release	= ready_release,
	.wait		= ready_wait,
	.reap		= ready_reap,
	.wake		= kqueue_wake
};

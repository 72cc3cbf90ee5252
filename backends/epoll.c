/* SPDX-License-Identifier: ISC */
/*
 * epoll as the poller of ready.c: one edge-triggered registration a socket and
 * life, one epoll_wait a turn, an eventfd to wake, a timerfd for far timers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "alarm.h"
#include "ready.h"

/* Events taken at once: as many as a turn may call back for; the kernel keeps the rest. */
enum { EVENTS_MAX = 512 };

/* Never a slot's keys: generations start at 1. */
static const uintptr_t wake_key = 0, alarm_key = 1;

/* ready_wait() may shorten a timeout to this; then the next timer is not what is waited for. */
static_assert(READY_RECONNECT_NS < ALARM_MIN_NS, "the alarm would be late for a connect");

struct epoll_poller {
	struct ready		ready;
	int			epfd;
	int			wakefd;
	struct io_alarm		alarm;
	bool			no_pwait2;	/* before Linux 5.11, or a filter said no: milliseconds */
	struct epoll_event	events[EVENTS_MAX];
};

static struct epoll_poller *
poller_of(struct ready *r)
{
	return io_container_of(r, struct epoll_poller, ready);
}

/* ---- interest ---- */

static int
epoll_need(struct ready *r, struct io_sock *s, unsigned bit)
{
	struct epoll_poller *e = poller_of(r);
	/*
	 * Both directions at once and for life: a later wait costs no call.
	 * Urgent data are asked for because a read stops at their mark.
	 */
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET,
		.data.u64 = ready_key(r, s)
	};

	(void)bit;
	if (s->be[1] & RDY_ARMED_RD)
		return 0;
	/* The kernel reports what is ready at this moment as a first event: nothing is missed. */
	if (epoll_ctl(e->epfd, EPOLL_CTL_ADD, s->fd, &ev) == -1) {
		/* The same file under the same number, kept alive by a duplicate: its entry is stale. */
		if (errno != EEXIST || epoll_ctl(e->epfd, EPOLL_CTL_MOD, s->fd, &ev) == -1)
			return errno == ENOSPC ? -ENOMEM : -errno;
	}
	s->be[1] |= RDY_ARMED_RD;
	return 0;
}

static void
epoll_forget(struct ready *r, struct io_sock *s)
{
	/*
	 * close(2) ends a registration with the last descriptor of the file
	 * (epoll(7) Q6).  Only listeners are held by others for long (handed
	 * over, inherited); for the rest the call would be wasted.
	 */
	if ((s->be[1] & (RDY_ARMED_RD | RDY_LISTEN)) == (RDY_ARMED_RD | RDY_LISTEN))
		(void)epoll_ctl(poller_of(r)->epfd, EPOLL_CTL_DEL, s->fd, NULL);
}

static unsigned
bits_of(uint32_t ev)
{
	unsigned bits = 0;

	if (ev & (EPOLLIN | EPOLLPRI))
		bits |= RDY_READ;
	if (ev & EPOLLOUT)
		bits |= RDY_WRITE;
	if (ev & EPOLLPRI)
		bits |= RDY_URGENT;
	if (ev & EPOLLRDHUP)
		bits |= RDY_READ | RDY_EOF;
	/* Whoever waits must look: the next call on the socket says what it is. */
	if (ev & (EPOLLHUP | EPOLLERR))
		bits |= RDY_READ | RDY_WRITE | RDY_EOF;
	return bits;
}

/* ---- waiting ---- */

/* In nanoseconds if possible; milliseconds are rounded up: an early turn would be in vain. */
static int
wait_events(struct epoll_poller *e, uint64_t timeout_ns)
{
	int ms = -1;

#ifdef SYS_epoll_pwait2
	/* Only where the finer clock matters: the old call costs less and more filters know it. */
	if (!e->no_pwait2 && timeout_ns != 0 && timeout_ns != UINT64_MAX) {
		struct timespec ts = {
			.tv_sec = (time_t)(timeout_ns / 1000000000u),
			.tv_nsec = (long)(timeout_ns % 1000000000u)
		};
		int n = (int)syscall(SYS_epoll_pwait2, e->epfd, e->events,
		    EVENTS_MAX, &ts, NULL, (size_t)0);

		if (n != -1 || (errno != ENOSYS && errno != EPERM))
			return n;
		e->no_pwait2 = true;
	}
#endif
	if (timeout_ns != UINT64_MAX) {
		uint64_t up = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);

		ms = up > 1000000000u ? 1000000000 : (int)up;
	}
	return epoll_wait(e->epfd, e->events, EVENTS_MAX, ms);
}

static int
epoll_poller_wait(struct ready *r, uint64_t timeout_ns)
{
	struct epoll_poller *e = poller_of(r);
	int n = wait_events(e, io_alarm_for(&e->alarm, r->loop, timeout_ns));

	if (n == -1)
		return errno == EINTR ? 0 : -errno;	/* C5: a turn in which nothing came */
	for (int i = 0; i < n; i++) {
		if (e->events[i].data.u64 == alarm_key) {
			io_alarm_rang(&e->alarm);
			continue;
		}
		if (e->events[i].data.u64 != wake_key) {
			ready_event(r, (uintptr_t)e->events[i].data.u64,
			    bits_of(e->events[i].events));
			continue;
		}
		/*
		 * Edge-triggered, so the counter need not be read: each write is
		 * an event.  Cleared before the core looks at the posts: a waker
		 * that still saw `true` had left its post before (post.c).
		 */
		(void)atomic_exchange_explicit(&r->loop->wake_pending, false,
		    memory_order_acq_rel);
		r->loop->stats.wakes++;
	}
	return 0;
}

static void
epoll_wake(struct io_loop *l)
{
	struct epoll_poller *e = poller_of(ready_of(l));
	uint64_t one = 1;
	int saved = errno;	/* may run in a signal handler (C6) */

	/* Fails only after 2^64 - 2 wake-ups. */
	while (write(e->wakefd, &one, sizeof one) == -1 && errno == EINTR)
		;
	errno = saved;
}

/* ---- life ---- */

static const struct ready_ops epoll_ops = {
	.tells_urgent	= true,
	.need		= epoll_need,
	.forget		= epoll_forget,
	.wait		= epoll_poller_wait
};

/* An epoll instance and an eventfd on it.  0 or a negative errno. */
static int
open_fds(int *epfd, int *wakefd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u64 = wake_key };
	int rc;

	*wakefd = -1;
	if ((*epfd = epoll_create1(EPOLL_CLOEXEC)) == -1)
		return -errno;
	if ((*wakefd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) == -1 ||
	    epoll_ctl(*epfd, EPOLL_CTL_ADD, *wakefd, &ev) == -1) {
		rc = -errno;
		if (*wakefd != -1)
			close(*wakefd);
		close(*epfd);
		return rc;
	}
	return 0;
}

static void
open_alarm(struct epoll_poller *e)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u64 = alarm_key };

	io_alarm_open(&e->alarm);
	if (e->alarm.fd != -1 && epoll_ctl(e->epfd, EPOLL_CTL_ADD, e->alarm.fd, &ev) == -1) {
		io_alarm_close(&e->alarm);
		e->alarm.fd = -1;
	}
}

static enum io_probe
epoll_probe(struct io_choice *c, int level)
{
	struct epoll_event ev;
	uint64_t one = 1;
	int epfd, wakefd, rc;

	(void)level;
	if ((rc = open_fds(&epfd, &wakefd)) < 0) {
		snprintf(c->why, sizeof c->why, "epoll_create1, eventfd: %s",
		    io_strerror(io_err_of(-rc)));
		return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ?
		    PROBE_FATAL : PROBE_NEXT;
	}
	rc = write(wakefd, &one, sizeof one) == sizeof one &&
	    epoll_wait(epfd, &ev, 1, 0) == 1;
	if (!rc)
		snprintf(c->why, sizeof c->why, "epoll_wait does not see an eventfd");
	close(wakefd);
	close(epfd);
	return rc ? PROBE_OK : PROBE_NEXT;
}

static int
epoll_init(struct io_loop *l, const struct io_config *cfg)
{
	struct epoll_poller *e;
	int rc;

	(void)cfg;
	if ((e = calloc(1, sizeof *e)) == NULL)
		return -ENOMEM;
	if ((rc = open_fds(&e->epfd, &e->wakefd)) < 0) {
		free(e);
		return rc;
	}
	open_alarm(e);
	ready_init(&e->ready, l, &epoll_ops);
	return 0;
}

static void
epoll_fini(struct io_loop *l)
{
	struct epoll_poller *e = poller_of(ready_of(l));

	ready_fini(&e->ready);
	io_alarm_close(&e->alarm);
	close(e->wakefd);
	close(e->epfd);
	free(e);
}

const struct io_backend io_backend_epoll = {
	.name		= "epoll",
	.probe		= epoll_probe,
	.init		= epoll_init,
	.fini		= epoll_fini,
	.adopt		= ready_adopt,
	.submit		= ready_submit,
	.cancel		= ready_cancel,
	.resume		= ready_resume,
	.release	= ready_release,
	.wait		= ready_wait,
	.reap		= ready_reap,
	.wake		= epoll_wake
};

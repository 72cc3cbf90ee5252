/* SPDX-License-Identifier: ISC */
/*
 * kevent over poll(2), for tests on Linux only.  Strict: what kqueue(2) calls an
 * error is one here, and what poll(2) can't tell (an edge, EV_CLEAR on READ or
 * WRITE) is refused, not guessed at.
 *
 * As on the BSDs: a filter goes with its descriptor, even if the number is used
 * again; a call that reports errors of changes reports nothing else; EV_RECEIPT
 * reports success as an error of 0; a trigger may come from another thread, or
 * from a signal handler: that path takes no lock.
 */
#include <sys/types.h>
#include <sys/event.h>

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUES_MAX = 65536, USERS_MAX = 4 };

/* READ and WRITE, by index. */
enum { READ, WRITE, FILTERS };

struct knote {
	struct kevent	kev;
	ino_t		ino;		/* the file it was made for */
	dev_t		dev;
	bool		live;
};

struct user {
	struct kevent	kev;
	_Atomic bool	live, triggered;
};

/* One thread calls kevent() at a time, but for triggers. */
struct queue {
	int		fd;		/* an eventfd: the queue's number, and what wakes poll(2) */
	struct knote	(*notes)[FILTERS]; /* by descriptor */
	size_t		n;
	struct user	users[USERS_MAX];
	struct pollfd	*polls;		/* scratch */
	size_t		npolls;
};

static _Atomic(struct queue *) queues[QUEUES_MAX];

static void
queue_free(struct queue *q)
{
	if (q == NULL)
		return;
	free(q->notes);
	free(q->polls);
	free(q);
}

int
kqueue(void)
{
	struct queue *q = calloc(1, sizeof *q);

	if (q == NULL)
		return -1;
	/* Inherited by nobody's exec: kqueue(2) says so of fork, and the backend sets the flag. */
	if ((q->fd = eventfd(0, EFD_NONBLOCK)) == -1 || q->fd >= QUEUES_MAX) {
		if (q->fd != -1) {
			close(q->fd);
			errno = EMFILE;
		}
		free(q);
		return -1;
	}
	/* The number is new, so a queue that had it was closed by close(2). */
	queue_free(atomic_exchange(&queues[q->fd], q));
	return q->fd;
}

/* ---- changes ---- */

static bool
same_file(const struct knote *k)
{
	struct stat st;

	return fstat((int)k->kev.ident, &st) == 0 && st.st_ino == k->ino && st.st_dev == k->dev;
}

static int
reserve(struct queue *q, size_t fd)
{
	size_t n = q->n ? q->n : 64;
	void *p;

	if (fd < q->n)
		return 0;
	while (n <= fd)
		n *= 2;
	if ((p = realloc(q->notes, n * sizeof *q->notes)) == NULL)
		return ENOMEM;
	q->notes = p;
	memset(q->notes + q->n, 0, (n - q->n) * sizeof *q->notes);
	q->n = n;
	return 0;
}

static int
change_note(struct queue *q, const struct kevent *c)
{
	struct knote *k;
	struct stat st;
	int rc;

	if (c->ident > INT32_MAX || fstat((int)c->ident, &st) == -1)
		return EBADF;
	if (c->fflags != 0 || (c->flags & EV_CLEAR) != 0)
		return EINVAL;	/* see above */
	if ((rc = reserve(q, c->ident)) != 0)
		return rc;
	k = &q->notes[c->ident][c->filter == EVFILT_READ ? READ : WRITE];
	if (k->live && (k->ino != st.st_ino || k->dev != st.st_dev))
		k->live = false;
	if (c->flags & EV_DELETE) {
		rc = k->live ? 0 : ENOENT;
		k->live = false;
		return rc;
	}
	if (!k->live && (c->flags & EV_ADD) == 0)
		return ENOENT;
	*k = (struct knote){ .kev = *c, .ino = st.st_ino, .dev = st.st_dev, .live = true };
	return 0;
}

static struct user *
user_of(struct queue *q, uintptr_t ident)
{
	for (int i = 0; i < USERS_MAX; i++)
		if (atomic_load(&q->users[i].live) && q->users[i].kev.ident == ident)
			return &q->users[i];
	return NULL;
}

static int
change_user(struct queue *q, const struct kevent *c)
{
	struct user *u = user_of(q, c->ident);

	if (c->flags & EV_DELETE) {
		if (u == NULL)
			return ENOENT;
		atomic_store(&u->live, false);
		return 0;
	}
	if (u == NULL) {
		if ((c->flags & EV_ADD) == 0)
			return ENOENT;
		for (int i = 0; u == NULL && i < USERS_MAX; i++)
			if (!atomic_load(&q->users[i].live))
				u = &q->users[i];
		if (u == NULL)
			return ENOMEM;
	}
	if (c->flags & EV_ADD) {
		u->kev = *c;
		atomic_store(&u->triggered, false);
		atomic_store(&u->live, true);
	}
	if (c->fflags & NOTE_TRIGGER)
		atomic_store(&u->triggered, true);
	return 0;
}

static int
change(struct queue *q, const struct kevent *c)
{
	const unsigned known = EV_ADD | EV_DELETE | EV_ONESHOT | EV_CLEAR | EV_RECEIPT;

	if ((c->flags & ~known) != 0 || (c->flags & (EV_ADD | EV_DELETE)) == (EV_ADD | EV_DELETE))
		return EINVAL;
	switch (c->filter) {
	case EVFILT_READ:
	case EVFILT_WRITE:
		return change_note(q, c);
	case EVFILT_USER:
		return change_user(q, c);
	default:
		return EINVAL;
	}
}

/* Errors and receipts go to the events while there is room; -1 and errno when there is none. */
static int
make_changes(struct queue *q, const struct kevent *c, int n, struct kevent *out, int nout)
{
	int reported = 0;

	for (int i = 0; i < n; i++) {
		int e = change(q, &c[i]);

		if (e == 0 && (c[i].flags & EV_RECEIPT) == 0)
			continue;
		if (reported < nout) {
			out[reported] = c[i];
			out[reported].flags |= EV_ERROR;
			out[reported++].data = e;
		} else if (e != 0) {
			errno = e;
			return -1;
		}
	}
	return reported;
}

/* ---- events ---- */

static short
poll_bits(int filter)
{
	return filter == READ ? POLLIN | POLLRDHUP : POLLOUT;
}

/* One pollfd a descriptor that has a filter, and one for the queue's own. */
static int
build_polls(struct queue *q, size_t *n)
{
	*n = 0;
	if (q->npolls < q->n + 1) {
		struct pollfd *p = realloc(q->polls, (q->n + 1) * sizeof *p);

		if (p == NULL)
			return -1;
		q->polls = p;
		q->npolls = q->n + 1;
	}
	q->polls[(*n)++] = (struct pollfd){ .fd = q->fd, .events = POLLIN };
	for (size_t fd = 0; fd < q->n; fd++) {
		short events = 0;

		for (int f = 0; f < FILTERS; f++)
			if (q->notes[fd][f].live)
				events |= poll_bits(f);
		if (events != 0)
			q->polls[(*n)++] = (struct pollfd){ .fd = (int)fd, .events = events };
	}
	return 0;
}

static int64_t
amount(int fd, int f)
{
	int n = 0;

	/* READ: bytes there (a listener: unknown here, at least one); WRITE: room, unknown too. */
	if (f == READ && ioctl(fd, FIONREAD, &n) == 0)
		return n;
	return 1;
}

/*
 * Linux reports POLLERR for as long as its error queue has something in it.  The
 * BSDs know no such queue: a socket that asked for one is not in error for that.
 */
static bool
has_error_queue(int fd)
{
	int v4 = 0, v6 = 0;
	socklen_t len = sizeof v4;

	(void)getsockopt(fd, IPPROTO_IP, IP_RECVERR, &v4, &len);
	len = sizeof v6;
	(void)getsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &v6, &len);
	return v4 || v6;
}

/* The filter's event, if poll(2) saw one.  False: nothing. */
static bool
note_event(struct knote *k, int f, short revents, struct kevent *out)
{
	short eof = f == READ ? POLLRDHUP | POLLHUP | POLLERR : POLLHUP | POLLERR;

	if (!k->live)
		return false;
	if ((revents & POLLNVAL) != 0 || !same_file(k)) {
		k->live = false;	/* gone with its descriptor */
		return false;
	}
	if ((revents & POLLERR) != 0 && has_error_queue((int)k->kev.ident))
		revents &= (short)~POLLERR;
	if ((revents & (poll_bits(f) | eof)) == 0)
		return false;
	*out = k->kev;
	out->flags &= (unsigned short)~EV_ADD;
	out->fflags = 0;
	out->data = amount((int)k->kev.ident, f);
	if (revents & eof)
		out->flags |= EV_EOF;
	if (k->kev.flags & EV_ONESHOT)
		k->live = false;
	return true;
}

static int
collect(struct queue *q, size_t npolls, struct kevent *out, int nout)
{
	int n = 0;

	for (int i = 0; i < USERS_MAX && n < nout; i++) {
		struct user *u = &q->users[i];

		if (!atomic_load(&u->live) || !atomic_load(&u->triggered))
			continue;
		out[n++] = u->kev;
		if (u->kev.flags & EV_CLEAR)
			atomic_store(&u->triggered, false);
		if (u->kev.flags & EV_ONESHOT)
			atomic_store(&u->live, false);
	}
	for (size_t i = 1; i < npolls; i++)
		for (int f = 0; f < FILTERS && n < nout && q->polls[i].revents != 0; f++)
			n += note_event(&q->notes[q->polls[i].fd][f], f, q->polls[i].revents,
			    &out[n]);
	return n;
}

static bool
any_triggered(struct queue *q)
{
	for (int i = 0; i < USERS_MAX; i++)
		if (atomic_load(&q->users[i].live) && atomic_load(&q->users[i].triggered))
			return true;
	return false;
}

/* ---- kevent ---- */

static int64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int
poll_until(struct queue *q, size_t n, bool at_once, int64_t end_ns)
{
	struct timespec ts = { 0 };

	if (end_ns == INT64_MAX && !at_once)
		return ppoll(q->polls, n, NULL, NULL);
	if (!at_once) {
		int64_t left = end_ns - now_ns();

		if (left > 0) {
			ts.tv_sec = left / 1000000000;
			ts.tv_nsec = left % 1000000000;
		}
	}
	return ppoll(q->polls, n, &ts, NULL);
}

int
kevent(int fd, const struct kevent *changes, int nchanges, struct kevent *events,
    int nevents, const struct timespec *timeout)
{
	struct queue *q = fd >= 0 && fd < QUEUES_MAX ? atomic_load(&queues[fd]) : NULL;
	int64_t end_ns = INT64_MAX;
	uint64_t count = 1;
	int n;

	if (q == NULL) {
		errno = EBADF;
		return -1;
	}
	if (timeout != NULL) {
		if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000) {
			errno = EINVAL;
			return -1;
		}
		end_ns = now_ns() + (int64_t)timeout->tv_sec * 1000000000 + timeout->tv_nsec;
	}
	if ((n = make_changes(q, changes, nchanges, events, nevents)) != 0)
		return n;
	if (nevents == 0) {
		/* A trigger, perhaps: whoever sleeps in poll(2) must look again. */
		if (nchanges > 0 && write(fd, &count, sizeof count) == -1 && errno != EAGAIN)
			return -1;
		return 0;
	}
	for (;;) {
		size_t npolls;

		if (build_polls(q, &npolls) == -1)
			return -1;
		if (poll_until(q, npolls, any_triggered(q), end_ns) == -1)
			return -1;	/* EINTR: the changes have been made */
		/* Emptied before the triggers are looked at: one that comes later wakes the next poll. */
		if (q->polls[0].revents != 0 && read(fd, &count, sizeof count) == -1 &&
		    errno != EAGAIN)
			return -1;
		if ((n = collect(q, npolls, events, nevents)) > 0)
			return n;
		if (end_ns != INT64_MAX && now_ns() >= end_ns)
			return 0;
		/* Something that is no event here, such as an error queue: poll(2) would not block. */
		if (npolls > 1)
			(void)usleep(200);
	}
}

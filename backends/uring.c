/* SPDX-License-Identifier: ISC */
/* The ring of one loop: set-up, wait, reap, cancel, wake. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "uring.h"

enum {
	ENTRIES_DEFAULT	= 512,	/* a turn's callbacks start about as many requests (TURN_MAX_DEFAULT in io.c) */
	ENTRIES_MIN	= 4,
	CQ_PER_SQ	= 8,	/* multishot requests complete many times: make an overflow rare */
	SUBMIT_TRIES	= 10000	/* the kernel has no memory for a request: give it that many chances */
};

/*
 * DEFER_TASKRUN (6.1) runs completions only when the loop enters the kernel;
 * COOP_TASKRUN (5.19) does not interrupt the loop for them; with neither, older
 * kernels still do.  SUBMIT_ALL: one bad request must not hold up the rest.
 */
int
uring_setup(struct io_uring *ring, unsigned level, unsigned entries)
{
	static const unsigned flags[URING_LEVELS] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
		    IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL |
		    IORING_SETUP_R_DISABLED,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
		    IORING_SETUP_SUBMIT_ALL,
		0
	};
	struct io_uring_params p;

	assert(level < URING_LEVELS);
	if (entries == 0)
		entries = ENTRIES_DEFAULT;
	if (entries < ENTRIES_MIN)
		entries = ENTRIES_MIN;
	memset(&p, 0, sizeof p);
	p.flags = flags[level] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
	p.cq_entries = entries * CQ_PER_SQ;
	return io_uring_queue_init_params(entries, ring, &p);
}

int
uring_enable(struct io_uring *ring, unsigned level)
{
	if (level != 0)
		return 0;
	/* Not io_uring_enable_rings(): liburing 2.3 declares it and does not export it. */
	return io_uring_register((unsigned)ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

static int
init(struct io_loop *l, const struct io_config *cfg)
{
	struct uring *u;
	int rc;

	if ((u = calloc(1, sizeof *u)) == NULL)
		return -ENOMEM;
	u->loop = l;
	u->level = cfg->choice->uring_level;
	u->no_ring = cfg->no_ring;
	u->taskrun_flag = u->level < 2;
	io_list_init(&u->gathered);
	uring_dgram_init(u);
	if ((u->wakefd = eventfd(0, EFD_CLOEXEC)) == -1) {
		rc = -errno;
		goto fail;
	}
	if ((rc = uring_setup(&u->ring, u->level, cfg->entries)) < 0)
		goto fail_fd;
	u->scratch = calloc(u->ring.sq.ring_entries, sizeof *u->scratch);
	if (u->scratch == NULL) {
		rc = -ENOMEM;
		goto fail_ring;
	}
	io_alarm_open(&u->alarm);
	l->bed = u;
	return 0;
fail_ring:
	io_uring_queue_exit(&u->ring);
fail_fd:
	close(u->wakefd);
fail:
	free(u);
	return rc;
}

static void
fini(struct io_loop *l)
{
	struct uring *u = uring_of(l);

	assert(io_list_empty(&u->gathered));
	io_uring_queue_exit(&u->ring);
	io_alarm_close(&u->alarm);
	close(u->wakefd);
	free(u->scratch);
	free(u->saved);
	free(u);
	l->bed = NULL;
}

/*
 * SINGLE_ISSUER binds the ring to the thread that enables it: the one that
 * turns the loop, which need not be the one that made it.
 */
static int
enable(struct uring *u)
{
	sigset_t pipe;
	int rc;

	if (u->enabled)
		return 0;
	if ((rc = uring_enable(&u->ring, u->level)) < 0)
		return rc;
	u->enabled = true;
	/* splice(2) into a socket whose peer has gone raises it, and knows no MSG_NOSIGNAL (C12). */
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, NULL);
	/* Saves looking the descriptor up at each entry; not there before 5.18, and no loss. */
	(void)io_uring_register_ring_fd(&u->ring);
	return 0;
}

/* ---- submission ---- */

/* Makes room in a completion queue that is so full that the kernel takes no more requests. */
static void
save_completions(struct uring *u)
{
	unsigned n = io_uring_cq_ready(&u->ring), head = *u->ring.cq.khead;

	if (u->saved_at > 0) {
		u->nsaved -= u->saved_at;
		memmove(u->saved, u->saved + u->saved_at, u->nsaved * sizeof *u->saved);
		u->saved_at = 0;
	}
	if (u->nsaved + n > u->saved_cap) {
		uint32_t cap = (u->nsaved + n) * 2;
		struct io_uring_cqe *v = realloc(u->saved, cap * sizeof *v);

		if (v == NULL)
			abort();	/* a completion that is lost is a session that never ends */
		u->saved = v;
		u->saved_cap = cap;
	}
	for (unsigned i = 0; i < n; i++)
		u->saved[u->nsaved++] = u->ring.cq.cqes[(head + i) & u->ring.cq.ring_mask];
	io_uring_cq_advance(&u->ring, n);
}

static void
submit_now(struct uring *u)
{
	for (int tries = 0; tries < SUBMIT_TRIES; tries++) {
		int rc = enable(u);

		if (rc == 0)
			rc = io_uring_submit(&u->ring);
		if (rc > 0)
			return;
		if (rc == -EBUSY)
			save_completions(u);
		else if (rc == -EAGAIN || rc == -ENOMEM)
			sched_yield();
		else
			assert(rc == 0 || rc == -EINTR);
	}
	abort();
}

struct io_uring_sqe *
uring_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe;

	while ((sqe = io_uring_get_sqe(&u->ring)) == NULL)
		submit_now(u);
	memset(sqe, 0, sizeof *sqe);
	return sqe;
}

struct io_uring_sqe *
uring_sqe_op(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe(u);

	assert(op->krefs == 0);		/* one request at a time */
	op->krefs++;
	sqe->user_data = (uintptr_t)op | TAG_TARGET;
	return sqe;
}

struct uring_scratch *
uring_scratch_of(struct uring *u, const struct io_uring_sqe *sqe)
{
	return &u->scratch[sqe - u->ring.sq.sqes];
}

void
uring_poll_add(struct uring *u, struct io_op *op, int fd, unsigned events)
{
	struct io_uring_sqe *sqe = uring_sqe_op(u, op);
	uint64_t ud = sqe->user_data;

	io_uring_prep_poll_add(sqe, fd, events);
	sqe->user_data = ud;
}

void
uring_make_nonblocking(struct io_sock *s)
{
	int fl;

	if (s->be[0] != 0)
		return;
	s->be[0] = 1;
	fl = fcntl(s->fd, F_GETFL);
	if (fl != -1 && (fl & O_NONBLOCK) == 0)
		(void)fcntl(s->fd, F_SETFL, fl | O_NONBLOCK);
}

static void
wake_arm(struct uring *u)
{
	struct io_uring_sqe *sqe = uring_sqe(u);

	io_uring_prep_rw(IORING_OP_READ, sqe, u->wakefd, &u->wake_value,
	    sizeof u->wake_value, 0);
	sqe->user_data = TAG_WAKE;
	u->wake_armed = true;
}

/* The timeout that is left, see alarm.h. */
static uint64_t
alarm_arm(struct uring *u, uint64_t timeout_ns)
{
	struct io_uring_sqe *sqe;

	timeout_ns = io_alarm_for(&u->alarm, u->loop, timeout_ns);
	if (u->alarm.at_ns != UINT64_MAX && !u->alarm_polled) {
		sqe = uring_sqe(u);
		io_uring_prep_poll_add(sqe, u->alarm.fd, POLLIN);
		sqe->user_data = TAG_ALARM;
		u->alarm_polled = true;
	}
	return timeout_ns;
}

static void
wake(struct io_loop *l)
{
	struct uring *u = uring_of(l);
	uint64_t one = 1;
	int saved = errno;	/* we may be in a signal handler */

	while (write(u->wakefd, &one, sizeof one) == -1 && errno == EINTR)
		;
	errno = saved;
}

/* ---- wait ---- */

static int
enter(struct uring *u, uint64_t timeout_ns)
{
	struct io_uring_cqe *cqe;
	struct __kernel_timespec ts;
	unsigned kflags;

	if (timeout_ns == 0) {
		kflags = IO_URING_READ_ONCE(*u->ring.sq.kflags);
		if (io_uring_sq_ready(&u->ring) == 0 &&
		    (kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0)
			return 0;
		return io_uring_submit_and_get_events(&u->ring);
	}
	if (timeout_ns == UINT64_MAX)
		return io_uring_submit_and_wait(&u->ring, 1);
	ts.tv_sec = (long long)(timeout_ns / 1000000000u);
	ts.tv_nsec = (long long)(timeout_ns % 1000000000u);
	return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
}

static int
wait(struct io_loop *l, uint64_t timeout_ns)
{
	struct uring *u = uring_of(l);
	int rc;

	if ((rc = enable(u)) < 0)
		return rc;
	if (!u->wake_armed)
		wake_arm(u);
	if (u->saved_at < u->nsaved || io_uring_cq_ready(&u->ring) > 0)
		timeout_ns = 0;
	rc = enter(u, alarm_arm(u, timeout_ns));
	/*
	 * Before the core looks for posts: a waker that finds the flag set has
	 * posted before this, one that finds it clear writes the eventfd again.
	 */
	if (atomic_load_explicit(&l->wake_pending, memory_order_relaxed))
		(void)atomic_exchange_explicit(&l->wake_pending, false, memory_order_acq_rel);
	/* Snapshot: what the callbacks of this turn start, and a full queue submits, is for the next. */
	u->reap_tail = io_uring_smp_load_acquire(u->ring.cq.ktail);
	/* EBUSY, EAGAIN: nothing is lost, the requests stay queued for the next turn. */
	if (rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EBUSY || rc == -EAGAIN ||
	    rc == -ENOMEM)
		return 0;
	return rc;
}

/* ---- reap ---- */

void
uring_end(struct uring *u, struct io_op *op, int32_t res, int32_t syserr)
{
	if (op->krefs > 0) {
		op->res = res;
		op->syserr = syserr;
		op->flags |= OPF_ENDED;
	} else if (u->reaping && !u->loop->in_callback && u->loop->budget > u->ngathered) {
		io_op_finish(u->loop, op, res, syserr);
	} else {
		io_op_defer(u->loop, op, res, syserr);
	}
}

void
uring_end_rc(struct uring *u, struct io_op *op, int rc)
{
	if (rc < 0)
		uring_end(u, op, io_err_of(-rc), rc == -ECANCELED ? 0 : -rc);
	else
		uring_end(u, op, rc, 0);
}

static void
cancel_request(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_sqe(u);

	io_uring_prep_cancel64(sqe, (uintptr_t)op | TAG_TARGET, 0);
	sqe->user_data = (uintptr_t)op | TAG_CANCEL;
	op->krefs++;
}

static void
cancel_completed(struct uring *u, struct io_op *op, int res)
{
	assert(op->krefs > 0);
	op->krefs--;
	if (op->krefs == 0) {
		assert(op->flags & OPF_ENDED);
		uring_end(u, op, op->res, op->syserr);
	} else if (res < 0 && (op->flags & OPF_ENDED) == 0) {
		/* Missed it between two of its lives (ENOENT, EALREADY): it is still there, ask again. */
		cancel_request(u, op);
	}
}

static void
dispatch(struct uring *u, const struct io_uring_cqe *cqe)
{
	struct io_op *op = (struct io_op *)(uintptr_t)(cqe->user_data & ~(uint64_t)TAG_MASK);

	switch (cqe->user_data & TAG_MASK) {
	case TAG_WAKE:
		u->wake_armed = false;
		u->loop->stats.wakes++;
		return;
	case TAG_ALARM:
		u->alarm_polled = false;
		io_alarm_rang(&u->alarm);
		return;
	case TAG_CANCEL:
		cancel_completed(u, op, cqe->res);
		return;
	default:
		break;
	}
	assert(op->state == OP_ARMED && op->krefs > 0);
	if ((cqe->flags & IORING_CQE_F_MORE) == 0)
		op->krefs--;
	if (op->kind == IO_RECV_BATCH)
		uring_recv_batch_completed(u, op, cqe);
	else if (op->kind == IO_SEND_BATCH)
		uring_send_batch_completed(u, op, cqe);
	else if (op->kind == IO_RELAY)
		uring_relay_completed(u, op, cqe);
	else
		uring_net_completed(u, op, cqe);
}

/* The next completion that was there when the turn began. */
static bool
next_completion(struct uring *u, struct io_uring_cqe *cqe)
{
	unsigned head = *u->ring.cq.khead;

	if (u->saved_at < u->nsaved) {
		*cqe = u->saved[u->saved_at++];
		if (u->saved_at == u->nsaved)
			u->saved_at = u->nsaved = 0;
		return true;
	}
	if ((int32_t)(u->reap_tail - head) <= 0)
		return false;
	*cqe = u->ring.cq.cqes[head & u->ring.cq.ring_mask];
	io_uring_cq_advance(&u->ring, 1);
	return true;
}

static void
reap(struct io_loop *l)
{
	struct uring *u = uring_of(l);
	struct io_uring_cqe cqe;

	u->reaping = true;
	/* What makes more than one callback looks at the budget itself; each gathered batch is one to come. */
	while (l->budget > u->ngathered && next_completion(u, &cqe))
		dispatch(u, &cqe);
	uring_dgram_flush(u);
	u->reaping = false;
	l->backlog = u->saved_at < u->nsaved ||
	    (int32_t)(u->reap_tail - *u->ring.cq.khead) > 0;
}

/* ---- the rest of the table ---- */

static void
adopt(struct io_loop *l, struct io_sock *s)
{
	(void)l;
	(void)s;
}

static void
submit(struct io_loop *l, struct io_op *op)
{
	struct uring *u = uring_of(l);

	if (op->kind == IO_RECV_BATCH)
		uring_recv_batch_start(u, op);
	else if (op->kind == IO_SEND_BATCH)
		uring_send_batch_start(u, op);
	else if (op->kind == IO_RELAY)
		uring_relay_start(u, op);
	else
		uring_net_submit(u, op);
}

static void
cancel(struct io_loop *l, struct io_op *op)
{
	struct uring *u = uring_of(l);

	if (op->krefs > 0) {
		/* Already ended, and its cancel on the way?  Then krefs is the cancel's. */
		if ((op->flags & OPF_ENDED) == 0)
			cancel_request(u, op);
		return;
	}
	/* Nothing in the kernel: it waits for a block, for the end of the reap, or is inside its own callback. */
	if (op->kind == IO_RELAY)
		uring_relay_drop(u, op);
	else if (op->kind == IO_RECV_BATCH)
		uring_recv_batch_drop(u, op);
	io_op_defer(l, op, IO_ECANCELED, 0);
}

static void
resume(struct io_loop *l, struct io_op *op)
{
	struct uring *u = uring_of(l);

	assert(op->state == OP_ARMED && op->krefs == 0);
	if (op->kind == IO_RECV_BATCH)
		uring_recv_batch_resume(u, op);
	else if (op->kind == IO_RELAY)
		uring_relay_resume(u, op);
	else
		uring_net_resume(u, op);
}

static void
release(struct io_loop *l, struct io_sock *s)
{
	(void)l;
	io_close_fd(s->fd);
	s->fd = IO_FD_NONE;
}

const struct io_backend io_backend_uring = {
	.name = "io_uring",
	.probe = uring_probe,
	.init = init,
	.fini = fini,
	.adopt = adopt,
	.submit = submit,
	.cancel = cancel,
	.resume = resume,
	.release = release,
	.wait = wait,
	.reap = reap,
	.wake = wake,
	.pool_bind = uring_pool_bind,
	.pool_unbind = uring_pool_unbind,
	.pool_keep = uring_pool_keep
};

/* SPDX-License-Identifier: ISC */
/*
 * Can this kernel do what the backend needs (C30)?  Asked by doing it: a list
 * of opcodes says nothing of a seccomp filter, nor of multishot and provided
 * buffers.  Sockets are Unix ones, so no network is needed and none is touched.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "uring.h"

enum {
	PROBE_ENTRIES	= 8,
	PROBE_GROUP	= 1,
	PROBE_BUFS	= 8,
	PROBE_BUF_BYTES	= 256,
	PROBE_MS	= 2000	/* nothing here waits for anybody else: more is a broken kernel */
};

struct probe {
	struct io_uring	 ring;
	struct io_uring_buf_ring *br;
	uint8_t		 bufs[PROBE_BUFS][PROBE_BUF_BYTES];
	const char	*step;	/* what is being tried, for the reason */
};

static struct io_uring_sqe *
probe_sqe(struct probe *p, uint64_t user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&p->ring);

	assert(sqe != NULL);
	memset(sqe, 0, sizeof *sqe);
	sqe->user_data = user_data;
	return sqe;
}

/* The next completion's result, or a negative errno if there is none; its flags in *flags. */
static int
probe_wait(struct probe *p, uint64_t want_user_data, unsigned *flags)
{
	struct __kernel_timespec ts = { .tv_sec = PROBE_MS / 1000 };
	struct io_uring_cqe *cqe;
	int rc, res;

	for (;;) {
		rc = io_uring_submit_and_wait_timeout(&p->ring, &cqe, 1, &ts, NULL);
		if (rc == -EINTR)
			continue;
		if (rc < 0)
			return rc == -ETIME ? -ENOSYS : rc;
		if (io_uring_cq_ready(&p->ring) == 0)
			continue;
		cqe = &p->ring.cq.cqes[*p->ring.cq.khead & p->ring.cq.ring_mask];
		res = cqe->res;
		if (flags != NULL)
			*flags = cqe->flags;
		if (cqe->user_data == want_user_data) {
			io_uring_cqe_seen(&p->ring, cqe);
			return res;
		}
		io_uring_cqe_seen(&p->ring, cqe);
	}
}

static int
try_buffers(struct probe *p)
{
	struct io_uring_buf_reg reg = { .ring_entries = PROBE_BUFS, .bgid = PROBE_GROUP };
	int rc;

	p->step = "provided buffer ring";
	p->br = mmap(NULL, PROBE_BUFS * sizeof p->br->bufs[0], PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->br == MAP_FAILED) {
		p->br = NULL;
		return -errno;
	}
	reg.ring_addr = (uintptr_t)p->br;
	if ((rc = io_uring_register_buf_ring(&p->ring, &reg, 0)) < 0)
		return rc;
	for (unsigned i = 0; i < PROBE_BUFS; i++)
		io_uring_buf_ring_add(p->br, p->bufs[i], PROBE_BUF_BYTES,
		    (unsigned short)i, PROBE_BUFS - 1, (int)i);
	io_uring_buf_ring_advance(p->br, PROBE_BUFS);
	return 0;
}

/* Receive into a provided buffer, poll, and cancel with its two completions. */
static int
try_stream(struct probe *p)
{
	struct io_uring_sqe *sqe;
	unsigned flags;
	int fd[2], rc;

	p->step = "receive into a provided buffer";
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == -1)
		return -errno;
	sqe = probe_sqe(p, 1);
	sqe->opcode = IORING_OP_RECV;
	sqe->fd = fd[0];
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->buf_group = PROBE_GROUP;
	sqe->len = PROBE_BUF_BYTES;
	sqe = probe_sqe(p, 2);
	sqe->opcode = IORING_OP_SEND;
	sqe->fd = fd[1];
	sqe->addr = (uintptr_t)"x";
	sqe->len = 1;
	sqe->msg_flags = MSG_NOSIGNAL;
	rc = probe_wait(p, 1, &flags);
	if (rc == 1 && (flags & IORING_CQE_F_BUFFER) == 0)
		rc = -ENOSYS;
	if (rc < 0)
		goto done;
	p->step = "poll";
	sqe = probe_sqe(p, 3);
	sqe->opcode = IORING_OP_POLL_ADD;
	sqe->fd = fd[0];
	sqe->poll32_events = __io_uring_prep_poll_mask(POLLOUT);
	if ((rc = probe_wait(p, 3, NULL)) < 0)
		goto done;
	p->step = "cancel";
	sqe = probe_sqe(p, 4);
	sqe->opcode = IORING_OP_POLL_ADD;
	sqe->fd = fd[0];
	sqe->poll32_events = __io_uring_prep_poll_mask(POLLIN);
	sqe = probe_sqe(p, 5);
	sqe->opcode = IORING_OP_ASYNC_CANCEL;
	sqe->fd = -1;
	sqe->addr = 4;
	rc = probe_wait(p, 4, NULL);
	rc = rc == -ECANCELED ? 0 : rc < 0 ? rc : -ENOSYS;
done:
	close(fd[0]);
	close(fd[1]);
	return rc;
}

static int
try_dgram(struct probe *p)
{
	struct msghdr msg = { .msg_namelen = 16, .msg_controllen = 16 };
	struct io_uring_sqe *sqe;
	unsigned flags;
	int fd[2], rc;

	p->step = "multishot recvmsg";
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fd) == -1)
		return -errno;
	sqe = probe_sqe(p, 6);
	sqe->opcode = IORING_OP_RECVMSG;
	sqe->fd = fd[0];
	sqe->addr = (uintptr_t)&msg;
	sqe->len = 1;
	sqe->ioprio = IORING_RECV_MULTISHOT;
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->buf_group = PROBE_GROUP;
	if (send(fd[1], "x", 1, MSG_NOSIGNAL) == -1)
		rc = -errno;
	else
		rc = probe_wait(p, 6, &flags);
	if (rc >= 0 && (flags & IORING_CQE_F_MORE) == 0)
		rc = -ENOSYS;
	close(fd[0]);
	close(fd[1]);
	return rc;
}

/* 0, or what went wrong at p->step. */
static int
try_level(struct probe *p, unsigned level)
{
	static int (*const tries[])(struct probe *) = {
		try_buffers, try_stream, try_dgram
	};
	int rc;

	p->step = "io_uring_setup";
	p->br = NULL;
	if ((rc = uring_setup(&p->ring, level, PROBE_ENTRIES)) < 0)
		return rc;
	rc = uring_enable(&p->ring, level);
	/* Waits with a timeout in the same entry, requests copied at submission: 5.11. */
	if (rc == 0 && ((p->ring.features & IORING_FEAT_EXT_ARG) == 0 ||
	    (p->ring.features & IORING_FEAT_NODROP) == 0 ||
	    (p->ring.features & IORING_FEAT_SUBMIT_STABLE) == 0))
		rc = -ENOSYS;
	for (size_t i = 0; rc >= 0 && i < sizeof tries / sizeof tries[0]; i++)
		rc = tries[i](p);
	io_uring_queue_exit(&p->ring);
	if (p->br != NULL)
		munmap(p->br, PROBE_BUFS * sizeof p->br->bufs[0]);
	return rc < 0 ? rc : 0;
}

static const char *
hint(int rc, const char *step)
{
	bool setup = strcmp(step, "io_uring_setup") == 0;

	switch (rc) {
	case -EPERM:
	case -EACCES:
		return setup ? " (seccomp filter or kernel.io_uring_disabled)" :
		    " (seccomp filter)";
	case -ENOSYS:
	case -EOPNOTSUPP:
		return setup ? " (not in this kernel, or a seccomp filter)" :
		    " (kernel too old)";
	case -EINVAL:
		return " (kernel too old)";
	case -ENOMEM:
		return setup ? " (RLIMIT_MEMLOCK or memory)" : "";
	default:
		return "";
	}
}

enum io_probe
uring_probe(struct io_choice *c, int level)
{
	struct probe p = { .step = "" };
	unsigned first = level < 0 ? 0 : (unsigned)level;
	unsigned last = level < 0 ? URING_LEVELS - 1 : first;
	int rc = -EINVAL;

	for (unsigned i = first; i <= last && i < URING_LEVELS; i++) {
		rc = try_level(&p, i);
		if (rc == 0) {
			c->uring_level = i;
			c->why[0] = '\0';
			return PROBE_OK;
		}
		/* Only unknown flags are worth another rung. */
		if (rc != -EINVAL)
			break;
	}
	snprintf(c->why, sizeof c->why, "%s: %s%s", p.step, strerror(-rc), hint(rc, p.step));
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? PROBE_FATAL : PROBE_NEXT;
}

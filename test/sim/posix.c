/* SPDX-License-Identifier: ISC */
/*
 * posix: the system calls of the code under test, by the linker's --wrap.
 * Descriptors from SIM_FD_BASE on are the simulation's; all others, and all
 * while no world is active, go through.  Calls block only with the real clock.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"

#define WRAP(type, name, args)	type __real_##name args; type __wrap_##name args; type __wrap_##name args

static int
answer(long rc)
{
	sim_unlock();
	if (rc >= 0)
		return (int)rc;
	errno = (int)-rc;
	return -1;
}

static struct kfile *
file_of(int fd)
{
	struct kfile *f;

	if (fd < SIM_FD_BASE)
		return NULL;
	sim_lock();
	if (sim.threads)
		sim_run_due();
	if ((f = k_fd(fd)) == NULL)
		sim_unlock();
	return f;
}

/* Ours, or the system's (which says EBADF to numbers that are nobody's). */
#define OURS(f, fd)	((f = file_of(fd)) != NULL)

/* Waits, if the call may: true to try again. */
static bool
try_again(struct kfile *f, bool dontwait, uint64_t since_ns)
{
	uint64_t until = f->rcvtimeo_ns != 0 ? since_ns + f->rcvtimeo_ns : UINT64_MAX;

	if (!sim.threads || dontwait || f->nonblock || sim_now() >= until)
		return false;
	sim_wait(until);
	return true;
}

/* ---- making and ending ---- */

WRAP(int, socket, (int domain, int type, int protocol))
{
	struct kfile *f;
	int fd;

	if (!sim.active || (domain != AF_INET && domain != AF_INET6))
		return __real_socket(domain, type, protocol);
	sim_lock();
	f = k_socket(domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
	f->nonblock = (type & SOCK_NONBLOCK) != 0;
	f->cloexec = (type & SOCK_CLOEXEC) != 0;
	if ((fd = k_fd_new(f)) < 0)
		k_close(f);
	return answer(fd);
}

WRAP(int, close, (int fd))
{
	if (fd < SIM_FD_BASE)
		return __real_close(fd);
	sim_lock();
	return answer(k_fd_close(fd));
}

WRAP(int, shutdown, (int fd, int how))
{
	struct kfile *f;

	if (!OURS(f, fd))
		return __real_shutdown(fd, how);
	return answer(k_shutdown(f, how != SHUT_WR, how != SHUT_RD));
}

WRAP(int, socketpair, (int domain, int type, int protocol, int sv[2]))
{
	struct kfile *f[2];

	if (!sim.active || (type & SOCK_STREAM) == 0)
		return __real_socketpair(domain, type, protocol, sv);
	sim_lock();
	k_pair(f);
	for (int i = 0; i < 2; i++) {
		f[i]->nonblock = (type & SOCK_NONBLOCK) != 0;
		sv[i] = k_fd_new(f[i]);
	}
	return answer(0);
}

WRAP(int, dup, (int fd))
{
	struct kfile *f;

	if (!OURS(f, fd))
		return __real_dup(fd);
	k_ref(f);
	return answer(k_fd_new(f));
}

WRAP(int, fcntl, (int fd, int cmd, long arg))
{
	struct kfile *f;

	if (!OURS(f, fd))
		return __real_fcntl(fd, cmd, arg);
	switch (cmd) {
	case F_GETFL:
		return answer(O_RDWR | (f->nonblock ? O_NONBLOCK : 0));
	case F_SETFL:
		f->nonblock = (arg & O_NONBLOCK) != 0;
		return answer(0);
	case F_GETFD:
		return answer(f->cloexec ? FD_CLOEXEC : 0);
	case F_SETFD:
		f->cloexec = (arg & FD_CLOEXEC) != 0;
		return answer(0);
	case F_DUPFD_CLOEXEC:
		k_ref(f);
		return answer(k_fd_new(f));
	default:
		return answer(-EINVAL);
	}
}

/* ---- names ---- */

static long
give_name(const struct sockaddr_storage *ss, socklen_t have, struct sockaddr *sa, socklen_t *len)
{
	if (sa != NULL) {
		memcpy(sa, ss, have < *len ? have : *len);
		*len = have;
	}
	return 0;
}

WRAP(int, bind, (int fd, const struct sockaddr *sa, socklen_t len))
{
	struct kfile *f;

	return OURS(f, fd) ? answer(k_bind(f, sa, len)) : __real_bind(fd, sa, len);
}

WRAP(int, listen, (int fd, int backlog))
{
	struct kfile *f;

	return OURS(f, fd) ? answer(k_listen(f, backlog)) : __real_listen(fd, backlog);
}

WRAP(int, getsockname, (int fd, struct sockaddr *sa, socklen_t *len))
{
	struct kfile *f;
	struct sockaddr_storage none = { .ss_family = AF_INET };

	if (!OURS(f, fd))
		return __real_getsockname(fd, sa, len);
	none.ss_family = (sa_family_t)f->family;
	if (f->locallen == 0)
		return answer(give_name(&none, sizeof(struct sockaddr_in), sa, len));
	return answer(give_name(&f->local, f->locallen, sa, len));
}

WRAP(int, getpeername, (int fd, struct sockaddr *sa, socklen_t *len))
{
	struct kfile *f;
	struct sockaddr_storage ss;
	socklen_t have = 0;
	int rc;

	if (!OURS(f, fd))
		return __real_getpeername(fd, sa, len);
	if ((rc = k_peer(f, &ss, &have)) == 0)
		give_name(&ss, have, sa, len);
	return answer(rc);
}

/* ---- connecting ---- */

WRAP(int, connect, (int fd, const struct sockaddr *sa, socklen_t len))
{
	struct kfile *f;
	int rc;

	if (!OURS(f, fd))
		return __real_connect(fd, sa, len);
	rc = k_connect(f, sa, len);
	while (rc == -EINPROGRESS && try_again(f, false, sim_now()))
		rc = k_connect_result(f);
	return answer(rc);
}

static int
accept_flags(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	struct kfile *f = k_fd(fd), *c = NULL;
	struct sockaddr_storage ss;
	socklen_t have = 0;
	uint64_t since = sim_now();
	int rc;

	while ((rc = k_accept(f, &c, &ss, &have)) == -EAGAIN && try_again(f, false, since))
		;
	if (rc < 0)
		return answer(rc);
	c->nonblock = (flags & SOCK_NONBLOCK) != 0;
	c->cloexec = (flags & SOCK_CLOEXEC) != 0;
	give_name(&ss, have, sa, len);
	if ((rc = k_fd_new(c)) < 0)
		k_close(c);
	return answer(rc);
}

WRAP(int, accept, (int fd, struct sockaddr *sa, socklen_t *len))
{
	struct kfile *f;

	return OURS(f, fd) ? accept_flags(fd, sa, len, 0) : __real_accept(fd, sa, len);
}

WRAP(int, accept4, (int fd, struct sockaddr *sa, socklen_t *len, int flags))
{
	struct kfile *f;

	return OURS(f, fd) ? accept_flags(fd, sa, len, flags) : __real_accept4(fd, sa, len, flags);
}

/* ---- bytes ---- */

ssize_t __wrap_recvfrom(int, void *, size_t, int, struct sockaddr *, socklen_t *);

WRAP(ssize_t, recv, (int fd, void *buf, size_t len, int flags))
{
	struct kfile *f;
	uint64_t since;
	long n;

	if (fd >= SIM_FD_BASE && k_fd(fd) != NULL && k_fd(fd)->kind == K_DGRAM)
		return __wrap_recvfrom(fd, buf, len, flags, NULL, NULL);
	if (!OURS(f, fd))
		return __real_recv(fd, buf, len, flags);
	since = sim_now();
	while ((n = k_recv(f, buf, len, (flags & MSG_PEEK) != 0)) == -EAGAIN &&
	    try_again(f, (flags & MSG_DONTWAIT) != 0, since))
		;
	return answer(n);
}

WRAP(ssize_t, send, (int fd, const void *buf, size_t len, int flags))
{
	struct kfile *f;
	uint64_t since;
	long n;

	if (!OURS(f, fd))
		return __real_send(fd, buf, len, flags);
	since = sim_now();
	while ((n = k_send(f, buf, len)) == -EAGAIN &&
	    try_again(f, (flags & MSG_DONTWAIT) != 0, since))
		;
	return answer(n);
}

WRAP(ssize_t, sendto, (int fd, const void *buf, size_t len, int flags,
    const struct sockaddr *to, socklen_t tolen))
{
	struct kfile *f;

	if (!OURS(f, fd))
		return __real_sendto(fd, buf, len, flags, to, tolen);
	return answer(k_sendto(f, buf, len, to, NULL));
}

WRAP(ssize_t, recvfrom, (int fd, void *buf, size_t len, int flags,
    struct sockaddr *from, socklen_t *fromlen))
{
	struct kfile *f;
	struct kdgram *d;
	uint64_t since;
	size_t n;

	if (!OURS(f, fd))
		return __real_recvfrom(fd, buf, len, flags, from, fromlen);
	since = sim_now();
	while ((d = k_dgram(f)) == NULL && try_again(f, (flags & MSG_DONTWAIT) != 0, since))
		;
	if (d == NULL)
		return answer(-EAGAIN);
	n = d->len < len ? d->len : len;
	memcpy(buf, d->data, n);
	give_name(&d->from, d->fromlen, from, fromlen);
	k_dgram_drop(f);
	return answer((long)n);
}

WRAP(int, poll, (struct pollfd *v, nfds_t n, int timeout_ms))
{
	struct kfile *f;
	uint64_t until;
	unsigned k;

	if (n != 1 || !OURS(f, v[0].fd))
		return __real_poll(v, n, timeout_ms);
	until = timeout_ms < 0 ? UINT64_MAX : sim_now() + (uint64_t)timeout_ms * SIM_MS;
	for (;;) {
		k = k_poll(f);
		v[0].revents = (short)((k & K_IN ? POLLIN : 0) | (k & K_OUT ? POLLOUT : 0));
		v[0].revents = (short)((v[0].revents & v[0].events) | (k & K_HUP ? POLLHUP : 0));
		if (v[0].revents != 0 || !sim.threads || sim_now() >= until)
			return answer(v[0].revents != 0);
		sim_wait(until);
	}
}

/* ---- options ---- */

WRAP(int, setsockopt, (int fd, int level, int name, const void *val, socklen_t len))
{
	struct kfile *f;
	int v = 0;

	if (!OURS(f, fd))
		return __real_setsockopt(fd, level, name, val, len);
	if (len >= sizeof v)
		memcpy(&v, val, sizeof v);
	if (level == SOL_SOCKET) {
		if (name == SO_LINGER)
			f->linger0 = ((const struct linger *)val)->l_onoff != 0 &&
			    ((const struct linger *)val)->l_linger == 0;
		else if (name == SO_SNDBUF)
			f->sndbuf = (size_t)v * 2;	/* as Linux has it */
		else if (name == SO_RCVBUF)
			f->rcvbuf = (size_t)v * 2;
		else if (name == SO_REUSEPORT)
			f->reuseport = v != 0;
		else if (name == SO_RCVTIMEO)
			f->rcvtimeo_ns = (uint64_t)((const struct timeval *)val)->tv_sec * SIM_S;
		else if (name == SO_BROADCAST)
			f->broadcast = v != 0;
	} else if ((level == IPPROTO_IP && name == IP_PKTINFO) ||
	    (level == IPPROTO_IPV6 && name == IPV6_RECVPKTINFO))
		f->pktinfo = v != 0;
	return answer(0);
}

WRAP(int, getsockopt, (int fd, int level, int name, void *val, socklen_t *len))
{
	struct kfile *f;
	int v = 0;

	if (!OURS(f, fd))
		return __real_getsockopt(fd, level, name, val, len);
	if (level == IPPROTO_TCP && name == TCP_INFO) {
		/* The sessions look at the state and at acknowledged bytes; <netinet/tcp.h> ends before them. */
		enum { ACKED_AT = 120, ESTABLISHED = 1, CLOSED = 7 };
		uint64_t acked = k_acked(f);

		if (*len < ACKED_AT + sizeof acked)
			return answer(-EINVAL);
		memset(val, 0, *len);
		*(uint8_t *)val = f->end != NULL && !f->end->rst ? ESTABLISHED : CLOSED;	/* tcpi_state */
		memcpy((char *)val + ACKED_AT, &acked, sizeof acked);
		return answer(0);
	}
	if (level == SOL_SOCKET && name == SO_ERROR) {
		v = f->end != NULL && f->end->err != 0 ? f->end->err : f->so_error;
		if (f->end != NULL)
			f->end->err = 0;
		f->so_error = 0;
	} else if (level == SOL_SOCKET && name == SO_TYPE)
		v = f->type;
	else if (level == SOL_SOCKET && name == SO_PROTOCOL)
		v = f->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	else if (level == SOL_SOCKET && name == SO_SNDBUF)
		v = (int)f->sndbuf;
	else if (level == SOL_SOCKET && name == SO_RCVBUF)
		v = (int)f->rcvbuf;
	memcpy(val, &v, sizeof v < *len ? sizeof v : *len);
	return answer(0);
}

/* The limit on descriptors is the simulation's own. */
WRAP(int, setrlimit, (int what, const struct rlimit *r))
{
	if (!sim.active || what != RLIMIT_NOFILE)
		return __real_setrlimit(what, r);
	sim_lock();
	/* By number, as the system has it; what is below ours has none. */
	sim.faults.fd_limit = r->rlim_cur <= SIM_FD_BASE ? 1 : (unsigned)(r->rlim_cur - SIM_FD_BASE);
	return answer(0);
}

WRAP(int, getrlimit, (int what, struct rlimit *r))
{
	if (!sim.active || what != RLIMIT_NOFILE)
		return __real_getrlimit(what, r);
	r->rlim_max = 2 * SIM_FD_BASE;
	r->rlim_cur = sim.faults.fd_limit != 0 ? SIM_FD_BASE + sim.faults.fd_limit : r->rlim_max;
	return 0;
}

/* ---- time, log ---- */

WRAP(int, clock_gettime, (clockid_t clock, struct timespec *ts))
{
	if (!sim.active || sim.threads)
		return __real_clock_gettime(clock, ts);
	ts->tv_sec = (time_t)(sim.now_ns / SIM_S);
	ts->tv_nsec = (long)(sim.now_ns % SIM_S);
	return 0;
}

WRAP(ssize_t, write, (int fd, const void *buf, size_t len))
{
	if (!sim.active || fd != STDERR_FILENO)
		return __real_write(fd, buf, len);
	if (sim.verbose)	/* the log's lines among the events */
		printf("  %4u.%09u log      %.*s", (unsigned)(sim.now_ns / SIM_S),
		    (unsigned)(sim.now_ns % SIM_S), (int)len, (const char *)buf);
	return (ssize_t)len;
}

/* SPDX-License-Identifier: ISC */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef _WIN32
#include <fcntl.h>
#include <unistd.h>
#endif

#include "suite.h"

/* Longer than any scheduling delay on a busy machine, shorter than a case's limit. */
enum { PLAIN_LIMIT_S = 6 };

#ifdef _WIN32
typedef int n_len;
#define n_errno() WSAGetLastError()
#define N_AGAIN WSAEWOULDBLOCK
#define N_RESET WSAECONNRESET
#define MSG_NOSIGNAL 0
#else
typedef size_t n_len;
#define n_errno() errno
#define N_AGAIN EAGAIN
#define N_RESET ECONNRESET
#endif

void
n_init(void)
{
#ifdef _WIN32
	WSADATA d;
	if (WSAStartup(MAKEWORD(2, 2), &d) != 0)
		abort();
#endif
}

bool
n_is_wine(void)
{
#ifdef _WIN32
	return GetProcAddress(GetModuleHandleA("ntdll.dll"), "wine_get_version") != NULL;
#else
	return false;
#endif
}

void
n_addr4(struct n_addr *a, const char *ip, uint16_t port)
{
	struct sockaddr_in *in = (void *)&a->ss;

	memset(a, 0, sizeof *a);
	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	if (inet_pton(AF_INET, ip, &in->sin_addr) != 1)
		FAIL("bad address %s", ip);
	a->len = sizeof *in;
}

bool
n_addr6(struct n_addr *a, const char *ip, uint16_t port)
{
	struct sockaddr_in6 *in = (void *)&a->ss;

	memset(a, 0, sizeof *a);
	in->sin6_family = AF_INET6;
	in->sin6_port = htons(port);
	a->len = sizeof *in;
	return inet_pton(AF_INET6, ip, &in->sin6_addr) == 1;
}

uint16_t
n_port(const struct n_addr *a)
{
	/* sin_port and sin6_port are at the same place. */
	return ntohs(((const struct sockaddr_in *)(const void *)&a->ss)->sin_port);
}

void
n_local(io_fd fd, struct n_addr *a)
{
	memset(a, 0, sizeof *a);
	a->len = sizeof a->ss;
	if (getsockname(fd, n_sa_mut(a), &a->len) != 0)
		FAIL("getsockname: error %d", n_errno());
}

bool
n_same(const struct n_addr *a, const struct sockaddr *sa, socklen_t len)
{
	if (sa->sa_family != a->ss.ss_family)
		return false;
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *x = (const void *)&a->ss, *y = (const void *)sa;
		return (size_t)len >= sizeof *y && x->sin_port == y->sin_port &&
		    x->sin_addr.s_addr == y->sin_addr.s_addr;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *x = (const void *)&a->ss, *y = (const void *)sa;
		return (size_t)len >= sizeof *y && x->sin6_port == y->sin6_port &&
		    memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0;
	}
	return a->len == len && memcmp(&a->ss, sa, len) == 0;
}

/*
 * Set where a plain call may block, not when the socket is made: the other end
 * of a pair goes to a loop, which must see an ordinary socket.
 */
static void
limit(io_fd fd)
{
#ifdef _WIN32
	DWORD tv = PLAIN_LIMIT_S * 1000;
#else
	struct timeval tv = { .tv_sec = PLAIN_LIMIT_S };
#endif
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, (const void *)&tv, sizeof tv);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, (const void *)&tv, sizeof tv);
}

io_fd
n_tcp(int family)
{
	io_fd fd = socket(family, SOCK_STREAM, 0);
	int one = 1;

	if (fd == IO_FD_NONE)
		FAIL("socket: error %d", n_errno());
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, (const void *)&one, sizeof one);
	return fd;
}

/*
 * Ports rest for a minute after use (TIME_WAIT), and the suite uses thousands:
 * each process has a loopback address, hence a set of ports, of its own.
 */
static const char *
own_loopback(void)
{
#ifdef __linux__
	static _Thread_local char ip[INET_ADDRSTRLEN];
	unsigned pid = (unsigned)getpid();

	snprintf(ip, sizeof ip, "127.%u.%u.%u", 64 + (pid >> 14 & 63), pid >> 7 & 127,
	    1 + (pid & 127));
	return ip;
#else
	return "127.0.0.1";
#endif
}

static void
bind_any(io_fd fd, const char *ip, struct n_addr *a)
{
	struct n_addr own;

	if (strcmp(ip, "127.0.0.1") == 0)
		ip = own_loopback();
	if (strchr(ip, ':') != NULL)
		n_addr6(&own, ip, 0);
	else
		n_addr4(&own, ip, 0);
	if (bind(fd, n_sa(&own), own.len) != 0)
		FAIL("bind %s: error %d", ip, n_errno());
	if (a != NULL)
		n_local(fd, a);
}

io_fd
n_udp(const char *ip, struct n_addr *a)
{
	io_fd fd = socket(strchr(ip, ':') != NULL ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);

	if (fd == IO_FD_NONE)
		FAIL("socket: error %d", n_errno());
	bind_any(fd, ip, a);
	return fd;
}

io_fd
n_listen(const char *ip, int backlog, struct n_addr *a)
{
	io_fd fd = n_tcp(strchr(ip, ':') != NULL ? AF_INET6 : AF_INET);

	bind_any(fd, ip, a);
	if (listen(fd, backlog) != 0)
		FAIL("listen: error %d", n_errno());
	return fd;
}

int
n_try_connect(const struct n_addr *a, io_fd *out)
{
	io_fd fd = socket(a->ss.ss_family, SOCK_STREAM, 0);
	int err;

	if (fd == IO_FD_NONE)
		return n_errno();
	if (connect(fd, n_sa(a), a->len) != 0) {
		err = n_errno();
		n_close(fd);
		return err;
	}
	*out = fd;
	return 0;
}

io_fd
n_connect(const struct n_addr *a)
{
	io_fd fd;
	int err;

	if ((err = n_try_connect(a, &fd)) != 0)
		FAIL("connect: error %d", err);
	return fd;
}

static void
pair_over(io_fd lfd, const struct n_addr *at, io_fd fd[2], int sndbuf, int rcvbuf)
{
	int one = 1;

	fd[0] = n_tcp(AF_INET);
	n_buffers(fd[0], sndbuf, rcvbuf);
	if (connect(fd[0], n_sa(at), at->len) != 0)
		FAIL("connect: error %d", n_errno());
	if ((fd[1] = accept(lfd, NULL, NULL)) == IO_FD_NONE)
		FAIL("accept: error %d", n_errno());
	setsockopt(fd[1], IPPROTO_TCP, TCP_NODELAY, (const void *)&one, sizeof one);
}

void
n_pair_buffers(io_fd fd[2], int sndbuf, int rcvbuf)
{
	struct n_addr at;
	io_fd lfd = n_tcp(AF_INET);

	n_buffers(lfd, sndbuf, rcvbuf);		/* inherited by what is accepted */
	bind_any(lfd, "127.0.0.1", &at);
	if (listen(lfd, 1) != 0)
		FAIL("listen: error %d", n_errno());
	pair_over(lfd, &at, fd, sndbuf, rcvbuf);
	n_close(lfd);
}

void
n_pair(io_fd fd[2])
{
	/* One listener for all pairs of a thread: a single port, and less work. */
	static _Thread_local bool made;
	static _Thread_local io_fd lfd;
	static _Thread_local struct n_addr at;

	if (!made)
		lfd = n_listen("127.0.0.1", 1, &at);
	made = true;
	pair_over(lfd, &at, fd, 0, 0);
}

void
n_closed_port(struct n_addr *a)
{
	/* Bound and never listening, for the life of the process: nobody else gets the number. */
	bind_any(n_tcp(AF_INET), "127.0.0.1", a);
}

void
n_send(io_fd fd, const void *buf, size_t len)
{
	const char *p = buf;

	limit(fd);
	while (len > 0) {
		long n = (long)send(fd, p, (n_len)len, MSG_NOSIGNAL);

		if (n < 0)
			FAIL("plain send: error %d with %zu bytes left", n_errno(), len);
		p += n;
		len -= (size_t)n;
	}
}

long
n_recv(io_fd fd, void *buf, size_t len, int *err)
{
	long n;

	limit(fd);
	n = (long)recv(fd, buf, (n_len)len, 0);
	if (n < 0 && err != NULL)
		*err = n_errno();
	return n;
}

void
n_recv_all(io_fd fd, void *buf, size_t len)
{
	char *p = buf;
	int err;

	while (len > 0) {
		long n = n_recv(fd, p, len, &err);

		if (n == 0)
			FAIL("plain receive: the end came with %zu bytes missing", len);
		if (n < 0)
			FAIL("plain receive: error %d with %zu bytes missing", err, len);
		p += n;
		len -= (size_t)n;
	}
}

bool
n_eof(io_fd fd)
{
	char c;

	return n_recv(fd, &c, 1, NULL) == 0;
}

bool
n_reset_seen(io_fd fd)
{
	static char skip[65536];
	long n;
	int err = 0;

	while ((n = n_recv(fd, skip, sizeof skip, &err)) > 0)
		;
#ifdef _WIN32
	/*
	 * wine reads a reset that came while nobody waited as an end.  But after a
	 * FIN the first send goes out, after a reset it fails at once.
	 */
	if (n == 0 && n_is_wine() && send(fd, skip, 1, 0) < 0) {
		err = n_errno();
		n = -1;
	}
#endif
	return n < 0 && err == N_RESET;
}

/* One call without blocking.  Windows has no flag for that: the socket's mode is changed and back. */
#ifdef _WIN32
#define MSG_DONTWAIT 0
#define TRY_BEGIN(fd) n_nonblock(fd, true)
#define TRY_END(fd) n_nonblock(fd, false)
#else
#define TRY_BEGIN(fd) ((void)(fd))
#define TRY_END(fd) ((void)(fd))
#endif

long
n_try_recv(io_fd fd, void *buf, size_t len)
{
	long n;

	TRY_BEGIN(fd);
	n = (long)recv(fd, buf, (n_len)len, MSG_DONTWAIT);
	if (n < 0)
		n = n_errno() == N_AGAIN ? -1 : -2;
	TRY_END(fd);
	return n;
}

long
n_try_send(io_fd fd, const void *buf, size_t len)
{
	long n;

	TRY_BEGIN(fd);
	n = (long)send(fd, buf, (n_len)len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		n = n_errno() == N_AGAIN ? -1 : -2;
	TRY_END(fd);
	return n;
}

void
n_sendto(io_fd fd, const void *buf, size_t len, const struct n_addr *to)
{
	if (sendto(fd, buf, (n_len)len, 0, n_sa(to), to->len) != (long)len)
		FAIL("plain sendto: error %d", n_errno());
}

long
n_recvfrom(io_fd fd, void *buf, size_t len, struct n_addr *from)
{
	struct n_addr ignored;

	if (from == NULL)
		from = &ignored;
	from->len = sizeof from->ss;
	limit(fd);
	return (long)recvfrom(fd, buf, (n_len)len, 0, n_sa_mut(from), &from->len);
}

io_fd
n_try_accept(io_fd lfd)
{
	io_fd fd;

	n_nonblock(lfd, true);
	fd = accept(lfd, NULL, NULL);
	return fd;
}

void
n_nonblock(io_fd fd, bool on)
{
#ifdef _WIN32
	u_long v = on;
	ioctlsocket(fd, FIONBIO, &v);
#else
	int fl = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
#endif
}

void
n_shutdown(io_fd fd)
{
#ifdef _WIN32
	shutdown(fd, SD_SEND);
#else
	shutdown(fd, SHUT_WR);
#endif
}

void
n_close(io_fd fd)
{
#ifdef _WIN32
	closesocket(fd);
#else
	close(fd);
#endif
}

void
n_reset(io_fd fd)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, (const void *)&now, sizeof now);
	n_close(fd);
}

void
n_buffers(io_fd fd, int sndbuf, int rcvbuf)
{
	if (sndbuf > 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, (const void *)&sndbuf, sizeof sndbuf);
	if (rcvbuf > 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, (const void *)&rcvbuf, sizeof rcvbuf);
}

bool
n_fd_open(io_fd fd)
{
#ifdef _WIN32
	int type, len = sizeof type;
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, (char *)&type, &len) == 0;
#else
	return fcntl(fd, F_GETFD) != -1;
#endif
}

void
n_sleep_ms(unsigned ms)
{
#ifdef _WIN32
	Sleep(ms);
#else
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
		;
#endif
}

uint64_t
n_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#ifdef _WIN32
static DWORD WINAPI
thread_main(void *p)
{
	struct n_thread *t = p;

	t->fn(t->arg);
	return 0;
}
#else
static void *
thread_main(void *p)
{
	struct n_thread *t = p;

	t->fn(t->arg);
	return NULL;
}
#endif

void
n_thread(struct n_thread *t, void (*fn)(void *), void *arg)
{
	t->fn = fn;
	t->arg = arg;
#ifdef _WIN32
	if ((t->h = CreateThread(NULL, 0, thread_main, t, 0, NULL)) == NULL)
		FAIL("no thread");
#else
	if (pthread_create(&t->t, NULL, thread_main, t) != 0)
		FAIL("no thread");
#endif
}

void
n_join(struct n_thread *t)
{
#ifdef _WIN32
	WaitForSingleObject(t->h, INFINITE);
	CloseHandle(t->h);
#else
	pthread_join(t->t, NULL);
#endif
}

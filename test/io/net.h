/* SPDX-License-Identifier: ISC */
/*
 * net: plain sockets, threads and clocks for the conformance cases.  The other
 * end of each connection is driven through these, never through io.h.  Calls
 * fail the case when the system refuses what it should grant.
 */
#ifndef RW_IO_NET_H
#define RW_IO_NET_H

#include "io/io.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#endif

struct n_addr {
	struct sockaddr_storage	ss;
	socklen_t		len;
};

static inline const struct sockaddr *
n_sa(const struct n_addr *a)
{
	return (const struct sockaddr *)(const void *)&a->ss;
}

static inline struct sockaddr *
n_sa_mut(struct n_addr *a)
{
	return (struct sockaddr *)(void *)&a->ss;
}

void	 n_init(void);				/* once a process */
bool	 n_is_wine(void);			/* Windows' calls by wine: its own faults are not the backend's */
void	 n_addr4(struct n_addr *, const char *ip, uint16_t port);
bool	 n_addr6(struct n_addr *, const char *ip, uint16_t port);
uint16_t n_port(const struct n_addr *);
void	 n_local(io_fd, struct n_addr *);
bool	 n_same(const struct n_addr *, const struct sockaddr *, socklen_t);

io_fd	 n_tcp(int family);
io_fd	 n_udp(const char *ip, struct n_addr *);	/* bound to ip, any port; *addr may be NULL */
io_fd	 n_listen(const char *ip, int backlog, struct n_addr *);
io_fd	 n_connect(const struct n_addr *);		/* blocking; fails the case */
int	 n_try_connect(const struct n_addr *, io_fd *);	/* 0 or the positive system error */
void	 n_pair(io_fd fd[2]);				/* connected TCP pair over loopback */
void	 n_pair_buffers(io_fd fd[2], int sndbuf, int rcvbuf); /* set on both, before the handshake; 0 = default */
void	 n_closed_port(struct n_addr *);		/* nobody listens there */

/* Blocking, with a limit of some seconds.  recv: bytes, 0 at the end, or -1 with the error in *err. */
void	 n_send(io_fd, const void *, size_t);
long	 n_recv(io_fd, void *, size_t, int *err);
void	 n_recv_all(io_fd, void *, size_t);
bool	 n_eof(io_fd);					/* the very next thing is an orderly end */
bool	 n_reset_seen(io_fd);				/* the next thing is a reset (data before it is skipped) */
/* Not blocking: bytes, 0 at the end, -1 nothing now, -2 error. */
long	 n_try_recv(io_fd, void *, size_t);
long	 n_try_send(io_fd, const void *, size_t);	/* bytes, -1 full, -2 error */
void	 n_sendto(io_fd, const void *, size_t, const struct n_addr *);
long	 n_recvfrom(io_fd, void *, size_t, struct n_addr *);
io_fd	 n_try_accept(io_fd);				/* IO_FD_NONE: nobody */
void	 n_nonblock(io_fd, bool);
void	 n_shutdown(io_fd);				/* write side */
void	 n_close(io_fd);
void	 n_reset(io_fd);				/* closes with a RST */
void	 n_buffers(io_fd, int sndbuf, int rcvbuf);
bool	 n_fd_open(io_fd);

void	 n_sleep_ms(unsigned);
uint64_t n_now_ns(void);

struct n_thread {
#ifdef _WIN32
	HANDLE		 h;
#else
	pthread_t	 t;
#endif
	void		(*fn)(void *);
	void		*arg;
};
void	 n_thread(struct n_thread *, void (*)(void *), void *);
void	 n_join(struct n_thread *);

#endif

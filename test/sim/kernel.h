/* SPDX-License-Identifier: ISC */
/*
 * kernel: simulated sockets.  TCP as a program sees it: two directions of
 * bounded buffers with latency, FIN and RST that travel, a backlog, connects
 * that are answered, refused or not answered at all.  Nothing blocks here; who
 * waits, watches.  Calls return a value >= 0 or a negative errno.
 */
#ifndef RW_SIM_KERNEL_H
#define RW_SIM_KERNEL_H

#include <sys/socket.h>
#include <netinet/in.h>

#include "io/list.h"
#include "sim.h"

struct kfile;
struct kconn;

/* Told whenever something about the file may have changed. */
struct kwatch {
	struct io_link	link;
	void		(*fn)(struct kwatch *);
};

/* One direction, in the end that receives. */
struct kpipe {
	uint8_t		*buf;
	size_t		 cap, head, len;	/* a ring */
	size_t		 rcvcap;		/* so much of it can have arrived */
	size_t		 visible;		/* so much has */
	bool		 fin, fin_visible;	/* sent, arrived */
	bool		 blocked;		/* the sender found no room */
	uint64_t	 delivered;		/* in all: what the sender calls acknowledged */
	struct sim_event deliver;
};

struct kend {
	struct kconn	*conn;
	struct kfile	*file;		/* NULL: closed */
	struct kpipe	 rx;
	struct sim_event rst_ev;
	bool		 rst;		/* a reset has arrived */
	int		 err;		/* told once, then the end (rx) or EPIPE (tx) */
	bool		 shut;		/* we have sent our FIN */
	uint64_t	 moved_ns;	/* when its program last moved a byte */
	struct sockaddr_storage name;
	socklen_t	 namelen;
	struct io_link	 backlog;	/* while not accepted */
	struct kfile	*listener;
};

struct kconn {
	struct kend	 end[2];	/* 0 the one that connected */
	uint64_t	 latency_ns;
	uint64_t	 id;
};

enum kkind { K_NEW, K_LISTEN, K_STREAM, K_DGRAM };
enum kconnecting { K_IDLE, K_SYN, K_CONNECTED, K_FAILED };

enum { K_DGRAM_MAX = 65507 };		/* bytes of one over IPv4 */

struct kdgram {
	struct io_link	 link;
	struct sockaddr_storage from, to;
	socklen_t	 fromlen;
	size_t		 len;
	uint8_t		 data[];
};

struct kfile {
	unsigned	 refs;
	int		 family, type;
	enum kkind	 kind;
	bool		 nonblock, cloexec, linger0, v6only, reuseport, nodelay;
	size_t		 sndbuf, rcvbuf;
	uint64_t	 rcvtimeo_ns;
	struct sockaddr_storage local;
	socklen_t	 locallen;	/* 0 = not bound */
	struct io_link	 bound;		/* on the list of names in use */
	struct io_link	 watches;
	/* Streams. */
	enum kconnecting connecting;
	int		 so_error;
	struct kend	*end;
	struct sim_event syn;		/* the answer to our connect */
	struct sockaddr_storage to;
	socklen_t	 tolen;
	int		 syn_result;
	/* Listeners. */
	struct io_link	 backlog;
	unsigned	 backlog_len, backlog_max;
	/* Datagrams. */
	struct io_link	 queue;
	size_t		 queue_bytes;
	bool		 broadcast, pktinfo;
	unsigned	 icmp;		/* datagrams that nobody was there for */
	uint64_t	 id;
	uint64_t	 tag;		/* for checks: see world.c */
};

/* What a connect to `to` comes to, when nobody listens or a world says so. */
enum kroute { K_ROUTE_NORMAL, K_ROUTE_REFUSED, K_ROUTE_NETUNREACH, K_ROUTE_HOSTUNREACH, K_ROUTE_SILENT };
typedef enum kroute kroute_fn(const struct sockaddr *to, socklen_t);
void	k_set_route(kroute_fn *);

struct kfile	*k_socket(int family, int type);
void		 k_ref(struct kfile *);
void		 k_close(struct kfile *);
int		 k_bind(struct kfile *, const struct sockaddr *, socklen_t);
int		 k_listen(struct kfile *, int backlog);
/* 0 done, -EINPROGRESS: watch, then k_connect_result(). */
int		 k_connect(struct kfile *, const struct sockaddr *, socklen_t);
int		 k_connect_result(struct kfile *);	/* 0, -EINPROGRESS or the error */
int		 k_accept(struct kfile *, struct kfile **, struct sockaddr_storage *peer, socklen_t *len);
long		 k_recv(struct kfile *, void *, size_t, bool peek);
long		 k_send(struct kfile *, const void *, size_t);
int		 k_shutdown(struct kfile *, bool rd, bool wr);
int		 k_peer(struct kfile *, struct sockaddr_storage *, socklen_t *);
void		 k_pair(struct kfile *out[2]);
unsigned	 k_poll(struct kfile *);		/* K_IN | K_OUT | K_HUP */
enum { K_IN = 1, K_OUT = 2, K_HUP = 4 };
uint64_t	 k_acked(const struct kfile *);

void	k_watch(struct kfile *, struct kwatch *, void (*)(struct kwatch *));
void	k_unwatch(struct kwatch *);
void	k_notify(struct kfile *);

/* kdgram.c */
/* `source` NULL or AF_UNSPEC: the bound address. */
long	k_sendto(struct kfile *, const void *, size_t, const struct sockaddr *,
	    const struct sockaddr_storage *source);
struct kdgram *k_dgram(struct kfile *);		/* the first; NULL: none */
void	k_dgram_drop(struct kfile *);

/* The same family and port, and either address the same or `a` a wildcard. */
bool	k_name_takes(const struct sockaddr_storage *a, const struct sockaddr *b);
struct kfile *k_bound_to(int type, const struct sockaddr *, bool listening);
int	k_autobind(struct kfile *, const struct sockaddr *towards);
void	 k_reset(void);				/* ports and numbers from the beginning */
unsigned k_conns(void);				/* connections that still have an end */
struct kend *k_other(const struct kend *);

/* Descriptors of the simulation. */
enum { SIM_FD_BASE = 100000 };
int	 k_fd_new(struct kfile *);		/* takes the reference; -EMFILE */
struct kfile *k_fd(int fd);			/* NULL: none of ours */
int	 k_fd_close(int fd);
unsigned k_fds(void);
bool	 k_fd_room(void);
void	 k_fds_each(void (*)(int fd, struct kfile *, void *), void *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * udp: the UDP association of a SOCKS5 client (RFC 1928 section 7): one socket
 * between one client, which puts a header in front of each datagram, and any
 * number of destinations, which see none.  It judges each new destination,
 * gathers datagrams into segmented sends and counts what it drops by cause.  It
 * knows nothing of the control connection and keeps no timer: the owner watches
 * udp_quiet_since() and calls udp_abort().
 *
 *	             first well-formed datagram
 *	             from the client's address       udp_abort(), socket broke
 *	WAITING ----------------------------> OPEN -------------------------> CLOSING -> done, freed
 *	   |                                                                     ^
 *	   +---------------------------------------------------------------------+
 *
 * Files: udp.c life and receiving, udp_dest.c destinations, udp_out.c gathering,
 * udp_send.c sending, udp_judge.c who may be reached and what names resolve to.
 */
#ifndef RW_RELAY_UDP_H
#define RW_RELAY_UDP_H

#include "net/env.h"
#include "net/sockopt.h"
#include "util/addr.h"
#include "util/span.h"

struct udp_assoc;	/* opaque; about 1.5 KiB while nothing moves */
struct udp_worker;	/* opaque */

enum udp_dir { UDP_UP, UDP_DOWN };	/* up: client to destinations */

struct udp_params {
	struct snapshot	*snapshot;	/* held by the association too */
	const struct addr *client;	/* the control connection's peer; copied */
	const char	*user;		/* authenticated, NULL = none; must stay until `done` */
	uint16_t	 listener_port;	/* for the rules; 0 = a Unix socket */
	uint64_t	 session_id;	/* for the log */
};

/* Once, later, when the socket is closed and the port given back; the association's memory is gone after it. */
typedef void udp_done_cb(void *owner);

/* What the associations of one worker share.  0 or -ENOMEM; env must be complete but for env->udp. */
int	udp_worker_new(struct udp_worker **, struct env *);
void	udp_worker_free(struct udp_worker *);	/* NULL is fine; no association is left */

/*
 * Opens a socket in udp.port_range and waits for the client.  0; or a negative
 * errno with `text` (see udpsock_open()), and nothing was started.
 */
int	udp_start(struct udp_assoc **, struct env *, const struct udp_params *, udp_done_cb *,
	    void *owner, char text[SOCKOPT_TEXT_MAX]);
/* Idempotent; `done` comes later. */
void	udp_abort(struct udp_assoc *);
uint16_t udp_port(const struct udp_assoc *);
/* When the last datagram of the client or of a destination was taken, io_now()'s clock. */
uint64_t udp_quiet_since(const struct udp_assoc *);
/*
 * Counts what the kernel has dropped since the last call; one system call, for
 * now and then.  udp_abort() does it too; nothing is counted after it.
 */
void	udp_count_unread(struct udp_assoc *);
enum { UDP_DROPS_TEXT_MAX = 768 };
/*
 * " udp_dropped=3 udp_drop_stranger=1 udp_drop_pps=2": the sum, and those causes
 * that there were; ringway(8) explains each.  `count` has COUNT_UDP_DROPS.
 */
size_t	udp_format_drops(const uint64_t *count, char out[UDP_DROPS_TEXT_MAX]);
/* Of this association; udp_format_drops() takes it. */
const uint64_t *udp_drops(const struct udp_assoc *);
/* Payload that went out. */
uint64_t udp_bytes(const struct udp_assoc *, enum udp_dir);
uint64_t udp_datagrams(const struct udp_assoc *, enum udp_dir);

/* ---- the DNS filter's place ---- */

enum udp_hook_verdict {
	UDP_HOOK_PASS,
	UDP_HOOK_DROP,
	UDP_HOOK_ANSWER		/* `answer` goes to the client as if the destination had sent it */
};

/* Asked for each datagram to `port` (env->udp_hook; NULL = off, and then it costs nothing). */
struct udp_hook {
	uint16_t	 port;
	void		*owner;
	enum udp_hook_verdict (*query)(void *owner, struct span payload, const struct addr *to,
			    uint8_t *answer, size_t cap, size_t *len);
};

#endif

/* SPDX-License-Identifier: ISC */
/*
 * udp_internal: what the files of an association share; see udp.h.  Nobody else
 * includes this.
 */
#ifndef RW_RELAY_UDP_INTERNAL_H
#define RW_RELAY_UDP_INTERNAL_H

#include "net/udpsock.h"
#include "policy/judge.h"
#include "proto/socks5_udp.h"
#include "relay/udp.h"
#include "relay/udp_dest.h"
#include "relay/udp_out.h"

#define NS_PER_S UINT64_C(1000000000)

enum {
	/*
	 * Outs of one association.  Mostly two; a first batch of many segments to
	 * a peer that has not shown yet what it takes needs one for 64 of them.
	 */
	UDP_OUTS_MAX	= 64,
	/* Received buffers that one association may keep from the others while its socket is full. */
	UDP_HELD_MAX	= 512,
	UDP_HELD_SHARE	= 2,		/* and at most this part of the pool */
	/* Datagrams to names that are being resolved, of one association. */
	UDP_WAITING_MAX	= 16,
	UDP_WAITING_BYTES = 64 * 1024,
	UDP_NAMES	= 64		/* resolved names that are remembered */
};

struct udp_worker {
	struct env		*env;
	struct io_dgram		 v[IO_BATCH_MAX];	/* received; all associations' */
	struct udp_out		*spare[UDP_OUT_SIZES];
	unsigned		 spare_count[UDP_OUT_SIZES];
	unsigned		 made;			/* outs, ever */
	unsigned		 gso_segments;		/* 0 = the kernel has no UDP_SEGMENT */
	unsigned		 held_max;
	uint64_t		 next_serial;
	uint64_t		 seed;			/* of tables */
};

struct udp_lookup;
struct udp_name;

struct udp_assoc {
	struct env		*env;
	struct udp_worker	*shared;
	struct snapshot		*snapshot;	/* held */
	const struct conf_udp	*conf;		/* in it */
	bool			 closing;
	bool			 dual;		/* the socket's family is IPv6 and IPv4 goes mapped */
	bool			 client_known;
	uint16_t		 port;

	/* The fast path, in the order of its use. */
	struct udp_peer		 client;	/* `to`: as the kernel tells its address */
	struct udp_dest		*last_up, *last_down;	/* of the datagram before; may be NULL */
	uint32_t		 tokens;	/* datagrams that max_pps lets through in this batch */
	uint64_t		 now_ns;	/* io_now(), of the batch at hand */
	uint64_t		 last_ns;	/* something was taken */
	struct udp_out		*head, *tail;	/* filling is the tail */
	struct udp_out		*flying;	/* being sent */
	unsigned		 outs;		/* of all three */
	unsigned		 held;		/* buffers in them */
	enum udp_out_size	 hint;		/* for the batch at hand */
	struct udp_dests	 dests;
	struct io_sock		 sock;
	struct io_op		 rd, wr;
	uint64_t		 bytes[2], datagrams[2];	/* by enum udp_dir */

	/* For now and then. */
	uint64_t		 credit_ns, credited_ns;	/* max_pps: time saved up, and until when */
	uint64_t		 dropped[COUNT_UDP_DROPS];	/* by cause */
	uint32_t		 unread;	/* dropped by the kernel and counted */
	struct addr		 client_ip;	/* whom to expect, not mapped */
	uint16_t		 listener_port;
	uint64_t		 session_id;
	const char		*user;		/* NULL = none */
	struct udp_name		**names;	/* UDP_NAMES of them, by hash; NULL until there is one */
	struct udp_lookup	*lookups;
	unsigned		 waiting;	/* datagrams in lookups */
	size_t			 waiting_bytes;
	udp_done_cb		*done;
	void			*owner;
};

static inline void
udp_count(struct udp_assoc *a, enum counter which, uint64_t n)
{
	counters_add(a->env->count, which, n);
	if (which >= COUNT_UDP_DROP_FIRST)
		a->dropped[which - COUNT_UDP_DROP_FIRST] += n;
}

static inline struct log_who
udp_who(const struct udp_assoc *a)
{
	return env_who(a->env, a->session_id);
}

/* ---- udp.c ---- */

/* One payload to a destination that may be reached, in front of the DNS filter.  True: its buffer must be held. */
bool	udp_forward(struct udp_assoc *, struct udp_dest *, uint8_t *payload, size_t len);

/* ---- udp_send.c ---- */

/* Into the out that is filling.  False: no room anywhere, counted. */
bool	udp_send_add(struct udp_assoc *, const struct udp_datagram *);
/* May buffers be taken?  If so, udp_send_hold() will find room for so many.  False: counted as `datagrams` lost. */
bool	udp_send_ready(struct udp_assoc *, unsigned bufs, unsigned datagrams);
/* Destinations that were last used before have nothing in any out.  UINT64_MAX: none has. */
uint64_t udp_send_oldest_ns(const struct udp_assoc *);
/* Until what has been added so far is sent. */
void	udp_send_hold(struct udp_assoc *, const struct io_buf *);
/* Starts what has been added, if nothing is being sent. */
void	udp_send_flush(struct udp_assoc *);
/* At the end: every buffer goes home.  Nothing is armed. */
void	udp_send_drop_all(struct udp_assoc *);
int	udp_send_spare(struct udp_worker *);	/* makes the first outs: 0 or -ENOMEM */

/* ---- udp_judge.c ---- */

/* A socket of an association of this process? */
bool	udp_is_association(const struct udp_assoc *, const struct addr *);
/* For `target`; to be closed by judge_close() either way.  False: refused, counted, logged. */
bool	udp_judge_open(struct udp_assoc *, struct judge *, const struct target *);
bool	udp_judge_permits(struct udp_assoc *, struct judge *, const struct addr *);
void	udp_judge_refused(struct udp_assoc *, const struct judge *, const struct target *, uint64_t datagrams);
/* A destination that policy allows.  NULL: no room for it, counted. */
struct udp_dest *udp_admit(struct udp_assoc *, const struct addr *);
/* A literal address that is not in the table.  NULL: refused, counted. */
struct udp_dest *udp_admit_literal(struct udp_assoc *, const struct target *);

/* ---- udp_resolve.c ---- */

/* A datagram to a name.  The destination; or NULL: it waits (copied), or was dropped and counted. */
struct udp_dest *udp_resolve(struct udp_assoc *, const struct target *, struct span payload);
/* Questions under way are forgotten, what waits is dropped. */
void	udp_resolve_stop(struct udp_assoc *);

#endif

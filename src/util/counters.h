/* SPDX-License-Identifier: ISC */
/*
 * counters: what a worker has done and refused, by cause.  One array a worker,
 * written by its thread alone, read by anyone at any time; so a plain add with
 * relaxed atomics is enough and nothing on a hot path locks.
 */
#ifndef RW_UTIL_COUNTERS_H
#define RW_UTIL_COUNTERS_H

#include <stdint.h>

enum counter {
	COUNT_SESSIONS,			/* accepted and admitted */
	COUNT_TUNNELS,			/* SOCKS and CONNECT that reached their target */
	COUNT_HTTP_REQUESTS,		/* forwarded, or answered by ourselves */
	COUNT_BYTES_UP,			/* client to upstream */
	COUNT_BYTES_DOWN,
	COUNT_ACCEPT_PAUSED,		/* episodes: descriptors or sessions used up */
	COUNT_REFUSED_SESSIONS,		/* limits.max_sessions */
	COUNT_REFUSED_PER_IP,		/* limits.max_sessions_per_ip */
	COUNT_REFUSED_POOL,		/* no buffers for a new session */
	COUNT_REFUSED_SOURCE,		/* not on the whitelist */
	COUNT_REFUSED_PROTOCOL,		/* first byte of no protocol that the listener serves */
	COUNT_REFUSED_COMMAND,		/* SOCKS command or address type */
	COUNT_REFUSED_METHOD,		/* SOCKS5: no acceptable authentication method */
	COUNT_REFUSED_PASSWORD,		/* wrong, missing, or asked for where none can be given */
	COUNT_REFUSED_THROTTLED,	/* a source that failed too often, or too many waiting */
	COUNT_REFUSED_ACL,
	COUNT_REFUSED_LOCAL,		/* acl.protect_local */
	COUNT_REFUSED_LOOP,		/* would have connected to ourselves */
	COUNT_REFUSED_BODY,		/* http.max_body_bytes */
	COUNT_REFUSED_UDP_PORTS,	/* udp.port_range is used up */
	COUNT_MALFORMED,
	COUNT_HANDSHAKE_TIMEOUT,
	COUNT_RESOLVE_FAILED,
	COUNT_CONNECT_FAILED,
	COUNT_CONNECT_TIMEOUT,
	COUNT_UPSTREAM_BROKEN,		/* an origin that spoke nonsense or stopped half way */
	COUNT_UPSTREAM_TIMEOUT,
	COUNT_IDLE_TIMEOUT,
	COUNT_HALF_CLOSE_TIMEOUT,
	COUNT_STALLED_RESET,		/* directions reset to free relay memory */
	/* UDP; datagrams, whatever number of them one call carries. */
	COUNT_UDP_ASSOCIATIONS,
	COUNT_UDP_UP,			/* relayed, client to destination */
	COUNT_UDP_DOWN,
	COUNT_UDP_GSO_FALLBACK,		/* peers that segmented sends did not reach */
	COUNT_UDP_DROP_STRANGER,	/* neither the client nor a contacted destination */
	COUNT_UDP_DROP_MALFORMED,	/* header: short, RSV, ATYP, impossible name */
	COUNT_UDP_DROP_FRAG,
	COUNT_UDP_DROP_PORT,		/* to port 0 */
	COUNT_UDP_DROP_DOMAIN,		/* to a name: not allowed to be resolved, or did not */
	COUNT_UDP_DROP_DESTINATIONS,	/* udp.max_destinations */
	COUNT_UDP_DROP_PPS,		/* udp.max_pps */
	COUNT_UDP_DROP_ACL,
	COUNT_UDP_DROP_LOCAL,		/* acl.protect_local */
	COUNT_UDP_DROP_SELF,		/* to a listener or an association of ours */
	COUNT_UDP_DROP_FILTER,		/* the DNS filter */
	COUNT_UDP_DROP_TRUNC,		/* longer than a buffer */
	COUNT_UDP_DROP_TOO_BIG,		/* longer than the path takes (EMSGSIZE) */
	COUNT_UDP_DROP_SEND,		/* the kernel refused for another reason */
	COUNT_UDP_DROP_QUEUE,		/* socket and queue full */
	COUNT_UDP_DROP_UNREAD,		/* by the kernel, before we read it */
	COUNT_MAX,
	COUNT_UDP_DROP_FIRST = COUNT_UDP_DROP_STRANGER,
	COUNT_UDP_DROPS = COUNT_MAX - COUNT_UDP_DROP_FIRST
};

struct counters {
	uint64_t	n[COUNT_MAX];
};

static inline void
counters_add(struct counters *c, enum counter which, uint64_t n)
{
	/* One writer: no read-modify-write instruction is needed. */
	__atomic_store_n(&c->n[which], c->n[which] + n, __ATOMIC_RELAXED);
}

static inline uint64_t
counters_get(const struct counters *c, enum counter which)
{
	return __atomic_load_n(&c->n[which], __ATOMIC_RELAXED);
}

#endif

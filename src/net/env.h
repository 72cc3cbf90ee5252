/* SPDX-License-Identifier: ISC */
/*
 * env: what one worker lends to the code that serves its sessions.  Everything
 * in it belongs to the worker and is used on the worker's thread only.
 */
#ifndef RW_NET_ENV_H
#define RW_NET_ENV_H

#include "conf/conf.h"
#include "io/io.h"
#include "util/counters.h"
#include "util/log.h"

struct accesslog_lane;
struct auth;
struct dialer;
struct http1_field;
struct resolver;
struct snapshot;
struct udp_hook;
struct udp_worker;
struct udpports;

struct env {
	struct io_loop		*loop;
	struct io_pool		*pool;		/* relay and handshake blocks */
	struct io_pool		*udp_pool;	/* whole datagrams; ENV_UDP_BLOCK_BYTES each */
	struct udpports		*udpports;	/* the process's, shared by all workers */
	struct udp_worker	*udp;		/* what the associations of this worker share */
	const struct udp_hook	*udp_hook;	/* NULL = no filter */
	struct resolver		*resolver;
	struct dialer		*dialer;
	const struct conf	*conf;		/* of `snapshot`: what new sessions get */
	struct snapshot		*snapshot;	/* held */
	struct auth		*auth;
	struct accesslog_lane	*access;	/* NULL = no access log */
	struct counters		*count;
	struct http1_field	*fields;	/* scratch for one head at a time */
	size_t			 field_max;	/* limits.header_count */
	const char		*via;		/* our pseudonym in Via, unique to this process */
	int			 worker;
};

static inline struct log_who
env_who(const struct env *env, uint64_t session_id)
{
	return (struct log_who){ env->worker, session_id };
}

/* One of our own listeners?  A wildcard listener matches its port on any loopback address. */
bool	env_is_self(const struct env *, const struct addr *);

/*
 * Relay memory has been short for longer than resetting stalled peers takes to
 * free it: new sessions are to be refused.
 */
bool	env_overloaded(const struct env *);

enum {
	ENV_STARVED_REFUSE_MS = 2000,
	ENV_UDP_BLOCK_BYTES = 64 * 1024	/* limits.udp_pool_blocks counts these */
};

#endif

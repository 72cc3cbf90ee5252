/* SPDX-License-Identifier: ISC */
/*
 * tunnel: two connected streams, bytes both ways until both have ended.  Each
 * direction first sends a prefix (the reply to the client, the bytes that came
 * right behind its request), then relays; the end of one side is carried to the
 * other as a shutdown of its write side (half-close).  It never looks at the
 * bytes, keeps no timer and closes nothing: the owner watches
 * tunnel_quiet_since() and closes both streams when it is done.
 *
 *	              end of a             end of b
 *	  BOTH_OPEN ------------> HALF_CLOSED --------> ENDED -> done
 *	      |                       |
 *	      +-----------------------+-- error on any side, tunnel_abort() --> ENDED
 */
#ifndef RW_RELAY_TUNNEL_H
#define RW_RELAY_TUNNEL_H

#include "net/env.h"
#include "net/stream.h"
#include "util/span.h"

enum tunnel_end {
	TUNNEL_RUNNING,
	TUNNEL_FINISHED,	/* both sides sent FIN: close */
	TUNNEL_CLIENT_BROKE,	/* reset or error: the other side must see a reset, not a clean end */
	TUNNEL_UPSTREAM_BROKE,
	TUNNEL_ABORTED
};

enum tunnel_dir { TUNNEL_UP, TUNNEL_DOWN };

struct tunnel;

/* Called from the loop, never from inside a call of the owner. */
struct tunnel_owner {
	void	(*up_prefix_sent)(struct tunnel *);	/* only if there was one: its memory may go */
	void	(*half_closed)(struct tunnel *);	/* one direction has ended, the other goes on */
	void	(*done)(struct tunnel *);		/* no op is armed: close both streams */
};

/* Private but for the comments. */
struct tunnel_direction {
	struct io_op	 op;
	struct tunnel	*tunnel;
	struct stream	*from, *to;
	struct span	 prefix;	/* what is left of it */
	uint64_t	 sent_bytes;	/* of the prefix */
	uint64_t	 quiet_since_ns;
	bool		 relaying;	/* op is a relay, now or in the end */
	bool		 ended;
};

struct tunnel {
	struct env		*env;
	struct tunnel_direction	 dir[2];	/* by enum tunnel_dir */
	enum tunnel_end		 end;		/* set before `done` */
	int			 err;		/* enum io_err, with ..._BROKE */
	const struct tunnel_owner *owner;
};

/* The prefixes must stay until `done`; that of `up` until up_prefix_sent. */
void	tunnel_start(struct tunnel *, struct env *, struct stream *client,
	    struct stream *upstream, struct span up_prefix, struct span down_prefix,
	    const struct tunnel_owner *);
/* `done` comes later, with TUNNEL_ABORTED unless it ended before. */
void	tunnel_abort(struct tunnel *);
/* When the last byte moved in either direction, io_now()'s clock. */
uint64_t tunnel_quiet_since(const struct tunnel *);
bool	tunnel_half_closed(const struct tunnel *);
uint64_t tunnel_bytes(const struct tunnel *, enum tunnel_dir);
/*
 * For the relief of an exhausted pool: when the direction that has gone longest
 * without progress last moved, UINT64_MAX when none holds bytes.
 */
uint64_t tunnel_stalled_since(const struct tunnel *);

#endif

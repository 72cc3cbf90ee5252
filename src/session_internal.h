/* SPDX-License-Identifier: ISC */
/*
 * session_internal: what the four files of a session share.  session.c has its
 * life, session_handshake.c what comes before the target is known,
 * session_tunnel.c dialling it and relaying, session_udp.c UDP ASSOCIATE.
 * Nobody else includes this.
 */
#ifndef RW_SESSION_INTERNAL_H
#define RW_SESSION_INTERNAL_H

#include "http/conn.h"
#include "net/dial.h"
#include "net/farewell.h"
#include "net/input.h"
#include "policy/auth.h"
#include "policy/judge.h"
#include "proto/socks4.h"
#include "proto/socks5.h"
#include "relay/tunnel.h"
#include "relay/udp.h"
#include "session.h"
#include "util/accesslog.h"
#include "worker.h"

enum session_state {
	SESSION_DETECT,
	SESSION_SOCKS5_GREETING,
	SESSION_SOCKS5_PASSWORD,
	SESSION_SOCKS5_VERIFY,	/* auth has the password */
	SESSION_SOCKS5_REQUEST,
	SESSION_SOCKS4,
	SESSION_HTTP,		/* http/conn has the stream */
	SESSION_DIALING,
	SESSION_RELAYING,	/* tunnel has both streams */
	SESSION_ASSOCIATED,	/* an association lives as long as the client's stream */
	SESSION_REFUSING,	/* farewell has the client's stream */
	SESSION_CLOSING
};

/* Whose reply format the tunnel's opening is answered in. */
enum session_proto { PROTO_NONE, PROTO_SOCKS4, PROTO_SOCKS5, PROTO_HTTP10, PROTO_HTTP11 };

#define NS_PER_S UINT64_C(1000000000)

enum {
	/* The longest we write ourselves before a tunnel: an HTTP error answer goes to `answer`. */
	SESSION_OPENING_MAX = 64
};

struct session {
	struct worker		*worker;
	struct snapshot		*snapshot;	/* held: the one that it started with */
	const struct conf_listen *listen;	/* in it */
	struct io_link		 link;		/* on worker->sessions */
	uint64_t		 id;
	uint8_t			 state;		/* enum session_state */
	uint8_t			 proto;		/* enum session_proto */
	bool			 reset;		/* close with a reset: the end was not clean */
	bool			 wants_udp;	/* UDP ASSOCIATE: `target` is only a hint */
	unsigned		 open;		/* streams whose close callback is still to come */
	uint64_t		 acked_bytes;	/* both sides', when the idle check last looked */
	struct addr		 peer;
	struct stream		*client, *upstream;	/* NULL when handed over or gone */
	struct io_timer		 timer;
	struct io_op		 op;		/* handshake: receive, or send of `opening` */
	struct input		 in;		/* until its bytes are sent upstream */
	struct target		 target;
	char			*user;		/* authenticated, malloc'ed; NULL = none */
	struct dial		*dial;
	struct http_conn	*http;
	char			*answer;	/* HTTP error to a CONNECT, malloc'ed */
	size_t			 opening_len;
	char			 opening[SESSION_OPENING_MAX];
	uint64_t		 dial_deadline_ns;
	/* For the access log. */
	uint64_t		 start_us, start_ns;	/* wall clock, monotonic */
	struct addr		 upstream_addr;	/* dialled */
	const char		*rule;		/* that let it through, in the snapshot */
	bool			 logged;	/* one line a session that is a tunnel, or was to be one */
	union {
		struct auth_request auth;	/* SOCKS5_VERIFY */
		struct {
			struct judge	judge;
			struct dial_result dialed;	/* once it ended */
		};				/* DIALING */
		struct tunnel	 tunnel;	/* RELAYING */
		struct udp_assoc *udp;		/* ASSOCIATED */
		struct farewell	 farewell;	/* REFUSING */
	};
};

static inline struct env *
session_env(struct session *s)
{
	return &s->worker->env;
}

static inline struct log_who
session_who(struct session *s)
{
	return env_who(&s->worker->env, s->id);
}

static inline void
session_count(struct session *s, enum counter which)
{
	counters_add(s->worker->env.count, which, 1);
}

/* ---- session.c ---- */

void	session_set_state(struct session *, enum session_state);
/* The one timer; 0 = none. */
void	session_set_timer_s(struct session *, uint32_t seconds, io_timer_cb *);
/* Closes what the session itself holds; what others hold has ended before. */
void	session_close(struct session *);
/* The session's line in the access log, once; `refused_by` NULL: the rule that let it through. */
void	session_log_access(struct session *, unsigned status, const char *refused_by);
/* A last answer (which must stay until the session is freed), then the close. */
void	session_refuse(struct session *, struct span answer);
/* The client's stream is gone with its last answer or its HTTP connection. */
void	session_client_gone(void *session);

/* ---- session_handshake.c ---- */

/* More bytes of the handshake. */
void	session_receive(struct session *);
void	session_handshake_timeout(struct io_loop *, struct io_timer *);

/* ---- session_tunnel.c ---- */

/* The handshake has named s->target and is over; what follows it in s->in is early data. */
void	session_dial(struct session *);
void	session_log_failure(struct session *);	/* DIALING */
/* `cause` for the access log; NULL: not refused, it failed. */
void	session_refuse_socks5(struct session *, enum socks5_rep, const char *cause);
void	session_refuse_socks4(struct session *, const char *cause);

/* ---- session_udp.c ---- */

/* The handshake has asked for an association and is over. */
void	session_associate(struct session *);

#endif

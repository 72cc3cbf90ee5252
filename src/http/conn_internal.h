/* SPDX-License-Identifier: ISC */
/*
 * conn_internal: what the two files of a client connection share.  conn.c has
 * its life and its bytes, conn_request.c what becomes of one request: password,
 * rules, exchange.  Nobody else includes this.
 */
#ifndef RW_HTTP_CONN_INTERNAL_H
#define RW_HTTP_CONN_INTERNAL_H

#include "http/conn.h"
#include "http/exchange.h"
#include "net/farewell.h"
#include "policy/auth.h"

#define NS_PER_S UINT64_C(1000000000)

enum conn_state {
	CONN_HEAD,		/* idle, or reading a request's head */
	CONN_VERIFY,		/* auth has the password; the head is parsed again afterwards */
	CONN_EXCHANGE,
	CONN_ANSWERING,		/* an answer of ours, then the next request */
	CONN_STOPPING,		/* waiting for our receive to end, then FAREWELL */
	CONN_FAREWELL,
	CONN_CLOSING
};

struct http_conn {
	struct env		*env;
	uint64_t		 session_id;
	struct addr		 peer;
	struct snapshot		*snapshot;	/* held: the present one at the last request */
	const struct conf_listen *listen;	/* in it */
	struct stream		*client;
	struct input		*in;		/* the owner's */
	const struct http_conn_owner *owner_calls;
	void			*owner;

	enum conn_state		 state;
	struct io_op		 recv;
	struct io_op		 send;		/* ANSWERING */
	struct io_timer		 timer;
	struct http1_head	 head;		/* of the request being read */
	struct exchange		*exchange;
	uint64_t		 start_us, start_ns;	/* of the request: wall clock, monotonic */
	struct auth_request	 auth;
	bool			 authenticated;	/* the request at hand, as `user` */
	struct span		 user;		/* malloc'ed */
	uint64_t		 accepted_ns;	/* 0 once there was a request */
	bool			 head_begun;	/* bytes of the next head are here: handshake_timeout_s runs */
	bool			 client_ended;	/* FIN seen */
	bool			 draining;
	bool			 wants_input;	/* the exchange does */
	bool			 request_read;	/* of the exchange under way */
	/* Of the request that is being answered, for answers of our own. */
	bool			 is_head, is_10, keep;

	struct farewell		 farewell;
	char			*answer;
	struct span		 answer_rest;
};

static inline struct log_who
conn_who(const struct http_conn *c)
{
	return env_who(c->env, c->session_id);
}

/* ---- conn.c ---- */

void	conn_set_timer_s(struct http_conn *, uint32_t seconds);	/* 0 = none */
void	conn_close(struct http_conn *, bool reset);
/* Sends what is in answer_rest, then closes so that the client can read it. */
void	conn_stop(struct http_conn *);
/* An answer of our own; keep: the next request may follow. */
void	conn_answer(struct http_conn *, const struct reply *, bool keep);
/* More from the client, unless it has ended or is being read already. */
void	conn_receive(struct http_conn *);
/* During an exchange whose request has been read: an end or a reset of the client is noticed. */
void	conn_watch(struct http_conn *);
/* CONN_HEAD: the next request, or what to wait for. */
void	conn_process(struct http_conn *);
/* Its memory alone; the stream has been handed back. */
void	conn_free(struct http_conn *);

/* ---- conn_request.c ---- */

/* A head is whole. */
void	conn_begin_request(struct http_conn *);
/* A request that is no request, or one that we do not serve; `parsed`: c->head is whole. */
void	conn_refuse(struct http_conn *, enum counter, const struct reply *, bool parsed,
	    const char *rule);
void	conn_refuse_verdict(struct http_conn *, enum http1_verdict);

#endif

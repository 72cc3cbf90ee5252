/* SPDX-License-Identifier: ISC */
/*
 * exchange_internal: what the three files of an exchange share.  exchange.c has its
 * life and its time limits, exchange_request.c the way up,
 * exchange_response.c the way down.  Nobody else includes this.
 *
 * Any call that can end the exchange may free it: nothing may touch it after.
 */
#ifndef RW_HTTP_EXCHANGE_INTERNAL_H
#define RW_HTTP_EXCHANGE_INTERNAL_H

#include "http/exchange.h"
#include "net/dial.h"
#include "util/accesslog.h"

enum {
	INTERIM_MAX = 16,		/* 1xx answers to one request; more is a flood */
	/* What rewriting may add to a head: Via, Connection, a full Host; and a blank behind each colon. */
	HEAD_GROWTH = 256 + TARGET_TEXT_MAX
};

enum request_state { REQUEST_HEAD, REQUEST_BODY, REQUEST_DONE, REQUEST_FAILED };
enum response_state { RESPONSE_HEAD, RESPONSE_INTERIM, RESPONSE_BODY };

#define NS_PER_S UINT64_C(1000000000)

struct exchange {
	struct exchange_client	 client;
	const struct exchange_owner *owner_calls;
	void			*owner;
	struct target		 target;
	struct judge		 judge;
	unsigned		 status;	/* of the answer that went to the client; 0 = none yet */
	uint64_t		 body_up, body_down;	/* for the access log */
	struct access_entry	 entry;
	char			*entry_text;	/* what it points into */
	struct addr		 upstream_addr;
	struct dial		*dial;
	struct stream		*upstream;
	struct io_timer		 timer;
	uint64_t		 last_ns;	/* of any progress but a relay's own */
	uint64_t		 acked_bytes;	/* both sides', when the timer last looked */
	struct io_op		 up;		/* to the upstream: send, or relay from the client */
	struct io_op		 down;		/* from the upstream: receive, or relay to the client */
	struct io_op		 out;		/* send to the client */

	enum request_state	 request;
	bool			 up_short;	/* the last send to the origin was */
	bool			 up_after_fin;	/* with FAILED: the origin had ended its answer before */
	enum http1_method	 method;
	bool			 client_is_10;
	struct http1_framing	 req;
	struct http1_chunked	 req_chunks;
	bool			 req_last;	/* the chunked body ends with what is being sent */
	uint64_t		 req_left;
	char			*req_head;	/* rewritten; freed when sent */
	struct span		 up_rest;	/* of what `up` sends */
	size_t			 up_taken;	/* bytes of the client's input that it stands for */

	enum response_state	 response;
	struct input		 in;		/* from the upstream */
	struct http1_head	 head;
	struct http1_framing	 resp;
	struct http1_chunked	 resp_chunks;
	bool			 resp_last;
	uint64_t		 resp_left;
	unsigned		 interim;
	char			*resp_head;
	struct span		 out_rest;
	size_t			 out_taken;	/* bytes of `in` that it stands for */
	bool			 close_after;
	bool			 answered;	/* bytes of the final response have gone to the client */

	bool			 ending;
	enum exchange_end	 end;
	struct reply		 reply;
};

static inline struct io_loop *
exchange_loop(const struct exchange *x)
{
	return x->client.env->loop;
}

static inline struct log_who
exchange_who(const struct exchange *x)
{
	return env_who(x->client.env, x->client.session_id);
}

static inline void
exchange_progress(struct exchange *x)
{
	x->last_ns = io_now(exchange_loop(x));
}

static inline bool
exchange_relay_holds(const struct io_op *op)
{
	return io_armed(op) && op->kind == IO_RELAY && io_relay_held(op) > 0;
}

/* An answer of ours would land in the middle of something. */
static inline bool
exchange_unanswerable(const struct exchange *x)
{
	return x->answered || io_armed(&x->out);
}

/* NULL: http.via is off. */
static inline const char *
exchange_via(const struct exchange *x)
{
	return x->client.conf->http.via ? x->client.env->via : NULL;
}

/* ---- exchange.c ---- */

/* May free x. */
void	exchange_finish(struct exchange *, enum exchange_end, const struct reply *);
/* `out` has come to its end while the exchange was ending. */
void	exchange_maybe_end(struct exchange *);
/* The origin is at fault: an answer if none has begun, a cut otherwise. */
void	exchange_fail(struct exchange *, enum counter, struct reply, int err);
void	exchange_cut(struct exchange *);
/* The timer, once connected. */
void	exchange_on_timer(struct io_loop *, struct io_timer *);

/* ---- exchange_request.c ---- */

/* `taken` bytes of the client's input are consumed when it has gone. */
void	exchange_send_up(struct exchange *, struct span, size_t taken);
/* `up` is idle, the head has gone. */
void	exchange_request_step(struct exchange *);

/* ---- exchange_response.c ---- */

/* `down` and `out` are idle. */
void	exchange_response_step(struct exchange *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * exchange: one request and its response, over an upstream connection of its
 * own.  Request and response bodies flow at the same time (an origin may answer
 * before it has read everything).  Private to http/: conn is its only owner.
 *
 *	request:   HEAD -> BODY -> DONE              (FAILED: the origin stopped reading;
 *	                                              its answer may still come)
 *	response:  HEAD -> (INTERIM -> HEAD)* -> BODY -> done
 */
#ifndef RW_HTTP_EXCHANGE_H
#define RW_HTTP_EXCHANGE_H

#include "http/reply.h"
#include "net/env.h"
#include "net/input.h"
#include "net/stream.h"
#include "proto/http1.h"

struct exchange;

enum exchange_end {
	EXCHANGE_KEEP,		/* answered; the client's connection may go on */
	EXCHANGE_CLOSE,		/* answered, and said that the connection ends */
	EXCHANGE_ANSWER,	/* nothing was sent yet: answer with the reply */
	EXCHANGE_CUT		/* the client must see that the answer is not whole, or is gone itself */
};

struct exchange_owner {
	/* A chunked request body wants more bytes in the client's input. */
	void	(*need_input)(void *owner);
	/* The request has been read to its end: what the client sends now is the next one. */
	void	(*request_read)(void *owner);
	/*
	 * The last word: no op of the exchange is armed on the client's stream, the
	 * exchange is freed.  May come from inside exchange_input() and
	 * exchange_abort().  `reply` with ANSWER.
	 */
	void	(*end)(void *owner, enum exchange_end, const struct reply *reply);
};

struct exchange_client {
	struct env		*env;
	uint64_t		 session_id;
	const struct addr	*peer;
	const struct conf	*conf;		/* lives as long as the judge's snapshot */
	struct span		 user;		/* for the access log; read before start returns */
	uint64_t		 start_us, start_ns;
	struct stream		*stream;
	struct input		*input;		/* begins with the request's body */
};

/*
 * The judge has let the request through; on success it is the exchange's.
 * `head` and `where` are read before it returns; the head's bytes are still in
 * the input and are consumed.  close: the client's connection is to end after
 * this exchange.  NULL when out of memory or when the head can't be rewritten
 * within bounds: nothing has happened then.
 */
struct exchange	*exchange_start(const struct exchange_client *, const struct http1_head *head,
		    const struct http1_where *where, struct judge *, bool close,
		    const struct exchange_owner *, void *owner);
void		 exchange_input(struct exchange *);	/* need_input was answered, or the client ended */
void		 exchange_close_after(struct exchange *);	/* say "close" if that can still be said */
void		 exchange_abort(struct exchange *);	/* `end` with CUT, at once or later */
uint64_t	 exchange_stalled_since(const struct exchange *);

#endif

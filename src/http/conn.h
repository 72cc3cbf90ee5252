/* SPDX-License-Identifier: ISC */
/*
 * conn: the client side of one HTTP/1 proxy connection: a sequence of
 * exchanges, each request looked at on its own, answered in order.  CONNECT is
 * handed back to the owner; everything else is forwarded or answered here.
 * Nothing is relayed that was not parsed.
 */
#ifndef RW_HTTP_CONN_H
#define RW_HTTP_CONN_H

#include "net/env.h"
#include "net/input.h"
#include "net/stream.h"
#include "policy/snapshot.h"
#include "proto/target.h"

struct http_conn;

/* Who the client is; copied, the snapshot held. */
struct http_client {
	uint64_t			 session_id;
	const struct addr		*peer;
	struct snapshot			*snapshot;
	const struct conf_listen	*listen;	/* in it */
	uint64_t			 accepted_ns;	/* the first head's time runs from here */
};

/* A CONNECT request; what it points to is good for the call only. */
struct http_connect {
	struct target			 target;
	struct span			 user;		/* empty unless a password was asked for */
	bool				 client_is_10;
	struct snapshot			*snapshot;	/* that the request is judged by: to be held */
	const struct conf_listen	*listen;	/* in it */
	uint64_t			 start_us, start_ns;	/* of the request */
};

struct http_conn_owner {
	/*
	 * Stream and input are the owner's again (the input holds what came behind
	 * the head), the conn's memory is gone.
	 */
	void	(*connect)(void *owner, struct stream *, const struct http_connect *);
	/* The last word: the stream is closed and freed, the input empty, the conn gone. */
	void	(*end)(void *owner);
};

/*
 * Takes the stream over and works in the owner's input, which holds what came
 * first.  Sets *out, then may call `connect` (never `end`) before it returns.
 * 0 or -ENOMEM: then nothing was taken over.
 */
int	http_conn_start(struct http_conn **, struct env *, const struct http_client *,
	    struct stream *, struct input *, const struct http_conn_owner *, void *owner);
/* No further request after the one under way; idle ones end at once. */
void	http_conn_drain(struct http_conn *);
/* End now, whatever is under way; `end` comes later. */
void	http_conn_abort(struct http_conn *);
/* For the relief of an exhausted pool, as tunnel_stalled_since(). */
uint64_t http_conn_stalled_since(const struct http_conn *);

#endif

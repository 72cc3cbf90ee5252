/* SPDX-License-Identifier: ISC */
/*
 * listener: one listening socket of one worker: accepts, asks whitelist and
 * limits, and starts sessions.  When descriptors or sessions are used up it
 * pauses and looks again a little later; it never spins.
 */
#ifndef RW_LISTENER_H
#define RW_LISTENER_H

#include "conf/conf.h"
#include "io/io.h"
#include "util/addr.h"

struct snapshot;
struct worker;

struct listener {
	struct io_link		 link;		/* on worker->listeners */
	struct worker		*worker;
	struct snapshot		*snapshot;	/* held: the worker's present one, or the last that had it */
	const struct conf_listen *conf;		/* in it */
	struct io_sock		 sock;
	struct io_op		 accept;
	struct io_timer		 pause;
	uint32_t		 pause_ms;	/* of the next pause: doubles up to a second */
	io_fd			 parked;	/* accepted when another worker had the last place; or none */
	struct addr		 parked_peer;
	bool			 stopping;
	void			(*stopped)(struct listener *);
};

enum {
	LISTENER_PAUSE_FIRST_MS = 10,	/* a descriptor may come free any moment */
	LISTENER_PAUSE_MAX_MS = 1000
};

/* Zeroed, worker, snapshot and conf set.  Takes the descriptor over. */
void	listener_start(struct listener *, io_fd);
/* The snapshot has changed: what accepted sockets get from it. */
void	listener_apply(struct listener *);
/*
 * What had been accepted already becomes sessions, then the socket is closed;
 * `stopped` once, later.  Whoever holds a copy of the socket (an upgrade) goes
 * on accepting from the same backlog (C15).
 */
void	listener_stop(struct listener *, void (*stopped)(struct listener *));

#endif

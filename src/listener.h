/* SPDX-License-Identifier: ISC */
/*
 * listener: one listening socket of one worker: accepts, asks the limits, and
 * starts sessions.  When descriptors or sessions are used up it pauses and
 * looks again a little later; it never spins.
 */
#ifndef RW_LISTENER_H
#define RW_LISTENER_H

#include "conf/conf.h"
#include "io/io.h"

struct worker;

struct listener {
	struct worker		*worker;
	const struct conf_listen *conf;
	io_fd			 fd;		/* IO_FD_NONE once adopted */
	struct io_sock		 sock;
	struct io_op		 accept;
	struct io_timer		 pause;
	uint32_t		 pause_ms;	/* of the next pause: doubles up to a second */
	void			(*closed)(struct worker *);
};

enum {
	LISTENER_PAUSE_FIRST_MS = 10,	/* a descriptor may come free any moment */
	LISTENER_PAUSE_MAX_MS = 1000
};

void	listener_start(struct listener *);
/* `closed` once, later. */
void	listener_stop(struct listener *, void (*closed)(struct worker *));

#endif

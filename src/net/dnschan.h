/* SPDX-License-Identifier: ISC */
/*
 * dnschan: one c-ares channel living in an io_loop: its sockets are io_socks
 * watched by io_poll, its time-outs one io_timer.  No cache and no policy:
 * resolve.h is what others use.
 *
 *	dnschan_new -> OPEN -- retire --> RETIRED (no new questions; ends by itself)
 *	                 |                  |  last question answered
 *	                 +---- close -------+--> CLOSING: sockets close -> done, freed
 */
#ifndef RW_NET_DNSCHAN_H
#define RW_NET_DNSCHAN_H

#include <stdint.h>

#include "conf/conf.h"
#include "io/io.h"
#include "net/resolve.h"
#include "util/addr.h"

struct dnschan;

/* May run inside dnschan_ask() and dnschan_close() (c-ares does that), so it only takes notes. */
typedef void dnschan_cb(void *owner, enum resolve_status, const struct addr *, unsigned count,
	    uint32_t ttl_s);

/* `gone` runs later, once, when the channel's memory has been freed. */
int	 dnschan_new(struct dnschan **, struct io_loop *, const struct conf_resolver *,
	    void (*gone)(void *owner), void *owner);
/* name: lower case, validated by the caller. */
void	 dnschan_ask(struct dnschan *, const char *name, int family, dnschan_cb *, void *owner);
void	 dnschan_retire(struct dnschan *);
/* Open questions end with RESOLVE_CLOSED now.  Never from inside a dnschan_cb. */
void	 dnschan_close(struct dnschan *);

#endif

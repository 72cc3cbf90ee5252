/* SPDX-License-Identifier: ISC */
/*
 * dial: from a target to a connected stream: both families asked at once,
 * addresses sorted, interleaved and tried in staggered parallel (Happy Eyeballs,
 * RFC 8305); the first to connect wins, the others are closed.  It never times
 * out by itself: connect_timeout_s is the owner's timer and dial_cancel().
 *
 *	             answers, stagger timer, attempt failed
 *	                 +----------+
 *	                 v          |
 *	dial_start -> RUNNING ------+--> DONE (callback, memory gone)
 *	                 |
 *	                 +-- dial_cancel: no callback; attempts close by themselves
 *
 * When every address fails, the owner is told the most telling error, not the
 * last: refused > reset > timed out > host unreachable > network unreachable >
 * anything else.  "Refused" means that a machine answered; "network unreachable"
 * is only this host's lack of IPv6 more often than not.
 *
 * resolver.prefer sorts and filters what names resolve to; a literal address is
 * dialled whatever its family.  "auto" is IPv6 first, but IPv4 first for some
 * seconds after IPv6 was found to lead nowhere from this host.
 */
#ifndef RW_NET_DIAL_H
#define RW_NET_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "io/io.h"
#include "net/resolve.h"
#include "net/stream.h"
#include "proto/target.h"
#include "util/addr.h"

enum {
	DIAL_ADDRS_MAX	= 16,	/* addresses tried in one dial */
	/*
	 * Sockets one dial may hold open.  At 250 ms apart eight silent addresses
	 * take two seconds to fill it; after that a failure frees the next turn.
	 */
	DIAL_ATTEMPTS_MAX = 8
};

enum dial_status {
	DIAL_OK,
	DIAL_NO_NAME,		/* no such name, no address of a wanted family, or not a name */
	DIAL_DNS_FAILED,
	DIAL_DNS_TIMEOUT,
	DIAL_DENIED,		/* permit() refused every address */
	DIAL_FAILED,		/* err, syserr: of the most telling attempt */
	DIAL_NO_RESOURCES	/* descriptors or memory */
};

struct dial_request {
	/* Copied. */
	const struct target	*target;
	/*
	 * Asked before each address is tried, port set, IPv4-mapped addresses as
	 * IPv4; NULL = all.  For a literal it is asked inside dial_start().  Must
	 * neither cancel this dial nor start another.
	 */
	bool			(*permit)(void *owner, const struct addr *);
};

struct dial_result {
	enum dial_status status;
	int		 err;		/* enum io_err, DIAL_FAILED and NO_RESOURCES */
	int		 syserr;
	enum resolve_status dns;	/* why, for NO_NAME, DNS_FAILED, DNS_TIMEOUT */
	struct stream	*stream;	/* yours when DIAL_OK */
	struct addr	 peer;		/* connected to; else the one that `err` is about, or the first denied, or none */
	struct addr	 local;		/* DIAL_OK */
	unsigned	 attempts;	/* sockets that were made */
};

/* Figures of one worker; each only grows. */
struct dialer_stats {
	uint64_t	dials, ok, failed, cancelled;
	uint64_t	attempts;	/* sockets */
	uint64_t	fallbacks;	/* dials won by an address that was not the first tried */
	uint64_t	denied;		/* addresses that permit() refused */
	uint64_t	no_resources;
};

struct dialer;
struct dial;

typedef void dial_cb(void *owner, const struct dial_result *);

/* The conf must outlive the dialer or the next dialer_set_conf(). */
int	dialer_new(struct dialer **, struct io_loop *, struct resolver *, const struct conf *);
/* Dials under way go on; their later attempts use the new settings. */
void	dialer_set_conf(struct dialer *, const struct conf *);
/* No dial under way and no losing socket still closing. */
bool	dialer_idle(const struct dialer *);
/*
 * Every dial must have ended or been cancelled, and none may start.  `done`
 * comes later, when the last losing socket is gone; the memory is gone then.
 * Close the dialer before its resolver.
 */
void	dialer_close(struct dialer *, void (*done)(void *owner), void *owner);
struct dialer_stats dialer_stats(const struct dialer *);	/* from any thread */

/*
 * Exactly one later callback unless cancelled; the handle is dead when it runs.
 * NULL when out of memory: no callback then.
 */
struct dial	*dial_start(struct dialer *, const struct dial_request *, dial_cb *, void *owner);
/* No callback afterwards. */
void		 dial_cancel(struct dial *);

const char	*dial_strerror(enum dial_status);

#endif

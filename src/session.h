/* SPDX-License-Identifier: ISC */
/*
 * session: one client connection from accept to close, on one worker.
 *
 *	          first byte      request         dialled         both ends
 *	DETECT ---> SOCKS5_* ----+
 *	       ---> SOCKS4 ------+--> DIALING ---> RELAYING ------------+
 *	       ---> HTTP --CONNECT--^    |                              |
 *	              |                  +--failed--> REFUSING ---------+--> CLOSING --> freed
 *	              +-- http/conn forwards, its end ------------------+
 *	SOCKS5_REQUEST --UDP ASSOCIATE--> ASSOCIATED -------------------+
 *	                                  until the client's stream ends
 *
 * One timer serves the handshake, then the dial, then the idle check.  The
 * session is freed in the close callback of its last stream.
 */
#ifndef RW_SESSION_H
#define RW_SESSION_H

#include <stdint.h>

#include "io/io.h"
#include "util/addr.h"

struct worker;
struct listener;
struct session;

/* Takes fd over.  False when out of memory: then it was closed. */
bool	session_start(struct worker *, const struct listener *, io_fd, const struct addr *peer);
/* The proxy is being stopped: idle HTTP connections end, others may finish. */
void	session_drain(struct session *);
/* End now; the peers see a reset. */
void	session_abort(struct session *);
/* See tunnel_stalled_since(). */
uint64_t session_stalled_since(const struct session *);
/* Reset to free relay memory: logged and counted as such. */
void	session_reset_stalled(struct session *);

/* Of a link on worker->sessions. */
struct session *session_of_link(struct io_link *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * What a client says to the proxy before the tunnel stands: nothing, SOCKS5
 * without a password (RFC 1928), or CONNECT (RFC 9110 section 9.3.6).
 * It never takes a byte that belongs to the tunnel.
 */
#ifndef BENCH_HANDSHAKE_H
#define BENCH_HANDSHAKE_H

#include "conn.h"

/* True when the tunnel stands.  A refusal is an error of the connection, which is closed then. */
bool handshake_step(struct load *l, struct conn *c);

/* The address in a SOCKS5 answer that came (c->head): the relay of an association. */
int handshake_bound(const struct conn *c, struct sockaddr_in *out);

#endif

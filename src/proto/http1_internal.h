/* SPDX-License-Identifier: ISC */
/*
 * http1_internal: what http1's own files share.  Never included elsewhere.
 */
#ifndef RW_PROTO_HTTP1_INTERNAL_H
#define RW_PROTO_HTTP1_INTERNAL_H

#include "proto/http1.h"

/* Reads Connection, TE, Content-Length, Transfer-Encoding, Host's presence into the head. */
enum http1_verdict http1_derive(struct http1_head *);

#endif

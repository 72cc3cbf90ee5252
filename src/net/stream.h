/* SPDX-License-Identifier: ISC */
/*
 * stream: one connected socket, as sessions, tunnels and HTTP connections see
 * it.  Plain bytes now; TLS will hide behind the same calls, so nobody outside
 * this file reaches for stream->sock except to hand a plain pair to io_relay().
 * It keeps no buffers and never calls back by itself: the ops are the owner's.
 *
 * Life: stream_adopt() allocates, the owner frees with stream_free() in the
 * close callback, or lets stream_close_free() do both.
 */
#ifndef RW_NET_STREAM_H
#define RW_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"

struct stream {
	struct io_sock	 sock;
	void		*owner;		/* for the close callback; this file never looks at it */
};

/* Takes fd over for good.  NULL when out of memory: then fd is still the caller's. */
struct stream	*stream_adopt(struct io_loop *, io_fd fd);
/* Only in or after the close callback. */
void		 stream_free(struct stream *);
/* Closes and frees; the caller forgets the stream at once (armed ops still get their final callbacks). */
void		 stream_close_free(struct stream *);
void		 stream_close_reset_free(struct stream *);

static inline struct stream *
stream_of_sock(struct io_sock *sock)
{
	return io_container_of(sock, struct stream, sock);
}

/*
 * Bytes that the peer's kernel has acknowledged, 0 where the system does not
 * say.  A send in flight hides its partial progress (C29); this does not.
 */
uint64_t	 stream_acked_bytes(const struct stream *);

/*
 * The peer has reset the connection, whoever was told of it: the kernel tells a
 * reset once, so after a send has had it a receive finds an end.  False where
 * the system does not say; true also for a reset that came behind the FIN.
 */
bool		 stream_was_reset(const struct stream *);

/* Only a pair of plain streams may be given to io_relay(). */
static inline bool
stream_is_plain(const struct stream *s)
{
	(void)s;
	return true;
}

static inline bool
stream_open(const struct stream *s)
{
	return io_sock_open(&s->sock);
}

static inline void
stream_recv(struct stream *s, struct io_op *op, void *base, size_t len, io_cb *cb)
{
	io_recv(op, &s->sock, base, len, cb);
}

static inline void
stream_recv_pool(struct stream *s, struct io_op *op, struct io_pool *pool, unsigned flags,
    io_cb *cb)
{
	io_recv_pool(op, &s->sock, pool, flags, cb);
}

/* May be short (C11). */
static inline void
stream_send(struct stream *s, struct io_op *op, const void *base, size_t len, io_cb *cb)
{
	io_send(op, &s->sock, base, len, cb);
}

/* End of our bytes (FIN); no send may be armed.  0 or enum io_err. */
static inline int
stream_shutdown(struct stream *s)
{
	return io_shutdown(&s->sock);
}

static inline void
stream_close(struct stream *s, io_sock_cb *cb)
{
	io_close(&s->sock, cb);
}

/* The peer sees a reset. */
static inline void
stream_close_reset(struct stream *s, io_sock_cb *cb)
{
	io_close_reset(&s->sock, cb);
}

#endif

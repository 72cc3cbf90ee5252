/* SPDX-License-Identifier: ISC */
#include "net/stream.h"

#include <stdlib.h>
#ifdef __linux__
#include <linux/tcp.h>
#include <netinet/in.h>
#endif

struct stream *
stream_adopt(struct io_loop *loop, io_fd fd)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (s != NULL)
		io_adopt(loop, &s->sock, fd);
	return s;
}

void
stream_free(struct stream *s)
{
	free(s);
}

static void
free_closed(struct io_loop *loop, struct io_sock *sock)
{
	(void)loop;
	stream_free(stream_of_sock(sock));
}

void
stream_close_free(struct stream *s)
{
	stream_close(s, free_closed);
}

void
stream_close_reset_free(struct stream *s)
{
	stream_close_reset(s, free_closed);
}

uint64_t
stream_acked_bytes(const struct stream *s)
{
#ifdef __linux__
	struct tcp_info info = { 0 };
	socklen_t len = sizeof info;

	/* tcpi_bytes_acked: since Linux 4.1; Unix sockets have none. */
	if (getsockopt(s->sock.fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	    len >= offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked)
		return info.tcpi_bytes_acked;
#else
	(void)s;
#endif
	return 0;
}

bool
stream_was_reset(const struct stream *s)
{
#ifdef __linux__
	enum { STATE_CLOSE = 7 };	/* TCP_CLOSE of <netinet/tcp.h>, which can't be had beside <linux/tcp.h> */
	struct tcp_info info = { 0 };
	socklen_t len = sizeof info;

	return getsockopt(s->sock.fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	    info.tcpi_state == STATE_CLOSE;
#else
	(void)s;
	return false;
#endif
}

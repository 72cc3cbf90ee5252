/* SPDX-License-Identifier: ISC */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "handshake.h"

#define SOCKS_CONNECT 1
#define SOCKS_ASSOCIATE 3

#define HTTP_HEAD_MAX 4096

/* The socket is new and this is short: what does not go at once is an error. */
static bool
say(struct load *l, struct conn *c, const void *data, size_t len)
{
	if (send(c->fd, data, len, MSG_NOSIGNAL) == (ssize_t)len)
		return true;
	conn_fail(l, c, "the handshake could not be sent");
	return false;
}

/* Read until head has want bytes: 1 when it has, 0 not yet, -1 failed. */
static int
fill(struct load *l, struct conn *c, size_t want)
{
	ssize_t n;

	if (c->head_len >= want)
		return 1;
	n = recv(c->fd, c->head + c->head_len, want - c->head_len, 0);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) {
		conn_fail(l, c, n == 0 ? "end of stream in the handshake" : strerror(errno));
		return -1;
	}
	c->head_len += (uint32_t)n;
	return c->head_len >= want;
}

static void
begin(struct load *l, struct conn *c)
{
	char text[128], where[INET_ADDRSTRLEN + 8];
	int n;

	switch (l->opt.via) {
	case VIA_SOCKS5:
		c->step = STEP_GREETING;
		say(l, c, "\5\1\0", 3);
		break;
	case VIA_CONNECT:
		c->step = STEP_ANSWER;
		snprintf(where, sizeof(where), "127.0.0.1:%u", ntohs(l->origin.sin_port));
		n = snprintf(text, sizeof(text), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", where, where);
		say(l, c, text, (size_t)n);
		break;
	default:
		break;
	}
}

static void
socks_request(struct load *l, struct conn *c)
{
	const struct sockaddr_in *to = c->from != NULL ? c->from : &l->origin;
	unsigned char ask[10] = { 5, c->from != NULL ? SOCKS_ASSOCIATE : SOCKS_CONNECT, 0, 1 };

	if (c->head[0] != 5 || c->head[1] != 0) {
		conn_fail(l, c, "SOCKS5 without a password was refused");
		return;
	}
	memcpy(ask + 4, &to->sin_addr, 4);
	memcpy(ask + 8, &to->sin_port, 2);
	c->step = STEP_ANSWER;
	c->head_len = 0;
	say(l, c, ask, sizeof(ask));
}

static bool
socks_answer(struct load *l, struct conn *c)
{
	char why[64];
	size_t len;

	if (fill(l, c, 5) != 1)
		return false;
	switch (c->head[3]) {
	case 1: len = 10; break;
	case 3: len = 7u + c->head[4]; break;
	case 4: len = 22; break;
	default:
		conn_fail(l, c, "a SOCKS5 answer with an unknown kind of address");
		return false;
	}
	if (fill(l, c, len) != 1)
		return false;
	if (c->head[0] == 5 && c->head[1] == 0)
		return true;
	snprintf(why, sizeof(why), "SOCKS%u answer %u", c->head[0], c->head[1]);
	conn_fail(l, c, why);
	return false;
}

/* The head is looked at first, so that nothing behind it is taken. */
static bool
connect_answer(struct load *l, struct conn *c)
{
	char text[HTTP_HEAD_MAX + 1], *end;
	ssize_t n = recv(c->fd, text, HTTP_HEAD_MAX, MSG_PEEK);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		conn_fail(l, c, n == 0 ? "end of stream in the handshake" : strerror(errno));
		return false;
	}
	text[n] = '\0';
	end = strstr(text, "\r\n\r\n");
	if (end == NULL) {
		if (n == HTTP_HEAD_MAX)
			conn_fail(l, c, "the answer to CONNECT is too long");
		return false;
	}
	if (recv(c->fd, text, (size_t)(end + 4 - text), 0) != end + 4 - text) {
		conn_fail(l, c, "the answer to CONNECT could not be read");
		return false;
	}
	if (strncmp(text, "HTTP/1.", 7) == 0 && strncmp(text + 8, " 200", 4) == 0)
		return true;
	text[strcspn(text, "\r\n")] = '\0';
	text[100] = '\0';
	conn_fail(l, c, text);
	return false;
}

bool
handshake_step(struct load *l, struct conn *c)
{
	socklen_t len = sizeof(int);
	int err = 0;

	switch (c->step) {
	case STEP_CONNECTING:
		if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err != 0) {
			conn_fail(l, c, strerror(err));
			return false;
		}
		if (l->opt.silent || l->opt.via == VIA_PLAIN || l->opt.via == VIA_HTTP)
			return true;
		conn_want(l, c, EPOLLIN);
		begin(l, c);
		return false;
	case STEP_GREETING:
		if (fill(l, c, 2) == 1)
			socks_request(l, c);
		return false;
	case STEP_ANSWER:
		return l->opt.via == VIA_SOCKS5 ? socks_answer(l, c) : connect_answer(l, c);
	default:
		return false;
	}
}

int
handshake_bound(const struct conn *c, struct sockaddr_in *out)
{
	if (c->head_len != 10 || c->head[3] != 1)
		return -1;
	*out = (struct sockaddr_in){ .sin_family = AF_INET };
	memcpy(&out->sin_addr, c->head + 4, 4);
	memcpy(&out->sin_port, c->head + 8, 2);
	return 0;
}

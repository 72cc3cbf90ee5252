/* SPDX-License-Identifier: ISC */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "message.h"
#include "pattern.h"

static const unsigned char *
filler(uint32_t kind, uint32_t id, uint64_t seq, size_t at)
{
	return pattern_at(pattern_key(id, kind == MESSAGE_RESPONSE), seq * 31 + at);
}

void
message_make(unsigned char *buf, size_t len, uint32_t kind, uint32_t id, uint64_t seq)
{
	struct message_head h = { kind, id, seq };

	memcpy(buf, &h, MESSAGE_HEAD_BYTES);
	memcpy(buf + MESSAGE_HEAD_BYTES, filler(kind, id, seq, 0), len - MESSAGE_HEAD_BYTES);
}

bool
message_right(const unsigned char *buf, size_t at, size_t n, uint32_t kind, uint32_t id,
    uint64_t seq)
{
	struct message_head h = { kind, id, seq };

	if (at < MESSAGE_HEAD_BYTES) {
		size_t part = MESSAGE_HEAD_BYTES - at < n ? MESSAGE_HEAD_BYTES - at : n;

		if (memcmp(buf, (unsigned char *)&h + at, part) != 0)
			return false;
		buf += part;
		at += part;
		n -= part;
	}
	return memcmp(buf, filler(kind, id, seq, at - MESSAGE_HEAD_BYTES), n) == 0;
}

int
message_send(struct load *l, struct conn *c)
{
	size_t len = l->opt.payload;
	uint32_t kind = c->end == END_CLIENT ? MESSAGE_REQUEST : MESSAGE_RESPONSE;
	ssize_t n;

	message_make(l->scratch, len, kind, c->id, c->seq);
	n = send(c->fd, l->scratch + c->out, len - c->out, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN) {
		conn_fail(l, c, strerror(errno));
		return -1;
	}
	if (n > 0)
		c->out += (uint64_t)n;
	if (c->out < len) {
		conn_want(l, c, EPOLLIN | EPOLLOUT);
		return 0;
	}
	c->out = 0;
	conn_want(l, c, EPOLLIN);
	return 1;
}

/* Collect the first head of an origin's end and find the client that it names. */
static int
learn(struct load *l, struct conn *c, const unsigned char *buf, size_t n)
{
	struct message_head h;
	size_t part = MESSAGE_HEAD_BYTES - c->head_len < n ? MESSAGE_HEAD_BYTES - c->head_len : n;

	memcpy(c->head + c->head_len, buf, part);
	c->head_len += (uint32_t)part;
	if (c->head_len < MESSAGE_HEAD_BYTES)
		return 0;
	memcpy(&h, c->head, sizeof(h));
	if (h.kind != MESSAGE_REQUEST) {
		conn_fail(l, c, "the first bytes are not a request");
		return -1;
	}
	return conn_join(l, c, h.id, h.seq);
}

int
message_receive(struct load *l, struct conn *c)
{
	size_t len = l->opt.payload;
	uint32_t kind = c->end == END_CLIENT ? MESSAGE_RESPONSE : MESSAGE_REQUEST;
	ssize_t n = recv(c->fd, l->scratch, SCRATCH_BYTES, 0);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) {
		conn_fail(l, c, n == 0 ? "end of stream in place of a message" : strerror(errno));
		return -1;
	}
	if ((uint64_t)n > len - c->in) {
		conn_fail(l, c, "more bytes than were sent");
		return -1;
	}
	if (!c->known && c->end == END_ORIGIN && learn(l, c, l->scratch, (size_t)n) < 0)
		return -1;
	if ((c->known || c->end == END_CLIENT) &&
	    !message_right(l->scratch, c->in, (size_t)n, kind, c->id, c->seq)) {
		conn_fail(l, c, "other bytes than were sent");
		return -1;
	}
	c->in += (uint64_t)n;
	if (c->in < len)
		return 0;
	c->in = 0;
	l->progress++;
	return 1;
}

int
message_expect_end(struct load *l, struct conn *c)
{
	ssize_t n = recv(c->fd, l->scratch, SCRATCH_BYTES, 0);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n != 0) {
		conn_fail(l, c, n > 0 ? "bytes in place of the end of stream" : strerror(errno));
		return -1;
	}
	c->ended = true;
	return 1;
}

void
message_ask(struct load *l, struct conn *c)
{
	c->waiting = true;
	c->started_ns = now_ns();
	message_send(l, c);
}

bool
message_answered(struct load *l, struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && c->out > 0 && message_send(l, c) < 0)
		return false;
	if ((events & ~(uint32_t)EPOLLOUT) == 0 || message_receive(l, c) != 1)
		return false;
	histogram_add(&l->res.latency, now_ns() - c->started_ns);
	l->res.requests++;
	c->waiting = false;
	c->seq++;
	return true;
}

void
message_origin(struct load *l, struct conn *c, uint32_t events)
{
	if (c->out > 0) {
		if ((events & EPOLLOUT) != 0 && message_send(l, c) == 1)
			c->seq++;
	} else if (!l->closing) {
		if (message_receive(l, c) == 1 && message_send(l, c) == 1)
			c->seq++;
	} else if (message_expect_end(l, c) == 1) {
		conn_close(l, c);
	}
}

/* SPDX-License-Identifier: ISC */
/*
 * Mode bulk: streams as fast as they go, one way.  In the window the sink drops
 * what comes without copying it (MSG_TRUNC, tcp(7)), so that the load is not
 * the limit, and the sender sends full segments alone (TCP_CORK), as one does
 * that has a file to send: without, each write would end in a segment of 106
 * bytes over loopback, a third of all packets.  Every byte is compared in a
 * transfer of its own before (--check).
 * At the end each stream must have brought as many bytes as were sent, and its
 * end.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "message.h"
#include "pattern.h"

#define WRITE_BYTES PATTERN_PIECE_MAX
#define CHECK_BYTES (8u << 20)

static bool
is_origin(const struct conn *c)
{
	return c->end == END_ORIGIN;
}

/* The first 16 bytes say which client it is; not counted. */
static void
opened(struct load *l, struct conn *c)
{
	struct message_head h = { MESSAGE_REQUEST, c->id, c->seq };

	c->waiting = true;
	if (send(c->fd, &h, sizeof(h), MSG_NOSIGNAL) != (ssize_t)sizeof(h))
		conn_fail(l, c, "the first bytes could not be sent");
}

/* True when it is known which stream this is. */
static bool
learn(struct load *l, struct conn *c)
{
	struct message_head h;
	ssize_t n;

	if (c->known)
		return true;
	n = recv(c->fd, c->head + c->head_len, sizeof(h) - c->head_len, 0);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			conn_fail(l, c, "no first bytes");
		return false;
	}
	c->head_len += (uint32_t)n;
	if (c->head_len < sizeof(h))
		return false;
	memcpy(&h, c->head, sizeof(h));
	if (h.kind != MESSAGE_REQUEST) {
		conn_fail(l, c, "other first bytes than were sent");
	} else if (conn_join(l, c, h.id, h.seq) == 0) {
		c->peer->waiting = false;
		l->progress++;
	}
	return false;
}

static void
send_some(struct load *l, struct conn *c, uint64_t limit)
{
	const unsigned char *from = pattern_at(pattern_key(c->id, is_origin(c)), c->out);
	size_t len = limit - c->out < WRITE_BYTES ? (size_t)(limit - c->out) : WRITE_BYTES;
	ssize_t n = send(c->fd, from, len, MSG_NOSIGNAL);

	if (n > 0) {
		c->out += (uint64_t)n;
		l->progress++;
	} else if (n < 0 && errno != EAGAIN) {
		conn_fail(l, c, strerror(errno));
	}
}

/* -- the window */

/* The sending end has ended its stream: compare, and answer with the same. */
static void
sink_end(struct load *l, struct conn *c)
{
	bool shut = c->peer != NULL ? c->peer->shut : c->peer_shut;
	uint64_t sent = c->peer != NULL ? c->peer->out : c->peer_out;

	c->waiting = false;
	if (!shut) {
		conn_fail(l, c, "end of stream in the middle");
	} else if (c->in != sent) {
		conn_fail(l, c, "not as many bytes as were sent");
	} else {
		conn_want(l, c, 0);
		conn_shut(l, c);
	}
}

static void
sink(struct load *l, struct conn *c)
{
	ssize_t n = recv(c->fd, l->scratch, SCRATCH_BYTES, MSG_TRUNC);

	if (n > 0) {
		c->in += (uint64_t)n;
		l->res.bytes += (uint64_t)n;
		l->progress++;
	} else if (n < 0 && errno != EAGAIN) {
		conn_fail(l, c, strerror(errno));
	} else if (n == 0 && !c->shut) {
		sink_end(l, c);
	} else if (n == 0) {
		c->waiting = false;
		conn_close(l, c);
	}
}

static void
end_event(struct load *l, struct conn *c, uint32_t events)
{
	bool sends = is_origin(c) == l->opt.down;

	if (sends && l->running && (events & EPOLLOUT) != 0)
		send_some(l, c, UINT64_MAX);
	else if ((events & ~(uint32_t)EPOLLOUT) != 0)
		sink(l, c);
}

static void
client(struct load *l, struct conn *c, uint32_t events)
{
	end_event(l, c, events);
}

static void
origin(struct load *l, struct conn *c, uint32_t events)
{
	if (learn(l, c))
		end_event(l, c, events);
}

static const struct handlers handlers = { opened, client, origin, NULL };

/* Its sender begins, with full segments until the end of the stream. */
static void
start_stream(struct load *l, struct conn *c)
{
	struct conn *from = l->opt.down ? c->peer : c;
	int on = 1;

	if (c->step != STEP_OPEN || from == NULL)
		return;
	if (setsockopt(from->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) < 0)
		fatal("TCP_CORK: %s", strerror(errno));
	conn_want(l, from, EPOLLIN | EPOLLOUT);
}

static void
finish_stream(struct load *l, struct conn *c)
{
	struct conn *from = l->opt.down ? c->peer : c;

	if (c->step != STEP_OPEN || from == NULL)
		return;
	c->waiting = true;
	conn_want(l, from, EPOLLIN);
	conn_shut(l, from);
}

/* -- the check */

static void
check_receive(struct load *l, struct conn *c)
{
	const unsigned char *right = pattern_at(pattern_key(c->id, !is_origin(c)), c->in);
	ssize_t n = recv(c->fd, l->scratch, PATTERN_PIECE_MAX, 0);

	if (n < 0) {
		if (errno != EAGAIN)
			conn_fail(l, c, strerror(errno));
	} else if (n > 0) {
		if (memcmp(l->scratch, right, (size_t)n) != 0) {
			conn_fail(l, c, "other bytes than were sent");
			return;
		}
		c->in += (uint64_t)n;
		l->progress++;
		if (c->in > CHECK_BYTES)
			conn_fail(l, c, "more bytes than were sent");
	} else if (c->in != CHECK_BYTES) {
		conn_fail(l, c, "end of stream too early");
	} else {
		c->ended = true;
	}
}

/*
 * Each end sends, ends its stream and waits for the other's end.  Without
 * half-close the client ends its stream when it has everything, and the origin
 * when it has seen that.
 */
static void
check_event(struct load *l, struct conn *c, uint32_t events)
{
	bool may_shut;

	if ((events & EPOLLOUT) != 0 && c->out < CHECK_BYTES)
		send_some(l, c, CHECK_BYTES);
	if (c->step == STEP_OPEN && (events & ~(uint32_t)EPOLLOUT) != 0 && !c->ended)
		check_receive(l, c);
	if (c->step != STEP_OPEN)
		return;
	may_shut = l->opt.half_close || (is_origin(c) ? c->ended : c->in == CHECK_BYTES);
	if (c->out == CHECK_BYTES && !c->shut && may_shut)
		conn_shut(l, c);
	if (c->step != STEP_OPEN)
		return;
	if (c->shut && c->ended) {
		l->streams_checked++;
		conn_close(l, c);
		return;
	}
	conn_want(l, c, (c->ended ? 0 : EPOLLIN) | (c->out < CHECK_BYTES ? EPOLLOUT : 0));
}

static void
check_client(struct load *l, struct conn *c, uint32_t events)
{
	check_event(l, c, events);
}

static void
check_origin(struct load *l, struct conn *c, uint32_t events)
{
	if (learn(l, c))
		check_event(l, c, events);
}

static const struct handlers check_handlers = { opened, check_client, check_origin, NULL };

static void
check(struct load *l)
{
	l->handlers = &check_handlers;
	open_all(l, 64);
	phase_begin(l, "check", 120);
	for (unsigned i = 0; i < l->opt.conns; i++) {
		struct conn *c = &l->clients[i];

		if (c->step != STEP_OPEN || c->peer == NULL)
			continue;
		c->waiting = true;
		conn_want(l, c->peer, EPOLLIN | EPOLLOUT);
		conn_want(l, c, EPOLLIN | EPOLLOUT);
	}
	while (conn_any_waits(l) || l->origins > 0)
		turn(l);
	if (l->streams_checked != 2 * l->opt.conns)
		error(l, "%u of %u streams arrived whole", l->streams_checked, 2 * l->opt.conns);
	l->res.checked = true;
}

static void
run(struct load *l)
{
	bool checked;

	if (l->opt.check)
		check(l);
	checked = l->res.checked;
	l->handlers = &handlers;
	open_all(l, 64);
	for (unsigned i = 0; i < l->opt.conns; i++)
		start_stream(l, &l->clients[i]);
	window(l, NULL);
	phase_begin(l, "ends of streams", 30);
	for (unsigned i = 0; i < l->opt.conns; i++)
		finish_stream(l, &l->clients[i]);
	while (conn_any_waits(l))
		turn(l);
	close_all(l);
	l->res.checked = checked;
}

static void
print(const struct load *l)
{
	printf(",\"bytes\":%llu,\"gib_per_s\":%.4f", (unsigned long long)l->window.bytes,
	    (double)l->window.bytes / l->window.seconds / (double)(1 << 30));
}

const struct mode mode_bulk = { "bulk", 16, 0, run, print };

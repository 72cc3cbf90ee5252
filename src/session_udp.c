/* SPDX-License-Identifier: ISC */
/* UDP ASSOCIATE: the association and the control connection that it lives as long as. */
#include "session_internal.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

/* ---- the end ---- */

/* Of interest to most only if something was dropped: this is where a client's loss is found. */
static void
log_end(struct session *s)
{
	const uint64_t *drops = udp_drops(s->udp);
	enum log_level level = LOG_DEBUG;
	char client[ADDR_TEXT_MAX], text[UDP_DROPS_TEXT_MAX];

	for (unsigned i = 0; i < COUNT_UDP_DROPS; i++)
		if (drops[i] != 0)
			level = LOG_INFO;
	if (!log_enabled(level))
		return;
	udp_format_drops(drops, text);
	log_write(level, LOG_C_LIMIT, session_who(s), "association ended client=%s port=%u udp_up=%llu udp_down=%llu%s",
	    addr_format(&s->peer, client), udp_port(s->udp), (unsigned long long)udp_datagrams(s->udp, UDP_UP),
	    (unsigned long long)udp_datagrams(s->udp, UDP_DOWN), text);
}

static void
on_udp_done(void *owner)
{
	struct session *s = owner;

	log_end(s);
	session_log_access(s, SOCKS5_REP_OK, NULL);
	session_close(s);
}

/*
 * As the check of a tunnel: looks again when it would have been idle for long
 * enough had nothing come since, so that datagrams cost no timer.
 */
static void
on_udp_idle(struct io_loop *loop, struct io_timer *timer)
{
	struct session *s = io_container_of(timer, struct session, timer);
	uint64_t at_ns = udp_quiet_since(s->udp) + s->snapshot->conf->udp.idle_timeout_s * NS_PER_S;

	assert(s->state == SESSION_ASSOCIATED);
	udp_count_unread(s->udp);
	if (at_ns > io_now(loop)) {
		io_timer_set(loop, timer, (at_ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S, on_udp_idle);
		return;
	}
	session_count(s, COUNT_IDLE_TIMEOUT);
	log_debug(session_who(s), "association closed cause=idle_timeout");
	udp_abort(s->udp);
}

/* ---- the control connection ---- */

/* Nothing is to come on it but its end, with which the association ends too (RFC 1928 section 7). */
static void
on_control(struct io_loop *loop, struct io_op *op)
{
	struct session *s = io_container_of(op, struct session, op);

	(void)loop;
	for (unsigned i = 0; i < op->u.pool.n; i++)
		io_buf_put(session_env(s)->pool, &op->u.pool.bufs[i]);
	if (s->state == SESSION_CLOSING)
		return;
	assert(s->state == SESSION_ASSOCIATED);
	if (op->res > 0) {
		stream_recv_pool(s->client, &s->op, session_env(s)->pool, IO_USE_RESERVE, on_control);
		return;
	}
	log_debug(session_who(s), "control connection ended");
	io_timer_stop(session_env(s)->loop, &s->timer);
	udp_abort(s->udp);
}

static void
on_reply_sent(struct io_loop *loop, struct io_op *op)
{
	struct session *s = io_container_of(op, struct session, op);

	(void)loop;
	if (s->state == SESSION_CLOSING)
		return;
	assert(s->state == SESSION_ASSOCIATED);
	/* So few bytes into an empty socket are never cut. */
	if (op->res != (int32_t)s->opening_len) {
		io_timer_stop(session_env(s)->loop, &s->timer);
		udp_abort(s->udp);
		return;
	}
	stream_recv_pool(s->client, &s->op, session_env(s)->pool, IO_USE_RESERVE, on_control);
}

/* ---- the beginning ---- */

/* Where the client is to send to. */
static struct addr
bound_address(struct session *s)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof ss;
	struct addr bnd = s->snapshot->conf->udp.public_address;

	if (bnd.len == 0 && getsockname(s->client->sock.fd, (struct sockaddr *)&ss, &len) == 0)
		addr_from_sockaddr(&bnd, (const struct sockaddr *)&ss, len);
	addr_unmap(&bnd);
	/* A Unix socket has no address to send datagrams to: loopback, as its client is on this machine. */
	if (bnd.len == 0 || bnd.sa.sa_family == AF_UNIX)
		addr_parse_ip(span_str("127.0.0.1"), 0, &bnd);
	addr_set_port(&bnd, udp_port(s->udp));
	return bnd;
}

static void
refuse(struct session *s, int rc, const char *text)
{
	char client[ADDR_TEXT_MAX];
	bool ports = rc == -EADDRINUSE;

	session_count(s, ports ? COUNT_REFUSED_UDP_PORTS : COUNT_REFUSED_POOL);
	log_warn(ports ? LOG_C_LIMIT : LOG_C_POOL, session_who(s), "association refused client=%s cause=\"%s\" errno=%d",
	    addr_format(&s->peer, client), text, -rc);
	session_refuse_socks5(s, SOCKS5_REP_GENERAL, ports ? "udp_ports" : "resources");
}

void
session_associate(struct session *s)
{
	struct udp_params params = {
		.snapshot = s->snapshot, .client = &s->peer, .user = s->user,
		.listener_port = s->listen->sock.len != 0 ? addr_port(&s->listen->sock) : 0, .session_id = s->id
	};
	char text[SOCKOPT_TEXT_MAX];
	struct addr bnd;
	int rc;

	if (env_overloaded(session_env(s))) {
		refuse(s, -ENOBUFS, "relay memory exhausted");
		return;
	}
	if ((rc = udp_start(&s->udp, session_env(s), &params, on_udp_done, s, text)) != 0) {
		refuse(s, rc, text);
		return;
	}
	input_free(&s->in);	/* nobody speaks on this connection any more */
	bnd = bound_address(s);
	session_set_state(s, SESSION_ASSOCIATED);
	s->opening_len = socks5_write_reply(SOCKS5_REP_OK, &bnd, (uint8_t *)s->opening);
	stream_send(s->client, &s->op, s->opening, s->opening_len, on_reply_sent);
	on_udp_idle(session_env(s)->loop, &s->timer);
}

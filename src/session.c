/* SPDX-License-Identifier: ISC */
#include "session_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

void
session_set_state(struct session *s, enum session_state state)
{
	static const char *const names[] = {
		"detect", "socks5_greeting", "socks5_password", "socks5_verify", "socks5_request", "socks4", "http",
		"dialing", "relaying", "associated", "refusing", "closing"
	};

	log_trace(session_who(s), "state from=%s to=%s", names[s->state], names[state]);
	s->state = state;
}

void
session_set_timer_s(struct session *s, uint32_t seconds, io_timer_cb *cb)
{
	struct io_loop *loop = session_env(s)->loop;

	if (seconds == 0)
		io_timer_stop(loop, &s->timer);
	else
		io_timer_set(loop, &s->timer, io_now(loop) + seconds * NS_PER_S, cb);
}

/* ---- the end ---- */

static void
session_free(struct session *s)
{
	assert(s->open == 0 && s->dial == NULL && s->http == NULL && !io_armed(&s->op));
	io_timer_stop(session_env(s)->loop, &s->timer);
	input_free(&s->in);
	free(s->answer);
	free(s->user);
	snapshot_drop(s->snapshot);
	log_debug(session_who(s), "session ended");
	worker_session_end(s->worker, &s->link, &s->peer);
	free(s);
}

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct stream *stream = stream_of_sock(sock);
	struct session *s = stream->owner;

	(void)loop;
	stream_free(stream);
	assert(s->open > 0);
	if (--s->open == 0)
		session_free(s);
}

static void
close_stream(struct session *s, struct stream **stream)
{
	if (*stream == NULL)
		return;
	(*stream)->owner = s;
	s->open++;
	if (s->reset)
		stream_close_reset(*stream, on_closed);
	else
		stream_close(*stream, on_closed);
	*stream = NULL;
}

void
session_close(struct session *s)
{
	assert(s->state != SESSION_CLOSING);
	if (s->state == SESSION_SOCKS5_VERIFY)
		auth_leave(&s->auth);
	else if (s->state == SESSION_DIALING)
		judge_close(&s->judge);
	session_set_state(s, SESSION_CLOSING);
	io_timer_stop(session_env(s)->loop, &s->timer);
	if (s->dial != NULL)
		dial_cancel(s->dial);
	s->dial = NULL;
	close_stream(s, &s->client);
	close_stream(s, &s->upstream);
	assert(s->open > 0);
}

void
session_client_gone(void *owner)
{
	struct session *s = owner;

	s->http = NULL;
	assert(s->client == NULL && s->upstream == NULL);
	if (s->state != SESSION_CLOSING)
		session_set_state(s, SESSION_CLOSING);
	session_free(s);
}

static const char *
proto_word(const struct session *s)
{
	static const char *const words[] = {
		[PROTO_NONE] = NULL, [PROTO_SOCKS4] = "socks4", [PROTO_SOCKS5] = "socks5",
		[PROTO_HTTP10] = "connect", [PROTO_HTTP11] = "connect"
	};

	return words[s->proto];
}

void
session_log_access(struct session *s, unsigned status, const char *refused_by)
{
	static const char *const versions[] = {
		[PROTO_NONE] = "", [PROTO_SOCKS4] = "SOCKS4", [PROTO_SOCKS5] = "SOCKS5",
		[PROTO_HTTP10] = "HTTP/1.0", [PROTO_HTTP11] = "HTTP/1.1"
	};
	struct env *env = session_env(s);
	char target[TARGET_TEXT_MAX];
	struct access_entry e = {
		.start_us = s->start_us,
		.dur_us = (io_now(env->loop) - s->start_ns) / 1000,
		.client = &s->peer, .status = status, .id = s->id,
		.proto = proto_word(s), .user = span_str(s->user != NULL ? s->user : ""),
		.acl = refused_by != NULL ? ACCESS_ACL_DENY : ACCESS_ACL_ALLOW,
		.rule = span_str(refused_by != NULL ? refused_by : s->rule != NULL ? s->rule : "")
	};

	if (env->access == NULL || s->logged)
		return;
	s->logged = true;
	if (s->target.host_len > 0 || target_is_literal(&s->target)) {
		e.method = span_str(s->wants_udp ? "UDP_ASSOCIATE" : "CONNECT");
		e.target = e.host = span_of(target, target_authority(&s->target, 0, target));
		e.version = span_str(versions[s->proto]);
	} else if (s->wants_udp) {	/* a hint that is no address */
		e.method = span_str("UDP_ASSOCIATE");
		e.version = span_str(versions[s->proto]);
	}
	if (s->upstream_addr.len != 0)
		e.upstream = &s->upstream_addr;
	if (s->state == SESSION_RELAYING) {
		e.bytes = tunnel_bytes(&s->tunnel, TUNNEL_DOWN);
		e.up = tunnel_bytes(&s->tunnel, TUNNEL_UP);
	} else if (s->state == SESSION_ASSOCIATED) {
		e.bytes = udp_bytes(s->udp, UDP_DOWN);
		e.up = udp_bytes(s->udp, UDP_UP);
	}
	accesslog_write(env->access, &e);
}

void
session_refuse(struct session *s, struct span answer)
{
	struct stream *client = s->client;

	session_set_state(s, SESSION_REFUSING);
	io_timer_stop(session_env(s)->loop, &s->timer);
	input_free(&s->in);
	s->client = NULL;
	farewell_start(&s->farewell, session_env(s), client, answer, session_client_gone, s);
}

/* ---- for the worker ---- */

bool
session_start(struct worker *w, const struct listener *l, io_fd fd, const struct addr *peer)
{
	struct session *s = calloc(1, sizeof *s);
	struct io_loop *loop = w->env.loop;
	char client[ADDR_TEXT_MAX];

	if (s == NULL || (s->client = stream_adopt(loop, fd)) == NULL) {
		log_error(LOG_C_INTERNAL, env_who(&w->env, 0), "session refused cause=\"out of memory\"");
		free(s);
		close(fd);
		return false;
	}
	s->worker = w;
	s->snapshot = snapshot_hold(l->snapshot);
	s->listen = l->conf;
	s->peer = *peer;
	s->start_us = access_now_us();
	s->start_ns = io_now(loop);
	input_init(&s->in, w->env.pool);
	s->id = worker_session_begin(w, &s->link);
	session_count(s, COUNT_SESSIONS);
	log_debug(session_who(s), "session started client=%s listener=%s", addr_format(peer, client),
	    l->conf->addr);
	session_set_timer_s(s, s->snapshot->conf->limits.handshake_timeout_s, session_handshake_timeout);
	session_receive(s);
	return true;
}

struct session *
session_of_link(struct io_link *link)
{
	return io_container_of(link, struct session, link);
}

void
session_drain(struct session *s)
{
	if (s->state == SESSION_HTTP)
		http_conn_drain(s->http);
}

void
session_abort(struct session *s)
{
	switch ((enum session_state)s->state) {
	case SESSION_HTTP:
		http_conn_abort(s->http);
		break;
	case SESSION_RELAYING:
		tunnel_abort(&s->tunnel);
		break;
	case SESSION_ASSOCIATED:
		s->reset = true;
		udp_abort(s->udp);
		break;
	case SESSION_REFUSING:
		farewell_abort(&s->farewell);
		break;
	case SESSION_CLOSING:
		break;
	default:
		if (s->state == SESSION_DIALING)
			session_log_failure(s);
		s->reset = true;
		session_close(s);
	}
}

uint64_t
session_stalled_since(const struct session *s)
{
	if (s->state == SESSION_RELAYING)
		return tunnel_stalled_since(&s->tunnel);
	if (s->state == SESSION_HTTP)
		return http_conn_stalled_since(s->http);
	return UINT64_MAX;
}

void
session_reset_stalled(struct session *s)
{
	char client[ADDR_TEXT_MAX];

	session_count(s, COUNT_STALLED_RESET);
	log_warn(LOG_C_POOL, session_who(s),
	    "stalled session reset cause=\"relay memory exhausted\" client=%s",
	    addr_format(&s->peer, client));
	session_abort(s);
}

/* SPDX-License-Identifier: ISC */
/* Which protocol, and what the client asks for. */
#include "session_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/detect.h"

static void session_parse(struct session *);
static void on_received(struct io_loop *, struct io_op *);

void
session_receive(struct session *s)
{
	if (input_park(&s->in) != 0) {
		session_close(s);
		return;
	}
	stream_recv_pool(s->client, &s->op, session_env(s)->pool, IO_USE_RESERVE, on_received);
}

static void
on_received(struct io_loop *loop, struct io_op *op)
{
	struct session *s = io_container_of(op, struct session, op);

	(void)loop;
	if (s->state == SESSION_CLOSING) {
		for (unsigned i = 0; i < op->u.pool.n; i++)
			io_buf_put(session_env(s)->pool, &op->u.pool.bufs[i]);
		return;
	}
	/* Gone before it asked for anything: a port scan or a health check, not worth a line. */
	if (op->res <= 0 || input_add(&s->in, op) != 0) {
		session_close(s);
		return;
	}
	session_parse(s);
}

static void
malformed(struct session *s, const char *cause)
{
	char client[ADDR_TEXT_MAX];

	session_count(s, COUNT_MALFORMED);
	log_info(LOG_C_PROTOCOL, session_who(s), "malformed request client=%s cause=\"%s\"",
	    addr_format(&s->peer, client), cause);
}

/* Nothing in the protocol could answer it: drop it, without a reset that would race our FIN. */
static void
refuse_silently(struct session *s, const char *cause)
{
	session_log_access(s, 0, cause);
	session_refuse(s, span_of("", 0));
}

static bool
wants_password(const struct session *s)
{
	return snapshot_wants_password(s->snapshot, s->listen);
}

static void
on_method_sent(struct io_loop *loop, struct io_op *op)
{
	struct session *s = io_container_of(op, struct session, op);

	(void)loop;
	if (s->state == SESSION_CLOSING)
		return;
	/* Two bytes into an empty socket are never cut. */
	if (op->res != (int32_t)s->opening_len) {
		session_close(s);
		return;
	}
	session_parse(s);
}

static void
parse_socks5_greeting(struct session *s)
{
	struct socks5_greeting g;
	enum socks5_method method;
	char client[ADDR_TEXT_MAX];

	switch (socks5_parse_greeting(input_bytes(&s->in), &g)) {
	case SOCKS5_MORE:
		session_receive(s);
		return;
	case SOCKS5_OK:
		break;
	default:
		malformed(s, "not a SOCKS5 greeting");
		refuse_silently(s, "malformed");
		return;
	}
	input_consume(&s->in, g.used);
	method = socks5_choose_method(&g, wants_password(s));
	s->opening_len = socks5_write_method(method, (uint8_t *)s->opening);
	if (method == SOCKS5_METHOD_UNACCEPTABLE) {
		session_count(s, COUNT_REFUSED_METHOD);
		log_info(LOG_C_PROTOCOL, session_who(s),
		    "refused client=%s cause=\"no acceptable SOCKS5 method\"", addr_format(&s->peer, client));
		session_log_access(s, SOCKS5_METHOD_UNACCEPTABLE, "method");
		session_refuse(s, span_of(s->opening, s->opening_len));
		return;
	}
	session_set_state(s, method == SOCKS5_METHOD_USERPASS ? SESSION_SOCKS5_PASSWORD :
	    SESSION_SOCKS5_REQUEST);
	stream_send(s->client, &s->op, s->opening, s->opening_len, on_method_sent);
}

/* RFC 1929: the reply, then the request or the end. */
static void
password_decided(struct session *s, enum auth_verdict v)
{
	char client[ADDR_TEXT_MAX];

	assert(s->state == SESSION_SOCKS5_VERIFY);
	s->opening_len = socks5_write_userpass_reply(v == AUTH_OK, (uint8_t *)s->opening);
	if (v == AUTH_OK) {
		session_set_state(s, SESSION_SOCKS5_REQUEST);
		stream_send(s->client, &s->op, s->opening, s->opening_len, on_method_sent);
		return;
	}
	session_count(s, v == AUTH_DENIED ? COUNT_REFUSED_PASSWORD : COUNT_REFUSED_THROTTLED);
	log_info(LOG_C_AUTH, session_who(s), "refused client=%s user=%s cause=\"%s\"",
	    addr_format(&s->peer, client), s->user, auth_verdict_text(v));
	session_log_access(s, SOCKS5_REP_GENERAL, v == AUTH_DENIED ? "password" : "throttled");
	session_refuse(s, span_of(s->opening, s->opening_len));
}

static void
on_auth(struct auth_request *r, enum auth_verdict v)
{
	password_decided(io_container_of(r, struct session, auth), v);
}

static void
parse_socks5_password(struct session *s)
{
	struct socks5_userpass up;
	enum auth_verdict v;

	switch (socks5_parse_userpass(input_bytes(&s->in), &up)) {
	case SOCKS5_MORE:
		session_receive(s);
		return;
	case SOCKS5_OK:
		break;
	default:
		malformed(s, "not a SOCKS5 user name and password");
		s->opening_len = socks5_write_userpass_reply(false, (uint8_t *)s->opening);
		session_log_access(s, SOCKS5_REP_GENERAL, "malformed");
		session_refuse(s, span_of(s->opening, s->opening_len));
		return;
	}
	if ((s->user = strndup(up.user.base, up.user.len)) == NULL) {
		session_close(s);
		return;
	}
	session_set_state(s, SESSION_SOCKS5_VERIFY);
	memset(&s->auth, 0, sizeof s->auth);
	v = auth_check(session_env(s)->auth, s->snapshot->users, &s->peer, up.user, up.pass,
	    &s->auth, on_auth);
	explicit_bzero((void *)(uintptr_t)up.pass.base, up.pass.len);
	input_consume(&s->in, up.used);
	if (v != AUTH_PENDING)
		password_decided(s, v);
	else if (input_park(&s->in) != 0)
		session_close(s);
}

static void
parse_socks5_request(struct session *s)
{
	struct socks5_request req;
	enum socks5_verdict v = socks5_parse_request(input_bytes(&s->in), &req);
	char client[ADDR_TEXT_MAX];

	if (v == SOCKS5_MORE) {
		session_receive(s);
		return;
	}
	s->wants_udp = v == SOCKS5_OK && req.cmd == SOCKS5_UDP_ASSOCIATE;
	if (s->wants_udp && !s->snapshot->conf->udp.enabled)
		v = SOCKS5_BAD_COMMAND;
	if (v != SOCKS5_OK) {
		if (v == SOCKS5_BAD_COMMAND || v == SOCKS5_BAD_ATYP) {
			session_count(s, COUNT_REFUSED_COMMAND);
			log_info(LOG_C_PROTOCOL, session_who(s), "refused client=%s cause=\"%s\" command=%u",
			    addr_format(&s->peer, client), socks5_verdict_text(v), req.cmd);
		} else
			malformed(s, socks5_verdict_text(v));
		session_refuse_socks5(s, socks5_rep_for(v),
		    v == SOCKS5_BAD_COMMAND || v == SOCKS5_BAD_ATYP ? "command" : "malformed");
		return;
	}
	input_consume(&s->in, req.used);
	s->target = req.target;
	if (s->wants_udp)
		session_associate(s);
	else
		session_dial(s);
}

static void
parse_socks4(struct session *s)
{
	struct socks4_request req;
	enum socks4_verdict v = socks4_parse_request(input_bytes(&s->in), &req);
	char client[ADDR_TEXT_MAX];

	if (v == SOCKS4_MORE) {
		session_receive(s);
		return;
	}
	if (v != SOCKS4_OK) {
		if (v == SOCKS4_BAD_COMMAND) {
			session_count(s, COUNT_REFUSED_COMMAND);
			log_info(LOG_C_PROTOCOL, session_who(s), "refused client=%s cause=\"%s\" command=%u",
			    addr_format(&s->peer, client), socks4_verdict_text(v), req.cmd);
		} else
			malformed(s, socks4_verdict_text(v));
		session_refuse_socks4(s, v == SOCKS4_BAD_COMMAND ? "command" : "malformed");
		return;
	}
	if (wants_password(s)) {	/* which the protocol can't carry */
		session_count(s, COUNT_REFUSED_PASSWORD);
		log_info(LOG_C_AUTH, session_who(s), "refused client=%s cause=\"SOCKS4 has no password\"",
		    addr_format(&s->peer, client));
		session_refuse_socks4(s, "password");
		return;
	}
	input_consume(&s->in, req.used);
	s->target = req.target;
	session_dial(s);
}

static void
on_http_connect(void *owner, struct stream *client, const struct http_connect *request)
{
	struct session *s = owner;
	struct snapshot *before = s->snapshot;

	/* A reload may have come between the connection's start and this request. */
	s->snapshot = snapshot_hold(request->snapshot);
	s->listen = request->listen;
	snapshot_drop(before);
	free(s->user);
	s->user = request->user.len > 0 ? strndup(request->user.base, request->user.len) : NULL;
	s->http = NULL;
	s->client = client;
	s->proto = request->client_is_10 ? PROTO_HTTP10 : PROTO_HTTP11;
	s->target = request->target;
	s->start_us = request->start_us;
	s->start_ns = request->start_ns;
	session_dial(s);
}

static const struct http_conn_owner http_owner = {
	.connect = on_http_connect,
	.end = session_client_gone
};

static void
start_http(struct session *s)
{
	struct stream *client = s->client;
	struct http_client who = {
		.session_id = s->id, .peer = &s->peer, .snapshot = s->snapshot, .listen = s->listen,
		.accepted_ns = s->start_ns
	};

	session_set_state(s, SESSION_HTTP);
	io_timer_stop(session_env(s)->loop, &s->timer);
	s->client = NULL;
	if (http_conn_start(&s->http, session_env(s), &who, client, &s->in, &http_owner, s) != 0) {
		s->client = client;
		session_close(s);
	}
}

static bool
listener_serves(const struct session *s, enum detect_proto p)
{
	uint32_t served = s->listen->protocols;

	return (p == DETECT_SOCKS5 && (served & CONF_PROTO_SOCKS5)) ||
	    (p == DETECT_SOCKS4 && (served & CONF_PROTO_SOCKS4)) ||
	    (p == DETECT_HTTP && (served & CONF_PROTO_HTTP));
}

static void
detect(struct session *s)
{
	uint8_t first = (uint8_t)input_bytes(&s->in).base[0];
	enum detect_proto p = detect_first_byte(first);
	char client[ADDR_TEXT_MAX];

	if (!listener_serves(s, p)) {
		session_count(s, COUNT_REFUSED_PROTOCOL);
		log_info(LOG_C_PROTOCOL, session_who(s), "refused client=%s cause=\"%s\" first_byte=0x%02x%s",
		    addr_format(&s->peer, client),
		    p == DETECT_UNKNOWN ? "no protocol known here" : "protocol not served by this listener",
		    first, first == 0x16 ? " hint=\"TLS to a plain listener\"" : "");
		refuse_silently(s, "protocol");
		return;
	}
	switch (p) {
	case DETECT_SOCKS5:
		s->proto = PROTO_SOCKS5;
		session_set_state(s, SESSION_SOCKS5_GREETING);
		parse_socks5_greeting(s);
		break;
	case DETECT_SOCKS4:
		s->proto = PROTO_SOCKS4;
		session_set_state(s, SESSION_SOCKS4);
		parse_socks4(s);
		break;
	case DETECT_HTTP:
		start_http(s);
		break;
	case DETECT_UNKNOWN:
		break;
	}
}

/* With all bytes so far; each message is at most some hundred bytes, so starting over is cheap. */
static void
session_parse(struct session *s)
{
	switch ((enum session_state)s->state) {
	case SESSION_DETECT:
		detect(s);
		break;
	case SESSION_SOCKS5_GREETING:
		parse_socks5_greeting(s);
		break;
	case SESSION_SOCKS5_PASSWORD:
		if (input_bytes(&s->in).len > 0)
			parse_socks5_password(s);
		else
			session_receive(s);
		break;
	case SESSION_SOCKS5_REQUEST:
		if (input_bytes(&s->in).len > 0)
			parse_socks5_request(s);
		else
			session_receive(s);
		break;
	case SESSION_SOCKS4:
		parse_socks4(s);
		break;
	default:
		assert(!"bytes in a state that parses none");
	}
}

void
session_handshake_timeout(struct io_loop *loop, struct io_timer *timer)
{
	struct session *s = io_container_of(timer, struct session, timer);
	char client[ADDR_TEXT_MAX];

	(void)loop;
	session_count(s, COUNT_HANDSHAKE_TIMEOUT);
	session_log_access(s, 0, "handshake_timeout");
	log_info(LOG_C_TIMEOUT, session_who(s), "client closed cause=handshake_timeout client=%s",
	    addr_format(&s->peer, client));
	session_close(s);
}

/* SPDX-License-Identifier: ISC */
/* Which protocol, and what the client asks for. */
#include "session_internal.h"

#include <assert.h>

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
refuse_silently(struct session *s)
{
	session_refuse(s, span_of("", 0));
}

static void
on_method_sent(struct io_loop *loop, struct io_op *op)
{
	struct session *s = io_container_of(op, struct session, op);

	(void)loop;
	if (s->state == SESSION_CLOSING)
		return;
	if (op->res != SOCKS5_METHOD_REPLY_LEN) {	/* two bytes into an empty socket are never cut */
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

	switch (socks5_parse_greeting(input_bytes(&s->in), &g)) {
	case SOCKS5_MORE:
		session_receive(s);
		return;
	case SOCKS5_OK:
		break;
	default:
		malformed(s, "not a SOCKS5 greeting");
		refuse_silently(s);
		return;
	}
	input_consume(&s->in, g.used);
	method = socks5_choose_method(&g, false);
	s->opening_len = socks5_write_method(method, (uint8_t *)s->opening);
	if (method == SOCKS5_METHOD_UNACCEPTABLE) {
		session_count(s, COUNT_REFUSED_METHOD);
		log_info(LOG_C_PROTOCOL, session_who(s), "refused cause=\"no acceptable SOCKS5 method\"");
		session_refuse(s, span_of(s->opening, s->opening_len));
		return;
	}
	session_set_state(s, SESSION_SOCKS5_REQUEST);
	stream_send(s->client, &s->op, s->opening, s->opening_len, on_method_sent);
}

static void
parse_socks5_request(struct session *s)
{
	struct socks5_request req;
	enum socks5_verdict v = socks5_parse_request(input_bytes(&s->in), &req);

	if (v == SOCKS5_MORE) {
		session_receive(s);
		return;
	}
	/* UDP ASSOCIATE is for a later version: command not supported. */
	if (v == SOCKS5_OK && req.cmd != SOCKS5_CONNECT)
		v = SOCKS5_BAD_COMMAND;
	if (v != SOCKS5_OK) {
		if (v == SOCKS5_BAD_COMMAND || v == SOCKS5_BAD_ATYP) {
			session_count(s, COUNT_REFUSED_COMMAND);
			log_info(LOG_C_PROTOCOL, session_who(s), "refused cause=\"%s\" command=%u",
			    socks5_verdict_text(v), req.cmd);
		} else
			malformed(s, socks5_verdict_text(v));
		session_refuse_socks5(s, socks5_rep_for(v));
		return;
	}
	input_consume(&s->in, req.used);
	s->target = req.target;
	session_dial(s);
}

static void
parse_socks4(struct session *s)
{
	struct socks4_request req;
	enum socks4_verdict v = socks4_parse_request(input_bytes(&s->in), &req);

	if (v == SOCKS4_MORE) {
		session_receive(s);
		return;
	}
	if (v != SOCKS4_OK) {
		if (v == SOCKS4_BAD_COMMAND)
			session_count(s, COUNT_REFUSED_COMMAND);
		else
			malformed(s, socks4_verdict_text(v));
		session_refuse_socks4(s);
		return;
	}
	input_consume(&s->in, req.used);
	s->target = req.target;
	session_dial(s);
}

static void
on_http_connect(void *owner, struct stream *client, const struct target *target,
    bool client_is_10)
{
	struct session *s = owner;

	s->http = NULL;
	s->client = client;
	s->proto = client_is_10 ? PROTO_HTTP10 : PROTO_HTTP11;
	s->target = *target;
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

	session_set_state(s, SESSION_HTTP);
	io_timer_stop(session_env(s)->loop, &s->timer);
	s->client = NULL;
	if (http_conn_start(&s->http, session_env(s), s->id, &s->peer, client, &s->in, &http_owner, s) != 0) {
		s->client = client;
		session_close(s);
	}
}

static bool
listener_serves(const struct session *s, enum detect_proto p)
{
	uint32_t served = s->listener->conf->protocols;

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
		refuse_silently(s);
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
	log_info(LOG_C_TIMEOUT, session_who(s), "client closed cause=handshake_timeout client=%s",
	    addr_format(&s->peer, client));
	session_close(s);
}

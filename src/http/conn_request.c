/* SPDX-License-Identifier: ISC */
/* One request: refused, or on its way. */
#include "http/conn_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/basic.h"
#include "util/accesslog.h"

static void handle_request(struct http_conn *);

/* The first line as it came, for a request that could not be parsed. */
static struct span
first_line(const struct http_conn *c)
{
	struct span bytes = input_bytes(c->in);
	size_t len = 0;

	while (len < bytes.len && bytes.base[len] != '\r' && bytes.base[len] != '\n')
		len++;
	return span_of(bytes.base, len);
}

/* `parsed`: c->head is whole. */
static void
log_access(struct http_conn *c, const struct reply *r, bool parsed, const char *rule)
{
	struct access_entry e = {
		.start_us = c->start_us, .dur_us = (io_now(c->env->loop) - c->start_ns) / 1000,
		.client = &c->peer, .status = r->status, .proto = "http", .id = c->session_id,
		.user = c->authenticated ? c->user : span_of("", 0),
		.acl = ACCESS_ACL_DENY, .rule = span_str(rule)
	};
	ssize_t host;

	if (c->env->access == NULL)
		return;
	if (parsed) {
		e.method = c->head.method_text;
		e.target = c->head.target_text;
		e.version = span_str(c->is_10 ? "HTTP/1.0" : "HTTP/1.1");
		if ((host = http1_find(&c->head, HTTP1_F_HOST, 0)) >= 0)
			e.host = c->head.fields[host].value;
	} else
		e.target = first_line(c);
	accesslog_write(c->env->access, &e);
}

void
conn_refuse(struct http_conn *c, enum counter which, const struct reply *r, bool parsed, const char *rule)
{
	char client[ADDR_TEXT_MAX];
	bool keep = false;

	counters_add(c->env->count, which, 1);
	counters_add(c->env->count, COUNT_HTTP_REQUESTS, 1);
	log_info(r->status == 407 ? LOG_C_AUTH : r->status == 403 ? LOG_C_ACL : LOG_C_PROTOCOL, conn_who(c),
	    "request refused client=%s user=%.*s status=%u cause=\"%s\" rule=\"%s\"",
	    addr_format(&c->peer, client), parsed && c->user.len > 0 ? (int)c->user.len : 1,
	    parsed && c->user.len > 0 ? c->user.base : "-", r->status, r->cause, rule);
	log_access(c, r, parsed, rule);
	/* Refused for what it asks, not for how: without a body the connection can go on. */
	if (parsed && (r->status == 403 || r->status == 407)) {
		struct http1_framing body;

		http1_request_body(&c->head, &body);
		keep = c->keep && body.body == HTTP1_BODY_NONE;
		if (keep)
			input_consume(c->in, c->head.used);
	}
	conn_answer(c, r, keep);
}

void
conn_refuse_verdict(struct http_conn *c, enum http1_verdict v)
{
	struct reply r = { http1_verdict_status(v), "http_request_error", http1_verdict_cause(v), 0, NULL };

	conn_refuse(c, COUNT_MALFORMED, &r, false, "malformed");
}

/* ---- exchanges ---- */

static void
on_need_input(void *owner)
{
	struct http_conn *c = owner;

	if (c->client_ended) {
		exchange_abort(c->exchange);
		return;
	}
	c->wants_input = true;
	conn_receive(c);
}

static void
on_request_read(void *owner)
{
	struct http_conn *c = owner;

	c->request_read = true;
	conn_watch(c);
}

static void
on_exchange_end(void *owner, enum exchange_end end, const struct reply *reply)
{
	struct http_conn *c = owner;

	c->exchange = NULL;
	c->wants_input = false;
	switch (end) {
	case EXCHANGE_KEEP:
		c->state = CONN_HEAD;
		conn_process(c);
		break;
	case EXCHANGE_CLOSE:
		conn_stop(c);
		break;
	case EXCHANGE_ANSWER:
		conn_answer(c, reply, c->keep && c->request_read);
		break;
	case EXCHANGE_CUT:
		conn_close(c, true);
		break;
	}
}

static const struct exchange_owner exchange_owner = {
	.need_input = on_need_input,
	.request_read = on_request_read,
	.end = on_exchange_end
};

/* Where a request may go, and whether it may. */
static bool
open_judge(struct http_conn *c, const struct http1_where *where, struct judge *judge)
{
	struct acl_request request = {
		.kind = ACL_HTTP, .method = c->head.method_text, .path = where->path,
		.target = &where->target, .client = &c->peer,
		.user = c->authenticated ? c->user : span_of("", 0),
		.listener_port = c->listen->sock.len != 0 ? addr_port(&c->listen->sock) : 0
	};

	return judge_open(judge, c->snapshot, &request);
}

static void
start_exchange(struct http_conn *c, const struct http1_where *where)
{
	static const struct reply no_memory = { 503, "proxy_internal_error", "out of memory", 1, NULL };
	static const struct reply too_large = {
		413, "http_request_error", "the request's body is larger than this proxy allows", 0, NULL
	};
	static const struct reply unrouted = {
		400, "http_request_error",
		"this is a proxy: the request needs an absolute URI (http://host/path)", 0, NULL
	};
	struct exchange_client client = {
		.env = c->env, .session_id = c->session_id, .peer = &c->peer, .conf = c->snapshot->conf,
		.stream = c->client, .input = c->in, .user = c->authenticated ? c->user : span_of("", 0),
		.start_us = c->start_us, .start_ns = c->start_ns
	};
	enum conf_origin_form origin_form = c->snapshot->conf->http.origin_form;
	uint64_t body_max = c->snapshot->conf->http.max_body_bytes;
	struct http1_framing body;
	struct judge judge;

	http1_request_body(&c->head, &body);
	if (body_max != 0 && body.body == HTTP1_BODY_LENGTH && body.length > body_max) {
		conn_refuse(c, COUNT_REFUSED_BODY, &too_large, true, "max_body_bytes");
		return;
	}
	if (!open_judge(c, where, &judge)) {
		struct reply r = reply_for_judge(&judge);
		const char *rule = judge.rule;

		conn_refuse(c, judge.cause == JUDGE_ACL ? COUNT_REFUSED_ACL : COUNT_REFUSED_POOL, &r, true, rule);
		judge_close(&judge);
		return;
	}
	if (where->form != HTTP1_FORM_ABSOLUTE && (origin_form == CONF_ORIGIN_OFF ||
	    (origin_form == CONF_ORIGIN_ROUTED && !judge.routed))) {
		judge_close(&judge);
		conn_refuse(c, COUNT_MALFORMED, &unrouted, true, "origin_form");
		return;
	}
	c->state = CONN_EXCHANGE;
	c->exchange = exchange_start(&client, &c->head, where, &judge, !c->keep || c->draining,
	    &exchange_owner, c);
	if (c->exchange == NULL) {
		judge_close(&judge);
		conn_refuse(c, COUNT_REFUSED_POOL, &no_memory, true, "memory");
		return;
	}
	/* Without a body the request is read already, though not sent yet. */
	c->request_read = body.body == HTTP1_BODY_NONE;
	if (c->request_read)
		conn_watch(c);
}

static void
hand_over_connect(struct http_conn *c, const struct target *target)
{
	const struct http_conn_owner *calls = c->owner_calls;
	void *owner = c->owner;
	struct stream *client = c->client;
	struct http_connect request = {
		.target = *target, .user = c->authenticated ? c->user : span_of(NULL, 0),
		.client_is_10 = c->is_10, .snapshot = snapshot_hold(c->snapshot), .listen = c->listen,
		.start_us = c->start_us, .start_ns = c->start_ns
	};

	input_consume(c->in, c->head.used);
	if (c->authenticated)
		c->user = span_of(NULL, 0);
	conn_free(c);
	calls->connect(owner, client, &request);
	snapshot_drop(request.snapshot);
	free((char *)(uintptr_t)request.user.base);
}

/* ---- passwords ---- */

static void
ask_for_password(struct http_conn *c, enum counter which, const char *cause)
{
	struct reply r = { 407, "http_request_denied", cause, 0, c->snapshot->conf->auth.realm };

	conn_refuse(c, which, &r, true, which == COUNT_REFUSED_PASSWORD ? "password" : "throttled");
}

static void
password_decided(struct http_conn *c, enum auth_verdict v)
{
	static const struct reply busy = {
		503, "connection_limit_reached", "too many passwords are being verified", 1, NULL
	};

	if (v == AUTH_OK) {
		c->authenticated = true;
		return;
	}
	if (v == AUTH_BUSY)
		conn_refuse(c, COUNT_REFUSED_THROTTLED, &busy, true, "busy");
	else
		ask_for_password(c, v == AUTH_DENIED ? COUNT_REFUSED_PASSWORD : COUNT_REFUSED_THROTTLED,
		    auth_verdict_text(v));
}

/* The fields were lent to others meanwhile: the head is parsed again, which can't fail. */
static void
on_auth(struct auth_request *request, enum auth_verdict v)
{
	struct http_conn *c = io_container_of(request, struct http_conn, auth);
	const struct conf_limits *limits = &c->snapshot->conf->limits;
	enum http1_verdict again;

	assert(c->state == CONN_VERIFY);
	c->state = CONN_HEAD;
	http1_head_init(&c->head, c->env->fields, c->env->field_max, limits->header_bytes);
	again = http1_parse_request(&c->head, input_bytes(c->in));
	assert(again == HTTP1_OK);
	password_decided(c, v);
	if (c->authenticated)
		handle_request(c);
}

/* False: not yet, or not at all. */
static bool
authenticate(struct http_conn *c)
{
	ssize_t i = http1_find(&c->head, HTTP1_F_PROXY_AUTHORIZATION, 0);
	struct basic_credentials given;
	enum auth_verdict v;
	enum basic_verdict b;
	char *user;

	if (i < 0) {
		ask_for_password(c, COUNT_REFUSED_PASSWORD, "this proxy asks for a password");
		return false;
	}
	if ((b = basic_parse(c->head.fields[i].value, &given)) != BASIC_OK) {
		ask_for_password(c, COUNT_REFUSED_PASSWORD, basic_verdict_text(b));
		return false;
	}
	if ((user = malloc((size_t)given.user_len + 1)) == NULL) {
		basic_wipe(&given);
		conn_close(c, true);
		return false;
	}
	memcpy(user, given.user, given.user_len);
	free((char *)(uintptr_t)c->user.base);
	c->user = span_of(user, given.user_len);
	v = auth_check(c->env->auth, c->snapshot->users, &c->peer, basic_user(&given),
	    basic_pass(&given), &c->auth, on_auth);
	basic_wipe(&given);
	if (v == AUTH_PENDING) {
		c->state = CONN_VERIFY;
		conn_set_timer_s(c, c->snapshot->conf->limits.handshake_timeout_s);
		if (input_park(c->in) != 0)
			conn_close(c, true);
		return false;
	}
	password_decided(c, v);
	return c->authenticated;
}

/* ---- requests ---- */

/*
 * Rules, whitelist and users are the present ones, also on a connection that is
 * kept alive over a reload.  False: the client may not be here any more.
 */
static bool
renew_snapshot(struct http_conn *c)
{
	struct snapshot *now = c->env->snapshot;
	const struct conf_listen *listen;

	if (now == c->snapshot)
		return true;
	listen = snapshot_find_listener(now, c->listen);
	if (listen == NULL || !snapshot_admits(now, &c->peer))
		return false;
	snapshot_hold(now);
	snapshot_drop(c->snapshot);
	c->snapshot = now;
	c->listen = listen;
	return true;
}

static void
handle_request(struct http_conn *c)
{
	static const struct reply busy = { 503, "connection_limit_reached", "relay memory is exhausted", 1, NULL };
	static const struct reply loop = { 508, "proxy_loop_detected", "the request has been here before", 0, NULL };
	struct http1_where where;
	enum http1_verdict v;

	io_timer_stop(c->env->loop, &c->timer);
	c->is_head = c->head.method == HTTP1_M_HEAD;
	c->is_10 = c->head.minor == 0;
	c->keep = http1_keep_alive(&c->head);
	if ((v = http1_request_target(&c->head, &where)) != HTTP1_OK)
		conn_refuse_verdict(c, v);
	else if (!c->authenticated && snapshot_wants_password(c->snapshot, c->listen) &&
	    !authenticate(c))
		return;
	else if (where.form == HTTP1_FORM_AUTHORITY)
		hand_over_connect(c, &where.target);
	else if (http1_via_names(&c->head, c->env->via))
		conn_refuse(c, COUNT_REFUSED_LOOP, &loop, true, "proxy_loop");
	else if (env_overloaded(c->env))
		conn_refuse(c, COUNT_REFUSED_POOL, &busy, true, "memory");
	else
		start_exchange(c, &where);
}

void
conn_begin_request(struct http_conn *c)
{
	c->head_begun = false;
	c->authenticated = false;
	if (renew_snapshot(c))
		handle_request(c);
	else
		conn_stop(c);
}

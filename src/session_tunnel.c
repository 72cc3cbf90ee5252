/* SPDX-License-Identifier: ISC */
/* From a target to a tunnel, or to a refusal. */
#include "session_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "http/reply.h"
#include "proto/http1.h"

enum {
	/* Most dials are over by then, and a watch costs a receive and its cancel. */
	DIAL_WATCH_AFTER_MS = 1000,
	/* Early data kept while it goes on: beyond it the client is not read, and its reset not seen. */
	DIAL_WATCH_BYTES = 16 * 1024
};

static void on_watched(struct io_loop *, struct io_op *);

/* ---- each protocol's words for no ---- */

void
session_refuse_socks5(struct session *s, enum socks5_rep rep, const char *cause)
{
	session_log_access(s, rep, cause);
	s->opening_len = socks5_write_reply(rep, NULL, (uint8_t *)s->opening);
	session_refuse(s, span_of(s->opening, s->opening_len));
}

void
session_refuse_socks4(struct session *s, const char *cause)
{
	session_log_access(s, SOCKS4_REP_REFUSED, cause);
	s->opening_len = socks4_write_reply(SOCKS4_REP_REFUSED, NULL, (uint8_t *)s->opening);
	session_refuse(s, span_of(s->opening, s->opening_len));
}

static void
refuse_http(struct session *s, const struct reply *r)
{
	size_t len = 0;

	/* Without memory for the answer the client sees a close. */
	if ((s->answer = malloc(REPLY_MAX)) != NULL)
		len = reply_write(r, false, false, s->answer);
	session_refuse(s, span_of(s->answer, len));
}

static enum socks5_rep
rep_for_dial(const struct dial_result *r)
{
	switch (r->status) {
	case DIAL_NO_NAME:
	case DIAL_DNS_FAILED:
		return SOCKS5_REP_HOST_UNREACHABLE;
	case DIAL_DNS_TIMEOUT:
		return SOCKS5_REP_TTL_EXPIRED;
	case DIAL_DENIED:
		return SOCKS5_REP_NOT_ALLOWED;
	case DIAL_NO_RESOURCES:
	case DIAL_OK:
		return SOCKS5_REP_GENERAL;
	case DIAL_FAILED:
		break;
	}
	switch (r->err) {
	case IO_EREFUSED:
		return SOCKS5_REP_REFUSED;
	case IO_ENETUNREACH:
	case IO_EADDRNOTAVAIL:		/* no address of that family here */
		return SOCKS5_REP_NET_UNREACHABLE;
	case IO_EHOSTUNREACH:
		return SOCKS5_REP_HOST_UNREACHABLE;
	case IO_ETIMEDOUT:
		return SOCKS5_REP_TTL_EXPIRED;
	default:
		return SOCKS5_REP_GENERAL;
	}
}

/* The tunnel can't be opened: in each protocol's own words, and `cause` for the access log. */
static void
refuse_tunnel(struct session *s, enum socks5_rep rep, const struct reply *reply, const char *cause)
{
	judge_close(&s->judge);		/* the farewell takes its place */
	if (s->proto == PROTO_SOCKS5)
		session_refuse_socks5(s, rep, cause);
	else if (s->proto == PROTO_SOCKS4)
		session_refuse_socks4(s, cause);
	else {
		session_log_access(s, reply->status, cause);
		refuse_http(s, reply);
	}
}

static void
refuse_dial(struct session *s, const struct dial_result *r)
{
	struct reply reply = reply_for_dial(r);

	/* Allowed, as far as the rules go; the status says what came of it. */
	s->rule = s->judge.rule;
	s->upstream_addr = r->peer;
	refuse_tunnel(s, rep_for_dial(r), &reply, NULL);
}

/* Ended without an answer while it was dialled: the line that an answer would have got. */
void
session_log_failure(struct session *s)
{
	s->rule = s->judge.rule;
	session_log_access(s, s->proto == PROTO_SOCKS5 ? SOCKS5_REP_GENERAL :
	    s->proto == PROTO_SOCKS4 ? SOCKS4_REP_REFUSED : 502, NULL);
}

/* Rules, protect_local or a loop. */
static void
refuse_judged(struct session *s)
{
	struct reply reply = reply_for_judge(&s->judge);
	char to[TARGET_TEXT_MAX], client[ADDR_TEXT_MAX];
	enum judge_cause cause = s->judge.cause;
	const char *rule = s->judge.rule;

	target_authority(&s->target, 0, to);
	session_count(s, cause == JUDGE_ACL ? COUNT_REFUSED_ACL :
	    cause == JUDGE_LOCAL ? COUNT_REFUSED_LOCAL :
	    cause == JUDGE_SELF ? COUNT_REFUSED_LOOP : COUNT_REFUSED_POOL);
	log_info(LOG_C_ACL, session_who(s), "refused client=%s target=%s cause=%s rule=\"%s\"",
	    addr_format(&s->peer, client), to, judge_cause_text(cause), rule);
	refuse_tunnel(s, SOCKS5_REP_NOT_ALLOWED, &reply, rule);
}

/* ---- relaying ---- */

static void
on_tunnel_done(struct tunnel *t)
{
	struct session *s = io_container_of(t, struct session, tunnel);

	log_debug(session_who(s), "tunnel ended how=%s up_bytes=%llu down_bytes=%llu",
	    t->end == TUNNEL_FINISHED ? "finished" : t->end == TUNNEL_CLIENT_BROKE ? "client" :
	    t->end == TUNNEL_UPSTREAM_BROKE ? "upstream" : "aborted",
	    (unsigned long long)tunnel_bytes(t, TUNNEL_UP),
	    (unsigned long long)tunnel_bytes(t, TUNNEL_DOWN));
	session_log_access(s, s->proto == PROTO_HTTP10 || s->proto == PROTO_HTTP11 ? 200 :
	    s->proto == PROTO_SOCKS4 ? SOCKS4_REP_GRANTED : SOCKS5_REP_OK, NULL);
	s->reset = t->end != TUNNEL_FINISHED;
	session_close(s);
}

/*
 * Looks again when the tunnel would have been idle for long enough had nothing
 * moved since: traffic costs no timer.  Rounded up to whole seconds, so that
 * many idle tunnels share one wake-up.
 */
static void
on_idle_check(struct io_loop *loop, struct io_timer *timer)
{
	struct session *s = io_container_of(timer, struct session, timer);
	const struct conf_limits *limits = &s->snapshot->conf->limits;
	bool half = tunnel_half_closed(&s->tunnel);
	uint32_t timeout_s = half ? limits->half_close_timeout_s : limits->idle_timeout_s;
	uint64_t at_ns = tunnel_quiet_since(&s->tunnel) + timeout_s * NS_PER_S;
	bool acked_more = false;

	if (timeout_s == 0)
		return;
	/* A peer that takes a large send a little at a time is slow, not idle.  Asked only when it matters: it costs. */
	if (tunnel_stalled_since(&s->tunnel) != UINT64_MAX) {
		uint64_t acked_bytes = stream_acked_bytes(s->client) + stream_acked_bytes(s->upstream);

		acked_more = acked_bytes != s->acked_bytes;
		s->acked_bytes = acked_bytes;
	}
	if (at_ns <= io_now(loop) && acked_more)
		at_ns = io_now(loop) + timeout_s * NS_PER_S;
	if (at_ns > io_now(loop)) {
		io_timer_set(loop, timer, (at_ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S, on_idle_check);
		return;
	}
	session_count(s, half ? COUNT_HALF_CLOSE_TIMEOUT : COUNT_IDLE_TIMEOUT);
	log_debug(session_who(s), "tunnel closed cause=%s", half ? "half_close_timeout" : "idle_timeout");
	tunnel_abort(&s->tunnel);
}

static void
on_half_closed(struct tunnel *t)
{
	struct session *s = io_container_of(t, struct session, tunnel);

	/* Its timeout is the shorter one as a rule: reckon from now. */
	on_idle_check(session_env(s)->loop, &s->timer);
}

static void
on_early_data_sent(struct tunnel *t)
{
	input_free(&io_container_of(t, struct session, tunnel)->in);
}

static const struct tunnel_owner tunnel_owner = {
	.up_prefix_sent = on_early_data_sent,
	.half_closed = on_half_closed,
	.done = on_tunnel_done
};

static void
start_tunnel(struct session *s, const struct addr *local)
{
	struct io_loop *loop = session_env(s)->loop;
	uint8_t *opening = (uint8_t *)s->opening;

	switch ((enum session_proto)s->proto) {
	case PROTO_SOCKS5:
		s->opening_len = socks5_write_reply(SOCKS5_REP_OK, local, opening);
		break;
	case PROTO_SOCKS4:
		s->opening_len = socks4_write_reply(SOCKS4_REP_GRANTED, local, opening);
		break;
	case PROTO_HTTP10:
	case PROTO_HTTP11:
	case PROTO_NONE:
		s->opening_len = (size_t)http1_connect_reply(s->opening, sizeof s->opening);
		assert(s->opening_len <= sizeof s->opening);
		break;
	}
	session_count(s, COUNT_TUNNELS);
	session_set_state(s, SESSION_RELAYING);
	tunnel_start(&s->tunnel, session_env(s), s->client, s->upstream, input_bytes(&s->in),
	    span_of(s->opening, s->opening_len), &tunnel_owner);
	on_idle_check(loop, &s->timer);
}

/* ---- dialling ---- */

static void
log_dial_failure(struct session *s, const struct dial_result *r)
{
	char to[TARGET_TEXT_MAX], addr[ADDR_TEXT_MAX], client[ADDR_TEXT_MAX];
	bool dns = r->status == DIAL_NO_NAME || r->status == DIAL_DNS_FAILED ||
	    r->status == DIAL_DNS_TIMEOUT;

	target_authority(&s->target, 0, to);
	if (dns)
		log_info(LOG_C_RESOLVE, session_who(s), "cannot resolve client=%s target=%s cause=\"%s\"",
		    addr_format(&s->peer, client), to, resolve_strerror(r->dns));
	else
		log_info(LOG_C_UPSTREAM, session_who(s),
		    "cannot connect client=%s target=%s address=%s cause=\"%s\" error=\"%s\" errno=%d",
		    addr_format(&s->peer, client), to, addr_format(&r->peer, addr),
		    dial_strerror(r->status), io_strerror(r->err), r->syserr);
}

/* The dial has ended and nothing is armed on the client: its result decides. */
static void
act_on_dial(struct session *s)
{
	struct dial_result r = s->dialed;	/* the tunnel takes its place */

	if (r.status == DIAL_OK) {
		s->rule = s->judge.rule;
		s->upstream_addr = r.peer;
		judge_close(&s->judge);
		start_tunnel(s, &r.local);
		return;
	}
	if (r.status == DIAL_DENIED) {
		refuse_judged(s);
		return;
	}
	session_count(s, r.status == DIAL_NO_NAME || r.status == DIAL_DNS_FAILED || r.status == DIAL_DNS_TIMEOUT ?
	    COUNT_RESOLVE_FAILED : r.err == IO_ETIMEDOUT ? COUNT_CONNECT_TIMEOUT : COUNT_CONNECT_FAILED);
	log_dial_failure(s, &r);
	refuse_dial(s, &r);
}

static void
dial_ended(struct session *s, const struct dial_result *r)
{
	assert(s->state == SESSION_DIALING);
	s->dial = NULL;
	s->dialed = *r;
	s->upstream = r->status == DIAL_OK ? r->stream : NULL;
	io_timer_stop(session_env(s)->loop, &s->timer);
	if (io_armed(&s->op))
		io_cancel(&s->op);	/* on_watched goes on from there */
	else
		act_on_dial(s);
}

static void
on_dialed(void *owner, const struct dial_result *r)
{
	dial_ended(owner, r);
}

/*
 * While a dial takes long the client is watched, so that one that left frees
 * the attempts.  What it sends meanwhile is early data; its FIN is only the end
 * of its own sending.
 */
static void
watch(struct session *s)
{
	if (input_bytes(&s->in).len < DIAL_WATCH_BYTES)
		stream_recv_pool(s->client, &s->op, session_env(s)->pool, IO_USE_RESERVE, on_watched);
}

static void
on_watched(struct io_loop *loop, struct io_op *op)
{
	struct session *s = io_container_of(op, struct session, op);
	int res = op->res;

	(void)loop;
	if (res > 0 && (input_add(&s->in, op) != 0 || input_park(&s->in) != 0))
		res = IO_ENOMEM;
	if (s->state == SESSION_CLOSING)
		return;
	assert(s->state == SESSION_DIALING);
	if (res < 0 && res != IO_ECANCELED) {
		log_debug(session_who(s), "client left while its target was dialled");
		session_log_failure(s);
		s->reset = true;
		session_close(s);
	} else if (s->dial == NULL)
		act_on_dial(s);
	else if (res > 0)
		watch(s);
}

static void
on_dial_timer(struct io_loop *loop, struct io_timer *timer)
{
	struct session *s = io_container_of(timer, struct session, timer);
	struct dial_result late = { .status = DIAL_FAILED, .err = IO_ETIMEDOUT };

	assert(s->state == SESSION_DIALING);
	if (io_now(loop) < s->dial_deadline_ns) {
		watch(s);
		io_timer_set(loop, timer, s->dial_deadline_ns, on_dial_timer);
		return;
	}
	dial_cancel(s->dial);
	dial_ended(s, &late);
}

static bool
may_dial(void *owner, const struct addr *a)
{
	struct session *s = owner;

	return judge_permits(&s->judge, a, env_is_self(session_env(s), a));
}

static bool
open_judge(struct session *s)
{
	struct acl_request request = {
		.kind = s->proto == PROTO_HTTP10 || s->proto == PROTO_HTTP11 ? ACL_CONNECT : ACL_SOCKS,
		.method = span_of("", 0), .path = span_of("", 0),
		.target = &s->target, .client = &s->peer,
		.user = span_str(s->user != NULL ? s->user : ""),
		.listener_port = s->listen->sock.len != 0 ? addr_port(&s->listen->sock) : 0
	};

	return judge_open(&s->judge, s->snapshot, &request);
}

void
session_dial(struct session *s)
{
	struct dial_request req = { .permit = may_dial };
	struct dial_result none = { .status = DIAL_NO_RESOURCES, .err = IO_ENOMEM };
	uint64_t now_ns = io_now(session_env(s)->loop);

	session_set_state(s, SESSION_DIALING);
	if (!open_judge(s)) {
		refuse_judged(s);
		return;
	}
	req.target = s->judge.dial;
	if (env_overloaded(session_env(s))) {
		session_count(s, COUNT_REFUSED_POOL);
		log_warn(LOG_C_POOL, session_who(s), "session refused cause=\"relay memory exhausted\"");
		refuse_dial(s, &none);
		return;
	}
	/* While the origin is looked for, early data must not pin a block of the pool. */
	if (input_park(&s->in) != 0 ||
	    (s->dial = dial_start(session_env(s)->dialer, &req, on_dialed, s)) == NULL) {
		log_error(LOG_C_INTERNAL, session_who(s), "session refused cause=\"out of memory\"");
		refuse_dial(s, &none);
		return;
	}
	s->dial_deadline_ns = now_ns + s->snapshot->conf->limits.connect_timeout_s * NS_PER_S;
	if (DIAL_WATCH_AFTER_MS * UINT64_C(1000000) < s->dial_deadline_ns - now_ns)
		now_ns += DIAL_WATCH_AFTER_MS * UINT64_C(1000000);
	else
		now_ns = s->dial_deadline_ns;
	io_timer_set(session_env(s)->loop, &s->timer, now_ns, on_dial_timer);
}

/* SPDX-License-Identifier: ISC */
#include "net/dial.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/dial_error.h"
#include "net/dial_list.h"
#include "net/sockopt.h"
#include "net/tally.h"
#include "util/fault.h"
#include "util/log.h"

/* RFC 8305 section 3: how long the less wanted family waits for the other's answer. */
static const uint64_t RESOLUTION_DELAY_NS = 50 * 1000000;
/* After "network unreachable" for IPv6, "auto" puts IPv4 first for so long. */
static const uint64_t V6_DOWN_NS = UINT64_C(10) * 1000000000;
static const uint64_t NS_PER_MS = 1000000;

struct dialer {
	struct io_loop		*loop;
	struct resolver		*resolver;
	const struct conf	*conf;
	uint64_t		 v6_down_until_ns;
	unsigned		 dials;		/* under way */
	unsigned		 closing;	/* losing sockets not yet gone */
	struct io_timer		 done_timer;
	void			(*done)(void *owner);
	void			*done_owner;
	struct dialer_stats	 stats;
};

/* A family's question and its answer. */
struct lookup {
	struct dial		*dial;
	struct resolve_query	*query;		/* NULL: not asked, or answered */
	bool			 asked;
	enum resolve_status	 status;	/* if asked and answered */
};

enum dial_state {
	DIAL_STARTING,	/* inside dial_start(): must not call back */
	DIAL_RUNNING,
	DIAL_DONE	/* result known, the timer tells it */
};

struct dial {
	struct dialer		*dialer;
	enum dial_state		 state;
	bool			(*permit)(void *owner, const struct addr *);
	dial_cb			*cb;
	void			*owner;
	uint16_t		 port;
	enum dial_family	 lead;		/* the family that goes first */
	struct lookup		 lookups[DIAL_FAMILIES];
	struct dial_list	 list;
	struct io_link		 attempts;
	unsigned		 active;	/* on that list */
	unsigned		 denied;
	uint64_t		 delay_until_ns; /* resolution delay; 0 = no answer yet */
	uint64_t		 next_ns;	/* the next attempt may start then */
	struct io_timer		 timer;
	struct dial_result	 result;	/* grows while attempts fail */
};

struct attempt {
	struct io_link		 link;		/* dial->attempts */
	struct dial		*dial;		/* NULL: lost, closing */
	struct dialer		*dialer;
	struct stream		*stream;
	struct io_op		 op;
	struct addr		 to;
	unsigned		 number;	/* 1 = the first of its dial */
};

static void	step(struct dial *);

/* ---- the dialer ---- */

static void
on_done(struct io_loop *loop, struct io_timer *timer)
{
	struct dialer *d = io_container_of(timer, struct dialer, done_timer);
	void (*done)(void *) = d->done;
	void *owner = d->done_owner;

	(void)loop;
	free(d);
	done(owner);
}

static void
check_done(struct dialer *d)
{
	if (d->done != NULL && d->closing == 0 && !io_timer_armed(&d->done_timer))
		io_timer_set(d->loop, &d->done_timer, io_now(d->loop), on_done);
}

int
dialer_new(struct dialer **out, struct io_loop *loop, struct resolver *resolver,
    const struct conf *conf)
{
	struct dialer *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return -ENOMEM;
	d->loop = loop;
	d->resolver = resolver;
	d->conf = conf;
	*out = d;
	return 0;
}

void
dialer_set_conf(struct dialer *d, const struct conf *conf)
{
	d->conf = conf;
}

bool
dialer_idle(const struct dialer *d)
{
	return d->dials == 0 && d->closing == 0;
}

void
dialer_close(struct dialer *d, void (*done)(void *owner), void *owner)
{
	assert(d->dials == 0 && d->done == NULL);
	d->done = done;
	d->done_owner = owner;
	check_done(d);
}

struct dialer_stats
dialer_stats(const struct dialer *d)
{
	const struct dialer_stats *s = &d->stats;

	return (struct dialer_stats){
		.dials = tally_get(&s->dials), .ok = tally_get(&s->ok),
		.failed = tally_get(&s->failed), .cancelled = tally_get(&s->cancelled),
		.attempts = tally_get(&s->attempts), .fallbacks = tally_get(&s->fallbacks),
		.denied = tally_get(&s->denied), .no_resources = tally_get(&s->no_resources),
	};
}

/* ---- the end of a dial ---- */

static void
on_loser_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct stream *s = stream_of_sock(sock);
	struct attempt *a = s->owner;
	struct dialer *d = a->dialer;

	(void)loop;
	stream_free(s);
	free(a);
	assert(d->closing > 0);
	d->closing--;
	check_done(d);
}

/* The attempt leaves its dial; its memory goes when its socket has gone. */
static void
abandon(struct attempt *a)
{
	a->dial->active--;
	a->dialer->closing++;
	io_list_del(&a->link);
	a->dial = NULL;
	a->stream->owner = a;
	stream_close(a->stream, on_loser_closed);
}

/* Everything of the dial but its memory. */
static void
wind_up(struct dial *dial)
{
	io_timer_stop(dial->dialer->loop, &dial->timer);
	for (int f = 0; f < DIAL_FAMILIES; f++) {
		if (dial->lookups[f].query != NULL)
			resolve_cancel(dial->lookups[f].query);
		dial->lookups[f].query = NULL;
	}
	while (!io_list_empty(&dial->attempts))
		abandon(io_container_of(dial->attempts.next, struct attempt, link));
	assert(dial->active == 0);
}

static void
tell(struct dial *dial)
{
	struct dialer *d = dial->dialer;
	struct dial_result result = dial->result;
	dial_cb *cb = dial->cb;
	void *owner = dial->owner;

	wind_up(dial);
	tally_add(result.status == DIAL_OK ? &d->stats.ok : &d->stats.failed, 1);
	if (result.status == DIAL_NO_RESOURCES)
		tally_add(&d->stats.no_resources, 1);
	d->dials--;
	free(dial);
	cb(owner, &result);
}

static void
finish(struct dial *dial, enum dial_status status)
{
	dial->result.status = status;
	if (dial->state == DIAL_RUNNING) {
		tell(dial);
		return;
	}
	dial->state = DIAL_DONE;
}

void
dial_cancel(struct dial *dial)
{
	struct dialer *d = dial->dialer;

	wind_up(dial);
	tally_add(&d->stats.cancelled, 1);
	d->dials--;
	free(dial);
#if RW_FAULT == RW_FAULT_DOUBLE_FREE
	free(dial);
#endif
}

/* ---- errors ---- */

static void
note_error(struct dial *dial, const struct addr *to, int err, int syserr)
{
	struct dialer *d = dial->dialer;

	if (dial_error_rank(err) > dial_error_rank(dial->result.err)) {
		dial->result.err = err;
		dial->result.syserr = syserr;
		dial->result.peer = *to;
	}
	if (to->sa.sa_family == AF_INET6 && (err == IO_ENETUNREACH || err == IO_EADDRNOTAVAIL))
		d->v6_down_until_ns = io_now(d->loop) + V6_DOWN_NS;
}

/* ---- attempts ---- */

static void
win(struct attempt *a)
{
	struct dial *dial = a->dial;
	struct dialer *d = a->dialer;
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);

	dial->active--;
	io_list_del(&a->link);
	dial->result.stream = a->stream;
	dial->result.err = IO_OK;
	dial->result.syserr = 0;
	dial->result.peer = a->to;
	memset(&dial->result.local, 0, sizeof(dial->result.local));
	if (getsockname(a->stream->sock.fd, (struct sockaddr *)&local, &len) == 0)
		addr_from_sockaddr(&dial->result.local, (struct sockaddr *)&local, len);
	if (a->number > 1)
		tally_add(&d->stats.fallbacks, 1);
	free(a);	/* its op is idle in the final callback (C8) */
	finish(dial, DIAL_OK);
}

static void
on_connect(struct io_loop *loop, struct io_op *op)
{
	struct attempt *a = io_container_of(op, struct attempt, op);
	struct dial *dial = a->dial;

	(void)loop;
	if (dial == NULL)
		return;		/* lost; on_loser_closed() frees it */
	if (op->res == 0) {
		win(a);
		return;
	}
	note_error(dial, &a->to, op->res, op->syserr);
	abandon(a);
	dial->next_ns = io_now(loop);	/* RFC 8305 section 5: a failure starts the next at once */
	step(dial);
}

/* A socket that is connecting; or false, and what went wrong is noted. */
static bool
attempt_start(struct dial *dial, const struct addr *to)
{
	struct dialer *d = dial->dialer;
	struct attempt *a = calloc(1, sizeof(*a));
	char text[SOCKOPT_TEXT_MAX];
	int fd = -ENOMEM;

	if (a != NULL)
		fd = sockopt_outbound(to->sa.sa_family, &d->conf->outbound, text);
	if (fd >= 0) {
		a->stream = stream_adopt(d->loop, fd);
		if (a->stream == NULL) {
			close(fd);
			fd = -ENOMEM;
		}
	} else if (a != NULL && fd != -EAFNOSUPPORT && !dial_error_is_shortage(dial_error_of(-fd))) {
		/* The outbound section asks for what this host can't do. */
		log_warn(LOG_C_UPSTREAM, log_main, "outbound socket: %s", text);
	}
	if (fd < 0) {
		note_error(dial, to, dial_error_of(-fd), -fd);
		free(a);
		return false;
	}
	a->dial = dial;
	a->dialer = d;
	a->to = *to;
	a->number = ++dial->result.attempts;
	tally_add(&d->stats.attempts, 1);
	io_list_add_tail(&dial->attempts, &a->link);
	dial->active++;
	io_connect(&a->op, &a->stream->sock, &a->to.sa, a->to.len, on_connect);
	return true;
}

/* ---- choosing ---- */

static bool
dns_pending(const struct dial *dial)
{
	return dial->lookups[DIAL_V4].query != NULL || dial->lookups[DIAL_V6].query != NULL;
}

/* No address at all: what the two answers amount to. */
static enum dial_status
dns_verdict(struct dial *dial)
{
	/* The worse news first: a name may exist though one server said nothing. */
	static const struct { enum resolve_status dns; enum dial_status verdict; } order[] = {
		{ RESOLVE_NO_MEMORY,	DIAL_NO_RESOURCES },
		{ RESOLVE_TIMEOUT,	DIAL_DNS_TIMEOUT },
		{ RESOLVE_SERVFAIL,	DIAL_DNS_FAILED },
		{ RESOLVE_REFUSED,	DIAL_DNS_FAILED },
		{ RESOLVE_CLOSED,	DIAL_DNS_FAILED },
		{ RESOLVE_BAD_NAME,	DIAL_NO_NAME },
		{ RESOLVE_NXDOMAIN,	DIAL_NO_NAME },
		{ RESOLVE_NODATA,	DIAL_NO_NAME },
	};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		for (int f = 0; f < DIAL_FAMILIES; f++) {
			if (dial->lookups[f].asked && dial->lookups[f].status == order[i].dns) {
				dial->result.dns = order[i].dns;
				return order[i].verdict;
			}
		}
	}
	/* Only addresses of a family that resolver.prefer rules out: IPv4-mapped ones. */
	dial->result.dns = RESOLVE_NODATA;
	return DIAL_NO_NAME;
}

/* Nothing is under way and nothing is left to try. */
static enum dial_status
verdict(struct dial *dial)
{
	if (dial_error_is_shortage(dial->result.err))
		return DIAL_NO_RESOURCES;
	if (dial->result.err != IO_OK)
		return DIAL_FAILED;
	if (dial->denied > 0)
		return DIAL_DENIED;
	return dns_verdict(dial);
}

/* May an attempt start now?  If not yet, *at_ns is when (UINT64_MAX: when something happens). */
static bool
may_start(const struct dial *dial, uint64_t now_ns, uint64_t *at_ns)
{
	const struct lookup *lead = &dial->lookups[dial->lead];

	*at_ns = UINT64_MAX;
	if (dial->active >= DIAL_ATTEMPTS_MAX)
		return false;
	if (dial->result.attempts == 0 && lead->query != NULL) {
		*at_ns = dial->delay_until_ns;
		return now_ns >= dial->delay_until_ns;
	}
	if (dial->active == 0)
		return true;
	if (dial->dialer->conf->outbound.happy_eyeballs_ms == 0)
		return false;
	*at_ns = dial->next_ns;
	return now_ns >= dial->next_ns;
}

static void
on_timer(struct io_loop *loop, struct io_timer *timer)
{
	struct dial *dial = io_container_of(timer, struct dial, timer);

	(void)loop;
	if (dial->state == DIAL_DONE)
		tell(dial);
	else
		step(dial);
}

/* Tries what may be tried now.  False when descriptors or memory have run out. */
static bool
try_addrs(struct dial *dial, uint64_t *at_ns)
{
	struct dialer *d = dial->dialer;
	uint64_t now_ns = io_now(d->loop);
	struct addr to;

	while (dial->result.attempts < DIAL_ADDRS_MAX && dial_list_more(&dial->list) &&
	    may_start(dial, now_ns, at_ns)) {
		to = *dial_list_next(&dial->list);
		addr_set_port(&to, dial->port);
		if (dial->permit != NULL && !dial->permit(dial->owner, &to)) {
			if (dial->denied++ == 0 && dial->result.err == IO_OK)
				dial->result.peer = to;
			tally_add(&d->stats.denied, 1);
		} else if (attempt_start(dial, &to)) {
			dial->next_ns = now_ns + d->conf->outbound.happy_eyeballs_ms * NS_PER_MS;
		} else if (dial_error_is_shortage(dial->result.err)) {
			return false;
		}
		*at_ns = UINT64_MAX;
	}
	return true;
}

/* The one place where a dial goes on; may free it. */
static void
step(struct dial *dial)
{
	uint64_t at_ns = UINT64_MAX;
	bool more;

	assert(dial->state != DIAL_DONE);
	io_timer_stop(dial->dialer->loop, &dial->timer);
	/* With nothing left to open sockets with, those that are open may still win. */
	more = try_addrs(dial, &at_ns);
	if (dial->active > 0 || (more && dns_pending(dial))) {
		if (at_ns != UINT64_MAX && dial_list_more(&dial->list))
			io_timer_set(dial->dialer->loop, &dial->timer, at_ns, on_timer);
		return;
	}
	finish(dial, verdict(dial));
}

/* ---- names ---- */

static void
on_resolved(void *owner, const struct resolve_result *result)
{
	struct lookup *l = owner;
	struct dial *dial = l->dial;

	l->query = NULL;
	l->status = result->status;
	for (unsigned i = 0; i < result->count; i++)
		if (dial->lookups[dial_family_of(&result->addrs[i])].asked)
			dial_list_add(&dial->list, &result->addrs[i]);
	if (dial->delay_until_ns == 0 && result->count > 0)
		dial->delay_until_ns = io_now(dial->dialer->loop) + RESOLUTION_DELAY_NS;
	step(dial);
}

static void
look_up(struct dial *dial, enum dial_family family, struct span host)
{
	struct lookup *l = &dial->lookups[family];

	l->asked = true;
	l->query = resolve_start(dial->dialer->resolver, host,
	    family == DIAL_V6 ? AF_INET6 : AF_INET, on_resolved, l);
	if (l->query == NULL)
		l->status = RESOLVE_NO_MEMORY;
}

static enum dial_family
lead_family(const struct dialer *d)
{
	switch (d->conf->resolver.prefer) {
	case CONF_PREFER_IPV4:
	case CONF_PREFER_IPV4_ONLY:
		return DIAL_V4;
	case CONF_PREFER_IPV6:
	case CONF_PREFER_IPV6_ONLY:
		return DIAL_V6;
	case CONF_PREFER_AUTO:
		break;
	}
	/* RFC 6724 rules 1 and 6 come to this: IPv6, unless it was seen to lead nowhere. */
	return io_now(d->loop) < d->v6_down_until_ns ? DIAL_V4 : DIAL_V6;
}

struct dial *
dial_start(struct dialer *d, const struct dial_request *request, dial_cb *cb, void *owner)
{
	const struct target *target = request->target;
	enum conf_prefer prefer = d->conf->resolver.prefer;
	struct dial *dial = calloc(1, sizeof(*dial));

	assert(d->done == NULL);
	if (dial == NULL)
		return NULL;
	dial->dialer = d;
	dial->permit = request->permit;
	dial->cb = cb;
	dial->owner = owner;
	dial->port = target->port;
	dial->lead = lead_family(d);
	dial_list_init(&dial->list, dial->lead);
	io_list_init(&dial->attempts);
	for (int f = 0; f < DIAL_FAMILIES; f++)
		dial->lookups[f].dial = dial;
	d->dials++;
	tally_add(&d->stats.dials, 1);
	if (target_is_literal(target)) {
		dial_list_add(&dial->list, &target->addr);
	} else {
		/* AAAA first: RFC 8305 section 3. */
		if (prefer != CONF_PREFER_IPV4_ONLY)
			look_up(dial, DIAL_V6, span_of(target->host, target->host_len));
		if (prefer != CONF_PREFER_IPV6_ONLY)
			look_up(dial, DIAL_V4, span_of(target->host, target->host_len));
	}
	step(dial);
	if (dial->state == DIAL_DONE)
		io_timer_set(d->loop, &dial->timer, io_now(d->loop), on_timer);
	else
		dial->state = DIAL_RUNNING;
	return dial;
}

/* SPDX-License-Identifier: ISC */
#include "net/resolve.h"

#include <ares.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "net/dnscache.h"
#include "net/dnschan.h"
#include "net/hostname.h"
#include "net/hosts.h"
#include "net/tally.h"

#define SYSTEM_HOSTS		"/etc/hosts"
#define SYSTEM_RESOLV_CONF	"/etc/resolv.conf"

enum {
	/*
	 * A DNS id has 16 bits and c-ares searches for a free one by guessing, so
	 * the questions under way must stay well below 65,536.
	 */
	PENDING_MAX		= 8192,
	/* Servers that fail are asked again soon, but not by every client at once. */
	FAILURE_TTL_MAX_S	= 1
};

static const uint64_t NS_PER_S = 1000000000;

struct settings {
	uint32_t	min_ttl_s, max_ttl_s, negative_ttl_s;
	bool		system_servers;
};

struct resolver {
	struct io_loop		*loop;
	struct settings		 settings;
	struct conf_resolver	 conf;		/* for a new channel; servers are a copy */
	struct dnscache		*cache;
	struct hosts		*hosts;
	struct channel		*channel;	/* takes new questions; NULL only in resolver_new() */
	struct io_link		 channels;	/* that exist, retired ones too */
	struct file_stamp	 resolv_conf;	/* as `channel` read it */
	uint64_t		 resolv_checked_ns;
	struct io_link		 told;		/* queries whose answer is known, callback due */
	struct io_link		 telling;	/* the part of `told` that this round tells */
	struct io_timer		 tell_timer;
	struct resolver_stats	 stats;
	bool			 closing;
	void			(*done)(void *owner);
	void			*done_owner;
};

struct channel {
	struct io_link		 link;		/* resolver->channels */
	struct resolver		*resolver;
	struct dnschan		*dns;
};

struct resolve_query {
	struct io_link		 link;		/* entry->waiters, or resolver->told or telling */
	struct resolver		*resolver;
	struct dns_answer	*answer;	/* NULL: only `status` */
	enum resolve_status	 status;
	resolve_cb		*cb;
	void			*owner;
};

int
resolver_global_init(void)
{
	return ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS ? 0 : -ENOMEM;
}

const char *
resolve_strerror(enum resolve_status status)
{
	switch (status) {
	case RESOLVE_OK:
		return "resolved";
	case RESOLVE_NXDOMAIN:
		return "no such name";
	case RESOLVE_NODATA:
		return "name has no address";
	case RESOLVE_SERVFAIL:
		return "name server failed";
	case RESOLVE_TIMEOUT:
		return "name servers did not answer";
	case RESOLVE_REFUSED:
		return "name servers refused or could not be reached";
	case RESOLVE_BAD_NAME:
		return "not a host name";
	case RESOLVE_NO_MEMORY:
		return "out of memory or descriptors";
	case RESOLVE_CLOSED:
		return "resolver closed";
	}
	return "?";
}

/* ---- telling the owners, always from the timer ---- */

static void
finish_close(struct resolver *r)
{
	void (*done)(void *) = r->done;
	void *owner = r->done_owner;

	if (!r->closing || !io_list_empty(&r->channels) || !io_list_empty(&r->told) ||
	    !io_list_empty(&r->telling))
		return;
	io_timer_stop(r->loop, &r->tell_timer);
	dnscache_free(r->cache);
	hosts_free(r->hosts);
	free(r->conf.servers);
	free(r);
	done(owner);
}

static void
tell_query(struct resolve_query *q)
{
	struct resolve_result result = { .status = q->status };
	struct dns_answer *answer = q->answer;
	uint64_t now_ns = io_now(q->resolver->loop);
	resolve_cb *cb = q->cb;
	void *owner = q->owner;

	if (answer != NULL) {
		result.addrs = answer->addrs;
		result.count = answer->count;
		if (answer->expires_ns > now_ns)
			result.ttl_s = (uint32_t)((answer->expires_ns - now_ns) / NS_PER_S);
	}
	io_list_del(&q->link);
	free(q);
	cb(owner, &result);
	dns_answer_unref(answer);
}

static void
on_tell(struct io_loop *loop, struct io_timer *timer)
{
	struct resolver *r = io_container_of(timer, struct resolver, tell_timer);

	(void)loop;
	/* Callbacks may start and cancel queries; those they start wait for the next round. */
	io_list_splice_tail(&r->telling, &r->told);
	while (!io_list_empty(&r->telling))
		tell_query(io_container_of(r->telling.next, struct resolve_query, link));
	finish_close(r);
}

/* Takes over the caller's reference to `answer`. */
static void
tell_later(struct resolve_query *q, enum resolve_status status, struct dns_answer *answer)
{
	struct resolver *r = q->resolver;

	q->status = status;
	q->answer = answer;
	io_list_del(&q->link);
	io_list_add_tail(&r->told, &q->link);
	if (!io_timer_armed(&r->tell_timer))
		io_timer_set(r->loop, &r->tell_timer, io_now(r->loop), on_tell);
}

/* ---- answers from DNS ---- */

/* How long an outcome may be believed; 0 = not at all. */
static uint32_t
ttl_for(const struct settings *s, enum resolve_status status, uint32_t ttl_s)
{
	switch (status) {
	case RESOLVE_OK:
		if (ttl_s < s->min_ttl_s)
			return s->min_ttl_s;
		return ttl_s > s->max_ttl_s ? s->max_ttl_s : ttl_s;
	case RESOLVE_NXDOMAIN:
	case RESOLVE_NODATA:
		return s->negative_ttl_s;
	case RESOLVE_SERVFAIL:
	case RESOLVE_TIMEOUT:
	case RESOLVE_REFUSED:
		/* RFC 2308 section 7 */
		return s->negative_ttl_s < FAILURE_TTL_MAX_S ? s->negative_ttl_s :
		    FAILURE_TTL_MAX_S;
	default:
		return 0;
	}
}

static void
count_outcome(struct resolver *r, enum resolve_status status)
{
	switch (status) {
	case RESOLVE_OK:
	case RESOLVE_NXDOMAIN:
	case RESOLVE_NODATA:
	case RESOLVE_CLOSED:
		break;
	case RESOLVE_TIMEOUT:
		tally_add(&r->stats.timeouts, 1);
		/* fall through */
	default:
		tally_add(&r->stats.failures, 1);
		break;
	}
	tally_set(&r->stats.pending, r->stats.pending - 1);
}

/* From c-ares, perhaps inside dnschan_ask(): nobody is called here. */
static void
on_dns(void *owner, enum resolve_status status, const struct addr *addrs, unsigned count,
    uint32_t ttl_s)
{
	struct dns_entry *entry = owner;
	struct resolver *r = entry->owner;
	struct dns_answer *answer = dns_answer_new(status, addrs, count);
	struct resolve_query *q;

	if (answer == NULL)
		status = RESOLVE_NO_MEMORY;
	ttl_s = ttl_for(&r->settings, status, ttl_s);
	if (answer != NULL)
		answer->expires_ns = io_now(r->loop) + ttl_s * NS_PER_S;
	count_outcome(r, status);
	while (!io_list_empty(&entry->waiters)) {
		q = io_container_of(entry->waiters.next, struct resolve_query, link);
		if (answer != NULL)
			answer->refs++;
		tell_later(q, status, answer);
	}
	dnscache_settle(r->cache, entry, ttl_s > 0 ? answer : NULL);
	dns_answer_unref(answer);
	tally_set(&r->stats.entries, dnscache_stored(r->cache));
}

/* ---- channels ---- */

static void
on_channel_gone(void *owner)
{
	struct channel *channel = owner;
	struct resolver *r = channel->resolver;

	io_list_del(&channel->link);
	free(channel);
	finish_close(r);
}

/* The old one answers what it was asked and goes by itself. */
static int
replace_channel(struct resolver *r, const struct conf_resolver *conf)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	struct file_stamp stamp = file_stamp_of(SYSTEM_RESOLV_CONF);
	int error;

	if (channel == NULL)
		return -ENOMEM;
	error = dnschan_new(&channel->dns, r->loop, conf, on_channel_gone, channel);
	if (error != 0) {
		free(channel);
		return error;
	}
	channel->resolver = r;
	io_list_add_tail(&r->channels, &channel->link);
	if (r->channel != NULL)
		dnschan_retire(r->channel->dns);
	r->channel = channel;
	r->resolv_conf = stamp;
	r->resolv_checked_ns = io_now(r->loop);
	return 0;
}

/* c-ares reads resolv.conf once; laptops and DHCP clients rewrite it. */
static void
follow_resolv_conf(struct resolver *r)
{
	uint64_t now_ns = io_now(r->loop);
	struct file_stamp stamp;

	if (!r->settings.system_servers || now_ns - r->resolv_checked_ns < NS_PER_S)
		return;
	r->resolv_checked_ns = now_ns;
	stamp = file_stamp_of(SYSTEM_RESOLV_CONF);
	if (!file_stamp_same(&stamp, &r->resolv_conf))
		replace_channel(r, &r->conf);	/* on error the old one goes on */
}

/* ---- questions ---- */

/* What can be said without the cache: true, and *answer with a reference (NULL = out of memory). */
static bool
answer_literal(struct span host, int family, struct dns_answer **answer)
{
	struct addr addr;

	if (!addr_parse_ip(host, 0, &addr))
		return false;
	addr_unmap(&addr);
	if (addr.sa.sa_family == family)
		*answer = dns_answer_new(RESOLVE_OK, &addr, 1);
	else
		*answer = dns_answer_new(RESOLVE_NODATA, NULL, 0);
	return true;
}

static bool
answer_local(struct resolver *r, struct span name, int family, struct dns_answer **answer)
{
	struct addr addrs[RESOLVE_ADDRS_MAX];
	unsigned count;

	if (hostname_is_loopback(name))
		return answer_literal(span_str(family == AF_INET ? "127.0.0.1" : "::1"), family,
		    answer);
	if (!hosts_find(r->hosts, name, family, io_now(r->loop), addrs, RESOLVE_ADDRS_MAX, &count))
		return false;
	*answer = dns_answer_new(count > 0 ? RESOLVE_OK : RESOLVE_NODATA, addrs, count);
	return true;
}

static void
ask_dns(struct resolver *r, struct dns_entry *entry)
{
	tally_add(&r->stats.misses, 1);
	tally_set(&r->stats.pending, r->stats.pending + 1);
	follow_resolv_conf(r);
	dnscache_set_pending(r->cache, entry);
	tally_set(&r->stats.entries, dnscache_stored(r->cache));
	entry->owner = r;
	dnschan_ask(r->channel->dns, entry->name, entry->v6 ? AF_INET6 : AF_INET, on_dns, entry);
}

/* The query joins, is told from the cache, or asks. */
static void
ask_cached(struct resolver *r, struct resolve_query *q, struct span name, int family)
{
	struct dns_entry *entry = dnscache_get(r->cache, name, family == AF_INET6);

	if (entry == NULL) {
		tell_later(q, RESOLVE_NO_MEMORY, NULL);
	} else if (entry->pending) {
		tally_add(&r->stats.shared, 1);
		io_list_add_tail(&entry->waiters, &q->link);
	} else if (entry->answer != NULL && io_now(r->loop) < entry->answer->expires_ns) {
		tally_add(entry->answer->status == RESOLVE_OK ? &r->stats.hits :
		    &r->stats.negative_hits, 1);
		entry->answer->refs++;
		tell_later(q, entry->answer->status, entry->answer);
	} else if (r->stats.pending >= PENDING_MAX) {
		/* A stored entry just stays expired; a new one must not linger. */
		if (entry->answer == NULL)
			dnscache_settle(r->cache, entry, NULL);
		tell_later(q, RESOLVE_NO_MEMORY, NULL);
	} else {
		io_list_add_tail(&entry->waiters, &q->link);
		ask_dns(r, entry);
	}
}

struct resolve_query *
resolve_start(struct resolver *r, struct span host, int family, resolve_cb *cb, void *owner)
{
	char name[HOSTNAME_MAX + 1];
	struct resolve_query *q = calloc(1, sizeof(*q));
	struct dns_answer *answer = NULL;
	size_t len;

	assert(!r->closing);
	assert(family == AF_INET || family == AF_INET6);
	if (q == NULL)
		return NULL;
	io_list_init(&q->link);
	q->resolver = r;
	q->cb = cb;
	q->owner = owner;
	tally_add(&r->stats.lookups, 1);
	if (answer_literal(host, family, &answer)) {
		len = 0;
	} else if ((len = hostname_normalise(host, name)) == 0) {
		answer = dns_answer_new(RESOLVE_BAD_NAME, NULL, 0);
	} else if (!answer_local(r, span_of(name, len), family, &answer)) {
		ask_cached(r, q, span_of(name, len), family);
		return q;
	}
	tally_add(&r->stats.local, 1);
	tell_later(q, answer != NULL ? answer->status : RESOLVE_NO_MEMORY, answer);
	return q;
}

void
resolve_cancel(struct resolve_query *q)
{
	/* The last one told may go while a close waits for it: the timer still looks. */
	io_list_del(&q->link);
	dns_answer_unref(q->answer);
	free(q);
}

/* ---- life ---- */

static int
apply_conf(struct resolver *r, const struct conf_resolver *conf)
{
	struct addr *servers = NULL;
	int error;

	if (conf->server_count > 0) {
		servers = malloc(conf->server_count * sizeof(*servers));
		if (servers == NULL)
			return -ENOMEM;
		memcpy(servers, conf->servers, conf->server_count * sizeof(*servers));
	}
	error = replace_channel(r, conf);
	if (error != 0) {
		free(servers);
		return error;
	}
	free(r->conf.servers);
	r->conf = *conf;
	r->conf.servers = servers;
	r->settings = (struct settings){
		.min_ttl_s = conf->min_ttl_s, .max_ttl_s = conf->max_ttl_s,
		.negative_ttl_s = conf->negative_ttl_s,
		.system_servers = conf->server_count == 0,
	};
	return 0;
}

int
resolver_set_conf(struct resolver *r, const struct conf_resolver *conf)
{
	int error = apply_conf(r, conf);

	if (error == 0) {
		dnscache_set_max(r->cache, conf->cache_entries);
		tally_set(&r->stats.entries, dnscache_stored(r->cache));
	}
	return error;
}

int
resolver_new(struct resolver **out, struct io_loop *loop, const struct conf_resolver *conf,
    const char *hosts_path)
{
	struct resolver *r;
	uint64_t seed;
	int error = -ENOMEM;

	if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		return -errno;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->loop = loop;
	io_list_init(&r->told);
	io_list_init(&r->telling);
	io_list_init(&r->channels);
	r->cache = dnscache_new(seed, conf->cache_entries);
	r->hosts = hosts_new(hosts_path != NULL ? hosts_path : SYSTEM_HOSTS, seed);
	if (r->cache != NULL && r->hosts != NULL)
		error = apply_conf(r, conf);
	if (error == 0) {
		*out = r;
		return 0;
	}
	dnscache_free(r->cache);
	hosts_free(r->hosts);
	free(r);
	return error;
}

void
resolver_close(struct resolver *r, void (*done)(void *owner), void *owner)
{
	struct io_link *l;

	assert(!r->closing);
	r->closing = true;
	r->done = done;
	r->done_owner = owner;
	/* Channels leave the list later, never inside dnschan_close(). */
	for (l = r->channels.next; l != &r->channels; l = l->next)
		dnschan_close(io_container_of(l, struct channel, link)->dns);
}

struct resolver_stats
resolver_stats(const struct resolver *r)
{
	const struct resolver_stats *s = &r->stats;

	return (struct resolver_stats){
		.lookups = tally_get(&s->lookups), .local = tally_get(&s->local),
		.hits = tally_get(&s->hits), .negative_hits = tally_get(&s->negative_hits),
		.shared = tally_get(&s->shared), .misses = tally_get(&s->misses),
		.failures = tally_get(&s->failures), .timeouts = tally_get(&s->timeouts),
		.entries = tally_get(&s->entries), .pending = tally_get(&s->pending),
	};
}

/* SPDX-License-Identifier: ISC */
/*
 * Datagrams to names (udp.resolve_domain): resolved, judged, remembered while
 * the answer is valid.  What comes while a name is being resolved waits in
 * copies of its own, few and bounded, so that a resolver that is slow pins no
 * buffers.
 */
#include "relay/udp_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/resolve.h"
#include "util/hash.h"

struct udp_name {
	union udp_key	 key;		/* of the destination */
	uint64_t	 until_ns;
	uint16_t	 port;
	uint8_t		 host_len;
	char		 host[];
};

struct waiting {
	struct waiting	*next;
	size_t		 len;
	uint8_t		 payload[];
};

/* A name that is being resolved.  Freed when it is decided. */
struct udp_lookup {
	struct udp_lookup	*next;		/* of the association's */
	struct udp_assoc	*assoc;
	struct target		 target;
	struct judge		 judge;
	struct resolve_query	*query;
	int			 family[2];	/* to ask, in order; 0 = none */
	unsigned		 asked;		/* of them, but for the one under way */
	bool			 refused;	/* there was an address, and policy was against it */
	struct waiting		*head, **tail;
};

static void on_resolved(void *, const struct resolve_result *);

/* ---- names that were resolved ---- */

static struct udp_name **
name_place(struct udp_assoc *a, const struct target *t)
{
	return &a->names[hash_bytes(t->host, t->host_len, a->shared->seed ^ t->port) % UDP_NAMES];
}

static struct udp_dest *
find_name(struct udp_assoc *a, const struct target *t)
{
	struct udp_name *n = a->names != NULL ? *name_place(a, t) : NULL;

	if (n == NULL || n->port != t->port || n->host_len != t->host_len ||
	    memcmp(n->host, t->host, t->host_len) != 0 || n->until_ns <= a->now_ns)
		return NULL;
	return udp_dest_find(&a->dests, &n->key);	/* NULL: its place was given to another */
}

/* Without memory it is resolved again the next time. */
static void
remember(struct udp_assoc *a, const struct target *t, const struct udp_dest *d, uint32_t ttl_s)
{
	struct udp_name *n, **place;

	if (a->names == NULL && (a->names = calloc(UDP_NAMES, sizeof *a->names)) == NULL)
		return;
	if ((n = malloc(sizeof *n + t->host_len)) == NULL)
		return;
	n->key = d->key;
	n->until_ns = a->now_ns + ttl_s * NS_PER_S;
	n->port = t->port;
	n->host_len = t->host_len;
	memcpy(n->host, t->host, t->host_len);
	place = name_place(a, t);
	free(*place);
	*place = n;
}

/* ---- what waits ---- */

static bool
wait_for(struct udp_assoc *a, struct udp_lookup *l, struct span payload)
{
	struct waiting *w;

	if (a->waiting == UDP_WAITING_MAX || a->waiting_bytes + payload.len > UDP_WAITING_BYTES ||
	    (w = malloc(sizeof *w + payload.len)) == NULL) {
		udp_count(a, COUNT_UDP_DROP_DOMAIN, 1);
		return false;
	}
	w->next = NULL;
	w->len = payload.len;
	if (payload.len > 0)
		memcpy(w->payload, payload.base, payload.len);
	*l->tail = w;
	l->tail = &w->next;
	a->waiting++;
	a->waiting_bytes += payload.len;
	return true;
}

/* To the destination, or to nowhere when it is NULL. */
static uint64_t
let_go(struct udp_assoc *a, struct udp_lookup *l, struct udp_dest *d)
{
	uint64_t lost = 0;
	struct io_buf b;

	for (struct waiting *w = l->head, *next; w != NULL; w = next) {
		next = w->next;
		if (d == NULL) {
			lost++;
		} else if (!udp_send_ready(a, 1, 1)) {
			/* counted */
		} else if (!io_buf_get(a->env->udp_pool, 0, &b)) {
			udp_count(a, COUNT_UDP_DROP_QUEUE, 1);
		} else {
			memcpy(b.base, w->payload, w->len);
			if (udp_forward(a, d, b.base, w->len))
				udp_send_hold(a, &b);
			else
				io_buf_put(a->env->udp_pool, &b);
		}
		a->waiting--;
		a->waiting_bytes -= w->len;
		free(w);
	}
	l->head = NULL;
	l->tail = &l->head;
	return lost;
}

/* ---- lookups ---- */

static void
end_lookup(struct udp_lookup *l)
{
	struct udp_lookup **p = &l->assoc->lookups;

	assert(l->head == NULL);
	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	if (l->query != NULL)
		resolve_cancel(l->query);
	judge_close(&l->judge);
	free(l);
}

/* Does a route lead there?  connect(2) of a datagram socket sends nothing and looks only that up. */
static bool
is_usable(const struct udp_assoc *a, const struct addr *to)
{
	int fd;
	bool usable;

	if (to->sa.sa_family == AF_INET)
		return true;
	if (!a->dual || (fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
		return false;
	usable = connect(fd, &to->sa, to->len) == 0;
	close(fd);
	return usable;
}

/* The next family's question.  False: there is none, or no memory. */
static bool
ask(struct udp_lookup *l)
{
	struct udp_assoc *a = l->assoc;

	l->query = NULL;
	while (l->query == NULL && l->asked < 2 && l->family[l->asked] != 0)
		l->query = resolve_start(a->env->resolver, span_of(l->target.host, l->target.host_len),
		    l->family[l->asked++], on_resolved, l);
	return l->query != NULL;
}

static void
give_up(struct udp_lookup *l, enum resolve_status why)
{
	struct udp_assoc *a = l->assoc;
	uint64_t lost = let_go(a, l, NULL);
	char client[ADDR_TEXT_MAX];

	if (l->refused) {
		udp_judge_refused(a, &l->judge, &l->target, lost);
	} else {
		udp_count(a, COUNT_UDP_DROP_DOMAIN, lost);
		log_info(LOG_C_RESOLVE, udp_who(a), "cannot resolve client=%s target=%s:%u cause=\"%s\"",
		    addr_format(&a->client_ip, client), l->target.host, l->target.port,
		    resolve_strerror(why));
	}
	end_lookup(l);
}

static void
on_resolved(void *owner, const struct resolve_result *r)
{
	struct udp_lookup *l = owner;
	struct udp_assoc *a = l->assoc;
	struct udp_dest *d;
	uint64_t lost;

	l->query = NULL;
	a->now_ns = io_now(a->env->loop);
	a->hint = UDP_OUT_SMALL;
	for (unsigned i = 0; i < r->count; i++) {
		struct addr to = r->addrs[i];

		addr_set_port(&to, l->target.port);
		addr_unmap(&to);
		if (!is_usable(a, &to))
			continue;
		if (!udp_judge_permits(a, &l->judge, &to)) {
			l->refused = true;
			continue;
		}
		if ((d = udp_admit(a, &to)) != NULL)
			remember(a, &l->target, d, r->ttl_s);
		lost = let_go(a, l, d);
		if (lost > 1)		/* udp_admit() has counted one */
			udp_count(a, COUNT_UDP_DROP_DESTINATIONS, lost - 1);
		a->last_ns = a->now_ns;
		end_lookup(l);
		udp_send_flush(a);
		return;
	}
	if (!ask(l))
		give_up(l, r->status);
}

static void
choose_families(struct udp_assoc *a, struct udp_lookup *l)
{
	switch (a->snapshot->conf->resolver.prefer) {
	/* Nothing can be tried and given up as in a dial, so where both may do it is the family that leads further. */
	case CONF_PREFER_AUTO:
	case CONF_PREFER_IPV4:
		l->family[0] = AF_INET;
		l->family[1] = AF_INET6;
		break;
	case CONF_PREFER_IPV4_ONLY:
		l->family[0] = AF_INET;
		break;
	case CONF_PREFER_IPV6_ONLY:
		l->family[0] = AF_INET6;
		break;
	case CONF_PREFER_IPV6:
		l->family[0] = AF_INET6;
		l->family[1] = AF_INET;
		break;
	}
}

static void
start_lookup(struct udp_assoc *a, const struct target *t, struct span payload)
{
	struct udp_lookup *l = calloc(1, sizeof *l);

	if (l == NULL) {
		udp_count(a, COUNT_UDP_DROP_DOMAIN, 1);
		return;
	}
	l->assoc = a;
	l->target = *t;
	l->tail = &l->head;
	l->next = a->lookups;
	a->lookups = l;
	choose_families(a, l);
	if (!udp_judge_open(a, &l->judge, &l->target) || !wait_for(a, l, payload)) {
		end_lookup(l);
		return;
	}
	if (!ask(l))
		give_up(l, RESOLVE_NO_MEMORY);
}

struct udp_dest *
udp_resolve(struct udp_assoc *a, const struct target *t, struct span payload)
{
	struct udp_dest *d;

	if (!a->conf->resolve_domain) {
		udp_count(a, COUNT_UDP_DROP_DOMAIN, 1);
		return NULL;
	}
	/* Those before it first: they keep their order. */
	for (struct udp_lookup *l = a->lookups; l != NULL; l = l->next) {
		if (l->target.port == t->port && l->target.host_len == t->host_len &&
		    memcmp(l->target.host, t->host, t->host_len) == 0) {
			wait_for(a, l, payload);
			return NULL;
		}
	}
	if ((d = find_name(a, t)) != NULL)
		return d;
	start_lookup(a, t, payload);
	return NULL;
}

void
udp_resolve_stop(struct udp_assoc *a)
{
	while (a->lookups != NULL) {
		udp_count(a, COUNT_UDP_DROP_DOMAIN, let_go(a, a->lookups, NULL));
		end_lookup(a->lookups);
	}
	for (unsigned i = 0; a->names != NULL && i < UDP_NAMES; i++)
		free(a->names[i]);
	free(a->names);
	a->names = NULL;
}

/* SPDX-License-Identifier: ISC */
/*
 * resolve: net/resolve.h for the simulated world, in place of c-ares: "o7.sim"
 * is origin 7, after some addresses that lead nowhere; "none.sim" does not
 * exist; "lame.sim" never answers.
 */
#include "net/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "world.h"

static const uint64_t LAME_NS = UINT64_C(6) * 1000000000;

struct resolver {
	struct io_loop	*loop;
	struct io_timer	 timer;
	void		(*done)(void *);
	void		*owner;
};

struct resolve_query {
	struct resolver	*r;
	struct io_timer	 timer;
	resolve_cb	*cb;
	void		*owner;
	int		 family;
	enum resolve_status status;
	struct addr	 addrs[RESOLVE_ADDRS_MAX];
	unsigned	 count;
};

int
resolver_global_init(void)
{
	return 0;
}

int
resolver_new(struct resolver **out, struct io_loop *l, const struct conf_resolver *c, const char *hosts)
{
	(void)c;
	(void)hosts;
	if ((*out = calloc(1, sizeof **out)) == NULL)
		return -1;
	(*out)->loop = l;
	return 0;
}

static void
on_done(struct io_loop *l, struct io_timer *t)
{
	struct resolver *r = io_container_of(t, struct resolver, timer);
	void (*done)(void *) = r->done;
	void *owner = r->owner;

	(void)l;
	free(r);
	done(owner);
}

int
resolver_set_conf(struct resolver *r, const struct conf_resolver *conf)
{
	(void)r;
	(void)conf;
	return 0;
}

void
resolver_close(struct resolver *r, void (*done)(void *), void *owner)
{
	r->done = done;
	r->owner = owner;
	io_timer_set(r->loop, &r->timer, io_now(r->loop), on_done);
}

static void
on_answer(struct io_loop *l, struct io_timer *t)
{
	struct resolve_query *q = io_container_of(t, struct resolve_query, timer);
	struct resolve_query copy = *q;
	struct resolve_result result;

	(void)l;
	free(q);
	result = (struct resolve_result){ copy.status, copy.addrs, copy.count, 60 };
	copy.cb(copy.owner, &result);
}

static void
look_up(struct resolve_query *q, struct span host)
{
	char name[64] = "";
	struct origin *o;

	memcpy(name, host.base, host.len < sizeof name ? host.len : sizeof name - 1);
	if (strcmp(name, "lame.sim") == 0) {
		q->status = RESOLVE_TIMEOUT;
		return;
	}
	if (name[0] != 'o' || (o = origin_by_id((unsigned)strtoul(name + 1, NULL, 10))) == NULL) {
		q->status = RESOLVE_NXDOMAIN;
		return;
	}
	/* Nobody is at 10.9.x.y: such a connect is never answered; fd09:: has no route. */
	for (unsigned i = 0; i < o->dead_addrs; i++) {
		char dead[32];

		snprintf(dead, sizeof dead, q->family == AF_INET ? "10.9.%u.%u" : "fd09::%u:%u", o->id % 200, i);
		addr_parse_ip(span_str(dead), 0, &q->addrs[q->count++]);
	}
	if (o->at.ss_family == q->family)
		addr_from_sockaddr(&q->addrs[q->count++], (struct sockaddr *)&o->at, o->atlen);
	q->status = q->count > 0 ? RESOLVE_OK : RESOLVE_NODATA;
}

struct resolve_query *
resolve_start(struct resolver *r, struct span host, int family, resolve_cb *cb, void *owner)
{
	struct resolve_query *q = calloc(1, sizeof *q);

	if (q == NULL)
		return NULL;
	q->r = r;
	q->cb = cb;
	q->owner = owner;
	q->family = family;
	look_up(q, host);
	io_timer_set(r->loop, &q->timer, io_now(r->loop) +
	    (q->status == RESOLVE_TIMEOUT ? LAME_NS : sim_below(100 * SIM_MS)), on_answer);
	return q;
}

void
resolve_cancel(struct resolve_query *q)
{
	io_timer_stop(q->r->loop, &q->timer);
	free(q);
}

const char *
resolve_strerror(enum resolve_status s)
{
	return s == RESOLVE_OK ? "ok" : "failed";
}

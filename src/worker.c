/* SPDX-License-Identifier: ISC */
#include "worker.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/dial.h"
#include "net/resolve.h"
#include "policy/auth.h"
#include "proto/http1.h"
#include "relay/udp.h"
#include "session.h"
#include "util/cpus.h"

enum {
	BLOCK_BYTES = 32 * 1024,	/* limits.tcp_pool_blocks counts these */
	RESERVE_SHARE = 10,		/* a tenth of the pool is for handshakes */
	/*
	 * Receivers have waited this long and nothing came home by itself: peers
	 * that do not read are holding the pool.
	 */
	RELIEF_MS = 1000,
	RELIEF_SHARE = 8		/* free an eighth of the pool at a time, so that it lasts a while */
};

#define NS_PER_MS UINT64_C(1000000)

/* ---- sessions ---- */

uint64_t
worker_session_begin(struct worker *w, struct io_link *link)
{
	uint64_t id = w->next_session_id;

	w->next_session_id += w->id_step;
	io_list_add_tail(&w->sessions, link);
	return id;
}

void
worker_session_end(struct worker *w, struct io_link *link, const struct addr *peer)
{
	io_list_del(link);
	limits_leave(w->shared->limits, peer);
}

/* ---- relief of an exhausted pool ---- */

struct stalled {
	struct session	*session;
	uint64_t	 since_ns;
};

static int
by_age(const void *a, const void *b)
{
	uint64_t x = ((const struct stalled *)a)->since_ns, y = ((const struct stalled *)b)->since_ns;

	return x < y ? -1 : x > y;
}

/* Those that hold bytes and have not moved any for RELIEF_MS, oldest first. */
static size_t
find_stalled(struct worker *w, struct stalled **out)
{
	uint64_t before_ns = io_now(w->env.loop) - RELIEF_MS * NS_PER_MS;
	struct stalled *v = NULL;
	size_t n = 0, cap = 0;

	for (struct io_link *l = w->sessions.next; l != &w->sessions; l = l->next) {
		struct session *s = session_of_link(l);
		uint64_t since_ns = session_stalled_since(s);

		if (since_ns > before_ns)
			continue;
		if (n == cap) {
			struct stalled *more = realloc(v, (cap = cap ? cap * 2 : 64) * sizeof *v);

			if (more == NULL)
				break;		/* these will do for this time */
			v = more;
		}
		v[n++] = (struct stalled){ s, since_ns };
	}
	if (n > 0)
		qsort(v, n, sizeof *v, by_age);
	*out = v;
	return n;
}

static void
on_relief(struct io_loop *loop, struct io_timer *t)
{
	struct worker *w = io_container_of(t, struct worker, relief);
	struct io_pool_stats st = io_pool_stats(w->env.pool);
	struct stalled *v;
	size_t n, most = st.ceiling / RELIEF_SHARE / 2 + 1;	/* a direction holds about two blocks */

	if (st.starved_since_ns == 0)
		return;
	/* Measured from the start of the episode, however often it was looked at. */
	if (io_now(loop) - st.starved_since_ns >= RELIEF_MS * NS_PER_MS) {
		n = find_stalled(w, &v);
		for (size_t i = 0; i < n && i < most; i++)
			session_reset_stalled(v[i].session);
		free(v);
	}
	io_timer_set(loop, t, io_now(loop) + RELIEF_MS * NS_PER_MS / 4, on_relief);
}

/* ---- drain and end ---- */

static void
on_resolver_closed(void *owner)
{
	struct worker *w = owner;

	w->env.resolver = NULL;
	w->closing--;
}

static void
on_dialer_closed(void *owner)
{
	struct worker *w = owner;

	w->env.dialer = NULL;
	resolver_close(w->env.resolver, on_resolver_closed, w);
}

static void
on_auth_closed(void *owner)
{
	struct worker *w = owner;

	w->env.auth = NULL;
	w->closing--;
}

static void
on_listener_stopped(struct listener *l)
{
	l->worker->closing--;
	io_list_del(&l->link);
	snapshot_drop(l->snapshot);
	free(l);
}

static void
stop_listener(struct listener *l)
{
	if (l->stopping)
		return;
	l->worker->closing++;
	listener_stop(l, on_listener_stopped);
}

static void
each_session(struct worker *w, void (*f)(struct session *))
{
	for (struct io_link *l = w->sessions.next, *next; l != &w->sessions; l = next) {
		next = l->next;		/* f may end this one, never another */
		f(session_of_link(l));
	}
}

static void
on_drain(struct io_loop *loop, struct io_post *p)
{
	struct worker *w = io_container_of(p, struct worker, drain_post);

	(void)loop;
	w->draining = true;
	for (struct io_link *l = w->listeners.next; l != &w->listeners; l = l->next)
		stop_listener(io_container_of(l, struct listener, link));
	each_session(w, session_drain);
}

static void
on_abort(struct io_loop *loop, struct io_post *p)
{
	struct worker *w = io_container_of(p, struct worker, abort_post);

	(void)loop;
	w->aborting = true;
	each_session(w, session_abort);
}

void
worker_drain(struct worker *w)
{
	io_post(w->env.loop, &w->drain_post, on_drain);
}

void
worker_abort(struct worker *w)
{
	io_post(w->env.loop, &w->abort_post, on_abort);
}

/* ---- plans ---- */

struct worker_plan *
worker_plan_new(struct snapshot *snapshot, struct accesslog *access)
{
	size_t n = snapshot->conf->listen_count;
	struct worker_plan *p = calloc(1, sizeof *p + n * sizeof p->fds[0]);

	if (p == NULL)
		return NULL;
	p->snapshot = snapshot_hold(snapshot);
	p->access = access;
	p->count = n;
	for (size_t i = 0; i < n; i++)
		p->fds[i] = IO_FD_NONE;
	return p;
}

void
worker_plan_free(struct worker_plan *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < p->count; i++)
		if (p->fds[i] != IO_FD_NONE)
			close(p->fds[i]);
	for (size_t i = 0; i < p->extra_count; i++)
		if (p->extra[i].fd != IO_FD_NONE)
			close(p->extra[i].fd);
	free(p->extra);
	snapshot_drop(p->snapshot);
	free(p);
}

static void
give_snapshot(struct listener *l, struct snapshot *snapshot, const struct conf_listen *c)
{
	struct snapshot *old = l->snapshot;

	l->snapshot = snapshot_hold(snapshot);
	l->conf = c;
	snapshot_drop(old);
}

/* 0 or -ENOMEM: then a listener is missing. */
static int
start_listener(struct worker *w, struct snapshot *snapshot, size_t i, io_fd *fd)
{
	struct listener *l;

	if (*fd == IO_FD_NONE)
		return 0;
	if ((l = calloc(1, sizeof *l)) == NULL)
		return -ENOMEM;
	l->worker = w;
	io_list_add_tail(&w->listeners, &l->link);
	give_snapshot(l, snapshot, &snapshot->conf->listen[i]);
	listener_start(l, *fd);
	*fd = IO_FD_NONE;
	return 0;
}

static int
plan_listeners(struct worker *w, struct worker_plan *p)
{
	int rc = 0;

	/* Those that are not configured any more stay with the snapshot before until they have ended. */
	for (struct io_link *k = w->listeners.next; k != &w->listeners; k = k->next) {
		struct listener *l = io_container_of(k, struct listener, link);
		const struct conf_listen *c = snapshot_find_listener(p->snapshot, l->conf);

		if (l->stopping)
			continue;
		if (c != NULL) {
			give_snapshot(l, p->snapshot, c);
			listener_apply(l);
		} else {
			stop_listener(l);
		}
	}
	for (size_t i = 0; i < p->count; i++)
		rc |= start_listener(w, p->snapshot, i, &p->fds[i]);
	for (size_t i = 0; i < p->extra_count; i++)
		rc |= start_listener(w, p->snapshot, p->extra[i].listen, &p->extra[i].fd);
	return rc;
}

/* Scratch for one head at a time; only ever grown, so that no head is too long for it. */
static int
plan_fields(struct worker *w)
{
	size_t n = w->env.conf->limits.header_count;
	struct http1_field *f;

	if (n > w->field_room) {
		if ((f = calloc(n, sizeof *f)) == NULL)
			return -ENOMEM;
		free(w->env.fields);
		w->env.fields = f;
		w->field_room = n;
	}
	w->env.field_max = n;
	return 0;
}

static void
plan_access(struct worker *w, struct accesslog *access)
{
	if (access == w->access)
		return;
	accesslog_lane_release(w->env.access);
	w->env.access = access != NULL ? accesslog_lane_new(access) : NULL;
	w->access = access;
}

/* Frees the plan. */
static int
apply(struct worker *w, struct worker_plan *p)
{
	struct snapshot *old = w->env.snapshot;
	int rc;

	w->env.snapshot = snapshot_hold(p->snapshot);
	w->env.conf = p->snapshot->conf;
	dialer_set_conf(w->env.dialer, w->env.conf);
	if (old != NULL && (rc = resolver_set_conf(w->env.resolver, &w->env.conf->resolver)) != 0)
		log_error(LOG_C_INTERNAL, env_who(&w->env, 0),
		    "resolver keeps its old settings errno=%d", -rc);
	auth_flush(w->env.auth);
	plan_access(w, p->access);
	if ((rc = plan_fields(w)) == 0)
		rc = plan_listeners(w, p);
	snapshot_drop(old);
	worker_plan_free(p);
	return rc;
}

static void
on_apply(struct io_loop *loop, struct io_post *post)
{
	struct worker_plan *p = io_container_of(post, struct worker_plan, post);
	struct worker *w = p->worker;

	(void)loop;
	if (w->draining)
		worker_plan_free(p);
	else if (apply(w, p) != 0)
		log_error(LOG_C_INTERNAL, env_who(&w->env, 0), "a listener is missing: out of memory");
	sem_post(&w->shared->reported);
}

void
worker_apply(struct worker *w, struct worker_plan *p)
{
	p->worker = w;
	if (!io_post(w->env.loop, &p->post, on_apply)) {
		worker_plan_free(p);
		sem_post(&w->shared->reported);
	}
}

/* ---- the thread ---- */

static int
fail(struct worker *w, int rc, const char *what)
{
	snprintf(w->failure, sizeof w->failure, "worker %u: %s: %s", w->number, what, strerror(-rc));
	return rc;
}

static int
set_up(struct worker *w)
{
	const struct conf *conf = w->first->snapshot->conf;
	struct worker_plan *first = w->first;
	struct io_config cfg = {
		.choice = w->shared->choice,
		.pipes_max = w->shared->pipes_max
	};
	uint32_t blocks = conf->limits.tcp_pool_blocks;
	int rc;

	io_list_init(&w->sessions);
	io_list_init(&w->listeners);
	w->env.conf = conf;
	w->env.count = &w->counters;
	w->env.udpports = w->shared->udpports;
	w->env.worker = (int)w->number;
	if (conf->pin_workers && (rc = cpus_pin(w->number)) != 0)
		log_warn(LOG_C_NONE, env_who(&w->env, 0), "not pinned errno=%d", -rc);
	if ((rc = io_loop_new(&w->env.loop, &cfg)) != 0)
		return fail(w, rc, "event loop");
	io_loop_bind(w->env.loop);
	if ((rc = io_pool_new(&w->env.pool, w->env.loop, BLOCK_BYTES, blocks, blocks / RESERVE_SHARE)) != 0)
		return fail(w, rc, "relay buffers");
	/* No reserve: a datagram that finds no block waits or is lost, and nothing else asks for one. */
	if ((rc = io_pool_new(&w->env.udp_pool, w->env.loop, ENV_UDP_BLOCK_BYTES,
	    conf->limits.udp_pool_blocks, 0)) != 0)
		return fail(w, rc, "buffers for datagrams");
	if ((rc = resolver_new(&w->env.resolver, w->env.loop, &conf->resolver, NULL)) != 0)
		return fail(w, rc, "resolver");
	if ((rc = dialer_new(&w->env.dialer, w->env.loop, w->env.resolver, conf)) != 0)
		return fail(w, rc, "dialer");
	if ((rc = auth_new(&w->env.auth, w->env.loop, w->shared->kdf, 0)) != 0)
		return fail(w, rc, "authentication");
	if ((rc = udp_worker_new(&w->env.udp, &w->env)) != 0)
		return fail(w, rc, "UDP associations");
	w->first = NULL;
	if ((rc = apply(w, first)) != 0)
		return fail(w, rc, "listeners");
	return 0;
}

/* Also after a set_up() that failed half way. */
static void
tear_down(struct worker *w)
{
	if (w->env.loop == NULL)
		return;
	io_timer_stop(w->env.loop, &w->relief);
	for (struct io_link *l = w->listeners.next; l != &w->listeners; l = l->next)
		stop_listener(io_container_of(l, struct listener, link));
	if (w->env.auth != NULL) {
		w->closing++;
		auth_close(w->env.auth, on_auth_closed, w);
	}
	io_post_refuse(w->env.loop);
	if (w->env.resolver != NULL) {
		w->closing++;
		if (w->env.dialer != NULL)
			dialer_close(w->env.dialer, on_dialer_closed, w);
		else
			resolver_close(w->env.resolver, on_resolver_closed, w);
	}
	while (w->closing > 0 || io_inflight(w->env.loop) > 0)
		io_loop_turn(w->env.loop, true);
	udp_worker_free(w->env.udp);
	if (w->env.udp_pool != NULL)
		io_pool_free(w->env.udp_pool);
	if (w->env.pool != NULL)
		io_pool_free(w->env.pool);
	free(w->env.fields);
	accesslog_lane_release(w->env.access);
	snapshot_drop(w->env.snapshot);
	worker_plan_free(w->first);
}

static void
run(struct worker *w)
{
	while (!w->draining || w->closing > 0 || !io_list_empty(&w->sessions)) {
		int rc = io_loop_turn(w->env.loop, true);

		if (rc < 0) {
			/* The kernel took the loop away: nothing could be closed in order any more. */
			log_error(LOG_C_NONE, env_who(&w->env, 0), "event loop broke errno=%d", -rc);
			abort();
		}
		if (io_pool_stats(w->env.pool).starved_since_ns != 0 && !io_timer_armed(&w->relief))
			io_timer_set(w->env.loop, &w->relief,
			    io_now(w->env.loop) + RELIEF_MS * NS_PER_MS, on_relief);
	}
}

static void *
thread_main(void *arg)
{
	struct worker *w = arg;

	w->failed = set_up(w);
	sem_post(&w->shared->reported);
	if (w->failed == 0)
		run(w);
	tear_down(w);
	return NULL;
}

int
worker_start(struct worker *w)
{
	int rc = -pthread_create(&w->thread, NULL, thread_main, w);
	char name[16];

	w->running = rc == 0;
	if (rc == 0) {
		snprintf(name, sizeof name, "ringway-w%u", w->number % 1000);
		pthread_setname_np(w->thread, name);
	}
	return rc;
}

void
worker_join(struct worker *w)
{
	if (w->running)
		pthread_join(w->thread, NULL);
	w->running = false;
	/* Not by the thread: until it is joined, the daemon may still post to its loop (C32). */
	if (w->env.loop != NULL)
		io_loop_free(w->env.loop);
	w->env.loop = NULL;
}

/* SPDX-License-Identifier: ISC */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "net/udpsock.h"

struct world world;

/* ---- actors' sockets ---- */

static void
on_step(struct sim_event *e)
{
	struct peer *p = io_container_of(e, struct peer, step);

	if (p->f != NULL)
		p->act(p);
}

void
peer_poke_after(struct peer *p, uint64_t ns)
{
	if (!sim_armed(&p->step) || p->step.at_ns > sim.now_ns + ns)
		sim_after(&p->step, ns, on_step);
}

void
peer_poke(struct peer *p)
{
	if (!sim_armed(&p->step))
		sim_after(&p->step, p->think_ns == 0 ? 0 : sim_below(p->think_ns), on_step);
}

static void
on_watch(struct kwatch *w)
{
	peer_poke(io_container_of(w, struct peer, watch));
}

void
peer_begin(struct peer *p, struct kfile *f, void (*act)(struct peer *))
{
	p->f = f;
	p->act = act;
	k_watch(f, &p->watch, on_watch);
	peer_poke(p);
}

void
peer_end(struct peer *p, bool reset)
{
	struct kfile *f = p->f;

	if (f == NULL)
		return;
	sim_stop(&p->step);
	k_unwatch(&p->watch);
	p->f = NULL;
	f->linger0 = reset;
	k_close(f);
}

/* ---- tagged bytes ---- */

uint8_t
tag_byte(unsigned id, enum dir dir, uint64_t off)
{
	uint32_t x = (uint32_t)off * UINT32_C(0x9e3779b1) ^ id * UINT32_C(0x85ebca6b) ^ (dir == UP ? 0 : 0x5bd1e995);

	x ^= x >> 15;
	return (uint8_t)(x * UINT32_C(0x2c1b3c6d) >> 24);
}

void
tag_fill(unsigned id, enum dir dir, uint64_t off, void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = tag_byte(id, dir, off + i);
}

void
tag_check(unsigned id, enum dir dir, uint64_t off, const void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((const uint8_t *)buf)[i] != tag_byte(id, dir, off + i))
			sim_fail("%s: byte %llu of connection %u is wrong", dir == UP ? "origin" : "client",
			    (unsigned long long)(off + i), id);
	world.active_ns = sim.now_ns;
}

/* ---- clients ---- */

struct client *
client_new(const struct client_kind *kind, size_t own_size)
{
	struct client *c = sim_alloc(sizeof *c);
	struct sockaddr_in *in = (void *)&c->from;

	c->kind = kind;
	c->id = world.next_id++;
	c->own = sim_alloc(own_size);
	c->peer.think_ns = sim_chance(800) ? sim_below(200 * SIM_US) : sim_below(50 * SIM_MS);
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(0xc0000200 + (uint32_t)sim_below(4));
	c->next = world.clients;
	world.clients = c;
	return c;
}

static struct client *
client_of(struct peer *p)
{
	return io_container_of(p, struct client, peer);
}

void
client_end(struct client *c, bool reset)
{
	sim_note(SIM_T_CLIENT, c->id, 9, reset);
	peer_end(&c->peer, reset);
	c->done = true;
	c->ended_ns = sim.now_ns;
}

bool
client_send(struct client *c, const uint8_t *buf, size_t len, size_t *off)
{
	while (*off < len) {
		long n = k_send(c->peer.f, buf + *off, len - *off);

		if (n < 0) {
			c->broken = c->broken || n != -EAGAIN;
			return n == -EAGAIN;
		}
		*off += (size_t)n;
		world.active_ns = sim.now_ns;
	}
	return true;
}

long
client_recv(struct client *c, void *buf, size_t len)
{
	long n = k_recv(c->peer.f, buf, len, false);

	return n == 0 && c->broken ? -ECONNRESET : n;
}

static void
client_act(struct peer *p)
{
	struct client *c = client_of(p);
	int rc = k_connect_result(p->f);

	if (rc == -EINPROGRESS || c->vanished)
		return;
	if (rc < 0) {		/* the listener has closed: a drain */
		if (!world.drained)
			sim_fail("client %u could not connect: error %d", c->id, -rc);
		client_end(c, false);
		return;
	}
	if (c->connected_ns == 0)
		c->connected_ns = sim.now_ns;
	c->kind->act(c);
}

static void
on_client_start(struct sim_event *e)
{
	struct client *c = io_container_of(e, struct client, start);
	struct kfile *f = k_socket(AF_INET, SOCK_STREAM);
	int rc;

	c->started_ns = world.active_ns = sim.now_ns;
	f->sndbuf = 2048 + sim_magnitude(64 * 1024);
	f->rcvbuf = 2048 + sim_magnitude(64 * 1024);
	if ((rc = k_bind(f, (struct sockaddr *)&c->from, sizeof(struct sockaddr_in))) < 0)
		sim_fail("client bind: %d", rc);
	peer_begin(&c->peer, f, client_act);
	rc = k_connect(f, &world.own.sa, world.own.len);
	if (rc != -EINPROGRESS)
		sim_fail("client connect: %d", rc);
}

void
client_start(struct client *c)
{
	sim_after(&c->start, sim_magnitude(3 * SIM_S), on_client_start);
}

/* ---- limits, looked at from outside ---- */

struct census {
	struct kfile	*newcomer;
	unsigned	 all, same_ip;
};

static void
count_adopted(int fd, struct kfile *f, void *arg)
{
	struct census *n = arg;

	(void)fd;
	if (f->tag == 0)
		return;
	n->all++;
	n->same_ip += f->tag == n->newcomer->tag;
}

/* The proxy's end of a client's connection, now that it is a session. */
static void
on_adopted(struct kfile *f)
{
	const struct conf_limits *l = &world.conf->limits;
	struct sockaddr_storage ss;
	socklen_t len;
	struct census n = { .newcomer = f };

	if (f->kind != K_STREAM || f->end != &f->end->conn->end[1])
		return;
	k_peer(f, &ss, &len);
	f->tag = 1 + ((struct sockaddr_in *)(void *)&ss)->sin_addr.s_addr;
	k_fds_each(count_adopted, &n);
	if (l->max_sessions != 0 && n.all > l->max_sessions)
		sim_fail("%u sessions, max_sessions is %u", n.all, l->max_sessions);
	if (l->max_sessions_per_ip != 0 && n.same_ip > l->max_sessions_per_ip)
		sim_fail("%u sessions of one address, max_sessions_per_ip is %u", n.same_ip,
		    l->max_sessions_per_ip);
}

/* ---- time passes ---- */

static bool
all_done(void)
{
	for (const struct client *c = world.clients; c != NULL; c = c->next)
		if (!c->done && !c->vanished)
			return false;
	for (const struct origin *o = world.origins; o != NULL; o = o->next)
		if (o->conn.f != NULL && !o->vanished)
			return false;
	return limits_sessions(world.limits) == 0;
}

static void
on_drain_ev(struct sim_event *e)
{
	(void)e;
	if (world.drained)
		return;
	sim_note(SIM_T_NOTE, 1, limits_sessions(world.limits), 0);
	world.drained = true;
	world.drain_ns = sim.now_ns;
	if (limits_sessions(world.limits) > 0)
		seen(SEEN_DRAIN);
	worker_drain(&world.worker);
}

static void
on_abort_ev(struct sim_event *e)
{
	on_drain_ev(e);
	sim_note(SIM_T_NOTE, 2, limits_sessions(world.limits), 0);
	seen(SEEN_ABORT);
	world.aborted = true;
	world.abort_ns = sim.now_ns;
	worker_abort(&world.worker);
}

static const char *
who_waits(void)
{
	static char text[64] = "nobody waits";

	for (const struct client *c = world.clients; c != NULL; c = c->next)
		if (!c->done && !c->vanished)
			snprintf(text, sizeof text, "client %u (%s) waits", c->id, c->kind->name);
	for (const struct origin *o = world.origins; o != NULL; o = o->next)
		if (o->conn.f != NULL && !o->vanished)
			snprintf(text, sizeof text, "origin %u waits", o->id);
	return text;
}

static void
on_tick(struct sim_event *e)
{
	enum { TICK_MS = 500, ABORT_TAKES_S = 3, SLACK_S = 10 };
	const struct conf_limits *l = &world.conf->limits;
	/* The longest chain of timeouts that one session can go through without a byte moving. */
	uint64_t quiet_ns = limit_ns(l->idle_timeout_s * 2 + l->half_close_timeout_s +
	    l->handshake_timeout_s + l->connect_timeout_s + 130 + SLACK_S);

	sim.allocs_may_fail = true;	/* the worker is up */
	if (world.aborted && sim.now_ns > world.abort_ns + ABORT_TAKES_S * SIM_S)
		sim_fail("%u sessions are left %u s after an abort", limits_sessions(world.limits),
		    ABORT_TAKES_S);
	if (sim.now_ns > world.active_ns + quiet_ns)
		sim_fail("%u sessions outlive every timeout; %s", limits_sessions(world.limits), who_waits());
	if (!world.drained && all_done())
		on_drain_ev(NULL);
	sim_after(e, TICK_MS * SIM_MS, on_tick);
}

/* ---- routes ---- */

static enum kroute
route(const struct sockaddr *to, socklen_t len)
{
	struct origin *o;

	(void)len;
	if (k_name_takes(&(struct sockaddr_storage){ 0 }, to) ||
	    memcmp(to, &world.own.sa, world.own.len) == 0)
		return K_ROUTE_NORMAL;
	o = origin_find(to);
	return o != NULL ? o->route : to->sa_family == AF_INET6 ? K_ROUTE_NETUNREACH : K_ROUTE_SILENT;
}

/* ---- a seed ---- */

static void
set(const char *key, uint64_t v)
{
	struct conf_problems problems = { 0 };
	char text[24];

	snprintf(text, sizeof text, "%llu", (unsigned long long)v);
	if (conf_set(world.conf, key, text, &problems) != 0)
		sim_fail("conf_set %s=%s", key, text);
}

static void
make_conf(void)
{
	world.conf = conf_new();
	set("listen.0.port", 1080);
	world.conf->listen[0].protocols = CONF_PROTO_SOCKS5 | CONF_PROTO_SOCKS4 | CONF_PROTO_HTTP;
	if (world.ideal) {
		set("limits.max_sessions", 10000);
		return;
	}
	set("limits.max_sessions", sim_chance(300) ? sim_between(2, 8) : 10000);
	if (sim_chance(200))
		set("limits.max_sessions_per_ip", sim_between(1, 4));
	if ((world.hogs = sim_chance(150)) || sim_chance(100))
		set("limits.tcp_pool_blocks", sim_between(16, 24));
	if (sim_chance(200)) {
		set("limits.idle_timeout_s", sim_between(5, 40));
		set("limits.half_close_timeout_s", sim_between(5, 40));
	}
	if (sim_chance(100))
		set("outbound.happy_eyeballs_ms", 0);
}

static void
make_faults(void)
{
	struct sim_faults *f = &sim.faults;

	f->latency_ns = sim_chance(700) ? sim_between(1, 500) * SIM_US : sim_between(1, 80) * SIM_MS;
	f->buf_bytes = sim_chance(500) ? 2048 + sim_magnitude(64 * 1024) : 0;
	f->short_permille = sim_chance(500) ? (unsigned)sim_below(600) : 0;
	f->late_permille = sim_chance(600) ? (unsigned)sim_below(700) : 0;
	f->late_ns = sim_magnitude(20 * SIM_MS);
	f->oversleep_permille = sim_chance(300) ? 50 : 0;
	f->purge_on_reset = sim_chance(300);
	if (world.ideal)
		return;
	if (sim_chance(250))
		f->accept_permille = (unsigned)sim_between(10, 300);
	if (sim_chance(250))
		f->fd_limit = (unsigned)sim_between(3, 30);
	if (sim_chance(300))
		f->alloc_permille_x100 = (unsigned)sim_between(100, 5000);
}

static void
make_people(void)
{
	unsigned n = 1 + (unsigned)sim_magnitude(24) + (world.hogs ? 20 : 0);

	while (n-- > 0) {
		uint64_t what = sim_below(100);

		if (what < (world.hogs ? 80 : 50))
			tunnel_client_make();
		else if (what < 88)
			http_client_make();
		else
			odd_client_make();
		world.client_count++;
	}
}

static struct kdf *kdf;		/* one for all runs */

static void
make_worker(void)
{
	struct worker *w = &world.worker;
	int fd;

	world.limits = limits_new(world.conf->limits.max_sessions, world.conf->limits.max_sessions_per_ip);
	world.choice.backend = &io_backend_sim;
	world.shared = (struct worker_shared){
		.choice = &world.choice, .limits = world.limits, .kdf = kdf, .pipes_max = UINT32_MAX,
		.udpports = udpports_new(0)
	};
	sem_init(&world.shared.reported, 0, 0);
	addr_parse_ip(span_str("127.0.0.1"), 1080, &world.own);
	world.listen_file = k_socket(AF_INET, SOCK_STREAM);
	k_bind(world.listen_file, &world.own.sa, world.own.len);
	k_listen(world.listen_file, (int)world.conf->listen[0].backlog);
	fd = k_fd_new(world.listen_file);
	if ((w->first = worker_plan_new(world.snapshot, NULL)) == NULL)
		sim_fail("no plan");
	w->first->fds[0] = fd;
	w->shared = &world.shared;
	w->next_session_id = w->id_step = 1;
	w->env.via = "ringway-sim";
}

static void
note_counters(void)
{
	static const struct { enum counter c; enum seen s; } map[] = {
		{ COUNT_REFUSED_SESSIONS, SEEN_SESSION_LIMIT }, { COUNT_REFUSED_PER_IP, SEEN_IP_LIMIT },
		{ COUNT_HANDSHAKE_TIMEOUT, SEEN_HANDSHAKE_TIMEOUT }, { COUNT_CONNECT_TIMEOUT, SEEN_CONNECT_TIMEOUT },
		{ COUNT_IDLE_TIMEOUT, SEEN_IDLE_TIMEOUT }, { COUNT_HALF_CLOSE_TIMEOUT, SEEN_HALF_TIMEOUT },
		{ COUNT_ACCEPT_PAUSED, SEEN_ACCEPT_PAUSED },
		{ COUNT_STALLED_RESET, SEEN_STALLED_RESET }
	};

	for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
		if (world.worker.counters.n[map[i].c] > 0)
			seen(map[i].s);
}

static void
tell_leak(int fd, struct kfile *f, void *arg)
{
	(void)f;
	*(int *)arg = fd;
}

static void
check_leaks(int64_t allocs_before)
{
	int fd = -1;

	if (limits_sessions(world.limits) != 0)
		sim_fail("limits still count %u sessions", limits_sessions(world.limits));
	if (!io_list_empty(&world.worker.sessions))
		sim_fail("the worker still has sessions");
	if (k_fds() != 0) {
		k_fds_each(tell_leak, &fd);
		sim_fail("%u descriptors leaked, one is %d", k_fds(), fd);
	}
	udpports_free(world.shared.udpports);
	limits_free(world.limits);
	if (sim.allocs != allocs_before)
		sim_fail("%lld blocks of memory leaked", (long long)(sim.allocs - allocs_before));
}

static void
free_people(void)
{
	for (struct client *c = world.clients, *next; c != NULL; c = next) {
		next = c->next;
		sim_stop(&c->start);
		peer_end(&c->peer, true);
		c->kind->free(c);
		sim_free(c->own);
		sim_free(c);
	}
	origins_free();
	if (k_conns() != 0)
		sim_fail("the simulation itself leaked %u connections", k_conns());
}

void
world_run(uint64_t seed, struct sim_trace *trace, bool verbose)
{
	struct conf_problems problems = { 0 };
	int64_t before;

	/* No scenario has a password: its thread only waits. */
	if (kdf == NULL && kdf_new(&kdf, &(struct kdf_config){ 0 }) != 0)
		abort();
	memset(&world, 0, sizeof world);
	sim_begin(seed, trace, false);
	k_reset();
	sim.verbose = verbose;
	world.next_id = 1;
	world.active_ns = sim.now_ns;
	world.ideal = sim_chance(400);
	world.ends_early = !world.ideal && sim_chance(250);
	make_conf();
	if (conf_validate(world.conf, &problems) != 0 ||
	    (world.snapshot = snapshot_new(world.conf, 1, &problems)) == NULL)
		sim_fail("the configuration is not valid");
	conf_problems_free(&problems);
	make_faults();
	before = sim.allocs;	/* not the configuration: strdup's blocks are not seen */
	k_set_route(route);
	sim_backend_adopted = on_adopted;
	make_worker();
	make_people();
	log_set_level(verbose ? LOG_TRACE : LOG_ERROR);
	sim_after(&world.tick, SIM_MS, on_tick);
	if (world.ends_early) {
		uint64_t at = sim_magnitude(20 * SIM_S);

		sim_after(&world.drain_ev, at, on_drain_ev);
		sim_after(&world.abort_ev, at + (sim_chance(300) ? 0 : sim_magnitude(30 * SIM_S)), on_abort_ev);
	}
	if (worker_start(&world.worker) != 0)
		sim_fail("no thread");
	worker_join(&world.worker);
	if (world.worker.failed != 0)
		sim_fail("%s", world.worker.failure);
	note_counters();
	free_people();
	check_leaks(before);
	snapshot_drop(world.snapshot);
	sim_end();
}

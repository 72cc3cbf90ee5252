/* SPDX-License-Identifier: ISC */
#include "kernel.h"
#include "kstream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	BUF_DEFAULT = 128 * 1024,
	PORT_FIRST = 20000,
	PORT_LAST = 60000,
	BACKLOG_MAX = 4096
};
/* Linux gives up a connect that nobody answers after six retries. */
static const uint64_t SYN_GIVES_UP_NS = UINT64_C(127) * 1000000000;
static const uint64_t NO_ROUTE_NS = UINT64_C(3) * 1000000000;
static const uint64_t SYN_RETRY_NS = UINT64_C(1) * 1000000000;

static struct io_link names = { &names, &names };	/* bound files */
static kroute_fn *route;
static uint16_t next_port = PORT_FIRST;
static uint64_t next_id = 1;

static void on_syn(struct sim_event *);

void
k_set_route(kroute_fn *fn)
{
	route = fn;
}

void
k_reset(void)
{
	next_port = PORT_FIRST;
	next_id = 1;
}

/* ---- watching ---- */

void
k_watch(struct kfile *f, struct kwatch *w, void (*fn)(struct kwatch *))
{
	w->fn = fn;
	io_list_add_tail(&f->watches, &w->link);
}

void
k_unwatch(struct kwatch *w)
{
	io_list_del(&w->link);
}

void
k_notify(struct kfile *f)
{
	for (struct io_link *l = f->watches.next, *next; l != &f->watches; l = next) {
		struct kwatch *w = io_container_of(l, struct kwatch, link);

		next = l->next;
		w->fn(w);
	}
	sim_changed();
}

/* ---- names ---- */

static bool
any(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr == 0;
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static uint16_t
port_of(const void *sa)
{
	return ((const struct sockaddr_in *)sa)->sin_port;	/* sin6_port is at the same place */
}

static bool
same_ip(const void *a, const void *b)
{
	const struct sockaddr_in *x = a, *y = b;

	if (x->sin_family == AF_INET)
		return x->sin_addr.s_addr == y->sin_addr.s_addr;
	return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
	    &((const struct sockaddr_in6 *)b)->sin6_addr, 16) == 0;
}

bool
k_name_takes(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	return a->ss_family == b->sa_family && port_of(a) == port_of(b) && (any(a) || same_ip(a, b));
}

struct kfile *
k_bound_to(int type, const struct sockaddr *to, bool listening)
{
	for (struct io_link *l = names.next; l != &names; l = l->next) {
		struct kfile *f = io_container_of(l, struct kfile, bound);

		if (f->type == type && (!listening || f->kind == K_LISTEN) &&
		    k_name_takes(&f->local, to))
			return f;
	}
	return NULL;
}

static socklen_t
name_len(int family)
{
	return family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static uint16_t
free_port(struct kfile *f)
{
	struct sockaddr_storage try = f->local;

	for (int i = 0; i < PORT_LAST - PORT_FIRST; i++) {
		if (++next_port >= PORT_LAST)
			next_port = PORT_FIRST;
		((struct sockaddr_in *)(void *)&try)->sin_port = htons(next_port);
		if (k_bound_to(f->type, (struct sockaddr *)&try, false) == NULL)
			return htons(next_port);
	}
	return 0;
}

int
k_bind(struct kfile *f, const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_in *in = (void *)&f->local;
	struct kfile *other;

	if (f->locallen != 0 || sa->sa_family != f->family || len < name_len(f->family))
		return -EINVAL;
	if (port_of(sa) != 0 && (other = k_bound_to(f->type, sa, false)) != NULL &&
	    !(f->reuseport && other->reuseport))
		return -EADDRINUSE;
	memset(&f->local, 0, sizeof f->local);
	memcpy(&f->local, sa, name_len(f->family));
	if (in->sin_port == 0 && (in->sin_port = free_port(f)) == 0)
		return -EADDRINUSE;
	f->locallen = name_len(f->family);
	io_list_add_tail(&names, &f->bound);
	return 0;
}

/* As the kernel does when a socket is used that was not bound. */
int
k_autobind(struct kfile *f, const struct sockaddr *to)
{
	struct sockaddr_storage at = { .ss_family = (sa_family_t)f->family };

	if (f->locallen == 0) {
		if (f->family == AF_INET)
			((struct sockaddr_in *)(void *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		else if (to != NULL)
			((struct sockaddr_in6 *)(void *)&at)->sin6_addr = in6addr_loopback;
		return k_bind(f, (struct sockaddr *)&at, name_len(f->family));
	}
	return 0;
}

/* ---- files ---- */

struct kfile *
k_socket(int family, int type)
{
	struct kfile *f = sim_alloc(sizeof *f);

	f->refs = 1;
	f->family = family;
	f->type = type;
	f->kind = type == SOCK_DGRAM ? K_DGRAM : K_NEW;
	f->sndbuf = f->rcvbuf = sim.faults.buf_bytes != 0 ? sim.faults.buf_bytes : BUF_DEFAULT;
	f->id = next_id++;
	io_list_init(&f->bound);
	io_list_init(&f->watches);
	io_list_init(&f->backlog);
	io_list_init(&f->queue);
	return f;
}

void
k_ref(struct kfile *f)
{
	f->refs++;
}

struct kend *
k_other(const struct kend *e)
{
	return e == &e->conn->end[0] ? &e->conn->end[1] : &e->conn->end[0];
}

void
k_close(struct kfile *f)
{
	if (--f->refs > 0)
		return;
	while (!io_list_empty(&f->watches))
		k_unwatch(io_container_of(f->watches.next, struct kwatch, link));
	io_list_del(&f->bound);
	sim_stop(&f->syn);
	while (!io_list_empty(&f->backlog)) {
		struct kend *e = io_container_of(f->backlog.next, struct kend, backlog);

		io_list_del(&e->backlog);
		k_end_close(e, true);
	}
	while (k_dgram(f) != NULL)
		k_dgram_drop(f);
	if (f->end != NULL)
		k_end_close(f->end, f->linger0);
	sim_free(f);
	sim_changed();
}

/* ---- connecting ---- */

static struct kconn *
conn_new(struct kfile *client, struct kfile *like)
{
	struct kconn *c = sim_alloc(sizeof *c);

	k_conns_changed(1);
	c->id = next_id++;
	c->latency_ns = sim.faults.latency_ns;
	for (int i = 0; i < 2; i++) {
		struct kend *e = &c->end[i];
		const struct kfile *to = i == 0 ? client : like, *from = i == 0 ? like : client;

		e->conn = c;
		io_list_init(&e->backlog);
		e->rx.rcvcap = to->rcvbuf;
		e->rx.cap = to->rcvbuf + from->sndbuf;
		e->rx.buf = sim_alloc(e->rx.cap);
	}
	c->end[0].file = client;
	c->end[0].name = client->local;
	c->end[0].namelen = client->locallen;
	c->end[1].name = client->to;
	c->end[1].namelen = client->tolen;
	client->end = &c->end[0];
	return c;
}

static void
syn_done(struct kfile *f, int err)
{
	sim_note(SIM_T_CONNECT, (int64_t)f->id, f->end != NULL ? (int64_t)f->end->conn->id : 0, err);
	f->connecting = err == 0 ? K_CONNECTED : K_FAILED;
	f->so_error = err;
	if (err == 0)
		f->kind = K_STREAM;
	k_notify(f);
}

/* Second half of the handshake: the listener has its connection, the client is told now. */
static void
on_syn_ack(struct sim_event *ev)
{
	syn_done(io_container_of(ev, struct kfile, syn), 0);
}

static void
on_syn(struct sim_event *ev)
{
	struct kfile *f = io_container_of(ev, struct kfile, syn), *l;
	struct kconn *c;

	if (f->syn_result != 0) {
		syn_done(f, f->syn_result);
		return;
	}
	l = k_bound_to(SOCK_STREAM, (struct sockaddr *)&f->to, true);
	if (l == NULL) {
		syn_done(f, ECONNREFUSED);
		return;
	}
	if (l->backlog_len > l->backlog_max) {		/* dropped; the client's kernel tries again */
		sim_after(ev, SYN_RETRY_NS, on_syn);
		return;
	}
	c = conn_new(f, l);
	c->end[1].listener = l;
	io_list_add_tail(&l->backlog, &c->end[1].backlog);
	l->backlog_len++;
	k_notify(l);
	sim_after(ev, k_latency(c), on_syn_ack);
}

int
k_connect(struct kfile *f, const struct sockaddr *to, socklen_t len)
{
	enum kroute r = route != NULL ? route(to, len) : K_ROUTE_NORMAL;
	uint64_t delay = sim.faults.latency_ns;
	int rc;

	if (f->connecting != K_IDLE || f->kind == K_STREAM)
		return f->connecting == K_SYN ? -EALREADY : -EISCONN;
	if (f->kind == K_LISTEN)
		return -EISCONN;
	if (to->sa_family != f->family)
		return -EAFNOSUPPORT;
	if (r == K_ROUTE_NETUNREACH)
		return -ENETUNREACH;
	if ((rc = k_autobind(f, to)) < 0)
		return rc;
	memcpy(&f->to, to, len < sizeof f->to ? len : sizeof f->to);
	f->tolen = name_len(f->family);
	if (any(&f->to) && f->family == AF_INET)
		((struct sockaddr_in *)(void *)&f->to)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->connecting = K_SYN;
	f->syn_result = r == K_ROUTE_REFUSED ? ECONNREFUSED : r == K_ROUTE_HOSTUNREACH ? EHOSTUNREACH :
	    r == K_ROUTE_SILENT ? ETIMEDOUT : 0;
	if (r == K_ROUTE_SILENT)
		delay = SYN_GIVES_UP_NS;
	else if (r == K_ROUTE_HOSTUNREACH)
		delay = NO_ROUTE_NS;
	sim_after(&f->syn, delay == 0 ? 0 : delay / 2 + sim_below(delay), on_syn);
	return -EINPROGRESS;
}

int
k_connect_result(struct kfile *f)
{
	switch (f->connecting) {
	case K_SYN:
		return -EINPROGRESS;
	case K_FAILED:
		return -f->so_error;
	case K_CONNECTED:
		return 0;
	case K_IDLE:
		break;
	}
	return -ENOTCONN;
}

int
k_listen(struct kfile *f, int backlog)
{
	if (f->kind == K_STREAM || f->connecting != K_IDLE || f->type != SOCK_STREAM)
		return -EINVAL;
	f->kind = K_LISTEN;
	f->backlog_max = backlog > BACKLOG_MAX ? BACKLOG_MAX : backlog < 0 ? 0 : (unsigned)backlog;
	return k_autobind(f, NULL);
}

int
k_accept(struct kfile *l, struct kfile **out, struct sockaddr_storage *peer, socklen_t *len)
{
	struct kend *e;
	struct kfile *f;

	if (l->kind != K_LISTEN)
		return -EINVAL;
	if (io_list_empty(&l->backlog))
		return -EAGAIN;
	e = io_container_of(l->backlog.next, struct kend, backlog);
	io_list_del(&e->backlog);
	l->backlog_len--;
	e->listener = NULL;
	f = k_socket(l->family, SOCK_STREAM);
	f->kind = K_STREAM;
	f->connecting = K_CONNECTED;
	f->rcvbuf = l->rcvbuf;
	f->sndbuf = l->sndbuf;
	f->local = e->name;
	f->locallen = e->namelen;
	f->end = e;
	e->file = f;
	if (peer != NULL) {
		*peer = k_other(e)->name;
		*len = k_other(e)->namelen;
	}
	sim_note(SIM_T_ACCEPT, (int64_t)e->conn->id, (int64_t)f->id, 0);
	*out = f;
	return 0;
}

void
k_pair(struct kfile *out[2])
{
	struct kconn *c;

	out[0] = k_socket(AF_UNIX, SOCK_STREAM);
	out[1] = k_socket(AF_UNIX, SOCK_STREAM);
	c = conn_new(out[0], out[1]);
	c->latency_ns = 0;
	for (int i = 0; i < 2; i++) {
		out[i]->kind = K_STREAM;
		out[i]->connecting = K_CONNECTED;
		out[i]->end = &c->end[i];
		c->end[i].file = out[i];
	}
}

int
k_peer(struct kfile *f, struct sockaddr_storage *ss, socklen_t *len)
{
	if (f->kind != K_STREAM || f->end == NULL)
		return -ENOTCONN;
	*ss = k_other(f->end)->name;
	*len = k_other(f->end)->namelen;
	return 0;
}

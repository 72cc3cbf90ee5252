/* SPDX-License-Identifier: ISC */
/* Origins: who they are, and those at the far end of tunnels. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 8192 };

/* ---- all origins ---- */

struct origin *
origin_new(enum origin_kind kind)
{
	struct origin *o = sim_alloc(sizeof *o);

	o->id = world.next_id++;
	o->kind = kind;
	if (sim_chance(250)) {
		struct sockaddr_in6 *in6 = (void *)&o->at;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)(1000 + o->id));
		in6->sin6_addr.s6_addr[0] = 0xfd;
		in6->sin6_addr.s6_addr[15] = (uint8_t)o->id;
		in6->sin6_addr.s6_addr[14] = (uint8_t)(o->id >> 8);
		o->atlen = sizeof *in6;
	} else {
		struct sockaddr_in *in = (void *)&o->at;

		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)(1000 + o->id));
		in->sin_addr.s_addr = htonl(0x0a010000 + o->id);
		o->atlen = sizeof *in;
	}
	o->listener.think_ns = o->conn.think_ns = sim_chance(800) ? sim_below(200 * SIM_US) :
	    sim_below(50 * SIM_MS);
	o->next = world.origins;
	world.origins = o;
	return o;
}

struct origin *
origin_find(const struct sockaddr *to)
{
	for (struct origin *o = world.origins; o != NULL; o = o->next)
		if (k_name_takes(&o->at, to))
			return o;
	return NULL;
}

struct origin *
origin_by_id(unsigned id)
{
	for (struct origin *o = world.origins; o != NULL; o = o->next)
		if (o->id == id)
			return o;
	return NULL;
}

void
origin_name(const struct origin *o, char out[64])
{
	snprintf(out, 64, "o%u.sim", o->id);
}

void
origins_free(void)
{
	for (struct origin *o = world.origins, *next; o != NULL; o = next) {
		next = o->next;
		peer_end(&o->listener, false);
		peer_end(&o->conn, true);
		sim_free(o->answer);
		sim_free(o);
	}
}

static void
accept_act(struct peer *p)
{
	struct origin *o = io_container_of(p, struct origin, listener);
	struct kfile *f;

	while (k_accept(p->f, &f, NULL, NULL) == 0) {
		sim_note(SIM_T_ORIGIN, o->id, 0, o->accepted);
		/* One client, one connection; another only if the first was a loser of a race. */
		if (o->accepted++ > 0)
			sim_fail("origin %u was connected to twice", o->id);
		world.active_ns = sim.now_ns;
		peer_begin(&o->conn, f, o->kind == ORIGIN_HTTP ? origin_http_act : origin_tunnel_act);
	}
}

void
origin_listen(struct origin *o)
{
	struct kfile *f;
	int rc;

	if (o->route != K_ROUTE_NORMAL)
		return;
	f = k_socket(o->at.ss_family, SOCK_STREAM);
	f->sndbuf = 2048 + sim_magnitude(64 * 1024);
	f->rcvbuf = 2048 + sim_magnitude(64 * 1024);
	if ((rc = k_bind(f, (struct sockaddr *)&o->at, o->atlen)) < 0 || (rc = k_listen(f, 16)) < 0)
		sim_fail("origin %u: error %d", o->id, rc);
	peer_begin(&o->listener, f, accept_act);
}

/* ---- tunnels ---- */

static void
broke(struct origin *o, long err)
{
	sim_note(SIM_T_ORIGIN, o->id, 3, err);
	o->saw_rst = true;
	peer_end(&o->conn, false);
}

/* An orderly end is a promise: this was all, and the client meant it so. */
static void
saw_end(struct origin *o)
{
	sim_note(SIM_T_ORIGIN, o->id, 1, (int64_t)o->got);
	o->saw_fin = true;
	world.active_ns = o->moved_ns = sim.now_ns;
	if (o->got == 0 && !o->client_ready)
		return;			/* given up before it was a tunnel */
	if (!o->client_fin || o->got != o->client_sent)
		sim_fail("origin %u saw an orderly end after %llu bytes; its client sent %llu and %s", o->id,
		    (unsigned long long)o->got, (unsigned long long)o->client_sent,
		    o->client_fin ? "ended" : "did not end");
	if (!o->sent_fin)
		seen(SEEN_HALF_CLOSE_UP);
}

/* False: nothing more now, or the connection is over. */
static bool
tunnel_read(struct origin *o)
{
	uint8_t buf[PIECE_BYTES];
	long n = k_recv(o->conn.f, buf, sizeof buf, false);

	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		broke(o, n);
		return false;
	}
	if (n == 0) {
		if (!o->saw_fin)
			saw_end(o);
		return false;
	}
	tag_check(o->id, UP, o->got, buf, (size_t)n);
	o->got += (uint64_t)n;
	o->moved_ns = sim.now_ns;
	if (o->got > o->up_len)
		sim_fail("origin %u got %llu bytes, %llu were meant", o->id, (unsigned long long)o->got,
		    (unsigned long long)o->up_len);
	return true;
}

static bool
tunnel_send(struct origin *o)
{
	uint8_t buf[PIECE_BYTES];
	uint64_t left = o->down_len - o->sent;
	size_t len = left < sizeof buf ? (size_t)left : sizeof buf;
	long n;

	if (len == 0)
		return false;
	tag_fill(o->id, DOWN, o->sent, buf, len);
	n = k_send(o->conn.f, buf, len);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		broke(o, n);
		return false;
	}
	o->sent += (uint64_t)n;
	world.active_ns = o->moved_ns = sim.now_ns;
	return true;
}

static void
fin(struct origin *o)
{
	if (o->sent_fin)
		return;
	o->sent_fin = true;
	sim_note(SIM_T_ORIGIN, o->id, 2, (int64_t)o->sent);
	world.active_ns = o->moved_ns = sim.now_ns;
	k_shutdown(o->conn.f, false, true);
}

static bool
sends_now(const struct origin *o)
{
	switch (o->way) {
	case WAY_ANSWER_AFTER_EOF:
		return o->saw_fin;
	case WAY_SILENT:
		return false;
	default:
		return true;
	}
}

void
origin_tunnel_act(struct peer *p)
{
	struct origin *o = io_container_of(p, struct origin, conn);

	if (o->vanished)
		return;
	while (p->f != NULL && tunnel_read(o))
		;
	while (p->f != NULL && sends_now(o) && tunnel_send(o))
		if ((o->way == WAY_RESET || o->way == WAY_VANISH) && o->sent + o->got >= o->break_at)
			break;
	if (p->f == NULL)
		return;
	if (o->sent + o->got >= o->break_at && o->way == WAY_RESET) {
		o->sent_rst = true;
		peer_end(p, true);
		return;
	}
	if (o->sent + o->got >= o->break_at && o->way == WAY_VANISH) {
		o->vanished = true;
		return;
	}
	if (o->way == WAY_FIN_FIRST && o->sent == o->down_len)
		fin(o);
	if (o->saw_fin && (o->sent == o->down_len || o->way == WAY_SILENT)) {
		fin(o);
		peer_end(p, false);
	}
}

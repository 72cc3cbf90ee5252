/* SPDX-License-Identifier: ISC */
/* Clients of tunnels: SOCKS5, SOCKS4 and 4a, CONNECT. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum proto { SOCKS5, SOCKS5_NAME, SOCKS4, SOCKS4A, CONNECT, CONNECT_10, PROTOS };

enum way {
	C_HALF,		/* sends all, half-closes, reads to the end */
	C_READ_CLOSE,	/* closes when it has sent and read all */
	C_SLOW,		/* as C_HALF, a little at a time */
	C_RESET,	/* resets after some bytes */
	C_VANISH,	/* stops after some bytes */
	C_WAYS
};

enum state { S_METHOD, S_REPLY, S_OPEN, S_REFUSED };

enum { PIECE_BYTES = 8192, REPLY_BYTES = 4096, SLOW_BYTES = 2000 };

struct tunnel_client {
	struct origin	*o;
	enum proto	 proto;
	enum way	 way;
	enum state	 state;
	uint64_t	 pause_ns;		/* C_SLOW */
	bool		 early, dribbles;	/* payload right behind the request; a few bytes at a time */
	uint8_t		 hello[512];
	size_t		 hello_len, hello_off, gate;
	uint8_t		 reply[REPLY_BYTES];
	size_t		 reply_len;
	uint64_t	 up_len, sent, got, break_at;
	uint64_t	 asked_ns;
	bool		 fin;
	int		 expect;		/* reply code for an ideal world; -1 = any refusal */
};

/* ---- the handshake ---- */

static size_t
put_host(struct tunnel_client *t, uint8_t *p, const char *name)
{
	size_t len = strlen(name);

	(void)t;
	memcpy(p, name, len);
	return len;
}

static void
make_socks5(struct tunnel_client *t, const char *name)
{
	const struct sockaddr_in *in = (const void *)&t->o->at;
	const struct sockaddr_in6 *in6 = (const void *)&t->o->at;
	uint8_t *p = t->hello;
	size_t n;

	*p++ = 5;
	*p++ = 2;
	*p++ = 2;
	*p++ = 0;
	t->gate = t->early ? SIZE_MAX : 4;
	memcpy(p, "\5\1\0", 3);
	p += 3;
	if (t->proto == SOCKS5_NAME) {
		n = put_host(t, p + 2, name);
		p[0] = 3;
		p[1] = (uint8_t)n;
		p += 2 + n;
	} else if (in->sin_family == AF_INET) {
		*p++ = 1;
		memcpy(p, &in->sin_addr, 4);
		p += 4;
	} else {
		*p++ = 4;
		memcpy(p, &in6->sin6_addr, 16);
		p += 16;
	}
	memcpy(p, &in->sin_port, 2);
	t->hello_len = (size_t)(p + 2 - t->hello);
}

static void
make_socks4(struct tunnel_client *t, const char *name)
{
	const struct sockaddr_in *in = (const void *)&t->o->at;
	uint8_t *p = t->hello;

	p[0] = 4;
	p[1] = 1;
	memcpy(p + 2, &in->sin_port, 2);
	memcpy(p + 4, t->proto == SOCKS4A ? (const void *)"\0\0\0\1" : &in->sin_addr, 4);
	memcpy(p + 8, "me", 3);
	t->hello_len = 11;
	if (t->proto == SOCKS4A) {
		t->hello_len += put_host(t, p + 11, name);
		p[t->hello_len++] = 0;
	}
	t->gate = SIZE_MAX;
	t->state = S_REPLY;
}

static void
make_connect(struct tunnel_client *t, const char *name)
{
	struct addr a;
	char to[2 * ADDR_TEXT_MAX];

	addr_from_sockaddr(&a, (struct sockaddr *)&t->o->at, t->o->atlen);
	addr_format(&a, to);
	if (sim_chance(400))
		snprintf(to, sizeof to, "%s:%u", name, addr_port(&a));
	t->hello_len = (size_t)snprintf((char *)t->hello, sizeof t->hello,
	    "CONNECT %s HTTP/1.%d\r\nHost: %s\r\n\r\n", to, t->proto == CONNECT, to);
	t->gate = SIZE_MAX;
	t->state = S_REPLY;
}

/* ---- the reply ---- */

/* Bytes of the whole reply, 0 = not yet; *code 0 = granted. */
static size_t
whole_reply(struct tunnel_client *t, int *code)
{
	const uint8_t *r = t->reply;
	size_t need;
	char *end;

	switch (t->proto) {
	case SOCKS5:
	case SOCKS5_NAME:
		if (t->reply_len < 4)
			return 0;
		if (r[0] != 5 || r[2] != 0 || (r[3] != 1 && r[3] != 4))
			sim_fail("SOCKS5 reply %02x %02x %02x %02x", r[0], r[1], r[2], r[3]);
		need = r[3] == 1 ? 10 : 22;
		*code = r[1];
		return t->reply_len < need ? 0 : need;
	case SOCKS4:
	case SOCKS4A:
		if (t->reply_len < 8)
			return 0;
		if (r[0] != 0 || r[1] < 90 || r[1] > 93)
			sim_fail("SOCKS4 reply %02x %02x", r[0], r[1]);
		*code = r[1] == 90 ? 0 : r[1];
		return 8;
	default:
		t->reply[t->reply_len < REPLY_BYTES ? t->reply_len : REPLY_BYTES - 1] = '\0';
		if ((end = strstr((char *)t->reply, "\r\n\r\n")) == NULL)
			return 0;
		if (strncmp((char *)r, "HTTP/1.", 7) != 0)
			sim_fail("CONNECT was answered by: %.40s", (char *)r);
		*code = atoi((char *)r + 9);
		if (*code == 200)
			*code = 0;
		return (size_t)(end + 4 - (char *)r);
	}
}

static bool
promised(const struct client *c)
{
	const struct tunnel_client *t = c->own;

	return world.ideal && !c->flawed && !t->o->flawed;
}

static void
refused(struct client *c, int code)
{
	struct tunnel_client *t = c->own;
	bool late = t->o->route == K_ROUTE_SILENT;
	uint64_t took = sim.now_ns - t->asked_ns, want = limit_ns(world.conf->limits.connect_timeout_s);

	t->state = S_REFUSED;
	seen(SEEN_TUNNEL_REFUSED);
	if (!world.ideal)
		return;
	if (t->expect == 0)
		sim_fail("client %u (%s %u) was refused: %d", c->id, c->kind->name, t->proto, code);
	if (t->proto <= SOCKS5_NAME && t->expect > 0 && code != t->expect)
		sim_fail("client %u was refused with %d, not %d", c->id, code, t->expect);
	if (late && (took < want - SIM_S / 2 || took > want + 3 * SIM_S + (t->way == C_SLOW ? 3 * t->pause_ns : 0)))
		sim_fail("client %u: a connect timeout after %llu ms", c->id, (unsigned long long)(took / SIM_MS));
}

static void
payload(struct client *c, const uint8_t *p, size_t len)
{
	struct tunnel_client *t = c->own;

	tag_check(t->o->id, DOWN, t->got, p, len);
	t->got += len;
	t->o->moved_ns = sim.now_ns;
	if (t->got > t->o->sent)
		sim_fail("client %u got more than its origin sent", c->id);
}

static void
reply_bytes(struct client *c, const uint8_t *p, size_t len)
{
	struct tunnel_client *t = c->own;
	size_t n = len < REPLY_BYTES - 1 - t->reply_len ? len : REPLY_BYTES - 1 - t->reply_len, whole;
	size_t before = t->reply_len;
	int code = 0;

	memcpy(t->reply + t->reply_len, p, n);
	t->reply_len += n;
	if (t->state == S_METHOD) {
		if (t->reply_len < 2)
			return;
		if (t->reply[0] != 5 || t->reply[1] != 0)
			sim_fail("client %u: method reply %02x %02x", c->id, t->reply[0], t->reply[1]);
		t->state = S_REPLY;
		t->gate = SIZE_MAX;
		t->reply_len = 0;
		n = 2 - before;
		reply_bytes(c, p + n, len - n);
		return;
	}
	if (len == 0 || (whole = whole_reply(t, &code)) == 0)
		return;
	if (code != 0) {
		refused(c, code);
		return;
	}
	if (t->expect != 0 && world.ideal)
		sim_fail("client %u: a tunnel to nowhere", c->id);
	t->state = S_OPEN;
	t->o->client_ready = true;
	t->o->moved_ns = sim.now_ns;
	payload(c, p + (whole - before), len - (whole - before));
}

/* ---- the end ---- */

/* When the proxy last moved a byte of this tunnel, as its kernel saw it. */
static uint64_t
proxy_moved(const struct client *c, const struct origin *o)
{
	uint64_t t = k_other(c->peer.f->end)->moved_ns;

	if (o->conn.f != NULL && k_other(o->conn.f->end)->moved_ns > t)
		t = k_other(o->conn.f->end)->moved_ns;
	return t;
}

/* Nobody did anything, so it must have been the clock; never early, and not twice as late. */
static void
check_timeout(struct client *c)
{
	const struct conf_limits *l = &world.conf->limits;
	struct tunnel_client *t = c->own;
	struct origin *o = t->o;
	uint64_t idle = limit_ns(l->idle_timeout_s), half = limit_ns(l->half_close_timeout_s);
	uint64_t least = idle, most = idle, quiet = sim.now_ns - proxy_moved(c, o);

	if (!world.ideal || o->sent_rst || o->saw_rst)
		return;
	/* An end that is stuck behind other bytes has not been seen by the proxy yet. */
	if (t->fin || o->sent_fin) {
		least = half < idle ? half : idle;
		most = half > idle ? half : idle;
	}
	if (quiet < least - SIM_S || quiet > 2 * most + 5 * SIM_S)
		sim_fail("client %u: reset after %llu ms of silence, the timeout is %llu s", c->id,
		    (unsigned long long)(quiet / SIM_MS), (unsigned long long)(least / SIM_S));
	seen(SEEN_TUNNEL_TIMEOUT);
}

static void
saw_end(struct client *c, long rc)
{
	struct tunnel_client *t = c->own;
	struct origin *o = t->o;

	if (t->state == S_OPEN && rc == 0) {
		/* An orderly end is a promise here too. */
		if (!o->sent_fin || t->got != o->sent)
			sim_fail("client %u saw an orderly end after %llu bytes; its origin sent %llu and %s", c->id,
			    (unsigned long long)t->got, (unsigned long long)o->sent,
			    o->sent_fin ? "ended" : o->sent_rst ? "reset" : "did not end");
		if (!t->fin)
			seen(SEEN_HALF_CLOSE_DOWN);
		if (t->fin) {
			if (promised(c) && t->sent == t->up_len)
				seen(SEEN_TUNNEL_WHOLE);
			client_end(c, false);
		} else if (c->peer.f->end->rst)		/* as poll(2) would tell */
			client_end(c, false);
		return;
	}
	if (t->state == S_OPEN && rc < 0) {
		if (o->sent_rst)
			seen(SEEN_RESET_CARRIED);
		if (promised(c))
			sim_fail("client %u: its tunnel broke (%ld) after %llu of %llu bytes", c->id, rc,
			    (unsigned long long)t->got, (unsigned long long)o->down_len);
		if (!o->sent_rst)
			check_timeout(c);
	} else if (t->state != S_REFUSED && world.ideal && !c->flawed && !o->sent_rst &&
	    !(t->early && t->expect != 0))	/* the rest of its early data can turn the refusal into a reset */
		sim_fail("client %u: no answer (%ld) to its request", c->id, rc);
	client_end(c, false);
}

/* ---- acting ---- */

static void
read_some(struct client *c)
{
	struct tunnel_client *t = c->own;
	uint8_t buf[PIECE_BYTES];
	size_t max = t->way == C_SLOW ? SLOW_BYTES : sizeof buf;
	long n;

	while (c->peer.f != NULL) {
		n = client_recv(c, buf, max);
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			saw_end(c, n);
			return;
		}
		world.active_ns = sim.now_ns;
		if (t->state == S_OPEN)
			payload(c, buf, (size_t)n);
		else if (t->state != S_REFUSED)
			reply_bytes(c, buf, (size_t)n);
		if (t->way == C_SLOW && sim_chance(300))
			return;
	}
}

/* The connection is broken under us: what was received before says why. */
static void
send_some(struct client *c)
{
	struct tunnel_client *t = c->own;
	uint8_t buf[PIECE_BYTES];
	size_t end = t->gate < t->hello_len ? t->gate : t->hello_len;

	if (t->dribbles && end > t->hello_off + 3)
		end = t->hello_off + 1 + sim_below(3);
	if (!client_send(c, t->hello, end, &t->hello_off))
		return;
	if (t->hello_off < t->hello_len) {
		if (t->dribbles)
			peer_poke_after(&c->peer, sim_below(50 * SIM_MS));
		return;
	}
	if (t->asked_ns == 0)
		t->asked_ns = sim.now_ns;
	if ((!t->early && t->state != S_OPEN) || t->state == S_REFUSED)
		return;
	while (t->sent < t->up_len) {
		size_t len = t->up_len - t->sent < sizeof buf ? (size_t)(t->up_len - t->sent) : sizeof buf, off = 0;
		bool ok;

		if (t->way == C_SLOW && len > SLOW_BYTES)
			len = SLOW_BYTES;
		tag_fill(t->o->id, UP, t->sent, buf, len);
		ok = client_send(c, buf, len, &off);
		t->sent += off;
		t->o->client_sent = t->sent;
		if (off > 0)
			t->o->moved_ns = sim.now_ns;
		if (!ok || off < len)
			return;
		if (t->way == C_SLOW || (t->sent + t->got >= t->break_at && (t->way == C_RESET || t->way == C_VANISH)))
			return;
	}
}

static void
half_close(struct client *c)
{
	struct tunnel_client *t = c->own;

	if (t->fin || t->sent < t->up_len || t->hello_off < t->hello_len ||
	    (t->state != S_OPEN && !t->early))
		return;
	t->fin = t->o->client_fin = true;
	world.active_ns = t->o->moved_ns = sim.now_ns;
	sim_note(SIM_T_CLIENT, c->id, 2, (int64_t)t->sent);
	k_shutdown(c->peer.f, false, true);
}

static void
tunnel_act(struct client *c)
{
	struct tunnel_client *t = c->own;

	read_some(c);
	if (c->peer.f == NULL)
		return;
	send_some(c);
	if (c->broken) {
		read_some(c);
		if (c->peer.f == NULL)
			return;
	}
	if ((t->way == C_RESET || t->way == C_VANISH) && t->hello_off + t->sent + t->got >= t->break_at) {
		sim_note(SIM_T_CLIENT, c->id, 3, t->way);
		if (t->way == C_RESET)
			client_end(c, true);
		else
			c->vanished = true;
		return;
	}
	if (t->state == S_REFUSED && (t->way == C_READ_CLOSE || t->way == C_SLOW)) {
		client_end(c, false);
		return;
	}
	if (t->way == C_HALF || t->way == C_SLOW)
		half_close(c);
	else if (t->way == C_READ_CLOSE && t->state == S_OPEN && t->sent == t->up_len &&
	    t->got == t->o->down_len) {
		t->o->client_fin = true;
		t->o->moved_ns = sim.now_ns;
		if (promised(c))
			seen(SEEN_TUNNEL_WHOLE);
		client_end(c, false);
	}
	/* Slow with its payload; the handshake has a time limit. */
	if (t->way == C_SLOW && c->peer.f != NULL)
		peer_poke_after(&c->peer, sim_below(t->state == S_OPEN ? t->pause_ns : 50 * SIM_MS));
}

static void
tunnel_free(struct client *c)
{
	struct tunnel_client *t = c->own;

	if (world.ideal && !c->done && !c->vanished)
		sim_fail("client %u did not come to its end: sent %llu of %llu, got %llu of %llu", c->id,
		    (unsigned long long)t->sent, (unsigned long long)t->up_len,
		    (unsigned long long)t->got, (unsigned long long)t->o->down_len);
	if (promised(c) && t->state == S_OPEN && t->o->got != t->up_len)
		sim_fail("origin %u got %llu of %llu bytes", t->o->id, (unsigned long long)t->o->got,
		    (unsigned long long)t->up_len);
}

static const struct client_kind tunnel_kind = { "tunnel", tunnel_act, tunnel_free };

/* ---- who it is ---- */

static void
choose_route(struct tunnel_client *t)
{
	static const struct { enum kroute route; int socks5; } ways[] = {
		{ K_ROUTE_REFUSED, 5 }, { K_ROUTE_NETUNREACH, 3 }, { K_ROUTE_HOSTUNREACH, 4 },
		{ K_ROUTE_SILENT, 6 }
	};

	if (!sim_chance(200))
		return;
	uint64_t i = sim_below(4);

	t->o->route = ways[i].route;
	t->expect = ways[i].socks5;
}

static void
choose_ways(struct client *c, struct tunnel_client *t)
{
	struct origin *o = t->o;

	t->way = sim_chance(800) ? (enum way)sim_below(C_RESET) : (enum way)sim_below(C_WAYS);
	o->way = sim_chance(800) ? (enum origin_way)sim_below(WAY_RESET) : (enum origin_way)sim_below(WAY_COUNT);
	t->up_len = o->up_len = sim_magnitude(t->way == C_SLOW ? 20000 : 200 * 1024);
	o->down_len = o->way == WAY_SILENT ? 0 : sim_magnitude(t->way == C_SLOW ? 20000 : 200 * 1024);
	if (world.hogs && sim_chance(800)) {
		t->way = sim_chance(500) ? C_VANISH : C_SLOW;
		o->way = WAY_SEND_AND_WAIT;
		o->down_len = 200 * 1024;
		o->route = K_ROUTE_NORMAL;
		t->expect = 0;
	}
	t->break_at = sim_magnitude(t->up_len + o->down_len + 40);
	o->break_at = sim_magnitude(t->up_len + o->down_len);
	c->flawed = t->way == C_RESET || t->way == C_VANISH ||
	    /* Each waits for the other. */
	    (t->way == C_READ_CLOSE && o->way == WAY_ANSWER_AFTER_EOF);
	o->flawed = o->way == WAY_RESET || o->way == WAY_VANISH;
}

void
tunnel_client_make(void)
{
	struct client *c = client_new(&tunnel_kind, sizeof(struct tunnel_client));
	struct tunnel_client *t = c->own;
	char name[64];

	t->o = origin_new(ORIGIN_TUNNEL);
	t->proto = (enum proto)sim_below(PROTOS);
	if (t->proto == SOCKS4 && t->o->at.ss_family != AF_INET)
		t->proto = SOCKS5;
	t->early = sim_chance(300);
	t->dribbles = sim_chance(200);
	t->pause_ns = sim_chance(200) ? 30 * SIM_S : 2 * SIM_S;
	if (t->early)
		seen(SEEN_EARLY_DATA);
	choose_route(t);
	choose_ways(c, t);
	origin_name(t->o, name);
	if (t->o->route == K_ROUTE_NORMAL && sim_chance(300))
		t->o->dead_addrs = (unsigned)sim_below(3);
	if ((t->proto == SOCKS5_NAME || t->proto == SOCKS4A) && sim_chance(100)) {
		snprintf(name, sizeof name, "%s", sim_chance(500) ? "none.sim" : "lame.sim");
		t->expect = name[0] == 'n' ? 4 : 6;
		t->o->route = K_ROUTE_NORMAL;
	}
	if (t->proto <= SOCKS5_NAME)
		make_socks5(t, name);
	else if (t->proto <= SOCKS4A)
		make_socks4(t, name);
	else
		make_connect(t, name);
	origin_listen(t->o);
	client_start(c);
}

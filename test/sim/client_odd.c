/* SPDX-License-Identifier: ISC */
/* Clients that say nothing, nonsense or too little, and those that lead back to the proxy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

enum odd {
	ODD_MUTE,		/* connects, and waits */
	ODD_PARTIAL,		/* part of a request, then waits */
	ODD_CLOSE,		/* part of a request, then closes */
	ODD_RESET,
	ODD_NOISE,
	ODD_WRONG,		/* malformed, refused, or a loop: with an answer that is known */
	ODDS
};

struct odd_client {
	enum odd	 odd;
	unsigned	 which;		/* of `wrong` */
	uint8_t		 out[600];
	size_t		 len, off;
	uint8_t		 in[2048];
	size_t		 got;
};

#define TEXT(s) { s, sizeof s - 1 }
static const struct { const char *text; size_t len; } beginnings[] = {
	TEXT("\5\2\0"), TEXT("\5\1\0\5\1\0\1\12"), TEXT("\4\1\0\120"), TEXT("\4\1\0\120\0\0\0\1me\0na"),
	TEXT("GET http://o1.sim/ HT"), TEXT("CONNECT o1.sim:80 HTTP/1.1\r\nHost: o1.si"),
	TEXT("POST http://o1.sim/r/1 HTTP/1.1\r\nHost: o1.sim\r\n")
};

/* What is wrong, and how the answer begins. */
static const struct { const char *text; size_t len; const char *answer; size_t answer_len; } wrong[] = {
#define WRONG(s, a) { s, sizeof s - 1, a, sizeof a - 1 }
	WRONG("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400"),
	WRONG("GET http://a/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400"),
	WRONG("GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP/1.1 400"),
	WRONG("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	    "HTTP/1.1 400"),
	WRONG("GET http://a/ HTTP/1.1\nHost: a\n\n", "HTTP/1.1 400"),
	WRONG("GET http://a/ HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", "HTTP/1.1 400"),
	WRONG("CONNECT a:65616 HTTP/1.1\r\nHost: a:65616\r\n\r\n", "HTTP/1.1 400"),
	WRONG("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n", "HTTP/1.1 400"),
	WRONG("GET http://a/ HTTP/1.1\r\nHost: a\r\nVia: 1.1 ringway-sim\r\n\r\n", "HTTP/1.1 508"),
	WRONG("GET http://127.0.0.1:1080/ HTTP/1.1\r\nHost: 127.0.0.1:1080\r\n\r\n", "HTTP/1.1 508"),
	WRONG("GET http://none.sim/ HTTP/1.1\r\nHost: none.sim\r\n\r\n", "HTTP/1.1 502"),
	WRONG("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 501"),
	WRONG("\5\1\2", "\5\377"),			/* only passwords */
	WRONG("\5\0", "\5\377"),
	WRONG("\5\1\0\5\2\0\1\12\1\0\1\0\120", "\5\0\5\7"),	/* BIND */
	WRONG("\5\1\0\5\1\0\5\12\1\0\1\0\120", "\5\0\5\10"),	/* no such address type */
	WRONG("\5\1\0\5\1\0\1\177\0\0\1\4\70", "\5\0\5\2"),	/* leads back to us */
	WRONG("\4\2\0\120\12\1\0\1me", "\0\133")		/* SOCKS4 BIND; the NUL of the text ends the name */
#undef WRONG
};

static void
saw_end(struct client *c, long rc)
{
	struct odd_client *o = c->own;
	uint64_t took = sim.now_ns - c->started_ns, want = limit_ns(world.conf->limits.handshake_timeout_s);

	o->in[o->got < sizeof o->in ? o->got : sizeof o->in - 1] = '\0';
	if (world.ideal && (o->odd == ODD_MUTE || o->odd == ODD_PARTIAL) &&
	    (took < want - SIM_S / 2 || took > want + 4 * SIM_S))
		sim_fail("client %u: a handshake timeout after %llu ms", c->id, (unsigned long long)(took / SIM_MS));
	if (world.ideal && o->odd == ODD_WRONG && (o->got < wrong[o->which].answer_len ||
	    memcmp(o->in, wrong[o->which].answer, wrong[o->which].answer_len) != 0))
		sim_fail("client %u: wrong request %u was answered (%ld) by %zu bytes, %02x %02x %02x %02x", c->id,
		    o->which, rc, o->got, o->in[0], o->in[1], o->in[2], o->in[3]);
	client_end(c, false);
}

static void
odd_act(struct client *c)
{
	struct odd_client *o = c->own;
	uint8_t buf[512];
	long n;

	while ((n = client_recv(c, buf, sizeof buf)) > 0) {
		size_t room = sizeof o->in - 1 - o->got, take = (size_t)n < room ? (size_t)n : room;

		memcpy(o->in + o->got, buf, take);
		o->got += take;
	}
	if (n != -EAGAIN) {
		saw_end(c, n);
		return;
	}
	client_send(c, o->out, o->len, &o->off);
	if (o->off == o->len && (o->odd == ODD_CLOSE || o->odd == ODD_RESET))
		client_end(c, o->odd == ODD_RESET);
}

static void
odd_free(struct client *c)
{
	if (world.ideal && !c->done)
		sim_fail("odd client %u did not come to its end", c->id);
}

static const struct client_kind odd_kind = { "odd", odd_act, odd_free };

void
odd_client_make(void)
{
	struct client *c = client_new(&odd_kind, sizeof(struct odd_client));
	struct odd_client *o = c->own;
	uint64_t i = sim_below(sizeof beginnings / sizeof beginnings[0]);

	c->flawed = true;
	o->odd = (enum odd)sim_below(ODDS);
	switch (o->odd) {
	case ODD_PARTIAL:
	case ODD_CLOSE:
	case ODD_RESET:
		memcpy(o->out, beginnings[i].text, o->len = 1 + sim_below(beginnings[i].len));
		break;
	case ODD_NOISE:
		o->len = 1 + sim_below(300);
		for (size_t k = 0; k < o->len; k++)
			o->out[k] = (uint8_t)sim_rand();
		/* Noise may well be the beginning of a request: SOCKS and letters are left to others. */
		o->out[0] = 0x80 | (uint8_t)sim_rand();
		break;
	case ODD_WRONG:
		o->which = (unsigned)sim_below(sizeof wrong / sizeof wrong[0]);
		o->len = wrong[o->which].len + (o->which == sizeof wrong / sizeof wrong[0] - 1);
		memcpy(o->out, wrong[o->which].text, o->len);
		break;
	default:
		break;
	}
	client_start(c);
}

/* SPDX-License-Identifier: ISC */
/* Clients that send requests with absolute URIs, one after the other or all at once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "world.h"

enum { REQUESTS_MAX = 4, PIECE_BYTES = 8192, HEAD_MAX = 4096, FAREWELL_TAKES = 60000 };
/* Constants of http/. */
enum { UPSTREAM_TIMEOUT_S = 60, KEEPALIVE_S = 60 };
static const uint64_t CONTINUE_NS = UINT64_C(1000000000);	/* RFC 9110 section 10.1.1: no client waits for ever */

enum http_end { E_STAY, E_CLOSE, E_HALF, E_RESET, E_VANISH, E_ENDS };

struct request {
	struct origin	*o;
	bool		 post, head, chunked, v10;
	bool		 spoilt;	/* its chunks end in nonsense */
	bool		 expects;	/* waits for 100 (Continue), for a while */
	size_t		 head_ends_at;	/* in the client's output */
	uint64_t	 body_len;
	size_t		 ends_at;
	uint64_t	 sent_ns;
};

/* Where the reading is in one answer. */
struct answer {
	char		 head[HEAD_MAX];
	size_t		 head_len;
	bool		 has_head, from_origin, chunked, until_close, closes;
	unsigned	 status;
	uint64_t	 left, got;	/* of the body; of the chunk */
	unsigned	 chunk_state;
};

struct http_client {
	struct request	 req[REQUESTS_MAX];
	unsigned	 count, at;	/* the answer to req[at] is being read */
	bool		 pipelined, slow;
	uint64_t	 pause_ns;	/* of a slow one */
	enum http_end	 end;
	uint64_t	 break_at;
	uint8_t		*out;
	size_t		 out_len, out_off;
	struct answer	 a;
	bool		 fin, finished;
	bool		 go_on;		/* the 100 that req[at] waits for has come, or its time is up */
	uint64_t	 got, waits_since_ns;
};

/* ---- requests ---- */

static void
put(struct http_client *h, const void *p, size_t len)
{
	h->out = sim_grow(h->out, h->out_len + len + 1);
	memcpy(h->out + h->out_len, p, len);
	h->out_len += len;
}

static void
put_text(struct http_client *h, const char *s)
{
	put(h, s, strlen(s));
}

static void
put_body(struct http_client *h, const struct request *r)
{
	uint8_t buf[2048];
	char size[24];

	for (uint64_t at = 0; at < r->body_len;) {
		size_t n = 1 + sim_below(sizeof buf);

		if (n > r->body_len - at)
			n = (size_t)(r->body_len - at);
		tag_fill(r->o->id, UP, at, buf, n);
		snprintf(size, sizeof size, "%zX%s\r\n", n, sim_chance(50) ? ";x=1" : "");
		if (r->chunked)
			put_text(h, size);
		put(h, buf, n);
		if (r->chunked)
			put_text(h, "\r\n");
		at += n;
	}
	if (r->chunked)
		put_text(h, r->spoilt ? "zz\r\n\r\n" : "0\r\n\r\n");
}

static void
put_request(struct http_client *h, struct request *r)
{
	struct addr a;
	char to[ADDR_TEXT_MAX], name[64], text[512];

	addr_from_sockaddr(&a, (struct sockaddr *)&r->o->at, r->o->atlen);
	addr_format(&a, to);
	origin_name(r->o, name);
	if (sim_chance(300))
		snprintf(to, sizeof to, "%.40s:%u", name, addr_port(&a));
	snprintf(text, sizeof text, "%s http://%s/r/%u HTTP/1.%d\r\nHost: %s\r\nX-Test: %u\r\n"
	    "Proxy-Connection: keep-alive\r\n%s", r->head ? "HEAD" : r->post ? "POST" : "GET", to, r->o->id,
	    !r->v10, to, r->o->id, r->v10 ? "Connection: keep-alive\r\n" : "");
	put_text(h, text);
	if (r->post && r->chunked)
		put_text(h, "Transfer-Encoding: chunked\r\n");
	else if (r->post) {
		snprintf(text, sizeof text, "Content-Length: %llu\r\n", (unsigned long long)r->body_len);
		put_text(h, text);
	}
	put_text(h, r->expects ? "Expect: 100-continue\r\n\r\n" : "\r\n");
	r->head_ends_at = h->out_len;
	if (r->post)
		put_body(h, r);
	r->ends_at = h->out_len;
}

/* ---- answers ---- */

static bool
promised(const struct client *c)
{
	const struct http_client *h = c->own;

	return world.ideal && !c->flawed && h->end <= E_HALF;
}

static const char *
field(const struct answer *a, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = strstr(a->head, "\r\n"); p != NULL; p = strstr(p, "\r\n")) {
		p += 2;
		if (strncasecmp(p, name, len) == 0 && p[len] == ':')
			return p + len + 1 + strspn(p + len + 1, " ");
	}
	return NULL;
}

/* The status that an ideal world owes; 0 = several are right. */
static unsigned
owed(const struct request *r)
{
	const struct origin *o = r->o;

	if (o->route == K_ROUTE_SILENT)
		return 504;
	if (o->route != K_ROUTE_NORMAL)
		return 502;
	switch (o->http) {
	case HTTP_NO_CONTENT:
		return 204;
	case HTTP_NOTHING:
	case HTTP_GARBAGE:
	case HTTP_SWITCH:
		return r->post ? 0 : 502;
	case HTTP_MUTE:
		return r->post ? 0 : 504;
	case HTTP_RESET_BODY:
		return 0;		/* the reset may overtake the head */
	default:
		return o->early && r->post ? 0 : 200;
	}
}

/* A 504 is neither early nor late. */
static void
check_patience(const struct client *c, const struct request *r)
{
	const struct http_client *h = c->own;
	uint64_t took = sim.now_ns - r->sent_ns, want;

	if (!promised(c) || h->a.status != 504 || h->slow || h->pipelined || r->post)
		return;
	if (r->o->route == K_ROUTE_SILENT)
		want = limit_ns(world.conf->limits.connect_timeout_s);
	else if (r->o->http == HTTP_MUTE)
		want = limit_ns(UPSTREAM_TIMEOUT_S);
	else
		return;
	if (took < want - SIM_S / 2 || took > want + 3 * SIM_S)
		sim_fail("client %u: 504 after %llu ms", c->id, (unsigned long long)(took / SIM_MS));
}

static void
got_head(struct client *c)
{
	struct http_client *h = c->own;
	struct answer *a = &h->a;
	const struct request *r = &h->req[h->at];
	const char *v, *cl = field(a, "content-length");
	unsigned want = owed(r);

	if (strncmp(a->head, "HTTP/1.1 ", 9) != 0)
		sim_fail("client %u got for an answer: %.40s", c->id, a->head);
	a->status = (unsigned)atoi(a->head + 9);
	if (a->status < 200) {
		if (r->v10)
			sim_fail("client %u is 1.0 and got %u", c->id, a->status);
		a->head_len = 0;
		h->go_on = h->go_on || a->status == 100;
		return;
	}
	a->has_head = true;
	check_patience(c, r);
	v = field(a, "x-origin");
	a->from_origin = v != NULL;
	if (v != NULL && (unsigned)atoi(v) != r->o->id)
		sim_fail("client %u got the answer of %d for %u", c->id, atoi(v), r->o->id);
	/* A slow one's pipelined head may take longer than a head may. */
	if (promised(c) && want != 0 && want != a->status && !(h->slow && h->pipelined))
		sim_fail("client %u: status %u, not %u (way %u)", c->id, a->status, want, r->o->http);
	if (!a->from_origin)
		seen(SEEN_HTTP_OWN);
	v = field(a, "connection");
	a->closes = (v != NULL && strncasecmp(v, "close", 5) == 0) || (r->v10 && v == NULL);
	a->chunked = (v = field(a, "transfer-encoding")) != NULL;
	if (a->chunked && (cl != NULL || r->v10))
		sim_fail("client %u: Transfer-Encoding where it must not be", c->id);
	a->left = cl != NULL ? strtoull(cl, NULL, 10) : 0;
	if (r->head || a->status == 204) {
		a->chunked = false;
		a->left = 0;
	} else if (!a->chunked && cl == NULL) {
		a->until_close = true;
		if (!a->closes)
			sim_fail("client %u: no framing, and no Connection: close", c->id);
	}
}

static bool
broken_off(const struct origin *o)
{
	return o->http >= HTTP_CUT_LENGTH && o->http <= HTTP_RESET_BODY;
}

static void
got_answer(struct client *c)
{
	struct http_client *h = c->own;
	struct answer *a = &h->a;
	struct request *r = &h->req[h->at];
	const struct origin *o = r->o;
	uint64_t want = r->head || o->http == HTTP_NO_CONTENT ? 0 : o->down_len;

	sim_note(SIM_T_CLIENT, c->id, 4, a->status);
	if (a->from_origin) {
		if (broken_off(o) && !r->head)
			sim_fail("client %u: an answer that was broken off looks whole", c->id);
		if (a->got != want)
			sim_fail("client %u: %llu bytes of %llu look whole", c->id,
			    (unsigned long long)a->got, (unsigned long long)want);
		seen(SEEN_HTTP_WHOLE);
		if (h->pipelined && h->at > 0)
			seen(SEEN_HTTP_PIPELINED);
		if (promised(c) && o->http == HTTP_LENGTH && !o->early && o->body_got != r->body_len)
			sim_fail("origin %u got %llu of %llu bytes of a body", o->id,
			    (unsigned long long)o->body_got, (unsigned long long)r->body_len);
	}
	if (a->closes || ++h->at == h->count)
		h->finished = true;
	h->go_on = false;
	h->waits_since_ns = 0;
	memset(a, 0, sizeof *a);
}

static void
body_bytes(struct client *c, const uint8_t *p, size_t len)
{
	struct http_client *h = c->own;

	if (h->a.from_origin)
		tag_check(h->req[h->at].o->id, DOWN, h->a.got, p, len);
	h->a.got += len;
}

/* One chunk-coded byte or run of data; true when the body is whole.  States as in origin_http.c. */
static bool
chunk_step(struct client *c, const uint8_t **p, size_t *len)
{
	struct answer *a = &((struct http_client *)c->own)->a;
	uint8_t b = **p;

	if (a->chunk_state == 1) {
		size_t n = *len < a->left ? *len : (size_t)a->left;

		body_bytes(c, *p, n);
		*p += n;
		*len -= n;
		if ((a->left -= n) == 0)
			a->chunk_state = 2;
		return false;
	}
	(*p)++;
	(*len)--;
	if (b == '\r')
		return false;
	if (a->chunk_state == 3 || a->chunk_state == 4) {	/* trailers end with an empty line */
		if (b == '\n' && a->chunk_state == 3)
			return true;
		a->chunk_state = b == '\n' ? 3 : 4;
		return false;
	}
	if (b == '\n')
		a->chunk_state = a->chunk_state == 2 ? 0 : a->left > 0 ? 1 : 3;
	else if (strchr("0123456789abcdefABCDEF", b) != NULL && b != 0)
		a->left = a->left * 16 + (uint64_t)strtol((char[]){ (char)b, 0 }, NULL, 16);
	else
		sim_fail("client %u: bad chunk size", c->id);
	return false;
}

static void
answer_bytes(struct client *c, const uint8_t *p, size_t len)
{
	struct http_client *h = c->own;
	struct answer *a = &h->a;

	while (len > 0 || (a->has_head && !a->chunked && !a->until_close && a->left == 0)) {
		if (h->finished) {
			if (len > 0)
				sim_fail("client %u: bytes behind the last answer", c->id);
			return;
		}
		if (!a->has_head) {
			if (a->head_len == HEAD_MAX - 1)
				sim_fail("client %u: the head does not end", c->id);
			a->head[a->head_len++] = (char)*p++;
			len--;
			a->head[a->head_len] = '\0';
			if (a->head_len >= 4 && memcmp(a->head + a->head_len - 4, "\r\n\r\n", 4) == 0)
				got_head(c);
		} else if (a->chunked) {
			if (chunk_step(c, &p, &len))
				got_answer(c);
		} else if (a->until_close) {
			body_bytes(c, p, len);
			len = 0;
		} else {
			size_t n = len < a->left ? len : (size_t)a->left;

			body_bytes(c, p, n);
			p += n;
			len -= n;
			if ((a->left -= n) == 0)
				got_answer(c);
		}
	}
}

/* ---- the end ---- */

/* The reset that tells of a cut takes with it what was sent before and not delivered yet. */
static bool
cut_later(const struct http_client *h)
{
	for (unsigned i = h->at; i < (h->pipelined ? h->count : h->at + 1); i++)
		if (broken_off(h->req[i].o))
			return true;
	return false;
}

/* An idle connection is kept for as long as it says, and ends at once in a drain. */
static void
check_keepalive(const struct client *c, long rc)
{
	const struct http_client *h = c->own;
	uint64_t idle = sim.now_ns - k_other(c->peer.f->end)->moved_ns;	/* by the proxy's kernel */

	if (!h->finished || h->at < h->count || rc < 0 || h->slow || h->end != E_STAY)
		return;
	if (promised(c) && !world.drained && (idle < limit_ns(KEEPALIVE_S) - SIM_S / 2 ||
	    idle > limit_ns(KEEPALIVE_S) + 3 * SIM_S))
		sim_fail("client %u: closed after %llu ms between two requests", c->id,
		    (unsigned long long)(idle / SIM_MS));
	if (world.drained && idle > 5 * SIM_S && sim.now_ns > world.drain_ns + 5 * SIM_S)
		sim_fail("client %u: idle, and still there %llu ms after a drain began", c->id,
		    (unsigned long long)((sim.now_ns - world.drain_ns) / SIM_MS));
}

static void
saw_end(struct client *c, long rc)
{
	struct http_client *h = c->own;
	const struct request *r = h->at < h->count ? &h->req[h->at] : NULL;

	if (rc == 0 && h->a.has_head && h->a.until_close)
		got_answer(c);		/* fails if it was broken off */
	if (!h->finished && h->a.has_head)
		seen(SEEN_HTTP_CUT);
	/* An answer is owed to each request that was sent whole; a cut only where the origin cut. */
	if (promised(c) && !h->finished && r != NULL && h->out_off >= r->ends_at) {
		unsigned want = owed(r);

		/*
		 * Nor does a farewell read a large body, or wait for ever; and a slow
		 * reader's connection looks idle once its kernel has everything.
		 */
		if (want != 0 && !cut_later(h) && !h->slow &&
		    h->out_len <= FAREWELL_TAKES)
			sim_fail("client %u: no answer (%ld) to request %u of %u, status %u was owed", c->id, rc,
			    h->at + 1, h->count, want);
	}
	check_keepalive(c, rc);
	if (promised(c) && h->finished && rc < 0 && !h->slow && h->out_len <= FAREWELL_TAKES)
		sim_fail("client %u: a reset behind the last answer", c->id);
	client_end(c, false);
}

static void
read_some(struct client *c)
{
	struct http_client *h = c->own;
	uint8_t buf[PIECE_BYTES];
	long n;

	while (c->peer.f != NULL) {
		n = client_recv(c, buf, h->slow ? 1000 : sizeof buf);
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			saw_end(c, n);
			return;
		}
		h->got += (uint64_t)n;
		world.active_ns = sim.now_ns;
		answer_bytes(c, buf, (size_t)n);
		if (h->slow && sim_chance(300))
			return;
	}
}

/* How far it may send now. */
static size_t
may_send(struct client *c)
{
	struct http_client *h = c->own;
	const struct request *r = &h->req[h->at];
	size_t end = h->out_len;

	if (h->at == h->count)
		return end;
	if (!h->pipelined)
		end = r->ends_at;
	if (r->expects && !h->pipelined && !h->go_on) {
		if (h->out_off >= r->head_ends_at && h->waits_since_ns == 0) {
			h->waits_since_ns = sim.now_ns;
			peer_poke_after(&c->peer, CONTINUE_NS);
		}
		h->go_on = h->waits_since_ns != 0 && sim.now_ns >= h->waits_since_ns + CONTINUE_NS;
		if (!h->go_on)
			end = r->head_ends_at;
	}
	if (h->slow && end > h->out_off + 1500)
		end = h->out_off + 1500;
	return end;
}

static void
http_act(struct client *c)
{
	struct http_client *h = c->own;
	size_t before = h->out_off;

	read_some(c);
	if (c->peer.f == NULL)
		return;
	if (!h->fin)
		client_send(c, h->out, may_send(c), &h->out_off);
	/* The head may have gone, and its body may wait. */
	if (h->out_off > before && !h->pipelined)
		(void)may_send(c);
	for (unsigned i = 0; i < h->count; i++)
		if (before < h->req[i].ends_at && h->out_off >= h->req[i].ends_at)
			h->req[i].sent_ns = sim.now_ns;
	if ((h->end == E_RESET || h->end == E_VANISH) && h->out_off + h->got >= h->break_at) {
		sim_note(SIM_T_CLIENT, c->id, 3, h->end);
		if (h->end == E_RESET)
			client_end(c, true);
		else
			c->vanished = true;
		return;
	}
	if (h->end == E_HALF && h->out_off == h->out_len && !h->fin) {
		h->fin = true;
		k_shutdown(c->peer.f, false, true);
	}
	if (h->finished && h->end == E_CLOSE) {
		client_end(c, false);
		return;
	}
	if (h->slow)
		peer_poke_after(&c->peer, sim_below(h->pause_ns));
}

static void
http_free(struct client *c)
{
	struct http_client *h = c->own;

	if (world.ideal && !c->done && !c->vanished)
		sim_fail("client %u did not come to its end: answer %u of %u", c->id, h->at, h->count);
	sim_free(h->out);
}

static const struct client_kind http_kind = { "http", http_act, http_free };

static void
make_request(struct http_client *h, struct request *r)
{
	struct origin *o = origin_new(ORIGIN_HTTP);

	r->o = o;
	r->head = sim_chance(100);
	r->post = !r->head && sim_chance(400);
	r->chunked = r->post && sim_chance(400);
	r->spoilt = r->chunked && sim_chance(50);
	r->v10 = !r->chunked && sim_chance(100);
	r->expects = r->post && !r->v10 && sim_chance(200);
	r->body_len = r->post ? sim_magnitude(h->slow ? 10000 : 100 * 1024) : 0;
	o->up_len = r->body_len;
	o->down_len = 1 + sim_magnitude(h->slow ? 10000 : 100 * 1024);
	o->http = sim_chance(750) ? (enum http_way)sim_below(HTTP_CUT_LENGTH) : (enum http_way)sim_below(HTTP_WAYS);
	o->early = r->post && sim_chance(200);
	o->rude = o->early && sim_chance(400);
	if (o->rude && sim_chance(500))		/* its reset and the end of its answer race */
		o->http = HTTP_CLOSE;
	if (sim_chance(70))
		o->route = (enum kroute)sim_between(K_ROUTE_REFUSED, K_ROUTE_SILENT);
	else if (sim_chance(100))
		o->dead_addrs = (unsigned)sim_below(3);
	origin_listen(o);
	put_request(h, r);
}

void
http_client_make(void)
{
	struct client *c = client_new(&http_kind, sizeof(struct http_client));
	struct http_client *h = c->own;

	h->count = 1 + (unsigned)sim_below(REQUESTS_MAX);
	h->pipelined = sim_chance(350);
	h->slow = sim_chance(100);
	/* A trickle is activity: there is no limit on the whole. */
	h->pause_ns = sim_chance(300) ? 30 * SIM_S : 2 * SIM_S;
	h->end = sim_chance(850) ? (enum http_end)sim_below(E_RESET) : (enum http_end)sim_below(E_ENDS);
	for (unsigned i = 0; i < h->count; i++)
		make_request(h, &h->req[i]);
	/* An origin that answers before it has read a body may end the connection before the next request. */
	for (unsigned i = 0; i < h->count; i++)
		c->flawed = c->flawed || h->req[i].o->early || h->req[i].spoilt;
	h->break_at = sim_magnitude(h->out_len + 20000);
	if (world.hogs && sim_chance(700)) {
		h->end = E_VANISH;
		h->break_at = h->out_len;
	}
	client_start(c);
}

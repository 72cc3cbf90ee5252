/* SPDX-License-Identifier: ISC */
/* HTTP origins: one request, one of many kinds of answer. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PIECE_BYTES = 4096, CHUNK_MAX = 3000 };

/* ---- the request ---- */

static const char *
field(const struct origin *o, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = strstr(o->head, "\r\n"); p != NULL; p = strstr(p, "\r\n")) {
		p += 2;
		if (strncasecmp(p, name, len) == 0 && p[len] == ':')
			return p + len + 1 + strspn(p + len + 1, " ");
	}
	return NULL;
}

static void
check_head(struct origin *o)
{
	char path[64];
	const char *v, *cl = field(o, "content-length");

	snprintf(path, sizeof path, " /r/%u HTTP/1.1\r\n", o->id);
	if (strstr(o->head, path) == NULL)
		sim_fail("origin %u got another's request: %.60s", o->id, o->head);
	if ((v = field(o, "via")) == NULL || strstr(v, "ringway-sim") == NULL)
		sim_fail("origin %u: no Via", o->id);
	if (field(o, "proxy-authorization") != NULL || field(o, "proxy-connection") != NULL)
		sim_fail("origin %u got a field that was meant for the proxy", o->id);
	o->chunked = (v = field(o, "transfer-encoding")) != NULL;
	if (o->chunked && cl != NULL)
		sim_fail("origin %u: both Transfer-Encoding and Content-Length", o->id);
	o->body_len = cl != NULL ? strtoull(cl, NULL, 10) : 0;
	if (!o->chunked && o->body_len != o->up_len)
		sim_fail("origin %u: a body of %llu bytes is announced, %llu were meant", o->id,
		    (unsigned long long)o->body_len, (unsigned long long)o->up_len);
	o->request_whole = !o->chunked && o->body_len == 0;
	o->expects = field(o, "expect") != NULL && !o->early;
}

static void
body_bytes(struct origin *o, const uint8_t *p, size_t len)
{
	tag_check(o->id, UP, o->body_got, p, len);
	o->body_got += len;
}

/* chunk_state: 0 size, 1 data, 2 CRLF after data, 3 trailer's CRLF, 4 extension. */
static void
chunk_bytes(struct origin *o, const uint8_t *p, size_t len)
{
	while (len > 0 && !o->request_whole) {
		if (o->chunk_state == 1) {
			size_t n = len < o->chunk_left ? len : (size_t)o->chunk_left;

			body_bytes(o, p, n);
			p += n;
			len -= n;
			if ((o->chunk_left -= n) == 0)
				o->chunk_state = 2;
			continue;
		}
		if (*p == '\n') {
			if (o->chunk_state == 3)
				o->request_whole = true;
			else
				o->chunk_state = o->chunk_state == 2 ? 0 : o->chunk_left > 0 ? 1 : 3;
		} else if (o->chunk_state == 0 && *p == ';') {
			o->chunk_state = 4;
		} else if (o->chunk_state == 0 && *p != '\r') {
			if (strchr("0123456789abcdefABCDEF", *p) == NULL)
				sim_fail("origin %u: bad chunk size", o->id);
			o->chunk_left = o->chunk_left * 16 + (uint64_t)strtol((char[]){ (char)*p, 0 }, NULL, 16);
		}
		p++;
		len--;
	}
	if (len > 0)
		sim_fail("origin %u: bytes behind the request", o->id);
}

static void
request_bytes(struct origin *o, const uint8_t *p, size_t len)
{
	if (o->head_end == 0) {
		size_t n = sizeof o->head - 1 - o->head_len < len ? sizeof o->head - 1 - o->head_len : len, take;
		char *end;

		memcpy(o->head + o->head_len, p, n);
		o->head[o->head_len + n] = '\0';
		if ((end = strstr(o->head, "\r\n\r\n")) == NULL) {
			if ((o->head_len += n) == sizeof o->head - 1)
				sim_fail("origin %u: the head does not end", o->id);
			return;
		}
		o->head_end = (size_t)(end - o->head) + 4;
		take = o->head_end - o->head_len;
		o->head[o->head_end] = '\0';
		p += take;
		len -= take;
		check_head(o);
	}
	if (o->chunked)
		chunk_bytes(o, p, len);
	else {
		if (o->body_got + len > o->body_len)
			sim_fail("origin %u: bytes behind the request", o->id);
		body_bytes(o, p, len);
		o->request_whole = o->body_got == o->body_len;
	}
}

/* ---- the answer ---- */

static void
put(struct origin *o, const void *p, size_t len)
{
	o->answer = sim_grow(o->answer, o->answer_len + len + 1);
	memcpy(o->answer + o->answer_len, p, len);
	o->answer_len += len;
}

static void
put_text(struct origin *o, const char *s)
{
	put(o, s, strlen(s));
}

static void
put_body(struct origin *o, uint64_t len, bool chunked)
{
	uint8_t buf[CHUNK_MAX];
	char size[16];

	for (uint64_t at = 0; at < len;) {
		size_t n = 1 + sim_below(CHUNK_MAX);

		if (n > len - at)
			n = (size_t)(len - at);
		tag_fill(o->id, DOWN, at, buf, n);
		snprintf(size, sizeof size, "%zx\r\n", n);
		if (chunked)
			put_text(o, size);
		put(o, buf, n);
		if (chunked)
			put_text(o, "\r\n");
		at += n;
	}
}

static void
make_answer(struct origin *o)
{
	bool chunked = o->http == HTTP_CHUNKED || o->http == HTTP_CUT_CHUNKED || o->http == HTTP_BAD_CHUNK;
	bool length = o->http == HTTP_LENGTH || o->http == HTTP_EXCESS || o->http == HTTP_INTERIM || o->http == HTTP_CUT_LENGTH ||
	    (o->http == HTTP_RESET_BODY && o->id % 2 == 0);
	uint64_t body = o->is_head || o->http == HTTP_NO_CONTENT ? 0 : o->down_len;
	char text[256];

	if (o->http == HTTP_GARBAGE) {
		put_text(o, sim_chance(500) ? "SSH-2.0-OpenSSH\r\n\r\n" : "HTTP/1.1 200 OK\r\nBad header\r\n\r\n");
		return;
	}
	if (o->http == HTTP_SWITCH) {
		put_text(o, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
		return;
	}
	if (o->http == HTTP_INTERIM)
		for (uint64_t n = 1 + sim_below(3); n > 0; n--)
			put_text(o, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
	snprintf(text, sizeof text, "HTTP/1.1 %s\r\nX-Origin: %u\r\n",
	    o->http == HTTP_NO_CONTENT ? "204 No Content" : "200 OK", o->id);
	put_text(o, text);
	if (length) {
		snprintf(text, sizeof text, "Content-Length: %llu\r\n", (unsigned long long)o->down_len);
		put_text(o, text);
	} else if (chunked)
		put_text(o, "Transfer-Encoding: chunked\r\n");
	put_text(o, "\r\n");
	if (o->http >= HTTP_CUT_LENGTH && o->http <= HTTP_RESET_BODY)
		body = body > 1 ? sim_below(body) : 0;
	put_body(o, body, chunked);
	if (o->http == HTTP_BAD_CHUNK && !o->is_head)
		put_text(o, sim_chance(500) ? "xyz\r\nabc\r\n0\r\n\r\n" : "fffffffffffffffff\r\n");
	if (o->http == HTTP_EXCESS)
		put_text(o, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray");
	if (o->http == HTTP_CHUNKED && !o->is_head)
		put_text(o, sim_chance(200) ? "0\r\nX-Trailer: t\r\n\r\n" : "0\r\n\r\n");
}

static void
broke(struct origin *o, long err)
{
	sim_note(SIM_T_ORIGIN, o->id, 3, err);
	o->saw_rst = true;
	peer_end(&o->conn, false);
}

static void
read_request(struct origin *o)
{
	uint8_t buf[PIECE_BYTES];
	long n;

	while ((n = k_recv(o->conn.f, buf, sizeof buf, false)) > 0) {
		world.active_ns = sim.now_ns;
		request_bytes(o, buf, (size_t)n);
	}
	if (n == 0)
		o->saw_fin = true;
	else if (n != -EAGAIN)
		broke(o, n);
}

static void
send_all(struct origin *o, const char *p, size_t len)
{
	while (len > 0) {
		long n = k_send(o->conn.f, p, len);

		if (n < 0) {
			broke(o, n);
			return;
		}
		p += n;
		len -= (size_t)n;
	}
}

static void
send_answer(struct origin *o)
{
	while (o->sent < o->answer_len) {
		long n = k_send(o->conn.f, o->answer + o->sent, o->answer_len - o->sent);

		if (n == -EAGAIN)
			return;
		if (n < 0) {
			broke(o, n);
			return;
		}
		o->sent += (uint64_t)n;
		world.active_ns = sim.now_ns;
	}
	if (o->http == HTTP_RESET_BODY) {
		o->sent_rst = true;
		peer_end(&o->conn, true);
		return;
	}
	/* One with a length may leave the closing to the proxy. */
	if (o->http == HTTP_LENGTH && o->id % 3 == 0 && !o->saw_fin)
		return;
	if (!o->sent_fin)
		k_shutdown(o->conn.f, false, true);
	o->sent_fin = true;
	/* It closes only when all of the request was read: else the kernel would reset, and cut its own answer. */
	if (o->saw_fin || o->request_whole || o->rude)
		peer_end(&o->conn, false);
}

void
origin_http_act(struct peer *p)
{
	struct origin *o = io_container_of(p, struct origin, conn);

	read_request(o);
	if (o->expects && p->f != NULL && o->http != HTTP_MUTE) {	/* a hundred bytes always fit here */
		static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

		o->expects = false;
		if (o->id % 4 != 0)
			send_all(o, go_on, sizeof go_on - 1);
	}
	if (p->f == NULL || o->head_end == 0 || o->http == HTTP_MUTE) {
		if (p->f != NULL && o->saw_fin)
			peer_end(p, false);
		return;
	}
	if (!o->request_whole && !o->early) {
		if (o->saw_fin)		/* it will never be whole */
			peer_end(p, false);
		return;
	}
	if (o->http == HTTP_NOTHING) {
		peer_end(p, sim_chance(300));
		return;
	}
	if (!o->answering) {
		o->answering = true;
		o->is_head = strncmp(o->head, "HEAD ", 5) == 0;
		make_answer(o);
	}
	send_answer(o);
}

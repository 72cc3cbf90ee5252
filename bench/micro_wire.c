/* SPDX-License-Identifier: ISC */
/* What each request costs on its way in and out: SOCKS5, HTTP heads, log lines. */
#include "micro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"
#include "proto/socks5.h"
#include "util/accessline.h"

/* ---- SOCKS5 requests ----------------------------------------------------- */

enum { SOCKS_INPUTS = 512, SOCKS_INPUT_MAX = 64 };

struct socks_inputs {
	char		bytes[SOCKS_INPUTS][SOCKS_INPUT_MAX];
	struct span	in[SOCKS_INPUTS];
};

static void *
socks_ipv4_new(void)
{
	struct socks_inputs *s = micro_alloc(sizeof(*s));

	for (size_t i = 0; i < SOCKS_INPUTS; i++) {
		struct socks5_request request;
		char *at = s->bytes[i];
		uint32_t ip = (uint32_t)micro_random();
		uint16_t port = (uint16_t)(1 + micro_below(65535));

		memcpy(at, (const char[]){ 5, SOCKS5_CONNECT, 0, SOCKS5_ATYP_IPV4 }, 4);
		memcpy(at + 4, &ip, 4);
		memcpy(at + 8, &port, 2);
		s->in[i] = span_of(at, 10);
		micro_must(socks5_parse_request(s->in[i], &request) == SOCKS5_OK &&
		    request.used == 10 && request.target.addr.in.sin_addr.s_addr == ip &&
		    request.target.port == ntohs(port), "SOCKS5 request for IPv4");
	}
	return s;
}

static void *
socks_domain_new(void)
{
	struct socks_inputs *s = micro_alloc(sizeof(*s));

	for (size_t i = 0; i < SOCKS_INPUTS; i++) {
		struct socks5_request request;
		char *at = s->bytes[i], name[SOCKS_INPUT_MAX - 8];
		int len = snprintf(name, sizeof(name), "%s%u.example%u.%s",
		    i % 3 != 0 ? "www" : "img-cdn", micro_below(100), micro_below(1000),
		    i % 2 != 0 ? "com" : "co.uk");

		memcpy(at, (const char[]){ 5, SOCKS5_CONNECT, 0, SOCKS5_ATYP_DOMAIN, (char)len }, 5);
		memcpy(at + 5, name, (size_t)len);
		memcpy(at + 5 + len, "\001\273", 2);
		s->in[i] = span_of(at, (size_t)len + 7);
		micro_must(socks5_parse_request(s->in[i], &request) == SOCKS5_OK &&
		    request.target.port == 443 && strcmp(request.target.host, name) == 0,
		    "SOCKS5 request for a domain");
	}
	return s;
}

static uint64_t
socks_run(void *inputs, size_t calls)
{
	struct socks_inputs *s = inputs;
	struct socks5_request request;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		sum += socks5_parse_request(s->in[i % SOCKS_INPUTS], &request);
		sum += request.used + request.target.port + request.target.addr.in.sin_addr.s_addr;
	}
	return sum;
}

/* ---- HTTP heads ------------------------------------------------------------ */

enum { HEADS = 64, HEAD_MAX = 1024, FIELDS = 8 };

struct heads {
	char			bytes[HEADS][HEAD_MAX];
	struct span		in[HEADS];
	struct http1_field	fields[HEADS][FIELDS];
	struct http1_head	head[HEADS];
	struct http1_where	where[HEADS];
	struct http1_framing	framing[HEADS];
};

static void
head_parse(struct heads *h, size_t i)
{
	http1_head_init(&h->head[i], h->fields[i], FIELDS, HEAD_MAX);
	micro_must(http1_parse_request(&h->head[i], h->in[i]) == HTTP1_OK &&
	    h->head[i].field_count == FIELDS && h->head[i].used == h->in[i].len,
	    "HTTP head of eight fields");
	micro_must(http1_request_target(&h->head[i], &h->where[i]) == HTTP1_OK &&
	    h->where[i].target.port == 80 && h->where[i].path.base[0] == '/', "HTTP target");
	http1_request_body(&h->head[i], &h->framing[i]);
	micro_must(h->framing[i].body == HTTP1_BODY_NONE, "HTTP framing");
}

/* What browsers send to a proxy: about 400 bytes. */
static void *
heads_new(void)
{
	static const char *const agents[] = {
		"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0.0.0",
		"curl/8.5.0", "Wget/1.21.4",
	};
	struct heads *h = micro_alloc(sizeof(*h));

	for (size_t i = 0; i < HEADS; i++) {
		unsigned host = micro_below(1000);
		int len = snprintf(h->bytes[i], HEAD_MAX,
		    "GET http://www.example%u.com/articles/%u/index.html?page=%u HTTP/1.1\r\n"
		    "Host: www.example%u.com\r\n"
		    "User-Agent: %s\r\n"
		    "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"
		    "Accept-Language: en-GB,en;q=0.5\r\n"
		    "Accept-Encoding: gzip, deflate\r\n"
		    "%s: session=%016llx\r\n"
		    "Referer: http://www.example%u.com/\r\n"
		    "Proxy-Connection: keep-alive\r\n\r\n",
		    host, micro_below(100000), micro_below(100), host,
		    agents[i % (sizeof(agents) / sizeof(agents[0]))],
		    i % 3 != 0 ? "Cookie" : "X-Request-Id", (unsigned long long)micro_random(), host);

		h->in[i] = span_of(h->bytes[i], (size_t)len);
		head_parse(h, i);
	}
	return h;
}

/* As the proxy does it: one array of fields for all. */
static uint64_t
head_run(void *inputs, size_t calls)
{
	struct heads *h = inputs;
	struct http1_field fields[FIELDS];
	struct http1_head head;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		http1_head_init(&head, fields, FIELDS, HEAD_MAX);
		sum += http1_parse_request(&head, h->in[i % HEADS]);
		sum += head.used + head.seen + fields[i % FIELDS].value.len;
	}
	return sum;
}

static uint64_t
target_run(void *inputs, size_t calls)
{
	struct heads *h = inputs;
	struct http1_where where;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		sum += http1_request_target(&h->head[i % HEADS], &where);
		sum += where.path.len + where.target.host_len;
	}
	return sum;
}

static uint64_t
write_run(void *inputs, size_t calls)
{
	static const struct http1_write_opts opts = { .via = HTTP1_PSEUDONYM };
	struct heads *h = inputs;
	char out[2 * HEAD_MAX];
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		size_t n = i % HEADS;

		sum += (uint64_t)http1_write_request(&h->head[n], &h->where[n], &h->framing[n], &opts,
		    out, sizeof(out));
		sum += (uint8_t)out[i % 64];
	}
	return sum;
}

/* Literal addresses in place of names: parsed and written as text. */
static void *
heads_ipv4_new(void)
{
	struct heads *h = micro_alloc(sizeof(*h));

	for (size_t i = 0; i < HEADS; i++) {
		char host[32];
		int len;

		snprintf(host, sizeof(host), "%u.%u.%u.%u", micro_below(224), micro_below(256),
		    micro_below(256), micro_below(256));
		len = snprintf(h->bytes[i], HEAD_MAX, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n"
		    "Accept: */*\r\nAge: 1\r\nDate: 2\r\nRange: 3\r\nPragma: 4\r\nVary: 5\r\n"
		    "Allow: 6\r\n\r\n", host, host);
		h->in[i] = span_of(h->bytes[i], (size_t)len);
		head_parse(h, i);
	}
	return h;
}

/* ---- access log ------------------------------------------------------------ */

enum { ENTRIES = 256 };

struct entries {
	struct access_entry	e[ENTRIES];
	struct addr		client[ENTRIES], upstream[ENTRIES];
	char			target[ENTRIES][64], host[ENTRIES][32];
};

static void *
entries_new(void)
{
	struct entries *n = micro_alloc(sizeof(*n));
	struct access_clock clock = { 0 };
	char out[ACCESS_LINE_MAX];

	for (size_t i = 0; i < ENTRIES; i++) {
		struct access_entry *e = &n->e[i];

		n->client[i].in.sin_family = n->upstream[i].in.sin_family = AF_INET;
		n->client[i].in.sin_addr.s_addr = (uint32_t)micro_random();
		n->upstream[i].in.sin_addr.s_addr = (uint32_t)micro_random();
		n->upstream[i].in.sin_port = htons(80);
		n->client[i].len = n->upstream[i].len = sizeof(n->client[i].in);
		snprintf(n->host[i], sizeof(n->host[i]), "www.example%u.com:80", micro_below(1000));
		snprintf(n->target[i], sizeof(n->target[i]), "http://%.26s/articles/%u", n->host[i],
		    micro_below(100000));
		*e = (struct access_entry){
			.start_us = 1785000000000000u + i * 1000, .dur_us = micro_below(100000),
			.client = &n->client[i], .upstream = &n->upstream[i], .method = span_str("GET"),
			.target = span_str(n->target[i]), .version = span_str("HTTP/1.1"),
			.host = span_str(n->host[i]), .status = 200, .bytes = micro_below(1000000),
			.up = micro_below(1000), .acl = ACCESS_ACL_ALLOW, .rule = span_str("default"),
			.proto = "http", .id = i * 7919
		};
		out[access_line(e, ACCESS_TEXT, &clock, out) - 1] = '\0';
		micro_must(strstr(out, n->target[i]) != NULL && strstr(out, " status=200 ") != NULL,
		    "access log line");
	}
	return n;
}

static uint64_t
entries_run(struct entries *n, enum access_format format, size_t calls)
{
	struct access_clock clock = { 0 };
	char out[ACCESS_LINE_MAX];
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		sum += access_line(&n->e[i % ENTRIES], format, &clock, out);
		sum += (uint8_t)out[i % 64];
	}
	return sum;
}

static uint64_t
text_run(void *inputs, size_t calls)
{
	return entries_run(inputs, ACCESS_TEXT, calls);
}

static uint64_t
json_run(void *inputs, size_t calls)
{
	return entries_run(inputs, ACCESS_JSON, calls);
}

const struct micro micro_wire[] = {
	{ "socks_request", "parse a SOCKS5 request for an IPv4 address", socks_ipv4_new, socks_run,
	    free },
	{ "socks_request_domain", "parse a SOCKS5 request for a name", socks_domain_new, socks_run,
	    free },
	{ "http_head_8", "parse a request's head of 8 fields", heads_new, head_run, free },
	{ "http_target", "where an absolute URI leads, Host checked", heads_new, target_run, free },
	{ "http_target_ipv4", "the same with an address as host", heads_ipv4_new, target_run, free },
	{ "http_write_head", "write the head that is forwarded, 8 fields", heads_new, write_run,
	    free },
	{ "http_write_head_ipv4", "the same to an address, short fields", heads_ipv4_new, write_run,
	    free },
	{ "access_line", "format a line of the access log", entries_new, text_run, free },
	{ "access_line_json", "the same as JSON", entries_new, json_run, free },
	{ .name = NULL }
};

/* SPDX-License-Identifier: ISC */
/* What a worker keeps for itself: its pool of buffers, its cache of names, destinations of datagrams. */
#include "micro.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "net/dnscache.h"
#include "proto/socks5_udp.h"
#include "relay/udp_dest.h"

/* ---- pool ------------------------------------------------------------------ */

enum {
	BLOCK_BYTES = 16384,
	BLOCKS = 1024,
	HELD = 16		/* lent at any time, the oldest goes home first */
};

struct pool {
	struct io_loop	*loop;
	struct io_pool	*pool;
	struct io_buf	 held[HELD];
};

static void *
pool_of(const char *backend)
{
	struct pool *p = micro_alloc(sizeof(*p));
	struct io_choice choice;
	struct io_config config = { .choice = &choice };

	micro_must(io_choose(&choice, backend, -1) == 0, "choice of a backend");
	micro_must(io_loop_new(&p->loop, &config) == 0 &&
	    io_pool_new(&p->pool, p->loop, BLOCK_BYTES, BLOCKS, BLOCKS / 16) == 0, "loop and pool");
	for (size_t i = 0; i < HELD; i++) {
		micro_must(io_buf_get(p->pool, 0, &p->held[i]) && p->held[i].cap == BLOCK_BYTES,
		    "block of the pool");
		memset(p->held[i].base, (int)i, BLOCK_BYTES);
	}
	micro_must(io_pool_stats(p->pool).lent == HELD && p->held[0].base[0] == 0, "blocks lent");
	return p;
}

static void *
pool_new(void)
{
	return pool_of("auto");
}

static void
pool_free(void *inputs)
{
	struct pool *p = inputs;

	for (size_t i = 0; i < HELD; i++)
		io_buf_put(p->pool, &p->held[i]);
	io_pool_free(p->pool);
	io_loop_free(p->loop);
	free(p);
}

static uint64_t
pool_run(void *inputs, size_t calls)
{
	struct pool *p = inputs;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		struct io_buf *buf = &p->held[i % HELD];

		io_buf_put(p->pool, buf);
		sum += io_buf_get(p->pool, 0, buf);
		sum += buf->cap;
	}
	return sum;
}

/* ---- names ----------------------------------------------------------------- */

enum { NAMES = 1024 };

struct names {
	struct dnscache	*cache;
	char		 text[NAMES][32];
	struct span	 name[NAMES];
};

static void
names_free(void *inputs)
{
	struct names *n = inputs;

	dnscache_free(n->cache);
	free(n);
}

static void *
names_new(void)
{
	struct names *n = micro_alloc(sizeof(*n));
	struct addr addr = { .in = { .sin_family = AF_INET }, .len = sizeof(struct sockaddr_in) };

	n->cache = dnscache_new(micro_random(), NAMES);
	micro_must(n->cache != NULL, "out of memory");
	for (size_t i = 0; i < NAMES; i++) {
		struct dns_answer *answer = dns_answer_new(RESOLVE_OK, &addr, 1);
		struct dns_entry *entry;

		snprintf(n->text[i], sizeof(n->text[i]), "www%zu.example.com", i);
		n->name[i] = span_str(n->text[i]);
		entry = dnscache_get(n->cache, n->name[i], false);
		micro_must(answer != NULL && entry != NULL, "out of memory");
		dnscache_set_pending(n->cache, entry);
		dnscache_settle(n->cache, entry, answer);
		dns_answer_unref(answer);
	}
	for (size_t i = 0; i < NAMES; i++) {
		struct dns_entry *entry = dnscache_get(n->cache, n->name[i], false);

		micro_must(entry != NULL && strcmp(entry->name, n->text[i]) == 0 &&
		    entry->answer != NULL, "answer in the cache");
	}
	return n;
}

static uint64_t
names_run(void *inputs, size_t calls)
{
	struct names *n = inputs;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++)
		sum += dnscache_get(n->cache, n->name[i % NAMES], false)->answer->count;
	return sum;
}

/* ---- datagrams --------------------------------------------------------------- */

enum { DESTS = 256 };

struct dests {
	struct udp_dests	table;
	uint8_t			datagram[DESTS][32];
	size_t			len[DESTS];
};

static void
dests_free(void *inputs)
{
	struct dests *d = inputs;

	udp_dests_free(&d->table);
	free(d);
}

static void *
dests_new(void)
{
	struct dests *d = micro_alloc(sizeof(*d));

	udp_dests_init(&d->table, micro_random());
	for (size_t i = 0; i < DESTS; i++) {
		struct addr addr = { .in = { .sin_family = AF_INET, .sin_port = htons(53),
		    .sin_addr = { (uint32_t)micro_random() } }, .len = sizeof(addr.in) };
		struct socks5_udp_head head;
		union udp_key key;

		d->len[i] = socks5_udp_write(&addr, d->datagram[i]) + 4;
		micro_must(socks5_udp_parse(span_of(d->datagram[i], d->len[i]), &head) == SOCKS5_UDP_OK &&
		    addr_same_ip(&head.target.addr, &addr), "header of a datagram");
		micro_must(udp_key_of_header(d->datagram[i], d->len[i], &key), "key of a datagram");
		micro_must(udp_dest_find(&d->table, &key) == NULL &&
		    udp_dest_add(&d->table, &key, DESTS, 1, UINT64_MAX, 1) != NULL &&
		    udp_dest_find(&d->table, &key) != NULL, "destination of a datagram");
	}
	return d;
}

static uint64_t
udp_parse_run(void *inputs, size_t calls)
{
	struct dests *d = inputs;
	struct socks5_udp_head head;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		sum += socks5_udp_parse(span_of(d->datagram[i % DESTS], d->len[i % DESTS]), &head);
		sum += head.header_len + head.target.addr.in.sin_addr.s_addr;
	}
	return sum;
}

static uint64_t
udp_dest_run(void *inputs, size_t calls)
{
	struct dests *d = inputs;
	union udp_key key;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++) {
		sum += udp_key_of_header(d->datagram[i % DESTS], d->len[i % DESTS], &key);
		sum += udp_dest_find(&d->table, &key)->last_ns;
	}
	return sum;
}

const struct micro micro_loop[] = {
	{ "pool", "a block back to the pool and another out of it", pool_new, pool_run, pool_free },
	{ "dns_cache_hit", "one of 1,024 names that are in the cache", names_new, names_run,
	    names_free },
	{ "udp_header", "parse a SOCKS5 datagram's header, IPv4", dests_new, udp_parse_run, dests_free },
	{ "udp_dest", "from header to one of 256 destinations", dests_new, udp_dest_run, dests_free },
	{ .name = NULL }
};

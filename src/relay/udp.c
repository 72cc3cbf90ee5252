/* SPDX-License-Identifier: ISC */
/* An association's life, and what is done with each datagram that comes. */
#include "relay/udp_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	BIG_BATCH = 4	/* from here on a small out would be full too soon */
};

/* ---- what the associations of a worker share ---- */

int
udp_worker_new(struct udp_worker **out, struct env *env)
{
	struct udp_worker *w = calloc(1, sizeof *w);

	if (w == NULL)
		return -ENOMEM;
	w->env = env;
	w->gso_segments = udpsock_gso_segments();
	if (w->gso_segments > UDP_OUT_SEGMENTS_MAX)
		w->gso_segments = UDP_OUT_SEGMENTS_MAX;
	w->held_max = io_pool_stats(env->udp_pool).ceiling / UDP_HELD_SHARE;
	if (w->held_max > UDP_HELD_MAX)
		w->held_max = UDP_HELD_MAX;
	w->next_serial = 1;
	if (getrandom(&w->seed, sizeof w->seed, 0) != (ssize_t)sizeof w->seed || udp_send_spare(w) != 0) {
		udp_worker_free(w);
		return -ENOMEM;
	}
	*out = w;
	return 0;
}

void
udp_worker_free(struct udp_worker *w)
{
	if (w == NULL)
		return;
	for (int size = 0; size < UDP_OUT_SIZES; size++) {
		for (struct udp_out *o = w->spare[size], *next; o != NULL; o = next) {
			next = o->next;
			udp_out_free(o);
		}
	}
	free(w);
}

/* ---- who it is from ---- */

/* `from` has an address of the socket's own family, and so has `peer`. */
static inline bool
is_from(const struct sockaddr_storage *from, const struct addr *peer)
{
	if (from->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;

		return peer->in6.sin6_port == in6->sin6_port && peer->sa.sa_family == AF_INET6 &&
		    memcmp(&peer->in6.sin6_addr, &in6->sin6_addr, sizeof in6->sin6_addr) == 0 &&
		    peer->in6.sin6_scope_id == in6->sin6_scope_id;
	} else {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;

		return peer->in.sin_port == in->sin_port && peer->sa.sa_family == AF_INET &&
		    peer->in.sin_addr.s_addr == in->sin_addr.s_addr;
	}
}

static void
addr_of(struct addr *out, const struct io_dgram *d)
{
	addr_from_sockaddr(out, (const struct sockaddr *)(const void *)&d->peer, d->peerlen);
}

/* As many as GRO put together. */
static inline unsigned
datagrams_in(const struct io_dgram *d)
{
	return d->gso != 0 ? (d->buf.len + d->gso - 1) / d->gso : 1;
}

/* The destination that it came from, or NULL. */
static struct udp_dest *
find_source(struct udp_assoc *a, const struct io_dgram *d)
{
	struct udp_dest *dest = a->last_down;
	struct addr from;
	union udp_key key;

	if (dest != NULL && is_from(&d->peer, &dest->peer.to))
		return dest;
	if (a->dests.count == 0)
		return NULL;
	addr_of(&from, d);
	if (from.len == 0)
		return NULL;
	key = udp_key_of_addr(&from);
	if ((dest = udp_dest_find(&a->dests, &key)) != NULL)
		a->last_down = dest;
	return dest;
}

/* To answer from the address that the client sends to: on a machine with several only that one is let in. */
static inline void
note_local(struct udp_assoc *a, const struct io_dgram *d)
{
	struct addr *local = &a->client.local;

	if (d->local.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&d->local;

		if (local->len == sizeof *in6 &&
		    memcmp(&local->in6.sin6_addr, &in6->sin6_addr, sizeof in6->sin6_addr) == 0 &&
		    local->in6.sin6_scope_id == in6->sin6_scope_id)
			return;
		local->in6 = *in6;
		local->len = sizeof *in6;
	} else if (d->local.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&d->local;

		if (local->len == sizeof *in && local->in.sin_addr.s_addr == in->sin_addr.s_addr)
			return;
		local->in = *in;
		local->len = sizeof *in;
	}
}

/* ---- client to destinations ---- */

static void
drop_header(struct udp_assoc *a, enum socks5_udp_verdict v, uint64_t datagrams)
{
	udp_count(a, v == SOCKS5_UDP_FRAG ? COUNT_UDP_DROP_FRAG : v == SOCKS5_UDP_PORT ? COUNT_UDP_DROP_PORT :
	    COUNT_UDP_DROP_MALFORMED, datagrams);
}

/* The destination and where the payload begins, when it is not that of the datagram before.  NULL: not now, or counted. */
static struct udp_dest *
look_up(struct udp_assoc *a, uint8_t *datagram, size_t len, size_t *header_len)
{
	struct socks5_udp_head head;
	enum socks5_udp_verdict v;
	union udp_key key;
	struct udp_dest *dest = NULL;

	if (udp_key_of_header(datagram, len, &key) && (dest = udp_dest_find(&a->dests, &key)) != NULL) {
		*header_len = key.bytes[UDP_KEY_LEN];
		a->last_up = dest;
		return dest;
	}
	if ((v = socks5_udp_parse(span_of(datagram, len), &head)) != SOCKS5_UDP_OK) {
		drop_header(a, v, 1);
		return NULL;
	}
	*header_len = head.header_len;
	if (!target_is_literal(&head.target))
		return udp_resolve(a, &head.target, span_of(datagram + head.header_len, len - head.header_len));
	key = udp_key_of_addr(&head.target.addr);
	if ((dest = udp_dest_find(&a->dests, &key)) == NULL)
		dest = udp_admit_literal(a, &head.target);
	if (dest != NULL)
		a->last_up = dest;
	return dest;
}

/* From a destination to the client.  True: what the pieces are in must be held. */
static inline bool
send_down(struct udp_assoc *a, struct udp_datagram *d, struct udp_dest *dest)
{
	d->peer = &a->client;
	d->header_bytes = dest->key.bytes[UDP_KEY_LEN];
	d->down = true;
	return udp_send_add(a, d);
}

/* The DNS filter's answer, as if from the destination. */
static void
answer(struct udp_assoc *a, struct udp_dest *dest, struct io_buf *b, size_t len)
{
	size_t head = dest->key.bytes[UDP_KEY_LEN];
	struct udp_datagram d = { .piece[0] = { b->base - head, head + len }, .pieces = 1 };

	memcpy(b->base - head, dest->key.bytes, head);
	/* Two: what the question came in may have to be held yet, for others in it. */
	if (udp_send_ready(a, 2, 1) && send_down(a, &d, dest))
		udp_send_hold(a, b);
	else
		io_buf_put(a->env->udp_pool, b);
}

/* False: the filter has dealt with it. */
static bool
passes_hook(struct udp_assoc *a, struct udp_dest *dest, struct span payload)
{
	const struct udp_hook *hook = a->env->udp_hook;
	enum udp_hook_verdict v;
	struct addr to = dest->peer.to;
	struct io_buf b;
	size_t len = 0;

	/* Without a block for an answer nothing is asked: what the filter would have stopped must not slip by. */
	if (hook == NULL)
		return true;
	if (!io_buf_get(a->env->udp_pool, 0, &b)) {
		udp_count(a, COUNT_UDP_DROP_FILTER, 1);
		return false;
	}
	addr_unmap(&to);
	v = hook->query(hook->owner, payload, &to, b.base, b.cap, &len);
	assert(len <= b.cap);
	if (v == UDP_HOOK_ANSWER)
		answer(a, dest, &b, len);
	else
		io_buf_put(a->env->udp_pool, &b);
	if (v == UDP_HOOK_DROP)
		udp_count(a, COUNT_UDP_DROP_FILTER, 1);
	return v == UDP_HOOK_PASS;
}

bool
udp_forward(struct udp_assoc *a, struct udp_dest *dest, uint8_t *payload, size_t len)
{
	struct udp_datagram d = {
		.peer = &dest->peer, .piece[0] = { payload, len }, .pieces = 1
	};

	if (dest->hooked && !passes_hook(a, dest, span_of(payload, len)))
		return false;
	dest->last_ns = a->now_ns;
	return udp_send_add(a, &d);
}

/* One datagram of the client's.  True: its buffer must be held. */
static inline bool
take_up(struct udp_assoc *a, uint8_t *datagram, size_t len)
{
	struct udp_dest *dest = a->last_up;
	size_t header_len;

	if (a->tokens == 0) {
		udp_count(a, COUNT_UDP_DROP_PPS, 1);
		return false;
	}
	a->tokens--;
	if (dest != NULL && udp_key_begins(&dest->key, datagram, len))
		header_len = dest->key.bytes[UDP_KEY_LEN];
	else if ((dest = look_up(a, datagram, len, &header_len)) == NULL)
		return false;
	return udp_forward(a, dest, datagram + header_len, len - header_len);
}

static void
from_client(struct udp_assoc *a, struct io_dgram *d)
{
	size_t len = d->buf.len, segment = d->gso != 0 ? d->gso : len, at = 0;
	bool hold = false;

	note_local(a, d);
	a->last_ns = a->now_ns;
	if (!udp_send_ready(a, 1, datagrams_in(d))) {
		io_buf_put(a->env->udp_pool, &d->buf);
		return;
	}
	do {
		size_t n = len - at < segment ? len - at : segment;

		hold |= take_up(a, d->buf.base + at, n);
		at += n;
	} while (at < len);
	if (hold)
		udp_send_hold(a, &d->buf);
	else
		io_buf_put(a->env->udp_pool, &d->buf);
}

/* ---- destinations to client ---- */

static void
from_destination(struct udp_assoc *a, struct udp_dest *dest, struct io_dgram *d)
{
	size_t head = dest->key.bytes[UDP_KEY_LEN], len = d->buf.len, segment = d->gso;
	struct udp_datagram out;
	bool hold = false;

	dest->last_ns = a->last_ns = a->now_ns;
	if (!udp_send_ready(a, 1, datagrams_in(d))) {
		io_buf_put(a->env->udp_pool, &d->buf);
		return;
	}
	if (segment == 0) {
		/* Into the headroom: 22 bytes whatever the length, two moves and no call. */
		memcpy(d->buf.base - head, dest->key.bytes, head);
		out.piece[0] = (struct io_vec){ d->buf.base - head, head + len };
		out.pieces = 1;
		hold = send_down(a, &out, dest);
	} else {
		out.piece[0] = (struct io_vec){ dest->key.bytes, head };
		out.pieces = 2;
		for (size_t at = 0; at < len; at += segment) {
			out.piece[1] = (struct io_vec){ d->buf.base + at, len - at < segment ? len - at : segment };
			hold |= send_down(a, &out, dest);
		}
	}
	if (hold)
		udp_send_hold(a, &d->buf);
	else
		io_buf_put(a->env->udp_pool, &d->buf);
}

/* ---- everybody else ---- */

static bool
may_be_client(const struct udp_assoc *a, const struct addr *from)
{
	if (a->conf->allow_client_addr_mismatch)
		return true;
	/* Who came by a Unix socket is on this machine. */
	if (a->client_ip.sa.sa_family == AF_UNIX)
		return addr_is_loopback(from);
	return addr_same_ip(from, &a->client_ip);
}

/* The first datagram from the client's address with a header that makes sense says which port is the client's. */
static void
from_unknown(struct udp_assoc *a, struct io_dgram *d)
{
	size_t segment = d->gso != 0 ? d->gso : d->buf.len;
	unsigned datagrams = datagrams_in(d);
	enum socks5_udp_verdict v;
	struct socks5_udp_head head;
	struct addr from;
	char text[ADDR_TEXT_MAX];

	addr_of(&from, d);
	/* An association that could send here before this one was made is no client, wherever its own is. */
	if (a->client_known || from.len == 0 || !may_be_client(a, &from) || udp_is_association(a, &from)) {
		udp_count(a, COUNT_UDP_DROP_STRANGER, datagrams);
	} else if ((v = socks5_udp_parse(span_of(d->buf.base, segment), &head)) != SOCKS5_UDP_OK) {
		drop_header(a, v, datagrams);
	} else {
		a->client_known = true;
		a->client.to = from;
		a->client.gso_max = a->shared->gso_segments > 1 ? UINT16_MAX : 0;
		log_debug(udp_who(a), "association's client is %s", addr_format(&from, text));
		from_client(a, d);
		return;
	}
	io_buf_put(a->env->udp_pool, &d->buf);
}

/* ---- receiving ---- */

/* Tokens for this batch: max_pps of them a second, and no more than a second's worth saved up. */
static uint32_t
save_up(struct udp_assoc *a)
{
	uint64_t each_ns;

	if (a->conf->max_pps == 0)
		return UINT32_MAX;
	each_ns = NS_PER_S / a->conf->max_pps;
	a->credit_ns += a->now_ns - a->credited_ns;
	a->credited_ns = a->now_ns;
	if (a->credit_ns > NS_PER_S)
		a->credit_ns = NS_PER_S;
	return (uint32_t)(a->credit_ns / each_ns);
}

static void
take_batch(struct udp_assoc *a, struct io_dgram *v, unsigned n)
{
	uint32_t tokens;
	struct udp_dest *dest;

	a->now_ns = io_now(a->env->loop);
	a->tokens = tokens = save_up(a);
	a->hint = n > BIG_BATCH ? UDP_OUT_BIG : UDP_OUT_SMALL;
	for (unsigned i = 0; i < n; i++) {
		struct io_dgram *d = &v[i];

		if (i + 1 < n)
			__builtin_prefetch(v[i + 1].buf.base);
		if (d->gso != 0)
			a->hint = UDP_OUT_BIG;
		if (d->trunc) {
			udp_count(a, COUNT_UDP_DROP_TRUNC, 1);
			io_buf_put(a->env->udp_pool, &d->buf);
		} else if (a->client_known && is_from(&d->peer, &a->client.to)) {
			from_client(a, d);
		} else if ((dest = find_source(a, d)) != NULL) {
			from_destination(a, dest, d);
		} else {
			from_unknown(a, d);
		}
	}
	if (a->conf->max_pps != 0)
		a->credit_ns -= (tokens - a->tokens) * (NS_PER_S / a->conf->max_pps);
	udp_send_flush(a);
}

static void
on_received(struct io_loop *loop, struct io_op *op)
{
	struct udp_assoc *a = io_container_of(op, struct udp_assoc, rd);
	unsigned n = op->u.batch.n;

	(void)loop;
	if (a->closing) {
		for (unsigned i = 0; i < n; i++) {
			udp_count(a, COUNT_UDP_DROP_QUEUE, datagrams_in(&op->u.batch.v[i]));
			io_buf_put(a->env->udp_pool, &op->u.batch.v[i].buf);
		}
		return;
	}
	if (n > 0)
		take_batch(a, op->u.batch.v, n);
	if (op->more)
		return;
	log_warn(LOG_C_INTERNAL, udp_who(a), "association's socket broke error=\"%s\" errno=%d",
	    io_strerror(op->res), op->syserr);
	udp_abort(a);
}

/* ---- life ---- */

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct udp_assoc *a = io_container_of(sock, struct udp_assoc, sock);

	(void)loop;
	assert(a->closing && !io_armed(&a->rd) && !io_armed(&a->wr) && a->lookups == NULL);
	udp_send_drop_all(a);
	udpsock_port_release(a->env->udpports, a->port);
	a->done(a->owner);
	udp_dests_free(&a->dests);
	snapshot_drop(a->snapshot);
	free(a);
}

int
udp_start(struct udp_assoc **out, struct env *env, const struct udp_params *p, udp_done_cb *done, void *owner,
    char text[SOCKOPT_TEXT_MAX])
{
	const struct conf *conf = p->snapshot->conf;
	struct udp_assoc *a = calloc(1, sizeof *a);
	struct udpsock sock;
	int rc;

	if (a == NULL) {
		memcpy(text, "out of memory", sizeof "out of memory");
		return -ENOMEM;
	}
	if ((rc = udpsock_open(env->udpports, conf->udp.port_low, conf->udp.port_high, &conf->outbound, &sock,
	    text)) != 0) {
		free(a);
		return rc;
	}
	a->env = env;
	a->shared = env->udp;
	a->snapshot = snapshot_hold(p->snapshot);
	a->conf = &conf->udp;
	a->dual = sock.dual;
	a->port = sock.port;
	a->client_ip = *p->client;
	addr_unmap(&a->client_ip);
	a->listener_port = p->listener_port;
	a->session_id = p->session_id;
	a->user = p->user;
	a->done = done;
	a->owner = owner;
	a->last_ns = a->now_ns = a->credited_ns = io_now(env->loop);
	a->credit_ns = NS_PER_S;
	udp_dests_init(&a->dests, env->udp->seed);
	udp_count(a, COUNT_UDP_ASSOCIATIONS, 1);
	io_adopt(env->loop, &a->sock, sock.fd);
	io_recv_batch(&a->rd, &a->sock, env->udp_pool, env->udp->v, IO_BATCH_MAX, on_received);
	*out = a;
	return 0;
}

void
udp_count_unread(struct udp_assoc *a)
{
	uint32_t dropped;

	/* The descriptor may be somebody else's by now. */
	if (a->closing)
		return;
	/* 0 after a larger number is an error's: a difference to it means nothing. */
	if ((dropped = udpsock_kernel_drops(a->sock.fd)) == 0)
		return;
	udp_count(a, COUNT_UDP_DROP_UNREAD, dropped - a->unread);
	a->unread = dropped;
}

void
udp_abort(struct udp_assoc *a)
{
	if (a->closing)
		return;
	udp_resolve_stop(a);
	udp_count_unread(a);
	a->closing = true;
	io_close(&a->sock, on_closed);
}

uint16_t
udp_port(const struct udp_assoc *a)
{
	return a->port;
}

uint64_t
udp_quiet_since(const struct udp_assoc *a)
{
	return a->last_ns;
}

const uint64_t *
udp_drops(const struct udp_assoc *a)
{
	return a->dropped;
}

size_t
udp_format_drops(const uint64_t *count, char out[UDP_DROPS_TEXT_MAX])
{
#define CAUSE(name) [COUNT_UDP_DROP_##name - COUNT_UDP_DROP_FIRST]
	static const char *const causes[COUNT_UDP_DROPS] = {
		CAUSE(STRANGER) = "stranger", CAUSE(MALFORMED) = "malformed", CAUSE(FRAG) = "frag", CAUSE(PORT) = "port",
		CAUSE(DOMAIN) = "domain", CAUSE(DESTINATIONS) = "destinations", CAUSE(PPS) = "pps", CAUSE(ACL) = "acl",
		CAUSE(LOCAL) = "local", CAUSE(SELF) = "self", CAUSE(FILTER) = "filter", CAUSE(TRUNC) = "trunc",
		CAUSE(TOO_BIG) = "too_big", CAUSE(SEND) = "send", CAUSE(QUEUE) = "queue", CAUSE(UNREAD) = "unread"
	};
#undef CAUSE
	uint64_t dropped = 0;
	size_t len;

	for (unsigned i = 0; i < COUNT_UDP_DROPS; i++)
		dropped += count[i];
	len = (size_t)snprintf(out, UDP_DROPS_TEXT_MAX, " udp_dropped=%llu", (unsigned long long)dropped);
	for (unsigned i = 0; i < COUNT_UDP_DROPS; i++)
		if (count[i] != 0)
			len += (size_t)snprintf(out + len, UDP_DROPS_TEXT_MAX - len, " udp_drop_%s=%llu", causes[i],
			    (unsigned long long)count[i]);
	assert(len < UDP_DROPS_TEXT_MAX);
	return len;
}

uint64_t
udp_bytes(const struct udp_assoc *a, enum udp_dir dir)
{
	return a->bytes[dir];
}

uint64_t
udp_datagrams(const struct udp_assoc *a, enum udp_dir dir)
{
	return a->datagrams[dir];
}

/* SPDX-License-Identifier: ISC */
#include "relay/udp_out.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Payloads that fit the usual path: Ethernet, and the smallest MTU of IPv6. */
	SEGMENT_ETHERNET = 1472,
	SEGMENT_SMALLEST = 1280 - 40 - 8,
	/*
	 * Blocks of this size all begin at the same places of a page, and first
	 * members of many outs would fight for the same few cache lines.
	 */
	COLOUR_BYTES = 64 * 7, COLOURS = 64
};

static size_t
vec_stride(const struct udp_out *o)
{
	return (size_t)o->vec_max + 4;	/* not a power of two, for the same reason */
}

struct udp_out *
udp_out_new(enum udp_out_size size, unsigned colour)
{
	struct udp_out o = {
		.message_max = size == UDP_OUT_BIG ? IO_BATCH_MAX : UDP_OUT_SMALL_MAX,
		.vec_max = size == UDP_OUT_BIG ? IO_DGRAM_VECS_MAX : UDP_OUT_SMALL_MAX,
		.buf_max = size == UDP_OUT_BIG ? UDP_OUT_BUFS_MAX : UDP_OUT_SMALL_MAX,
		.redoing = -1
	};
	size_t head = sizeof o, messages = o.message_max * sizeof o.messages[0],
	    bufs = o.buf_max * sizeof o.bufs[0], v = o.message_max * sizeof o.v[0],
	    vecs = o.message_max * vec_stride(&o) * sizeof o.vecs[0];
	size_t shift = size == UDP_OUT_BIG ? colour % COLOURS * COLOUR_BYTES : 0;
	uint8_t *at;

	_Static_assert(sizeof(struct udp_out) % 8 == 0 && sizeof(struct udp_message) % 8 == 0 &&
	    sizeof(struct io_buf) % 8 == 0 && sizeof(struct io_dgram) % 8 == 0, "each begins aligned");
	if ((o.block = calloc(1, shift + head + messages + bufs + v + vecs)) == NULL)
		return NULL;
	at = (uint8_t *)o.block + shift;
	o.messages = (void *)(at + head);
	o.bufs = (void *)(at + head + messages);
	o.v = (void *)(at + head + messages + bufs);
	o.vecs = (void *)(at + head + messages + bufs + v);
	memcpy(at, &o, sizeof o);
	return (void *)at;
}

void
udp_out_free(struct udp_out *o)
{
	if (o == NULL)
		return;
	assert(o->buf_count == 0);
	free(o->block);
}

void
udp_out_begin(struct udp_out *o, uint64_t serial)
{
	assert(serial != 0 && o->buf_count == 0);
	o->next = NULL;
	o->serial = serial;
	o->count = 0;
	o->sealed = false;
	o->redoing = -1;
}

static void
address(struct io_dgram *d, const struct udp_peer *peer)
{
	/* As long as either family: a copy of a known length is four moves and no call. */
	memcpy(&d->peer, &peer->to.in6, sizeof peer->to.in6);
	d->peerlen = peer->to.len;
	if (peer->local.len != 0)
		memcpy(&d->local, &peer->local.in6, sizeof peer->local.in6);
	else
		d->local.ss_family = AF_UNSPEC;
}

/*
 * A message that the kernel refuses for its segments goes out again in single
 * datagrams, so nothing may follow it in its out; that would cost an out each
 * for many, so only one is tried at a time.
 */
static bool
may_try(const struct udp_message *m)
{
	return m->segment_bytes <= m->peer->gso_proven || m->trial || !m->peer->on_trial;
}

static bool
may_join(const struct udp_out *o, const struct udp_message *m, const struct udp_datagram *d, size_t len,
    unsigned gso_segments)
{
	return !m->closed && len > 0 && len <= m->segment_bytes &&
	    m->segment_bytes <= d->peer->gso_max && m->segments < gso_segments && may_try(m) &&
	    m->segments < UDP_OUT_SEGMENTS_MAX && m->pieces == d->pieces && m->down == d->down &&
	    (m->segments + 1u) * m->pieces <= o->vec_max &&
	    m->bytes + len <= UDP_OUT_MESSAGE_BYTES;
}

static void
join(struct udp_out *o, unsigned i, const struct udp_datagram *d, size_t len)
{
	struct udp_message *m = &o->messages[i];
	struct io_dgram *g = &o->v[i];
	struct io_vec *vec = &o->vecs[i * vec_stride(o)];

	if (m->segments == 1) {
		if (g->nvec == 0)
			vec[0] = (struct io_vec){ g->buf.base, g->buf.len };
		g->vec = vec;
		g->nvec = m->pieces;
		g->gso = m->segment_bytes;
		if (m->segment_bytes > m->peer->gso_proven)
			m->trial = m->peer->on_trial = true;
	}
	vec[g->nvec++] = d->piece[0];
	if (d->pieces == 2)
		vec[g->nvec++] = d->piece[1];
	m->segments++;
	m->bytes += (uint32_t)len;
	m->payload_bytes += (uint32_t)(len - d->header_bytes);
	m->closed = len < m->segment_bytes;
}

bool
udp_out_add(struct udp_out *o, const struct udp_datagram *d, unsigned gso_segments)
{
	size_t len = d->piece[0].len + (d->pieces == 2 ? d->piece[1].len : 0);
	struct udp_peer *peer = d->peer;
	struct io_dgram *g;
	unsigned i = o->count;

	if (peer->open_serial == o->serial) {
		struct udp_message *last = &o->messages[peer->open_message];

		assert(last->peer == peer);
		if (may_join(o, last, d, len, gso_segments)) {
			join(o, peer->open_message, d, len);
			return true;
		}
		if (last->trial)
			return false;
	}
	if (i == o->message_max)
		return false;
	o->count++;
	peer->open_serial = o->serial;
	peer->open_message = (uint16_t)i;
	o->messages[i] = (struct udp_message){
		.peer = peer, .bytes = (uint32_t)len, .payload_bytes = (uint32_t)(len - d->header_bytes),
		.segment_bytes = (uint16_t)(len <= UINT16_MAX ? len : 0), .segments = 1, .pieces = d->pieces,
		.closed = len == 0 || len > UDP_OUT_MESSAGE_BYTES, .down = d->down
	};
	g = &o->v[i];
	address(g, peer);
	g->gso = 0;
	g->nvec = 0;
	if (d->pieces == 1) {
		g->buf.base = d->piece[0].base;
		g->buf.len = (uint32_t)len;
	} else {
		struct io_vec *vec = &o->vecs[i * vec_stride(o)];

		vec[0] = d->piece[0];
		vec[1] = d->piece[1];
		g->vec = vec;
		g->nvec = 2;
	}
	return true;
}

unsigned
udp_out_split(struct udp_out *o, unsigned i)
{
	const struct udp_message *m = &o->messages[i];
	const struct io_vec *vec = &o->vecs[i * vec_stride(o)];

	assert(i < o->count && m->segments > 1 && m->segments <= o->message_max);
	for (unsigned k = 0; k < m->segments; k++) {
		struct io_dgram *g = &o->v[k];

		address(g, m->peer);
		g->gso = 0;
		g->vec = vec + k * m->pieces;
		g->nvec = m->pieces;
	}
	return m->segments;
}

size_t
udp_out_split_payload(const struct udp_out *o, unsigned i, unsigned k)
{
	const struct udp_message *m = &o->messages[i];
	const struct io_vec *vec = &o->vecs[i * vec_stride(o) + k * m->pieces];

	if (m->pieces == 2)
		return vec[1].len;
	/* ATYP of the header that we wrote: it says how long that is. */
	return m->down ? vec[0].len - (((const uint8_t *)vec[0].base)[3] == 1 ? 10 : 22) : vec[0].len;
}

/* Shorter ones can't fail where any went: every path of IPv6 takes as much, and IPv4's do. */
void
udp_peer_gso_sent(struct udp_peer *peer, uint16_t segment_bytes)
{
	uint16_t proven = segment_bytes > SEGMENT_SMALLEST ? segment_bytes : SEGMENT_SMALLEST;

	if (proven > peer->gso_max)
		proven = peer->gso_max;
	if (proven > peer->gso_proven)
		peer->gso_proven = proven;
}

void
udp_peer_gso_refused(struct udp_peer *peer, uint16_t segment_bytes, int err)
{
	uint16_t max = 0;

	if (err == IO_EINVAL || err == IO_EMSGSIZE)
		max = segment_bytes > SEGMENT_ETHERNET ? SEGMENT_ETHERNET :
		    segment_bytes > SEGMENT_SMALLEST ? SEGMENT_SMALLEST : 0;
	if (max < peer->gso_max)
		peer->gso_max = max;
	if (peer->gso_proven > peer->gso_max)
		peer->gso_proven = peer->gso_max;
}

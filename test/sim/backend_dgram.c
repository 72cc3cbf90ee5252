/* SPDX-License-Identifier: ISC */
/* Batches of datagrams. */
#include <errno.h>
#include <string.h>

#include "backend.h"

enum { SEGMENTS_MAX = 64 };	/* what older kernels allow; newer ones have 128 */

bool
sim_recv_batch(struct io_op *op)
{
	struct kfile *f = sim_sock_of(op->sock)->file;
	unsigned n = 0;
	struct kdgram *d;

	while (n < op->u.batch.max && (d = k_dgram(f)) != NULL) {
		struct io_dgram *v = &op->u.batch.v[n];

		if (!io_pool_take(op->u.batch.pool, false, &v->buf)) {
			if (n == 0)
				io_pool_wait(op->u.batch.pool, op, false);
			break;
		}
		v->buf.len = (uint32_t)(d->len < v->buf.cap ? d->len : v->buf.cap);
		memcpy(v->buf.base, d->data, v->buf.len);
		v->trunc = d->len > v->buf.cap;
		v->peer = d->from;
		v->peerlen = d->fromlen;
		if (f->pktinfo)
			v->local = d->to;
		else
			v->local.ss_family = AF_UNSPEC;
		v->res = (int32_t)v->buf.len;
		v->nvec = 0;
		v->gso = 0;
		k_dgram_drop(f);
		n++;
	}
	op->u.batch.n = n;
	op->res = (int32_t)n;
	op->syserr = 0;
	return n > 0;
}

/* The pieces in a row, in `out`: how many bytes, or more than there is room for. */
static size_t
join(const struct io_dgram *v, uint8_t *out, size_t room)
{
	size_t len = 0;

	assert(v->nvec <= IO_DGRAM_VECS_MAX);
	for (uint32_t i = 0; i < v->nvec; i++) {
		if (v->vec[i].len > room - len)
			return room + 1;
		memcpy(out + len, v->vec[i].base, v->vec[i].len);
		len += v->vec[i].len;
	}
	return len;
}

/* Segments as Linux makes them: one long datagram's worth of bytes at most. */
static long
send_one(struct kfile *f, const struct io_dgram *v)
{
	uint8_t joined[K_DGRAM_MAX];
	const uint8_t *base = v->nvec == 0 ? v->buf.base : joined;
	size_t all = v->nvec == 0 ? v->buf.len : join(v, joined, sizeof joined);
	size_t step = v->gso != 0 ? v->gso : all;
	long rc = 0;

	if (all > K_DGRAM_MAX)
		return -EMSGSIZE;
	if (v->gso != 0 && (all + v->gso - 1) / v->gso > SEGMENTS_MAX)
		return -EINVAL;
	for (size_t at = 0; at < all || at == 0; at += step) {
		size_t len = all - at < step ? all - at : step;

		rc = k_sendto(f, base + at, len, (const struct sockaddr *)&v->peer, &v->local);
		if (rc < 0 || step == 0)
			return rc;
	}
	return (long)all;
}

void
sim_send_batch(struct sim_loop *sl, struct io_op *op)
{
	struct kfile *f = sim_sock_of(op->sock)->file;
	int32_t sent = 0;

	for (unsigned i = 0; i < op->u.batch.max; i++) {
		struct io_dgram *v = &op->u.batch.v[i];
		long rc = send_one(f, v);

		v->res = rc < 0 ? io_err_of((int)-rc) : (int32_t)rc;
		sent += rc >= 0;
	}
	sl->loop->stats.icmp_swallowed += f->icmp;
	f->icmp = 0;
	op->u.batch.n = (unsigned)sent;
	sim_op_done(sl, op, sent, 0);
}

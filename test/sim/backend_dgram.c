/* SPDX-License-Identifier: ISC */
/* Batches of datagrams. */
#include <errno.h>
#include <string.h>

#include "backend.h"

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
		v->res = 0;
		v->gso = 0;
		k_dgram_drop(f);
		n++;
	}
	op->u.batch.n = n;
	op->res = (int32_t)n;
	op->syserr = 0;
	return n > 0;
}

static long
send_one(struct kfile *f, const struct io_dgram *v)
{
	size_t step = v->gso != 0 ? v->gso : v->buf.len;
	long rc = 0;

	for (size_t at = 0; at < v->buf.len || at == 0; at += step) {
		size_t len = v->buf.len - at < step ? v->buf.len - at : step;

		rc = k_sendto(f, v->buf.base + at, len, (const struct sockaddr *)&v->peer, &v->local);
		if (rc < 0 || step == 0)
			return rc;
	}
	return (long)v->buf.len;
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

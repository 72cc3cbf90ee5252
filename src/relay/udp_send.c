/* SPDX-License-Identifier: ISC */
/*
 * The way out: outs in a queue, one of them being sent.  An out whose segmented
 * messages were refused is sent again in single datagrams before the next one
 * starts, so that a destination's datagrams keep their order.
 */
#include "relay/udp_internal.h"

#include <assert.h>
#include <errno.h>

enum {
	SPARE_FIRST = 2,
	/* What is not needed goes back to the system: a big one that was full is 160 KiB. */
	SPARE_BIG_MAX = 16,
	SPARE_SMALL_MAX = 256
};

static void on_sent(struct io_loop *, struct io_op *);

/* ---- outs ---- */

static struct udp_out *
take_out(struct udp_worker *w, enum udp_out_size size)
{
	struct udp_out *o = w->spare[size];

	if (o != NULL) {
		w->spare[size] = o->next;
		w->spare_count[size]--;
	} else if ((o = udp_out_new(size, w->made++)) == NULL) {
		return NULL;
	}
	udp_out_begin(o, w->next_serial++);
	return o;
}

static void
put_out(struct udp_worker *w, struct udp_out *o)
{
	enum udp_out_size size = o->buf_max == UDP_OUT_BUFS_MAX ? UDP_OUT_BIG : UDP_OUT_SMALL;

	if (w->spare_count[size] == (size == UDP_OUT_BIG ? SPARE_BIG_MAX : SPARE_SMALL_MAX)) {
		udp_out_free(o);
		return;
	}
	o->next = w->spare[size];
	w->spare[size] = o;
	w->spare_count[size]++;
}

int
udp_send_spare(struct udp_worker *w)
{
	for (unsigned i = 0; i < SPARE_FIRST * UDP_OUT_SIZES; i++) {
		struct udp_out *o = udp_out_new(i % UDP_OUT_SIZES, w->made++);

		if (o == NULL)
			return -ENOMEM;
		put_out(w, o);
	}
	return 0;
}

/* Its buffers go home. */
static void
clear(struct udp_assoc *a, struct udp_out *o)
{
	for (unsigned i = 0; i < o->buf_count; i++)
		io_buf_put(a->env->udp_pool, &o->bufs[i]);
	a->held -= o->buf_count;
	o->buf_count = 0;
	a->outs--;
	put_out(a->shared, o);
}

/* A tail that is not sealed, or NULL. */
static struct udp_out *
filling(struct udp_assoc *a)
{
	struct udp_out *o = a->tail;

	if (o != NULL && !o->sealed)
		return o;
	if (a->outs == UDP_OUTS_MAX || (o = take_out(a->shared, a->hint)) == NULL)
		return NULL;
	o->begun_ns = a->now_ns;
	a->outs++;
	if (a->tail != NULL)
		a->tail->next = o;
	else
		a->head = o;
	a->tail = o;
	return o;
}

bool
udp_send_add(struct udp_assoc *a, const struct udp_datagram *d)
{
	struct udp_out *o = filling(a);

	if (o != NULL && udp_out_add(o, d, a->shared->gso_segments))
		return true;
	if (o != NULL) {
		o->sealed = true;
		if ((o = filling(a)) != NULL) {
			bool added = udp_out_add(o, d, a->shared->gso_segments);

			assert(added);
			return added;
		}
	}
	udp_count(a, COUNT_UDP_DROP_QUEUE, 1);
	return false;
}

bool
udp_send_ready(struct udp_assoc *a, unsigned bufs, unsigned datagrams)
{
	struct udp_out *o = filling(a);

	if (o != NULL && o->buf_count + bufs > o->buf_max) {
		o->sealed = true;
		o = filling(a);
	}
	if (o != NULL && a->held < a->shared->held_max)
		return true;
	udp_count(a, COUNT_UDP_DROP_QUEUE, datagrams);
	return false;
}

uint64_t
udp_send_oldest_ns(const struct udp_assoc *a)
{
	return a->flying != NULL ? a->flying->begun_ns : a->head != NULL ? a->head->begun_ns : UINT64_MAX;
}

void
udp_send_hold(struct udp_assoc *a, const struct io_buf *buf)
{
	/* Some of it may be in outs before: those are sent first. */
	assert(a->tail != NULL && a->tail->buf_count < a->tail->buf_max);
	udp_out_hold(a->tail, buf);
	a->held++;
}

void
udp_send_flush(struct udp_assoc *a)
{
	struct udp_out *o = a->head;

	if (o == NULL || a->flying != NULL || a->closing)
		return;
	a->flying = o;
	a->head = o->next;
	if (a->head == NULL)
		a->tail = NULL;
	if (o->count == 0) {	/* made for a datagram that was not added */
		a->flying = NULL;
		clear(a, o);
		udp_send_flush(a);
		return;
	}
	io_send_batch(&a->wr, &a->sock, o->v, o->count, on_sent);
}

void
udp_send_drop_all(struct udp_assoc *a)
{
	assert(a->flying == NULL);
	while (a->head != NULL) {
		struct udp_out *o = a->head;
		uint64_t lost = 0;

		for (unsigned i = 0; i < o->count; i++)
			lost += o->messages[i].segments;
		udp_count(a, COUNT_UDP_DROP_QUEUE, lost);
		a->head = o->next;
		clear(a, o);
	}
	a->tail = NULL;
	assert(a->outs == 0 && a->held == 0);
}

/* ---- what came of it ---- */

/* Sums of one completion: one add to each counter. */
struct sums {
	uint64_t	datagrams[2], bytes[2];		/* by enum udp_dir */
	uint64_t	too_big, refused, queue;
};

static void
add_sums(struct udp_assoc *a, const struct sums *s)
{
	for (int dir = UDP_UP; dir <= UDP_DOWN; dir++) {
		a->datagrams[dir] += s->datagrams[dir];
		a->bytes[dir] += s->bytes[dir];
	}
	udp_count(a, COUNT_UDP_UP, s->datagrams[UDP_UP]);
	udp_count(a, COUNT_UDP_DOWN, s->datagrams[UDP_DOWN]);
	udp_count(a, COUNT_BYTES_UP, s->bytes[UDP_UP]);
	udp_count(a, COUNT_BYTES_DOWN, s->bytes[UDP_DOWN]);
	if (s->too_big + s->refused + s->queue != 0) {
		udp_count(a, COUNT_UDP_DROP_TOO_BIG, s->too_big);
		udp_count(a, COUNT_UDP_DROP_SEND, s->refused);
		udp_count(a, COUNT_UDP_DROP_QUEUE, s->queue);
	}
}

static void
sum_lost(struct sums *s, int err, uint64_t datagrams)
{
	if (err == IO_EMSGSIZE)
		s->too_big += datagrams;
	else if (err == IO_ECANCELED)	/* the association's end came first */
		s->queue += datagrams;
	else
		s->refused += datagrams;
}

static void
sum_sent(struct sums *s, bool down, uint64_t datagrams, uint64_t bytes)
{
	s->datagrams[down ? UDP_DOWN : UDP_UP] += datagrams;
	s->bytes[down ? UDP_DOWN : UDP_UP] += bytes;
}

/* Refused for being segmented?  udp(7), and devices without checksum offload: EIO. */
static bool
is_gso_error(int err)
{
	return err == IO_EINVAL || err == IO_EMSGSIZE || err == IO_EOTHER || err == IO_ENOTSUP;
}

static void
take_results(struct udp_assoc *a, struct udp_out *o, struct sums *s)
{
	for (unsigned i = 0; i < o->count; i++) {
		struct udp_message *m = &o->messages[i];
		int res = o->v[i].res;

		m->again = false;
		if (m->trial)
			m->peer->on_trial = false;
		if (res >= 0) {
			sum_sent(s, m->down, m->segments, m->payload_bytes);
			if (m->segments > 1 && m->segment_bytes > m->peer->gso_proven)
				udp_peer_gso_sent(m->peer, m->segment_bytes);
		} else if (m->segments > 1 && is_gso_error(res)) {
			/* Once a peer and size, not for what had been gathered meanwhile. */
			if (m->segment_bytes <= m->peer->gso_max)
				udp_count(a, COUNT_UDP_GSO_FALLBACK, 1);
			udp_peer_gso_refused(m->peer, m->segment_bytes, res);
			m->again = true;
		} else {
			sum_lost(s, res, m->segments);
		}
	}
}

static void
take_results_again(struct udp_out *o, struct sums *s)
{
	unsigned i = (unsigned)o->redoing;
	struct udp_message *m = &o->messages[i];

	m->again = false;
	for (unsigned k = 0; k < m->segments; k++) {
		if (o->v[k].res >= 0)
			sum_sent(s, m->down, 1, udp_out_split_payload(o, i, k));
		else
			sum_lost(s, o->v[k].res, 1);
	}
}

/* The next message that is to go out again, in single datagrams.  False: there is none. */
static bool
send_again(struct udp_assoc *a, struct udp_out *o)
{
	for (unsigned i = 0; i < o->count; i++) {
		if (!o->messages[i].again)
			continue;
		o->redoing = (int16_t)i;
		io_send_batch(&a->wr, &a->sock, o->v, udp_out_split(o, i), on_sent);
		return true;
	}
	return false;
}

static void
lose_again(struct udp_out *o, struct sums *s)
{
	for (unsigned i = 0; i < o->count; i++)
		if (o->messages[i].again)
			s->queue += o->messages[i].segments;
}

static void
on_sent(struct io_loop *loop, struct io_op *op)
{
	struct udp_assoc *a = io_container_of(op, struct udp_assoc, wr);
	struct udp_out *o = a->flying;
	struct sums s = { 0 };

	(void)loop;
	assert(o != NULL);
	if (o->redoing < 0)
		take_results(a, o, &s);
	else
		take_results_again(o, &s);
	if (a->closing)
		lose_again(o, &s);
	add_sums(a, &s);
	if (!a->closing && send_again(a, o))
		return;
	a->flying = NULL;
	clear(a, o);
	udp_send_flush(a);
}

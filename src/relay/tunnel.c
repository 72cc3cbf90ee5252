/* SPDX-License-Identifier: ISC */
#include "relay/tunnel.h"

#include <assert.h>

#include "util/fault.h"

static void on_prefix(struct io_loop *, struct io_op *);
static void on_relay(struct io_loop *, struct io_op *);

static struct tunnel_direction *
other(struct tunnel_direction *d)
{
	struct tunnel *t = d->tunnel;

	return d == &t->dir[TUNNEL_UP] ? &t->dir[TUNNEL_DOWN] : &t->dir[TUNNEL_UP];
}

static void
maybe_done(struct tunnel *t)
{
	if (t->end == TUNNEL_RUNNING || io_armed(&t->dir[TUNNEL_UP].op) ||
	    io_armed(&t->dir[TUNNEL_DOWN].op))
		return;
	t->owner->done(t);
}

static void
stop(struct tunnel *t, enum tunnel_end end, int err)
{
	if (t->end == TUNNEL_RUNNING) {
		t->end = end;
		t->err = err;
	}
	io_cancel(&t->dir[TUNNEL_UP].op);
	io_cancel(&t->dir[TUNNEL_DOWN].op);
}

static void
direction_go(struct tunnel_direction *d)
{
	struct env *env = d->tunnel->env;
	enum counter tally = d == &d->tunnel->dir[TUNNEL_UP] ? COUNT_BYTES_UP : COUNT_BYTES_DOWN;

	if (d->prefix.len > 0) {
		stream_send(d->to, &d->op, d->prefix.base, d->prefix.len, on_prefix);
		return;
	}
	d->relaying = true;
	io_relay(&d->op, &d->from->sock, &d->to->sock, env->pool, UINT64_MAX,
	    &env->count->n[tally], on_relay);
}

static void
on_prefix(struct io_loop *loop, struct io_op *op)
{
	struct tunnel_direction *d = io_container_of(op, struct tunnel_direction, op);
	struct tunnel *t = d->tunnel;

	if (op->res > 0) {
		d->prefix = span_of(d->prefix.base + op->res, d->prefix.len - (size_t)op->res);
		d->sent_bytes += (uint64_t)op->res;
		d->quiet_since_ns = io_now(loop);
	}
	if (t->end == TUNNEL_RUNNING && op->res >= 0) {
		direction_go(d);
		if (d->relaying && d == &t->dir[TUNNEL_UP])
			t->owner->up_prefix_sent(t);
		return;
	}
	if (op->res < 0)
		stop(t, d == &t->dir[TUNNEL_UP] ? TUNNEL_UPSTREAM_BROKE : TUNNEL_CLIENT_BROKE,
		    op->res);
	maybe_done(t);
}

static void
on_relay(struct io_loop *loop, struct io_op *op)
{
	struct tunnel_direction *d = io_container_of(op, struct tunnel_direction, op);
	struct tunnel *t = d->tunnel;
	bool up = d == &t->dir[TUNNEL_UP];

	d->quiet_since_ns = io_now(loop);
	if (op->res < 0) {
		bool client = up != op->u.relay.dst_failed;

		stop(t, client ? TUNNEL_CLIENT_BROKE : TUNNEL_UPSTREAM_BROKE, op->res);
	} else if (t->end == TUNNEL_RUNNING) {
		d->ended = true;
		if (other(d)->ended) {
			stop(t, TUNNEL_FINISHED, 0);	/* closing says it too, for a system call less */
		} else {
			/* An error here is the other direction's to find out. */
#if RW_FAULT != RW_FAULT_LOST_HALF_CLOSE
			(void)stream_shutdown(d->to);
#endif
			t->owner->half_closed(t);
		}
	}
	maybe_done(t);
}

void
tunnel_start(struct tunnel *t, struct env *env, struct stream *client, struct stream *upstream,
    struct span up_prefix, struct span down_prefix, const struct tunnel_owner *owner)
{
	assert(stream_is_plain(client) && stream_is_plain(upstream));
	memset(t, 0, sizeof *t);
	t->env = env;
	t->owner = owner;
	for (int i = 0; i < 2; i++) {
		struct tunnel_direction *d = &t->dir[i];

		d->tunnel = t;
		d->from = i == TUNNEL_UP ? client : upstream;
		d->to = i == TUNNEL_UP ? upstream : client;
		d->prefix = i == TUNNEL_UP ? up_prefix : down_prefix;
		d->quiet_since_ns = io_now(env->loop);
		direction_go(d);
	}
}

void
tunnel_abort(struct tunnel *t)
{
	stop(t, TUNNEL_ABORTED, 0);
}

static uint64_t
last_move(const struct tunnel_direction *d)
{
	return d->relaying && io_armed(&d->op) ? d->op.u.relay.last_ns : d->quiet_since_ns;
}

uint64_t
tunnel_quiet_since(const struct tunnel *t)
{
	uint64_t up = last_move(&t->dir[TUNNEL_UP]), down = last_move(&t->dir[TUNNEL_DOWN]);

	return up > down ? up : down;
}

bool
tunnel_half_closed(const struct tunnel *t)
{
	return t->dir[TUNNEL_UP].ended || t->dir[TUNNEL_DOWN].ended;
}

uint64_t
tunnel_bytes(const struct tunnel *t, enum tunnel_dir which)
{
	const struct tunnel_direction *d = &t->dir[which];

	/* The reply to the client is ours, not the tunnel's. */
	return (which == TUNNEL_UP ? d->sent_bytes : 0) +
	    (d->relaying ? d->op.u.relay.moved : 0);
}

uint64_t
tunnel_stalled_since(const struct tunnel *t)
{
	uint64_t oldest = UINT64_MAX;

	for (int i = 0; i < 2; i++) {
		const struct tunnel_direction *d = &t->dir[i];

		if (d->relaying && io_armed(&d->op) && io_relay_held(&d->op) > 0 &&
		    d->op.u.relay.last_ns < oldest)
			oldest = d->op.u.relay.last_ns;
	}
	return oldest;
}

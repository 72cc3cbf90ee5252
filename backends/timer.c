/* SPDX-License-Identifier: ISC */
/*
 * Timers (C24): a pairing heap by deadline, then by the order set.  Intrusive,
 * so setting a timer can't fail for want of memory; set is O(1), stop and the
 * next one O(log n) amortised.
 *
 * A node's `prev` is its left sibling, or its parent if it is the first child;
 * the root has none.
 */
#include "internal.h"

static bool
before(const struct io_timer *a, const struct io_timer *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

/* Two roots (either may be NULL) to one. */
static struct io_timer *
meld(struct io_timer *a, struct io_timer *b)
{
	if (a == NULL || b == NULL)
		return a == NULL ? b : a;
	if (before(b, a)) {
		struct io_timer *t = a;

		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (a->child != NULL)
		a->child->prev = b;
	a->child = b;
	return a;
}

/* The siblings from `first` on to one root: pairs from left to right, then all from right to left. */
static struct io_timer *
meld_siblings(struct io_timer *first)
{
	struct io_timer *pairs = NULL, *root = NULL;

	while (first != NULL) {
		struct io_timer *a = first, *b = a->next, *m;

		first = b != NULL ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b != NULL)
			b->next = b->prev = NULL;
		m = meld(a, b);
		m->next = pairs;	/* a stack: the rightmost pair on top */
		pairs = m;
	}
	while (pairs != NULL) {
		struct io_timer *m = pairs;

		pairs = m->next;
		m->next = NULL;
		root = meld(root, m);
	}
	return root;
}

void
io_timer_stop(struct io_loop *l, struct io_timer *t)
{
	struct io_timers *ts = &l->timers;
	struct io_timer *rest;

	assert(io_called_by_owner(l));
	if (!t->armed)
		return;
	rest = meld_siblings(t->child);
	if (t == ts->root)
		ts->root = rest;
	else {
		if (t->prev->child == t)
			t->prev->child = t->next;
		else
			t->prev->next = t->next;
		if (t->next != NULL)
			t->next->prev = t->prev;
		ts->root = meld(ts->root, rest);
	}
	t->armed = false;
	t->child = t->next = t->prev = NULL;
}

void
io_timer_set(struct io_loop *l, struct io_timer *t, uint64_t at_ns, io_timer_cb *cb)
{
	struct io_timers *ts = &l->timers;

	io_timer_stop(l, t);
	t->cb = cb;
	t->at_ns = at_ns;
	t->seq = ts->seq++;
	t->armed = true;
	t->child = t->next = t->prev = NULL;
	ts->root = meld(ts->root, t);
}

uint64_t
io_timer_next(const struct io_loop *l)
{
	return l->timers.root != NULL ? l->timers.root->at_ns : UINT64_MAX;
}

void
io_ready_timers(struct io_loop *l)
{
	struct io_timer *t;
	/* Timers set by the callbacks of this turn wait for the next one (C3). */
	uint64_t limit = l->timers.seq;

	while ((t = l->timers.root) != NULL && l->budget > 0) {
		if (t->at_ns > l->now_ns || t->seq >= limit)
			break;
		io_timer_stop(l, t);
		io_callback_begin(l);
		t->cb(l, t);
		io_callback_end(l);
	}
}

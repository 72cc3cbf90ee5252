/* SPDX-License-Identifier: ISC */
/*
 * Posts from other threads: a lock-free stack that the loop takes whole and
 * turns round, so that items of one producer run in the order they were posted.
 */
#include "internal.h"

/* Head value of a loop that refuses posts. */
static struct io_post refused;

bool
io_post(struct io_loop *l, struct io_post *p, io_post_cb *cb)
{
	struct io_post *head = atomic_load_explicit(&l->posts, memory_order_relaxed);

	p->cb = cb;
	do {
		if (head == &refused)
			return false;
		p->next = head;
	} while (!atomic_compare_exchange_weak_explicit(&l->posts, &head, p,
	    memory_order_release, memory_order_relaxed));
	if (head == NULL)
		io_wake(l);
	return true;
}

/* Appends what was posted, oldest first, to what is left from earlier turns. */
static void
take(struct io_loop *l, struct io_post *with)
{
	struct io_post *p, *next, *fifo = NULL, **tail = &l->posts_todo;

	p = atomic_exchange_explicit(&l->posts, with, memory_order_acquire);
	for (; p != NULL && p != &refused; p = next) {
		next = p->next;
		p->next = fifo;
		fifo = p;
	}
	while (*tail != NULL)
		tail = &(*tail)->next;
	*tail = fifo;
}

void
io_post_refuse(struct io_loop *l)
{
	assert(io_called_by_owner(l));
	take(l, &refused);
}

bool
io_posts_pending(const struct io_loop *l)
{
	struct io_post *head = atomic_load_explicit(&l->posts, memory_order_relaxed);

	return l->posts_todo != NULL || (head != NULL && head != &refused);
}

void
io_run_posts(struct io_loop *l)
{
	struct io_post *p;

	if (atomic_load_explicit(&l->posts, memory_order_relaxed) == &refused)
		take(l, &refused);
	else if (atomic_load_explicit(&l->posts, memory_order_relaxed) != NULL)
		take(l, NULL);
	/* A callback may post to its own loop: that goes to l->posts, hence to a later turn. */
	while ((p = l->posts_todo) != NULL && l->budget > 0) {
		l->posts_todo = p->next;
		p->next = NULL;
		io_callback_begin(l);
		p->cb(l, p);
		io_callback_end(l);
	}
}

void
io_wake(struct io_loop *l)
{
	/* Cleared by the backend before it looks at anything that a waker may have left. */
	if (!atomic_exchange_explicit(&l->wake_pending, true, memory_order_acq_rel))
		l->be->wake(l);
}

/* SPDX-License-Identifier: ISC */
/*
 * list: intrusive circular doubly linked list.  A link that is on no list
 * points at itself, so io_list_del() may be called twice.
 */
#ifndef IO_LIST_H
#define IO_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define io_container_of(p, type, member) \
	((type *)(void *)((char *)(p) - offsetof(type, member)))

struct io_link {
	struct io_link	*next, *prev;
};

static inline void
io_list_init(struct io_link *l)
{
	l->next = l->prev = l;
}

static inline bool
io_list_empty(const struct io_link *head)
{
	return head->next == head;
}

/* Before `head`, that is at the tail. */
static inline void
io_list_add_tail(struct io_link *head, struct io_link *l)
{
	l->next = head;
	l->prev = head->prev;
	head->prev->next = l;
	head->prev = l;
}

static inline void
io_list_add_head(struct io_link *head, struct io_link *l)
{
	io_list_add_tail(head->next, l);
}

static inline void
io_list_del(struct io_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	l->next = l->prev = l;
}

/* Moves all of `from` behind the tail of `to`; `from` is empty afterwards. */
static inline void
io_list_splice_tail(struct io_link *to, struct io_link *from)
{
	if (io_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	io_list_init(from);
}

#endif

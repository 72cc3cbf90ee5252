/* SPDX-License-Identifier: ISC */
/*
 * Pools of fixed-size blocks.  The address space for the ceiling is taken at
 * once; memory is touched only as blocks are first used, last in first out, so
 * a quiet worker stays small and a busy one stays in cache.
 */
#include <errno.h>
#include <stdlib.h>
#ifndef _WIN32
#include <sys/mman.h>
#endif

#include "internal.h"

#if !defined(_WIN32) && !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0		/* FreeBSD never reserves */
#endif

enum { STRIDE_ALIGN = 64 };	/* blocks begin on a cache line */

static void *
region_new(size_t bytes)
{
#ifdef _WIN32
	return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
#else
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
#endif
}

static void
region_free(void *p, size_t bytes)
{
#ifdef _WIN32
	(void)bytes;
	VirtualFree(p, 0, MEM_RELEASE);
#else
	munmap(p, bytes);
#endif
}

int
io_pool_new(struct io_pool **out, struct io_loop *l, uint32_t block_bytes,
    uint32_t ceiling, uint32_t reserve)
{
	struct io_pool *p;
	int rc = -ENOMEM;

	assert(io_called_by_owner(l));
	assert(block_bytes > 0 && ceiling > 0 && reserve < ceiling);
	if ((p = calloc(1, sizeof *p)) == NULL)
		return -ENOMEM;
	p->loop = l;
	p->block_bytes = block_bytes;
	p->stride = (block_bytes + IO_HEADROOM + STRIDE_ALIGN - 1) & ~(uint32_t)(STRIDE_ALIGN - 1);
	p->ceiling = ceiling;
	p->reserve = reserve;
	io_list_init(&p->waiters);
	io_list_init(&p->waiters_reserve);
	if ((p->free = malloc(ceiling * sizeof *p->free)) == NULL)
		goto fail;
	if ((p->base = region_new((size_t)ceiling * p->stride)) == NULL)
		goto fail;
	/* Block 0 on top: the low end of the region is the hot one. */
	while (p->nfree < ceiling) {
		p->free[p->nfree] = ceiling - 1 - p->nfree;
		p->nfree++;
	}
	if (l->be->pool_bind != NULL && (rc = l->be->pool_bind(l, p)) < 0)
		goto fail;
	io_list_add_tail(&l->pools, &p->link);
	*out = p;
	return 0;
fail:
	if (p->base != NULL)
		region_free(p->base, (size_t)ceiling * p->stride);
	free(p->free);
	free(p);
	return rc;
}

void
io_pool_free(struct io_pool *p)
{
	struct io_loop *l = p->loop;

	assert(io_called_by_owner(l));
	assert(p->lent == 0 && io_list_empty(&p->waiters) && io_list_empty(&p->waiters_reserve));
	if (l->be->pool_unbind != NULL)
		l->be->pool_unbind(l, p);
	io_list_del(&p->link);
	region_free(p->base, (size_t)p->ceiling * p->stride);
	free(p->free);
	free(p);
}

void
io_pool_lend(struct io_pool *p, uint32_t bid, struct io_buf *b)
{
	assert(bid < p->ceiling && p->lent < p->ceiling);
	p->lent++;
	b->base = io_pool_base(p, bid);
	b->len = 0;
	b->cap = p->block_bytes;
	b->bid = bid;
}

bool
io_pool_take(struct io_pool *p, bool use_reserve, struct io_buf *b)
{
	if (p->nfree <= (use_reserve ? 0 : p->reserve))
		return false;
	io_pool_lend(p, p->free[--p->nfree], b);
	return true;
}

bool
io_buf_get(struct io_pool *p, unsigned flags, struct io_buf *b)
{
	assert(io_bound_here(p->loop));		/* io_pool_new() saw to that */
	return io_pool_take(p, (flags & IO_USE_RESERVE) != 0, b);
}

/* Is anybody waiting who could be served now? */
static bool
servable(const struct io_pool *p)
{
	return (!io_list_empty(&p->waiters_reserve) && p->nfree > 0) ||
	    (!io_list_empty(&p->waiters) && p->nfree > p->reserve);
}

void
io_buf_put(struct io_pool *p, struct io_buf *b)
{
	bool waited_for;

	assert(io_bound_here(p->loop));
	assert(b->base == io_pool_base(p, b->bid) && p->lent > 0);
	p->lent--;
	b->base = NULL;		/* a second put asserts above */
	/* Waiters first: a block that goes into the ring is no use to one who waits for the stack. */
	waited_for = !io_list_empty(&p->waiters) || !io_list_empty(&p->waiters_reserve);
	if (!waited_for && p->loop->be->pool_keep != NULL &&
	    p->loop->be->pool_keep(p->loop, p, b->bid))
		return;
	assert(p->nfree < p->ceiling);
	p->free[p->nfree++] = b->bid;
	if (waited_for && servable(p))
		p->kick = true;
}

void
io_pool_wait(struct io_pool *p, struct io_op *op, bool use_reserve)
{
	assert(op->state == OP_ARMED && io_list_empty(&op->link));
	if (p->starved_since_ns == 0) {
		p->starved++;
		p->loop->stats.pool_starved++;
		p->starved_since_ns = p->loop->now_ns;
	}
	io_list_add_tail(use_reserve ? &p->waiters_reserve : &p->waiters, &op->link);
	/* Blocks may have come home between the failure and this call: no wake-up is lost. */
	if (servable(p))
		p->kick = true;
}

bool
io_pool_waits(const struct io_op *op)
{
	return op->state == OP_ARMED && !io_list_empty(&op->link);
}

bool
io_pools_kicked(const struct io_loop *l)
{
	for (const struct io_link *k = l->pools.next; k != &l->pools; k = k->next)
		if (io_container_of(k, struct io_pool, link)->kick)
			return true;
	return false;
}

static void
resume(struct io_pool *p, struct io_link *waiters, uint32_t keep)
{
	/* One block each at the most, and only those who waited when we came: no spinning. */
	for (uint32_t n = p->nfree > keep ? p->nfree - keep : 0;
	    n > 0 && !io_list_empty(waiters); n--) {
		struct io_op *op = io_container_of(waiters->next, struct io_op, link);

		io_list_del(&op->link);
		p->loop->be->resume(p->loop, op);
	}
}

void
io_pools_kick(struct io_loop *l)
{
	for (struct io_link *k = l->pools.next; k != &l->pools; k = k->next) {
		struct io_pool *p = io_container_of(k, struct io_pool, link);

		if (!p->kick)
			continue;
		p->kick = false;
		resume(p, &p->waiters_reserve, 0);
		resume(p, &p->waiters, p->reserve);
	}
	/* The episode ends when nobody waits any more. */
	for (struct io_link *k = l->pools.next; k != &l->pools; k = k->next) {
		struct io_pool *p = io_container_of(k, struct io_pool, link);

		if (io_list_empty(&p->waiters) && io_list_empty(&p->waiters_reserve))
			p->starved_since_ns = 0;
	}
}

struct io_pool_stats
io_pool_stats(const struct io_pool *p)
{
	return (struct io_pool_stats){
		.block_bytes = p->block_bytes, .ceiling = p->ceiling,
		.reserve = p->reserve, .lent = p->lent, .starved = p->starved,
		.starved_since_ns = p->starved_since_ns
	};
}

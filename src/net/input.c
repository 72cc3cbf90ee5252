/* SPDX-License-Identifier: ISC */
#include "net/input.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { PARK_FIRST_BYTES = 512 };	/* a SOCKS request or a small head */

void
input_init(struct input *in, struct io_pool *pool)
{
	*in = (struct input){ .pool = pool };
}

static void
drop_block(struct input *in)
{
	if (in->block.base != NULL)
		io_buf_put(in->pool, &in->block);
	in->block.base = NULL;
}

void
input_free(struct input *in)
{
	drop_block(in);
	free(in->text);
	in->text = NULL;
	in->cap = in->from = in->to = 0;
}

struct span
input_bytes(const struct input *in)
{
	const char *base = in->block.base != NULL ? (const char *)in->block.base : in->text;

	return base == NULL ? span_of("", 0) : span_of(base + in->from, in->to - in->from);
}

void
input_consume(struct input *in, size_t n)
{
	assert(n <= in->to - in->from);
	in->from += n;
	if (in->from == in->to) {
		drop_block(in);
		in->from = in->to = 0;
	}
}

/* Room for `more` bytes behind what is parked. */
static int
reserve(struct input *in, size_t more)
{
	size_t have = in->to - in->from, cap;
	char *text;

	assert(in->block.base == NULL);
	if (in->from > 0 && have > 0)
		memmove(in->text, in->text + in->from, have);
	in->from = 0;
	in->to = have;
	if (have + more <= in->cap)
		return 0;
	for (cap = in->cap ? in->cap : PARK_FIRST_BYTES; cap < have + more;)
		cap *= 2;
	if ((text = realloc(in->text, cap)) == NULL)
		return -ENOMEM;
	in->text = text;
	in->cap = cap;
	return 0;
}

int
input_park(struct input *in)
{
	struct io_buf block = in->block;
	size_t from = in->from, len = in->to - in->from;
	int rc;

	if (block.base == NULL)
		return 0;
	in->block.base = NULL;
	in->from = in->to = 0;
	if ((rc = reserve(in, len)) == 0) {
		memcpy(in->text, block.base + from, len);
		in->to = len;
	}
	io_buf_put(in->pool, &block);
	return rc;
}

int
input_add(struct input *in, struct io_op *op)
{
	struct io_buf *bufs = op->u.pool.bufs;
	unsigned n = op->u.pool.n;
	size_t total = 0;
	int rc = 0;

	if (in->from == in->to && n == 1) {
		in->block = bufs[0];
		in->from = 0;
		in->to = bufs[0].len;
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		total += bufs[i].len;
	if ((rc = input_park(in)) == 0)
		rc = reserve(in, total);
	for (unsigned i = 0; i < n; i++) {
		if (rc == 0) {
			memcpy(in->text + in->to, bufs[i].base, bufs[i].len);
			in->to += bufs[i].len;
		}
		io_buf_put(in->pool, &bufs[i]);
	}
	return rc;
}

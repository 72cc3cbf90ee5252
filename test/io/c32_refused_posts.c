/* SPDX-License-Identifier: ISC */
/* C32: io_post to a loop that was told to refuse returns false; what was queued still runs. */
#include "suite.h"

struct item {
	struct io_post	 post;
	unsigned	 runs;
};

static unsigned ran;

static void
item_ran(struct io_loop *l, struct io_post *p)
{
	t_enter(l);
	io_container_of(p, struct item, post)->runs++;
	ran++;
	t_leave(l);
}

CASE(posts_queued_before_the_refusal_run_and_later_ones_are_refused, "C32 C6")
{
	struct io_loop *l = t_loop();
	struct item before[5] = { 0 }, after[5] = { 0 };

	for (int i = 0; i < 5; i++)
		CHECK(io_post(l, &before[i].post, item_ran));
	io_post_refuse(l);
	for (int i = 0; i < 5; i++)
		CHECK(!io_post(l, &after[i].post, item_ran));
	TURN_UNTIL(l, before[4].runs == 1);
	t_turn_for_ms(l, 5);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(before[i].runs, 1);
		CHECK_EQ(after[i].runs, 0);
	}
	/* Still a loop: it can be woken, has timers, and can be told again. */
	io_post_refuse(l);
	CHECK(!io_post(l, &after[0].post, item_ran));
	io_wake(l);
	t_turn(l, true);
	t_loop_end(l);
}

/* Producers at work while the loop refuses: each item runs once or was refused. */
enum { PRODUCERS = 3, ITEMS = 20000 };
static struct item items[PRODUCERS][ITEMS];
static unsigned accepted[PRODUCERS];
static struct io_loop *the_loop;

static void
produce(void *p)
{
	unsigned n = *(unsigned *)p;

	for (unsigned i = 0; i < ITEMS; i++) {
		if (!io_post(the_loop, &items[n][i].post, item_ran))
			break;
		accepted[n]++;
		if (i % 64 == 0)
			n_sleep_ms(0);
	}
}

CASE(refusal_amid_posts_from_other_threads_loses_none, "C32 C6")
{
	struct n_thread t[PRODUCERS];
	unsigned n[PRODUCERS];

	the_loop = t_loop();
	for (unsigned i = 0; i < PRODUCERS; i++) {
		n[i] = i;
		n_thread(&t[i], produce, &n[i]);
	}
	while (ran < 300)
		t_turn(the_loop, false);
	io_post_refuse(the_loop);
	for (int i = 0; i < PRODUCERS; i++)
		n_join(&t[i]);
	t_turn_for_ms(the_loop, 30);
	while (t_turn(the_loop, false) > 0)
		;
	for (int p = 0; p < PRODUCERS; p++) {
		t_note("producer %d: %u of %u before the refusal", p, accepted[p], ITEMS);
		for (unsigned i = 0; i < ITEMS; i++)
			CHECK_EQ(items[p][i].runs, i < accepted[p]);
	}
	t_loop_end(the_loop);
}

/* SPDX-License-Identifier: ISC */
/* C6: io_wake is async-signal-safe and coalesces; each post runs once, FIFO per producer. */
#ifndef _WIN32
#include <signal.h>
#endif

#include "suite.h"

enum { PRODUCERS = 4, ITEMS = 10000 };

struct item {
	struct io_post	 post;
	uint32_t	 producer, number, runs;
};

static struct item items[PRODUCERS][ITEMS];
static uint32_t next_number[PRODUCERS], ran;
static struct io_loop *the_loop;

static void
item_ran(struct io_loop *l, struct io_post *p)
{
	struct item *it = io_container_of(p, struct item, post);

	t_enter(l);
	if (it->runs++ != 0)
		FAIL("post %u of producer %u ran twice", it->number, it->producer);
	if (it->number != next_number[it->producer]++)
		FAIL("producer %u: post %u ran as number %u", it->producer, it->number,
		    next_number[it->producer] - 1);
	ran++;
	t_leave(l);
}

static void
produce(void *p)
{
	struct item *it = p;
	struct t_rand r = { it->producer + 1 };

	for (uint32_t i = 0; i < ITEMS; i++) {
		it[i].number = i;
		it[i].producer = it[0].producer;
		if (!io_post(the_loop, &it[i].post, item_ran))
			FAIL("post refused");
		/* Pauses, so that the loop goes to sleep in between. */
		if (t_rand_below(&r, 400) == 0)
			n_sleep_ms(1);
	}
}

CASE(posts_of_four_threads_all_run_once_and_in_order, "C6 C1")
{
	struct io_loop *l = the_loop = t_loop();
	struct n_thread t[PRODUCERS];

	for (uint32_t i = 0; i < PRODUCERS; i++) {
		items[i][0].producer = i;
		n_thread(&t[i], produce, items[i]);
	}
	TURN_UNTIL(l, ran == PRODUCERS * ITEMS);
	for (int i = 0; i < PRODUCERS; i++)
		n_join(&t[i]);
	t_turn_for_ms(l, 5);
	CHECK_EQ(ran, PRODUCERS * ITEMS);
	t_loop_end(l);
}

/* One at a time, each waiting for the loop to have run the one before: every lost wake-up hangs. */
struct ping {
	struct io_post	 post;
	_Atomic unsigned done;
};
static struct ping ping;

static void
ping_ran(struct io_loop *l, struct io_post *p)
{
	t_enter(l);
	io_container_of(p, struct ping, post)->done++;
	t_leave(l);
}

static void
ping_thread(void *p)
{
	(void)p;
	for (unsigned i = 0; i < 3000; i++) {
		io_post(the_loop, &ping.post, ping_ran);
		while (ping.done != i + 1)
			if (i % 16 == 0)
				n_sleep_ms(0);
	}
}

CASE(no_wake_up_is_lost_when_posts_come_singly, "C6")
{
	struct n_thread t;
	struct io_loop *l = the_loop = t_loop();

	n_thread(&t, ping_thread, NULL);
	TURN_UNTIL(l, ping.done == 3000);
	n_join(&t);
	t_loop_end(l);
}

static void
wake_later(void *p)
{
	n_sleep_ms(20);
	io_wake(p);
}

static bool late;
static void too_late(struct io_loop *l, struct io_timer *t) { (void)l; (void)t; late = true; }

CASE(wake_ends_a_blocking_turn, "C6")
{
	struct io_loop *l = t_loop();
	struct io_timer limit = { 0 };
	struct n_thread t;
	unsigned turns = 0;

	io_timer_set(l, &limit, n_now_ns() + 5000000000u, too_late);
	n_thread(&t, wake_later, l);
	t_turn(l, true);
	n_join(&t);
	CHECK(!late);
	/* Before the turn is as good as during it. */
	io_wake(l);
	t_turn(l, true);
	CHECK(!late);
	/* Many wakes are one: the loop goes back to sleep after at most a few turns. */
	for (int i = 0; i < 10000; i++)
		io_wake(l);
	io_timer_set(l, &limit, n_now_ns() + 50000000, too_late);
	while (!late) {
		t_turn(l, true);
		turns++;
	}
	CHECK(turns < 10);
	t_loop_end(l);
}

#ifndef _WIN32
static struct io_loop *signal_loop;
static volatile sig_atomic_t signals;

static void
wake_in_handler(int sig)
{
	(void)sig;
	signals++;
	io_wake(signal_loop);
}

struct signaller {
	pthread_t	 to;
	_Atomic bool	 quit;
};

static void
send_signals(void *p)
{
	struct signaller *s = p;

	while (!s->quit) {
		pthread_kill(s->to, SIGUSR1);
		n_sleep_ms(1);
	}
}

/* Each blocking turn has no other reason to end. */
CASE(wake_works_from_a_signal_handler, "C6 C5")
{
	struct sigaction sa = { .sa_handler = wake_in_handler, .sa_flags = SA_RESTART };
	struct signaller s = { .to = pthread_self() };
	struct n_thread t;

	signal_loop = t_loop();
	sigaction(SIGUSR1, &sa, NULL);
	n_thread(&t, send_signals, &s);
	for (int i = 0; i < 50; i++)
		t_turn(signal_loop, true);
	s.quit = true;
	n_join(&t);
	CHECK(signals > 0);
	t_loop_end(signal_loop);
}
#else
CASE_NOT_HERE(wake_works_from_a_signal_handler, "C6 C5", "Windows has no signals")
#endif

struct again {
	struct io_post	 post;
	unsigned	 left;
};

static void
repost(struct io_loop *l, struct io_post *p)
{
	struct again *a = io_container_of(p, struct again, post);

	t_enter(l);
	if (--a->left > 0)
		io_post(l, p, repost);
	t_leave(l);
}

CASE(post_may_be_reused_in_its_own_callback, "C6")
{
	struct io_loop *l = t_loop();
	struct again a = { .left = 100 };

	io_post(l, &a.post, repost);
	TURN_UNTIL(l, a.left == 0);
	t_loop_end(l);
}

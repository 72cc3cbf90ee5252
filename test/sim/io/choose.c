/* SPDX-License-Identifier: ISC */
/*
 * choose: the conformance suite (test/io) over the simulated kernel: its own
 * sockets are simulated too, with the real clock and real threads.  SIM_SEED in
 * the environment chooses what chance does.
 */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "suite.h"

int	__real_io_choose(struct io_choice *, const char *, int);
int	__wrap_io_choose(struct io_choice *, const char *, int);

static struct sim_trace trace;

/* Before any case makes a socket. */
__attribute__((constructor))
static void
begin(void)
{
	const char *seed = getenv("SIM_SEED");

	sim_begin(seed != NULL ? strtoull(seed, NULL, 10) : 1, &trace, true);
	/* No latency: as over loopback, cases look at the far end right after a send. */
	sim.faults.late_permille = 200;
	sim.faults.late_ns = 300 * SIM_US;
}

int
__wrap_io_choose(struct io_choice *out, const char *name, int level)
{
	if (strcmp(name, "sim") != 0)
		return __real_io_choose(out, name, level);
	memset(out, 0, sizeof *out);
	out->backend = &io_backend_sim;
	return 0;
}

/* ---- what a simulated kernel can't show ---- */

void	__real_t_register(struct t_case *);
void	__wrap_t_register(struct t_case *);

#define BECAUSE(fn, why) static void fn(void) { t_skip("%s", why); }
BECAUSE(no_splice, "a simulated kernel has no pipes to splice with")
BECAUSE(no_unix, "there are no simulated Unix sockets")
BECAUSE(no_gro, "a simulated kernel joins no datagrams")
BECAUSE(no_netdev, "needs network interfaces; test/sim has unreachable and silent hosts")
BECAUSE(no_choice, "it is linked in for tests, and io_choose() does not know it")
BECAUSE(ahead, "it takes connections ahead on purpose, as C15 allows and AcceptEx does")
BECAUSE(no_descriptor, "its loop uses no descriptor")

static const struct { const char *name; void (*why)(void); } left_out[] = {
	{ "bulk_is_spliced_and_chat_goes_back_to_copying", no_splice },
	{ "accept_takes_no_more_than_its_callback_wants", ahead },
	{ "accept_works_on_unix_sockets", no_unix },
	{ "blocked_batch_goes_on_when_there_is_room", no_unix },
	{ "blocked_batch_that_is_cancelled_tells_what_went", no_unix },
	{ "pieces_wait_for_room_and_go_out_whole", no_unix },
	{ "run_of_segments_comes_in_one_buffer", no_gro },
	{ "connect_without_a_route_is_network_unreachable", no_netdev },
	{ "connect_to_an_unreachable_host_is_host_unreachable", no_netdev },
	{ "connect_that_a_local_rule_forbids_is_access_denied", no_netdev },
	{ "connect_that_nobody_answers_times_out", no_netdev },
	{ "chosen_backend_is_the_one_that_runs", no_choice },
	{ "auto_gives_a_backend_that_works", no_choice },
	{ "every_compiled_backend_can_be_named_or_says_why_not", no_choice },
	{ "io_uring_refused_by_eperm_means_epoll", no_choice },
	{ "io_uring_refused_by_enosys_means_epoll", no_choice },
	{ "io_uring_refused_by_eacces_means_epoll", no_choice },
	{ "io_uring_refused_by_eopnotsupp_means_epoll", no_choice },
	{ "io_uring_refused_by_einval_on_every_rung_means_epoll", no_choice },
	{ "io_uring_out_of_memory_is_fatal", no_choice },
	{ "flag_levels_work_or_say_why_not", no_choice },
	{ "limit_on_descriptors_is_fatal_and_not_a_reason_to_go_on", no_descriptor },
	{ "loop_without_a_descriptor_to_be_had_is_an_error", no_descriptor }
};

void
__wrap_t_register(struct t_case *c)
{
	for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
		if (strcmp(c->name, left_out[i].name) == 0) {
			c->fn = left_out[i].why;
			c->flags = 0;
		}
	__real_t_register(c);
}

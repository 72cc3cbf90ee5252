/* SPDX-License-Identifier: ISC */
/* C30: the choice of a backend; C31: made once, before threads and before privileges go. */
#include <errno.h>
#ifndef _WIN32
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "relay_rig.h"

static bool
compiled_in(const char *name)
{
	const char *p = strstr(io_backends_compiled(), name);
	size_t n = strlen(name);

	return p != NULL && (p[n] == '\0' || p[n] == ' ');
}

CASE(chosen_backend_is_the_one_that_runs, "C30")
{
	struct io_loop *l = t_loop();

	CHECK(strcmp(io_backend_name(l), io_choice_name(&t_opts.choice)) == 0);
	if (strcmp(t_opts.backend, "auto") != 0)
		CHECK(strcmp(io_backend_name(l), t_opts.backend) == 0);
	CHECK(io_backend_why(l) != NULL);
	CHECK(compiled_in(io_backend_name(l)));
	t_loop_end(l);
}

/* Data goes through a loop made from the choice. */
static void
choice_works(const struct io_choice *c)
{
	struct io_config cfg = { .choice = c };
	struct io_loop *l = t_loop_of(&cfg);
	struct t_sock a;
	struct t_op r = { 0 };
	char buf[4];
	io_fd fd[2];

	n_pair(fd);
	t_adopt(l, &a, fd[0]);
	t_recv(&r, &a, buf, sizeof buf);
	t_turn(l, false);
	n_send(fd[1], "x", 1);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 1);
	t_close(&a);
	t_loop_end(l);
	n_close(fd[1]);
}

CASE(auto_gives_a_backend_that_works, "C30")
{
	struct io_choice c;

	CHECK_EQ(io_choose(&c, "auto", -1), 0);
	CHECK(compiled_in(io_choice_name(&c)));
	choice_works(&c);
}

CASE(every_compiled_backend_can_be_named_or_says_why_not, "C30")
{
	char names[160], *p = names, *end;
	struct io_choice c;
	unsigned worked = 0;

	CHECK(strlen(io_backends_compiled()) < sizeof names);
	strcpy(names, io_backends_compiled());
	while (*p != '\0') {
		if ((end = strchr(p, ' ')) != NULL)
			*end = '\0';
		if (io_choose(&c, p, -1) == 0) {
			CHECK(strcmp(io_choice_name(&c), p) == 0);
			CHECK_EQ(c.why[0], '\0');
			choice_works(&c);
			worked++;
		} else {
			CHECK(c.why[0] != '\0');
		}
		if (end == NULL)
			break;
		p = end + 1;
	}
	CHECK(worked > 0);
}

CASE(unknown_backend_is_an_error_that_names_the_known_ones, "C30")
{
	static const char *const names[] = { "no-such", "", "io_urin", "io_uring ", "EPOLL" };
	struct io_choice c;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		CHECK(io_choose(&c, names[i], -1) < 0);
		CHECK(strstr(c.why, io_backends_compiled()) != NULL);
		CHECK(strstr(c.why, names[i]) != NULL);
		CHECK(strcmp(io_choice_name(&c), "none") == 0);
	}
}

#ifndef _WIN32
/* Running out of descriptors must not look like a kernel without a feature. */
CASE_ALONE(limit_on_descriptors_is_fatal_and_not_a_reason_to_go_on, "C30")
{
	struct rlimit lim;
	struct io_choice c;
	int fd = dup(0), rc;

	CHECK(fd >= 0);
	close(fd);
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = (rlim_t)fd;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &lim), 0);
	rc = io_choose(&c, "auto", -1);
	CHECK(rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM);
	CHECK(c.why[0] != '\0');
	rc = io_choose(&c, t_opts.backend, t_opts.uring_level);
	CHECK(rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

CASE_ALONE(loop_without_a_descriptor_to_be_had_is_an_error, "C30 C23")
{
	struct io_config cfg = t_config();
	struct rlimit lim;
	struct io_loop *l = NULL;
	int fd = dup(0), rc;

	CHECK(fd >= 0);
	close(fd);
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = (rlim_t)fd;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &lim), 0);
	rc = io_loop_new(&l, &cfg);
	CHECK(rc < 0);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	t_loop_end(t_loop());
}
#else
CASE_NOT_HERE(limit_on_descriptors_is_fatal_and_not_a_reason_to_go_on, "C30",
    "no limit on a process's handles can be set")
CASE_NOT_HERE(loop_without_a_descriptor_to_be_had_is_an_error, "C30 C23",
    "no limit on a process's handles can be set")
#endif

#ifdef __linux__
/* What a container runtime does. */
static void
forbid_io_uring(int err)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	};
	struct sock_fprog prog = { sizeof f / sizeof f[0], f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
		SKIP("no seccomp filter permitted");
}

static void
without_io_uring(int err, bool fatal)
{
	struct io_choice c;
	int rc;

	if (!compiled_in("io_uring") || !compiled_in("epoll"))
		SKIP("io_uring or epoll is not compiled in");
	forbid_io_uring(err);
	rc = io_choose(&c, "auto", -1);
	if (fatal) {
		CHECK(rc < 0);
		CHECK(c.why[0] != '\0');
		return;
	}
	CHECK_EQ(rc, 0);
	CHECK(strcmp(io_choice_name(&c), "epoll") == 0);
	CHECK(strstr(c.why, "io_uring") != NULL);
	t_note("why: %s", c.why);
	choice_works(&c);
	/* Strict when named. */
	CHECK(io_choose(&c, "io_uring", -1) < 0);
	CHECK(strstr(c.why, "io_uring") != NULL);
	CHECK_EQ(io_choose(&c, "epoll", -1), 0);
	CHECK_EQ(c.why[0], '\0');
}

CASE_ALONE(io_uring_refused_by_eperm_means_epoll, "C30") { without_io_uring(EPERM, false); }
CASE_ALONE(io_uring_refused_by_enosys_means_epoll, "C30") { without_io_uring(ENOSYS, false); }
CASE_ALONE(io_uring_refused_by_eacces_means_epoll, "C30") { without_io_uring(EACCES, false); }
CASE_ALONE(io_uring_refused_by_eopnotsupp_means_epoll, "C30") { without_io_uring(EOPNOTSUPP, false); }
CASE_ALONE(io_uring_refused_by_einval_on_every_rung_means_epoll, "C30")
{
	without_io_uring(EINVAL, false);
}
CASE_ALONE(io_uring_out_of_memory_is_fatal, "C30") { without_io_uring(ENOMEM, true); }

CASE(flag_levels_work_or_say_why_not, "C30")
{
	struct io_choice c;

	if (!compiled_in("io_uring"))
		SKIP("io_uring is not compiled in");
	for (int level = 0; level <= 2; level++) {
		int rc = io_choose(&c, "io_uring", level);

		if (rc == 0) {
			CHECK_EQ(c.uring_level, level);
			choice_works(&c);
		} else {
			CHECK(c.why[0] != '\0');
		}
		t_note("level %d: %s", level, rc == 0 ? "works" : c.why);
	}
}

/*
 * Daemons choose, then give up their privileges, then make loops, in threads.
 * A spliced relay shows that pipes are to be had, or done without.
 */
static _Atomic unsigned unprivileged_done;

static void
unprivileged(void *p)
{
	struct rig g;
	struct rig_pump w = { .rig = &g, .bytes = 8 << 20, .piece_max = 1 << 18 };
	struct rig_pump r = { .rig = &g, .piece_max = 1 << 18 };

	(void)p;
	rig_open(&g, t_loop(), 0, 0, 32);
	rig_start(&g, UINT64_MAX);
	rig_write_thread(&w);
	rig_read_thread(&r);
	while (g.relay.armed)
		t_turn(g.l, true);
	CHECK_EQ(g.relay.res, 0);
	CHECK_EQ(io_shutdown(&g.dst.s), 0);
	n_join(&w.thread);
	n_join(&r.thread);
	CHECK_EQ(g.got, 8 << 20);
	rig_free(&g);
	t_loop_end(g.l);
	unprivileged_done++;
}

CASE_ALONE(loops_made_in_threads_after_dropping_privileges_work, "C31 C30")
{
	struct n_thread t[2];
	sigset_t all;

	if (getuid() != 0)
		SKIP("nothing to drop: not root");
	CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	/* Signals are main's: blocked before any thread. */
	sigfillset(&all);
	sigdelset(&all, SIGALRM);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
	for (int i = 0; i < 2; i++)
		n_thread(&t[i], unprivileged, NULL);
	for (int i = 0; i < 2; i++)
		n_join(&t[i]);
	CHECK_EQ(unprivileged_done, 2);
}
#else
CASE_NOT_HERE(io_uring_that_is_refused_means_epoll, "C30", "io_uring and epoll are Linux's")
CASE_NOT_HERE(loops_made_in_threads_after_dropping_privileges_work, "C31 C30",
    "no ids to drop here")
#endif

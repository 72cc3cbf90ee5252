/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "background.h"

enum { OUTPUT_MAX = 2048, SOME_UID = 54321, WAIT_MS = 10000 };

static char text[BACKGROUND_TEXT_MAX];
static char output[OUTPUT_MAX];

/*
 * Runs f as `ringway --daemon` would run: in a process that detaches.  Its exit
 * code as its starter sees it; what comes out of its standard error and what
 * daemons write to `report` until the last of them ends is in `output`.
 */
static char started_in[4096];	/* folders are kept: relative paths mean the same to reloads */

static int
started(void (*f)(struct background *, int report))
{
	struct background b;
	int ends[2], status;
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	cr_assert_eq(pipe(ends), 0);
	fflush(NULL);
	if ((pid = fork()) == 0) {
		close(ends[0]);
		dup2(ends[1], 2);
		signal(SIGPIPE, SIG_IGN);
		if (getcwd(started_in, sizeof(started_in)) == NULL || background_detach(&b, text) != 0)
			_exit(9);
		f(&b, ends[1]);
		_exit(0);
	}
	close(ends[1]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	while ((n = read(ends[0], output + used, sizeof(output) - 1 - used)) > 0)
		used += (size_t)n;
	output[used] = '\0';
	close(ends[0]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void
is_ready(struct background *b, int report)
{
	struct stat null, st[3];
	char cwd[4096];

	background_ready(b);
	stat("/dev/null", &null);
	for (int i = 0; i < 3; i++)
		fstat(i, &st[i]);
	dprintf(report, "leader=%d cwd=%s null=%d%d%d\n", getsid(0) == getpid(), strcmp(getcwd(cwd, sizeof(cwd)), started_in) == 0 ? "kept" : cwd,
	    st[0].st_rdev == null.st_rdev, st[1].st_rdev == null.st_rdev,
	    st[2].st_rdev == null.st_rdev);
}

static void
discard_output(void)
{
	int p[2];

	/* Neither a file nor a terminal. */
	cr_assert_eq(pipe(p), 0);
	dup2(p[1], 1);
}

Test(background, the_starter_exits_with_0_once_ready)
{
	discard_output();
	cr_expect_eq(started(is_ready), 0);
	cr_expect_str_eq(output, "leader=0 cwd=kept null=111\n");
}

Test(background, output_that_goes_to_a_file_stays_there)
{
	FILE *f = tmpfile();

	dup2(fileno(f), 1);
	cr_expect_eq(started(is_ready), 0);
	cr_expect_str_eq(output, "leader=0 cwd=kept null=101\n");
	fclose(f);
}

static void
fails(struct background *b, int report)
{
	(void)report;
	background_failed(b, "port in use");
}

static void
fails_having_said_why(struct background *b, int report)
{
	(void)report;
	fprintf(stderr, "a log line\n");
	background_failed(b, NULL);
}

static void
dies(struct background *b, int report)
{
	(void)b;
	(void)report;
	kill(getpid(), SIGKILL);
}

Test(background, the_starter_exits_with_1_and_the_reason_when_not)
{
	cr_expect_eq(started(fails), 1);
	cr_expect_str_eq(output, "ringway: port in use\n");
	cr_expect_eq(started(fails_having_said_why), 1);
	cr_expect_str_eq(output, "a log line\nringway: did not start\n");
	cr_expect_eq(started(dies), 1);
	cr_expect_str_eq(output, "ringway: did not start\n");
}

Test(background, nobody_waits_in_the_foreground)
{
	struct background b;

	background_init(&b);
	background_ready(&b);
	background_failed(&b, "x");
	cr_expect_eq(b.ready_fd, -1);
}

Test(background, a_waiting_predecessor_may_look_now_and_then)
{
	struct background b;
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	background_adopt(&b, ends[1]);
	cr_expect_eq(background_look(ends[0], 0, text), BACKGROUND_STARTING);
	background_ready(&b);
	cr_expect_eq(background_look(ends[0], 0, text), BACKGROUND_READY);
	cr_expect_eq(b.ready_fd, -1);
	close(ends[0]);
	/* One that gave up waiting. */
	signal(SIGPIPE, SIG_IGN);
	cr_assert_eq(pipe(ends), 0);
	background_adopt(&b, ends[1]);
	close(ends[0]);
	background_ready(&b);
}

/* ---- pid file ---- */

static char dir[64], path[96];

static void
make_dir(void)
{
	strcpy(dir, "/tmp/ringway-pid-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/ringway.pid", dir);
}

static void
remove_dir(void)
{
	unlink(path);
	/* Fails, and so does the test, if a temporary file was left behind. */
	cr_expect_eq(rmdir(dir), 0, "%s is not empty", dir);
}

static const char *
contents(void)
{
	static char buf[64];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return "none";
	buf[n] = '\0';
	return buf;
}

static void
write_contents(const char *what)
{
	FILE *f = fopen(path, "w");

	fputs(what, f);
	fclose(f);
}

static const char *
own_line(void)
{
	static char buf[32];

	snprintf(buf, sizeof(buf), "%ld\n", (long)getpid());
	return buf;
}

TestSuite(pid_file, .init = make_dir, .fini = remove_dir);

Test(pid_file, holds_the_number_and_goes_at_the_end)
{
	struct background_pidfile p;

	cr_assert_eq(background_pid_take(&p, path, text), 0, "%s", text);
	cr_expect_str_eq(contents(), own_line());
	background_pid_release(&p);
	cr_expect_str_eq(contents(), "none");
	background_pid_release(&p);
}

Test(pid_file, none_is_fine)
{
	struct background_pidfile p;

	cr_expect_eq(background_pid_take(&p, "", text), 0);
	cr_expect_eq(background_pid_write(&p), 0);
	background_pid_release(&p);
}

Test(pid_file, of_a_live_process_is_refused)
{
	struct background_pidfile p, second;
	char want[BACKGROUND_TEXT_MAX];

	cr_assert_eq(background_pid_take(&p, path, text), 0, "%s", text);
	cr_expect_eq(background_pid_take(&second, path, text), -EEXIST);
	snprintf(want, sizeof(want), "pid_file: %s belongs to process %ld, which is running", path,
	    (long)getpid());
	cr_expect_str_eq(text, want);
	background_pid_release(&second);
	cr_expect_str_eq(contents(), own_line());
	background_pid_release(&p);
}

Test(pid_file, of_a_dead_process_is_replaced)
{
	struct background_pidfile p;

	/* A number that is alive proves nothing: after a restart of the machine it is somebody else's. */
	write_contents("1\n");
	cr_assert_eq(background_pid_take(&p, path, text), 0, "%s", text);
	cr_expect_str_eq(contents(), own_line());
	background_pid_release(&p);
	write_contents("");
	cr_assert_eq(background_pid_take(&p, path, text), 0, "%s", text);
	background_pid_release(&p);
}

Test(pid_file, that_is_something_else_is_left_alone)
{
	struct background_pidfile p;

	cr_expect_eq(background_pid_take(&p, dir, text), -EISDIR);
	cr_assert_eq(symlink("/etc/hostname", path), 0);
	cr_expect_eq(background_pid_take(&p, path, text), -ELOOP);
	unlink(path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_eq(background_pid_take(&p, path, text), -EINVAL);
	cr_expect_eq(background_pid_take(&p, "/nonexistent/x.pid", text), -ENOENT);
	cr_expect_str_eq(text, "pid_file: can't create /nonexistent/x.pid: No such file or directory");
}

/* Of many that start at once, one gets it. */
Test(pid_file, has_one_owner_whatever_the_race)
{
	enum { STARTERS = 12 };
	int go[2], tried[2], all[2], won = 0, status;
	struct background_pidfile p;
	char c;

	write_contents("1\n");
	cr_assert(pipe(go) == 0 && pipe(tried) == 0 && pipe(all) == 0);
	for (int i = 0; i < STARTERS; i++)
		if (fork() == 0) {
			bool taken;

			close(go[1]);
			close(all[1]);
			(void)!read(go[0], &c, 1);
			taken = background_pid_take(&p, path, text) == 0;
			(void)!write(tried[1], "", 1);
			if (!taken)
				_exit(1);
			(void)!read(all[0], &c, 1);
			_exit(strcmp(contents(), own_line()) == 0 ? 0 : 2);
		}
	close(go[1]);
	for (int i = 0; i < STARTERS; i++)
		cr_assert_eq(read(tried[0], &c, 1), 1);
	close(all[1]);
	for (int i = 0; i < STARTERS; i++) {
		wait(&status);
		cr_expect(WIFEXITED(status) && WEXITSTATUS(status) < 2);
		won += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	cr_expect_eq(won, 1);
}

Test(pid_file, is_handed_over_with_its_lock)
{
	struct background_pidfile old, new, third;
	int status, go[2];
	pid_t pid;
	char c;

	cr_assert_eq(pipe(go), 0);
	cr_assert_eq(background_pid_take(&old, path, text), 0, "%s", text);
	if ((pid = fork()) == 0) {
		close(go[1]);
		if (background_pid_adopt(&new, path, old.fd, text) != 0 || background_pid_write(&new) != 0)
			_exit(1);
		(void)!read(go[0], &c, 1);	/* until the old one has gone */
		if (strcmp(contents(), own_line()) != 0)
			_exit(2);
		/* The lock has outlived it. */
		if (background_pid_take(&third, path, text) != -EEXIST)
			_exit(3);
		background_pid_release(&new);
		_exit(strcmp(contents(), "none") == 0 ? 0 : 4);
	}
	while (strcmp(contents(), own_line()) == 0)
		usleep(1000);
	background_pid_release(&old);
	cr_expect_str_neq(contents(), "none", "not ours any more, so not removed");
	close(go[1]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0, "%d", WEXITSTATUS(status));
}

Test(pid_file, stays_the_old_processs_when_the_new_one_fails)
{
	struct background_pidfile old, new;
	pid_t pid;

	cr_assert_eq(background_pid_take(&old, path, text), 0, "%s", text);
	if ((pid = fork()) == 0)
		_exit(background_pid_adopt(&new, path, old.fd, text) == 0 ? 0 : 1);
	waitpid(pid, NULL, 0);
	cr_expect_str_eq(contents(), own_line());
	background_pid_release(&old);
	cr_expect_str_eq(contents(), "none");
}

Test(pid_file, under_another_name_after_a_hand_over_is_a_new_one)
{
	struct background_pidfile old, new;
	char other[128];

	snprintf(other, sizeof(other), "%s/other.pid", dir);
	cr_assert_eq(background_pid_take(&old, path, text), 0, "%s", text);
	cr_assert_eq(background_pid_adopt(&new, other, dup(old.fd), text), 0, "%s", text);
	cr_expect_eq(access(other, F_OK), 0);
	background_pid_release(&new);
	background_pid_release(&old);
	cr_expect_str_eq(contents(), "none");
}

Test(pid_file, is_emptied_where_it_cannot_be_removed)
{
	struct background_pidfile p;
	int status;
	pid_t pid;

	if (geteuid() != 0) {
		remove_dir();	/* a skipped test has no end */
		cr_skip_test("only root can become somebody else");
	}
	cr_assert_eq(chmod(dir, 0755), 0);
	if ((pid = fork()) == 0) {
		if (background_pid_take(&p, path, text) != 0 || setuid(SOME_UID) != 0)
			_exit(1);
		background_pid_release(&p);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	cr_expect_str_eq(contents(), "");
}

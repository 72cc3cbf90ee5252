/* SPDX-License-Identifier: ISC */
/* Outputs that take nothing more: full disks, limits, pipes that nobody reads. */
#include "test_accesslog.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- a full disk ---- */

/* Fills the file, makes room by `relief`, and goes on: only whole lines, all others counted. */
static void
fill_and_go_on(const char *name, void (*relief)(void))
{
	enum { LINES = 4000 };
	struct accesslog *log = open_log(name, 1, 16384);
	struct accesslog_lane *lanes[2] = { accesslog_lane_new(log), accesslog_lane_new(log) };
	struct seen seen = { 0 };
	uint64_t written;

	for (unsigned i = 0; i < LINES; i++) {
		write_line(lanes[i & 1], i & 1, i);
		if (i % 100 == 99)
			usleep(2000);
	}
	cr_expect(wait_for_lines(LINES));
	written = total(&totals.lines);
	cr_expect(total(&totals.dropped) > 0 && total(&totals.errors) > 0);
	see_file(&seen, name);
	expect_whole(&seen, written);
	cr_expect(strstr(error_log(), "access log lines dropped=") != NULL, "%s", error_log());
	relief();
	for (unsigned i = LINES; i < LINES + 20; i++)
		write_line(lanes[i & 1], i & 1, i);
	cr_expect(wait_for_lines(LINES + 20));
	accesslog_lane_release(lanes[0]);
	accesslog_lane_release(lanes[1]);
	cr_expect(accesslog_close(log, SOON_MS));
	cr_expect(totals.lines == written + 20);
	cr_expect(totals.lines + totals.dropped == LINES + 20);
	memset(&seen, 0, sizeof seen);
	see_file(&seen, name);
	expect_whole(&seen, written + 20);
}

static void
no_relief_needed(void)
{
	struct rlimit r;

	cr_assert(getrlimit(RLIMIT_FSIZE, &r) == 0);
	r.rlim_cur = r.rlim_max;
	cr_assert(setrlimit(RLIMIT_FSIZE, &r) == 0);
}

/* SIGXFSZ is not ignored here: the writer must not die of it. */
Test(accesslog_full, a_file_size_limit_drops_whole_lines, .init = set_up, .fini = tear_down)
{
	struct rlimit r;

	cr_assert(getrlimit(RLIMIT_FSIZE, &r) == 0);
	r.rlim_cur = 100001;		/* in the middle of a line */
	cr_assert(setrlimit(RLIMIT_FSIZE, &r) == 0);
	fill_and_go_on(path, no_relief_needed);
}

static char ballast[300];

static void
drop_ballast(void)
{
	cr_assert(unlink(ballast) == 0);
}

Test(accesslog_full, a_full_disk_drops_whole_lines, .init = set_up, .fini = tear_down)
{
	char name[300], filler[65536] = { 0 };
	int fd;

	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("ringway-test", dir, "tmpfs", 0, "size=256k,mode=0700") != 0)
		cr_skip_test("no tmpfs of our own: %s", strerror(errno));
	snprintf(name, sizeof name, "%s/full.log", dir);
	snprintf(ballast, sizeof ballast, "%s/ballast", dir);
	cr_assert((fd = open(ballast, O_WRONLY | O_CREAT, 0600)) >= 0);
	cr_assert(write(fd, filler, sizeof filler) == sizeof filler);
	close(fd);
	fill_and_go_on(name, drop_ballast);
	umount2(dir, MNT_DETACH);
}

/* ---- pipes ---- */

static uint64_t
read_all(int fd, struct seen *seen, size_t line_max)
{
	FILE *f = fdopen(fd, "r");
	char *line = malloc(line_max);
	uint64_t longest = 0;

	while (fgets(line, (int)line_max, f) != NULL) {
		longest = strlen(line) > longest ? strlen(line) : longest;
		see_line(seen, line);
	}
	free(line);
	fclose(f);
	return longest;
}

/* Standard output is the pipe. */
static int
make_stdout_pipe(void)
{
	int fds[2];

	fflush(stdout);
	cr_assert(pipe(fds) == 0);
	cr_assert(dup2(fds[1], STDOUT_FILENO) == STDOUT_FILENO);
	close(fds[1]);
	return fds[0];
}

static void
close_stdout(void)
{
	int null = open("/dev/null", O_WRONLY);

	dup2(null, STDOUT_FILENO);
	close(null);
}

struct reader {
	int		fd;
	struct seen	seen;
	uint64_t	longest;
};

static void *
read_pipe(void *arg)
{
	struct reader *r = arg;

	r->longest = read_all(r->fd, &r->seen, 65536);
	return NULL;
}

static bool
said_too_slow(uint64_t unused)
{
	(void)unused;
	return strstr(error_log(), "the output is too slow") != NULL;
}

Test(accesslog_full, a_pipe_that_nobody_reads_stops_nobody, .init = set_up, .fini = tear_down)
{
	enum { LINES = 20000 };
	struct reader reader = { .fd = make_stdout_pipe() };
	struct accesslog *log = open_log("-", 1, 16384);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	uint64_t slowest = 0, start;
	pthread_t thread;

	for (unsigned i = 0; i < LINES; i++) {
		start = now_ms();
		write_line(lane, 0, i);
		slowest = now_ms() - start > slowest ? now_ms() - start : slowest;
	}
	cr_expect(slowest < 1000, "a write took %llu ms", (unsigned long long)slowest);
	cr_expect(total(&totals.dropped) > LINES / 2);
	cr_expect(wait_until(said_too_slow, 0), "%s", error_log());
	/* Somebody reads at last: what was held comes, whole, and then new lines. */
	pthread_create(&thread, NULL, read_pipe, &reader);
	cr_expect(wait_for_lines(LINES));
	write_line(lane, 0, LINES);
	cr_expect(wait_for_lines(LINES + 1));
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	close_stdout();
	pthread_join(thread, NULL);
	expect_whole(&reader.seen, totals.lines);
	cr_expect(reader.seen.next[0] == LINES + 1);
	cr_expect(totals.lines + totals.dropped == LINES + 1);
}

Test(accesslog_full, close_gives_up_on_a_pipe_that_nobody_reads, .init = set_up, .fini = tear_down)
{
	enum { LINES = 2000 };
	int fd = make_stdout_pipe();
	struct accesslog *log = open_log("-", 1, 16384);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	uint64_t start = now_ms();

	for (unsigned i = 0; i < LINES; i++)
		write_line(lane, 0, i);
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	cr_expect(now_ms() - start < SOON_MS / 2);
	cr_expect(totals.lines + totals.dropped == LINES);
	close(fd);
}

Test(accesslog_full, a_pipe_whose_reader_has_gone_stops_nobody, .init = set_up, .fini = tear_down)
{
	int fd = make_stdout_pipe();
	struct accesslog *log = open_log("-", 1, 16384);
	struct accesslog_lane *lane = accesslog_lane_new(log);

	close(fd);
	for (unsigned i = 0; i < 1000; i++)
		write_line(lane, 0, i);
	cr_expect(wait_for_lines(1000));
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	cr_expect(totals.lines == 0 && totals.dropped == 1000 && totals.errors > 0);
}

Test(accesslog_full, long_lines_pass_a_pipe_whole, .init = set_up, .fini = tear_down)
{
	enum { LINES = 300 };
	static char target[7000];
	struct reader reader = { .fd = make_stdout_pipe() };
	struct accesslog *log = open_log("-", 5, 65536);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	struct access_entry e = { .target = span_of(target, sizeof target) };
	pthread_t thread;

	memset(target, 't', sizeof target);
	pthread_create(&thread, NULL, read_pipe, &reader);
	for (unsigned i = 0; i < LINES; i++) {
		e.target.len = 10 + i * 23 % (sizeof target - 10);
		accesslog_write(lane, &e);
		usleep(200);
	}
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	close_stdout();
	pthread_join(thread, NULL);
	cr_expect(reader.seen.lines == totals.lines && totals.lines + totals.dropped == LINES);
	cr_expect(reader.longest > 6000);
}

/* An operator moves away from a reader that hangs: the path is a file now, SIGUSR1. */
Test(accesslog_full, a_reopen_leaves_a_stuck_fifo, .init = set_up, .fini = tear_down)
{
	enum { LINES = 4000 };
	struct accesslog *log;
	struct accesslog_lane *lane;
	struct seen seen = { 0 };
	uint64_t held, passed;
	int fd;

	cr_assert(mkfifo(path, 0600) == 0);
	cr_assert((fd = open(path, O_RDONLY | O_NONBLOCK)) >= 0);
	log = open_log(path, 1, 16384);
	lane = accesslog_lane_new(log);
	for (unsigned i = 0; i < LINES; i++) {
		write_line(lane, 0, i);
		if (i % (LINES / 4) == 0)
			usleep(100000);		/* the FIFO is full, then the lane */
	}
	do {
		passed = total(&totals.lines);
		usleep(200000);
	} while (total(&totals.lines) != passed);
	held = LINES - passed - total(&totals.dropped);
	cr_expect(held > 100);
	cr_assert(rename(path, old_path) == 0);
	cr_expect(accesslog_reopen(log) == 0);
	cr_expect(wait_for_lines(LINES));
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	see_file(&seen, path);
	expect_whole(&seen, held);
	read_all(fd, &seen, 512);
	cr_expect(seen.lines == held + passed && seen.broken == 0);
}

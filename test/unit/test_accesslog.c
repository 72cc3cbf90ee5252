/* SPDX-License-Identifier: ISC */
#include "test_accesslog.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* ---- when lines go out ---- */

Test(accesslog, close_writes_what_is_held, .init = set_up, .fini = tear_down)
{
	struct accesslog *log = open_log(path, NEVER_MS, 1 << 20);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	struct seen seen = { 0 };
	struct stat st;

	for (unsigned i = 0; i < 100; i++)
		write_line(lane, 0, i);
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	see_file(&seen, path);
	expect_whole(&seen, 100);
	cr_expect(totals.lines == 100 && totals.dropped == 0 && totals.errors == 0);
	cr_assert(stat(path, &st) == 0);
	cr_expect(totals.bytes == (uint64_t)st.st_size);
	cr_expect((st.st_mode & 07777 & ~0640u) == 0, "mode %o", (unsigned)st.st_mode);
	cr_expect(error_log()[0] == '\0', "%s", error_log());
}

Test(accesslog, lines_go_out_after_flush_ms_by_themselves, .init = set_up, .fini = tear_down)
{
	struct accesslog *log = open_log(path, 200, 1 << 20);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	uint64_t start;

	write_line(lane, 0, 0);		/* may still be in time for the writer's first look */
	cr_expect(wait_for_lines(1));
	for (unsigned i = 1; i < 3; i++) {
		start = now_ms();
		write_line(lane, 0, i);
		cr_expect(wait_for_lines(i + 1));
		cr_expect(now_ms() - start >= 190, "line %u after %d ms", i, (int)(now_ms() - start));
	}
	accesslog_lane_release(lane);
	accesslog_close(log, SOON_MS);
}

Test(accesslog, a_full_buffer_does_not_wait_for_flush_ms, .init = set_up, .fini = tear_down)
{
	struct accesslog *log = open_log(path, NEVER_MS, 16384);
	struct accesslog_lane *lane = accesslog_lane_new(log);

	for (unsigned i = 0; i < 16384 / 128; i++)	/* a line is longer */
		write_line(lane, 0, i);
	cr_expect(wait_for_lines(16384 / 256));
	accesslog_lane_release(lane);
	accesslog_close(log, SOON_MS);
}

Test(accesslog, immediate_does_not_wait, .init = set_up, .fini = tear_down)
{
	struct accesslog_config config = {
		.path = path, .flush_ms = NEVER_MS, .buffer_bytes = 65536, .immediate = true
	};
	struct accesslog *log;
	struct accesslog_lane *lane;
	struct seen seen = { 0 };

	cr_assert(accesslog_open(&log, &config, &totals) == 0);
	lane = accesslog_lane_new(log);
	for (unsigned i = 0; i < 200; i++) {
		write_line(lane, 0, i);
		cr_assert(wait_for_lines(i + 1), "line %u", i);
	}
	see_file(&seen, path);
	expect_whole(&seen, 200);
	accesslog_lane_release(lane);
	accesslog_close(log, SOON_MS);
}

Test(accesslog, json_goes_out_as_json, .init = set_up, .fini = tear_down)
{
	struct accesslog_config config = { .path = path, .format = ACCESS_JSON, .immediate = true };
	struct accesslog *log;
	struct accesslog_lane *lane;
	char text[512] = "";
	FILE *f;

	cr_assert(accesslog_open(&log, &config, &totals) == 0);
	lane = accesslog_lane_new(log);
	write_line(lane, 3, 7);
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	cr_assert_not_null(f = fopen(path, "r"));
	cr_expect(fgets(text, sizeof text, f) != NULL);
	cr_expect(strncmp(text, "{\"time\":", 8) == 0 && strstr(text, "\"id\":7}\n") != NULL, "%s", text);
	fclose(f);
}

/* ---- rotation ---- */

enum { ROTATE_LANES = 4, ROTATE_LINES = 40000 };

static struct accesslog *shared;
static atomic_uint lanes_done;
static _Atomic uint64_t lines_issued;

static void *
rotated_worker(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	struct accesslog_lane *lane = accesslog_lane_new(shared);

	for (uint64_t i = 0; i < ROTATE_LINES; i++) {
		write_line(lane, number, i);
		atomic_fetch_add(&lines_issued, 1);
		/* No lane gets full, however slow the writer is. */
		while (i % 500 == 0 && atomic_load(&lines_issued) - total(&totals.lines) > 1000)
			usleep(500);
	}
	accesslog_lane_release(lane);
	atomic_fetch_add(&lanes_done, 1);
	return NULL;
}

Test(accesslog, rotation_under_load_loses_and_doubles_nothing, .init = set_up, .fini = tear_down)
{
	pthread_t threads[ROTATE_LANES];
	struct seen seen = { 0 };
	unsigned rotations = 0;
	char name[300];

	shared = open_log(path, 2, 65536);
	for (unsigned i = 0; i < ROTATE_LANES; i++)
		pthread_create(&threads[i], NULL, rotated_worker, (void *)(uintptr_t)i);
	while (atomic_load(&lanes_done) < ROTATE_LANES) {
		snprintf(name, sizeof name, "%s.%u", path, rotations);
		cr_assert(rename(path, name) == 0);
		cr_assert(accesslog_reopen(shared) == 0);
		rotations++;
		usleep(5000);
	}
	for (unsigned i = 0; i < ROTATE_LANES; i++)
		pthread_join(threads[i], NULL);
	cr_expect(accesslog_close(shared, SOON_MS));
	cr_expect(rotations > 5, "only %u rotations", rotations);
	for (unsigned i = 0; i < rotations; i++) {
		snprintf(name, sizeof name, "%s.%u", path, i);
		see_file(&seen, name);
		unlink(name);
	}
	see_file(&seen, path);
	cr_expect(totals.dropped == 0, "%llu dropped", (unsigned long long)totals.dropped);
	expect_whole(&seen, ROTATE_LANES * ROTATE_LINES);
	for (unsigned i = 0; i < ROTATE_LANES; i++)
		cr_expect(seen.next[i] == ROTATE_LINES);
}

Test(accesslog, what_was_written_before_a_reopen_is_in_the_old_file, .init = set_up, .fini = tear_down)
{
	struct accesslog *log = open_log(path, NEVER_MS, 1 << 20);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	struct seen old = { 0 }, new = { 0 };

	for (unsigned i = 0; i < 10; i++)
		write_line(lane, 0, i);
	cr_assert(rename(path, old_path) == 0);
	cr_expect(accesslog_reopen(log) == 0);
	cr_expect(wait_for_lines(10), "a reopen did not flush");
	see_file(&old, old_path);
	expect_whole(&old, 10);
	/* The swap follows the lines; what comes now may still be in time for the old file, not later. */
	cr_expect(accesslog_reopen(log) == 0);
	cr_expect(wait_until(old_paths_open_are, 0));
	write_line(lane, 0, 10);
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	see_file(&new, path);
	expect_whole(&new, 1);
}

Test(accesslog, a_path_that_cannot_be_opened_keeps_the_old_file, .init = set_up, .fini = tear_down)
{
	struct accesslog *log = open_log(path, NEVER_MS, 65536);
	struct accesslog_lane *lane = accesslog_lane_new(log);
	struct seen seen = { 0 };

	write_line(lane, 0, 0);
	cr_assert(rename(path, old_path) == 0);
	cr_assert(mkdir(path, 0700) == 0);
	cr_expect(accesslog_reopen(log) == -EISDIR);
	write_line(lane, 0, 1);
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	see_file(&seen, old_path);
	expect_whole(&seen, 2);
	cr_expect(strstr(error_log(), "the old file is kept") != NULL, "%s", error_log());
	rmdir(path);
}

Test(accesslog, open_says_why_not, .init = set_up, .fini = tear_down)
{
	struct accesslog_config config = { .path = "/nonexistent/access.log" };
	struct accesslog *log;

	cr_expect(accesslog_open(&log, &config, &totals) == -ENOENT);
	config.path = dir;
	cr_expect(accesslog_open(&log, &config, &totals) == -EISDIR);
	/* A FIFO that nobody reads must not hang the start. */
	cr_assert(mkfifo(path, 0600) == 0);
	config.path = path;
	cr_expect(accesslog_open(&log, &config, &totals) == -ENXIO);
}

Test(accesslog, a_file_that_ends_in_half_a_line_goes_on_with_a_new_one, .init = set_up, .fini = tear_down)
{
	FILE *f = fopen(path, "w");
	struct accesslog *log;
	struct accesslog_lane *lane;
	struct seen seen = { 0 };

	fputs("2026-07-30T16:36:34.338Z - \"GET /a/b", f);
	fclose(f);
	log = open_log(path, 10, 65536);
	lane = accesslog_lane_new(log);
	write_line(lane, 0, 0);
	write_line(lane, 0, 1);
	accesslog_lane_release(lane);
	cr_expect(accesslog_close(log, SOON_MS));
	see_file(&seen, path);
	cr_expect(seen.lines == 3 && seen.broken == 1, "%llu lines, %llu broken",
	    (unsigned long long)seen.lines, (unsigned long long)seen.broken);
}

/* ---- reload: a log that workers leave one by one ---- */

Test(accesslog, a_log_closed_without_waiting_ends_by_itself, .init = set_up, .fini = tear_down)
{
	uint64_t before = threads();
	struct accesslog *log = open_log(path, NEVER_MS, 65536);
	struct accesslog_lane *a = accesslog_lane_new(log), *b = accesslog_lane_new(log);
	struct seen seen = { 0 };

	write_line(a, 0, 0);
	accesslog_lane_release(a);
	cr_expect(!accesslog_close(log, 0));
	write_line(b, 1, 0);
	write_line(b, 1, 1);
	accesslog_lane_release(b);
	cr_expect(wait_for_lines(3));
	see_file(&seen, path);
	expect_whole(&seen, 3);
	cr_expect(wait_until(threads_are, before), "for the leak report: the writer frees everything");
}

Test(accesslog, two_logs_may_share_a_file, .init = set_up, .fini = tear_down)
{
	struct accesslog *logs[2] = { open_log(path, 1, 16384), open_log(path, 1, 16384) };
	struct accesslog_lane *lanes[2];
	struct seen seen = { 0 };

	for (unsigned i = 0; i < 2; i++)
		lanes[i] = accesslog_lane_new(logs[i]);
	for (unsigned i = 0; i < 20000; i++) {
		write_line(lanes[i & 1], i & 1, i);
		if (i % 100 == 99)
			usleep(500);
	}
	for (unsigned i = 0; i < 2; i++) {
		accesslog_lane_release(lanes[i]);
		cr_expect(accesslog_close(logs[i], SOON_MS));
	}
	see_file(&seen, path);
	expect_whole(&seen, 20000 - totals.dropped);
}

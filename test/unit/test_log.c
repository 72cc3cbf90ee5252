/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/log.h"

static const struct log_who worker3 = { .worker = 3, .session = 42 };
static FILE *sink;

/* Standard error is a file from here on; each test is a process of its own. */
static void
capture(void)
{
	sink = tmpfile();
	cr_assert_not_null(sink);
	cr_assert_eq(dup2(fileno(sink), STDERR_FILENO), STDERR_FILENO);
}

static char *
captured(void)
{
	static char text[1 << 17];
	ssize_t got = pread(fileno(sink), text, sizeof(text) - 1, 0);

	cr_assert_geq(got, 0);
	text[got] = '\0';
	return text;
}

static size_t
count_lines(const char *text)
{
	size_t count = 0;

	for (; *text != '\0'; text++)
		count += *text == '\n';
	return count;
}

/* Away from the end of a second, so that a burst falls into one. */
static void
wait_for_new_second(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	usleep((useconds_t)((1000000000 - now.tv_nsec) / 1000 + 2000));
}

Test(log, a_line_has_time_level_worker_session_and_message)
{
	regex_t form;

	capture();
	log_info(LOG_C_NONE, log_main, "ready port=%d", 1080);
	log_error(LOG_C_LIMIT, worker3, "refused client=%s", "192.0.2.1");
	cr_assert_eq(regcomp(&form, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
	    "info main - ready port=1080\n[^ ]+Z error w3 42 refused client=192\\.0\\.2\\.1\n$",
	    REG_EXTENDED | REG_NOSUB), 0);
	cr_expect_eq(regexec(&form, captured(), 0, NULL, 0), 0, "%s", captured());
	regfree(&form);
}

Test(log, levels_choose)
{
	enum log_level level;

	capture();
	log_set_level(LOG_WARN);
	log_info(LOG_C_NONE, log_main, "hidden");
	log_debug(log_main, "hidden");
	log_warn(LOG_C_NONE, log_main, "shown");
	log_set_level(LOG_TRACE);
	log_trace(log_main, "shown");
	log_debug(log_main, "shown");
	cr_expect_eq(count_lines(captured()), 3u);
	cr_expect_null(strstr(captured(), "hidden"));
	cr_expect_eq(log_get_level(), LOG_TRACE);
	cr_expect(log_level_parse("debug", &level) && level == LOG_DEBUG);
	cr_expect_not(log_level_parse("DEBUG", &level));
	cr_expect_not(log_level_parse("", &level));
	cr_expect_str_eq(log_level_name(LOG_TRACE), "trace");
}

Test(log, bytes_that_break_a_line_or_a_terminal_are_escaped)
{
	capture();
	log_info(LOG_C_NONE, log_main, "host=%s", "a\r\nb\x1b[31m\x7f\t\xc2\x9b\xff\\x0a");
	cr_expect_not_null(strstr(captured(),
	    " host=a\\x0d\\x0ab\\x1b[31m\\x7f\\x09\\xc2\\x9b\\xff\\x5cx0a\n"), "%s", captured());
	cr_expect_eq(count_lines(captured()), 1u);
}

Test(log, long_lines_are_cut_and_marked)
{
	static char longer[10001];

	capture();
	memset(longer, '\n', 10000);
	log_info(LOG_C_NONE, log_main, "%s", longer);
	memset(longer, 'x', 10000);
	log_info(LOG_C_NONE, log_main, "%s", longer);
	longer[2047] = '\0';
	log_info(LOG_C_NONE, log_main, "%s", longer);
	cr_expect_eq(count_lines(captured()), 3u);
	for (const char *line = captured(); *line != '\0'; line = strchr(line, '\n') + 1) {
		size_t len = strcspn(line, "\n");

		cr_expect_leq(len, 2047u);
		cr_expect_eq(strncmp(line + len - 3, "...", 3), 0);
	}
}

Test(log, floods_are_cut_by_cause_and_counted)
{
	capture();
	wait_for_new_second();
	for (int i = 0; i < 25; i++)
		log_warn(LOG_C_PROTOCOL, worker3, "malformed");
	for (int i = 0; i < 5; i++)
		log_warn(LOG_C_ACCEPT, worker3, "no descriptors");
	for (int i = 0; i < 30; i++)
		log_warn(LOG_C_NONE, worker3, "unlimited");
	cr_expect_eq(count_lines(captured()), 10u + 1u + 30u, "%s", captured());
	wait_for_new_second();
	log_warn(LOG_C_PROTOCOL, worker3, "again");
	log_warn(LOG_C_ACCEPT, worker3, "again");
	log_warn(LOG_C_PROTOCOL, worker3, "third");
	cr_expect_not_null(strstr(captured(), "w3 42 again suppressed=15\n"), "%s", captured());
	cr_expect_not_null(strstr(captured(), "w3 42 again suppressed=4\n"), "%s", captured());
	cr_expect_not_null(strstr(captured(), "w3 42 third\n"), "%s", captured());
}

Test(log, debug_and_trace_lines_are_never_cut)
{
	capture();
	log_set_level(LOG_TRACE);
	for (int i = 0; i < 50; i++)
		log_write(LOG_DEBUG, LOG_C_ACCEPT, log_main, "d");
	cr_expect_eq(count_lines(captured()), 50u);
}

Test(log, the_journal_gets_priorities_and_no_time)
{
	struct stat st;
	char stream[64];

	capture();
	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_set_level(LOG_TRACE);
	log_error(LOG_C_NONE, log_main, "e");
	log_warn(LOG_C_NONE, log_main, "w");
	log_info(LOG_C_NONE, log_main, "i");
	log_debug(log_main, "d");
	log_trace(log_main, "t");
	cr_expect_str_eq(captured(), "<3>error main - e\n<4>warn main - w\n<6>info main - i\n"
	    "<7>debug main - d\n<7>trace main - t\n");
}

Test(log, another_stream_than_the_journals_keeps_the_time)
{
	capture();
	setenv("JOURNAL_STREAM", "1:1", 1);
	log_info(LOG_C_NONE, log_main, "i");
	cr_expect_neq(captured()[0], '<');
}

Test(log, errno_is_kept)
{
	capture();
	errno = ENOENT;
	log_info(LOG_C_NONE, log_main, "%m");
	cr_expect_eq(errno, ENOENT);
	cr_expect_not_null(strstr(captured(), "No such file"));
	close(STDERR_FILENO);
	errno = EPERM;
	log_info(LOG_C_NONE, log_main, "to nobody");
	cr_expect_eq(errno, EPERM);
}

static void *
write_many(void *arg)
{
	for (int i = 0; i < 200; i++)
		log_info(LOG_C_NONE, *(struct log_who *)arg, "%s", "abcdefghijklmnopqrstuvwxyz");
	return NULL;
}

Test(log, lines_of_several_threads_do_not_mix)
{
	struct log_who who[4] = { { 0, 1 }, { 1, 2 }, { 2, 3 }, { 3, 4 } };
	pthread_t threads[4];

	capture();
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, write_many, &who[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	cr_expect_eq(count_lines(captured()), 800u);
	for (const char *line = captured(); *line != '\0'; line = strchr(line, '\n') + 1)
		cr_expect_eq(strncmp(line + strcspn(line, "\n") - 27, " abcdefghijklmnopqrstuvwxyz", 27), 0);
}

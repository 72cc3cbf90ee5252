/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "sdnotify.h"

enum { MESSAGE_MAX = 2048 };

static char message[MESSAGE_MAX];

/* A manager's socket of this name ("@" = abstract), named in the environment. */
static int
manager(const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t n = strlen(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(un.sun_path, name, n);
	if (name[0] == '@')
		un.sun_path[0] = '\0';
	cr_assert_eq(bind(fd, (struct sockaddr *)&un,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)), 0, "%s", strerror(errno));
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static const char *
received(int fd)
{
	ssize_t n = recv(fd, message, sizeof(message) - 1, 0);

	message[n < 0 ? 0 : n] = '\0';
	return message;
}

Test(sdnotify, nobody_there_is_no_matter)
{
	unsetenv("NOTIFY_SOCKET");
	cr_expect(!sdnotify_wanted());
	cr_expect_eq(sdnotify_send("READY=1"), 0);
	sdnotify_ready("serving");
}

Test(sdnotify, messages_arrive_in_the_manager_s_words)
{
	char dir[] = "/tmp/ringway-notify-XXXXXX", path[64];
	struct timespec ts;
	unsigned long long usec;
	int fd;

	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/notify", dir);
	fd = manager(path);
	cr_expect(sdnotify_wanted());
	sdnotify_ready("serving on 2 listeners");
	cr_expect_str_eq(received(fd), "READY=1\nSTATUS=serving on 2 listeners");
	sdnotify_ready(NULL);
	cr_expect_str_eq(received(fd), "READY=1");
	sdnotify_stopping("draining");
	cr_expect_str_eq(received(fd), "STOPPING=1\nSTATUS=draining");
	sdnotify_mainpid(77);
	cr_expect_str_eq(received(fd), "MAINPID=77");
	sdnotify_handed_over(4711);
	cr_expect_str_eq(received(fd), "MAINPID=4711\nREADY=1");
	sdnotify_status("%d sessions", 12);
	cr_expect_str_eq(received(fd), "STATUS=12 sessions");
	sdnotify_reloading();
	cr_assert_eq(sscanf(received(fd), "RELOADING=1\nMONOTONIC_USEC=%llu", &usec), 1, "%s", message);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	cr_expect_leq(usec, (unsigned long long)ts.tv_sec * 1000000 + (unsigned long long)ts.tv_nsec / 1000);
	cr_expect_gt(usec + 60000000, (unsigned long long)ts.tv_sec * 1000000);
	/* For SIGUSR2's child. */
	cr_expect_str_eq(getenv("NOTIFY_SOCKET"), path);
	unlink(path);
	rmdir(dir);
}

Test(sdnotify, abstract_names_are_exact)
{
	char name[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	int fd = manager("@ringway-notify-test");

	sdnotify_ready(NULL);
	cr_expect_str_eq(received(fd), "READY=1");
	close(fd);
	/* The longest there is: no NUL fits behind it. */
	memset(name, 'n', sizeof(name) - 1);
	name[0] = '@';
	name[sizeof(name) - 1] = '\0';
	fd = manager(name);
	sdnotify_ready(NULL);
	cr_expect_str_eq(received(fd), "READY=1");
}

Test(sdnotify, a_status_is_one_line)
{
	char *status = malloc(5000);
	int fd = manager("@ringway-notify-line");

	sdnotify_ready("one\nMAINPID=1");
	cr_expect_str_eq(received(fd), "READY=1\nSTATUS=one MAINPID=1");
	memset(status, 'x', 4999);
	status[4999] = '\0';
	sdnotify_status("%s", status);
	cr_expect_eq(strncmp(received(fd), "STATUS=xxx", 10), 0);
	sdnotify_ready(status);
	cr_expect_eq(strncmp(received(fd), "READY=1\nSTATUS=xxx", 18), 0);
	free(status);
}

Test(sdnotify, a_manager_that_is_gone_fails_nobody)
{
	char long_path[200];

	setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
	cr_expect_eq(sdnotify_send("READY=1"), -ENOENT);
	sdnotify_ready("x");
	setenv("NOTIFY_SOCKET", "vsock:2:1234", 1);
	cr_expect_eq(sdnotify_send("READY=1"), -EAFNOSUPPORT);
	setenv("NOTIFY_SOCKET", "@", 1);
	cr_expect_eq(sdnotify_send("READY=1"), -EINVAL);
	memset(long_path, 'p', sizeof(long_path));
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = '\0';
	setenv("NOTIFY_SOCKET", long_path, 1);
	cr_expect_eq(sdnotify_send("READY=1"), -EINVAL);
	setenv("NOTIFY_SOCKET", "", 1);
	cr_expect_eq(sdnotify_send("READY=1"), 0);
}

/* A stuck manager: the queue is full and nobody reads. */
Test(sdnotify, a_stuck_manager_holds_nobody_up_for_long, .timeout = 20)
{
	struct timespec before, after;
	int fd = manager("@ringway-notify-stuck"), rc = 1;

	(void)fd;
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < 2000 && rc == 1; i++)
		rc = sdnotify_send("STATUS=again");
	clock_gettime(CLOCK_MONOTONIC, &after);
	cr_expect_eq(rc, -EAGAIN, "%d", rc);
	cr_expect_lt(after.tv_sec - before.tv_sec, 5);
}

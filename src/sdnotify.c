/* SPDX-License-Identifier: ISC */
#include "sdnotify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/log.h"

enum {
	MESSAGE_MAX = 512,
	/* A manager that is busy starting a machine; but we have clients to serve. */
	SEND_TIMEOUT_S = 1
};

static const char *
socket_name(void)
{
	const char *name = getenv("NOTIFY_SOCKET");

	return name != NULL && name[0] != '\0' ? name : NULL;
}

bool
sdnotify_wanted(void)
{
	return socket_name() != NULL;
}

/* "/path" or "@abstract" (unix(7)); sd_notify(3) knows vsock: too, for virtual machines. */
static int
address(const char *name, struct sockaddr_un *un, socklen_t *len)
{
	size_t n = strlen(name);

	if (name[0] != '/' && name[0] != '@')
		return -EAFNOSUPPORT;
	/* An abstract name has no NUL at its end, so it may be one byte longer. */
	if (n < 2 || n > sizeof(un->sun_path) - (name[0] == '/'))
		return -EINVAL;
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, name, n);
	if (name[0] == '@')
		un->sun_path[0] = '\0';
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '/'));
	return 0;
}

static int
send_to(const char *name, const char *message)
{
	struct timeval timeout = { .tv_sec = SEND_TIMEOUT_S };
	struct sockaddr_un un;
	socklen_t len = 0;
	ssize_t n;
	int fd, rc = address(name, &un, &len);

	if (rc != 0)
		return rc;
	if ((fd = socket(AF_UNIX, SOCK_DGRAM, 0)) < 0)
		return -errno;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	do
		n = sendto(fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&un, len);
	while (n < 0 && errno == EINTR);
	rc = n < 0 ? -errno : 1;
	close(fd);
	return rc;
}

int
sdnotify_send(const char *message)
{
	const char *name = socket_name();
	int rc;

	if (name == NULL)
		return 0;
	rc = send_to(name, message);
	if (rc < 0)
		log_debug(log_main, "service manager not reached socket=%s cause=\"%s\"", name,
		    strerror(-rc));
	return rc;
}

static void send_fmt(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void
send_fmt(const char *fmt, ...)
{
	char message[MESSAGE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	(void)sdnotify_send(message);
}

/* A line break in the status would begin another assignment. */
static void
send_with_status(const char *head, const char *status)
{
	char line[MESSAGE_MAX / 2];

	snprintf(line, sizeof(line), "%s", status != NULL ? status : "");
	for (char *p = line; *p != '\0'; p++)
		if (*p == '\n' || *p == '\r')
			*p = ' ';
	if (status != NULL)
		send_fmt("%s%sSTATUS=%s", head, head[0] != '\0' ? "\n" : "", line);
	else
		send_fmt("%s", head);
}

void
sdnotify_ready(const char *status)
{
	send_with_status("READY=1", status);
}

void
sdnotify_reloading(void)
{
	struct timespec ts;

	/* sd_notify(3): without the time, Type=notify-reload can't tell this reload from an older one. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	send_fmt("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)ts.tv_sec * 1000000 +
	    (unsigned long long)ts.tv_nsec / 1000);
}

void
sdnotify_stopping(const char *status)
{
	send_with_status("STOPPING=1", status);
}

void
sdnotify_handed_over(pid_t pid)
{
	send_fmt("MAINPID=%ld\nREADY=1", (long)pid);
}

void
sdnotify_mainpid(pid_t pid)
{
	send_fmt("MAINPID=%ld", (long)pid);
}

void
sdnotify_status(const char *fmt, ...)
{
	char line[MESSAGE_MAX / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	send_with_status("", line);
}

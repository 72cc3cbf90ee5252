/* SPDX-License-Identifier: ISC */
#include "background.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	/* What the pipe carries, in one write below PIPE_BUF, so in one piece. */
	SAY_READY = 'R',
	SAY_FAILED = 'F',		/* the rest is the text */

	PID_FILE_MODE = 0644,
	PID_TEXT_MAX = 24,
	PID_TRIES_MAX = 50		/* others start and end at the same time; each time we look again */
};

static int fail(char *text, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int
fail(char *text, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, BACKGROUND_TEXT_MAX, fmt, ap);
	va_end(ap);
	return -error;
}

/* ---- ready or not ---- */

void
background_init(struct background *b)
{
	*b = (struct background){ .ready_fd = -1 };
}

void
background_adopt(struct background *b, int ready_fd)
{
	background_init(b);
	if (ready_fd >= 0 && fcntl(ready_fd, F_SETFD, FD_CLOEXEC) == 0)
		b->ready_fd = ready_fd;
}

static void
say(struct background *b, char what, const char *text)
{
	char message[BACKGROUND_TEXT_MAX];
	ssize_t n;

	if (b->ready_fd < 0)
		return;
	snprintf(message, sizeof(message), "%c%s", what, text != NULL ? text : "");
	do
		n = write(b->ready_fd, message, strlen(message));
	while (n < 0 && errno == EINTR);
	/* Whoever waited may be gone; that is no reason to be. */
	close(b->ready_fd);
	b->ready_fd = -1;
}

static void
leave_streams(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct stat st;

	if (null < 0)
		return;		/* a chroot without it: better open streams than none */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fd == STDIN_FILENO || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
			(void)dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
}

void
background_ready(struct background *b)
{
	if (b->detached)
		leave_streams();
	say(b, SAY_READY, NULL);
}

void
background_failed(struct background *b, const char *text)
{
	say(b, SAY_FAILED, text);
}

enum background_verdict
background_look(int ready_fd, int timeout_ms, char text[BACKGROUND_TEXT_MAX])
{
	struct pollfd p = { .fd = ready_fd, .events = POLLIN };
	char message[BACKGROUND_TEXT_MAX];
	ssize_t n;
	int rc;

	text[0] = '\0';
	while ((rc = poll(&p, 1, timeout_ms)) < 0 && errno == EINTR && timeout_ms < 0)
		;
	if (rc <= 0)
		return BACKGROUND_STARTING;
	do
		n = read(ready_fd, message, sizeof(message) - 1);
	while (n < 0 && errno == EINTR);
	/* The end without a word: exited or killed. */
	if (n <= 0)
		return BACKGROUND_FAILED;
	message[n] = '\0';
	if (message[0] == SAY_READY)
		return BACKGROUND_READY;
	snprintf(text, BACKGROUND_TEXT_MAX, "%s", message + 1);
	return BACKGROUND_FAILED;
}

/* ---- --daemon ---- */

/* The process that was started: passes on what became of it. */
static void __attribute__((noreturn))
wait_for_daemon(int ready_fd, pid_t child)
{
	char text[BACKGROUND_TEXT_MAX];
	enum background_verdict v;
	sigset_t none;

	/* Somebody who gives up waiting must be able to. */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	v = background_look(ready_fd, -1, text);
	if (v == BACKGROUND_FAILED)
		fprintf(stderr, "ringway: %s\n", text[0] != '\0' ? text : "did not start");
	_exit(v == BACKGROUND_READY ? 0 : 1);
}

int
background_detach(struct background *b, char text[BACKGROUND_TEXT_MAX])
{
	int ends[2];
	pid_t pid;

	background_init(b);
	if (pipe(ends) != 0)
		return fail(text, errno, "--daemon: pipe: %s", strerror(errno));
	(void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	(void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	fflush(NULL);		/* or what is buffered would be written twice */
	if ((pid = fork()) < 0) {
		int error = errno;

		close(ends[0]);
		close(ends[1]);
		return fail(text, error, "--daemon: fork: %s", strerror(error));
	}
	if (pid > 0) {
		close(ends[1]);
		wait_for_daemon(ends[0], pid);
	}
	close(ends[0]);
	b->ready_fd = ends[1];
	/* A session of its own, and by the second fork not its leader: no terminal can become ours. */
	if (setsid() < 0 || (pid = fork()) < 0) {
		snprintf(text, BACKGROUND_TEXT_MAX, "--daemon: %s", strerror(errno));
		background_failed(b, text);
		_exit(1);
	}
	if (pid > 0)
		_exit(0);
	/* No file system is kept busy. */
	b->detached = true;
	return 0;
}

/* ---- pid file ---- */

void
background_pid_init(struct background_pidfile *p)
{
	*p = (struct background_pidfile){ .fd = -1 };
}

static bool
is_file_at(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino;
}

static pid_t
read_pid(int fd)
{
	char buf[PID_TEXT_MAX];
	ssize_t n = pread(fd, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return 0;
	buf[n] = '\0';
	return (pid_t)strtol(buf, NULL, 10);
}

int
background_pid_write(struct background_pidfile *p)
{
	char buf[PID_TEXT_MAX];
	int n = snprintf(buf, sizeof(buf), "%ld\n", (long)getpid());

	if (p->fd < 0)
		return 0;
	errno = 0;
	/* One write, and the line ends before what an older, longer number leaves for a moment. */
	if (pwrite(p->fd, buf, (size_t)n, 0) != n || ftruncate(p->fd, n) != 0)
		return errno != 0 ? -errno : -EIO;
	p->owner = getpid();
	return 0;
}

/* The whole file under another name, locked, so that it is never seen empty or unlocked. */
static int
make_beside(struct background_pidfile *p, char *name, size_t size)
{
	int rc;

	if ((size_t)snprintf(name, size, "%s.%ld", p->path, (long)getpid()) >= size)
		return -ENAMETOOLONG;
	/* A leftover of a killed process that had our number. */
	(void)unlink(name);
	p->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, PID_FILE_MODE);
	if (p->fd < 0)
		return -errno;
	if (flock(p->fd, LOCK_EX | LOCK_NB) != 0)
		rc = -errno;
	else
		rc = background_pid_write(p);
	if (rc != 0) {
		close(p->fd);
		p->fd = -1;
		(void)unlink(name);
	}
	return rc;
}

/* link(2) replaces nothing: of two that start at once, one sees EEXIST. */
static int
create(struct background_pidfile *p)
{
	char name[PATH_MAX];
	int rc = make_beside(p, name, sizeof(name));

	if (rc != 0)
		return rc;
	if (link(name, p->path) != 0) {
		rc = -errno;
		/* File systems without links. */
		if (rc != -EEXIST && rename(name, p->path) == 0)
			return 0;
		close(p->fd);
		p->fd = -1;
		p->owner = 0;
	}
	(void)unlink(name);
	return rc;
}

/* `old` is what a dead process left, locked by us. */
static int
replace(struct background_pidfile *p, int old)
{
	char name[PATH_MAX];
	int rc = make_beside(p, name, sizeof(name));

	if (rc == 0 && rename(name, p->path) == 0) {
		close(old);
		return 0;
	}
	if (rc == 0) {
		close(p->fd);
		(void)unlink(name);
	}
	/* A file made for us in a directory that isn't ours to write in. */
	p->fd = old;
	if ((rc = background_pid_write(p)) != 0) {
		close(old);
		p->fd = -1;
	}
	return rc;
}

/* 0, -EAGAIN = look again, or another error with text. */
static int
try_take(struct background_pidfile *p, char *text)
{
	int fd = open(p->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), error;
	struct stat st;

	if (fd < 0 && errno == ENOENT) {
		error = -create(p);
		if (error == 0 || error == EEXIST)
			return error == 0 ? 0 : -EAGAIN;
		return fail(text, error, "pid_file: can't create %s: %s", p->path, strerror(error));
	}
	if (fd < 0)
		return fail(text, errno, "pid_file: can't open %s: %s", p->path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return fail(text, EINVAL, "pid_file: %s is not a regular file", p->path);
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		error = errno;
		if (error == EWOULDBLOCK)
			error = -fail(text, EEXIST, "pid_file: %s belongs to process %ld, which is running",
			    p->path, (long)read_pid(fd));
		else
			fail(text, error, "pid_file: can't lock %s: %s", p->path, strerror(error));
		close(fd);
		return -error;
	}
	if (!is_file_at(fd, p->path)) {
		close(fd);
		return -EAGAIN;
	}
	if ((error = -replace(p, fd)) != 0)
		return fail(text, error, "pid_file: can't write %s: %s", p->path, strerror(error));
	return 0;
}

int
background_pid_take(struct background_pidfile *p, const char *path,
    char text[BACKGROUND_TEXT_MAX])
{
	int rc = -EAGAIN;

	background_pid_init(p);
	if (path == NULL || path[0] == '\0')
		return 0;
	if ((p->path = strdup(path)) == NULL)
		return fail(text, ENOMEM, "pid_file: out of memory");
	for (int i = 0; i < PID_TRIES_MAX && rc == -EAGAIN; i++)
		rc = try_take(p, text);
	if (rc == -EAGAIN)
		fail(text, EAGAIN, "pid_file: %s is being replaced all the time", path);
	if (rc != 0) {
		free(p->path);
		background_pid_init(p);
	}
	return rc;
}

int
background_pid_adopt(struct background_pidfile *p, const char *path, int pid_fd,
    char text[BACKGROUND_TEXT_MAX])
{
	background_pid_init(p);
	if (pid_fd >= 0 && path != NULL && path[0] != '\0' && is_file_at(pid_fd, path)) {
		if ((p->path = strdup(path)) == NULL)
			return fail(text, ENOMEM, "pid_file: out of memory");
		p->fd = pid_fd;
		(void)fcntl(pid_fd, F_SETFD, FD_CLOEXEC);
		return 0;
	}
	if (pid_fd >= 0)
		close(pid_fd);
	return background_pid_take(p, path, text);
}

void
background_pid_release(struct background_pidfile *p)
{
	if (p->fd >= 0) {
		if (p->owner != 0 && p->owner == read_pid(p->fd) && is_file_at(p->fd, p->path) &&
		    unlink(p->path) != 0)
			(void)!ftruncate(p->fd, 0);
		close(p->fd);
	}
	free(p->path);
	background_pid_init(p);
}

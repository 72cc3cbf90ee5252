/* SPDX-License-Identifier: ISC */
#include "util/accesslog_output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* kill(1) -9 can cut even a write(2) to a file between two pages: the next line must not suffer. */
static bool
ends_inside_line(const char *path, const struct stat *st)
{
	struct stat same;
	char last = '\n';
	int fd;

	if (st->st_size == 0 || (fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) < 0)
		return false;
	if (fstat(fd, &same) != 0 || same.st_ino != st->st_ino || same.st_dev != st->st_dev ||
	    pread(fd, &last, 1, st->st_size - 1) != 1)
		last = '\n';
	close(fd);
	return last != '\n';
}

int
accesslog_output_open(struct accesslog_output *out, const char *path)
{
	bool own = strcmp(path, "-") != 0;
	struct stat st;
	int fd, err;

	/* A FIFO without a reader is ENXIO at once by O_NONBLOCK, not a hang. */
	if (own)
		fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
	else
		fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0) {
		err = -errno;
		close(fd);
		return err;
	}
	*out = (struct accesslog_output){ .fd = fd, .regular = S_ISREG(st.st_mode), .own = own };
	out->torn = out->regular && own && ends_inside_line(path, &st);
	return 0;
}

void
accesslog_output_close(struct accesslog_output *out)
{
	if (out->fd >= 0)
		close(out->fd);
	out->fd = -1;
}

bool
accesslog_output_undo(struct accesslog_output *out, size_t bytes)
{
	off_t end = lseek(out->fd, 0, SEEK_CUR);	/* O_APPEND: behind our last write */
	struct stat st;

	return out->regular && out->own && end >= (off_t)bytes && fstat(out->fd, &st) == 0 &&
	    st.st_size == end && ftruncate(out->fd, end - (off_t)bytes) == 0;
}

ssize_t
accesslog_output_write(struct accesslog_output *out, const struct iovec *pieces, int n)
{
	struct iovec iov[3] = { { .iov_base = (char[]){ '\n' }, .iov_len = 1 } };
	bool torn = out->torn;
	ssize_t res;

	assert(n == 1 || n == 2);
	memcpy(iov + 1, pieces, (size_t)n * sizeof *pieces);
	do
		res = torn ? writev(out->fd, iov, n + 1) : writev(out->fd, pieces, n);
	while (res < 0 && errno == EINTR);
	if (res < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (torn && res > 0) {
		out->torn = false;
		res--;
	}
	return res;
}

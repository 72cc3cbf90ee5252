/* SPDX-License-Identifier: ISC */
/*
 * accesslog_output: the file, FIFO, pipe or terminal behind an access log.
 * Used by accesslog's writer thread; knows nothing of lanes.
 */
#ifndef RW_UTIL_ACCESSLOG_OUTPUT_H
#define RW_UTIL_ACCESSLOG_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct accesslog_output {
	int	fd;		/* -1 = none */
	bool	regular;	/* a file: poll(2) says nothing about it, any length goes out in one write */
	bool	own;		/* nobody shares our offset */
	bool	torn;		/* ends in the middle of a line: a newline comes first */
};

/* "-" = standard output.  0 or negative errno. */
int	accesslog_output_open(struct accesslog_output *, const char *path);
void	accesslog_output_close(struct accesslog_output *);	/* without one: nothing */
/* One write(2) of one or two pieces; their bytes that are out, or negative errno, never EINTR. */
ssize_t	accesslog_output_write(struct accesslog_output *, const struct iovec *, int n);
/*
 * Takes the last `bytes` that we wrote out of the file again.  Not when
 * somebody else (an upgraded process, a copytruncate) has changed its end.
 */
bool	accesslog_output_undo(struct accesslog_output *, size_t bytes);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * hosts: the system's hosts file (hosts(5)) as a table, read again when it has
 * changed.  Looks at the file at most once a second and only when asked; an
 * unreadable one is an empty one.  Never asks DNS.
 */
#ifndef RW_NET_HOSTS_H
#define RW_NET_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/addr.h"
#include "util/span.h"

struct hosts;

/* path "" = always empty.  NULL when out of memory. */
struct hosts	*hosts_new(const char *path, uint64_t seed);
void		 hosts_free(struct hosts *);
/*
 * Is the name (lower case, no trailing dot) in the file, for whatever family?
 * *count addresses of `family`, at most max, in the file's order: 0 when it is
 * there for the other family only.  now_ns is any clock that goes forward.
 */
bool		 hosts_find(struct hosts *, struct span name, int family, uint64_t now_ns,
		    struct addr *addrs, unsigned max, unsigned *count);

/* What tells two states of a file apart; all zero = not there. */
struct file_stamp {
	uint64_t	device, inode, size_bytes;
	int64_t		mtime_s, mtime_ns;
};

struct file_stamp file_stamp_of(const char *path);
bool		 file_stamp_same(const struct file_stamp *, const struct file_stamp *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * acl_file: text files of policy, by lines: rules, and lists with one value a
 * line.  Read whole into memory and never more than the limit.
 */
#ifndef RW_POLICY_ACL_FILE_H
#define RW_POLICY_ACL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "util/span.h"

/* Two million names; what is larger is a mistake or never ends. */
enum { ACL_FILE_BYTES_MAX = 64 << 20 };

enum acl_comments {
	ACL_COMMENT_HASH,	/* "#" first or behind a blank: rules */
	ACL_COMMENT_LIST,	/* "#" or ";", the same: lists of hosts, paths, users ... */
	ACL_COMMENT_ANYWHERE	/* "#" or ";": lists of addresses and numbers, which hold neither */
};

struct acl_lines {
	char		*text;		/* owned */
	size_t		 bytes, at;
	size_t		 line;		/* of the one that acl_lines_next() gave last; from 1 */
	enum acl_comments comments;
};

/* 0 or -errno; -EFBIG beyond the limit. */
int	acl_lines_open(struct acl_lines *, const char *path, enum acl_comments);
/* Lines of a text in memory, which is copied.  0 or -ENOMEM. */
int	acl_lines_from(struct acl_lines *, struct span text, enum acl_comments);
/* The next line that holds anything, without blanks around it and comments. */
bool	acl_lines_next(struct acl_lines *, struct span *line);
void	acl_lines_close(struct acl_lines *);

/* Cuts the first word (up to a blank) off `rest`; false when there is none. */
bool	acl_word_next(struct span *rest, struct span *word);
static inline bool
acl_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

#endif

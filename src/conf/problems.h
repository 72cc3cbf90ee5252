/* SPDX-License-Identifier: ISC */
/*
 * problems: everything that is wrong or doubtful in a configuration, collected
 * so that a person sees all of it at once.  Never prints by itself and never
 * ends the process.  The list is bounded: a hostile file can't fill memory, and
 * what was left out is counted.
 */
#ifndef RW_CONF_PROBLEMS_H
#define RW_CONF_PROBLEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum conf_severity {
	CONF_WARNING,		/* it starts, but look here */
	CONF_ERROR		/* it does not start */
};

/* Nobody reads more than these; the rest are only counted. */
enum { CONF_PROBLEMS_MAX = 200 };

struct conf_problem {
	enum conf_severity	 severity;
	char			*text;	/* "FILE:LINE:COL: key.path: ..." on one line */
};

struct conf_problems {
	struct conf_problem	*list;
	size_t			 count;		/* in `list` */
	size_t			 capacity;
	size_t			 errors;	/* all of them, listed or not */
	size_t			 warnings;
};

/* `where` is "FILE:LINE:COL", "-o KEY=VALUE" or NULL; `key` a schema path or NULL. */
void	conf_problems_add(struct conf_problems *, enum conf_severity, const char *where,
	    const char *key, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* One line each; warnings begin with "warning: "; a last line when some were left out. */
void	conf_problems_print(const struct conf_problems *, FILE *);
/* Leaves an empty list, ready for use.  A list of zeroes is empty too. */
void	conf_problems_free(struct conf_problems *);

#endif

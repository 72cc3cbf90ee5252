/* SPDX-License-Identifier: ISC */
/*
 * activation_internal: what the two halves of activation share, the taking
 * (activation.c) and the giving (activation_spawn.c).
 */
#ifndef RW_ACTIVATION_INTERNAL_H
#define RW_ACTIVATION_INTERNAL_H

#include "activation.h"

#define ACTIVATION_VARIABLE "RINGWAY_HANDOVER"

enum {
	ACTIVATION_WHERE_MAX = 400,	/* "unix:" and a path of 108 bytes, each escaped */
	ACTIVATION_ITEM_MAX = ACTIVATION_WHERE_MAX + 32
};

/* All that must not reach a program started later; NULL at the end. */
extern const char *const activation_variables[];

int	activation_fail(char *text, int error, const char *fmt, ...)
	    __attribute__((format(printf, 3, 4)));
/* "127.0.0.1:80", "[::1]:80", "unix:/path": escaped, fit for the variable and for messages. */
char	*activation_where(const struct activation_fd *, char *out, size_t size);
/* What the descriptor is; the caller frees unix_path.  0 or a negative errno with text. */
int	activation_describe(struct activation_fd *, int fd, char text[ACTIVATION_TEXT_MAX]);

#endif

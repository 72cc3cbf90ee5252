/* SPDX-License-Identifier: ISC */
/* Which backend this process uses, and why not an earlier one (C30). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* In order of preference. */
static const struct io_backend *const compiled[] = {
#if RW_HAVE_URING
	&io_backend_uring,
#endif
#if RW_HAVE_EPOLL
	&io_backend_epoll,
#endif
#if RW_HAVE_KQUEUE
	&io_backend_kqueue,
#endif
#if RW_HAVE_IOCP
	&io_backend_iocp,
#endif
	NULL
};

const char *
io_backends_compiled(void)
{
	return RW_BACKENDS;
}

const char *
io_choice_name(const struct io_choice *c)
{
	return c->backend != NULL ? c->backend->name : "none";
}

int
io_choose(struct io_choice *out, const char *name, int uring_level)
{
	bool any = strcmp(name, "auto") == 0;
	char passed[sizeof out->why] = "";

	memset(out, 0, sizeof *out);
	for (size_t i = 0; compiled[i] != NULL; i++) {
		struct io_choice c = { .backend = compiled[i] };
		enum io_probe p;

		if (!any && strcmp(name, compiled[i]->name) != 0)
			continue;
		if ((p = compiled[i]->probe(&c, uring_level)) == PROBE_OK) {
			*out = c;
			/* The first reason is the one that matters: it names the fast path. */
			memcpy(out->why, passed, sizeof out->why);
			return 0;
		}
		if (passed[0] == '\0')
			snprintf(passed, sizeof passed, "%s: %.140s", compiled[i]->name, c.why);
		if (p == PROBE_FATAL || !any) {
			memcpy(out->why, passed, sizeof out->why);
			return p == PROBE_FATAL ? -EMFILE : -ENOTSUP;
		}
	}
	if (passed[0] == '\0')
		snprintf(passed, sizeof passed, "%.40s is not compiled in (there is: %.60s)",
		    name, io_backends_compiled());
	memcpy(out->why, passed, sizeof out->why);
	return -ENOTSUP;
}

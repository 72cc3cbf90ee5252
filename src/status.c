/* SPDX-License-Identifier: ISC */
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "util/log.h"

void
status_init(struct status *s)
{
	*s = (struct status){ .fd = -1 };
}

static void
put(struct status *s, const char *word, const struct conf_problems *problems)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	if (s->fd < 0 || (f = open_memstream(&text, &len)) == NULL)
		return;
	fprintf(f, "RELOAD %u %s %ld %lld\n", s->n, word, (long)getpid(), (long long)time(NULL));
	if (problems != NULL)
		conf_problems_print(problems, f);
	fprintf(f, "END %u\n", s->n);
	if (fclose(f) == 0 && (pwrite(s->fd, text, len, 0) != (ssize_t)len ||
	    ftruncate(s->fd, (off_t)len) != 0))
		log_warn(LOG_C_INTERNAL, log_main, "%s not written: %s", s->path, strerror(errno));
	free(text);
}

void
status_open(struct status *s, const char *pid_file)
{
	char tmp[32];

	if (pid_file == NULL || pid_file[0] == '\0' || asprintf(&s->path, "%s.reload", pid_file) < 0) {
		s->path = NULL;
		return;
	}
	/* A file of its own: after a hand-over the old process still has the one before. */
	snprintf(tmp, sizeof tmp, ".%ld", (long)getpid());
	char *whole = malloc(strlen(s->path) + sizeof tmp);

	if (whole == NULL)
		return;
	sprintf(whole, "%s%s", s->path, tmp);
	unlink(whole);
	s->fd = open(whole, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	put(s, "ok", NULL);
	if (s->fd < 0 || rename(whole, s->path) != 0)
		log_warn(LOG_C_NONE, log_main, "%s: %s", s->path, strerror(errno));
	free(whole);
}

void
status_busy(struct status *s)
{
	s->n++;
	put(s, "busy", NULL);
}

void
status_done(struct status *s, int ok, const struct conf_problems *problems)
{
	put(s, ok ? "ok" : "refused", problems);
}

void
status_close(struct status *s, int remove_file)
{
	if (s->fd >= 0)
		close(s->fd);
	if (remove_file && s->path != NULL)
		unlink(s->path);
	free(s->path);
	status_init(s);
}

/* SPDX-License-Identifier: ISC */
#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "net/sockopt.h"
#include "util/log.h"

enum {
	RETRY_MS = 20,
	RETRIES = 50		/* a second */
};

struct sockets_entry {
	struct sockets_entry	*next;
	struct conf_listen	 key;		/* address and path only; path is ours to free */
	bool			 file_is_ours;	/* a Unix socket that we bound, or took over from ourselves */
	dev_t			 dev;		/* of that file: another one by the same name stays */
	ino_t			 ino;
	size_t			 count;
	int			 fds[];		/* copies; one a socket */
};

static int
complain(const char *what)
{
	log_error(LOG_C_NONE, log_main, "cannot listen: %s", what);
	return -1;
}

static struct sockets_entry *
entry_new(const struct conf_listen *c, size_t room)
{
	struct sockets_entry *e = calloc(1, sizeof *e + room * sizeof e->fds[0]);

	if (e == NULL)
		return NULL;
	e->key.sock = c->sock;
	if (c->unix_path != NULL && (e->key.unix_path = strdup(c->unix_path)) == NULL) {
		free(e);
		return NULL;
	}
	return e;
}

static void
entry_free(struct sockets_entry *e, bool unlink_file)
{
	struct stat st;

	if (unlink_file && e->file_is_ours && e->key.unix_path != NULL &&
	    lstat(e->key.unix_path, &st) == 0 && st.st_dev == e->dev && st.st_ino == e->ino)
		unlink(e->key.unix_path);
	for (size_t i = 0; i < e->count; i++)
		close(e->fds[i]);
	free((char *)(uintptr_t)e->key.unix_path);
	free(e);
}

static void
own_file(struct sockets_entry *e)
{
	struct stat st;

	if (e->key.unix_path == NULL || lstat(e->key.unix_path, &st) != 0)
		return;
	e->file_is_ours = true;
	e->dev = st.st_dev;
	e->ino = st.st_ino;
}

static int
keep_copy(struct sockets_entry *e, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return -errno;
	e->fds[e->count++] = copy;
	return 0;
}

static bool
is_there(const struct sockets *s, const struct conf_listen *c)
{
	for (const struct sockets_entry *e = s->entries; e != NULL; e = e->next)
		if (snapshot_same_listener(&e->key, c))
			return true;
	return false;
}

/* ---- one listener ---- */

static int
extra_fd(struct worker_plan *p, size_t listen, int fd)
{
	struct worker_extra *more = realloc(p->extra, (p->extra_count + 1) * sizeof *more);

	if (more == NULL)
		return -ENOMEM;
	p->extra = more;
	more[p->extra_count++] = (struct worker_extra){ listen, fd };
	return 0;
}

/* Sockets that were there before us: one a worker, the rest on top, or more made like them. */
static int
inherit(struct sockets_entry *e, const struct conf_listen *c, size_t i, struct activation *a,
    struct worker_plan **plans, unsigned n)
{
	const struct activation_fd *first = NULL, *found;
	unsigned given = 0;
	int fd;

	while ((found = activation_find(a, &c->sock, c->unix_path, &fd)) != NULL) {
		if (first == NULL)
			first = found;
		if (keep_copy(e, fd) != 0 || (given >= n && extra_fd(plans[given % n], i, fd) != 0)) {
			close(fd);
			return complain("out of descriptors or memory");
		}
		if (given < n)
			plans[given]->fds[i] = fd;
		given++;
	}
	for (; given < n; given++) {
		if ((fd = activation_more(first, plans[0]->fds[i], c->backlog)) < 0)
			return complain(strerror(-fd));
		plans[given]->fds[i] = fd;
		if (keep_copy(e, fd) != 0)
			return complain("out of descriptors");
	}
	if (a->origin == ACTIVATION_HANDOVER && !a->managed)
		own_file(e);
	return 0;
}

/*
 * The kernel lets go of a killed process's ring, and of the listeners in it, some
 * milliseconds after the process is gone: whoever is started again at once would
 * find the port in use (measured: 26 of 40 starts, free after at most 12 ms).
 */
static bool
try_again(int rc, unsigned *tries)
{
	const struct timespec pause = { 0, RETRY_MS * 1000000L };

	if (rc != -EADDRINUSE || ++*tries > RETRIES)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

static int
bind_tcp(struct sockets *s, struct sockets_entry *e, const struct conf *conf, size_t i,
    struct worker_plan **plans, unsigned n)
{
	const struct conf_listen *c = &conf->listen[i];
	unsigned flags = sockopt_v6only(&c->sock, conf->listen, conf->listen_count) ?
	    SOCKOPT_V6ONLY : 0;
	char text[SOCKOPT_TEXT_MAX];
	unsigned tries = 0;
	int rc;

	while ((rc = sockopt_probe_bind(&c->sock, flags, text)) != 0)
		if (!try_again(rc, &tries))
			return complain(text);
	for (unsigned w = 0; w < n; w++) {
		int fd = sockopt_listen(&c->sock, flags | SOCKOPT_REUSEPORT, c->backlog, text);

		if (fd < 0)
			return complain(text);
		plans[w]->fds[i] = fd;
		if (keep_copy(e, fd) != 0)
			return complain("out of descriptors");
	}
	/*
	 * Only when all listen: a socket joins the others' group by having their
	 * owner, and one that stays alone gets every client (seen: the last one).
	 */
	for (unsigned w = 0; w < n && s->owner != NULL; w++)
		privs_give_socket(s->owner, plans[w]->fds[i]);
	return 0;
}

/* SO_REUSEPORT does not balance Unix sockets: all workers accept from one. */
static int
bind_unix(struct sockets_entry *e, const struct conf_listen *c, size_t i,
    struct worker_plan **plans, unsigned n)
{
	char text[SOCKOPT_TEXT_MAX];
	unsigned tries = 0;
	int fd;

	while ((fd = sockopt_listen_unix(c->unix_path, c->backlog, text)) < 0)
		if (!try_again(fd, &tries))
			return complain(text);
	plans[0]->fds[i] = fd;
	own_file(e);
	if (keep_copy(e, fd) != 0)
		return complain("out of descriptors");
	for (unsigned w = 1; w < n; w++)
		if ((plans[w]->fds[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
			return complain("out of descriptors");
	return 0;
}

static int
bind_one(struct sockets *s, struct sockets_entry **made, const struct conf *conf, size_t i,
    struct activation *inherited, struct worker_plan **plans, unsigned n)
{
	const struct conf_listen *c = &conf->listen[i];
	size_t there = inherited != NULL ? activation_count(inherited, &c->sock, c->unix_path) : 0;
	struct sockets_entry *e = entry_new(c, there > n ? there : n);

	if (e == NULL)
		return complain("out of memory");
	e->next = *made;
	*made = e;
	if (there > 0)
		return inherit(e, c, i, inherited, plans, n);
	if (c->unix_path != NULL)
		return bind_unix(e, c, i, plans, n);
	return bind_tcp(s, e, conf, i, plans, n);
}

/* ---- all of them ---- */

int
sockets_bind(struct sockets *s, const struct snapshot *snapshot, struct activation *inherited,
    struct worker_plan **plans, unsigned plan_count)
{
	const struct conf *conf = snapshot->conf;
	struct sockets_entry *made = NULL, *next;
	int rc = 0;

	/* All, so that every problem is told. */
	for (size_t i = 0; i < conf->listen_count; i++)
		if (!is_there(s, &conf->listen[i]))
			rc |= bind_one(s, &made, conf, i, inherited, plans, plan_count);
	for (; made != NULL; made = next) {
		next = made->next;
		if (rc != 0) {
			entry_free(made, true);
			continue;
		}
		made->next = s->entries;
		s->entries = made;
	}
	return rc;
}

void
sockets_keep(struct sockets *s, const struct snapshot *snapshot)
{
	for (struct sockets_entry **at = &s->entries, *e; (e = *at) != NULL;) {
		if (snapshot_find_listener(snapshot, &e->key) != NULL) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		entry_free(e, true);
	}
}

void
sockets_close(struct sockets *s, bool unlink_files)
{
	for (struct sockets_entry *e = s->entries, *next; e != NULL; e = next) {
		next = e->next;
		entry_free(e, unlink_files);
	}
	s->entries = NULL;
}

int *
sockets_fds(const struct sockets *s, size_t *count)
{
	size_t n = 0;
	int *fds;

	for (const struct sockets_entry *e = s->entries; e != NULL; e = e->next)
		n += e->count;
	if ((fds = calloc(n + 1, sizeof *fds)) == NULL)
		return NULL;
	*count = 0;
	for (const struct sockets_entry *e = s->entries; e != NULL; e = e->next)
		for (size_t i = 0; i < e->count; i++)
			fds[(*count)++] = e->fds[i];
	return fds;
}

/* SPDX-License-Identifier: ISC */
#include "activation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activation_internal.h"

extern char **environ;

const char *const activation_variables[] = {
	ACTIVATION_VARIABLE, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID", NULL
};

/* ---- which program ---- */

static bool
is_executable(const char *path)
{
	return access(path, X_OK) == 0;
}

static char *
below_cwd(const char *name)
{
	char cwd[PATH_MAX], *path;

	if (getcwd(cwd, sizeof(cwd)) == NULL || asprintf(&path, "%s/%s", cwd, name) < 0)
		return NULL;
	return path;
}

static char *
from_path(const char *name)
{
	const char *dirs = getenv("PATH");
	char *path;

	for (size_t len; dirs != NULL && *dirs != '\0'; dirs += len + (dirs[len] == ':')) {
		len = strcspn(dirs, ":");
		if (dirs[0] != '/')
			continue;
		if (asprintf(&path, "%.*s/%s", (int)len, dirs, name) < 0)
			return NULL;
		if (is_executable(path))
			return path;
		free(path);
	}
	return NULL;
}

static char *
from_kernel(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return NULL;
	path[n] = '\0';
	return strdup(path);
}

char *
activation_program(const char *argv0)
{
	char *path = NULL;

	if (argv0 != NULL && argv0[0] == '/')
		path = strdup(argv0);
	else if (argv0 != NULL && strchr(argv0, '/') != NULL)
		path = below_cwd(argv0);
	else if (argv0 != NULL && argv0[0] != '\0')
		path = from_path(argv0);
	/* argv[0] is the caller's word only. */
	if (path != NULL && !is_executable(path)) {
		free(path);
		path = NULL;
	}
	return path != NULL ? path : from_kernel();
}

/* ---- its environment ---- */

static bool
is_passed_twice(const struct activation_handover *h, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (h->fds[k] == h->fds[i])
			return true;
	return false;
}

static int
make_variable(const struct activation_handover *h, int ready_fd, char **out, char *text)
{
	size_t size = sizeof(ACTIVATION_VARIABLE) + 64 + h->count * ACTIVATION_ITEM_MAX, used;
	char *v = malloc(size), where[ACTIVATION_WHERE_MAX];

	if (v == NULL)
		return activation_fail(text, ENOMEM, "out of memory");
	used = (size_t)snprintf(v, size, ACTIVATION_VARIABLE "=ready=%d;%s", ready_fd,
	    h->managed ? "managed;" : "");
	if (h->pid_fd >= 0)
		used += (size_t)snprintf(v + used, size - used, "pid=%d;", h->pid_fd);
	for (size_t i = 0; i < h->count; i++) {
		struct activation_fd a = { .fd = h->fds[i] };
		int rc;

		if (is_passed_twice(h, i))
			continue;
		if ((rc = activation_describe(&a, h->fds[i], text)) != 0) {
			free(a.unix_path);
			free(v);
			return rc;
		}
		used += (size_t)snprintf(v + used, size - used, "listen=%d@%s;", h->fds[i],
		    activation_where(&a, where, sizeof(where)));
		free(a.unix_path);
	}
	*out = v;
	return 0;
}

static bool
is_ours(const char *entry)
{
	for (const char *const *v = activation_variables; *v != NULL; v++) {
		size_t len = strlen(*v);

		if (strncmp(entry, *v, len) == 0 && entry[len] == '=')
			return true;
	}
	return false;
}

/* The strings are environ's and the variable. */
static char **
make_environment(char *variable)
{
	size_t n = 0, used = 0;
	char **env;

	while (environ != NULL && environ[n] != NULL)
		n++;
	if ((env = calloc(n + 2, sizeof(*env))) == NULL)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (!is_ours(environ[i]))
			env[used++] = environ[i];
	env[used] = variable;
	return env;
}

/* ---- the start ---- */

/* A dup2 onto itself takes close-on-exec away in the child (POSIX 2024; glibc 2.29, musl 1.1.24). */
static int
pass_descriptors(posix_spawn_file_actions_t *actions, const struct activation_handover *h,
    int ready_fd)
{
	int rc = posix_spawn_file_actions_adddup2(actions, ready_fd, ready_fd);

	if (rc == 0 && h->pid_fd >= 0)
		rc = posix_spawn_file_actions_adddup2(actions, h->pid_fd, h->pid_fd);
	for (size_t i = 0; i < h->count && rc == 0; i++)
		rc = posix_spawn_file_actions_adddup2(actions, h->fds[i], h->fds[i]);
	return rc;
}

/*
 * posix_spawn(3) and not fork(2): other threads hold locks, and copying the page
 * tables of a large process would stall the workers.
 */
static int
start(const char *program, char *const argv[], char *const env[],
    const struct activation_handover *h, int ready_fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	int rc = posix_spawn_file_actions_init(&actions);

	if (rc != 0)
		return rc;
	if ((rc = pass_descriptors(&actions, h, ready_fd)) == 0)
		rc = posix_spawn(pid, program, &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

static bool
make_pipe(int ends[2])
{
	if (pipe(ends) != 0)
		return false;
	(void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	(void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	return true;
}

int
activation_spawn(const char *program, char *const argv[], const struct activation_handover *h,
    struct activation_child *child, char text[ACTIVATION_TEXT_MAX])
{
	char *variable = NULL, **env = NULL;
	int ready[2] = { -1, -1 }, rc;

	*child = (struct activation_child){ .pid = -1, .ready_fd = -1 };
	if (!make_pipe(ready))
		return activation_fail(text, errno, "pipe: %s", strerror(errno));
	if ((rc = make_variable(h, ready[1], &variable, text)) != 0)
		goto out;
	if ((env = make_environment(variable)) == NULL) {
		rc = activation_fail(text, ENOMEM, "out of memory");
		goto out;
	}
	if ((rc = start(program, argv, env, h, ready[1], &child->pid)) != 0) {
		rc = activation_fail(text, rc, "can't start %.300s: %s", program, strerror(rc));
		child->pid = -1;
		goto out;
	}
	child->ready_fd = ready[0];
	ready[0] = -1;
out:
	if (ready[0] >= 0)
		close(ready[0]);
	close(ready[1]);
	free(env);
	free(variable);
	return rc;
}

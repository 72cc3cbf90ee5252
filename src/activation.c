/* SPDX-License-Identifier: ISC */
#include "activation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "activation_internal.h"
#include "net/sockopt.h"

enum {
	FDS_START = 3,		/* SD_LISTEN_FDS_START */
	FDS_MAX = 65536		/* more is a broken variable, not a configuration */
};

int
activation_fail(char *text, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, ACTIVATION_TEXT_MAX, fmt, ap);
	va_end(ap);
	return -error;
}

/* ---- what a descriptor is ---- */

static bool
option(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = 0;

	return getsockopt(fd, level, name, &value, &len) == 0 && value != 0;
}

/* unix(7): a path may lack its NUL; an abstract name begins with one and may have more. */
static char *
unix_name(const struct sockaddr_un *un, socklen_t len)
{
	size_t n = len > offsetof(struct sockaddr_un, sun_path) ?
	    len - offsetof(struct sockaddr_un, sun_path) : 0;
	char *name;

	if (n > sizeof(un->sun_path))
		n = sizeof(un->sun_path);
	if (n > 0 && un->sun_path[0] != '\0')
		n = strnlen(un->sun_path, n);
	if ((name = malloc(n + 1)) == NULL)
		return NULL;
	for (size_t i = 0; i < n; i++)
		name[i] = un->sun_path[i] != '\0' ? un->sun_path[i] : '@';
	name[n] = '\0';
	return name;
}

int
activation_describe(struct activation_fd *a, int fd, char text[ACTIVATION_TEXT_MAX])
{
	union {
		struct sockaddr		sa;
		struct sockaddr_un	un;
		struct sockaddr_storage	storage;
	} u;
	socklen_t len = sizeof(u), type_len = sizeof(int);
	int type = 0;

	memset(&u, 0, sizeof(u));
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) != 0)
		return activation_fail(text, EINVAL, "descriptor %d is %s", fd,
		    errno == EBADF ? "not open" : "not a socket");
	if (type != SOCK_STREAM)
		return activation_fail(text, EINVAL, "descriptor %d is not a stream socket "
		    "(ListenStream= is what is needed)", fd);
	if (!option(fd, SOL_SOCKET, SO_ACCEPTCONN))
		return activation_fail(text, EINVAL, "descriptor %d is not a listening socket "
		    "(Accept=no is what is needed)", fd);
	if (getsockname(fd, &u.sa, &len) != 0)
		return activation_fail(text, errno, "descriptor %d: getsockname: %s", fd,
		    strerror(errno));
	addr_from_sockaddr(&a->addr, &u.sa, len);
	if (u.sa.sa_family == AF_UNIX) {
		a->addr.len = 0;
		if ((a->unix_path = unix_name(&u.un, len)) == NULL)
			return activation_fail(text, ENOMEM, "out of memory");
	} else if (a->addr.len == 0)
		return activation_fail(text, EINVAL,
		    "descriptor %d is of address family %d (IPv4, IPv6 or Unix is what is needed)",
		    fd, u.sa.sa_family);
	else {
		a->reuseport = option(fd, SOL_SOCKET, SO_REUSEPORT);
		a->v6only = u.sa.sa_family == AF_INET6 && option(fd, IPPROTO_IPV6, IPV6_V6ONLY);
	}
	return 0;
}

char *
activation_where(const struct activation_fd *a, char *out, size_t size)
{
	char text[ADDR_TEXT_MAX];
	size_t n;

	if (a->unix_path == NULL) {
		snprintf(out, size, "%s", addr_format(&a->addr, text));
		return out;
	}
	n = (size_t)snprintf(out, size, "unix:");
	/* What would end the item in RINGWAY_HANDOVER, or disturb a terminal. */
	for (const char *p = a->unix_path; *p != '\0' && n + 4 < size; p++)
		if (*p <= ' ' || *p == ';' || *p == '%' || *p == 0x7f)
			n += (size_t)snprintf(out + n, size - n, "%%%02X", (unsigned char)*p);
		else
			out[n++] = *p;
	out[n] = '\0';
	return out;
}

static int
set_flags(int fd)
{
	int fl = fcntl(fd, F_GETFL);

	/* The flag is the open file's, shared with who gave it: systemd doesn't mind, we need it. */
	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) != 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return -errno;
	return 0;
}

static int
add(struct activation *set, int fd, const char *name, size_t name_len, char *text)
{
	struct activation_fd *a = &set->fds[set->count], new = { .fd = fd };
	int rc = activation_describe(&new, fd, text);

	if (rc == 0 && (rc = set_flags(fd)) != 0)
		activation_fail(text, -rc, "descriptor %d: fcntl: %s", fd, strerror(-rc));
	if (rc == 0 && name_len > 0 && (new.name = strndup(name, name_len)) == NULL)
		rc = activation_fail(text, ENOMEM, "out of memory");
	if (rc != 0) {
		free(new.unix_path);
		return rc;
	}
	*a = new;
	set->count++;
	return 0;
}

static bool
parse_number(const char *text, char end, long max, long *n, const char **rest)
{
	char *stop;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*n = strtol(text, &stop, 10);
	if (errno != 0 || *n > max || *stop != end)
		return false;
	if (rest != NULL)
		*rest = stop + (end != '\0');
	return true;
}

/* ---- from a service manager ---- */

static int
take_from_manager(struct activation *set, const char *fds, const char *names, char *text)
{
	long n;
	int rc = 0;

	if (!parse_number(fds, '\0', FDS_MAX, &n, NULL))
		return activation_fail(text, EINVAL, "LISTEN_FDS: \"%.32s\" is not a number of "
		    "descriptors", fds);
	if (n == 0)
		return 0;
	if ((set->fds = calloc((size_t)n, sizeof(*set->fds))) == NULL)
		return activation_fail(text, ENOMEM, "out of memory");
	set->origin = ACTIVATION_MANAGER;
	set->managed = true;
	for (long i = 0; i < n && rc == 0; i++) {
		size_t len = names != NULL ? strcspn(names, ":") : 0;
		char why[ACTIVATION_TEXT_MAX];

		rc = add(set, FDS_START + (int)i, names, len, why);
		if (rc != 0)
			activation_fail(text, -rc, "LISTEN_FDS: %.400s%s%.*s", why,
			    len > 0 ? ", name " : "", (int)(len < 64 ? len : 64),
			    len > 0 ? names : "");
		if (names != NULL)
			names = names[len] == ':' ? names + len + 1 : NULL;
	}
	return rc;
}

/* ---- from the process before us ---- */

/* The ready pipe or the pid file. */
static int
take_other(int *to, long fd, char *text)
{
	if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
		return activation_fail(text, EINVAL, ACTIVATION_VARIABLE
		    ": descriptor %ld is not open", fd);
	*to = (int)fd;
	return 0;
}

static int
take_listener(struct activation *set, int fd, const char *addr, char *text)
{
	char where[ACTIVATION_WHERE_MAX], why[ACTIVATION_TEXT_MAX];
	int rc = add(set, fd, NULL, 0, why);

	if (rc != 0)
		return activation_fail(text, -rc, ACTIVATION_VARIABLE ": %.400s", why);
	activation_where(&set->fds[set->count - 1], where, sizeof(where));
	if (strcmp(where, addr) != 0)
		return activation_fail(text, EINVAL, ACTIVATION_VARIABLE
		    ": descriptor %d listens on %.200s, not on %.200s", fd, where, addr);
	return 0;
}

static int
take_item(struct activation *set, const char *from, size_t len, char *text)
{
	char item[ACTIVATION_ITEM_MAX];
	const char *addr;
	long fd;

	snprintf(item, sizeof(item), "%.*s", (int)(len < sizeof(item) ? len : 0), from);
	if (strncmp(item, "ready=", 6) == 0 && parse_number(item + 6, '\0', INT_MAX, &fd, NULL))
		return take_other(&set->ready_fd, fd, text);
	if (strncmp(item, "pid=", 4) == 0 && parse_number(item + 4, '\0', INT_MAX, &fd, NULL))
		return take_other(&set->pid_fd, fd, text);
	if (strncmp(item, "listen=", 7) == 0 && parse_number(item + 7, '@', INT_MAX, &fd, &addr))
		return take_listener(set, (int)fd, addr, text);
	if (strcmp(item, "managed") == 0) {
		set->managed = true;
		return 0;
	}
	return activation_fail(text, EINVAL, ACTIVATION_VARIABLE ": \"%.64s\" is not understood", item);
}

static int
take_from_predecessor(struct activation *set, const char *value, char *text)
{
	size_t items = 1;
	int rc = 0;

	for (const char *p = value; *p != '\0'; p++)
		items += *p == ';';
	if (items > FDS_MAX)
		return activation_fail(text, EINVAL, ACTIVATION_VARIABLE ": too long");
	if ((set->fds = calloc(items, sizeof(*set->fds))) == NULL)
		return activation_fail(text, ENOMEM, "out of memory");
	set->origin = ACTIVATION_HANDOVER;
	for (const char *p = value; *p != '\0' && rc == 0;) {
		size_t len = strcspn(p, ";");

		rc = take_item(set, p, len, text);
		p += len + (p[len] == ';');
	}
	return rc;
}

/* ---- both ---- */

int
activation_take(struct activation *set, char text[ACTIVATION_TEXT_MAX])
{
	const char *ours = getenv(ACTIVATION_VARIABLE), *fds = getenv("LISTEN_FDS");
	const char *pid = getenv("LISTEN_PID");
	long n;
	int rc = 0;

	*set = (struct activation){ .ready_fd = -1, .pid_fd = -1 };
	text[0] = '\0';
	if (ours != NULL)
		rc = take_from_predecessor(set, ours, text);
	/* Somebody else's variables, passed on by a shell in between, say nothing about our descriptors. */
	else if (fds != NULL && pid != NULL && parse_number(pid, '\0', LONG_MAX, &n, NULL) &&
	    n == (long)getpid())
		rc = take_from_manager(set, fds, getenv("LISTEN_FDNAMES"), text);
	for (const char *const *v = activation_variables; *v != NULL; v++)
		unsetenv(*v);
	return rc;
}

void
activation_free(struct activation *set)
{
	for (size_t i = 0; i < set->count; i++) {
		if (set->fds[i].fd >= 0)
			close(set->fds[i].fd);
		free(set->fds[i].unix_path);
		free(set->fds[i].name);
	}
	free(set->fds);
	*set = (struct activation){ .ready_fd = -1, .pid_fd = -1 };
}

static bool
matches(const struct activation_fd *a, const struct addr *addr, const char *unix_path)
{
	if (a->fd < 0)
		return false;
	if (unix_path != NULL)
		return a->unix_path != NULL && strcmp(a->unix_path, unix_path) == 0;
	return a->unix_path == NULL && addr_same_ip(&a->addr, addr) &&
	    (addr_port(addr) == 0 || addr_port(addr) == addr_port(&a->addr));
}

const struct activation_fd *
activation_find(struct activation *set, const struct addr *addr, const char *unix_path, int *fd)
{
	for (size_t i = 0; i < set->count; i++)
		if (matches(&set->fds[i], addr, unix_path)) {
			*fd = set->fds[i].fd;
			set->fds[i].fd = -1;
			return &set->fds[i];
		}
	return NULL;
}

size_t
activation_count(const struct activation *set, const struct addr *addr, const char *unix_path)
{
	size_t n = 0;

	for (size_t i = 0; i < set->count; i++)
		n += matches(&set->fds[i], addr, unix_path);
	return n;
}

int
activation_more(const struct activation_fd *have, int fd, unsigned backlog)
{
	unsigned flags = SOCKOPT_REUSEPORT | (have->v6only ? SOCKOPT_V6ONLY : 0u);
	int more = -1;

	if (have->reuseport && have->unix_path == NULL)
		more = sockopt_listen(&have->addr, flags, backlog, NULL);
	if (more < 0 && (more = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return -errno;
	return more;
}

int
activation_rest(struct activation *set, char text[ACTIVATION_TEXT_MAX])
{
	char where[ACTIVATION_WHERE_MAX];
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < set->count; i++) {
		struct activation_fd *a = &set->fds[i];

		if (a->fd < 0)
			continue;
		activation_where(a, where, sizeof(where));
		/* Several descriptors of one address are told once. */
		if (strstr(text, where) == NULL && used < ACTIVATION_TEXT_MAX)
			used += (size_t)snprintf(text + used, ACTIVATION_TEXT_MAX - used, "%s%s%s%s%s",
			    used > 0 ? ", " : set->origin == ACTIVATION_MANAGER ?
			    "no listener is configured for inherited " : "", where,
			    a->name != NULL ? " (" : "", a->name != NULL ? a->name : "",
			    a->name != NULL ? ")" : "");
		if (set->origin == ACTIVATION_HANDOVER) {
			close(a->fd);
			a->fd = -1;
		}
	}
	return set->origin == ACTIVATION_MANAGER && text[0] != '\0' ? -EADDRNOTAVAIL : 0;
}

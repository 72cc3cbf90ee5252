/* SPDX-License-Identifier: ISC */
#include "net/sockopt.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	/* Three probes a third of the idle time apart: a dead peer is noticed within twice that time. */
	KEEPALIVE_PROBES	= 3,
	UNIX_MODE		= 0666
};

/* Writes "<what>: <strerror>"; returns -error, for `return fail(...)`. */
static int fail(char *text, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int
fail(char *text, int error, const char *fmt, ...)
{
	size_t used;
	va_list ap;
	int n;

	if (text == NULL)
		return -error;
	va_start(ap, fmt);
	n = vsnprintf(text, SOCKOPT_TEXT_MAX, fmt, ap);
	va_end(ap);
	used = n < 0 ? 0 : (size_t)n;
	if (used < SOCKOPT_TEXT_MAX)
		snprintf(text + used, SOCKOPT_TEXT_MAX - used, ": %s", strerror(error));
	return -error;
}

static bool
set_int(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

static void
set_keepalive(int fd, uint32_t idle_s)
{
	int interval_s = (int)(idle_s / KEEPALIVE_PROBES);

	if (!set_int(fd, SOL_SOCKET, SO_KEEPALIVE, idle_s != 0) || idle_s == 0)
		return;
	/* A kernel that refuses one of them keeps its default: no reason to lose the connection. */
	set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, (int)idle_s);
	set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s > 0 ? interval_s : 1);
	set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

bool
sockopt_v6only(const struct addr *addr, const struct conf_listen *all, size_t count)
{
	if (addr->sa.sa_family != AF_INET6 || addr->len == 0)
		return false;
	if (!IN6_IS_ADDR_UNSPECIFIED(&addr->in6.sin6_addr))
		return true;
	for (size_t i = 0; i < count; i++)
		if (all[i].sock.len != 0 && all[i].sock.sa.sa_family == AF_INET &&
		    addr_port(&all[i].sock) == addr_port(addr))
			return true;
	return false;
}

static int
bound_socket(const struct addr *addr, unsigned flags, char *text)
{
	char where[ADDR_TEXT_MAX];
	int fd, error;

	addr_format(addr, where);
	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(text, errno, "socket for %s", where);
	/* Without it, connections in TIME_WAIT keep a restarted daemon from its port. */
	if (!set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1)) {
		error = fail(text, errno, "SO_REUSEADDR for %s", where);
		goto out;
	}
	if ((flags & SOCKOPT_REUSEPORT) && !set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1)) {
		error = fail(text, errno, "SO_REUSEPORT for %s", where);
		goto out;
	}
	/* Always said: the default is a sysctl's (net.ipv6.bindv6only). */
	if (addr->sa.sa_family == AF_INET6 &&
	    !set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, (flags & SOCKOPT_V6ONLY) != 0)) {
		error = fail(text, errno, "IPV6_V6ONLY for %s", where);
		goto out;
	}
	if (bind(fd, &addr->sa, addr->len) != 0) {
		error = fail(text, errno, "bind to %s", where);
		goto out;
	}
	return fd;
out:
	close(fd);
	return error;
}

int
sockopt_listen(const struct addr *addr, unsigned flags, unsigned backlog,
    char text[SOCKOPT_TEXT_MAX])
{
	char where[ADDR_TEXT_MAX];
	int fd = bound_socket(addr, flags, text);
	int error;

	if (fd < 0)
		return fd;
	if (listen(fd, (int)backlog) != 0) {
		error = fail(text, errno, "listen on %s", addr_format(addr, where));
		close(fd);
		return error;
	}
	return fd;
}

int
sockopt_probe_bind(const struct addr *addr, unsigned flags, char text[SOCKOPT_TEXT_MAX])
{
	int fd;

	if (addr_port(addr) == 0)
		return 0;
	/* Not listening: a client that came just then would be reset. */
	fd = bound_socket(addr, flags & ~(unsigned)SOCKOPT_REUSEPORT, text);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/*
 * Removes a socket file that nobody accepts on.  Only ECONNREFUSED says so;
 * EAGAIN is a full backlog, so somebody is there.
 */
static int
clear_stale(const struct sockaddr_un *un, char *text)
{
	struct stat st;
	int fd, error = 0;

	if (lstat(un->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : fail(text, errno, "unix:%s", un->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return fail(text, EEXIST, "unix:%s is not a socket and was left alone", un->sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(text, errno, "socket for unix:%s", un->sun_path);
	if (connect(fd, (const struct sockaddr *)un, sizeof(*un)) == 0 || errno == EAGAIN)
		error = fail(text, EADDRINUSE, "unix:%s has another process behind it",
		    un->sun_path);
	else if (errno != ECONNREFUSED && errno != ENOENT)
		error = fail(text, errno, "unix:%s exists", un->sun_path);
	else if (unlink(un->sun_path) != 0 && errno != ENOENT)
		error = fail(text, errno, "remove stale unix:%s", un->sun_path);
	close(fd);
	return error;
}

int
sockopt_listen_unix(const char *path, unsigned backlog, char text[SOCKOPT_TEXT_MAX])
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	int fd, error;

	if (len == 0)
		return fail(text, EINVAL, "unix: without a path");
	if (len >= sizeof(un.sun_path))
		return fail(text, ENAMETOOLONG, "unix:%s (at most %zu bytes)", path,
		    sizeof(un.sun_path) - 1);
	memcpy(un.sun_path, path, len + 1);
	error = clear_stale(&un, text);
	if (error != 0)
		return error;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(text, errno, "socket for unix:%s", path);
	if (bind(fd, (struct sockaddr *)&un, sizeof(un)) != 0) {
		error = fail(text, errno, "bind to unix:%s", path);
		goto out;
	}
	/* Nobody can connect before listen(2), so there is no window with the umask's mode. */
	if (chmod(path, UNIX_MODE) != 0)
		error = fail(text, errno, "chmod unix:%s", path);
	else if (listen(fd, (int)backlog) != 0)
		error = fail(text, errno, "listen on unix:%s", path);
	if (error == 0)
		return fd;
	unlink(path);
out:
	close(fd);
	return error;
}

static int
bind_source(int fd, const struct addr *source, char *text)
{
	char where[ADDR_TEXT_MAX];

	if (source->len == 0)
		return 0;
	/* ip(7): the port is chosen by connect, once for each 4-tuple.  Best effort. */
	set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	if (bind(fd, &source->sa, source->len) != 0)
		return fail(text, errno, "bind to source address %s",
		    addr_format_ip(source, where));
	return 0;
}

int
sockopt_outbound(int family, const struct conf_outbound *out, char text[SOCKOPT_TEXT_MAX])
{
	int fd, error = 0;

	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(text, errno, "socket");
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_keepalive(fd, out->tcp_keepalive_s);
	if (family == AF_INET6)
		set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	/* The route depends on interface and mark: both come before the source address. */
	if (out->interface != NULL && out->interface[0] != '\0' &&
	    setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, out->interface,
	    (socklen_t)strnlen(out->interface, IFNAMSIZ)) != 0)
		error = fail(text, errno, "interface %s", out->interface);
	else if (out->mark != 0 && setsockopt(fd, SOL_SOCKET, SO_MARK, &out->mark,
	    sizeof(out->mark)) != 0)
		error = fail(text, errno, "mark %u", out->mark);
	else
		error = bind_source(fd, family == AF_INET6 ? &out->bind_ipv6 : &out->bind_ipv4,
		    text);
	if (error == 0)
		return fd;
	close(fd);
	return error;
}

void
sockopt_to_inherit(int listener, uint32_t keepalive_s)
{
	/* Fails with EOPNOTSUPP on a Unix socket; then keepalive has no meaning either. */
	if (set_int(listener, IPPROTO_TCP, TCP_NODELAY, 1))
		set_keepalive(listener, keepalive_s);
}

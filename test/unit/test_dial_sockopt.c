/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/sockopt.h"
#include "test_resolve_server.h"

static struct addr
ip(const char *text, uint16_t port)
{
	struct addr addr;

	cr_assert(addr_parse_ip(span_str(text), port, &addr));
	return addr;
}

static uint16_t
port_of(int fd)
{
	struct addr addr = { .len = sizeof(addr.in6) };

	cr_assert_eq(getsockname(fd, &addr.sa, &addr.len), 0);
	return addr_port(&addr);
}

static int
get_int(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	cr_assert_eq(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

Test(sockopt, second_instance_is_refused_but_workers_share)
{
	char text[SOCKOPT_TEXT_MAX] = "";
	struct addr addr = ip("127.0.0.1", 0);
	int first = -1, second;

	cr_expect_eq(sockopt_probe_bind(&addr, 0, text), 0);
	for (int i = 0; i < 100 && first < 0; i++) {
		addr = ip("127.0.0.1", net_pick_port());
		first = sockopt_listen(&addr, SOCKOPT_REUSEPORT, 16, text);
	}
	cr_assert_geq(first, 0, "%s", text);
	second = sockopt_listen(&addr, SOCKOPT_REUSEPORT, 16, text);
	cr_expect_geq(second, 0, "%s", text);
	cr_expect_eq(sockopt_probe_bind(&addr, SOCKOPT_REUSEPORT, text), -EADDRINUSE);
	cr_expect_not_null(strstr(text, "127.0.0.1:"), "%s", text);
	cr_expect_not_null(strstr(text, "in use"), "%s", text);
	cr_expect(fcntl(first, F_GETFD) & FD_CLOEXEC);
	cr_expect(fcntl(first, F_GETFL) & O_NONBLOCK);
	close(first);
	close(second);
	cr_expect_eq(sockopt_probe_bind(&addr, 0, text), 0, "%s", text);
}

Test(sockopt, wildcard_is_dual_stack_unless_ipv4_has_its_own_listener)
{
	struct conf_listen all[3] = { { .sock = ip("::", 1080) }, { .sock = ip("127.0.0.1", 1081) },
	    { .unix_path = "/x" } };
	char text[SOCKOPT_TEXT_MAX] = "";
	struct addr any, v4;
	int fd = -1, fd4 = -1;

	cr_expect(!sockopt_v6only(&all[0].sock, all, 3));
	all[1].sock = ip("0.0.0.0", 1080);
	cr_expect(sockopt_v6only(&all[0].sock, all, 3));
	cr_expect(!sockopt_v6only(&all[1].sock, all, 3));
	/* Others may hold the port that is picked, in one family or both. */
	for (int i = 0; i < 100 && fd < 0; i++) {
		any = ip("::", net_pick_port());
		fd = sockopt_listen(&any, 0, 16, text);
	}
	cr_assert_geq(fd, 0, "%s", text);
	v4 = ip("0.0.0.0", port_of(fd));
	cr_expect_eq(sockopt_probe_bind(&v4, 0, text), -EADDRINUSE);
	close(fd);
	for (int i = 0; i < 100 && fd4 < 0; i++) {
		any = ip("::", net_pick_port());
		v4 = ip("0.0.0.0", addr_port(&any));
		fd = sockopt_listen(&any, SOCKOPT_V6ONLY, 16, text);
		if (fd < 0)
			continue;
		fd4 = sockopt_listen(&v4, 0, 16, text);
		if (fd4 < 0)
			close(fd);
	}
	cr_assert_geq(fd4, 0, "%s", text);
	close(fd);
	close(fd4);
}

Test(sockopt, unix_listener_replaces_only_what_is_stale)
{
	char dir[] = "/tmp/ringway-unix-XXXXXX", path[64], text[SOCKOPT_TEXT_MAX] = "", longer[200];
	struct stat st;
	FILE *file;
	int fd;

	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	umask(077);
	fd = sockopt_listen_unix(path, 4, text);
	cr_assert_geq(fd, 0, "%s", text);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 0777u, 0666u);
	cr_expect_eq(sockopt_listen_unix(path, 4, text), -EADDRINUSE);
	cr_expect_not_null(strstr(text, path), "%s", text);
	close(fd);	/* the file stays: stale */
	fd = sockopt_listen_unix(path, 4, text);
	cr_expect_geq(fd, 0, "%s", text);
	close(fd);
	unlink(path);
	file = fopen(path, "w");
	cr_assert_not_null(file);
	fclose(file);
	cr_expect_eq(sockopt_listen_unix(path, 4, text), -EEXIST);
	cr_expect_eq(access(path, F_OK), 0);
	unlink(path);
	memset(longer, 'a', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	cr_expect_eq(sockopt_listen_unix(longer, 4, text), -ENAMETOOLONG);
	snprintf(longer, sizeof(longer), "%s/none/s", dir);
	cr_expect_eq(sockopt_listen_unix(longer, 4, text), -ENOENT);
	rmdir(dir);
}

Test(sockopt, outbound_sockets_carry_what_the_configuration_says)
{
	char text[SOCKOPT_TEXT_MAX] = "";
	char device[] = "no-such-device0";
	struct conf_outbound out = { .tcp_keepalive_s = 45 };
	int fd = sockopt_outbound(AF_INET, &out, text);

	cr_assert_geq(fd, 0, "%s", text);
	cr_expect_eq(get_int(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	cr_expect_eq(get_int(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	cr_expect_eq(get_int(fd, IPPROTO_TCP, TCP_KEEPIDLE), 45);
	cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	out.tcp_keepalive_s = 0;
	out.bind_ipv6 = ip("::1", 0);
	fd = sockopt_outbound(AF_INET6, &out, text);
	cr_assert_geq(fd, 0, "%s", text);
	cr_expect_eq(get_int(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
	cr_expect_eq(get_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), 1);
	cr_expect_eq(port_of(fd), 0);	/* chosen at connect */
	close(fd);
	out.interface = device;
	cr_expect_lt(sockopt_outbound(AF_INET, &out, text), 0);
	cr_expect_not_null(strstr(text, device), "%s", text);
	out.interface = NULL;
	out.bind_ipv4 = ip("192.0.2.1", 0);
	cr_expect_eq(sockopt_outbound(AF_INET, &out, text), -EADDRNOTAVAIL);
	cr_expect_not_null(strstr(text, "192.0.2.1"), "%s", text);
}

Test(sockopt, accepted_sockets_inherit_what_the_listener_has)
{
	struct addr at = ip("127.0.0.1", 0);
	int pair[2], listener = sockopt_listen(&at, 0, 4, NULL), client, fd;

	cr_assert_geq(listener, 0);
	sockopt_to_inherit(listener, 30);
	at = ip("127.0.0.1", port_of(listener));
	client = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(connect(client, &at.sa, at.len), 0);
	cr_assert_geq(fd = accept(listener, NULL, NULL), 0);
	cr_expect_eq(get_int(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	cr_expect_eq(get_int(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	cr_expect_eq(get_int(fd, IPPROTO_TCP, TCP_KEEPIDLE), 30);
	close(fd);
	close(client);

	sockopt_to_inherit(listener, 0);	/* a reload that turned it off */
	client = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(connect(client, &at.sa, at.len), 0);
	cr_assert_geq(fd = accept(listener, NULL, NULL), 0);
	cr_expect_eq(get_int(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
	close(fd);
	close(client);
	close(listener);

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	sockopt_to_inherit(pair[0], 30);
	close(pair[0]);
	close(pair[1]);
}

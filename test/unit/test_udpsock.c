/* SPDX-License-Identifier: ISC */
/* Sockets and ports of UDP associations. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/udpsock.h"

enum {
	/* Below the ports that the kernel gives to others, net.ipv4.ip_local_port_range. */
	FIRST = 21000,
	LAST = 31000,
	WIDTH_MAX = 80
};

static const struct conf_outbound plain;
static char text[SOCKOPT_TEXT_MAX];

static int
bound_stranger(int family, uint16_t port)
{
	struct addr addr;
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	cr_assert(addr_parse_ip(span_str(family == AF_INET ? "127.0.0.1" : "::"), port, &addr));
	if (fd >= 0 && bind(fd, &addr.sa, addr.len) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* The first of `count` ports in a row that nobody has: another one for each process, as tests run side by side. */
static uint16_t
free_ports(unsigned count)
{
	unsigned first = FIRST + (unsigned)getpid() * WIDTH_MAX % (LAST - FIRST - WIDTH_MAX);

	for (unsigned i = 0; i < count; i++) {
		int fd = bound_stranger(AF_INET6, (uint16_t)(first + i));

		if (fd < 0) {
			first += i + 1;
			cr_assert_lt(first, 2u * LAST, "no free ports");
			i = (unsigned)-1;
			continue;
		}
		close(fd);
	}
	return (uint16_t)first;
}

static void
close_sock(struct udpports *ports, const struct udpsock *sock)
{
	close(sock->fd);
	udpsock_port_release(ports, sock->port);
}

Test(udpsock, range_used_up_and_a_released_port_is_found_again)
{
	struct udpports *ports = udpports_new(7);
	uint16_t low = free_ports(5);
	struct udpsock socks[5], more;
	bool seen[5] = { false };

	for (int i = 0; i < 5; i++) {
		cr_assert_eq(udpsock_open(ports, low, (uint16_t)(low + 4), &plain, &socks[i], text), 0, "%s", text);
		cr_assert_geq(socks[i].port, low);
		cr_assert_leq(socks[i].port, low + 4);
		cr_expect(!seen[socks[i].port - low], "port %u twice", socks[i].port);
		seen[socks[i].port - low] = true;
		cr_expect(udpports_taken(ports, socks[i].port));
	}
	cr_expect_eq(udpsock_open(ports, low, (uint16_t)(low + 4), &plain, &more, text), -EADDRINUSE);
	cr_expect_not_null(strstr(text, "no UDP port from "), "%s", text);
	close_sock(ports, &socks[2]);
	cr_expect(!udpports_taken(ports, socks[2].port));
	cr_assert_eq(udpsock_open(ports, low, (uint16_t)(low + 4), &plain, &more, text), 0, "%s", text);
	cr_expect_eq(more.port, socks[2].port);
	socks[2] = more;
	for (int i = 0; i < 5; i++)
		close_sock(ports, &socks[i]);
	udpports_free(ports);
}

Test(udpsock, full_words_are_passed_over)
{
	struct udpports *ports = udpports_new(0);
	struct udpsock sock;
	uint16_t low = (uint16_t)(free_ports(WIDTH_MAX) + 64) / 64 * 64;
	struct udpsock socks[WIDTH_MAX];
	uint16_t high = (uint16_t)(low + 69);

	for (int i = 0; i < 70; i++)
		if (udpsock_open(ports, low, high, &plain, &socks[i], text) != 0)
			cr_skip("port %d of a range is not free: %s", i, text);
	cr_expect_eq(udpsock_open(ports, low, high, &plain, &sock, text), -EADDRINUSE);
	close_sock(ports, &socks[66]);
	cr_assert_eq(udpsock_open(ports, low, high, &plain, &socks[66], text), 0, "%s", text);
	for (int i = 0; i < 70; i++)
		close_sock(ports, &socks[i]);
	udpports_free(ports);
}

Test(udpsock, ports_of_others_are_passed_over)
{
	struct udpports *ports = udpports_new(0);
	uint16_t low = free_ports(4);
	int first = bound_stranger(AF_INET6, low), third = bound_stranger(AF_INET, (uint16_t)(low + 2));
	struct udpsock a, b, c;

	cr_assert(first >= 0 && third >= 0);
	cr_assert_eq(udpsock_open(ports, low, (uint16_t)(low + 3), &plain, &a, text), 0, "%s", text);
	cr_assert_eq(udpsock_open(ports, low, (uint16_t)(low + 3), &plain, &b, text), 0, "%s", text);
	cr_expect_eq(a.port + b.port, 2 * low + 4, "%u %u", a.port, b.port);
	cr_expect_eq(udpsock_open(ports, low, (uint16_t)(low + 3), &plain, &c, text), -EADDRINUSE);
	cr_expect(!udpports_taken(ports, low), "a port that was refused stayed taken");
	close(first);
	cr_assert_eq(udpsock_open(ports, low, (uint16_t)(low + 3), &plain, &c, text), 0, "%s", text);
	cr_expect_eq(c.port, low);
	close(third);
	close_sock(ports, &a);
	close_sock(ports, &b);
	close_sock(ports, &c);
	udpports_free(ports);
}

static void
send_to(int family, const char *ip, uint16_t port)
{
	struct addr addr;
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	cr_assert(addr_parse_ip(span_str(ip), port, &addr));
	cr_assert_eq(sendto(fd, ip, strlen(ip), 0, &addr.sa, addr.len), (ssize_t)strlen(ip), "%s", ip);
	close(fd);
}

/* The next datagram says where it was sent to, as text and in its control data. */
static void
expect_datagram(int fd, const char *ip)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char payload[64] = "", control[256];
	struct iovec v = { payload, sizeof(payload) - 1 };
	struct addr local = { .len = 0 };
	char got[ADDR_TEXT_MAX];
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
	    .msg_controllen = sizeof(control) };

	cr_assert_eq(poll(&p, 1, 5000), 1, "nothing came for %s", ip);
	cr_assert_gt(recvmsg(fd, &m, 0), 0);
	cr_expect_str_eq(payload, ip);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			local.in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_addr = info.ipi6_addr };
			local.len = sizeof(local.in6);
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			local.in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = info.ipi_addr };
			local.len = sizeof(local.in);
		}
	}
	addr_unmap(&local);
	cr_expect_str_eq(addr_format_ip(&local, got), ip);
}

Test(udpsock, one_socket_for_both_families)
{
	struct udpports *ports = udpports_new(0);
	uint16_t low = free_ports(1);
	struct udpsock sock;

	cr_assert_eq(udpsock_open(ports, low, low, &plain, &sock, text), 0, "%s", text);
	cr_expect(fcntl(sock.fd, F_GETFD) & FD_CLOEXEC);
	cr_expect(fcntl(sock.fd, F_GETFL) & O_NONBLOCK);
	send_to(AF_INET, "127.0.0.2", low);
	expect_datagram(sock.fd, "127.0.0.2");
	if (sock.dual) {
		send_to(AF_INET6, "::1", low);
		expect_datagram(sock.fd, "::1");
	}
	close_sock(ports, &sock);
	udpports_free(ports);
}

/* From here on this process gets `error` for each socket of IPv6.  False where it may not ask for that. */
static bool
lose_ipv6(int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		/* The low half of the argument: a family is small, and these machines are little-endian. */
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
	    socket(AF_INET6, SOCK_DGRAM, 0) < 0 && errno == error;
}

Test(udpsock, machine_without_ipv6)
{
	struct udpports *ports = udpports_new(0);
	uint16_t low = free_ports(1);
	struct udpsock sock;

	if (!lose_ipv6(EAFNOSUPPORT))
		cr_skip("no seccomp filter");
	cr_assert_eq(udpsock_open(ports, low, low, &plain, &sock, text), 0, "%s", text);
	cr_expect(!sock.dual);
	cr_expect_eq(sock.port, low);
	send_to(AF_INET, "127.0.0.1", low);
	expect_datagram(sock.fd, "127.0.0.1");
	close_sock(ports, &sock);
	udpports_free(ports);
}

/* Not every failure is a machine without IPv6. */
Test(udpsock, used_up_descriptors_are_told_as_such)
{
	struct udpports *ports = udpports_new(0);
	uint16_t low = free_ports(1);
	struct rlimit none = { 0, 0 }, before;
	struct udpsock sock;
	int rc;

	getrlimit(RLIMIT_NOFILE, &before);
	none.rlim_max = before.rlim_max;
	setrlimit(RLIMIT_NOFILE, &none);
	rc = udpsock_open(ports, low, low, &plain, &sock, text);
	setrlimit(RLIMIT_NOFILE, &before);
	cr_expect_eq(rc, -EMFILE);
	cr_expect_not_null(strstr(text, "socket: "), "%s", text);
	cr_expect(!udpports_taken(ports, low));
	udpports_free(ports);
}

Test(udpsock, mark_is_set_or_told)
{
	const struct conf_outbound marked = { .mark = 77 };
	struct udpports *ports = udpports_new(0);
	uint16_t low = free_ports(1);
	uint32_t mark = 0;
	socklen_t len = sizeof(mark);
	struct udpsock sock;
	int rc = udpsock_open(ports, low, low, &marked, &sock, text);

	if (rc == 0) {
		cr_expect_eq(getsockopt(sock.fd, SOL_SOCKET, SO_MARK, &mark, &len), 0);
		cr_expect_eq(mark, 77u);
		close_sock(ports, &sock);
	} else {
		cr_expect_eq(rc, -EPERM);
		cr_expect_not_null(strstr(text, "outbound.mark"), "%s", text);
	}
	cr_expect(!udpports_taken(ports, low));
	udpports_free(ports);
}

enum { THREADS = 4, EACH = 12, ROUNDS = 20 };

struct opener {
	pthread_t	 thread;
	struct udpports	*ports;
	uint16_t	 low, high;
	struct udpsock	 socks[EACH];
};

static void *
open_and_close(void *arg)
{
	struct opener *o = arg;
	char why[SOCKOPT_TEXT_MAX];

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < EACH; i++)
			/* Refused when what is free lies behind the search just then. */
			if (udpsock_open(o->ports, o->low, o->high, &plain, &o->socks[i], why) != 0)
				o->socks[i].fd = -1;
		for (int i = 0; i < EACH && round < ROUNDS - 1; i++)
			if (o->socks[i].fd != -1)
				close_sock(o->ports, &o->socks[i]);
	}
	return NULL;
}

Test(udpsock, threads_never_get_the_same_port)
{
	static struct opener openers[THREADS];
	struct udpports *ports = udpports_new(3);
	uint16_t low = free_ports(THREADS * EACH);
	bool seen[THREADS * EACH] = { false };

	for (int i = 0; i < THREADS; i++) {
		openers[i] = (struct opener){ .ports = ports, .low = low,
		    .high = (uint16_t)(low + THREADS * EACH - 1) };
		cr_assert_eq(pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(openers[i].thread, NULL);
	for (int i = 0; i < THREADS; i++) {
		for (int k = 0; k < EACH; k++) {
			const struct udpsock *sock = &openers[i].socks[k];

			if (sock->fd == -1)
				continue;
			cr_expect(!seen[sock->port - low], "port %u twice", sock->port);
			seen[sock->port - low] = true;
			close_sock(ports, sock);
		}
	}
	for (int i = 0; i < THREADS * EACH; i++)
		cr_expect(!udpports_taken(ports, (uint16_t)(low + i)));
	udpports_free(ports);
}

Test(udpsock, segments_of_one_send)
{
	unsigned n = udpsock_gso_segments();

	cr_expect(n == 0 || n == 64, "%u", n);
}

/* SPDX-License-Identifier: ISC */
#include "net/udpsock.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#ifndef UDP_SEGMENT
#define UDP_SEGMENT	103	/* since 4.18 */
#endif
#ifndef UDP_GRO
#define UDP_GRO		104	/* since 5.0 */
#endif
#endif

enum {
	PORTS = 65536,
	WORD_BITS = 64,
	/* Refused binds of one call: some tenths of a millisecond. */
	TRIES_MAX = 64,
	/*
	 * Asked for; net.core.rmem_max and wmem_max may cut it.  The default holds
	 * some 200 small datagrams, which a burst fills within a turn of the loop.
	 */
	BUFFER_BYTES = 1 << 20,
	GSO_SEGMENTS = 64	/* UDP_MAX_SEGMENTS of kernels before 6.9 */
};

struct udpports {
	_Atomic uint64_t taken[PORTS / WORD_BITS];
	/*
	 * Where the next search begins, modulo the range: a port rests as long as
	 * others are free, so that late datagrams to its last owner find nobody.
	 */
	_Atomic uint32_t next;
};

/* ---- ports ---- */

struct udpports *
udpports_new(uint32_t start)
{
	struct udpports *ports = calloc(1, sizeof(*ports));

	if (ports != NULL)
		atomic_init(&ports->next, start % PORTS);
	return ports;
}

void
udpports_free(struct udpports *ports)
{
	free(ports);
}

static uint64_t
bit_of(uint32_t port)
{
	return UINT64_C(1) << port % WORD_BITS;
}

bool
udpports_taken(const struct udpports *ports, uint16_t port)
{
	return (atomic_load_explicit(&ports->taken[port / WORD_BITS], memory_order_relaxed) &
	    bit_of(port)) != 0;
}

/* False when somebody was faster. */
static bool
claim(struct udpports *ports, uint16_t port)
{
	return (atomic_fetch_or(&ports->taken[port / WORD_BITS], bit_of(port)) & bit_of(port)) == 0;
}

static void
let_go(struct udpports *ports, uint16_t port)
{
	uint64_t before = atomic_fetch_and(&ports->taken[port / WORD_BITS], ~bit_of(port));

	assert((before & bit_of(port)) != 0);
}

void
udpsock_port_release(struct udpports *ports, uint16_t port)
{
	let_go(ports, port);
}

/* Ports of ours from this one on, as far as one look can tell: 0 or the rest of a full word. */
static uint32_t
taken_run(const struct udpports *ports, uint16_t port)
{
	uint64_t word = atomic_load_explicit(&ports->taken[port / WORD_BITS], memory_order_relaxed);

	if (word == UINT64_MAX)
		return WORD_BITS - port % WORD_BITS;
	return (word & bit_of(port)) != 0;
}

/* ---- sockets ---- */

static bool
set_int(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

static int
fail(char *text, int error, const char *what)
{
	snprintf(text, SOCKOPT_TEXT_MAX, "%s: %s", what, strerror(error));
	return -error;
}

/* What only makes it better: a kernel without one of them serves all the same. */
static void
set_luxuries(int fd)
{
	set_int(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES);
	set_int(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES);
#ifdef UDP_GRO
	set_int(fd, IPPROTO_UDP, UDP_GRO, 1);
#endif
}

/* Without it answers could leave from another address than the client sends to. */
static bool
tell_local_address(int fd, int family)
{
	if (family == AF_INET6 && !set_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1))
		return false;
	/* Of IPv4 datagrams in a socket of both, the backends take either form. */
#ifdef IP_PKTINFO
	return set_int(fd, IPPROTO_IP, IP_PKTINFO, 1);
#elif defined(IP_RECVDSTADDR)
	return set_int(fd, IPPROTO_IP, IP_RECVDSTADDR, 1) || family == AF_INET6;
#else
	return family == AF_INET6;
#endif
}

/* Not bound yet.  The descriptor or a negative errno. */
static int
new_socket(int family, const struct conf_outbound *outbound, char *text)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return fail(text, errno, "socket");
	/* Always said: the default is a sysctl's (net.ipv6.bindv6only). */
	if (family == AF_INET6 && !set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0))
		error = fail(text, errno, "IPV6_V6ONLY");
	else if (!tell_local_address(fd, family))
		error = fail(text, errno, "IP_PKTINFO");
#ifdef SO_MARK
	else if (outbound->mark != 0 && setsockopt(fd, SOL_SOCKET, SO_MARK, &outbound->mark,
	    sizeof(outbound->mark)) != 0)
		error = fail(text, errno, "outbound.mark");
#endif
	else {
		set_luxuries(fd);
		return fd;
	}
	(void)outbound;
	close(fd);
	return error;
}

/* 0 or a negative errno. */
static int
bind_any(int fd, int family, uint16_t port)
{
	struct addr any = { .len = sizeof(any.in6) };

	if (family == AF_INET6)
		any.in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_addr = in6addr_any };
	else {
		any.in = (struct sockaddr_in){ .sin_family = AF_INET };
		any.len = sizeof(any.in);
	}
	addr_set_port(&any, port);
	return bind(fd, &any.sa, any.len) == 0 ? 0 : -errno;
}

/*
 * Binds to a free port, which is then claimed.  Strangers may hold any number
 * of them in a row (a process that was handed over from does): the second half
 * of the tries goes in strides that cross half of the range.
 */
static int
bind_in_range(int fd, int family, struct udpports *ports, uint16_t low, uint16_t high,
    uint16_t *out)
{
	uint32_t count = (uint32_t)high - low + 1, step;
	uint32_t start = atomic_load_explicit(&ports->next, memory_order_relaxed) % count;
	unsigned tries = 0;
	int rc = -EADDRINUSE;

	for (uint32_t i = 0; i < count && tries < TRIES_MAX; i += step) {
		uint32_t at = (start + i) % count, run;
		uint16_t port = (uint16_t)(low + at);

		step = 1;
		run = taken_run(ports, port);
		if (run > 0) {
			step = run < count - at ? run : count - at;
			continue;
		}
		if (!claim(ports, port))
			continue;
		rc = bind_any(fd, family, port);
		if (rc == 0) {
			atomic_store_explicit(&ports->next, at + 1, memory_order_relaxed);
			*out = port;
			return 0;
		}
		let_go(ports, port);
		/* A low port that we may not have is as good as one that somebody holds. */
		if (rc != -EADDRINUSE && rc != -EACCES)
			return rc;
		if (++tries >= TRIES_MAX / 2)
			step = 1 + (count - 1) / TRIES_MAX;
		atomic_store_explicit(&ports->next, at + 1, memory_order_relaxed);
	}
	return -EADDRINUSE;
}

static int
open_family(int family, struct udpports *ports, uint16_t low, uint16_t high,
    const struct conf_outbound *outbound, struct udpsock *out, char *text)
{
	char what[64];
	int fd = new_socket(family, outbound, text), rc;

	if (fd < 0)
		return fd;
	rc = bind_in_range(fd, family, ports, low, high, &out->port);
	if (rc == 0) {
		out->fd = fd;
		out->dual = family == AF_INET6;
		return 0;
	}
	close(fd);
	snprintf(what, sizeof(what), "no UDP port from %u to %u", low, high);
	return fail(text, -rc, what);
}

/* A kernel without IPv6, or with it switched off. */
static bool
means_no_ipv6(int rc)
{
	return rc == -EAFNOSUPPORT || rc == -EPROTONOSUPPORT || rc == -EADDRNOTAVAIL ||
	    rc == -ENOPROTOOPT;
}

int
udpsock_open(struct udpports *ports, uint16_t low, uint16_t high,
    const struct conf_outbound *outbound, struct udpsock *out, char text[SOCKOPT_TEXT_MAX])
{
	int rc;

	assert(low > 0 && low <= high);
	rc = open_family(AF_INET6, ports, low, high, outbound, out, text);
	if (means_no_ipv6(rc))
		rc = open_family(AF_INET, ports, low, high, outbound, out, text);
	return rc;
}

uint32_t
udpsock_kernel_drops(int fd)
{
#if defined(SO_MEMINFO)
	uint32_t told[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof told;

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, told, &len) == 0 ? told[SK_MEMINFO_DROPS] : 0;
#else
	(void)fd;
	return 0;
#endif
}

unsigned
udpsock_gso_segments(void)
{
#ifdef UDP_SEGMENT
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return 0;
	/* 0 = one by one, as it is anyway: only a kernel that knows the option takes it. */
	ok = set_int(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
	close(fd);
	return ok ? GSO_SEGMENTS : 0;
#else
	return 0;
#endif
}

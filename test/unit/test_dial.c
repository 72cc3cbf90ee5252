/* SPDX-License-Identifier: ISC */
#include "test_resolve_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/dial.h"

/* Which addresses refuse, swallow or answer is up to the test; the names stay. */
static struct dns_rule rules[] = {
	{ .name = "both.test", .type = DNS_A, .ttl_s = 60, .addrs = { "127.0.0.1" } },
	{ .name = "both.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = { "::1" } },
	{ .name = "v4.test", .type = DNS_A, .ttl_s = 60, .addrs = { "127.0.0.1" } },
	{ .name = "v6late.test", .type = DNS_A, .ttl_s = 60, .addrs = { "127.0.0.1" } },
	{ .name = "v6late.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = { "::1" },
	  .delay_ms = 600 },
	{ .name = "v6soon.test", .type = DNS_A, .ttl_s = 60, .addrs = { "127.0.0.1" } },
	{ .name = "v6soon.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = { "::1" },
	  .delay_ms = 20 },
	{ .name = "hole-first.test", .type = DNS_A, .ttl_s = 60, .addrs = {
	  "127.0.0.2", "127.0.0.1" } },
	{ .name = "unreachable.test", .type = DNS_A, .ttl_s = 60, .addrs = { "127.0.0.1" } },
	{ .name = "unreachable.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = {
	  "2001:db8::1", "2001:db8::2" } },
	{ .name = "many.test", .type = DNS_A, .ttl_s = 60, .addrs = {
	  "127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.1.4", "127.0.1.5", "127.0.1.6",
	  "127.0.1.7", "127.0.1.8", "127.0.1.9", "127.0.1.10", "127.0.1.11", "127.0.1.12",
	  "127.0.1.13", "127.0.1.14", "127.0.1.15", "127.0.1.16", "127.0.1.17" } },
	{ .name = "many.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = { "::1" } },
	{ .name = "mapped.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = {
	  "::ffff:127.0.0.1" } },
	{ .name = "servfail.test", .type = DNS_A, .action = DNS_SERVFAIL },
	{ .name = "servfail.test", .type = DNS_AAAA, .action = DNS_SERVFAIL },
	{ .name = "drop.test", .type = DNS_A, .action = DNS_DROP },
	{ .name = "drop.test", .type = DNS_AAAA, .action = DNS_DROP },
	{ .name = "v4drop6.test", .type = DNS_A, .ttl_s = 60, .addrs = { "127.0.0.1" } },
	{ .name = "v4drop6.test", .type = DNS_AAAA, .action = DNS_DROP },
	{ .name = NULL }
};

struct dialed {
	bool			 done;
	unsigned		 calls;
	struct dial_result	 result;
	char			 peer[ADDR_TEXT_MAX];
	uint64_t		 ms;		/* how long it took */
	uint64_t		 began_ms;
	struct dial		*dial;
	const char		*forbidden;	/* permit() refuses this, "*" = all */
	unsigned		 permits;
	uint16_t		 port;
};

static struct dialer *dialer;

static void
on_dialed(void *owner, const struct dial_result *result)
{
	struct dialed *d = owner;

	d->done = true;
	d->calls++;
	d->result = *result;
	d->ms = net_ms() - d->began_ms;
	addr_format_ip(&result->peer, d->peer);
}

static bool
permit(void *owner, const struct addr *addr)
{
	struct dialed *d = owner;
	char text[ADDR_TEXT_MAX];

	d->permits++;
	cr_expect_eq(addr_port(addr), d->port);
	addr_format_ip(addr, text);
	return d->forbidden == NULL || (strcmp(d->forbidden, "*") != 0 &&
	    strcmp(d->forbidden, text) != 0);
}

static void
start(struct dialed *d, const char *host, uint16_t port)
{
	struct target target;
	struct dial_request request = { .target = &target, .permit = permit };
	const char *forbidden = d->forbidden;

	memset(d, 0, sizeof(*d));
	d->forbidden = forbidden;
	d->port = port;
	d->began_ms = net_ms();
	cr_assert(target_set_host(&target, span_str(host), port));
	d->dial = dial_start(dialer, &request, on_dialed, d);
	cr_assert_not_null(d->dial);
	/* The target was copied. */
	memset(&target, 0xaa, sizeof(target));
	cr_assert(!d->done, "called back inside dial_start");
}

static void
dial(struct net_fixture *f, struct dialed *d, const char *host, uint16_t port)
{
	io_loop_turn(f->loop, false);	/* a fresh io_now() */
	start(d, host, port);
	net_until(f, &d->done, 8000);
	cr_assert_eq(d->calls, 1u);
	if (d->result.status == DIAL_OK)
		stream_close_free(d->result.stream);
}

static void
set_up(struct net_fixture *f)
{
	f->conf.resolver.timeout_ms = 200;
	net_resolver(f, "");
	cr_assert_eq(dialer_new(&dialer, f->loop, f->resolver, &f->conf), 0);
}

static void
set_true(void *owner)
{
	*(bool *)owner = true;
}

static void
tear_down(struct net_fixture *f)
{
	bool done = false;

	dialer_close(dialer, set_true, &done);
	cr_assert(!done);
	net_until(f, &done, 2000);
}

NET_TEST(dial, connects_to_a_literal, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;
	int fd = net_listener("127.0.0.1", &port, 64);

	set_up(f);
	dial(f, &d, "127.0.0.1", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	cr_expect_eq(addr_port(&d.result.peer), port);
	cr_expect(addr_is_loopback(&d.result.local));
	cr_expect_neq(addr_port(&d.result.local), 0);
	cr_expect_eq(d.result.attempts, 1u);
	cr_expect_eq(dns_server_asked(f->dns), 0u);
	tear_down(f);
	close(fd);
}

NET_TEST(dial, reports_refusal, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;

	close(net_listener("127.0.0.1", &port, 1));
	set_up(f);
	dial(f, &d, "127.0.0.1", port);
	cr_expect_eq(d.result.status, DIAL_FAILED);
	cr_expect_eq(d.result.err, IO_EREFUSED);
	cr_expect_eq(d.result.syserr, ECONNREFUSED);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	cr_expect_null(d.result.stream);
	tear_down(f);
}

NET_TEST(dial, prefers_ipv6_unless_told_otherwise, rules)
{
	struct dialed d = { 0 };
	int fds[2];
	uint16_t port = net_listeners(fds);

	set_up(f);
	dial(f, &d, "both.test", port);
	cr_expect_str_eq(d.peer, "::1");
	f->conf.resolver.prefer = CONF_PREFER_IPV4;
	dial(f, &d, "both.test", port);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	f->conf.resolver.prefer = CONF_PREFER_IPV6;
	dial(f, &d, "both.test", port);
	cr_expect_str_eq(d.peer, "::1");
	cr_expect_eq(d.result.attempts, 1u);
	tear_down(f);
	net_close_all(fds, 2);
}

NET_TEST(dial, only_means_that_the_other_family_is_not_asked_for, rules)
{
	struct dialed d = { 0 };
	int fds[2];
	uint16_t port = net_listeners(fds);

	f->conf.resolver.prefer = CONF_PREFER_IPV4_ONLY;
	set_up(f);
	dial(f, &d, "both.test", port);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	cr_expect_eq(dns_server_asked(f->dns), 1u);
	f->conf.resolver.prefer = CONF_PREFER_IPV6_ONLY;
	dial(f, &d, "both.test", port);
	cr_expect_str_eq(d.peer, "::1");
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	dial(f, &d, "v4.test", port);
	cr_expect_eq(d.result.status, DIAL_NO_NAME);
	/* An IPv4-mapped AAAA is no way round it. */
	dial(f, &d, "mapped.test", port);
	cr_expect_eq(d.result.status, DIAL_NO_NAME);
	tear_down(f);
	net_close_all(fds, 2);
}

NET_TEST(dial, goes_on_to_ipv4_at_once_when_ipv6_refuses, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;
	int fd = net_listener("127.0.0.1", &port, 64);

	set_up(f);
	dial(f, &d, "both.test", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	cr_expect_eq(d.result.attempts, 2u);
	cr_expect_lt(d.ms, 240u, "%u ms", (unsigned)d.ms);
	cr_expect_eq(dialer_stats(dialer).fallbacks, 1u);
	tear_down(f);
	close(fd);
}

NET_TEST(dial, an_ipv6_address_that_swallows_packets_costs_one_stagger, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;
	int hole[NET_HOLE_FDS], fd, before;

	fd = net_black_hole_beside("::1", "127.0.0.1", &port, hole);
	set_up(f);
	before = net_open_fds();
	for (int i = 0; i < 5; i++) {
		dial(f, &d, "both.test", port);
		cr_assert_eq(d.result.status, DIAL_OK);
		cr_expect_str_eq(d.peer, "127.0.0.1");
		cr_expect_geq(d.ms, 240u, "%u ms", (unsigned)d.ms);
		cr_expect_lt(d.ms, 600u, "%u ms", (unsigned)d.ms);
	}
	net_pass(f, 20);
	cr_expect_eq(net_open_fds(), before, "losers still open");
	cr_expect(dialer_idle(dialer));
	tear_down(f);
	net_close_all(hole, NET_HOLE_FDS);
	close(fd);
}

NET_TEST(dial, a_stagger_of_zero_tries_one_after_the_other, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;
	int hole[NET_HOLE_FDS], fd;

	fd = net_black_hole_beside("127.0.0.2", "127.0.0.1", &port, hole);
	f->conf.outbound.happy_eyeballs_ms = 0;
	set_up(f);
	start(&d, "hole-first.test", port);
	net_pass(f, 400);
	cr_expect(!d.done);
	cr_expect_eq(dialer_stats(dialer).attempts, 1u);
	dial_cancel(d.dial);
	/* A failure still starts the next one. */
	dial(f, &d, "unreachable.test", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	tear_down(f);
	net_close_all(hole, NET_HOLE_FDS);
	close(fd);
}

NET_TEST(dial, waits_a_little_for_the_preferred_family, rules)
{
	struct dialed d = { 0 };
	int fds[2];
	uint16_t port = net_listeners(fds);

	set_up(f);
	dial(f, &d, "v6soon.test", port);
	cr_expect_str_eq(d.peer, "::1");
	dial(f, &d, "v6late.test", port);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	cr_expect_geq(d.ms, 45u, "%u ms", (unsigned)d.ms);
	cr_expect_lt(d.ms, 200u, "%u ms", (unsigned)d.ms);
	/* A lookup that never ends does not hold up the other family. */
	dial(f, &d, "v4drop6.test", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	cr_expect_lt(d.ms, 200u, "%u ms", (unsigned)d.ms);
	tear_down(f);
	net_close_all(fds, 2);
}

NET_TEST(dial, addresses_that_come_late_join, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;
	int hole[NET_HOLE_FDS], fd;

	fd = net_black_hole_beside("127.0.0.1", "::1", &port, hole);
	f->conf.resolver.timeout_ms = 2000;
	net_resolver(f, "");
	cr_assert_eq(dialer_new(&dialer, f->loop, f->resolver, &f->conf), 0);
	dial(f, &d, "v6late.test", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	cr_expect_str_eq(d.peer, "::1");
	cr_expect_geq(d.ms, 590u);
	cr_expect_lt(d.ms, 1000u);
	tear_down(f);
	net_close_all(hole, NET_HOLE_FDS);
	close(fd);
}

NET_TEST(dial, tells_the_most_telling_error, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;

	close(net_listener("127.0.0.1", &port, 1));
	set_up(f);
	/* Unreachable first, then refused; and the other way round. */
	for (int i = 0; i < 2; i++) {
		dial(f, &d, "unreachable.test", port);
		cr_expect_eq(d.result.status, DIAL_FAILED);
		cr_expect_eq(d.result.err, IO_EREFUSED, "%s", io_strerror(d.result.err));
		cr_expect_str_eq(d.peer, "127.0.0.1");
		f->conf.resolver.prefer = CONF_PREFER_IPV4;
	}
	tear_down(f);
}

NET_TEST(dial, permit_is_asked_for_each_address, rules)
{
	struct dialed d = { 0 };
	int fds[2];
	uint16_t port = net_listeners(fds);

	set_up(f);
	d.forbidden = "::1";
	dial(f, &d, "both.test", port);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	cr_expect_eq(d.permits, 2u);
	cr_expect_eq(d.result.attempts, 1u);
	d.forbidden = "*";
	dial(f, &d, "both.test", port);
	cr_expect_eq(d.result.status, DIAL_DENIED);
	cr_expect_eq(d.result.attempts, 0u);
	dial(f, &d, "127.0.0.1", port);
	cr_expect_eq(d.result.status, DIAL_DENIED);
	/* An IPv4-mapped answer is judged, and dialled, as IPv4. */
	d.forbidden = "127.0.0.1";
	dial(f, &d, "mapped.test", port);
	cr_expect_eq(d.result.status, DIAL_DENIED);
	cr_expect_eq(dialer_stats(dialer).denied, 5u);
	d.forbidden = NULL;
	dial(f, &d, "mapped.test", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	cr_expect_str_eq(d.peer, "127.0.0.1");
	tear_down(f);
	net_close_all(fds, 2);
}

NET_TEST(dial, tells_failures_of_names_apart, rules)
{
	struct dialed d = { 0 };

	set_up(f);
	dial(f, &d, "nowhere.test", 80);
	cr_expect_eq(d.result.status, DIAL_NO_NAME);
	cr_expect_eq(d.result.dns, RESOLVE_NXDOMAIN);
	dial(f, &d, "127.1", 80);
	cr_expect_eq(d.result.status, DIAL_NO_NAME);
	cr_expect_eq(d.result.dns, RESOLVE_BAD_NAME);
	dial(f, &d, "servfail.test", 80);
	cr_expect_eq(d.result.status, DIAL_DNS_FAILED);
	dial(f, &d, "drop.test", 80);
	cr_expect_eq(d.result.status, DIAL_DNS_TIMEOUT);
	cr_expect_eq(dialer_stats(dialer).failed, 4u);
	tear_down(f);
}

NET_TEST(dial, tries_a_bounded_number_of_addresses, rules)
{
	struct dialed d = { 0 };
	uint16_t port = 0;

	close(net_listener("127.0.0.1", &port, 1));
	set_up(f);
	dial(f, &d, "many.test", port);
	cr_expect_eq(d.result.status, DIAL_FAILED);
	cr_expect_eq(d.result.err, IO_EREFUSED);
	cr_expect_eq(d.result.attempts, (unsigned)DIAL_ADDRS_MAX);
	tear_down(f);
}

NET_TEST(dial, holds_a_bounded_number_of_sockets, rules)
{
	/* 127.0.1.x are all swallowed by one listener on every address. */
	struct dialed d = { 0 };
	uint16_t port = 0;
	int hole[NET_HOLE_FDS], before;

	net_black_hole("0.0.0.0", &port, hole);
	f->conf.outbound.happy_eyeballs_ms = 10;
	f->conf.resolver.prefer = CONF_PREFER_IPV4_ONLY;
	set_up(f);
	before = net_open_fds();
	start(&d, "many.test", port);
	net_pass(f, 400);
	cr_expect(!d.done);
	cr_expect_eq(dialer_stats(dialer).attempts, (uint64_t)DIAL_ATTEMPTS_MAX);
	dial_cancel(d.dial);
	net_pass(f, 20);
	cr_expect_eq(d.calls, 0u);
	cr_expect_eq(net_open_fds(), before);
	tear_down(f);
	net_close_all(hole, NET_HOLE_FDS);
}

NET_TEST(dial, cancel_is_silent_at_any_moment, rules)
{
	struct dialed d[4] = { 0 };
	uint16_t port = 0;
	int fd = net_listener("127.0.0.1", &port, 64);

	set_up(f);
	for (unsigned turns = 0; turns < 12; turns++) {
		start(&d[0], "both.test", port);
		start(&d[1], "127.0.0.1", port);
		start(&d[2], "drop.test", port);
		start(&d[3], "127.1", port);
		for (unsigned i = 0; i < turns; i++) {
			io_loop_turn(f->loop, false);
			usleep(200);
		}
		for (int i = 0; i < 4; i++) {
			if (!d[i].done) {
				dial_cancel(d[i].dial);
				d[i].calls = 1000;
			} else if (d[i].result.status == DIAL_OK) {
				stream_close_free(d[i].result.stream);
			}
		}
		net_pass(f, 5);
		for (int i = 0; i < 4; i++)
			cr_expect(d[i].calls == 1 || d[i].calls == 1000);
		cr_expect(dialer_idle(dialer));
	}
	cr_expect_gt(dialer_stats(dialer).cancelled, 0u);
	tear_down(f);
	close(fd);
}

NET_TEST(dial, out_of_descriptors_is_told_as_such, rules)
{
	struct dialed d = { 0 };
	struct rlimit old, none;
	uint16_t port = 0;
	int fd = net_listener("127.0.0.1", &port, 64), next;

	set_up(f);
	dial(f, &d, "both.test", port);		/* into the cache */
	net_pass(f, 5);
	next = dup(fd);
	close(next);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = (rlim_t)next;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	dial(f, &d, "both.test", port);
	cr_expect_eq(d.result.status, DIAL_NO_RESOURCES);
	cr_expect_eq(d.result.syserr, EMFILE);
	dial(f, &d, "127.0.0.1", port);
	cr_expect_eq(d.result.status, DIAL_NO_RESOURCES);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	dial(f, &d, "127.0.0.1", port);
	cr_expect_eq(d.result.status, DIAL_OK);
	tear_down(f);
	close(fd);
}

NET_TEST(dial, uses_the_source_address_of_the_family, rules)
{
	struct dialed d = { 0 };
	int fds[2];
	uint16_t port = net_listeners(fds);
	char text[ADDR_TEXT_MAX];

	cr_assert(addr_parse_ip(span_str("127.0.0.5"), 0, &f->conf.outbound.bind_ipv4));
	set_up(f);
	dial(f, &d, "127.0.0.1", port);
	cr_expect_str_eq(addr_format_ip(&d.result.local, text), "127.0.0.5");
	dial(f, &d, "::1", port);
	cr_expect_str_eq(addr_format_ip(&d.result.local, text), "::1");
	/* An address that is not ours. */
	cr_assert(addr_parse_ip(span_str("192.0.2.1"), 0, &f->conf.outbound.bind_ipv4));
	dial(f, &d, "127.0.0.1", port);
	cr_expect_eq(d.result.status, DIAL_FAILED);
	cr_expect_eq(d.result.err, IO_EADDRNOTAVAIL);
	tear_down(f);
	net_close_all(fds, 2);
}

NET_TEST(dial, many_at_once_leave_nothing_behind, rules)
{
	enum { DIALS = 200 };
	static struct dialed d[DIALS];
	int fds[2];
	uint16_t port = net_listeners(fds);

	set_up(f);
	for (int i = 0; i < DIALS; i++)
		start(&d[i], i % 2 ? "both.test" : "v4.test", port);
	for (int i = 0; i < DIALS; i++) {
		net_until(f, &d[i].done, 8000);
		cr_assert_eq(d[i].result.status, DIAL_OK, "%s", io_strerror(d[i].result.err));
		stream_close_reset_free(d[i].result.stream);
	}
	cr_expect_eq(dns_server_asked(f->dns), 4u);
	tear_down(f);
	net_close_all(fds, 2);
}

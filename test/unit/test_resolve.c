/* SPDX-License-Identifier: ISC */
#include "test_resolve_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seen {
	bool			 done;
	unsigned		 calls;
	enum resolve_status	 status;
	unsigned		 count;
	uint32_t		 ttl_s;
	char			 first[ADDR_TEXT_MAX];
	struct resolve_query	*query;
};

static void
on_seen(void *owner, const struct resolve_result *result)
{
	struct seen *s = owner;

	s->done = true;
	s->calls++;
	s->status = result->status;
	s->count = result->count;
	s->ttl_s = result->ttl_s;
	s->first[0] = '\0';
	if (result->count > 0)
		addr_format_ip(&result->addrs[0], s->first);
}

static void
start(struct net_fixture *f, struct seen *s, const char *name, int family)
{
	memset(s, 0, sizeof(*s));
	s->query = resolve_start(f->resolver, span_str(name), family, on_seen, s);
	cr_assert_not_null(s->query);
	cr_assert(!s->done, "called back inside resolve_start");
}

static struct seen
ask(struct net_fixture *f, const char *name, int family)
{
	struct seen s;

	start(f, &s, name, family);
	net_until(f, &s.done, 5000);
	cr_assert_eq(s.calls, 1u);
	return s;
}

static struct dns_rule rules[] = {
	{ .name = "v4.test", .type = DNS_A, .ttl_s = 60, .addrs = { "192.0.2.7", "192.0.2.8" } },
	{ .name = "v6.test", .type = DNS_AAAA, .ttl_s = 60, .addrs = { "2001:db8::7" } },
	{ .name = "short.test", .type = DNS_A, .ttl_s = 1 },
	{ .name = "zero.test", .type = DNS_A, .ttl_s = 0, .delay_ms = 50 },
	{ .name = "long.test", .type = DNS_A, .ttl_s = 86400 },
	{ .name = "topbit.test", .type = DNS_A, .ttl_s = 0x80000001 },
	{ .name = "nx.test", .type = DNS_A, .action = DNS_NXDOMAIN },
	{ .name = "servfail.test", .type = DNS_A, .action = DNS_SERVFAIL },
	{ .name = "refused.test", .type = DNS_A, .action = DNS_REFUSED },
	{ .name = "drop.test", .type = DNS_A, .action = DNS_DROP },
	{ .name = "garbage.test", .type = DNS_A, .action = DNS_GARBAGE },
	{ .name = "slow.test", .type = DNS_A, .ttl_s = 60, .delay_ms = 150 },
	{ .name = "cname.test", .type = DNS_A, .ttl_s = 300, .cname = "target.test",
	  .cname_ttl_s = 7, .addrs = { "192.0.2.9" } },
	{ .name = "dangling.test", .type = DNS_A, .cname = "nowhere.test", .cname_ttl_s = 7 },
	{ .name = "big.test", .type = DNS_A, .action = DNS_TRUNCATE, .ttl_s = 60, .addrs = {
	  "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6",
	  "192.0.2.7", "192.0.2.8", "192.0.2.9", "192.0.2.10", "192.0.2.11", "192.0.2.12",
	  "192.0.2.13", "192.0.2.14", "192.0.2.15", "192.0.2.16", "192.0.2.17", "192.0.2.18" } },
	{ .name = "*.many.test", .type = DNS_A, .ttl_s = 60 },
	{ .name = "in-hosts.test", .type = DNS_A, .ttl_s = 60, .addrs = { "192.0.2.99" } },
	{ .name = "in-hosts.test", .type = DNS_AAAA, .ttl_s = 60 },
	{ .name = NULL }
};

NET_TEST(resolve, gives_addresses_and_ttl, rules)
{
	struct seen s;

	net_resolver(f, "");
	s = ask(f, "v4.test", AF_INET);
	cr_expect_eq(s.status, RESOLVE_OK);
	cr_expect_eq(s.count, 2u);
	cr_expect_str_eq(s.first, "192.0.2.7");
	cr_expect(s.ttl_s == 60 || s.ttl_s == 59);
	s = ask(f, "V6.Test.", AF_INET6);
	cr_expect_eq(s.status, RESOLVE_OK);
	cr_expect_str_eq(s.first, "2001:db8::7");
	/* The same name in another spelling is the same entry. */
	s = ask(f, "v6.TEST", AF_INET6);
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	cr_expect_eq(resolver_stats(f->resolver).hits, 1u);
}

NET_TEST(resolve, obeys_ttl, rules)
{
	net_resolver(f, "");
	ask(f, "short.test", AF_INET);
	ask(f, "short.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 1u);
	net_pass(f, 1100);
	ask(f, "short.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	cr_expect_eq(resolver_stats(f->resolver).entries, 1u);
}

NET_TEST(resolve, does_not_keep_ttl_zero_but_shares_the_question, rules)
{
	struct seen s[50];

	net_resolver(f, "");
	for (int i = 0; i < 50; i++)
		start(f, &s[i], "zero.test", AF_INET);
	for (int i = 0; i < 50; i++)
		net_until(f, &s[i].done, 5000);
	cr_expect_eq(dns_server_asked(f->dns), 1u);
	cr_expect_eq(resolver_stats(f->resolver).shared, 49u);
	cr_expect_eq(resolver_stats(f->resolver).entries, 0u);
	ask(f, "zero.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	cr_expect_eq(ask(f, "topbit.test", AF_INET).ttl_s, 0u);
}

NET_TEST(resolve, clamps_ttl, rules)
{
	f->conf.resolver.min_ttl_s = 30;
	f->conf.resolver.max_ttl_s = 40;
	net_resolver(f, "");
	cr_expect_geq(ask(f, "zero.test", AF_INET).ttl_s, 29u);
	ask(f, "zero.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 1u);
	cr_expect_leq(ask(f, "long.test", AF_INET).ttl_s, 40u);
}

NET_TEST(resolve, caches_negative_answers, rules)
{
	f->conf.resolver.negative_ttl_s = 1;
	net_resolver(f, "");
	cr_expect_eq(ask(f, "nx.test", AF_INET).status, RESOLVE_NXDOMAIN);
	cr_expect_eq(ask(f, "v4.test", AF_INET6).status, RESOLVE_NODATA);
	cr_expect_eq(ask(f, "dangling.test", AF_INET).status, RESOLVE_NODATA);
	unsigned asked = dns_server_asked(f->dns);
	cr_expect_eq(ask(f, "nx.test", AF_INET).status, RESOLVE_NXDOMAIN);
	cr_expect_eq(ask(f, "v4.test", AF_INET6).status, RESOLVE_NODATA);
	cr_expect_eq(dns_server_asked(f->dns), asked);
	cr_expect_eq(resolver_stats(f->resolver).negative_hits, 2u);
	net_pass(f, 1100);
	ask(f, "nx.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), asked + 1);
}

NET_TEST(resolve, negative_ttl_of_zero_keeps_nothing, rules)
{
	f->conf.resolver.negative_ttl_s = 0;
	net_resolver(f, "");
	ask(f, "nx.test", AF_INET);
	ask(f, "nx.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	cr_expect_eq(resolver_stats(f->resolver).entries, 0u);
}

NET_TEST(resolve, goes_to_tcp_when_truncated, rules)
{
	struct seen s;

	net_resolver(f, "");
	s = ask(f, "big.test", AF_INET);
	cr_expect_eq(s.status, RESOLVE_OK);
	cr_expect_eq(s.count, (unsigned)RESOLVE_ADDRS_MAX);
	cr_expect_eq(dns_server_asked_tcp(f->dns), 1u);
}

NET_TEST(resolve, times_out, rules)
{
	uint64_t began = net_ms();

	f->conf.resolver.timeout_ms = 100;
	net_resolver(f, "");
	cr_expect_eq(ask(f, "drop.test", AF_INET).status, RESOLVE_TIMEOUT);
	cr_expect_geq(net_ms() - began, 290u);	/* 100 and 200 */
	cr_expect_leq(net_ms() - began, 2000u);
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	cr_expect_eq(resolver_stats(f->resolver).timeouts, 1u);
	/* Remembered for a second, not for negative_ttl_s. */
	ask(f, "drop.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 2u);
	net_pass(f, 1100);
	ask(f, "drop.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), 4u);
	cr_expect_eq(resolver_stats(f->resolver).pending, 0u);
}

NET_TEST(resolve, tells_failures_apart, rules)
{
	f->conf.resolver.timeout_ms = 100;
	net_resolver(f, "");
	cr_expect_eq(ask(f, "servfail.test", AF_INET).status, RESOLVE_SERVFAIL);
	cr_expect_eq(ask(f, "refused.test", AF_INET).status, RESOLVE_REFUSED);
	cr_expect_eq(ask(f, "garbage.test", AF_INET).status, RESOLVE_SERVFAIL);
	cr_expect_eq(resolver_stats(f->resolver).failures, 3u);
}

NET_TEST(resolve, survives_a_dead_server, rules)
{
	struct addr servers[2];

	/* Nobody listens on the discard port of 127.0.0.9. */
	cr_assert(addr_parse_ip(span_str("127.0.0.9"), 9, &servers[0]));
	servers[1] = f->server;
	f->conf.resolver.servers = servers;
	f->conf.resolver.timeout_ms = 200;
	net_resolver(f, "");
	cr_expect_eq(ask(f, "v4.test", AF_INET).status, RESOLVE_REFUSED);
	f->conf.resolver.server_count = 2;
	cr_assert_eq(resolver_set_conf(f->resolver, &f->conf.resolver), 0);
	cr_expect_eq(ask(f, "slow.test", AF_INET).status, RESOLVE_OK);
}

NET_TEST(resolve, takes_the_smallest_ttl_of_a_cname_chain, rules)
{
	struct seen s;

	net_resolver(f, "");
	s = ask(f, "cname.test", AF_INET);
	cr_expect_eq(s.status, RESOLVE_OK);
	cr_expect_str_eq(s.first, "192.0.2.9");
	cr_expect_leq(s.ttl_s, 7u);
	cr_expect_geq(s.ttl_s, 6u);
}

NET_TEST(resolve, cancelled_queries_stay_silent_and_fill_the_cache, rules)
{
	struct seen gone, stays, told;

	net_resolver(f, "");
	start(f, &gone, "slow.test", AF_INET);
	start(f, &stays, "slow.test", AF_INET);
	resolve_cancel(gone.query);
	net_until(f, &stays.done, 3000);
	cr_expect_eq(gone.calls, 0u);

	start(f, &gone, "slow.test", AF_INET6);
	resolve_cancel(gone.query);
	net_pass(f, 100);
	cr_expect_eq(gone.calls, 0u);
	cr_expect_eq(ask(f, "slow.test", AF_INET6).status, RESOLVE_NODATA);
	cr_expect_eq(dns_server_asked(f->dns), 2u);

	/* The answer is known and the callback due. */
	start(f, &told, "slow.test", AF_INET);
	resolve_cancel(told.query);
	start(f, &told, "127.0.0.1", AF_INET);
	resolve_cancel(told.query);
	net_pass(f, 20);
	cr_expect_eq(told.calls, 0u);
}

NET_TEST(resolve, many_names_at_once, rules)
{
	/* A server's socket buffer holds some 270 questions; what is beyond is lost and asked again. */
	enum { BURST = 150, NAMES = 900 };
	static struct seen s[NAMES];
	char name[32];

	net_resolver(f, "");
	for (int from = 0; from < NAMES; from += BURST) {
		for (int i = from; i < from + BURST; i++) {
			snprintf(name, sizeof(name), "n%d.many.test", i);
			start(f, &s[i], name, AF_INET);
		}
		for (int i = from; i < from + BURST; i++) {
			net_until(f, &s[i].done, 20000);
			cr_assert_eq(s[i].status, RESOLVE_OK, "%d: %s", i,
			    resolve_strerror(s[i].status));
		}
	}
	cr_expect_eq(resolver_stats(f->resolver).entries, (uint64_t)NAMES);
}

NET_TEST(resolve, cache_is_bounded_and_drops_the_oldest, rules)
{
	char name[32];
	unsigned asked;

	f->conf.resolver.cache_entries = 10;
	net_resolver(f, "");
	ask(f, "v4.test", AF_INET);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "n%d.many.test", i);
		ask(f, name, AF_INET);
		cr_assert_leq(resolver_stats(f->resolver).entries, 10u);
		ask(f, "v4.test", AF_INET);	/* stays young */
	}
	asked = dns_server_asked(f->dns);
	cr_expect_eq(asked, 101u);
	ask(f, "n99.many.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), asked);
	ask(f, "n0.many.test", AF_INET);
	cr_expect_eq(dns_server_asked(f->dns), asked + 1);

	f->conf.resolver.cache_entries = 0;
	cr_assert_eq(resolver_set_conf(f->resolver, &f->conf.resolver), 0);
	cr_expect_eq(resolver_stats(f->resolver).entries, 0u);
	ask(f, "v4.test", AF_INET);
	cr_expect_eq(resolver_stats(f->resolver).entries, 0u);
}

NET_TEST(resolve, literals_and_localhost_never_reach_dns, rules)
{
	static const struct { const char *name; int family; const char *want; } cases[] = {
		{ "127.0.0.1", AF_INET, "127.0.0.1" },
		{ "127.0.0.1", AF_INET6, NULL },
		{ "::1", AF_INET6, "::1" },
		{ "[::1]", AF_INET6, "::1" },
		{ "::1", AF_INET, NULL },
		{ "::ffff:192.0.2.1", AF_INET, "192.0.2.1" },
		{ "localhost", AF_INET, "127.0.0.1" },
		{ "LocalHost.", AF_INET6, "::1" },
		{ "a.b.localhost", AF_INET, "127.0.0.1" },
		{ "a.localhost", AF_INET6, "::1" },
	};

	net_resolver(f, "");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seen s = ask(f, cases[i].name, cases[i].family);

		cr_expect_eq(s.status, cases[i].want != NULL ? RESOLVE_OK : RESOLVE_NODATA, "%s",
		    cases[i].name);
		if (cases[i].want != NULL)
			cr_expect_str_eq(s.first, cases[i].want);
	}
	cr_expect_eq(dns_server_asked(f->dns), 0u);
	cr_expect_eq(ask(f, "notlocalhost", AF_INET).status, RESOLVE_NXDOMAIN);
	cr_expect_eq(dns_server_asked(f->dns), 1u);
}

NET_TEST(resolve, refuses_what_is_no_name, rules)
{
	static const char *const bad[] = {
		"127.1", "0x7f.1", "2130706433", "017700000001", "1.2.3", "0x7f000001", "0x",
		"1.2.3.4.5", "127.0.0.1.", "example.1", "example.0x1f", "256.1.1.1",
		"", ".", "a..b", ".a", "a b", "a/b", "a:b", "fe80::1%lo", "a\tb", "caf\xc3\xa9",
		"[v4.test]", "a@b", "*.test",
	};
	char name[300];
	struct seen s;

	net_resolver(f, "");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		/* "127.0.0.1." has its dot cut by target.h before; here it is neither. */
		cr_expect_eq(ask(f, bad[i], AF_INET).status, RESOLVE_BAD_NAME, "\"%s\"", bad[i]);
	memset(name, 'a', sizeof(name));
	name[64] = '\0';
	cr_expect_eq(ask(f, name, AF_INET).status, RESOLVE_BAD_NAME);
	memset(name, 'a', sizeof(name));
	for (int i = 50; i < 300; i += 50)
		name[i] = '.';
	name[254] = '\0';
	cr_expect_eq(ask(f, name, AF_INET).status, RESOLVE_BAD_NAME);
	memset(&s, 0, sizeof(s));
	cr_assert_not_null(resolve_start(f->resolver, span_of("v4.test\0x", 9), AF_INET, on_seen,
	    &s));
	net_until(f, &s.done, 1000);
	cr_expect_eq(s.status, RESOLVE_BAD_NAME);
	cr_expect_eq(dns_server_asked(f->dns), 0u);
	/* The longest that fits. */
	name[253] = '\0';
	cr_expect_eq(ask(f, name, AF_INET).status, RESOLVE_NXDOMAIN);
	cr_expect_eq(ask(f, "_srv.v4-x.1a.test", AF_INET).status, RESOLVE_NXDOMAIN);
}

static void
write_file(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	cr_assert_not_null(out);
	fputs(text, out);
	fclose(out);
}

NET_TEST(resolve, reads_the_hosts_file_first_and_again_when_it_changed, rules)
{
	char path[] = "/tmp/ringway-hosts-XXXXXX";
	int fd = mkstemp(path);
	struct seen s;

	cr_assert_geq(fd, 0);
	close(fd);
	write_file(path, "# comment\n192.0.2.50\tIn-Hosts.test  alias.test # x\n"
	    "192.0.2.51 in-hosts.test\nnot-an-address foo.test\n2001:db8::5 six.test");
	net_resolver(f, path);
	s = ask(f, "in-hosts.TEST", AF_INET);
	cr_expect_str_eq(s.first, "192.0.2.50");
	cr_expect_eq(s.count, 2u);
	cr_expect_eq(ask(f, "alias.test", AF_INET).count, 1u);
	cr_expect_str_eq(ask(f, "six.test", AF_INET6).first, "2001:db8::5");
	/* Known to the file, so DNS is not asked for the other family. */
	cr_expect_eq(ask(f, "in-hosts.test", AF_INET6).status, RESOLVE_NODATA);
	cr_expect_eq(dns_server_asked(f->dns), 0u);
	cr_expect_eq(ask(f, "foo.test", AF_INET).status, RESOLVE_NXDOMAIN);

	write_file(path, "192.0.2.60 other.test\n");
	net_pass(f, 1100);
	cr_expect_str_eq(ask(f, "other.test", AF_INET).first, "192.0.2.60");
	cr_expect_str_eq(ask(f, "in-hosts.test", AF_INET).first, "192.0.2.99");
	unlink(path);
	net_pass(f, 1100);
	cr_expect_eq(ask(f, "other.test", AF_INET).status, RESOLVE_NXDOMAIN);
}

NET_TEST(resolve, close_ends_what_is_pending, rules)
{
	struct seen slow[2], drop;

	net_resolver(f, "");
	start(f, &slow[0], "slow.test", AF_INET);
	start(f, &slow[1], "slow.test", AF_INET);
	net_pass(f, 10);
	/* One on a channel that was replaced. */
	cr_assert_eq(resolver_set_conf(f->resolver, &f->conf.resolver), 0);
	start(f, &drop, "drop.test", AF_INET);
	net_pass(f, 10);
	net_close_resolver(f);
	cr_expect_eq(slow[0].status, RESOLVE_CLOSED);
	cr_expect_eq(slow[1].status, RESOLVE_CLOSED);
	cr_expect_eq(drop.status, RESOLVE_CLOSED);
	cr_expect_eq(drop.calls, 1u);
}

NET_TEST(resolve, new_settings_leave_questions_under_way_alone, rules)
{
	static struct dns_rule others[] = {
		{ .name = "v4.test", .type = DNS_A, .ttl_s = 60, .addrs = { "198.51.100.1" } },
		{ .name = NULL }
	};
	struct dns_server *second;
	struct addr server;
	struct seen slow;

	net_resolver(f, "");
	start(f, &slow, "slow.test", AF_INET);
	net_pass(f, 10);
	second = dns_server_start(others);
	cr_assert(addr_parse_ip(span_str("127.0.0.1"), dns_server_port(second), &server));
	f->conf.resolver.servers = &server;
	cr_assert_eq(resolver_set_conf(f->resolver, &f->conf.resolver), 0);
	cr_expect_str_eq(ask(f, "v4.test", AF_INET).first, "198.51.100.1");
	cr_expect(!slow.done);
	net_until(f, &slow.done, 2000);
	cr_expect_eq(slow.status, RESOLVE_OK);
	dns_server_stop(second);
}

/* A callback that does everything that owners do from callbacks. */
struct busy {
	struct net_fixture	*f;
	struct seen		 other, again;
	bool			 closed;
};

static void
on_closed(void *owner)
{
	*(bool *)owner = true;
}

static void
on_busy(void *owner, const struct resolve_result *result)
{
	struct busy *b = owner;

	(void)result;
	resolve_cancel(b->other.query);
	start(b->f, &b->again, "v4.test", AF_INET);
	resolver_close(b->f->resolver, on_closed, &b->closed);
}

NET_TEST(resolve, owners_may_start_cancel_and_close_from_a_callback, rules)
{
	struct busy b = { .f = f };

	net_resolver(f, "");
	ask(f, "v4.test", AF_INET);
	cr_assert_not_null(resolve_start(f->resolver, span_str("v4.test"), AF_INET, on_busy, &b));
	start(f, &b.other, "v4.test", AF_INET);
	net_until(f, &b.closed, 2000);
	cr_expect_eq(b.other.calls, 0u);
	cr_expect_eq(b.again.calls, 1u);
	cr_expect_eq(b.again.status, RESOLVE_OK);
	f->resolver = NULL;
}

NET_TEST(resolve, an_idle_resolver_holds_neither_sockets_nor_timers, rules)
{
	uint64_t turns;

	net_resolver(f, "");
	ask(f, "v4.test", AF_INET);
	net_pass(f, 20);
	cr_expect_eq(net_open_fds(), f->fds);
	cr_expect_eq(io_inflight(f->loop), 0u);
	turns = io_loop_stats(f->loop).turns;
	net_pass(f, 300);
	cr_expect_leq(io_loop_stats(f->loop).turns - turns, 4u);
}

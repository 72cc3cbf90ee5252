/* SPDX-License-Identifier: ISC */
/*
 * test_resolve_server: what the tests of src/net share: a DNS server that
 * follows a script, on a thread and a loopback port of its own, and a loop with
 * a resolver that asks it.
 */
#ifndef RW_TEST_RESOLVE_SERVER_H
#define RW_TEST_RESOLVE_SERVER_H

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "io/io.h"
#include "net/resolve.h"

enum dns_action {
	DNS_ANSWER,
	DNS_NXDOMAIN,
	DNS_SERVFAIL,
	DNS_REFUSED,
	DNS_DROP,
	DNS_TRUNCATE,		/* TC by UDP, the whole answer by TCP */
	DNS_GARBAGE
};

enum { DNS_A = 1, DNS_CNAME = 5, DNS_AAAA = 28, DNS_RULE_ADDRS = 24 };

/* No rule for a name: NXDOMAIN.  A rule for another type only: no data. */
struct dns_rule {
	const char	*name;		/* "*.x.test": everything below x.test */
	int		 type;
	enum dns_action	 action;
	unsigned	 ttl_s;
	const char	*addrs[DNS_RULE_ADDRS];	/* NULL: one made up */
	const char	*cname;		/* comes first, with cname_ttl_s; the addresses are its */
	unsigned	 cname_ttl_s;
	unsigned	 delay_ms;
	atomic_uint	 asked;		/* how often, UDP and TCP */
};

struct dns_server;

/* `rules` ends with a NULL name and may be changed between questions. */
struct dns_server *dns_server_start(struct dns_rule *rules);
void		 dns_server_stop(struct dns_server *);
uint16_t	 dns_server_port(const struct dns_server *);
unsigned	 dns_server_asked(const struct dns_server *);
unsigned	 dns_server_asked_tcp(const struct dns_server *);

struct net_fixture {
	struct io_choice	 choice;
	struct io_loop		*loop;
	struct dns_server	*dns;
	struct conf		 conf;
	struct addr		 server;
	struct resolver		*resolver;
	int			 fds;		/* open before the resolver was made */
};

void	net_setup(struct net_fixture *, const char *backend, struct dns_rule *rules);
/* After conf was adjusted. */
void	net_resolver(struct net_fixture *, const char *hosts_path);
void	net_close_resolver(struct net_fixture *);
void	net_teardown(struct net_fixture *);
/* Turns the loop until *flag, or fails the test. */
void	net_until(struct net_fixture *, const bool *flag, unsigned timeout_ms);
/* Turns the loop for so long. */
void	net_pass(struct net_fixture *, unsigned ms);
uint64_t net_ms(void);
int	net_open_fds(void);
/* A port that may well be free, another each time. */
uint16_t net_pick_port(void);

/* A listener that nobody accepts on; *port 0 = any.  -1 when the address is taken. */
int	net_listener(const char *ip, uint16_t *port, int backlog);
/* Both families on one port; fds[0] is IPv4. */
uint16_t net_listeners(int fds[2]);

/*
 * An address that swallows connections: a listener whose backlog is full drops
 * further SYNs.  fds[0] is the listener, the rest are what fills it.  False when
 * the address is taken.
 */
enum { NET_HOLE_FDS = 4 };
bool	net_black_hole(const char *ip, uint16_t *port, int fds[NET_HOLE_FDS]);
/* With a good listener on another address, same port; the listener. */
int	net_black_hole_beside(const char *hole_ip, const char *ip, uint16_t *port,
	    int fds[NET_HOLE_FDS]);
void	net_close_all(int *fds, int n);

/* One test for each Linux backend; skipped where the kernel refuses it. */
#define NET_TEST(suite, name, rules)						\
	static void suite##_##name(struct net_fixture *);			\
	static void suite##_##name##_on(const char *backend)			\
	{									\
		static struct net_fixture f;					\
		net_setup(&f, backend, rules);					\
		suite##_##name(&f);						\
		net_teardown(&f);						\
	}									\
	Test(suite, name##_on_epoll) { suite##_##name##_on("epoll"); }		\
	Test(suite, name##_on_io_uring) { suite##_##name##_on("io_uring"); }	\
	static void suite##_##name(struct net_fixture *f)

#endif

/* SPDX-License-Identifier: ISC */
/* C16: connect ends with 0 or an error; refused, unreachable, timed out are distinct. */
#include <errno.h>
#include <stdlib.h>
#ifdef __linux__
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>
#endif

#include "suite.h"

static int
connect_result(const struct n_addr *to, int *syserr)
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op o = { 0 };

	t_adopt(l, &a, n_tcp(to->ss.ss_family));
	t_connect(&o, &a, n_sa(to), to->len);
	TURN_UNTIL(l, !o.armed);
	if (syserr != NULL)
		*syserr = o.syserr;
	CHECK_EQ(o.calls, 1);
	t_close(&a);
	t_loop_end(l);
	return o.res;
}

CASE(connect_succeeds_and_the_socket_carries_data, "C16")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op c = { 0 }, r = { 0 };
	struct n_addr at;
	io_fd lfd = n_listen("127.0.0.1", 4, &at), peer;
	char buf[8];

	t_adopt(l, &a, n_tcp(AF_INET));
	t_connect(&c, &a, n_sa(&at), at.len);
	TURN_UNTIL(l, !c.armed);
	CHECK_EQ(c.res, 0);
	CHECK((peer = n_try_accept(lfd)) != IO_FD_NONE);
	t_recv(&r, &a, buf, sizeof buf);
	n_send(peer, "banner", 6);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 6);
	t_close(&a);
	t_loop_end(l);
	n_close(peer);
	n_close(lfd);
}

CASE(connect_to_a_closed_port_is_refused, "C16 C10")
{
	struct n_addr to;
	int syserr;

	n_closed_port(&to);
	CHECK_EQ(connect_result(&to, &syserr), IO_EREFUSED);
	CHECK(syserr != 0);
}

/* On 127.0.0.1 the answer comes within connect(2); refused ones must not leak or linger. */
CASE(many_refused_connects_each_tell_once, "C16 C8")
{
	enum { N = 200 };
	struct io_loop *l = t_loop();
	static struct t_sock s[N];
	static struct t_op o[N];
	struct n_addr to;
	unsigned done = 0;

	n_closed_port(&to);
	for (int i = 0; i < N; i++) {
		t_adopt(l, &s[i], n_tcp(AF_INET));
		t_connect(&o[i], &s[i], n_sa(&to), to.len);
	}
	while (done < N) {
		t_turn(l, true);
		done = 0;
		for (int i = 0; i < N; i++)
			done += o[i].finals;
	}
	for (int i = 0; i < N; i++) {
		CHECK_EQ(o[i].res, IO_EREFUSED);
		t_close(&s[i]);
	}
	t_loop_end(l);
}

#ifdef __linux__
/* A network of our own in which nothing is reachable unless we say so. */
static void
own_network(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd;

	if (unshare(CLONE_NEWNET) != 0)
		SKIP("no network namespace permitted");
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	ifr.ifr_flags = IFF_UP;
	CHECK_EQ(ioctl(fd, SIOCSIFFLAGS, &ifr), 0);
	close(fd);
}

CASE_ALONE(connect_without_a_route_is_network_unreachable, "C16")
{
	struct n_addr to;

	own_network();
	n_addr4(&to, "192.0.2.1", 80);
	CHECK_EQ(connect_result(&to, NULL), IO_ENETUNREACH);
	if (n_addr6(&to, "2001:db8::1", 80))
		CHECK_EQ(connect_result(&to, NULL), IO_ENETUNREACH);
}

CASE_ALONE(connect_to_an_unreachable_host_is_host_unreachable, "C16")
{
	struct n_addr to;

	own_network();
	if (system("ip route add unreachable 198.51.100.0/24 2>/dev/null") != 0)
		SKIP("no ip(8) to make an unreachable route");
	n_addr4(&to, "198.51.100.1", 80);
	CHECK_EQ(connect_result(&to, NULL), IO_EHOSTUNREACH);
}

CASE_ALONE(connect_that_a_local_rule_forbids_is_access_denied, "C16 C10")
{
	struct n_addr to;

	own_network();
	if (system("ip route add prohibit 203.0.113.0/24 2>/dev/null") != 0)
		SKIP("no ip(8) to make a prohibited route");
	n_addr4(&to, "203.0.113.1", 80);
	CHECK_EQ(connect_result(&to, NULL), IO_EACCES);
}

CASE_ALONE(connect_that_nobody_answers_times_out, "C16")
{
	struct io_loop *l;
	struct t_sock a;
	struct t_op o = { 0 };
	struct n_addr at;
	int once = 1;
	io_fd fd;

	own_network();
	/* A listener whose queue (of one) is full drops what comes. */
	n_listen("127.0.0.1", 0, &at);
	n_connect(&at);
	l = t_loop();
	fd = n_tcp(AF_INET);
	if (setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &once, sizeof once) != 0)
		SKIP("no TCP_SYNCNT");
	t_adopt(l, &a, fd);
	t_connect(&o, &a, n_sa(&at), at.len);
	TURN_UNTIL(l, !o.armed);
	CHECK_EQ(o.res, IO_ETIMEDOUT);
	CHECK_EQ(o.syserr, ETIMEDOUT);
	t_close(&a);
	t_loop_end(l);
}
#else
CASE_NOT_HERE(connect_without_a_route_is_network_unreachable, "C16", "needs a network namespace")
CASE_NOT_HERE(connect_to_an_unreachable_host_is_host_unreachable, "C16", "needs a network namespace")
CASE_NOT_HERE(connect_that_a_local_rule_forbids_is_access_denied, "C16 C10",
    "needs a network namespace")
CASE_NOT_HERE(connect_that_nobody_answers_times_out, "C16", "needs a network namespace")
#endif

/* A connect under way: armed, silent, and ended by cancel and by close. */
static void
connect_under_way_ends(bool by_close)
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op o = { 0 };
	struct n_addr at;
	io_fd lfd = n_listen("127.0.0.1", 0, &at), first = n_connect(&at);

	t_adopt(l, &a, n_tcp(AF_INET));
	t_connect(&o, &a, n_sa(&at), at.len);
	t_turn_for_ms(l, 20);
	if (!o.armed)
		SKIP("this kernel's listen queue does not fill up");
	if (by_close)
		t_close(&a);
	else
		io_cancel(&o.op);
	TURN_UNTIL(l, !o.armed);
	CHECK_EQ(o.res, IO_ECANCELED);
	CHECK_EQ(a.closed, 0);
	if (!by_close)
		t_close(&a);
	t_loop_end(l);
	CHECK_EQ(a.closed, 1);
	n_close(first);
	n_close(lfd);
}

CASE(connect_under_way_can_be_cancelled, "C16 C17") { connect_under_way_ends(false); }
CASE(connect_under_way_ends_when_its_socket_is_closed, "C16 C20") { connect_under_way_ends(true); }

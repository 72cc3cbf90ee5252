/* SPDX-License-Identifier: ISC */
/* The place of the DNS filter: who is asked, and what comes of each verdict. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/udpsock.h"
#include "policy/snapshot.h"
#include "relay/udp.h"

enum { HEADER = 10, QUIET_MS = 100, PATIENCE_MS = 3000, BLOCKS = 64 };

struct fixture {
	struct io_choice	 choice;
	struct io_loop		*loop;
	struct counters		 count;
	struct env		 env;
	struct udp_hook		 hook;
	struct udp_assoc	*assoc;
	bool			 done;
	int			 client, origin[2];	/* the hook is asked for the first */
	struct sockaddr_in	 at[2], relay;
	enum udp_hook_verdict	 verdict;
	unsigned		 asked;
};

static enum udp_hook_verdict
query(void *owner, struct span payload, const struct addr *to, uint8_t *answer, size_t cap, size_t *len)
{
	struct fixture *f = owner;

	f->asked++;
	cr_expect_eq(addr_port(to), f->hook.port);
	cr_expect_eq(to->sa.sa_family, AF_INET, "an address of the association's socket is not the filter's business");
	cr_expect(payload.len == 5 && memcmp(payload.base, "query", 5) == 0);
	cr_assert_geq(cap, 512u);
	if (f->verdict == UDP_HOOK_ANSWER) {
		memcpy(answer, "blocked", 7);
		*len = 7;
	}
	return f->verdict;
}

static int
bound(struct sockaddr_in *at)
{
	socklen_t len = sizeof *at;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	cr_assert_geq(fd, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)at, sizeof *at), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)at, &len), 0);
	return fd;
}

static void
on_done(void *owner)
{
	((struct fixture *)owner)->done = true;
}

static void
set_up(struct fixture *f, const char *backend)
{
	struct io_config config = { .choice = &f->choice };
	struct conf_problems problems = { 0 };
	struct udp_params params = { .session_id = 1 };
	struct sockaddr_in client;
	struct addr peer;
	char text[SOCKOPT_TEXT_MAX];

	memset(f, 0, sizeof *f);
	if (io_choose(&f->choice, backend, -1) != 0)
		cr_skip_test("%s: %s", backend, f->choice.why);
	cr_assert_eq(io_loop_new(&f->loop, &config), 0);
	f->client = bound(&client);
	for (int i = 0; i < 2; i++)
		f->origin[i] = bound(&f->at[i]);
	f->hook = (struct udp_hook){ .port = ntohs(f->at[0].sin_port), .owner = f, .query = query };
	f->env = (struct env){ .loop = f->loop, .count = &f->count, .udp_hook = &f->hook };
	cr_assert_not_null(f->env.snapshot = snapshot_new(conf_new(), 1, &problems));
	conf_problems_free(&problems);
	f->env.conf = f->env.snapshot->conf;
	cr_assert_not_null(f->env.udpports = udpports_new((uint32_t)getpid()));
	cr_assert_eq(io_pool_new(&f->env.udp_pool, f->loop, ENV_UDP_BLOCK_BYTES, BLOCKS, 0), 0);
	cr_assert_eq(udp_worker_new(&f->env.udp, &f->env), 0);
	params.snapshot = f->env.snapshot;
	params.client = &peer;
	addr_from_sockaddr(&peer, (struct sockaddr *)&client, sizeof client);
	cr_assert_eq(udp_start(&f->assoc, &f->env, &params, on_done, f, text), 0, "%s", text);
	f->relay = client;
	f->relay.sin_port = htons(udp_port(f->assoc));
}

static void
tear_down(struct fixture *f)
{
	udp_abort(f->assoc);
	while (!f->done)
		cr_assert_geq(io_loop_turn(f->loop, true), 0);
	cr_expect_eq(io_pool_stats(f->env.udp_pool).lent, 0, "the hook's blocks are back");
	udp_worker_free(f->env.udp);
	io_pool_free(f->env.udp_pool);
	udpports_free(f->env.udpports);
	snapshot_drop(f->env.snapshot);
	io_loop_free(f->loop);
	close(f->client);
	for (int i = 0; i < 2; i++)
		close(f->origin[i]);
}

static void
ask(struct fixture *f, int origin)
{
	uint8_t d[HEADER + 5] = { 0, 0, 0, 1 };

	memcpy(d + 4, &f->at[origin].sin_addr, 4);
	memcpy(d + 8, &f->at[origin].sin_port, 2);
	memcpy(d + HEADER, "query", 5);
	cr_assert_eq(sendto(f->client, d, sizeof d, 0, (struct sockaddr *)&f->relay, sizeof f->relay), (ssize_t)sizeof d);
}

/* What comes at fd, while the loop turns; 0 = nothing. */
static size_t
arrives(struct fixture *f, int fd, uint8_t *buf, size_t cap, int within_ms)
{
	for (int ms = 0; ms < within_ms; ms++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		cr_assert_geq(io_loop_turn(f->loop, false), 0);
		if (poll(&p, 1, 1) == 1) {
			ssize_t n = recv(fd, buf, cap, 0);

			cr_assert_gt(n, 0);
			return (size_t)n;
		}
	}
	return 0;
}

static void
verdicts(const char *backend)
{
	struct fixture f;
	uint8_t b[100];

	set_up(&f, backend);
	f.verdict = UDP_HOOK_PASS;
	ask(&f, 0);
	cr_expect_eq(arrives(&f, f.origin[0], b, sizeof b, PATIENCE_MS), 5u);
	cr_expect_eq(f.asked, 1u);

	f.verdict = UDP_HOOK_DROP;
	ask(&f, 0);
	cr_expect_eq(arrives(&f, f.origin[0], b, sizeof b, QUIET_MS), 0u);
	cr_expect_eq(f.asked, 2u);
	cr_expect_eq(counters_get(&f.count, COUNT_UDP_DROP_FILTER), 1u);

	f.verdict = UDP_HOOK_ANSWER;
	ask(&f, 0);
	cr_assert_eq(arrives(&f, f.client, b, sizeof b, PATIENCE_MS), HEADER + 7u);
	cr_expect(memcmp(b, "\0\0\0\1", 4) == 0 && memcmp(b + 4, &f.at[0].sin_addr, 4) == 0 &&
	    memcmp(b + 8, &f.at[0].sin_port, 2) == 0, "as if the destination had sent it");
	cr_expect(memcmp(b + HEADER, "blocked", 7) == 0);
	cr_expect_eq(arrives(&f, f.origin[0], b, sizeof b, QUIET_MS), 0u);
	cr_expect_eq(f.asked, 3u);

	ask(&f, 1);
	cr_expect_eq(arrives(&f, f.origin[1], b, sizeof b, PATIENCE_MS), 5u, "another port");
	cr_expect_eq(f.asked, 3u, "is none of the filter's");
	cr_expect_eq(arrives(&f, f.client, b, sizeof b, QUIET_MS), 0u);
	cr_expect_eq(udp_datagrams(f.assoc, UDP_UP), 2u);
	cr_expect_eq(udp_datagrams(f.assoc, UDP_DOWN), 1u);
	tear_down(&f);
}

/* What the filter would have stopped must not slip by it when there is no block for an answer. */
Test(udp_hook, no_block_left)
{
	struct fixture f;
	struct io_buf taken[BLOCKS];
	unsigned n = 0;
	uint8_t b[100];

	/* io_uring may have taken its blocks beforehand; epoll takes the one that is left for the datagram. */
	set_up(&f, "epoll");
	while (n < BLOCKS && io_buf_get(f.env.udp_pool, 0, &taken[n]))
		n++;
	cr_assert_eq(n, (unsigned)BLOCKS);
	io_buf_put(f.env.udp_pool, &taken[--n]);
	ask(&f, 0);
	cr_expect_eq(arrives(&f, f.origin[0], b, sizeof b, QUIET_MS), 0u);
	cr_expect_eq(f.asked, 0u);
	cr_expect_eq(counters_get(&f.count, COUNT_UDP_DROP_FILTER), 1u);
	while (n > 0)
		io_buf_put(f.env.udp_pool, &taken[--n]);
	ask(&f, 0);
	cr_expect_eq(arrives(&f, f.origin[0], b, sizeof b, PATIENCE_MS), 5u, "and it goes on");
	tear_down(&f);
}

/* Each answer has a block of its own, and the question's is held for what goes on: room for one more than there are answers. */
static void
answers_among_others(const char *backend)
{
	enum { SEGMENT = HEADER + 5, SEGMENTS = 8 };
	struct fixture f;
	uint8_t d[SEGMENT * SEGMENTS] = { 0 }, b[100];
	union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(uint16_t))]; } control = { 0 };
	struct iovec iov = { d, sizeof d };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_name = &f.relay, .msg_namelen = sizeof f.relay,
		.msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	uint16_t segment = SEGMENT;

	if (udpsock_gso_segments() == 0)
		cr_skip_test("no UDP_SEGMENT in this kernel");
	set_up(&f, backend);
	f.verdict = UDP_HOOK_ANSWER;
	for (int i = 0; i < SEGMENTS; i++) {
		uint8_t *at = d + i * SEGMENT;

		at[3] = 1;
		memcpy(at + 4, &f.at[i == 0].sin_addr, 4);
		memcpy(at + 8, &f.at[i == 0].sin_port, 2);
		memcpy(at + HEADER, "query", 5);
	}
	c->cmsg_level = IPPROTO_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(sizeof segment);
	memcpy(CMSG_DATA(c), &segment, sizeof segment);
	ask(&f, 1);
	cr_assert_eq(sendmsg(f.client, &m, 0), (ssize_t)sizeof d);
	for (int i = 0; i < SEGMENTS - 1; i++)
		cr_assert_eq(arrives(&f, f.client, b, sizeof b, PATIENCE_MS), HEADER + 7u, "answer %d", i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(arrives(&f, f.origin[1], b, sizeof b, PATIENCE_MS), 5u);
	cr_expect_eq(f.asked, SEGMENTS - 1u);
	tear_down(&f);
}

Test(udp_hook, answers_among_others_epoll) { answers_among_others("epoll"); }
Test(udp_hook, answers_among_others_io_uring) { answers_among_others("io_uring"); }
Test(udp_hook, verdicts_epoll) { verdicts("epoll"); }
Test(udp_hook, verdicts_io_uring) { verdicts("io_uring"); }

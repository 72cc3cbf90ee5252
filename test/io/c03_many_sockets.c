/* SPDX-License-Identifier: ISC */
/* C3, C20: a loop with thousands of sockets: each is served, and all can end at once. */
#include "suite.h"

enum { N = 2000 };

struct member {
	struct t_sock	 s;
	struct t_op	 r, w;
	io_fd		 peer;
	uint32_t	 in, out;
};

static struct member m[N];

CASE(two_thousand_sockets_on_one_loop_are_all_served, "C3 C8 C20")
{
	struct io_loop *l = t_loop();
	unsigned done, closed;

	for (uint32_t i = 0; i < N; i++) {
		io_fd fd[2];

		n_pair(fd);
		t_adopt(l, &m[i].s, fd[0]);
		m[i].peer = fd[1];
		m[i].out = i;
		t_recv(&m[i].r, &m[i].s, &m[i].in, sizeof m[i].in);
	}
	t_turn_for_ms(l, 5);
	CHECK_EQ(io_inflight(l), N);
	for (unsigned round = 1; round <= 2; round++) {
		for (uint32_t i = 0; i < N; i++) {
			uint32_t tag = i ^ (round << 20);

			n_send(m[i].peer, &tag, sizeof tag);
			t_send(&m[i].w, &m[i].s, &m[i].out, sizeof m[i].out);
		}
		do {
			t_turn(l, true);
			done = 0;
			for (uint32_t i = 0; i < N; i++)
				done += m[i].r.finals == round && m[i].w.finals == round;
		} while (done < N);
		for (uint32_t i = 0; i < N; i++) {
			uint32_t back;

			CHECK_EQ(m[i].r.res, 4);
			CHECK_EQ(m[i].in, i ^ (round << 20));
			n_recv_all(m[i].peer, &back, sizeof back);
			CHECK_EQ(back, i);
			t_recv(&m[i].r, &m[i].s, &m[i].in, sizeof m[i].in);
		}
	}
	for (uint32_t i = 0; i < N; i++)
		t_close(&m[i].s);
	do {
		t_turn(l, true);
		closed = 0;
		for (uint32_t i = 0; i < N; i++)
			closed += m[i].s.closed;
	} while (closed < N);
	for (uint32_t i = 0; i < N; i++) {
		CHECK_EQ(m[i].r.res, IO_ECANCELED);
		CHECK(n_eof(m[i].peer));
		n_close(m[i].peer);
	}
	CHECK_EQ(io_inflight(l), 0);
	t_loop_end(l);
}

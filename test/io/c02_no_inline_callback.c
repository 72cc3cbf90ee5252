/* SPDX-License-Identifier: ISC */
/*
 * C2: no callback runs inside an io_ call.  The recorder of suite.c fails on
 * each callback outside a turn or inside another callback, so these cases start
 * every kind of op when its result is there already.
 */
#include "suite.h"

static const char hello[] = "hello";

CASE(ops_with_a_result_at_hand_call_back_later, "C2 C3")
{
	struct io_loop *l = t_loop();
	struct t_sock lst, s, refused, udp;
	struct t_op acc = { 0 }, recv = { 0 }, send = { 0 }, conn = { 0 }, dsend = { 0 };
	struct n_addr at, none, uat;
	struct io_dgram d = { 0 };
	char buf[16], dbuf[8] = "datagram";
	io_fd fd[2], client;

	t_adopt(l, &lst, n_listen("127.0.0.1", 8, &at));
	client = n_connect(&at);
	n_pair(fd);
	n_send(fd[1], hello, sizeof hello);
	t_adopt(l, &s, fd[0]);
	n_closed_port(&none);
	t_adopt(l, &refused, n_tcp(AF_INET));
	t_adopt(l, &udp, n_udp("127.0.0.1", &uat));
	d.buf.base = (uint8_t *)dbuf;
	d.buf.len = sizeof dbuf;
	d.peer = uat.ss;
	d.peerlen = uat.len;

	t_accept(&acc, &lst);
	t_recv(&recv, &s, buf, sizeof buf);
	t_send(&send, &s, hello, sizeof hello);
	t_connect(&conn, &refused, n_sa(&none), none.len);
	t_send_batch(&dsend, &udp, &d, 1);
	CHECK_EQ(acc.calls + recv.calls + send.calls + conn.calls + dsend.calls, 0);
	TURN_UNTIL(l, acc.calls == 1 && recv.finals && send.finals && conn.finals &&
	    dsend.finals);
	CHECK_EQ(recv.res, sizeof hello);
	CHECK_EQ(send.res, sizeof hello);
	CHECK_EQ(conn.res, IO_EREFUSED);
	CHECK_EQ(dsend.res, 1);
	t_close(&lst);
	t_close(&s);
	t_close(&refused);
	t_close(&udp);
	CHECK_EQ(lst.closed + s.closed + refused.closed + udp.closed, 0);
	t_drain(l);
	CHECK_EQ(lst.closed + s.closed + refused.closed + udp.closed, 4);
	n_close(client);
	n_close(fd[1]);
	t_fds_close(&acc);
	t_loop_end(l);
}

CASE(poll_and_pool_results_at_hand_call_back_later, "C2")
{
	struct io_loop *l = t_loop();
	struct io_pool *pool = t_pool(l, 16384, 16, 0);
	struct t_sock a, b, c;
	struct t_op out = { 0 }, in = { 0 }, pr = { 0 }, relay = { 0 };
	io_fd fa[2], fb[2], fc[2];

	n_pair(fa);
	n_pair(fb);
	n_pair(fc);
	n_send(fa[1], hello, sizeof hello);
	n_send(fb[1], hello, sizeof hello);
	n_send(fc[1], hello, sizeof hello);
	n_shutdown(fc[1]);
	t_adopt(l, &a, fa[0]);
	t_adopt(l, &b, fb[0]);
	t_adopt(l, &c, fc[0]);
	t_poll(&out, &a, IO_POLL_OUT);
	t_poll(&in, &a, IO_POLL_IN);
	t_recv_pool(&pr, &b, pool, 0);
	t_relay(&relay, &c, &b, pool, UINT64_MAX, NULL);
	CHECK_EQ(out.calls + in.calls + pr.calls + relay.calls, 0);
	TURN_UNTIL(l, !out.armed && !in.armed && !pr.armed && !relay.armed);
	CHECK_EQ(t_pool_take(&pr, NULL), sizeof hello);
	CHECK_EQ(relay.res, 0);
	CHECK_EQ(relay.op.u.relay.moved, sizeof hello);
	t_close(&a);
	t_close(&b);
	t_close(&c);
	t_drain(l);
	io_pool_free(pool);
	t_loop_end(l);
	n_close(fa[1]);
	n_close(fb[1]);
	n_close(fc[1]);
}

struct chain {
	struct t_sock	 s;
	struct t_op	 recv, send;
	unsigned	 left;
	char		 c;
};

/* Data and room are there each time: a careless backend would recurse. */
static void
next_recv(struct t_op *o)
{
	struct chain *ch = o->arg;

	if (--ch->left > 0)
		t_recv(o, &ch->s, &ch->c, 1);
}

static void
next_send(struct t_op *o)
{
	struct chain *ch = o->arg;

	if (--ch->left > 0)
		t_send(o, &ch->s, &ch->c, 1);
}

CASE(op_restarted_in_its_own_final_callback_does_not_recurse, "C2 C3 C8")
{
	struct io_loop *l = t_loop();
	struct chain r = { .left = 500 }, s = { .left = 500 };
	char bytes[500] = { 0 };
	io_fd fd[2];

	n_pair(fd);
	n_send(fd[1], bytes, sizeof bytes);
	t_adopt(l, &r.s, fd[0]);
	t_adopt(l, &s.s, fd[1]);
	r.recv.arg = &r;
	r.recv.then = next_recv;
	s.send.arg = &s;
	s.send.then = next_send;
	t_recv(&r.recv, &r.s, &r.c, 1);
	t_send(&s.send, &s.s, &s.c, 1);
	TURN_UNTIL(l, r.left == 0 && s.left == 0);
	CHECK_EQ(r.recv.total, 500);
	CHECK_EQ(s.send.total, 500);
	t_close(&r.s);
	t_close(&s.s);
	t_loop_end(l);
}

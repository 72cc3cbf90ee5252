/* SPDX-License-Identifier: ISC */
#include "listener.h"

#include <unistd.h>

#include "net/sockopt.h"
#include "session.h"
#include "worker.h"

static void on_accept(struct io_loop *, struct io_op *);

static void
on_pause_end(struct io_loop *loop, struct io_timer *t)
{
	struct listener *l = io_container_of(t, struct listener, pause);

	if (limits_full(l->worker->shared->limits)) {
		io_timer_set(loop, t, io_now(loop) + l->pause_ms * UINT64_C(1000000), on_pause_end);
		return;
	}
	io_accept(&l->accept, &l->sock, on_accept);
}

static void
pause_accepting(struct listener *l, const char *why, int syserr)
{
	struct env *env = &l->worker->env;

	if (io_timer_armed(&l->pause))
		return;
	counters_add(env->count, COUNT_ACCEPT_PAUSED, 1);
	log_warn(LOG_C_ACCEPT, env_who(env, 0), "accept paused cause=\"%s\" errno=%d listener=%s sessions=%u",
	    why, syserr, l->conf->addr, limits_sessions(l->worker->shared->limits));
	io_timer_set(env->loop, &l->pause, io_now(env->loop) + l->pause_ms * UINT64_C(1000000),
	    on_pause_end);
	if (l->pause_ms < LISTENER_PAUSE_MAX_MS)
		l->pause_ms *= 2;
}

/*
 * Over a limit: closed before one byte is read (SPEC section 3).  A multishot
 * accept may have taken more connections than there is room for, so this can't
 * be left to the pause alone.
 */
static void
refuse(struct listener *l, io_fd fd, const struct addr *peer, enum limits_verdict v)
{
	struct env *env = &l->worker->env;
	char text[ADDR_TEXT_MAX];

	close(fd);
	counters_add(env->count, v == LIMITS_PER_IP ? COUNT_REFUSED_PER_IP : COUNT_REFUSED_SESSIONS, 1);
	log_warn(LOG_C_LIMIT, env_who(env, 0), "client refused cause=%s client=%s",
	    v == LIMITS_PER_IP ? "max_sessions_per_ip" : v == LIMITS_SESSIONS ? "max_sessions" : "memory",
	    addr_format(peer, text));
}

static void
admit(struct listener *l, struct io_op *op)
{
	struct worker *w = l->worker;
	enum limits_verdict v;
	struct addr peer;

	addr_from_sockaddr(&peer, op->u.accept.peer, op->u.accept.peerlen);
	addr_unmap(&peer);
	if ((v = limits_enter(w->shared->limits, &peer)) != LIMITS_OK) {
		refuse(l, op->u.accept.fd, &peer, v);
		return;
	}
	sockopt_accepted(op->u.accept.fd, w->env.conf->outbound.tcp_keepalive_s);
	if (!session_start(w, l, op->u.accept.fd, &peer))
		limits_leave(w->shared->limits, &peer);
}

static void
on_accept(struct io_loop *loop, struct io_op *op)
{
	struct listener *l = io_container_of(op, struct listener, accept);
	int res = op->res, syserr = op->syserr;

	(void)loop;
	if (op->more) {
		l->pause_ms = LISTENER_PAUSE_FIRST_MS;
		admit(l, op);
		/* In the ring the accept would go on taking what nobody can serve. */
		if (limits_full(l->worker->shared->limits))
			io_cancel(op);
		return;
	}
	if (!io_sock_open(&l->sock))
		return;
	if (res == IO_ECANCELED)
		pause_accepting(l, "max_sessions", 0);
	else
		pause_accepting(l, io_strerror(res), syserr);
}

void
listener_start(struct listener *l)
{
	io_adopt(l->worker->env.loop, &l->sock, l->fd);
	l->fd = IO_FD_NONE;
	l->pause_ms = LISTENER_PAUSE_FIRST_MS;
	io_accept(&l->accept, &l->sock, on_accept);
}

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct listener *l = io_container_of(sock, struct listener, sock);

	(void)loop;
	l->closed(l->worker);
}

void
listener_stop(struct listener *l, void (*closed)(struct worker *))
{
	l->closed = closed;
	io_timer_stop(l->worker->env.loop, &l->pause);
	io_close(&l->sock, on_closed);
}

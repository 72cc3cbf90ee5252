/* SPDX-License-Identifier: ISC */
#include "listener.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sockopt.h"
#include "policy/snapshot.h"
#include "session.h"
#include "util/accesslog.h"
#include "worker.h"

static void on_accept(struct io_loop *, struct io_op *);
static void on_pause_end(struct io_loop *, struct io_timer *);

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct listener *l = io_container_of(sock, struct listener, sock);

	(void)loop;
	l->stopped(l);
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

static void
log_refused(struct listener *l, const struct addr *peer, const char *rule)
{
	struct access_entry e = {
		.start_us = access_now_us(), .client = peer, .acl = ACCESS_ACL_DENY,
		.rule = span_str(rule)
	};

	if (l->worker->env.access != NULL)
		accesslog_write(l->worker->env.access, &e);
}

/*
 * Over a limit: closed before one byte is read (SPEC section 3).  For the number
 * of sessions that is the end of a listener alone; before, clients wait.
 */
static void
refuse(struct listener *l, io_fd fd, const struct addr *peer, enum limits_verdict v)
{
	struct env *env = &l->worker->env;
	char text[ADDR_TEXT_MAX];

	close(fd);
	counters_add(env->count, v == LIMITS_PER_IP ? COUNT_REFUSED_PER_IP : COUNT_REFUSED_SESSIONS, 1);
	log_refused(l, peer, v == LIMITS_PER_IP ? "max_sessions_per_ip" :
	    v == LIMITS_SESSIONS ? "max_sessions" : "memory");
	log_warn(LOG_C_LIMIT, env_who(env, 0), "client refused cause=%s client=%s",
	    v == LIMITS_PER_IP ? "max_sessions_per_ip" : v == LIMITS_SESSIONS ? "max_sessions" : "memory",
	    addr_format(peer, text));
}

/* Not on the whitelist: closed before one byte is read. */
static void
refuse_source(struct listener *l, io_fd fd, const struct addr *peer)
{
	struct env *env = &l->worker->env;
	char text[ADDR_TEXT_MAX];

	close(fd);
	counters_add(env->count, COUNT_REFUSED_SOURCE, 1);
	log_refused(l, peer, "whitelist");
	log_info(LOG_C_LIMIT, env_who(env, 0), "client refused cause=whitelist client=%s",
	    addr_format(peer, text));
}

static void
admit(struct listener *l, io_fd fd, const struct addr *peer)
{
	struct worker *w = l->worker;
	enum limits_verdict v;

	if (w->aborting) {	/* accepted before the listener had stopped, and nobody would end it */
		close(fd);
		return;
	}
	if (!snapshot_admits(w->env.snapshot, peer)) {
		refuse_source(l, fd, peer);
		return;
	}
	v = limits_enter(w->shared->limits, peer);
	if (v == LIMITS_SESSIONS && l->parked == IO_FD_NONE && !l->stopping) {
		l->parked = fd;
		l->parked_peer = *peer;
	} else if (v != LIMITS_OK) {
		refuse(l, fd, peer, v);
	} else if (!session_start(w, l, fd, peer)) {
		limits_leave(w->shared->limits, peer);
	}
}

static void
unpark(struct listener *l)
{
	io_fd fd = l->parked;

	l->parked = IO_FD_NONE;
	if (fd != IO_FD_NONE)
		admit(l, fd, &l->parked_peer);
}

/* No place for another client: one that came all the same is parked. */
static bool
full(const struct listener *l)
{
	return l->parked != IO_FD_NONE || limits_full(l->worker->shared->limits);
}

static void
on_pause_end(struct io_loop *loop, struct io_timer *t)
{
	struct listener *l = io_container_of(t, struct listener, pause);

	if (!limits_full(l->worker->shared->limits))
		unpark(l);
	if (full(l))
		io_timer_set(loop, t, io_now(loop) + l->pause_ms * UINT64_C(1000000), on_pause_end);
	else
		io_accept(&l->accept, &l->sock, on_accept);
}

static struct addr
peer_of(const struct sockaddr *from, socklen_t len)
{
	struct addr peer;

	addr_from_sockaddr(&peer, from, len);
	addr_unmap(&peer);
	return peer;
}

/*
 * C15: those who wait still, and for whom there is room.  Closing resets the rest,
 * unless another process has the socket too (an upgrade) and serves them.
 */
static void
empty_backlog(struct listener *l)
{
	struct sockaddr_storage from;

	while (!full(l)) {
		socklen_t len = sizeof from;
		int fd = accept4(l->sock.fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			struct addr peer = peer_of((struct sockaddr *)&from, len);

			admit(l, fd, &peer);
		} else if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static void
on_accept(struct io_loop *loop, struct io_op *op)
{
	struct listener *l = io_container_of(op, struct listener, accept);
	int res = op->res, syserr = op->syserr;

	(void)loop;
	if (op->more) {
		struct addr peer = peer_of(op->u.accept.peer, op->u.accept.peerlen);

		l->pause_ms = LISTENER_PAUSE_FIRST_MS;
		admit(l, op->u.accept.fd, &peer);
		/* The rest waits in the backlog. */
		if (full(l))
			io_cancel(op);
		return;
	}
	if (!io_sock_open(&l->sock))
		return;
	if (l->stopping) {
		empty_backlog(l);
		io_close(&l->sock, on_closed);
	} else if (res == IO_ECANCELED)
		pause_accepting(l, "max_sessions", 0);
	else
		pause_accepting(l, io_strerror(res), syserr);
}

void
listener_apply(struct listener *l)
{
	sockopt_to_inherit(l->sock.fd, l->snapshot->conf->outbound.tcp_keepalive_s);
}

void
listener_start(struct listener *l, io_fd fd)
{
	io_adopt(l->worker->env.loop, &l->sock, fd);
	l->parked = IO_FD_NONE;
	l->pause_ms = LISTENER_PAUSE_FIRST_MS;
	listener_apply(l);
	io_accept(&l->accept, &l->sock, on_accept);
}

void
listener_stop(struct listener *l, void (*stopped)(struct listener *))
{
	l->stopping = true;
	l->stopped = stopped;
	io_timer_stop(l->worker->env.loop, &l->pause);
	unpark(l);
	if (io_armed(&l->accept)) {
		io_cancel(&l->accept);
		return;
	}
	empty_backlog(l);
	io_close(&l->sock, on_closed);
}

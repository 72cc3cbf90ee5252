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

static void
on_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct listener *l = io_container_of(sock, struct listener, sock);

	(void)loop;
	l->stopped(l);
}

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
admit(struct listener *l, io_fd fd, const struct sockaddr *from, socklen_t from_len)
{
	struct worker *w = l->worker;
	enum limits_verdict v;
	struct addr peer;

	if (w->aborting) {	/* accepted before the listener had stopped, and nobody would end it */
		close(fd);
		return;
	}
	addr_from_sockaddr(&peer, from, from_len);
	addr_unmap(&peer);
	if (!snapshot_admits(w->env.snapshot, &peer)) {
		refuse_source(l, fd, &peer);
		return;
	}
	if ((v = limits_enter(w->shared->limits, &peer)) != LIMITS_OK) {
		refuse(l, fd, &peer, v);
		return;
	}
	if (!session_start(w, l, fd, &peer))
		limits_leave(w->shared->limits, &peer);
}

/*
 * C15: what came while the accept was being cancelled, and what it was woken for
 * but did not take any more.  Nobody else is woken for those: in a hand-over the
 * new process waits at the same socket, exclusively, and would leave them there
 * until the next client comes.
 */
static void
empty_backlog(struct listener *l)
{
	struct sockaddr_storage from;

	for (;;) {
		socklen_t len = sizeof from;
		int fd = accept4(l->sock.fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			admit(l, fd, (struct sockaddr *)&from, len);
		else if (errno != EINTR && errno != ECONNABORTED)
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
		l->pause_ms = LISTENER_PAUSE_FIRST_MS;
		admit(l, op->u.accept.fd, op->u.accept.peer, op->u.accept.peerlen);
		/* In the ring the accept would go on taking what nobody can serve. */
		if (limits_full(l->worker->shared->limits))
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
	if (io_armed(&l->accept)) {
		io_cancel(&l->accept);
		return;
	}
	empty_backlog(l);
	io_close(&l->sock, on_closed);
}

/* SPDX-License-Identifier: ISC */
#include "daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "net/resolve.h"
#include "net/sockopt.h"
#include "util/cpus.h"
#include "worker.h"

enum {
	/* Descriptors that are no sessions: standard streams, rings, listeners, DNS sockets, a log. */
	FDS_OWN = 24,
	FDS_PER_WORKER = 12,
	FDS_PER_SESSION = 2,
	/*
	 * Pipes are a luxury: at most this share of the descriptors.  9,900
	 * tunnels must fit under a limit of 20,000.
	 */
	FDS_PER_PIPE_SHARE = 512,
	PIPES_MAX = 256,
	WORKERS_MAX = 1024
};

struct daemon {
	const struct conf	*conf;
	const struct io_choice	*choice;
	struct worker_shared	 shared;
	struct worker		*workers;
	unsigned		 worker_count;
	struct addr		*own;		/* one a listener: as bound; family AF_UNIX once a socket file is ours */
	char			 via[24];	/* "ringway-1a2b3c4d": two of us in a chain are no loop */
	sigset_t		 signals;
};

uint64_t
daemon_raise_nofile(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0)
		return 1024;
	if (r.rlim_cur < r.rlim_max) {
		struct rlimit want = { r.rlim_max, r.rlim_max };

		if (setrlimit(RLIMIT_NOFILE, &want) == 0)
			r.rlim_cur = r.rlim_max;
	}
	return r.rlim_cur;
}

static uint32_t
sessions_from_nofile(uint64_t nofile, unsigned workers)
{
	uint64_t own = FDS_OWN + (uint64_t)workers * FDS_PER_WORKER;
	uint64_t n = nofile > own + FDS_PER_SESSION ? (nofile - own) / FDS_PER_SESSION : 1;

	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static uint32_t
pipes_from_nofile(uint64_t nofile)
{
	uint64_t n = nofile / FDS_PER_PIPE_SHARE;

	return n == 0 ? UINT32_MAX /* none */ : n > PIPES_MAX ? PIPES_MAX : (uint32_t)n;
}

/* ---- listeners ---- */

static int
listen_error(const char *text)
{
	log_error(LOG_C_NONE, log_main, "cannot listen: %s", text);
	return -1;
}

/* Port 0: every worker's listener has to be on the port that the first one was given. */
static void
learn_port(int fd, struct addr *a)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof ss;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
		addr_from_sockaddr(a, (struct sockaddr *)&ss, len);
}

static int
bind_tcp(struct daemon *d, size_t i)
{
	const struct conf_listen *c = &d->conf->listen[i];
	unsigned flags = sockopt_v6only(&c->sock, d->conf->listen, d->conf->listen_count) ?
	    SOCKOPT_V6ONLY : 0;
	struct addr at = c->sock;
	char text[SOCKOPT_TEXT_MAX];

	if (sockopt_probe_bind(&at, flags, text) != 0)
		return listen_error(text);
	for (unsigned w = 0; w < d->worker_count; w++) {
		int fd = sockopt_listen(&at, flags | SOCKOPT_REUSEPORT, c->backlog, text);

		if (fd < 0)
			return listen_error(text);
		d->workers[w].listeners[i].fd = fd;
		if (w == 0)
			learn_port(fd, &at);
	}
	d->own[i] = at;
	return 0;
}

/* SO_REUSEPORT does not balance Unix sockets: all workers accept from one. */
static int
bind_unix(struct daemon *d, size_t i)
{
	const struct conf_listen *c = &d->conf->listen[i];
	char text[SOCKOPT_TEXT_MAX];
	int fd = sockopt_listen_unix(c->unix_path, c->backlog, text);

	if (fd < 0)
		return listen_error(text);
	d->workers[0].listeners[i].fd = fd;
	d->own[i].sa.sa_family = AF_UNIX;
	for (unsigned w = 1; w < d->worker_count; w++) {
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

		if (copy < 0)
			return listen_error(strerror(errno));
		d->workers[w].listeners[i].fd = copy;
	}
	return 0;
}

static int
bind_listeners(struct daemon *d)
{
	int rc = 0;

	/* All of them, so that every problem is told. */
	for (size_t i = 0; i < d->conf->listen_count; i++)
		if ((d->conf->listen[i].unix_path != NULL ? bind_unix(d, i) : bind_tcp(d, i)) != 0)
			rc = -1;
	return rc;
}

static void
log_listeners(const struct daemon *d)
{
	static const struct { uint32_t bit; const char *name; } words[] = {
		{ CONF_PROTO_SOCKS5, "socks5" }, { CONF_PROTO_SOCKS4, "socks4" }, { CONF_PROTO_HTTP, "http" }
	};

	for (size_t i = 0; i < d->conf->listen_count; i++) {
		const struct conf_listen *c = &d->conf->listen[i];
		char at[ADDR_TEXT_MAX], protocols[32] = "";
		size_t len = 0;

		for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
			if (c->protocols & words[k].bit)
				len += (size_t)snprintf(protocols + len, sizeof protocols - len, "%s%s",
				    len > 0 ? "," : "", words[k].name);
		log_info(LOG_C_NONE, log_main, "listening addr=%s protocols=%s",
		    c->unix_path != NULL ? c->addr : addr_format(&d->own[i], at), protocols);
	}
}

/* ---- workers ---- */

/* RFC 9110 section 7.6.3 allows a pseudonym in place of the host name, which is nobody's business. */
static void
make_pseudonym(struct daemon *d)
{
	uint32_t r = (uint32_t)getpid();

	(void)!getrandom(&r, sizeof r, GRND_NONBLOCK);
	snprintf(d->via, sizeof d->via, "ringway-%08x", r);
}

static int
make_workers(struct daemon *d, uint64_t nofile)
{
	const struct conf *conf = d->conf;
	uint32_t max = conf->limits.max_sessions;

	d->worker_count = conf->workers != 0 ? conf->workers : cpus_usable();
	if (d->worker_count > WORKERS_MAX)
		d->worker_count = WORKERS_MAX;
	if (max == 0)
		max = sessions_from_nofile(nofile, d->worker_count);
	make_pseudonym(d);
	d->shared.conf = conf;
	d->shared.choice = d->choice;
	d->shared.pipes_max = pipes_from_nofile(nofile);
	sem_init(&d->shared.started, 0, 0);
	d->shared.limits = limits_new(max, conf->limits.max_sessions_per_ip);
	d->own = calloc(conf->listen_count, sizeof *d->own);
	d->workers = calloc(d->worker_count, sizeof *d->workers);
	if (d->shared.limits == NULL || d->own == NULL || d->workers == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < d->worker_count; i++) {
		struct worker *w = &d->workers[i];

		w->shared = &d->shared;
		w->number = i;
		w->next_session_id = i + 1;
		w->id_step = d->worker_count;
		w->env.via = d->via;
		w->env.own = d->own;
		w->env.own_count = conf->listen_count;
		w->listener_count = conf->listen_count;
		if ((w->listeners = calloc(w->listener_count, sizeof *w->listeners)) == NULL)
			return -ENOMEM;
		for (size_t k = 0; k < w->listener_count; k++)
			w->listeners[k] = (struct listener){
				.worker = w, .conf = &conf->listen[k], .fd = IO_FD_NONE
			};
	}
	return 0;
}

static int
start_workers(struct daemon *d)
{
	unsigned started = 0;
	int rc = 0;

	for (unsigned i = 0; i < d->worker_count && rc == 0; i++)
		if ((rc = worker_start(&d->workers[i])) == 0)
			started++;
		else
			log_error(LOG_C_NONE, log_main, "cannot start: thread of worker %u: %s", i,
			    strerror(-rc));
	for (unsigned i = 0; i < started; i++)
		while (sem_wait(&d->shared.started) != 0)
			;	/* EINTR */
	for (unsigned i = 0; i < started; i++)
		if (d->workers[i].failed != 0) {
			rc = d->workers[i].failed;
			log_error(LOG_C_NONE, log_main, "cannot start: %s", d->workers[i].failure);
		}
	return rc;
}

static void
each_up(struct daemon *d, void (*f)(struct worker *))
{
	for (unsigned i = 0; i < d->worker_count; i++)
		if (d->workers[i].running && d->workers[i].failed == 0)
			f(&d->workers[i]);
}

static void
log_totals(struct daemon *d)
{
	struct counters sum = { { 0 } };

	for (unsigned i = 0; i < d->worker_count; i++)
		for (int k = 0; k < COUNT_MAX; k++)
			sum.n[k] += counters_get(&d->workers[i].counters, (enum counter)k);
	log_info(LOG_C_NONE, log_main,
	    "stopped sessions=%llu tunnels=%llu requests=%llu bytes_up=%llu bytes_down=%llu",
	    (unsigned long long)sum.n[COUNT_SESSIONS], (unsigned long long)sum.n[COUNT_TUNNELS],
	    (unsigned long long)sum.n[COUNT_HTTP_REQUESTS],
	    (unsigned long long)sum.n[COUNT_BYTES_UP], (unsigned long long)sum.n[COUNT_BYTES_DOWN]);
}

static void
free_daemon(struct daemon *d)
{
	for (unsigned i = 0; d->workers != NULL && i < d->worker_count; i++) {
		struct worker *w = &d->workers[i];

		for (size_t k = 0; w->listeners != NULL && k < w->listener_count; k++)
			if (w->listeners[k].fd != IO_FD_NONE)
				close(w->listeners[k].fd);
		free(w->listeners);
	}
	for (size_t i = 0; d->own != NULL && i < d->conf->listen_count; i++)
		if (d->own[i].sa.sa_family == AF_UNIX)
			unlink(d->conf->listen[i].unix_path);
	free(d->workers);
	free(d->own);
	limits_free(d->shared.limits);
	sem_destroy(&d->shared.started);
}

/* ---- signals ---- */

static void
block_signals(struct daemon *d)
{
	sigemptyset(&d->signals);
	sigaddset(&d->signals, SIGINT);
	sigaddset(&d->signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &d->signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* All workers gone, or a signal, or the time is up: whichever comes first. */
static bool
wait_for_end(struct daemon *d, uint32_t seconds)
{
	enum { LOOK_MS = 20 };

	for (uint64_t left_ms = seconds * UINT64_C(1000);; left_ms -= LOOK_MS) {
		struct timespec ts = { 0, LOOK_MS * 1000000L };

		if (limits_sessions(d->shared.limits) == 0)
			return true;
		if (left_ms < LOOK_MS || sigtimedwait(&d->signals, NULL, &ts) > 0)
			return false;
	}
}

static void
serve(struct daemon *d)
{
	int sig;

	while (sigwait(&d->signals, &sig) != 0)
		;
	log_info(LOG_C_NONE, log_main, "draining signal=%s sessions=%u timeout_s=%u",
	    sig == SIGINT ? "SIGINT" : "SIGTERM", limits_sessions(d->shared.limits),
	    d->conf->shutdown_timeout_s);
	each_up(d, worker_drain);
	if (!wait_for_end(d, d->conf->shutdown_timeout_s)) {
		log_warn(LOG_C_NONE, log_main, "ending sessions that are left sessions=%u",
		    limits_sessions(d->shared.limits));
		each_up(d, worker_abort);
	}
}

int
daemon_run(const struct conf *conf, const struct io_choice *choice)
{
	struct daemon d = { .conf = conf, .choice = choice };
	uint64_t nofile = daemon_raise_nofile();
	int rc;

	block_signals(&d);
	if ((rc = resolver_global_init()) != 0 || (rc = make_workers(&d, nofile)) != 0) {
		log_error(LOG_C_NONE, log_main, "cannot start: %s", strerror(-rc));
		free_daemon(&d);
		return 1;
	}
	if (bind_listeners(&d) != 0) {
		free_daemon(&d);
		return 1;
	}
	if (choice->why[0] != '\0')
		log_warn(LOG_C_NONE, log_main, "backend passed over: %s", choice->why);
	rc = start_workers(&d);
	if (rc == 0) {
		log_listeners(&d);
		log_info(LOG_C_NONE, log_main, "started version=%s backend=%s workers=%u nofile=%llu",
		    RW_VERSION, io_choice_name(choice), d.worker_count, (unsigned long long)nofile);
		serve(&d);
	} else
		each_up(&d, worker_drain);
	for (unsigned i = 0; i < d.worker_count; i++)
		worker_join(&d.workers[i]);
	if (rc == 0)
		log_totals(&d);
	free_daemon(&d);
	return rc == 0 ? 0 : 1;
}

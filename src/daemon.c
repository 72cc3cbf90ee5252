/* SPDX-License-Identifier: ISC */
#include "daemon_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/resolve.h"
#include "net/udpsock.h"
#include "relay/udp.h"
#include "sdnotify.h"
#include "util/cpus.h"

enum {
	/* Descriptors that are no sessions: standard streams, rings, listeners, DNS sockets, logs. */
	FDS_OWN = 28,
	FDS_PER_WORKER = 16,
	FDS_PER_SESSION = 2,
	/*
	 * Pipes are a luxury: at most this share of the descriptors.  9,900
	 * tunnels must fit under a limit of 20,000.
	 */
	FDS_PER_PIPE_SHARE = 512,
	PIPES_MAX = 256,
	FDS_RESERVED_MAX = 65536,	/* 0.5 MiB of the kernel's memory */
	WORKERS_MAX = 1024,
	UDP_TEXT_MAX = UDP_DROPS_TEXT_MAX + 256,
	ACCESS_CLOSE_MS = ACCESSLOG_GIVE_UP_MS + 500
};

/* Read by nobody yet but the log; outlives the last thread. */
static struct accesslog_totals access_totals;

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

uint32_t
daemon_max_sessions(const struct daemon *d, const struct conf *conf)
{
	return conf->limits.max_sessions != 0 ? conf->limits.max_sessions :
	    sessions_from_nofile(d->nofile, d->worker_count);
}

static uint32_t
pipes_from_nofile(uint64_t nofile)
{
	uint64_t n = nofile / FDS_PER_PIPE_SHARE;

	return n == 0 ? UINT32_MAX /* none */ : n > PIPES_MAX ? PIPES_MAX : (uint32_t)n;
}

/* ---- what a plan needs ---- */

void
daemon_log_problems(const struct conf_problems *problems)
{
	for (size_t i = 0; i < problems->count; i++)
		log_write(problems->list[i].severity == CONF_ERROR ? LOG_ERROR : LOG_WARN, LOG_C_NONE,
		    log_main, "configuration: %s", problems->list[i].text);
}

int
daemon_open_access(const struct conf *conf, struct accesslog **out)
{
	struct accesslog_config cfg = {
		.path = conf->access_log.path,
		.format = conf->access_log.format == CONF_LOG_JSON ? ACCESS_JSON : ACCESS_TEXT,
		.flush_ms = conf->access_log.flush_ms,
		.buffer_bytes = conf->access_log.buffer_bytes,
		.immediate = conf->access_log.immediate
	};
	int rc;

	*out = NULL;
	if (cfg.path[0] == '\0')
		return 0;
	if ((rc = accesslog_open(out, &cfg, &access_totals)) != 0)
		log_error(LOG_C_NONE, log_main, "access_log.path: %s: %s", cfg.path, strerror(-rc));
	return rc;
}

void
daemon_plans_free(struct daemon *d, struct worker_plan **plans)
{
	for (unsigned i = 0; plans != NULL && i < d->worker_count; i++)
		worker_plan_free(plans[i]);
	free(plans);
}

struct worker_plan **
daemon_plans(struct daemon *d, struct snapshot *snapshot, struct accesslog *access,
    struct activation *inherited)
{
	struct worker_plan **plans = calloc(d->worker_count, sizeof *plans);
	bool whole = plans != NULL;

	for (unsigned i = 0; whole && i < d->worker_count; i++)
		whole = (plans[i] = worker_plan_new(snapshot, access)) != NULL;
	if (!whole)
		log_error(LOG_C_NONE, log_main, "out of memory");
	if (whole && sockets_bind(&d->sockets, snapshot, inherited, plans, d->worker_count) == 0)
		return plans;
	daemon_plans_free(d, plans);
	return NULL;
}

void
daemon_log_listeners(const struct snapshot *snapshot)
{
	static const struct { uint32_t bit; const char *name; } words[] = {
		{ CONF_PROTO_SOCKS5, "socks5" }, { CONF_PROTO_SOCKS4, "socks4" }, { CONF_PROTO_HTTP, "http" }
	};

	for (size_t i = 0; i < snapshot->conf->listen_count; i++) {
		const struct conf_listen *c = &snapshot->conf->listen[i];
		char at[ADDR_TEXT_MAX], protocols[32] = "";
		size_t len = 0;

		for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
			if (c->protocols & words[k].bit)
				len += (size_t)snprintf(protocols + len, sizeof protocols - len, "%s%s",
				    len > 0 ? "," : "", words[k].name);
		log_info(LOG_C_NONE, log_main, "listening addr=%s protocols=%s",
		    c->unix_path != NULL ? c->addr : addr_format(&c->sock, at), protocols);
	}
}

/* ---- workers ---- */

static uint32_t
any_number(void)
{
	uint32_t r = (uint32_t)getpid();

	(void)!getrandom(&r, sizeof r, GRND_NONBLOCK);
	return r;
}

static int
make_workers(struct daemon *d)
{
	const struct conf *conf = d->snapshot->conf;

	d->worker_count = conf->workers != 0 ? conf->workers : cpus_usable();
	if (d->worker_count > WORKERS_MAX)
		d->worker_count = WORKERS_MAX;
	/* RFC 9110 section 7.6.3 allows a pseudonym in place of the host name, which is nobody's business. */
	snprintf(d->via, sizeof d->via, "ringway-%08x", any_number());
	d->shared.choice = d->start->choice;
	d->shared.pipes_max = pipes_from_nofile(d->nofile);
	if ((d->shared.limits = limits_new(daemon_max_sessions(d, conf),
	    conf->limits.max_sessions_per_ip)) == NULL)
		return -ENOMEM;
	/* Not from the first port on: after a hand-over the old process has some, and nobody should guess. */
	if ((d->shared.udpports = udpports_new(any_number())) == NULL)
		return -ENOMEM;
	if ((d->workers = calloc(d->worker_count, sizeof *d->workers)) == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < d->worker_count; i++) {
		struct worker *w = &d->workers[i];

		w->shared = &d->shared;
		w->number = i;
		w->next_session_id = i + 1;
		w->id_step = d->worker_count;
		w->env.via = d->via;
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
		while (sem_wait(&d->shared.reported) != 0)
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

/* " udp=1 udp_up=...", with those causes that there were; ringway(8) explains each. */
static void
put_udp(const uint64_t sum[COUNT_MAX], char out[UDP_TEXT_MAX])
{
	size_t len;

	len = (size_t)snprintf(out, UDP_TEXT_MAX, " udp=%llu udp_up=%llu udp_down=%llu udp_refused_ports=%llu",
	    (unsigned long long)sum[COUNT_UDP_ASSOCIATIONS], (unsigned long long)sum[COUNT_UDP_UP],
	    (unsigned long long)sum[COUNT_UDP_DOWN], (unsigned long long)sum[COUNT_REFUSED_UDP_PORTS]);
	len += udp_format_drops(&sum[COUNT_UDP_DROP_FIRST], out + len);
	if (sum[COUNT_UDP_GSO_FALLBACK] != 0)
		len += (size_t)snprintf(out + len, UDP_TEXT_MAX - len, " udp_gso_fallback=%llu",
		    (unsigned long long)sum[COUNT_UDP_GSO_FALLBACK]);
	assert(len < UDP_TEXT_MAX);
}

void
daemon_log_counters(const struct daemon *d, const char *what)
{
	uint64_t sum[COUNT_MAX] = { 0 };
	char udp[UDP_TEXT_MAX];

	for (unsigned i = 0; i < d->worker_count; i++)
		for (int k = 0; k < COUNT_MAX; k++)
			sum[k] += counters_get(&d->workers[i].counters, (enum counter)k);
	put_udp(sum, udp);
	log_info(LOG_C_NONE, log_main,
	    "%s active=%u sessions=%llu tunnels=%llu requests=%llu bytes_up=%llu bytes_down=%llu%s",
	    what, limits_sessions(d->shared.limits), (unsigned long long)sum[COUNT_SESSIONS],
	    (unsigned long long)sum[COUNT_TUNNELS], (unsigned long long)sum[COUNT_HTTP_REQUESTS],
	    (unsigned long long)sum[COUNT_BYTES_UP], (unsigned long long)sum[COUNT_BYTES_DOWN], udp);
}

/* ---- start ---- */

static void
block_signals(struct daemon *d)
{
	static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD };

	sigemptyset(&d->signals);
	for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
		sigaddset(&d->signals, taken[i]);
	pthread_sigmask(SIG_BLOCK, &d->signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);	/* a log file at its size limit is a failed write, no more */
}

static int
fail_start(struct daemon *d, const char *why)
{
	if (why[0] != '\0')
		log_error(LOG_C_NONE, log_main, "cannot start: %s", why);
	background_failed(&d->background, "");
	return -1;
}

/* The snapshot, in the foreground still, so that its problems are seen. */
static int
load(struct daemon *d)
{
	struct conf_problems problems = { 0 };
	char text[PRIVS_TEXT_MAX];

	d->snapshot = snapshot_new(d->start->conf, 1, &problems);
	conf_problems_print(&problems, stderr);
	conf_problems_free(&problems);
	if (d->snapshot == NULL)
		return -1;
	if (privs_lookup(d->snapshot->conf->user, d->snapshot->conf->group, &d->privs, text) != 0 ||
	    privs_allowed(&d->privs, text) != 0)
		return fail_start(d, text);
	return 0;
}

/* As root: what only root may do, in the process that stays. */
static int
prepare(struct daemon *d)
{
	const struct conf *conf = d->snapshot->conf;
	const struct activation *in = d->start->inherited;
	char text[BACKGROUND_TEXT_MAX] = "";
	int rc;

	if (in->origin == ACTIVATION_HANDOVER)
		background_adopt(&d->background, in->ready_fd);
	else if (d->start->cli->daemon && background_detach(&d->background, text) != 0)
		return fail_start(d, text);
	rc = in->origin == ACTIVATION_HANDOVER ?
	    background_pid_adopt(&d->pidfile, conf->pid_file, in->pid_fd, text) :
	    background_pid_take(&d->pidfile, conf->pid_file, text);
	if (rc != 0)
		return fail_start(d, text);
	status_open(&d->status, conf->pid_file);
	return 0;
}

static int
bring_up(struct daemon *d)
{
	char text[ACTIVATION_TEXT_MAX] = "";
	struct worker_plan **plans;
	int rc;

	d->sockets.owner = &d->privs;
	if ((rc = resolver_global_init()) != 0)
		return fail_start(d, strerror(-rc));
	if ((rc = make_workers(d)) != 0)
		return fail_start(d, strerror(-rc));
	if ((plans = daemon_plans(d, d->snapshot, NULL, d->start->inherited)) == NULL)
		return fail_start(d, "");
	for (unsigned i = 0; i < d->worker_count; i++)
		d->workers[i].first = plans[i];
	free(plans);
	if (activation_rest(d->start->inherited, text) != 0)
		return fail_start(d, text);
	if (text[0] != '\0')
		log_info(LOG_C_NONE, log_main, "inherited sockets let go: %s", text);
	return 0;
}

/* What a reload will read again, as the user that we are now. */
static void
warn_unreadable(const struct daemon *d)
{
	const struct conf *conf = d->snapshot->conf;
	const char *paths[] = {
		cli_config_path(d->start->cli), conf->acl.file, conf->auth.users_file,
		conf->auth.whitelist_file
	};

	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
		if (paths[i] != NULL && paths[i][0] != '\0' &&
		    faccessat(AT_FDCWD, paths[i], R_OK, AT_EACCESS) != 0)
			log_warn(LOG_C_NONE, log_main, "%s: %s for user %s: a reload would be refused",
			    paths[i], strerror(errno), conf->user);
}

/*
 * The kernel's table of descriptors doubles when it is full, never shrinks, and
 * in a process with threads waits for a turn of all CPUs when it grows
 * (expand_fdtable): 0.3 to 4 s on busy ones, in which no worker gets a
 * descriptor and those that ask stand still.  So it grows now.
 */
static void
reserve_descriptors(uint64_t nofile)
{
	int last = (int)(nofile < FDS_RESERVED_MAX ? nofile : FDS_RESERVED_MAX) - 1;
	int fd = open("/", O_RDONLY | O_CLOEXEC), high = -1;

	if (fd == -1 || (high = fcntl(fd, F_DUPFD_CLOEXEC, last)) == -1)
		log_warn(LOG_C_NONE, log_main, "no room made for %d descriptors: %s", last + 1,
		    strerror(errno));
	if (high != -1)
		close(high);
	if (fd != -1)
		close(fd);
}

static int
go(struct daemon *d)
{
	const struct conf *conf = d->snapshot->conf;
	struct kdf_config kdf = { .failures_per_minute = conf->auth.failures_per_minute };
	char text[PRIVS_TEXT_MAX];
	int rc;

	/* Before the first thread: of the passwords, of the access log, of the workers (C31). */
	if (privs_drop(&d->privs, privs_needed(conf), text) != 0)
		return fail_start(d, text);
	warn_unreadable(d);
	reserve_descriptors(d->nofile);
	if ((rc = kdf_new(&d->shared.kdf, &kdf)) != 0)
		return fail_start(d, strerror(-rc));
	if (daemon_open_access(conf, &d->access) != 0)
		return fail_start(d, "");
	for (unsigned i = 0; i < d->worker_count; i++)
		d->workers[i].first->access = d->access;
	if (start_workers(d) != 0)
		return fail_start(d, "");
	return 0;
}

static void
say_started(struct daemon *d)
{
	const struct io_choice *choice = d->start->choice;

	if (choice->why[0] != '\0')
		log_warn(LOG_C_NONE, log_main, "backend passed over: %s", choice->why);
	daemon_log_listeners(d->snapshot);
	log_info(LOG_C_NONE, log_main, "started version=%s backend=%s workers=%u nofile=%llu pid=%ld configuration=%s",
	    RW_VERSION, io_choice_name(choice), d->worker_count, (unsigned long long)d->nofile,
	    (long)getpid(), cli_config_path(d->start->cli) != NULL ? cli_config_path(d->start->cli) :
	    "defaults");
	if (background_pid_write(&d->pidfile) != 0)
		log_warn(LOG_C_NONE, log_main, "pid file not written");
	if (d->background.detached)
		sdnotify_mainpid(getpid());	/* the manager knows the process that it started */
	if (d->start->inherited->origin != ACTIVATION_HANDOVER)
		sdnotify_ready("serving");
	background_ready(&d->background);
}

static void
free_daemon(struct daemon *d)
{
	for (unsigned i = 0; i < d->worker_count && d->workers != NULL; i++) {
		worker_join(&d->workers[i]);
		worker_plan_free(d->workers[i].first);
	}
	if (d->access != NULL)
		accesslog_close(d->access, ACCESS_CLOSE_MS);
	sockets_close(&d->sockets, !d->handed_over && !d->managed);
	status_close(&d->status, !d->handed_over);
	/* Leaves a file with the number of the process that took over alone. */
	background_pid_release(&d->pidfile);
	free(d->workers);
	if (d->shared.kdf != NULL)
		kdf_free(d->shared.kdf);
	udpports_free(d->shared.udpports);
	limits_free(d->shared.limits);
	sem_destroy(&d->shared.reported);
	snapshot_drop(d->snapshot);
	free(d->program);
}

int
daemon_run(const struct daemon_start *start)
{
	struct daemon d = { .start = start, .nofile = daemon_raise_nofile() };
	int rc = -1;

	block_signals(&d);
	background_init(&d.background);
	background_pid_init(&d.pidfile);
	status_init(&d.status);
	d.managed = start->inherited->managed;
	sem_init(&d.shared.reported, 0, 0);
	d.program = activation_program(start->argv[0]);
	if (load(&d) == 0 && prepare(&d) == 0 && bring_up(&d) == 0 && (rc = go(&d)) == 0) {
		say_started(&d);
		daemon_serve(&d);
		for (unsigned i = 0; i < d.worker_count; i++)
			worker_join(&d.workers[i]);
		daemon_log_counters(&d, "stopped");
	} else
		each_up(&d, worker_drain);
	free_daemon(&d);
	return rc == 0 ? 0 : 1;
}

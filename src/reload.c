/* SPDX-License-Identifier: ISC */
/* What the daemon does while it runs: signals, reload, hand-over, drain. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon_internal.h"
#include "sdnotify.h"

enum {
	LOOK_MS = 20,			/* while waiting for sessions to end */
	HANDOVER_S = 30,		/* for the new process to serve */
	DIFFERENCES_MAX = 16
};

static void
each_worker(struct daemon *d, void (*f)(struct worker *))
{
	for (unsigned i = 0; i < d->worker_count; i++)
		f(&d->workers[i]);
}

/* ---- reload ---- */

/* Keys that only a new start can change keep their running values, and it is said. */
static int
keep_fixed(const struct daemon *d, struct conf *conf)
{
	const char *paths[DIFFERENCES_MAX];
	size_t n = conf_restart_differences(d->snapshot->conf, conf, paths, DIFFERENCES_MAX);

	for (size_t i = 0; i < n && i < DIFFERENCES_MAX; i++)
		log_warn(LOG_C_NONE, log_main, "reload: %s has changed: needs a restart, the running value stays",
		    paths[i]);
	return n > 0 ? conf_keep_restart(conf, d->snapshot->conf) : 0;
}

static struct snapshot *
load_again(struct daemon *d, struct conf_problems *problems)
{
	struct snapshot *snapshot = NULL;
	struct conf *conf;

	if (conf_from_cli(d->start->cli, &conf, problems) == 0) {
		if (keep_fixed(d, conf) != 0) {
			conf_problems_add(problems, CONF_ERROR, NULL, NULL, "out of memory");
			conf_free(conf);
		} else
			snapshot = snapshot_new(conf, d->snapshot->generation + 1, problems);
	}
	if (snapshot != NULL && !privs_have(privs_needed(snapshot->conf))) {
		conf_problems_add(problems, CONF_ERROR, NULL, NULL,
		    "needs a capability that was given up at the start (outbound.mark, outbound.interface or a low port in listen or udp.port_range): needs a restart");
		snapshot_drop(snapshot);
		snapshot = NULL;
	}
	daemon_log_problems(problems);
	return snapshot;
}

static bool
same_access_log(const struct conf_access_log *a, const struct conf_access_log *b)
{
	return strcmp(a->path, b->path) == 0 && a->format == b->format &&
	    a->flush_ms == b->flush_ms && a->buffer_bytes == b->buffer_bytes &&
	    a->immediate == b->immediate;
}

/* From here on nothing can fail. */
static void
put_in_force(struct daemon *d, struct snapshot *snapshot, struct accesslog *access,
    struct worker_plan **plans)
{
	const struct conf *conf = snapshot->conf;

	for (unsigned i = 0; i < d->worker_count; i++)
		worker_apply(&d->workers[i], plans[i]);
	free(plans);
	for (unsigned i = 0; i < d->worker_count; i++)
		while (sem_wait(&d->shared.reported) != 0)
			;	/* EINTR */
	sockets_keep(&d->sockets, snapshot);
	limits_set(d->shared.limits, daemon_max_sessions(d, conf), conf->limits.max_sessions_per_ip);
	kdf_set_failures_per_minute(d->shared.kdf, conf->auth.failures_per_minute);
	log_set_level(conf->log_level);
	if (access != d->access && d->access != NULL)
		accesslog_close(d->access, 0);
	d->access = access;
	snapshot_drop(d->snapshot);
	d->snapshot = snapshot;
}

static bool
reload(struct daemon *d, struct conf_problems *problems)
{
	struct snapshot *snapshot = load_again(d, problems);
	struct accesslog *access = d->access;
	struct worker_plan **plans;

	if (snapshot == NULL)
		return false;
	if (!same_access_log(&snapshot->conf->access_log, &d->snapshot->conf->access_log) &&
	    daemon_open_access(snapshot->conf, &access) != 0) {
		conf_problems_add(problems, CONF_ERROR, NULL, "access_log.path", "can't be opened: see the error log");
		snapshot_drop(snapshot);
		return false;
	}
	if ((plans = daemon_plans(d, snapshot, access, NULL)) == NULL) {
		conf_problems_add(problems, CONF_ERROR, NULL, "listen", "a listener can't be had: see the error log");
		if (access != d->access && access != NULL)
			accesslog_close(access, 0);
		snapshot_drop(snapshot);
		return false;
	}
	put_in_force(d, snapshot, access, plans);
	return true;
}

static void
on_hup(struct daemon *d)
{
	struct conf_problems problems = { 0 };
	bool ok;

	sdnotify_reloading();
	status_busy(&d->status);
	if ((ok = reload(d, &problems))) {
		log_info(LOG_C_NONE, log_main, "reloaded generation=%u", d->snapshot->generation);
		daemon_log_listeners(d->snapshot);
	} else {
		d->reloads_failed++;
		log_error(LOG_C_NONE, log_main,
		    "reload refused: the running configuration stays generation=%u refused=%u",
		    d->snapshot->generation, d->reloads_failed);
	}
	status_done(&d->status, ok, &problems);
	conf_problems_free(&problems);
	sdnotify_ready(ok ? "serving" : "serving; the last reload was refused");
}

/* ---- hand-over ---- */

/* The new program serves from our sockets before we let go of them: no connection is refused. */
static bool
hand_over(struct daemon *d)
{
	struct activation_handover h = { .pid_fd = d->pidfile.fd, .managed = d->managed };
	struct activation_child child = { .ready_fd = -1 };
	char text[ACTIVATION_TEXT_MAX] = "", why[BACKGROUND_TEXT_MAX] = "";
	int *fds = sockets_fds(&d->sockets, &h.count);
	enum background_verdict v = BACKGROUND_FAILED;

	h.fds = fds;
	if (fds == NULL || d->program == NULL)
		log_error(LOG_C_NONE, log_main, "upgrade: no memory, or the program is not to be found");
	else if (activation_spawn(d->program, d->start->argv, &h, &child, text) != 0)
		log_error(LOG_C_NONE, log_main, "upgrade: %s", text);
	else if ((v = background_look(child.ready_fd, HANDOVER_S * 1000, why)) != BACKGROUND_READY) {
		log_error(LOG_C_NONE, log_main, "upgrade: the new process does not serve pid=%ld cause=\"%s\"",
		    (long)child.pid, v == BACKGROUND_STARTING ? "too slow" : why[0] != '\0' ? why :
		    "it ended; its own messages stand above");
		kill(child.pid, SIGKILL);
	}
	if (child.ready_fd != -1)
		close(child.ready_fd);
	free(fds);
	if (v != BACKGROUND_READY)
		return false;
	d->handed_over = true;
	sdnotify_handed_over(child.pid);
	log_info(LOG_C_NONE, log_main, "upgraded: the new process serves pid=%ld", (long)child.pid);
	return true;
}

/* ---- at any time, while draining too ---- */

static void
on_usr1(struct daemon *d)
{
	int rc;

	if (d->access != NULL && (rc = accesslog_reopen(d->access)) != 0)
		log_error(LOG_C_NONE, log_main, "access log not opened again: %s", strerror(-rc));
	else
		log_info(LOG_C_NONE, log_main, d->access != NULL ? "access log opened again" :
		    "SIGUSR1: there is no access log");
}

static void
reap(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

/* ---- drain ---- */

/* Whoever asks for a reload or an upgrade now is told that it is too late. */
static void
refuse(struct daemon *d, int sig)
{
	struct conf_problems problems = { 0 };

	log_warn(LOG_C_NONE, log_main, "%s refused: draining", sig == SIGHUP ? "reload" : "upgrade");
	if (sig != SIGHUP)
		return;
	status_busy(&d->status);
	conf_problems_add(&problems, CONF_ERROR, NULL, NULL, "draining: nothing is loaded any more");
	status_done(&d->status, false, &problems);
	conf_problems_free(&problems);
}

/* All sessions gone, or a signal, or the time is up: whichever comes first. */
static bool
wait_for_end(struct daemon *d, uint32_t seconds)
{
	uint64_t left_ms = seconds * UINT64_C(1000);

	while (limits_sessions(d->shared.limits) != 0) {
		struct timespec ts = { 0, LOOK_MS * 1000000L };
		int sig;

		if (left_ms < LOOK_MS)
			return false;
		switch (sig = sigtimedwait(&d->signals, NULL, &ts)) {
		case SIGINT:
		case SIGTERM:
			return false;
		case SIGUSR1:
			on_usr1(d);
			break;
		case SIGHUP:
		case SIGUSR2:
			refuse(d, sig);
			break;
		case SIGCHLD:
			reap();
			break;
		default:
			left_ms -= LOOK_MS;
			break;
		}
	}
	return true;
}

static void
drain(struct daemon *d, const char *why)
{
	uint32_t timeout_s = d->snapshot->conf->shutdown_timeout_s;

	log_info(LOG_C_NONE, log_main, "draining cause=%s sessions=%u timeout_s=%u", why,
	    limits_sessions(d->shared.limits), timeout_s);
	if (!d->handed_over)
		sdnotify_stopping("draining");
	each_worker(d, worker_drain);
	sockets_close(&d->sockets, !d->handed_over && !d->managed);
	if (!wait_for_end(d, timeout_s)) {
		log_warn(LOG_C_NONE, log_main, "ending sessions that are left sessions=%u",
		    limits_sessions(d->shared.limits));
		each_worker(d, worker_abort);
	}
}

/* ---- signals ---- */

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* The next signal; between them the statistics, whose interval no signal begins anew. */
static int
next_signal(struct daemon *d)
{
	for (;;) {
		uint64_t interval_ms = d->snapshot->conf->stats_interval_s * UINT64_C(1000);
		uint64_t passed_ms = now_ms() - d->stats_ms;
		int sig;

		if (interval_ms == 0) {
			sig = sigwaitinfo(&d->signals, NULL);
		} else if (passed_ms >= interval_ms) {
			daemon_log_counters(d, "stats");
			d->stats_ms += passed_ms;
			continue;
		} else {
			uint64_t left_ms = interval_ms - passed_ms;
			struct timespec ts = { (time_t)(left_ms / 1000), (long)(left_ms % 1000) * 1000000 };

			sig = sigtimedwait(&d->signals, NULL, &ts);
		}
		if (sig > 0)
			return sig;
	}
}

void
daemon_serve(struct daemon *d)
{
	d->stats_ms = now_ms();
	for (;;) {
		switch (next_signal(d)) {
		case SIGHUP:
			on_hup(d);
			break;
		case SIGUSR1:
			on_usr1(d);
			break;
		case SIGUSR2:
			sdnotify_reloading();
			if (hand_over(d)) {
				drain(d, "upgrade");
				return;
			}
			sdnotify_ready("serving; the last upgrade failed");
			break;
		case SIGCHLD:
			reap();
			break;
		case SIGINT:
			drain(d, "SIGINT");
			return;
		case SIGTERM:
			drain(d, "SIGTERM");
			return;
		}
	}
}

/* SPDX-License-Identifier: ISC */
/* Set up, run the mode, print the last line. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "conn.h"
#include "cpu.h"
#include "pattern.h"

void
print_latency(const struct load *l, const char *count, const char *rate, uint64_t n)
{
	const struct histogram *h = &l->window.latency;

	printf(",\"%s\":%llu,\"%s\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f", count,
	    (unsigned long long)n, rate, (double)n / l->window.seconds,
	    (double)histogram_quantile(h, 0.5) / 1e3, (double)histogram_quantile(h, 0.99) / 1e3);
}

static void
print_result(const struct load *l)
{
	static const char *const vias[] = { "plain", "socks5", "connect", "http" };
	const struct options *opt = &l->opt;

	printf("{\"mode\":\"%s\",\"via\":\"%s\",\"conns\":%u,\"seconds\":%.4f,\"errors\":%llu",
	    opt->mode->name, vias[opt->via], opt->conns, l->window.seconds,
	    (unsigned long long)l->res.errors);
	if (opt->mode->print != NULL)
		opt->mode->print(l);
	if (opt->pid_count > 0)
		printf(",\"cpu_s\":%.6f", l->window.cpu_s);
	printf(",\"load_cpu_s\":%.6f,\"checked\":%s}\n", l->window.load_cpu_s,
	    l->res.checked ? "true" : "false");
}

/* Two descriptors a tunnel. */
static void
raise_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl) < 0)
		fprintf(stderr, "load: RLIMIT_NOFILE: %s\n", strerror(errno));
}

int
main(int argc, char **argv)
{
	struct load *l = calloc(1, sizeof(*l));
	int rc;

	if (l == NULL || (l->scratch = malloc(SCRATCH_BYTES)) == NULL)
		fatal("out of memory");
	parse_options(&l->opt, argc, argv);
	signal(SIGPIPE, SIG_IGN);
	raise_files();
	if (l->opt.cpu >= 0 && (rc = cpu_pin(l->opt.cpu)) < 0)
		fatal("--cpu %d: %s", l->opt.cpu, strerror(-rc));
	pattern_init();
	l->blocking = l->opt.sleep;
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0)
		fatal("epoll_create1: %s", strerror(errno));
	l->phase = "start";
	conn_setup(l);
	l->opt.mode->run(l);
	print_result(l);
	free(l->scratch);
	free(l->listening);
	free(l->clients);
	free(l);
	return fflush(stdout) == 0 ? 0 : 1;
}

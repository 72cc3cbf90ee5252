/* SPDX-License-Identifier: ISC */
/* The command line. */
#include <arpa/inet.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"
#include "message.h"

static const char usage[] =
    "usage: load MODE [OPTION]...\n"
    "  MODE: bulk | ping | churn | idle | idle-clients | udp\n"
    "  --via plain|socks5|connect|http  how the proxy is told where to connect (plain: it knows)\n"
    "  --proxy HOST:PORT    an IPv4 address; without it: straight to the origin\n"
    "  --origin-port P      of the origin on 127.0.0.1, which is played too; 0: any\n"
    "  --conns N, --assocs N\n"
    "  --seconds S          of the window, after --warmup S\n"
    "  --cpu C              run on this CPU only\n"
    "  --pid P              a process of the proxy: its CPU and its children's is reported;\n"
    "                       may be given several times\n"
    "  --payload BYTES      of a request and response, or of a datagram\n"
    "  --window N           datagrams under way per association\n"
    "  --gso 0|1            datagrams are sent and taken in batches by the kernel\n"
    "  --down [0|1]         the origin sends (bulk, udp)\n"
    "  --cc NAME            congestion control of the sockets here (cubic)\n"
    "  --check              bulk: first move 8 MiB a stream both ways and compare every byte\n"
    "  --no-half-close      --check without a stream that is ended on one side only\n"
    "  --sleep              wait for events instead of spinning\n"
    "It ends with 1, and says why, when something is stuck or can't be set up.  Otherwise with 0\n"
    "and one line of JSON, whose errors is not 0 if an answer was wrong or a connection broke.\n";

static const struct mode *const modes[] = {
	&mode_bulk, &mode_ping, &mode_churn, &mode_idle, &mode_idle_clients, &mode_udp,
};

enum {
	O_VIA, O_PROXY, O_ORIGIN_PORT, O_CONNS, O_SECONDS, O_WARMUP, O_CPU, O_PID, O_PAYLOAD,
	O_WINDOW, O_GSO, O_DOWN, O_CC, O_CHECK, O_NO_HALF_CLOSE, O_SLEEP, O_HELP,
};

static const struct option longs[] = {
	{ "via", required_argument, NULL, O_VIA },
	{ "proxy", required_argument, NULL, O_PROXY },
	{ "origin-port", required_argument, NULL, O_ORIGIN_PORT },
	{ "conns", required_argument, NULL, O_CONNS },
	{ "assocs", required_argument, NULL, O_CONNS },
	{ "seconds", required_argument, NULL, O_SECONDS },
	{ "warmup", required_argument, NULL, O_WARMUP },
	{ "cpu", required_argument, NULL, O_CPU },
	{ "pid", required_argument, NULL, O_PID },
	{ "payload", required_argument, NULL, O_PAYLOAD },
	{ "window", required_argument, NULL, O_WINDOW },
	{ "gso", required_argument, NULL, O_GSO },
	{ "down", optional_argument, NULL, O_DOWN },
	{ "cc", required_argument, NULL, O_CC },
	{ "check", no_argument, NULL, O_CHECK },
	{ "no-half-close", no_argument, NULL, O_NO_HALF_CLOSE },
	{ "sleep", no_argument, NULL, O_SLEEP },
	{ "help", no_argument, NULL, O_HELP },
	{ NULL, 0, NULL, 0 },
};

static double
number(const char *name, const char *text, double min, double max)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end != '\0' || !(v >= min && v <= max))
		fatal("--%s %s: not a number from %g to %g", name, text, min, max);
	return v;
}

static enum via
via_of(const char *text)
{
	static const char *const names[] = { "plain", "socks5", "connect", "http" };

	for (int i = 0; i < 4; i++)
		if (strcmp(text, names[i]) == 0)
			return (enum via)i;
	fatal("--via %s: not one of plain, socks5, connect, http", text);
}

static void
parse_proxy(struct options *opt, const char *text)
{
	const char *colon = strrchr(text, ':');
	char host[INET_ADDRSTRLEN];

	if (colon == NULL || (size_t)(colon - text) >= sizeof(host))
		fatal("--proxy %s: not ADDRESS:PORT", text);
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	if (strcmp(host, "localhost") == 0)
		strcpy(host, "127.0.0.1");
	opt->proxy.sin_family = AF_INET;
	opt->proxy.sin_port = htons((uint16_t)number("proxy", colon + 1, 1, 65535));
	if (inet_pton(AF_INET, host, &opt->proxy.sin_addr) != 1)
		fatal("--proxy %s: not an IPv4 address", text);
}

static void
set(struct options *opt, const char *name, int which, const char *arg)
{
	switch (which) {
	case O_VIA: opt->via = via_of(arg); break;
	case O_PROXY: parse_proxy(opt, arg); break;
	case O_ORIGIN_PORT: opt->origin_port = (uint16_t)number(name, arg, 0, 65535); break;
	case O_CONNS: opt->conns = (unsigned)number(name, arg, 1, 100000); break;
	case O_SECONDS: opt->seconds = number(name, arg, 0.01, 3600); break;
	case O_WARMUP: opt->warmup = number(name, arg, 0, 3600); break;
	case O_CPU: opt->cpu = (int)number(name, arg, 0, 1023); break;
	case O_PAYLOAD:
		opt->payload = (size_t)number(name, arg, MESSAGE_HEAD_BYTES, MESSAGE_MAX);
		break;
	case O_WINDOW: opt->window = (unsigned)number(name, arg, 1, 512); break;
	case O_GSO: opt->gso = number(name, arg, 0, 1) > 0; break;
	case O_DOWN: opt->down = arg == NULL || number(name, arg, 0, 1) > 0; break;
	case O_CC: opt->congestion = arg; break;
	case O_CHECK: opt->check = true; break;
	case O_NO_HALF_CLOSE: opt->half_close = false; break;
	case O_SLEEP: opt->sleep = true; break;
	case O_PID:
		if (opt->pid_count == PIDS_MAX)
			fatal("more than %d of --pid", PIDS_MAX);
		opt->pids[opt->pid_count++] = (int)number(name, arg, 1, 1 << 30);
		break;
	case O_HELP:
		fputs(usage, stdout);
		exit(0);
	}
}

void
parse_options(struct options *opt, int argc, char **argv)
{
	int which, at;

	*opt = (struct options){ .conns = 1, .seconds = 2, .warmup = 0.4, .cpu = -1,
	    .congestion = "cubic", .half_close = true };
	/* --down takes its value with a blank too, which getopt_long can't do. */
	while ((which = getopt_long(argc, argv, "", longs, &at)) != -1) {
		if (which == '?')
			fatal("see --help");
		if (which == O_DOWN && optarg == NULL && argv[optind] != NULL &&
		    (strcmp(argv[optind], "0") == 0 || strcmp(argv[optind], "1") == 0))
			optarg = argv[optind++];
		set(opt, longs[at].name, which, optarg);
	}
	if (optind + 1 != argc) {
		fputs(usage, stderr);
		exit(1);
	}
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i]->name, argv[optind]) == 0)
			opt->mode = modes[i];
	if (opt->mode == NULL)
		fatal("%s: no such mode", argv[optind]);
	if (opt->payload == 0)
		opt->payload = opt->mode->payload;
	if (opt->via == VIA_HTTP)
		fatal("--via http: not there yet");
	if (opt->mode == &mode_udp && opt->via != VIA_SOCKS5)
		fatal("mode udp needs --via socks5");
	if ((opt->via != VIA_PLAIN || opt->mode == &mode_idle_clients) && opt->proxy.sin_port == 0)
		fatal("--proxy is missing");
}

/* SPDX-License-Identifier: ISC */
/* The command line, the configuration, then the daemon. */
#include <ares.h>
#include <stdio.h>
#include <yaml.h>
#if RW_HAVE_URING
#include <liburing.h>
#endif

#include "cli.h"
#include "daemon.h"
#include "io/io.h"

static void
print_version(void)
{
	struct io_choice c;
	int rc = io_choose(&c, "auto", -1);

	printf("ringway %s\n", RW_VERSION);
	printf("backends compiled: %s\n", io_backends_compiled());
	printf("backend used here: %s\n", rc == 0 ? io_choice_name(&c) : "none");
	if (c.why[0] != '\0')
		printf("passed over: %s\n", c.why);
	printf("libraries: libyaml %s, c-ares %s", yaml_get_version_string(), ares_version(NULL));
#if RW_HAVE_URING && defined(IO_URING_VERSION_MAJOR)
	printf(", liburing %d.%d", IO_URING_VERSION_MAJOR, IO_URING_VERSION_MINOR);
#elif RW_HAVE_URING
	printf(", liburing");
#endif
	printf("\n");
}

/* Once a process, before any thread (C30); --check asks it too, as it decides whether we'd start. */
static int
choose_backend(const struct conf *conf, struct io_choice *choice, struct conf_problems *problems)
{
	int rc = io_choose(choice, conf_backend_name(conf->backend), -1);

	if (rc != 0)
		conf_problems_add(problems, CONF_ERROR, NULL, "backend", "%s can't be used here: %s",
		    conf_backend_name(conf->backend), choice->why);
	return rc;
}

static int
run(const struct cli *cli)
{
	struct conf_problems problems = { 0 };
	struct conf *conf = NULL;
	struct io_choice choice;
	int rc;

	rc = conf_from_cli(cli, &conf, &problems);
	if (rc == 0)
		rc = choose_backend(conf, &choice, &problems);
	if (cli->action == CLI_CHECK)
		rc = cli_check_report(cli, &problems, stdout);
	else {
		conf_problems_print(&problems, stderr);
		if (rc == 0) {
			log_set_level(conf->log_level);
			rc = daemon_run(conf, &choice);
		} else
			rc = CLI_EXIT_FAIL;
	}
	conf_problems_free(&problems);
	conf_free(conf);
	return rc;
}

int
main(int argc, char **argv)
{
	struct cli cli;
	int rc = CLI_EXIT_OK;

	switch (cli_parse(&cli, argc, argv, stderr)) {
	case CLI_HELP:
		cli_usage(stdout);
		break;
	case CLI_VERSION:
		print_version();
		break;
	case CLI_USAGE_ERROR:
		rc = CLI_EXIT_USAGE;
		break;
	case CLI_RUN:
	case CLI_CHECK:
		rc = run(&cli);
		break;
	}
	cli_free(&cli);
	return rc;
}

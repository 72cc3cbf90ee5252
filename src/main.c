/* SPDX-License-Identifier: ISC */
/* The command line, the configuration, then the daemon. */
#include <ares.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <unistd.h>
#include <yaml.h>
#if RW_HAVE_URING
#include <liburing.h>
#endif

#include "cli.h"
#include "daemon.h"
#include "hash_password.h"
#include "io/io.h"
#include "policy/snapshot.h"
#include "privs.h"

/*
 * A standard stream that was closed before we were started would be the number
 * of the next socket, and the log would be written to a client.
 */
static int
keep_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static void
print_version(void)
{
	struct io_choice c;
	int rc = io_choose(&c, "auto", -1);

	printf("ringway %s\n", RW_VERSION);
	printf("backends compiled: %s\n", io_backends_compiled());
	printf("backend used here: %s%s\n", rc == 0 ? io_choice_name(&c) : "none",
	    rc == 0 && c.why[0] == '\0' ? " (the first choice, and it works here)" : "");
	if (c.why[0] != '\0')
		printf("passed over: %s\n", c.why);
	printf("libraries: libyaml %s, c-ares %s, OpenSSL %s", yaml_get_version_string(),
	    ares_version(NULL), OpenSSL_version(OPENSSL_VERSION_STRING));
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

static void
check_user(const struct conf *conf, struct conf_problems *problems)
{
	struct privs privs;
	char text[PRIVS_TEXT_MAX], where[256];
	const char *at = conf_where(conf, "user", where, sizeof where) ||
	    conf_where(conf, "group", where, sizeof where) ? where : NULL;

	if (privs_lookup(conf->user, conf->group, &privs, text) != 0)
		conf_problems_add(problems, CONF_ERROR, at, NULL, "%s", text);
	else if (privs_allowed(&privs, text) != 0)
		conf_problems_add(problems, CONF_WARNING, at, NULL, "%s", text);
}

static int
run(const struct cli *cli, char **argv, struct activation *inherited)
{
	struct daemon_start start = { .cli = cli, .argv = argv, .inherited = inherited };
	struct conf_problems problems = { 0 };
	struct conf *conf = NULL;
	struct io_choice choice;
	int rc;

	rc = conf_from_cli(cli, &conf, &problems);
	if (rc == 0)
		rc = choose_backend(conf, &choice, &problems);
	if (cli->action == CLI_CHECK) {
		if (rc == 0) {		/* what only the rules and users can be wrong about */
			check_user(conf, &problems);
			snapshot_drop(snapshot_new(conf, 0, &problems));
			conf = NULL;
		}
		rc = cli_check_report(cli, &problems, stdout);
	} else {
		conf_problems_print(&problems, stderr);
		if (rc == 0) {
			log_set_level(conf->log_level);
			start.conf = conf;
			start.choice = &choice;
			conf = NULL;
			rc = daemon_run(&start);
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
	struct activation inherited;
	char text[ACTIVATION_TEXT_MAX];
	struct cli cli;
	int rc = CLI_EXIT_OK;

	if (keep_standard_streams() != 0)
		return CLI_EXIT_FAIL;
	/* Before anything else is opened: descriptors that are not ours must be known. */
	if (activation_take(&inherited, text) != 0) {
		fprintf(stderr, "ringway: %s\n", text);
		activation_free(&inherited);
		return CLI_EXIT_FAIL;
	}

	switch (cli_parse(&cli, argc, argv, stderr)) {
	case CLI_HELP:
		cli_usage(stdout);
		break;
	case CLI_VERSION:
		print_version();
		break;
	case CLI_HASH_PASSWORD:
		rc = hash_password(cli.password);
		break;
	case CLI_USAGE_ERROR:
		rc = CLI_EXIT_USAGE;
		break;
	case CLI_RUN:
	case CLI_CHECK:
		rc = run(&cli, argv, &inherited);
		break;
	}
	cli_free(&cli);
	activation_free(&inherited);
	return rc;
}

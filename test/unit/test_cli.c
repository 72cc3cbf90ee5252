/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { WORDS_MAX = 16 };

static char told[4096];

/* Parses "a b c", split at spaces; what was printed is in `told`. */
static struct cli
parse(const char *line)
{
	static char words[1024];
	char *argv[WORDS_MAX + 1] = { "ringway" }, *save;
	FILE *err = fmemopen(told, sizeof(told), "w");
	struct cli cli;
	int argc = 1;

	snprintf(words, sizeof(words), "%s", line);
	for (char *word = strtok_r(words, " ", &save); word != NULL && argc < WORDS_MAX;
	    word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	told[0] = '\0';
	cli_parse(&cli, argc, argv, err);
	fclose(err);
	return cli;
}

Test(cli, nothing_means_run)
{
	struct cli cli = parse("");

	cr_expect_eq(cli.action, CLI_RUN);
	cr_expect_null(cli.config_file);
	cr_expect_eq(cli.override_count, 0u);
	cli_free(&cli);
}

Test(cli, each_spelling_of_an_option)
{
	static const char *const lines[] = {
		"-c x.yaml -l debug -b epoll -o workers=2",
		"-cx.yaml -ldebug -bepoll -oworkers=2",
		"--config x.yaml --log-level debug --backend epoll -o workers=2",
		"--config=x.yaml --log-level=debug --backend=epoll -o workers=2 --",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct cli cli = parse(lines[i]);

		cr_assert_eq(cli.action, CLI_RUN, "%s: %s", lines[i], told);
		cr_expect_str_eq(cli.config_file, "x.yaml");
		cr_assert_eq(cli.override_count, 3u);
		cr_expect_str_eq(cli.overrides[0].key, "log_level");
		cr_expect_str_eq(cli.overrides[0].value, "debug");
		cr_expect_str_eq(cli.overrides[1].key, "backend");
		cr_expect_str_eq(cli.overrides[2].key, "workers");
		cr_expect_str_eq(cli.overrides[2].value, "2");
		cli_free(&cli);
	}
}

Test(cli, actions)
{
	static const struct {
		const char	*line;
		enum cli_action	 action;
	} cases[] = {
		{ "-t x", CLI_CHECK }, { "--check=x", CLI_CHECK }, { "-V", CLI_VERSION },
		{ "--version", CLI_VERSION }, { "-h", CLI_HELP }, { "--help", CLI_HELP },
		{ "-Vh", CLI_HELP }, { "-h -V", CLI_HELP }, { "-V -t x", CLI_VERSION },
		{ "-t x -o workers=1", CLI_CHECK }, { "--hash-password", CLI_HASH_PASSWORD },
		{ "--hash-password=x", CLI_HASH_PASSWORD }, { "--hash-password -V", CLI_VERSION },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cli cli = parse(cases[i].line);

		cr_expect_eq(cli.action, cases[i].action, "%s", cases[i].line);
		cli_free(&cli);
	}
}

Test(cli, a_password_may_be_left_out)
{
	static const char *const cases[][2] = {
		{ "--hash-password", NULL }, { "--hash-password secret", "secret" },
		{ "--hash-password=secret", "secret" }, { "--hash-password=-x", "-x" },
		{ "--hash-password=", "" }, { "--hash-password --daemon", NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cli cli = parse(cases[i][0]);

		cr_expect_eq(cli.action, CLI_HASH_PASSWORD, "%s: %s", cases[i][0], told);
		if (cases[i][1] == NULL)
			cr_expect_null(cli.password, "%s", cases[i][0]);
		else
			cr_expect_str_eq(cli.password, cases[i][1]);
		cli_free(&cli);
	}
}

Test(cli, daemon_and_pid_file)
{
	struct conf_problems problems = { .count = 0 };
	struct cli cli = parse("--daemon --pid-file /run/a.pid -o pid_file=/run/b.pid --pid-file=x");
	struct conf *conf;

	cr_assert_eq(cli.action, CLI_RUN, "%s", told);
	cr_expect(cli.daemon);
	cr_expect_eq(cli.override_count, 3u);
	if (cli_config_path(&cli) == NULL) {
		cr_assert_eq(conf_from_cli(&cli, &conf, &problems), 0);
		cr_expect_str_eq(conf->pid_file, "x");
		conf_free(conf);
	}
	conf_problems_free(&problems);
	cli_free(&cli);
	cli = parse("");
	cr_expect_not(cli.daemon);
	cli_free(&cli);
}

Test(cli, mistakes_get_one_line_with_a_hint)
{
	static const char *const cases[][2] = {
		{ "--confg x", "ringway: unknown option \"--confg\" (did you mean --config?)\n" },
		{ "-x", "ringway: unknown option \"-x\" (try ringway --help)\n" },
		{ "-Vx", "ringway: unknown option \"-Vx\" (try ringway --help)\n" },
		{ "--zzzzzzz", "ringway: unknown option \"--zzzzzzz\" (try ringway --help)\n" },
		{ "-config x", NULL },
		{ "x.yaml", "ringway: unexpected argument \"x.yaml\" (try ringway --help)\n" },
		{ "-- x", NULL }, { "-", NULL }, { "--help=yes", NULL }, { "--=x", NULL },
		{ "-c", "ringway: a value is missing after \"-c\" (FILE)\n" },
		{ "--check", NULL }, { "-o", NULL }, { "--config=", NULL },
		{ "-o workers", "ringway: -o takes KEY=VALUE, not \"workers\" "
		    "(for example -o listen.0.port=8080)\n" },
		{ "-o =1", NULL }, { "-c a -t b", NULL }, { "-c a -c b", NULL },
		{ "-h --nonsense", NULL }, { "--daemon=yes", NULL },
		{ "--pid-file", "ringway: a value is missing after \"--pid-file\" (FILE)\n" },
		{ "--hash-password a b", NULL }, { "-\x01", NULL }, { "-\x03x", NULL },
		{ "--hash-pasword", "ringway: unknown option \"--hash-pasword\" "
		    "(did you mean --hash-password?)\n" }, { "\x1b[31m", NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cli cli = parse(cases[i][0]);

		/* "-config x" is -c with the file name "onfig", and then an argument too many. */
		cr_expect_eq(cli.action, CLI_USAGE_ERROR, "%s", cases[i][0]);
		cr_expect_eq(strchr(told, '\n'), told + strlen(told) - 1, "%s: %s", cases[i][0], told);
		cr_expect_null(strchr(told, '\x1b'));
		if (cases[i][1] != NULL)
			cr_expect_str_eq(told, cases[i][1]);
		cli_free(&cli);
	}
}

Test(cli, help_names_every_option)
{
	char text[4096] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	cli_usage(out);
	fclose(out);
	for (const char *const *name = (const char *const []){ "-c, --config FILE",
	    "-l, --log-level LEVEL", "-b, --backend NAME", "-o KEY=VALUE", "-t, --check FILE",
	    "    --daemon ", "    --pid-file FILE", "    --hash-password [PW]", "-V, --version",
	    "-h, --help", NULL }; *name != NULL; name++)
		cr_expect_not_null(strstr(text, *name), "%s", *name);
}

/* A file with this text, named in `path`. */
static void
write_file(char path[64], const char *text)
{
	int fd;

	strcpy(path, "/tmp/ringway-cli-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

Test(cli, overrides_win_over_the_file_and_the_file_over_the_defaults)
{
	struct conf_problems problems = { .count = 0 };
	char path[64], line[256];
	struct conf *conf;
	struct cli cli;

	write_file(path, "workers: 3\nlog_level: error\nbackend: io_uring\n"
	    "listen:\n  - port: 2000\nlimits: { idle_timeout_s: 7 }\n");
	snprintf(line, sizeof(line), "-l debug -c %s -b epoll -o listen.0.port=2001 "
	    "-o listen.1.addr=::1 -o workers=4 -o workers=5", path);
	cli = parse(line);
	cr_assert_eq(conf_from_cli(&cli, &conf, &problems), 0);
	cr_expect_eq(conf->workers, 5u);
	cr_expect_eq(conf->log_level, LOG_DEBUG);
	cr_expect_eq(conf->backend, CONF_BACKEND_EPOLL);
	cr_assert_eq(conf->listen_count, 2u);
	cr_expect_eq(addr_port(&conf->listen[0].sock), 2001);
	cr_expect_eq(addr_port(&conf->listen[1].sock), 1080);
	cr_expect_eq(conf->limits.idle_timeout_s, 7u);
	cr_expect_eq(conf->limits.connect_timeout_s, 10u);
	conf_free(conf);
	conf_problems_free(&problems);
	cli_free(&cli);
	unlink(path);
}

Test(cli, problems_of_file_and_overrides_come_together)
{
	struct conf_problems problems = { .count = 0 };
	char path[64], line[256], text[4096] = "", want[512];
	struct conf *conf;
	struct cli cli;
	FILE *out;

	write_file(path, "wrokers: 3\n");
	snprintf(line, sizeof(line), "-t %s -l loud -o limits.header_count=1", path);
	cli = parse(line);
	cr_assert_eq(conf_from_cli(&cli, &conf, &problems), -EINVAL);
	cr_expect_null(conf);
	out = fmemopen(text, sizeof(text), "w");
	cr_expect_eq(cli_check_report(&cli, &problems, out), CLI_EXIT_FAIL);
	fclose(out);
	snprintf(want, sizeof(want), "%s:1:1: wrokers: unknown key (nearest known key: workers)\n"
	    "-l loud: log_level: \"loud\" is not known (one of error, warn, info, debug, trace)\n"
	    "-o limits.header_count=1: limits.header_count: \"1\" is out of range "
	    "(a whole number of fields from 10 to 10000)\n"
	    "%s: ringway would not start: 3 errors\n", path, path);
	cr_expect_str_eq(text, want);
	conf_problems_free(&problems);
	cli_free(&cli);
	unlink(path);
}

Test(cli, a_good_file_is_called_good)
{
	struct conf_problems problems = { .count = 0 };
	char path[64], line[256], text[1024] = "", want[128];
	struct conf *conf;
	struct cli cli;
	FILE *out;

	write_file(path, "workers: 3\nlisten: [ { addr: 192.0.2.1 } ]\n");
	snprintf(line, sizeof(line), "--check %s", path);
	cli = parse(line);
	cr_assert_eq(conf_from_cli(&cli, &conf, &problems), 0);
	out = fmemopen(text, sizeof(text), "w");
	cr_expect_eq(cli_check_report(&cli, &problems, out), CLI_EXIT_OK);
	fclose(out);
	snprintf(want, sizeof(want), "%s: ringway would start: 2 warnings\n", path);
	cr_expect_not_null(strstr(text, want), "%s", text);
	cr_expect_eq(strncmp(text, "warning: ", 9), 0);
	conf_free(conf);
	conf_problems_free(&problems);
	cli_free(&cli);
	unlink(path);
}

Test(cli, a_missing_file_is_an_error_only_when_it_was_named)
{
	struct conf_problems problems = { .count = 0 };
	struct cli cli = parse("-c /nonexistent/ringway.yaml");
	struct conf *conf;

	cr_expect_eq(conf_from_cli(&cli, &conf, &problems), -EINVAL);
	cli_free(&cli);
	conf_problems_free(&problems);
	if (access(RW_SYSCONFDIR "/ringway/ringway.yaml", F_OK) == 0)
		cr_skip_test("this machine has a configuration of its own");
	cli = parse("");
	cr_expect_null(cli_config_path(&cli));
	cr_expect_eq(conf_from_cli(&cli, &conf, &problems), 0);
	conf_free(conf);
	cli_free(&cli);
	conf_problems_free(&problems);
}

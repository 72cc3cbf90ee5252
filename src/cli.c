/* SPDX-License-Identifier: ISC */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/snapshot.h"
#include "util/str.h"

static const char default_config_path[] = RW_SYSCONFDIR "/ringway/ringway.yaml";

/* Those with a letter have it as their id. */
enum {
	OPTION_DAEMON = 1,
	OPTION_PID_FILE,
	OPTION_HASH_PASSWORD
};

static const struct option {
	char		 id;
	const char	*name;
	const char	*operand;	/* NULL = takes none; "[...]" = may be left out */
	const char	*help;
} options[] = {
	{ 'c', "config", "FILE", "configuration file" },
	{ 'l', "log-level", "LEVEL", "error, warn, info, debug or trace; over the file's" },
	{ 'b', "backend", "NAME", "auto, io_uring or epoll; over the file's" },
	{ 'o', NULL, "KEY=VALUE", "set one key over the file's, for example -o listen.0.port=8080" },
	{ 't', "check", "FILE", "print every problem in FILE and whether it would start" },
	{ OPTION_DAEMON, "daemon", NULL, "go to the background once the listeners are open" },
	{ OPTION_PID_FILE, "pid-file", "FILE", "write the process id there; over the file's" },
	{ OPTION_HASH_PASSWORD, "hash-password", "[PW]",
	    "print a password record; without PW, ask or read a line" },
	{ 'V', "version", NULL, "print the version, the backends and the one used here" },
	{ 'h', "help", NULL, "print this" },
};

enum { OPTION_COUNT = sizeof(options) / sizeof(options[0]) };

static bool
has_letter(const struct option *option)
{
	return option->id >= 'A';
}

void
cli_usage(FILE *out)
{
	fputs("usage: ringway [options]\n"
	    "       ringway -t FILE [options]\n"
	    "       ringway --hash-password [PW]\n\n", out);
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		const struct option *option = &options[i];
		char letter[] = { '-', option->id, '\0' }, left[40];

		if (!has_letter(option))
			strcpy(letter, "  ");
		snprintf(left, sizeof(left), "%s%s%s%s%s", letter,
		    option->name == NULL ? "" : has_letter(option) ? ", --" : "  --",
		    option->name != NULL ? option->name : "",
		    option->operand != NULL ? " " : "",
		    option->operand != NULL ? option->operand : "");
		fprintf(out, "  %-24s %s\n", left, option->help);
	}
	fprintf(out, "\nWithout -c, %s is read if it is there; otherwise SOCKS5 and\n"
	    "HTTP are served on 127.0.0.1:1080 and [::1]:1080.\n"
	    "Exit status: 0 ok, 1 could not start or run, 2 wrong command line.\n"
	    "See ringway(8) and ringway.yaml(5).\n", default_config_path);
}

static const struct option *
find_letter(char letter)
{
	for (size_t i = 0; i < OPTION_COUNT; i++)
		if (has_letter(&options[i]) && options[i].id == letter)
			return &options[i];
	return NULL;
}

static const struct option *
find_name(struct span name)
{
	for (size_t i = 0; i < OPTION_COUNT; i++)
		if (options[i].name != NULL && span_is(name, options[i].name))
			return &options[i];
	return NULL;
}

/* One line and a hint; always false. */
static bool
usage_error(FILE *err, const char *what, const char *about, const char *hint)
{
	char quoted[STR_QUOTED_MAX];

	fprintf(err, "ringway: %s %s (%s)\n", what, str_quote(span_str(about), quoted), hint);
	return false;
}

static bool
unknown_option(FILE *err, const char *arg, struct span name)
{
	const char *nearest = NULL;
	unsigned distance, best = 3;	/* more than two slips are another word */
	char hint[64];

	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (options[i].name == NULL)
			continue;
		distance = str_distance(name, span_str(options[i].name));
		if (distance < best) {
			best = distance;
			nearest = options[i].name;
		}
	}
	if (nearest == NULL)
		return usage_error(err, "unknown option", arg, "try ringway --help");
	snprintf(hint, sizeof(hint), "did you mean --%s?", nearest);
	return usage_error(err, "unknown option", arg, hint);
}

static bool
add_override(struct cli *cli, const char *spelling, struct span key, const char *value, FILE *err)
{
	struct cli_override *grown;
	char *copy = strndup(key.base, key.len);

	grown = reallocarray(cli->overrides, cli->override_count + 1, sizeof(*grown));
	if (grown != NULL)
		cli->overrides = grown;
	if (grown == NULL || copy == NULL) {
		free(copy);
		fputs("ringway: out of memory\n", err);
		return false;
	}
	grown[cli->override_count++] = (struct cli_override){ spelling, copy, value };
	return true;
}

/* The last wish wins, but help over version over everything else. */
static void
set_action(struct cli *cli, enum cli_action action)
{
	if (cli->action != CLI_HELP && (cli->action != CLI_VERSION || action == CLI_HELP))
		cli->action = action;
}

static bool
apply(struct cli *cli, const struct option *option, const char *operand, FILE *err)
{
	const char *equals;

	switch (option->id) {
	case 't':
	case 'c':
		if (cli->config_file != NULL)
			return usage_error(err, "a second configuration file,", operand,
			    "give one, with -c or with -t");
		if (operand[0] == '\0')
			return usage_error(err, "no file name:", operand, "ringway --help tells more");
		cli->config_file = operand;
		if (option->id == 't')
			set_action(cli, CLI_CHECK);
		return true;
	case 'l':
		return add_override(cli, "-l", span_str("log_level"), operand, err);
	case 'b':
		return add_override(cli, "-b", span_str("backend"), operand, err);
	case OPTION_PID_FILE:
		return add_override(cli, "--pid-file", span_str("pid_file"), operand, err);
	case 'o':
		equals = strchr(operand, '=');
		if (equals == NULL || equals == operand)
			return usage_error(err, "-o takes KEY=VALUE, not", operand,
			    "for example -o listen.0.port=8080");
		return add_override(cli, NULL, span_of(operand, (size_t)(equals - operand)),
		    equals + 1, err);
	case OPTION_DAEMON:
		cli->daemon = true;
		return true;
	case OPTION_HASH_PASSWORD:
		cli->password = operand;
		set_action(cli, CLI_HASH_PASSWORD);
		return true;
	case 'V':
		set_action(cli, CLI_VERSION);
		return true;
	default:
		assert(option->id == 'h');
		set_action(cli, CLI_HELP);
		return true;
	}
}

struct words {
	int	  argc, at;	/* `at`: the word being looked at */
	char	**argv;
	FILE	 *err;
};

/* "--name", "--name=operand", "--name operand" */
static bool
parse_long(struct cli *cli, struct words *words)
{
	const char *arg = words->argv[words->at], *operand = strchr(arg, '=');
	struct span name = span_of(arg + 2, strcspn(arg + 2, "="));
	const struct option *option = find_name(name);

	if (option == NULL)
		return unknown_option(words->err, arg, name);
	if (operand != NULL)
		operand++;
	if (option->operand == NULL && operand != NULL)
		return usage_error(words->err, "nothing may follow the = in", arg,
		    "this option takes no value");
	if (option->operand != NULL && operand == NULL) {
		const char *next = words->at + 1 < words->argc ? words->argv[words->at + 1] : NULL;
		bool optional = option->operand[0] == '[';

		if (next == NULL && !optional)
			return usage_error(words->err, "a value is missing after", arg,
			    option->operand);
		/* What looks like an option is one; after = it is not. */
		if (next != NULL && !(optional && next[0] == '-')) {
			operand = next;
			words->at++;
		}
	}
	return apply(cli, option, operand, words->err);
}

/* "-c FILE", "-cFILE", and letters without operands together: "-hV" */
static bool
parse_short(struct cli *cli, struct words *words)
{
	const char *arg = words->argv[words->at];

	for (const char *at = arg + 1; *at != '\0'; at++) {
		const struct option *option = find_letter(*at);
		const char *operand = at + 1;

		if (option == NULL)
			return unknown_option(words->err, arg, span_str(arg + 1));
		if (option->operand == NULL) {
			if (!apply(cli, option, NULL, words->err))
				return false;
			continue;
		}
		if (*operand == '\0') {
			if (++words->at >= words->argc)
				return usage_error(words->err, "a value is missing after", arg,
				    option->operand);
			operand = words->argv[words->at];
		}
		return apply(cli, option, operand, words->err);
	}
	return true;
}

enum cli_action
cli_parse(struct cli *cli, int argc, char **argv, FILE *err)
{
	struct words words = { argc, 1, argv, err };
	bool ok = true;

	*cli = (struct cli){ .action = CLI_RUN };
	for (; ok && words.at < argc; words.at++) {
		const char *arg = argv[words.at];

		if (strcmp(arg, "--") == 0 && words.at + 1 == argc)
			break;
		if (strncmp(arg, "--", 2) == 0 && arg[2] != '\0')
			ok = parse_long(cli, &words);
		else if (arg[0] == '-' && arg[1] != '\0' && arg[1] != '-')
			ok = parse_short(cli, &words);
		else
			ok = usage_error(err, "unexpected argument", arg, "try ringway --help");
	}
	if (!ok)
		cli->action = CLI_USAGE_ERROR;
	return cli->action;
}

void
cli_free(struct cli *cli)
{
	for (size_t i = 0; i < cli->override_count; i++)
		free(cli->overrides[i].key);
	free(cli->overrides);
	cli->overrides = NULL;
	cli->override_count = 0;
}

const char *
cli_config_path(const struct cli *cli)
{
	if (cli->config_file != NULL)
		return cli->config_file;
	/* A file that is there but can't be read is an error, not a reason for the defaults. */
	return access(default_config_path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR) ?
	    default_config_path : NULL;
}

static void
apply_override(const struct cli_override *override, struct conf *conf,
    struct conf_problems *problems)
{
	char where[256];

	if (override->spelling == NULL) {
		conf_set(conf, override->key, override->value, problems);
		return;
	}
	snprintf(where, sizeof(where), "%s %s", override->spelling, override->value);
	conf_set_from(conf, where, override->key, override->value, problems);
}

int
conf_from_cli(const struct cli *cli, struct conf **out, struct conf_problems *problems)
{
	const char *path = cli_config_path(cli);
	struct conf *conf = conf_new();
	size_t errors_before = problems->errors;

	*out = NULL;
	if (conf == NULL) {
		conf_problems_add(problems, CONF_ERROR, NULL, NULL, "out of memory");
		return -EINVAL;
	}
	/* All of it in any case: whoever wrote the file wants to see everything at once. */
	if (path != NULL)
		conf_load_file(conf, path, problems);
	for (size_t i = 0; i < cli->override_count; i++)
		apply_override(&cli->overrides[i], conf, problems);
	conf_validate(conf, problems);
	if (problems->errors != errors_before) {
		/* Rules, users and lists can be wrong as well: for the same reason. */
		snapshot_drop(snapshot_new(conf, 0, problems));
		return -EINVAL;
	}
	*out = conf;
	return 0;
}

static void
put_count(FILE *out, const char *before, size_t count, const char *what)
{
	fprintf(out, "%s%zu %s%s", before, count, what, count == 1 ? "" : "s");
}

int
cli_check_report(const struct cli *cli, const struct conf_problems *problems, FILE *out)
{
	bool good = problems->errors == 0;

	conf_problems_print(problems, out);
	fprintf(out, "%s: ringway would %s", cli->config_file, good ? "start" : "not start");
	if (!good)
		put_count(out, ": ", problems->errors, "error");
	if (problems->warnings != 0)
		put_count(out, good ? ": " : ", ", problems->warnings, "warning");
	fputc('\n', out);
	return good ? CLI_EXIT_OK : CLI_EXIT_FAIL;
}

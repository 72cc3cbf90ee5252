/* SPDX-License-Identifier: ISC */
/*
 * cli: the command line.  cli_parse() only reads it; main acts on the result.
 * Never exits; the messages of a wrong command line go to the stream it is given.
 */
#ifndef RW_CLI_H
#define RW_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "conf/conf.h"

enum cli_action {
	CLI_RUN,
	CLI_CHECK,		/* -t FILE: problems and warnings, then the verdict */
	CLI_HASH_PASSWORD,	/* prints a password record */
	CLI_VERSION,
	CLI_HELP,
	CLI_USAGE_ERROR		/* already told; exit CLI_EXIT_USAGE */
};

enum {
	CLI_EXIT_OK	= 0,
	CLI_EXIT_FAIL	= 1,	/* could not start or run; --check: would not start */
	CLI_EXIT_USAGE	= 2
};

/* In the order of the command line; the last one for a key wins. */
struct cli_override {
	const char	*spelling;	/* "-l", "--pid-file"; NULL = -o */
	char		*key;
	const char	*value;		/* into argv */
};

struct cli {
	enum cli_action		 action;
	const char		*config_file;	/* -c or -t; NULL = not given; into argv */
	bool			 daemon;	/* --daemon */
	const char		*password;	/* of --hash-password; NULL = not given; into argv */
	struct cli_override	*overrides;
	size_t			 override_count;
};

/* Always fills `cli`; free with cli_free().  Returns cli->action. */
enum cli_action	cli_parse(struct cli *, int argc, char **argv, FILE *err);
void		cli_free(struct cli *);
void		cli_usage(FILE *);

/*
 * Defaults, then the file, then the overrides, then the checks.  0 with *out
 * set, or -EINVAL with *out NULL and errors in the list.  Warnings may be added
 * in both cases.  The caller frees *out with conf_free().
 */
int	conf_from_cli(const struct cli *, struct conf **out, struct conf_problems *);
/* The file that conf_from_cli() reads, or NULL when it uses the defaults. */
const char	*cli_config_path(const struct cli *);

/*
 * What --check prints: every problem, then one line with the verdict.  Returns
 * the exit code.  main may add problems of its own first (backend, port in use).
 */
int	cli_check_report(const struct cli *, const struct conf_problems *, FILE *);

#endif

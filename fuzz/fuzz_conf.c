/* SPDX-License-Identifier: ISC */
/*
 * A configuration file, and -o: whatever the bytes, it ends with a bounded list
 * of problems, each one line with its place; what is accepted can be dumped.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void
check_problems(const struct conf_problems *problems)
{
	assert(problems->count <= CONF_PROBLEMS_MAX);
	assert(problems->count <= problems->errors + problems->warnings);
	for (size_t i = 0; i < problems->count; i++) {
		const char *text = problems->list[i].text;

		assert(strncmp(text, "FILE:", 5) == 0 || strncmp(text, "-o ", 3) == 0 ||
		    strncmp(text, "listen.1.", 9) == 0);	/* a default made wrong by -o */
		for (; *text != '\0'; text++)
			assert((unsigned char)*text >= 0x20 && *text != 0x7f);
	}
}

/* "path\nvalue" as -o. */
static void
set_one(struct conf *conf, const uint8_t *data, size_t size, struct conf_problems *problems)
{
	char *text = strndup((const char *)data, size);
	char *value = text != NULL ? strchr(text, '\n') : NULL;

	if (value != NULL) {
		*value++ = '\0';
		conf_set(conf, text, value, problems);
	}
	free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct conf_env env = { .nofile_hard = 1024, .net_admin = false };
	struct conf_problems problems = { .count = 0 };
	struct conf *conf = conf_new();
	char *text = NULL;
	size_t text_bytes;
	FILE *out;

	assert(conf != NULL);
	if (size != 0 && data[0] == '=')
		set_one(conf, data + 1, size - 1, &problems);
	else
		assert((conf_load_text(conf, "FILE", data, size, &problems) == 0) ==
		    (problems.errors == 0));
	conf_validate_in(conf, &env, &problems);
	check_problems(&problems);
	if (problems.errors == 0)
		assert(conf->listen_count != 0);
	out = open_memstream(&text, &text_bytes);
	assert(out != NULL);
	conf_dump(conf, out);
	fclose(out);
	free(text);
	conf_problems_free(&problems);
	conf_free(conf);
	return 0;
}

/* SPDX-License-Identifier: ISC */
/* man/ringway.yaml.5 and the schema say the same. */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/schema.h"

static FILE *
open_page(void)
{
	const char *dir = getenv("RW_SRCDIR");
	char path[512];
	FILE *page;

	snprintf(path, sizeof(path), "%s/man/ringway.yaml.5", dir != NULL ? dir : ".");
	page = fopen(path, "r");
	cr_assert_not_null(page, "%s", path);
	return page;
}

/* "Default 10; number from 1 to 3600; seconds; sessions." */
static void
fact_line(const struct conf_row *row, char line[256])
{
	static const char *const types[] = {
		[CONF_BOOL] = "boolean", [CONF_NUMBER] = "number", [CONF_SIZE] = "size",
		[CONF_ENUM] = "word", [CONF_STRING] = "text", [CONF_IPV4] = "IPv4 address",
		[CONF_IPV6] = "IPv6 address", [CONF_IP] = "IP address", [CONF_LISTEN_ADDR] = "address",
		[CONF_FLAGS] = "list", [CONF_SERVERS] = "list", [CONF_RECORDS] = "list",
		[CONF_RANGE] = "list of two numbers", [CONF_STRINGS] = "list", [CONF_LINES] = "list",
	};
	bool number = row->type == CONF_NUMBER || row->type == CONF_SIZE || row->type == CONF_RANGE;
	bool texts = row->type == CONF_STRINGS || row->type == CONF_LINES;
	bool unit = row->unit[0] != '\0' && row->type != CONF_FLAGS && row->type != CONF_RECORDS;
	char initial[128] = "", range[64] = "";

	if (row->type == CONF_RECORDS && row->initial[0] != '\0')
		strcpy(initial, "two entries");
	else if (row->type == CONF_SERVERS || row->type == CONF_RECORDS || row->type == CONF_RANGE ||
	    texts)
		snprintf(initial, sizeof(initial), "[%s]", row->initial);
	else if (row->type == CONF_FLAGS)
		strcpy(initial, "[socks5, http]");
	else
		snprintf(initial, sizeof(initial), "%s", row->initial[0] != '\0' ? row->initial :
		    "\\(dq\\(dq");
	if (number)
		snprintf(range, sizeof(range), " from %" PRIu64 " to %" PRIu64, row->min, row->max);
	if (conf_schema_is_required(row))
		strcpy(initial, "none");
	snprintf(line, 256, "Default %s; %s%s;%s%s%s %s.\n", initial, types[row->type], range,
	    unit ? " " : "", row->unit[0] != '\0' && unit ? row->unit : "", unit ? ";" : "",
	    row->reload == CONF_RESTART ? "restart" : "sessions");
}

Test(conf_man, every_key_is_there_in_order_with_its_facts)
{
	static const char item[] = ".It Cm ";
	FILE *page = open_page();
	char line[512], want[256];
	size_t row = 0;

	while (fgets(line, sizeof(line), page) != NULL) {
		if (strncmp(line, item, strlen(item)) == 0) {
			line[strcspn(line, "\n")] = '\0';
			cr_assert_lt(row, conf_schema_count, "no such key: %s", line);
			cr_assert_str_eq(line + strlen(item), conf_schema[row].path);
		} else if (strncmp(line, "Default ", 8) == 0) {
			fact_line(&conf_schema[row], want);
			cr_expect_str_eq(line, want, "%s: %s", conf_schema[row].path, want);
			row++;
		}
	}
	fclose(page);
	cr_expect_eq(row, conf_schema_count, "%s is missing",
	    row < conf_schema_count ? conf_schema[row].path : "");
}

Test(conf_man, every_word_is_there)
{
	FILE *page = open_page();
	char *text = calloc(1, 1 << 18);

	cr_assert_gt(fread(text, 1, (1 << 18) - 1, page), 0u);
	fclose(page);
	for (size_t i = 0; i < conf_schema_count; i++)
		for (const struct conf_word *word = conf_schema[i].words;
		    word != NULL && word->name != NULL; word++)
			cr_expect_not_null(strstr(text, word->name), "%s: %s", conf_schema[i].path,
			    word->name);
	free(text);
}

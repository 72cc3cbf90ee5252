/* SPDX-License-Identifier: ISC */
/* conf_value_print() of values.h. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "conf/field.h"
#include "conf/values.h"
#include "util/addr.h"

/* May it stand without quotes, for this program and for other readers of YAML? */
static bool
is_plain(const char *text)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/";
	static const char other[] = "._:/-@";
	static const char *const words[] = {
		"null", "true", "false", "yes", "no", "on", "off", "y", "n",
	};
	size_t len = strspn(text, first);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(text, words[i]) == 0)
			return false;
	if (len == 0)
		return false;
	while (text[len] != '\0' && (strchr(first, text[len]) != NULL || strchr(other, text[len]) != NULL))
		len++;
	return text[len] == '\0' && text[len - 1] != ':';
}

void
conf_text_print(const char *text, FILE *out)
{
	if (is_plain(text)) {
		fputs(text, out);
		return;
	}
	/* Other controls and line breaks were refused when it was set. */
	fputc('"', out);
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		if (*text == '\t')
			fputs("\\t", out);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

static void
print_list(const struct conf_row *row, const void *base, FILE *out)
{
	const char *comma = "";
	const struct addr *servers;
	const uint16_t *range;
	char text[ADDR_TEXT_MAX];

	fputc('[', out);
	if (row->type == CONF_FLAGS) {
		for (const struct conf_word *word = row->words; word->name != NULL; word++) {
			if ((conf_field_uint(row, base) & word->value) == 0)
				continue;
			fprintf(out, "%s%s", comma, word->name);
			comma = ", ";
		}
	} else if (row->type == CONF_RANGE) {
		range = conf_field_const(row, base);
		fprintf(out, "%u, %u", range[0], range[1]);
	} else if (conf_type_is_texts(row->type)) {
		for (size_t i = 0; i < conf_field_count(row, base); i++) {
			fputs(comma, out);
			conf_text_print(conf_field_text(row, base, i), out);
			comma = ", ";
		}
	} else {
		servers = *(struct addr *const *)conf_field_const(row, base);
		for (size_t i = 0; i < conf_field_count(row, base); i++) {
			fprintf(out, "%s\"%s\"", comma, addr_format(&servers[i], text));
			comma = ", ";
		}
	}
	fputc(']', out);
}

void
conf_value_print(const struct conf_row *row, const void *base, FILE *out)
{
	const void *at = conf_field_const(row, base);
	char text[ADDR_TEXT_MAX];

	switch (row->type) {
	case CONF_BOOL:
		fputs(*(const bool *)at ? "true" : "false", out);
		break;
	case CONF_NUMBER:
	case CONF_SIZE:
		fprintf(out, "%" PRIu64, conf_field_uint(row, base));
		break;
	case CONF_ENUM:
		for (const struct conf_word *word = row->words; word->name != NULL; word++)
			if (word->value == conf_field_uint(row, base))
				conf_text_print(word->name, out);
		break;
	case CONF_STRING:
	case CONF_LISTEN_ADDR:
		conf_text_print(*(char *const *)at, out);
		break;
	case CONF_IPV4:
	case CONF_IPV6:
	case CONF_IP:
		conf_text_print(((const struct addr *)at)->len == 0 ? "" :
		    addr_format_ip(at, text), out);
		break;
	case CONF_FLAGS:
	case CONF_RANGE:
	case CONF_SERVERS:
	case CONF_STRINGS:
	case CONF_LINES:
		print_list(row, base, out);
		break;
	case CONF_RECORDS:
		fputs("[]", out);	/* entries are printed key by key */
		break;
	}
}

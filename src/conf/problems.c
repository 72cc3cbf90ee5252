/* SPDX-License-Identifier: ISC */
#include "conf/problems.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEM_TEXT_MAX = 2048 };

/* Keys and values are quoted by those who report; this catches file names and -o. */
static void
blank_controls(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

static struct conf_problem *
new_slot(struct conf_problems *problems)
{
	if (problems->count >= CONF_PROBLEMS_MAX)
		return NULL;
	if (problems->count == problems->capacity) {
		size_t capacity = problems->capacity == 0 ? 8 : problems->capacity * 2;
		struct conf_problem *grown;

		grown = reallocarray(problems->list, capacity, sizeof(*grown));
		if (grown == NULL)
			return NULL;
		problems->list = grown;
		problems->capacity = capacity;
	}
	return &problems->list[problems->count];
}

void
conf_problems_add(struct conf_problems *problems, enum conf_severity severity, const char *where,
    const char *key, const char *fmt, ...)
{
	struct conf_problem *slot = new_slot(problems);
	char text[PROBLEM_TEXT_MAX];
	va_list ap;
	int used;

	if (severity == CONF_ERROR)
		problems->errors++;
	else
		problems->warnings++;
	if (slot == NULL)
		return;
	/* A long path or -o value must leave room for what is wrong with it. */
	used = snprintf(text, sizeof(text), "%.700s%s%.200s%s", where != NULL ? where : "",
	    where != NULL ? ": " : "", key != NULL ? key : "", key != NULL ? ": " : "");
	va_start(ap, fmt);
	vsnprintf(text + used, sizeof(text) - (size_t)used, fmt, ap);
	va_end(ap);
	blank_controls(text);
	slot->severity = severity;
	slot->text = strdup(text);
	if (slot->text != NULL)
		problems->count++;
}

void
conf_problems_print(const struct conf_problems *problems, FILE *out)
{
	size_t total = problems->errors + problems->warnings;

	for (size_t i = 0; i < problems->count; i++)
		fprintf(out, "%s%s\n", problems->list[i].severity == CONF_WARNING ?
		    "warning: " : "", problems->list[i].text);
	if (total > problems->count)
		fprintf(out, "... and %zu more\n", total - problems->count);
}

void
conf_problems_free(struct conf_problems *problems)
{
	for (size_t i = 0; i < problems->count; i++)
		free(problems->list[i].text);
	free(problems->list);
	memset(problems, 0, sizeof(*problems));
}

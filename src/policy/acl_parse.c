/* SPDX-License-Identifier: ISC */
/* Lines to rules.  Each line is looked at whole, so that all problems are found. */
#include "policy/acl_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/str.h"

struct parser {
	struct acl	*acl;
	struct conf_problems *problems;
	const char	*dir;
	char		 where[ACL_WHERE_MAX];	/* of the line at hand */
};

#define complain(p, ...) \
	conf_problems_add((p)->problems, CONF_ERROR, (p)->where, NULL, __VA_ARGS__)

static void
out_of_memory(struct parser *p)
{
	complain(p, "out of memory");
}

/* One more, zeroed; NULL when out of memory. */
static void *
append(void *list, size_t *count, size_t *room, size_t width)
{
	char **base = list;

	if (*count == *room) {
		size_t wanted = *room == 0 ? 8 : *room * 2;
		char *grown = reallocarray(*base, wanted, width);

		if (grown == NULL)
			return NULL;
		*base = grown;
		*room = wanted;
	}
	return memset(*base + width * (*count)++, 0, width);
}

/* ---- what logs show ------------------------------------------------------ */

static bool
keep_line(struct parser *p, struct acl_rule *rule, struct span line)
{
	struct span word;
	char *text = malloc(line.len + 1);
	size_t used = 0;

	if (text == NULL)
		return false;
	while (acl_word_next(&line, &word)) {
		if (used != 0)
			text[used++] = ' ';
		memcpy(text + used, word.base, word.len);
		used += word.len;
	}
	text[used] = '\0';
	rule->text = rule->shown = text;
	if (used >= ACL_SHOWN_MAX) {
		rule->shown = malloc(ACL_SHOWN_MAX);
		if (rule->shown == NULL)
			return false;
		snprintf(rule->shown, ACL_SHOWN_MAX, "%.*s...", ACL_SHOWN_MAX - 4, text);
	}
	rule->where = strdup(p->where);
	return rule->where != NULL;
}

/* ---- lines --------------------------------------------------------------- */

static void
parse_default(struct parser *p, struct span rest)
{
	struct span action, more;
	char quoted[STR_QUOTED_MAX];
	bool allow;

	if (!acl_word_next(&rest, &action)) {
		complain(p, "default of what? (default allow, or default deny)");
		return;
	}
	allow = span_is(action, "allow");
	if (!allow && !span_is(action, "deny")) {
		complain(p, "default can't be %s (default allow, or default deny)",
		    str_quote(action, quoted));
		return;
	}
	if (acl_word_next(&rest, &more)) {
		complain(p, "%s behind default %s (default has no conditions; a rule begins with %s)",
		    str_quote(more, quoted), allow ? "allow" : "deny", allow ? "allow" : "deny");
		return;
	}
	if (p->acl->default_where != NULL) {
		complain(p, "default is set already by %s (one default for all rules)",
		    p->acl->default_where);
		return;
	}
	p->acl->default_allow = allow;
	p->acl->default_where = strdup(p->where);
	if (p->acl->default_where == NULL)
		out_of_memory(p);
}

static void
unknown_field(struct parser *p, struct span word)
{
	enum acl_field nearest = ACL_F_COUNT;
	unsigned best = 3;	/* more edits than that, and it is another word */
	char quoted[STR_QUOTED_MAX];

	for (enum acl_field field = 0; field < ACL_F_COUNT; field++) {
		unsigned distance = str_distance(word, span_str(acl_field_name(field)));

		if (distance < best) {
			best = distance;
			nearest = field;
		}
	}
	str_quote(word, quoted);
	if (nearest != ACL_F_COUNT)
		complain(p, "%s is no field (nearest: %s)", quoted, acl_field_name(nearest));
	else
		complain(p, "%s is no field (method, host, path, client, user, port, dst, listener; "
		    "lists have commas and no blanks)", quoted);
}

/* Is there a host and nothing else? */
static bool
is_hosts_only(struct span rest)
{
	struct span word;

	return acl_word_next(&rest, &word) && span_is(word, "host") &&
	    acl_word_next(&rest, &word) && !acl_word_next(&rest, &word);
}

static struct acl_step *
step_for(struct parser *p, bool hosts_only)
{
	struct acl *acl = p->acl;
	struct acl_step *step;

	if (hosts_only && acl->step_count != 0 && acl->steps[acl->step_count - 1].hosts_only)
		return &acl->steps[acl->step_count - 1];
	step = append(&acl->steps, &acl->step_count, &acl->step_room, sizeof(*step));
	if (step != NULL) {
		step->rule = (uint32_t)acl->rule_count;
		step->hosts_only = hosts_only;
	}
	return step;
}

static void
parse_rule(struct parser *p, struct span line, struct span rest, bool allow)
{
	bool seen[ACL_F_COUNT] = { false }, any = false;
	struct acl_step *step = step_for(p, is_hosts_only(rest));
	struct acl_value_context context = { p->problems, p->where, p->dir,
	    (uint32_t)p->acl->rule_count };
	struct acl_rule *rule;
	struct span name, values;

	rule = append(&p->acl->rules, &p->acl->rule_count, &p->acl->rule_room, sizeof(*rule));
	if (rule == NULL || step == NULL || !keep_line(p, rule, line)) {
		out_of_memory(p);
		return;
	}
	rule->allow = allow;
	for (; acl_word_next(&rest, &name); any = true) {
		enum acl_field field = acl_field_find(name);
		bool known = field != ACL_F_COUNT;

		if (!known)
			unknown_field(p, name);
		if (!acl_word_next(&rest, &values)) {
			if (known)
				complain(p, "%s has no value (%s VALUE[,VALUE...], or %s @FILE)",
				    acl_field_name(field), acl_field_name(field), acl_field_name(field));
			return;
		}
		if (!known)
			continue;
		if (seen[field])
			complain(p, "%s is there twice, and both would have to hold (put the values into "
			    "one list, separated by commas)", acl_field_name(field));
		else
			acl_values_add(&step->values[field], field, values, &context);
		seen[field] = true;
	}
	if (!any)
		complain(p, "no condition (%s FIELD VALUE; for everything: %s host *)",
		    allow ? "allow" : "deny", allow ? "allow" : "deny");
}

static void
parse_route(struct parser *p, struct span line, struct span rest)
{
	struct acl_value_context context = { p->problems, p->where, p->dir,
	    (uint32_t)p->acl->route_count };
	struct span host, ip, port_text, more;
	char quoted[STR_QUOTED_MAX];
	struct acl_route *route;
	struct addr addr;
	uint16_t port = 0;

	if (!acl_word_next(&rest, &host) || !acl_word_next(&rest, &ip) ||
	    !acl_word_next(&rest, &port_text) || acl_word_next(&rest, &more)) {
		complain(p, "a route has three parts (route HOST ADDR PORT)");
		return;
	}
	route = append(&p->acl->routes, &p->acl->route_count, &p->acl->route_room, sizeof(*route));
	if (route == NULL || !keep_line(p, &route->line, line)) {
		out_of_memory(p);
		return;
	}
	acl_values_add(&p->acl->route_hosts, ACL_F_HOST, host, &context);
	if (!acl_port_parse(port_text, &port))
		complain(p, "%s is no port (a number from 1 to 65535)", str_quote(port_text, quoted));
	if (!addr_parse_ip(ip, port, &addr))
		complain(p, "%s is no address (a route leads to an IPv4 or IPv6 address)",
		    str_quote(ip, quoted));
	else
		target_set_addr(&route->to, &addr);
}

static void
unknown_line(struct parser *p, struct span word)
{
	static const char *const known[] = { "default", "deny", "allow", "route" };
	const char *nearest = NULL;
	char quoted[STR_QUOTED_MAX];
	unsigned best = 3;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		unsigned distance = str_distance(word, span_str(known[i]));

		if (distance < best) {
			best = distance;
			nearest = known[i];
		}
	}
	str_quote(word, quoted);
	if (nearest != NULL)
		complain(p, "%s begins no rule (nearest: %s)", quoted, nearest);
	else
		complain(p, "%s begins no rule (deny, allow, route or default)", quoted);
}

/* Bytes that would break the line that a log shows. */
static bool
has_control(struct span line)
{
	for (size_t i = 0; i < line.len; i++)
		if (((unsigned char)line.base[i] < 0x20 && !acl_is_blank(line.base[i])) ||
		    line.base[i] == 0x7f)
			return true;
	return false;
}

static void
parse_line(struct parser *p, struct span line)
{
	struct span rest = line, word;

	if (!acl_word_next(&rest, &word))
		return;
	if (has_control(line))
		complain(p, "a control character (rules are plain text, one a line)");
	else if (span_is(word, "deny"))
		parse_rule(p, line, rest, false);
	else if (span_is(word, "allow"))
		parse_rule(p, line, rest, true);
	else if (span_is(word, "route"))
		parse_route(p, line, rest);
	else if (span_is(word, "default"))
		parse_default(p, rest);
	else
		unknown_line(p, word);
}

/* ---- sources ------------------------------------------------------------- */

static void
parse_lines(struct parser *p, const char *name, struct acl_lines *lines)
{
	struct span line;

	while (acl_lines_next(lines, &line)) {
		snprintf(p->where, sizeof(p->where), "%.760s:%zu", name, lines->line);
		parse_line(p, line);
	}
	acl_lines_close(lines);
}

static void
parse_file(struct parser *p, const char *file)
{
	const char *slash = strrchr(file, '/');
	const char *outer = p->dir;
	char *dir = NULL;
	struct acl_lines lines;
	int rc = acl_lines_open(&lines, file, ACL_COMMENT_HASH);

	if (rc == 0 && slash != NULL) {
		dir = strndup(file, slash == file ? 1 : (size_t)(slash - file));
		if (dir == NULL) {
			acl_lines_close(&lines);
			rc = -ENOMEM;
		}
	}
	if (rc != 0) {
		conf_problems_add(p->problems, CONF_ERROR, file, NULL, "can't be read: %s", strerror(-rc));
		return;
	}
	p->dir = dir;
	parse_lines(p, file, &lines);
	p->dir = outer;
	free(dir);
}

static void
parse_inline(struct parser *p, const char *const *rules, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct acl_lines lines;
		struct span line, more;

		snprintf(p->where, sizeof(p->where), "acl.rules[%zu]", i);
		if (acl_lines_from(&lines, span_str(rules[i]), ACL_COMMENT_HASH) != 0) {
			out_of_memory(p);
			continue;
		}
		if (acl_lines_next(&lines, &line)) {
			if (acl_lines_next(&lines, &more))
				complain(p, "more than one line (one rule an entry)");
			else
				parse_line(p, line);
		}
		acl_lines_close(&lines);
	}
}

static int
seal(struct acl *acl)
{
	int rc = acl_values_seal(&acl->route_hosts);

	for (size_t i = 0; i < acl->step_count; i++)
		for (enum acl_field field = 0; rc == 0 && field < ACL_F_COUNT; field++)
			rc = acl_values_seal(&acl->steps[i].values[field]);
	return rc;
}

static struct acl *
finish(struct parser *p, size_t errors_before)
{
	struct acl *acl = p->acl;

	if (acl != NULL && p->problems->errors == errors_before && seal(acl) == 0)
		return acl;
	/* A refused load always says why. */
	if (p->problems->errors == errors_before) {
		snprintf(p->where, sizeof(p->where), "acl");
		out_of_memory(p);
	}
	acl_free(acl);
	return NULL;
}

static struct parser
begin(const char *dir, struct conf_problems *problems)
{
	struct parser p = { .acl = calloc(1, sizeof(*p.acl)), .problems = problems, .dir = dir };

	if (p.acl != NULL)
		p.acl->default_allow = true;
	return p;
}

struct acl *
acl_load(const char *file, const char *const *rules, size_t rule_count, const char *dir,
    struct conf_problems *problems)
{
	size_t errors = problems->errors;
	struct parser p = begin(dir, problems);

	if (p.acl != NULL) {
		if (file != NULL && file[0] != '\0')
			parse_file(&p, file);
		parse_inline(&p, rules, rule_count);
	}
	return finish(&p, errors);
}

struct acl *
acl_load_text(const char *name, struct span text, const char *dir, struct conf_problems *problems)
{
	size_t errors = problems->errors;
	struct parser p = begin(dir, problems);
	struct acl_lines lines;

	if (p.acl != NULL && acl_lines_from(&lines, text, ACL_COMMENT_HASH) == 0)
		parse_lines(&p, name, &lines);
	else if (p.acl != NULL)
		out_of_memory(&p);
	return finish(&p, errors);
}

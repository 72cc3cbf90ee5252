/* SPDX-License-Identifier: ISC */
#include "policy/snapshot.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHERE_MAX = 256 };

/* The public part first, so that one pointer serves for both. */
struct counted {
	struct snapshot	 s;
	atomic_uint	 refs;
};

static struct cidr_set *
load_whitelist(const struct conf *conf, struct conf_problems *problems)
{
	struct cidr_set *set = cidr_new();
	char where[WHERE_MAX], key[64], why[CIDR_WHY_MAX];
	bool bad = set == NULL;

	for (size_t i = 0; !bad && i < conf->auth.whitelist_count; i++) {
		enum cidr_verdict v = cidr_add(set, span_str(conf->auth.whitelist[i]), why);

		if (v == CIDR_OK)
			continue;
		snprintf(key, sizeof key, "auth.whitelist.%zu", i);
		if (!conf_where(conf, key, where, sizeof where))
			where[0] = '\0';
		conf_problems_add(problems, v == CIDR_HOST_BITS ? CONF_WARNING : CONF_ERROR,
		    where[0] != '\0' ? where : NULL, key, "%s", why);
		bad = v == CIDR_NOMEM;
	}
	if (!bad && conf->auth.whitelist_file[0] != '\0')
		(void)cidr_load(set, conf->auth.whitelist_file, "auth.whitelist_file", problems);
	if (bad || cidr_seal(set) != 0) {
		conf_problems_add(problems, CONF_ERROR, NULL, "auth.whitelist", "out of memory");
		cidr_free(set);
		return NULL;
	}
	return set;
}

static struct users *
load_users(const struct conf *conf, struct conf_problems *problems)
{
	struct users *users = users_new();
	char where[WHERE_MAX], key[64];

	if (users == NULL) {
		conf_problems_add(problems, CONF_ERROR, NULL, "auth.users", "out of memory or entropy");
		return NULL;
	}
	for (size_t i = 0; i < conf->auth.user_count; i++) {
		const struct conf_user *u = &conf->auth.users[i];

		snprintf(key, sizeof key, "auth.users.%zu", i);
		if (!conf_where(conf, key, where, sizeof where))
			where[0] = '\0';
		(void)users_add(users, span_str(u->name), span_str(u->pbkdf2),
		    where[0] != '\0' ? where : NULL, key, problems);
	}
	if (conf->auth.users_file[0] != '\0')
		(void)users_load_file(users, conf->auth.users_file, problems);
	return users;
}

static void
destroy(struct counted *c)
{
	acl_free((struct acl *)(uintptr_t)c->s.acl);
	cidr_free((struct cidr_set *)(uintptr_t)c->s.whitelist);
	users_free((struct users *)(uintptr_t)c->s.users);
	conf_free((struct conf *)(uintptr_t)c->s.conf);
	free(c);
}

struct snapshot *
snapshot_new(struct conf *conf, unsigned generation, struct conf_problems *problems)
{
	struct counted *c = calloc(1, sizeof *c);
	size_t errors_before = problems->errors;

	if (c == NULL) {
		conf_problems_add(problems, CONF_ERROR, NULL, NULL, "out of memory");
		conf_free(conf);
		return NULL;
	}
	atomic_init(&c->refs, 1);
	c->s.conf = conf;
	c->s.generation = generation;
	c->s.acl = acl_load(conf->acl.file, (const char *const *)conf->acl.rules, conf->acl.rule_count,
	    NULL, problems);
	if (conf->auth.whitelist_count > 0 || conf->auth.whitelist_file[0] != '\0')
		c->s.whitelist = load_whitelist(conf, problems);
	c->s.users = load_users(conf, problems);
	if (problems->errors > errors_before) {
		destroy(c);
		return NULL;
	}
	return &c->s;
}

struct snapshot *
snapshot_hold(struct snapshot *s)
{
	atomic_fetch_add_explicit(&((struct counted *)s)->refs, 1, memory_order_relaxed);
	return s;
}

void
snapshot_drop(struct snapshot *s)
{
	struct counted *c = (struct counted *)s;

	if (s != NULL && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1)
		destroy(c);
}

bool
snapshot_admits(const struct snapshot *s, const struct addr *peer)
{
	/* A Unix socket's permissions are its whitelist. */
	return s->whitelist == NULL || peer->sa.sa_family == AF_UNIX ||
	    cidr_has(s->whitelist, peer);
}

bool
snapshot_same_listener(const struct conf_listen *a, const struct conf_listen *b)
{
	if (a->unix_path != NULL || b->unix_path != NULL)
		return a->unix_path != NULL && b->unix_path != NULL &&
		    strcmp(a->unix_path, b->unix_path) == 0;
	return addr_same_ip(&a->sock, &b->sock) && addr_port(&a->sock) == addr_port(&b->sock);
}

const struct conf_listen *
snapshot_find_listener(const struct snapshot *s, const struct conf_listen *like)
{
	for (size_t i = 0; i < s->conf->listen_count; i++)
		if (snapshot_same_listener(&s->conf->listen[i], like))
			return &s->conf->listen[i];
	return NULL;
}

bool
snapshot_wants_password(const struct snapshot *s, const struct conf_listen *l)
{
	switch (l->auth) {
	case CONF_AUTH_REQUIRED:
		return true;
	case CONF_AUTH_NONE:
		return false;
	case CONF_AUTH_INHERIT:
		break;
	}
	return s->conf->auth.require_password;
}

/* SPDX-License-Identifier: ISC */
/*
 * acl_internal: what acl_parse.c builds, with acl_value.c for the values, and
 * acl.c asks.
 */
#ifndef RW_POLICY_ACL_INTERNAL_H
#define RW_POLICY_ACL_INTERNAL_H

#include "policy/acl.h"
#include "policy/acl_file.h"
#include "policy/acl_set.h"
#include "policy/cidr.h"

enum {
	ACL_SHOWN_MAX = 256,	/* of a rule in logs, with NUL */
	ACL_METHOD_MAX = 64,	/* longer ones are cut, and so equal to no literal */
	ACL_WHERE_MAX = 800,
	ACL_WHY_MAX = 512
};

enum acl_field {
	ACL_F_METHOD,
	ACL_F_HOST,
	ACL_F_PATH,
	ACL_F_CLIENT,
	ACL_F_USER,
	ACL_F_PORT,
	ACL_F_DST,
	ACL_F_LISTENER,
	ACL_F_COUNT
};

/* One line. */
struct acl_rule {
	char		*text;		/* blanks single, comment gone */
	char		*shown;		/* text, or a cut copy of it */
	char		*where;
	bool		 allow;
};

/* Inclusive ranges; sorted and joined once they are complete. */
struct acl_ports {
	struct acl_port_range {
		uint16_t low, high;
	}		*list;
	size_t		 count, room;
};

/*
 * What one condition holds; which member is used depends on the field.  All
 * NULL and not `present`: no such condition, or one that always holds ("*").
 */
struct acl_values {
	bool		 present;
	bool		 any;		/* client, port, dst, listener: "*" */
	bool		 params;	/* path: a pattern has a ";" */
	bool		 query;		/* path: a pattern has a "?" */
	struct acl_set	*set;		/* method, host, path, user; ids are rule indexes */
	struct cidr_set	*cidr;		/* client, dst */
	struct acl_ports *ports;	/* port, listener */
};

/*
 * One rule, or a run of rules that have nothing but a host: those share a set,
 * so that a blocklist written as ten thousand `deny host` lines is one look-up.
 */
struct acl_step {
	struct acl_values values[ACL_F_COUNT];
	uint32_t	 rule;		/* the first one's index */
	bool		 hosts_only;
};

struct acl_route {
	struct acl_rule	 line;
	struct target	 to;
};

struct acl {
	struct acl_rule	*rules;
	size_t		 rule_count, rule_room;
	struct acl_step	*steps;
	size_t		 step_count, step_room;
	struct acl_route *routes;
	size_t		 route_count, route_room;
	struct acl_values route_hosts;	/* ids are route indexes */
	bool		 default_allow;
	char		*default_where;	/* NULL = not set */
};

/* ---- acl_value.c ---- */

struct acl_value_context {
	struct conf_problems *problems;
	const char	*where;		/* of the rule */
	const char	*dir;		/* of relative @FILE names; NULL = as they are */
	uint32_t	 id;		/* for new patterns */
};

/* A field by its name, or ACL_F_COUNT. */
enum acl_field	acl_field_find(struct span name);
const char	*acl_field_name(enum acl_field);
/* Adds a comma list with @FILEs in it to the values; problems are reported. */
void	acl_values_add(struct acl_values *, enum acl_field, struct span list,
	    const struct acl_value_context *);
int	acl_values_seal(struct acl_values *);		/* 0 or -ENOMEM */
void	acl_values_free(struct acl_values *);
bool	acl_ports_has(const struct acl_ports *, uint16_t);
/* 1 to 65535. */
bool	acl_port_parse(struct span, uint16_t *);

/* ---- acl_pattern.c ---- */

/* One value into a set; false and `why` when it is no pattern, or memory is out. */
bool	acl_pattern_host(struct acl_values *, struct span, uint32_t id, char why[ACL_WHY_MAX]);
bool	acl_pattern_path(struct acl_values *, struct span, uint32_t id, char why[ACL_WHY_MAX]);
bool	acl_pattern_user(struct acl_values *, struct span, uint32_t id, char why[ACL_WHY_MAX]);
bool	acl_pattern_method(struct acl_values *, struct span, uint32_t id, char why[ACL_WHY_MAX]);
/* "127.1", "0x7f.1", "10.0.0.300": no name has a number as its last label. */
bool	acl_looks_like_address(struct span host);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * conf: the configuration as plain typed fields, grouped as in the YAML file.
 * conf_new() gives the defaults, conf_load_file() lays a file over them,
 * conf_set() one key (`-o KEY=VALUE`), conf_validate() looks at keys together.
 * After that it is only read.  It never opens sockets, never logs and never
 * exits: what is wrong goes into a struct conf_problems.
 *
 * Which keys there are, their defaults and ranges: schema.c, one row a key.
 */
#ifndef RW_CONF_CONF_H
#define RW_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "conf/problems.h"
#include "util/addr.h"
#include "util/log.h"

enum conf_backend {
	CONF_BACKEND_AUTO,
	CONF_BACKEND_IO_URING,
	CONF_BACKEND_EPOLL,
	CONF_BACKEND_KQUEUE,
	CONF_BACKEND_IOCP
};

/* listen[].protocols: which ones the first byte may choose. */
enum conf_protocol {
	CONF_PROTO_SOCKS5	= 1 << 0,
	CONF_PROTO_SOCKS4	= 1 << 1,	/* 4 and 4a */
	CONF_PROTO_HTTP		= 1 << 2
};

enum conf_prefer {
	CONF_PREFER_AUTO,
	CONF_PREFER_IPV4,
	CONF_PREFER_IPV6,
	CONF_PREFER_IPV4_ONLY,
	CONF_PREFER_IPV6_ONLY
};

/* listen[].auth */
enum conf_auth_mode {
	CONF_AUTH_INHERIT,		/* what auth.require_password says */
	CONF_AUTH_REQUIRED,
	CONF_AUTH_NONE
};

/* http.origin_form: requests without an absolute URI. */
enum conf_origin_form {
	CONF_ORIGIN_ROUTED,		/* served when the ACL has a route for the host */
	CONF_ORIGIN_ANY,
	CONF_ORIGIN_OFF
};

/* http.forwarded_for: what becomes of X-Forwarded-For. */
enum conf_forwarded_for {
	CONF_FORWARDED_OFF,		/* passed on as it came */
	CONF_FORWARDED_APPEND,
	CONF_FORWARDED_DELETE
};

enum conf_log_format {
	CONF_LOG_TEXT,
	CONF_LOG_JSON
};

struct conf_listen {
	char		*addr;		/* as written: IPv4, IPv6 or "unix:/path" */
	uint16_t	 port;		/* not used by unix: */
	uint32_t	 protocols;	/* set of enum conf_protocol, never empty */
	enum conf_auth_mode auth;
	uint32_t	 backlog;
	/* From addr and port, by conf_validate(): */
	struct addr	 sock;		/* len 0 for unix: */
	const char	*unix_path;	/* into `addr`, NULL for IP */
};

struct conf_udp {
	bool		 enabled;
	struct addr	 public_address;	/* len 0 = where the control connection came to; port 0 */
	uint16_t	 port_low, port_high;	/* port_range: low <= high, both included; next to each other */
	uint32_t	 idle_timeout_s;
	uint32_t	 max_destinations;	/* of an association */
	uint32_t	 max_pps;		/* of an association, client to destinations; 0 = no limit */
	bool		 allow_client_addr_mismatch;
	bool		 resolve_domain;
};

struct conf_user {
	char		*name;
	char		*pbkdf2;	/* as written; only policy/password.h knows its form */
};

struct conf_auth {
	char		**whitelist;	/* CIDRs and addresses as written, not looked at here */
	size_t		 whitelist_count;
	char		*whitelist_file;	/* "" = none, like every path below */
	bool		 require_password;
	char		*realm;
	struct conf_user *users;
	size_t		 user_count;
	char		*users_file;
	uint32_t	 failures_per_minute;	/* 0 = no limit */
};

struct conf_limits {
	uint32_t	 max_sessions;		/* 0 = from RLIMIT_NOFILE */
	uint32_t	 max_sessions_per_ip;	/* 0 = no limit */
	uint32_t	 handshake_timeout_s;
	uint32_t	 connect_timeout_s;
	uint32_t	 idle_timeout_s;
	uint32_t	 half_close_timeout_s;
	uint32_t	 tcp_pool_blocks;	/* per worker, of 32 KiB */
	uint32_t	 udp_pool_blocks;	/* per worker, of 64 KiB */
	uint32_t	 header_bytes;
	uint32_t	 header_count;
};

struct conf_resolver {
	struct addr	*servers;		/* with port; none = the system's */
	size_t		 server_count;
	enum conf_prefer prefer;
	uint32_t	 timeout_ms;
	uint32_t	 attempts;
	uint32_t	 cache_entries;		/* per worker */
	uint32_t	 min_ttl_s;		/* never above max_ttl_s */
	uint32_t	 max_ttl_s;
	uint32_t	 negative_ttl_s;
};

struct conf_outbound {
	struct addr	 bind_ipv4;		/* len 0 = the system chooses; port 0 */
	struct addr	 bind_ipv6;
	char		*interface;		/* "" = none */
	uint32_t	 mark;			/* 0 = none */
	uint32_t	 happy_eyeballs_ms;	/* 0 = one address after the other */
	uint32_t	 tcp_keepalive_s;	/* 0 = off */
};

struct conf_acl {
	char		*file;
	char		**rules;	/* lines behind the file's, not looked at here */
	size_t		 rule_count;
	bool		 protect_local;
};

struct conf_http {
	bool		 via;
	enum conf_forwarded_for forwarded_for;
	enum conf_origin_form origin_form;
	uint32_t	 keepalive_timeout_s;
	uint32_t	 upstream_timeout_s;
	uint64_t	 max_body_bytes;	/* 0 = no limit */
};

struct conf_access_log {
	char		*path;			/* "" = none, "-" = standard output */
	enum conf_log_format format;
	uint32_t	 flush_ms;
	uint32_t	 buffer_bytes;
	bool		 immediate;
};

struct conf {
	uint32_t		 workers;	/* 0 = one per usable CPU */
	bool			 pin_workers;
	enum conf_backend	 backend;
	enum log_level		 log_level;
	char			*user;		/* "" = stay who we are */
	char			*group;		/* "" = the user's */
	char			*pid_file;
	uint32_t		 shutdown_timeout_s;
	uint32_t		 stats_interval_s;	/* 0 = off */
	struct conf_listen	*listen;
	size_t			 listen_count;
	struct conf_udp		 udp;
	struct conf_auth	 auth;
	struct conf_limits	 limits;
	struct conf_resolver	 resolver;
	struct conf_outbound	 outbound;
	struct conf_acl		 acl;
	struct conf_http	 http;
	struct conf_access_log	 access_log;

	struct conf_origins	*origins;	/* conf's own: where each key was set */
};

/* The machine's limits that conf_validate() warns about. */
struct conf_env {
	uint64_t	 nofile_hard;	/* UINT64_MAX = no limit */
	bool		 net_admin;	/* CAP_NET_ADMIN in the effective set */
};

/* The defaults; NULL when out of memory.  The caller frees with conf_free(). */
struct conf	*conf_new(void);
void		 conf_free(struct conf *);

/*
 * Each returns 0, or -EINVAL after adding at least one error to the list (the
 * conf may then hold some of the new values: use it for nothing but finding
 * further problems).
 */
int	conf_load_file(struct conf *, const char *path, struct conf_problems *);
int	conf_load_text(struct conf *, const char *name, const void *text, size_t text_bytes,
	    struct conf_problems *);
/*
 * `listen.N.key` with N = listen_count adds an entry, as does `auth.whitelist.N`
 * or `acl.rules.N`.  Whole lists: "a,b" or "[a, b]"; but acl.rules is then one
 * line, since commas belong to its grammar.
 */
int	conf_set(struct conf *, const char *path, const char *value, struct conf_problems *);
/* The same with `where` in front of its problems instead of "-o PATH=VALUE". */
int	conf_set_from(struct conf *, const char *where, const char *path, const char *value,
	    struct conf_problems *);
/* Checks keys against each other and fills in the derived fields; adds warnings too. */
int	conf_validate(struct conf *, struct conf_problems *);
int	conf_validate_in(struct conf *, const struct conf_env *, struct conf_problems *);

/*
 * Where a key ("acl.file") or an entry of a list ("auth.whitelist.3", "acl.rules.0",
 * "auth.users.1.pbkdf2") was set: "FILE:LINE:COL" or "-o KEY=VALUE", for problems
 * that only others can find.  False, and "", for a default.
 */
bool	conf_where(const struct conf *, const char *path, char *out, size_t out_bytes);

/*
 * Reload: the keys that are fixed while the process lives (CONF_RESTART) and
 * differ, up to `max` of them in `paths`; returns how many there are.
 */
size_t	conf_restart_differences(const struct conf *running, const struct conf *loaded,
	    const char *paths[], size_t max);
/* Gives `loaded` the running values of those keys.  0 or -ENOMEM. */
int	conf_keep_restart(struct conf *loaded, const struct conf *running);

/*
 * The configuration as a file: only what differs from the defaults, and loads to
 * the same values.  0, -ENOMEM or -EIO.
 */
int	conf_write(const struct conf *, FILE *);
/* Every key at its default with its range, unit and help: etc/ringway.full.yaml. */
int	conf_write_sample(FILE *);

/* Every key, one "key.path: value" a line, in the schema's order. */
void	conf_dump(const struct conf *, FILE *);

/* "auto", "io_uring", ...: the words of the schema. */
const char	*conf_backend_name(enum conf_backend);

#endif

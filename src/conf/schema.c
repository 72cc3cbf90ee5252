/* SPDX-License-Identifier: ISC */
#include "conf/schema.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "conf/conf.h"
#include "util/str.h"

static const struct conf_word backend_words[] = {
	{ "auto", CONF_BACKEND_AUTO },
	{ "io_uring", CONF_BACKEND_IO_URING },
	{ "epoll", CONF_BACKEND_EPOLL },
	{ "kqueue", CONF_BACKEND_KQUEUE },
	{ "iocp", CONF_BACKEND_IOCP },
	{ NULL, 0 }
};

static const struct conf_word level_words[] = {
	{ "error", LOG_ERROR },
	{ "warn", LOG_WARN },
	{ "info", LOG_INFO },
	{ "debug", LOG_DEBUG },
	{ "trace", LOG_TRACE },
	{ NULL, 0 }
};

static const struct conf_word protocol_words[] = {
	{ "socks5", CONF_PROTO_SOCKS5 },
	{ "socks4", CONF_PROTO_SOCKS4 },
	{ "http", CONF_PROTO_HTTP },
	{ NULL, 0 }
};

static const struct conf_word prefer_words[] = {
	{ "auto", CONF_PREFER_AUTO },
	{ "ipv4", CONF_PREFER_IPV4 },
	{ "ipv6", CONF_PREFER_IPV6 },
	{ "ipv4_only", CONF_PREFER_IPV4_ONLY },
	{ "ipv6_only", CONF_PREFER_IPV6_ONLY },
	{ NULL, 0 }
};

static const struct conf_word auth_words[] = {
	{ "inherit", CONF_AUTH_INHERIT },
	{ "required", CONF_AUTH_REQUIRED },
	{ "none", CONF_AUTH_NONE },
	{ NULL, 0 }
};

static const struct conf_word origin_form_words[] = {
	{ "routed", CONF_ORIGIN_ROUTED },
	{ "any", CONF_ORIGIN_ANY },
	{ "off", CONF_ORIGIN_OFF },
	{ NULL, 0 }
};

static const struct conf_word forwarded_words[] = {
	{ "off", CONF_FORWARDED_OFF },
	{ "append", CONF_FORWARDED_APPEND },
	{ "delete", CONF_FORWARDED_DELETE },
	{ NULL, 0 }
};

static const struct conf_word format_words[] = {
	{ "text", CONF_LOG_TEXT },
	{ "json", CONF_LOG_JSON },
	{ NULL, 0 }
};

/* Ranges with a reason. */
enum {
	WORKERS_MAX = 1024,		/* CPUs in an affinity mask, CPU_SET(3) */
	LISTENERS_MAX = 64,
	BACKLOG_MAX = 65535,		/* listen(2) cuts it to net.core.somaxconn anyway */
	SESSIONS_MAX = 10000000,
	HOUR_S = 3600,
	DAY_S = 86400,
	WEEK_S = 7 * DAY_S,
	BLOCKS_MIN = 16,		/* a tenth is kept for handshakes: at least one */
	BLOCKS_MAX = 1 << 20,		/* 32 GiB */
	UDP_BLOCKS_MIN = 16,		/* an association that is flooded must leave some to others */
	UDP_BLOCKS_MAX = 1 << 19,	/* 32 GiB */
	DESTINATIONS_MAX = 65535,	/* any more is a scan */
	PPS_MAX = 10000000,		/* 512 bytes each are 40 Gbit/s */
	HEADER_BYTES_MIN = 1024,	/* real browsers' requests must fit */
	HEADER_BYTES_MAX = 1 << 20,
	SERVERS_MAX = 16,
	CACHE_ENTRIES_MIN = 16,
	CACHE_ENTRIES_MAX = 1 << 24,
	IFNAME_BYTES_MAX = 15,		/* IFNAMSIZ less its NUL, netdevice(7) */
	KEEPALIVE_S_MAX = 32767,	/* TCP_KEEPIDLE's limit, MAX_TCP_KEEPIDLE in the kernel */
	PATH_BYTES_MAX = 4095,		/* PATH_MAX less its NUL, limits.h */
	LOGIN_BYTES_MAX = 255,		/* LOGIN_NAME_MAX less its NUL */
	REALM_BYTES_MAX = 128,
	USER_BYTES_MAX = 255,		/* what RFC 1929 can carry */
	RECORD_BYTES_MAX = 255,		/* a password record has about 90 */
	LIST_ENTRIES_MAX = 65536,	/* longer ones belong into a file of their own */
	LOG_BUFFER_MIN = 4096,
	LOG_BUFFER_MAX = 64 << 20
};

#define BODY_BYTES_MAX	((uint64_t)1 << 50)	/* a pebibyte: any more is a mistake */

#define WIDTH(type, member)	sizeof(((struct type *)0)->member)
#define IN(type, member)	.offset = offsetof(struct type, member), .width = WIDTH(type, member)
#define LIST(type, list, number) \
	.offset = offsetof(struct type, list), .width = sizeof(*((struct type *)0)->list), \
	.count_offset = offsetof(struct type, number)

/* udp.port_range is one row for both. */
_Static_assert(offsetof(struct conf, udp.port_high) ==
    offsetof(struct conf, udp.port_low) + WIDTH(conf, udp.port_low), "side by side");

const struct conf_row conf_schema[] = {
	{ "workers", CONF_NUMBER, "0", 0, WORKERS_MAX, CONF_RESTART, "threads",
	    "worker threads; 0 = one per usable CPU (affinity mask and cgroup quota respected)",
	    IN(conf, workers) },
	{ "pin_workers", CONF_BOOL, "false", 0, 1, CONF_RESTART, "",
	    "pin worker i to the i-th usable CPU",
	    IN(conf, pin_workers) },
	{ "backend", CONF_ENUM, "auto", 0, 0, CONF_RESTART, "",
	    "how the kernel is asked; a named one is strict",
	    .words = backend_words, IN(conf, backend) },
	{ "log_level", CONF_ENUM, "info", 0, 0, CONF_NEW_SESSIONS, "",
	    "the least important lines that the error log still gets",
	    .words = level_words, IN(conf, log_level) },
	{ "user", CONF_STRING, "", 0, LOGIN_BYTES_MAX, CONF_RESTART, "",
	    "user to become once the listeners are open, name or number; empty = stay",
	    IN(conf, user) },
	{ "group", CONF_STRING, "", 0, LOGIN_BYTES_MAX, CONF_RESTART, "",
	    "group to become, name or number; empty = the user's",
	    IN(conf, group) },
	{ "pid_file", CONF_STRING, "", 0, PATH_BYTES_MAX, CONF_RESTART, "",
	    "file for the process id; empty = none",
	    IN(conf, pid_file) },
	{ "shutdown_timeout_s", CONF_NUMBER, "30", 0, DAY_S, CONF_NEW_SESSIONS, "seconds",
	    "how long sessions may go on after SIGTERM or SIGINT",
	    IN(conf, shutdown_timeout_s) },
	{ "stats_interval_s", CONF_NUMBER, "0", 0, DAY_S, CONF_NEW_SESSIONS, "seconds",
	    "time between the lines with a summary in the error log; 0 = none",
	    IN(conf, stats_interval_s) },

	{ "listen", CONF_RECORDS, "0.addr=127.0.0.1 1.addr=::1", 1, LISTENERS_MAX,
	    CONF_NEW_SESSIONS, "listeners",
	    "where clients connect",
	    LIST(conf, listen, listen_count) },
	{ "listen[].addr", CONF_LISTEN_ADDR, "127.0.0.1", 1, 0, CONF_NEW_SESSIONS, "",
	    "IPv4, IPv6 or unix:/path",
	    IN(conf_listen, addr) },
	{ "listen[].port", CONF_NUMBER, "1080", 1, 65535, CONF_NEW_SESSIONS, "",
	    "TCP port; not used by unix:/path",
	    IN(conf_listen, port) },
	{ "listen[].protocols", CONF_FLAGS, "socks5,http", 1, 3, CONF_NEW_SESSIONS, "protocols",
	    "what is served, told apart by the first byte; socks4 is 4 and 4a",
	    .words = protocol_words, IN(conf_listen, protocols) },
	{ "listen[].auth", CONF_ENUM, "inherit", 0, 0, CONF_NEW_SESSIONS, "",
	    "whether a password is asked for here; inherit = as auth.require_password says",
	    .words = auth_words, IN(conf_listen, auth) },
	{ "listen[].backlog", CONF_NUMBER, "4096", 1, BACKLOG_MAX, CONF_NEW_SESSIONS,
	    "connections",
	    "connections that may wait to be accepted, for each worker",
	    IN(conf_listen, backlog) },

	{ "auth.whitelist", CONF_STRINGS, "", 0, LIST_ENTRIES_MAX, CONF_NEW_SESSIONS, "addresses",
	    "addresses and prefixes like 192.0.2.0/24 that clients may come from; none = any",
	    LIST(conf, auth.whitelist, auth.whitelist_count) },
	{ "auth.whitelist_file", CONF_STRING, "", 0, PATH_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "file with more of them, one a line; an empty file lets nobody in",
	    IN(conf, auth.whitelist_file) },
	{ "auth.require_password", CONF_BOOL, "false", 0, 1, CONF_NEW_SESSIONS, "",
	    "ask every client for a name and a password",
	    IN(conf, auth.require_password) },
	{ "auth.realm", CONF_STRING, "ringway", 1, REALM_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "what browsers show when they ask for the password",
	    IN(conf, auth.realm) },
	{ "auth.users", CONF_RECORDS, "", 0, LIST_ENTRIES_MAX, CONF_NEW_SESSIONS, "users",
	    "who may use the proxy",
	    LIST(conf, auth.users, auth.user_count) },
	{ "auth.users[].name", CONF_STRING, "", 1, USER_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "the user's name; must be there",
	    IN(conf_user, name) },
	{ "auth.users[].pbkdf2", CONF_STRING, "", 1, RECORD_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "the password's record, from ringway --hash-password; must be there",
	    .secret = true, IN(conf_user, pbkdf2) },
	{ "auth.users_file", CONF_STRING, "", 0, PATH_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "file with more users, NAME:RECORD a line",
	    IN(conf, auth.users_file) },
	{ "auth.failures_per_minute", CONF_NUMBER, "20", 0, 1000000, CONF_NEW_SESSIONS, "failures",
	    "wrong passwords of one address before it is refused for a while; 0 = no limit",
	    IN(conf, auth.failures_per_minute) },

	{ "limits.max_sessions", CONF_NUMBER, "0", 0, SESSIONS_MAX, CONF_NEW_SESSIONS, "sessions",
	    "sessions at one time; 0 = from RLIMIT_NOFILE, raised to the hard limit at start",
	    IN(conf, limits.max_sessions) },
	{ "limits.max_sessions_per_ip", CONF_NUMBER, "200", 0, SESSIONS_MAX, CONF_NEW_SESSIONS,
	    "sessions",
	    "sessions of one client address; 0 = no limit",
	    IN(conf, limits.max_sessions_per_ip) },
	{ "limits.handshake_timeout_s", CONF_NUMBER, "10", 1, HOUR_S, CONF_NEW_SESSIONS, "seconds",
	    "from accept to the end of the request",
	    IN(conf, limits.handshake_timeout_s) },
	{ "limits.connect_timeout_s", CONF_NUMBER, "10", 1, HOUR_S, CONF_NEW_SESSIONS, "seconds",
	    "for resolving the destination and connecting to it",
	    IN(conf, limits.connect_timeout_s) },
	{ "limits.idle_timeout_s", CONF_NUMBER, "300", 1, WEEK_S, CONF_NEW_SESSIONS, "seconds",
	    "a session in which nothing has moved for so long is closed",
	    IN(conf, limits.idle_timeout_s) },
	{ "limits.half_close_timeout_s", CONF_NUMBER, "60", 1, WEEK_S, CONF_NEW_SESSIONS, "seconds",
	    "the same once one side has sent FIN",
	    IN(conf, limits.half_close_timeout_s) },
	{ "limits.tcp_pool_blocks", CONF_NUMBER, "4096", BLOCKS_MIN, BLOCKS_MAX, CONF_RESTART,
	    "blocks",
	    "ceiling of relay buffer memory per worker, in blocks of 32 KiB",
	    IN(conf, limits.tcp_pool_blocks) },
	{ "limits.udp_pool_blocks", CONF_NUMBER, "512", UDP_BLOCKS_MIN, UDP_BLOCKS_MAX, CONF_RESTART,
	    "blocks",
	    "ceiling of the memory for datagrams per worker, in blocks of 64 KiB",
	    IN(conf, limits.udp_pool_blocks) },
	{ "limits.header_bytes", CONF_SIZE, "65536", HEADER_BYTES_MIN, HEADER_BYTES_MAX,
	    CONF_NEW_SESSIONS, "bytes",
	    "longest HTTP message head",
	    IN(conf, limits.header_bytes) },
	{ "limits.header_count", CONF_NUMBER, "200", 10, 10000, CONF_NEW_SESSIONS, "fields",
	    "most fields in an HTTP message head",
	    IN(conf, limits.header_count) },

	{ "udp.enabled", CONF_BOOL, "true", 0, 1, CONF_NEW_SESSIONS, "",
	    "serve UDP ASSOCIATE of SOCKS5",
	    IN(conf, udp.enabled) },
	{ "udp.public_address", CONF_IP, "", 0, 0, CONF_NEW_SESSIONS, "",
	    "where clients are told to send datagrams; empty = the address that they connected to",
	    IN(conf, udp.public_address) },
	{ "udp.port_range", CONF_RANGE, "40000, 41000", 1, 65535, CONF_NEW_SESSIONS, "",
	    "UDP ports for associations, the first and the last; each takes one",
	    .offset = offsetof(struct conf, udp.port_low),
	    .width = WIDTH(conf, udp.port_low) + WIDTH(conf, udp.port_high) },
	{ "udp.idle_timeout_s", CONF_NUMBER, "120", 1, WEEK_S, CONF_NEW_SESSIONS, "seconds",
	    "an association in which no datagram has moved for so long is ended",
	    IN(conf, udp.idle_timeout_s) },
	{ "udp.max_destinations", CONF_NUMBER, "64", 1, DESTINATIONS_MAX, CONF_NEW_SESSIONS,
	    "destinations",
	    "addresses with port that one association may talk to",
	    IN(conf, udp.max_destinations) },
	{ "udp.max_pps", CONF_NUMBER, "5000", 0, PPS_MAX, CONF_NEW_SESSIONS, "datagrams",
	    "datagrams a second that the client of one association may send; 0 = no limit",
	    IN(conf, udp.max_pps) },
	{ "udp.allow_client_addr_mismatch", CONF_BOOL, "false", 0, 1, CONF_NEW_SESSIONS, "",
	    "let a client send from another address than its SOCKS connection came from",
	    IN(conf, udp.allow_client_addr_mismatch) },
	{ "udp.resolve_domain", CONF_BOOL, "false", 0, 1, CONF_NEW_SESSIONS, "",
	    "resolve names that datagrams are sent to, rather than drop these",
	    IN(conf, udp.resolve_domain) },

	{ "resolver.servers", CONF_SERVERS, "", 0, SERVERS_MAX, CONF_NEW_SESSIONS, "servers",
	    "name servers, ADDRESS or ADDRESS:PORT; none = the system's",
	    LIST(conf, resolver.servers, resolver.server_count) },
	{ "resolver.prefer", CONF_ENUM, "auto", 0, 0, CONF_NEW_SESSIONS, "",
	    "which address family is tried first, or alone",
	    .words = prefer_words, IN(conf, resolver.prefer) },
	{ "resolver.timeout_ms", CONF_NUMBER, "2000", 10, 60000, CONF_NEW_SESSIONS, "milliseconds",
	    "first wait for a name server's answer",
	    IN(conf, resolver.timeout_ms) },
	{ "resolver.attempts", CONF_NUMBER, "3", 1, 10, CONF_NEW_SESSIONS, "attempts",
	    "how often each name server is asked",
	    IN(conf, resolver.attempts) },
	{ "resolver.cache_entries", CONF_NUMBER, "16384", CACHE_ENTRIES_MIN, CACHE_ENTRIES_MAX,
	    CONF_NEW_SESSIONS, "entries",
	    "names kept per worker",
	    IN(conf, resolver.cache_entries) },
	{ "resolver.min_ttl_s", CONF_NUMBER, "0", 0, WEEK_S, CONF_NEW_SESSIONS, "seconds",
	    "an answer is kept at least so long",
	    IN(conf, resolver.min_ttl_s) },
	{ "resolver.max_ttl_s", CONF_NUMBER, "3600", 0, WEEK_S, CONF_NEW_SESSIONS, "seconds",
	    "an answer is kept at most so long",
	    IN(conf, resolver.max_ttl_s) },
	{ "resolver.negative_ttl_s", CONF_NUMBER, "5", 0, HOUR_S, CONF_NEW_SESSIONS, "seconds",
	    "how long it is remembered that a name does not resolve",
	    IN(conf, resolver.negative_ttl_s) },

	{ "outbound.bind_ipv4", CONF_IPV4, "", 0, 0, CONF_NEW_SESSIONS, "",
	    "source address of IPv4 connections; empty = the system chooses",
	    IN(conf, outbound.bind_ipv4) },
	{ "outbound.bind_ipv6", CONF_IPV6, "", 0, 0, CONF_NEW_SESSIONS, "",
	    "source address of IPv6 connections; empty = the system chooses",
	    IN(conf, outbound.bind_ipv6) },
	{ "outbound.interface", CONF_STRING, "", 0, IFNAME_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "network interface to connect through; empty = by route",
	    IN(conf, outbound.interface) },
	{ "outbound.mark", CONF_NUMBER, "0", 0, UINT32_MAX, CONF_NEW_SESSIONS, "",
	    "SO_MARK of outgoing connections, for policy routing; 0 = none",
	    IN(conf, outbound.mark) },
	{ "outbound.happy_eyeballs_ms", CONF_NUMBER, "250", 0, 10000, CONF_NEW_SESSIONS,
	    "milliseconds",
	    "delay before the next address is tried as well; 0 = one after the other",
	    IN(conf, outbound.happy_eyeballs_ms) },
	{ "outbound.tcp_keepalive_s", CONF_NUMBER, "60", 0, KEEPALIVE_S_MAX, CONF_NEW_SESSIONS,
	    "seconds",
	    "idle time before TCP keep-alive probes; 0 = none are sent",
	    IN(conf, outbound.tcp_keepalive_s) },

	{ "acl.file", CONF_STRING, "", 0, PATH_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "file with rules about who may go where, see ringway-acl(5)",
	    IN(conf, acl.file) },
	{ "acl.rules", CONF_LINES, "", 0, LIST_ENTRIES_MAX, CONF_NEW_SESSIONS, "rules",
	    "more rules, behind those of the file",
	    LIST(conf, acl.rules, acl.rule_count) },
	{ "acl.protect_local", CONF_BOOL, "true", 0, 1, CONF_NEW_SESSIONS, "",
	    "keep clients that are not on loopback from loopback, link-local and the proxy itself",
	    IN(conf, acl.protect_local) },

	{ "http.via", CONF_BOOL, "true", 0, 1, CONF_NEW_SESSIONS, "",
	    "add a Via field to what is forwarded",
	    IN(conf, http.via) },
	{ "http.forwarded_for", CONF_ENUM, "off", 0, 0, CONF_NEW_SESSIONS, "",
	    "X-Forwarded-For of requests: leave it, append the client's address, or delete it",
	    .words = forwarded_words, IN(conf, http.forwarded_for) },
	{ "http.origin_form", CONF_ENUM, "routed", 0, 0, CONF_NEW_SESSIONS, "",
	    "requests without an absolute URI: only for hosts with a route, for any, or refused",
	    .words = origin_form_words, IN(conf, http.origin_form) },
	{ "http.keepalive_timeout_s", CONF_NUMBER, "60", 1, DAY_S, CONF_NEW_SESSIONS, "seconds",
	    "how long a client's connection is kept for its next request",
	    IN(conf, http.keepalive_timeout_s) },
	{ "http.upstream_timeout_s", CONF_NUMBER, "60", 1, DAY_S, CONF_NEW_SESSIONS, "seconds",
	    "for the first byte of an answer, then between its bytes",
	    IN(conf, http.upstream_timeout_s) },
	{ "http.max_body_bytes", CONF_SIZE, "0", 0, BODY_BYTES_MAX, CONF_NEW_SESSIONS, "bytes",
	    "longest body of a request; 0 = no limit",
	    IN(conf, http.max_body_bytes) },

	{ "access_log.path", CONF_STRING, "", 0, PATH_BYTES_MAX, CONF_NEW_SESSIONS, "",
	    "file for a line about each request; - = standard output, empty = none",
	    IN(conf, access_log.path) },
	{ "access_log.format", CONF_ENUM, "text", 0, 0, CONF_NEW_SESSIONS, "",
	    "how the lines look",
	    .words = format_words, IN(conf, access_log.format) },
	{ "access_log.flush_ms", CONF_NUMBER, "100", 1, 60000, CONF_NEW_SESSIONS, "milliseconds",
	    "a line is written at the latest after so long",
	    IN(conf, access_log.flush_ms) },
	{ "access_log.buffer", CONF_SIZE, "65536", LOG_BUFFER_MIN, LOG_BUFFER_MAX,
	    CONF_NEW_SESSIONS, "bytes",
	    "lines are collected up to so much, for each worker",
	    IN(conf, access_log.buffer_bytes) },
	{ "access_log.immediate", CONF_BOOL, "false", 0, 1, CONF_NEW_SESSIONS, "",
	    "write each line at once",
	    IN(conf, access_log.immediate) },
};

const size_t conf_schema_count = sizeof(conf_schema) / sizeof(conf_schema[0]);

const char *
conf_backend_name(enum conf_backend backend)
{
	return backend_words[backend].name;
}

const struct conf_row *
conf_schema_find(const char *path)
{
	for (size_t i = 0; i < conf_schema_count; i++)
		if (strcmp(conf_schema[i].path, path) == 0)
			return &conf_schema[i];
	return NULL;
}

/* Is `path` the part of `whole` in front of `mark`? */
static bool
is_parent(const char *path, const char *whole, const char *mark)
{
	size_t len = strlen(path);

	return strncmp(path, whole, len) == 0 && strncmp(whole + len, mark, strlen(mark)) == 0;
}

const struct conf_row *
conf_schema_section(const char *path)
{
	for (size_t i = 0; i < conf_schema_count; i++)
		if (is_parent(path, conf_schema[i].path, "."))
			return &conf_schema[i];
	return NULL;
}

bool
conf_schema_is_item(const struct conf_row *list, const struct conf_row *row)
{
	return list->type == CONF_RECORDS && is_parent(list->path, row->path, "[].");
}

const struct conf_row *
conf_schema_list_of(const struct conf_row *row)
{
	for (size_t i = 0; i < conf_schema_count; i++)
		if (conf_schema_is_item(&conf_schema[i], row))
			return &conf_schema[i];
	return NULL;
}

bool
conf_schema_is_required(const struct conf_row *row)
{
	return row->type == CONF_STRING && row->min != 0 && row->initial[0] == '\0';
}

static bool
is_digits(struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		if (!isdigit((unsigned char)text.base[i]))
			return false;
	return text.len != 0;
}

bool
conf_schema_pattern(const char *path, char pattern[CONF_PATH_MAX], size_t *index)
{
	size_t used = 0;

	*index = SIZE_MAX;
	pattern[0] = '\0';
	for (bool first = true;; first = false) {
		struct span part = span_of(path, strcspn(path, "."));

		if (used + part.len + sizeof(".[]") > CONF_PATH_MAX)
			return false;
		if (!first && is_digits(part)) {
			uint64_t number;

			/* "007" is no way to write 7, and an absurd index is as bad. */
			if (*index != SIZE_MAX || !str_to_u64(part, &number) || number > UINT32_MAX)
				return false;
			*index = (size_t)number;
			used += (size_t)sprintf(pattern + used, "[]");
		} else {
			used += (size_t)sprintf(pattern + used, "%s%.*s", first ? "" : ".",
			    (int)part.len, part.base);
		}
		path += part.len;
		if (*path == '\0')
			return true;
		path++;
	}
}

/* The last word of a path. */
static struct span
leaf_of(struct span path)
{
	size_t at = path.len;

	while (at > 0 && path.base[at - 1] != '.')
		at--;
	return span_of(path.base + at, path.len - at);
}

struct nearest {
	struct span	name;
	unsigned	distance;
};

static void
consider(struct nearest *best, struct span wanted, struct span candidate)
{
	unsigned distance = str_distance(wanted, candidate);

	/* The right word in the wrong section is a better guess than two typing errors. */
	if (distance > 1 && span_eq(leaf_of(wanted), leaf_of(candidate)))
		distance = 1;
	if (distance < best->distance)
		*best = (struct nearest){ candidate, distance };
}

/* The keys and sections directly inside the section that `pattern` is in. */
static void
list_siblings(const char *pattern, char *hint)
{
	size_t section = strlen(pattern) - leaf_of(span_str(pattern)).len;
	size_t used = (size_t)sprintf(hint, "known here: ");
	struct span last = span_str("");

	for (size_t i = 0; i < conf_schema_count; i++) {
		struct span name = span_str(conf_schema[i].path);

		if (name.len <= section || memcmp(name.base, pattern, section) != 0)
			continue;
		name = span_of(name.base + section, strcspn(name.base + section, ".["));
		if (span_eq(name, last))
			continue;
		if (used + name.len + sizeof(", ...") > CONF_HINT_MAX) {
			sprintf(hint + used, ", ...");
			return;
		}
		used += (size_t)sprintf(hint + used, "%s%.*s", last.len != 0 ? ", " : "",
		    (int)name.len, name.base);
		last = name;
	}
	if (last.len == 0)
		hint[0] = '\0';
}

char *
conf_schema_hint(const char *pattern, char hint[CONF_HINT_MAX])
{
	struct span wanted = span_str(pattern);
	size_t limit = leaf_of(wanted).len / 3;
	struct nearest best = { .distance = STR_FAR };

	for (size_t i = 0; i < conf_schema_count; i++) {
		const char *path = conf_schema[i].path, *dot;

		consider(&best, wanted, span_str(path));
		/* Sections have no rows of their own. */
		for (dot = strchr(path, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
			if (dot[-1] != ']')
				consider(&best, wanted, span_of(path, (size_t)(dot - path)));
	}
	if (best.distance <= (limit > 2 ? limit : 2)) {
		snprintf(hint, CONF_HINT_MAX, "nearest known key: %.*s", (int)best.name.len,
		    best.name.base);
		return hint;
	}
	list_siblings(pattern, hint);
	return hint;
}

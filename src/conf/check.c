/* SPDX-License-Identifier: ISC */
/* What no single key can tell: conf_validate() of conf.h. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/capability.h>
#endif

#include "conf/conf.h"
#include "conf/store.h"

/* A session has at least a client and an upstream socket. */
enum { SESSION_FDS_MIN = 2 };

struct check {
	struct conf		*conf;
	const struct conf_env	*env;
	struct conf_problems	*problems;
};

#define PROBLEM(check, severity, key, ...) \
	conf_problems_add((check)->problems, severity, conf_origin_of((check)->conf, key), key, \
	    __VA_ARGS__)

/* Was every part of this listener's address accepted? */
static bool
listener_is_sound(const struct check *check, size_t index)
{
	static const char *const parts[] = { "", ".addr", ".port" };
	char key[64];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(key, sizeof(key), "listen.%zu%s", index, parts[i]);
		if (conf_origin_is_bad(check->conf, key))
			return false;
	}
	return true;
}

/* The key to name when address and port together are wrong: the one that somebody wrote. */
static const char *
listener_key(const struct check *check, size_t index, char key[64])
{
	char port[64];

	snprintf(key, 64, "listen.%zu.addr", index);
	snprintf(port, 64, "listen.%zu.port", index);
	if (!conf_origin_has(check->conf, key) && conf_origin_has(check->conf, port))
		strcpy(key, port);
	return key;
}

static bool
wants_password(const struct conf *conf, const struct conf_listen *listen)
{
	return listen->auth == CONF_AUTH_REQUIRED ||
	    (listen->auth == CONF_AUTH_INHERIT && conf->auth.require_password);
}

static void
check_listener(struct check *check, size_t index)
{
	struct conf_listen *listen = &check->conf->listen[index];
	char key[64], any[ADDR_TEXT_MAX];

	snprintf(key, sizeof(key), "listen.%zu.addr", index);
	memset(&listen->sock, 0, sizeof(listen->sock));
	listen->unix_path = NULL;
	/* The schema lets only these two forms through. */
	if (!addr_parse_ip(span_str(listen->addr), listen->port, &listen->sock)) {
		listen->unix_path = strchr(listen->addr, ':') + 1;
		return;
	}
	if (addr_is_loopback(&listen->sock) || !listener_is_sound(check, index))
		return;
	if (wants_password(check->conf, listen))
		PROBLEM(check, CONF_WARNING, key,
		    "passwords are asked for on %s, which is not loopback, and nothing encrypts them "
		    "(use it in networks that you trust, or through an encrypted tunnel)",
		    addr_format(&listen->sock, any));
	else if (check->conf->auth.whitelist_count == 0 &&
	    check->conf->auth.whitelist_file[0] == '\0' &&
	    !conf_origin_is_bad(check->conf, "auth.whitelist") &&
	    !conf_origin_is_bad(check->conf, "auth.whitelist_file"))
		PROBLEM(check, CONF_WARNING, key,
		    "open proxy: %s is not loopback, and whoever reaches it may use this proxy "
		    "(set auth.whitelist or auth.require_password, listen on 127.0.0.1 or ::1, or "
		    "keep strangers out with a firewall)",
		    addr_format(&listen->sock, any));
}

/* Once: it is one key that would settle it for all of them. */
static void
check_udp(struct check *check)
{
	const struct conf *conf = check->conf;
	char key[64], any[ADDR_TEXT_MAX];

	if (conf->udp.public_address.len != 0 && addr_is_wildcard(&conf->udp.public_address))
		PROBLEM(check, CONF_ERROR, "udp.public_address",
		    "nobody can send to %s (an address that clients reach this machine by, or \"\" for the one that they connected to)",
		    addr_format_ip(&conf->udp.public_address, any));
	if (!conf->udp.enabled || conf->udp.public_address.len != 0 ||
	    conf_origin_is_bad(conf, "udp.public_address"))
		return;
	for (size_t i = 0; i < conf->listen_count; i++) {
		const struct conf_listen *listen = &conf->listen[i];

		if (listen->unix_path != NULL || addr_is_loopback(&listen->sock) ||
		    (listen->protocols & CONF_PROTO_SOCKS5) == 0 || !listener_is_sound(check, i))
			continue;
		snprintf(key, sizeof(key), "listen.%zu.addr", i);
		PROBLEM(check, CONF_WARNING, key,
		    "clients of %s are told to send their UDP to the address that they connected to, "
		    "which is the wrong one behind NAT or in a container (set udp.public_address to "
		    "the one that they can reach, or udp.enabled to false)",
		    addr_format(&listen->sock, any));
		return;
	}
}

static bool
same_listener(const struct conf_listen *a, const struct conf_listen *b)
{
	if (a->unix_path != NULL || b->unix_path != NULL)
		return a->unix_path != NULL && b->unix_path != NULL &&
		    strcmp(a->unix_path, b->unix_path) == 0;
	return a->port == b->port && addr_same_ip(&a->sock, &b->sock);
}

static void
check_listeners(struct check *check)
{
	struct conf *conf = check->conf;
	char key[64];

	if (conf->listen_count == 0)
		PROBLEM(check, CONF_ERROR, "listen",
		    "there is no listener, so nothing could be served");
	for (size_t i = 0; i < conf->listen_count; i++) {
		check_listener(check, i);
		for (size_t j = 0; j < i; j++) {
			if (!listener_is_sound(check, i) || !listener_is_sound(check, j) ||
			    !same_listener(&conf->listen[i], &conf->listen[j]))
				continue;
			PROBLEM(check, CONF_ERROR, listener_key(check, i, key),
			    "the same address and port as listen.%zu (each listener needs its own)",
			    j);
			break;
		}
	}
}

/* A password that nobody has is no protection that anybody wants: an error. */
static void
check_somebody_gets_in(struct check *check)
{
	static const char *const sources[] = { "auth.users", "auth.users_file" };
	const struct conf *conf = check->conf;
	char key[64];
	bool told = false;

	if (conf->auth.user_count != 0 || conf->auth.users_file[0] != '\0')
		return;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (conf_origin_is_bad(conf, sources[i]))
			return;
	for (size_t i = 0; i < conf->listen_count; i++) {
		bool here = conf->listen[i].auth == CONF_AUTH_REQUIRED;

		if (!wants_password(conf, &conf->listen[i]) || (told && !here))
			continue;
		snprintf(key, sizeof(key), here ? "listen.%zu.auth" : "auth.require_password", i);
		told = told || !here;
		PROBLEM(check, CONF_ERROR, key,
		    "a password is asked for, but there are no users, so nobody could get in "
		    "(add some to auth.users or auth.users_file)");
	}
}

static void
check_users(struct check *check)
{
	const struct conf_auth *auth = &check->conf->auth;
	char entry[64], key[96];

	for (size_t i = 0; i < auth->user_count; i++) {
		const char *const fields[][2] = {
			{ "name", auth->users[i].name }, { "pbkdf2", auth->users[i].pbkdf2 },
		};

		snprintf(entry, sizeof(entry), "auth.users.%zu", i);
		for (size_t j = 0; j < 2 && !conf_origin_is_bad(check->conf, entry); j++) {
			snprintf(key, sizeof(key), "%s.%s", entry, fields[j][0]);
			if (fields[j][1][0] == '\0' && !conf_origin_is_bad(check->conf, key))
				PROBLEM(check, CONF_ERROR, key, "this key is missing (each user "
				    "has a name and a pbkdf2 record, which ringway --hash-password "
				    "makes)");
		}
	}
	check_somebody_gets_in(check);
}

/* What the kernel takes for a name, dev_valid_name(). */
static bool
is_interface_name(const char *name)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return false;
	for (; *name != '\0'; name++)
		if (*name == '/' || *name == ':' || isspace((unsigned char)*name))
			return false;
	return true;
}

static void
check_limits(struct check *check)
{
	const struct conf_limits *limits = &check->conf->limits;
	uint64_t need = (uint64_t)limits->max_sessions * SESSION_FDS_MIN;

	if (check->env->nofile_hard != UINT64_MAX && need > check->env->nofile_hard)
		PROBLEM(check, CONF_WARNING, "limits.max_sessions",
		    "%" PRIu32 " sessions need %" PRIu64 " descriptors or more, and RLIMIT_NOFILE's "
		    "hard limit is %" PRIu64 " (raise it, or lower this)",
		    limits->max_sessions, need, check->env->nofile_hard);
}

int
conf_validate_in(struct conf *conf, const struct conf_env *env, struct conf_problems *problems)
{
	struct check check = { conf, env, problems };
	size_t errors_before = problems->errors;

	check_listeners(&check);
	check_udp(&check);
	check_users(&check);
	check_limits(&check);
	if (conf->resolver.min_ttl_s > conf->resolver.max_ttl_s &&
	    !conf_origin_is_bad(conf, "resolver.min_ttl_s") &&
	    !conf_origin_is_bad(conf, "resolver.max_ttl_s"))
		PROBLEM(&check, CONF_ERROR, "resolver.min_ttl_s",
		    "%" PRIu32 " is more than resolver.max_ttl_s, which is %" PRIu32
		    " (lower this, or raise that)",
		    conf->resolver.min_ttl_s, conf->resolver.max_ttl_s);
	if (!is_interface_name(conf->outbound.interface))
		PROBLEM(&check, CONF_ERROR, "outbound.interface",
		    "no interface can have this name (a name like eth0, without /, : and spaces)");
	if (conf->outbound.mark != 0 && !env->net_admin)
		PROBLEM(&check, CONF_WARNING, "outbound.mark",
		    "setting a mark needs CAP_NET_ADMIN, which this process does not have "
		    "(outgoing connections would fail; give it the capability, or leave the key out)");
	return problems->errors == errors_before ? 0 : -EINVAL;
}

static bool
have_net_admin(void)
{
#ifdef __linux__
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	return syscall(SYS_capget, &head, data) == 0 &&
	    (data[CAP_TO_INDEX(CAP_NET_ADMIN)].effective & CAP_TO_MASK(CAP_NET_ADMIN)) != 0;
#else
	return geteuid() == 0;
#endif
}

int
conf_validate(struct conf *conf, struct conf_problems *problems)
{
	struct conf_env env = { .nofile_hard = UINT64_MAX, .net_admin = have_net_admin() };
	struct rlimit nofile;

	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0 && nofile.rlim_max != RLIM_INFINITY)
		env.nofile_hard = nofile.rlim_max;
	return conf_validate_in(conf, &env, problems);
}

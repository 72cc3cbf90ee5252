/* SPDX-License-Identifier: ISC */
#include "privs.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#endif

enum {
	UNPRIVILEGED_PORT_START	= 1024	/* where the sysctl isn't */
};

static int fail(char *text, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int
fail(char *text, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, PRIVS_TEXT_MAX, fmt, ap);
	va_end(ap);
	return -error;
}

/* ---- whom to become ---- */

/* Digits only.  The highest value means "no change" to the system calls, so it is nobody's. */
static bool
parse_id(const char *text, unsigned long *id)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*id = strtoul(text, &end, 10);
	return *end == '\0' && errno == 0 && *id < UINT32_MAX;
}

/*
 * getpwnam(3) has no one value for "not there": 0, ENOENT, ESRCH, EBADF, EPERM
 * are all in use.  What is left is a data base that couldn't be asked.
 */
static bool
is_absence(int error)
{
	return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

static int
lookup_user(const char *user, struct privs *p, const struct passwd **pw, char *text)
{
	unsigned long id;
	int error;

	errno = 0;
	*pw = getpwnam(user);
	error = errno;
	if (*pw == NULL && !is_absence(error))
		return fail(text, error, "user: can't look up \"%s\": %s", user, strerror(error));
	if (*pw == NULL && !parse_id(user, &id))
		return fail(text, ENOENT, "user: no such user \"%s\"", user);
	if (*pw == NULL)
		*pw = getpwuid((uid_t)id);
	p->uid = *pw != NULL ? (*pw)->pw_uid : (uid_t)id;
	p->set_user = true;
	if (*pw == NULL)
		return 0;
	if (strlen((*pw)->pw_name) >= sizeof(p->name))
		return fail(text, ENAMETOOLONG, "user: the name \"%s\" is too long", user);
	strcpy(p->name, (*pw)->pw_name);
	return 0;
}

static int
lookup_group(const char *group, struct privs *p, char *text)
{
	const struct group *gr;
	unsigned long id = 0;
	int error;

	errno = 0;
	gr = getgrnam(group);
	error = errno;
	if (gr == NULL && !is_absence(error))
		return fail(text, error, "group: can't look up \"%s\": %s", group, strerror(error));
	if (gr == NULL && !parse_id(group, &id))
		return fail(text, ENOENT, "group: no such group \"%s\"", group);
	p->gid = gr != NULL ? gr->gr_gid : (gid_t)id;
	p->set_group = true;
	return 0;
}

int
privs_lookup(const char *user, const char *group, struct privs *p, char text[PRIVS_TEXT_MAX])
{
	const struct passwd *pw = NULL;
	int rc;

	memset(p, 0, sizeof(*p));
	if (user != NULL && user[0] != '\0') {
		if ((rc = lookup_user(user, p, &pw, text)) != 0)
			return rc;
		if (pw != NULL) {
			p->gid = pw->pw_gid;
			p->set_group = true;
		}
	}
	if (group != NULL && group[0] != '\0' && (rc = lookup_group(group, p, text)) != 0)
		return rc;
	if (p->set_user && !p->set_group)
		return fail(text, EINVAL,
		    "user: \"%s\" is in no user database, so group has to be set too", user);
	return 0;
}

static bool
is_uid(uid_t uid)
{
#ifdef __linux__
	uid_t r, e, s;

	return getresuid(&r, &e, &s) == 0 && r == uid && e == uid && s == uid;
#else
	return getuid() == uid && geteuid() == uid;
#endif
}

static bool
is_gid(gid_t gid)
{
#ifdef __linux__
	gid_t r, e, s;

	return getresgid(&r, &e, &s) == 0 && r == gid && e == gid && s == gid;
#else
	return getgid() == gid && getegid() == gid;
#endif
}

static bool
is_already(const struct privs *p)
{
	return (!p->set_user || is_uid(p->uid)) && (!p->set_group || is_gid(p->gid));
}

int
privs_allowed(const struct privs *p, char text[PRIVS_TEXT_MAX])
{
	if (geteuid() == 0 || is_already(p))
		return 0;
	if (p->set_user && !is_uid(p->uid))
		return fail(text, EPERM, "user: only root can become uid %lu, and this is uid %lu",
		    (unsigned long)p->uid, (unsigned long)geteuid());
	return fail(text, EPERM, "group: only root can become gid %lu, and this is gid %lu",
	    (unsigned long)p->gid, (unsigned long)getegid());
}

/* ---- capabilities ---- */

#ifdef __linux__

static const struct {
	enum privs_cap	cap;
	int		number;
} caps_known[] = {
	{ PRIVS_NET_BIND, CAP_NET_BIND_SERVICE },
	{ PRIVS_NET_ADMIN, CAP_NET_ADMIN },
	{ PRIVS_NET_RAW, CAP_NET_RAW },
};

enum { CAPS_KNOWN = sizeof(caps_known) / sizeof(caps_known[0]) };

static uint64_t
caps_mask(unsigned caps)
{
	uint64_t mask = 0;

	for (int i = 0; i < CAPS_KNOWN; i++)
		if (caps & (unsigned)caps_known[i].cap)
			mask |= UINT64_C(1) << caps_known[i].number;
	return mask;
}

struct capset {
	uint64_t	effective, permitted, inheritable;
};

/* By system call: glibc has no wrappers, and libcap is one library more for two calls. */
static int
caps_get(struct capset *c)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, d) != 0)
		return -errno;
	c->effective = d[0].effective | (uint64_t)d[1].effective << 32;
	c->permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	c->inheritable = d[0].inheritable | (uint64_t)d[1].inheritable << 32;
	return 0;
}

/* In all three sets, so that they may become ambient. */
static int
caps_set(uint64_t mask)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		uint32_t part = (uint32_t)(mask >> 32 * i);

		d[i] = (struct __user_cap_data_struct){ part, part, part };
	}
	return syscall(SYS_capset, &head, d) == 0 ? 0 : -errno;
}

/* Needs CAP_SETPCAP, so before the change of user; without it there is less to lose. */
static void
bounding_limit(uint64_t keep)
{
	for (int n = 0; n < 64 && prctl(PR_CAPBSET_READ, n, 0, 0, 0) >= 0; n++)
		if (!(keep >> n & 1))
			(void)prctl(PR_CAPBSET_DROP, n, 0, 0, 0);
}

static unsigned
unprivileged_port_start(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	unsigned n = UNPRIVILEGED_PORT_START;

	if (f == NULL)
		return n;
	if (fscanf(f, "%u", &n) != 1)
		n = UNPRIVILEGED_PORT_START;
	fclose(f);
	return n;
}

/* Before Linux 5.7 SO_BINDTODEVICE was CAP_NET_RAW's (socket(7)). */
static bool
device_needs_raw(void)
{
	unsigned major, minor;
	struct utsname u;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	    (major < 5 || (major == 5 && minor < 7));
}

unsigned
privs_needed(const struct conf *conf)
{
	unsigned caps = 0, start = unprivileged_port_start();

	for (size_t i = 0; i < conf->listen_count; i++) {
		const struct addr *a = &conf->listen[i].sock;

		if (a->len != 0 && addr_port(a) != 0 && addr_port(a) < start)
			caps |= PRIVS_NET_BIND;
	}
	/* These are bound when a client asks for one, long after. */
	if (conf->udp.enabled && conf->udp.port_low < start)
		caps |= PRIVS_NET_BIND;
	if (conf->outbound.mark != 0)
		caps |= PRIVS_NET_ADMIN;
	if (conf->outbound.interface != NULL && conf->outbound.interface[0] != '\0' &&
	    device_needs_raw())
		caps |= PRIVS_NET_RAW;
	return caps;
}

bool
privs_have(unsigned caps)
{
	uint64_t mask = caps_mask(caps);
	struct capset c;

	return caps_get(&c) == 0 && (c.effective & mask) == mask;
}

void
privs_give_socket(const struct privs *p, int fd)
{
	/* On a socket, fchown sets the owner that bind(2) compares (measured on 6.18; since 4.10). */
	if (p->set_user && fchown(fd, p->uid, (gid_t)-1) != 0)
		return;
}

/* Before setuid: what is to outlive it goes to *keep. */
static int
caps_prepare(unsigned caps, uint64_t *keep, char *text)
{
	struct capset now;
	int rc = caps_get(&now);

	if (rc != 0)
		return fail(text, -rc, "capget: %s", strerror(-rc));
	/* What root itself hasn't got (a container) can't be kept; --check has warned. */
	*keep = caps_mask(caps) & now.permitted;
	bounding_limit(*keep);
	if (*keep != 0 && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
		return fail(text, errno, "PR_SET_KEEPCAPS: %s", strerror(errno));
	return 0;
}

/* After setuid, which has emptied the effective and the ambient set. */
static int
caps_settle(uint64_t keep, char *text)
{
	struct capset now;
	int rc = caps_set(keep);

	if (rc != 0)
		return fail(text, -rc, "capset: %s", strerror(-rc));
	(void)prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	for (int n = 0; n < 64; n++)
		if ((keep >> n & 1) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, n, 0, 0) != 0)
			return fail(text, errno, "PR_CAP_AMBIENT_RAISE %d: %s", n, strerror(errno));
	if ((rc = caps_get(&now)) != 0 || now.permitted != keep || now.effective != keep)
		return fail(text, EPERM, "capabilities are not those asked for "
		    "(permitted %llx, wanted %llx)", (unsigned long long)now.permitted,
		    (unsigned long long)keep);
	return 0;
}

/*
 * No way to gain anything by execve: set-user-id files and file capabilities
 * count for nothing from here on.  Ambient capabilities pass all the same.
 */
static int
no_new_privs(char *text)
{
	/* EINVAL: before Linux 3.5. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 && errno != EINVAL)
		return fail(text, errno, "no_new_privs: %s", strerror(errno));
	return 0;
}

/*
 * The kernel clears this flag at setuid but execve sets it again, so the program
 * that SIGUSR2 starts needs it said.  Memory holds passwords of clients: no core
 * file of it, and nobody of the same user may attach.
 */
static void
hide_memory(void)
{
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

#else /* !__linux__: ids alone */

unsigned
privs_needed(const struct conf *conf)
{
	(void)conf;
	return 0;
}

bool
privs_have(unsigned caps)
{
	return caps == 0 || geteuid() == 0;
}

void
privs_give_socket(const struct privs *p, int fd)
{
	(void)p;
	(void)fd;
}

static int
caps_prepare(unsigned caps, uint64_t *keep, char *text)
{
	(void)caps;
	(void)text;
	*keep = 0;
	return 0;
}

static int
caps_settle(uint64_t keep, char *text)
{
	(void)keep;
	(void)text;
	return 0;
}

static int
no_new_privs(char *text)
{
	(void)text;
	return 0;
}

static void
hide_memory(void)
{
}

#endif

/* ---- the drop ---- */

static int
change_groups(const struct privs *p, char *text)
{
	/* Root's other groups (disk, adm, ...) go in any case. */
	if (p->set_user && p->name[0] != '\0') {
		if (initgroups(p->name, p->gid) != 0)
			return fail(text, errno, "user: initgroups for \"%s\": %s%s", p->name,
			    strerror(errno), errno == EPERM ? " (CAP_SETGID is missing)" : "");
	} else if (setgroups(1, &p->gid) != 0)
		return fail(text, errno, "group: setgroups: %s%s", strerror(errno),
		    errno == EPERM ? " (CAP_SETGID is missing)" : "");
	if (setgid(p->gid) != 0)
		return fail(text, errno, "group: setgid to %lu: %s", (unsigned long)p->gid,
		    strerror(errno));
	return is_gid(p->gid) ? 0 : fail(text, EPERM, "group: setgid to %lu did not change all ids",
	    (unsigned long)p->gid);
}

/* Root is only gone if asking for it fails, whatever the calls before have returned. */
static int
verify_no_way_back(const struct privs *p, char *text)
{
	if (!is_uid(p->uid))
		return fail(text, EPERM, "user: setuid to %lu did not change all ids",
		    (unsigned long)p->uid);
	if (p->uid != 0 && (setuid(0) == 0 || seteuid(0) == 0))
		return fail(text, EPERM, "user: root could be had back");
	if (p->gid != 0 && (setgid(0) == 0 || setegid(0) == 0))
		return fail(text, EPERM, "group: root's group could be had back");
	return 0;
}

static int
give_up_root(const struct privs *p, unsigned caps, char *text)
{
	uint64_t keep = 0;
	int rc;

	if ((rc = caps_prepare(caps, &keep, text)) != 0)
		return rc;
	/* From root, setuid(2) sets the real, effective and saved id. */
	if (setuid(p->uid) != 0)
		return fail(text, errno, "user: setuid to %lu: %s%s", (unsigned long)p->uid,
		    strerror(errno), errno == EPERM ? " (CAP_SETUID is missing)" :
		    errno == EAGAIN ? " (RLIMIT_NPROC)" : "");
	if ((rc = caps_settle(keep, text)) != 0)
		return rc;
	return verify_no_way_back(p, text);
}

int
privs_drop(const struct privs *p, unsigned caps, char text[PRIVS_TEXT_MAX])
{
	bool gives_up = p->set_user && p->uid != 0 && geteuid() == 0;
	int rc;

	if ((rc = privs_allowed(p, text)) != 0)
		return rc;
	if (p->set_group && geteuid() == 0 && (rc = change_groups(p, text)) != 0)
		return rc;
	if (gives_up && (rc = give_up_root(p, caps, text)) != 0)
		return rc;
	if ((rc = no_new_privs(text)) != 0)
		return rc;
	if (p->set_user && p->uid != 0)
		hide_memory();
	return 0;
}

/* SPDX-License-Identifier: ISC */
/*
 * privs: gives root up: becomes `user` and `group`, keeps the few capabilities
 * that the configuration goes on needing, and makes sure that there is no way
 * back.  It never opens files or sockets and never reads the configuration's
 * other keys than those that decide about capabilities.
 *
 * Credentials belong to threads (capabilities(7)): everything here is called by
 * main before any other thread exists (DESIGN C31): the workers', but also the
 * pool that checks passwords.
 *
 * What is kept when root is given up:
 *	CAP_NET_ADMIN		outbound.mark is set
 *	CAP_NET_RAW		outbound.interface is set and the kernel is older
 *				than 5.7, which lets anybody bind to a device
 *	CAP_NET_BIND_SERVICE	a listener has a port below
 *				net.ipv4.ip_unprivileged_port_start, so that a
 *				reload can bind it again
 * They are made inheritable and ambient, so that they reach the program that
 * SIGUSR2 starts; no_new_privs does not stand in the way of that (it bars
 * gaining privileges, not keeping them).  Everything else leaves the bounding
 * set too.  A reload that needs a capability which was not kept is refused.
 *
 * A process that is not root, or has no `user`, keeps what it was given, by the
 * unit file say; it only loses the way to get more (no_new_privs).
 */
#ifndef RW_PRIVS_H
#define RW_PRIVS_H

#include <stdbool.h>
#include <sys/types.h>

#include "conf/conf.h"

enum { PRIVS_TEXT_MAX = 256, PRIVS_NAME_MAX = 64 };

/* A set; other systems than Linux have none of them. */
enum privs_cap {
	PRIVS_NET_BIND	= 1 << 0,
	PRIVS_NET_ADMIN	= 1 << 1,
	PRIVS_NET_RAW	= 1 << 2
};

/* Whom to become, looked up. */
struct privs {
	bool	set_user, set_group;	/* neither: stay who we are */
	uid_t	uid;
	gid_t	gid;
	char	name[PRIVS_NAME_MAX];	/* of the user, for its other groups; "" = it has none */
};

/*
 * Names, or numbers, to ids; "" or NULL = not set.  A user without group brings
 * its primary group.  Not thread-safe (getpwnam).  0, or -ENOENT, -EINVAL, ...
 * with text as in all calls here: `user: no such user "x"`.
 */
int	privs_lookup(const char *user, const char *group, struct privs *,
	    char text[PRIVS_TEXT_MAX]);
/* Could this process become that?  0 or -EPERM: not root, and somebody else. For --check, a warning. */
int	privs_allowed(const struct privs *, char text[PRIVS_TEXT_MAX]);
/* Set of enum privs_cap. */
unsigned privs_needed(const struct conf *);
/* All of them in the effective set? */
bool	privs_have(unsigned caps);

/*
 * The socket's owner becomes the user.  Linux lets a further SO_REUSEPORT socket
 * join an address only if its owner is that of the sockets which are there, so
 * listeners bound by root would lock out those of a later start of more workers.
 * Best effort; before privs_drop().
 */
void	privs_give_socket(const struct privs *, int fd);

/*
 * Does it; `caps` is privs_needed().  Once, or again in vain: being that user
 * already is fine, which is how the program that SIGUSR2 starts finds itself.
 * After an error nothing may be served: exit.
 */
int	privs_drop(const struct privs *, unsigned caps, char text[PRIVS_TEXT_MAX]);

#endif

/* SPDX-License-Identifier: ISC */
/* Who may be sent to: the rules, once a destination. */
#include "relay/udp_internal.h"

#include <sys/socket.h>
#include <unistd.h>

/* An address of this machine?  Asked of the kernel, as addresses come and go; only for ports that are ours. */
static bool
is_here(const struct addr *to)
{
	struct addr a = *to;
	int fd = socket(a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool here;

	if (fd < 0)
		return true;	/* not known: not worth the risk of a loop */
	addr_set_port(&a, 0);
	here = bind(fd, &a.sa, a.len) == 0;
	close(fd);
	return here;
}

bool
udp_is_association(const struct udp_assoc *a, const struct addr *at)
{
	struct addr plain = *at;

	addr_unmap(&plain);
	return udpports_taken(a->env->udpports, addr_port(&plain)) && (addr_is_loopback(&plain) || is_here(&plain));
}

bool
udp_judge_open(struct udp_assoc *a, struct judge *j, const struct target *target)
{
	struct acl_request request = {
		.kind = ACL_SOCKS, .method = span_of("", 0), .path = span_of("", 0),
		.target = target, .client = &a->client_ip,
		.user = span_str(a->user != NULL ? a->user : ""),
		.listener_port = a->listener_port, .no_routes = true
	};

	if (judge_open(j, a->snapshot, &request))
		return true;
	udp_judge_refused(a, j, target, 1);
	return false;
}

bool
udp_judge_permits(struct udp_assoc *a, struct judge *j, const struct addr *to)
{
	return judge_permits(j, to, env_is_self(a->env, to) || udp_is_association(a, to));
}

void
udp_judge_refused(struct udp_assoc *a, const struct judge *j, const struct target *target, uint64_t datagrams)
{
	enum judge_cause cause = j->cause;
	char to[TARGET_TEXT_MAX], client[ADDR_TEXT_MAX];

	udp_count(a, cause == JUDGE_ACL ? COUNT_UDP_DROP_ACL : cause == JUDGE_LOCAL ? COUNT_UDP_DROP_LOCAL :
	    cause == JUDGE_SELF ? COUNT_UDP_DROP_SELF : COUNT_UDP_DROP_QUEUE, datagrams);
	/* This is asked for each datagram of a client that does not give up: no text unless it is read. */
	if (!log_enabled(LOG_INFO))
		return;
	target_authority(target, 0, to);
	log_info(LOG_C_ACL, udp_who(a), "datagram refused client=%s target=%s cause=%s rule=\"%s\"",
	    addr_format(&a->client_ip, client), to, judge_cause_text(cause), j->rule);
}

/* As the socket wants it: IPv4 goes mapped over one that is for both. */
static struct addr
for_socket(const struct udp_assoc *a, const struct addr *to)
{
	struct addr out = *to;

	if (!a->dual || to->sa.sa_family != AF_INET)
		return out;
	memset(&out, 0, sizeof out);
	out.in6.sin6_family = AF_INET6;
	out.in6.sin6_port = to->in.sin_port;
	out.in6.sin6_addr.s6_addr[10] = out.in6.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&out.in6.sin6_addr.s6_addr[12], &to->in.sin_addr, sizeof to->in.sin_addr);
	out.len = sizeof out.in6;
	return out;
}

struct udp_dest *
udp_admit(struct udp_assoc *a, const struct addr *to)
{
	const struct conf_outbound *out = &a->snapshot->conf->outbound;
	const struct udp_hook *hook = a->env->udp_hook;
	union udp_key key = udp_key_of_addr(to);
	struct udp_dest *d = udp_dest_find(&a->dests, &key);

	if (d != NULL)
		return d;
	d = udp_dest_add(&a->dests, &key, a->conf->max_destinations, a->conf->idle_timeout_s * NS_PER_S,
	    udp_send_oldest_ns(a), a->now_ns);
	if (d == NULL) {
		udp_count(a, COUNT_UDP_DROP_DESTINATIONS, 1);
		return NULL;
	}
	/* Its place may have been another's. */
	if (a->last_up == d)
		a->last_up = NULL;
	if (a->last_down == d)
		a->last_down = NULL;
	if (log_enabled(LOG_DEBUG)) {
		char text[ADDR_TEXT_MAX];

		log_debug(udp_who(a), "association's destination is %s", addr_format(to, text));
	}
	d->peer.to = for_socket(a, to);
	d->peer.local = to->sa.sa_family == AF_INET ? out->bind_ipv4 : out->bind_ipv6;
	d->peer.gso_max = a->shared->gso_segments > 1 ? UINT16_MAX : 0;
	d->hooked = hook != NULL && addr_port(to) == hook->port;
	return d;
}

struct udp_dest *
udp_admit_literal(struct udp_assoc *a, const struct target *target)
{
	struct udp_dest *d = NULL;
	struct judge j;

	if (udp_judge_open(a, &j, target)) {
		if (udp_judge_permits(a, &j, &target->addr))
			d = udp_admit(a, &target->addr);
		else
			udp_judge_refused(a, &j, target, 1);
	}
	judge_close(&j);
	return d;
}

/* SPDX-License-Identifier: ISC */
#include "net/dnschan.h"

#include <ares.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/* RFC 9715: larger answers come by TCP rather than in fragments. */
	EDNS_BYTES		= 1232,
	SERVERS_TEXT_EACH	= ADDR_TEXT_MAX + 1,
	/* Answers to a burst of questions wait in one socket; the kernel may give less. */
	UDP_RECEIVE_BYTES	= 1024 * 1024,
	/* RFC 1035 section 4.1.1 */
	HEADER_BYTES		= 12,
	RCODE_SERVFAIL		= 2,
	RCODE_NONE		= -1
};

/* c-ares counts in its own clock: a turn that comes a hair early would find nothing due. */
static const uint64_t TIMER_SLACK_NS = 1000000;
static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;

enum chan_state { CHAN_OPEN, CHAN_RETIRED, CHAN_CLOSING };

struct dnschan {
	struct io_loop	*loop;
	ares_channel	 ares;		/* NULL once CHAN_CLOSING */
	enum chan_state	 state;
	struct io_link	 socks;		/* those c-ares still has */
	unsigned	 sock_count;	/* the closing ones too */
	unsigned	 open_questions;
	uint64_t	 timeout_ns;	/* of a first try: no deadline that c-ares sets is nearer */
	int		 last_rcode;	/* of the datagram c-ares read last, see status_of() */
	struct io_timer	 timer;
	void		(*gone)(void *owner);
	void		*owner;
};

struct dns_sock {
	struct io_sock	 sock;
	struct io_link	 link;
	struct dnschan	*chan;
	struct io_op	 in, out;
	bool		 want_in, want_out, closing;
};

struct question {
	struct dnschan	*chan;
	dnschan_cb	*cb;
	void		*owner;
};

static void	settle(struct dnschan *);
static void	on_poll(struct io_loop *, struct io_op *);

/* ---- sockets: what c-ares calls ---- */

static ares_socket_t
sock_open(int family, int type, int protocol, void *data)
{
	struct dnschan *chan = data;
	struct dns_sock *s;
	int fd, one = 1, receive_bytes = UDP_RECEIVE_BYTES;

	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		errno = ENOMEM;
		return ARES_SOCKET_BAD;
	}
	fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
	if (fd < 0) {
		free(s);
		return ARES_SOCKET_BAD;
	}
	if (type == SOCK_STREAM)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	else
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
	s->chan = chan;
	io_adopt(chan->loop, &s->sock, fd);
	io_list_add_tail(&chan->socks, &s->link);
	chan->sock_count++;
	return fd;
}

static struct dns_sock *
sock_find(struct dnschan *chan, ares_socket_t fd)
{
	struct io_link *l;
	struct dns_sock *s;

	/* Two a server at most. */
	for (l = chan->socks.next; l != &chan->socks; l = l->next) {
		s = io_container_of(l, struct dns_sock, link);
		if (s->sock.fd == fd)
			return s;
	}
	return NULL;
}

static void
on_sock_closed(struct io_loop *loop, struct io_sock *sock)
{
	struct dns_sock *s = io_container_of(sock, struct dns_sock, sock);
	struct dnschan *chan = s->chan;

	(void)loop;
	free(s);
	assert(chan->sock_count > 0);
	chan->sock_count--;
	settle(chan);
}

static int
sock_close(ares_socket_t fd, void *data)
{
	struct dnschan *chan = data;
	struct dns_sock *s = sock_find(chan, fd);

	assert(s != NULL);
	s->closing = true;
	io_list_del(&s->link);
	io_close(&s->sock, on_sock_closed);
	return 0;
}

static int
sock_connect(ares_socket_t fd, const struct sockaddr *to, ares_socklen_t len, void *data)
{
	(void)data;
	return connect(fd, to, len);
}

static ares_ssize_t
sock_recvfrom(ares_socket_t fd, void *buf, size_t len, int flags, struct sockaddr *from,
    ares_socklen_t *from_len, void *data)
{
	struct dnschan *chan = data;
	ares_ssize_t n = recvfrom(fd, buf, len, flags, from, from_len);

	/* `from` is asked for with datagrams only. */
	if (n >= HEADER_BYTES && from != NULL)
		chan->last_rcode = ((const uint8_t *)buf)[3] & 0xf;
	else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
		chan->last_rcode = RCODE_NONE;
	return n;
}

static ares_ssize_t
sock_sendv(ares_socket_t fd, const struct iovec *iov, int count, void *data)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov,
	    .msg_iovlen = (size_t)count };

	(void)data;
	return sendmsg(fd, &msg, MSG_NOSIGNAL);
}

static const struct ares_socket_functions sock_functions = {
	.asocket	= sock_open,
	.aclose		= sock_close,
	.aconnect	= sock_connect,
	.arecvfrom	= sock_recvfrom,
	.asendv		= sock_sendv
};

/*
 * Polls are one-shot.  One that is no longer wanted is cancelled; if it is
 * wanted again before that took effect, its final callback arms it anew.
 */
static void
sock_watch(struct dns_sock *s)
{
	if (s->closing)
		return;
	if (s->want_in && !io_armed(&s->in))
		io_poll(&s->in, &s->sock, IO_POLL_IN, on_poll);
	else if (!s->want_in && io_armed(&s->in))
		io_cancel(&s->in);
	if (s->want_out && !io_armed(&s->out))
		io_poll(&s->out, &s->sock, IO_POLL_OUT, on_poll);
	else if (!s->want_out && io_armed(&s->out))
		io_cancel(&s->out);
}

static void
on_sock_state(void *data, ares_socket_t fd, int readable, int writable)
{
	struct dns_sock *s = sock_find(data, fd);

	if (s == NULL)
		return;
	s->want_in = readable != 0;
	s->want_out = writable != 0;
	/* Both off is what c-ares says right before it closes: io_close cancels. */
	if (s->want_in || s->want_out)
		sock_watch(s);
}

/* ---- turning the wheel ---- */

static void
on_poll(struct io_loop *loop, struct io_op *op)
{
	struct dns_sock *s = io_container_of(op->sock, struct dns_sock, sock);
	struct dnschan *chan = s->chan;
	bool is_out = op == &s->out;

	(void)loop;
	if (s->closing)
		return;
	if (op->res != IO_ECANCELED)
		/* Errors too: reading or writing tells c-ares which, and it goes on to the next server. */
		ares_process_fd(chan->ares, is_out ? ARES_SOCKET_BAD : s->sock.fd,
		    is_out ? s->sock.fd : ARES_SOCKET_BAD);
	/* The socket may be closing now, but its memory stays until on_sock_closed(). */
	sock_watch(s);
	settle(chan);
}

static void
on_timer(struct io_loop *loop, struct io_timer *timer)
{
	struct dnschan *chan = io_container_of(timer, struct dnschan, timer);

	(void)loop;
	if (chan->state == CHAN_CLOSING) {
		void (*gone)(void *) = chan->gone;
		void *owner = chan->owner;

		assert(chan->sock_count == 0);
		free(chan);
		gone(owner);
		return;
	}
	chan->last_rcode = RCODE_NONE;
	ares_process_fd(chan->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	settle(chan);
}

/*
 * ares_timeout() walks all questions, so it is asked only when the timer is off
 * or set later than a question sent just now could need.  A timer that fires for
 * a question answered long ago does no harm.
 */
static void
set_timer(struct dnschan *chan)
{
	uint64_t now_ns = io_now(chan->loop), wait_ns;
	struct timeval tv, *next;

	if (chan->open_questions == 0) {
		io_timer_stop(chan->loop, &chan->timer);
		return;
	}
	if (io_timer_armed(&chan->timer) && chan->timer.at_ns <= now_ns + chan->timeout_ns)
		return;
	next = ares_timeout(chan->ares, NULL, &tv);
	if (next == NULL)
		return;
	wait_ns = (uint64_t)next->tv_sec * NS_PER_S + (uint64_t)next->tv_usec * 1000;
	io_timer_set(chan->loop, &chan->timer, now_ns + wait_ns + TIMER_SLACK_NS, on_timer);
}

static void
begin_close(struct dnschan *chan)
{
	ares_channel ares = chan->ares;

	chan->state = CHAN_CLOSING;
	io_timer_stop(chan->loop, &chan->timer);
	ares_destroy(ares);	/* answers what is open, closes the sockets */
	chan->ares = NULL;
	assert(chan->open_questions == 0);
}

/* After anything that may have changed the channel; never inside c-ares. */
static void
settle(struct dnschan *chan)
{
	if (chan->state == CHAN_RETIRED && chan->open_questions == 0)
		begin_close(chan);
	if (chan->state != CHAN_CLOSING) {
		set_timer(chan);
		return;
	}
	/* Freed from the timer: our callers may still look at the channel. */
	if (chan->sock_count == 0 && !io_timer_armed(&chan->timer))
		io_timer_set(chan->loop, &chan->timer, io_now(chan->loop), on_timer);
}

/* ---- questions ---- */

/*
 * c-ares tries the next server after SERVFAIL, NOTIMP and REFUSED, and says
 * ECONNREFUSED when there is none left, the same as when no server could be
 * reached.  It says so while it handles the datagram that it read last.
 */
static enum resolve_status
status_of(const struct dnschan *chan, int ares_status)
{
	switch (ares_status) {
	case ARES_SUCCESS:
		return RESOLVE_OK;
	case ARES_ENOTFOUND:
		return RESOLVE_NXDOMAIN;
	case ARES_ENODATA:
		return RESOLVE_NODATA;
	case ARES_ETIMEOUT:
		return RESOLVE_TIMEOUT;
	case ARES_ECONNREFUSED:
		return chan->last_rcode == RCODE_SERVFAIL ? RESOLVE_SERVFAIL : RESOLVE_REFUSED;
	case ARES_EREFUSED:
		return RESOLVE_REFUSED;
	case ARES_EBADNAME:
		return RESOLVE_BAD_NAME;
	case ARES_ENOMEM:
		return RESOLVE_NO_MEMORY;
	case ARES_ECANCELLED:
	case ARES_EDESTRUCTION:
		return RESOLVE_CLOSED;
	default:
		return RESOLVE_SERVFAIL;
	}
}

/* Addresses and the smallest TTL on the way to them. */
static unsigned
take_addrs(const struct ares_addrinfo *info, struct addr *addrs, uint32_t *ttl_s)
{
	const struct ares_addrinfo_cname *cname;
	const struct ares_addrinfo_node *node;
	int ttl = INT32_MAX;
	unsigned count = 0;

	for (cname = info->cnames; cname != NULL; cname = cname->next)
		if (cname->ttl < ttl)
			ttl = cname->ttl;
	for (node = info->nodes; node != NULL; node = node->ai_next) {
		if (node->ai_ttl < ttl)
			ttl = node->ai_ttl;
		if (count < RESOLVE_ADDRS_MAX) {
			addr_from_sockaddr(&addrs[count], node->ai_addr,
			    (socklen_t)node->ai_addrlen);
			if (addrs[count].len != 0)
				count++;
		}
	}
	/* RFC 2181 section 8: a TTL with the top bit set counts as zero. */
	*ttl_s = ttl < 0 ? 0 : (uint32_t)ttl;
	return count;
}

static void
on_answer(void *data, int ares_status, int timeouts, struct ares_addrinfo *info)
{
	struct question *q = data;
	struct addr addrs[RESOLVE_ADDRS_MAX];
	enum resolve_status status = status_of(q->chan, ares_status);
	unsigned count = 0;
	uint32_t ttl_s = 0;

	(void)timeouts;
	if (status == RESOLVE_OK && info != NULL)
		count = take_addrs(info, addrs, &ttl_s);
	if (status == RESOLVE_OK && count == 0)
		status = RESOLVE_NODATA;	/* a CNAME that leads nowhere */
	if (info != NULL)
		ares_freeaddrinfo(info);
	assert(q->chan->open_questions > 0);
	q->chan->open_questions--;
	q->cb(q->owner, status, addrs, count, ttl_s);
	free(q);
}

void
dnschan_ask(struct dnschan *chan, const char *name, int family, dnschan_cb *cb, void *owner)
{
	/* Unsorted: c-ares would open sockets to sort, and dial.c sorts by itself. */
	const struct ares_addrinfo_hints hints = { .ai_flags = ARES_AI_NOSORT,
	    .ai_family = family, .ai_socktype = SOCK_STREAM };
	struct question *q = malloc(sizeof(*q));

	assert(chan->state == CHAN_OPEN);
	if (q == NULL) {
		cb(owner, RESOLVE_NO_MEMORY, NULL, 0, 0);
		return;
	}
	*q = (struct question){ .chan = chan, .cb = cb, .owner = owner };
	chan->open_questions++;
	chan->last_rcode = RCODE_NONE;
	ares_getaddrinfo(chan->ares, name, NULL, &hints, on_answer, q);
	settle(chan);
}

/* ---- life ---- */

static int
set_servers(ares_channel ares, const struct conf_resolver *conf)
{
	size_t size = conf->server_count * SERVERS_TEXT_EACH + 1, at = 0;
	char where[ADDR_TEXT_MAX], *csv;
	int status;

	if (conf->server_count == 0)
		return ARES_SUCCESS;
	csv = malloc(size);
	if (csv == NULL)
		return ARES_ENOMEM;
	for (size_t i = 0; i < conf->server_count; i++)
		at += (size_t)snprintf(csv + at, size - at, "%s%s", i == 0 ? "" : ",",
		    addr_format(&conf->servers[i], where));
	status = ares_set_servers_ports_csv(ares, csv);
	free(csv);
	return status;
}

static int
init_ares(struct dnschan *chan, const struct conf_resolver *conf)
{
	char lookups[] = "b";	/* DNS only: the hosts file is read by hosts.c, once and not for each question */
	struct ares_options options = {
		.flags = ARES_FLAG_EDNS,
		.ednspsz = EDNS_BYTES,
		.timeout = (int)conf->timeout_ms,
		.tries = (int)conf->attempts,
		.lookups = lookups,
		.ndomains = 0,		/* no search list */
		.sock_state_cb = on_sock_state,
		.sock_state_cb_data = chan,
	};
	const int mask = ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_TIMEOUTMS |
	    ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_DOMAINS | ARES_OPT_SOCK_STATE_CB;
	int status = ares_init_options(&chan->ares, &options, mask);

	if (status != ARES_SUCCESS)
		return status == ARES_ENOMEM ? -ENOMEM : -EINVAL;
	ares_set_socket_functions(chan->ares, &sock_functions, chan);
	status = set_servers(chan->ares, conf);
	if (status != ARES_SUCCESS) {
		ares_destroy(chan->ares);
		return status == ARES_ENOMEM ? -ENOMEM : -EINVAL;
	}
	return 0;
}

int
dnschan_new(struct dnschan **out, struct io_loop *loop, const struct conf_resolver *conf,
    void (*gone)(void *owner), void *owner)
{
	struct dnschan *chan = calloc(1, sizeof(*chan));
	int error;

	if (chan == NULL)
		return -ENOMEM;
	chan->loop = loop;
	chan->timeout_ns = conf->timeout_ms * NS_PER_MS;
	chan->gone = gone;
	chan->owner = owner;
	io_list_init(&chan->socks);
	error = init_ares(chan, conf);
	if (error != 0) {
		free(chan);
		return error;
	}
	*out = chan;
	return 0;
}

void
dnschan_retire(struct dnschan *chan)
{
	assert(chan->state == CHAN_OPEN);
	chan->state = CHAN_RETIRED;
	settle(chan);
}

void
dnschan_close(struct dnschan *chan)
{
	if (chan->state == CHAN_CLOSING)
		return;
	begin_close(chan);
	settle(chan);
}

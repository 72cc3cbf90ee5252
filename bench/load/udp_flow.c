/* SPDX-License-Identifier: ISC */
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "message.h"
#include "udp.h"

#define EXPIRE_NS (50 * NS_PER_MS)
#define SUPER_BYTES_MAX 65000u		/* of a datagram that the kernel cuts */
#define RECEIVE_BYTES 65536u
#define RECEIVE_MANY 16u		/* times RECEIVE_BYTES is SCRATCH_BYTES */

static void
mark_sent(struct load *l, struct flow *f, unsigned n)
{
	uint64_t now = now_ns();

	for (unsigned i = 0; i < n; i++) {
		f->state[f->next % FLOW_RING] = DATAGRAM_UNDER_WAY;
		f->sent_ns[f->next % FLOW_RING] = now;
		f->next++;
	}
	f->credit -= n;
	l->res.sent += n;
}

static void
send_failed(int err)
{
	/* A full socket is no fault; the datagrams are sent anew later. */
	if (err != EAGAIN && err != ENOBUFS)
		fatal("sending a datagram: %s", strerror(err));
}

static void
send_super(struct load *l, struct flow *f, struct msghdr *m, size_t one, unsigned n)
{
	union {
		char space[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct cmsghdr *cm;
	uint16_t size = (uint16_t)one;

	if (n > SUPER_BYTES_MAX / one)
		n = (unsigned)(SUPER_BYTES_MAX / one);
	m->msg_iov->iov_len = one * n;
	if (n > 1) {
		m->msg_control = &control;
		m->msg_controllen = sizeof(control);
		cm = CMSG_FIRSTHDR(m);
		cm->cmsg_level = SOL_UDP;
		cm->cmsg_type = UDP_SEGMENT;
		cm->cmsg_len = CMSG_LEN(sizeof(size));
		memcpy(CMSG_DATA(cm), &size, sizeof(size));
	}
	if (sendmsg(f->fd, m, 0) < 0)
		send_failed(errno);
	else
		mark_sent(l, f, n);
}

void
flow_send(struct load *l, struct flow *f, unsigned n)
{
	size_t one = f->prefix_len + l->opt.payload;
	struct mmsghdr many[BATCH] = { 0 };
	struct iovec iov[BATCH];
	int rc;

	if (n > BATCH)
		n = BATCH;
	if (n > SCRATCH_BYTES / one)
		n = (unsigned)(SCRATCH_BYTES / one);
	if (n > FLOW_RING - (f->next - f->oldest))
		n = (unsigned)(FLOW_RING - (f->next - f->oldest));
	if (n == 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		unsigned char *p = l->scratch + i * one;

		memcpy(p, f->prefix, f->prefix_len);
		message_make(p + f->prefix_len, l->opt.payload, f->kind, f->id, f->next + i);
		iov[i] = (struct iovec){ p, one };
		many[i].msg_hdr.msg_iov = &iov[i];
		many[i].msg_hdr.msg_iovlen = 1;
		if (f->to.sin_port != 0) {
			many[i].msg_hdr.msg_name = &f->to;
			many[i].msg_hdr.msg_namelen = sizeof(f->to);
		}
	}
	if (l->opt.gso) {
		send_super(l, f, &many[0].msg_hdr, one, n);
		return;
	}
	rc = sendmmsg(f->fd, many, n, 0);
	if (rc < 0)
		send_failed(errno);
	else
		mark_sent(l, f, (unsigned)rc);
}

void
flow_expire(struct load *l, struct flow *f)
{
	while (f->oldest < f->next) {
		unsigned char *state = &f->state[f->oldest % FLOW_RING];

		if (*state == DATAGRAM_UNDER_WAY) {
			if (l->now_ns < f->sent_ns[f->oldest % FLOW_RING] + EXPIRE_NS)
				return;
			*state = DATAGRAM_LOST;
			l->res.lost++;
			f->credit++;
		}
		f->oldest++;
	}
}

void
flow_receive(struct load *l, struct flow *f, const unsigned char *data, size_t len)
{
	struct message_head h;
	unsigned char *state;

	memcpy(&h, data, sizeof(h));
	if (len != l->opt.payload || h.seq >= f->next ||
	    !message_right(data, 0, len, f->kind, f->id, h.seq)) {
		l->res.altered++;
		error(l, "association %u: a datagram of %zu bytes, number %llu, is not what was sent",
		    f->id, len, (unsigned long long)h.seq);
		return;
	}
	l->progress++;
	state = &f->state[h.seq % FLOW_RING];
	if (f->next - h.seq > FLOW_RING || *state == DATAGRAM_CAME) {
		l->res.dup++;
		return;
	}
	l->res.received++;
	if (*state == DATAGRAM_UNDER_WAY)
		f->credit++;
	else if (l->res.lost > 0)	/* late; it may have been counted before the window */
		l->res.lost--;
	*state = DATAGRAM_CAME;
}

/* udp(7): with UDP_GRO the kernel tells the size of the datagrams that it joined. */
static size_t
segment_of(struct msghdr *m, size_t len)
{
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(m); cm != NULL; cm = CMSG_NXTHDR(m, cm))
		if (cm->cmsg_level == SOL_UDP && cm->cmsg_type == UDP_GRO) {
			int size;

			memcpy(&size, CMSG_DATA(cm), sizeof(size));
			return size > 0 ? (size_t)size : len;
		}
	return len;
}

void
datagrams_receive(struct load *l, int fd, const struct receiver *r)
{
	char control[RECEIVE_MANY][CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct sockaddr_in from[RECEIVE_MANY];
	struct mmsghdr many[RECEIVE_MANY];
	struct iovec iov[RECEIVE_MANY];
	int n;

	memset(many, 0, sizeof(many));
	for (unsigned i = 0; i < RECEIVE_MANY; i++) {
		iov[i] = (struct iovec){ l->scratch + i * RECEIVE_BYTES, RECEIVE_BYTES };
		many[i].msg_hdr = (struct msghdr){ .msg_name = &from[i], .msg_namelen = sizeof(from[i]),
		    .msg_iov = &iov[i], .msg_iovlen = 1, .msg_control = control[i],
		    .msg_controllen = sizeof(control[i]) };
	}
	n = recvmmsg(fd, many, RECEIVE_MANY, MSG_DONTWAIT, NULL);
	if (n < 0) {
		/* A port that was closed answers by ICMP; what is lost is counted as lost. */
		if (errno != EAGAIN && errno != ECONNREFUSED)
			fatal("receiving datagrams: %s", strerror(errno));
		return;
	}
	for (int i = 0; i < n; i++) {
		size_t len = many[i].msg_len, one = segment_of(&many[i].msg_hdr, len);
		const unsigned char *p = iov[i].iov_base;

		for (size_t at = 0; at < len; at += one)
			r->datagram(l, r->arg, p + at, len - at < one ? len - at : one, &from[i]);
	}
}

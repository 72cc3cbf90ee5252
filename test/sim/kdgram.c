/* SPDX-License-Identifier: ISC */
/* Datagrams, and the table of descriptors. */
#include <errno.h>
#include <string.h>

#include "kernel.h"

enum { DGRAM_OVERHEAD = 512 };

/* ---- datagrams ---- */

struct kdgram *
k_dgram(struct kfile *f)
{
	return io_list_empty(&f->queue) ? NULL : io_container_of(f->queue.next, struct kdgram, link);
}

void
k_dgram_drop(struct kfile *f)
{
	struct kdgram *d = k_dgram(f);

	io_list_del(&d->link);
	f->queue_bytes -= d->len + DGRAM_OVERHEAD;
	sim_free(d);
}

static bool
is_broadcast(const struct sockaddr *to)
{
	uint32_t ip = ntohl(((const struct sockaddr_in *)(const void *)to)->sin_addr.s_addr);

	return ip == INADDR_BROADCAST || ip == 0x7fffffff;
}

long
k_sendto(struct kfile *f, const void *buf, size_t len, const struct sockaddr *to,
    const struct sockaddr_storage *source)
{
	struct kfile *at;
	struct kdgram *d;
	int rc;

	if (len > K_DGRAM_MAX)
		return -EMSGSIZE;
	if ((rc = k_autobind(f, to)) < 0)
		return rc;
	if (!f->broadcast && to->sa_family == AF_INET && is_broadcast(to))
		return -EACCES;
	if ((at = k_bound_to(SOCK_DGRAM, to, false)) == NULL) {
		f->icmp++;
		return (long)len;
	}
	if (at->queue_bytes + len + DGRAM_OVERHEAD > at->rcvbuf)
		return (long)len;		/* lost */
	d = sim_alloc(sizeof *d + len);
	d->from = f->local;
	d->fromlen = f->locallen;
	if (source != NULL && source->ss_family == AF_INET)	/* the address; the port stays */
		((struct sockaddr_in *)(void *)&d->from)->sin_addr =
		    ((const struct sockaddr_in *)(const void *)source)->sin_addr;
	else if (source != NULL && source->ss_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)&d->from)->sin6_addr =
		    ((const struct sockaddr_in6 *)(const void *)source)->sin6_addr;
	memcpy(&d->to, to, at->locallen);
	d->len = len;
	memcpy(d->data, buf, len);
	at->queue_bytes += len + DGRAM_OVERHEAD;
	io_list_add_tail(&at->queue, &d->link);
	k_notify(at);
	return (long)len;
}

/* ---- descriptors: the lowest free number, as POSIX has it ---- */

static struct kfile **fds;
static unsigned fd_cap, fd_used;

static unsigned
lowest_free(void)
{
	unsigned i = 0;

	while (i < fd_cap && fds[i] != NULL)
		i++;
	return i;
}

bool
k_fd_room(void)
{
	return sim.faults.fd_limit == 0 || lowest_free() < sim.faults.fd_limit;
}

int
k_fd_new(struct kfile *f)
{
	unsigned i = lowest_free();

	if (!k_fd_room()) {
		seen(SEEN_FD_LIMIT);
		return -EMFILE;
	}
	if (i == fd_cap) {
		unsigned cap = fd_cap ? fd_cap * 2 : 256;

		fds = sim_grow(fds, cap * sizeof *fds);
		memset(fds + fd_cap, 0, (cap - fd_cap) * sizeof *fds);
		fd_cap = cap;
	}
	fds[i] = f;
	fd_used++;
	return (int)i + SIM_FD_BASE;
}

struct kfile *
k_fd(int fd)
{
	unsigned i = (unsigned)(fd - SIM_FD_BASE);

	return fd >= SIM_FD_BASE && i < fd_cap ? fds[i] : NULL;
}

int
k_fd_close(int fd)
{
	struct kfile *f = k_fd(fd);

	if (f == NULL)
		return -EBADF;
	fds[fd - SIM_FD_BASE] = NULL;
	fd_used--;
	k_close(f);
	return 0;
}

unsigned
k_fds(void)
{
	return fd_used;
}

void
k_fds_each(void (*fn)(int fd, struct kfile *, void *), void *arg)
{
	for (unsigned i = 0; i < fd_cap; i++)
		if (fds[i] != NULL)
			fn((int)i + SIM_FD_BASE, fds[i], arg);
}

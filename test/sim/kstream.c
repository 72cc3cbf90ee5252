/* SPDX-License-Identifier: ISC */
/* Connections: what travels, what has arrived, what is told to whom. */
#include "kstream.h"

#include <errno.h>
#include <string.h>

static unsigned conns;

static void on_deliver(struct sim_event *);
static void on_rst(struct sim_event *);

unsigned
k_conns(void)
{
	return conns;
}

void
k_conns_changed(int by)
{
	conns += (unsigned)by;
}

static void
notify_end(struct kend *e)
{
	if (e->file != NULL)
		k_notify(e->file);
}

static void
conn_maybe_free(struct kconn *c)
{
	for (int i = 0; i < 2; i++)
		if (c->end[i].file != NULL || c->end[i].listener != NULL)
			return;
	for (int i = 0; i < 2; i++) {
		sim_stop(&c->end[i].rx.deliver);
		sim_stop(&c->end[i].rst_ev);
		sim_free(c->end[i].rx.buf);
	}
	sim_free(c);
	k_conns_changed(-1);
}

uint64_t
k_latency(const struct kconn *c)
{
	return c->latency_ns == 0 ? 0 : c->latency_ns / 2 + sim_below(c->latency_ns);
}

static void
send_rst(struct kend *to)
{
	if (to->rst || sim_armed(&to->rst_ev))
		return;
	sim_after(&to->rst_ev, k_latency(to->conn), on_rst);
}

void
k_end_close(struct kend *e, bool reset)
{
	struct kend *peer = k_other(e);

	sim_note(SIM_T_CLOSE, (int64_t)e->conn->id, e == &e->conn->end[1], reset);
	e->file = NULL;
	e->listener = NULL;
	if (e->rst) {
		;	/* the other side has forgotten us */
	} else if (reset || e->rx.visible > 0) {
		/* Unread input makes the kernel reset: the other side must know that it was not read. */
		send_rst(peer);
	} else if (!e->shut) {
		e->shut = true;
		peer->rx.fin = true;
		if (!sim_armed(&peer->rx.deliver))
			sim_after(&peer->rx.deliver, k_latency(e->conn), on_deliver);
	}
	conn_maybe_free(e->conn);
}

/* ---- the wire ---- */

static void
on_deliver(struct sim_event *ev)
{
	struct kpipe *p = io_container_of(ev, struct kpipe, deliver);
	struct kend *e = io_container_of(p, struct kend, rx), *sender = k_other(e);
	size_t arrive = p->len - p->visible, room = p->rcvcap - p->visible;

	if (e->rst)
		return;
	if (e->file == NULL && e->listener == NULL) {	/* closed: what still comes is answered by a reset */
		if (p->len > 0)
			send_rst(sender);
		return;
	}
	if (arrive > room)
		arrive = room;
	if (arrive > 1 && sim_chance(sim.faults.short_permille))
		arrive = 1 + sim_below(arrive);
	p->visible += arrive;
	p->delivered += arrive;
	if (p->visible < p->len && p->visible < p->rcvcap)
		sim_after(ev, k_latency(e->conn), on_deliver);
	else if (p->visible == p->len && p->fin && !p->fin_visible) {
		sim_note(SIM_T_FIN, (int64_t)e->conn->id, e == &e->conn->end[1], 0);
		p->fin_visible = true;
	}
	notify_end(e);
	if (p->blocked && p->len < p->cap) {
		p->blocked = false;
		notify_end(sender);
	}
}

static void
on_rst(struct sim_event *ev)
{
	struct kend *e = io_container_of(ev, struct kend, rst_ev);

	sim_note(SIM_T_RST, (int64_t)e->conn->id, e == &e->conn->end[1], 0);
	e->rst = true;
	e->rx.len = e->rx.visible;		/* what was under way is lost */
	if (sim.faults.purge_on_reset && e->rx.len > 0) {
		e->rx.len = e->rx.visible = 0;
		e->rx.fin_visible = false;	/* so it was no orderly end */
	}
	e->err = e->rx.fin_visible ? EPIPE : ECONNRESET;	/* as Linux has it */
	sim_stop(&e->rx.deliver);
	notify_end(e);
}

/* ---- bytes ---- */

static int
take_error(struct kend *e)
{
	int err = e->err;

	e->err = 0;
	return err;
}

static int
not_connected(struct kfile *f)
{
	int err = f->so_error;

	f->so_error = 0;
	return err != 0 ? -err : -ENOTCONN;
}

long
k_recv(struct kfile *f, void *buf, size_t len, bool peek)
{
	struct kend *e = f->end;
	struct kpipe *p;
	size_t n, first;

	if (f->kind != K_STREAM)
		return not_connected(f);
	p = &e->rx;
	if (p->visible == 0) {
		if (p->fin_visible)
			return 0;
		if (e->err != 0)
			return -take_error(e);
		return e->rst ? 0 : -EAGAIN;
	}
	n = len < p->visible ? len : p->visible;
	if (n > 1 && sim_chance(sim.faults.short_permille))
		n = 1 + sim_below(n);
	first = n < p->cap - p->head ? n : p->cap - p->head;
	memcpy(buf, p->buf + p->head, first);
	memcpy((uint8_t *)buf + first, p->buf, n - first);
	if (peek)
		return (long)n;
	e->moved_ns = sim_now();
	p->head = (p->head + n) % p->cap;
	p->len -= n;
	p->visible -= n;
	/* The window has opened: more may arrive, and the sender may go on. */
	if ((p->len > p->visible || p->blocked) && !sim_armed(&p->deliver) && !e->rst)
		sim_after(&p->deliver, k_latency(e->conn), on_deliver);
	sim_note(SIM_T_RECV, (int64_t)e->conn->id, e == &e->conn->end[1], (int64_t)n);
	return (long)n;
}

long
k_send(struct kfile *f, const void *buf, size_t len)
{
	struct kend *e = f->end, *to;
	struct kpipe *p;
	size_t n, at, first;

	if (f->kind != K_STREAM)
		return not_connected(f) == -ENOTCONN ? -EPIPE : -ECONNRESET;
	to = k_other(e);
	if (e->shut)
		return -EPIPE;
	if (e->rst)
		return e->err != 0 ? -take_error(e) : -EPIPE;
	p = &to->rx;
	n = p->cap - p->len;
	if (n == 0) {
		p->blocked = true;
		return -EAGAIN;
	}
	if (n > len)
		n = len;
	if (n > 2 && sim_chance(sim.faults.short_permille))	/* no kernel cuts two bytes into an empty socket */
		n = 1 + sim_below(n);
	at = (p->head + p->len) % p->cap;
	first = n < p->cap - at ? n : p->cap - at;
	memcpy(p->buf + at, buf, first);
	memcpy(p->buf, (const uint8_t *)buf + first, n - first);
	p->len += n;
	e->moved_ns = sim_now();
	if (!sim_armed(&p->deliver))
		sim_after(&p->deliver, k_latency(e->conn), on_deliver);
	sim_note(SIM_T_SEND, (int64_t)e->conn->id, e == &e->conn->end[1], (int64_t)n);
	return (long)n;
}

int
k_shutdown(struct kfile *f, bool rd, bool wr)
{
	struct kend *e = f->end, *to;

	if (f->kind != K_STREAM)
		return -ENOTCONN;
	if (e->rst)
		return -ENOTCONN;	/* Linux: the socket is closed already */
	if (wr && !e->shut) {
		e->shut = true;
		to = k_other(e);
		to->rx.fin = true;
		if (!sim_armed(&to->rx.deliver))
			sim_after(&to->rx.deliver, k_latency(e->conn), on_deliver);
	}
	if (rd)
		e->rx.fin_visible = true;
	k_notify(f);
	return 0;
}

unsigned
k_poll(struct kfile *f)
{
	unsigned r = 0;
	struct kend *e = f->end;

	if (f->kind == K_LISTEN)
		return io_list_empty(&f->backlog) ? 0 : K_IN;
	if (f->kind == K_DGRAM)
		return K_OUT | (k_dgram(f) != NULL ? K_IN : 0);
	if (f->kind != K_STREAM)
		return f->connecting == K_SYN ? 0 : K_OUT | K_HUP;
	if (e->rx.visible > 0 || e->rx.fin_visible || e->rst)
		r |= K_IN;
	if (e->rst || e->shut || k_other(e)->rx.len < k_other(e)->rx.cap)
		r |= K_OUT;
	else
		k_other(e)->rx.blocked = true;
	if (e->rst || (e->rx.fin_visible && e->shut))
		r |= K_HUP;
	return r;
}

uint64_t
k_acked(const struct kfile *f)
{
	return f->end != NULL ? k_other(f->end)->rx.delivered : 0;
}

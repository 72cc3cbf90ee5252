/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <string.h>

#include "relay/udp_out.h"

static uint8_t memory[70000];

static struct udp_peer
peer(void)
{
	struct udp_peer p = { .gso_max = UINT16_MAX, .gso_proven = UINT16_MAX };

	cr_assert(addr_parse_ip(span_str("2001:db8::1"), 53, &p.to));
	return p;
}

static struct udp_out *
out_new(enum udp_out_size size)
{
	struct udp_out *o = udp_out_new(size, 3);

	cr_assert_not_null(o);
	udp_out_begin(o, 5);
	return o;
}

/* Without a header. */
static bool
add(struct udp_out *o, struct udp_peer *p, size_t len)
{
	struct udp_datagram d = { .peer = p, .piece[0] = { memory, len }, .pieces = 1 };

	return udp_out_add(o, &d, UDP_OUT_SEGMENTS_MAX);
}

static bool
add_down(struct udp_out *o, struct udp_peer *p, size_t head, size_t len)
{
	struct udp_datagram d = {
		.peer = p, .piece = { { memory, head }, { memory + head, len } }, .pieces = 2,
		.header_bytes = (uint8_t)head, .down = true
	};

	return udp_out_add(o, &d, UDP_OUT_SEGMENTS_MAX);
}

Test(udp_out, equal_sizes_to_one_peer_are_one_message)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	for (int i = 0; i < 64; i++)
		cr_assert(add(o, &p, 512));
	cr_assert_eq(o->count, 1);
	cr_assert_eq(o->v[0].nvec, 64);
	cr_assert_eq(o->v[0].gso, 512);
	cr_assert_eq(o->messages[0].segments, 64);
	cr_assert_eq(o->messages[0].payload_bytes, 64 * 512);
	cr_assert(add(o, &p, 512));
	cr_assert_eq(o->count, 2, "a message has 64 segments at the most");
	cr_assert_eq(o->v[1].nvec, 0);
	cr_assert_eq(o->v[1].gso, 0);
	cr_assert_eq(o->v[1].buf.len, 512);
	udp_out_free(o);
}

Test(udp_out, shorter_one_ends_a_message)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	cr_assert(add(o, &p, 500) && add(o, &p, 500) && add(o, &p, 499));
	cr_assert_eq(o->count, 1);
	cr_assert_eq(o->v[0].gso, 500);
	cr_assert(add(o, &p, 499));
	cr_assert_eq(o->count, 2);
	cr_assert(add(o, &p, 500));
	cr_assert_eq(o->count, 3, "longer than the first");
	udp_out_free(o);
}

Test(udp_out, empty_datagram_is_alone)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	cr_assert(add(o, &p, 0) && add(o, &p, 0) && add(o, &p, 10) && add(o, &p, 0) && add(o, &p, 10));
	cr_assert_eq(o->count, 5);
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(o->v[i].gso, 0);
	udp_out_free(o);
}

Test(udp_out, peers_in_turn_have_a_message_each)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p[4] = { peer(), peer(), peer(), peer() };

	for (int i = 0; i < 64; i++)
		cr_assert(add(o, &p[i % 4], 100));
	cr_assert_eq(o->count, 4);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(o->messages[i].peer, &p[i]);
		cr_assert_eq(o->messages[i].segments, 16);
	}
	udp_out_free(o);
}

Test(udp_out, message_is_no_longer_than_a_datagram)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	for (int i = 0; i < 50; i++)
		cr_assert(add(o, &p, 1472));
	cr_assert_eq(o->count, 2);
	cr_assert_eq(o->messages[0].segments, 65507 / 1472);
	cr_assert(add(o, &p, 65527), "too long for the kernel, but that is for it to say");
	cr_assert_eq(o->v[2].buf.len, 65527);
	cr_assert(add(o, &p, 10));
	cr_assert_eq(o->count, 4);
	udp_out_free(o);
}

Test(udp_out, header_and_payload_are_two_pieces_of_a_segment)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	for (int i = 0; i < 64; i++)
		cr_assert(add_down(o, &p, 10, 300));
	cr_assert_eq(o->count, 1);
	cr_assert_eq(o->v[0].nvec, 128);
	cr_assert_eq(o->v[0].gso, 310);
	cr_assert_eq(o->messages[0].payload_bytes, 64 * 300);
	cr_assert_eq(o->v[0].vec[126].len, 10);
	cr_assert_eq(o->v[0].vec[127].len, 300);
	/* As long in all, from a source with a longer header. */
	cr_assert(add_down(o, &p, 22, 288) && add_down(o, &p, 10, 300));
	cr_assert_eq(o->count, 2);
	cr_assert_eq(o->messages[1].payload_bytes, 588);
	udp_out_free(o);
}

Test(udp_out, peer_that_refused_segments_gets_single_datagrams)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	p.gso_max = 0;
	for (int i = 0; i < 10; i++)
		cr_assert(add(o, &p, 100));
	cr_assert_eq(o->count, 10);
	p.gso_max = 1472;
	cr_assert(add(o, &p, 1473) && add(o, &p, 1473) && add(o, &p, 1472) && add(o, &p, 1472));
	cr_assert_eq(o->count, 13);
	cr_assert_eq(o->v[12].gso, 1472);
	udp_out_free(o);
}

Test(udp_out, kernel_without_segments_gets_single_datagrams)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();
	struct udp_datagram d = { .peer = &p, .piece[0] = { memory, 10 }, .pieces = 1 };

	cr_assert(udp_out_add(o, &d, 0) && udp_out_add(o, &d, 0));
	cr_assert_eq(o->count, 2);
	udp_out_free(o);
}

/* Were it refused, it would be sent again behind what follows it. */
Test(udp_out, nothing_follows_a_segmented_message_that_may_be_refused)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer(), other = peer();

	p.gso_proven = 99;
	cr_assert(add(o, &p, 50) && add(o, &p, 60), "single ones are no trial");
	cr_assert(add(o, &p, 100) && add(o, &p, 100));
	cr_assert_not(add(o, &p, 101));
	cr_assert(add(o, &other, 101));
	cr_assert(add(o, &p, 100), "it may still grow");
	cr_assert(o->messages[2].trial && p.on_trial);
	/* In the next out, before it is known what came of that. */
	udp_out_begin(o, 6);
	cr_assert(add(o, &p, 100) && add(o, &p, 100) && add(o, &p, 101));
	cr_assert_eq(o->count, 3, "one trial at a time");
	udp_out_begin(o, 7);
	p.gso_proven = 100;
	p.on_trial = false;
	cr_assert(add(o, &p, 100) && add(o, &p, 100) && add(o, &p, 101));
	cr_assert_eq(o->count, 2);
	cr_assert_not(p.on_trial);
	udp_out_free(o);
}

Test(udp_out, small_one_knows_its_room)
{
	struct udp_out *o = out_new(UDP_OUT_SMALL);
	struct udp_peer p = peer();

	for (int i = 0; i < 64; i++)
		cr_assert(add(o, &p, 10));
	cr_assert_eq(o->count, 8);
	cr_assert_not(add(o, &p, 10));
	cr_assert_eq(o->v[7].nvec, 8);
	udp_out_begin(o, 6);
	for (int i = 0; i < 5; i++)
		cr_assert(add_down(o, &p, 10, 10));
	cr_assert_eq(o->v[0].nvec, 8);
	cr_assert_eq(o->count, 2);
	udp_out_free(o);
}

Test(udp_out, refused_message_is_split_into_its_datagrams)
{
	struct udp_out *o = out_new(UDP_OUT_BIG);
	struct udp_peer p = peer();

	memory[3] = 1;
	cr_assert(add_down(o, &p, 10, 90) && add_down(o, &p, 10, 90) && add_down(o, &p, 10, 20));
	cr_assert_eq(udp_out_split(o, 0), 3);
	for (unsigned k = 0; k < 3; k++) {
		cr_assert_eq(o->v[k].nvec, 2);
		cr_assert_eq(o->v[k].gso, 0);
		cr_assert_eq(o->v[k].vec, o->vecs + 2 * k);
		cr_assert_eq(o->v[k].peerlen, sizeof(struct sockaddr_in6));
		cr_assert_eq(udp_out_split_payload(o, 0, k), k < 2 ? 90 : 20);
	}
	udp_out_free(o);
}

Test(udp_out, success_vouches_for_all_that_every_path_takes)
{
	struct udp_peer p = peer();

	p.gso_proven = 0;
	udp_peer_gso_sent(&p, 100);
	cr_assert_eq(p.gso_proven, 1232);
	udp_peer_gso_sent(&p, 1400);
	cr_assert_eq(p.gso_proven, 1400);
	p.gso_max = 0;
	p.gso_proven = 0;
	udp_peer_gso_sent(&p, 100);
	cr_assert_eq(p.gso_proven, 0, "refused meanwhile");
}

Test(udp_out, refusal_says_what_to_try_next)
{
	struct udp_peer p = peer();

	udp_peer_gso_refused(&p, 8000, IO_EINVAL);
	cr_assert_eq(p.gso_max, 1472);
	cr_assert_eq(p.gso_proven, 1472);
	udp_peer_gso_refused(&p, 4000, IO_EMSGSIZE);
	cr_assert_eq(p.gso_max, 1472, "was on its way before the first was refused");
	udp_peer_gso_refused(&p, 1400, IO_EMSGSIZE);
	cr_assert_eq(p.gso_max, 1232);
	udp_peer_gso_refused(&p, 1000, IO_EINVAL);
	cr_assert_eq(p.gso_max, 0);
	p = peer();
	udp_peer_gso_refused(&p, 500, IO_EOTHER);
	cr_assert_eq(p.gso_max, 0, "a device without checksum offload");
}

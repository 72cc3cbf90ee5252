/* SPDX-License-Identifier: ISC */
/*
 * udp_dest: the destinations of one association, found by the header that names
 * them: the client's datagrams bring it, and it is made from the source address
 * of those that come back, so one table serves both ways.  It knows no policy
 * and no sockets.  Grown by need; entries stay where they are until
 * udp_dests_free(), so that datagrams in flight may point at them.
 */
#ifndef RW_RELAY_UDP_DEST_H
#define RW_RELAY_UDP_DEST_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/udp_out.h"
#include "util/addr.h"

/*
 * The header as we write it (10 bytes or 22, IPv4-mapped as IPv4), zeroes, and
 * its length in the last byte: three words to compare.
 */
union udp_key {
	uint64_t	words[3];
	uint8_t		bytes[24];
};

enum { UDP_KEY_LEN = 23 };	/* bytes[UDP_KEY_LEN]: length of the header, 0 = no key */

struct udp_dest {
	struct udp_peer	 peer;		/* for sending there */
	union udp_key	 key;
	uint64_t	 last_ns;	/* a datagram either way, io_now()'s clock */
	bool		 hooked;	/* the DNS filter wants to see what goes there */
};

struct udp_slot;

struct udp_dests {
	struct udp_slot	*slots;		/* open addressing, a power of two of them; NULL = none yet */
	uint32_t	 slot_count, count;
	uint64_t	 seed;
	uint64_t	 full_until_ns;	/* no destination will have been idle for long enough before */
};

/* `addr` is IPv4 or IPv6. */
union udp_key	 udp_key_of_addr(const struct addr *addr);
/*
 * From a client's header that is already in our form: IPv4, or IPv6 but not
 * mapped, to a port other than 0.  False: ask socks5_udp_parse().
 */
bool		 udp_key_of_header(const uint8_t *datagram, size_t len, union udp_key *);

void		 udp_dests_init(struct udp_dests *, uint64_t seed);
void		 udp_dests_free(struct udp_dests *);
/* NULL: none. */
struct udp_dest	*udp_dest_find(const struct udp_dests *, const union udp_key *);
/*
 * The key is not in the table.  Zeroed but for key and last_ns = now.  When
 * there are `max`, the place of one that nothing moved to or from for idle_ns,
 * and that was last used before queued_ns, as what is in flight refers to those
 * used since, is taken over.  NULL: none is, or out of memory.
 */
struct udp_dest	*udp_dest_add(struct udp_dests *, const union udp_key *, uint32_t max, uint64_t idle_ns,
		    uint64_t queued_ns, uint64_t now_ns);

/* The same header?  Its length is the key's; `datagram` has at least as many bytes. */
static inline bool
udp_key_begins(const union udp_key *key, const uint8_t *datagram, size_t len)
{
	uint64_t a, b, c, d;

	/* Word by word: this is asked of each datagram, and memcmp(3) of a length that varies is a call. */
	if (len < key->bytes[UDP_KEY_LEN])
		return false;
	if (key->bytes[UDP_KEY_LEN] == 10) {
		memcpy(&a, datagram, 8);
		memcpy(&b, datagram + 2, 8);
		memcpy(&c, key->bytes + 2, 8);
		return a == key->words[0] && b == c;
	}
	if (key->bytes[UDP_KEY_LEN] == 22) {
		memcpy(&a, datagram, 8);
		memcpy(&b, datagram + 8, 8);
		memcpy(&c, datagram + 14, 8);
		memcpy(&d, key->bytes + 14, 8);
		return a == key->words[0] && b == key->words[1] && c == d;
	}
	return false;
}

#endif

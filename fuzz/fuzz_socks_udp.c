/* SPDX-License-Identifier: ISC */
/*
 * The header of SOCKS5 datagrams: nothing read beyond the input, a header that
 * parses ends inside the datagram and is what would be written again, and what
 * is behind it changes nothing.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/socks5_udp.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void
check_written(const struct addr *addr)
{
	uint8_t header[SOCKS5_UDP_HEADER_ADDR_MAX];
	struct socks5_udp_head again;
	size_t len = socks5_udp_write(addr, header);

	assert(len == 10 || len == SOCKS5_UDP_HEADER_ADDR_MAX);
	assert(socks5_udp_parse(span_of(header, len), &again) == SOCKS5_UDP_OK);
	assert(again.header_len == len);
	assert(addr_same_ip(&again.target.addr, addr));
	assert(addr_port(&again.target.addr) == addr_port(addr));
}

static void
check(struct span in)
{
	struct socks5_udp_head head, again;
	enum socks5_udp_verdict verdict = socks5_udp_parse(in, &head);

	assert(head.header_len <= in.len && head.header_len <= SOCKS5_UDP_HEADER_MAX);
	assert(strlen(head.target.host) == head.target.host_len);
	assert(verdict != SOCKS5_UDP_SHORT || in.len < SOCKS5_UDP_HEADER_MAX);
	assert(strcmp(socks5_udp_verdict_text(verdict), "unknown verdict") != 0);
	if (verdict != SOCKS5_UDP_OK)
		return;
	assert(head.header_len >= 4 + 2 && head.target.port != 0);
	assert((head.target.addr.len != 0) != (head.target.host_len != 0));
	for (size_t part = 0; part < head.header_len; part++)
		assert(socks5_udp_parse(span_of(in.base, part), &again) == SOCKS5_UDP_SHORT);
	assert(socks5_udp_parse(span_of(in.base, head.header_len), &again) == SOCKS5_UDP_OK);
	assert(again.header_len == head.header_len);
	if (head.target.addr.len != 0)
		check_written(&head.target.addr);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* Its own block, so that a read of one byte beyond is seen. */
	char *copy = malloc(len != 0 ? len : 1);

	assert(copy != NULL);
	if (len != 0)
		memcpy(copy, data, len);
	check(span_of(copy, len));
	free(copy);
	return 0;
}

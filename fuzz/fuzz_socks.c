/* SPDX-License-Identifier: ISC */
/*
 * SOCKS4 and SOCKS5 messages: no verdict but "more" for a prefix of what parses
 * in the end, nothing read beyond the input, replies of known lengths.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/detect.h"
#include "proto/socks4.h"
#include "proto/socks5.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void
check_target(const struct target *target)
{
	char authority[TARGET_TEXT_MAX];
	struct target again;
	size_t len;

	assert(strlen(target->host) == target->host_len);
	assert(target->addr.len == 0 || target->host_len == 0);
	if (target->addr.len == 0 && target->host_len == 0)
		return;
	len = target_authority(target, 0, authority);
	assert(len == strlen(authority) && len < sizeof(authority));
	/* A canonical host is its own canonical form. */
	if (target->host_len != 0) {
		assert(target_set_host(&again, span_of(target->host, target->host_len), 1));
		assert(again.host_len == target->host_len);
		assert(memcmp(again.host, target->host, target->host_len) == 0);
	}
}

static void
check_socks5(struct span in)
{
	struct socks5_greeting greeting;
	struct socks5_userpass userpass;
	struct socks5_request request;
	uint8_t reply[SOCKS5_REPLY_MAX];
	enum socks5_verdict verdict;
	size_t used;

	if (socks5_parse_greeting(in, &greeting) == SOCKS5_OK)
		assert(greeting.used <= in.len && greeting.used <= SOCKS5_GREETING_MAX);
	if (socks5_parse_userpass(in, &userpass) == SOCKS5_OK) {
		assert(userpass.used <= in.len && userpass.used <= SOCKS5_USERPASS_MAX);
		assert(userpass.pass.base + userpass.pass.len == in.base + userpass.used);
	}
	verdict = socks5_parse_request(in, &request);
	used = request.used;
	assert(used <= in.len && used <= SOCKS5_REQUEST_MAX);
	assert(verdict != SOCKS5_MORE || in.len < SOCKS5_REQUEST_MAX);
	check_target(&request.target);
	if (verdict == SOCKS5_OK) {
		size_t len = socks5_write_reply(SOCKS5_REP_OK, &request.target.addr, reply);

		assert(len == 10 || len == 22);
		for (size_t part = 0; part < used; part++)
			assert(socks5_parse_request(span_of(in.base, part), &request) == SOCKS5_MORE);
		assert(socks5_parse_request(span_of(in.base, used), &request) == SOCKS5_OK);
	}
}

static void
check_socks4(struct span in)
{
	struct socks4_request request;
	enum socks4_verdict verdict = socks4_parse_request(in, &request);
	size_t used = request.used;

	assert(used <= in.len && used <= SOCKS4_REQUEST_MAX);
	assert(verdict != SOCKS4_MORE || in.len < SOCKS4_REQUEST_MAX);
	check_target(&request.target);
	if (verdict == SOCKS4_OK)
		for (size_t part = 0; part < used; part++)
			assert(socks4_parse_request(span_of(in.base, part), &request) == SOCKS4_MORE);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* Its own block, so that a read of one byte beyond is seen. */
	char *copy = malloc(len != 0 ? len : 1);

	assert(copy != NULL);
	if (len != 0) {
		memcpy(copy, data, len);
		(void)detect_first_byte(data[0]);
	}
	check_socks5(span_of(copy, len));
	check_socks4(span_of(copy, len));
	free(copy);
	return 0;
}

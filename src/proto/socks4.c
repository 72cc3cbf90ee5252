/* SPDX-License-Identifier: ISC */
#include "proto/socks4.h"

#include <string.h>

enum {
	VERSION = 4,
	CONNECT = 1,
	HEAD_LEN = 8	/* VN CD DSTPORT DSTIP */
};

/* The text from `at` to its NUL. */
static enum socks4_verdict
parse_text(struct span in, size_t at, struct span *text)
{
	size_t left = in.len - at;
	const char *end;

	if (left > SOCKS4_TEXT_MAX + 1)
		left = SOCKS4_TEXT_MAX + 1;
	end = left != 0 ? memchr(in.base + at, '\0', left) : NULL;
	if (end == NULL)
		return left > SOCKS4_TEXT_MAX ? SOCKS4_MALFORMED : SOCKS4_MORE;
	*text = span_of(in.base + at, (size_t)(end - in.base) - at);
	return SOCKS4_OK;
}

enum socks4_verdict
socks4_parse_request(struct span in, struct socks4_request *out)
{
	const uint8_t *head = (const uint8_t *)in.base;
	struct span domain;
	enum socks4_verdict verdict;
	uint16_t port;
	bool host_ok = true;

	out->cmd = 0;
	out->user = span_of(in.base, 0);
	out->used = 0;
	target_clear(&out->target);
	if (in.len >= 1 && head[0] != VERSION)
		return SOCKS4_MALFORMED;
	if (in.len < HEAD_LEN)
		return SOCKS4_MORE;
	out->cmd = head[1];
	port = (uint16_t)(head[2] << 8 | head[3]);
	verdict = parse_text(in, HEAD_LEN, &out->user);
	if (verdict != SOCKS4_OK)
		return verdict;
	out->used = HEAD_LEN + out->user.len + 1;
	/* 0.0.0.x with x not 0 says 4a: a name follows the user id. */
	if (head[4] == 0 && head[5] == 0 && head[6] == 0 && head[7] != 0) {
		verdict = parse_text(in, out->used, &domain);
		if (verdict != SOCKS4_OK) {
			out->used = 0;
			return verdict;
		}
		out->used += domain.len + 1;
		host_ok = target_set_host(&out->target, domain, port);
	} else {
		target_set_ip(&out->target, head + 4, 4, port);
	}
	if (out->cmd != CONNECT)
		return SOCKS4_BAD_COMMAND;
	if (!host_ok)
		return SOCKS4_BAD_HOST;
	return port != 0 ? SOCKS4_OK : SOCKS4_BAD_PORT;
}

const char *
socks4_verdict_text(enum socks4_verdict verdict)
{
	switch (verdict) {
	case SOCKS4_OK:
		return "ok";
	case SOCKS4_MORE:
		return "incomplete";
	case SOCKS4_MALFORMED:
		return "malformed message";
	case SOCKS4_BAD_COMMAND:
		return "command not supported";
	case SOCKS4_BAD_HOST:
		return "invalid host name";
	case SOCKS4_BAD_PORT:
		return "port 0";
	}
	return "unknown verdict";
}

size_t
socks4_write_reply(enum socks4_rep rep, const struct addr *bnd, uint8_t out[SOCKS4_REPLY_LEN])
{
	struct addr addr = { .len = 0 };

	if (bnd != NULL)
		addr = *bnd;
	addr_unmap(&addr);
	memset(out, 0, SOCKS4_REPLY_LEN);	/* VN of a reply is 0 */
	out[1] = (uint8_t)rep;
	if (addr.len != 0 && addr.sa.sa_family == AF_INET) {
		memcpy(out + 2, &addr.in.sin_port, 2);
		memcpy(out + 4, &addr.in.sin_addr, 4);
	}
	return SOCKS4_REPLY_LEN;
}

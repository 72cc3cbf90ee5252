/* SPDX-License-Identifier: ISC */
#include "proto/socks5.h"

#include "proto/socks5_addr.h"

enum {
	VERSION = 5,
	USERPASS_VERSION = 1,	/* of the sub-negotiation, RFC 1929 section 2 */
	HEAD_LEN = 3		/* of request and reply: VER CMD RSV, VER REP RSV */
};

static uint8_t
byte_at(struct span in, size_t i)
{
	return (uint8_t)in.base[i];
}

enum socks5_verdict
socks5_parse_greeting(struct span in, struct socks5_greeting *out)
{
	size_t count;

	*out = (struct socks5_greeting){ .used = 0 };
	if (in.len >= 1 && byte_at(in, 0) != VERSION)
		return SOCKS5_MALFORMED;
	if (in.len < 2)
		return SOCKS5_MORE;
	count = byte_at(in, 1);
	if (in.len < 2 + count)
		return SOCKS5_MORE;
	/* No method at all is well-formed; it is answered FF like any that don't fit. */
	for (size_t i = 0; i < count; i++) {
		if (byte_at(in, 2 + i) == SOCKS5_METHOD_NONE)
			out->offers_none = true;
		else if (byte_at(in, 2 + i) == SOCKS5_METHOD_USERPASS)
			out->offers_userpass = true;
	}
	out->used = 2 + count;
	return SOCKS5_OK;
}

/*
 * Where no password is needed user/pass alone does not fit either: to take it we
 * would have to call any password right, which its user would believe.
 */
enum socks5_method
socks5_choose_method(const struct socks5_greeting *greeting, bool password_needed)
{
	if (password_needed)
		return greeting->offers_userpass ? SOCKS5_METHOD_USERPASS :
		    SOCKS5_METHOD_UNACCEPTABLE;
	return greeting->offers_none ? SOCKS5_METHOD_NONE : SOCKS5_METHOD_UNACCEPTABLE;
}

size_t
socks5_write_method(enum socks5_method method, uint8_t out[SOCKS5_METHOD_REPLY_LEN])
{
	out[0] = VERSION;
	out[1] = (uint8_t)method;
	return SOCKS5_METHOD_REPLY_LEN;
}

enum socks5_verdict
socks5_parse_userpass(struct span in, struct socks5_userpass *out)
{
	size_t user_len, pass_len;

	*out = (struct socks5_userpass){ .used = 0 };
	if (in.len >= 1 && byte_at(in, 0) != USERPASS_VERSION)
		return SOCKS5_MALFORMED;
	if (in.len < 2)
		return SOCKS5_MORE;
	user_len = byte_at(in, 1);
	if (user_len == 0)	/* RFC 1929 section 2: 1 to 255 */
		return SOCKS5_MALFORMED;
	if (in.len < 2 + user_len + 1)
		return SOCKS5_MORE;
	pass_len = byte_at(in, 2 + user_len);
	if (in.len < 2 + user_len + 1 + pass_len)
		return SOCKS5_MORE;
	out->user = span_of(in.base + 2, user_len);
	out->pass = span_of(in.base + 2 + user_len + 1, pass_len);
	out->used = 2 + user_len + 1 + pass_len;
	return SOCKS5_OK;
}

size_t
socks5_write_userpass_reply(bool granted, uint8_t out[SOCKS5_USERPASS_REPLY_LEN])
{
	out[0] = USERPASS_VERSION;
	out[1] = granted ? 0 : 1;
	return SOCKS5_USERPASS_REPLY_LEN;
}

/*
 * RSV is not looked at: clients that leave rubbish there exist, and no server
 * in use minds.
 */
enum socks5_verdict
socks5_parse_request(struct span in, struct socks5_request *out)
{
	enum socks5_addr_verdict addr;
	size_t len;

	out->cmd = 0;
	out->atyp = 0;
	out->used = 0;
	target_clear(&out->target);
	if (in.len >= 1 && byte_at(in, 0) != VERSION)
		return SOCKS5_MALFORMED;
	if (in.len <= HEAD_LEN)
		return SOCKS5_MORE;
	out->cmd = byte_at(in, 1);
	out->atyp = byte_at(in, HEAD_LEN);
	addr = socks5_addr_parse(span_of(in.base + HEAD_LEN, in.len - HEAD_LEN), &out->target, &len);
	if (addr == SOCKS5_ADDR_BAD_ATYP)
		return SOCKS5_BAD_ATYP;
	if (addr == SOCKS5_ADDR_MORE)
		return SOCKS5_MORE;
	out->used = HEAD_LEN + len;
	/* Where a UDP client will send from is only a hint, whatever it looks like. */
	if (out->cmd == SOCKS5_UDP_ASSOCIATE)
		return SOCKS5_OK;
	if (out->cmd != SOCKS5_CONNECT)
		return SOCKS5_BAD_COMMAND;
	if (addr == SOCKS5_ADDR_BAD_HOST)
		return SOCKS5_BAD_HOST;
	return out->target.port != 0 ? SOCKS5_OK : SOCKS5_BAD_PORT;
}

enum socks5_rep
socks5_rep_for(enum socks5_verdict verdict)
{
	switch (verdict) {
	case SOCKS5_OK:
	case SOCKS5_MORE:
		return SOCKS5_REP_OK;
	case SOCKS5_BAD_COMMAND:
		return SOCKS5_REP_COMMAND;
	case SOCKS5_BAD_ATYP:
		return SOCKS5_REP_ATYP;
	case SOCKS5_BAD_HOST:
		return SOCKS5_REP_HOST_UNREACHABLE;	/* as any name that does not resolve */
	case SOCKS5_MALFORMED:
	case SOCKS5_BAD_PORT:
		break;
	}
	return SOCKS5_REP_GENERAL;
}

const char *
socks5_verdict_text(enum socks5_verdict verdict)
{
	switch (verdict) {
	case SOCKS5_OK:
		return "ok";
	case SOCKS5_MORE:
		return "incomplete";
	case SOCKS5_MALFORMED:
		return "malformed message";
	case SOCKS5_BAD_COMMAND:
		return "command not supported";
	case SOCKS5_BAD_ATYP:
		return "address type not supported";
	case SOCKS5_BAD_HOST:
		return "invalid host name";
	case SOCKS5_BAD_PORT:
		return "port 0";
	}
	return "unknown verdict";
}

size_t
socks5_write_reply(enum socks5_rep rep, const struct addr *bnd, uint8_t out[SOCKS5_REPLY_MAX])
{
	out[0] = VERSION;
	out[1] = (uint8_t)rep;
	out[2] = 0;
	return HEAD_LEN + socks5_addr_write(bnd, out + HEAD_LEN);
}

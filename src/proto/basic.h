/* SPDX-License-Identifier: ISC */
/*
 * basic: credentials of the Basic scheme (RFC 7617), and the base64 (RFC 4648
 * section 4) that it needs.  Strict: padding where it belongs, no blanks, no
 * bits left over; one text has one spelling.  Never compares, never logs.
 */
#ifndef RW_PROTO_BASIC_H
#define RW_PROTO_BASIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/span.h"

enum {
	BASIC_PART_MAX = 255	/* as in RFC 1929, so that every user can use every protocol */
};

struct basic_credentials {
	uint8_t	user_len, pass_len;
	char	user[BASIC_PART_MAX];	/* may be empty; no NUL at the end */
	char	pass[BASIC_PART_MAX];
};

enum basic_verdict {
	BASIC_OK,
	BASIC_OTHER_SCHEME,
	BASIC_MALFORMED,	/* no base64, no colon, or control bytes */
	BASIC_TOO_LONG
};

/* A field value without blanks around it.  Only after BASIC_OK anything is left in `out`. */
enum basic_verdict basic_parse(struct span value, struct basic_credentials *out);
void		 basic_wipe(struct basic_credentials *);	/* when they were used */
const char	*basic_verdict_text(enum basic_verdict);

static inline struct span
basic_user(const struct basic_credentials *c)
{
	return span_of(c->user, c->user_len);
}

static inline struct span
basic_pass(const struct basic_credentials *c)
{
	return span_of(c->pass, c->pass_len);
}

/* False when the text is not base64 or does not fit. */
bool		 basic_base64_decode(struct span text, void *out, size_t room, size_t *len);
static inline size_t
basic_base64_len(size_t bytes)
{
	return (bytes + 2) / 3 * 4;
}
/* basic_base64_len(len) characters, no NUL. */
void		 basic_base64_encode(const void *, size_t len, char *out);

#endif

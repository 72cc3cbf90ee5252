/* SPDX-License-Identifier: ISC */
/*
 * password: what is kept of a password, the record
 *
 *	sha256$ITERATIONS$SALT$HASH
 *
 * with 16 bytes of salt and 32 of PBKDF2-HMAC-SHA256 (RFC 8018 section 5.2) in
 * base64.  Making and verifying take a tenth of a second on purpose: never on a
 * worker's thread (see kdf.h).  Nothing here is ever logged.
 */
#ifndef RW_POLICY_PASSWORD_H
#define RW_POLICY_PASSWORD_H

#include <stdbool.h>
#include <stdint.h>

#include "util/span.h"

enum {
	PASSWORD_SALT_BYTES = 16,
	PASSWORD_HASH_BYTES = 32,
	PASSWORD_ITERATIONS = 120000,		/* of new records */
	PASSWORD_ITERATIONS_MIN = 1000,		/* RFC 8018 section 4.2 */
	PASSWORD_ITERATIONS_MAX = 10000000,	/* seconds each: more would only block the others */
	PASSWORD_BYTES_MAX = 255,		/* what RFC 1929 can carry */
	/* "sha256$10000000$" 24 "$" 44 and the NUL. */
	PASSWORD_TEXT_MAX = 16 + 24 + 1 + 44 + 1
};

struct password_record {
	uint32_t	iterations;
	uint8_t		salt[PASSWORD_SALT_BYTES];
	uint8_t		hash[PASSWORD_HASH_BYTES];
};

/* NULL, or what is wrong with it, for "KEY: %s"; the text itself is never in the message. */
const char	*password_parse(struct span text, struct password_record *);
/* NULL, or why this can't be anybody's password: empty, too long, control bytes. */
const char	*password_unfit(struct span password);
/* A new record with a salt of its own.  0; -EINVAL for an unfit one; -EIO when there is no entropy. */
int		 password_make(struct span password, uint32_t iterations,
		    char out[PASSWORD_TEXT_MAX]);
/* Compares in constant time; false too when the library fails. */
bool		 password_verify(const struct password_record *, struct span password);

#endif

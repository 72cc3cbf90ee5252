/* SPDX-License-Identifier: ISC */
#include "policy/password.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>

#include "proto/basic.h"
#include "util/str.h"

static const char scheme[] = "sha256";

/* Up to the next "$", which is skipped, or the end. */
static struct span
next_part(struct span *rest)
{
	const char *end = rest->len != 0 ? memchr(rest->base, '$', rest->len) : NULL;
	struct span part = span_of(rest->base, end != NULL ? (size_t)(end - rest->base) : rest->len);
	size_t used = part.len + (end != NULL);

	*rest = span_of(rest->base + used, rest->len - used);
	return part;
}

static bool
exactly(struct span text, uint8_t *out, size_t bytes)
{
	size_t len;

	return basic_base64_decode(text, out, bytes, &len) && len == bytes;
}

const char *
password_parse(struct span text, struct password_record *r)
{
	struct span rest = text, part;
	unsigned dollars = 0;
	uint64_t n;

	memset(r, 0, sizeof(*r));
	for (size_t i = 0; i < text.len; i++)
		dollars += text.base[i] == '$';
	if (dollars != 3)
		return "not a password record (sha256$ITERATIONS$SALT$HASH, made by ringway --hash-password)";
	if (!span_is(next_part(&rest), scheme))
		return "unknown kind of password record (only sha256$... is known)";
	part = next_part(&rest);
	if (!str_to_u64(part, &n) || n < PASSWORD_ITERATIONS_MIN || n > PASSWORD_ITERATIONS_MAX)
		return "iterations of the password record out of range (1000 to 10000000)";
	if (!exactly(next_part(&rest), r->salt, sizeof(r->salt)))
		return "salt of the password record is not 16 bytes in base64";
	if (!exactly(rest, r->hash, sizeof(r->hash)))
		return "hash of the password record is not 32 bytes in base64";
	r->iterations = (uint32_t)n;
	return NULL;
}

const char *
password_unfit(struct span password)
{
	if (password.len == 0)
		return "the password is empty";
	if (password.len > PASSWORD_BYTES_MAX)
		return "the password is longer than 255 bytes";
	/* RFC 7617 forbids them, so they could never be sent. */
	for (size_t i = 0; i < password.len; i++)
		if ((unsigned char)password.base[i] < 0x20 || password.base[i] == 0x7f)
			return "the password has control characters";
	return NULL;
}

static bool
derive(const struct password_record *r, struct span password, uint8_t out[PASSWORD_HASH_BYTES])
{
	return PKCS5_PBKDF2_HMAC(password.len != 0 ? password.base : "", (int)password.len, r->salt,
	    sizeof(r->salt), (int)r->iterations, EVP_sha256(), PASSWORD_HASH_BYTES, out) == 1;
}

int
password_make(struct span password, uint32_t iterations, char out[PASSWORD_TEXT_MAX])
{
	struct password_record r = { .iterations = iterations };
	size_t used;

	assert(iterations >= PASSWORD_ITERATIONS_MIN && iterations <= PASSWORD_ITERATIONS_MAX);
	if (password_unfit(password) != NULL)
		return -EINVAL;
	if (RAND_bytes(r.salt, sizeof(r.salt)) != 1 || !derive(&r, password, r.hash))
		return -EIO;
	used = (size_t)snprintf(out, PASSWORD_TEXT_MAX, "%s$%u$", scheme, iterations);
	basic_base64_encode(r.salt, sizeof(r.salt), out + used);
	used += basic_base64_len(sizeof(r.salt));
	out[used++] = '$';
	basic_base64_encode(r.hash, sizeof(r.hash), out + used);
	used += basic_base64_len(sizeof(r.hash));
	assert(used < PASSWORD_TEXT_MAX);
	out[used] = '\0';
	return 0;
}

bool
password_verify(const struct password_record *r, struct span password)
{
	uint8_t hash[PASSWORD_HASH_BYTES];
	bool same;

	assert(password.len <= PASSWORD_BYTES_MAX);
	same = derive(r, password, hash) && CRYPTO_memcmp(hash, r->hash, sizeof(hash)) == 0;
	OPENSSL_cleanse(hash, sizeof(hash));
	return same;
}

/* SPDX-License-Identifier: ISC */
/*
 * Basic credentials and base64: nothing read beyond the input, nothing left
 * behind by a refusal, and what was decoded encodes to the same text again.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/basic.h"

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void
check_base64(struct span in)
{
	size_t room = in.len / 4 * 3, len;
	uint8_t *bytes = malloc(room + 1);
	char *again;

	assert(bytes != NULL);
	if (basic_base64_decode(in, bytes, room, &len)) {
		assert(len <= room && basic_base64_len(len) == in.len);
		again = malloc(in.len + 1);
		assert(again != NULL);
		basic_base64_encode(bytes, len, again);
		assert(in.len == 0 || memcmp(again, in.base, in.len) == 0);
		free(again);
		/* One byte of room less is noticed. */
		if (len != 0)
			assert(!basic_base64_decode(in, bytes, len - 1, &room));
	}
	free(bytes);
}

static void
check_basic(struct span in)
{
	struct basic_credentials c;

	if (basic_parse(in, &c) == BASIC_OK) {
		for (size_t i = 0; i < c.user_len; i++)
			assert((unsigned char)c.user[i] >= 0x20 && c.user[i] != 0x7f && c.user[i] != ':');
		for (size_t i = 0; i < c.pass_len; i++)
			assert((unsigned char)c.pass[i] >= 0x20 && c.pass[i] != 0x7f);
		basic_wipe(&c);
	}
	for (size_t i = 0; i < sizeof(c); i++)
		assert(((const char *)&c)[i] == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* Its own block, so that a read of one byte beyond is seen. */
	char *copy = malloc(len != 0 ? len : 1);

	assert(copy != NULL);
	if (len != 0)
		memcpy(copy, data, len);
	check_base64(span_of(copy, len));
	check_basic(span_of(copy, len));
	free(copy);
	return 0;
}

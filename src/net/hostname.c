/* SPDX-License-Identifier: ISC */
#include "net/hostname.h"

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f');
}

static bool
is_name_char(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

/* As inet_aton(3) reads a part: decimal, octal, or hex after 0x. */
static bool
is_number(const char *label, size_t len)
{
	size_t i = 0;

	if (len >= 2 && label[0] == '0' && label[1] == 'x') {
		for (i = 2; i < len && is_hex(label[i]); i++)
			;
		return i == len;
	}
	while (i < len && is_digit(label[i]))
		i++;
	return i == len;
}

size_t
hostname_normalise(struct span name, char out[HOSTNAME_MAX + 1])
{
	size_t label = 0;	/* where the present label began */

	if (name.len > 0 && name.base[name.len - 1] == '.')
		name.len--;
	if (name.len == 0 || name.len > HOSTNAME_MAX)
		return 0;
	for (size_t i = 0; i < name.len; i++) {
		out[i] = span_lower(name.base[i]);
		if (out[i] == '.') {
			if (i == label)
				return 0;
			label = i + 1;
		} else if (!is_name_char(out[i]) || i - label >= HOSTNAME_LABEL_MAX) {
			return 0;
		}
	}
	out[name.len] = '\0';
	if (label == name.len || is_number(out + label, name.len - label))
		return 0;
	return name.len;
}

bool
hostname_is_loopback(struct span name)
{
	static const char local[] = "localhost";
	const size_t len = sizeof(local) - 1;

	if (name.len < len || memcmp(name.base + name.len - len, local, len) != 0)
		return false;
	return name.len == len || name.base[name.len - len - 1] == '.';
}

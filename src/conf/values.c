/* SPDX-License-Identifier: ISC */
#include "conf/values.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "conf/field.h"
#include "conf/file.h"
#include "util/addr.h"
#include "util/str.h"

enum {
	DNS_PORT = 53,
	ENTRY_BYTES_MAX = 4095		/* of a text in a list; the longest path fits */
};

#define UNIX_PREFIX	"unix:"

/* "one of a, b, c" */
static void
put_words(const struct conf_row *row, char out[CONF_WHY_MAX / 2])
{
	size_t used = 0;

	for (const struct conf_word *word = row->words; word->name != NULL; word++) {
		int len = snprintf(out + used, CONF_WHY_MAX / 2 - used, "%s%s",
		    word == row->words ? "one of " : ", ", word->name);

		used += (size_t)len;
		assert(used < CONF_WHY_MAX / 2);
	}
}

char *
conf_value_expect(const struct conf_row *row, char out[CONF_WHY_MAX])
{
	const char *of = row->unit[0] != '\0' ? " of " : "";
	char words[CONF_WHY_MAX / 2];

	switch (row->type) {
	case CONF_BOOL:
		return strcpy(out, "true or false");
	case CONF_NUMBER:
		snprintf(out, CONF_WHY_MAX, "a whole number%s%s from %" PRIu64 " to %" PRIu64,
		    of, row->unit, row->min, row->max);
		return out;
	case CONF_SIZE:
		snprintf(out, CONF_WHY_MAX, "a whole number%s%s from %" PRIu64 " to %" PRIu64
		    ", alone or with KiB, MiB or GiB right behind it",
		    of, row->unit, row->min, row->max);
		return out;
	case CONF_ENUM:
		put_words(row, out);
		return out;
	case CONF_STRING:
		if (row->min == 0)
			snprintf(out, CONF_WHY_MAX, "a text of at most %" PRIu64
			    " bytes, or \"\" for none", row->max);
		else
			snprintf(out, CONF_WHY_MAX, "a text of %" PRIu64 " to %" PRIu64 " bytes",
			    row->min, row->max);
		return out;
	case CONF_IPV4:
		return strcpy(out, "an IPv4 address like 192.0.2.1, or \"\" for none");
	case CONF_IPV6:
		return strcpy(out, "an IPv6 address like 2001:db8::1, or \"\" for none");
	case CONF_IP:
		return strcpy(out, "an IPv4 or IPv6 address like 192.0.2.1, or \"\" for none");
	case CONF_LISTEN_ADDR:
		return strcpy(out, "an IPv4 or IPv6 address, or unix:/path; the port is a key of its own");
	case CONF_FLAGS:
		put_words(row, words);
		snprintf(out, CONF_WHY_MAX, "a list like [%s], each %s", row->initial, words);
		return out;
	case CONF_RANGE:
		snprintf(out, CONF_WHY_MAX, "a list of two numbers from %" PRIu64 " to %" PRIu64
		    ", the lower one first, like [%s]", row->min, row->max, row->initial);
		return out;
	case CONF_SERVERS:
		snprintf(out, CONF_WHY_MAX, "a list of at most %" PRIu64
		    " addresses like [192.0.2.53, \"[2001:db8::53]:5353\"]", row->max);
		return out;
	case CONF_STRINGS:
	case CONF_LINES:
		snprintf(out, CONF_WHY_MAX, "a list of at most %" PRIu64
		    " %s, each a text of 1 to %d bytes", row->max, row->unit, ENTRY_BYTES_MAX);
		return out;
	case CONF_RECORDS:
		snprintf(out, CONF_WHY_MAX, "a list of %" PRIu64 " to %" PRIu64
		    " %s, each with keys of its own", row->min, row->max, row->unit);
		return out;
	}
	assert(!"unknown type");
	return out;
}

/* Always false, so that a refusal is one statement. */
static bool refuse(const struct conf_row *, struct conf_text, char *why, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static bool
refuse(const struct conf_row *row, struct conf_text text, char *why, const char *fmt, ...)
{
	char expect[CONF_WHY_MAX], quoted[STR_QUOTED_MAX], what[CONF_WHY_MAX / 4];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	conf_value_expect(row, expect);
	/* Cut rather than overrun: only the help in parentheses can be that long. */
	snprintf(why, CONF_WHY_MAX, "%s %s (%.*s)", row->secret ? "the value (not shown)" :
	    str_quote(text.bytes, quoted), what,
	    (int)(CONF_WHY_MAX - STR_QUOTED_MAX - sizeof(what) - 8), expect);
	return false;
}

static bool
no_memory(char *why)
{
	snprintf(why, CONF_WHY_MAX, "out of memory");
	return false;
}

/*
 * YAML 1.1 reads 010 as eight, 0x10 as sixteen, 1_000 as a thousand and 1:30 as
 * ninety; other readers disagree.  Nobody has to guess here: they are refused.
 */
static const char *
number_trap(struct span text)
{
	char first = text.base[0];
	size_t digits = 0;

	while (digits < text.len && text.base[digits] >= '0' && text.base[digits] <= '9')
		digits++;
	if (first == '-' || first == '+')
		return "has a sign";
	if (digits == text.len)
		return first == '0' && text.len > 1 ?
		    "has a leading zero, which YAML reads as octal" : "is out of range";
	if (digits == 0)
		return "is not a number";
	if (first == '0' && digits == 1 && span_lower(text.base[1]) == 'x')
		return "is hexadecimal, write it as a decimal number";
	if (memchr(text.base, '_', text.len) != NULL)
		return "has an underscore in it";
	if (memchr(text.base, ':', text.len) != NULL)
		return "has a colon in it, which YAML reads as base 60";
	if (text.base[digits] == '.' || span_lower(text.base[digits]) == 'e')
		return "is not a whole number";
	return "is more than a number; the unit is part of the key";
}

/* A number within the row's limits. */
static bool
read_number(const struct conf_row *row, struct conf_text text, uint64_t *out, char *why)
{
	static const struct conf_word units[] = {
		{ "KiB", 1u << 10 }, { "MiB", 1u << 20 }, { "GiB", 1u << 30 },
	};
	struct span digits = text.bytes;
	uint64_t value, factor = 1;

	if (text.quoted)
		return refuse(row, text, why, "is a text because of its quotes");
	if (digits.len == 0)
		return refuse(row, text, why, "is not a number");
	for (size_t i = 0; row->type == CONF_SIZE && digits.len > 3 && i < 3; i++) {
		if (!span_is(span_of(digits.base + digits.len - 3, 3), units[i].name))
			continue;
		digits.len -= 3;
		factor = units[i].value;
		break;
	}
	if (!str_to_u64(digits, &value)) {
		const char *trap = number_trap(digits);

		if (row->type == CONF_SIZE && strncmp(trap, "is more", 7) == 0)
			trap = "has a unit that is not known";
		return refuse(row, text, why, "%s", trap);
	}
	if (__builtin_mul_overflow(value, factor, &value) || value < row->min || value > row->max)
		return refuse(row, text, why, "is out of range");
	*out = value;
	return true;
}

static bool
set_number(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	uint64_t value;

	if (!read_number(row, text, &value, why))
		return false;
	conf_field_set_uint(row, base, value);
	return true;
}

/* The words of YAML 1.1 in the three spellings that it allows. */
static bool
set_bool(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	static const char *const words[][2] = { { "false", "true" }, { "no", "yes" }, { "off", "on" } };

	if (text.quoted)
		return refuse(row, text, why, "is a text because of its quotes");
	for (size_t i = 0; i < 6; i++) {
		const char *word = words[i / 2][i % 2];
		char upper[8] = "", title[8] = "";

		for (size_t j = 0; word[j] != '\0'; j++) {
			upper[j] = (char)(word[j] - 'a' + 'A');
			title[j] = j == 0 ? upper[j] : word[j];
		}
		if (span_is(text.bytes, word) || span_is(text.bytes, upper) ||
		    span_is(text.bytes, title)) {
			*(bool *)conf_field(row, base) = i % 2 != 0;
			return true;
		}
	}
	return refuse(row, text, why, "is neither true nor false");
}

static const struct conf_word *
find_word(const struct conf_row *row, struct span text)
{
	for (const struct conf_word *word = row->words; word->name != NULL; word++)
		if (span_is(text, word->name))
			return word;
	return NULL;
}

static bool
set_enum(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	const struct conf_word *word = find_word(row, text.bytes);

	if (word == NULL)
		return refuse(row, text, why, "is not known");
	conf_field_set_uint(row, base, word->value);
	return true;
}

/* Nothing that ends a line in a log, a terminal or a YAML file that we write; NULL if so. */
static const char *
text_trap(struct span text, bool tabs)
{
	static const char *const breaks[] = { "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xef\xbb\xbf" };
	size_t usable;

	for (size_t i = 0; i < text.len; i++)
		if (text.base[i] == '\n' || text.base[i] == '\r')
			return "has a line break in it";
		else if (((unsigned char)text.base[i] < 0x20 && !(tabs && text.base[i] == '\t')) ||
		    text.base[i] == 0x7f)
			return "has a control character in it";
	if (conf_file_bad_byte(text, &usable) != text.len)
		return "has a byte in it that is not text in UTF-8";
	for (size_t i = 0; i < sizeof(breaks) / sizeof(breaks[0]); i++)
		if (text.len != 0 && memmem(text.base, text.len, breaks[i], strlen(breaks[i])) != NULL)
			return "has a line break in it";
	return NULL;
}

static bool
store_string(char **at, struct span text, char *why)
{
	char *copy = strndup(text.base, text.len);

	if (copy == NULL)
		return no_memory(why);
	free(*at);
	*at = copy;
	return true;
}

static bool
set_string(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	const char *trap = text_trap(text.bytes, false);

	if (trap != NULL)
		return refuse(row, text, why, "%s", trap);
	if (text.bytes.len < row->min || text.bytes.len > row->max)
		return refuse(row, text, why, "is too %s", text.bytes.len < row->min ?
		    "short" : "long");
	return store_string(conf_field(row, base), text.bytes, why);
}

static bool
set_ip(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	int family = row->type == CONF_IPV4 ? AF_INET : AF_INET6;
	struct addr addr = { .len = 0 };

	if (text.bytes.len != 0 && (!addr_parse_ip(text.bytes, 0, &addr) ||
	    (row->type != CONF_IP && addr.sa.sa_family != family)))
		return refuse(row, text, why, "is not an %s address", row->type == CONF_IP ? "IP" :
		    row->type == CONF_IPV4 ? "IPv4" : "IPv6");
	*(struct addr *)conf_field(row, base) = addr;
	return true;
}

static bool
set_listen_addr(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	const size_t prefix = sizeof(UNIX_PREFIX) - 1;
	struct span path = text.bytes;
	struct addr addr;

	if (path.len >= prefix && memcmp(path.base, UNIX_PREFIX, prefix) == 0) {
		path = span_of(path.base + prefix, path.len - prefix);
		if (path.len < 2 || path.base[0] != '/' || text_trap(path, false) != NULL)
			return refuse(row, text, why, "does not name an absolute path");
		/* unix(7): the NUL has to fit as well. */
		if (path.len >= sizeof(((struct sockaddr_un *)0)->sun_path))
			return refuse(row, text, why, "is longer than a socket's path may be, %zu bytes",
			    sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	} else if (!addr_parse_ip(text.bytes, 0, &addr)) {
		return refuse(row, text, why, "is not an address");
	}
	return store_string(conf_field(row, base), text.bytes, why);
}

bool
conf_value_set(const struct conf_row *row, void *base, struct conf_text text,
    char why[CONF_WHY_MAX])
{
	switch (row->type) {
	case CONF_BOOL:
		return set_bool(row, base, text, why);
	case CONF_NUMBER:
	case CONF_SIZE:
		return set_number(row, base, text, why);
	case CONF_ENUM:
		return set_enum(row, base, text, why);
	case CONF_STRING:
		return set_string(row, base, text, why);
	case CONF_IPV4:
	case CONF_IPV6:
	case CONF_IP:
		return set_ip(row, base, text, why);
	case CONF_LISTEN_ADDR:
		return set_listen_addr(row, base, text, why);
	case CONF_FLAGS:
	case CONF_RANGE:
	case CONF_SERVERS:
	case CONF_STRINGS:
	case CONF_LINES:
	case CONF_RECORDS:
		break;
	}
	assert(!"a list is not set by one value");
	return false;
}

static bool
add_flag(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	const struct conf_word *word = find_word(row, text.bytes);
	uint64_t set = conf_field_uint(row, base);

	if (word == NULL)
		return refuse(row, text, why, "is not known");
	if ((set & word->value) != 0)
		return refuse(row, text, why, "is there twice");
	conf_field_set_uint(row, base, set | word->value);
	return true;
}

static bool
add_to_range(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	uint16_t *range = conf_field_range(row, base);
	uint64_t value;

	assert(row->min > 0 && row->max <= UINT16_MAX);
	if (!read_number(row, text, &value, why))
		return false;
	if (range[1] != 0)
		return refuse(row, text, why, "is one too many");
	range[range[0] != 0] = (uint16_t)value;
	return true;
}

static bool
end_range(const struct conf_row *row, const void *base, char *why)
{
	const uint16_t *range = conf_field_const(row, base);
	char both[32];

	if (range[0] == 0)
		strcpy(both, "[]");
	else if (range[1] == 0)
		snprintf(both, sizeof(both), "[%u]", range[0]);
	else
		snprintf(both, sizeof(both), "[%u, %u]", range[0], range[1]);
	if (range[1] == 0)
		return refuse(row, (struct conf_text){ span_str(both), false }, why,
		    "has too few entries");
	if (range[0] > range[1])
		return refuse(row, (struct conf_text){ span_str(both), false }, why,
		    "has the higher number first");
	return true;
}

/* ADDRESS, IPV4:PORT or [IPV6]:PORT */
static bool
parse_server(struct span text, struct addr *addr)
{
	const char *colon = text.len == 0 ? NULL : memrchr(text.base, ':', text.len);
	uint64_t port;
	struct span host;

	if (addr_parse_ip(text, DNS_PORT, addr))
		return true;
	if (colon == NULL)
		return false;
	host = span_of(text.base, (size_t)(colon - text.base));
	/* "::1:53" was an address above; what is left needs brackets to be IPv6. */
	return str_to_u64(span_of(colon + 1, text.len - host.len - 1), &port) &&
	    port >= 1 && port <= 65535 && addr_parse_ip(host, (uint16_t)port, addr) &&
	    (addr->sa.sa_family == AF_INET || host.base[0] == '[');
}

/* Room for one more entry, or NULL and `why`. */
static void *
grow_list(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	size_t count = conf_field_count(row, base);
	void **list = conf_field(row, base), *grown;

	if (count >= row->max) {
		refuse(row, text, why, "is one too many");
		return NULL;
	}
	grown = reallocarray(*list, count + 1, row->width);
	if (grown == NULL)
		no_memory(why);
	else
		*list = grown;
	return grown;
}

static bool
add_server(const struct conf_row *row, void *base, struct conf_text text, char *why)
{
	size_t count = conf_field_count(row, base);
	struct addr *list, addr;

	if (!parse_server(text.bytes, &addr))
		return refuse(row, text, why, "is not an address with an optional port");
	list = grow_list(row, base, text, why);
	if (list == NULL)
		return false;
	list[count] = addr;
	conf_field_set_count(row, base, count + 1);
	return true;
}

bool
conf_value_put(const struct conf_row *row, void *base, size_t index, struct conf_text text,
    char why[CONF_WHY_MAX])
{
	const char *trap = text_trap(text.bytes, row->type == CONF_LINES);
	size_t count = conf_field_count(row, base);
	char **list;

	assert(conf_type_is_texts(row->type) && index <= count);
	if (trap != NULL)
		return refuse(row, text, why, "%s", trap);
	if (text.bytes.len == 0 || text.bytes.len > ENTRY_BYTES_MAX)
		return refuse(row, text, why, "is too %s", text.bytes.len == 0 ? "short" : "long");
	if (index < count) {
		list = *(char ***)conf_field(row, base);
		return store_string(&list[index], text.bytes, why);
	}
	list = grow_list(row, base, text, why);
	if (list == NULL)
		return false;
	list[count] = NULL;
	if (!store_string(&list[count], text.bytes, why))
		return false;
	conf_field_set_count(row, base, count + 1);
	return true;
}

bool
conf_value_add(const struct conf_row *row, void *base, struct conf_text text,
    char why[CONF_WHY_MAX])
{
	switch (row->type) {
	case CONF_FLAGS:
		return add_flag(row, base, text, why);
	case CONF_RANGE:
		return add_to_range(row, base, text, why);
	case CONF_SERVERS:
		return add_server(row, base, text, why);
	default:
		return conf_value_put(row, base, conf_field_count(row, base), text, why);
	}
}

bool
conf_value_end(const struct conf_row *row, const void *base, char why[CONF_WHY_MAX])
{
	if (row->type == CONF_RANGE)
		return end_range(row, base, why);
	if (conf_field_count(row, base) >= row->min)
		return true;
	return refuse(row, (struct conf_text){ span_str("[]"), false }, why,
	    "has too few entries");
}

static struct span
trim(struct span text)
{
	while (text.len != 0 && text.base[0] == ' ')
		text = span_of(text.base + 1, text.len - 1);
	while (text.len != 0 && text.base[text.len - 1] == ' ')
		text.len--;
	return text;
}

bool
conf_value_from_text(const struct conf_row *row, void *base, struct span text,
    char why[CONF_WHY_MAX])
{
	if (!conf_type_is_list(row->type))
		return conf_value_set(row, base, (struct conf_text){ text, false }, why);
	text = trim(text);
	/* "[::1]:53,..." begins with a bracket too, but does not end with its partner. */
	if (text.len >= 2 && text.base[0] == '[' && text.base[text.len - 1] == ']' &&
	    (row->type != CONF_SERVERS || !parse_server(text, &(struct addr){ .len = 0 })))
		text = trim(span_of(text.base + 1, text.len - 2));
	conf_value_clear(row, base);
	while (text.len != 0) {
		const char *comma = row->type == CONF_LINES ? NULL :
		    memchr(text.base, ',', text.len);
		size_t len = comma != NULL ? (size_t)(comma - text.base) : text.len;
		struct conf_text item = { trim(span_of(text.base, len)), false };

		if (!conf_value_add(row, base, item, why))
			return false;
		/* A comma at the very end is forgiven, as in YAML. */
		len += comma != NULL;
		text = span_of(text.base + len, text.len - len);
	}
	return conf_value_end(row, base, why);
}

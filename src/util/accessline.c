/* SPDX-License-Identifier: ISC */
#include "util/accessline.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "util/digits.h"

/*
 * Room for each value, escapes counted; with the keys and numbers they fit in
 * ACCESS_LINE_MAX.  A name or rule of 255 bytes fits however it is escaped.
 */
enum {
	METHOD_MAX = 64,
	TARGET_MAX = 8000,
	VERSION_MAX = 64,
	VALUE_MAX = 1600,
	WORD_MAX = 64,
	KEPT_MAX = TARGET_MAX + 1	/* one more, so that a cut is seen to be one */
};

struct put {
	char			*at;
	enum access_format	 format;
};

static const char hex_digits[] = "0123456789abcdef";

uint64_t
access_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- pieces ---- */

/* Inline, so that a constant's length is one. */
static inline void
put_str(struct put *p, const char *s)
{
	size_t len = strlen(s);

	memcpy(p->at, s, len);
	p->at += len;
}

/*
 * Length of a well-formed UTF-8 sequence (RFC 3629 section 4: no overlong
 * forms, no surrogates, nothing above U+10FFFF), 0 if there is none.
 */
static size_t
utf8_sequence(const unsigned char *s, size_t left)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 :
	    s[0] < 0xf5 ? 4 : 0;

	if (len == 0 || len > left)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* How the bytes at `s` are written: `*taken` of them become `*len` in `out`. */
static void
escape_json(const unsigned char *s, size_t left, size_t *taken, size_t *len, char out[6])
{
	size_t n = utf8_sequence(s, left);
	unsigned code = s[0];

	*taken = n != 0 ? n : 1;
	*len = *taken;
	memcpy(out, s, *taken);
	if (code == '"' || code == '\\') {
		out[0] = '\\';
		out[1] = (char)code;
		*len = 2;
		return;
	}
	/* C1 control characters drive terminals too: U+009B is CSI. */
	if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)
		code = s[1];
	else if (n != 0 && code >= 0x20 && code != 0x7f)
		return;
	memcpy(out, "\\u00", 4);
	out[4] = hex_digits[code >> 4];
	out[5] = hex_digits[code & 15];
	*len = 6;
}

/* Written as they are in every format, quoted or not. */
static const bool plain[256] = {
	['!'] = true,
	['#' ... '['] = true,		/* not the double quote before it */
	[']' ... '~'] = true,		/* nor the backslash */
};

static void
escape_text(unsigned c, bool quoted, size_t *len, char out[6])
{
	out[0] = (char)c;
	*len = 1;
	if (plain[c] || (c == ' ' && quoted))
		return;
	out[0] = '\\';
	out[1] = 'x';
	out[2] = hex_digits[c >> 4];
	out[3] = hex_digits[c & 15];
	*len = 4;
}

/* At most `max` bytes and the mark of a cut. */
static void
put_escaped(struct put *p, struct span s, size_t max, bool quoted)
{
	const unsigned char *from = (const unsigned char *)s.base, *end = from + s.len;
	char *at = p->at, *full = at + max;	/* through p each byte would be a load and two stores */
	size_t taken, len;
	char piece[6];

	for (;; from += taken, at += len) {
		while (from < end && plain[*from] && at < full)	/* nearly all are: no call, no copy */
			*at++ = (char)*from++;
		if (from == end)
			break;
		taken = len = 1;
		if (p->format == ACCESS_JSON)
			escape_json(from, (size_t)(end - from), &taken, &len, piece);
		else
			escape_text(*from, quoted, &len, piece);
		if (len > (size_t)(full - at)) {
			memcpy(at, "...", 3);
			at += 3;
			break;
		}
		memcpy(at, piece, len);
	}
	p->at = at;
}

/* ---- fields ---- */

enum key {
	KEY_HOST, KEY_UPSTREAM, KEY_STATUS, KEY_BYTES, KEY_CACHE, KEY_ACL, KEY_RULE, KEY_DUR_US,
	KEY_USER, KEY_PROTO, KEY_UP, KEY_ID
};

struct key_text {
	char	text[15];
	uint8_t	len;
};

/* By enum access_format; what comes behind the value before and what comes before this one. */
#define KEY(name) { { " " name "=", sizeof(" " name "=") - 1 }, \
	{ ",\"" name "\":", sizeof(",\"" name "\":") - 1 } }
static const struct key_text keys[][2] = {
	[KEY_HOST] = KEY("host"),
	[KEY_UPSTREAM] = KEY("upstream"),
	[KEY_STATUS] = KEY("status"),
	[KEY_BYTES] = KEY("bytes"),
	[KEY_CACHE] = KEY("cache"),
	[KEY_ACL] = KEY("acl"),
	[KEY_RULE] = KEY("rule"),
	[KEY_DUR_US] = KEY("dur_us"),
	[KEY_USER] = KEY("user"),
	[KEY_PROTO] = KEY("proto"),
	[KEY_UP] = KEY("up"),
	[KEY_ID] = KEY("id"),
};

static void
put_key(struct put *p, enum key key)
{
	const struct key_text *k = &keys[key][p->format];

	/* All of it, as a fixed size is one load and one store; the value overwrites what is too much. */
	memcpy(p->at, k->text, sizeof(k->text));
	p->at += k->len;
}

static void
put_number(struct put *p, enum key key, uint64_t n)
{
	put_key(p, key);
	p->at = digits_put(p->at, n);
}

/* An unquoted value of text, a string or null of JSON. */
static void
put_bare(struct put *p, struct span s, size_t max)
{
	bool json = p->format == ACCESS_JSON;

	if (s.len == 0) {
		put_str(p, json ? "null" : "-");
	} else if (json) {
		put_str(p, "\"");
		put_escaped(p, s, max, true);
		put_str(p, "\"");
	} else if (span_is(s, "-")) {
		put_str(p, "\\x2d");	/* a user of that name is not no user */
	} else {
		put_escaped(p, s, max, false);
	}
}

static void
put_value(struct put *p, enum key key, struct span s, size_t max)
{
	put_key(p, key);
	put_bare(p, s, max);
}

static void
put_word(struct put *p, enum key key, const char *word)
{
	put_value(p, key, span_str(word != NULL ? word : ""), WORD_MAX);
}

static struct span
addr_span(const struct addr *a, bool with_port, char text[ADDR_TEXT_MAX])
{
	if (a == NULL || a->len == 0)
		return span_of("", 0);
	return span_str(with_port ? addr_format(a, text) : addr_format_ip(a, text));
}

static void
put_request(struct put *p, const struct access_entry *e)
{
	const struct { struct span s; size_t max; } parts[] = {
		{ e->method, METHOD_MAX }, { e->target, TARGET_MAX }, { e->version, VERSION_MAX }
	};
	bool any = false;

	put_str(p, "\"");
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		if (parts[i].s.len == 0)
			continue;
		if (any)
			put_str(p, " ");
		put_escaped(p, parts[i].s, parts[i].max, true);
		any = true;
	}
	if (!any)
		put_str(p, "-");
	put_str(p, "\"");
}

static void
put_time(struct put *p, uint64_t us, struct access_clock *clock)
{
	time_t second = (time_t)(us / 1000000);
	unsigned ms = (unsigned)(us / 1000 % 1000);
	struct tm tm;

	if (second != clock->second || clock->text[0] == '\0') {
		if (gmtime_r(&second, &tm) == NULL ||
		    strftime(clock->text, sizeof clock->text, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
			clock->text[0] = '\0';
		clock->second = second;
	}
	put_str(p, clock->text);
	*p->at++ = '.';
	*p->at++ = (char)('0' + ms / 100);
	*p->at++ = (char)('0' + ms / 10 % 10);
	*p->at++ = (char)('0' + ms % 10);
	*p->at++ = 'Z';
}

/* ---- lines ---- */

/* What is written without a key as text: time, client, request. */
static void
put_front(struct put *p, const struct access_entry *e, struct access_clock *clock)
{
	bool json = p->format == ACCESS_JSON;
	char text[ADDR_TEXT_MAX];

	put_str(p, json ? "{\"time\":\"" : "");
	put_time(p, e->start_us, clock);
	put_str(p, json ? "\",\"client\":" : " ");
	put_bare(p, addr_span(e->client, false, text), ADDR_TEXT_MAX);
	put_str(p, json ? ",\"request\":" : " ");
	if (json && e->method.len + e->target.len + e->version.len == 0)
		put_str(p, "null");
	else
		put_request(p, e);
}

static void
put_rule(struct put *p, struct span rule)
{
	put_key(p, KEY_RULE);
	if (p->format == ACCESS_JSON) {
		put_bare(p, rule, VALUE_MAX);
		return;
	}
	put_str(p, "\"");
	if (rule.len == 0)
		put_str(p, "-");
	else
		put_escaped(p, rule, VALUE_MAX, true);
	put_str(p, "\"");
}

size_t
access_line(const struct access_entry *e, enum access_format format, struct access_clock *clock,
    char out[ACCESS_LINE_MAX])
{
	static const char *const verdicts[] = {
		[ACCESS_ACL_NONE] = "", [ACCESS_ACL_ALLOW] = "ALLOW", [ACCESS_ACL_DENY] = "DENY"
	};
	struct put p = { .at = out, .format = format };
	char text[ADDR_TEXT_MAX];

	assert(e->acl <= ACCESS_ACL_DENY);
	put_front(&p, e, clock);
	put_value(&p, KEY_HOST, e->host, VALUE_MAX);
	put_value(&p, KEY_UPSTREAM, addr_span(e->upstream, true, text), ADDR_TEXT_MAX);
	put_number(&p, KEY_STATUS, e->status);
	put_number(&p, KEY_BYTES, e->bytes);
	put_word(&p, KEY_CACHE, e->cache);
	put_word(&p, KEY_ACL, verdicts[e->acl]);
	put_rule(&p, e->rule);
	put_number(&p, KEY_DUR_US, e->dur_us);
	put_value(&p, KEY_USER, e->user, VALUE_MAX);
	put_word(&p, KEY_PROTO, e->proto);
	put_number(&p, KEY_UP, e->up);
	put_number(&p, KEY_ID, e->id);
	put_str(&p, format == ACCESS_JSON ? "}\n" : "\n");
	assert(p.at <= out + ACCESS_LINE_MAX);
	return (size_t)(p.at - out);
}

char *
access_entry_keep(struct access_entry *e)
{
	struct span *spans[] = { &e->method, &e->target, &e->version, &e->host, &e->rule, &e->user };
	enum { N = sizeof spans / sizeof spans[0] };
	size_t total = 1;	/* malloc(0) may be NULL */
	char *block, *at;

	for (int i = 0; i < N; i++) {
		if (spans[i]->len > KEPT_MAX)
			spans[i]->len = KEPT_MAX;
		total += spans[i]->len;
	}
	at = block = malloc(total);
	for (int i = 0; i < N; i++) {
		if (block == NULL) {
			*spans[i] = span_of("", 0);
		} else if (spans[i]->len > 0) {
			memcpy(at, spans[i]->base, spans[i]->len);
			spans[i]->base = at;
			at += spans[i]->len;
		}
	}
	return block;
}

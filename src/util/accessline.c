/* SPDX-License-Identifier: ISC */
#include "util/accessline.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

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

static const char digits[] = "0123456789abcdef";

uint64_t
access_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- pieces ---- */

static void
put_str(struct put *p, const char *s)
{
	while (*s != '\0')
		*p->at++ = *s++;
}

static void
put_u64(struct put *p, uint64_t n)
{
	char text[20];
	size_t i = sizeof text;

	do
		text[--i] = (char)('0' + n % 10);
	while ((n /= 10) != 0);
	memcpy(p->at, text + i, sizeof text - i);
	p->at += sizeof text - i;
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
	out[4] = digits[code >> 4];
	out[5] = digits[code & 15];
	*len = 6;
}

/* The same in every format, quoted or not. */
static bool
is_plain(unsigned c)
{
	return c > 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void
escape_text(unsigned c, bool quoted, size_t *len, char out[6])
{
	out[0] = (char)c;
	*len = 1;
	if (is_plain(c) || (c == ' ' && quoted))
		return;
	out[0] = '\\';
	out[1] = 'x';
	out[2] = digits[c >> 4];
	out[3] = digits[c & 15];
	*len = 4;
}

/* At most `max` bytes and the mark of a cut. */
static void
put_escaped(struct put *p, struct span s, size_t max, bool quoted)
{
	const unsigned char *from = (const unsigned char *)s.base;
	size_t used = 0, taken, len;
	char piece[6];

	for (size_t i = 0; i < s.len; i += taken, used += len) {
		taken = len = 1;
		if (is_plain(from[i]) && used < max) {	/* nearly all are: no call, no copy */
			*p->at++ = (char)from[i];
			continue;
		}
		if (p->format == ACCESS_JSON)
			escape_json(from + i, s.len - i, &taken, &len, piece);
		else
			escape_text(from[i], quoted, &len, piece);
		if (used + len > max) {
			put_str(p, "...");
			return;
		}
		memcpy(p->at, piece, len);
		p->at += len;
	}
}

/* ---- fields ---- */

static void
put_key(struct put *p, const char *key)
{
	bool json = p->format == ACCESS_JSON;

	put_str(p, json ? ",\"" : " ");
	put_str(p, key);
	put_str(p, json ? "\":" : "=");
}

static void
put_number(struct put *p, const char *key, uint64_t n)
{
	put_key(p, key);
	put_u64(p, n);
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
put_value(struct put *p, const char *key, struct span s, size_t max)
{
	put_key(p, key);
	put_bare(p, s, max);
}

static void
put_word(struct put *p, const char *key, const char *word)
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
	put_key(p, "rule");
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
	put_value(&p, "host", e->host, VALUE_MAX);
	put_value(&p, "upstream", addr_span(e->upstream, true, text), ADDR_TEXT_MAX);
	put_number(&p, "status", e->status);
	put_number(&p, "bytes", e->bytes);
	put_word(&p, "cache", e->cache);
	put_word(&p, "acl", verdicts[e->acl]);
	put_rule(&p, e->rule);
	put_number(&p, "dur_us", e->dur_us);
	put_value(&p, "user", e->user, VALUE_MAX);
	put_word(&p, "proto", e->proto);
	put_number(&p, "up", e->up);
	put_number(&p, "id", e->id);
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

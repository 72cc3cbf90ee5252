/* SPDX-License-Identifier: ISC */
#include "net/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/hash.h"

enum {
	/* Ad-blocking hosts files have some 200,000 lines; more than this is not one. */
	FILE_BYTES_MAX	= 32 * 1024 * 1024,
	NAME_BYTES_MAX	= 253
};

static const uint64_t CHECK_EVERY_NS = 1000000000;
static const uint32_t NONE = UINT32_MAX;

/* One name of one line. */
struct host {
	uint32_t	name;		/* offset in text */
	uint32_t	next;		/* in the bucket, or NONE */
	uint8_t		name_len;
	bool		v6;
	uint8_t		ip[16];
};

struct hosts {
	char		*path;
	uint64_t	 seed;
	uint64_t	 checked_ns;	/* when the file was last looked at */
	bool		 loaded;
	struct file_stamp stamp;	/* of what was loaded */
	char		*text;		/* the file, lower case */
	struct host	*list;
	uint32_t	 count, capacity;
	uint32_t	*buckets;
	uint32_t	 mask;
};

struct file_stamp
file_stamp_of(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return (struct file_stamp){ 0 };
	return (struct file_stamp){
		.device = (uint64_t)st.st_dev, .inode = (uint64_t)st.st_ino,
		.size_bytes = (uint64_t)st.st_size,
		.mtime_s = st.st_mtim.tv_sec, .mtime_ns = st.st_mtim.tv_nsec,
	};
}

bool
file_stamp_same(const struct file_stamp *a, const struct file_stamp *b)
{
	return a->device == b->device && a->inode == b->inode &&
	    a->size_bytes == b->size_bytes && a->mtime_s == b->mtime_s &&
	    a->mtime_ns == b->mtime_ns;
}

static void
unload(struct hosts *h)
{
	free(h->text);
	free(h->list);
	free(h->buckets);
	h->text = NULL;
	h->list = NULL;
	h->buckets = NULL;
	h->count = h->capacity = h->mask = 0;
}

/* The file as one string; NULL when it can't be read or is no hosts file. */
static char *
read_file(const char *path, size_t *len)
{
	struct stat st;
	char *text = NULL;
	size_t at = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX)
		goto out;
	text = malloc((size_t)st.st_size + 1);
	while (text != NULL && at < (size_t)st.st_size) {
		n = read(fd, text + at, (size_t)st.st_size - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	if (text != NULL)
		text[at] = '\0';
	*len = at;
out:
	close(fd);
	return text;
}

static bool
add_host(struct hosts *h, size_t name, size_t name_len, const struct addr *addr)
{
	struct host *host, *grown;
	uint32_t capacity;

	if (h->count == h->capacity) {
		capacity = h->capacity == 0 ? 64 : h->capacity * 2;
		grown = realloc(h->list, capacity * sizeof(*grown));
		if (grown == NULL)
			return false;
		h->list = grown;
		h->capacity = capacity;
	}
	host = &h->list[h->count++];
	memset(host, 0, sizeof(*host));
	host->name = (uint32_t)name;
	host->name_len = (uint8_t)name_len;
	host->v6 = addr->sa.sa_family == AF_INET6;
	if (host->v6)
		memcpy(host->ip, &addr->in6.sin6_addr, 16);
	else
		memcpy(host->ip, &addr->in.sin_addr, 4);
	return true;
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of text[*at, end); false when there is none. */
static bool
next_word(const char *text, size_t end, size_t *at, struct span *word)
{
	while (*at < end && is_blank(text[*at]))
		(*at)++;
	word->base = text + *at;
	while (*at < end && !is_blank(text[*at]))
		(*at)++;
	word->len = (size_t)(text + *at - word->base);
	return word->len > 0;
}

/* "address name..." in text[at, end), comment already cut.  Lines that make no sense are skipped. */
static bool
parse_line(struct hosts *h, size_t at, size_t end)
{
	struct addr addr;
	struct span word;

	if (!next_word(h->text, end, &at, &word) || !addr_parse_ip(word, 0, &addr))
		return true;
	while (next_word(h->text, end, &at, &word)) {
		if (word.base[word.len - 1] == '.')
			word.len--;
		if (word.len == 0 || word.len > NAME_BYTES_MAX)
			continue;
		if (!add_host(h, (size_t)(word.base - h->text), word.len, &addr))
			return false;
	}
	return true;
}

static bool
parse_text(struct hosts *h, size_t len)
{
	size_t line = 0, end, cut;

	for (size_t i = 0; i < len; i++)
		h->text[i] = span_lower(h->text[i]);
	for (; line < len; line = end + 1) {
		for (end = line; end < len && h->text[end] != '\n'; end++)
			;
		for (cut = line; cut < end && h->text[cut] != '#'; cut++)
			;
		if (!parse_line(h, line, cut))
			return false;
	}
	return true;
}

static uint32_t *
bucket_of(const struct hosts *h, struct span name)
{
	return &h->buckets[hash_bytes(name.base, name.len, h->seed) & h->mask];
}

static struct span
name_of(const struct hosts *h, const struct host *host)
{
	return span_of(h->text + host->name, host->name_len);
}

static bool
index_list(struct hosts *h)
{
	uint32_t n = 16, *bucket;

	while (n < h->count)
		n *= 2;
	h->buckets = malloc(n * sizeof(*h->buckets));
	if (h->buckets == NULL)
		return false;
	memset(h->buckets, 0xff, n * sizeof(*h->buckets));	/* NONE */
	h->mask = n - 1;
	/* Backwards, so that each chain ends up in the file's order. */
	for (uint32_t i = h->count; i-- > 0;) {
		bucket = bucket_of(h, name_of(h, &h->list[i]));
		h->list[i].next = *bucket;
		*bucket = i;
	}
	return true;
}

static void
refresh(struct hosts *h, uint64_t now_ns)
{
	struct file_stamp stamp;
	size_t len = 0;

	if (h->path[0] == '\0' || (h->loaded && now_ns - h->checked_ns < CHECK_EVERY_NS))
		return;
	h->checked_ns = now_ns;
	stamp = file_stamp_of(h->path);
	if (h->loaded && file_stamp_same(&stamp, &h->stamp))
		return;
	h->loaded = true;
	h->stamp = stamp;
	unload(h);
	h->text = read_file(h->path, &len);
	if (h->text == NULL || !parse_text(h, len) || !index_list(h))
		unload(h);
}

struct hosts *
hosts_new(const char *path, uint64_t seed)
{
	struct hosts *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	h->seed = seed;
	h->path = strdup(path);
	if (h->path == NULL) {
		free(h);
		return NULL;
	}
	return h;
}

void
hosts_free(struct hosts *h)
{
	if (h == NULL)
		return;
	unload(h);
	free(h->path);
	free(h);
}

static void
to_addr(const struct host *host, struct addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	if (host->v6) {
		addr->in6.sin6_family = AF_INET6;
		memcpy(&addr->in6.sin6_addr, host->ip, 16);
		addr->len = sizeof(addr->in6);
	} else {
		addr->in.sin_family = AF_INET;
		memcpy(&addr->in.sin_addr, host->ip, 4);
		addr->len = sizeof(addr->in);
	}
}

bool
hosts_find(struct hosts *h, struct span name, int family, uint64_t now_ns,
    struct addr *addrs, unsigned max, unsigned *count)
{
	const struct host *host;
	bool found = false;

	*count = 0;
	refresh(h, now_ns);
	if (h->count == 0)
		return false;
	for (uint32_t i = *bucket_of(h, name); i != NONE; i = host->next) {
		host = &h->list[i];
		if (!span_eq(name_of(h, host), name))
			continue;
		found = true;
		if (host->v6 == (family == AF_INET6) && *count < max)
			to_addr(host, &addrs[(*count)++]);
	}
	return found;
}

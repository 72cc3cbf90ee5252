/* SPDX-License-Identifier: ISC */
#include "policy/users.h"

#include <errno.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "policy/acl_file.h"
#include "util/hash.h"
#include "util/str.h"

enum {
	BUCKETS_FIRST = 64,	/* power of two; doubled when there are more users than buckets */
	WHERE_MAX = 768
};

#define NONE UINT32_MAX

struct user {
	uint64_t		 hash;
	struct password_record	 record;
	uint32_t		 next;		/* in the bucket, or NONE */
	uint32_t		 name_len;
	char			*name;		/* the NUL-terminated place it was first seen at is behind it */
};

struct users {
	struct user		*v;
	size_t			 count, capacity;
	uint32_t		*buckets;	/* indices into v */
	size_t			 bucket_count;
	uint64_t		 seed;
	struct password_record	 nobody;	/* random: what no password fits */
};

struct users *
users_new(void)
{
	struct users *u = calloc(1, sizeof(*u));

	if (u == NULL)
		return NULL;
	u->nobody.iterations = PASSWORD_ITERATIONS;
	if (RAND_bytes((unsigned char *)&u->seed, sizeof(u->seed)) != 1 ||
	    RAND_bytes(u->nobody.salt, sizeof(u->nobody.salt)) != 1 ||
	    RAND_bytes(u->nobody.hash, sizeof(u->nobody.hash)) != 1) {
		free(u);
		return NULL;
	}
	return u;
}

void
users_free(struct users *u)
{
	if (u == NULL)
		return;
	for (size_t i = 0; i < u->count; i++)
		free(u->v[i].name);
	free(u->v);
	free(u->buckets);
	free(u);
}

static const struct user *
find(const struct users *u, struct span name, uint64_t hash)
{
	if (u->bucket_count == 0)
		return NULL;
	for (uint32_t i = u->buckets[hash & (u->bucket_count - 1)]; i != NONE; i = u->v[i].next)
		if (u->v[i].hash == hash && span_eq(name, users_name(u, i)))
			return &u->v[i];
	return NULL;
}

static void
link_user(struct users *u, size_t i)
{
	uint32_t *bucket = &u->buckets[u->v[i].hash & (u->bucket_count - 1)];

	u->v[i].next = *bucket;
	*bucket = (uint32_t)i;
}

/* Room for one more, in the list and in the table. */
static int
make_room(struct users *u)
{
	if (u->count == u->capacity) {
		size_t capacity = u->capacity == 0 ? 16 : u->capacity * 2;
		struct user *v = reallocarray(u->v, capacity, sizeof(*v));

		if (v == NULL)
			return -ENOMEM;
		u->v = v;
		u->capacity = capacity;
	}
	if (u->count >= u->bucket_count) {
		size_t n = u->bucket_count == 0 ? BUCKETS_FIRST : u->bucket_count * 2;
		uint32_t *buckets = reallocarray(NULL, n, sizeof(*buckets));

		if (buckets == NULL)
			return -ENOMEM;
		free(u->buckets);
		u->buckets = buckets;
		u->bucket_count = n;
		memset(buckets, 0xff, n * sizeof(*buckets));	/* NONE */
		for (size_t i = 0; i < u->count; i++)
			link_user(u, i);
	}
	return 0;
}

static int
append(struct users *u, struct span name, uint64_t hash, const struct password_record *record,
    const char *where)
{
	size_t where_size = (where != NULL ? strlen(where) : 0) + 1;
	struct user *new;
	char *text;

	if (u->count >= NONE || make_room(u) != 0 || (text = malloc(name.len + where_size)) == NULL)
		return -ENOMEM;
	memcpy(text, name.base, name.len);
	memcpy(text + name.len, where != NULL ? where : "", where_size);
	new = &u->v[u->count];
	*new = (struct user){
		.hash = hash, .record = *record, .name_len = (uint32_t)name.len, .name = text
	};
	link_user(u, u->count++);
	return 0;
}

/* NULL, or why nobody could log in by this name. */
static const char *
name_unfit(struct span name)
{
	if (name.len == 0)
		return "a user without a name";
	if (name.len > USERS_NAME_MAX)
		return "user name is longer than 255 bytes";
	for (size_t i = 0; i < name.len; i++) {
		/* RFC 7617 section 2: the colon ends the name. */
		if (name.base[i] == ':')
			return "user name has a colon";
		if ((unsigned char)name.base[i] < 0x20 || name.base[i] == 0x7f)
			return "user name has control characters";
	}
	return NULL;
}

int
users_add(struct users *u, struct span name, struct span text, const char *where, const char *key,
    struct conf_problems *problems)
{
	uint64_t hash = hash_bytes(name.len != 0 ? name.base : "", name.len, u->seed);
	const char *wrong = name_unfit(name);
	struct password_record record;
	const struct user *same;
	char quoted[STR_QUOTED_MAX];

	if (wrong != NULL) {
		conf_problems_add(problems, CONF_ERROR, where, key, "%s", wrong);
		return -EINVAL;
	}
	str_quote(name, quoted);
	if ((wrong = password_parse(text, &record)) != NULL) {
		conf_problems_add(problems, CONF_ERROR, where, key, "user %s: %s", quoted, wrong);
		return -EINVAL;
	}
	if ((same = find(u, name, hash)) != NULL) {
		const char *first = same->name + same->name_len;

		conf_problems_add(problems, CONF_ERROR, where, key, "user %s is listed twice%s%s%s",
		    quoted, *first != '\0' ? " (first at " : "", first, *first != '\0' ? ")" : "");
		return -EINVAL;
	}
	if (append(u, name, hash, &record, where) != 0) {
		conf_problems_add(problems, CONF_ERROR, where, key, "out of memory");
		return -EINVAL;
	}
	return 0;
}

/* NAME:RECORD; blanks around both are nobody's intention. */
static int
add_line(struct users *u, struct span line, const char *where, struct conf_problems *problems)
{
	const char *colon = memchr(line.base, ':', line.len);
	struct span name, record;

	if (colon == NULL) {
		conf_problems_add(problems, CONF_ERROR, where, NULL,
		    "no colon (NAME:RECORD is expected)");
		return -EINVAL;
	}
	name = span_of(line.base, (size_t)(colon - line.base));
	record = span_of(colon + 1, line.len - name.len - 1);
	while (name.len != 0 && acl_is_blank(name.base[name.len - 1]))
		name.len--;
	while (record.len != 0 && acl_is_blank(record.base[0]))
		record = span_of(record.base + 1, record.len - 1);
	return users_add(u, name, record, where, NULL, problems);
}

int
users_load_file(struct users *u, const char *path, struct conf_problems *problems)
{
	char where[WHERE_MAX];
	struct acl_lines lines;
	struct span line;
	struct stat st;
	int rc = acl_lines_open(&lines, path, ACL_COMMENT_HASH);

	if (rc != 0) {
		conf_problems_add(problems, CONF_ERROR, path, NULL, "cannot read the users file: %s",
		    strerror(-rc));
		return -EINVAL;
	}
	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH) != 0)
		conf_problems_add(problems, CONF_WARNING, path, NULL,
		    "the users file can be read by everyone (chmod o= would end that)");
	while (acl_lines_next(&lines, &line)) {
		snprintf(where, sizeof(where), "%.700s:%zu", path, lines.line);
		if (add_line(u, line, where, problems) != 0)
			rc = -EINVAL;
	}
	acl_lines_close(&lines);
	return rc;
}

bool
users_find(const struct users *u, struct span name, struct password_record *out)
{
	uint64_t hash = hash_bytes(name.len != 0 ? name.base : "", name.len, u->seed);
	const struct user *found = find(u, name, hash);

	if (found != NULL) {
		*out = found->record;
		return true;
	}
	/* As many iterations as one of the users has, the same one for this name each time. */
	*out = u->nobody;
	if (u->count != 0)
		out->iterations = u->v[(hash >> 32) % u->count].record.iterations;
	return false;
}

size_t
users_count(const struct users *u)
{
	return u->count;
}

struct span
users_name(const struct users *u, size_t i)
{
	return span_of(u->v[i].name, u->v[i].name_len);
}

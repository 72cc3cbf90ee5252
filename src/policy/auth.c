/* SPDX-License-Identifier: ISC */
#include "policy/auth.h"

#include <assert.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>

enum {
	CACHE_ENTRIES = 4096,	/* users at one time; 64 bytes each */
	MAC_BYTES = 32,
	SECRET_BYTES = 32,
	CLOSE_LOOK_MS = 5
};

#define NS_PER_MS UINT64_C(1000000)
#define NONE UINT32_MAX

/* What was right: nothing but an HMAC of it. */
struct entry {
	struct io_link	 age;		/* on auth->ages, always; longest unused first */
	uint32_t	 next;		/* in the bucket, or NONE */
	bool		 used;
	uint8_t		 mac[MAC_BYTES];
};

/* One verification that is under way; lives until kdf is done with it, whoever has left. */
struct auth_job {
	struct kdf_job	 kdf;
	struct auth	*auth;
	struct io_link	 link;		/* on auth->jobs */
	struct io_link	 waiters;	/* of auth_request; none when all have left */
	uint8_t		 mac[MAC_BYTES];
};

struct auth {
	struct io_loop	*loop;
	struct kdf	*kdf;
	struct io_link	 jobs;
	struct auth_stats stats;

	EVP_MAC_CTX	*hmac;		/* kept: HMAC() would look the algorithm up each time, 2 us */
	uint8_t		 secret[SECRET_BYTES];
	struct entry	*entries;
	uint32_t	*buckets;	/* as many as entries; indices */
	uint32_t	 entry_count;	/* power of two */
	struct io_link	 ages;

	struct io_timer	 timer;		/* closing */
	void		(*closed)(void *owner);
	void		*owner;
};

/* One writer, so no read-modify-write instruction is needed. */
static void
count(uint64_t *n, int64_t by)
{
	__atomic_store_n(n, *n + (uint64_t)by, __ATOMIC_RELAXED);
}

/* ---- the cache of what was right ---- */

static uint32_t *
bucket_of(struct auth *a, const uint8_t mac[MAC_BYTES])
{
	uint32_t i;

	memcpy(&i, mac, sizeof(i));
	return &a->buckets[i & (a->entry_count - 1)];
}

static struct entry *
cache_find(struct auth *a, const uint8_t mac[MAC_BYTES])
{
	for (uint32_t i = *bucket_of(a, mac); i != NONE; i = a->entries[i].next)
		if (CRYPTO_memcmp(a->entries[i].mac, mac, MAC_BYTES) == 0)
			return &a->entries[i];
	return NULL;
}

static void
cache_touch(struct auth *a, struct entry *e)
{
	io_list_del(&e->age);
	io_list_add_tail(&a->ages, &e->age);
}

static void
cache_drop(struct auth *a, struct entry *e)
{
	uint32_t *at = bucket_of(a, e->mac), index = (uint32_t)(e - a->entries);

	while (*at != index)
		at = &a->entries[*at].next;
	*at = e->next;
	e->used = false;
	OPENSSL_cleanse(e->mac, sizeof(e->mac));
}

static void
cache_add(struct auth *a, const uint8_t mac[MAC_BYTES])
{
	struct entry *e = cache_find(a, mac);
	uint32_t *at = bucket_of(a, mac);

	if (e == NULL) {
		e = io_container_of(a->ages.next, struct entry, age);
		if (e->used)
			cache_drop(a, e);
		e->used = true;
		memcpy(e->mac, mac, MAC_BYTES);
		e->next = *at;
		*at = (uint32_t)(e - a->entries);
	}
	cache_touch(a, e);
}

void
auth_flush(struct auth *a)
{
	io_list_init(&a->ages);
	for (uint32_t i = 0; i < a->entry_count; i++) {
		a->buckets[i] = NONE;
		OPENSSL_cleanse(&a->entries[i], sizeof(a->entries[i]));
		io_list_add_tail(&a->ages, &a->entries[i].age);
	}
}

/* Each part with its length in front, so that no two pairs make the same text. */
static bool
make_mac(struct auth *a, struct span user, struct span pass, const struct password_record *r,
    uint8_t mac[MAC_BYTES])
{
	uint8_t text[2 + USERS_NAME_MAX + PASSWORD_BYTES_MAX + sizeof(*r)], *p = text;
	size_t len = 0;
	bool made;

	*p++ = (uint8_t)user.len;
	*p++ = (uint8_t)pass.len;
	if (user.len != 0)
		memcpy(p, user.base, user.len);
	p += user.len;
	if (pass.len != 0)
		memcpy(p, pass.base, pass.len);
	p += pass.len;
	memcpy(p, &r->iterations, sizeof(r->iterations));
	p += sizeof(r->iterations);
	memcpy(p, r->salt, sizeof(r->salt));
	p += sizeof(r->salt);
	memcpy(p, r->hash, sizeof(r->hash));
	p += sizeof(r->hash);
	made = EVP_MAC_init(a->hmac, a->secret, SECRET_BYTES, NULL) == 1 &&
	    EVP_MAC_update(a->hmac, text, (size_t)(p - text)) == 1 &&
	    EVP_MAC_final(a->hmac, mac, &len, MAC_BYTES) == 1 && len == MAC_BYTES;
	OPENSSL_cleanse(text, sizeof(text));
	return made;
}

/* ---- jobs ---- */

static void
job_free(struct auth_job *job)
{
	assert(io_list_empty(&job->waiters));
	io_list_del(&job->link);
	OPENSSL_cleanse(job, sizeof(*job));
	free(job);
}

static enum auth_verdict
counted(struct auth *a, enum auth_verdict v)
{
	switch (v) {
	case AUTH_OK:
		count(&a->stats.ok, 1);
		break;
	case AUTH_DENIED:
		count(&a->stats.failed, 1);
		break;
	case AUTH_THROTTLED:
		count(&a->stats.throttled, 1);
		break;
	case AUTH_BUSY:
		count(&a->stats.busy, 1);
		break;
	case AUTH_PENDING:
		count(&a->stats.pending, 1);
		break;
	}
	return v;
}

static void
forget(struct auth_request *r)
{
	count(&r->job->auth->stats.pending, -1);
	io_list_del(&r->link);
	r->job = NULL;
}

static void
on_done(struct io_loop *loop, struct kdf_job *kdf)
{
	struct auth_job *job = io_container_of(kdf, struct auth_job, kdf);
	struct auth *a = job->auth;
	enum auth_verdict v = kdf->verdict == KDF_MATCH ? AUTH_OK :
	    kdf->verdict == KDF_MISMATCH ? AUTH_DENIED : AUTH_THROTTLED;

	(void)loop;
	/* Off the list first: a callback that asks the same again must not join. */
	io_list_del(&job->link);
	if (v == AUTH_OK)
		cache_add(a, job->mac);
	while (!io_list_empty(&job->waiters)) {
		struct auth_request *r = io_container_of(job->waiters.next, struct auth_request, link);

		forget(r);
		r->cb(r, counted(a, v));
	}
	job_free(job);
}

/* Of the same source only: each is to pay for its own failures. */
static struct auth_job *
job_same(struct auth *a, const uint8_t mac[MAC_BYTES], const struct addr *source)
{
	for (struct io_link *l = a->jobs.next; l != &a->jobs; l = l->next) {
		struct auth_job *job = io_container_of(l, struct auth_job, link);

		if (CRYPTO_memcmp(job->mac, mac, MAC_BYTES) == 0 &&
		    addr_same_ip(&job->kdf.source, source))
			return job;
	}
	return NULL;
}

static enum auth_verdict
job_start(struct auth *a, const struct addr *source, const struct password_record *record,
    bool known, struct span pass, const uint8_t mac[MAC_BYTES], struct auth_job **out)
{
	struct auth_job *job = calloc(1, sizeof(*job));
	enum kdf_admission admission;

	if (job == NULL)
		return AUTH_BUSY;
	job->auth = a;
	memcpy(job->mac, mac, MAC_BYTES);
	io_list_init(&job->waiters);
	io_list_add_tail(&a->jobs, &job->link);
	job->kdf.source = *source;
	job->kdf.record = *record;
	job->kdf.known = known;
	job->kdf.pass_len = (uint8_t)pass.len;
	if (pass.len != 0)
		memcpy(job->kdf.pass, pass.base, pass.len);
	admission = kdf_submit(a->kdf, a->loop, &job->kdf, on_done);
	if (admission == KDF_QUEUED) {
		*out = job;
		return AUTH_PENDING;
	}
	job_free(job);
	return admission == KDF_REFUSED ? AUTH_THROTTLED : AUTH_BUSY;
}

static enum auth_verdict
check(struct auth *a, const struct users *users, const struct addr *source, struct span user,
    struct span pass, struct auth_job **job)
{
	enum auth_verdict v = AUTH_PENDING;
	struct password_record record;
	uint8_t mac[MAC_BYTES];
	bool known;

	/* Before the cache: else it would tell a throttled source which guess is right. */
	if (kdf_throttled(a->kdf, source))
		return AUTH_THROTTLED;
	/* Longer ones can't have been sent by any protocol of ours, nor be anybody's. */
	if (user.len > USERS_NAME_MAX || pass.len > PASSWORD_BYTES_MAX)
		return AUTH_DENIED;
	known = users_find(users, user, &record);
	if (!make_mac(a, user, pass, &record, mac))
		return AUTH_BUSY;
	if (known) {
		struct entry *e = cache_find(a, mac);

		if (e != NULL) {
			cache_touch(a, e);
			count(&a->stats.cache_hits, 1);
			v = AUTH_OK;
		}
	}
	if (v == AUTH_PENDING) {
		if ((*job = job_same(a, mac, source)) != NULL)
			count(&a->stats.shared, 1);
		else
			v = job_start(a, source, &record, known, pass, mac, job);
	}
	OPENSSL_cleanse(mac, sizeof(mac));
	return v;
}

enum auth_verdict
auth_check(struct auth *a, const struct users *users, const struct addr *source, struct span user,
    struct span pass, struct auth_request *r, auth_cb *cb)
{
	struct auth_job *job = NULL;
	enum auth_verdict v;

	assert(r->job == NULL && a->closed == NULL);
	v = check(a, users, source, user, pass, &job);
	if (v == AUTH_PENDING) {
		r->cb = cb;
		r->job = job;
		io_list_add_tail(&job->waiters, &r->link);
	}
	return counted(a, v);
}

void
auth_leave(struct auth_request *r)
{
	struct auth_job *job = r->job;

	if (job == NULL)
		return;
	forget(r);
	/* One that runs goes on: the failure counts, whoever has hung up. */
	if (io_list_empty(&job->waiters) && kdf_cancel(job->auth->kdf, &job->kdf))
		job_free(job);
}

/* ---- for the worker ---- */

static void
auth_free(struct auth *a)
{
	if (a->entries != NULL && a->buckets != NULL)
		auth_flush(a);
	free(a->entries);
	free(a->buckets);
	EVP_MAC_CTX_free(a->hmac);
	OPENSSL_cleanse(a, sizeof(*a));
	free(a);
}

static EVP_MAC_CTX *
new_hmac(void)
{
	static char sha256[] = "SHA256";	/* not const in OpenSSL's signature */
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
		OSSL_PARAM_construct_end()
	};
	EVP_MAC *mac = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_HMAC, NULL);
	EVP_MAC_CTX *ctx = mac != NULL ? EVP_MAC_CTX_new(mac) : NULL;

	EVP_MAC_free(mac);	/* the context holds it */
	if (ctx != NULL && EVP_MAC_CTX_set_params(ctx, params) != 1) {
		EVP_MAC_CTX_free(ctx);
		ctx = NULL;
	}
	return ctx;
}

int
auth_new(struct auth **out, struct io_loop *loop, struct kdf *kdf, uint32_t cache_entries)
{
	struct auth *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return -ENOMEM;
	a->loop = loop;
	a->kdf = kdf;
	io_list_init(&a->jobs);
	for (a->entry_count = 1; a->entry_count < (cache_entries != 0 ? cache_entries : CACHE_ENTRIES);)
		a->entry_count *= 2;
	a->entries = calloc(a->entry_count, sizeof(*a->entries));
	a->buckets = calloc(a->entry_count, sizeof(*a->buckets));
	if (a->entries == NULL || a->buckets == NULL) {
		auth_free(a);
		return -ENOMEM;
	}
	auth_flush(a);
	if (RAND_bytes(a->secret, sizeof(a->secret)) != 1 || (a->hmac = new_hmac()) == NULL) {
		auth_free(a);
		return -EIO;
	}
	*out = a;
	return 0;
}

/* Jobs that ran when we closed come home one by one, or were refused by the loop. */
static void
on_closing(struct io_loop *loop, struct io_timer *t)
{
	struct auth *a = io_container_of(t, struct auth, timer);
	void (*closed)(void *) = a->closed;
	void *owner = a->owner;

	for (struct io_link *l = a->jobs.next, *next; l != &a->jobs; l = next) {
		struct auth_job *job = io_container_of(l, struct auth_job, link);

		next = l->next;
		if (kdf_job_refused(&job->kdf))
			job_free(job);
	}
	if (!io_list_empty(&a->jobs)) {
		io_timer_set(loop, t, io_now(loop) + CLOSE_LOOK_MS * NS_PER_MS, on_closing);
		return;
	}
	kdf_settle(a->kdf);
	auth_free(a);
	closed(owner);
}

void
auth_close(struct auth *a, void (*closed)(void *owner), void *owner)
{
	assert(a->stats.pending == 0 && a->closed == NULL);
	for (struct io_link *l = a->jobs.next, *next; l != &a->jobs; l = next) {
		struct auth_job *job = io_container_of(l, struct auth_job, link);

		next = l->next;
		if (kdf_cancel(a->kdf, &job->kdf))
			job_free(job);
	}
	a->closed = closed;
	a->owner = owner;
	io_timer_set(a->loop, &a->timer, io_now(a->loop), on_closing);
}

struct auth_stats
auth_stats(const struct auth *a)
{
	struct auth_stats st;

	st.ok = __atomic_load_n(&a->stats.ok, __ATOMIC_RELAXED);
	st.cache_hits = __atomic_load_n(&a->stats.cache_hits, __ATOMIC_RELAXED);
	st.failed = __atomic_load_n(&a->stats.failed, __ATOMIC_RELAXED);
	st.throttled = __atomic_load_n(&a->stats.throttled, __ATOMIC_RELAXED);
	st.busy = __atomic_load_n(&a->stats.busy, __ATOMIC_RELAXED);
	st.shared = __atomic_load_n(&a->stats.shared, __ATOMIC_RELAXED);
	st.pending = __atomic_load_n(&a->stats.pending, __ATOMIC_RELAXED);
	return st;
}

const char *
auth_verdict_text(enum auth_verdict v)
{
	switch (v) {
	case AUTH_OK:
		return "ok";
	case AUTH_DENIED:
		return "wrong user name or password";
	case AUTH_THROTTLED:
		return "too many failed logins";
	case AUTH_BUSY:
		return "too many logins at a time";
	case AUTH_PENDING:
		return "pending";
	}
	return "?";
}

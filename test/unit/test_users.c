/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/password.h"
#include "policy/users.h"

/* Made by Python's hashlib.pbkdf2_hmac. */
static const char horse[] =
    "sha256$120000$AAECAwQFBgcICQoLDA0ODw==$LQx3A5lom6a6y+ehEBT1ovXVkl/KvukyTItJ5jnyxGw=";
static const char secret[] =
    "sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg==$tiKWHy4FAGCWE8gn6GtKhaxD2OeeAUUWXFT/p1aaNl8=";
static const char empty[] =
    "sha256$1000$AAAAAAAAAAAAAAAAAAAAAA==$XZxuf925AX/BBp3qzXagkIsq8lTpYFt+mP77tz0u8CU=";
static const char umlauts[] =
    "sha256$1000$/////////////////////w==$KAPvtehzr6dJAt7tLQsTylMhni5Qis4mwrt4fj2ydHg=";
static const char longest[] =
    "sha256$1000$AAECAwQFBgcICQoLDA0ODw==$GoFhHhbAUoExc8XqKCyClLkVi0izD7sZpw+eBESh9E8=";

static bool
fits(const char *record, struct span password)
{
	struct password_record r;
	const char *wrong = password_parse(span_str(record), &r);

	cr_assert_null(wrong, "%s", wrong);
	return password_verify(&r, password);
}

Test(password, verifies_records_made_elsewhere)
{
	char x[255];

	memset(x, 'x', sizeof(x));
	cr_expect(fits(horse, span_str("correct horse")));
	cr_expect(!fits(horse, span_str("correct horsf")));
	cr_expect(!fits(horse, span_str("correct horse ")));
	cr_expect(!fits(horse, span_str("")));
	cr_expect(fits(secret, span_str("secret")));
	cr_expect(fits(umlauts, span_str("p\xc3\xa4ssw\xc3\xb6rd")));
	cr_expect(fits(longest, span_of(x, 255)));
	cr_expect(!fits(longest, span_of(x, 254)));
	cr_expect(fits(empty, span_of(NULL, 0)));
	cr_expect(!fits(empty, span_str("x")));
}

Test(password, makes_records_with_a_salt_of_their_own)
{
	char a[PASSWORD_TEXT_MAX], b[PASSWORD_TEXT_MAX];
	struct password_record r;

	cr_assert_eq(password_make(span_str("s3cret"), PASSWORD_ITERATIONS, a), 0);
	cr_assert_eq(password_make(span_str("s3cret"), PASSWORD_ITERATIONS, b), 0);
	cr_expect_str_neq(a, b);
	cr_assert_null(password_parse(span_str(a), &r));
	cr_expect_eq(r.iterations, 120000u);
	cr_expect(password_verify(&r, span_str("s3cret")));
	cr_assert_eq(password_make(span_str("x"), PASSWORD_ITERATIONS_MAX / 100, a), 0);
	cr_expect_eq(password_make(span_str(""), PASSWORD_ITERATIONS, a), -EINVAL);
	cr_expect_eq(password_make(span_str("tab\t"), PASSWORD_ITERATIONS, a), -EINVAL);
}

Test(password, bad_records_are_told_apart_and_not_repeated)
{
	static const struct { const char *text, *says; } v[] = {
		{ "", "not a password record" },
		{ "secret", "not a password record" },
		{ "sha256$1000$x", "not a password record" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0ODw==$a$b", "not a password record" },
		{ "sha512$1000$AAECAwQFBgcICQoLDA0ODw==$x", "kind" },
		{ "SHA256$1000$AAECAwQFBgcICQoLDA0ODw==$x", "kind" },
		{ "sha256$999$AAECAwQFBgcICQoLDA0ODw==$x", "iterations" },
		{ "sha256$10000001$AAECAwQFBgcICQoLDA0ODw==$x", "iterations" },
		{ "sha256$4294968296$AAECAwQFBgcICQoLDA0ODw==$x", "iterations" },
		{ "sha256$01000$AAECAwQFBgcICQoLDA0ODw==$x", "iterations" },
		{ "sha256$+1000$AAECAwQFBgcICQoLDA0ODw==$x", "iterations" },
		{ "sha256$$AAECAwQFBgcICQoLDA0ODw==$x", "iterations" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0ODw$x", "salt" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0O$x", "salt" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0ODxA=$x", "salt" },
		{ "sha256$1000$$x", "salt" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0ODw==$", "hash" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0ODw==$AAAA", "hash" },
		{ "sha256$1000$AAECAwQFBgcICQoLDA0ODw==$GoFhHhbAUoExc8XqKCyClLkVi0izD7sZpw+eBESh9E8= ", "hash" },
	};
	struct password_record r;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		const char *wrong = password_parse(span_str(v[i].text), &r);

		cr_assert_not_null(wrong, "\"%s\"", v[i].text);
		cr_expect_not_null(strstr(wrong, v[i].says), "\"%s\": %s", v[i].text, wrong);
	}
	cr_expect_null(password_parse(span_str("sha256$10000000$AAECAwQFBgcICQoLDA0ODw=="
	    "$GoFhHhbAUoExc8XqKCyClLkVi0izD7sZpw+eBESh9E8="), &r));
}

static int
add(struct users *u, const char *name, const char *record, struct conf_problems *p)
{
	return users_add(u, span_str(name), span_str(record), "f.yaml:7:5", "auth.users.0", p);
}

Test(users, finds_names_and_gives_others_a_record_of_like_cost)
{
	struct users *u = users_new();
	struct conf_problems p = { 0 };
	struct password_record r, again;
	char name[16];

	cr_assert_not_null(u);
	cr_expect(!users_find(u, span_str("nobody"), &r));
	cr_expect_eq(r.iterations, (uint32_t)PASSWORD_ITERATIONS);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "user%d", i);
		cr_assert_eq(add(u, name, secret, &p), 0);
	}
	cr_expect_eq(users_count(u), 1000u);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "user%d", i);
		cr_expect(users_find(u, span_str(name), &r));
		cr_expect(span_is(users_name(u, (size_t)i), name));
	}
	cr_expect_eq(r.iterations, 1000u);
	cr_expect(!users_find(u, span_str("USER1"), &r));
	cr_expect(!users_find(u, span_of(NULL, 0), &again));
	cr_expect_eq(r.iterations, 1000u);
	cr_expect_eq(p.errors + p.warnings, 0u);
	users_free(u);
	users_free(NULL);
}

Test(users, every_bad_entry_is_an_error_with_its_place)
{
	struct users *u = users_new();
	struct conf_problems p = { 0 };
	char long_name[257];

	memset(long_name, 'n', 256);
	long_name[256] = '\0';
	cr_expect_eq(add(u, "alice", secret, &p), 0);
	cr_expect_eq(add(u, "alice", horse, &p), -EINVAL);
	cr_expect_eq(add(u, "", secret, &p), -EINVAL);
	cr_expect_eq(add(u, "a:b", secret, &p), -EINVAL);
	cr_expect_eq(add(u, "a\nb", secret, &p), -EINVAL);
	cr_expect_eq(add(u, long_name, secret, &p), -EINVAL);
	cr_expect_eq(add(u, long_name + 1, secret, &p), 0);
	cr_expect_eq(add(u, "bob", "hunter2", &p), -EINVAL);
	cr_assert_eq(p.errors, 6u);
	cr_expect_str_eq(p.list[0].text,
	    "f.yaml:7:5: auth.users.0: user \"alice\" is listed twice (first at f.yaml:7:5)");
	cr_expect_not_null(strstr(p.list[5].text, "user \"bob\": not a password record"));
	for (size_t i = 0; i < p.count; i++)
		cr_expect_null(strstr(p.list[i].text, "hunter2"), "a secret in a message");
	cr_expect_eq(users_count(u), 2u);
	conf_problems_free(&p);
	users_free(u);
}

static char *
file_with(const char *text, mode_t mode)
{
	char *path = strdup("/tmp/ringway-users.XXXXXX");
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	fchmod(fd, mode);
	close(fd);
	return path;
}

Test(users, reads_a_file)
{
	char text[1024], *path;
	struct users *u = users_new();
	struct conf_problems p = { 0 };
	struct password_record r;

	snprintf(text, sizeof(text), "\xef\xbb\xbf# people\r\n\nalice:%s\r\n  bob : %s  # his\n"
	    "carol smith:%s", secret, horse, umlauts);
	path = file_with(text, 0600);
	cr_expect_eq(users_load_file(u, path, &p), 0);
	cr_expect_eq(p.errors + p.warnings, 0u, "%s", p.count > 0 ? p.list[0].text : "");
	cr_expect(users_find(u, span_str("alice"), &r) && r.iterations == 1000);
	cr_expect(users_find(u, span_str("bob"), &r) && r.iterations == 120000);
	cr_expect(users_find(u, span_str("carol smith"), &r));
	cr_expect_eq(users_count(u), 3u);
	unlink(path);
	free(path);
	users_free(u);
}

Test(users, tells_every_bad_line_and_who_can_read_it)
{
	char text[1024], where[128], *path;
	struct users *u = users_new();
	struct conf_problems p = { 0 };

	snprintf(text, sizeof(text), "alice:%s\nbob\n\n:%s\nalice:%s\ndave:s3cret\n", secret, secret,
	    secret);
	path = file_with(text, 0644);
	cr_expect_eq(users_load_file(u, path, &p), -EINVAL);
	cr_assert_eq(p.errors, 4u);
	cr_assert_eq(p.warnings, 1u);
	cr_expect_eq(p.list[0].severity, CONF_WARNING);
	for (size_t i = 1; i < p.count; i++) {
		static const int lines[] = { 0, 2, 4, 5, 6 };

		snprintf(where, sizeof(where), "%s:%d: ", path, lines[i]);
		cr_expect_eq(strncmp(p.list[i].text, where, strlen(where)), 0, "%s", p.list[i].text);
		cr_expect_null(strstr(p.list[i].text, "s3cret"));
	}
	snprintf(where, sizeof(where), "(first at %s:1)", path);
	cr_expect_not_null(strstr(p.list[3].text, where), "%s", p.list[3].text);
	conf_problems_free(&p);
	unlink(path);
	cr_expect_eq(users_load_file(u, path, &p), -EINVAL);
	cr_expect_eq(p.errors, 1u);
	cr_expect_eq(users_load_file(u, "/tmp", &p), -EINVAL);
	conf_problems_free(&p);
	free(path);
	users_free(u);
}

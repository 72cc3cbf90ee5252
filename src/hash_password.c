/* SPDX-License-Identifier: ISC */
#include "hash_password.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "policy/password.h"

enum { CTRL_C = 3 };

/* One more than may be, so that a longer one is seen. */
struct line {
	char	text[PASSWORD_BYTES_MAX + 1];
	size_t	len;
	char	end;		/* what ended it; 0 = end of input */
};

static int
complain(const char *what)
{
	fprintf(stderr, "ringway: %s\n", what);
	return 1;
}

/* By read(2): stdio would leave the password in a buffer of its own. */
static int
read_line(struct line *l)
{
	ssize_t got;
	char c;

	l->len = 0;
	l->end = 0;
	while ((got = read(STDIN_FILENO, &c, 1)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (c == '\n' || c == CTRL_C) {
			l->end = c;
			break;
		}
		if (l->len < sizeof(l->text))
			l->text[l->len++] = c;
	}
	if (l->len > 0 && l->len < sizeof(l->text) && l->text[l->len - 1] == '\r')
		l->len--;
	return 0;
}

/*
 * Without echo.  Signals of the keyboard are off, else Ctrl-C would leave the
 * terminal mute; it ends the line instead (VEOL, termios(3)).
 */
static int
ask(const char *prompt, struct line *l)
{
	struct termios before, mute;
	int rc;

	if (tcgetattr(STDIN_FILENO, &before) != 0)
		return -errno;
	mute = before;
	mute.c_lflag &= ~(tcflag_t)(ECHO | ISIG);
	mute.c_lflag |= ICANON;
	mute.c_cc[VEOL] = CTRL_C;
	if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &mute) != 0)
		return -errno;
	fputs(prompt, stderr);
	fflush(stderr);
	rc = read_line(l);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
	fputc('\n', stderr);
	return rc == 0 && l->end == CTRL_C ? -EINTR : rc;
}

static int
ask_twice(struct line *l, const char **wrong)
{
	struct line again;
	int rc = ask("Password: ", l);

	if (rc != 0 || (*wrong = password_unfit(span_of(l->text, l->len))) != NULL)
		return rc;
	rc = ask("Again: ", &again);
	if (rc == 0 && (again.len != l->len || memcmp(again.text, l->text, l->len) != 0))
		*wrong = "the two passwords differ";
	OPENSSL_cleanse(&again, sizeof(again));
	return rc;
}

static int
print_record(struct span password)
{
	char record[PASSWORD_TEXT_MAX];

	if (password_make(password, PASSWORD_ITERATIONS, record) != 0)
		return complain("no record could be made: the random number generator or OpenSSL failed");
	if (puts(record) == EOF || fflush(stdout) != 0)
		return complain("cannot write to standard output");
	return 0;
}

int
hash_password(const char *password)
{
	const char *wrong = NULL;
	struct line l = { .len = 0 };
	struct span text;
	int rc = 0;

	if (password != NULL) {
		text = span_str(password);
		wrong = password_unfit(text);
	} else {
		rc = isatty(STDIN_FILENO) ? ask_twice(&l, &wrong) : read_line(&l);
		text = span_of(l.text, l.len);
		if (rc == 0 && wrong == NULL)
			wrong = password_unfit(text);
	}
	if (rc != 0)
		rc = complain(rc == -EINTR ? "interrupted" : strerror(-rc));
	else if (wrong != NULL)
		rc = complain(wrong);
	else
		rc = print_record(text);
	OPENSSL_cleanse(&l, sizeof(l));
	return rc;
}

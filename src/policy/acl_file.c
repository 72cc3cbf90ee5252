/* SPDX-License-Identifier: ISC */
#include "policy/acl_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_FIRST_BYTES = 65536 };	/* most lists fit; doubled as needed */

/* Reads to the end, or one byte more than the limit. */
static int
read_all(int fd, struct acl_lines *lines)
{
	size_t room = 0;

	for (;;) {
		ssize_t got;

		if (lines->bytes > ACL_FILE_BYTES_MAX)
			return -EFBIG;
		if (lines->bytes == room) {
			char *grown = realloc(lines->text, room == 0 ? READ_FIRST_BYTES : room * 2);

			if (grown == NULL)
				return -ENOMEM;
			lines->text = grown;
			room = room == 0 ? READ_FIRST_BYTES : room * 2;
		}
		got = read(fd, lines->text + lines->bytes, room - lines->bytes);
		if (got == 0)
			return 0;
		if (got > 0)
			lines->bytes += (size_t)got;
		else if (errno != EINTR)
			return -errno;
	}
}

/* Editors on Windows put a byte order mark in front. */
static void
skip_mark(struct acl_lines *lines)
{
	if (lines->bytes >= 3 && memcmp(lines->text, "\xef\xbb\xbf", 3) == 0)
		lines->at = 3;
}

int
acl_lines_open(struct acl_lines *lines, const char *path, enum acl_comments comments)
{
	int rc, fd;

	memset(lines, 0, sizeof(*lines));
	lines->comments = comments;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = read_all(fd, lines);
	close(fd);
	if (rc != 0)
		acl_lines_close(lines);
	else
		skip_mark(lines);
	return rc;
}

int
acl_lines_from(struct acl_lines *lines, struct span text, enum acl_comments comments)
{
	memset(lines, 0, sizeof(*lines));
	lines->comments = comments;
	lines->text = malloc(text.len + 1);
	if (lines->text == NULL)
		return -ENOMEM;
	if (text.len != 0)
		memcpy(lines->text, text.base, text.len);
	lines->bytes = text.len;
	skip_mark(lines);
	return 0;
}

void
acl_lines_close(struct acl_lines *lines)
{
	free(lines->text);
	lines->text = NULL;
	lines->bytes = lines->at = 0;
}

static bool
begins_comment(enum acl_comments comments, struct span line, size_t i)
{
	char c = line.base[i];

	if (c != '#' && (c != ';' || comments == ACL_COMMENT_HASH))
		return false;
	return comments == ACL_COMMENT_ANYWHERE || i == 0 || acl_is_blank(line.base[i - 1]);
}

static struct span
trim(struct span line, enum acl_comments comments)
{
	for (size_t i = 0; i < line.len; i++)
		if (begins_comment(comments, line, i)) {
			line.len = i;
			break;
		}
	while (line.len != 0 && acl_is_blank(line.base[line.len - 1]))
		line.len--;
	while (line.len != 0 && acl_is_blank(line.base[0])) {
		line.base++;
		line.len--;
	}
	return line;
}

bool
acl_lines_next(struct acl_lines *lines, struct span *line)
{
	while (lines->at < lines->bytes) {
		const char *start = lines->text + lines->at;
		const char *end = memchr(start, '\n', lines->bytes - lines->at);
		size_t len = end != NULL ? (size_t)(end - start) : lines->bytes - lines->at;

		lines->at += len + (end != NULL);
		lines->line++;
		*line = trim(span_of(start, len), lines->comments);
		if (line->len != 0)
			return true;
	}
	return false;
}

bool
acl_word_next(struct span *rest, struct span *word)
{
	size_t at = 0, start;

	while (at < rest->len && acl_is_blank(rest->base[at]))
		at++;
	start = at;
	while (at < rest->len && !acl_is_blank(rest->base[at]))
		at++;
	*word = span_of(rest->base + start, at - start);
	*rest = span_of(rest->base + at, rest->len - at);
	return word->len != 0;
}

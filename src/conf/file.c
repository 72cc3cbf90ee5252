/* SPDX-License-Identifier: ISC */
#include "conf/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/str.h"

int
conf_file_read(const char *path, char **text, size_t *bytes)
{
	const size_t limit = CONF_FILE_BYTES_MAX + 1;
	char *buf = malloc(limit);
	ssize_t got = 1;
	size_t used = 0;
	int fd, rc = 0;

	if (buf == NULL)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		rc = -errno;
		goto out;
	}
	while (rc == 0 && got > 0 && used < limit) {
		got = read(fd, buf + used, limit - used);
		if (got >= 0)
			used += (size_t)got;
		else if (errno == EINTR)
			got = 1;
		else
			rc = -errno;
	}
	close(fd);
out:
	if (rc != 0) {
		free(buf);
		return rc;
	}
	*text = buf;
	*bytes = used;
	return 0;
}

/* YAML 1.1, section 5.1: the characters that are not c-printable, and so refused by libyaml. */
static bool
is_forbidden(const unsigned char *at)
{
	if (at[0] < 0x20)
		return at[0] != '\t' && at[0] != '\n' && at[0] != '\r';
	if (at[0] == 0xc2)	/* C1, all but NEL */
		return at[1] < 0xa0 && at[1] != 0x85;
	return at[0] == 0x7f || (at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe);
}

size_t
conf_file_bad_byte(struct span text, size_t *usable_bytes)
{
	size_t valid = str_utf8_valid_bytes(text), at = 0, line_start = 0;

	/* Within `valid` no sequence is cut off, so at[2] may be looked at. */
	for (; at < valid && !is_forbidden((const unsigned char *)text.base + at); at++)
		if (text.base[at] == '\n')
			line_start = at + 1;
	*usable_bytes = at == text.len ? at : line_start;
	return at;
}

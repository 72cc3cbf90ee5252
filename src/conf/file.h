/* SPDX-License-Identifier: ISC */
/*
 * file: a configuration file as bytes, before anything is made of them: reads
 * it whole, never more than the limit, and finds what is not text.
 */
#ifndef RW_CONF_FILE_H
#define RW_CONF_FILE_H

#include <stddef.h>

#include "util/span.h"

/* Far more than any list that belongs in here. */
enum { CONF_FILE_BYTES_MAX = 4 << 20 };

/*
 * 0 or -errno.  A longer file, or one that never ends, gives one byte more than
 * the limit.  The caller frees `*text`, which is set when 0 is returned.
 */
int	conf_file_read(const char *path, char **text, size_t *bytes);

/*
 * Offset of the first byte that is not well-formed UTF-8 or that YAML does not
 * allow, or text.len.  *usable_bytes are the whole lines before it.
 *
 * libyaml decodes in large pieces and gives up on a piece as a whole.  With this
 * only the good lines are parsed, and the problems in those are still found.
 */
size_t	conf_file_bad_byte(struct span text, size_t *usable_bytes);

#endif

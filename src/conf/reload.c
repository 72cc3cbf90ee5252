/* SPDX-License-Identifier: ISC */
/* What a reload may not change: conf_restart_differences() and conf_keep_restart() of conf.h. */
#include <assert.h>
#include <errno.h>

#include "conf/conf.h"
#include "conf/field.h"
#include "conf/schema.h"

size_t
conf_restart_differences(const struct conf *running, const struct conf *loaded,
    const char *paths[], size_t max)
{
	size_t count = 0;

	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->reload != CONF_RESTART || conf_value_equal(row, running, loaded))
			continue;
		if (count < max)
			paths[count] = row->path;
		count++;
	}
	return count;
}

int
conf_keep_restart(struct conf *loaded, const struct conf *running)
{
	for (size_t i = 0; i < conf_schema_count; i++) {
		const struct conf_row *row = &conf_schema[i];

		if (row->reload != CONF_RESTART)
			continue;
		/* The offset counts from the record then; no such key is there so far. */
		assert(conf_schema_list_of(row) == NULL);
		if (!conf_value_copy(row, loaded, running))
			return -ENOMEM;
	}
	return 0;
}

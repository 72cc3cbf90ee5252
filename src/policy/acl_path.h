/* SPDX-License-Identifier: ISC */
/*
 * acl_path: the ways in which an origin may read a request's path.  Servers
 * differ in what they decode, in whether "//" is "/", and in which of that and
 * of dot segments they do first; a rule has to hold for all of them.  Text only.
 *
 * The forms of a pattern, and of a reading, are only compared with their like:
 *	RAW	as sent
 *	NORMAL	unreserved characters decoded, other %XX in upper case (RFC 3986
 *		section 6.2.2), dot segments removed, "//" made "/"
 *	LENIENT	everything decoded, "\" made "/", then as above; a second reading
 *		without ";parameters"
 * A query is decoded in the same way, but is otherwise left alone.
 */
#ifndef RW_POLICY_ACL_PATH_H
#define RW_POLICY_ACL_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/span.h"

enum acl_path_form {
	ACL_PATH_ANY,		/* all forms are the same text */
	ACL_PATH_RAW,
	ACL_PATH_NORMAL,
	ACL_PATH_LENIENT
};

struct acl_path {
	struct span	path;
	struct span	whole;		/* with "?query"; the same when there is none */
	enum acl_path_form form;
	bool		cut_params;
};

enum { ACL_PATH_READINGS_MAX = 10 };
/* Bytes of scratch for a path of so many. */
#define ACL_PATH_SCRATCH(bytes)	(ACL_PATH_READINGS_MAX * ((bytes) + 1))

/*
 * All different readings; they point into `scratch` and `sent`.  One with
 * ACL_PATH_ANY when there is only one.
 */
size_t	acl_path_read(struct span sent, char *scratch, struct acl_path out[ACL_PATH_READINGS_MAX]);
/*
 * A pattern's text in a form, decoded only (its dot segments may be the beginning
 * of a name), into `out` of text.len bytes.  Returns the length.
 */
size_t	acl_path_decode(struct span text, enum acl_path_form, char *out);

#endif

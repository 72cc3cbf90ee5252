/* SPDX-License-Identifier: ISC */
/*
 * reply: the answers of our own, with the status and Proxy-Status error (RFC
 * 9209) that fit a cause.  Never sends anything itself.
 */
#ifndef RW_HTTP_REPLY_H
#define RW_HTTP_REPLY_H

#include "net/dial.h"
#include "policy/judge.h"
#include "util/span.h"

enum { REPLY_MAX = 2048 };	/* every answer of ours fits */

struct reply {
	unsigned	 status;
	const char	*proxy_error;	/* RFC 9209 section 2.3 token, or NULL */
	const char	*cause;		/* one line for people */
	unsigned	 retry_after_s;	/* 0 = no such field */
	const char	*realm;		/* of Proxy-Authenticate; NULL = no such field */
};

/* What a failed dial means to an HTTP client; never called with DIAL_OK. */
struct reply	reply_for_dial(const struct dial_result *);
/* What a refusal by the rules means; never called with JUDGE_NONE. */
struct reply	reply_for_judge(const struct judge *);
/*
 * Writes the whole answer, returns its length.  keep: the connection goes on,
 * and says so; head_only: the answer to HEAD.
 */
size_t		reply_write(const struct reply *, bool keep, bool head_only,
		    char out[REPLY_MAX]);

#endif

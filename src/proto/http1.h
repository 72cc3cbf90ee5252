/* SPDX-License-Identifier: ISC */
/*
 * http1: HTTP/1.x messages (RFC 9110, RFC 9112): heads, targets, framing,
 * chunked bodies, and the heads that we write.  No I/O and no allocation; spans
 * point into the caller's buffer and live as long as it.  Never forwards or
 * accepts anything that two recipients could read differently: when in doubt
 * it is an error.
 *
 *	http1_head_init -> http1_parse_request/_response (until not HTTP1_MORE)
 *	  -> http1_request_target, http1_request_body / http1_response_body
 *	  -> http1_write_request / http1_write_response
 */
#ifndef RW_PROTO_HTTP1_H
#define RW_PROTO_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/target.h"
#include "util/span.h"

/* Our name in Via and Proxy-Status. */
#define HTTP1_PSEUDONYM "ringway"

/* ---- verdicts ---------------------------------------------------------- */

enum http1_verdict {
	HTTP1_OK,
	HTTP1_MORE,
	HTTP1_DATA,			/* chunked only: a data span was found */
	/* heads */
	HTTP1_BAD_REQUEST_LINE,
	HTTP1_BAD_STATUS_LINE,
	HTTP1_BAD_VERSION,		/* well-formed, but not 1.x */
	HTTP1_URI_TOO_LONG,
	HTTP1_HEAD_TOO_LARGE,
	HTTP1_TOO_MANY_FIELDS,
	HTTP1_CONTROL_BYTE,
	HTTP1_BARE_CR,
	HTTP1_BARE_LF,
	HTTP1_OBS_FOLD,
	HTTP1_BAD_FIELD_NAME,
	HTTP1_SPACE_BEFORE_COLON,
	/* framing */
	HTTP1_BAD_LENGTH,
	HTTP1_REPEATED_LENGTH,
	HTTP1_LENGTH_AND_CODING,
	HTTP1_BAD_CODING,
	HTTP1_UNKNOWN_CODING,
	HTTP1_CODING_IN_10,
	/* targets */
	HTTP1_NO_HOST,
	HTTP1_REPEATED_HOST,
	HTTP1_BAD_HOST,			/* also: contradicts the authority past rewriting */
	HTTP1_BAD_TARGET,
	HTTP1_BAD_PORT,
	HTTP1_USERINFO,
	HTTP1_HTTPS_URI,
	HTTP1_UNKNOWN_SCHEME,
	/* chunked bodies */
	HTTP1_BAD_CHUNK_SIZE,
	HTTP1_BAD_CHUNK_END,
	HTTP1_BAD_CHUNK_EXT,
	HTTP1_CHUNK_EXT_TOO_LONG,
	HTTP1_BAD_TRAILER,
	HTTP1_TRAILER_TOO_LONG,
	HTTP1_VERDICT_COUNT
};

/*
 * What a client gets for such a request, and why (for body, log and 501's
 * hint).  The same verdict about a response is 502, http_protocol_error.
 */
unsigned	 http1_verdict_status(enum http1_verdict);
const char	*http1_verdict_cause(enum http1_verdict);

/* ---- heads ------------------------------------------------------------- */

enum http1_method {
	HTTP1_M_OTHER,
	HTTP1_M_GET,
	HTTP1_M_HEAD,
	HTTP1_M_POST,
	HTTP1_M_PUT,
	HTTP1_M_DELETE,
	HTTP1_M_CONNECT,
	HTTP1_M_OPTIONS,
	HTTP1_M_TRACE,
	HTTP1_M_PATCH
};

/* Names that some code of ours looks for; at most 64, as `seen` is a mask. */
enum http1_field_id {
	HTTP1_F_OTHER,
	HTTP1_F_ACCEPT,
	HTTP1_F_ACCEPT_ENCODING,
	HTTP1_F_ACCEPT_LANGUAGE,
	HTTP1_F_ACCEPT_RANGES,
	HTTP1_F_AGE,
	HTTP1_F_ALLOW,
	HTTP1_F_AUTHORIZATION,
	HTTP1_F_CACHE_CONTROL,
	HTTP1_F_CACHE_STATUS,
	HTTP1_F_CDN_CACHE_CONTROL,
	HTTP1_F_CONNECTION,
	HTTP1_F_CONTENT_ENCODING,
	HTTP1_F_CONTENT_LENGTH,
	HTTP1_F_CONTENT_LOCATION,
	HTTP1_F_CONTENT_RANGE,
	HTTP1_F_CONTENT_TYPE,
	HTTP1_F_COOKIE,
	HTTP1_F_DATE,
	HTTP1_F_ETAG,
	HTTP1_F_EXPECT,
	HTTP1_F_EXPIRES,
	HTTP1_F_FORWARDED,
	HTTP1_F_HOST,
	HTTP1_F_IF_MATCH,
	HTTP1_F_IF_MODIFIED_SINCE,
	HTTP1_F_IF_NONE_MATCH,
	HTTP1_F_IF_RANGE,
	HTTP1_F_IF_UNMODIFIED_SINCE,
	HTTP1_F_KEEP_ALIVE,
	HTTP1_F_LAST_MODIFIED,
	HTTP1_F_LOCATION,
	HTTP1_F_MAX_FORWARDS,
	HTTP1_F_ORIGIN,
	HTTP1_F_PRAGMA,
	HTTP1_F_PROXY_AUTHENTICATE,
	HTTP1_F_PROXY_AUTHENTICATION_INFO,
	HTTP1_F_PROXY_AUTHORIZATION,
	HTTP1_F_PROXY_CONNECTION,
	HTTP1_F_PROXY_STATUS,
	HTTP1_F_RANGE,
	HTTP1_F_REFERER,
	HTTP1_F_RETRY_AFTER,
	HTTP1_F_SERVER,
	HTTP1_F_SET_COOKIE,
	HTTP1_F_TE,
	HTTP1_F_TRAILER,
	HTTP1_F_TRANSFER_ENCODING,
	HTTP1_F_UPGRADE,
	HTTP1_F_USER_AGENT,
	HTTP1_F_VARY,
	HTTP1_F_VIA,
	HTTP1_F_WARNING,
	HTTP1_F_WWW_AUTHENTICATE,
	HTTP1_F_X_FORWARDED_FOR,
	HTTP1_F_COUNT
};

struct http1_field {
	struct span		name;	/* as sent */
	struct span		value;	/* without the white space around it; may be empty */
	enum http1_field_id	id;
};

struct http1_head {
	/* the caller's, by http1_head_init */
	struct http1_field	*fields;
	size_t			 field_max;
	size_t			 bytes_max;	/* of the whole head with its empty line */
	/* where to go on looking for the end; bytes before it are known good */
	size_t			 scanned;
	bool			 line_checked;	/* the first line, once it was whole */
	/* all below: valid after HTTP1_OK only */
	bool			 is_response;
	uint8_t			 minor;		/* 0, or 1 for 1.1 and any later 1.x */
	enum http1_method	 method;
	uint16_t		 status;
	struct span		 method_text;
	struct span		 target_text;	/* as sent */
	struct span		 reason;	/* may be empty */
	size_t			 field_count;
	size_t			 used;		/* body or next message begins here */
	uint64_t		 seen;		/* bit per enum http1_field_id */
	/* from Connection */
	bool			 conn_close;
	bool			 conn_keep_alive;
	bool			 conn_upgrade;
	bool			 te_trailers;	/* TE allows trailers */
	/* framing, see http1_request_body */
	bool			 has_length;
	bool			 is_chunked;
	uint64_t		 length;
};

/* Also makes it ready for the next message on the connection. */
void	http1_head_init(struct http1_head *, struct http1_field *fields, size_t field_max,
	    size_t bytes_max);
/*
 * Call with all bytes from the message's first on, again when there are more.
 * The buffer may move between calls.  Total work is linear in the head's size,
 * however small the pieces.
 */
enum http1_verdict http1_parse_request(struct http1_head *, struct span in);
enum http1_verdict http1_parse_response(struct http1_head *, struct span in);

/* Index of the first at or behind `from`, or -1. */
ssize_t	http1_find(const struct http1_head *, enum http1_field_id, size_t from);
ssize_t	http1_find_name(const struct http1_head *, const char *name, size_t from);
enum http1_field_id http1_field_lookup(struct span name);
const char *http1_method_name(enum http1_method);	/* NULL for OTHER */
bool	http1_method_is_safe(enum http1_method);	/* GET HEAD OPTIONS TRACE: may be sent again */

/*
 * Walks a comma list (RFC 9110 section 5.6.1), white space and empty members
 * dropped, quoted strings kept whole.  `rest` starts as the field value.
 */
bool	http1_list_next(struct span *rest, struct span *member);

/* ---- where a request goes ---------------------------------------------- */

enum http1_form {
	HTTP1_FORM_ORIGIN,	/* target is from Host, port 80 unless said */
	HTTP1_FORM_ABSOLUTE,
	HTTP1_FORM_AUTHORITY,	/* CONNECT */
	HTTP1_FORM_ASTERISK	/* OPTIONS *; target from Host */
};

struct http1_where {
	enum http1_form	form;
	struct target	target;
	struct span	path;		/* origin form with query: "/", "/a?b", "*"; empty for CONNECT */
	bool		slash_first;	/* path is "?query": a "/" goes before it */
};

enum http1_verdict http1_request_target(const struct http1_head *, struct http1_where *);

/* ---- bodies ------------------------------------------------------------ */

enum http1_body {
	HTTP1_BODY_NONE,
	HTTP1_BODY_LENGTH,
	HTTP1_BODY_CHUNKED,
	HTTP1_BODY_CLOSE,	/* until the peer's FIN; responses only */
	HTTP1_BODY_TUNNEL	/* 2xx to CONNECT, 101: no HTTP any more */
};

struct http1_framing {
	enum http1_body	body;
	uint64_t	length;		/* with BODY_LENGTH */
	bool		reusable;	/* the connection may serve another exchange after this one */
};

void	http1_request_body(const struct http1_head *, struct http1_framing *);
/* `method`: of the request that it answers. */
void	http1_response_body(const struct http1_head *, enum http1_method, struct http1_framing *);

enum {
	HTTP1_CHUNK_EXT_MAX = 1024,		/* bytes a chunk */
	HTTP1_CHUNK_EXT_TOTAL_MAX = 65536,	/* bytes a body: extensions are overhead without end */
	HTTP1_TRAILER_BYTES_MAX = 16384,
	HTTP1_TRAILER_NAME_KEPT = 32		/* longest name that could be a known one, and more */
};

/* Constant size, no buffering; zero it with http1_chunked_init. */
struct http1_chunked {
	unsigned	state;
	unsigned	digits;		/* of the size being read */
	uint64_t	left;		/* of the current chunk's data */
	uint64_t	body_bytes;	/* data announced so far */
	enum http1_verdict failed;	/* sticky; HTTP1_OK while all is well */
	bool		ext_quoted, ext_escaped;
	uint32_t	ext_bytes;
	uint32_t	ext_total_bytes;
	uint32_t	trailer_bytes;
	uint8_t		name_len;
	char		name[HTTP1_TRAILER_NAME_KEPT];
};

void	http1_chunked_init(struct http1_chunked *);
/*
 * HTTP1_DATA: `data` is some of the body, inside `in`; call again with what is
 * behind `used`.  HTTP1_MORE: all of `in` belongs to the message.  HTTP1_OK: it
 * ended after `used` bytes.  An error is final; `used` bytes were still right.
 */
enum http1_verdict http1_chunked_next(struct http1_chunked *, struct span in, size_t *used,
	    struct span *data);
/* The same over all of `in` for those who relay the framing as it is. */
enum http1_verdict http1_chunked_walk(struct http1_chunked *, struct span in, size_t *used);

/* ---- connection -------------------------------------------------------- */

/* May the sender's connection go on after this message, as far as the head says? */
bool	http1_keep_alive(const struct http1_head *);
/*
 * Must field i stay behind?  Connection and what it names, Keep-Alive, Proxy-*,
 * TE, Upgrade, Transfer-Encoding.  Known end-to-end fields go on even if
 * Connection names them: a client could strip a next hop's safeguards else.
 */
bool	http1_is_hop_by_hop(const struct http1_head *, size_t i);
/* Upgrade to websocket, the only one relayed: h2c would carry requests past us. */
bool	http1_wants_websocket(const struct http1_head *);
/* Does Via name `pseudonym`? */
bool	http1_via_names(const struct http1_head *, const char *pseudonym);
/* Expect: 100-continue from a 1.1 client. */
bool	http1_expects_continue(const struct http1_head *);

/* ---- writing ----------------------------------------------------------- */

enum http1_conn {
	HTTP1_CONN_UNSAID,	/* 1.1's default: stays open */
	HTTP1_CONN_CLOSE,
	HTTP1_CONN_KEEP_ALIVE	/* said to a 1.0 peer */
};

struct http1_extra {
	struct span	name;
	struct span	value;
};

struct http1_write_opts {
	const char		*via;		/* pseudonym, NULL = no Via */
	enum http1_conn		 conn;
	bool			 upgrade;	/* relay Upgrade: websocket, or a 101 */
	const struct http1_extra *extra;	/* written last */
	size_t			 extra_count;
	const enum http1_field_id *drop;	/* not forwarded (Max-Forwards to replace, X-Forwarded-For) */
	size_t			 drop_count;
};

/*
 * All writers return the bytes written, -ENOSPC when `cap` is too small (out's
 * content is then undefined), -EINVAL when a name or value would break the
 * message.  No terminating NUL.
 */
ssize_t	http1_write_request(const struct http1_head *, const struct http1_where *,
	    const struct http1_framing *, const struct http1_write_opts *, char *out, size_t cap);
/*
 * `framing` is what the client will get: BODY_CLOSE in place of chunked for a
 * 1.0 client.  With BODY_NONE a Content-Length that describes a HEAD or 304 is
 * kept, one on 1xx and 204 is not.
 */
ssize_t	http1_write_response(const struct http1_head *, const struct http1_framing *,
	    const struct http1_write_opts *, char *out, size_t cap);

const char *http1_reason(unsigned status);	/* never NULL */

/* An answer of ours. */
struct http1_own {
	unsigned	 status;
	const char	*cause;		/* one line for the body; NULL = the reason phrase */
	const char	*proxy_error;	/* RFC 9209 token ("dns_error"); NULL = none */
	enum http1_conn	 conn;
	bool		 head_only;	/* HEAD: the length is said, the body not sent */
	const struct http1_extra *extra; /* Proxy-Authenticate, Retry-After ... */
	size_t		 extra_count;
};

ssize_t	http1_own_reply(const struct http1_own *, char *out, size_t cap);
/* The answer to a CONNECT that stands: a 200 without framing fields. */
ssize_t	http1_connect_reply(char *out, size_t cap);

#endif

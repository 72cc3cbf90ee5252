/* SPDX-License-Identifier: ISC */
#include "http/reply.h"

#include <assert.h>
#include <stdio.h>

#include "proto/http1.h"

static struct reply
for_connect_error(int err)
{
	switch (err) {
	case IO_EREFUSED:
		return (struct reply){ 502, "connection_refused", "the origin refused the connection", 0, NULL };
	case IO_ETIMEDOUT:
		return (struct reply){ 504, "connection_timeout", "the origin did not answer in time", 0, NULL };
	case IO_ENETUNREACH:
	case IO_EHOSTUNREACH:
		return (struct reply){ 502, "destination_ip_unroutable", "there is no route to the origin", 0, NULL };
	case IO_ERESET:
		return (struct reply){ 502, "connection_terminated", "the origin reset the connection", 0, NULL };
	case IO_EACCES:
		return (struct reply){ 502, "destination_ip_prohibited", "the system forbids this connection", 0, NULL };
	default:
		return (struct reply){ 502, "destination_unavailable", "the origin could not be connected to", 0, NULL };
	}
}

struct reply
reply_for_dial(const struct dial_result *r)
{
	assert(r->status != DIAL_OK);
	switch (r->status) {
	case DIAL_NO_NAME:
		return (struct reply){ 502, "dns_error", "the host name does not resolve", 0, NULL };
	case DIAL_DNS_FAILED:
		return (struct reply){ 502, "dns_error", "name resolution failed", 0, NULL };
	case DIAL_DNS_TIMEOUT:
		return (struct reply){ 504, "dns_timeout", "name resolution timed out", 0, NULL };
	case DIAL_DENIED:
		return (struct reply){ 508, "proxy_loop_detected", "the request leads back to this proxy", 0, NULL };
	case DIAL_NO_RESOURCES:
		return (struct reply){ 503, "connection_limit_reached", "out of descriptors or memory", 1, NULL };
	case DIAL_FAILED:
	case DIAL_OK:
		break;
	}
	return for_connect_error(r->err);
}

struct reply
reply_for_judge(const struct judge *j)
{
	switch (j->cause) {
	case JUDGE_SELF:
		return (struct reply){ 508, "proxy_loop_detected", "the request leads back to this proxy", 0, NULL };
	case JUDGE_NOMEM:
		return (struct reply){ 503, "proxy_internal_error", "out of memory", 1, NULL };
	case JUDGE_LOCAL:
		return (struct reply){ 403, "destination_ip_prohibited", "this address is not to be reached from outside", 0, NULL };
	case JUDGE_ACL:
	case JUDGE_NONE:
		break;
	}
	return (struct reply){ 403, "http_request_denied", "denied by the rules of this proxy", 0, NULL };
}

/* auth.realm as a quoted-string (RFC 9110 section 5.6.4), and UTF-8 wanted (RFC 7617). */
static void
write_challenge(const char *realm, char *out, size_t size)
{
	size_t n = (size_t)snprintf(out, size, "Basic realm=\"");

	for (; *realm != '\0' && n + 32 < size; realm++) {
		if (*realm == '"' || *realm == '\\')
			out[n++] = '\\';
		out[n++] = *realm;
	}
	snprintf(out + n, size - n, "\", charset=\"UTF-8\"");
}

size_t
reply_write(const struct reply *r, bool keep, bool head_only, char out[REPLY_MAX])
{
	char seconds[16], challenge[640];
	struct http1_extra extra[2];
	struct http1_own own = {
		.status = r->status, .cause = r->cause, .proxy_error = r->proxy_error,
		.conn = keep ? HTTP1_CONN_KEEP_ALIVE : HTTP1_CONN_CLOSE,
		.head_only = head_only
	};
	ssize_t n;

	own.extra = extra;
	if (r->retry_after_s != 0) {
		snprintf(seconds, sizeof seconds, "%u", r->retry_after_s);
		extra[own.extra_count++] = (struct http1_extra){ span_str("Retry-After"), span_str(seconds) };
	}
	if (r->realm != NULL) {
		write_challenge(r->realm, challenge, sizeof challenge);
		extra[own.extra_count++] = (struct http1_extra){
			span_str("Proxy-Authenticate"), span_str(challenge)
		};
	}
	n = http1_own_reply(&own, out, REPLY_MAX);
	assert(n > 0);
	return (size_t)n;
}

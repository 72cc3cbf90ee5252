/* SPDX-License-Identifier: ISC */
/* What each client and each request is judged by: whitelist and ACL. */
#include "micro.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/problems.h"
#include "policy/acl.h"
#include "policy/cidr.h"

/* ---- whitelist ------------------------------------------------------------- */

/* So many questions that no branch predictor learns the answers. */
enum { PREFIXES = 16384, ASKED = 8192 };

struct prefix {
	uint32_t	ip, mask;	/* host order */
};

struct whitelist {
	struct cidr_set	*set;
	struct addr	 asked[ASKED];
};

static struct prefix
prefix_add(struct cidr_set *set)
{
	/* As lists in use are: mostly /24, some wider, some single hosts. */
	static const unsigned char bits[] = { 24, 24, 24, 24, 22, 20, 28, 32 };
	unsigned len = bits[micro_below(sizeof(bits))];
	struct prefix p = { .mask = UINT32_MAX << (32 - len) };
	char text[64], why[CIDR_WHY_MAX];

	p.ip = (uint32_t)micro_random() & p.mask;
	snprintf(text, sizeof(text), "%u.%u.%u.%u/%u", p.ip >> 24, p.ip >> 16 & 255, p.ip >> 8 & 255,
	    p.ip & 255, len);
	micro_must(cidr_add(set, span_str(text), why) == CIDR_OK, "whitelist entry");
	return p;
}

static bool
covered(const struct prefix *p, uint32_t ip)
{
	for (size_t i = 0; i < PREFIXES; i++)
		if ((ip & p[i].mask) == p[i].ip)
			return true;
	return false;
}

static void
whitelist_free(void *inputs)
{
	struct whitelist *w = inputs;

	cidr_free(w->set);
	free(w);
}

static void *
whitelist_new(void)
{
	struct whitelist *w = micro_alloc(sizeof(*w));
	struct prefix *p = micro_alloc(PREFIXES * sizeof(*p));
	size_t inside = 0;

	w->set = cidr_new();
	micro_must(w->set != NULL, "out of memory");
	for (size_t i = 0; i < PREFIXES; i++)
		p[i] = prefix_add(w->set);
	micro_must(cidr_seal(w->set) == 0, "out of memory");
	for (size_t i = 0; i < ASKED; i++) {
		uint32_t ip = (uint32_t)micro_random();
		bool in = micro_below(2) != 0;

		if (in) {
			const struct prefix *chosen = &p[micro_below(PREFIXES)];

			ip = chosen->ip | (ip & ~chosen->mask);
		} else {
			in = covered(p, ip);
		}
		inside += in;
		w->asked[i].in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = { htonl(ip) } };
		w->asked[i].len = sizeof(w->asked[i].in);
		micro_must(cidr_has(w->set, &w->asked[i]) == in, "whitelist look-up");
	}
	micro_must(inside > ASKED * 2 / 5 && inside < ASKED * 3 / 5, "share of addresses inside");
	free(p);
	return w;
}

static uint64_t
whitelist_run(void *inputs, size_t calls)
{
	struct whitelist *w = inputs;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++)
		sum += cidr_has(w->set, &w->asked[i % ASKED]);
	return sum;
}

/* ---- ACL ------------------------------------------------------------------- */

enum { ACL_RULES = 20, ACL_INPUTS = 256 };

struct acl_inputs {
	struct acl		*acl;
	struct target		 target[ACL_INPUTS];
	struct addr		 client[ACL_INPUTS];
	struct acl_request	 request[ACL_INPUTS];
};

static void
acl_inputs_free(void *inputs)
{
	struct acl_inputs *a = inputs;

	acl_free(a->acl);
	free(a);
}

/* Names and clients that no rule is about, so that all twenty are looked at. */
static void *
acl_inputs_new(void)
{
	struct acl_inputs *a = micro_alloc(sizeof(*a));
	struct conf_problems problems = { 0 };
	char text[4096];
	int len = 0;

	for (unsigned i = 0; i < ACL_RULES / 4; i++)
		len += snprintf(text + len, sizeof(text) - (size_t)len,
		    "deny host ads%u.example.net\ndeny host *.tracker%u.example\n"
		    "deny client 198.51.%u.0/24\ndeny port %u-%u\n", i, i, i, 6000 + 10 * i,
		    6005 + 10 * i);
	a->acl = acl_load_text("micro.acl", span_of(text, (size_t)len), NULL, &problems);
	micro_must(a->acl != NULL && acl_rule_count(a->acl) == ACL_RULES, "20 ACL rules");
	for (size_t i = 0; i < ACL_INPUTS; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s%u.example%u.com", i % 3 != 0 ? "www" : "img",
		    micro_below(100), micro_below(1000));
		micro_must(target_set_host(&a->target[i], span_str(name), 443), "ACL target");
		a->client[i].in = (struct sockaddr_in){ .sin_family = AF_INET,
		    .sin_addr = { htonl(0x0a000000u | micro_below(1 << 24)) } };
		a->client[i].len = sizeof(a->client[i].in);
		a->request[i] = (struct acl_request){ .kind = ACL_SOCKS, .target = &a->target[i],
		    .client = &a->client[i], .listener_port = 1080 };
		micro_must(acl_check(a->acl, &a->request[i]).verdict == ACL_ALLOW, "ACL verdict");
	}
	return a;
}

static uint64_t
acl_run(void *inputs, size_t calls)
{
	struct acl_inputs *a = inputs;
	uint64_t sum = 0;

	for (size_t i = 0; i < calls; i++)
		sum += acl_check(a->acl, &a->request[i % ACL_INPUTS]).verdict;
	return sum;
}

const struct micro micro_policy[] = {
	{ "whitelist_16k", "an IPv4 address in 16,384 prefixes, half are", whitelist_new,
	    whitelist_run, whitelist_free },
	{ "acl_20", "20 rules of which none matches", acl_inputs_new, acl_run, acl_inputs_free },
	{ .name = NULL }
};

/* SPDX-License-Identifier: ISC */
#include "net/env.h"

bool
env_is_self(const struct env *env, const struct addr *a)
{
	for (size_t i = 0; i < env->conf->listen_count; i++) {
		const struct addr *own = &env->conf->listen[i].sock;

		if (own->len == 0 || addr_port(own) != addr_port(a))
			continue;
		if (addr_same_ip(own, a))
			return true;
		/* 0.0.0.0 as a destination is this host too (connect(2) on Linux). */
		if ((addr_is_wildcard(own) || addr_is_wildcard(a)) &&
		    (addr_is_loopback(a) || addr_is_wildcard(a)))
			return true;
	}
	return false;
}

bool
env_overloaded(const struct env *env)
{
	uint64_t since_ns = io_pool_stats(env->pool).starved_since_ns;

	return since_ns != 0 &&
	    io_now(env->loop) - since_ns > ENV_STARVED_REFUSE_MS * UINT64_C(1000000);
}

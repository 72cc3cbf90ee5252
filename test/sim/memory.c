/* SPDX-License-Identifier: ISC */
/* The allocator of the code under test: counted, and made to fail. */
#include <stdlib.h>

#include "sim.h"

#define WRAP(type, name, args)	type __real_##name args; type __wrap_##name args; type __wrap_##name args

static bool
fails(void)
{
	if (!sim.active || sim.threads || !sim.allocs_may_fail ||
	    sim_below(100000) >= sim.faults.alloc_permille_x100)
		return false;
	sim_note(SIM_T_FAULT, 2, 0, 0);
	seen(SEEN_NO_MEMORY);
	return true;
}

WRAP(void *, malloc, (size_t n))
{
	void *p = fails() ? NULL : __real_malloc(n);

	if (sim.active)
		sim.allocs += p != NULL;
	return p;
}

WRAP(void *, calloc, (size_t n, size_t each))
{
	void *p = fails() ? NULL : __real_calloc(n, each);

	if (sim.active)
		sim.allocs += p != NULL;
	return p;
}

WRAP(void *, realloc, (void *old, size_t n))
{
	void *p = fails() ? NULL : __real_realloc(old, n);

	if (sim.active)
		sim.allocs += old == NULL && p != NULL;
	return p;
}

WRAP(void, free, (void *p))
{
	if (sim.active)
		sim.allocs -= p != NULL;
	__real_free(p);
}

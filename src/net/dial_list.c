/* SPDX-License-Identifier: ISC */
#include "net/dial_list.h"

#include <string.h>

enum dial_family
dial_family_of(const struct addr *addr)
{
	struct addr plain = *addr;

	addr_unmap(&plain);
	return plain.sa.sa_family == AF_INET6 ? DIAL_V6 : DIAL_V4;
}

static enum dial_family
other(enum dial_family family)
{
	return family == DIAL_V4 ? DIAL_V6 : DIAL_V4;
}

void
dial_list_init(struct dial_list *list, enum dial_family lead)
{
	memset(list, 0, sizeof(*list));
	list->turn = lead;
}

void
dial_list_add(struct dial_list *list, const struct addr *addr)
{
	enum dial_family f = dial_family_of(addr);
	struct addr *addrs = list->addrs[f];

	for (unsigned i = 0; i < list->count[f]; i++)
		if (addr_same_ip(&addrs[i], addr))
			return;
	if (list->count[f] == DIAL_ADDRS_MAX)
		return;
	addrs[list->count[f]] = *addr;
	addr_unmap(&addrs[list->count[f]]);
	list->count[f]++;
}

bool
dial_list_more(const struct dial_list *list)
{
	return list->next[DIAL_V4] < list->count[DIAL_V4] ||
	    list->next[DIAL_V6] < list->count[DIAL_V6];
}

const struct addr *
dial_list_next(struct dial_list *list)
{
	enum dial_family f = list->turn;

	if (list->next[f] == list->count[f])
		f = other(f);
	if (list->next[f] == list->count[f])
		return NULL;
	list->turn = other(f);
	return &list->addrs[f][list->next[f]++];
}

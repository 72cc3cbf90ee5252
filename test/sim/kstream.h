/* SPDX-License-Identifier: ISC */
/* kstream: between kernel.c and kstream.c. */
#ifndef RW_SIM_KSTREAM_H
#define RW_SIM_KSTREAM_H

#include "kernel.h"

uint64_t k_latency(const struct kconn *);
/* The file of this end is gone: FIN or RST to the other; frees the connection behind the last. */
void	k_end_close(struct kend *, bool reset);
void	k_conns_changed(int by);

#endif

/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: see README beside. */
#include_next <sys/mman.h>

#undef MAP_NORESERVE

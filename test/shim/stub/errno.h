/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: see README beside. */
#include_next <errno.h>

#undef ENONET
#undef EREMOTEIO
#undef ERESTART

/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: see README beside. */
#include_next <fcntl.h>

#ifndef RW_STUB_FCNTL_H
#define RW_STUB_FCNTL_H

#include <unistd.h>

#undef F_SETPIPE_SZ
#undef F_GETPIPE_SZ
#undef SPLICE_F_MOVE
#undef SPLICE_F_NONBLOCK
#undef SPLICE_F_MORE
#undef SPLICE_F_GIFT
#pragma GCC poison splice tee vmsplice
#ifdef __APPLE__
#pragma GCC poison pipe2 dup3
#endif

#endif

/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: see README beside. */
#include_next <sys/socket.h>

#ifndef RW_STUB_SYS_SOCKET_H
#define RW_STUB_SYS_SOCKET_H

#ifdef __APPLE__
#undef SO_PROTOCOL
#undef MSG_NOSIGNAL
#undef SOCK_NONBLOCK
#undef SOCK_CLOEXEC
#define SO_NOSIGPIPE	0x1022
#pragma GCC poison accept4 SOCK_NONBLOCK SOCK_CLOEXEC
#endif
#ifndef __FreeBSD__
#pragma GCC poison recvmmsg sendmmsg
#endif

#endif

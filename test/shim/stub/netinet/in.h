/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: see README beside. */
#include_next <netinet/in.h>

#ifndef RW_STUB_NETINET_IN_H
#define RW_STUB_NETINET_IN_H

#undef IP_RECVERR
#undef IPV6_RECVERR
#define IP_RECVDSTADDR	7
#ifdef __APPLE__
#ifndef __APPLE_USE_RFC_3542
#undef IPV6_PKTINFO
#endif
#else
#undef IP_PKTINFO
#define IP_SENDSRCADDR	IP_RECVDSTADDR
#pragma GCC poison in_pktinfo ip_mreqn
#endif

#endif

/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: see README beside. */
#ifndef RW_STUB_SYS_EVENT_H
#define RW_STUB_SYS_EVENT_H

#include <stdint.h>
#include <time.h>

#define EVFILT_READ	(-1)
#define EVFILT_WRITE	(-2)
#if defined(__FreeBSD__)
#define EVFILT_USER	(-11)
#elif defined(__APPLE__)
#define EVFILT_USER	(-10)
#endif

#define EV_ADD		0x0001
#define EV_DELETE	0x0002
#define EV_ONESHOT	0x0010
#define EV_CLEAR	0x0020
#define EV_RECEIPT	0x0040
#define EV_ERROR	0x4000
#define EV_EOF		0x8000

#ifdef EVFILT_USER
#define NOTE_TRIGGER	0x01000000
#endif

struct kevent {
	uintptr_t	 ident;
	short		 filter;
	unsigned short	 flags;
	unsigned int	 fflags;
#ifdef __APPLE__
	intptr_t	 data;
#else
	int64_t		 data;
#endif
	void		*udata;
#ifdef __FreeBSD__
	uint64_t	 ext[4];
#endif
};

#define EV_SET(k, ident_, filter_, flags_, fflags_, data_, udata_)		\
	(*(k) = (struct kevent){ .ident = (uintptr_t)(ident_), .filter = (filter_), \
	    .flags = (flags_), .fflags = (fflags_), .data = (data_), .udata = (udata_) })

int	kqueue(void);
int	kevent(int, const struct kevent *, int, struct kevent *, int, const struct timespec *);

#endif

/* SPDX-License-Identifier: ISC */
/*
 * A stand-in for the BSDs' <sys/event.h>, for tests on Linux only: what
 * backends/kqueue.c uses, over poll(2) (kevent.c).  Never installed, never part
 * of a build that anyone should run.
 */
#ifndef RW_SHIM_SYS_EVENT_H
#define RW_SHIM_SYS_EVENT_H

#include <stdint.h>
#include <time.h>

#define EVFILT_READ	(-1)
#define EVFILT_WRITE	(-2)
#define EVFILT_USER	(-11)

#define EV_ADD		0x0001
#define EV_DELETE	0x0002
#define EV_ONESHOT	0x0010
#define EV_CLEAR	0x0020
#define EV_RECEIPT	0x0040
#define EV_ERROR	0x4000
#define EV_EOF		0x8000

#define NOTE_TRIGGER	0x01000000

struct kevent {
	uintptr_t	 ident;
	short		 filter;
	unsigned short	 flags;
	unsigned int	 fflags;
	int64_t		 data;
	void		*udata;
};

#define EV_SET(k, ident_, filter_, flags_, fflags_, data_, udata_)		\
	do {									\
		struct kevent *set_ = (k);					\
		set_->ident = (uintptr_t)(ident_);				\
		set_->filter = (filter_);					\
		set_->flags = (flags_);						\
		set_->fflags = (fflags_);					\
		set_->data = (data_);						\
		set_->udata = (udata_);						\
	} while (0)

int	kqueue(void);
int	kevent(int kq, const struct kevent *changes, int nchanges, struct kevent *events,
	    int nevents, const struct timespec *timeout);

#endif

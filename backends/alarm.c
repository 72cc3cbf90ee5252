/* SPDX-License-Identifier: ISC */
#include "alarm.h"

#include <sys/timerfd.h>
#include <unistd.h>

void
io_alarm_open(struct io_alarm *a)
{
	a->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	a->at_ns = UINT64_MAX;
}

void
io_alarm_close(struct io_alarm *a)
{
	if (a->fd != -1)
		close(a->fd);
}

uint64_t
io_alarm_for(struct io_alarm *a, const struct io_loop *l, uint64_t timeout_ns)
{
	uint64_t at = io_timer_next(l);

	if (a->fd == -1 || timeout_ns < ALARM_MIN_NS || timeout_ns == UINT64_MAX)
		return timeout_ns;
	/* Too early does not matter: it rings once for nothing, and is set for what is next then. */
	if (a->at_ns > at) {
		struct itimerspec when = {
			.it_value = { (time_t)(at / 1000000000u), (long)(at % 1000000000u) }
		};

		if (timerfd_settime(a->fd, TFD_TIMER_ABSTIME, &when, NULL) == -1)
			return timeout_ns;
		a->at_ns = at;
	}
	return UINT64_MAX;
}

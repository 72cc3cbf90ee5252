#!/bin/sh
# SPDX-License-Identifier: ISC
#
# syntax.sh SRCDIR CC: parses the kqueue backend and what it stands on as each
# BSD would, over the stub headers in test/shim/stub.  Nothing is linked or run.
srcdir=$1
shift
warn='-std=gnu11 -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
	-Wpointer-arith -Wvla'
passed=0 failed=0
for system in __FreeBSD__=14 __OpenBSD__=1 '__APPLE__=1 -D__MACH__=1'; do
	for f in io pool post timer errmap select pipe dgram ready ready_net ready_dgram ready_relay kqueue; do
		# shellcheck disable=SC2086
		if "$@" -fsyntax-only $warn -U__linux__ -U__linux -Ulinux -U__gnu_linux__ \
		    -D_GNU_SOURCE -D$system -isystem "$srcdir/test/shim/stub" \
		    -I"$srcdir/include" -I"$srcdir/src" -I"$srcdir/backends" \
		    -DRW_HAVE_URING=0 -DRW_HAVE_EPOLL=0 -DRW_HAVE_KQUEUE=1 -DRW_HAVE_IOCP=0 \
		    '-DRW_BACKENDS="kqueue"' "$srcdir/backends/$f.c"; then
			passed=$((passed + 1))
		else
			echo "failed: backends/$f.c as -D$system"
			failed=$((failed + 1))
		fi
	done
done
echo "syntax of the BSD branches: $passed passed, $failed failed"
[ $failed = 0 ]

#!/bin/sh
# SPDX-License-Identifier: ISC
#
# io.sh SUITE "FLAGS"...: the suite of the I/O contract, once with each set of
# flags.  A backend that this system refuses (a container without io_uring) is
# skipped with the backend's own reason.
suite=$1
shift
rc=0
run=
# The thread sanitizer wants a predictable layout on kernels with much entropy.
case ,$RW_SANITIZE, in
*,thread,*) ! setarch -R true 2>/dev/null || run='setarch -R' ;;
esac
for flags in "$@"; do
	echo "-- $flags"
	# No case has this name: only the choice of the backend is made.
	# shellcheck disable=SC2086
	why=$($run "$suite" $flags --case / 2>/dev/null | sed -n 's/^no backend: //p')
	if [ -n "$why" ]; then
		echo "SKIP: check-io $flags: $why"
		continue
	fi
	# shellcheck disable=SC2086
	$run "$suite" $flags || { echo "failed: $suite $flags"; rc=1; }
done
exit $rc

#!/bin/sh
# SPDX-License-Identifier: ISC
#
# unit.sh SUITE: Criterion's tests.  Each runs in a process whose leak report
# changes nothing about the result, so reports go to files, and a file is a
# failure.
suite=$1
case ,$RW_SANITIZE, in
*,thread,*)
	echo "SKIP: check-unit: Criterion does not work under the thread sanitizer"
	exit 0 ;;
*,address,*)
	# Not in the build folder: a blank in its name would end the option.
	dir=$(mktemp -d /tmp/ringway-unit.XXXXXX) || exit 1
	trap 'rm -rf "$dir"' 0
	ASAN_OPTIONS=log_path=$dir/report:handle_abort=0:$ASAN_OPTIONS
	export ASAN_OPTIONS ;;
*) dir= ;;
esac
"$suite" --timeout "${RW_UNIT_TIMEOUT_S:-60}"
rc=$?
if [ -n "$dir" ] && [ -n "$(ls "$dir")" ]; then
	cat "$dir"/*
	echo "unit-sanitizer: 0 passed, $(find "$dir" -type f | wc -l) failed"
	rc=1
fi
exit $rc

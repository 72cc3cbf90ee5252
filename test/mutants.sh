#!/bin/sh
# SPDX-License-Identifier: ISC
#
# mutants.sh "BACKENDS" SUITE MUTANT...: each deliberate fault must make a case
# of the I/O contract's suite fail, on each backend, which the SUITE without the
# fault passes.  A crash or a hang is a failed case too.  The first such case is
# enough: the suite is then ended.  Run in the build folder, where the suites
# with faults are mutant/NAME/io_suite.
backends=$1 sound=$2
shift 2
passed=0 failed=0
limit_s=180 case_limit_s=3
lines=
command -v stdbuf >/dev/null && lines='stdbuf -oL'

failed_cases() { sed -n 's/^FAIL *\([0-9]* ms\)* *\([^ ]*\) .*/\2/p' "$log"; }

# Sets by to a case that failed in $log and passes without the fault, in the same time.
judge() {
	for c in $(failed_cases); do
		case " $judged " in *" $c "*) continue ;; esac
		judged="$judged $c"
		if "$sound" -b "$1" --case "$c" --time-limit $case_limit_s >>"$log.sound" 2>&1; then
			by=$c
			return 0
		fi
		echo "note: $c fails on $1 without a fault too"
	done
	return 1
}

# run BACKEND MUTANT: sets by, and rc for when there is none.  timeout passes
# the signal on to all that the suite has started.
run() {
	log=mutant/$2/$1.log by='' judged=''
	: >"$log"
	# shellcheck disable=SC2086
	timeout -k 5 $limit_s $lines "mutant/$2/io_suite" -b "$1" -v --time-limit $case_limit_s \
	    >"$log" 2>&1 &
	pid=$!
	while kill -0 $pid 2>/dev/null; do
		if judge "$1"; then kill $pid 2>/dev/null; break; fi
		sleep 0.2
	done
	wait $pid 2>/dev/null
	rc=$?
	[ -n "$by" ] || judge "$1"
}

for b in $backends; do
	why=$("$sound" -b "$b" --case / 2>/dev/null | sed -n 's/^no backend: //p')
	if [ -n "$why" ]; then
		echo "SKIP: check-mutants -b $b: $why"
		continue
	fi
	for m in "$@"; do
		run "$b" "$m"
		if [ -n "$by" ]; then
			echo "caught: $m on $b, by $by"
			passed=$((passed + 1))
		else
			case $rc in
			0) echo "not caught: $m on $b" ;;
			*) echo "not caught: $m on $b (status $rc): $(tail -n 1 "$log")" ;;
			esac
			failed=$((failed + 1))
		fi
	done
done
echo "mutants: $passed passed, $failed failed"
[ $failed = 0 ]

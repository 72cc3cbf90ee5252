#!/bin/sh
# SPDX-License-Identifier: ISC
#
# simfaults.sh FAULT...: each deliberate fault must be found by one of the
# simulator's seeds.  A crash or a hang counts as found.  Run in the build
# folder, where the suites are simfault/NAME/sim_suite.
passed=0 failed=0
for m in "$@"; do
	log=simfault/$m/log
	if timeout 120 "simfault/$m/sim_suite" --seeds 1000 --max-failures 1 >"$log" 2>&1; then
		echo "not found: $m"
		failed=$((failed + 1))
	else
		echo "found: $m: $(grep -m 1 -i 'seed' "$log" | cut -c 1-100)"
		passed=$((passed + 1))
	fi
done
echo "simulated faults: $passed passed, $failed failed"
[ $failed = 0 ]

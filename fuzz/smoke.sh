#!/bin/sh
# SPDX-License-Identifier: ISC
#
# smoke.sh CORPUS-DIR TARGET...: each fuzz target over its corpus, then a
# bounded number of mutations from a fixed seed.  Run in the build folder; new
# inputs go there, never into the tree.
corpus=$1
shift
passed=0 failed=0
runs=${RW_FUZZ_RUNS:-20000}
seed=${RW_FUZZ_SEED:-1}
limit_s=120
for t in "$@"; do
	name=${t##*/}
	found=$t.found
	rm -rf "$found" "$t.crash-"*
	mkdir -p "$found"
	set -- -seed="$seed" -runs="$runs" -max_len=4096 -timeout=10 -artifact_prefix="$t.crash-" "$found"
	if [ -d "$corpus/$name" ]; then set -- "$@" "$corpus/$name"
	else echo "note: no seeds in fuzz/corpus/$name"; fi
	if timeout -k 5 $limit_s "$t" "$@" >"$t.log" 2>&1; then
		echo "ok: $name, $(find "$corpus/$name" -type f 2>/dev/null | wc -l) seeds, $runs runs, seed $seed"
		passed=$((passed + 1))
	else
		echo "not ok: $name (seed $seed; the input is $(ls "$t.crash-"* 2>/dev/null || echo not kept)):"
		tail -n 60 "$t.log"
		failed=$((failed + 1))
	fi
done
echo "fuzz: $passed passed, $failed failed"
[ $failed = 0 ]

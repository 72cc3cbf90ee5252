#!/bin/sh
# SPDX-License-Identifier: ISC
#
# tally.sh LOG-DIR MAKE GOAL...: runs the test goals one after the other, adds
# up what their closing lines say, and ends with "N passed, N failed".  A goal
# that crashed, or ran no test and did not say why, counts as one failure.  A
# line "SKIP: reason" stands for a suite that cannot run here; it is repeated
# at the end, and a failure when RW_NO_SKIP is set.
logs=$1 make=$2
shift 2
mkdir -p "$logs" || exit 1
esc=$(printf '\033')

# Closing lines: ours ("io_uring: 41 rules passed, 0 failed" and "fuzz: 5
# passed, 0 failed"), Criterion's synthesis, pytest's last line.
count() {
	sed "s/$esc\[[0-9;]*[A-Za-z]//g" "$1" | awk '
	/^[A-Za-z][A-Za-z0-9_., =+-]*: [0-9]+ (rules )?passed, [0-9]+ failed/ {
		sub(/^[^:]*: /, ""); gsub(/rules /, "")
		p += $1; f += $3; if ($6 ~ /^skipped/) s += $5
		next
	}
	/Synthesis: Tested: [0-9]+ \| Passing: [0-9]+ \| Failing: [0-9]+ \| Crashing: [0-9]+/ {
		sub(/.*Passing: /, ""); p += $1; f += $4; f += $7
		next
	}
	/^(=+ )?([0-9]+ [a-z]+, )*[0-9]+ [a-z]+ in [0-9.]+s/ {
		for (i = 2; i <= NF; i++) {
			if ($i ~ /^passed/ || $i ~ /^xfailed/) p += $(i - 1)
			else if ($i ~ /^(failed|errors?|xpassed)/) f += $(i - 1)
			else if ($i ~ /^skipped/) s += $(i - 1)
		}
	}
	END { printf "%d %d %d\n", p, f, s }'
}

passed=0 failed=0 report='' skips=''
for goal in "$@"; do
	log=$logs/$goal.log
	echo "== $goal"
	start=$(date +%s)
	# A pipe keeps only the last status: the file carries make's.
	{ $make --no-print-directory "$goal" 2>&1; echo $? >"$log.rc"; } | tee "$log"
	rc=$(cat "$log.rc")
	rm -f "$log.rc"
	took=$(($(date +%s) - start))
	read -r p f s <<END
$(count "$log")
END
	skip=$(grep '^SKIP: ' "$log")
	why=
	if [ "$rc" != 0 ] && [ "$f" = 0 ]; then
		f=1 why=" (ended with status $rc)"
	elif [ "$rc" = 0 ] && [ "$f" != 0 ]; then
		why=" (although its status was 0)"
	elif [ $((p + f)) = 0 ] && [ -z "$skip" ]; then
		f=1 why=" (ran no test)"
	fi
	if [ -n "$skip" ]; then
		skips="$skips$skip
"
		[ -z "$RW_NO_SKIP" ] || { f=$((f + 1)); why="$why (skips are failures here)"; }
	fi
	passed=$((passed + p)) failed=$((failed + f))
	[ "$s" = 0 ] || why=", $s skipped$why"
	report="$report$goal: $p ok, $f not ok$why, $took s
"
done
echo
printf '%s' "$skips$report"
echo "$passed passed, $failed failed"
[ $failed = 0 ]

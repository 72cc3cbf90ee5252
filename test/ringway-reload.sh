#!/bin/sh
# SPDX-License-Identifier: ISC
#
# ringway-reload.sh: contrib/ringway-reload against a pretended ringway and a
# pretended daemon, so that every answer, and none, can be had.
script=${RW_SRCDIR:-.}/contrib/ringway-reload
dir=$(mktemp -d /tmp/ringway-reload.XXXXXX) || exit 1
daemon="" passed=0 failed=0
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; rm -rf "$dir"' 0

# `ringway --check FILE`: good unless the file says bad; its options are noted.
cat >"$dir/ringway" <<'EOF'
#!/bin/sh
printf '%s\n' "$@" >"$0.args"
if grep -q bad "$2"; then echo "$2:1:1: bad: is bad"; exit 1; fi
EOF
chmod +x "$dir/ringway"

# The daemon's part: $dir/answer says how the next reload goes.
cat >"$dir/daemon" <<'EOF'
#!/bin/sh
dir=$1 n=${2:-0}
put() {
	printf 'RELOAD %s %s %s 0\n%sEND %s\n' "$n" "$1" "$$" "$2" "$n" >"$dir/pid.reload.new"
	mv "$dir/pid.reload.new" "$dir/pid.reload"
}
# The trap only notes it: another signal may come in the middle.
trap 'asked=1' HUP
trap 'exit 0' TERM
put ok ''
echo $$ >"$dir/pid"
while :; do
	if [ -n "$asked" ]; then
		asked=
		answer=$(cat "$dir/answer")
		case $answer in
		ok | refused | warned)
			n=$((n + 1))
			put busy ''
			sleep 0.3
			case $answer in
			ok) put ok '' ;;
			warned) put ok 'ringway.yaml:2:3: key: is a warning
' ;;
			refused) put refused 'listen.0: port 80 is in use
ringway.yaml:4:1: acl.file: cannot be read
' ;;
			esac ;;
		silent) ;;
		dies) exit 1 ;;
		esac
	fi
	sleep 0.05
done
EOF

start() {	# ANSWER [N]
	stop
	rm -f "$dir/pid" "$dir/pid.reload"
	echo "$1" >"$dir/answer"
	sh "$dir/daemon" "$dir" "$2" &
	daemon=$!
	until [ -s "$dir/pid" ]; do sleep 0.05; done
}
stop() {
	[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; } 2>/dev/null
	daemon=
}
reload() {
	RINGWAY=$dir/ringway sh "$script" -c "$dir/conf" -p "$dir/pid" "$@" >"$dir/out" 2>"$dir/err"
}
expect() {	# NAME STATUS PATTERN-OF-STDERR: of the reload before
	rc=$?
	if [ "$rc" -eq "$2" ] && { [ -z "$3" ] || grep -q "$3" "$dir/err"; }; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL: $1: status $rc, not $2, or no '$3' in:"
		cat "$dir/out" "$dir/err"
	fi
}

echo good >"$dir/conf"
start ok
reload; expect "a reload that worked" 0 ''
grep -q "process $daemon has reloaded" "$dir/out"; expect "it says so" 0 ''
reload -o a.b=1 -w 5 -o 'c=x  y'; expect "and again, with options for the check" 0 ''
printf '%s\n' --check "$dir/conf" -o a.b=1 -o 'c=x  y' | cmp -s - "$dir/ringway.args"
expect "which get there unharmed" 0 ''
reload "$daemon"; expect "a pid instead of the file's" 0 ''

start warned 41
reload; expect "warnings are shown" 0 'is a warning'

start refused
reload; expect "the daemon refuses: all that was wrong, status 1" 1 'port 80 is in use'
grep -q 'acl.file: cannot be read' "$dir/err"; expect "each of them" 0 'goes on with the configuration'
grep -q END "$dir/err"; expect "and nothing else" 1 ''

echo bad >"$dir/conf"
start ok
reload; expect "a bad file is refused before the signal" 1 'conf:1:1: bad: is bad'
grep -q 'RELOAD 0 ok' "$dir/pid.reload"; expect "the daemon was not asked" 0 ''
reload -n; expect "unless the check is left out" 0 ''
echo good >"$dir/conf"

# A reload that is under way may have read the file before it was changed.
start ok
kill -HUP "$daemon"
until grep -q 'RELOAD 1 busy' "$dir/pid.reload"; do sleep 0.01; done
echo refused >"$dir/answer"
reload; expect "the result of an earlier reload is not taken for ours" 1 'port 80'

start silent
reload -w 1; expect "no answer in time" 3 'no result from process'
start dies
reload; expect "it dies of it" 3 'has ended'
daemon=
reload; expect "it is not running" 3 'no process'
rm "$dir/pid"
reload; expect "no pid file" 3 'is ringway running'
start ok
rm "$dir/pid.reload"
reload; expect "no status file" 3 'when pid_file is set'
start ok
printf 'RELOAD 7 ok 1 0\nEND 7\n' >"$dir/pid.reload"
reload; expect "a status file of another process" 3 'is of process 1'
printf 'RELOAD 8 ok %s 0\nEND 7\n' "$daemon" >"$dir/pid.reload"
reload -w 1; expect "a status file that is half written is not believed" 3 "can't be understood"
stop
for bad in --nonsense '-w' '-w x' 'x1' '1 2'; do
	# shellcheck disable=SC2086
	reload $bad; expect "usage: $bad" 2 usage
done
RINGWAY=$dir/nothing sh "$script" -c "$dir/conf" >"$dir/out" 2>"$dir/err"
expect "no ringway to check with" 2 'could not be run'

echo "ringway-reload: $passed passed, $failed failed"
[ "$failed" -eq 0 ]

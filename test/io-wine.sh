#!/bin/sh
# SPDX-License-Identifier: ISC
#
# io-wine.sh SUITE.EXE [FLAGS]: the suite of the I/O contract, built for
# Windows, under wine.  No display, no questions, and a prefix of its own in a
# temporary folder, which goes afterwards with all that runs in it.
set -u
suite=$1
shift

wine=
for w in wine64 /usr/lib/wine/wine64 /usr/lib64/wine/wine64 wine; do
	if command -v "$w" >/dev/null 2>&1; then
		wine=$w
		break
	fi
done
if [ -z "$wine" ]; then
	echo "io-wine.sh: there is no wine64 (make deps check installs it)" >&2
	exit 1
fi
server=
for w in wineserver /usr/lib/wine/wineserver64 /usr/lib/wine/wineserver; do
	if command -v "$w" >/dev/null 2>&1; then
		server=$w
		break
	fi
done

unset DISPLAY WAYLAND_DISPLAY
dir=$(mktemp -d "${TMPDIR:-/tmp}/io-wine.XXXXXX") || exit 1
export WINEPREFIX="$dir/prefix"
export WINEDEBUG="${WINEDEBUG:--all}"
# Nothing of this is needed, and some of it would ask for a download.
export WINEDLLOVERRIDES='mscoree=;mshtml=;winemenubuilder.exe=;winedbg.exe='
cleanup()
{
	[ -z "$server" ] || "$server" -k >/dev/null 2>&1
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The first program makes the prefix: outside of what the cases may take.
# Its complaints are about the 32-bit half, which is not installed.
"$wine" "$suite" --list >"$dir/list" 2>"$dir/first.log" || {
	cat "$dir/first.log" >&2
	echo "io-wine.sh: $wine could not start the suite" >&2
	exit 1
}
# Every call is a round trip to wine's server: longer than the runner's own limit.
"$wine" "$suite" --time-limit 40 "$@"

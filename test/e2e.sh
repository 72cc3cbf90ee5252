#!/bin/sh
# SPDX-License-Identifier: ISC
#
# e2e.sh [PYTEST-ARGUMENT...]: the daemon named by RINGWAY, from outside.
# The system's python comes first: the one in front of it on PATH may lack the
# packages that 'make deps check' installs.
for py in /usr/bin/python3 python3 ''; do
	[ -n "$py" ] && command -v "$py" >/dev/null && "$py" -c 'import pytest' 2>/dev/null && break
done
if [ -z "$py" ]; then
	echo "SKIP: check-e2e: pytest was not found ('make deps check' installs it)"
	exit 0
fi
cd "$RW_SRCDIR" || exit 1
PYTHONDONTWRITEBYTECODE=1
# nginx is where only root looks.
PATH=$PATH:/usr/sbin:/sbin
export PATH PYTHONDONTWRITEBYTECODE
# A short name: the path of a Unix socket has room for 107 bytes.
tmp=$(mktemp -d /tmp/rw-e2e.XXXXXX) || exit 1
trap 'rm -rf "$tmp"' 0
trap 'exit 130' 1 2 15
"$py" -m pytest -p no:cacheprovider --basetemp="$tmp/t" -ra test/e2e "$@"

#!/bin/sh
# SPDX-License-Identifier: ISC
#
# netns.sh COMMAND [ARGUMENT...]: runs it in a network namespace of its own
# where that is allowed, so that neither the ports that other programs use up
# nor a firewall changes what a test sees; else just runs it.
if [ "$(id -u)" = 0 ] && unshare -n ip link set lo up 2>/dev/null; then
	exec unshare -n sh -c 'ip link set lo up && exec "$@"' sh "$@"
fi
exec "$@"

# SPDX-License-Identifier: ISC
"""Network namespaces without a name: they go when the last process and
descriptor in them go, so a test that dies leaves nothing behind.  Sockets,
threads and processes that are made inside `with ns:` live in it."""

import ctypes
import os
import subprocess

import pytest

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name, *args):
    if getattr(_libc, name)(*args) != 0:
        e = ctypes.get_errno()
        raise OSError(e, "%s: %s" % (name, os.strerror(e)))


class NetNs:
    """A new namespace with loopback up, an interface `hole` that swallows all
    that is sent to 10.99.0.0/24 and fd99::/64, an unreachable host route
    (10.98.0.0/24: EHOSTUNREACH), a forbidden one (10.97.0.0/24: EACCES) and no
    default route, so that all else is ENETUNREACH."""

    HOLE4 = "10.99.0.2"
    HOLE6 = "fd99::2"
    NOHOST4 = "10.98.0.1"
    FORBIDDEN4 = "10.97.0.1"
    NONET4 = "203.0.113.1"
    NONET6 = "2001:db8::1"

    def __init__(self):
        self._old = []
        self._fd = -1
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("unshare", CLONE_NEWNET)
        except OSError as e:
            os.close(here)
            pytest.skip("no network namespace of our own: %s" % e)
        try:
            self._fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self._setup()
        except subprocess.CalledProcessError as e:
            os.close(self._fd)
            self._fd = -1
            pytest.skip("namespace could not be set up: %s: %s" % (e, e.output))
        finally:
            _call("setns", here, CLONE_NEWNET)
            os.close(here)

    @staticmethod
    def ip(*args):
        subprocess.run(["ip", *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def _setup(self):
        self.ip("link", "set", "lo", "up")
        # Without ARP a frame goes to the device's own address, which the other
        # end of the pair does not take: dropped, silently.  (Not every kernel
        # has the dummy device, which would be simpler.)
        self.ip("link", "add", "hole", "type", "veth", "peer", "name", "drain")
        self.ip("link", "set", "hole", "arp", "off")
        self.ip("link", "set", "drain", "up")
        self.ip("link", "set", "hole", "up")
        self.ip("addr", "add", "10.99.0.1/24", "dev", "hole")
        self.ip("addr", "add", "fd99::1/64", "dev", "hole", "nodad")
        self.ip("route", "add", "unreachable", "10.98.0.0/24")
        self.ip("route", "add", "prohibit", "10.97.0.0/24")

    def sysctl(self, name, value):
        """Sets one of this namespace's own knobs, by its path below net/."""
        with self, open("/proc/sys/net/" + name, "w", encoding="ascii") as f:
            f.write(value)

    def __enter__(self):
        self._old.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        _call("setns", self._fd, CLONE_NEWNET)
        return self

    def __exit__(self, *_):
        fd = self._old.pop()
        _call("setns", fd, CLONE_NEWNET)
        os.close(fd)

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

# SPDX-License-Identifier: ISC
"""Small things that every test needs: ports, waiting, and bytes that can be
checked.  Nothing here knows of a proxy."""

import base64
import hashlib
import itertools
import os
import random
import socket
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
RINGWAY = os.path.abspath(os.environ.get("RINGWAY", os.path.join(TOP, "build", "ringway")))

# Below the usual ephemeral range (32768..60999), so that no outgoing
# connection of a load test can sit on a port that was just picked.
_ports = itertools.cycle(range(10000, 31000))
for _ in range((os.getpid() * 37) % 21000):
    next(_ports)
_ports_lock = threading.Lock()


def sanitizer():
    """Name of the sanitizer that the binary was built with, or None."""
    try:
        with open(RINGWAY, "rb") as f:
            data = f.read()
    except OSError:
        return None
    for mark, name in ((b"__tsan_init", "thread"), (b"__asan_init", "address")):
        if mark in data:
            return name
    return None


SANITIZED = sanitizer()
# Sanitizers slow everything down: waits get longer, loads smaller.
SLOW = 3.0 if SANITIZED else 1.0


def scaled(count, at_least=1):
    """A load that fits the build: sanitizers get a fifth."""
    return max(at_least, count // 5) if SANITIZED else count


def free_port(host="127.0.0.1", udp=False):
    """A port that nobody listens on, tried for both TCP and UDP."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with _ports_lock:
        for _ in range(21000):
            port = next(_ports)
            try:
                with socket.socket(family, socket.SOCK_STREAM) as s:
                    s.bind((host, port))
                if udp:
                    with socket.socket(family, socket.SOCK_DGRAM) as s:
                        s.bind((host, port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port on %s" % host)


def wait_until(check, timeout=5.0, what="condition", every=0.02):
    """Polls until check() is true and returns its value; fails by assertion."""
    end = time.monotonic() + timeout * SLOW
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("%s: not reached in %.1f s" % (what() if callable(what) else what, timeout * SLOW))
        time.sleep(every)


_BLOCK = 1 << 16


def pattern_chunks(seed, nbytes, block=_BLOCK):
    """Deterministic bytes that differ from block to block, so that a block
    lost, doubled or swapped changes the sum."""
    base = random.Random(seed).randbytes(block - 8)
    index = 0
    while nbytes > 0:
        chunk = index.to_bytes(8, "big") + base
        if nbytes < block:
            chunk = chunk[:nbytes]
        yield chunk
        nbytes -= len(chunk)
        index += 1


def pattern(seed, nbytes):
    return b"".join(pattern_chunks(seed, nbytes))


def pattern_sha(seed, nbytes):
    h = hashlib.sha256()
    for chunk in pattern_chunks(seed, nbytes):
        h.update(chunk)
    return h.hexdigest()


def password_record(password, iterations=1000, salt=b"0123456789abcdef"):
    """What `ringway --hash-password` prints, made by another implementation."""
    key = hashlib.pbkdf2_hmac("sha256", password.encode("utf-8"), salt, iterations)
    return "sha256$%d$%s$%s" % (iterations, base64.b64encode(salt).decode(), base64.b64encode(key).decode())


class Background:
    """A thread whose exception and result come back to the test."""

    def __init__(self, fn, *args, **kw):
        self._result = None
        self._error = None

        def run():
            try:
                self._result = fn(*args, **kw)
            except BaseException as e:  # noqa: B902 - handed to result()
                self._error = e

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def done(self):
        return not self._thread.is_alive()

    def result(self, timeout=30.0):
        self._thread.join(timeout * SLOW)
        assert not self._thread.is_alive(), "background work did not end in %.1f s" % (timeout * SLOW)
        if self._error is not None:
            raise self._error
        return self._result


def in_parallel(jobs, timeout=30.0):
    """Runs the callables side by side, returns their results in order."""
    started = [Background(job) for job in jobs]
    return [b.result(timeout) for b in started]

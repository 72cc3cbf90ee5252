# SPDX-License-Identifier: ISC
"""Runs the load generator and reads what it tells."""

import json
import os
import select
import subprocess
import time

import machine
from peers import HOST, ORIGIN_PORT, Failed

# Connecting, answering and closing, beyond window and warm-up.
EXTRA_S = 40


class Load:
    """One run of build/bench/load against a contender.  Used as a context, so
    that it never outlives its caller."""

    def __init__(self, options, contender, mode, via, conns, seconds, warmup=0.0, more=()):
        argv = [os.path.join(options.build, "bench", "load"), mode, "--via", via,
                "--proxy", "%s:%d" % (HOST, contender.port), "--origin-port", str(ORIGIN_PORT),
                "--seconds", "%g" % seconds, "--warmup", "%g" % warmup, "--cc", "cubic",
                "--pid", str(contender.pid())]
        argv += ["--assocs" if mode == "udp" else "--conns", str(conns)]
        if options.load_cpus:
            argv += ["--cpu", str(options.load_cpus[0])]
        self.contender = contender
        self.until = time.monotonic() + seconds + warmup + EXTRA_S
        self.process = machine.spawn(argv + list(more), options.load_cpus, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.text = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            machine.end(self.process, 1.0)
        self.process.stdout.close()
        self.process.stderr.close()

    def _fail(self, text):
        # What the proxy has said is the better reason when it has gone.
        if not self.contender.alive():
            text = "has ended: " + (self.contender.last_words() or text)
        raise Failed(text)

    def line(self):
        """The next line, as an object."""
        out = self.process.stdout
        while b"\n" not in self.text:
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                self._fail("no end within its time")
            piece = os.read(out.fileno(), 65536)
            if not piece:
                self.process.wait()
                words = self.process.stderr.read().decode("utf-8", "replace").strip().splitlines()
                self._fail(words[-1][:200] if words else "load generator: exit status %d" % self.process.returncode)
            self.text += piece
        first, _, self.text = self.text.partition(b"\n")
        try:
            return json.loads(first)
        except ValueError:
            raise Failed("load generator: not JSON: %r" % first[:80]) from None

    def result(self):
        """The last line; raises Failed when an answer was wrong."""
        told = self.line()
        self.process.wait()
        if told.get("errors") or told.get("altered"):
            words = self.process.stderr.read().decode("utf-8", "replace").strip().splitlines()
            self._fail("%d wrong or missing answers%s" % (told.get("errors", 0) + told.get("altered", 0),
                                                       " (%s)" % words[-1][:120] if words else ""))
        return told


def run(options, contender, mode, via, conns, seconds, warmup=0.0, more=()):
    with Load(options, contender, mode, via, conns, seconds, warmup, more) as load:
        return load.result()

# SPDX-License-Identifier: ISC
"""Carries suites out: starts the contenders, goes through the rounds, shows
how far it is, collects samples."""

import sys
import time

import peers
from peers import Failed

PORT_FIRST = 9100


class Progress:
    """One line that is updated on a terminal, plain lines elsewhere."""

    def __init__(self, total_s):
        self.terminal = sys.stderr.isatty()
        self.total_s, self.done_s, self.begun = max(total_s, 1.0), 0.0, time.monotonic()
        self.last = None
        self.shown = 0

    def _clear(self):
        if self.shown:
            sys.stderr.write("\r" + " " * self.shown + "\r")
            self.shown = 0

    def say(self, text):
        self._clear()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def step(self, suite, cell, round_number, contender, seconds):
        """The next measurement begins; `seconds` is its part of the forecast."""
        passed = time.monotonic() - self.begun
        # The forecast corrects itself as it goes on.
        pace = passed / self.done_s if self.done_s > 10 else 1.0
        left = max(0.0, (self.total_s - self.done_s) * pace)
        self.done_s += seconds
        where = "%s, %s, round %d" % (suite, cell, round_number) if cell else suite
        eta = "%d:%02d left" % divmod(int(left + 0.5), 60)
        if self.terminal:
            text = ("%3d %%  %s  %s: %s" % (min(100, 100 * passed / max(passed + left, 1e-9)), eta, where, contender))[:118]
            self._clear()
            sys.stderr.write(text)
            self.shown = len(text)
            sys.stderr.flush()
        elif where != self.last:
            self.say("%s (%s)" % (where, eta))
        self.last = where

    def skip(self, seconds):
        self.total_s -= seconds

    def close(self):
        self._clear()


def order_of(contenders, round_number):
    """Every second round goes backwards, so that who comes first changes."""
    return list(contenders) if round_number % 2 == 0 else list(reversed(contenders))


class Run:
    """One suite on one machine.  Whatever happens, stop() leaves nothing running."""

    def __init__(self, options, suite, contenders, workdir, progress):
        self.options, self.suite, self.workdir, self.progress = options, suite, workdir, progress
        self.contenders = [c for c in contenders if suite.takes_part(c)]
        self.samples = []
        self.port = PORT_FIRST

    def rounds(self):
        fewer = self.suite.rounds
        return self.options.rounds if fewer is None or self.options.rounds_given else fewer

    def forecast_s(self):
        """About how long it takes."""
        return self.rounds() * sum(self.suite.seconds(cell, c) for cell in self.suite.cells() for c in self.contenders
                                   if self.suite.via(c, cell))

    def _start(self, contender):
        # Another port each time: the old one may have sockets in TIME_WAIT.
        self.port += 1
        contender.start(self.options.proxy_cpus, self.workdir, self.port, self.suite.name)

    def _fail(self, cell, contender, round_number, reason, said=False):
        contender.stop()
        if not said:
            self.progress.say("  %s, %s: %s failed: %s" % (self.suite.name, cell.title, contender.name, reason))
        self.samples.append({"suite": self.suite.name, "cell": cell.key, "contender": contender.name,
                             "round": round_number, "failed": reason})

    def _check(self, contender):
        try:
            self._start(contender)
            self.suite.check(contender)
        except Failed as e:
            contender.stop()
            self.progress.say("  %s: %s failed the check: %s" % (self.suite.name, contender.name, e))
            return str(e)
        if self.suite.fresh:
            contender.stop()
        return None

    def _measure(self, contender, cell):
        if not contender.alive():
            contender.stop()
            self._start(contender)
        try:
            return self.suite.measure(contender, cell)
        finally:
            if self.suite.fresh:
                contender.stop()

    def run(self):
        """Returns the samples."""
        self.progress.say("%s: starting and checking %s" % (self.suite.name, ", ".join(c.name for c in self.contenders)))
        unfit = {c.name: self._check(c) for c in self.contenders}
        for cell in self.suite.cells():
            takers = []
            for c in self.contenders:
                if self.suite.via(c, cell):
                    if unfit[c.name]:
                        self._fail(cell, c, 0, unfit[c.name], said=True)
                        self.progress.skip(self.rounds() * self.suite.seconds(cell, c))
                    else:
                        takers.append(c)
            self._cell(cell, takers)
        return self.samples

    def _cell(self, cell, takers):
        for r in range(self.rounds()):
            for c in order_of(takers, r):
                seconds = self.suite.seconds(cell, c)
                self.progress.step(self.suite.name, cell.title, r + 1, c.name, seconds)
                try:
                    values = self._measure(c, cell)
                except Failed as e:
                    self._fail(cell, c, r, str(e))
                    self.progress.skip((self.rounds() - r - 1) * seconds)
                    takers = [t for t in takers if t is not c]
                    continue
                self.samples.append({"suite": self.suite.name, "cell": cell.key, "contender": c.name, "round": r,
                                     "values": values})

    def stop(self):
        for c in self.contenders:
            c.stop()


def versions(contenders):
    """For the report."""
    return [(c.name, c.version() or "version unknown") for c in contenders if c.listed]

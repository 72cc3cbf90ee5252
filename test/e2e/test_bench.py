# SPDX-License-Identifier: ISC
"""The driver of the measurements: its own tests, what it refuses, and a run
that is short enough for every day."""

import json
import os
import subprocess
import sys

import pytest

from util import RINGWAY, SANITIZED, SLOW, TOP

BENCH = os.path.join(TOP, "bench", "bench")
BUILD = os.path.dirname(RINGWAY)


def bench(*args):
    done = subprocess.run([sys.executable, BENCH, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=50 * SLOW)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_bench_selftest():
    code, out, err = bench("--selftest")
    assert code == 0 and "self tests passed" in out, out + err


@pytest.mark.parametrize("word, reason", [("SUITE=relais", "there is no relais"), ("ROUNDS=0", "ROUNDS: 0"), ("PIN=x", "PIN: x"),
                                          ("STREAMS=1,,2", "STREAMS: not a list"), ("--fast", "what is --fast")])
def test_bench_refuses(word, reason):
    code, out, err = bench(word)
    assert code == 2 and reason in err and not out


@pytest.mark.skipif(SANITIZED is not None, reason="the loads of the benchmark are too much for a sanitizer")
def test_bench_short_run(tmp_path):
    """One round of three suites: a report with all, samples, exit 0; `bare` relays by splice and by copy."""
    if os.geteuid() != 0:
        pytest.skip("bench needs root, for its network namespace")
    for program in ("load", "bare", "micro"):
        if not os.access(os.path.join(BUILD, "bench", program), os.X_OK):
            pytest.skip("bench/%s is not built ('make bench/%s' in the build folder)" % (program, program))
    results = tmp_path / "RESULTS.md"
    code, out, err = bench("--build", BUILD, "--results", str(results), "--samples", str(tmp_path / "samples"), "SUITE=relay,ping,micro",
                           "PEERS=bare", "ROUNDS=1", "DURATION=0.1", "CONC_LIST=4", "STREAMS=4")
    assert code == 0, out + err
    text = results.read_text()
    assert "### relay: 4 streams" in text and "### ping: 4 connections" in text and "socks_request" in text and "failed" not in text, text
    assert "MISS" in out or "PASS" in out
    samples = [json.loads(line) for line in (tmp_path / "samples").read_text().splitlines()]
    assert {s["suite"] for s in samples} == {"relay", "ping", "micro"}
    for suite in ("relay", "ping"):
        assert [s["contender"] for s in samples if s["suite"] == suite] == ["ringway", "ringway-epoll", "ringway-user", "bare"]
    assert str(tmp_path) not in text and os.uname().nodename not in text

# SPDX-License-Identifier: ISC
"""The access log read strictly: a line that is not exactly of the form of
SPEC 13.2 fails the test."""

import json
import re

from util import wait_until

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
QUOTED = r'"((?:[ !#-\[\]-~]|\\x[0-9a-f]{2})*)"'
BARE = r"((?:[!#-\[\]-~]|\\x[0-9a-f]{2})+)"
TEXT = re.compile(
    "(" + TIME.pattern + ") " + BARE + " " + QUOTED + " host=" + BARE + " upstream=" + BARE
    + r" status=(\d+) bytes=(\d+) cache=(-|[A-Z]+) acl=(-|ALLOW|DENY) rule=" + QUOTED
    + r" dur_us=(\d+) user=" + BARE + r" proto=(-|[a-z0-9]+) up=(\d+) id=(\d+)")
FIELDS = ("time", "client", "request", "host", "upstream", "status", "bytes", "cache", "acl", "rule", "dur_us", "user",
          "proto", "up", "id")
NUMBERS = ("status", "bytes", "dur_us", "up", "id")


class Line(dict):
    """Fields as attributes; "-" and JSON's null are None."""

    __getattr__ = dict.__getitem__


def parse_text(raw):
    m = TEXT.fullmatch(raw.decode("ascii"))
    assert m, "not a line of the access log: %r" % raw
    line = Line(zip(FIELDS, (None if v == "-" else v for v in m.groups())))
    for key in NUMBERS:
        line[key] = int(line[key])
    return line


def parse_json(raw):
    line = Line(json.loads(raw.decode("utf-8")))
    assert tuple(line) == FIELDS, list(line)
    assert TIME.fullmatch(line.time), line.time
    for key in FIELDS:
        assert isinstance(line[key], int) if key in NUMBERS else line[key] is None or isinstance(line[key], str), (key, line)
    return line


def read(path, parse=parse_text):
    """All lines; the file has to end with a newline."""
    with open(path, "rb") as f:
        data = f.read()
    assert not data or data.endswith(b"\n"), "a line is cut: %r" % data[-200:]
    return [parse(raw) for raw in data.splitlines()]


def wait_lines(path, count, parse=parse_text, timeout=5.0):
    """Waits for that many, and that there are no more."""
    def enough():
        try:
            with open(path, "rb") as f:
                return f.read().count(b"\n") >= count
        except FileNotFoundError:
            return False
    wait_until(enough, timeout, "%d lines in %s" % (count, path))
    lines = read(path, parse)
    assert len(lines) == count, lines
    return lines

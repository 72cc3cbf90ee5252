# SPDX-License-Identifier: ISC
"""bench/RESULTS.md: one section for each suite between marks, so that a run
replaces what it has measured and keeps the rest."""

import re

from peers import BASE, FLOOR, OURS, RingwayEpoll
from stats import SPREAD_MAX, Table, losses

EPOLL = RingwayEpoll.name
NOISE = 1.05		# below it the two are as good as equal

HEAD = """# What was measured

Written by `make bench`; what is edited here by hand is lost.  [HACKING.md](../HACKING.md) tells how to run it.

"""

METHOD = """## Method

ringway and its peers run side by side in a private network namespace over loopback with cubic, each with {workers} and
without logs, pinned to {pin}.
A load generator of one thread plays clients and origin, checks that answers are right, and reads the CPU time of the
proxy's whole process tree, the kernel's work for it included, for just the measured window. In each round every
contender is measured once, and every second round goes in the reverse order. Values are medians over the rounds, the
spread is largest by smallest, and ratios, always of a contender to `{base}`, are medians of the ratios within a round.
Where a proxy does not use its core whole, the load generator, which spins on its own core, is what limits the rate.
Senders of bulk have TCP_CORK set, as if they sent a file: all their segments are full.

`ringway` is io_uring, `ringway-epoll` epoll, `ringway-user` io_uring with `user: nobody`, which has the kernel's
limits of an ordinary user. `nginx` has the buffer that it comes with, `nginx-64k` one that suits bulk. `{floor}` is no
proxy but bench/bare.c, epoll and splice(2), or recv(2) and send(2), with nothing around them: what it needs is the
kernel's part, and no relay of its kind can need less. What it has with a goal's peer stands beside ringway's.
"""


def _mark(name, end=False):
    return "<!-- %s%s -->" % ("/" if end else "", name)


def sections(text):
    """The sections of an earlier report, by name."""
    return {m.group(1): m.group(2) for m in
            re.finditer(r"^<!-- ([a-z0-9-]+) -->\n(.*?)^<!-- /\1 -->$", text, re.MULTILINE | re.DOTALL)}


def _cells_of(text):
    """A text as a cell of a table."""
    return text.replace("|", "\\|")


def _rows(suite, table, cell):
    main = suite.metrics[0]
    lines = ["| | %s | spread | ratio | %s |" % (main.title, " | ".join(m.title for m in suite.metrics[1:])),
             "| --- " + "| ---: " * (len(suite.metrics) + 2) + "|"]
    for who in sorted(table.contenders(cell.key), key=_rank):
        failed = table.failed(cell.key, who)
        if failed:
            lines.append("| %s | failed: %s |%s" % (who, _cells_of(failed), " |" * (len(suite.metrics) + 1)))
            continue
        spread, ratio = table.spread(cell.key, who, main.key), table.ratio(cell.key, who, BASE, main.key)
        lines.append("| %s | %s | %s | %s | %s |" % (
            who, main.show(table.median(cell.key, who, main.key)),
            "-" if spread is None else "%.2f" % spread, "-" if ratio is None else "%.2f" % ratio,
            " | ".join(m.show(table.median(cell.key, who, m.key)) for m in suite.metrics[1:])))
    return lines


def _rank(name):
    """ringway first, peers by name."""
    ours = [c.name for c in OURS]
    return (ours.index(name) if name in ours else len(ours), name)


def _one_table(suite, table, cells):
    """For suites with ringway alone: a row for each cell."""
    main = suite.metrics[0]
    lines = ["| | %s | spread | %s |" % (main.title, " | ".join(m.title for m in suite.metrics[1:])),
             "| --- " + "| ---: " * (len(suite.metrics) + 1) + "|"]
    for cell in cells:
        spread = table.spread(cell.key, BASE, main.key)
        lines.append("| %s | %s | %s | %s |" % (
            cell.title, main.show(table.median(cell.key, BASE, main.key)), "-" if spread is None else "%.2f" % spread,
            " | ".join(m.show(table.median(cell.key, BASE, m.key)) for m in suite.metrics[1:])))
    return lines


def goal_lines(suite, table, cells):
    titles = {c.key: c.title for c in cells}
    lines = []
    for goal in suite.goals():
        for v in goal.verdicts(table, titles):
            word = {True: "PASS", False: "MISS", None: "OPEN"}[v["met"]]
            lines.append("- %s: %s, %s, %s: %s" % (word, suite.name, titles[v["cell"]], v["subject"], v["text"]))
    return lines


def weak_lines(suite, table, cells, goals):
    """Goals missed, rows in which a peer is better, rows that can't be trusted."""
    ours = [c.name for c in OURS]
    missed = len([g for g in goals if g.startswith("- MISS")])
    lines = ["- %d of the goals above %s missed." % (missed, "is" if missed == 1 else "are")] if missed else []
    lines += ["- cause: " + cause for cause in suite.causes if missed]
    for cell in cells:
        here = table.contenders(cell.key)
        for metric in (m for m in suite.metrics if m.loses):
            for peer, times in losses(table, cell.key, BASE, [w for w in here if w not in ours + [FLOOR]], metric):
                lines.append("- %s is better than %s: %s, %s: %s %s to %s (%.2f x)" % (
                    peer, BASE, suite.name, cell.title, metric.title, metric.show(table.median(cell.key, peer, metric.key)),
                    metric.show(table.median(cell.key, BASE, metric.key)), times))
        lines += ["- epoll is better than io_uring: %s, %s: %s %.2f x" % (suite.name, cell.title, suite.metrics[0].title, times)
                  for _, times in losses(table, cell.key, BASE, [EPOLL], suite.metrics[0]) if times > NOISE]
        for who in here:
            spread = table.spread(cell.key, who, suite.metrics[0].key)
            if spread is not None and spread > SPREAD_MAX:
                lines.append("- wide spread, trust it less: %s, %s, %s: %s %.2f x from least to most" % (
                    suite.name, cell.title, who, suite.metrics[0].title, spread))
    return lines + _failures(suite, table, cells)


def _failures(suite, table, cells):
    """Of ours, each reason once with the cells in which it came."""
    where = {}
    for who in (c.name for c in OURS):
        for cell in cells:
            if table.failed(cell.key, who):
                where.setdefault((who, table.failed(cell.key, who)), []).append(cell.title)
    return ["- failed: %s, %s: %s (%s)" % (suite.name, who, why, "all" if len(titles) == len(cells) else "; ".join(titles))
            for (who, why), titles in where.items()]


def section(suite, samples, stamp):
    """The text of a suite's section."""
    table, cells = Table(samples), suite.cells()
    out = ["## %s" % suite.name, "", suite.about, "", stamp, ""]
    if suite.network:
        for cell in cells:
            if table.contenders(cell.key):
                out += ["### %s: %s" % (suite.name, cell.title), ""] + _rows(suite, table, cell) + [""]
    else:
        out += _one_table(suite, table, cells) + [""]
    goals = goal_lines(suite, table, cells)
    if goals:
        out += ["### %s: goals" % suite.name, ""] + goals + [""]
    weak = weak_lines(suite, table, cells, goals)
    out += ["### %s: weak spots" % suite.name, ""] + (weak or ["None in this run."]) + [""]
    return "\n".join(out)


def _counts(parts):
    """How the goals of all sections stand, in one line each."""
    out = []
    for name, text in parts:
        goals = re.findall(r"^- (PASS|MISS|OPEN): ", text, re.MULTILINE)
        weak = len(re.findall(r"^- \S+ is better than ", text, re.MULTILINE))
        out.append("| [%s](#%s) | %d | %d | %d | %d |" % (name, name, goals.count("PASS"), goals.count("MISS"),
                                                      goals.count("OPEN"), weak))
    return out


def document(old, new, order, facts, skipped, method):
    """The whole file.  `old` is its text so far, `new` the sections of this
    run by name, `order` the names of all suites."""
    known = sections(old)
    known.update(new)
    parts = [(name, known[name]) for name in order if name in known]
    out = [HEAD, "| suite | goals met | missed | open | rows where a peer is better |\n| --- | ---: | ---: | ---: | ---: |\n"]
    out += [line + "\n" for line in _counts(parts)]
    out += ["\n## Machine\n\nOf the last run (each suite tells when it was measured):\n\n"]
    out += ["- %s: %s\n" % pair for pair in facts]
    out += ["- not here: %s: %s\n" % pair for pair in skipped]
    out += ["\n", METHOD.format(base=BASE, floor=FLOOR, **method)]
    for name, text in parts:
        out.append("\n%s\n%s%s\n" % (_mark(name), text.rstrip("\n") + "\n", _mark(name, True)))
    return "".join(out)

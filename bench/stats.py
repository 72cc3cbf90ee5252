# SPDX-License-Identifier: ISC
"""Numbers from samples: medians, spreads, ratios of the same round, goals.
Pure: no files, no processes."""

from statistics import median


class Metric:
    """What a column shows.  `digits` is for printing, `less` tells whether less is better."""

    def __init__(self, key, title, digits, less=True, loses=True):
        self.key, self.title, self.digits, self.less = key, title, digits, less
        self.loses = loses		# whether being behind a peer here is a weak spot

    def show(self, value):
        return "-" if value is None else "%.*f" % (self.digits, value)


class Table:
    """The samples of a suite.  A sample is a dict with cell, contender, round
    and values (by metric); or with failed, a reason, in place of values."""

    def __init__(self, samples):
        self.samples = samples
        self._by = {}
        self.failures = {}
        for s in samples:
            place = (s["cell"], s["contender"])
            if "failed" in s:
                self.failures[place] = s["failed"]
            else:
                self._by.setdefault(place, {})[s["round"]] = s["values"]

    def contenders(self, cell):
        """In the order of the samples' first round."""
        seen = []
        for s in self.samples:
            if s["cell"] == cell and s["contender"] not in seen:
                seen.append(s["contender"])
        return seen

    def failed(self, cell, contender):
        return self.failures.get((cell, contender))

    def rounds(self, cell, contender, key):
        """Value by round."""
        return {r: v[key] for r, v in self._by.get((cell, contender), {}).items() if v.get(key) is not None}

    def median(self, cell, contender, key):
        values = self.rounds(cell, contender, key).values()
        return median(values) if values else None

    def spread(self, cell, contender, key):
        """Largest by smallest; None for fewer than two rounds."""
        values = list(self.rounds(cell, contender, key).values())
        return max(values) / min(values) if len(values) > 1 and min(values) > 0 else None

    def ratio(self, cell, contender, base, key):
        """Median of the ratios within a round: what slows a whole round down
        cancels out."""
        mine, theirs = self.rounds(cell, contender, key), self.rounds(cell, base, key)
        ratios = [mine[r] / theirs[r] for r in mine if theirs.get(r)]
        return median(ratios) if ratios else None

    def ratio_to_best(self, cell, contender, others, metric):
        """As ratio(), against whoever of the others is best over all rounds.
        Returns the ratio and the name of the best, or None twice."""
        medians = [(self.median(cell, o, metric.key), o) for o in others]
        medians = [m for m in medians if m[0] is not None]
        if not medians:
            return None, None
        best = (min if metric.less else max)(medians)[1]
        return self.ratio(cell, contender, best, metric.key), best


class Goal:
    """A promise about cells: a limit for the value itself, or, with `others`,
    for the ratio to the best of them.  `floor` is who shows what can be had:
    its own ratio is told as well."""

    def __init__(self, cells, metric, subjects, others=(), most=None, least=None, note="", floor=None):
        self.cells, self.metric, self.subjects, self.others = cells, metric, subjects, others
        self.most, self.least, self.note, self.floor = most, least, note, floor

    def verdicts(self, table, cells):
        """A dict for each row that the goal is about: cell, subject, value,
        text, and met (None when there is nothing to compare)."""
        out = []
        for cell in self.cells:
            if cell not in cells:
                continue
            for subject in self.subjects:
                if subject in table.contenders(cell):
                    out.append(self._verdict(table, cell, subject))
        return out

    def _verdict(self, table, cell, subject):
        key, best = self.metric.key, None
        if self.others:
            value, best = table.ratio_to_best(cell, subject, self.others, self.metric)
        else:
            value = table.median(cell, subject, key)
        limit = self.most if self.most is not None else self.least
        bound = "at most" if self.most is not None else "at least"
        unit = " x" if self.others else ""
        failed = table.failed(cell, subject)
        if value is None:
            met = False if failed else None
            found = "failed: " + failed if failed else "nothing to compare with: no %s" % " or ".join(self.others or ["sample"])
        else:
            met = value <= limit if self.most is not None else value >= limit
            found = "%.3f x %s's" % (value, best) if best else self.metric.show(value)
        had = table.ratio(cell, self.floor, best, key) if self.floor and best else None
        floor = "" if had is None else "; %s: %.3f x" % (self.floor, had)
        return {"cell": cell, "subject": subject, "value": value, "met": met,
                "text": "%s: %s (goal: %s %.3g%s%s%s)" % (self.metric.title, found, bound, limit, unit, self.note, floor)}


SPREAD_MAX = 1.3


def losses(table, cell, ours, peers, metric):
    """Peers that beat `ours` on a metric: (peer, how many times better)."""
    out = []
    for peer in peers:
        ratio = table.ratio(cell, peer, ours, metric.key)
        if ratio and (ratio < 1 if metric.less else ratio > 1):
            out.append((peer, 1 / ratio if metric.less else ratio))
    return out

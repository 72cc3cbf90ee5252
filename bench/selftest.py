# SPDX-License-Identifier: ISC
"""bench --selftest: medians, ratios, goals and the report, with made-up samples."""

import machine
import peers
import report
import run
import stats
from stats import Goal, Metric, Table


def sample(contender, round_number, cell="1", **values):
    return {"suite": "made-up", "cell": cell, "contender": contender, "round": round_number, "values": values}


class Cell:
    key, title = "1", "1 stream"


class MadeUp:
    name, about, network = "made-up", "Nothing.", True
    COST, RATE = Metric("cost", "CPU", 2), Metric("rate", "rate", 0, less=False)
    metrics = (COST, RATE)
    causes = ("It is slow.",)
    limit = 0.6

    def cells(self):
        return [Cell()]

    def goals(self):
        return [Goal(["1", "4"], self.COST, ("ringway", "ringway-user"), ["haproxy"], most=self.limit)]


SAMPLES = [
    sample("ringway", 0, cost=1.0, rate=10), sample("haproxy", 0, cost=2.0, rate=12),
    # A round in which the machine was slow, for both.
    sample("haproxy", 1, cost=8.0, rate=3), sample("ringway", 1, cost=4.0, rate=2.5),
    sample("ringway", 2, cost=1.2, rate=10), sample("haproxy", 2, cost=2.0, rate=12),
    {"suite": "made-up", "cell": "1", "contender": "nginx", "round": 0, "failed": "a | b"},
]


def test_medians_and_spread():
    t = Table(SAMPLES)
    assert t.median("1", "ringway", "cost") == 1.2
    assert t.spread("1", "ringway", "cost") == 4.0
    assert t.median("1", "nginx", "cost") is None and t.spread("1", "nginx", "cost") is None
    assert t.contenders("1") == ["ringway", "haproxy", "nginx"]


def test_ratios_are_of_the_same_round():
    t = Table(SAMPLES)
    assert t.ratio("1", "haproxy", "ringway", "cost") == 2.0
    assert t.ratio("1", "ringway", "ringway", "cost") == 1.0
    assert t.ratio("1", "nginx", "ringway", "cost") is None
    # A round that only one of them has does not count.
    more = Table(SAMPLES + [sample("haproxy", 3, cost=90.0)])
    assert more.ratio("1", "haproxy", "ringway", "cost") == 2.0


def test_best_of_several():
    t = Table(SAMPLES + [sample("danted", 0, cost=9.0, rate=1)])
    assert t.ratio_to_best("1", "ringway", ["danted", "haproxy", "nginx"], MadeUp.COST) == (0.5, "haproxy")
    assert t.ratio_to_best("1", "ringway", ["danted"], MadeUp.RATE) == (10.0, "danted")
    assert t.ratio_to_best("1", "ringway", ["squid"], MadeUp.COST) == (None, None)


def test_goals():
    t = Table(SAMPLES)
    verdicts = MadeUp().goals()[0].verdicts(t, {"1": ""})
    # No row for who has not taken part, nor for a cell that was not measured.
    assert [(v["subject"], v["met"]) for v in verdicts] == [("ringway", True)]
    assert Goal(["1"], MadeUp.COST, ("ringway",), ["haproxy"], most=0.4).verdicts(t, {"1": ""})[0]["met"] is False
    assert Goal(["1"], MadeUp.COST, ("ringway",), ["squid"], most=0.4).verdicts(t, {"1": ""})[0]["met"] is None
    assert Goal(["1"], MadeUp.RATE, ("ringway",), least=10).verdicts(t, {"1": ""})[0]["met"] is True
    # A failure of ours is a miss.
    assert Goal(["1"], MadeUp.COST, ("nginx",), ["haproxy"], most=9).verdicts(t, {"1": ""})[0]["met"] is False


def test_weak_spots():
    t = Table(SAMPLES)
    assert stats.losses(t, "1", "ringway", ["haproxy", "nginx"], MadeUp.RATE) == [("haproxy", 1.2)]
    assert not stats.losses(t, "1", "ringway", ["haproxy"], MadeUp.COST)
    # What can be had is told, and is no peer.
    floor = SAMPLES + [sample("bare", r, cost=0.9, rate=20) for r in range(3)]
    goal = Goal(["1"], MadeUp.COST, ("ringway",), ["haproxy"], most=0.4, floor="bare")
    assert goal.verdicts(Table(floor), {"1": ""})[0]["text"] == "CPU: 0.500 x haproxy's (goal: at most 0.4 x; bare: 0.450 x)"
    assert "bare is better" not in report.section(MadeUp(), floor, "Now.")
    suite = MadeUp()
    suite.limit = 0.4
    text = report.section(suite, SAMPLES, "Now.")
    assert "- MISS: made-up, 1 stream, ringway: CPU: 0.500 x haproxy's (goal: at most 0.4 x)" in text
    assert "- 1 of the goals above is missed.\n- cause: It is slow.\n" in text
    assert "cause:" not in report.section(MadeUp(), SAMPLES, "Now."), "nothing is missed"
    assert "- haproxy is better than ringway: made-up, 1 stream: rate 12 to 10 (1.20 x)" in text
    assert "- wide spread, trust it less: made-up, 1 stream, ringway" in text
    assert "| nginx | failed: a \\| b | | | |" in text
    assert "| haproxy | 2.00 | 4.00 | 2.00 | 12 |" in text


def test_a_run_replaces_its_own_section():
    method = {"workers": "one worker", "pin": "a core"}
    names = ["relay", "ping", "churn"]
    first = report.document("", {"relay": "old relay\n", "churn": "- PASS: x\n- MISS: y\n"}, names, [("CPU", "a")], [], method)
    second = report.document(first, {"relay": "new relay", "ping": "the ping"}, names, [("CPU", "b")],
                             [("squid", "gone")], method)
    assert "old relay" not in second and second.count("new relay") == 1
    assert second.index("new relay") < second.index("the ping") < second.index("- MISS: y")
    assert "- CPU: b" in second and "- CPU: a" not in second and "squid: gone" in second
    assert "| [churn](#churn) | 1 | 1 | 0 | 0 |" in second
    assert report.document(second, {}, names, [("CPU", "b")], [("squid", "gone")], method) == second


def test_order_turns_each_round():
    assert run.order_of("abc", 0) == ["a", "b", "c"] and run.order_of("abc", 1) == ["c", "b", "a"]


def test_cpu_lists():
    assert machine.cpu_list("0-2,5") == [0, 1, 2, 5]


def test_a_tree_is_ended_as_a_whole():
    process = machine.spawn(["sh", "-c", "sleep 1000 & sleep 1001 & wait"], None)
    while len(machine.tree(process.pid)) < 3:
        pass
    pids = machine.tree(process.pid)
    assert machine.memory_kib(process.pid) > 0 and machine.cpu_s(process.pid) >= 0
    machine.end(process)
    assert not [p for p in pids if machine.tree(p)]


def test_who_is_known():
    assert peers.names_of(["none"]) == [] and "haproxy" in peers.names_of(["all"])
    try:
        peers.names_of(["nginx", "apache"])
    except machine.Refused as e:
        assert "there is no apache" in str(e)
    else:
        raise AssertionError("apache was taken")


def main():
    machine.settle()
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    for name, f in tests:
        f()
    print("bench: %d self tests passed" % len(tests))
    return 0

# SPDX-License-Identifier: ISC
"""What is measured: the suites, their cells (a row of conditions), and the
goals that ringway has set itself.  A new suite is a class here and a name in
SUITES."""

import json
import os
import subprocess
import time

import load
import machine
from peers import BASE, FLOOR, OURS, Failed
from stats import Goal, Metric

RING, EPOLL, USER = (c.name for c in OURS)
WARMUP = 0.4		# of the window


class Cell:
    def __init__(self, key, title, **args):
        self.key, self.title, self.args = key, title, args


class Suite:
    """The usual kind: all contenders run side by side and are measured one
    after the other, in rounds."""
    name = ""
    about = ""
    mode = ""
    metrics = ()		# the first is the one that ratios and spreads are of
    rounds = None		# None: as asked for

    def __init__(self, options):
        self.options = options

    def cells(self):
        raise NotImplementedError

    def goals(self):
        return []

    def via(self, contender, cell):
        """The way by which this contender takes part in the cell, or None."""
        del cell
        return contender.vias[0] if contender.vias else None

    def takes_part(self, contender):
        return ((not contender.suites or self.name in contender.suites) and
                any(self.via(contender, c) for c in self.cells()))

    def seconds(self, cell, contender):
        """About how long a measurement takes, for the forecast."""
        del cell, contender
        return self.options.duration * (1 + WARMUP) + 0.3

    def check(self, contender):
        """That what arrives is what was sent, once, before anything is measured."""
        for via in sorted({self.via(contender, c) for c in self.cells()} - {None}):
            told = load.run(self.options, contender, self.mode, via, 4, 0.3, 0.0, ["--check"] + self.more(contender))
            if not told.get("checked"):
                raise Failed("the load generator has checked nothing")

    def more(self, contender):
        """What else this contender's load generator is told."""
        del contender
        return []

    def values(self, told, cell):
        """What the metrics need, from the load generator's result."""
        raise NotImplementedError

    def measure(self, contender, cell):
        more = self.more(contender) + cell.args.get("more", [])
        told = load.run(self.options, contender, self.mode, self.via(contender, cell), cell.args["conns"],
                        self.options.duration, self.options.duration * WARMUP, more)
        values = self.values(told, cell)
        values["busy"] = 100.0 * told["cpu_s"] / told["seconds"]
        values["memory"] = machine.memory_kib(contender.pid()) / 1024.0
        return values

    causes = ()			# of goals that are missed, as far as they are known
    fresh = False		# whether each measurement has a process of its own
    network = True		# whether it wants a namespace and contenders


def some(amount):
    """A divisor: nothing moved is a failure, no division by zero."""
    if not amount:
        raise Failed("nothing came through")
    return float(amount)


BUSY = Metric("busy", "proxy CPU %", 0, loses=False)
MEMORY = Metric("memory", "MiB", 1, loses=False)


def streams(n):
    return "%s stream%s" % (format(n, ","), "" if n == 1 else "s")


class Relay(Suite):
    name, mode = "relay", "bulk"
    about = "Bytes through standing tunnels, as fast as they go: CPU seconds of the proxy for a GiB."
    COST = Metric("cost", "CPU s/GiB", 4)
    metrics = (COST, Metric("rate", "GiB/s", 2, less=False), BUSY, MEMORY)
    causes = ("97 % of ringway's cost here is the kernel's TCP and splice (perf).  What `bare` misses too, no relay by splice "
              "can reach here.",)

    def cells(self):
        return [Cell("%d" % n, streams(n), conns=n) for n in self.options.streams]

    def values(self, told, cell):
        gib = some(told.get("bytes")) / (1 << 30)
        return {"cost": told["cpu_s"] / gib, "rate": told.get("gib_per_s", gib / told["seconds"])}

    def more(self, contender):
        # That a stream ended on one side goes on is ours to keep; not all peers do.
        return [] if contender.ours else ["--no-half-close"]

    def goals(self):
        ours, keys = (RING, USER), [c.key for c in self.cells()]
        return [Goal(["1"], self.COST, ours, ["haproxy"], most=0.6, floor=FLOOR),
                Goal(["64"], self.COST, ours, ["haproxy"], most=0.9, floor=FLOOR),
                Goal(["1", "64"], self.COST, ours, ["nginx"], most=0.4, floor=FLOOR),
                Goal(["1", "64"], self.COST, ours, ["nginx-64k"], most=0.4, floor=FLOOR),
                Goal(["1", "64"], self.COST, ours, ["danted"], most=0.4, floor=FLOOR),
                Goal(keys, self.COST, (EPOLL,), [RING], most=1.2)]


class Ping(Suite):
    name, mode = "ping", "ping"
    about = "A small message and its answer over standing tunnels, always one under way in each: CPU of the proxy for a request."
    COST = Metric("cost", "CPU us/request", 2)
    P99 = Metric("p99", "p99 us", 0)
    metrics = (COST, Metric("rate", "requests/s", 0, less=False), Metric("p50", "p50 us", 0), P99, BUSY, MEMORY)
    causes = ("More than nine tenths of a request is the kernel's TCP (perf).  What `bare` misses too, no relay by epoll, recv "
              "and send can reach here.",)

    def cells(self):
        return [Cell("%d" % n, "%s connection%s" % (format(n, ","), "" if n == 1 else "s"), conns=n)
                for n in self.options.conc_list]

    def values(self, told, cell):
        return {"cost": 1e6 * told["cpu_s"] / some(told.get("requests")), "rate": told["rps"],
                "p50": told["p50_us"], "p99": told["p99_us"]}

    def goals(self):
        ours, keys = (RING, USER), [c.key for c in self.cells()]
        return [Goal(["64"], self.COST, ours, ["nginx"], most=0.8, floor=FLOOR),
                Goal(["1000"], self.COST, ours, ["nginx"], most=0.6, floor=FLOOR),
                # Two equals differ by some per cent from round to round.
                Goal(["64", "1000"], self.P99, ours, ["nginx"], most=1.05, note=", which is no worse but for noise"),
                Goal(keys, self.COST, (EPOLL,), [RING], most=1.2)]


class Churn(Suite):
    name, mode = "churn", "churn"
    about = "Sessions from connect to close with one small exchange each: sessions for a CPU second of the proxy."
    PER_CPU = Metric("per_cpu", "sessions/CPU s", 0, less=False)
    metrics = (PER_CPU, Metric("rate", "sessions/s", 0, less=False), Metric("p50", "p50 us", 0),
               Metric("p99", "p99 us", 0), BUSY, MEMORY)

    def cells(self):
        n = self.options.conc
        return [Cell(via, "%s, %d at a time" % (name, n), conns=n, via=via)
                for via, name in (("socks5", "SOCKS5"), ("connect", "CONNECT"))]

    def via(self, contender, cell):
        return cell.args["via"] if cell.args["via"] in contender.vias else None

    def values(self, told, cell):
        sessions = some(told.get("sessions"))
        # Some peers take next to none in a window; their clock may stand still.
        return {"per_cpu": sessions / max(told["cpu_s"], 1e-6), "rate": told["sps"],
                "p50": told.get("p50_us"), "p99": told.get("p99_us")}

    def goals(self):
        return [Goal(["socks5"], self.PER_CPU, (RING, USER), ["microsocks", "danted"], least=1.2),
                Goal(["connect"], self.PER_CPU, (RING, USER), ["tinyproxy", "squid"], least=1.2),
                Goal(["socks5", "connect"], self.PER_CPU, (EPOLL,), [RING], least=1 / 1.2)]


class Idle(Suite):
    name, mode = "idle", "idle"
    about = ("Memory of the proxy's processes for tunnels that stand and are still, and for clients that have connected "
             "and said nothing, beyond what it has with 100 of them after those have been used (ringway's receive ring "
             "is in that); CPU while nothing moves.  Kernel memory of the sockets is not counted.")
    PER = Metric("per", "KiB each", 2)
    CPU = Metric("cpu", "CPU % idle", 3, loses=False)
    metrics = (PER, CPU, Metric("cpu_ms", "CPU ms", 1, loses=False), Metric("watched", "in s", 0, loses=False),
               Metric("none", "MiB with none", 1, loses=False), Metric("few", "MiB with 100", 1, loses=False),
               Metric("many", "MiB with all", 1, loses=False))
    rounds = 1
    fresh = True
    FEW = 100
    WATCH_S, WATCH_PEERS_S = 30, 5

    def cells(self):
        # Two descriptors a tunnel, in proxy and load generator.
        tunnels = min(self.options.sessions, (machine.nofile() - 200) // 2)
        clients = min(self.options.sessions * 19000 // 9900, machine.nofile() - 1000)
        return [Cell("tunnels", "%s tunnels" % format(tunnels, ","), mode="idle", conns=tunnels),
                Cell("clients", "%s idle clients" % format(clients, ","), mode="idle-clients", conns=clients)]

    def via(self, contender, cell):
        # Who forwards without being asked connects at once: no idle client there.
        via = contender.vias[0] if contender.vias else None
        return None if cell.key == "clients" and via == "plain" else via

    def watch_s(self, contender):
        return self.WATCH_S if contender.ours else self.WATCH_PEERS_S

    def seconds(self, cell, contender):
        return self.watch_s(contender) + 6 + cell.args["conns"] / 5000.0

    def check(self, contender):
        """All are asked again at the end of each measurement."""

    def hold(self, contender, cell, conns, watch_s):
        """Memory in MiB, CPU seconds and seconds while so many stand."""
        pid = contender.pid()
        with load.Load(self.options, contender, cell.args["mode"], self.via(contender, cell), conns, watch_s + 2) as idle:
            if not idle.line().get("ready"):
                raise Failed("the load generator was not ready")
            time.sleep(1)
            memory, cpu, start = machine.memory_kib(pid) / 1024.0, machine.cpu_s(pid), time.monotonic()
            time.sleep(watch_s)
            cpu, seconds = machine.cpu_s(pid) - cpu, time.monotonic() - start
            idle.result()
        return memory, cpu, seconds

    def measure(self, contender, cell):
        none = machine.memory_kib(contender.pid()) / 1024.0
        if cell.key == "tunnels":
            load.run(self.options, contender, "ping", self.via(contender, cell), self.FEW, 0.3)
        few = self.hold(contender, cell, self.FEW, 0.2)[0]
        many, cpu, seconds = self.hold(contender, cell, cell.args["conns"], self.watch_s(contender))
        return {"per": 1024.0 * (many - few) / max(1, cell.args["conns"] - self.FEW), "cpu": 100.0 * cpu / seconds,
                "cpu_ms": 1000.0 * cpu, "watched": seconds, "none": none, "few": few, "many": many}

    def goals(self):
        ours = (RING, EPOLL, USER)
        return [Goal(["tunnels"], self.PER, ours, most=2),
                Goal(["tunnels", "clients"], self.CPU, ours, most=0.049, note=", which is 0.0 %")]


class Udp(Suite):
    name, mode = "udp", "udp"
    about = ("Datagrams to the origin through SOCKS5 UDP associations, no more under way than buffers hold; with GSO sender "
             "and receiver exchange many at once with the kernel.")
    PPS = Metric("pps", "datagrams/s", 0, less=False)
    COST = Metric("cost", "CPU s/million", 3)
    metrics = (PPS, COST, Metric("lost", "lost %", 2, loses=False), BUSY, MEMORY)

    def cells(self):
        return [Cell("%d-%d%s" % (size, n, "-gso" if gso else ""),
                     "%s bytes, %d association%s, %s GSO" % (format(size, ","), n, "" if n == 1 else "s",
                                                            "with" if gso else "without"),
                     conns=n, gso=gso, more=["--payload", str(size), "--gso", str(gso)])
                for gso in (0, 1) for n in (1, 64) for size in self.options.payloads]

    def via(self, contender, cell):
        return "socks5" if contender.udp else None

    def values(self, told, cell):
        got = some(told.get("received"))
        return {"pps": told.get("pps", got / told["seconds"]), "cost": 1e6 * told["cpu_s"] / got,
                "lost": 100.0 * told.get("lost", 0) / max(1, told.get("sent", 0))}

    def goals(self):
        return [Goal(["512-1", "512-64"], self.PPS, (RING, EPOLL), ["danted"], least=1.5),
                Goal(["512-1-gso", "512-64-gso"], self.PPS, (RING, EPOLL), ["danted"], least=8),
                Goal([c.key for c in self.cells()], self.COST, (RING,), [EPOLL], most=1.3)]


class Micro(Suite):
    """ringway's own code alone, by build/bench/micro, which has its own rounds."""
    name = "micro"
    about = "Single functions in a loop, warm caches: nanoseconds a call."
    NS = Metric("ns", "ns", 2)
    metrics = (NS, Metric("min_ns", "least ns", 2, loses=False))
    LIMITS = (("socks_request", 5.3), ("http_head_8", 276), ("whitelist_16k", 9.5), ("pool", 4.8))
    network = False

    def __init__(self, options):
        super().__init__(options)
        self.found = None

    def cells(self):
        return [Cell(item, item) for item in self.found or []]

    def all_samples(self, progress):
        argv = [os.path.join(self.options.build, "bench", "micro")] + (["--quick"] if self.options.rounds == 1 else [])
        progress.step("micro", "", 1, "ringway", 60)
        # One run after the other: what disturbs one does not disturb all.
        samples, self.found = [], []
        for r in range(self.options.rounds):
            process = machine.spawn(argv, self.options.proxy_cpus, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                out, err = process.communicate(timeout=300)
            finally:
                if process.poll() is None:
                    machine.end(process, 1.0)
            if process.returncode != 0:
                raise machine.Refused("bench: micro: exit status %d: %s" % (process.returncode,
                                                                          err.decode("utf-8", "replace").strip()[-200:]))
            for line in out.decode("utf-8", "replace").splitlines():
                told = json.loads(line)
                if told["micro"] not in self.found:
                    self.found.append(told["micro"])
                samples.append({"suite": self.name, "cell": told["micro"], "contender": BASE, "round": r,
                                "values": {"ns": told["ns"], "min_ns": told.get("min_ns")}})
        return samples

    def goals(self):
        return [Goal([item], self.NS, (BASE,), most=most) for item, most in self.LIMITS]


SUITES = (Relay, Ping, Churn, Idle, Micro, Udp)

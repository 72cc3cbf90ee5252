# SPDX-License-Identifier: ISC
"""The machine and its processes: a private network namespace, CPU time and
memory of process trees, facts for the report.  Knows nothing of proxies."""

import ctypes
import fcntl
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import time

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LOOPBACK = "127.0.0.1"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The machine does not let us; the text says what to do."""


def read(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return default


def write(path, text):
    """True when the kernel took it."""
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return True
    except OSError:
        return False


# -- set-up --------------------------------------------------------------------

def _loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(s, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _in_use():
    """The congestion control of both ends of a connection, as the kernel tells."""
    with socket.create_server((LOOPBACK, 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        with listener.accept()[0] as other:
            return {s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode() for s in (one, other)}


def _use_cubic():
    """Unlike BBR, cubic has no pacing timers, which would hide differences."""
    if not write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic"):
        # Where it is neither the system's default nor in tcp_allowed_congestion_control (kernel 5.15), a namespace
        # may not make it its default; but it may have it on a route.
        for prefix in ("127.0.0.0/8", "127.0.0.1"):
            try:
                subprocess.run(["ip", "route", "change", "table", "local", "local", prefix, "dev", "lo", "proto", "kernel",
                                "scope", "host", "src", LOOPBACK, "congctl", "cubic"], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            except (OSError, subprocess.CalledProcessError):
                pass
    if _in_use() != {"cubic"}:
        raise Refused("bench: cubic can't be had (modprobe tcp_cubic; the ip program of iproute2 is needed)")


def private_network():
    """Moves this process, and so all that it starts, into a network namespace
    of its own.  Nothing outside is changed, and it goes with the last process."""
    if os.geteuid() != 0:
        raise Refused("bench: needs root, for a network namespace of its own.  As root, run\n"
                      "    make bench          (or bench/bench, when all is built)\n"
                      "make bench SUITE=micro does without.")
    if _libc.unshare(CLONE_NEWNET) != 0:
        raise Refused("bench: no network namespace of its own (unshare: %s).\n"
                      "In a container it wants CAP_SYS_ADMIN." % os.strerror(ctypes.get_errno()))
    _loopback_up()
    _use_cubic()
    ipv4 = "/proc/sys/net/ipv4/"
    # Sessions by the ten thousand leave their ports in TIME_WAIT.
    write(ipv4 + "ip_local_port_range", "10240 65535")
    write(ipv4 + "tcp_tw_reuse", "1")


def settle():
    """What else concerns this process and its children."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    write("/proc/self/autogroup", "-20")


def nofile():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def cpu_list(text):
    """"0-2,5" as a list."""
    cpus = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


# -- processes -----------------------------------------------------------------

def _parents():
    """Parent by process, for all processes."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read("/proc/%s/stat" % name)
            if stat:
                table[int(name)] = int(stat.rpartition(")")[2].split()[1])
    return table


def tree(root):
    """root and all that descend from it, those that run."""
    parents = _parents()
    found, queue = [], [root] if root in parents else []
    children = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def spawn(argv, cpus, files=0, **more):
    """Starts a process on these CPUs (None: any) that ends with this one."""
    def prepare():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # A group, so that Ctrl-C is ours alone; no session, which has an autogroup of its own.
        os.setpgid(0, 0)
        if cpus:
            os.sched_setaffinity(0, cpus)
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=prepare, **more)


def _kill(pids, sig):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except OSError:
            pass


def end(process, grace_s=3.0):
    """Ends a process of ours with its whole tree, and waits until it is gone."""
    pids = tree(process.pid)
    _kill([process.pid], signal.SIGTERM)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        pass
    # By now those whose parent has gone are ours, as the subreaper.
    known = set(pids)
    left = [pid for pid, parent in _parents().items() if pid in known or parent in known]
    _kill(left, signal.SIGKILL)
    process.wait()
    for pid in set(left) | known:
        try:
            os.waitpid(pid, 0)
        except OSError:
            pass


def cpu_s(root):
    """CPU seconds of the tree so far, in nanoseconds' resolution; ended threads
    are in the process' clock."""
    total = 0.0
    for pid in tree(root):
        try:
            # The process' CPU-time clock, clock_getcpuclockid(3): (~pid << 3) | CPUCLOCK_SCHED
            total += time.clock_gettime((~pid << 3) | 2)
        except OSError:
            pass
    return total


def memory_kib(root):
    """Proportional set size of the tree: shared pages are counted once."""
    total = 0
    for pid in tree(root):
        for line in read("/proc/%d/smaps_rollup" % pid).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


# -- facts ---------------------------------------------------------------------

def cpu_model():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def facts(cpus):
    """Pairs of name and text; nothing that names the machine or its user."""
    memory = 0
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            memory = int(line.split()[1])
    virtual = " hypervisor " in " " + read("/proc/cpuinfo").replace("\n", " ") + " "
    governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()
    system = ""
    for line in read("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            system = line.partition("=")[2].strip('"')
    pairs = [("CPU", "%s, %d usable%s" % (cpu_model(), cpus,
                                         ", a virtual machine" if virtual else "")),
             ("memory", "%.1f GiB" % (memory / 1048576.0)),
             ("system", system or platform.system()),
             ("kernel", platform.release()),
             ("congestion control", ", ".join(_in_use())),
             ("descriptors a process", str(nofile()))]
    if governor:
        pairs.append(("CPU governor", governor))
    return pairs

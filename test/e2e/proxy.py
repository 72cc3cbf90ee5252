# SPDX-License-Identifier: ISC
"""Starts and stops the program under test and reads the kernel's facts about
it.  One object is one process."""

import json
import os
import re
import signal
import socket
import subprocess
import time

from util import RINGWAY, SLOW, free_port, wait_until

SANITIZER_MARKS = re.compile(
    r"ERROR: (Address|Leak|Memory)Sanitizer|WARNING: ThreadSanitizer|runtime error:"
    r"|Assertion .* failed|AddressSanitizer:DEADLYSIGNAL|Sanitizer CHECK failed")

TCP_STATES = {1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2",
              6: "TIME_WAIT", 7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING"}

# Tests end with sessions open more often than not: do not wait 30 s for them.
BASE_CONFIG = {"workers": 2, "shutdown_timeout_s": 1}


def sanitizer_env(env=None):
    """The environment in which a sanitizer's finding fails the process."""
    full = dict(os.environ)
    for key, value in (("ASAN_OPTIONS", "exitcode=99:detect_leaks=1:halt_on_error=1"),
                       ("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:exitcode=99"),
                       ("TSAN_OPTIONS", "exitcode=66:halt_on_error=0")):
        full.setdefault(key, value)
    full.update(env or {})
    return full


def run(*args, timeout=20, env=None, wrap=(), stdin=subprocess.DEVNULL, cwd=None):
    """Runs the binary to its end: for the command line's tests."""
    done = subprocess.run([*wrap, RINGWAY, *map(str, args)], stdin=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout * SLOW, env=sanitizer_env(env), cwd=cwd)
    done.out = done.stdout.decode("utf-8", "replace")
    done.err = done.stderr.decode("utf-8", "replace")
    assert not SANITIZER_MARKS.search(done.err), done.err
    assert done.returncode >= 0, "killed by signal %d\n%s" % (-done.returncode, done.err)
    return done


def yaml_text(config):
    """JSON is YAML enough, one top-level key a line, so that errors have a
    line of their own."""
    return "".join("%s: %s\n" % (k, json.dumps(v)) for k, v in config.items())


def merge(base, extra):
    out = dict(base)
    for key, value in (extra or {}).items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = value
    return out


class Proxy:
    """`config` is merged into BASE_CONFIG and written as a file; `options` are
    -o KEY=VALUE.  `listen` replaces the one default listener."""

    def __init__(self, workdir, backend, config=None, listen=None, options=(), args=(), env=None,
                 wrap=(), preexec=None, name="ringway", use_file=True, port=None, protocols=None, pass_fds=()):
        self.dir = workdir
        self.backend = backend
        self.host = "127.0.0.1"
        self.port = port or free_port()
        self.unix = None
        if listen is None:
            listen = [{"addr": self.host, "port": self.port,
                       "protocols": protocols or ["socks5", "http"]}]
        self.listen = listen
        first = listen[0]
        if first["addr"].startswith("unix:"):
            self.unix = first["addr"][5:]
        else:
            self.host, self.port = first["addr"], first["port"]
            if self.host == "0.0.0.0":
                self.host = "127.0.0.1"
            elif self.host == "::":
                self.host = "::1"
        self.config = merge(merge(BASE_CONFIG, {"listen": listen}), config)
        self.argv = [*wrap, RINGWAY]
        self.config_path = os.path.join(str(workdir), name + ".yaml")
        if use_file:
            self.rewrite()
            self.argv += ["-c", self.config_path]
        if backend:
            self.argv += ["-b", backend]
        for option in options:
            self.argv += ["-o", option]
        self.argv += list(args)
        self.env = sanitizer_env(env)
        self.preexec = preexec
        self.pass_fds = pass_fds
        self.stderr_path = os.path.join(str(workdir), name + ".err")
        self.process = None
        self.returncode = None

    # -- life ------------------------------------------------------------

    def start(self, wait=True, timeout=10.0):
        with open(self.stderr_path, "wb") as err:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                            env=self.env, preexec_fn=self.preexec, cwd=str(self.dir),
                                            pass_fds=self.pass_fds)
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=10.0):
        def answers():
            if self.process.poll() is not None:
                raise AssertionError("proxy exited %d at start\n%s" % (self.process.returncode, self.log()))
            try:
                self.connect(timeout=1.0).close()
                return True
            except OSError:
                return False
        wait_until(answers, timeout, "proxy listens\n" + " ".join(self.argv), every=0.01)
        # Its sockets are there before it has become `user` and its loops run; a
        # log_level above info hides the line.
        end = time.monotonic() + 0.5 * SLOW
        while "started version=" not in self.log() and time.monotonic() < end:
            time.sleep(0.002)

    # -- its configuration while it runs ------------------------------------

    def rewrite(self, extra=None, text=None):
        """The file with `extra` merged in (a None takes a key out), or with
        this very text.  It is renamed into place: a reload under way must not
        read half of it."""
        if text is None:
            self.config = {k: v for k, v in merge(self.config, extra).items() if v is not None}
            text = yaml_text(self.config)
        with open(self.config_path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(self.config_path + ".new", self.config_path)

    def hup(self, refused=False, timeout=10.0):
        """SIGHUP, waits for what comes of it, and returns what was logged of it."""
        before = len(self.log())
        self.signal(signal.SIGHUP)
        words = ("reloaded generation=", "reload refused")
        wait_until(lambda: any(w in self.log()[before:] for w in words), timeout,
                   lambda: "the reload's result\n" + self.log()[before:], every=0.01)
        said = self.log()[before:]
        assert words[bool(refused)] in said, said
        return said

    def reload(self, extra=None, text=None, **kw):
        self.rewrite(extra, text)
        return self.hup(**kw)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, sig):
        os.kill(self.pid, sig)

    def wait(self, timeout=10.0):
        try:
            self.returncode = self.process.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError("proxy did not exit in %.1f s\n%s" % (timeout * SLOW, self.log())) from None
        return self.returncode

    def stop(self, check=True):
        """SIGTERM, and what every run owes: exit 0 and a clean sanitizer."""
        if self.process is None or self.returncode is not None:
            return
        try:
            if self.process.poll() is None:
                self.signal(signal.SIGTERM)
            self.wait(self.config.get("shutdown_timeout_s", 1) + 15)
        finally:
            self.kill()
        if check:
            self.check_end()

    def check_end(self, codes=(0,)):
        log = self.log()
        assert not SANITIZER_MARKS.search(log), "sanitizer or assertion:\n" + log[-12000:]
        assert self.returncode in codes, "exit code %s, expected %s\n%s" % (self.returncode, codes, log[-6000:])

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process is not None and self.returncode is None:
            self.returncode = self.process.returncode

    # -- reaching it -------------------------------------------------------

    def connect(self, timeout=10.0, rcvbuf=None, sndbuf=None, source=None):
        if self.unix:
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            where = self.unix
        else:
            s = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
            where = (self.host, self.port)
        try:
            s.settimeout(timeout * SLOW)
            if rcvbuf:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            if sndbuf:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
            if source:
                s.bind((source, 0))
            s.connect(where)
            if not self.unix:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            s.close()
            raise
        return s

    # -- what the kernel says ----------------------------------------------

    def log(self):
        try:
            with open(self.stderr_path, "rb") as f:
                return f.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def fds(self):
        """{descriptor: what it is}"""
        out = {}
        base = "/proc/%d/fd" % self.pid
        for fd in os.listdir(base):
            try:
                out[int(fd)] = os.readlink(os.path.join(base, fd))
            except OSError:
                continue
        return out

    def fd_count(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def socket_count(self):
        return sum(1 for what in self.fds().values() if what.startswith("socket:"))

    def pipe_count(self):
        return sum(1 for what in self.fds().values() if what.startswith("pipe:"))

    def tcp_states(self):
        """{state: count} of its own TCP sockets, in its own namespace."""
        inodes = {what[8:-1] for what in self.fds().values() if what.startswith("socket:[")}
        counts = {}
        for name in ("tcp", "tcp6"):
            try:
                with open("/proc/%d/net/%s" % (self.pid, name), encoding="ascii") as f:
                    next(f)
                    for line in f:
                        field = line.split()
                        if field[9] in inodes:
                            state = TCP_STATES.get(int(field[3], 16), field[3])
                            counts[state] = counts.get(state, 0) + 1
            except OSError:
                continue
        return counts

    def status(self, key):
        with open("/proc/%d/status" % self.pid, encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith(key + ":"):
                    return line.split(":", 1)[1].strip()
        raise KeyError(key)

    def rss_kib(self):
        return int(self.status("VmRSS").split()[0])

    def threads(self):
        return int(self.status("Threads"))

    def cpu_s(self):
        """User and system seconds since its start."""
        with open("/proc/%d/stat" % self.pid, encoding="ascii", errors="replace") as f:
            field = f.read().rsplit(")", 1)[1].split()
        return (int(field[11]) + int(field[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_over(self, seconds):
        """CPU seconds spent while the test looks on for `seconds`."""
        before = self.cpu_s()
        time.sleep(seconds)
        return self.cpu_s() - before

    def settled_sockets(self, baseline, timeout=10.0):
        """Waits until no more sockets are open than `baseline`."""
        wait_until(lambda: self.socket_count() <= baseline, timeout,
                   lambda: "sockets back to %d (now %d, %s)" % (baseline, self.socket_count(), self.tcp_states()),
                   every=0.05)

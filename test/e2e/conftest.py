# SPDX-License-Identifier: ISC
"""Fixtures of the end-to-end suite.

    RINGWAY             the binary under test (build/ringway)
    RINGWAY_BACKENDS    which backends to run on (io_uring,epoll)
    RINGWAY_LONG=1      also the tests marked `long` (or: --long)

Each test starts a proxy of its own and owes a clean end: exit 0 on SIGTERM and
nothing from a sanitizer.  See proxy.py, origins.py, clients.py, netns.py."""

import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pytest  # noqa: E402

import netns as netns_module  # noqa: E402
from dnsserver import DnsServer  # noqa: E402
from origins import HttpOrigin, Origin  # noqa: E402
from proxy import Proxy  # noqa: E402
from util import HERE, RINGWAY, SANITIZED, SLOW  # noqa: E402

BACKENDS = [b for b in os.environ.get("RINGWAY_BACKENDS", "io_uring,epoll").replace(",", " ").split() if b]
DEFAULT_LIMIT_S = 60


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also the long tests")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes more than some seconds; run by check-all")
    config.addinivalue_line("markers", "limit(seconds): the test may take this long (default %d)" % DEFAULT_LIMIT_S)


def pytest_report_header(config):
    return "ringway: %s, backends: %s, sanitizer: %s" % (RINGWAY, ", ".join(BACKENDS), SANITIZED)


def pytest_sessionstart(session):
    # A table of descriptors that grows under threads stops them all, for seconds on busy CPUs.
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.close(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, min(soft, 65536) - 1))
    if not os.access(RINGWAY, os.X_OK) and not session.config.option.collectonly:
        pytest.exit("no binary at %s: build it, or set RINGWAY" % RINGWAY, returncode=4)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        os.environ["RINGWAY_LONG"] = "1"
    if os.environ.get("RINGWAY_LONG") == "1":
        return
    if "long" in (config.getoption("-m") or ""):
        return
    skip = pytest.mark.skip(reason="long: run with --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


class TooLong(Exception):
    pass


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """A test that hangs fails, and its fixtures still clean up."""
    mark = item.get_closest_marker("limit")
    limit = (mark.args[0] if mark else DEFAULT_LIMIT_S) * SLOW

    def late(_sig, _frame):
        raise TooLong("test took longer than %.0f s" % limit)
    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def kernel_refuses_io_uring():
    """The errno's name when this very process may not make a ring."""
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)
    fd = libc.syscall(425, 4, params)
    if fd >= 0:
        os.close(fd)
        return None
    return os.strerror(ctypes.get_errno())


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param == "io_uring":
        why = kernel_refuses_io_uring()
        if why:
            pytest.skip("io_uring_setup: " + why)
    return request.param


@pytest.fixture
def proxies(tmp_path, backend):
    """proxies(config={...}, ...) -> a started Proxy on this test's backend."""
    made = []

    def make(config=None, start=True, **kw):
        kw.setdefault("name", "ringway%d" % len(made) if made else "ringway")
        p = Proxy(kw.pop("workdir", tmp_path), kw.pop("backend", backend), config=config, **kw)
        made.append(p)
        if start:
            p.start()
        return p

    yield make
    errors = []
    for p in made:
        try:
            p.stop()
        except AssertionError as e:
            errors.append(str(e))
        finally:
            p.kill()
    assert not errors, "\n\n".join(errors)


@pytest.fixture
def proxy(proxies):
    return proxies()


@pytest.fixture
def origins():
    """origins(handler, ...) -> a running Origin."""
    made = []

    def make(handler, **kw):
        o = Origin(handler, **kw)
        made.append(o)
        return o

    yield make
    for o in made:
        o.close()


@pytest.fixture
def web():
    """web(script, ...) -> a running HttpOrigin."""
    made = []

    def make(script, **kw):
        o = HttpOrigin(script, **kw)
        made.append(o)
        return o

    yield make
    for o in made:
        o.close()


@pytest.fixture
def dns():
    server = DnsServer()
    yield server
    server.close()


@pytest.fixture
def netns():
    ns = netns_module.NetNs()
    yield ns
    ns.close()


# -- C helpers, compiled once a run -------------------------------------------

def _compile(tmp_path_factory, name, *flags):
    out = str(tmp_path_factory.mktemp("bin") / name.rsplit(".", 1)[0])
    cc = os.environ.get("CC", "cc").split()
    done = subprocess.run([*cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", out,
                           os.path.join(HERE, name), *flags],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        pytest.fail("%s does not compile:\n%s" % (name, done.stdout.decode("utf-8", "replace")))
    return out


@pytest.fixture(scope="session")
def seccomp_exec(tmp_path_factory):
    path = _compile(tmp_path_factory, "seccomp_exec.c")
    if subprocess.run([path, "EPERM", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no seccomp filter may be set here")
    return path


@pytest.fixture(scope="session")
def nofile_shim(tmp_path_factory):
    return _compile(tmp_path_factory, "nofile_shim.c", "-shared", "-fPIC", "-ldl")


@pytest.fixture(scope="session")
def load_binary(tmp_path_factory):
    return _compile(tmp_path_factory, "load.c")


class LoadProcess:
    """A `load` helper; speaks a line a command."""

    def __init__(self, binary, *args):
        self.args = args
        self.process = subprocess.Popen([binary, *map(str, args)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def line(self):
        line = self.process.stdout.readline().strip()
        assert line, "load %s ended: %s" % (" ".join(map(str, self.args)), self.process.wait())
        return line

    def facts(self):
        """{key: number} of its next line."""
        word, *pairs = self.line().split()
        return {"what": word, **{k: int(v) for k, v in (p.split("=") for p in pairs)}}

    def command(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.facts()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


@pytest.fixture
def load(load_binary):
    """load("hold", "socks5", proxy.port, origin_port, n, window) and
    load.origin("echo") -> port.  All are killed at the end."""
    from util import free_port
    made = []

    def start(*args):
        p = LoadProcess(load_binary, *args)
        made.append(p)
        return p

    def origin(what):
        port = free_port()
        assert start("origin", what, port).line() == "listening"
        return port

    start.origin = origin
    yield start
    for p in made:
        p.kill()

# SPDX-License-Identifier: ISC
"""What service managers and init scripts see: users and capabilities, --daemon
and the pid file, NOTIFY_SOCKET, LISTEN_FDS, the journal, ringway-reload."""

import grp
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

import origins as o
from clients import fetch, recv_exact, recv_to_end, socks5, socks5_code
from proxy import run, sanitizer_env, yaml_text
from test_upgrade import Lineage, alive
from util import RINGWAY, SLOW, TOP, free_port, wait_until

NET_BIND = 1 << 10      # CAP_NET_BIND_SERVICE


def page(*_):
    return o.ok(b"page")


# -- user and group ---------------------------------------------------------------------

@pytest.fixture
def nobody():
    """A user to become; the tests that need one need root, too."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("there is no user nobody")


@pytest.fixture
def public(nobody):
    """A folder that this user can read, for the configuration, with one it can write to."""
    path = tempfile.mkdtemp(prefix="ringway-e2e-", dir="/tmp")
    os.chmod(path, 0o755)
    os.mkdir(path + "/run")
    os.chown(path + "/run", nobody.pw_uid, nobody.pw_gid)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def everywhere(proxy, key):
    """The set of a status field's values over all threads."""
    out = set()
    for tid in os.listdir("/proc/%d/task" % proxy.pid):
        with open("/proc/%d/task/%s/status" % (proxy.pid, tid), encoding="ascii", errors="replace") as f:
            out |= {line.split(":", 1)[1].strip() for line in f if line.startswith(key + ":")}
    return out


def serving(proxy):
    """Past the privilege drop: its sockets are there a little earlier."""
    with proxy.connect() as s:
        s.sendall(b"\x05\x01\x00")
        assert recv_exact(s, 2) == b"\x05\x00"


def ids(n):
    return "\t".join([str(n)] * 4)


def test_user_is_dropped_to_with_all_threads_and_nothing_is_kept(proxies, nobody, public, origins):
    origin = origins(o.echo)
    proxy = proxies({"user": "nobody", "access_log": {"path": public + "/run/access"}}, workdir=public)
    assert socks5_code(proxy, origin.host, origin.port) == 0    # so it is past the drop
    assert everywhere(proxy, "Uid") == {ids(nobody.pw_uid)} and everywhere(proxy, "Gid") == {ids(nobody.pw_gid)}
    groups = {g.gr_gid for g in grp.getgrall() if "nobody" in g.gr_mem} | {nobody.pw_gid}
    assert {frozenset(map(int, v.split())) for v in everywhere(proxy, "Groups")} == {frozenset(groups)}
    for key in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
        assert {int(v, 16) for v in everywhere(proxy, key)} == {0}, key
    assert everywhere(proxy, "NoNewPrivs") == {"1"}
    assert os.stat(public + "/run/access").st_uid == nobody.pw_uid


def test_low_port_needs_a_capability_that_was_given_up(proxies, nobody, public, netns, origins):
    with netns:
        origin = origins(o.echo)
        proxy = proxies({"user": "nobody"}, workdir=public)
        said = proxy.reload({"listen": [*proxy.listen, {"addr": "127.0.0.1", "port": 81}], "acl": {"rules": ["deny port *"]}}, refused=True)
        assert "restart" in said, said
        with socket.socket() as s:
            assert s.connect_ex(("127.0.0.1", 81)) != 0
        assert socks5_code(proxy, origin.host, origin.port) == 0, "refused whole"


def test_low_port_from_the_start_keeps_the_one_capability(proxies, nobody, public, netns, origins):
    with netns:
        origin = origins(o.echo)
        proxy = proxies({"user": "nobody"}, listen=[{"addr": "127.0.0.1", "port": 80}, {"addr": "127.0.0.1", "port": 1080}], workdir=public)
        # its sockets are there a little before it has dropped root, and serves
        assert socks5_code(proxy, origin.host, origin.port) == 0
        for key in ("CapEff", "CapPrm", "CapAmb", "CapBnd"):
            assert {int(v, 16) for v in everywhere(proxy, key)} == {NET_BIND}, key
        assert everywhere(proxy, "Uid") == {ids(nobody.pw_uid)}
        proxy.reload({"listen": [{"addr": "127.0.0.1", "port": 81}, {"addr": "127.0.0.1", "port": 1080}]})
        proxy.port = 81
        assert socks5_code(proxy, origin.host, origin.port) == 0


def test_group_alone_and_numbers(proxies, nobody, public):
    group = grp.getgrgid(nobody.pw_gid).gr_name
    proxy = proxies({"group": group}, workdir=public)
    serving(proxy)
    assert everywhere(proxy, "Gid") == {ids(nobody.pw_gid)} and everywhere(proxy, "Uid") == {ids(0)}
    proxy.stop()
    proxy = proxies({"user": "54321", "group": "12345"}, workdir=public, name="second")
    serving(proxy)
    assert everywhere(proxy, "Uid") == {ids(54321)} and everywhere(proxy, "Gid") == {ids(12345)}
    assert everywhere(proxy, "Groups") == {"12345"}


@pytest.mark.parametrize("config,word", [({"user": "no-such-user"}, "no-such-user"), ({"group": "no-such-group"}, "no-such-group"),
                                         ({"user": "54321"}, "54321")])
def test_unknown_user_or_group_refuses_the_start(proxies, nobody, config, word):
    proxy = proxies(config, start=False)
    proxy.start(wait=False)
    assert proxy.wait() == 1
    proxy.returncode = 0
    assert word in proxy.log(), proxy.log()


def test_somebody_else_cannot_become_root(proxies, nobody, public):
    if subprocess.run([RINGWAY, "-V"], user="nobody", stdout=subprocess.DEVNULL).returncode != 0:
        pytest.skip("the user nobody can't reach the program")
    proxy = proxies({"user": "root"}, workdir=public, start=False, preexec=lambda: os.setuid(nobody.pw_uid))
    proxy.start(wait=False)
    assert proxy.wait() == 1
    proxy.returncode = 0
    assert "root" in proxy.log(), proxy.log()


def test_upgrade_reload_and_end_as_another_user(proxies, nobody, public, origins, tmp_path):
    try:
        reachable = subprocess.run([RINGWAY, "-V"], user="nobody", stdout=subprocess.DEVNULL).returncode == 0
    except PermissionError:
        reachable = False
    if not reachable:
        pytest.skip("the user nobody can't reach the program")
    origin = origins(o.echo)
    os.mkdir(public + "/pid")       # root's, as /run is
    from pathlib import Path
    with Lineage(proxies, Path(public) / "pid", {"user": "nobody", "workers": 2}, workdir=public) as line:
        line.proxy.rewrite({"workers": 3})
        pid = line.upgrade()
        assert open("/proc/%d/status" % pid, encoding="ascii").read().split("Uid:")[1].split()[0] == str(nobody.pw_uid)
        assert socks5_code(line.proxy, origin.host, origin.port) == 0
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not alive(pid), 10, "it ends")
        assert not os.path.exists(line.pid_file) or os.path.getsize(line.pid_file) == 0


# -- --daemon -----------------------------------------------------------------------------

class Daemon:
    """`ringway --daemon`: what an init script does."""

    def __init__(self, folder, backend, config=None, name="d", relative=False):
        self.dir = str(folder)
        self.host, self.port, self.unix = "127.0.0.1", free_port(), None
        self.pid_file = os.path.join(self.dir, name + ".pid")
        self.conf = os.path.join(self.dir, name + ".yaml")
        self.write(config)
        shown = (lambda p: os.path.basename(p)) if relative else (lambda p: p)
        self.argv = [RINGWAY, "-c", shown(self.conf), "-b", backend, "--daemon", "--pid-file", shown(self.pid_file)]
        self.log_path = os.path.join(self.dir, name + ".log")
        self.pid = None

    def write(self, config=None):
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(yaml_text({"workers": 2, "shutdown_timeout_s": 1, "listen": [{"addr": self.host, "port": self.port}], **(config or {})}))

    def start(self):
        """(exit code, what it printed); the log goes to a file, as scripts do it."""
        with open(self.log_path, "ab") as log:
            done = subprocess.run(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=self.dir, env=sanitizer_env(),
                                  timeout=20 * SLOW)
        if done.returncode == 0:
            self.pid = self.find()
            with open(self.pid_file, encoding="ascii") as f:
                assert self.pid == int(f.read())
        return done.returncode

    def find(self):
        """By its command line, so that a wrong pid file leaves nothing running."""
        want = b"\0".join(a.encode() for a in self.argv) + b"\0"
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    if f.read() == want and os.readlink("/proc/%s/fd/2" % name) == self.log_path:
                        return int(name)
            except OSError:
                continue
        raise AssertionError("no such process\n" + self.log())

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def connect(self, timeout=10.0):
        s = socket.create_connection((self.host, self.port), timeout * SLOW)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def stop(self):
        if self.pid and alive(self.pid):
            os.kill(self.pid, signal.SIGTERM)
            wait_until(lambda: not alive(self.pid), 15, "the daemon ends")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        except AssertionError:
            os.kill(self.pid, signal.SIGKILL)
            raise


def test_daemon_returns_when_it_serves(backend, tmp_path, origins):
    origin = origins(o.echo)
    with Daemon(tmp_path, backend) as d:
        assert d.start() == 0, d.log()
        assert socks5_code(d, origin.host, origin.port) == 0, "at once, without waiting"
        field = open("/proc/%d/stat" % d.pid, encoding="ascii").read().rsplit(")", 1)[1].split()
        assert int(field[1]) != os.getpid() and int(field[3]) != os.getsid(0), "in a session of its own"
        assert int(field[4]) == 0, "no controlling terminal"
        assert os.readlink("/proc/%d/fd/0" % d.pid) == os.readlink("/proc/%d/fd/1" % d.pid) == "/dev/null"
        assert os.readlink("/proc/%d/fd/2" % d.pid) == d.log_path, "redirected to a file: stays"
        os.kill(d.pid, signal.SIGHUP)
        wait_until(lambda: "reloaded" in d.log(), 5, "it logs")
        d.stop()
        assert not os.path.exists(d.pid_file)
        assert d.start() == 0 and d.pid, "and again"


def test_daemon_without_a_file_for_its_errors_has_dev_null(backend, tmp_path):
    with Daemon(tmp_path, backend) as d:
        done = subprocess.run(d.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=d.dir, timeout=20 * SLOW,
                              env=sanitizer_env())
        # the pipes end here, or run() would hang until its timeout
        assert done.returncode == 0
        d.pid = int(open(d.pid_file, encoding="ascii").read())
        assert [os.readlink("/proc/%d/fd/%d" % (d.pid, n)) for n in (0, 1, 2)] == ["/dev/null"] * 3


def test_relative_paths_survive_the_change_of_directory(backend, tmp_path, origins, web):
    origin, pages = origins(o.echo), web(page)
    (tmp_path / "rules").write_text("deny port 1\n")
    with Daemon(tmp_path, backend, {"acl": {"file": "rules"}, "access_log": {"path": "access"}}, relative=True) as d:
        assert d.start() == 0, d.log()
        assert socks5_code(d, origin.host, origin.port) == 0
        (tmp_path / "rules").write_text("deny port 1-60000\n")
        os.kill(d.pid, signal.SIGHUP)
        wait_until(lambda: "reload" in d.log(), 5, "reloaded")
        assert "reload refused" not in d.log(), d.log()
        assert socks5_code(d, origin.host, origin.port) == 2
        os.rename(tmp_path / "access", tmp_path / "access.1")
        os.kill(d.pid, signal.SIGUSR1)
        wait_until(lambda: os.path.exists(tmp_path / "access"), 5, "opened again where it was")
        fetch(d, pages.authority)
        old = d.pid
        os.kill(old, signal.SIGUSR2)
        wait_until(lambda: open(d.pid_file, encoding="ascii").read().strip() not in ("", str(old)), 10, lambda: "upgraded\n" + d.log())
        d.pid = int(open(d.pid_file, encoding="ascii").read())
        assert socks5_code(d, origin.host, origin.port) == 2


def test_failing_start_exits_1_with_the_reason(backend, tmp_path, origins):
    taken = origins(o.echo)
    with Daemon(tmp_path, backend) as d:
        d.port = taken.port
        d.write()
        assert d.start() == 1
        assert str(taken.port) in d.log() and "in use" in d.log().lower()
        assert not os.path.exists(d.pid_file)
        d.port = free_port()
        d.write({"acl": {"rules": ["deny hots x"]}})
        assert d.start() == 1 and "hots" in d.log()
        assert not os.path.exists(d.pid_file)
        d.write({"pid_file": "/nonexistent/x"})
        d.argv[-1] = "/nonexistent/x"
        assert d.start() == 1 and "/nonexistent/x" in d.log()


def test_second_instance_with_the_same_pid_file_is_refused(backend, tmp_path, origins):
    origin = origins(o.echo)
    with Daemon(tmp_path, backend) as first, Daemon(tmp_path, backend, name="second") as second:
        assert first.start() == 0
        second.argv[-1] = first.pid_file
        assert second.start() == 1
        assert str(first.pid) in second.log() or "pid" in second.log(), second.log()
        assert int(open(first.pid_file, encoding="ascii").read()) == first.pid
        assert socks5_code(first, origin.host, origin.port) == 0
        # what a killed one has left is no obstacle
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: not alive(first.pid), 5, "killed")
        assert os.path.exists(first.pid_file)
        # (a ring's sockets are closed a moment after its process has gone)
        wait_until(lambda: first.start() == 0, 5, lambda: "starts again\n" + first.log(), every=0.1)


def test_pid_file_in_the_foreground(proxies, tmp_path):
    path = tmp_path / "pid"
    path.write_text("99999999\n")
    proxy = proxies({"pid_file": str(path)})
    wait_until(lambda: path.read_text() == "%d\n" % proxy.pid, 5, "its number")
    second = proxies({"pid_file": str(path)}, name="second", start=False)
    second.start(wait=False)
    assert second.wait() == 1 and "pid" in second.log()
    second.returncode = 0
    proxy.stop()
    assert not path.exists()


# -- NOTIFY_SOCKET ---------------------------------------------------------------------------

class Manager:
    """systemd's end of the notification socket."""

    def __init__(self, path, abstract=False):
        self.name = "@" + path if abstract else path
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + path if abstract else path)
        self.sock.settimeout(10 * SLOW)

    def message(self):
        """{variable: value} of the next datagram."""
        return dict(line.split("=", 1) for line in self.sock.recv(4096).decode().splitlines() if line)

    def until(self, key):
        while True:
            m = self.message()
            if key in m:
                return m

    def close(self):
        self.sock.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    m = Manager(str(tmp_path / "notify"), request.param == "abstract")
    yield m
    m.close()


def test_manager_is_told_of_start_reload_and_end(proxies, manager):
    proxy = proxies(env={"NOTIFY_SOCKET": manager.name})
    assert manager.until("READY")["READY"] == "1"
    for bad in (False, True):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        proxy.rewrite(text="frob: 1\n") if bad else None
        proxy.hup(refused=bad)
        m = manager.message()
        assert m["RELOADING"] == "1"
        assert before <= int(m["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        m = manager.until("READY")
        assert m["READY"] == "1" and ("refused" in m.get("STATUS", "")) == bad, m
    proxy.signal(signal.SIGTERM)
    assert manager.until("STOPPING")["STOPPING"] == "1"
    assert proxy.wait() == 0
    manager.sock.settimeout(0.2)
    with pytest.raises(socket.timeout):
        raise AssertionError("after the end: %s" % manager.message())


def test_manager_is_told_of_the_new_main_process(proxies, manager, tmp_path, origins):
    origin = origins(o.echo)
    with Lineage(proxies, tmp_path, env={"NOTIFY_SOCKET": manager.name}) as line:
        manager.until("READY")
        # the failed upgrade first: ready again, no new main process
        good = open(line.proxy.config_path, encoding="utf-8").read()
        line.proxy.rewrite(text="frob: 1\n")
        line.proxy.signal(signal.SIGUSR2)
        assert manager.message()["RELOADING"] == "1"
        m = manager.message()
        assert m["READY"] == "1" and "MAINPID" not in m
        line.proxy.rewrite(text=good)
        pid = line.upgrade()
        m = manager.until("MAINPID")
        assert (m["MAINPID"], m["READY"]) == (str(pid), "1"), m
        assert line.proxy.wait() == 0
        manager.sock.settimeout(0.3)
        try:
            while True:
                m = manager.message()
                assert "STOPPING" not in m, "the service goes on"
        except socket.timeout:
            pass
        assert socks5_code(line.proxy, origin.host, origin.port) == 0
        manager.sock.settimeout(10)
        os.kill(pid, signal.SIGTERM)
        assert manager.until("STOPPING")


@pytest.mark.parametrize("name", ["", "/nonexistent/notify", "@ringway-nobody-there", "relative"])
def test_manager_that_is_not_there_is_no_matter(proxies, origins, name):
    origin = origins(o.echo)
    proxy = proxies(env={"NOTIFY_SOCKET": name})
    proxy.hup()
    assert socks5_code(proxy, origin.host, origin.port) == 0


# -- LISTEN_FDS ---------------------------------------------------------------------------------

ACTIVATE = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 100) for n in sys.argv[1].split(",")]
for i, fd in enumerate(fds):
    os.dup2(fd, 3 + i)
    os.close(fd)
for fd in range(3 + len(fds), 100):
    try: os.close(fd)
    except OSError: pass
os.environ["LISTEN_FDS"] = str(len(fds))
os.environ["LISTEN_PID"] = sys.argv[2] or str(os.getpid())
os.environ["LISTEN_FDNAMES"] = ":".join("n%d" % i for i in range(len(fds)))
os.execv(sys.argv[3], sys.argv[3:])
"""


def activated(proxies, sockets, pid="", **kw):
    fds = [s.fileno() for s in sockets]
    return proxies(wrap=[sys.executable, "-c", ACTIVATE, ",".join(map(str, fds)), pid], pass_fds=tuple(fds), **kw)


def listening(where, family=socket.AF_INET):
    s = socket.socket(family)
    s.bind(where)
    s.listen(64)
    return s


def test_inherited_sockets_are_served(proxies, origins, web, tmp_path):
    origin, pages = origins(o.echo), web(page)
    path = str(tmp_path / "sock")
    tcp, unix = listening(("127.0.0.1", free_port())), listening(path, socket.AF_UNIX)
    port = tcp.getsockname()[1]
    with tcp, unix:
        early = socket.create_connection(("127.0.0.1", port))      # before anybody runs
        early.sendall(b"\x05\x01\x00")
        proxy = activated(proxies, [tcp, unix], listen=[{"addr": "127.0.0.1", "port": port}, {"addr": "unix:" + path},
                                                       {"addr": "127.0.0.1", "port": free_port()}])
        early.settimeout(10)
        assert recv_exact(early, 2) == b"\x05\x00"
        early.close()
        for _ in range(20):
            assert socks5_code(proxy, origin.host, origin.port) == 0
        assert fetch(proxy, pages.authority).status == 200
        proxy.unix = path
        assert fetch(proxy, pages.authority).status == 200
        proxy.unix, proxy.port = None, proxy.listen[2]["port"]
        assert fetch(proxy, pages.authority).status == 200
        env = open("/proc/%d/environ" % proxy.pid, "rb").read()
        assert b"LISTEN_FDS" in env     # the first one's; not what it hands on, below
        proxy.stop()
        # they are the manager's: still there, still listening
        assert os.path.exists(path)
        s = socket.create_connection(("127.0.0.1", port), 5)
        s.close()


def test_inherited_sockets_outlive_reload_and_upgrade(proxies, origins, tmp_path):
    origin = origins(o.echo)
    path = str(tmp_path / "sock")
    tcp, unix = listening(("127.0.0.1", free_port())), listening(path, socket.AF_UNIX)
    port = tcp.getsockname()[1]
    with tcp, unix:
        with Lineage(lambda config, **kw: activated(proxies, [tcp, unix], config=config, **kw), tmp_path,
                     listen=[{"addr": "127.0.0.1", "port": port}, {"addr": "unix:" + path}]) as line:
            line.proxy.hup()
            assert socks5_code(line.proxy, origin.host, origin.port) == 0
            line.upgrade()
            for unix_path in (None, path):
                line.proxy.unix = unix_path
                assert socks5_code(line.proxy, origin.host, origin.port) == 0
        wait_until(lambda: not alive(line.pid()) if line.pid() else True, 5, "ended")
        assert os.path.exists(path), "the manager's file is not ours to remove"
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)


def refused_start(proxy):
    proxy.start(wait=False)
    assert proxy.wait() == 1, proxy.log()
    proxy.returncode = 0
    return proxy.log()


def test_socket_that_nobody_asked_for_is_a_clear_error(proxies):
    with listening(("127.0.0.1", free_port())) as s:
        said = refused_start(activated(proxies, [s], start=False))
        assert "127.0.0.1:%d" % s.getsockname()[1] in said, said


@pytest.mark.parametrize("kind", ["datagram", "connected", "file"])
def test_descriptor_that_does_not_listen_is_a_clear_error(proxies, kind, tmp_path):
    if kind == "datagram":
        thing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        thing.bind(("127.0.0.1", 0))
    elif kind == "connected":
        thing, _other = socket.socketpair()
    else:
        thing = open(tmp_path / "f", "w")
    with thing:
        assert "LISTEN_FDS" in refused_start(activated(proxies, [thing], start=False))


def test_variables_for_another_process_are_not_ours(proxies, origins):
    origin = origins(o.echo)
    with listening(("127.0.0.1", free_port())) as s:
        proxy = activated(proxies, [s], pid="1")
        assert socks5_code(proxy, origin.host, origin.port) == 0


# -- logs ---------------------------------------------------------------------------------------------

def test_stats_line_every_interval(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"stats_interval_s": 1})
    with socks5(proxy, origin.host, origin.port) as s:
        s.sendall(b"12345")
        recv_exact(s, 5)
        wait_until(lambda: re.search(r"stats active=1 .*tunnels=1 .*bytes_up=\d+ bytes_down=\d+", proxy.log()), 6, "a summary")
    wait_until(lambda: len(re.findall(r" stats ", proxy.log())) >= 2, 6, "the next")
    proxy.reload({"stats_interval_s": 0})
    count = proxy.log().count(" stats ")
    time.sleep(1.3)
    assert proxy.log().count(" stats ") == count


def test_signals_do_not_begin_the_interval_of_the_statistics_anew(proxies):
    proxy = proxies({"stats_interval_s": 1})
    for n in range(40):
        proxy.signal(signal.SIGUSR1 if n % 2 else signal.SIGHUP)
        time.sleep(0.1)
    lines = proxy.log().count(" stats ")
    assert 2 <= lines <= 5, "%d in some 4 s" % lines


def test_journal_gets_priorities_and_no_time(proxies, tmp_path):
    err = tmp_path / "ringway.err"
    err.write_bytes(b"")
    st = err.stat()
    proxy = proxies(env={"JOURNAL_STREAM": "%d:%d" % (st.st_dev, st.st_ino)}, config={"log_level": "debug"})
    with proxy.connect() as s:
        s.sendall(b"\x16\x03\x01")
        recv_to_end(s)
    proxy.reload(text="frob: 1\n", refused=True)
    lines = proxy.log().splitlines()
    words = {"error": "3", "warn": "4", "info": "6", "debug": "7"}
    seen = set()
    for line in lines:
        m = re.match(r"<([0-7])>(error|warn|info|debug) \S+ \S+ ", line)
        assert m and words[m.group(2)] == m.group(1), line
        seen.add(m.group(2))
    assert {"error", "info", "debug"} <= seen


def test_somebody_elses_journal_is_not_ours(proxies):
    proxy = proxies(env={"JOURNAL_STREAM": "1:2"})
    wait_until(lambda: "started" in proxy.log(), 5, "it logs")
    assert re.match(r"\d{4}-", proxy.log()), proxy.log()


# -- ringway-reload --------------------------------------------------------------------------------------

def reload_script(proxy, *args):
    script = os.path.join(TOP, "contrib", "ringway-reload")
    done = subprocess.run(["sh", script, "-c", proxy.config_path, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(sanitizer_env(), RINGWAY=RINGWAY), timeout=30 * SLOW)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def test_ringway_reload_tells_what_came_of_it(proxies, web, tmp_path, origins):
    origin, taken = web(page), origins(o.echo)
    pid_file = str(tmp_path / "pid")
    proxy = proxies({"pid_file": pid_file})
    good = open(proxy.config_path, encoding="utf-8").read()
    proxy.rewrite({"http": {"via": False}})
    code, said = reload_script(proxy, "-p", pid_file)
    assert code == 0, said
    fetch(proxy, origin.authority)
    assert not origin.requests[-1].get("Via"), "it has reloaded when the script returns"
    proxy.rewrite(text=good + "frob: 1\nlimits: {max_sessions: -1}\n")
    for args in ((), ("-n",)):      # by the check, by the daemon
        code, said = reload_script(proxy, "-p", pid_file, *args)
        assert code == 1 and "frob" in said and "limits.max_sessions" in said, (code, said)
    # what only the daemon can know
    proxy.rewrite(text=good)
    proxy.rewrite({"listen": [*proxy.listen, {"addr": "127.0.0.1", "port": taken.port}]})
    code, said = reload_script(proxy, "-p", pid_file)
    assert code == 1 and "refused" in said, (code, said)
    proxy.rewrite(text=good)
    assert reload_script(proxy, "-p", pid_file)[0] == 0
    proxy.stop()
    code, said = reload_script(proxy, "-p", pid_file)
    assert code == 3, (code, said)


def test_check_would_refuse_what_the_start_refuses(backend, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("acl: {rules: [deny hots x]}\nauth: {users: [{name: a, pbkdf2: nonsense}], whitelist: [x]}\n")
    done = run("--check", path, "-b", backend)
    assert done.returncode == 1
    for word in ("acl.rules[0]", "auth.users", "auth.whitelist"):
        assert word in done.out + done.err, done.out + done.err

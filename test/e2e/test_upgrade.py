# SPDX-License-Identifier: ISC
"""SIGUSR2: the new process serves from the same sockets, nobody is refused
(SPEC 1; CASES 53)."""

import os
import signal
import socket
import threading
import time

import pytest

import origins as o
from clients import fetch, get_request, http, recv_exact, recv_sha_to_end, recv_to_end, socks5, socks5_code, socks5_greeting
from util import RINGWAY, SLOW, Background, free_port, pattern_sha, scaled, wait_until


def page(*_):
    return o.ok(b"page")


class Lineage:
    """Follows the pid file from process to process; ends the last one."""

    def __init__(self, proxies, tmp_path, config=None, **kw):
        self.pid_file = str(tmp_path / "ringway.pid")
        self.proxy = proxies({"pid_file": self.pid_file, **(config or {})}, **kw)
        self.first = self.proxy.pid
        wait_until(lambda: self.pid() == self.first, 5, "the pid file names it")

    def pid(self):
        try:
            with open(self.pid_file, encoding="ascii") as f:
                text = f.read()
            return int(text) if text.endswith("\n") else 0
        except (FileNotFoundError, ValueError):
            return 0

    def upgrade(self, timeout=15):
        old = self.pid()
        before = self.proxy.log().count("upgraded: the new process serves")
        os.kill(old, signal.SIGUSR2)
        wait_until(lambda: self.proxy.log().count("upgraded: the new process serves") > before and self.pid() not in (0, old), timeout,
                   lambda: "a new process serves\n" + self.proxy.log()[-3000:], every=0.01)
        return self.pid()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pid = self.pid()
        if pid and pid != self.first:
            os.kill(pid, signal.SIGTERM)
            try:
                wait_until(lambda: not alive(pid), 20, "the last process ends")
            except AssertionError:
                os.kill(pid, signal.SIGKILL)
                raise


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.limit(120)
def test_ten_upgrades_under_load_refuse_nobody_and_downloads_finish(proxies, origins, web, tmp_path):
    size = 40 * 65536
    source = origins(o.source(3, size, pause_s=0.05))
    origin, echo = web(page), origins(o.echo)
    sock = str(tmp_path / "sock")
    port = free_port()
    with Lineage(proxies, tmp_path, {"shutdown_timeout_s": 60, "limits": {"max_sessions_per_ip": 0}},
                 listen=[{"addr": "127.0.0.1", "port": port}, {"addr": "unix:" + sock}]) as line:
        proxy = line.proxy
        stop = threading.Event()

        def knock(number):
            n = 0
            while not stop.is_set():
                if number == 0:
                    with socket.socket(socket.AF_UNIX) as s:
                        s.settimeout(20)
                        s.connect(sock)
                        s.sendall(socks5_greeting(0))
                        assert recv_exact(s, 2) == b"\x05\x00"
                elif number == 1:
                    assert fetch(proxy, origin.authority).status == 200
                else:
                    with socks5(proxy, echo.host, echo.port) as s:
                        s.sendall(b"x")
                        assert recv_exact(s, 1) == b"x"
                n += 1
                time.sleep(0.002)
            return n

        def download():
            with socks5(proxy, source.host, source.port, timeout=60) as s:
                return recv_sha_to_end(s)
        knocking = [Background(knock, i) for i in range(4)]
        downloads, pids = [], [line.first]
        for _ in range(scaled(10, 3)):
            downloads += [Background(download) for _ in range(3)]
            time.sleep(0.05)
            pids.append(line.upgrade())
        assert len(set(pids)) == len(pids)
        time.sleep(0.2)
        stop.set()
        assert sum(b.result() for b in knocking) > 100, "the load was there"
        for b in downloads:
            assert b.result(60) == (size, pattern_sha(3, size))
        assert os.path.exists(sock)
        wait_until(lambda: not any(alive(p) for p in pids[:-1]), 20, "the old ones have gone")
        assert alive(pids[-1]) and line.pid() == pids[-1]
        assert proxy.wait(10) == 0
        assert fetch(proxy, origin.authority).status == 200
    wait_until(lambda: not os.path.exists(sock) and not os.path.exists(line.pid_file), 5, "the last one tidies up")


def test_tunnel_stays_in_the_old_process_until_it_ends(proxies, origins, tmp_path):
    origin = origins(o.echo)
    with Lineage(proxies, tmp_path, {"shutdown_timeout_s": 60}) as line:
        with socks5(line.proxy, origin.host, origin.port) as s:
            line.upgrade()
            for _ in range(5):
                s.sendall(b"still")
                assert recv_exact(s, 5) == b"still"
            assert alive(line.first)
            with socks5(line.proxy, origin.host, origin.port) as t:
                t.sendall(b"new")
                assert recv_exact(t, 3) == b"new"
        assert line.proxy.wait(10) == 0
        assert socks5_code(line.proxy, origin.host, origin.port) == 0


def test_shutdown_timeout_ends_what_the_old_process_still_has(proxies, origins, tmp_path):
    origin = origins(o.silent)
    with Lineage(proxies, tmp_path, {"shutdown_timeout_s": 1}) as line:
        with socks5(line.proxy, origin.host, origin.port) as s:
            line.upgrade()
            began = time.monotonic()
            assert recv_to_end(s)[0] == b""
            assert 0.5 < time.monotonic() - began < 6 * SLOW
        assert line.proxy.wait(10) == 0


def test_clients_in_the_backlog_are_served(proxies, origins, tmp_path):
    """Connected before, accepted by nobody yet."""
    origin = origins(o.echo)
    with Lineage(proxies, tmp_path, {"workers": 1, "limits": {"max_sessions": 5, "max_sessions_per_ip": 0}, "shutdown_timeout_s": 30}) as line:
        held = [socks5(line.proxy, origin.host, origin.port) for _ in range(5)]
        waiting = [line.proxy.connect() for _ in range(5)]
        for s in waiting:
            s.sendall(socks5_greeting(0))
        os.kill(line.pid(), signal.SIGUSR2)
        for s in waiting:
            s.settimeout(15)
            assert recv_exact(s, 2) == b"\x05\x00"
        for s in [*held, *waiting]:
            s.close()
        wait_until(lambda: line.pid() not in (0, line.first), 10, "a new process")


@pytest.mark.parametrize("how", ["bad configuration", "port of another", "acl"])
def test_failed_upgrade_keeps_serving(proxies, origins, tmp_path, how):
    origin, taken = origins(o.echo), origins(o.echo)
    with Lineage(proxies, tmp_path) as line:
        proxy = line.proxy
        wait_until(lambda: "started version" in proxy.log(), 10, "all workers are up")
        fds = proxy.fd_count()
        good = open(proxy.config_path, encoding="utf-8").read()
        with socks5(proxy, origin.host, origin.port) as tunnel:
            if how == "bad configuration":
                proxy.rewrite(text="workers: many\nfrob: 1\n")
            elif how == "acl":
                proxy.rewrite({"acl": {"rules": ["deny hots x"]}})
            else:
                proxy.rewrite({"listen": [*proxy.listen, {"addr": "127.0.0.1", "port": taken.port}]})
            for n in range(2):
                os.kill(proxy.pid, signal.SIGUSR2)
                wait_until(lambda: proxy.log().count("upgrade: ") > n, 15, "the failure is told")
            tunnel.sendall(b"x")
            assert recv_exact(tunnel, 1) == b"x"
            assert socks5_code(proxy, origin.host, origin.port) == 0
            assert line.pid() == line.first
        wait_until(lambda: proxy.fd_count() <= fds, 5, lambda: "descriptors: %s" % proxy.fds())
        # and the next one, with a good file, works
        proxy.rewrite(text=good)
        assert line.upgrade() != line.first
        assert socks5_code(proxy, origin.host, origin.port) == 0


def test_program_that_cannot_be_executed_keeps_the_old_one(proxies, origins, tmp_path):
    origin = origins(o.echo)
    link = tmp_path / "bin"
    link.symlink_to(RINGWAY)
    proxy = proxies({"pid_file": str(tmp_path / "pid")}, start=False)
    proxy.argv[proxy.argv.index(RINGWAY)] = str(link)
    proxy.start()
    link.unlink()
    link.write_text("no program\n")
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: "upgrade: " in proxy.log(), 10, "told")
    assert socks5_code(proxy, origin.host, origin.port) == 0


def test_new_process_reads_the_changed_file(proxies, web, tmp_path):
    origin = web(page)
    with Lineage(proxies, tmp_path) as line:
        extra = free_port()
        line.proxy.rewrite({"workers": 3, "http": {"via": False}, "listen": [*line.proxy.listen, {"addr": "127.0.0.1", "port": extra}]})
        line.upgrade()
        fetch(line.proxy, origin.authority)
        assert not origin.requests[0].get("Via")
        with socket.socket() as s:
            assert s.connect_ex(("127.0.0.1", extra)) == 0
        # fewer workers, and a listener less, back again: nobody is refused
        line.proxy.rewrite({"workers": 1, "listen": line.proxy.listen})
        line.upgrade()
        for _ in range(50):
            assert fetch(line.proxy, origin.authority).status == 200
        with socket.socket() as s:
            wait_until(lambda: s.connect_ex(("127.0.0.1", extra)) != 0 if s.fileno() >= 0 else True, 5, "closed")


def test_idle_keep_alive_connections_are_ended_in_order(proxies, web, tmp_path):
    origin = web(page)
    with Lineage(proxies, tmp_path, {"shutdown_timeout_s": 30}) as line:
        with http(line.proxy) as c:
            assert c.ask(get_request(origin.authority)).status == 200
            line.upgrade()
            assert c.ended()
        assert line.proxy.wait(10) == 0


def test_sigterm_and_second_upgrade_reach_the_new_process(proxies, origins, tmp_path):
    origin = origins(o.echo)
    with Lineage(proxies, tmp_path) as line:
        line.upgrade()
        last = line.upgrade()
        line.proxy.rewrite({"acl": {"rules": ["deny port 1"]}})
        os.kill(last, signal.SIGHUP)
        wait_until(lambda: socks5_code(line.proxy, "127.0.0.1", 1) == 2, 5, "reloaded")
        os.kill(last, signal.SIGTERM)
        wait_until(lambda: not alive(last), 10, "ended")
        with pytest.raises(ConnectionRefusedError):
            line.proxy.connect()
        assert not os.path.exists(line.pid_file)
    origin.close()


def test_environment_of_the_hand_over_is_not_passed_on(proxies, tmp_path):
    with Lineage(proxies, tmp_path) as line:
        pid = line.upgrade()
        third = line.upgrade()
        assert third != pid
        # what it was started with is there, yet not believed twice
        with open("/proc/%d/cmdline" % third, "rb") as f:
            assert f.read().split(b"\0")[:-1] == [a.encode() for a in line.proxy.argv]

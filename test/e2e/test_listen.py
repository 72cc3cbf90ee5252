# SPDX-License-Identifier: ISC
"""Listeners: IPv4, IPv6, Unix, several at once, defaults, ports in use."""

import os
import socket

import pytest

import origins as o
from clients import connect_request, fetch, http, recv_exact, socks5
from proxy import run
from util import free_port, wait_until


def speaks(proxy, origin, page):
    with socks5(proxy, origin.host, origin.port) as s:
        s.sendall(b"hi")
        assert recv_exact(s, 2) == b"hi"
    with http(proxy) as c:
        c.send(connect_request(origin.authority))
        assert c.read_head().status == 200
    assert fetch(proxy, page.authority).body == b"page"


@pytest.fixture
def peers(origins, web):
    return origins(o.echo), web(lambda *_: o.ok(b"page"))


def test_ipv6_listener(proxies, peers):
    proxy = proxies(listen=[{"addr": "::1", "port": free_port("::1")}])
    speaks(proxy, *peers)


def test_any_address_listeners(proxies, peers):
    proxy = proxies(listen=[{"addr": "0.0.0.0", "port": free_port()}])
    speaks(proxy, *peers)


def test_ipv6_any_beside_ipv4_any_on_one_port(proxies, peers):
    port = free_port()
    proxy = proxies(listen=[{"addr": "::", "port": port}, {"addr": "0.0.0.0", "port": port}])
    speaks(proxy, *peers)
    proxy.host = "127.0.0.1"
    speaks(proxy, *peers)


def test_unix_listener(proxies, peers, tmp_path):
    path = str(tmp_path / "s")
    proxy = proxies(listen=[{"addr": "unix:" + path}])
    speaks(proxy, *peers)
    proxy.stop()
    again = proxies(listen=[{"addr": "unix:" + path}], name="again")
    speaks(again, *peers)


def test_unix_listener_starts_over_a_dead_socket_but_not_over_a_living_one(proxies, peers, tmp_path):
    path = str(tmp_path / "s")
    first = proxies(listen=[{"addr": "unix:" + path}], name="first")
    second = proxies(listen=[{"addr": "unix:" + path}], name="second", start=False)
    second.start(wait=False)
    assert second.wait(10) == 1, second.log()
    assert path in second.log()
    second.returncode = 0       # judged here
    speaks(first, *peers)
    first.kill()
    first.returncode = 0        # killed on purpose
    assert os.path.exists(path)

    def dead():
        """The kernel ends a ring, and the listener in it, a little after its process."""
        try:
            first.connect(timeout=1).close()
            return False
        except OSError:
            return True
    wait_until(dead, 5, "nobody listens any more")
    third = proxies(listen=[{"addr": "unix:" + path}], name="third")
    speaks(third, *peers)


def test_many_sessions_over_a_unix_listener_reach_every_worker(proxies, peers, tmp_path):
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}}, listen=[{"addr": "unix:" + str(tmp_path / "s")}])
    held = [socks5(proxy, peers[0].host, peers[0].port) for _ in range(100)]
    for s in held:
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"
        s.close()


def test_several_listeners_each_with_its_protocols(proxies, peers, tmp_path):
    ports = [free_port(), free_port()]
    proxy = proxies(listen=[{"addr": "127.0.0.1", "port": ports[0], "protocols": ["socks5"]},
                            {"addr": "127.0.0.1", "port": ports[1], "protocols": ["http"]},
                            {"addr": "unix:" + str(tmp_path / "s"), "protocols": ["socks5", "http"]}])
    with socks5(proxy, peers[0].host, peers[0].port):
        pass
    proxy.port = ports[1]
    assert fetch(proxy, peers[1].authority).body == b"page"
    proxy.unix = str(tmp_path / "s")
    speaks(proxy, *peers)


def test_every_worker_accepts(proxies, peers):
    """SO_REUSEPORT spreads by hash: with 200 connections each of four workers
    gets some; a worker that does not accept shows as a hang."""
    proxy = proxies({"workers": 4, "limits": {"max_sessions_per_ip": 0}})
    for _ in range(200):
        with socks5(proxy, peers[0].host, peers[0].port) as s:
            s.sendall(b"x")
            assert recv_exact(s, 1) == b"x"


def test_defaults_without_a_file(proxies, netns, origins, web):
    for path in ("/etc/ringway/ringway.yaml", "/usr/local/etc/ringway/ringway.yaml"):
        if os.path.exists(path):
            pytest.skip(path + " exists")
    with netns:         # where port 1080 is ours
        proxy = proxies(use_file=False, port=1080)
        peers = origins(o.echo), web(lambda *_: o.ok(b"page"))
        speaks(proxy, *peers)
        proxy.host = "::1"
        speaks(proxy, *peers)
        with open("/proc/%d/net/tcp" % proxy.pid, encoding="ascii") as f:
            listening = [line.split()[1] for line in f if line.split()[3] == "0A"]
        assert "0100007F:0438" in listening and "00000000:0438" not in listening


# -- a port in use -------------------------------------------------------------------

def test_port_in_use_is_told_and_exits_1(proxies, origins):
    taken = origins(o.echo)
    proxy = proxies(port=taken.port, start=False)
    proxy.start(wait=False)
    assert proxy.wait(10) == 1, proxy.log()
    log = proxy.log()
    assert str(taken.port) in log and "in use" in log.lower(), log
    assert len(log.strip().splitlines()) <= 6, log
    proxy.returncode = 0        # judged here


def test_second_instance_on_the_same_port_is_refused_and_the_first_lives(proxies, peers):
    first = proxies(name="first")
    second = proxies(name="second", port=first.port, start=False)
    second.start(wait=False)
    assert second.wait(10) == 1, second.log()
    assert str(first.port) in second.log() and "in use" in second.log().lower()
    second.returncode = 0
    for _ in range(20):
        speaks(first, *peers)


def test_one_of_several_ports_in_use_refuses_the_whole_start(proxies, origins):
    taken = origins(o.echo)
    port = free_port()
    proxy = proxies(listen=[{"addr": "127.0.0.1", "port": port}, {"addr": "127.0.0.1", "port": taken.port}], start=False)
    proxy.start(wait=False)
    assert proxy.wait(10) == 1
    assert str(taken.port) in proxy.log()
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0
    proxy.returncode = 0


def test_address_that_is_not_ours_is_told(backend, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("listen: [{addr: 203.0.113.9, port: %d}]\n" % free_port())
    done = run("-c", path, "-b", backend)
    assert done.returncode == 1
    assert "203.0.113.9" in done.err, done.err


def test_restart_with_connections_in_time_wait(proxies, peers):
    """The server side closed first: its TIME_WAIT must not block the port."""
    first = proxies(name="first")
    with http(first) as c:
        c.send(b"NONSENSE\r\n\r\n")
        c.read()
        assert c.ended()
    first.stop()
    second = proxies(name="second", port=first.port)
    speaks(second, *peers)


def test_listener_keeps_accepting_after_aborted_connections(proxies, peers):
    proxy = proxies()
    for _ in range(200):
        s = socket.socket()
        s.setblocking(False)
        try:
            s.connect((proxy.host, proxy.port))
        except BlockingIOError:
            pass
        o.reset(s)
    wait_until(lambda: fetch(proxy, peers[1].authority).status == 200, 5, "serves")

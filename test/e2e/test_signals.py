# SPDX-License-Identifier: ISC
"""SIGTERM and SIGINT drain, a second one ends at once (CASES 54)."""

import signal
import socket
import time

import pytest

import origins as o
from clients import (TUNNELS, get_request, http, recv_exact, recv_sha_to_end, recv_to_end, socks5)
from util import SLOW, Background, pattern_sha, wait_until

BLOCK = 65536


def refuses(proxy):
    try:
        proxy.connect(timeout=2).close()
        return False
    except ConnectionResetError:
        return False        # was in the backlog when the listener closed
    except ConnectionRefusedError:
        return True


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_downloads_finish_new_ones_are_refused_exit_zero(proxies, origins, web, sig):
    blocks = 30
    origin = origins(o.source(1, blocks * BLOCK, pause_s=0.05))
    slow_web = web(lambda *_: [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", 1.0, b"67890"])
    proxy = proxies({"shutdown_timeout_s": 20})

    def download(tunnel):
        with TUNNELS[tunnel](proxy, origin.host, origin.port, timeout=30) as s:
            return recv_sha_to_end(s)

    def page():
        with http(proxy, timeout=30) as c:
            return c.ask(get_request(slow_web.authority)).body
    running = [Background(download, t) for t in TUNNELS for _ in range(3)]
    forward = Background(page)
    wait_until(lambda: origin.accepted == 6 and slow_web.requests, 5, "all downloads run")
    proxy.signal(sig)
    wait_until(lambda: refuses(proxy), 3, "new connections are refused")
    for b in running:
        assert b.result() == (blocks * BLOCK, pattern_sha(1, blocks * BLOCK))
    assert forward.result() == b"1234567890"
    assert proxy.wait(10) == 0
    proxy.check_end()


def test_idle_proxy_ends_at_once(proxies):
    proxy = proxies({"shutdown_timeout_s": 30})
    started = time.monotonic()
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(5) == 0
    assert time.monotonic() - started < 3 * SLOW


def test_idle_keep_alive_connection_does_not_hold_the_drain_up(proxies, web):
    origin = web(lambda *_: o.ok(b"x"))
    proxy = proxies({"shutdown_timeout_s": 30})
    with http(proxy) as c:
        assert c.ask(get_request(origin.authority)).status == 200
        proxy.signal(signal.SIGTERM)
        assert proxy.wait(8) == 0


def test_shutdown_timeout_ends_what_does_not_end(proxies, origins):
    origin = origins(o.silent)
    proxy = proxies({"shutdown_timeout_s": 2})
    with socks5(proxy, origin.host, origin.port) as s:
        started = time.monotonic()
        proxy.signal(signal.SIGTERM)
        assert proxy.wait(12) == 0
        assert 1.5 <= time.monotonic() - started <= 2 + 6 * SLOW
        s.settimeout(3)
        assert recv_to_end(s)[0] == b""
    proxy.check_end()


@pytest.mark.parametrize("first,second", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT),
                                          (signal.SIGTERM, signal.SIGINT)])
def test_second_signal_ends_at_once(proxies, origins, first, second):
    origin = origins(o.silent)
    proxy = proxies({"shutdown_timeout_s": 60})
    with socks5(proxy, origin.host, origin.port):
        proxy.signal(first)
        wait_until(lambda: refuses(proxy), 3, "draining")
        assert proxy.alive()
        started = time.monotonic()
        proxy.signal(second)
        proxy.wait(8)
        assert time.monotonic() - started < 4 * SLOW
        # at once, yet by its own will: no crash, no sanitizer
        proxy.check_end(codes=(0, 1))


def test_established_tunnel_works_while_draining(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"shutdown_timeout_s": 20})
    with socks5(proxy, origin.host, origin.port) as s:
        proxy.signal(signal.SIGTERM)
        wait_until(lambda: refuses(proxy), 3, "draining")
        for _ in range(10):
            s.sendall(b"still")
            assert recv_exact(s, 5) == b"still"
            time.sleep(0.05)
        s.shutdown(socket.SHUT_WR)
        assert recv_to_end(s) == (b"", "fin")
    assert proxy.wait(8) == 0


def test_connections_in_the_backlog_at_sigterm_are_not_left_hanging(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"shutdown_timeout_s": 5})
    socks = [proxy.connect() for _ in range(50)]
    proxy.signal(signal.SIGTERM)
    try:
        for s in socks:
            s.settimeout(12 * SLOW)
            try:
                s.sendall(b"\x05\x01\x00")
                recv_to_end(s)
            except OSError:
                pass
    finally:
        for s in socks:
            s.close()
    assert proxy.wait(15) == 0
    origin.close()


def test_sigpipe_and_sighup_do_not_kill(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies()
    proxy.signal(signal.SIGPIPE)
    with socks5(proxy, origin.host, origin.port) as s:
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"
    assert proxy.alive()


def test_port_is_free_again_after_the_end(proxies, origins):
    origin = origins(o.echo)
    first = proxies(name="first")
    with socks5(first, origin.host, origin.port):
        pass
    first.stop()
    second = proxies(name="second", port=first.port)
    with socks5(second, origin.host, origin.port) as s:
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"

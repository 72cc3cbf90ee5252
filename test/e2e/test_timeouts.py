# SPDX-License-Identifier: ISC
"""Time limits (SPEC 2 limits, CASES 15, 16).  Each is checked within a wide
window: not before its time, and not long after."""

import socket
import time

import pytest

import origins as o
from clients import TUNNELS, fetch, get_request, http, http_connect, recv_exact, recv_to_end, socks5, socks5_code
from util import SLOW, in_parallel, wait_until

LATE = 5.0 * SLOW       # how long after its time an end may come


def ended_after(sock, limit):
    """Seconds until the other side ends the connection, and what it said."""
    sock.settimeout(limit + LATE + 5)
    started = time.monotonic()
    data, how = recv_to_end(sock)
    return time.monotonic() - started, data, how


def test_silent_and_slow_handshakes_end_at_their_time_and_others_are_served(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"limits": {"handshake_timeout_s": 2, "max_sessions_per_ip": 0}})

    def silent():
        with proxy.connect() as s:
            took, data, _ = ended_after(s, 2)
            return took, data

    def after_greeting():
        with proxy.connect() as s:
            s.sendall(b"\x05\x01\x00")
            assert recv_exact(s, 2) == b"\x05\x00"
            took, data, _ = ended_after(s, 2)
            return took, data

    def byte_by_byte(request):
        def job():
            with proxy.connect() as s:
                started = time.monotonic()
                s.settimeout(0.5)
                data = b""
                for i in range(len(request)):
                    try:
                        s.sendall(request[i:i + 1])
                        data = s.recv(4096)
                        break
                    except socket.timeout:
                        continue
                    except OSError:
                        break
                return time.monotonic() - started, data
        return job

    def others():
        for _ in range(20):
            assert socks5_code(proxy, origin.host, origin.port) == 0
            time.sleep(0.1)
        return None
    jobs = [silent] * 30 + [after_greeting] * 5 + \
        [byte_by_byte(b"\x05" + b"\xff" + bytes(60))] * 5 + [byte_by_byte(b"GET http://127.0.0.1/" + b"a" * 60)] * 5
    results = in_parallel([*jobs, others], 40)[:-1]
    for i, (took, data) in enumerate(results):
        assert 1.8 <= took <= 2 + LATE, (i, took)
        assert data == b"" or data.startswith(b"HTTP/1.1 408") or data[:1] == b"\x05", (i, data)


def test_unfinished_head_is_answered_408(proxies):
    proxy = proxies({"limits": {"handshake_timeout_s": 1}})
    with http(proxy) as c:
        c.send(b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0")
        started = time.monotonic()
        r = c.read()
        assert 0.8 <= time.monotonic() - started <= 1 + LATE
        assert r.status == 408
        assert c.ended()


def test_trickle_is_activity_and_silence_is_not(proxies, origins):
    """CASES 16: bytes now and then outlive idle_timeout_s several times over,
    and there is no limit on the whole."""
    origin = origins(o.echo)
    proxy = proxies({"limits": {"idle_timeout_s": 2, "half_close_timeout_s": 60}})

    def trickle(tunnel, client_sends):
        def job():
            src = origins(lambda conn, _o: [conn.sendall(b"x") or time.sleep(1) for _ in range(8)])
            where = origin if client_sends else src
            with TUNNELS[tunnel](proxy, where.host, where.port) as s:
                for _ in range(7):
                    if client_sends:
                        s.sendall(b"x")
                    assert recv_exact(s, 1) == b"x"
                    if client_sends:
                        time.sleep(1)
                if not client_sends:
                    return None
                took, data, _ = ended_after(s, 2)
                assert data == b""
                return took
        return job
    results = in_parallel([trickle(t, c) for t in TUNNELS for c in (True, False)], 60)
    for took in results:
        assert took is None or 0.8 <= took <= 2 + LATE, results


@pytest.mark.parametrize("tunnel", sorted(TUNNELS))
def test_idle_tunnel_ends_both_sides(proxies, origins, tunnel):
    origin = origins(o.silent)
    proxy = proxies({"limits": {"idle_timeout_s": 1}})
    baseline = proxy.socket_count()
    with TUNNELS[tunnel](proxy, origin.host, origin.port) as s:
        took, _, _ = ended_after(s, 1)
        assert 0.8 <= took <= 1 + LATE
        proxy.settled_sockets(baseline, 5)
    origin.close()


def test_long_one_way_download_is_not_idle(proxies, origins):
    """Bytes in one direction keep the whole session."""
    origin = origins(o.source(1, 40 * 65536, pause_s=0.1))
    proxy = proxies({"limits": {"idle_timeout_s": 1}})
    with socks5(proxy, origin.host, origin.port, timeout=30) as s:
        total = 0
        while True:
            data = s.recv(1 << 16)
            if not data:
                break
            total += len(data)
    assert total == 40 * 65536


def test_half_closed_tunnel_in_which_nothing_moves_ends(proxies, origins):
    origin = origins(o.silent)
    proxy = proxies({"limits": {"half_close_timeout_s": 1, "idle_timeout_s": 60}})

    def client_closed():
        keep = origins(lambda conn, _o: (o.recv_all(conn), time.sleep(15)))
        with socks5(proxy, keep.host, keep.port) as s:
            s.shutdown(socket.SHUT_WR)
            return ended_after(s, 1)[0]

    def origin_closed():
        src = origins(o.answer_then_fin(b"bye"))
        with http_connect(proxy, src.host, src.port) as s:
            assert recv_to_end(s) == (b"bye", "fin")
            started = time.monotonic()
            # its read of our upload ends, by FIN or reset, when the proxy gives up
            wait_until(lambda: src.results or src.errors, 1 + LATE, "the origin's side is ended, too")
            return time.monotonic() - started
    for took in in_parallel([client_closed, origin_closed], 40):
        assert 0.6 <= took <= 1 + LATE, took
    origin.close()


@pytest.mark.limit(100)
def test_idle_keep_alive_client_is_ended(proxies, web):
    limit = 1
    origin = web(lambda *_: o.ok(b"x"))
    proxy = proxies({"http": {"keepalive_timeout_s": limit}})
    with http(proxy) as c:
        assert c.ask(get_request(origin.authority)).status == 200
        took, data, _ = ended_after(c.sock, limit)
        assert 0.8 * limit <= took <= limit + LATE, took
        assert data == b"" or data.startswith(b"HTTP/1.1 408"), data


@pytest.mark.limit(100)
def test_origin_that_never_answers_gives_504(proxies, origins):
    limit = 1
    origin = origins(o.silent, timeout=120)
    proxy = proxies({"http": {"upstream_timeout_s": limit}})
    started = time.monotonic()
    r = fetch(proxy, origin.authority, timeout=limit + LATE + 5)
    assert 0.8 * limit <= time.monotonic() - started <= limit + LATE
    assert r.status == 504 and r.first("Proxy-Status", "").startswith("ringway; error="), r


def test_slow_connect_counts_against_connect_timeout_only(proxies, netns):
    with netns:
        proxy = proxies({"limits": {"connect_timeout_s": 3, "handshake_timeout_s": 1}})
        started = time.monotonic()
        assert socks5_code(proxy, netns.HOLE4, 80, timeout=30) == 6
        assert 2.8 <= time.monotonic() - started <= 3 + LATE

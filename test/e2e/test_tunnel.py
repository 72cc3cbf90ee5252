# SPDX-License-Identifier: ISC
"""What flows through a tunnel: every byte, once, in order, and its ends
(CASES 5, 6, 7, 10)."""

import hashlib
import random
import socket
import threading
import time

import pytest

import origins as o
from clients import TUNNELS, http_connect, recv_exact, recv_sha_to_end, recv_to_end, socks5, socks5_code
from util import SANITIZED, SLOW, Background, in_parallel, pattern, pattern_chunks, pattern_sha, scaled, wait_until

MIB = 1 << 20
both_tunnels = pytest.mark.parametrize("tunnel", sorted(TUNNELS))


def upload(sock, seed, nbytes):
    for chunk in pattern_chunks(seed, nbytes):
        sock.sendall(chunk)
    sock.shutdown(socket.SHUT_WR)


# -- CASES 5 ----------------------------------------------------------------------

@pytest.mark.limit(120)
@both_tunnels
def test_fifty_mib_each_way_with_small_buffers_and_a_sleepy_reader(proxies, origins, tunnel):
    size = (50 if tunnel == "socks5" else 10) * MIB
    if SANITIZED:
        size //= 5
    origin = origins(o.both_ways(1, size, sleep_s=0.0005, size=1 << 15), rcvbuf=8192, sndbuf=4096)
    proxy = proxies()
    with socks5(proxy, origin.host, origin.port):
        pass
    before = proxy.rss_kib()
    sock = TUNNELS[tunnel](proxy, origin.host, origin.port, timeout=60, rcvbuf=8192, sndbuf=4096)
    with sock:
        down = Background(recv_sha_to_end, sock)
        peak = 0
        up = Background(upload, sock, 2, size)
        while not (up.done() and down.done()):
            peak = max(peak, proxy.rss_kib())
            time.sleep(0.05)
        up.result()
        assert down.result() == (size, pattern_sha(1, size))
    wait_until(lambda: (size, pattern_sha(2, size)) in origin.results, 10, "the upload arrived whole")
    print("RSS before %d KiB, peak %d KiB" % (before, peak))
    if not SANITIZED:
        assert peak - before < 16 * 1024, "memory grew by %d KiB" % (peak - before)


@both_tunnels
def test_many_sizes_arrive_exactly(proxy, origins, tunnel):
    """Sizes around the buffer and pipe sizes, where a last piece gets lost."""
    sizes = [0, 1, 2, 4095, 4096, 4097, 32767, 32768, 32769, 65535, 65536, 65537, 131072, 262143, 262144, 262145,
             1000003]
    sink = origins(o.sink)
    for n in sizes:
        with TUNNELS[tunnel](proxy, sink.host, sink.port) as s:
            upload(s, n, n)
            assert recv_to_end(s) == (b"%d %s\n" % (n, pattern_sha(n, n).encode()), "fin"), n
        src = origins(o.source(n, n))
        with TUNNELS[tunnel](proxy, src.host, src.port) as s:
            assert recv_sha_to_end(s) == (n, pattern_sha(n, n)), n


def test_big_then_small_then_big_on_one_tunnel(proxy, origins):
    """A direction that turns bulk and back loses nothing at the turns."""
    origin = origins(o.echo)
    rnd = random.Random(4)
    with socks5(proxy, origin.host, origin.port, timeout=30) as s:
        for turn in range(12):
            if turn % 2:
                for _ in range(200):
                    piece = rnd.randbytes(rnd.randrange(1, 200))
                    s.sendall(piece)
                    assert recv_exact(s, len(piece)) == piece
            else:
                n = 3 * MIB
                h = hashlib.sha256()
                sender = Background(lambda n=n, turn=turn: [s.sendall(c) for c in pattern_chunks(turn, n)])
                left = n
                while left:
                    data = s.recv(min(left, 1 << 16))
                    assert data
                    h.update(data)
                    left -= len(data)
                sender.result()
                assert h.hexdigest() == pattern_sha(turn, n)


@pytest.mark.limit(90)
def test_many_transfers_at_once_both_ways(proxy, origins):
    n, size = scaled(40, 8), 2 * MIB
    src, sink = origins(o.source(9, size)), origins(o.sink)

    def down(tunnel):
        def job():
            with TUNNELS[tunnel](proxy, src.host, src.port, timeout=60) as s:
                return recv_sha_to_end(s)
        return job

    def up(tunnel):
        def job():
            with TUNNELS[tunnel](proxy, sink.host, sink.port, timeout=60) as s:
                upload(s, 9, size)
                return recv_to_end(s)
        return job
    jobs = [f(t) for f in (down, up) for t in TUNNELS for _ in range(n // 4)]
    results = in_parallel(jobs, 60)
    digest = pattern_sha(9, size)
    assert results == [(size, digest)] * (n // 2) + [(b"%d %s\n" % (size, digest.encode()), "fin")] * (n // 2)


# -- CASES 6 -------------------------------------------------------------------------

@both_tunnels
def test_client_half_closes_and_the_whole_answer_arrives(proxy, origins, tunnel):
    answer = pattern(5, 3 * MIB)
    origin = origins(o.answer_after_fin(lambda got: got + answer))
    with TUNNELS[tunnel](proxy, origin.host, origin.port, timeout=30) as s:
        s.sendall(b"question")
        s.shutdown(socket.SHUT_WR)
        data, how = recv_to_end(s)
        assert how == "fin" and data == b"question" + answer
    assert origin.result() == b"question"


@both_tunnels
def test_origin_half_closes_and_the_client_may_still_upload(proxy, origins, tunnel):
    origin = origins(o.answer_then_fin(b"short answer"))
    with TUNNELS[tunnel](proxy, origin.host, origin.port, timeout=30) as s:
        assert recv_to_end(s) == (b"short answer", "fin")
        time.sleep(0.1)
        upload(s, 6, 3 * MIB)
        assert origin.result() == (3 * MIB, pattern_sha(6, 3 * MIB))


@both_tunnels
def test_half_close_right_behind_the_handshake(proxy, origins, tunnel):
    """FIN in the same breath as the request and its payload."""
    origin = origins(o.answer_after_fin(lambda got: b"<" + got + b">"))
    with proxy.connect() as s:
        if tunnel == "socks5":
            s.sendall(b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\1" + origin.port.to_bytes(2, "big") + b"all")
            s.shutdown(socket.SHUT_WR)
            data, how = recv_to_end(s)
            assert data[:4] == b"\x05\x00\x05\x00" and data[12:] == b"<all>" and how == "fin"
        else:
            s.sendall(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nall" % origin.authority.encode())
            s.shutdown(socket.SHUT_WR)
            data, how = recv_to_end(s)
            assert data.startswith(b"HTTP/1.1 200") and data.endswith(b"\r\n\r\n<all>") and how == "fin"


@both_tunnels
def test_both_sides_end_and_the_session_is_gone(proxy, origins, tunnel):
    origin = origins(o.echo)
    baseline = proxy.socket_count()
    for _ in range(20):
        with TUNNELS[tunnel](proxy, origin.host, origin.port) as s:
            s.sendall(b"x")
            s.shutdown(socket.SHUT_WR)
            assert recv_to_end(s) == (b"x", "fin")
    proxy.settled_sockets(baseline, 5)


@both_tunnels
def test_reset_of_the_origin_reaches_the_client(proxy, origins, tunnel):
    origin = origins(o.resetter(1, b"part"))
    with TUNNELS[tunnel](proxy, origin.host, origin.port) as s:
        s.sendall(b"x")
        s.settimeout(10)
        data, how = recv_to_end(s)
        assert data in (b"part", b"")
        # A cut must not look like an orderly end of the data.
        assert how == "rst", how
    proxy.settled_sockets(proxy.socket_count(), 1)


@both_tunnels
def test_reset_of_the_client_reaches_the_origin(proxy, origins, tunnel):
    origin = origins(o.echo)
    baseline = proxy.socket_count()
    s = TUNNELS[tunnel](proxy, origin.host, origin.port)
    s.sendall(b"x")
    recv_exact(s, 1)
    o.reset(s)
    wait_until(lambda: origin.open == 0, 5, "origin sees the end")
    proxy.settled_sockets(baseline)


# -- CASES 7 ---------------------------------------------------------------------------

@pytest.mark.limit(120)
@pytest.mark.parametrize("kind", ["socks5", "connect", "forward"])
def test_thousands_of_clients_killed_in_mid_transfer_leave_nothing(proxies, load, kind):
    count = scaled(2000 if kind == "socks5" else 500)
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}})
    port = load.origin("http" if kind == "forward" else "source")
    baseline = proxy.socket_count()
    pipes = []
    for _ in range(3):
        clients = load("drain", kind, proxy.port, port, count, 200)
        facts = clients.facts()
        assert facts["ok"] == count, facts
        clients.kill()
        wait_until(lambda: proxy.socket_count() <= baseline, 20,
                   lambda: "sockets back to %d (now %d, %s)" % (baseline, proxy.socket_count(), proxy.tcp_states()))
        assert proxy.tcp_states().get("CLOSE_WAIT", 0) == 0
        pipes.append(proxy.pipe_count())
    # a worker may keep some empty pipes, two descriptors each, for the next
    assert max(pipes) <= 2 * 2 * 40, "pipes pile up: %s" % pipes


# -- CASES 10 --------------------------------------------------------------------------

@pytest.mark.limit(120)
@pytest.mark.parametrize("kind", ["socks5", "connect"])
def test_open_close_storm_never_crosses_connections(proxies, load, kind):
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}})
    port = load.origin("echo")
    baseline = proxy.socket_count()
    count = scaled(10000)
    facts = load("storm", kind, proxy.port, port, count, 200, 12345).facts()
    print(facts)
    assert facts["foreign"] == 0 and facts["failed"] == 0, facts
    assert facts["ok"] == count // 2 and facts["reset"] == count // 2, facts
    proxy.settled_sockets(baseline)


def test_storm_of_connections_that_say_nothing(proxy, origins):
    """Health checks: connect and close, in order and by reset."""
    origin = origins(o.echo)
    baseline = proxy.socket_count()
    for i in range(500):
        s = proxy.connect()
        if i % 2:
            o.reset(s)
        else:
            s.close()
    assert socks5_code(proxy, origin.host, origin.port) == 0
    proxy.settled_sockets(baseline)
    assert " error " not in proxy.log().lower(), proxy.log()


def test_one_stalled_tunnel_holds_no_other_up(proxies, origins):
    proxy = proxies({"workers": 1})
    endless = origins(o.source(3, 200 * MIB))
    echo = origins(o.echo)
    with socks5(proxy, endless.host, endless.port, rcvbuf=4096):
        time.sleep(0.3)
        started = time.monotonic()
        for tunnel in (socks5, http_connect):
            with tunnel(proxy, echo.host, echo.port) as s:
                s.sendall(b"quick")
                assert recv_exact(s, 5) == b"quick"
        assert time.monotonic() - started < 2 * SLOW
        before = proxy.cpu_s()
        time.sleep(0.5)
        assert proxy.cpu_s() - before < 0.2 * SLOW, "spins on a reader that does not read"


def test_trickle_of_single_bytes_each_way(proxy, origins):
    origin = origins(o.echo)
    with socks5(proxy, origin.host, origin.port) as s:
        got = bytearray()
        reader = threading.Thread(target=lambda: got.extend(recv_exact(s, 500)), daemon=True)
        reader.start()
        data = pattern(8, 500)
        for i in range(500):
            s.sendall(data[i:i + 1])
        reader.join(20)
        assert bytes(got) == data

# SPDX-License-Identifier: ISC
"""HTTP CONNECT on the wire (SPEC 5, CASES 1, 4, 22)."""

import socket

import pytest

import origins as o
from clients import (connect_read_status, connect_request, http, http_connect, recv_exact, recv_to_end,
                     send_bytewise)
from util import free_port, pattern, wait_until


def test_request_a_byte_at_a_time(proxy, origins):
    origin = origins(o.echo)
    with proxy.connect() as s:
        send_bytewise(s, connect_request(origin.authority), 0.0005)
        assert connect_read_status(s) == 200
        send_bytewise(s, b"payload")
        assert recv_exact(s, 7) == b"payload"


@pytest.mark.parametrize("payload", [b"p", b"\x16\x03\x01 hello", pattern(1, 30000)], ids=["1", "tls", "30000"])
def test_all_in_one_segment_reaches_the_origin_once(proxy, origins, payload):
    origin = origins(o.answer_after_fin(lambda got: b"got %d" % len(got)))
    with proxy.connect() as s:
        s.sendall(connect_request(origin.authority) + payload)
        s.shutdown(socket.SHUT_WR)
        assert connect_read_status(s) == 200
        assert recv_to_end(s) == (b"got %d" % len(payload), "fin")
    assert origin.result() == payload


def test_banner_is_the_first_byte_after_the_answer(proxy, origins):
    origin = origins(o.banner_first(b"220 ready\r\n"))
    for _ in range(20):
        with http_connect(proxy, origin.host, origin.port) as s:
            assert recv_exact(s, 11) == b"220 ready\r\n"


@pytest.mark.parametrize("version,fields", [
    ("HTTP/1.1", ()), ("HTTP/1.0", ()), ("HTTP/1.1", ("User-Agent: x", "Proxy-Connection: keep-alive")),
    ("HTTP/1.1", ("Proxy-Authorization: Basic eDp5",)),
])
def test_headers_do_not_reach_the_origin(proxy, origins, version, fields):
    origin = origins(o.answer_after_fin(lambda got: got))
    with proxy.connect() as s:
        s.sendall(connect_request(origin.authority, fields, version))
        assert connect_read_status(s) == 200
        s.sendall(b"only this")
        s.shutdown(socket.SHUT_WR)
        assert recv_to_end(s)[0] == b"only this"


def test_http_1_0_without_host_is_served(proxy, origins):
    """As nc -X connect asks."""
    origin = origins(o.echo)
    with proxy.connect() as s:
        s.sendall(b"CONNECT %s HTTP/1.0\r\n\r\n" % origin.authority.encode())
        assert connect_read_status(s) == 200


def test_ipv6_literal_in_brackets(proxy, origins):
    origin = origins(o.echo, host="::1")
    with http_connect(proxy, "::1", origin.port) as s:
        s.sendall(b"six")
        assert recv_exact(s, 3) == b"six"


def test_failed_connect_keeps_or_ends_the_connection_cleanly(proxy, origins):
    origin = origins(o.echo)
    with http(proxy) as c:
        r = c.ask(connect_request("127.0.0.1:%d" % free_port()), method="CONNECT")
        assert r.status == 502
        assert int(r.first("Content-Length")) == len(r.body) > 0
        if r.first("Connection", "").lower() == "close":
            assert c.ended()
        else:
            c.send(connect_request(origin.authority))
            assert c.read_head().status == 200


# -- CASES 22 -------------------------------------------------------------------------

def targets(port):
    """(request target, may it connect)"""
    return [
        ("127.0.0.1:%d" % port, True),
        ("localhost:%d" % port, True),
        ("LOCALHOST:%d" % port, True),
        ("127.0.0.1:0%d" % port, None),
        ("127.0.0.1:0", False),
        ("127.0.0.1:%d" % (port + 65536), False),
        ("127.0.0.1:%d" % (port + (1 << 32)), False),
        ("127.0.0.1:65616", False),
        ("127.0.0.1:-1", False),
        ("127.0.0.1:+%d" % port, False),
        ("127.0.0.1:80x", False),
        ("127.0.0.1:%dx" % port, False),
        ("127.0.0.1:0x%x" % port, False),
        ("127.0.0.1: %d" % port, False),
        ("127.0.0.1:", False),
        ("127.0.0.1", False),
        (":%d" % port, False),
        ("", False),
        ("user@127.0.0.1:%d" % port, False),
        ("user:pw@127.0.0.1:%d" % port, False),
        ("http://127.0.0.1:%d" % port, False),
        ("http://127.0.0.1:%d/" % port, False),
        ("127.0.0.1:%d/" % port, False),
        ("127.0.0.1:%d/path" % port, False),
        ("127.0.0.1:%d?q" % port, False),
        ("127.0.0.1:%d#f" % port, False),
        ("/", False),
        ("*", False),
        ("[127.0.0.1]:%d" % port, False),
        ("[::1:%d" % port, False),
        ("::1]:%d" % port, False),
        ("[::1]%d" % port, False),
        ("[]:%d" % port, False),
        ("[::1%%lo]:%d" % port, None),
        ("[::g]:%d" % port, False),
        ("127.0.0.1:%d:%d" % (port, port), False),
        ("127.0.0.1,127.0.0.1:%d" % port, False),
        ("127.0.0.1\x00:%d" % port, False),
        ("127.0.0.1%%00:%d" % port, False),
        ("a" * 300 + ":%d" % port, False),
    ]


def test_connect_targets_are_right_or_400_and_never_wrapped(proxy, origins):
    origin = origins(o.echo)
    wrong = []
    for target, may in targets(origin.port):
        before = origin.accepted
        with http(proxy) as c:
            c.send(b"CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target.encode("latin-1"), origin.port))
            try:
                status = c.read("CONNECT").status
            except (EOFError, OSError, AssertionError) as e:
                wrong.append("%r: %r" % (target, e))
                continue
        if status == 200:       # the origin's thread may count it a moment later
            wait_until(lambda n=before: origin.accepted > n, 5, "the origin saw the connection")
        reached = origin.accepted - before
        if may is True and status != 200:
            wrong.append("%r: %d, expected 200" % (target, status))
        if may is False and (status not in (400, 502) or reached):
            wrong.append("%r: %d, reached %d; expected 400" % (target, status, reached))
    assert not wrong, "\n".join(wrong)
    assert proxy.alive()


def test_bare_ipv6_is_right_or_400(proxy, origins):
    origin = origins(o.echo, host="::1")
    for target, fine in (("[::1]:%d" % origin.port, (200,)), ("::1:%d" % origin.port, (400, 502)),
                         ("[0:0:0:0:0:0:0:1]:%d" % origin.port, (200,)), ("[::ffff:127.0.0.1]:1", (400, 502))):
        with http(proxy) as c:
            c.send(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" % target.encode())
            assert c.read("CONNECT").status in fine, target


def test_repeated_host_is_refused(proxy, origins):
    origin = origins(o.echo)
    with http(proxy) as c:
        r = c.ask(connect_request(origin.authority, ["Host: other"]), method="CONNECT")
        assert r.status == 400
    assert origin.accepted == 0

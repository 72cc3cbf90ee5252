# SPDX-License-Identifier: ISC
"""SOCKS5, SOCKS4 and 4a on the wire (SPEC 4, CASES 1..4, 9)."""

import socket
import struct

import pytest

import origins as o
from clients import (GRANTED4, is_ended, recv_exact, recv_to_end, send_bytewise, socks4,
                     socks4_read_reply, socks4_request, socks5, socks5_ask, socks5_code, socks5_greeting,
                     socks5_read_reply, socks5_request)
from util import free_port, pattern, wait_until

ALL = ["socks5", "socks4", "http"]


def ends_quietly(sock, allowed=(b"",), timeout=5.0):
    """The connection ends, and what came before is one of `allowed`."""
    sock.settimeout(timeout)
    try:
        data, _how = recv_to_end(sock)
    except socket.timeout:
        raise AssertionError("still open") from None
    assert data in allowed, data


# -- CASES 1: split and joined -------------------------------------------------

def test_socks5_handshake_a_byte_at_a_time(proxy, origins):
    origin = origins(o.echo)
    with proxy.connect() as s:
        send_bytewise(s, socks5_greeting(0))
        assert recv_exact(s, 2) == b"\x05\x00"
        send_bytewise(s, socks5_request(origin.host, origin.port))
        assert socks5_read_reply(s).code == 0
        send_bytewise(s, b"payload")
        assert recv_exact(s, 7) == b"payload"


@pytest.mark.parametrize("payload", [b"p", b"payload-behind", pattern(1, 30000)], ids=["1", "14", "30000"])
def test_socks5_all_in_one_segment_reaches_the_origin_once(proxy, origins, payload):
    origin = origins(o.answer_after_fin(lambda got: b"got %d" % len(got)))
    with proxy.connect() as s:
        s.sendall(socks5_greeting(0) + socks5_request(origin.host, origin.port) + payload)
        s.shutdown(socket.SHUT_WR)
        assert recv_exact(s, 2) == b"\x05\x00"
        assert socks5_read_reply(s).code == 0
        assert recv_to_end(s) == (b"got %d" % len(payload), "fin")
    assert origin.result() == payload


def test_socks5_request_and_payload_behind_it(proxy, origins):
    origin = origins(o.echo)
    with proxy.connect() as s:
        s.sendall(socks5_greeting(0))
        assert recv_exact(s, 2) == b"\x05\x00"
        s.sendall(socks5_request(origin.host, origin.port) + b"early")
        assert socks5_read_reply(s).code == 0
        s.sendall(b" late")
        assert recv_exact(s, 10) == b"early late"


@pytest.mark.parametrize("userid", [b"", b"alice", b"u" * 200])
def test_socks4_split_and_joined(proxies, origins, userid):
    proxy = proxies(protocols=ALL)
    origin = origins(o.echo)
    request = socks4_request(origin.host, origin.port, userid)
    with proxy.connect() as s:
        send_bytewise(s, request)
        assert socks4_read_reply(s) == GRANTED4
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"
    with proxy.connect() as s:
        s.sendall(request + b"early")
        assert socks4_read_reply(s) == GRANTED4
        assert recv_exact(s, 5) == b"early"


def test_socks4a_resolves_the_name_split_and_joined(proxies, origins, dns):
    dns.add("echo.test", "127.0.0.1")
    proxy = proxies({"resolver": {"servers": [dns.address]}}, protocols=ALL)
    origin = origins(o.echo)
    request = socks4_request("echo.test", origin.port, b"me")
    with proxy.connect() as s:
        send_bytewise(s, request)
        assert socks4_read_reply(s) == GRANTED4
    with proxy.connect() as s:
        s.sendall(request + b"early")
        assert socks4_read_reply(s) == GRANTED4
        assert recv_exact(s, 5) == b"early"
    assert dns.count("echo.test") >= 1


def test_socks4_is_refused_unless_listed(proxy, origins):
    origin = origins(o.echo)
    with proxy.connect() as s:
        s.sendall(socks4_request(origin.host, origin.port))
        ends_quietly(s, (b"", b"\0\x5b" + bytes(6)))
    assert origin.accepted == 0


def test_socks4_failures_are_told(proxies):
    proxy = proxies(protocols=ALL)
    for request in (socks4_request("127.0.0.1", free_port()),           # refused
                    socks4_request("127.0.0.1", free_port(), cmd=2),    # BIND
                    socks4_request("127.0.0.1", free_port(), cmd=9),    # nonsense
                    socks4_request("nosuch.invalid", 80)):
        with proxy.connect() as s:
            s.sendall(request)
            code = socks4_read_reply(s)
            assert code in (0x5b, 0x5c, 0x5d), "%02x for %r" % (code, request)
            assert is_ended(s)


# -- CASES 2: methods ------------------------------------------------------------

@pytest.mark.parametrize("greeting,answer", [
    (b"\x05\x01\x00", b"\x05\x00"),
    (b"\x05\x02\x00\x02", b"\x05\x00"),
    (b"\x05\x03\x02\x01\x00", b"\x05\x00"),
    (b"\x05\xff" + bytes(range(255)), b"\x05\x00"),
    (b"\x05\x01\x02", b"\x05\xff"),
    (b"\x05\x02\x01\x02", b"\x05\xff"),
    (b"\x05\x01\x80", b"\x05\xff"),
    (b"\x05\x00", b"\x05\xff"),
], ids=lambda v: v.hex()[:12])
def test_method_is_chosen_or_ff_with_exact_length(proxy, greeting, answer):
    with proxy.connect() as s:
        s.sendall(greeting)
        assert recv_exact(s, 2) == answer
        if answer[1] == 0xff:
            ends_quietly(s)
        else:
            s.settimeout(0.2)
            with pytest.raises(socket.timeout):
                s.recv(1)       # not a byte more than the answer


# -- CASES 3: names ----------------------------------------------------------------

@pytest.fixture
def named(proxies, origins, dns):
    """A proxy with a resolver of its own, and an echo that `echo.test` names."""
    origin = origins(o.echo)
    for name in ("echo.test", "a"):
        dns.add(name, "127.0.0.1")
    proxy = proxies({"resolver": {"servers": [dns.address], "timeout_ms": 500, "attempts": 1}})
    return proxy, origin, dns


@pytest.mark.parametrize("name", [b"echo.test", b"ECHO.Test", b"echo.test.", b"a", b"127.0.0.1", b"localhost", b"LOCALHOST"],
                         ids=lambda n: n.decode())
def test_domain_that_names_the_origin_connects(named, name):
    proxy, origin, _ = named
    with socks5(proxy, name, origin.port, as_domain=True) as s:
        s.sendall(b"hi")
        assert recv_exact(s, 2) == b"hi"


@pytest.mark.parametrize("name", [
    b"", b"x" * 255, b"x" * 63 + b".test", b"x" * 64 + b".test", b"no.such.test", b"nul\0echo.test", b"echo.test\0",
    b"\0", b" ", b"echo.test ", b" echo.test", b"echo test", b".", b"..", b".echo.test", b"echo..test", b"-",
    b"[127.0.0.1]", b"127.0.0.1:80", b"::1%lo", b"\xff\xfe", b"echo.test\r\n", b"1.2.3.4.5", b"256.1.1.1", b"%s%n",
], ids=lambda n: repr(n[:20])[2:-1] + ("" if len(n) <= 20 else "..%d" % len(n)))
def test_domain_that_is_none_gets_the_fitting_reply(named, name):
    proxy, origin, _ = named
    with proxy.connect(timeout=15) as s:
        s.sendall(socks5_greeting(0) + socks5_request(name, origin.port, as_domain=True))
        assert recv_exact(s, 2) == b"\x05\x00"
        reply = socks5_read_reply(s)
        assert reply.code in (1, 4, 8), reply
        assert is_ended(s)
    assert origin.accepted == 0
    assert socks5_code(proxy, origin.host, origin.port) == 0     # and it lives


def test_ip_literal_and_localhost_do_not_ask_dns(named, origins):
    proxy, origin, dns = named
    assert socks5_code(proxy, b"127.0.0.1", origin.port, as_domain=True) == 0
    six = origins(o.echo, host="::1")
    assert socks5_code(proxy, b"::1", six.port, as_domain=True) == 0
    assert socks5_code(proxy, b"0:0:0:0:0:0:0:1", six.port, as_domain=True) == 0
    assert socks5_code(proxy, b"localhost", origin.port, as_domain=True) == 0
    assert socks5_code(proxy, b"localhost.", origin.port, as_domain=True) == 0
    assert dns.questions == []


def test_socks5_ipv6_address(proxy, origins):
    origin = origins(o.echo, host="::1")
    with socks5(proxy, "::1", origin.port) as s:
        s.sendall(b"six")
        assert recv_exact(s, 3) == b"six"


# -- CASES 4: the origin speaks first ------------------------------------------------

@pytest.mark.parametrize("kind", ["socks5", "socks4"])
def test_banner_is_the_first_byte_after_the_reply(proxies, origins, kind):
    proxy = proxies(protocols=ALL)
    origin = origins(o.banner_first(b"SSH-2.0-test\r\n"))
    for _ in range(20):
        with (socks5 if kind == "socks5" else socks4)(proxy, origin.host, origin.port) as s:
            assert recv_exact(s, 14) == b"SSH-2.0-test\r\n"
            s.sendall(b"ok")
            assert recv_exact(s, 2) == b"ok"


# -- replies ------------------------------------------------------------------------

def test_bnd_is_the_upstream_sockets_local_address(proxy, origins):
    for host in ("127.0.0.1", "::1"):
        origin = origins(o.silent, host=host)
        with proxy.connect() as s:
            reply = socks5_ask(s, host, origin.port)
            assert reply.code == 0
            wait_until(lambda: origin.peers, 5, "origin saw the connection")
            assert (reply.host, reply.port) == origin.peers[0][:2]


@pytest.mark.parametrize("cmd,code", [(2, 7), (0, 7), (4, 7), (0xf0, 7), (0xff, 7)])
def test_other_commands_are_answered_07(proxy, cmd, code):
    with proxy.connect() as s:
        assert socks5_ask(s, "127.0.0.1", 80, cmd=cmd).code == code
        assert is_ended(s)


@pytest.mark.parametrize("atyp", [0, 2, 5, 0xff])
def test_unknown_address_type_is_answered_08(proxy, atyp):
    with proxy.connect() as s:
        s.sendall(socks5_greeting(0))
        assert recv_exact(s, 2) == b"\x05\x00"
        s.sendall(bytes([5, 1, 0, atyp, 127, 0, 0, 1, 0, 80]))
        assert socks5_read_reply(s).code == 8
        assert is_ended(s)


def test_port_zero_is_refused(proxy):
    assert socks5_code(proxy, "127.0.0.1", 0) != 0
    assert socks5_code(proxy, b"localhost", 0, as_domain=True) != 0


def test_wrong_version_inside_is_not_obeyed(proxy, origins):
    origin = origins(o.echo)
    with proxy.connect() as s:
        s.sendall(socks5_greeting(0))
        assert recv_exact(s, 2) == b"\x05\x00"
        bad = bytearray(socks5_request(origin.host, origin.port))
        bad[0] = 4
        s.sendall(bad)
        s.settimeout(5)
        data, _how = recv_to_end(s)
        assert data == b"" or (data[0] == 5 and data[1] != 0), data
    assert origin.accepted == 0


@pytest.mark.parametrize("junk", [b"\x00", b"\x01\x02\x03", b"\x16\x03\x01\x02\x00\x01", b"\xff" * 40, b"\x80\x00\x01"],
                         ids=lambda b: b.hex()[:10])
def test_first_byte_of_no_protocol_is_closed(proxy, junk):
    with proxy.connect() as s:
        s.sendall(junk)
        s.settimeout(8)
        data, _how = recv_to_end(s)
        assert data == b"" or data.startswith(b"HTTP/1.1 400"), data
    assert proxy.alive()


def test_truncated_handshakes_leave_nothing_behind(proxy, origins):
    origin = origins(o.echo)
    baseline = proxy.socket_count()
    whole = socks5_greeting(0) + socks5_request("name.test", origin.port, as_domain=True)
    for cut in range(len(whole)):
        for how in ("close", "half"):
            s = proxy.connect()
            s.sendall(whole[:cut])
            if how == "half":
                s.shutdown(socket.SHUT_WR)
                s.settimeout(5)
                recv_to_end(s)
            s.close()
    proxy.settled_sockets(baseline)
    assert socks5_code(proxy, origin.host, origin.port) == 0


def test_listener_speaks_only_what_it_lists(proxies, origins):
    origin = origins(o.echo)
    only_http = proxies(protocols=["http"], name="h")
    with only_http.connect() as s:
        s.sendall(socks5_greeting(0) + socks5_request(origin.host, origin.port))
        s.settimeout(8)
        data, _ = recv_to_end(s)
        assert not data.startswith(b"\x05\x00"), data
    only_socks = proxies(protocols=["socks5"], name="s")
    with only_socks.connect() as s:
        s.sendall(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" % origin.authority.encode())
        s.settimeout(8)
        data, _ = recv_to_end(s)
        assert b" 200 " not in data, data
    assert origin.accepted == 0


def test_reserved_byte_and_big_port(proxy, origins):
    """RSV is reserved, not meaningful: a set one is either ignored or refused."""
    origin = origins(o.echo)
    with proxy.connect() as s:
        s.sendall(socks5_greeting(0))
        recv_exact(s, 2)
        request = bytearray(socks5_request(origin.host, origin.port))
        request[2] = 0xff
        s.sendall(request)
        assert socks5_read_reply(s).code in (0, 1)
    assert socks5_code(proxy, "127.0.0.1", struct.unpack(">H", b"\xff\xff")[0]) == 5

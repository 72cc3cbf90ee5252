# SPDX-License-Identifier: ISC
"""The helpers against themselves, without a proxy: a wrong origin would make
every other test a liar."""

import socket
import struct

import pytest

import clients
import origins as o
from dnsserver import A, AAAA, DnsServer, encode_name
from util import Background, free_port, pattern, pattern_chunks, pattern_sha


class Direct:
    """Stands where a Proxy does: connects to an origin."""

    def __init__(self, origin):
        self.where = (origin.host, origin.port)

    def connect(self, timeout=5.0, **_):
        return socket.create_connection(self.where, timeout)


def test_pattern_is_deterministic_and_blocks_differ():
    data = pattern(7, 200000)
    assert data == b"".join(pattern_chunks(7, 200000)) and len(data) == 200000
    assert data[:65536] != data[65536:131072] and pattern_sha(7, 200000) != pattern_sha(8, 200000)


def test_echo_sink_source_and_half_close(origins):
    with Direct(origins(o.echo)).connect() as s:
        s.sendall(b"abc")
        s.shutdown(socket.SHUT_WR)
        assert clients.recv_to_end(s) == (b"abc", "fin")
    sink = origins(o.sink)
    with Direct(sink).connect() as s:
        s.sendall(pattern(1, 300000))
        s.shutdown(socket.SHUT_WR)
        assert clients.recv_to_end(s)[0] == b"300000 %s\n" % pattern_sha(1, 300000).encode()
    assert sink.result() == (300000, pattern_sha(1, 300000))
    with Direct(origins(o.source(2, 300000))).connect() as s:
        assert clients.recv_sha_to_end(s) == (300000, pattern_sha(2, 300000))
    late = origins(o.answer_after_fin(lambda got: b"<" + got + b">"))
    with Direct(late).connect() as s:
        s.sendall(b"q")
        s.shutdown(socket.SHUT_WR)
        assert clients.recv_to_end(s)[0] == b"<q>"


def test_resetter_resets_and_the_client_can_tell(origins):
    with Direct(origins(o.resetter(1, b"part"))).connect() as s:
        s.sendall(b"x")
        assert clients.recv_to_end(s) == (b"part", "rst")


def test_http_origin_and_client_agree_on_framing(web):
    body = pattern(3, 50000)
    answers = {"/len": o.ok(body), "/chunked": o.chunked(body, 777, b"X-Sum: 1\r\n"), "/none": b"HTTP/1.1 204 No Content\r\n\r\n",
               "/interim": b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + o.ok(b"end")}
    origin = web(lambda r, _c, _s: answers[r.target])
    with clients.Http(Direct(origin).connect()) as c:
        for path, want in (("/len", body), ("/chunked", body), ("/none", b""), ("/interim", b"end")):
            r = c.ask("GET %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % path)
            assert r.body == want and r.cut is None
        assert r.interim[0].status == 103
    assert [q.body for q in origin.requests] == [b"abc"] * 4
    cut = web(lambda *_: [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", o.Close])
    with clients.Http(Direct(cut).connect()) as c:
        assert c.ask("GET / HTTP/1.1\r\n\r\n").cut == "fin after 3 of 10"


@pytest.mark.parametrize("way", ["udp", "tcp"])
def test_dns_server_answers_what_it_was_told(way):
    with DnsServer() as dns:
        dns.add("Two.test", "192.0.2.1", "2001:db8::1", ttl=7)
        dns.add("tc.test", "192.0.2.2", truncate=True)

        def ask(name, qtype):
            query = struct.pack(">HHHHHH", 99, 0x0100, 1, 0, 0, 0) + encode_name(name) + struct.pack(">HH", qtype, 1)
            if way == "udp":
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                    s.settimeout(5)
                    s.sendto(query, ("127.0.0.1", dns.port))
                    return s.recv(4096)
            with socket.create_connection(("127.0.0.1", dns.port), 5) as s:
                s.sendall(struct.pack(">H", len(query)) + query)
                return s.recv(struct.unpack(">H", s.recv(2))[0])
        reply = ask("two.TEST", A)
        assert struct.unpack(">HHHH", reply[:8])[0] == 99 and reply.endswith(b"\0\0\0\7\0\4\xc0\0\2\1")
        assert ask("two.test", AAAA).endswith(socket.inet_pton(socket.AF_INET6, "2001:db8::1"))
        assert ask("no.test", A)[3] & 0xf == 3
        assert bool(ask("tc.test", A)[2] & 2) == (way == "udp")
        assert dns.count("TWO.test") == 2 and dns.count("two.test", A) == 1


def test_namespace_swallows_refuses_and_has_no_route(netns):
    def errno_of(host, family=socket.AF_INET, timeout=0.3):
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(timeout)
            try:
                s.connect((host, 80))
                return None
            except socket.timeout:
                return "timeout"
            except OSError as e:
                return e.errno
    import errno
    with netns:
        assert errno_of(netns.HOLE4) == "timeout"
        assert errno_of(netns.HOLE6, socket.AF_INET6) == "timeout"
        assert errno_of(netns.NOHOST4) == errno.EHOSTUNREACH
        assert errno_of(netns.FORBIDDEN4) == errno.EACCES
        assert errno_of(netns.NONET4) == errno.ENETUNREACH
        assert errno_of("127.0.0.1") == errno.ECONNREFUSED
        assert errno_of("::1", socket.AF_INET6) == errno.ECONNREFUSED


def test_load_helper_holds_pings_and_storms(load):
    """Against a stand-in that grants any SOCKS5 request and echoes."""
    def stand_in(conn, _origin):
        conn.sendall(b"\5\0" if clients.recv_exact(conn, 3) == b"\5\1\0" else b"\5\xff")
        clients.recv_exact(conn, 10)
        conn.sendall(b"\5\0\0\1" + bytes(6))
        return o.echo(conn, None)
    with o.Origin(stand_in) as proxy:
        hold = load("hold", "socks5", proxy.port, 9, 50, 10)
        assert hold.facts() == {"what": "ready", "ok": 50, "failed": 0}
        assert hold.command("ping") == {"what": "ping", "ok": 50, "due": 50, "foreign": 0}
        assert hold.command("alive")["open"] == 50
        storm = load("storm", "socks5", proxy.port, 9, 400, 20, 3).facts()
        assert storm["ok"] == 200 and storm["reset"] == 200 and not storm["foreign"], storm


def test_background_hands_exceptions_back():
    def fail():
        raise ValueError("x")
    with pytest.raises(ValueError):
        Background(fail).result()
    assert free_port() != free_port()

# SPDX-License-Identifier: ISC
"""Absolute-form forwarding: every request looked at on its own, framing kept,
ends told (SPEC 5, CASES 6, 23..28, 17c)."""

import hashlib
import socket
import threading
import time

import pytest

import origins as o
from clients import Http, fetch, get_request, http, is_ended, recv_to_end, send_bytewise
from util import SANITIZED, SLOW, Background, free_port, pattern, pattern_chunks, pattern_sha, wait_until

MIB = 1 << 20


def hello(request, _conn, _stream):
    return o.ok(b"hello " + request.target.encode())


# -- what the origin sees ------------------------------------------------------------

def test_request_is_rewritten_to_origin_form(proxy, web):
    origin = web(hello)
    r = fetch(proxy, origin.authority, "/a/b?c=d&e=%20", ["User-Agent: test", "X-Kept: yes", "Accept: */*"])
    assert (r.status, r.body) == (200, b"hello /a/b?c=d&e=%20")
    q = origin.requests[0]
    assert q.line == "GET /a/b?c=d&e=%20 HTTP/1.1"
    assert q.get("Host") == [origin.authority]
    assert q.get("X-Kept") == ["yes"] and q.get("User-Agent") == ["test"] and q.get("Accept") == ["*/*"]
    assert len(q.get("Via")) == 1 and q.first("Via").startswith("1.1 ringway"), q.fields
    assert any(v.startswith("1.1 ringway") for v in r.get("Via")), r.fields


def test_target_without_path_becomes_a_slash(proxy, web):
    origin = web(hello)
    assert fetch(proxy, origin.authority, "").body == b"hello /"
    fetch(proxy, origin.authority, "?q")
    assert origin.requests[1].target == "/?q"


def test_hop_by_hop_fields_are_stripped(proxy, web):
    origin = web(lambda *_: o.ok(b"x", [b"Connection: X-Resp", b"X-Resp: 1", b"Keep-Alive: timeout=9", b"X-End: 2",
                                        b"Proxy-Connection: close"]))
    r = fetch(proxy, origin.authority, fields=[
        "Connection: keep-alive, X-Named, Te", "X-Named: secret", "Keep-Alive: 300", "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic YTpi", "Proxy-Authenticate: x", "TE: gzip", "Upgrade: h2c", "HTTP2-Settings: AAA",
        "X-End: 1"])
    q = origin.requests[0]
    for name in ("X-Named", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Upgrade"):
        assert not q.get(name), (name, q.fields)
    assert not any("gzip" in v for v in q.get("TE"))
    assert q.get("X-End") == ["1"]
    assert not r.get("X-Resp") and not r.get("Proxy-Connection") and r.get("X-End") == ["2"], r.fields
    assert not any("x-resp" in v.lower() for v in r.get("Connection"))
    assert not any("x-named" in v.lower() for v in q.get("Connection"))


def test_connection_may_not_name_end_to_end_fields(proxy, web):
    """CASES 24: framing and Host survive whatever Connection names."""
    origin = web(lambda *_: o.ok(b"fine", [b"Cache-Control: no-store", b"Connection: Cache-Control, Connection"]))
    with http(proxy) as c:
        r = c.ask("POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\nCache-Control: no-cache\r\n"
                  "Connection: Host, Content-Length, Cache-Control, Connection\r\n\r\nbody"
                  % (origin.authority, origin.authority))
    assert (r.status, r.body) == (200, b"fine")
    q = origin.requests[0]
    assert q.get("Host") == [origin.authority] and q.body == b"body"
    assert q.get("Cache-Control") == ["no-cache"], q.fields
    assert r.get("Cache-Control") == ["no-store"], r.fields


def test_transfer_encoding_named_by_connection_keeps_the_framing(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask("POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: Transfer-Encoding\r\n\r\n"
                  "4\r\nbody\r\n0\r\n\r\n" % origin.authority)
    if r.status == 200:
        assert origin.requests[0].body == b"body"
    else:
        assert r.status == 400 and not origin.requests


def test_authority_of_the_uri_wins_over_host(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        c.send("GET http://%s/ HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n" % origin.authority)
        r = c.read()
    if r.status == 200:
        assert origin.requests[0].get("Host") == [origin.authority]
    else:
        assert r.status == 400


def test_userinfo_does_not_reach_the_origin(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask("GET http://user:pw@%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (origin.authority, origin.authority))
    assert r.status in (200, 400)
    for q in origin.requests:
        assert b"user:pw" not in q.raw_head


def test_credentials_of_the_proxy_reach_no_origin_on_any_request(proxy, web):
    """CASES 23, as far as it goes without a policy."""
    a, b = web(hello), web(hello)
    with http(proxy) as c:
        for origin in (a, b, a, b):
            r = c.ask(get_request(origin.authority, "/", ["Proxy-Authorization: Basic c2VjcmV0", "Authorization: Basic b3du"]))
            assert r.status == 200
    for origin in (a, b):
        assert len(origin.requests) == 2
        for q in origin.requests:
            assert not q.get("Proxy-Authorization") and b"c2VjcmV0" not in q.raw_head
            assert q.get("Authorization") == ["Basic b3du"]


# -- many requests a connection ---------------------------------------------------------

def test_keep_alive_client_asks_two_origins(proxy, web):
    a, b = web(lambda *_: o.ok(b"from a")), web(lambda *_: o.chunked(b"from b"))
    with http(proxy) as c:
        for _ in range(3):
            assert c.ask(get_request(a.authority)).body == b"from a"
            assert c.ask(get_request(b.authority)).body == b"from b"
    assert (len(a.requests), len(b.requests)) == (3, 3)


def test_hundred_requests_on_one_connection(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        for i in range(100):
            assert c.ask(get_request(origin.authority, "/%d" % i)).body == b"hello /%d" % i


def test_pipelined_requests_are_answered_in_order(proxy, web):
    slow = web(lambda r, _c, _s: [0.4, o.ok(b"slow " + r.target.encode())])
    fast = web(lambda r, _c, _s: o.chunked(b"fast " + r.target.encode(), 3))
    with http(proxy) as c:
        c.send(get_request(slow.authority, "/0"), get_request(fast.authority, "/1"), get_request(fast.authority, "/2"),
               get_request(slow.authority, "/3", method="POST", fields=["Content-Length: 5"]), b"12345",
               get_request(fast.authority, "/4", method="HEAD"), get_request(fast.authority, "/5"))
        bodies = [c.read("HEAD" if i == 4 else "GET").body for i in range(6)]
    assert bodies == [b"slow /0", b"fast /1", b"fast /2", b"slow /3", b"", b"fast /5"]
    assert [q.body for q in slow.requests] == [b"", b"12345"]


def test_fifty_pipelined_requests_cut_at_odd_places(proxy, web):
    origin = web(hello)
    raw = b"".join(get_request(origin.authority, "/%d" % i) for i in range(50))
    with http(proxy) as c:
        def send():
            for at in range(0, len(raw), 37):
                c.send(raw[at:at + 37])
        sender = Background(send)
        for i in range(50):
            assert c.read().body == b"hello /%d" % i
        sender.result()


def test_client_that_pipelines_and_half_closes_gets_all_answers(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        c.send(*[get_request(origin.authority, "/%d" % i) for i in range(5)])
        c.sock.shutdown(socket.SHUT_WR)
        for i in range(5):
            assert c.read().body == b"hello /%d" % i
        assert c.ended()


def test_head_may_come_a_byte_at_a_time(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        send_bytewise(c.sock, get_request(origin.authority, "/slow"), 0.0005)
        assert c.read().body == b"hello /slow"


def test_blank_line_between_requests_is_tolerated(proxy, web):
    """RFC 9112 2.2: some clients send a CRLF behind a POST's body."""
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask(get_request(origin.authority, "/1", ["Content-Length: 4"], "POST"), b"body\r\n")
        assert r.body == b"hello /1"
        assert c.ask(get_request(origin.authority, "/2")).body == b"hello /2"
        assert c.ask(b"\r\n", get_request(origin.authority, "/3")).body == b"hello /3"
    assert origin.requests[0].body == b"body"


def test_connect_after_requests_on_the_same_connection(proxy, web, origins):
    origin, echo = web(hello), origins(o.echo)
    with http(proxy) as c:
        assert c.ask(get_request(origin.authority)).status == 200
        c.send(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" % echo.authority.encode())
        assert c.read_head().status == 200
        c.send(b"tunnel")
        assert c.stream.exactly(6) == b"tunnel"


# -- HTTP/1.0 and connection options ------------------------------------------------------

def test_http_1_0_client_is_served_and_closed(proxy, web):
    origin = web(lambda *_: o.chunked(b"x" * 5000))
    with http(proxy) as c:
        r = c.ask(b"GET http://%s/ HTTP/1.0\r\n\r\n" % origin.authority.encode())
        assert r.status == 200 and not r.get("Transfer-Encoding"), r.fields
        assert r.body == b"x" * 5000 and c.ended()
    assert origin.requests[0].get("Host") == [origin.authority]


def test_connection_close_ends_after_the_answer(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask(get_request(origin.authority, "/", ["Connection: close"]))
        assert r.body == b"hello /" and r.first("Connection", "").lower() == "close"
        assert c.ended()


def test_http_1_0_origin_is_served(proxy, web):
    origin = web(lambda *_: [b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nold times", o.Close])
    with http(proxy) as c:
        r = c.ask(get_request(origin.authority))
        assert (r.status, r.body, r.cut) == (200, b"old times", None)
    with_length = web(lambda *_: [b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold", o.Close])
    with http(proxy) as c:
        assert c.ask(get_request(with_length.authority)).body == b"old"
        assert c.ask(get_request(with_length.authority)).body == b"old"


# -- bodies both ways --------------------------------------------------------------------------

@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 3 * MIB])
def test_upload_with_length_and_chunked(proxy, web, size):
    origin = web(lambda r, _c, _s: o.ok(hashlib.sha256(r.body).hexdigest().encode()))
    body = pattern(1, size)
    want = pattern_sha(1, size).encode()
    with http(proxy, timeout=30) as c:
        r = c.ask(get_request(origin.authority, "/", ["Content-Length: %d" % size], "POST"), body)
        assert r.body == want
        c.send(get_request(origin.authority, "/", ["Transfer-Encoding: chunked"], "PUT"))
        for at in range(0, size, 5000):
            piece = body[at:at + 5000]
            c.send(b"%x;ext=\"a b\"\r\n" % len(piece), piece, b"\r\n")
        c.send(b"0\r\nX-Trailer: kept\r\n\r\n")
        assert c.read().body == want
    q = origin.requests[1]
    assert q.body == body
    if q.get("Transfer-Encoding"):
        assert b"x-trailer: kept" in q.trailers.lower(), q.trailers


@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 3 * MIB])
def test_download_with_length_chunked_and_until_close(proxy, web, size):
    body = pattern(2, size)
    answers = {"/len": [o.ok(body)], "/chunked": [o.chunked(body, 4321, b"X-Sum: 9\r\n", [b"Trailer: X-Sum"])],
               "/close": [b"HTTP/1.1 200 OK\r\n\r\n" + body, o.Close]}
    origin = web(lambda r, _c, _s: answers[r.target])
    with http(proxy, timeout=30) as c:
        for path in ("/len", "/chunked", "/len"):
            r = c.ask(get_request(origin.authority, path))
            assert (r.cut, hashlib.sha256(r.body).hexdigest()) == (None, pattern_sha(2, size)), path
            if path == "/chunked":
                assert r.trailers.lower() == b"x-sum: 9\r\n", r.trailers
        r = c.ask(get_request(origin.authority, "/close"))
        assert (r.cut, r.body == body) == (None, True)
        if not r.closed:        # re-framed: the connection goes on
            assert c.ask(get_request(origin.authority, "/len")).body == body


@pytest.mark.limit(90)
def test_big_bodies_stream_and_memory_stays_flat(proxies, web):
    size = 30 * MIB
    proxy = proxies()

    def script(request, conn, _stream):
        if request.method == "PUT":
            return o.ok(b"%d" % len(request.body))
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for chunk in pattern_chunks(3, size):
            conn.sendall(chunk)
        return None
    origin = web(script)
    fetch(proxy, origin.authority, method="PUT", body=b"warm")
    before = proxy.rss_kib()
    with http(proxy, timeout=60, rcvbuf=16384) as c:
        c.send(get_request(origin.authority))
        head = c.read_head()
        assert head.status == 200
        h, left, peak = hashlib.sha256(), size, 0
        data = bytes(c.stream.buf)
        while left:
            if not data:
                data = c.sock.recv(1 << 18)
                assert data, "cut with %d to go" % left
            h.update(data)
            left -= len(data)
            data = b""
            peak = max(peak, proxy.rss_kib()) if left % 16 == 0 else peak
        assert h.hexdigest() == pattern_sha(3, size)
    body = pattern(4, 10 * MIB)
    r = fetch(proxy, origin.authority, method="PUT", body=body, timeout=60)
    assert r.body == b"%d" % len(body)
    print("RSS before %d KiB, after %d KiB" % (before, proxy.rss_kib()))
    if not SANITIZED:
        assert max(peak, proxy.rss_kib()) - before < 16 * 1024


def test_body_streams_before_it_is_whole(proxy, web):
    """Nothing is buffered until its end: each piece arrives when it was sent."""
    gate = threading.Event()

    def script(request, conn, _stream):
        return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", lambda _c: gate.wait(20),
                b"6\r\nsecond\r\n0\r\n\r\n"]
    origin = web(script)
    with http(proxy) as c:
        c.send(get_request(origin.authority))
        c.read_head()
        while b"first" not in c.stream.buf:
            assert c.stream.more()
        gate.set()
        while not bytes(c.stream.buf).endswith(b"0\r\n\r\n"):
            assert c.stream.more()


def test_slow_origin_a_byte_at_a_time(proxy, web):
    answer = o.chunked(b"slowly but surely", 5, b"T: 1\r\n")
    origin = web(lambda _r, conn, _s: send_bytewise(conn, answer, 0.0005))
    with http(proxy) as c:
        for _ in range(2):
            r = c.ask(get_request(origin.authority))
            assert (r.body, r.cut) == (b"slowly but surely", None)


def test_slow_client_of_a_big_answer_gets_it_whole(proxy, web):
    body = pattern(5, 2 * MIB)
    origin = web(lambda *_: o.ok(body))
    with proxy.connect(rcvbuf=4096, timeout=30) as s:
        s.sendall(get_request(origin.authority, fields=["Connection: close"]))
        time.sleep(0.5)
        out = bytearray()
        while True:
            data = s.recv(20000)
            if not data:
                break
            out += data
            time.sleep(0.0005)
    assert bytes(out).endswith(body)


def test_client_half_closes_after_its_request(proxy, web):
    """CASES 6 for forwarding."""
    body = pattern(6, MIB)
    origin = web(lambda *_: [0.2, o.ok(body)])
    with http(proxy) as c:
        c.send(get_request(origin.authority))
        c.sock.shutdown(socket.SHUT_WR)
        r = c.read()
        assert (r.cut, r.body == body) == (None, True)


def test_origin_half_closes_first_and_takes_the_upload(proxy, origins):
    """CASES 6: an answer with FIN while the body is on its way; the client
    must get the answer, whatever becomes of the rest."""
    def handler(conn, _origin):
        stream = o.Stream(conn)
        stream.until(b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nearly")
        conn.shutdown(socket.SHUT_WR)
        return len(stream.exactly(MIB))
    origin = origins(handler)
    with http(proxy) as c:
        c.send(get_request(origin.authority, "/", ["Content-Length: %d" % MIB], "POST"))
        time.sleep(0.3)

        def body():
            try:
                c.send(pattern(7, MIB))
            except OSError:
                pass            # a proxy that closes after the answer is in its right
        sender = Background(body)
        r = c.read()
        assert (r.status, r.body, r.cut) == (200, b"early", None)
        sender.result()


# -- bodiless answers and interim ones (CASES 25) -------------------------------------------------

def test_head_204_and_304_have_no_body_and_pollute_nothing(proxy, web):
    answers = {
        "/head": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
        "/head-chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "/204": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/304": b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
        "/304-length": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n",
        "/after": o.ok(b"after"),
    }
    origin = web(lambda r, _c, _s: answers[r.target])
    with http(proxy) as c:
        for path in answers:
            method = "HEAD" if path.startswith("/head") else "GET"
            c.sock.settimeout(5)
            r = c.ask(get_request(origin.authority, path, method=method), method=method)
            assert r.status == int(path[1:4]) if path[1:4].isdigit() else 200, path
            if path == "/head":
                assert r.first("Content-Length") == "1000"
            assert c.ask(get_request(origin.authority, "/after")).body == b"after", path


def test_answers_that_lie_about_bodies_do_not_pollute_the_next(proxy, web):
    junk = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npolluted"
    answers = {
        "/head": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(junk) + junk,
        "/204": b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n" % len(junk) + junk,
        "/304": b"HTTP/1.1 304 Not Modified\r\n\r\n" + junk,
        "/extra": o.ok(b"right") + junk,
    }
    origin = web(lambda r, _c, _s: answers.get(r.target) or o.ok(b"clean"))
    for path in answers:
        method = "HEAD" if path == "/head" else "GET"
        with http(proxy) as c:
            r = c.ask(get_request(origin.authority, path, method=method), method=method)
            assert r.status in (200, 204, 304, 502), path
            assert b"polluted" not in r.body
            time.sleep(0.05)
            for _ in range(3):
                try:
                    again = c.ask(get_request(origin.authority, "/next"))
                except (EOFError, ConnectionError):
                    break       # ending the connection is an answer, too
                assert again.body == b"clean", path
        assert fetch(proxy, origin.authority, "/next").body == b"clean", path


def test_interim_answers_pass_and_the_final_one_counts(proxy, web):
    origin = web(lambda *_: b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\n\r\n"
                 b"HTTP/1.1 102 Processing\r\n\r\n" + o.ok(b"final"))
    with http(proxy) as c:
        for _ in range(2):
            r = c.ask(get_request(origin.authority))
            assert (r.status, r.body) == (200, b"final")
            early = [i for i in r.interim if i.status == 103]
            assert early and early[0].first("Link") == "</s.css>; rel=preload"


def test_interim_answers_are_not_sent_to_http_1_0(proxy, web):
    origin = web(lambda *_: b"HTTP/1.1 103 Early Hints\r\n\r\n" + o.ok(b"final"))
    with http(proxy) as c:
        r = c.ask(b"GET http://%s/ HTTP/1.0\r\n\r\n" % origin.authority.encode())
        assert (r.body, r.interim) == (b"final", [])


def test_flood_of_interim_answers_is_bounded_or_passed(proxy, web):
    origin = web(lambda *_: b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 3000 + o.ok(b"final"))
    r = fetch(proxy, origin.authority)
    assert (r.status, r.body) == (200, b"final") or r.status == 502, r
    ok = web(hello)
    assert fetch(proxy, ok.authority).status == 200


# -- Expect (CASES 28) ----------------------------------------------------------------------

EXPECT = ["Expect: 100-continue", "Content-Length: 4"]


def test_expect_continue_end_to_end(proxy, web):
    def script(request, conn, stream):
        conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return o.ok(b"took " + stream.exactly(4))
    origin = web(script, read_body=False)
    with http(proxy) as c:
        for _ in range(2):
            c.send(get_request(origin.authority, "/", EXPECT, "POST"))
            assert c.read_head().status == 100
            c.send(b"body")
            assert c.read().body == b"took body"


@pytest.mark.parametrize("status", [417, 401, 200])
def test_expect_answered_at_once_without_the_body(proxy, web, status):
    origin = web(lambda *_: [b"HTTP/1.1 %d X\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno" % status, o.Close],
                 read_body=False)
    with http(proxy) as c:
        c.send(get_request(origin.authority, "/", EXPECT, "POST"))
        r = c.read()
        assert (r.status, r.body) == (status, b"no")


def test_expect_of_an_origin_that_says_nothing(proxy, web):
    """The client may stop waiting and send; the proxy must then carry it."""
    origin = web(lambda r, _c, _s: o.ok(b"took " + r.body))
    with http(proxy) as c:
        c.send(get_request(origin.authority, "/", EXPECT, "POST"))
        time.sleep(0.3)
        c.send(b"body")
        assert c.read().body == b"took body"


def test_expect_with_the_body_right_behind(proxy, web):
    def script(_request, conn, stream):
        conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return o.ok(b"took " + stream.exactly(4))
    origin = web(script, read_body=False)
    r = None
    with http(proxy) as c:
        r = c.ask(get_request(origin.authority, "/", EXPECT, "POST"), b"body")
        assert r.body == b"took body"


# -- cuts (CASES 26) -----------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("framing", ["length", "chunked", "chunked-no-end", "close"])
def test_origin_that_dies_in_mid_body_is_seen_as_a_cut(proxy, web, framing, how):
    if (framing, how) == ("close", "fin"):
        pytest.skip("a close-delimited body that ends by FIN is whole")
    piece = pattern(1, 50000)
    start = {"length": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + piece,
             "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" + piece,
             "chunked-no-end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc350\r\n" + piece + b"\r\n",
             "close": b"HTTP/1.1 200 OK\r\n\r\n" + piece}[framing]
    origin = web(lambda *_: [start, 0.15, o.Close if how == "fin" else o.Reset])
    with http(proxy) as c:
        c.send(get_request(origin.authority))
        try:
            r = c.read()
        except (EOFError, ConnectionResetError):
            return              # a cut as hard as can be
        if r.status == 502:
            return
        assert r.cut is not None, "looks whole: %d bytes, %r" % (len(r.body), r.fields)
        assert piece.startswith(r.body)


def test_bad_chunk_from_the_origin_is_a_cut(proxy, web):
    for bad in (b"5\r\nhelloXX", b"zz\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff1\r\nhello", b"5\nhello\r\n0\r\n\r\n",
                b"-5\r\nhello\r\n0\r\n\r\n"):
        origin = web(lambda *_, bad=bad: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 0.1, bad, 0.1,
                                          o.Close])
        with http(proxy) as c:
            c.send(get_request(origin.authority))
            try:
                r = c.read()
            except (EOFError, ConnectionResetError):
                continue
            assert r.status == 502 or r.cut is not None, bad


def test_origin_that_closes_without_an_answer_is_502(proxy, web):
    for how in (o.Close, o.Reset):
        origin = web(lambda *_, how=how: [how])
        r = fetch(proxy, origin.authority)
        assert r.status == 502 and r.first("Proxy-Status", "").startswith("ringway; error="), r.fields


def test_post_is_not_sent_twice_when_the_origin_closes(proxy, web):
    origin = web(lambda *_: [o.Close])
    assert fetch(proxy, origin.authority, method="POST", body=b"once").status == 502
    assert len(origin.requests) == 1


def test_client_that_leaves_in_mid_answer_ends_the_upstream(proxy, web):
    origin = web(lambda *_: [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100000,
                             lambda conn: o.recv_all(conn)])
    baseline = proxy.socket_count()
    c = http(proxy)
    c.send(get_request(origin.authority))
    c.read_head()
    o.reset(c.sock)
    wait_until(lambda: origin.open == 0, 10, "the origin's connection ends")
    proxy.settled_sockets(baseline)


def test_client_that_leaves_in_mid_upload_gives_the_origin_no_whole_request(proxy, web):
    origin = web(hello)
    for framing, part in ((["Content-Length: 100"], b"x" * 50), (["Transfer-Encoding: chunked"], b"5\r\nhello\r\n")):
        c = http(proxy)
        c.send(get_request(origin.authority, "/", framing, "POST"), part)
        time.sleep(0.1)
        c.sock.close()
    time.sleep(0.5)
    assert origin.requests == []
    wait_until(lambda: origin.open == 0, 5, "the origin's connections end")


# -- nonsense from origins --------------------------------------------------------------------------

@pytest.mark.parametrize("raw", [
    b"garbage\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n",
    b"SSH-2.0-OpenSSH\r\n", b"\x16\x03\x01\x00\x00\r\n\r\n", b"HTTP/2.0 200 OK\r\n\r\n", b"HTTP/1.1 099 X\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nBad Header: x\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\n: empty\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300000 + b"\r\n\r\n",
], ids=lambda r: repr(r[:40])[2:-1].replace("\\r\\n", "|"))
def test_nonsense_from_the_origin_is_502(proxy, web, raw):
    origin = web(lambda *_: [raw, 0.05, o.Close])
    with http(proxy) as c:
        r = c.ask(get_request(origin.authority))
        assert r.status == 502, r
        assert r.first("Proxy-Status", "").startswith("ringway; error="), r.fields
    assert proxy.alive()


def test_ambiguous_answer_is_never_forwarded(proxy, web):
    """Both framings in one answer: refused, or one of them gone (the client's
    reader asserts that) and the connection to the origin not used again."""
    origin = web(lambda *_: b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    r = fetch(proxy, origin.authority)
    assert r.status == 502 or r.body == b"hello", r


def test_obs_fold_from_the_origin_is_unfolded_or_refused(proxy, web):
    origin = web(lambda *_: b"HTTP/1.1 200 OK\r\nX-Fold: a\r\n b\r\nContent-Length: 2\r\n\r\nok")
    r = fetch(proxy, origin.authority)
    assert r.status == 502 or (r.body == b"ok" and b"\r\n b" not in r.raw_head), r


# -- answers of our own --------------------------------------------------------------------------------

def own_answer(r, status):
    assert r.status == status, r
    assert r.first("Proxy-Status", "").startswith("ringway; error="), r.fields
    assert int(r.first("Content-Length")) == len(r.body) > 0
    assert r.get("Connection"), r.fields
    return r


def test_own_answers_carry_what_the_spec_says(proxy, dns):
    own_answer(fetch(proxy, "127.0.0.1:%d" % free_port()), 502)
    with http(proxy) as c:
        own_answer(c.ask(b"NONSENSE\r\n\r\n"), 400)
        assert c.ended()


def test_https_uri_is_501_with_a_hint(proxy):
    with http(proxy) as c:
        r = own_answer(c.ask(b"GET https://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), 501)
        assert b"CONNECT" in r.body, r.body


def test_refused_upstream_keeps_the_connection_when_it_says_so(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = own_answer(c.ask(get_request("127.0.0.1:%d" % free_port())), 502)
        if "close" not in r.first("Connection", "").lower():
            assert c.ask(get_request(origin.authority)).body == b"hello /"
        else:
            assert c.ended()


def test_head_of_an_unreachable_origin_has_no_body(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask(get_request("127.0.0.1:%d" % free_port(), method="HEAD"), method="HEAD")
        assert r.status == 502
        if "close" in r.first("Connection", "").lower():
            assert c.ended()
        else:
            assert c.ask(get_request(origin.authority)).body == b"hello /"


@pytest.mark.parametrize("what", ["line", "field", "many", "sum"])
def test_too_big_heads_are_414_or_431(proxies, web, what):
    proxy = proxies({"limits": {"header_bytes": 8192, "header_count": 50}})
    origin = web(hello)
    path, fields = "/", []
    if what == "line":
        path = "/" + "a" * 9000
    elif what == "field":
        fields = ["X-Big: " + "b" * 9000]
    elif what == "many":
        fields = ["X-%d: y" % i for i in range(60)]
    else:
        fields = ["X-%d: %s" % (i, "c" * 400) for i in range(40)]
    r = own_answer(fetch(proxy, origin.authority, path, fields), 414 if what == "line" else 431) if what != "line" else \
        fetch(proxy, origin.authority, path)
    assert r.status in (414, 431)
    assert origin.accepted == 0


# -- refused with a body on its way (CASES 17c) ------------------------------------------------------------

@pytest.mark.parametrize("how", ["at-once", "paced"])
@pytest.mark.parametrize("kind", ["400", "431", "501"])
def test_client_that_sends_a_body_with_a_refused_request_reads_the_answer(proxies, kind, how):
    proxy = proxies({"limits": {"header_bytes": 8192}})
    body = pattern(1, MIB)
    head = {"400": "POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: %d\r\n\r\n",
            "431": "POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nX: " + "y" * 9000 + "\r\nContent-Length: %d\r\n\r\n",
            "501": "POST https://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: %d\r\n\r\n"}[kind]
    with http(proxy) as c:
        def send():
            # what a client with a 64 KiB socket buffer has sent before it reads
            c.send(head % len(body), body[:60000])
            if how == "paced":
                for at in range(60000, 160000, 10000):
                    time.sleep(0.01)
                    c.send(body[at:at + 10000])
        try:
            send()
        except OSError:
            pass                # the answer must be there all the same
        r = c.read()
        assert r.status == int(kind) and r.cut is None, r
        assert int(r.first("Content-Length")) == len(r.body)


def test_413_is_read_by_a_client_that_sends_the_body(proxies, web):
    proxy = proxies({"http": {"max_body_bytes": 1000}})
    origin = web(hello)
    with http(proxy) as c:
        try:
            c.send(get_request(origin.authority, "/", ["Content-Length: %d" % MIB], "POST"), pattern(1, MIB))
        except OSError:
            pass
        assert c.read().status == 413


# -- origin forms and odd targets ----------------------------------------------------------------------------

def test_origin_form_without_a_route_is_refused(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask("GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % origin.authority)
        assert 400 <= r.status < 600 and r.status != 500
    assert origin.accepted == 0


@pytest.mark.parametrize("authority", ["127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:80x", "", ":80", "[::1",
                                       "[::g]:80", "a b", "127.0.0.1:80:80"])
def test_bad_authorities_of_absolute_uris_are_400(proxy, web, authority):
    with http(proxy) as c:
        r = c.ask("GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n" % authority)
        assert r.status == 400 or (r.status == 502 and authority == "127.0.0.1:0"), r


def test_default_port_is_80_and_the_scheme_is_case_insensitive(proxies, netns, web):
    with netns:
        proxy = proxies()
        origin = web(hello, port=80)
        with http(proxy) as c:
            assert c.ask("GET http://127.0.0.1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").body == b"hello /x"
            assert c.ask("GET HTTP://127.0.0.1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").body == b"hello /x"
        assert origin.requests[0].get("Host") == ["127.0.0.1"]


def test_ipv6_origin(proxy, web):
    origin = web(hello, host="::1")
    r = fetch(proxy, origin.authority, "/six")
    assert r.body == b"hello /six" and origin.requests[0].get("Host") == [origin.authority]


def test_unknown_methods_pass(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        for method in ("PROPFIND", "M-SEARCH", "QUERY", "PATCH", "DELETE", "OPTIONS"):
            assert c.ask(get_request(origin.authority, "/m", method=method)).status == 200
    assert [q.method for q in origin.requests][:2] == ["PROPFIND", "M-SEARCH"]


def test_request_to_our_own_listener_does_not_loop(proxy):
    r = fetch(proxy, "127.0.0.1:%d" % proxy.port)
    assert r.status in (400, 403, 502, 508), r
    assert proxy.alive()


def test_eight_bit_field_values_pass_unchanged(proxy, web):
    origin = web(hello)
    with http(proxy) as c:
        r = c.ask("GET http://%s/ HTTP/1.1\r\nHost: x\r\nX-8: caf\xe9\t\xff\r\n\r\n".replace("x\r", origin.authority + "\r", 1)
                  % origin.authority)
        assert r.status == 200
    assert origin.requests[0].get("X-8") == ["caf\xe9\t\xff"]


def test_slow_body_of_one_client_holds_no_other_up(proxies, web):
    proxy = proxies({"workers": 1})
    origin = web(hello)
    with http(proxy) as slow:
        slow.send(get_request(origin.authority, "/slow", ["Content-Length: 10"], "POST"), b"12345")
        started = time.monotonic()
        for _ in range(10):
            assert fetch(proxy, origin.authority).status == 200
        assert time.monotonic() - started < 3 * SLOW
        slow.send(b"67890")
        assert slow.read().body == b"hello /slow"


def test_nothing_follows_an_answer_that_closed(proxy, web):
    """What comes behind a request that ended the connection is not served."""
    origin = web(hello)
    with http(proxy) as c:
        c.send(get_request(origin.authority, "/1", ["Connection: close"]), get_request(origin.authority, "/2"))
        assert c.read().body == b"hello /1"
        c.sock.settimeout(5 * SLOW)
        assert recv_to_end(c.sock)[0] == b"" and not c.stream.buf
    time.sleep(0.1)
    assert [q.target for q in origin.requests] == ["/1"]


def test_idle_keep_alive_client_may_close_in_order(proxy, web):
    origin = web(hello)
    baseline = proxy.socket_count()
    for _ in range(10):
        with http(proxy) as c:
            assert c.ask(get_request(origin.authority)).status == 200
            c.sock.shutdown(socket.SHUT_WR)
            assert is_ended(c.sock)
    wait_until(lambda: proxy.socket_count() <= baseline + 64, 5, "clients' sockets are gone")
    assert isinstance(c, Http)

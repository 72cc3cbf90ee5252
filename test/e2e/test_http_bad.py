# SPDX-License-Identifier: ISC
"""Malformed and ambiguous requests as raw bytes (CASES 18..21).  Each is
answered as the table says, on a connection that is not reset before the answer
is read, and what is refused never reaches the origin as a request."""

import hashlib

import pytest

import origins as o
from clients import fetch, http
from util import SANITIZED, pattern

# {o} is the origin's authority.
LINE = b"POST http://{o}/ HTTP/1.1\r\n"
HEAD = LINE + b"Host: {o}\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"


def te(value, body=HELLO):
    return HEAD + b"Transfer-Encoding:" + value + b"\r\n\r\n" + body


def cl(value, body=b"hello"):
    return HEAD + b"Content-Length:" + value + b"\r\n\r\n" + body


# (name, raw request, statuses, body at the origin when 200)

TRANSFER_ENCODING = [
    ("Chunked", te(b" Chunked"), {200}, b"hello"),
    ("CHUNKED", te(b" CHUNKED"), {200}, b"hello"),
    ("no space", te(b"chunked"), {200}, b"hello"),
    ("spaces around", te(b" \t chunked \t "), {200}, b"hello"),
    ("with Content-Length before", HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO, {400}, None),
    ("with Content-Length behind", HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + HELLO, {400}, None),
    ("with Content-Length 0", HEAD + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO, {400}, None),
    ("twice", HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO, {400, 501}, None),
    ("chunked, chunked", te(b" chunked, chunked"), {400, 501}, None),
    ("chunked, identity", te(b" chunked, identity"), {400, 501}, None),
    ("identity, chunked", te(b" identity, chunked"), {400, 501}, None),
    ("two fields", HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO, {400, 501}, None),
    ("xchunked", te(b" xchunked"), {400, 501}, None),
    ("chunkedx", te(b" chunkedx"), {400, 501}, None),
    ("identity", te(b" identity"), {400, 501}, None),
    ("gzip", te(b" gzip"), {400, 501}, None),
    ("gzip, chunked", te(b" gzip, chunked"), {400, 501}, None),
    ("quoted", te(b" \"chunked\""), {400, 501}, None),
    ("empty", te(b""), {400, 501}, None),
    ("comma first", te(b" ,chunked"), {200, 400, 501}, b"hello"),
    ("comma last", te(b" chunked,"), {200, 400, 501}, b"hello"),
    ("vertical tab", te(b" \x0bchunked"), {400, 501}, None),
    ("NUL inside", te(b" chunk\0ed"), {400}, None),
    ("space before colon", HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + HELLO, {400}, None),
    ("tab before colon", HEAD + b"Transfer-Encoding\t: chunked\r\n\r\n" + HELLO, {400}, None),
    ("obs-fold", HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + HELLO, {400}, None),
    ("obs-fold behind", HEAD + b"Content-Length: 5\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n" + HELLO, {400}, None),
    ("parameter", te(b" chunked;q=1"), {400, 501}, None),
    ("HTTP/1.0", HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + HELLO, {400}, None),
]

CONTENT_LENGTH = [
    ("right", cl(b" 5"), {200}, b"hello"),
    ("no space", cl(b"5"), {200}, b"hello"),
    ("spaces around", cl(b" \t5\t "), {200}, b"hello"),
    ("leading zeros", cl(b" 0005"), {200, 400}, b"hello"),
    ("empty", cl(b""), {400}, None),
    ("blank", cl(b"   "), {400}, None),
    ("plus", cl(b" +5"), {400}, None),
    ("minus", cl(b" -5"), {400}, None),
    ("minus zero", cl(b" -0", b""), {400}, None),
    ("hex", cl(b" 0x5"), {400}, None),
    ("hex letter", cl(b" a", b"hellohello"), {400}, None),
    ("inner space", cl(b" 5 5"), {400}, None),
    ("list of equals", cl(b" 5, 5"), {400}, None),
    ("list of unequals", cl(b" 5, 6"), {400}, None),
    ("two equals", HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", {200, 400}, b"hello"),
    ("two unequals", HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", {400}, None),
    ("5 and 05", HEAD + b"Content-Length: 5\r\nContent-Length: 05\r\n\r\nhello", {200, 400}, b"hello"),
    ("2^63", cl(b" 9223372036854775808"), {400}, None),
    ("2^64 + 5", cl(b" 18446744073709551621"), {400}, None),
    ("2^128 + 5", cl(b" 340282366920938463463374607431768211461"), {400}, None),
    ("400 digits", cl(b" " + b"9" * 400), {400}, None),
    ("trailing comma", cl(b" 5,"), {400}, None),
    ("leading comma", cl(b" ,5"), {400}, None),
    ("semicolon", cl(b" 5;"), {400}, None),
    ("point", cl(b" 5.0"), {400}, None),
    ("exponent", cl(b" 5e0"), {400}, None),
    ("quoted", cl(b" \"5\""), {400}, None),
    ("arabic digit", cl(b" \xd9\xa5"), {400}, None),
    ("word", cl(b" five"), {400}, None),
    ("NUL behind", cl(b" 5\0"), {400}, None),
    ("form feed", cl(b" \x0c5"), {400}, None),
    ("space before colon", HEAD + b"Content-Length : 5\r\n\r\nhello", {400}, None),
    ("obs-fold", HEAD + b"Content-Length:\r\n 5\r\n\r\nhello", {400}, None),
]

CHUNK_SIZE = [
    ("right", CHUNKED + HELLO, {200}, b"hello"),
    ("upper and lower", CHUNKED + b"A\r\nhellohello\r\na\r\nhellohello\r\n0\r\n\r\n", {200}, b"hello" * 4),
    ("leading zeros", CHUNKED + b"0005\r\nhello\r\n0\r\n\r\n", {200, 400}, b"hello"),
    ("many zeros at the end", CHUNKED + b"5\r\nhello\r\n0000\r\n\r\n", {200, 400}, b"hello"),
    ("extension", CHUNKED + b"5;a=b;c=\"d;\\\"e\"\r\nhello\r\n0;last\r\n\r\n", {200}, b"hello"),
    ("extension with spaces", CHUNKED + b"5 ; a = b\r\nhello\r\n0\r\n\r\n", {200, 400}, b"hello"),
    ("7fffffffffffffff", CHUNKED + b"7fffffffffffffff\r\nhello\r\n0\r\n\r\n", {400, "open"}, None),
    ("8000000000000000", CHUNKED + b"8000000000000000\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("ffffffffffffffff", CHUNKED + b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("fffffffffffffffb wraps", CHUNKED + b"fffffffffffffffe\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("17 digits", CHUNKED + b"10000000000000005\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("0x", CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("0x1", CHUNKED + b"0x1\r\nh\r\n0\r\n\r\n", {400}, None),
    ("plus", CHUNKED + b"+1\r\nh\r\n0\r\n\r\n", {400}, None),
    ("minus", CHUNKED + b"-1\r\nh\r\n0\r\n\r\n", {400}, None),
    ("space behind", CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", {200, 400}, b"hello"),
    ("space before", CHUNKED + b" 5\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("tab behind", CHUNKED + b"5\t\r\nhello\r\n0\r\n\r\n", {200, 400}, b"hello"),
    ("empty", CHUNKED + b"\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("only an extension", CHUNKED + b";a\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("bare LF", CHUNKED + b"5\nhello\r\n0\r\n\r\n", {400}, None),
    ("bare CR", CHUNKED + b"5\rhello\r\n0\r\n\r\n", {400}, None),
    ("LF in extension", CHUNKED + b"5;a\nhello\r\n0\r\n\r\n", {400}, None),
    ("CR in extension", CHUNKED + b"5;a\rb\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("NUL in extension", CHUNKED + b"5;a\0b\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("letters", CHUNKED + b"5g\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("too long by one", CHUNKED + b"6\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("too short by one", CHUNKED + b"4\r\nhello\r\n0\r\n\r\n", {400}, None),
    ("data ends by LF", CHUNKED + b"5\r\nhello\n0\r\n\r\n", {400}, None),
    ("huge extension", CHUNKED + b"5;" + b"a" * 200000 + b"\r\nhello\r\n0\r\n\r\n", {200, 400, 431}, b"hello"),
    ("trailer", CHUNKED + b"5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n", {200}, b"hello"),
    ("bad trailer", CHUNKED + b"5\r\nhello\r\n0\r\nX T: 1\r\n\r\n", {400}, None),
    ("folded trailer", CHUNKED + b"5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n", {400}, None),
    ("bare LF ends the trailers", CHUNKED + b"5\r\nhello\r\n0\r\nX: 1\n\r\n", {400}, None),
    ("NUL in a trailer", CHUNKED + b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n", {400}, None),
    ("huge trailers", CHUNKED + b"5\r\nhello\r\n0\r\n" + b"X: yyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 9000 + b"\r\n", {400, 413, 431}, None),
]


def field(raw):
    return HEAD + raw + b"\r\nContent-Length: 5\r\n\r\nhello"


BYTES = [
    ("plain", field(b"X: y"), {200}, b"hello"),
    ("empty value", field(b"X:"), {200}, b"hello"),
    ("tab in value", field(b"X: a\tb"), {200}, b"hello"),
    ("8-bit in value", field(b"X: \xe9\x80\xff"), {200}, b"hello"),
    ("token characters in name", field(b"!#$%&'*+-.^_`|~9aZ: y"), {200}, b"hello"),
    ("NUL in value", field(b"X: a\0b"), {400}, None),
    ("NUL in name", field(b"X\0Y: b"), {400}, None),
    ("control byte in value", field(b"X: a\x01b"), {400}, None),
    ("escape in value", field(b"X: a\x1bb"), {400}, None),
    ("DEL in value", field(b"X: a\x7fb"), {400}, None),
    ("bare CR in value", field(b"X: a\rb"), {400}, None),
    ("bare CR at the end", field(b"X: a\r"), {400}, None),
    ("bare LF in value", field(b"X: a\nb: c"), {400}, None),
    ("obs-fold", field(b"X: a\r\n b"), {400}, None),
    ("obs-fold by tab", field(b"X: a\r\n\tb"), {400}, None),
    ("fold before the first field", LINE + b" X: y\r\nHost: {o}\r\n\r\n", {400}, None),
    ("space before colon", field(b"X : y"), {400}, None),
    ("tab before colon", field(b"X\t: y"), {400}, None),
    ("space in name", field(b"X Y: z"), {400}, None),
    ("empty name", field(b": y"), {400}, None),
    ("no colon", field(b"nocolon"), {400}, None),
    ("8-bit in name", field(b"X\xe9: y"), {400}, None),
    ("brackets in name", field(b"X[0]: y"), {400}, None),
    ("comma in name", field(b"X,Y: y"), {400}, None),
    ("quote in name", field(b"\"X\": y"), {400}, None),
    ("LF line ends", (HEAD + b"Content-Length: 5\r\n\r\n").replace(b"\r\n", b"\n") + b"hello", {400}, None),
    ("LF ends the request line", LINE.replace(b"\r\n", b"\n") + b"Host: {o}\r\n\r\n", {400}, None),
    ("LF ends the head", HEAD + b"Content-Length: 5\r\n\nhello", {400}, None),
    ("CR CR LF", HEAD + b"X: y\r\r\nContent-Length: 5\r\n\r\nhello", {400}, None),
]

REQUEST_LINE = [
    ("no Host", LINE + b"\r\n", {400}, None),
    ("two Hosts", HEAD + b"Host: {o}\r\n\r\n", {400}, None),
    ("two unlike Hosts", HEAD + b"Host: other\r\n\r\n", {400}, None),
    ("Host list", LINE + b"Host: {o}, other\r\n\r\n", {200, 400}, b""),
    ("Host with a path", LINE + b"Host: {o}/path\r\n\r\n", {200, 400}, b""),
    ("Host with userinfo", LINE + b"Host: a@{o}\r\n\r\n", {200, 400}, b""),
    ("empty Host", LINE + b"Host:\r\n\r\n", {200, 400}, b""),
    ("two spaces", b"GET  http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("tab for space", b"GET\thttp://{o}/\tHTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("space in target", b"GET http://{o}/a b HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("trailing space", b"GET http://{o}/ HTTP/1.1 \r\nHost: {o}\r\n\r\n", {400}, None),
    ("leading space", b" GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, "closed"}, None),
    ("NUL in target", b"GET http://{o}/a\0b HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("control byte in target", b"GET http://{o}/a\x01b HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("CR in target", b"GET http://{o}/a\rb HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("DEL in target", b"GET http://{o}/a\x7fb HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("bad method", b"G@T http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, "closed"}, None),
    ("method with NUL", b"GE\0T http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, "closed"}, None),
    ("no version", b"GET http://{o}/\r\nHost: {o}\r\n\r\n", {400, 505}, None),
    ("HTTP/0.9", b"GET http://{o}/ HTTP/0.9\r\nHost: {o}\r\n\r\n", {400, 505}, None),
    ("HTTP/2.0", b"GET http://{o}/ HTTP/2.0\r\nHost: {o}\r\n\r\n", {505}, None),
    ("HTTP/3.0", b"GET http://{o}/ HTTP/3.0\r\nHost: {o}\r\n\r\n", {505}, None),
    ("HTTP/1.10", b"GET http://{o}/ HTTP/1.10\r\nHost: {o}\r\n\r\n", {400, 505}, None),
    ("HTTP/11", b"GET http://{o}/ HTTP/11\r\nHost: {o}\r\n\r\n", {400, 505}, None),
    ("http/1.1", b"GET http://{o}/ http/1.1\r\nHost: {o}\r\n\r\n", {400, 505}, None),
    ("ICY/1.1", b"GET http://{o}/ ICY/1.1\r\nHost: {o}\r\n\r\n", {400, 505}, None),
    ("ftp scheme", b"GET ftp://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, 501}, None),
    ("file scheme", b"GET file:///etc/passwd HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, 501}, None),
    ("scheme without slashes", b"GET http:{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, 501}, None),
    ("backslash authority", b"GET http://{o}\\@other/ HTTP/1.1\r\nHost: {o}\r\n\r\n", {400}, None),
    ("fragment", b"GET http://{o}/a#b HTTP/1.1\r\nHost: {o}\r\n\r\n", {200, 400}, b""),
    ("asterisk for GET", b"GET * HTTP/1.1\r\nHost: {o}\r\n\r\n", {400, 404, 501}, None),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}, None),
]


def run_table(proxy, origin, table):
    wrong = []
    for name, raw, statuses, body in table:
        raw = raw.replace(b"{o}", origin.authority.encode())
        seen, broken = len(origin.requests), len(origin.broken)
        try:
            with http(proxy, timeout=6) as c:
                try:
                    c.send(raw)
                except OSError:
                    pass        # the answer may be there before the last byte
                if "open" in statuses:
                    # a size that is legal but will never come: nothing to wait for
                    c.sock.settimeout(0.3)
                r = c.read()
                status = r.status
        except TimeoutError:
            status = "open"
        except (EOFError, ConnectionResetError) as e:
            status = "closed" if isinstance(e, EOFError) else "reset"
        except AssertionError as e:
            wrong.append("%s: unreadable answer: %s" % (name, e))
            continue
        if status not in statuses:
            wrong.append("%s: %s, expected %s" % (name, status, sorted(map(str, statuses))))
            continue
        if status == 200:
            if len(origin.requests) != seen + 1 or origin.requests[-1].body != body:
                wrong.append("%s: origin saw %d requests, last body %r" %
                             (name, len(origin.requests) - seen, origin.requests[-1].body[:50] if origin.requests else None))
        elif len(origin.requests) != seen:
            wrong.append("%s: refused with %s, yet the origin got %r" % (name, status, origin.requests[-1].line))
        del broken
    assert not wrong, "%d of %d rows:\n%s" % (len(wrong), len(table), "\n".join(wrong))
    assert fetch(proxy, origin.authority).status == 200


@pytest.fixture
def origin(web):
    return web(lambda r, _c, _s: o.ok(b"%d" % len(r.body)))


@pytest.mark.limit(120)
@pytest.mark.parametrize("table", ["TRANSFER_ENCODING", "CONTENT_LENGTH", "CHUNK_SIZE", "BYTES", "REQUEST_LINE"])
def test_ambiguous_and_malformed_requests_are_refused(proxy, origin, table):
    run_table(proxy, origin, globals()[table])


def test_smuggled_request_is_never_served(proxy, origin):
    """The tail of a refused request is not read as the next request."""
    tail = b"GET http://%s/smuggled HTTP/1.1\r\nHost: x\r\n\r\n" % origin.authority.encode()
    for head in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                 b"Content-Length: 0\r\nContent-Length: 60\r\n\r\n", b"Transfer-Encoding: xchunked\r\n\r\n",
                 b"X: a\nContent-Length: 0\r\n\r\n"):
        with http(proxy, timeout=6) as c:
            c.send(HEAD.replace(b"{o}", origin.authority.encode()), head, tail)
            assert c.read().status in (400, 501)
            assert c.ended(), head
    assert not any(q.target == "/smuggled" for q in origin.requests)


@pytest.mark.limit(90)
def test_million_one_byte_chunks_in_constant_memory(proxy, web):
    count = 100000 if SANITIZED else 1000000
    data = pattern(1, count)
    raw = bytearray(6 * count)
    raw[0::6] = b"1" * count
    raw[1::6] = b"\r" * count
    raw[2::6] = b"\n" * count
    raw[3::6] = data
    raw[4::6] = b"\r" * count
    raw[5::6] = b"\n" * count

    def script(request, _conn, stream):
        body, _ = (request.body, 0)
        return o.ok(hashlib.sha256(body).hexdigest().encode())
    origin = web(script)
    fetch(proxy, origin.authority)
    before = proxy.rss_kib()
    with http(proxy, timeout=60) as c:
        c.send(CHUNKED.replace(b"{o}", origin.authority.encode()), bytes(raw), b"0\r\n\r\n")
        r = c.read()
    assert r.status == 200 and r.body.decode() == hashlib.sha256(data).hexdigest()
    grown = proxy.rss_kib() - before
    print("RSS grew by %d KiB" % grown)
    if not SANITIZED:
        assert grown < 8 * 1024


def test_million_one_byte_chunks_from_the_origin(proxy, web):
    count = 50000 if SANITIZED else 200000
    body = b"".join(b"1\r\n%c\r\n" % (i % 251) for i in range(count)) + b"0\r\n\r\n"
    origin = web(lambda *_: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    r = fetch(proxy, origin.authority, timeout=60)
    assert r.cut is None and r.body == bytes(i % 251 for i in range(count))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutated_requests_never_hurt_the_proxy(proxy, origin, seed):
    """Not a fuzzer, a smoke test on the wire: 300 requests with bytes changed,
    dropped and doubled.  The proxy answers or closes, and lives."""
    import random
    rnd = random.Random(seed)
    seeds = [CHUNKED + HELLO, cl(b" 5"), field(b"X: y"), b"CONNECT {o} HTTP/1.1\r\nHost: {o}\r\n\r\n"]
    for _ in range(300):
        raw = bytearray(rnd.choice(seeds).replace(b"{o}", origin.authority.encode()))
        for _ in range(rnd.randrange(1, 4)):
            at = rnd.randrange(len(raw))
            what = rnd.randrange(3)
            if what == 0:
                raw[at] = rnd.randrange(256)
            elif what == 1:
                del raw[at]
            else:
                raw[at:at] = raw[at:at + 1] * rnd.randrange(1, 5)
        with proxy.connect() as s:
            s.sendall(raw)
            s.settimeout(0.02)
            try:
                s.recv(4096)
            except (TimeoutError, ConnectionResetError):
                pass
    assert proxy.alive()
    assert fetch(proxy, origin.authority).status == 200

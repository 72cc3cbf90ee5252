# SPDX-License-Identifier: ISC
"""Clients that speak SOCKS4, SOCKS4a, SOCKS5 and HTTP byte by byte as the test
wants, and read the proxy's words strictly."""

import base64
import hashlib
import ipaddress
import socket
import struct
import time

from origins import Stream
from util import SLOW

GRANTED4 = 0x5a


def send_bytewise(sock, data, pause_s=0.001):
    """One segment a byte (TCP_NODELAY is set); the pause keeps the receiver
    from seeing two at once."""
    for i in range(len(data)):
        sock.sendall(data[i:i + 1])
        if pause_s:
            time.sleep(pause_s)


def recv_exact(sock, n):
    out = bytearray()
    while len(out) < n:
        data = sock.recv(n - len(out))
        if not data:
            raise EOFError("end after %d of %d bytes: %r" % (len(out), n, bytes(out)))
        out += data
    return bytes(out)


def recv_to_end(sock):
    """(bytes, how): how is "fin" or "rst"."""
    out = bytearray()
    try:
        while True:
            data = sock.recv(1 << 16)
            if not data:
                return bytes(out), "fin"
            out += data
    except ConnectionResetError:
        return bytes(out), "rst"


def recv_sha_to_end(sock):
    h = hashlib.sha256()
    total = 0
    while True:
        data = sock.recv(1 << 16)
        if not data:
            return total, h.hexdigest()
        h.update(data)
        total += len(data)


def is_ended(sock, timeout=5.0):
    """True when the other side ends the connection within the time, with
    nothing more to say."""
    sock.settimeout(timeout * SLOW)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False


# -- SOCKS5 ---------------------------------------------------------------------

def socks5_greeting(*methods):
    methods = methods or (0,)
    return bytes([5, len(methods), *methods])


def socks5_request(host, port, cmd=1, as_domain=None):
    """`host` as an address is sent as one, else (or with as_domain) as a name."""
    try:
        address = None if as_domain else ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None:
        raw = host if isinstance(host, bytes) else host.encode("latin-1")
        where = bytes([3, len(raw)]) + raw
    else:
        where = bytes([1 if address.version == 4 else 4]) + address.packed
    return bytes([5, cmd, 0]) + where + struct.pack(">H", port)


class Reply5:
    def __init__(self, code, host, port):
        self.code, self.host, self.port = code, host, port

    def __repr__(self):
        return "Reply5(%02x, %s, %d)" % (self.code, self.host, self.port)


def socks5_read_reply(sock):
    head = recv_exact(sock, 4)
    assert head[0] == 5, "reply version %r" % head
    assert head[2] == 0, "RSV in %r" % head
    n = {1: 4, 4: 16}.get(head[3])
    if n is None:
        n = recv_exact(sock, 1)[0]
        host = recv_exact(sock, n).decode("latin-1")
    else:
        host = str(ipaddress.ip_address(recv_exact(sock, n)))
    return Reply5(head[1], host, struct.unpack(">H", recv_exact(sock, 2))[0])


def socks5_ask(sock, host, port, cmd=1, as_domain=None):
    """Greeting, request, reply; the socket stays the caller's."""
    sock.sendall(socks5_greeting(0))
    assert recv_exact(sock, 2) == b"\x05\x00"
    sock.sendall(socks5_request(host, port, cmd, as_domain))
    return socks5_read_reply(sock)


def socks5(proxy, host, port, as_domain=None, **kw):
    """A tunnel, or an assertion with the reply."""
    sock = proxy.connect(**kw)
    try:
        reply = socks5_ask(sock, host, port, as_domain=as_domain)
        assert reply.code == 0, reply
    except BaseException:
        sock.close()
        raise
    return sock


def socks5_code(proxy, host, port, cmd=1, as_domain=None, timeout=20.0):
    with proxy.connect(timeout=timeout) as sock:
        return socks5_ask(sock, host, port, cmd, as_domain).code


def socks5_userpass(user, password):
    """RFC 1929's message."""
    u, p = (v if isinstance(v, bytes) else v.encode("utf-8") for v in (user, password))
    return bytes([1, len(u)]) + u + bytes([len(p)]) + p


def socks5_login(sock, user, password):
    """Greeting with user/password alone; the status byte of the answer."""
    sock.sendall(socks5_greeting(2))
    assert recv_exact(sock, 2) == b"\x05\x02"
    sock.sendall(socks5_userpass(user, password))
    version, status = recv_exact(sock, 2)
    assert version == 1, "RFC 1929 answers with version 1, not %d" % version
    return status


def socks5_as(proxy, user, password, host, port, **kw):
    """A tunnel for somebody with a password."""
    sock = proxy.connect(**kw)
    try:
        assert socks5_login(sock, user, password) == 0
        sock.sendall(socks5_request(host, port))
        reply = socks5_read_reply(sock)
        assert reply.code == 0, reply
    except BaseException:
        sock.close()
        raise
    return sock


# -- SOCKS4 and 4a ----------------------------------------------------------------

def socks4_request(host, port, userid=b"", cmd=1):
    """A name makes it 4a: the invalid address 0.0.0.1 and the name behind."""
    try:
        packed, name = ipaddress.IPv4Address(host).packed, b""
    except ValueError:
        packed, name = b"\0\0\0\1", host.encode("latin-1") + b"\0"
    return bytes([4, cmd]) + struct.pack(">H", port) + packed + userid + b"\0" + name


def socks4_read_reply(sock):
    head = recv_exact(sock, 8)
    assert head[0] == 0, "SOCKS4 reply version %r" % head
    return head[1]


def socks4(proxy, host, port, userid=b"", **kw):
    sock = proxy.connect(**kw)
    try:
        sock.sendall(socks4_request(host, port, userid))
        code = socks4_read_reply(sock)
        assert code == GRANTED4, "SOCKS4 reply %02x" % code
    except BaseException:
        sock.close()
        raise
    return sock


# -- HTTP --------------------------------------------------------------------------

class Response:
    def __init__(self, raw_head, interim=()):
        self.raw_head = raw_head
        self.interim = list(interim)
        lines = raw_head.split(b"\r\n")
        self.line = lines[0].decode("latin-1")
        version, status, *reason = self.line.split(" ", 2)
        assert version in ("HTTP/1.1", "HTTP/1.0"), self.line
        self.status = int(status)
        self.reason = reason[0] if reason else ""
        self.fields = []
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(b":")
                self.fields.append((name.decode("latin-1"), value.strip().decode("latin-1")))
        self.body = b""
        self.trailers = b""
        self.cut = None         # None: whole; else how it ended too early
        self.closed = False     # the body ended by the end of the connection

    def get(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def first(self, name, default=None):
        values = self.get(name)
        return values[0] if values else default

    def __repr__(self):
        return "Response(%r, %d bytes, cut=%s)" % (self.line, len(self.body), self.cut)


class Http:
    """A connection to an HTTP proxy (or origin), read as RFC 9112 says."""

    def __init__(self, sock):
        self.sock = sock
        self.stream = Stream(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, *parts):
        self.sock.sendall(b"".join(p if isinstance(p, bytes) else p.encode("latin-1") for p in parts))

    def read_head(self):
        head = self.stream.until(b"\r\n\r\n")
        if head is None:
            raise EOFError("the connection ended before an answer")
        return Response(head[:-4])

    def read(self, method="GET"):
        """The final response with its body; interim ones are kept in it."""
        interim = []
        while True:
            r = self.read_head()
            if r.status >= 200 or r.status == 101:
                break
            interim.append(r)
        r.interim = interim
        if method == "HEAD" or r.status in (101, 204, 304) or (method == "CONNECT" and r.status < 300):
            return r
        codings = ",".join(r.get("Transfer-Encoding")).lower()
        lengths = r.get("Content-Length")
        assert not (codings and lengths), "ambiguous framing:\n%r" % r.raw_head
        try:
            if codings:
                assert codings.strip() == "chunked", codings
                r.body, r.trailers = self.stream.chunked()
            elif lengths:
                assert len(set(lengths)) == 1, lengths
                want = int(lengths[0])
                while len(self.stream.buf) < want and self.stream.more():
                    pass
                r.body = bytes(self.stream.buf[:want])
                del self.stream.buf[:want]
                if len(r.body) < want:
                    r.cut = "fin after %d of %d" % (len(r.body), want)
            else:
                r.closed = True
                r.body = self.stream.rest()
        except EOFError as e:
            r.cut = "fin: %s" % e
        except ConnectionResetError:
            r.cut = "rst"
        return r

    def ask(self, *parts, method="GET"):
        self.send(*parts)
        return self.read(method)

    def ended(self, timeout=5.0):
        """Nothing more comes and the other side ends."""
        assert not self.stream.buf, bytes(self.stream.buf[:200])
        return is_ended(self.sock, timeout)


def http(proxy, **kw):
    return Http(proxy.connect(**kw))


def get_request(authority, path="/", fields=(), method="GET", version="HTTP/1.1"):
    """Absolute form, as to a proxy."""
    lines = ["%s http://%s%s %s" % (method, authority, path, version), "Host: %s" % authority, *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def basic(user, password):
    """The field with which a client logs in at a proxy."""
    return "Proxy-Authorization: Basic " + base64.b64encode(("%s:%s" % (user, password)).encode("utf-8")).decode()


def fetch(proxy, authority, path="/", fields=(), method="GET", body=None, timeout=20.0):
    """One request on a connection of its own."""
    if body is not None:
        fields = [*fields, "Content-Length: %d" % len(body)]
    with http(proxy, timeout=timeout) as c:
        return c.ask(get_request(authority, path, fields, method), body or b"", method=method)


def connect_request(authority, fields=(), version="HTTP/1.1"):
    return ("\r\n".join(["CONNECT %s %s" % (authority, version), "Host: %s" % authority, *fields])
            + "\r\n\r\n").encode("latin-1")


def http_connect(proxy, host, port, **kw):
    """A tunnel by CONNECT: the socket, with nothing of the answer left on it."""
    sock = proxy.connect(**kw)
    try:
        authority = ("[%s]:%d" if ":" in host else "%s:%d") % (host, port)
        sock.sendall(connect_request(authority))
        status = connect_read_status(sock)
        assert status == 200, "CONNECT: %d" % status
    except BaseException:
        sock.close()
        raise
    return sock


def connect_read_status(sock):
    """Reads exactly the head, not a byte of what follows."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            raise EOFError("end inside the answer to CONNECT: %r" % bytes(head))
        head += byte
        assert len(head) < 65536
    r = Response(bytes(head[:-4]))
    if r.status < 300:
        assert not r.get("Content-Length") and not r.get("Transfer-Encoding"), r.raw_head
    return r.status


def connect_status(proxy, authority, timeout=20.0, fields=()):
    """The whole answer to a CONNECT."""
    with http(proxy, timeout=timeout) as c:
        return c.ask(connect_request(authority, fields), method="CONNECT")


TUNNELS = {"socks5": socks5, "connect": http_connect}

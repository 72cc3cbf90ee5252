# SPDX-License-Identifier: ISC
"""Raw TCP origins, a thread a connection.  They do exactly what the test asks
for and keep what they saw."""

import hashlib
import socket
import struct
import threading
import time

from util import free_port, pattern_chunks, wait_until


def reset(conn):
    """Close with RST: linger on, zero seconds."""
    try:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    conn.close()


class Origin:
    """Calls handler(conn, origin) in a thread for each connection.  What the
    handler returns is appended to `results`; its socket errors are not
    failures (the tests cut connections all the time) and go to `errors`."""

    def __init__(self, handler, host="127.0.0.1", port=0, rcvbuf=None, sndbuf=None, backlog=4096, timeout=60.0):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.handler = handler
        self.host = host
        self.timeout = timeout
        self.sndbuf = sndbuf
        self.accepted = 0
        self.peers = []
        self.results = []
        self.errors = []
        self._lock = threading.Lock()
        self._conns = set()
        self._closed = False
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if rcvbuf:
            # before listen, or the window scale is chosen for the default
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        # not port 0: after a storm the whole ephemeral range may be in TIME_WAIT
        self.port = port or free_port(host)
        self.sock.bind((host, self.port))
        self.sock.listen(backlog)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def authority(self):
        return ("[%s]:%d" if ":" in self.host else "%s:%d") % (self.host, self.port)

    def _accept(self):
        while True:
            try:
                conn, peer = self.sock.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    conn.close()
                    return
                self.accepted += 1
                self.peers.append(peer)
                self._conns.add(conn)
            conn.settimeout(self.timeout)
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.sndbuf:
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.sndbuf)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            result = self.handler(conn, self)
            with self._lock:
                self.results.append(result)
        except OSError as e:
            with self._lock:
                self.errors.append(e)
        finally:
            with self._lock:
                self._conns.discard(conn)
            conn.close()

    @property
    def open(self):
        with self._lock:
            return len(self._conns)

    def result(self, index=0, timeout=15.0):
        wait_until(lambda: len(self.results) > index, timeout,
                   lambda: "origin's result %d (errors: %r)" % (index, self.errors))
        return self.results[index]

    def close(self):
        with self._lock:
            self._closed = True
            conns = list(self._conns)
        try:
            self.sock.shutdown(socket.SHUT_RDWR)     # wakes accept
        except OSError:
            pass
        self.sock.close()
        for conn in conns:
            try:
                conn.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join(5)


def recv_all(conn, limit=None):
    out = bytearray()
    while limit is None or len(out) < limit:
        data = conn.recv(1 << 16)
        if not data:
            break
        out += data
    return bytes(out)


def recv_sha(conn, sleep_s=0.0, size=1 << 16):
    """(length, digest) of all that comes until FIN."""
    h = hashlib.sha256()
    total = 0
    while True:
        data = conn.recv(size)
        if not data:
            return total, h.hexdigest()
        h.update(data)
        total += len(data)
        if sleep_s:
            time.sleep(sleep_s)


# -- handlers ---------------------------------------------------------------

def echo(conn, _origin):
    total = 0
    while True:
        data = conn.recv(1 << 16)
        if not data:
            conn.shutdown(socket.SHUT_WR)
            return total
        conn.sendall(data)
        total += len(data)


def banner_first(banner):
    """Speaks at once, like an SSH server, then echoes."""
    def handler(conn, origin):
        conn.sendall(banner)
        return echo(conn, origin)
    return handler


def sink(conn, _origin):
    """Takes everything until FIN, then answers `LENGTH DIGEST\\n`."""
    total, digest = recv_sha(conn)
    conn.sendall(b"%d %s\n" % (total, digest.encode()))
    conn.shutdown(socket.SHUT_WR)
    return total, digest


def slow_sink(sleep_s, size=1 << 15):
    def handler(conn, _origin):
        total, digest = recv_sha(conn, sleep_s, size)
        conn.sendall(b"%d %s\n" % (total, digest.encode()))
        conn.shutdown(socket.SHUT_WR)
        return total, digest
    return handler


def source(seed, nbytes, pause_s=0.0):
    """Sends nbytes at once, then FIN, then waits for the client's."""
    def handler(conn, _origin):
        for chunk in pattern_chunks(seed, nbytes):
            conn.sendall(chunk)
            if pause_s:
                time.sleep(pause_s)
        conn.shutdown(socket.SHUT_WR)
        return recv_all(conn)
    return handler


def both_ways(seed, nbytes, sleep_s=0.0, size=1 << 16):
    """Sends nbytes and takes what comes, at the same time."""
    def handler(conn, _origin):
        got = {}

        def reader():
            try:
                got["r"] = recv_sha(conn, sleep_s, size)
            except OSError:
                pass            # the sender has failed, too, and tells
        t = threading.Thread(target=reader, daemon=True)
        t.start()
        for chunk in pattern_chunks(seed, nbytes):
            conn.sendall(chunk)
        conn.shutdown(socket.SHUT_WR)
        t.join(60)
        return got.get("r")
    return handler


def answer_then_fin(answer):
    """Half-closes first: sends its answer and FIN, then takes an upload."""
    def handler(conn, _origin):
        conn.sendall(answer)
        conn.shutdown(socket.SHUT_WR)
        return recv_sha(conn)
    return handler


def answer_after_fin(answer_of):
    """Waits for the client's FIN, then sends answer_of(all it got)."""
    def handler(conn, _origin):
        got = recv_all(conn)
        conn.sendall(answer_of(got))
        conn.shutdown(socket.SHUT_WR)
        return got
    return handler


def resetter(after_bytes=0, send=b""):
    """Takes some bytes, sends some, and resets."""
    def handler(conn, _origin):
        got = recv_all(conn, after_bytes) if after_bytes else b""
        if send:
            conn.sendall(send)
            time.sleep(0.1)     # so that the data arrives before the RST discards it
        reset(conn)
        return got
    return handler


def silent(conn, origin):
    """Says nothing, keeps the connection until the other side ends it."""
    return recv_all(conn)


# -- HTTP --------------------------------------------------------------------

class Request:
    def __init__(self, raw_head, body, trailers=b""):
        self.raw_head = raw_head
        self.body = body
        self.trailers = trailers
        lines = raw_head.split(b"\r\n")
        self.line = lines[0].decode("latin-1")
        parts = self.line.split(" ")
        self.method, self.target = parts[0], parts[1] if len(parts) > 1 else ""
        self.fields = []
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(b":")
                self.fields.append((name.decode("latin-1"), value.strip().decode("latin-1")))

    def get(self, name):
        """All values of a field, in order."""
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def first(self, name, default=None):
        values = self.get(name)
        return values[0] if values else default


class Stream:
    """A socket with a buffer, for reading heads and bodies."""

    def __init__(self, sock):
        self.sock = sock
        self.buf = bytearray()

    def more(self):
        data = self.sock.recv(1 << 16)
        self.buf += data
        return bool(data)

    def until(self, mark, limit=1 << 20):
        """Bytes up to and with mark, or None at an end before any byte."""
        start = 0
        while True:
            at = self.buf.find(mark, start)
            if at >= 0:
                out = bytes(self.buf[:at + len(mark)])
                del self.buf[:at + len(mark)]
                return out
            start = max(0, len(self.buf) - len(mark) + 1)
            if len(self.buf) > limit:
                raise ConnectionError("no %r within %d bytes" % (mark, limit))
            if not self.more():
                if not self.buf:
                    return None
                raise EOFError("end inside a head: %r" % bytes(self.buf[:200]))

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.more():
                raise EOFError("end after %d of %d bytes" % (len(self.buf), n))
        out = bytes(self.buf[:n])
        del self.buf[:n]
        return out

    def rest(self):
        while self.more():
            pass
        out = bytes(self.buf)
        self.buf.clear()
        return out

    def chunked(self):
        """(body, trailer section): strict, so that it notices bad framing."""
        body = bytearray()
        while True:
            line = self.until(b"\r\n", 1 << 16)
            if line is None:
                raise EOFError("end before a chunk size")
            digits = line[:-2].split(b";", 1)[0]
            if not digits or digits.strip(b"0123456789abcdefABCDEF"):
                raise ValueError("bad chunk size %r" % line)
            size = int(digits, 16)
            if size == 0:
                trailers = b""
                while True:
                    line = self.until(b"\r\n", 1 << 16)
                    if line is None:
                        raise EOFError("end inside the trailers")
                    if line == b"\r\n":
                        return bytes(body), trailers
                    trailers += line
            body += self.exactly(size)
            if self.exactly(2) != b"\r\n":
                raise ValueError("chunk does not end in CRLF")


class Close(Exception):
    """An action's wish to end the connection in order."""


class Reset(Exception):
    """An action's wish to end it with RST."""


class HttpOrigin(Origin):
    """script(request, conn, stream) returns the raw answer (bytes), or a list
    of bytes | seconds | callables(conn), or None for no answer.  Raising Close
    or Reset ends the connection.  A request that ends early is kept in
    `broken`."""

    def __init__(self, script, host="127.0.0.1", read_body=True, **kw):
        self.script = script
        self.read_body = read_body
        self.requests = []
        self.broken = []
        super().__init__(self._handle, host, **kw)

    def _handle(self, conn, _origin):
        stream = Stream(conn)
        while True:
            try:
                head = stream.until(b"\r\n\r\n")
            except (EOFError, ConnectionError) as e:
                self.broken.append(e)
                return
            if head is None:
                return
            request = Request(head[:-4], b"")
            try:
                if self.read_body:
                    self.take_body(request, stream)
            except (EOFError, ValueError, OSError) as e:
                self.broken.append(e)
                return
            with self._lock:
                self.requests.append(request)
            try:
                self.play(self.script(request, conn, stream), conn)
            except Close:
                return
            except Reset:
                reset(conn)
                return

    @staticmethod
    def take_body(request, stream):
        if [v for v in request.get("Transfer-Encoding") if v]:
            request.body, request.trailers = stream.chunked()
        elif request.get("Content-Length"):
            request.body = stream.exactly(int(request.first("Content-Length")))

    @staticmethod
    def play(answer, conn):
        if answer is None:
            return
        for step in [answer] if isinstance(answer, bytes) else answer:
            if isinstance(step, (bytes, bytearray)):
                conn.sendall(step)
            elif isinstance(step, (int, float)):
                time.sleep(step)
            elif isinstance(step, type) and issubclass(step, Exception):
                raise step()
            else:
                step(conn)


def ok(body=b"hello", fields=()):
    head = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), b"Content-Type: text/plain"]
    head += [f if isinstance(f, bytes) else f.encode() for f in fields]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chunked(body, size=1000, trailers=b"", fields=()):
    head = b"\r\n".join([b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", *fields]) + b"\r\n\r\n"
    out = bytearray(head)
    for at in range(0, len(body), size):
        piece = body[at:at + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
    return bytes(out) + b"0\r\n" + trailers + b"\r\n"


def always(answer):
    """A script that gives the same answer to everything; the answer names the
    body's digest if it is callable."""
    def script(request, _conn, _stream):
        return answer(request) if callable(answer) else answer
    return script

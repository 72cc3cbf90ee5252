# SPDX-License-Identifier: ISC
"""A SOCKS5 UDP client that sends what the test wants, well-formed or not, reads
the relay's words strictly, and destinations for it to talk to."""

import errno
import ipaddress
import re
import select
import socket
import struct
import threading
import time

from clients import (is_ended, recv_exact, socks5_greeting, socks5_login, socks5_read_reply, socks5_request)
from util import SLOW, free_port, wait_until

UDP_SEGMENT, UDP_GRO = 103, 104      # udp(7), level SOL_UDP = IPPROTO_UDP
PAYLOAD_MAX = 65507                  # of an IPv4 datagram
CLIENT_HEADER4, CLIENT_HEADER6 = 10, 22


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def any_free_range(count, host="127.0.0.1"):
    """The first of `count` UDP ports in a row that nobody has."""
    while True:
        low = free_port(host, udp=True)
        held = []
        try:
            for port in range(low, low + count):
                held.append(udp_socket(host, port))
            # A listener on one of them would be no destination: free_port() is not to name them again.
            while free_port(host) < low + count - 1:
                pass
            return low
        except OSError:
            continue
        finally:
            for s in held:
                s.close()


def udp_socket(host="127.0.0.1", port=0, rcvbuf=1 << 22):
    s = socket.socket(family_of(host), socket.SOCK_DGRAM)
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        s.bind((host, port))
    except BaseException:
        s.close()
        raise
    s.settimeout(5 * SLOW)
    return s


def header(host, port, frag=0, rsv=0, as_domain=False):
    """RFC 1928 section 7; `host` that is no address, or bytes, is sent as a name."""
    return struct.pack(">HB", rsv, frag) + socks5_request(host, port, as_domain=as_domain)[3:]


def parse(datagram):
    """(host, port, payload); the relay names sources by address, IPv4 as IPv4."""
    assert len(datagram) >= 10, "no whole header: %r" % datagram
    assert datagram[:3] == b"\0\0\0", "RSV, FRAG: %r" % datagram[:12]
    n = {1: 4, 4: 16}.get(datagram[3])
    assert n, "ATYP: %r" % datagram[:12]
    address = ipaddress.ip_address(datagram[4:4 + n])
    assert getattr(address, "ipv4_mapped", None) is None, address
    return str(address), struct.unpack(">H", datagram[4 + n:6 + n])[0], datagram[6 + n:]


def send_segments(sock, data, segment, where):
    """One super-packet that the kernel (or the receiver's UDP_GRO) takes apart."""
    sock.sendmsg([data], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", segment))], 0, where)


def has_gso():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
            return True
        except OSError:
            return False


def drain(sock, quiet=0.3, most=1 << 30):
    """Everything that comes until nothing has for `quiet` seconds: [(data, from)]"""
    out = []
    while len(out) < most and select.select([sock], [], [], quiet * SLOW)[0]:
        try:
            out.append(sock.recvfrom(65536))
        except ConnectionRefusedError:
            continue
    return out


def associate_ask(sock, hint=("0.0.0.0", 0), as_domain=None, login=None):
    """Greeting (or log in), UDP ASSOCIATE, reply."""
    if login:
        assert socks5_login(sock, *login) == 0
    else:
        sock.sendall(socks5_greeting(0))
        assert recv_exact(sock, 2) == b"\x05\x00"
    sock.sendall(socks5_request(hint[0], hint[1], 3, as_domain))
    return socks5_read_reply(sock)


def associate_code(proxy, hint=("0.0.0.0", 0), **kw):
    with proxy.connect(**kw) as sock:
        return associate_ask(sock, hint).code


class Association:
    """A control connection and a socket for the datagrams.  `where` is the
    relay as BND named it, unless it is to be reached otherwise."""

    def __init__(self, proxy, hint=("0.0.0.0", 0), as_domain=None, source=None, login=None, udp=None, timeout=10.0):
        self.control = proxy.connect(source=source, timeout=timeout)
        self.own_udp = udp is None
        self.udp = udp
        try:
            if udp is None:
                local = self.control.getsockname()[0] if self.control.family != socket.AF_UNIX else "127.0.0.1"
                self.udp = udp_socket(local)
            if hint == "own":
                hint = self.udp.getsockname()[:2]
            self.reply = associate_ask(self.control, hint, as_domain, login)
            assert self.reply.code == 0, self.reply
        except BaseException:
            self.close()
            raise
        self.bnd = (self.reply.host, self.reply.port)
        self.where = self.bnd

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def address(self):
        return self.udp.getsockname()[:2]

    def send_raw(self, datagram):
        self.udp.sendto(datagram, self.where)

    def send(self, dest, payload, **kw):
        """`dest` is (host, port) or something with .where"""
        host, port = getattr(dest, "where", dest)
        self.send_raw(header(host, port, **kw) + payload)

    def send_gso(self, dest, payloads, segment=None):
        """All of one size (but the last): one super-packet."""
        host, port = getattr(dest, "where", dest)
        head = header(host, port)
        send_segments(self.udp, b"".join(head + p for p in payloads), segment or len(head) + len(payloads[0]), self.where)

    def recv(self, timeout=5.0):
        """(host, port, payload); sent from where BND said."""
        self.udp.settimeout(timeout * SLOW)
        data, source = self.udp.recvfrom(65536)
        assert source[:2] == self.where, "from %s, BND is %s" % (source, self.where)
        return parse(data)

    def some(self, count):
        """What comes, up to so many: fewer when some are lost."""
        return self.drain(2, count)

    def drain(self, quiet=0.3, most=1 << 30):
        out = []
        for data, source in drain(self.udp, quiet, most):
            assert source[:2] == self.where, "from %s, BND is %s" % (source, self.where)
            out.append(parse(data))
        return out

    def silent(self, seconds=0.3):
        return not select.select([self.udp], [], [], seconds * SLOW)[0]

    def ping(self, dest, payload=b"ping", timeout=5.0):
        """Through `dest`, who echoes."""
        self.send(dest, payload)
        got = self.recv(timeout)
        assert got == (*dest.where, payload), (got[:2], len(got[2]), dest.where)

    def ended(self, timeout=5.0):
        return is_ended(self.control, timeout)

    def alive(self):
        return not select.select([self.control], [], [], 0)[0]

    def close(self):
        self.control.close()
        if self.own_udp and self.udp is not None:
            self.udp.close()


class Destination:
    """A socket that the test reads and answers from by hand."""

    def __init__(self, host="127.0.0.1", port=0):
        self.udp = udp_socket(host, port)
        self.where = self.udp.getsockname()[:2]
        self.peer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.udp.close()

    def recv(self, timeout=5.0):
        self.udp.settimeout(timeout * SLOW)
        data, self.peer = self.udp.recvfrom(65536)
        return data

    def reply(self, payload):
        self.udp.sendto(payload, self.peer)

    def some(self, count):
        return self.drain(2, count)

    def drain(self, quiet=0.3, most=1 << 30):
        out = drain(self.udp, quiet, most)
        if out:
            self.peer = out[-1][1]
        return [data for data, _ in out]

    def silent(self, seconds=0.3):
        return not select.select([self.udp], [], [], seconds * SLOW)[0]


class Echo(Destination):
    """Sends everything back, by a thread; remembers how many and whence."""

    def __init__(self, host="127.0.0.1", port=0):
        super().__init__(host, port)
        self.udp.settimeout(None)
        self.count = 0
        self.peers = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                data, peer = self.udp.recvfrom(65536)
                if data == b"end of %d" % id(self):
                    return
                self.count += 1
                self.peers.add(peer[:2])
                self.udp.sendto(data, peer)
            except OSError as e:
                if e.errno == errno.EBADF:
                    return

    def __exit__(self, *_):
        # closing it under a blocked recvfrom(2) would wake nobody
        with socket.socket(self.udp.family, socket.SOCK_DGRAM) as s:
            s.sendto(b"end of %d" % id(self), self.where)
        self._thread.join(5)
        self.udp.close()


# -- what the proxy says and the kernel knows -----------------------------------------

def counters(text):
    """Numbers of the last summary in a log; causes that have not happened may be left out."""
    lines = re.findall(r" (?:stats|stopped) (active=.*)", text)
    assert lines, "no summary:\n" + text[-2000:]
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", lines[-1])}


def final_counters(proxy):
    """Stops it and reads its summary; sessions that are left cost shutdown_timeout_s."""
    proxy.stop()
    return counters(proxy.log())


def drops(counted):
    """{cause: count} of those that are not zero."""
    return {k[len("udp_drop_"):]: v for k, v in counted.items() if k.startswith("udp_drop_") and v}


def udp_ports(proxy):
    """Local ports of its UDP sockets, from /proc, in its own namespace."""
    inodes = {what[8:-1] for what in proxy.fds().values() if what.startswith("socket:[")}
    out = []
    for name in ("udp", "udp6"):
        with open("/proc/%d/net/%s" % (proxy.pid, name), encoding="ascii") as f:
            next(f)
            for line in f:
                field = line.split()
                if field[9] in inodes:
                    out.append(int(field[1].rsplit(":", 1)[1], 16))
    return sorted(out)


def no_association_left(proxy, timeout=5.0):
    wait_until(lambda: not udp_ports(proxy), timeout, lambda: "no UDP socket is left: %s" % udp_ports(proxy), every=0.05)


def settle(seconds=0.2):
    """For something that must not happen."""
    time.sleep(seconds * SLOW)

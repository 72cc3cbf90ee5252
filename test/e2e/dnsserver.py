# SPDX-License-Identifier: ISC
"""A DNS server for tests: UDP and TCP on one loopback port, answers by script,
every question counted."""

import ipaddress
import socket
import struct
import threading
import time

from util import free_port

A, CNAME, SOA, AAAA, ANY = 1, 5, 6, 28, 255
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5


class Record:
    """What a name answers: addresses of both families, a TTL, and how."""

    def __init__(self, *addresses, ttl=60, rcode=NOERROR, delay=0.0, drop=False, truncate=False,
                 cname=None, delay_aaaa=None):
        self.addresses = [ipaddress.ip_address(a) for a in addresses]
        self.ttl = ttl
        self.rcode = rcode
        self.delay = delay
        self.delay_aaaa = delay if delay_aaaa is None else delay_aaaa
        self.drop = drop
        self.truncate = truncate     # TC over UDP: the client must come back by TCP
        self.cname = cname


def encode_name(name):
    out = b""
    for label in name.rstrip(".").split("."):
        raw = label.encode("latin-1")
        out += bytes([len(raw)]) + raw
    return out + b"\0"


class DnsServer:
    def __init__(self, zone=None, host="127.0.0.1", port=None):
        self.zone = {k.lower().rstrip("."): v for k, v in (zone or {}).items()}
        self.host = host
        self.port = port or free_port(host, udp=True)
        self.questions = []         # (name as asked, type, "udp" | "tcp")
        self._lock = threading.Lock()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((host, self.port))
        self.tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.tcp.bind((host, self.port))
        self.tcp.listen(64)
        self._stop = False
        for target in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=target, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def address(self):
        return "%s:%d" % (self.host, self.port)

    def add(self, name, *addresses, **kw):
        self.zone[name.lower().rstrip(".")] = Record(*addresses, **kw)

    def count(self, name=None, qtype=None):
        with self._lock:
            return sum(1 for n, t, _ in self.questions
                       if (name is None or n.lower().rstrip(".") == name.lower().rstrip("."))
                       and (qtype is None or t == qtype))

    def close(self):
        self._stop = True
        for s in (self.udp, self.tcp):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def _serve_udp(self):
        while not self._stop:
            try:
                query, peer = self.udp.recvfrom(4096)
            except OSError:
                return
            threading.Thread(target=self._reply_udp, args=(query, peer), daemon=True).start()

    def _reply_udp(self, query, peer):
        reply = self.answer(query, "udp")
        if reply:
            try:
                self.udp.sendto(reply, peer)
            except OSError:
                pass

    def _serve_tcp(self):
        while not self._stop:
            try:
                conn, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._reply_tcp, args=(conn,), daemon=True).start()

    def _reply_tcp(self, conn):
        with conn:
            conn.settimeout(10)
            try:
                while True:
                    head = conn.recv(2, socket.MSG_WAITALL)
                    if len(head) < 2:
                        return
                    query = conn.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL)
                    reply = self.answer(query, "tcp")
                    if reply:
                        conn.sendall(struct.pack(">H", len(reply)) + reply)
            except OSError:
                return

    def answer(self, query, way):
        """The reply's bytes, or None for silence."""
        if len(query) < 17:
            return None
        ident, flags = struct.unpack(">HH", query[:4])
        at, labels = 12, []
        while at < len(query) and query[at]:
            n = query[at]
            labels.append(query[at + 1:at + 1 + n].decode("latin-1"))
            at += 1 + n
        name = ".".join(labels)
        qtype = struct.unpack(">H", query[at + 1:at + 3])[0]
        question = query[12:at + 5]
        with self._lock:
            self.questions.append((name, qtype, way))
        record = self.zone.get(name.lower())
        if record is None:
            return self._message(ident, flags, NXDOMAIN, question, [])
        if record.drop:
            return None
        delay = record.delay_aaaa if qtype == AAAA else record.delay
        if delay:
            time.sleep(delay)
        if record.rcode != NOERROR:
            return self._message(ident, flags, record.rcode, question, [])
        if record.truncate and way == "udp":
            return self._message(ident, flags | 0x0200, NOERROR, question, [])
        answers = []
        owner = b"\xc0\x0c"
        if record.cname:
            target = encode_name(record.cname)
            answers.append(owner + struct.pack(">HHIH", CNAME, 1, record.ttl, len(target)) + target)
            owner = target
        want = {A: 4, AAAA: 6}.get(qtype)
        for address in record.addresses:
            if address.version == want or (qtype == ANY):
                rtype = A if address.version == 4 else AAAA
                answers.append(owner + struct.pack(">HHIH", rtype, 1, record.ttl, len(address.packed))
                               + address.packed)
        return self._message(ident, flags, NOERROR, question, answers)

    @staticmethod
    def _message(ident, flags, rcode, question, answers):
        # QR, AA, RA; the opcode, RD and (if set by the caller) TC stay
        out_flags = 0x8480 | (flags & 0x7b00) | rcode
        return struct.pack(">HHHHHH", ident, out_flags, 1, len(answers), 0, 0) + question + b"".join(answers)

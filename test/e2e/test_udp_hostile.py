# SPDX-License-Identifier: ISC
"""Datagrams that should not have been sent, by whom they should not have been,
to where they may not go (SPEC 7; CASES 39, 44)."""

import contextlib
import random
import struct
import threading
import time

import pytest

from clients import socks5_code
from dnsserver import DnsServer, Record
from test_acl import LITERALS, LOCAL_NAMES, OUTSIDE
from udpclient import (PAYLOAD_MAX, Association, Destination, Echo, any_free_range, associate_code, drain, drops,
                       final_counters, header, no_association_left, settle, udp_ports, udp_socket)
from util import SLOW, free_port, password_record, scaled, wait_until


# -- who sends -----------------------------------------------------------------------------

def test_strangers_are_neither_client_nor_destination(proxies):
    proxy = proxies()
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Association(proxy))
        dest = stack.enter_context(Destination())
        same_host = stack.enter_context(udp_socket())
        other_host = stack.enter_context(udp_socket("127.0.0.2"))
        a.send(dest, b"mine")
        assert dest.recv() == b"mine"
        for stranger in (same_host, other_host):
            for data in (header(*dest.where) + b"forged", b"forged answer", b"", b"\0" * 10):
                stranger.sendto(data, a.bnd)
        assert a.silent() and dest.silent(0)
        assert drain(same_host, 0) == drain(other_host, 0) == []
        # a destination's address with another port is not the destination
        with udp_socket(dest.where[0]) as near:
            near.sendto(b"not contacted", a.bnd)
            assert a.silent()
        dest.reply(b"contacted")
        assert a.recv() == (*dest.where, b"contacted")
    assert drops(final_counters(proxy)) == {"stranger": 9}


def test_destination_may_answer_only_once_it_was_contacted(proxies):
    proxy = proxies()
    with Association(proxy) as a, Destination() as first, Destination() as second:
        second.udp.sendto(b"too early", a.bnd)
        a.send(first, b"x")
        assert first.recv() == b"x"
        second.udp.sendto(b"not asked", a.bnd)
        assert a.silent()
        a.send(second, b"y")
        assert second.recv() == b"y"
        second.reply(b"asked")
        assert a.recv() == (*second.where, b"asked")


def test_client_address_mismatch_allowed(proxies):
    """By default the first sender has to come from the control connection's address; with
    allow_client_addr_mismatch the first with a good header is the client, whoever it is, and stays so."""
    proxy = proxies()
    with Echo() as echo, Association(proxy) as a, udp_socket("127.0.0.2") as elsewhere, udp_socket() as late:
        elsewhere.sendto(header(*echo.where) + b"x", a.bnd)
        settle()
        assert echo.count == 0 and drain(elsewhere, 0.1) == []
        a.ping(echo)
        late.sendto(header(*echo.where) + b"the port counts too", a.bnd)
        assert drain(late) == [] and echo.count == 1
        proxy.reload({"udp": {"allow_client_addr_mismatch": True}})
        with Association(proxy) as b:
            elsewhere.sendto(header(*echo.where) + b"x", b.bnd)
            assert elsewhere.recvfrom(100) == (header(*echo.where) + b"x", b.bnd)
            b.send(echo, b"y")
            assert b.silent(), "the client is known by now"
            assert echo.count == 2
    assert drops(final_counters(proxy)) == {"stranger": 3}


def test_nonsense_does_not_make_a_client(proxies):
    """With addresses not compared, only a well-formed header does."""
    proxy = proxies({"udp": {"allow_client_addr_mismatch": True}})
    with Echo() as echo, Association(proxy) as a, udp_socket("127.0.0.3") as stranger:
        for data in (b"", b"\0\0\0", b"GET / HTTP/1.1\r\n", header(*echo.where, rsv=1), header(*echo.where, frag=1),
                     header(*echo.where)[:9], b"\0\0\0\7" + b"x" * 20):
            stranger.sendto(data, a.bnd)
        settle()
        a.ping(echo)
        assert echo.count == 1


# -- what is sent -----------------------------------------------------------------------------

BAD = {"frag 1": ("frag", lambda d: header(*d, frag=1) + b"x"), "frag 127": ("frag", lambda d: header(*d, frag=127) + b"x"),
       "frag end": ("frag", lambda d: header(*d, frag=0x81) + b"x"), "rsv": ("malformed", lambda d: header(*d, rsv=0x0100) + b"x"),
       "rsv low": ("malformed", lambda d: header(*d, rsv=1) + b"x"), "rsv ff": ("malformed", lambda d: header(*d, rsv=0xffff) + b"x"),
       "port 0": ("port", lambda d: header(d[0], 0) + b"x"), "port 0 of IPv6": ("port", lambda d: header("::1", 0) + b"x"),
       "atyp 0": ("malformed", lambda d: b"\0\0\0\0" + b"x" * 20), "atyp 2": ("malformed", lambda d: b"\0\0\0\2" + b"x" * 20),
       "atyp 255": ("malformed", lambda d: b"\0\0\0\xff" + b"x" * 20), "nothing": ("malformed", lambda d: b""),
       "no name": ("malformed", lambda d: b"\0\0\0\3\0" + struct.pack(">H", d[1]) + b"x"),
       "name with NUL": ("malformed", lambda d: header(b"a\0b", d[1]) + b"x"),
       "name and no more": ("malformed", lambda d: b"\0\0\0\3\xff" + b"a" * 200)}


def test_bad_headers_are_dropped_by_cause(proxies):
    proxy = proxies({"workers": 1})
    want = {}
    with Destination() as dest, Association(proxy) as a:
        for name, (cause, make) in BAD.items():
            want[cause] = want.get(cause, 0) + 2
            a.send_raw(make(dest.where))        # before there is a client
        a.send(dest, b"good")
        assert dest.recv() == b"good"
        for name, (cause, make) in BAD.items():
            a.send_raw(make(dest.where))
            a.send(dest, name.encode())
            assert dest.recv() == name.encode()
        assert dest.silent(0.1) and a.silent(0) and a.alive()
    got = drops(final_counters(proxy))
    assert got == want, (got, want)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "name.test"])
def test_header_cut_at_each_length(proxies, host):
    proxy = proxies({"workers": 1})
    whole = header(host, 5353)
    with Echo() as echo, Association(proxy) as a:
        for known in (False, True):
            for n in range(len(whole)):
                a.send_raw(whole[:n])
            a.ping(echo)
        assert a.alive()
    # what is cut before FRAG or ATYP is read is short all the same
    assert drops(final_counters(proxy)) == {"malformed": 2 * len(whole)}


def test_noise_harms_nobody(proxies):
    proxy = proxies({"udp": {"max_pps": 0}})
    noise = random.Random(44)
    with Echo() as echo, Association(proxy) as a, Destination("127.0.0.4") as dest:
        for _ in range(scaled(50)):
            for _ in range(40):
                data = bytearray(noise.randbytes(noise.choice([1, 5, 9, 10, 11, 22, 30, 300, 2000])))
                if noise.random() < 0.5:
                    data[:4] = b"\0\0\0" + bytes([noise.choice([0, 1, 3, 4, 5])])
                    if len(data) > 8 and data[3] in (1, 4):
                        data[4:8] = b"\x7f\0\0\4" if data[3] == 1 else b"\0\0\0\0"
                with contextlib.suppress(OSError):
                    a.send_raw(bytes(data[:1400]))
            a.ping(echo)
            dest.drain(0)
        assert a.alive()
        a.drain(0.1)
    assert proxy.alive()


# -- sizes --------------------------------------------------------------------------------------

def test_largest_and_empty_datagrams(proxies):
    """65,507 bytes is what IPv4 takes: with the header in front 65,497 of payload up, and on the way back."""
    proxy = proxies({"udp": {"max_pps": 0}})
    with Destination() as dest, Association(proxy) as a:
        for size in (0, 1, 9, 1471, 1472, 1473, 32768, 65000, PAYLOAD_MAX - 10):
            payload = random.Random(size).randbytes(size)
            a.send(dest, payload)
            assert dest.recv() == payload, size
            dest.reply(payload)
            assert a.recv() == (*dest.where, payload), size
        # the answer fits its own datagram, but not with our header in front
        for size in range(PAYLOAD_MAX - 9, PAYLOAD_MAX + 1):
            dest.reply(b"\1" * size)
        assert a.silent()
        dest.reply(b"after")
        assert a.recv() == (*dest.where, b"after")
        assert a.alive()
    counted = final_counters(proxy)
    assert drops(counted) == {"too_big": 10}, counted
    assert (counted["udp_up"], counted["udp_down"]) == (9, 10), counted


def test_largest_datagrams_over_ipv6(proxies):
    """IPv6 has no header length in its limit: 65,527 bytes; a header of 22 in front."""
    proxy = proxies({"udp": {"max_pps": 0}}, listen=[{"addr": "::1", "port": free_port("::1")}])
    with Destination("::1") as dest, Destination() as dest4, Association(proxy) as a:
        for size in (0, 1, 65487, 65527 - 22):
            payload = random.Random(size).randbytes(size)
            a.send(dest, payload)
            assert dest.recv() == payload, size
            dest.reply(payload)
            assert a.recv() == (*dest.where, payload), size
        dest.reply(b"\1" * 65527)
        a.send(dest4, b"\2" * 65517)     # fits up to us and is too long for IPv4
        assert a.silent() and dest4.silent(0)
        a.send(dest4, b"\3" * PAYLOAD_MAX)
        assert dest4.recv() == b"\3" * PAYLOAD_MAX
    assert drops(final_counters(proxy)) == {"too_big": 2}


def test_many_large_ones_at_once(proxies):
    proxy = proxies({"workers": 1, "udp": {"max_pps": 0}, "limits": {"udp_pool_blocks": 16}})
    with Destination() as dest, Association(proxy) as a:
        a.send(dest, b"x")
        assert dest.recv() == b"x"
        for n in range(scaled(20)):
            for k in range(8):
                a.send(dest, bytes([k]) * 60000)
            assert [dest.recv()[:1] for _ in range(8)] == [bytes([k]) for k in range(8)]
    assert drops(final_counters(proxy)) == {}


# -- ourselves --------------------------------------------------------------------------------

def test_own_ports_are_no_destination(proxies):
    """Neither this association's port, nor another's, nor a listener, by any address of this machine."""
    proxy = proxies({"workers": 2, "acl": {"protect_local": False}})
    with Echo() as echo, Association(proxy) as a, Association(proxy) as b, Association(proxy) as c:
        b.ping(echo)
        count = 0
        for host in ("127.0.0.1", "::1", "127.0.0.9", "::ffff:127.0.0.1", "0.0.0.0", "::"):
            for port in (a.bnd[1], b.bnd[1], c.bnd[1]):
                a.send((host, port), header(*echo.where) + b"through two")
                count += 1
        a.send(("127.0.0.1", proxy.port), b"to the listener")
        assert a.silent() and b.silent(0) and c.silent(0)
        assert echo.count == 1
        a.ping(echo)
    assert drops(final_counters(proxy)) == {"self": count + 1}


def test_own_ports_by_an_outside_address(proxies, netns):
    with netns:
        proxy = proxies(listen=[{"addr": "0.0.0.0", "port": free_port()}])
        proxy.host = OUTSIDE
        with Echo(OUTSIDE) as echo, Association(proxy) as a, Association(proxy) as b:
            for port in (a.bnd[1], b.bnd[1]):
                a.send((OUTSIDE, port), header(*echo.where) + b"x")
            assert a.silent() and b.silent(0) and echo.count == 0
            a.ping(echo)
        assert drops(final_counters(proxy)) == {"self": 2}


def test_destination_that_becomes_an_association_is_not_its_client(proxies):
    """A destination is judged once; that its port is one of ours later must not give anybody's association away."""
    low = any_free_range(2)
    proxy = proxies({"workers": 1, "udp": {"port_range": [low, low + 1]}})
    with Destination() as victim, Destination() as dest, Association(proxy) as a:
        later = ("127.0.0.1", low + 1 if a.bnd[1] == low else low)
        forged = header(*victim.where) + b"forged"
        a.send_raw(header(*later) + forged)
        a.send(dest, b"judged")
        assert dest.recv() == b"judged", "and so is the one before"
        with Association(proxy) as b:
            assert b.bnd[1] == later[1]
            for _ in range(5):
                a.send_raw(header(*later) + forged)
            assert victim.silent()
            b.send(dest, b"mine")
            assert dest.recv() == b"mine"
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert drops(counted) == {"stranger": 5}, counted


def test_port_that_an_association_gave_back_is_a_destination(proxies):
    proxy = proxies()
    with Association(proxy) as a, Echo() as echo:
        with Association(proxy) as b:
            port = b.bnd[1]
            a.send(("127.0.0.1", port), b"x")
            a.ping(echo)    # so that it is judged while the port is b's
        wait_until(lambda: len(udp_ports(proxy)) == 1, 5, "gone")
        with Destination("127.0.0.1", port) as dest:
            a.send(dest, b"y")
            assert dest.recv() == b"y"


# -- policy (CASES 39) ------------------------------------------------------------------------------

class Outside:
    """A client that is not on loopback, destinations on all addresses, and names of them all."""

    def __init__(self, proxies, netns, config=None):
        self.dns = DnsServer({n: Record(*a) for n, a in LOCAL_NAMES.items()})
        self.dns.add("good.test", OUTSIDE)
        self.port = free_port(udp=True)
        self.inside = [Destination(h, self.port) for h in ("127.0.0.1", "127.7.7.7", "::1")]
        self.outside = Destination(OUTSIDE, self.port)
        self.proxy = proxies({"resolver": {"servers": [self.dns.address]}, "udp": {"resolve_domain": True}, **(config or {})},
                             listen=[{"addr": OUTSIDE, "port": free_port(OUTSIDE)}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for x in (*self.inside, self.outside):
            x.udp.close()
        self.dns.close()

    def arrives(self, a, host, payload=None):
        """True: outside; False: nowhere; an assertion when inside."""
        payload = payload or str(host).encode()
        a.send((host, self.port), payload)
        # what comes behind it on the same way has come, so it has been dealt with (a name may take longer)
        got = self.outside.drain(0.2)
        for d in self.inside:
            assert d.silent(0), "%s reached %s" % (host, d.where)
        return payload in got


def test_local_addresses_are_protected_however_they_are_named(proxies, netns):
    with netns, Outside(proxies, netns) as x, Association(x.proxy) as a:
        assert a.bnd[0] == OUTSIDE
        assert x.arrives(a, OUTSIDE)
        assert x.arrives(a, "good.test")
        for host in [*LITERALS, *LOCAL_NAMES, "localhost", "foo.localhost", "LOCALHOST."]:
            assert not x.arrives(a, host), host
        for host in LITERALS:       # as text in the domain form
            a.send((host, x.port), b"text", as_domain=True)
        assert x.outside.silent()
        assert x.arrives(a, OUTSIDE, b"goes on")
        counted = final_counters(x.proxy)
    assert set(drops(counted)) <= {"local", "domain", "self"}, counted
    assert counted["udp_drop_local"] >= 2 * len(LITERALS), counted


def test_protect_local_off_and_clients_on_loopback(proxies, netns):
    with netns, Outside(proxies, netns, {"acl": {"protect_local": False}}) as x:
        with Association(x.proxy) as a:
            for host, dest in (("127.0.0.1", 0), ("loopback.test", 0), ("127.7.7.7", 1), ("::1", 2), ("six.test", 2)):
                a.send((host, x.port), host.encode())
                assert x.inside[dest].recv() == host.encode(), host
    with netns, Outside(lambda *a, **kw: proxies(*a, name="second", **kw), netns) as x:
        port = free_port()
        x.proxy.reload({"listen": [*x.proxy.listen, {"addr": "127.0.0.1", "port": port}]})
        x.proxy.host, x.proxy.port = "127.0.0.1", port
        with Association(x.proxy) as a:
            a.send(("127.0.0.1", x.port), b"from loopback")
            assert x.inside[0].recv() == b"from loopback"


def test_route_gives_no_exemption(proxies, netns):
    """Routes are for streams; a datagram to a routed name goes where the name leads, if it may."""
    with netns, Outside(proxies, netns) as x:
        x.proxy.reload({"acl": {"rules": ["route app.test 127.0.0.1 %d" % x.port, "route good.test 127.0.0.1 %d" % x.port]}})
        with Association(x.proxy) as a:
            assert not x.arrives(a, "127.0.0.1")
            assert not x.arrives(a, "app.test")
            x.arrives(a, "good.test")


def test_answers_that_change_do_not_get_through(proxies, netns):
    """DNS rebinding, between datagrams of one association."""
    with netns, Outside(proxies, netns, {"resolver": {"servers": [], "prefer": "ipv4_only", "max_ttl_s": 0}}) as x:
        x.proxy.reload({"resolver": {"servers": [x.dns.address]}})
        x.dns.add("turn.test", OUTSIDE, ttl=0)
        with Association(x.proxy) as a:
            assert x.arrives(a, "turn.test", b"one")
            x.dns.add("turn.test", "127.0.0.1", ttl=0)
            for n in range(5):
                x.arrives(a, "turn.test", b"two %d" % n)      # asserts that it was not inside
                time.sleep(0.3)


RULES = {"dst": (["deny dst 127.0.0.2/32"], ("127.0.0.2", None)), "port": (["deny port {p}"], ("127.0.0.1", "p")),
         "host": (["deny host denied.test"], ("denied.test", None)), "literal host": (["deny host 127.0.0.2"], ("127.0.0.2", None)),
         "dst of a name": (["deny dst 127.0.0.2/32"], ("two.test", None)), "client": (["deny client 127.0.0.1 port {p}"], ("127.0.0.1", "p")),
         "mapped": (["deny dst 127.0.0.2/32"], ("::ffff:127.0.0.2", None)), "v6": (["deny dst ::1/128"], ("::1", None))}


@pytest.mark.parametrize("kind", sorted(RULES))
def test_rules_hold_for_datagrams(proxies, dns, kind):
    lines, (host, port) = RULES[kind]
    for name, address in (("denied.test", "127.0.0.1"), ("two.test", "127.0.0.2"), ("fine.test", "127.0.0.1")):
        dns.add(name, address)
    denied_port = free_port(udp=True)
    proxy = proxies({"resolver": {"servers": [dns.address]}, "udp": {"resolve_domain": True},
                     "acl": {"rules": [line.format(p=denied_port) for line in lines]}})
    with Echo() as echo, Echo("127.0.0.2", echo.where[1]) as two, Echo("::1", echo.where[1]) as six, \
            Echo("127.0.0.1", denied_port) as other, Association(proxy) as a:
        a.ping(echo)
        a.send((host, denied_port if port else echo.where[1]), b"denied")
        assert a.silent()
        a.send(("fine.test", echo.where[1]), b"fine")
        assert a.recv() == (*echo.where, b"fine")
        assert (two.count, six.count, other.count, echo.count) == (0, 0, 0, 2)
        if kind == "host":      # the name is denied, not what it leads to, and it is not even asked for
            assert dns.count("denied.test") == 0
    assert drops(final_counters(proxy)) == {"acl": 1}


def test_user_rules_hold_for_datagrams(proxies):
    with Echo() as echo, Echo("127.0.0.2") as two:
        proxy = proxies({"auth": {"require_password": True, "users": [{"name": n, "pbkdf2": password_record(n)} for n in ("al", "bo")]},
                         "acl": {"rules": ["deny user al dst 127.0.0.2/32"]}})
        with Association(proxy, login=("al", "al")) as al, Association(proxy, login=("bo", "bo")) as bo:
            al.ping(echo)
            bo.ping(two)
            al.send(two, b"denied")
            assert al.silent()
            al.ping(echo)
        assert two.count == 1
        with proxy.connect() as s:      # and nobody associates without a password
            s.sendall(b"\x05\x01\x00")
            assert s.recv(2) == b"\x05\xff"
    assert drops(final_counters(proxy)) == {"acl": 1}


def test_default_deny_lets_listed_ones_through(proxies):
    with Echo() as echo, Echo() as other:
        proxy = proxies({"acl": {"rules": ["default deny", "allow port %d" % echo.where[1]]}})
        assert socks5_code(proxy, "127.0.0.1", free_port()) == 2
        with Association(proxy) as a:
            a.ping(echo)
            a.send(other, b"x")
            assert a.silent()
    assert drops(final_counters(proxy)) == {"acl": 1}


def test_denials_do_not_flood_the_log(proxies):
    proxy = proxies({"udp": {"max_pps": 0}, "acl": {"rules": ["deny dst 127.0.0.2/32"]}})
    with Echo() as echo, Association(proxy) as a:
        before = proxy.log().count("\n")
        for n in range(2000):
            a.send(("127.0.0.2", 1 + n), b"x")
            if n % 100 == 0:
                a.ping(echo)
        a.ping(echo)
        said = proxy.log().count("\n") - before
        assert 1 <= said <= 40, said
    counted = final_counters(proxy)
    assert counted["udp_drop_acl"] == 2000, counted


# -- load of the bad kind ----------------------------------------------------------------------------

def test_flood_by_strangers_does_not_stop_the_client(proxies):
    proxy = proxies({"workers": 1, "udp": {"max_pps": 0}})
    with Echo() as echo, Association(proxy) as a, Association(proxy) as b:
        a.ping(echo)
        stop = threading.Event()

        def flood():
            with udp_socket("127.0.0.6") as s:
                while not stop.is_set():
                    for _ in range(50):
                        s.sendto(b"x" * 100, a.bnd)
                    time.sleep(0.002)
        threads = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            answered = 0
            end = time.monotonic() + 2
            while time.monotonic() < end:
                b.ping(echo)        # another association is not held up
                with contextlib.suppress(TimeoutError):
                    a.ping(echo, timeout=0.5)
                    answered += 1
            assert answered > 20 / SLOW, answered
        finally:
            stop.set()
            for t in threads:
                t.join()


def test_open_close_storm_leaves_nothing(proxies):
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}})
    baseline = proxy.socket_count()
    with Echo() as echo, udp_socket() as client:
        for n in range(scaled(300)):
            with Association(proxy, udp=client) as a:
                for _ in range(n % 4):
                    a.send(echo, b"%d" % n)
                if n % 7 == 0:
                    associate_code(proxy, ("0.0.0.0", 0))
    no_association_left(proxy, 10)
    proxy.settled_sockets(baseline + 2)
    assert final_counters(proxy)["active"] == 0

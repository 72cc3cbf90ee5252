# SPDX-License-Identifier: ISC
"""UDP ASSOCIATE as its users see it: addresses, ports, both families, names,
limits, ends, segmented sends (SPEC 7; CASES 43, 45, 46, 47)."""

import contextlib
import random
import resource
import signal
import socket
import time

import pytest

import clients
from accesslines import wait_lines
from clients import recv_exact, socks5_code
from test_acl import OUTSIDE
from udpclient import (Association, Destination, Echo, any_free_range, associate_ask, associate_code, drops, final_counters,
                       has_gso, header, no_association_left, send_segments, settle, udp_ports, udp_socket)
from util import SLOW, free_port, password_record, pattern, scaled, wait_until


def udp(**keys):
    return {"udp": keys}


# -- a first look --------------------------------------------------------------------------

def test_datagrams_go_both_ways_and_are_counted(proxies):
    proxy = proxies()
    with Destination() as dest, Association(proxy) as a:
        assert a.bnd[0] == "127.0.0.1" and a.bnd[1] in range(40000, 41001), a.reply
        for n in range(20):
            a.send(dest, b"up %d" % n)
            assert dest.recv() == b"up %d" % n
            assert dest.peer[1] == a.bnd[1], "the relay has one socket"
            dest.reply(b"down %d" % n)
            assert a.recv() == (*dest.where, b"down %d" % n)
        assert a.alive()
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert (counted["udp"], counted["udp_up"], counted["udp_down"]) == (1, 20, 20), counted
    assert counted["bytes_up"] == sum(len("up %d" % n) for n in range(20)), counted
    assert drops(counted) == {}, counted


def test_udp_enabled_off_answers_07(proxies):
    proxy = proxies(udp(enabled=False))
    with proxy.connect() as s:
        assert associate_ask(s).code == 7
        assert clients.is_ended(s)
    assert udp_ports(proxy) == []
    proxy.reload(udp(enabled=True))
    with Association(proxy) as a, Echo() as echo:
        a.ping(echo)
        # for new sessions only: this one goes on
        proxy.reload(udp(enabled=False))
        assert associate_code(proxy) == 7
        a.ping(echo)


# -- the request's address is a hint (CASES 43) ----------------------------------------------

HINTS = {"nothing": (("0.0.0.0", 0), None), "nothing6": (("::", 0), None), "own port": ("own", None), "pysocks": (("0", 0), True),
         "pysocks with a port": (("0", 5353), True), "a name": (("client.test", 4000), True),
         "somebody else": (("192.0.2.1", 4000), None), "loopback6": (("::1", 4000), None), "empty name": (("", 0), True),
         "odd name": ((b"\x00 \xff", 1), True), "literal as a name": (("127.0.0.1", 53), True)}


@pytest.mark.parametrize("name", sorted(HINTS))
def test_request_is_a_hint(proxies, name):
    hint, as_domain = HINTS[name]
    proxy = proxies()
    with Echo() as echo, Association(proxy, hint, as_domain) as a:
        assert a.bnd[0] == "127.0.0.1" and a.bnd[1] != 0
        a.ping(echo)
        assert a.alive()


def test_target_as_the_hint_is_no_limit(proxies):
    """Clients of the older sort name the destination: others are served all the same, and rules do not judge it."""
    with Echo() as echo, Echo() as other, Echo("127.0.0.3") as third:
        proxy = proxies({"acl": {"rules": ["deny dst 127.0.0.3/32"]}})
        for hint in (echo.where, third.where):
            with Association(proxy, hint) as a:
                a.ping(echo)
                a.ping(other)


# -- where the relay is ------------------------------------------------------------------------

def test_public_address_is_named(proxies):
    proxy = proxies(udp(public_address="192.0.2.7"))
    with Echo() as echo, Association(proxy) as a:
        assert a.bnd[0] == "192.0.2.7" and a.bnd[1] != 0
        a.where = ("127.0.0.1", a.bnd[1])       # what a NAT in front would do
        a.ping(echo)
    proxy.reload(udp(public_address="2001:db8::7"))
    with Association(proxy) as a:
        assert a.bnd[0] == "2001:db8::7"
    proxy.reload(udp(public_address=""))
    with Association(proxy) as a:
        assert a.bnd[0] == "127.0.0.1"


def test_ports_come_from_port_range(proxies):
    low = any_free_range(4)
    proxy = proxies(udp(port_range=[low, low + 3]))
    with contextlib.ExitStack() as held, Echo() as echo:
        some = [held.enter_context(Association(proxy)) for _ in range(4)]
        assert sorted(a.bnd[1] for a in some) == list(range(low, low + 4)) == udp_ports(proxy)
        for _ in range(3):
            with proxy.connect() as s:      # used up
                assert associate_ask(s).code == 1
                assert clients.is_ended(s)
        assert udp_ports(proxy) == list(range(low, low + 4))
        for a in some:
            a.ping(echo)
        some[2].close()
        wait_until(lambda: len(udp_ports(proxy)) == 3, 5, "the port is free")
        with Association(proxy) as again:
            assert again.bnd[1] == some[2].bnd[1], "the one that is free"
            again.ping(echo)
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert (counted["udp"], counted["udp_refused_ports"]) == (5, 3), counted


def test_port_that_somebody_else_has_is_passed_over(proxies):
    low = any_free_range(3)
    proxy = proxies(udp(port_range=[low, low + 2]))
    with udp_socket("127.0.0.1", low + 1), Association(proxy) as one, Association(proxy) as two:
        assert {one.bnd[1], two.bnd[1]} == {low, low + 2}
        assert associate_code(proxy) == 1
    no_association_left(proxy)


def test_port_range_changes_for_new_associations(proxies):
    low = any_free_range(4)
    proxy = proxies(udp(port_range=[low, low + 1]))
    with Echo() as echo, Association(proxy) as old:
        proxy.reload(udp(port_range=[low + 2, low + 3]))
        with Association(proxy) as new:
            assert old.bnd[1] in (low, low + 1) and new.bnd[1] in (low + 2, low + 3)
            old.ping(echo)
            new.ping(echo)


def test_association_of_an_ipv6_control_connection(proxies):
    proxy = proxies(listen=[{"addr": "::1", "port": free_port("::1")}])
    with Echo() as echo4, Echo("::1") as echo6, Association(proxy) as a:
        assert a.bnd[0] == "::1"
        a.ping(echo6)
        a.ping(echo4)
        a.ping(echo6)


def test_mapped_control_connection_is_ipv4(proxies):
    proxy = proxies(listen=[{"addr": "::", "port": free_port()}])
    proxy.host = "127.0.0.1"
    with Echo() as echo, Association(proxy) as a:
        assert a.bnd[0] == "127.0.0.1", "not ::ffff:127.0.0.1"
        a.ping(echo)
    proxy.host = "::1"
    with Echo() as echo, Association(proxy) as a:
        assert a.bnd[0] == "::1"
        a.ping(echo)


def test_both_families_in_one_association(proxies):
    """CASES 45."""
    proxy = proxies()
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Association(proxy))
        dests = [stack.enter_context(Destination(host)) for host in ("127.0.0.1", "::1", "127.0.0.9", "::1", "127.0.0.1")]
        for n in range(5):
            for i, d in enumerate(dests):
                a.send(d, b"%d to %d" % (n, i))
        for i, d in enumerate(dests):
            for n in range(5):
                assert d.recv() == b"%d to %d" % (n, i)
        for i, d in sorted(enumerate(dests), reverse=True):     # replies in another order
            d.reply(b"from %d" % i)
            assert a.recv() == (*d.where, b"from %d" % i)
        # an IPv4 destination spelt as a mapped one is the same one, and replies name it as IPv4
        a.send(("::ffff:127.0.0.1", dests[0].where[1]), b"mapped")
        assert dests[0].recv() == b"mapped"
        dests[0].reply(b"back")
        assert a.recv() == (*dests[0].where, b"back")
        # a literal in domain form is an address, whatever resolve_domain says
        a.send(dests[0], b"as text", as_domain=True)
        assert dests[0].recv() == b"as text"
        dests[0].reply(b"from text")
        assert a.recv() == (*dests[0].where, b"from text")
    assert drops(final_counters(proxy)) == {}


@pytest.mark.parametrize("listen", ["0.0.0.0", "::"])
def test_multihomed_host_answers_from_the_address_that_it_named(proxies, netns, listen):
    """CASES 47: two addresses on one interface, and more on loopback."""
    with netns:
        netns.ip("addr", "add", "10.99.0.3/24", "dev", "hole")
        netns.ip("addr", "add", "10.99.0.4/24", "dev", "hole")
        netns.ip("addr", "add", "fd99::3/64", "dev", "hole", "nodad")
        for n in (5, 6):
            netns.ip("addr", "add", "10.96.0.%d/32" % n, "dev", "lo")
        proxy = proxies(listen=[{"addr": listen, "port": free_port()}])
        named = ["10.99.0.1", "10.99.0.3", "10.99.0.4", "10.96.0.5", "10.96.0.6", "127.0.0.1", "127.0.0.7"]
        named += ["fd99::1", "fd99::3", "::1"] if listen == "::" else []
        with Echo(OUTSIDE) as echo, Echo("fd99::1") as echo6:
            for host in named:
                proxy.host = host
                with Association(proxy) as a:
                    assert a.bnd[0] == host
                    for _ in range(3):      # recv() compares the source with BND
                        a.ping(echo)
                        a.ping(echo6)
            # the client elsewhere than where routing would have the reply come from
            for source, host in (("10.99.0.1", "10.99.0.3"), ("10.99.0.4", "10.96.0.6"), ("10.96.0.5", "10.99.0.1")):
                proxy.host = host
                with Association(proxy, source=source) as a:
                    assert a.address[0] == source and a.bnd[0] == host
                    a.ping(echo)


def test_bind_addresses_are_where_datagrams_come_from(proxies):
    proxy = proxies({"outbound": {"bind_ipv4": "127.0.0.77"}})
    with Destination() as dest, Association(proxy) as a:
        a.send(dest, b"x")
        assert dest.recv() == b"x"
        assert dest.peer == ("127.0.0.77", a.bnd[1])
        dest.reply(b"y")
        assert a.recv() == (*dest.where, b"y")


# -- names -----------------------------------------------------------------------------------

def test_domain_is_resolved_when_allowed(proxies, dns):
    dns.add("echo.test", "127.0.0.1")
    dns.add("six.test", "::1")
    dns.add("slow.test", "127.0.0.1", delay=0.4)
    dns.add("nothing.test", rcode=2)
    resolver = {"resolver": {"servers": [dns.address], "timeout_ms": 1000, "attempts": 1}}
    proxy = proxies({**resolver, **udp(resolve_domain=True)})
    with Echo() as echo, Echo("::1") as echo6, Association(proxy) as a:
        port = echo.where[1]
        for name in ("echo.test", "ECHO.test", "echo.test.", "localhost"):
            a.send((name, port), name.encode())
            host, from_port, payload = a.recv()
            assert (from_port, payload) == (port, name.encode()) and host == "127.0.0.1", (name, host)
        a.send(("six.test", echo6.where[1]), b"six")
        assert a.recv() == (*echo6.where, b"six")
        # those that wait for an answer keep their order, and hold nobody else up
        for n in range(5):
            a.send(("slow.test", port), b"slow %d" % n)
        a.ping(echo6)
        assert [a.recv() for _ in range(5)] == [("127.0.0.1", port, b"slow %d" % n) for n in range(5)]
        a.send(("nosuch.test", port), b"lost")
        a.send(("nothing.test", port), b"lost")
        assert a.silent(0.5)
        a.ping(echo)
        # more than may wait: dropped and counted, not kept
        dns.add("never.test", drop=True)
        for n in range(100):
            a.send(("never.test", port), b"%d" % n)
        a.ping(echo)
    no_association_left(proxy)
    counted = final_counters(proxy)
    # those that still waited at the end may count or not
    assert 2 + 84 <= counted["udp_drop_domain"] <= 2 + 100, counted


def test_domain_is_dropped_when_not_allowed(proxies, dns):
    dns.add("echo.test", "127.0.0.1")
    proxy = proxies({"resolver": {"servers": [dns.address]}})
    with Echo() as echo, Association(proxy) as a:
        for name in ("echo.test", "localhost"):
            a.send((name, echo.where[1]), b"to a name")
        assert a.silent()
        a.ping(echo)
        assert echo.count == 1 and dns.count() == 0
    counted = final_counters(proxy)
    assert drops(counted) == {"domain": 2}, counted


def test_association_ends_while_a_name_is_being_resolved(proxies, dns):
    dns.add("slow.test", "127.0.0.1", delay=0.5)
    proxy = proxies({"resolver": {"servers": [dns.address]}, **udp(resolve_domain=True)})
    with Echo() as echo:
        for _ in range(10):
            with Association(proxy) as a:
                for n in range(20):
                    a.send(("slow.test", echo.where[1]), b"x" * 1000)
                settle(0.05)
        no_association_left(proxy)
        settle(0.6)
        with Association(proxy) as a:
            a.ping(echo)


# -- limits -------------------------------------------------------------------------------------

def test_destinations_are_capped(proxies):
    proxy = proxies(udp(max_destinations=3, idle_timeout_s=2))
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Association(proxy))
        echoes = [stack.enter_context(Echo()) for _ in range(5)]
        for e in echoes[:3]:
            a.ping(e)
        a.send(echoes[3], b"one too many")
        a.send(echoes[4], b"two too many")
        assert a.silent()
        for e in echoes[:3]:
            a.ping(e)
        with Association(proxy) as other:       # each association has its own
            other.ping(echoes[3])
        # one that has been quiet for idle_timeout_s makes room, the others stay
        end = time.monotonic() + 2.5 * SLOW
        while time.monotonic() < end:
            a.ping(echoes[0])
            a.ping(echoes[1])
            time.sleep(0.2)
        a.ping(echoes[3])
        a.send(echoes[4], b"still one too many")
        assert a.silent()
        a.ping(echoes[0])
        a.ping(echoes[1])
        assert [e.count for e in echoes[3:]] == [2, 0]
    counted = final_counters(proxy)
    assert drops(counted) == {"destinations": 3}, counted


def test_rate_is_capped(proxies):
    proxy = proxies(udp(max_pps=50))
    with Destination() as dest, Association(proxy) as a:
        for n in range(200):
            a.send(dest, b"%d" % n)
        got = dest.drain()
        assert 50 <= len(got) <= 50 + 50 * SLOW, len(got)
        assert got[:50] == [b"%d" % n for n in range(50)], "the first ones"
        time.sleep(1.1)     # refilled, and not beyond a second's worth
        for n in range(200):
            a.send(dest, b"%d" % n)
        again = dest.drain()
        assert 50 <= len(again) <= 50 + 50 * SLOW, len(again)
        for n in range(500):        # it is the client who is held back
            dest.reply(b"%d" % n)
        assert len(a.drain()) == 500
    counted = final_counters(proxy)
    assert drops(counted) == {"pps": 400 - len(got) - len(again)}, counted


def test_rate_of_zero_is_no_limit(proxies):
    proxy = proxies(udp(max_pps=0))
    with Destination() as dest, Association(proxy) as a:
        got = 0
        for burst in range(scaled(100)):
            for n in range(100):
                a.send(dest, b"%d" % n)
            got += len([dest.recv() for _ in range(100)])
        assert got == 100 * scaled(100)


def test_sessions_per_address_are_limited_and_freed(proxies):
    proxy = proxies({"limits": {"max_sessions_per_ip": 3}})
    settle()        # the probe of the start is gone

    def code():
        try:
            with proxy.connect(timeout=2) as s:
                return associate_ask(s).code
        except (OSError, EOFError):
            return -1
    with contextlib.ExitStack() as stack, Echo() as echo:
        some = [stack.enter_context(Association(proxy)) for _ in range(3)]
        assert code() != 0
        for a in some:
            a.ping(echo)
    wait_until(lambda: code() == 0, 5, "a place is free again", every=0.1)


def test_udp_pool_blocks_bound_memory(proxies, netns):
    """A destination on a link where nobody answers keeps what is sent: datagrams wait in the sockets, then in
    blocks; udp_pool_blocks of 64 KiB is all that they may fill."""
    with netns:
        netns.ip("link", "add", "mute", "type", "veth", "peer", "name", "deaf")
        netns.ip("link", "set", "mute", "up")
        netns.ip("link", "set", "deaf", "up")
        netns.ip("addr", "add", "10.95.0.1/24", "dev", "mute")
        netns.sysctl("ipv4/neigh/mute/unres_qlen_bytes", "%d" % (1 << 28))
        netns.sysctl("ipv4/neigh/mute/mcast_solicit", "1000")

        def grown(blocks):
            proxy = proxies({"workers": 1, "limits": {"udp_pool_blocks": blocks}, **udp(max_pps=0)}, name="blocks%d" % blocks)
            with contextlib.ExitStack() as stack:
                some = [stack.enter_context(Association(proxy)) for _ in range(8)]
                before = proxy.rss_kib()
                for _ in range(10):
                    for n in range(100):
                        some[n % 8].send(("10.95.0.2", 5000), b"x" * 60000)
                    time.sleep(0.02)
                settle(0.3)
                out = proxy.rss_kib() - before
                if blocks > 16:     # who has nothing to do with it is still served
                    with Echo() as echo, Association(proxy) as a:
                        a.ping(echo)
            no_association_left(proxy)
            with Echo() as echo, Association(proxy) as a:
                a.ping(echo)        # all came back
            return out
        small, large = grown(16), grown(4096)
        print("16 blocks: +%d KiB, 4096 blocks: +%d KiB" % (small, large))
        assert large > 3072, "nothing was kept: the test shows nothing"
        assert small < large - 1024 and small < 16 * 64 + 2048, (small, large)


# -- ends --------------------------------------------------------------------------------------------

def test_association_ends_with_control_connection(proxies):
    proxy = proxies()
    for how in ("close", "half", "reset"):
        with Echo() as echo, Association(proxy) as a:
            a.ping(echo)
            if how == "half":       # RFC 1928: it ends when the connection does; a FIN is its end
                a.control.shutdown(socket.SHUT_WR)
                assert a.ended()
            elif how == "reset":
                a.control.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                a.control.close()
            else:
                a.control.close()
            no_association_left(proxy)
            with contextlib.suppress(OSError):
                a.send(echo, b"too late")
            assert echo.count == 1
    assert final_counters(proxy)["active"] == 0


def test_association_ends_when_idle(proxies):
    proxy = proxies(udp(idle_timeout_s=2))
    with Echo() as echo, Association(proxy) as a, Association(proxy) as never_used:
        started = time.monotonic()
        for _ in range(8):      # what moves keeps it, either way
            a.ping(echo)
            time.sleep(0.4)
        assert a.alive()
        quiet = time.monotonic()
        assert never_used.ended(1), "one that nothing was ever sent to ends as well"
        assert time.monotonic() - started >= 1.5
        assert a.ended(8)
        assert 1.5 <= time.monotonic() - quiet + 0.4 <= 2 + 2.5 * SLOW
    no_association_left(proxy)


def test_datagrams_of_strangers_do_not_keep_it(proxies):
    proxy = proxies(udp(idle_timeout_s=2))
    with Echo() as echo, Association(proxy) as a, udp_socket("127.0.0.2") as stranger:
        a.ping(echo)
        quiet = time.monotonic()
        while not clients.is_ended(a.control, 0.2 / SLOW):
            with contextlib.suppress(OSError):
                stranger.sendto(header(*echo.where) + b"x", a.bnd)
            assert time.monotonic() - quiet < 2 + 4 * SLOW, "held by strangers"


def test_what_comes_on_the_control_connection_is_ignored(proxies):
    proxy = proxies({"workers": 1})
    with Echo() as echo, Association(proxy) as a:
        rss = proxy.rss_kib()
        for _ in range(8):
            a.control.sendall(b"\x05\x01\x00" * 100000)
            a.ping(echo)
        assert proxy.rss_kib() - rss < 4096 or SLOW > 1
        assert a.alive(), "nothing is said in answer"
    no_association_left(proxy)


def test_request_and_datagram_right_behind_each_other(proxies):
    """The reply is not waited for: what comes behind the request on the connection is no matter."""
    proxy = proxies()
    with proxy.connect() as s, Echo() as echo, udp_socket() as client:
        s.sendall(clients.socks5_greeting(0) + clients.socks5_request("0.0.0.0", 0, 3) + b"and more")
        assert recv_exact(s, 2) == b"\x05\x00"
        reply = clients.socks5_read_reply(s)
        assert reply.code == 0
        client.sendto(header(*echo.where) + b"x", (reply.host, reply.port))
        assert client.recv(100) == header(*echo.where) + b"x"


def test_drain_lets_associations_go_on(proxies):
    proxy = proxies({"shutdown_timeout_s": 20})
    with Echo() as echo, Association(proxy) as a:
        a.ping(echo)
        proxy.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in proxy.log(), 3, "draining")
        for _ in range(10):
            a.ping(echo)
            time.sleep(0.05)
        assert a.alive() and proxy.alive()
    assert proxy.wait(8) == 0
    proxy.check_end()


def test_shutdown_timeout_ends_associations(proxies):
    proxy = proxies({"shutdown_timeout_s": 1})
    with Echo() as echo, Association(proxy) as a:
        a.ping(echo)
        proxy.signal(signal.SIGTERM)
        assert a.ended(8)
        assert proxy.wait(8) == 0
    proxy.check_end()


def test_reload_leaves_associations_alone(proxies):
    proxy = proxies()
    with Echo() as echo, Echo() as fresh, Association(proxy) as a:
        a.ping(echo)
        for n in range(5):
            proxy.reload({"acl": {"rules": ["deny port %d" % (1 + n)]}})
            a.ping(echo)
        assert a.alive()
        # a new configuration counts for new ones
        proxy.reload({"acl": {"rules": ["deny port %d" % fresh.where[1]]}})
        a.ping(fresh)
        with Association(proxy) as new:
            new.send(fresh, b"denied")
            assert new.silent()
            new.ping(echo)


def test_access_log_has_a_line_an_association(proxies, tmp_path):
    path = str(tmp_path / "access.log")
    proxy = proxies({"access_log": {"path": path}, "auth": {"users": [{"name": "al", "pbkdf2": password_record("pw")}]},
                     "workers": 1}, options=["auth.require_password=true"])
    with Echo() as echo, Destination() as silent, Association(proxy, ("192.0.2.1", 99), login=("al", "pw")) as a:
        for n in range(3):
            a.ping(echo, b"12345")
        a.send(silent, b"1234567")
        assert silent.recv()
        settle(0.05)
    (line,) = wait_lines(path, 1)
    assert line.request == "UDP_ASSOCIATE 192.0.2.1:99 SOCKS5", line
    assert (line.client, line.status, line.bytes, line.up, line.user, line.proto) == ("127.0.0.1", 0, 15, 22, "al", "socks5"), line
    assert line.acl == "ALLOW" and line.dur_us >= 50000 and line.id > 0, line
    proxy.reload(udp(enabled=False))
    with proxy.connect() as s:
        assert associate_ask(s, login=("al", "pw")).code == 7
    (_, line) = wait_lines(path, 2)
    assert (line.status, line.bytes, line.up) == (7, 0, 0) and line.request.startswith("UDP_ASSOCIATE "), line


# -- many -------------------------------------------------------------------------------------------

def associations_that_fit(want):
    """Two descriptors each at the proxy, one here."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return want if hard == resource.RLIM_INFINITY else min(want, (hard - 400) // 2)


def many_associations(proxies, count):
    low = any_free_range(16)
    span = range(20000, 31999) if count > 900 else range(low, min(low + 2 * count, 65535))
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}, **udp(port_range=[span[0], span[-1]])})
    baseline = proxy.socket_count()
    rss = proxy.rss_kib()
    with contextlib.ExitStack() as stack:
        echo = stack.enter_context(Echo())
        client = stack.enter_context(udp_socket())
        held = []
        for _ in range(count):
            held.append(stack.enter_context(Association(proxy, udp=client)))
        ports = [a.bnd[1] for a in held]
        assert len(set(ports)) == count and set(ports) <= set(span)
        assert udp_ports(proxy) == sorted(ports) and proxy.socket_count() >= baseline + 2 * count
        for a in held:
            a.ping(echo, b"to %d" % a.bnd[1])
        print("%s: %d associations, %.2f KiB of RSS each" % (proxy.backend, count, (proxy.rss_kib() - rss) / count))
        random.Random(46).shuffle(held)
        gone, kept = held[:count // 2], held[count // 2:]
        for a in gone:
            a.control.close()
        wait_until(lambda: len(udp_ports(proxy)) == len(kept), 20, lambda: "half are gone: %d" % len(udp_ports(proxy)), every=0.1)
        assert udp_ports(proxy) == sorted(a.bnd[1] for a in kept)
        assert proxy.socket_count() <= baseline + 2 * len(kept) + 4
        for a in kept[::7]:
            a.ping(echo)
        idle = proxy.cpu_over(1)
        assert idle < 0.15 * SLOW, "%.2f s of CPU a second while idle" % idle
    no_association_left(proxy, 20)
    proxy.settled_sockets(baseline + 2)
    counted = final_counters(proxy)
    assert counted["active"] == 0 and counted["udp"] == count and drops(counted) == {}, counted


@pytest.mark.limit(90)
def test_five_hundred_associations_half_abandoned(proxies):
    """CASES 46, a small one."""
    many_associations(proxies, scaled(associations_that_fit(500)))


@pytest.mark.long
@pytest.mark.limit(400)
def test_nine_thousand_associations_half_abandoned(proxies):
    many_associations(proxies, scaled(associations_that_fit(9000)))


def test_descriptors_used_up_is_reply_01(proxies):
    proxy = proxies({"workers": 1, "limits": {"max_sessions": 10000, "max_sessions_per_ip": 0}},
                    preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    with contextlib.ExitStack() as stack, Echo() as echo:
        held = []
        for _ in range(64):
            s = stack.enter_context(proxy.connect(timeout=1))
            try:
                code = associate_ask(s).code
            except (OSError, EOFError):
                break       # not even accepted
            if code != 0:
                assert code == 1
                break
            held.append(s)
        assert len(held) > 10
        assert proxy.fd_count() <= 64
    wait_until(lambda: try_ping(proxy), 15, "serves again by itself", every=0.2)


def try_ping(proxy):
    try:
        with Association(proxy, timeout=2) as a, Echo() as echo:
            a.ping(echo)
            return True
    except (AssertionError, OSError, EOFError):
        return False


# -- segmented sends ------------------------------------------------------------------------------------

needs_gso = pytest.mark.skipif(not has_gso(), reason="no UDP_SEGMENT in this kernel")


def sized(n, seed):
    """Payloads that name themselves."""
    return (b"%08d" % seed + pattern(seed, max(0, n - 8)))[:n]


@needs_gso
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("size,count,last", [(1200, 40, 1200), (1200, 40, 7), (1000, 60, 0), (100, 64, 1), (8000, 7, 100), (1, 50, 1),
                                             (1200, 2, 1199), (1200, 1, 1200)])
def test_super_packet_arrives_as_its_datagrams(proxies, host, size, count, last):
    """A client and a destination that send by UDP_SEGMENT: what comes out are the very datagrams, in order."""
    proxy = proxies(udp(max_pps=0))
    with Destination(host) as dest, Association(proxy) as a:
        payloads = [sized(size, n) for n in range(count - 1)] + [sized(last, count - 1)]
        for _ in range(3):
            a.send_gso(dest, payloads)
            assert [dest.recv() for _ in payloads] == payloads
            assert dest.silent(0.02)
            down = [p for p in payloads if p]       # a super-packet has no empty segment
            send_segments(dest.udp, b"".join(down), size, dest.peer)
            assert [a.recv() for _ in down] == [(*dest.where, p) for p in down]
            assert a.silent(0.02)
    counted = final_counters(proxy)
    assert (counted["udp_up"], counted["udp_down"]) == (3 * count, 3 * len(down)) and drops(counted) == {}, counted


@needs_gso
def test_super_packet_to_many_destinations_of_both_families(proxies):
    """Segments of one buffer with different headers, and so different destinations and payload sizes."""
    proxy = proxies(udp(max_pps=0))
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Association(proxy))
        dests = [stack.enter_context(Destination(h)) for h in ("127.0.0.1", "::1", "127.0.0.2", "127.0.0.1", "::1")]
        chosen = random.Random(7)
        want = {d: [] for d in dests}
        for n in range(60):
            data = b""
            for k in range(40):
                d = chosen.choice(dests) if n % 2 else dests[k % 5]
                head = header(*d.where)
                payload = sized(500 - len(head), n * 100 + k)
                want[d].append(payload)
                data += head + payload
            send_segments(a.udp, data, 500, a.where)
            if n % 6 == 5:
                for d in dests:
                    got = [d.recv() for _ in want[d]]
                    assert got == want[d]
                    want[d] = []
    assert drops(final_counters(proxy)) == {}


@needs_gso
def test_bad_segment_among_good_ones(proxies):
    """Each segment is judged by its own header."""
    proxy = proxies()
    with Destination() as dest, Destination("::1") as other, Association(proxy) as a:
        good, bad = header(*dest.where), header(*dest.where, frag=1)
        parts = [good + b"1" * 90, bad + b"2" * 90, good + b"3" * 90, header("127.0.0.1", 0) + b"4" * 90, good + b"5" * 90,
                 header(*other.where) + b"6" * 78, header(*dest.where, rsv=1) + b"7" * 90, good + b"8" * 90, b"\0\0\0\1\x7f\0"]
        send_segments(a.udp, b"".join(parts), 100, a.where)
        assert [dest.recv()[:1] for _ in range(4)] == [b"1", b"3", b"5", b"8"]
        assert other.recv() == b"6" * 78
        assert dest.silent() and other.silent(0)
    assert drops(final_counters(proxy)) == {"frag": 1, "port": 1, "malformed": 2}


@contextlib.contextmanager
def held_still(proxy):
    """What is sent meanwhile is met by the proxy all at once."""
    proxy.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        proxy.signal(signal.SIGCONT)


def test_order_and_sizes_are_kept_in_bursts(proxies):
    """Batches of equal, unequal, empty and interleaved datagrams, both ways."""
    proxy = proxies(udp(max_pps=0))
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Association(proxy))
        dests = [stack.enter_context(Destination(h)) for h in ("127.0.0.1", "127.0.0.1", "::1", "127.0.0.5")]
        for d in dests:
            a.send(d, b"hello")
            assert d.recv() == b"hello"
        chosen = random.Random(11)
        for burst in range(scaled(40, 10)):
            sizes = chosen.choice([[1000], [1000, 1000, 1000, 1000, 999], [0, 1, 2], [10, 3000, 10], [0], [1400, 1400, 0],
                                   list(range(0, 2000, 37))])
            want = {d: [] for d in dests}
            with held_still(proxy):
                for n in range(150):
                    d = dests[n % 4] if burst % 3 == 0 else chosen.choice(dests) if burst % 3 == 1 else dests[burst % 4]
                    want[d].append(sized(chosen.choice(sizes), n))
                    a.send(d, want[d][-1])
            for d in dests:
                assert d.some(len(want[d])) == want[d], (burst, sizes)
            with held_still(proxy):
                for d in dests:
                    for payload in want[d]:
                        d.reply(payload)
            back = {d.where: [] for d in dests}
            for host, port, payload in a.some(150):
                back[host, port].append(payload)
            assert back == {d.where: want[d] for d in dests}, (burst, sizes)
    assert drops(final_counters(proxy)) == {}


@needs_gso
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_destination_that_refuses_segments_gets_datagrams(proxies, netns, host):
    """A path whose MTU is less than a segment: the kernel refuses UDP_SEGMENT there, single datagrams go in fragments."""
    with netns:
        proxy = proxies(udp(max_pps=0))
        with Destination(host) as dest, Association(proxy) as a:
            a.send(dest, b"hello")
            assert dest.recv() == b"hello"
            netns.ip("link", "set", "lo", "mtu", "1300")
            payloads = [sized(2000, n) for n in range(30)]
            for _ in range(3):
                with held_still(proxy):
                    for p in payloads:
                        a.send(dest, p)
                assert [dest.recv() for _ in payloads] == payloads, "none lost, none twice, in order"
            assert dest.silent(0.1)
        counted = final_counters(proxy)
        assert drops(counted) == {} and counted["udp_up"] == 91, counted
        assert counted["udp_gso_fallback"] == 1, counted


@needs_gso
def test_client_that_segments_do_not_reach_gets_datagrams(proxies, netns):
    """The same on the way back: the destination's super-packet is larger than the path to the client takes."""
    with netns:
        netns.ip("addr", "add", "10.94.0.1/32", "dev", "lo")
        netns.ip("route", "replace", "local", "10.94.0.1", "dev", "lo", "table", "local", "mtu", "lock", "1300")
        proxy = proxies(udp(max_pps=0), listen=[{"addr": "0.0.0.0", "port": free_port()}])
        proxy.host = OUTSIDE
        with Destination(OUTSIDE) as dest, Association(proxy, source="10.94.0.1") as a:
            a.send(dest, b"hello")
            assert dest.recv() == b"hello"
            payloads = [sized(2000, n) for n in range(20)]
            for _ in range(3):
                send_segments(dest.udp, b"".join(payloads), 2000, dest.peer)
                assert [a.recv() for _ in payloads] == [(*dest.where, p) for p in payloads]
        counted = final_counters(proxy)
        assert drops(counted) == {} and counted["udp_down"] == 60, counted
        print("fall-backs: %d" % counted.get("udp_gso_fallback", 0))


# -- what becomes of a destination -----------------------------------------------------------------------

def test_port_unreachable_ends_nothing(proxies):
    proxy = proxies()
    with Echo() as echo, Echo("::1") as echo6, Association(proxy) as a:
        closed, closed6 = free_port(udp=True), free_port("::1", udp=True)
        for _ in range(20):
            a.send(("127.0.0.1", closed), b"nobody")
            a.send(("::1", closed6), b"nobody")
            a.ping(echo)
            a.ping(echo6)
        with held_still(proxy):     # in one batch with good ones
            for n in range(60):
                a.send(("127.0.0.1", closed), b"nobody")
                a.send(echo, b"%d" % n)
        assert [a.recv() for _ in range(60)] == [(*echo.where, b"%d" % n) for n in range(60)]
        assert a.alive()
    counted = final_counters(proxy)
    assert counted["udp_down"] == 100, counted


def test_client_whose_socket_is_gone_ends_nothing(proxies):
    """An ICMP error from the client's side: the association is the control connection's."""
    proxy = proxies()
    with Destination() as dest, Association(proxy) as a:
        address = a.address
        a.send(dest, b"x")
        assert dest.recv() == b"x"
        a.udp.close()
        for _ in range(20):
            dest.reply(b"to nobody")
        settle()
        assert a.alive()
        a.udp = udp_socket(*address)
        a.send(dest, b"back again")
        assert dest.recv() == b"back again"
        dest.reply(b"welcome")
        assert a.recv() == (*dest.where, b"welcome")


def test_unreachable_networks_are_counted(proxies, netns):
    with netns:
        proxy = proxies()
        with Echo() as echo, Association(proxy) as a:
            for host in (netns.NONET4, netns.NONET6, netns.NOHOST4, netns.FORBIDDEN4, "255.255.255.255", "224.0.0.1"):
                a.send((host, 9), b"x")
                a.ping(echo)
            a.send((netns.HOLE4, 9), b"x")
            a.ping(echo)
            assert a.alive()
        counted = final_counters(proxy)
        assert counted["udp_drop_send"] >= 4, counted


def test_loss_of_one_client_is_in_the_log(proxies):
    """Counters are of everybody; who has lost what is told when the association ends."""
    proxy = proxies({"workers": 1})
    with Destination() as dest, Association(proxy) as a, Association(proxy) as b:
        a.send(dest, b"taken")
        assert dest.recv() == b"taken"
        for _ in range(3):
            a.send(dest, b"cut", frag=1)
        b.send(dest, b"taken")
        assert dest.recv() == b"taken"
        port = a.bnd[1]
    no_association_left(proxy)
    proxy.stop()
    ended = [line for line in proxy.log().splitlines() if "association ended" in line and " info " in line]
    assert len(ended) == 1, "nothing was dropped of the other's"
    assert ended[0].endswith(" port=%d udp_up=1 udp_down=0 udp_dropped=3 udp_drop_frag=3" % port), ended
    assert "client=127.0.0.1:" in ended[0], ended


def test_what_the_kernel_dropped_is_counted(proxies):
    """A relay that does not get to run loses datagrams, but none without a counter."""
    proxy = proxies({"workers": 1, "udp": {"max_pps": 0}})
    many = 5000
    with Destination() as dest, Association(proxy) as a:
        a.send(dest, b"first")
        assert dest.recv() == b"first"
        proxy.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(many):
                a.send(dest, b"x" * 1400)
        finally:
            proxy.process.send_signal(signal.SIGCONT)
        settle()
        assert dest.drain(), "what the buffer held went out"
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert counted["udp_drop_unread"] > 0, counted
    assert counted["udp_up"] + counted["udp_dropped"] == 1 + many, counted


def test_tunnels_beside_associations(proxies, origins):
    import origins as o
    origin = origins(o.echo)
    proxy = proxies({"workers": 1})
    with Echo() as echo, Association(proxy) as a:
        for _ in range(20):
            assert socks5_code(proxy, origin.host, origin.port) == 0
            a.ping(echo)



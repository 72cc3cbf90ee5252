# SPDX-License-Identifier: ISC
"""What a failed connect says (CASES 8, 9, 11), and names (resolver)."""

import time

import pytest

import origins as o
from clients import connect_status, fetch, recv_exact, socks5, socks5_ask, socks5_code
from dnsserver import A, AAAA
from util import SLOW, free_port, in_parallel, wait_until


def http_error(response):
    """(status, error=... of Proxy-Status)"""
    status = response.first("Proxy-Status", "")
    assert status.startswith("ringway; error="), response.fields
    return response.status, status.split("error=", 1)[1].split(";")[0].strip()


# -- CASES 9 -----------------------------------------------------------------------

def test_each_connect_error_has_its_reply_and_status(proxies, netns):
    with netns:
        proxy = proxies({"limits": {"connect_timeout_s": 1}})
        cases = [("127.0.0.1", 5, 502, "connection_refused"),
                 ("::1", 5, 502, "connection_refused"),
                 (netns.NONET4, 3, 502, "destination_ip_unroutable"),
                 (netns.NONET6, 3, 502, "destination_ip_unroutable"),
                 (netns.NOHOST4, 4, 502, "destination_ip_unroutable"),
                 (netns.HOLE4, 6, 504, "connection_timeout"),
                 (netns.HOLE6, 6, 504, "connection_timeout")]
        port = free_port()
        wrong = []
        for host, code, status, error in cases:
            got = socks5_code(proxy, host, port)
            if got != code:
                wrong.append("SOCKS5 to %s: %02x, expected %02x" % (host, got, code))
            authority = ("[%s]:%d" if ":" in host else "%s:%d") % (host, port)
            for way, answer in (("CONNECT", connect_status(proxy, authority)),
                                ("GET", fetch(proxy, authority))):
                if http_error(answer) != (status, error):
                    wrong.append("%s to %s: %s, expected %s" % (way, host, http_error(answer), (status, error)))
        assert not wrong, "\n".join(wrong)


def test_forbidden_route_is_an_error_and_not_a_hang(proxies, netns):
    with netns:
        proxy = proxies()
        assert socks5_code(proxy, netns.FORBIDDEN4, 80) in (1, 2, 3, 4)
        assert connect_status(proxy, netns.FORBIDDEN4 + ":80").status in (403, 502)
        # EINVAL and such: an address that may not be dialled at all
        for host in ("255.255.255.255", "224.0.0.1", "0.0.0.1", "ff02::1"):
            assert socks5_code(proxy, host, 80) != 0, host


def test_name_that_does_not_resolve(proxies, dns):
    proxy = proxies({"resolver": {"servers": [dns.address], "timeout_ms": 300, "attempts": 1}})
    dns.add("fails.test", rcode=2)
    dns.add("silent.test", drop=True)
    dns.add("empty.test")           # exists, without an address
    wrong = []
    for name in ("nosuch.test", "fails.test", "silent.test", "empty.test"):
        code = socks5_code(proxy, name, 80)
        if code != 4 and not (name == "silent.test" and code == 6):
            wrong.append("SOCKS5 %s: %02x" % (name, code))
        for way, answer in (("CONNECT", connect_status(proxy, name + ":80")), ("GET", fetch(proxy, name))):
            status, error = http_error(answer)
            fine = (502, 504) if name == "silent.test" else (502,)
            if status not in fine or error not in ("dns_error", "dns_timeout"):
                wrong.append("%s %s: %d %s" % (way, name, status, error))
    assert not wrong, "\n".join(wrong)


# -- CASES 8 -----------------------------------------------------------------------

@pytest.mark.limit(90)
def test_two_hundred_connects_into_a_hole_time_out_and_leave_nothing(proxies, netns):
    with netns:
        proxy = proxies({"limits": {"connect_timeout_s": 2, "max_sessions_per_ip": 0}})
        baseline = proxy.socket_count()
        for _ in range(2):
            socks = []
            try:
                started = time.monotonic()
                for _ in range(200):
                    s = proxy.connect(timeout=30)
                    s.sendall(b"\x05\x01\x00" + bytes([5, 1, 0, 1, 10, 99, 0, 2, 0, 80]))
                    socks.append(s)
                codes = []
                for s in socks:
                    assert recv_exact(s, 2) == b"\x05\x00"
                    codes.append(recv_exact(s, 10)[1])
                took = time.monotonic() - started
            finally:
                for s in socks:
                    s.close()
            assert codes == [6] * 200
            assert 1.9 <= took <= 8 * SLOW, took
            proxy.settled_sockets(baseline)


def test_clients_that_leave_while_connecting_leave_nothing(proxies, netns):
    """At the latest when the attempt's own time is over."""
    with netns:
        proxy = proxies({"limits": {"connect_timeout_s": 3, "max_sessions_per_ip": 0}})
        baseline = proxy.socket_count()
        for leave in (o.reset, lambda s: s.close()):
            socks = []
            for _ in range(50):
                s = proxy.connect()
                s.sendall(b"\x05\x01\x00" + bytes([5, 1, 0, 1, 10, 99, 0, 2, 0, 80]))
                recv_exact(s, 2)
                socks.append(s)
            wait_until(lambda: proxy.tcp_states().get("SYN_SENT", 0) == 50, 3, "50 attempts under way")
            for s in socks:
                leave(s)
            wait_until(lambda: proxy.tcp_states().get("SYN_SENT", 0) == 0, 6, "attempts given up")
            proxy.settled_sockets(baseline)


# -- CASES 11 and the resolver ----------------------------------------------------------

@pytest.mark.limit(90)
def test_swallowing_ipv6_beside_good_ipv4_costs_a_stagger(proxies, netns, dns, origins):
    dns.close()
    with netns:
        from dnsserver import DnsServer
        origin = origins(o.echo)
        with DnsServer() as own:
            own.add("both.test", netns.HOLE6, "127.0.0.1")
            own.add("many.test", netns.HOLE6, netns.HOLE4, "10.99.0.3", "127.0.0.1", "fd99::3")
            proxy = proxies({"resolver": {"servers": [own.address], "prefer": "ipv6"},
                             "limits": {"connect_timeout_s": 20}})
            baseline = proxy.socket_count()
            for name, limit in (("both.test", 3), ("many.test", 6)):
                started = time.monotonic()
                with socks5(proxy, name, origin.port) as s:
                    took = time.monotonic() - started
                    s.sendall(b"up")
                    assert recv_exact(s, 2) == b"up"
                    wait_until(lambda: "SYN_SENT" not in proxy.tcp_states(), 5, "losers closed")
                    assert origin.open == 1
                assert took < limit * SLOW, "%s took %.2f s" % (name, took)
            proxy.settled_sockets(baseline + 2)      # the resolver may keep its own


def test_both_families_are_asked_and_the_working_one_is_used(proxies, dns, origins):
    six = origins(o.echo, host="::1")
    dns.add("six.test", "::1")
    dns.add("four.test", "127.0.0.1")
    dns.add("refused-first.test", "::1", "127.0.0.1")
    proxy = proxies({"resolver": {"servers": [dns.address]}})
    assert socks5_code(proxy, "six.test", six.port) == 0
    four = origins(o.echo)
    assert socks5_code(proxy, "four.test", four.port) == 0
    assert socks5_code(proxy, "refused-first.test", four.port) == 0     # ::1 refuses there


@pytest.mark.parametrize("prefer,reachable,types", [("ipv4_only", 4, {A}), ("ipv6_only", 6, {AAAA})])
def test_prefer_only_asks_and_dials_one_family(proxies, dns, origins, prefer, reachable, types):
    dns.add("both.test", "127.0.0.1", "::1")
    port = free_port()
    four, six = origins(o.echo, port=port), origins(o.echo, host="::1", port=port)
    proxy = proxies({"resolver": {"servers": [dns.address], "prefer": prefer}})
    assert socks5_code(proxy, "both.test", port) == 0
    wait_until(lambda: four.accepted + six.accepted == 1, 5, "one origin saw it")
    assert (four.accepted, six.accepted) == ((1, 0) if reachable == 4 else (0, 1))
    assert {q[1] for q in dns.questions} == types


def test_ttl_is_obeyed_per_worker(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("long.test", "127.0.0.1", ttl=300)
    dns.add("short.test", "127.0.0.1", ttl=1)
    proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "prefer": "ipv4_only"}})
    for _ in range(5):
        assert socks5_code(proxy, "long.test", origin.port) == 0
        assert socks5_code(proxy, "LONG.test", origin.port) == 0
    assert dns.count("long.test") == 1
    assert socks5_code(proxy, "short.test", origin.port) == 0
    time.sleep(2.2)
    assert socks5_code(proxy, "short.test", origin.port) == 0
    assert dns.count("short.test") == 2


def test_negative_answers_are_kept_for_a_while_only(proxies, dns, origins):
    origin = origins(o.echo)
    proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "prefer": "ipv4_only", "negative_ttl_s": 1}})
    for _ in range(5):
        assert socks5_code(proxy, "later.test", origin.port) == 4
    assert dns.count("later.test") <= 2
    dns.add("later.test", "127.0.0.1")
    wait_until(lambda: socks5_code(proxy, "later.test", origin.port) == 0, 6, "the name is asked for again", every=0.3)


def test_truncated_answer_comes_by_tcp(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("tc.test", "127.0.0.1", truncate=True)
    proxy = proxies({"resolver": {"servers": [dns.address]}})
    assert socks5_code(proxy, "tc.test", origin.port) == 0
    assert any(way == "tcp" for name, _, way in dns.questions if name == "tc.test")


def test_cname_is_followed(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("alias.test", "127.0.0.1", cname="real.test")
    proxy = proxies({"resolver": {"servers": [dns.address]}})
    assert socks5_code(proxy, "alias.test", origin.port) == 0


def test_dead_resolver_answers_in_time_and_literals_still_work(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("silent.test", drop=True)
    proxy = proxies({"resolver": {"servers": [dns.address], "timeout_ms": 300, "attempts": 2}})
    started = time.monotonic()
    assert socks5_code(proxy, "silent.test", 80) in (4, 6)
    assert time.monotonic() - started < 8 * SLOW
    assert socks5_code(proxy, origin.host, origin.port) == 0


def test_slow_name_holds_nobody_up(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("slow.test", "127.0.0.1", delay=1.5)
    proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "timeout_ms": 5000}})

    def quick():
        began = time.monotonic()
        assert socks5_code(proxy, origin.host, origin.port) == 0
        return time.monotonic() - began
    results = in_parallel([lambda: socks5_code(proxy, "slow.test", origin.port), *[quick] * 10])
    assert results[0] == 0
    assert max(results[1:]) < 1.2 * SLOW, results


def test_client_that_leaves_during_a_lookup_is_forgotten(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("slow.test", "127.0.0.1", delay=0.7)
    proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "timeout_ms": 5000},
                     "limits": {"max_sessions_per_ip": 0}})
    baseline = proxy.socket_count()
    for _ in range(30):
        s = proxy.connect()
        s.sendall(b"\x05\x01\x00\x05\x01\x00\x03\x09slow.test" + origin.port.to_bytes(2, "big"))
        o.reset(s)
    time.sleep(1.0)
    proxy.settled_sockets(baseline + 2)
    assert socks5_code(proxy, "slow.test", origin.port) == 0


def test_hundred_askers_of_one_name_are_all_served(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("herd.test", "127.0.0.1", delay=0.3)
    proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "prefer": "ipv4_only"}})

    def one():
        with proxy.connect(timeout=20) as s:
            return socks5_ask(s, "herd.test", origin.port).code
    assert in_parallel([one] * 100) == [0] * 100

# SPDX-License-Identifier: ISC
"""Every key of the configuration changes something: the list of which test
shows it (PROOF), and the tests of those keys that no other file is about."""

import ast
import glob
import os
import re
import resource
import socket
import time

import pytest

import origins as o
from clients import connect_status, fetch, get_request, http, recv_exact, socks5, socks5_code
from dnsserver import DnsServer, Record
from util import HERE, SLOW, TOP, Background, free_port, pattern, wait_until

PROOF = {
    "workers": "test_keys.test_workers_is_the_number_of_threads_and_pin_workers_pins_them",
    "pin_workers": "test_keys.test_workers_is_the_number_of_threads_and_pin_workers_pins_them",
    "backend": "test_keys.test_backend_is_what_runs",
    "log_level": "test_reload.test_log_level_and_access_log_change",
    "user": "test_service.test_user_is_dropped_to_with_all_threads_and_nothing_is_kept",
    "group": "test_service.test_group_alone_and_numbers",
    "pid_file": "test_service.test_pid_file_in_the_foreground",
    "shutdown_timeout_s": "test_signals.test_shutdown_timeout_ends_what_does_not_end",
    "stats_interval_s": "test_service.test_stats_line_every_interval",
    "listen": "test_reload.test_listeners_come_and_go_and_the_kept_one_loses_nothing",
    "listen[].addr": "test_listen.test_several_listeners_each_with_its_protocols",
    "listen[].port": "test_listen.test_several_listeners_each_with_its_protocols",
    "listen[].protocols": "test_listen.test_several_listeners_each_with_its_protocols",
    "listen[].auth": "test_auth.test_listener_auth_inherit_required_none",
    "listen[].backlog": "test_keys.test_backlog_is_how_many_may_wait",
    "udp.enabled": "test_udp.test_udp_enabled_off_answers_07",
    "udp.public_address": "test_udp.test_public_address_is_named",
    "udp.port_range": "test_udp.test_ports_come_from_port_range",
    "udp.idle_timeout_s": "test_udp.test_association_ends_when_idle",
    "udp.max_destinations": "test_udp.test_destinations_are_capped",
    "udp.max_pps": "test_udp.test_rate_is_capped",
    "udp.allow_client_addr_mismatch": "test_udp_hostile.test_client_address_mismatch_allowed",
    "udp.resolve_domain": "test_udp.test_domain_is_resolved_when_allowed",
    "auth.whitelist": "test_acl.test_source_that_is_not_listed_is_closed_before_a_byte",
    "auth.whitelist_file": "test_acl.test_whitelist_file_and_list_together",
    "auth.require_password": "test_auth.test_listener_auth_inherit_required_none",
    "auth.realm": "test_auth.test_realm_is_shown_and_quoted",
    "auth.users": "test_reload.test_users_come_and_go",
    "auth.users[].name": "test_auth.test_hash_password_makes_records_that_work",
    "auth.users[].pbkdf2": "test_auth.test_hash_password_makes_records_that_work",
    "auth.users_file": "test_auth.test_users_file",
    "auth.failures_per_minute": "test_auth.test_source_is_throttled_and_others_are_not",
    "limits.max_sessions": "test_resources.test_max_sessions_refuses_and_recovers",
    "limits.max_sessions_per_ip": "test_resources.test_sessions_per_address_are_limited_and_freed",
    "limits.handshake_timeout_s": "test_timeouts.test_silent_and_slow_handshakes_end_at_their_time_and_others_are_served",
    "limits.connect_timeout_s": "test_timeouts.test_slow_connect_counts_against_connect_timeout_only",
    "limits.idle_timeout_s": "test_timeouts.test_idle_tunnel_ends_both_sides",
    "limits.half_close_timeout_s": "test_timeouts.test_half_closed_tunnel_in_which_nothing_moves_ends",
    "limits.tcp_pool_blocks": "test_keys.test_tcp_pool_blocks_is_the_ceiling_of_relay_memory",
    "limits.udp_pool_blocks": "test_udp.test_udp_pool_blocks_bound_memory",
    "limits.header_bytes": "test_keys.test_header_bytes_and_header_count",
    "limits.header_count": "test_keys.test_header_bytes_and_header_count",
    "resolver.servers": "test_keys.test_servers_are_those_that_are_asked",
    "resolver.prefer": "test_connect_errors.test_prefer_only_asks_and_dials_one_family",
    "resolver.timeout_ms": "test_keys.test_attempts_and_timeout_ms",
    "resolver.attempts": "test_keys.test_attempts_and_timeout_ms",
    "resolver.cache_entries": "test_keys.test_cache_entries_are_the_most_names_that_are_kept",
    "resolver.min_ttl_s": "test_keys.test_min_ttl_s_and_max_ttl_s_bound_how_long_an_answer_is_kept",
    "resolver.max_ttl_s": "test_keys.test_min_ttl_s_and_max_ttl_s_bound_how_long_an_answer_is_kept",
    "resolver.negative_ttl_s": "test_connect_errors.test_negative_answers_are_kept_for_a_while_only",
    "outbound.bind_ipv4": "test_keys.test_bind_addresses_are_where_connections_come_from",
    "outbound.bind_ipv6": "test_keys.test_bind_addresses_are_where_connections_come_from",
    "outbound.interface": "test_keys.test_interface_is_where_connections_leave",
    "outbound.mark": "test_keys.test_mark_is_seen_by_policy_routing",
    "outbound.happy_eyeballs_ms": "test_keys.test_happy_eyeballs_ms_is_the_stagger",
    "outbound.tcp_keepalive_s": "test_keys.test_tcp_keepalive_s_is_the_sockets_timer",
    "acl.file": "test_acl.test_file_comes_before_inline_rules_and_default_last",
    "acl.rules": "test_acl.test_file_comes_before_inline_rules_and_default_last",
    "acl.protect_local": "test_acl.test_protect_local_off_and_clients_on_loopback",
    "http.via": "test_keys.test_via_is_added_or_not",
    "http.forwarded_for": "test_keys.test_forwarded_for",
    "http.origin_form": "test_acl.test_origin_form",
    "http.keepalive_timeout_s": "test_timeouts.test_idle_keep_alive_client_is_ended",
    "http.upstream_timeout_s": "test_timeouts.test_origin_that_never_answers_gives_504",
    "http.max_body_bytes": "test_keys.test_max_body_bytes_is_answered_413",
    "access_log.path": "test_reload.test_log_level_and_access_log_change",
    "access_log.format": "test_accesslog.test_json_has_the_same_fields",
    "access_log.flush_ms": "test_accesslog.test_flush_ms_and_immediate",
    "access_log.buffer": "test_accesslog.test_full_buffer_is_written_before_flush_ms",
    "access_log.immediate": "test_accesslog.test_flush_ms_and_immediate",
}


def schema_keys():
    with open(os.path.join(TOP, "src", "conf", "schema.c"), encoding="utf-8") as f:
        table = re.search(r"const struct conf_row conf_schema\[\] = \{\n(.*?)\n\};", f.read(), re.S).group(1)
    return re.findall(r'^\t\{ "([^"]+)", CONF_', table, re.M)


def test_every_key_has_a_test_in_which_it_changes_behaviour():
    """Fails for a key that is new, gone, or whose test does not mention it."""
    keys = schema_keys()
    assert len(keys) > 50
    assert not set(keys) - set(PROOF), "without a test: add it to PROOF"
    assert not set(PROOF) - set(keys), "no keys any more"
    source = {}
    for path in glob.glob(os.path.join(HERE, "test_*.py")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        module = os.path.basename(path)[:-3]
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                source[module + "." + node.name] = ast.get_source_segment(text, node)
    for key, where in PROOF.items():
        assert where in source, "%s: no test %s" % (key, where)
        leaf = key.rsplit(".", 1)[-1]
        assert re.search(r"\b%s\b" % leaf, source[where].replace("_", " _ ") if "_" not in leaf else source[where]) \
            or leaf in source[where], "%s does not mention %s" % (where, key)


# -- workers, backend, listeners ---------------------------------------------------------

def worker_threads(proxy):
    """{worker's thread: the CPUs that it may use}"""
    out = {}
    for tid in os.listdir("/proc/%d/task" % proxy.pid):
        with open("/proc/%d/task/%s/comm" % (proxy.pid, tid), encoding="ascii") as f:
            name = f.read().strip()
        if name.startswith("ringway-w"):
            with open("/proc/%d/task/%s/status" % (proxy.pid, tid), encoding="ascii") as f:
                out[name] = re.search(r"Cpus_allowed_list:\s*(\S+)", f.read()).group(1)
    return out


def test_workers_is_the_number_of_threads_and_pin_workers_pins_them(proxies):
    for workers in (1, 3):
        proxy = proxies({"workers": workers})
        wait_until(lambda: len(worker_threads(proxy)) == workers, 5, lambda: worker_threads(proxy))
        assert len(set(worker_threads(proxy).values())) == 1
        proxy.stop()
    proxy = proxies({"workers": 0})
    wait_until(lambda: 1 <= len(worker_threads(proxy)) <= len(os.sched_getaffinity(0)), 5, "one a usable CPU")
    proxy.stop()
    cpus = sorted(os.sched_getaffinity(0))
    proxy = proxies({"workers": len(cpus), "pin_workers": True})
    want = {"ringway-w%d" % i: str(cpu) for i, cpu in enumerate(cpus)}
    wait_until(lambda: worker_threads(proxy) == want, 5, lambda: worker_threads(proxy))


def test_backend_is_what_runs(proxies, backend):
    proxy = proxies({"backend": backend}, backend=None)
    wait_until(lambda: "started" in proxy.log(), 5, "all loops run")
    kinds = [what for what in proxy.fds().values() if what in ("anon_inode:[io_uring]", "anon_inode:[eventpoll]")]
    # kqueue on Linux is the tests' shim over poll(2): no descriptor of its own kind
    assert set(kinds) == {"io_uring": {"anon_inode:[io_uring]"}, "epoll": {"anon_inode:[eventpoll]"}, "kqueue": set()}[backend]


def test_backlog_is_how_many_may_wait(proxies):
    import signal

    def waiting(backlog):
        proxy = proxies({"workers": 1}, listen=[{"addr": "127.0.0.1", "port": free_port(), "backlog": backlog}], name="b%d" % backlog)
        with proxy.connect() as s:      # accepted, so it is in its loop
            s.sendall(b"\x05\x01\x00")
            assert recv_exact(s, 2) == b"\x05\x00"
        proxy.signal(signal.SIGSTOP)
        socks = []
        try:
            time.sleep(0.1)
            for _ in range(12):
                s = socket.socket()
                socks.append(s)
                s.setblocking(False)
                s.connect_ex((proxy.host, proxy.port))
            time.sleep(0.3)
            # TCP_INFO's first byte is the state; 1 is ESTABLISHED
            return sum(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01" for s in socks)
        finally:
            for s in socks:
                s.close()
            proxy.signal(signal.SIGCONT)
            proxy.stop()
    assert waiting(1) <= 3      # the kernel lets one more in than it was told
    assert waiting(64) == 12


# -- limits ---------------------------------------------------------------------------------

def test_tcp_pool_blocks_is_the_ceiling_of_relay_memory(proxies, origins):
    origin = origins(o.source(1, 8 << 20))

    def starves(blocks):
        # without pipes (there are none below 512 descriptors) bytes lie in blocks
        proxy = proxies({"workers": 1, "limits": {"tcp_pool_blocks": blocks}}, name="p%d" % blocks,
                        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500)))
        socks = [socks5(proxy, origin.host, origin.port, rcvbuf=4096) for _ in range(24)]
        try:
            wait_until(lambda: "relay memory exhausted" in proxy.log(), 4, "starved")
            return True
        except AssertionError:
            return False
        finally:
            for s in socks:
                s.close()
            proxy.stop()
    assert starves(16)
    assert not starves(1024)


def test_header_bytes_and_header_count(proxies, web):
    origin = web(lambda *_: o.ok(b"x"))

    def status(proxy, size=0, count=0):
        fields = ["X-Big: " + "x" * size] if size else ["X-%d: y" % i for i in range(count)]
        return fetch(proxy, origin.authority, fields=fields).status
    small = proxies({"limits": {"header_bytes": 2048, "header_count": 20}})
    large = proxies({"limits": {"header_bytes": "128KiB" and 131072, "header_count": 500}}, name="large")
    assert (status(small, size=1500), status(small, size=2500)) == (200, 431)
    assert (status(large, size=100000), status(large, size=140000)) == (200, 431)
    assert (status(small, count=15), status(small, count=25)) == (200, 431)
    assert (status(large, count=400), status(large, count=600)) == (200, 431)


# -- resolver ----------------------------------------------------------------------------------

FOUR = {"prefer": "ipv4_only"}


def test_servers_are_those_that_are_asked(proxies, origins):
    origin = origins(o.echo)
    with DnsServer({"x.test": Record("127.0.0.1")}) as a, DnsServer({"x.test": Record("127.0.0.1")}) as b:
        proxy = proxies({"workers": 1, "resolver": {"servers": [a.address], **FOUR}})
        assert socks5_code(proxy, "x.test", origin.port) == 0
        assert (a.count("x.test"), b.count("x.test")) == (1, 0)
        proxy.reload({"resolver": {"servers": [b.address]}})
        b.add("y.test", "127.0.0.1")
        assert socks5_code(proxy, "y.test", origin.port) == 0
        assert (a.count("y.test"), b.count("y.test")) == (0, 1)


def test_attempts_and_timeout_ms(proxies, dns):
    dns.add("silent.test", drop=True)

    def ask(attempts, timeout_ms):
        proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "attempts": attempts, "timeout_ms": timeout_ms, **FOUR}},
                        name="a%d-%d" % (attempts, timeout_ms))
        before, began = dns.count("silent.test"), time.monotonic()
        assert socks5_code(proxy, "silent.test", 80) in (4, 6)
        took = time.monotonic() - began
        proxy.stop()
        return dns.count("silent.test") - before, took
    count, took = ask(1, 200)
    assert count == 1 and 0.1 < took < 1.0 * SLOW, (count, took)
    count, took = ask(3, 100)
    assert count == 3 and took < 3 * SLOW, (count, took)
    count, took = ask(1, 1200)
    assert count == 1 and 0.8 < took < 3 * SLOW, (count, took)


def test_cache_entries_are_the_most_names_that_are_kept(proxies, dns, origins):
    origin = origins(o.echo)
    for i in range(60):
        dns.add("n%d.test" % i, "127.0.0.1", ttl=300)

    def again(entries):
        proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], "cache_entries": entries, **FOUR}}, name="c%d" % entries)
        before = dns.count()
        for _ in range(2):
            for i in range(60):
                assert socks5_code(proxy, "n%d.test" % i, origin.port) == 0
        proxy.stop()
        return dns.count() - before
    assert again(1000) == 60
    assert again(16) > 90


def test_min_ttl_s_and_max_ttl_s_bound_how_long_an_answer_is_kept(proxies, dns, origins):
    origin = origins(o.echo)
    dns.add("zero.test", "127.0.0.1", ttl=0)
    dns.add("long.test", "127.0.0.1", ttl=1000)

    def asked(name, **kw):
        proxy = proxies({"workers": 1, "resolver": {"servers": [dns.address], **FOUR, **kw}}, name=name + str(len(kw)) + "".join(kw))
        before = dns.count(name)
        for _ in range(4):
            assert socks5_code(proxy, name, origin.port) == 0
        proxy.stop()
        return dns.count(name) - before
    assert asked("zero.test") == 4
    assert asked("zero.test", min_ttl_s=300) == 1
    assert asked("long.test") == 1
    assert asked("long.test", max_ttl_s=0) == 4


# -- outbound --------------------------------------------------------------------------------------

def test_bind_addresses_are_where_connections_come_from(proxies, netns):
    with netns, o.Origin(o.echo, port=7007) as four, o.Origin(o.HttpOrigin, host="::1", port=7007) as six:
        six.handler = o.echo
        proxy = proxies({"outbound": {"bind_ipv4": "127.0.0.5", "bind_ipv6": "fd99::1"}})
        for open_one in (lambda h: socks5_code(proxy, h, 7007) == 0,
                         lambda h: connect_status(proxy, ("[%s]:7007" if ":" in h else "%s:7007") % h).status == 200):
            assert open_one("127.0.0.1") and open_one("::1")
        wait_until(lambda: len(four.peers) == len(six.peers) == 2, 5, "all arrived")
        assert {p[0] for p in four.peers} == {"127.0.0.5"} and {p[0] for p in six.peers} == {"fd99::1"}
        proxy.reload({"outbound": {"bind_ipv4": "", "bind_ipv6": ""}})
        assert socks5_code(proxy, "127.0.0.1", 7007) == 0
        wait_until(lambda: four.peers[-1][0] == "127.0.0.1", 5, lambda: four.peers)


def test_interface_is_where_connections_leave(proxies, netns):
    with netns, o.Origin(o.echo) as origin:
        proxy = proxies({"outbound": {"interface": "lo"}, "limits": {"connect_timeout_s": 1}})
        assert socks5_code(proxy, origin.host, origin.port) == 0
        proxy.reload({"outbound": {"interface": "hole"}})
        assert socks5_code(proxy, origin.host, origin.port) != 0
        proxy.reload({"outbound": {"interface": "nosuch0"}})
        assert socks5_code(proxy, origin.host, origin.port) != 0
        assert "nosuch0" in proxy.log() or "cannot connect" in proxy.log()


def test_mark_is_seen_by_policy_routing(proxies, netns):
    import subprocess
    with netns:
        try:
            netns.ip("rule", "add", "fwmark", "7", "prio", "100", "prohibit")
        except subprocess.CalledProcessError as e:
            pytest.skip("no policy routing: %s" % e.output)
        proxy = proxies({"outbound": {"mark": 7}, "limits": {"connect_timeout_s": 2}})

        def took():
            began = time.monotonic()
            assert socks5_code(proxy, netns.HOLE4, 80) != 0
            return time.monotonic() - began
        assert took() < 1, "refused at once by the rule for the mark"
        proxy.reload({"outbound": {"mark": 8}})
        assert took() > 1.5, "swallowed by the hole"


def test_happy_eyeballs_ms_is_the_stagger(proxies, netns):
    with netns, DnsServer() as dns, o.Origin(o.echo) as origin:
        dns.add("both.test", netns.HOLE6, "127.0.0.1")
        proxy = proxies({"resolver": {"servers": [dns.address]}, "outbound": {"happy_eyeballs_ms": 50}})

        def took():
            began = time.monotonic()
            assert socks5_code(proxy, "both.test", origin.port) == 0
            return time.monotonic() - began
        assert took() < 0.6 * SLOW
        proxy.reload({"outbound": {"happy_eyeballs_ms": 1000}})
        assert 0.9 < took() < 2.5 * SLOW


def keepalive_timers(pid, ports):
    """{port: seconds to its keep-alive timer or None} of connections to these ports."""
    out = {}
    with open("/proc/%d/net/tcp" % pid, encoding="ascii") as f:
        for line in f.readlines()[1:]:
            field = line.split()
            remote = int(field[2].rsplit(":", 1)[1], 16)
            if remote in ports and field[3] == "01":
                kind, when = field[5].split(":")
                out[remote] = int(when, 16) / os.sysconf("SC_CLK_TCK") if kind == "02" else None
    return out


def test_tcp_keepalive_s_is_the_sockets_timer(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"outbound": {"tcp_keepalive_s": 40}})

    def timers():
        with socks5(proxy, origin.host, origin.port) as s:
            s.sendall(b"x")
            recv_exact(s, 1)
            time.sleep(0.3)     # delayed acks are gone
            here = s.getsockname()[1]
            found = keepalive_timers(proxy.pid, {origin.port, here})
            return found[origin.port], found[here]
    for seconds in timers():
        assert seconds is not None and 30 < seconds <= 41, seconds
    proxy.reload({"outbound": {"tcp_keepalive_s": 0}})
    assert timers() == (None, None)


# -- http ------------------------------------------------------------------------------------------------

def test_via_is_added_or_not(proxies, web):
    origin = web(lambda *_: o.ok(b"x", ["Via: 1.0 before"]))
    for via in (True, False):
        proxy = proxies({"http": {"via": via}}, name="via%d" % via)
        r = fetch(proxy, origin.authority, fields=["Via: 1.0 client"])
        ours = [v for m in (origin.requests[-1], r) for v in m.get("Via") if "ringway" in v]
        assert len(ours) == (2 if via else 0)
        assert any("1.0 client" in v for v in origin.requests[-1].get("Via")) and any("1.0 before" in v for v in r.get("Via"))


def test_forwarded_for(proxies, web):
    origin = web(lambda *_: o.ok(b"x"))

    def sent(mode, fields):
        proxy = proxies({"http": {"forwarded_for": mode}}, name="xff-" + mode + str(len(fields)))
        with http(proxy, source="127.0.0.6") as c:
            assert c.ask(get_request(origin.authority, fields=fields)).status == 200
        proxy.stop()
        return ", ".join(origin.requests[-1].get("X-Forwarded-For"))
    given = ["X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 192.0.2.2"]
    assert (sent("off", []), sent("off", given)) == ("", "192.0.2.1, 192.0.2.2")
    assert (sent("append", []), sent("append", given)) == ("127.0.0.6", "192.0.2.1, 192.0.2.2, 127.0.0.6")
    assert (sent("delete", []), sent("delete", given)) == ("", "")


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_max_body_bytes_is_answered_413(proxies, web, framing):
    """CASES 17c: the answer is read, also by a client that sends a mebibyte."""
    origin = web(lambda *_: o.ok(b"taken"))
    proxy = proxies({"http": {"max_body_bytes": 10000}})

    def post(body):
        if framing == "length":
            fields, data = ["Content-Length: %d" % len(body)], body
        else:
            fields = ["Transfer-Encoding: chunked"]
            data = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[i:i + 4000] for i in range(0, len(body), 4000))) + b"0\r\n\r\n"
        with http(proxy) as c:
            c.send(get_request(origin.authority, "/", fields, "POST"))
            sender = Background(c.sock.sendall, data)
            r = c.read()
            try:
                sender.result(10)
            except OSError:
                pass
            return r
    assert post(pattern(1, 10000)).status == 200
    for size in (10001, 1 << 20):
        for _ in range(2):
            r = post(pattern(1, size))
            assert r.status == 413 and r.first("Proxy-Status", "").startswith("ringway; error="), r
    assert [len(q.body) for q in origin.requests] == [10000], "nothing too long was taken for whole"
    proxy.reload({"http": {"max_body_bytes": 0}})
    assert post(pattern(1, 1 << 20)).status == 200

# SPDX-License-Identifier: ISC
"""Who may come and where they may go: whitelist, rules, routes, protect_local
(SPEC 3, 8; CASES 38, 39, 40)."""

import socket

import pytest

import accesslines
import origins as o
from clients import (basic, connect_request, connect_status, fetch, get_request, http, http_connect, recv_exact, recv_to_end,
                     socks4_read_reply, socks4_request, socks5, socks5_as, socks5_code, socks5_login, socks5_read_reply,
                     socks5_request)
from dnsserver import DnsServer, Record
from util import free_port, password_record, wait_until

ALL = ["socks5", "socks4", "http"]


def page(request, _conn, _stream):
    return o.ok(b"page " + request.target.encode("latin-1"))


def rules(*lines, **acl):
    return {"acl": {"rules": list(lines), **acl}}


def raw_get(proxy, target, host, method="GET", fields=()):
    """A request whose target is sent as it is."""
    with http(proxy) as c:
        return c.ask("\r\n".join(["%s %s HTTP/1.1" % (method, target), "Host: %s" % host, *fields]) + "\r\n\r\n")


def denied(proxy, host, port, name=None):
    """By every protocol; True, False, or an assertion when they differ."""
    authority = "%s:%d" % ("[%s]" % host if ":" in host else host, port)
    out = {"get": fetch(proxy, authority).status == 403, "connect": connect_status(proxy, authority).status == 403,
           "socks5": socks5_code(proxy, host, port) == 2, "socks5 name": socks5_code(proxy, host, port, as_domain=True) == 2}
    assert len(set(out.values())) == 1, (name or host, out)
    return out["get"]


# -- whitelist ------------------------------------------------------------------------

def silently_closed(proxy, source, send=b""):
    with proxy.connect(source=source) as s:
        try:
            if send:
                s.sendall(send)
            return recv_to_end(s)[0] == b""
        except (BrokenPipeError, ConnectionResetError):
            return True


def serves(proxy, source, host, port):
    with proxy.connect(source=source) as s:
        s.sendall(b"\x05\x01\x00")
        if recv_exact(s, 2) != b"\x05\x00":
            return False
        s.sendall(socks5_request(host, port))
        return socks5_read_reply(s).code == 0


def test_source_that_is_not_listed_is_closed_before_a_byte(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"auth": {"whitelist": ["127.0.0.1", "127.0.1.0/24", "10.0.0.0/8"]}}, protocols=ALL)
    for source in ("127.0.0.1", "127.0.1.0", "127.0.1.255"):
        assert serves(proxy, source, origin.host, origin.port), source
    for source in ("127.0.0.2", "127.0.2.0", "127.1.1.1"):
        for send in (b"", b"\x05\x01\x00", get_request(origin.authority), b"\x04\x01"):
            assert silently_closed(proxy, source, send), (source, send)
    wait_until(lambda: origin.accepted == 3, 5, "three arrived")


def test_whitelist_comes_before_the_password(proxies):
    proxy = proxies({"auth": {"whitelist": ["127.0.0.1"], "require_password": True,
                              "users": [{"name": "a", "pbkdf2": password_record("b")}]}})
    with proxy.connect(source="127.0.0.1") as s:
        assert socks5_login(s, "a", "b") == 0
    assert silently_closed(proxy, "127.0.0.2", b"\x05\x01\x02")


def test_mapped_peers_of_a_dual_stack_listener_are_ipv4(proxies, origins):
    """CASES 40."""
    origin = origins(o.echo)
    proxy = proxies({"auth": {"whitelist": ["127.0.0.1", "::1"]}}, listen=[{"addr": "::", "port": free_port()}])
    assert serves(proxy, None, origin.host, origin.port)
    proxy.host = "127.0.0.1"
    assert serves(proxy, "127.0.0.1", origin.host, origin.port)
    assert silently_closed(proxy, "127.0.0.2", b"\x05\x01\x00")
    mapped = proxies({"auth": {"whitelist": ["::ffff:127.0.0.1"]}}, name="mapped")
    assert serves(mapped, "127.0.0.1", origin.host, origin.port)
    assert silently_closed(mapped, "127.0.0.2")


def test_whitelist_file_and_list_together(proxies, origins, tmp_path):
    origin = origins(o.echo)
    path = tmp_path / "allowed"
    path.write_text("# office\n127.0.0.4\n ; vpn\n127.0.5.0/24   # all of it\n")
    proxy = proxies({"auth": {"whitelist": ["127.0.0.1"], "whitelist_file": str(path)}})
    for source, good in (("127.0.0.1", True), ("127.0.0.4", True), ("127.0.5.9", True), ("127.0.0.5", False)):
        assert (serves(proxy, source, origin.host, origin.port) if good else silently_closed(proxy, source)), source


def test_empty_whitelist_file_lets_nobody_in(proxies, tmp_path):
    path = tmp_path / "allowed"
    path.write_text("# nobody\n")
    proxy = proxies({"auth": {"whitelist_file": str(path)}})
    assert silently_closed(proxy, "127.0.0.1", b"\x05\x01\x00")


@pytest.mark.parametrize("bad", ["127.0.0.1/33", "300.1.1.1", "host.test", "127.0.0.1 x"])
def test_bad_whitelist_refuses_the_start(proxies, tmp_path, bad):
    path = tmp_path / "allowed"
    path.write_text("127.0.0.1\n%s\n\n%s\n" % (bad, bad))
    proxy = proxies({"auth": {"whitelist": [bad], "whitelist_file": str(path)}}, start=False)
    proxy.start(wait=False)
    assert proxy.wait() == 1
    proxy.returncode = 0
    for place in ("%s:2:" % path, "%s:4:" % path, "auth.whitelist"):
        assert place in proxy.log(), proxy.log()


# -- the sample of SPEC 8 ----------------------------------------------------------------

SAMPLE = """\
default allow
deny  method connect port 1-442,444-65535   # as SPEC 8, with ports so that the rest can be seen
deny  host   *.doubleclick.net
deny  path   /admin/*
allow client 10.0.0.0/8 user alice,bob port 443
deny  dst    169.254.0.0/16
route origin.test 127.0.0.1 %d
"""


def test_sample_of_the_specification(proxies, web, dns, tmp_path):
    origin = web(page)
    path = tmp_path / "acl"
    path.write_text(SAMPLE % origin.port)
    log = tmp_path / "access"
    dns.add("meta.test", "169.254.169.254")
    # one worker, so that the lines come in our order
    proxy = proxies({"workers": 1, "acl": {"file": str(path)}, "access_log": {"path": str(log)}, "resolver": {"servers": [dns.address]}})
    expect = []

    def see(status, rule, line):
        assert line.status == status, line
        expect.append((status, rule))
    see(200, "default", fetch(proxy, origin.authority, "/x"))
    see(403, "deny method connect port 1-442,444-65535", connect_status(proxy, origin.authority))
    see(403, "deny host *.doubleclick.net", fetch(proxy, "ad.doubleclick.net"))
    see(403, "deny path /admin/*", fetch(proxy, origin.authority, "/admin/x"))
    see(403, "deny dst 169.254.0.0/16", fetch(proxy, "meta.test", "/latest"))
    see(403, "deny dst 169.254.0.0/16", fetch(proxy, "169.254.1.1"))
    see(200, "default", fetch(proxy, "origin.test", "/routed"))
    assert origin.requests[-1].get("Host") == ["origin.test"], "the request itself is not changed"
    lines = accesslines.wait_lines(log, len(expect))
    assert [(e.status, e.rule) for e in lines] == expect
    assert [e.acl for e in lines] == ["ALLOW" if status == 200 else "DENY" for status, _ in expect]


def test_parent_of_a_suffix_and_look_alikes_are_not_meant(proxies, web):
    origin = web(page)
    proxy = proxies(rules("deny host *.ads.test,bad.test,evil*", "route *.test 127.0.0.1 %d" % origin.port,
                          "route evil* 127.0.0.1 %d" % origin.port))
    for host, no in (("ads.test", False), ("evilads.test", True), ("notads.test", False), ("a.ads.test", True), ("a.b.ads.test", True),
                     ("bad.test", True), ("x.bad.test", False), ("bad.test.test", False), ("evil.test", True), ("devil.test", False)):
        assert (fetch(proxy, host).status == 403) == no, host


# -- CASES 38: no spelling gets around a deny -----------------------------------------------

@pytest.mark.parametrize("spelling", [
    "http://blocked.example.com/", "http://BLOCKED.example.COM/", "http://BLOCKED.example.com:80/", "http://blocked.example.com./",
    "http://BLOCKED.example.com.:80/", "http://user@blocked.example.com/", "http://a:b@blocked.example.com/", "HTTP://blocked.example.com/",
    "http://blocked.example.com", "http://blocked.example.com?x", "http://blocked.example.com:8080/", "http://blocked.example.com:00080/",
    "http://block%65d.example.com/", "http://blocked.example.com:/",
])
def test_denied_host_stays_denied_however_it_is_spelled(proxies, web, spelling):
    origin = web(page)
    proxy = proxies(rules("deny host blocked.example.com", "route * 127.0.0.1 %d" % origin.port))
    r = raw_get(proxy, spelling, "fine.example.com")
    assert r.status in (403, 400), r
    assert not origin.requests
    if "@" not in spelling and "%" not in spelling and not spelling.endswith(":/"):
        assert r.status == 403, r


@pytest.mark.parametrize("authority", ["blocked.example.com:443", "BLOCKED.example.com:443", "Blocked.Example.Com.:443"])
def test_denied_host_stays_denied_for_connect_and_socks(proxies, origins, authority):
    origin = origins(o.echo)
    proxy = proxies(rules("deny host blocked.example.com", "route * 127.0.0.1 %d" % origin.port), protocols=ALL)
    host, port = authority.rsplit(":", 1)
    assert connect_status(proxy, authority).status == 403
    assert socks5_code(proxy, host, int(port)) == 2
    with proxy.connect() as s:
        s.sendall(socks4_request(host, int(port)))
        assert socks4_read_reply(s) == 91
    assert socks5_code(proxy, "other.example.com", 443) == 0
    wait_until(lambda: origin.accepted == 1, 5, "one arrived")


@pytest.mark.parametrize("path", [
    "/admin/x", "//admin/x", "/%61dmin/x", "/%61%64%6d%69%6e/x", "/a/../admin/x", "/./admin/x", "/admin/./x", "/admin//x", "/a/%2e%2e/admin/x",
    "/%2e/admin/x", "///admin///x", "/../admin/x", "/admin/../admin/x", "/admin%2fx", "/a/..//admin/x", "/admin/x?y", "/admin/", "/admin/x#y",
    "/\\admin\\x", "/admin;v=1/x", "/b/..;/admin/x", "/%41dmin/../admin/x",
])
def test_denied_path_stays_denied_however_it_is_spelled(proxies, web, path):
    origin = web(page)
    proxy = proxies(rules("deny path /admin/*"))
    r = raw_get(proxy, "http://%s%s" % (origin.authority, path), origin.authority)
    assert r.status in (403, 400), (path, r)
    assert not origin.requests, origin.requests[0].line


@pytest.mark.parametrize("path", ["/Admin/x", "/admin", "/administrator/x", "/x/admin/", "/x?/admin/x", "/adm%69nx/y", "/"])
def test_paths_that_are_not_meant_pass(proxies, web, path):
    origin = web(page)
    proxy = proxies(rules("deny path /admin/*"))
    assert raw_get(proxy, "http://%s%s" % (origin.authority, path), origin.authority).status == 200
    assert origin.requests[0].target == path, "and go out as they came"


def test_denied_path_in_origin_form(proxies, web):
    origin = web(page)
    proxy = proxies({**rules("deny path /admin/*", "deny host blocked.test", "route *.test 127.0.0.1 %d" % origin.port),
                     "http": {"origin_form": "any"}})
    assert raw_get(proxy, "//admin/x", "fine.test").status in (403, 400)
    assert raw_get(proxy, "/%61dmin/x", "fine.test").status == 403
    for host in ("blocked.test", "BLOCKED.test:80", "blocked.test."):
        assert raw_get(proxy, "/", host).status == 403, host
    assert raw_get(proxy, "/ok", "fine.test").status == 200


def test_each_request_of_a_connection_is_policed(proxies, web):
    """CASES 23."""
    origin = web(page)
    proxy = proxies(rules("deny path /secret", "deny host blocked.test", "deny method delete"))
    with http(proxy) as c:
        for target, method, status in (("/a", "GET", 200), ("/secret", "GET", 403), ("/b", "GET", 200), ("/b", "DELETE", 403),
                                       ("/c", "GET", 200)):
            assert c.ask(get_request(origin.authority, target, method=method)).status == status, (target, method)
        assert c.ask(get_request("blocked.test")).status == 403
        assert c.ask(get_request(origin.authority, "/d")).status == 200
    assert [q.target for q in origin.requests] == ["/a", "/b", "/c", "/d"]


def test_address_literals_are_compared_in_canonical_form(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies(rules("deny host 127.0.0.1", "deny host 0:0::1"))
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"):
        assert denied(proxy, host, origin.port), host
    assert origin.accepted == 0


def test_host_pattern_with_a_port(proxies, origins):
    origin, other = origins(o.echo), origins(o.echo)
    proxy = proxies(rules("deny host localhost:%d" % origin.port))
    for code, port in ((2, origin.port), (0, other.port)):
        assert socks5_code(proxy, "localhost", port) == code
    assert connect_status(proxy, "LOCALHOST:%d" % origin.port).status == 403


# -- every field ----------------------------------------------------------------------------

def test_methods_are_told_apart(proxies, web):
    origin = web(page)
    host, port = origin.host, origin.port
    for method, socks, connect, get, post in (("socks", 2, 200, 200, 200), ("connect", 0, 403, 200, 200), ("get", 0, 200, 403, 200),
                                              ("GET,connect", 0, 403, 403, 200), ("*", 2, 403, 403, 403)):
        proxy = proxies(rules("deny method " + method))
        assert socks5_code(proxy, host, port) == socks, method
        assert connect_status(proxy, origin.authority).status == connect, method
        assert fetch(proxy, origin.authority).status == get, method
        assert fetch(proxy, origin.authority, method="POST", body=b"").status == post, method
        proxy.stop()


def test_client_user_and_port_must_all_hold(proxies, origins):
    a, b = origins(o.echo), origins(o.echo)
    users = [{"name": n, "pbkdf2": password_record("pw")} for n in ("alice", "bob", "carol")]
    proxy = proxies({"auth": {"users": users, "require_password": True},
                     **rules("default deny", "allow client 127.0.0.8/30 user alice,bob port %d" % a.port)})
    for user, source, port, code in (("alice", "127.0.0.9", a.port, 0), ("bob", "127.0.0.11", a.port, 0), ("carol", "127.0.0.9", a.port, 2),
                                     ("alice", "127.0.0.12", a.port, 2), ("alice", "127.0.0.9", b.port, 2)):
        with proxy.connect(source=source) as s:
            assert socks5_login(s, user, "pw") == 0
            s.sendall(socks5_request("127.0.0.1", port))
            assert socks5_read_reply(s).code == code, (user, source)
        with http(proxy, source=source) as c:
            status = c.ask(connect_request("127.0.0.1:%d" % port, [basic(user, "pw")]), method="CONNECT").status
            assert status == (200 if code == 0 else 403)


def test_user_star_is_everyone_with_a_name(proxies, origins):
    origin = origins(o.echo)
    ports = [free_port(), free_port()]
    proxy = proxies({"auth": {"users": [{"name": "alice", "pbkdf2": password_record("pw")}]}, **rules("default deny", "allow user *")},
                    listen=[{"addr": "127.0.0.1", "port": ports[0], "auth": "required"}, {"addr": "127.0.0.1", "port": ports[1]}])
    with socks5_as(proxy, "alice", "pw", origin.host, origin.port):
        pass
    proxy.port = ports[1]
    assert socks5_code(proxy, origin.host, origin.port) == 2


def test_rules_for_one_listener(proxies, origins):
    origin = origins(o.echo)
    ports = [free_port(), free_port()]
    proxy = proxies(rules("deny listener %d" % ports[1]), listen=[{"addr": "127.0.0.1", "port": p} for p in ports])
    for port, no in zip(ports, (False, True)):
        proxy.port = port
        assert (socks5_code(proxy, origin.host, origin.port) == 2) == no


def test_values_from_a_file(proxies, web, tmp_path):
    origin = web(page)
    (tmp_path / "blocked.txt").write_text("# list\n\n  one.test \n*.two.test # all of two\n; old style\n")
    acl = tmp_path / "acl"
    acl.write_text("deny host @blocked.txt,three.test\nroute *.test 127.0.0.1 %d\n" % origin.port)
    proxy = proxies({"acl": {"file": str(acl), "rules": ["deny host @%s path /p" % (tmp_path / "blocked.txt")]}})
    for host, status in (("one.test", 403), ("x.two.test", 403), ("two.test", 200), ("three.test", 403), ("four.test", 200)):
        assert fetch(proxy, host).status == status, host


def test_file_comes_before_inline_rules_and_default_last(proxies, web, tmp_path):
    origin = web(page)
    acl = tmp_path / "acl"
    acl.write_text("default deny\nallow path /yes\ndeny path /no\n")
    proxy = proxies({"acl": {"file": str(acl), "rules": ["deny path /yes", "allow path /no,/inline"]}})
    for path, status in (("/yes", 200), ("/no", 403), ("/inline", 200), ("/other", 403)):
        assert fetch(proxy, origin.authority, path).status == status, path


def test_every_bad_line_is_named_and_the_start_refused(proxies, tmp_path):
    acl = tmp_path / "acl"
    acl.write_text("deny host ok.test\ndeny hots x\nallow\n\nroute a.test nowhere 80\ndeny port 0\ndeny host @%s/missing\ndefault maybe\n" % tmp_path)
    proxy = proxies({"acl": {"file": str(acl), "rules": ["deny host x", "frob host y", "deny client 1.2.3.4/40"]}}, start=False)
    proxy.start(wait=False)
    assert proxy.wait() == 1
    proxy.returncode = 0
    for place in ["%s:%d:" % (acl, n) for n in (2, 3, 5, 6, 7, 8)] + ["acl.rules[1]", "acl.rules[2]"]:
        assert place in proxy.log(), (place, proxy.log())
    assert "%s:1:" % acl not in proxy.log()
    from proxy import run
    done = run("--check", proxy.config_path)
    assert done.returncode == 1
    for n in (2, 3, 5, 6, 7, 8):
        assert "%s:%d:" % (acl, n) in done.out + done.err


def test_missing_rules_file_is_never_allow_all(proxies, tmp_path):
    proxy = proxies({"acl": {"file": str(tmp_path / "nothing")}}, start=False)
    proxy.start(wait=False)
    assert proxy.wait() == 1
    proxy.returncode = 0
    assert str(tmp_path / "nothing") in proxy.log()


# -- routes -----------------------------------------------------------------------------------

def test_routed_host_is_served_by_every_protocol(proxies, web):
    origin = web(page)
    proxy = proxies(rules("route origin.test 127.0.0.1 %d" % origin.port, "route six.test:8080 ::1 %d" % free_port()), protocols=ALL)
    assert fetch(proxy, "origin.test", "/a").body == b"page /a"
    assert fetch(proxy, "origin.test:8080", "/b").body == b"page /b"
    assert fetch(proxy, "ORIGIN.test.", "/c").status == 200
    for open_tunnel in (lambda: socks5(proxy, "origin.test", 1), lambda: http_connect(proxy, "origin.test", 443)):
        with open_tunnel() as s:
            s.sendall(b"GET /t HTTP/1.1\r\nHost: origin.test\r\n\r\n")
            assert recv_exact(s, 15) == b"HTTP/1.1 200 OK"
    with proxy.connect() as s:
        s.sendall(socks4_request("origin.test", 99))
        assert socks4_read_reply(s) == 90
    # refused there, by the route's port; and another port of that name has no route
    assert socks5_code(proxy, "six.test", 8080) == 5
    assert socks5_code(proxy, "six.test", 80) == 4


@pytest.mark.parametrize("mode", ["routed", "any", "off"])
def test_origin_form(proxies, web, mode):
    origin = web(page)
    proxy = proxies({**rules("route origin.test 127.0.0.1 %d" % origin.port), "http": {"origin_form": mode}})
    assert raw_get(proxy, "/routed", "origin.test").status == (400 if mode == "off" else 200)
    assert raw_get(proxy, "/direct", origin.authority).status == (200 if mode == "any" else 400)
    assert raw_get(proxy, "http://%s/absolute" % origin.authority, "x").status in (200, 400)
    assert fetch(proxy, origin.authority, "/absolute").status == 200
    assert [q.target for q in origin.requests if q.target != "/absolute"] == \
        {"routed": ["/routed"], "any": ["/routed", "/direct"], "off": []}[mode]


def test_dst_rule_sees_where_a_route_leads(proxies, web):
    origin = web(page)
    proxy = proxies(rules("deny dst 127.0.0.0/8 port 81", "route origin.test 127.0.0.1 %d" % origin.port))
    assert fetch(proxy, "origin.test:81").status == 403
    assert fetch(proxy, "origin.test:82").status == 200


# -- protect_local: in a namespace, where the client is not on loopback -------------------------

OUTSIDE = "10.99.0.1"       # our own address there: a client that connects to it comes from it
LOCAL_NAMES = {"loopback.test": ["127.0.0.1"], "any.test": ["0.0.0.0"], "six.test": ["::1"], "mapped.test": ["::ffff:127.0.0.1"],
               "meta.test": ["169.254.169.254"], "nat64.test": ["64:ff9b::7f00:1"], "linklocal.test": ["fe80::1"], "any6.test": ["::"],
               "other.test": ["127.7.7.7"]}


class Outside:
    """A namespace with a DNS server, an origin on loopback and one outside."""

    def __init__(self, proxies, netns, config=None, zone=LOCAL_NAMES):
        self.dns = DnsServer({n: Record(*a) for n, a in zone.items()})
        self.dns.add("good.test", OUTSIDE)
        self.port = free_port()
        self.inside = o.Origin(o.echo, host="127.0.0.1", port=self.port)
        self.inside6 = o.Origin(o.echo, host="::1", port=self.port)
        self.other = o.Origin(o.echo, host="127.7.7.7", port=self.port)
        self.outside = o.Origin(o.echo, host=OUTSIDE, port=self.port)
        self.proxy = proxies({"resolver": {"servers": [self.dns.address]}, **(config or {})},
                             listen=[{"addr": OUTSIDE, "port": free_port(OUTSIDE), "protocols": ALL}])

    def local_hits(self):
        return self.inside.accepted + self.inside6.accepted + self.other.accepted

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for x in (self.dns, self.inside, self.inside6, self.other, self.outside):
            x.close()


LITERALS = ["127.0.0.1", "127.7.7.7", "0.0.0.0", "::1", "::ffff:127.0.0.1", "169.254.169.254", "64:ff9b::7f00:1", "fe80::1", "::"]
ODD = ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "localhost", "LOCALHOST.", "foo.localhost"]


def test_local_addresses_are_protected_however_they_are_named(proxies, netns):
    """CASES 39."""
    with netns, Outside(proxies, netns) as x:
        proxy = x.proxy
        assert socks5_code(proxy, "good.test", x.port) == 0
        assert connect_status(proxy, "%s:%d" % (OUTSIDE, x.port)).status == 200
        for host in [*LITERALS, *LOCAL_NAMES]:
            assert denied(proxy, host, x.port), host
        for host in ODD:
            authority = "%s:%d" % (host, x.port)
            # denied, or (decimal, octal) no address and no name that anybody knows
            assert fetch(proxy, authority).status in (403, 400, 502), host
            assert connect_status(proxy, authority).status in (403, 400, 502), host
            assert socks5_code(proxy, host, x.port) in (2, 4, 1), host
        with proxy.connect() as s:
            s.sendall(socks4_request("127.0.0.1", x.port))
            assert socks4_read_reply(s) == 91
        # the proxy itself, by any of its names
        dns_self = "%s:%d" % (OUTSIDE, proxy.port)
        assert fetch(proxy, dns_self).status in (403, 508)
        assert connect_status(proxy, dns_self).status in (403, 508)
        assert x.local_hits() == 0


def test_protect_local_off_and_clients_on_loopback(proxies, netns):
    with netns, Outside(proxies, netns, {"acl": {"protect_local": False}}) as x:
        for host in ("127.0.0.1", "loopback.test", "::1", "six.test", "localhost"):
            assert socks5_code(x.proxy, host, x.port) == 0, host
        wait_until(lambda: x.local_hits() == 5, 5, "all arrived")
    with netns, Outside(lambda *a, **kw: proxies(*a, name="second", **kw), netns) as x:
        port = free_port()
        x.proxy.reload({"listen": [*x.proxy.listen, {"addr": "127.0.0.1", "port": port}]})
        assert socks5_code(x.proxy, "127.0.0.1", x.port) == 2
        x.proxy.host, x.proxy.port = "127.0.0.1", port
        assert socks5_code(x.proxy, "127.0.0.1", x.port) == 0, "from loopback it could be reached without us"


def test_second_answer_that_differs_does_not_get_through(proxies, netns):
    """DNS rebinding: good at first, local at the second question."""
    class Turncoat(Record):
        asked = 0

        @property
        def addresses(self):
            self.asked += 1
            return self._good if self.asked <= 1 else self._bad

        @addresses.setter
        def addresses(self, value):
            self._good, self._bad = value[:1], value[1:]
    with netns, Outside(proxies, netns, {"resolver": {"prefer": "ipv4_only", "max_ttl_s": 1}, "workers": 1}) as x:
        x.proxy.reload({"resolver": {"servers": [x.dns.address], "prefer": "ipv4_only", "max_ttl_s": 0}})
        for get in (lambda h: socks5_code(x.proxy, h, x.port) == 0, lambda h: connect_status(x.proxy, "%s:%d" % (h, x.port)).status == 200):
            host = "turn%d.test" % x.dns.count()
            x.dns.zone[host] = Turncoat(OUTSIDE, "127.0.0.1", ttl=0)
            assert get(host)
            assert not get(host)
        assert x.local_hits() == 0


def test_mixed_answers_are_looked_at_one_by_one(proxies, netns):
    with netns, Outside(proxies, netns, zone={"mixed.test": ["127.0.0.1", OUTSIDE], "both.test": ["::1", OUTSIDE]}) as x:
        for host in ("mixed.test", "both.test"):
            for _ in range(3):
                assert socks5_code(x.proxy, host, x.port) in (0, 2)
        assert x.local_hits() == 0


def test_route_is_exempt_from_protect_local(proxies, netns):
    with netns, Outside(proxies, netns) as x:
        x.proxy.reload(rules("route app.test 127.0.0.1 %d" % x.port))
        assert socks5_code(x.proxy, "app.test", 80) == 0
        assert socks5_code(x.proxy, "127.0.0.1", x.port) == 2
        wait_until(lambda: x.inside.accepted == 1, 5, "one arrived")


def test_dst_rules_look_at_the_address_dialled(proxies, netns):
    with netns, Outside(proxies, netns, rules("deny dst 10.99.0.0/24", protect_local=False)) as x:
        for host in ("good.test", OUTSIDE, "::ffff:" + OUTSIDE):
            assert denied(x.proxy, host, x.port), host
        assert not denied(x.proxy, "127.0.0.1", x.port)
        x.proxy.reload(rules("allow host good.test", "deny dst 10.0.0.0/8", protect_local=False))
        assert socks5_code(x.proxy, "good.test", x.port) == 0
        assert socks5_code(x.proxy, OUTSIDE, x.port) == 2


def test_protected_address_is_not_connected_to_at_all(proxies, netns):
    """A denial costs no upstream work (SPEC 3)."""
    with netns, Outside(proxies, netns) as x:
        questions = x.dns.count()
        x.proxy.reload(rules("deny host denied.test"))
        assert fetch(x.proxy, "denied.test").status == 403
        assert socks5_code(x.proxy, "denied.test", 80) == 2
        assert x.dns.count() == questions
        assert x.local_hits() == x.outside.accepted == 0


def test_denials_keep_the_http_connection(proxies, web):
    origin = web(page)
    proxy = proxies(rules("deny path /no"))
    with http(proxy) as c:
        for _ in range(3):
            r = c.ask(get_request(origin.authority, "/no"))
            assert r.status == 403 and r.first("Proxy-Status", "").startswith("ringway; error="), r
            assert r.body and r.first("Content-Length") == str(len(r.body))
            assert c.ask(get_request(origin.authority, "/yes")).status == 200
    # with a body that was not read it can't go on, but the answer is read
    with http(proxy) as c:
        c.send(get_request(origin.authority, "/no", ["Content-Length: 100000"], "POST"))
        c.sock.sendall(b"x" * 100000)
        assert c.read().status == 403
        try:
            assert c.ended()
        except socket.timeout:
            pytest.fail("left open")

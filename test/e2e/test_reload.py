# SPDX-License-Identifier: ISC
"""SIGHUP: all or nothing, nobody's connection is lost, old configurations go
(SPEC 2; CASES 53)."""

import os
import signal
import socket
import threading
import time

import pytest

import accesslines
import origins as o
from clients import (TUNNELS, basic, fetch, get_request, http, recv_exact, recv_sha_to_end, recv_to_end, socks5, socks5_as,
                     socks5_code, socks5_login)
from util import SANITIZED, SLOW, Background, free_port, password_record, pattern, pattern_sha, scaled, wait_until

RECORD = {p: password_record(p) for p in ("old", "new")}


def page(request, _conn, _stream):
    return o.ok(b"page " + request.target.encode())


def auth(**users):
    return {"auth": {"require_password": True, "users": [{"name": n, "pbkdf2": RECORD[p]} for n, p in users.items()]}}


# -- what it applies -------------------------------------------------------------------

def test_users_come_and_go(proxies, web):
    origin = web(page)
    proxy = proxies(auth(alice="old", bob="old"))

    def status(user, password):
        return fetch(proxy, origin.authority, fields=[basic(user, password)]).status
    assert (status("alice", "old"), status("bob", "old"), status("carol", "new")) == (200, 200, 407)
    proxy.reload(auth(alice="new", carol="new"))
    # the positive cache is emptied: the old password is not remembered
    assert (status("alice", "old"), status("alice", "new"), status("bob", "old"), status("carol", "new")) == (407, 200, 407, 200)
    with proxy.connect() as s:
        assert socks5_login(s, "bob", "old") != 0
    proxy.reload({"auth": {"require_password": False}})
    assert fetch(proxy, origin.authority).status == 200


def test_rules_and_whitelist_are_checked_again_on_kept_connections(proxies, web, origins):
    origin, tcp = web(page), origins(o.echo)
    proxy = proxies()
    with http(proxy) as kept, http(proxy, source="127.0.0.5") as other, socks5(proxy, tcp.host, tcp.port) as tunnel:
        assert kept.ask(get_request(origin.authority, "/a")).status == 200
        assert other.ask(get_request(origin.authority, "/a")).status == 200
        proxy.reload({"acl": {"rules": ["deny path /a"]}, "auth": {"whitelist": ["127.0.0.1"]}})
        assert kept.ask(get_request(origin.authority, "/a")).status == 403
        assert kept.ask(get_request(origin.authority, "/b")).status == 200
        # this one may not be here any more: not a byte, not even of an answer from the origin
        try:
            other.send(get_request(origin.authority, "/c"))
            assert recv_to_end(other.sock)[0] == b""
        except ConnectionError:
            pass
        # a tunnel is no idle keep-alive connection: it goes on
        tunnel.sendall(b"still here")
        assert recv_exact(tunnel, 10) == b"still here"
        proxy.reload(auth(alice="new"))
        assert kept.ask(get_request(origin.authority, "/b")).status == 407
        assert kept.ask(get_request(origin.authority, "/b", [basic("alice", "new")])).status == 200
    assert [q.target for q in origin.requests] == ["/a", "/a", "/b", "/b"]


def test_new_whitelist_holds_for_new_clients(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"auth": {"whitelist": ["127.0.0.1"]}})
    assert socks5_code(proxy, origin.host, origin.port) == 0
    proxy.reload({"auth": {"whitelist": ["127.0.0.2"]}})
    with proxy.connect() as s:
        assert recv_to_end(s)[0] == b""
    with proxy.connect(source="127.0.0.2") as s:
        s.sendall(b"\x05\x01\x00")
        assert recv_exact(s, 2) == b"\x05\x00"


def test_limits_timeouts_and_http_keys_apply_to_new_sessions(proxies, web, origins):
    origin, tcp = web(page), origins(o.echo)
    proxy = proxies()
    held = [socks5(proxy, tcp.host, tcp.port) for _ in range(4)]
    sockets = proxy.socket_count()
    proxy.reload({"limits": {"max_sessions_per_ip": 5, "handshake_timeout_s": 1}, "http": {"via": False}})
    fetch(proxy, origin.authority)
    assert not origin.requests[0].get("Via")
    with proxy.connect(source="127.0.0.3") as s:
        began = time.monotonic()
        recv_to_end(s)
        assert 0.7 < time.monotonic() - began < 4 * SLOW
    proxy.settled_sockets(sockets)
    with socks5(proxy, tcp.host, tcp.port), proxy.connect() as over:
        assert recv_to_end(over)[0] == b"", "the sixth session of this address"
    for s in held:
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"
        s.close()


def test_log_level_and_access_log_change(proxies, web, tmp_path):
    origin = web(page)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    proxy = proxies({"access_log": {"path": one}})
    assert " debug " not in proxy.log()
    fetch(proxy, origin.authority, "/1")
    accesslines.wait_lines(one, 1)      # due once the answer is out, so a little after we have it
    proxy.reload({"log_level": "debug", "access_log": {"path": two, "format": "json"}})
    fetch(proxy, origin.authority, "/2")
    wait_until(lambda: " debug " in proxy.log(), 5, "debug lines")
    accesslines.wait_lines(one, 1)
    (line,) = accesslines.wait_lines(two, 1, accesslines.parse_json)
    assert "/2" in line.request
    proxy.reload({"access_log": {"path": ""}, "log_level": "info"})
    fetch(proxy, origin.authority, "/3")
    wait_until(lambda: not any(what in (one, two) for what in proxy.fds().values()), 5, "both files are closed")
    size = len(proxy.log())
    fetch(proxy, origin.authority, "/4")
    assert " debug " not in proxy.log()[size:]


def test_acl_files_are_read_again(proxies, web, tmp_path):
    origin = web(page)
    (tmp_path / "list").write_text("/a\n")
    acl = tmp_path / "acl"
    acl.write_text("deny path @list\n")
    proxy = proxies({"acl": {"file": str(acl)}})
    assert [fetch(proxy, origin.authority, p).status for p in ("/a", "/b")] == [403, 200]
    (tmp_path / "list").write_text("/b\n")
    proxy.hup()
    assert [fetch(proxy, origin.authority, p).status for p in ("/a", "/b")] == [200, 403]


# -- listeners ----------------------------------------------------------------------------

def entry(port, **kw):
    return {"addr": "127.0.0.1", "port": port, **kw}


def test_listeners_come_and_go_and_the_kept_one_loses_nothing(proxies, origins, tmp_path):
    origin = origins(o.echo)
    kept, gone, added = free_port(), free_port(), free_port()
    sock = str(tmp_path / "sock")
    proxy = proxies(listen=[entry(kept), entry(gone)])
    proxy.port = gone
    on_gone = socks5(proxy, origin.host, origin.port)
    proxy.port = kept
    on_kept = socks5(proxy, origin.host, origin.port)
    stop = threading.Event()

    def knock():
        n = 0
        while not stop.is_set():
            with socks5(proxy, origin.host, origin.port) as s:
                s.sendall(b"x")
                assert recv_exact(s, 1) == b"x"
            n += 1
        return n
    knocking = [Background(knock) for _ in range(3)]
    for _ in range(4):
        proxy.reload({"listen": [entry(added, protocols=["socks5"]), {"addr": "unix:" + sock}, entry(kept)]})
        for port, good in ((added, True), (kept, True), (gone, False)):
            with socket.socket() as s:
                s.settimeout(5)
                assert (s.connect_ex(("127.0.0.1", port)) == 0) == good, port
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(sock)
            s.sendall(b"\x05\x01\x00")
            assert recv_exact(s, 2) == b"\x05\x00"
        proxy.reload({"listen": [entry(kept), entry(gone)]})
        assert not os.path.exists(sock), "its file goes with it"
        with socket.socket() as s:
            assert s.connect_ex(("127.0.0.1", added)) != 0
        with socket.socket() as s:
            assert s.connect_ex(("127.0.0.1", gone)) == 0
    stop.set()
    assert sum(b.result() for b in knocking) > 20
    for s in (on_gone, on_kept):
        s.sendall(b"alive")
        assert recv_exact(s, 5) == b"alive"
        s.close()


def test_options_of_a_kept_listener_change(proxies, web):
    origin = web(page)
    port = free_port()
    proxy = proxies(auth(alice="old"), listen=[entry(port, auth="none")])
    with http(proxy) as c:
        assert c.ask(get_request(origin.authority)).status == 200
        proxy.reload({"listen": [entry(port, auth="required")]})
        assert c.ask(get_request(origin.authority)).status == 407
    proxy.reload({"listen": [entry(port, protocols=["socks5"], auth="none")]})
    with proxy.connect() as s:
        s.sendall(get_request(origin.authority))
        assert recv_to_end(s)[0] == b""
    with proxy.connect() as s:
        s.sendall(b"\x05\x01\x00")
        assert recv_exact(s, 2) == b"\x05\x00"


def test_port_in_use_refuses_the_reload_whole(proxies, web, origins):
    origin, taken = web(page), origins(o.echo)
    fresh = free_port()
    proxy = proxies()
    fds = proxy.fd_count()
    said = proxy.reload({"listen": [*proxy.listen, entry(fresh), entry(taken.port)], "http": {"via": False}}, refused=True)
    assert str(taken.port) in said and "in use" in said.lower(), said
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", fresh)) != 0, "half of it was applied"
    fetch(proxy, origin.authority)
    assert origin.requests[0].get("Via"), "half of it was applied"
    wait_until(lambda: proxy.fd_count() <= fds + 2, 5, lambda: "descriptors: %s" % proxy.fds())


# -- what it refuses ------------------------------------------------------------------------

def test_bad_file_keeps_the_running_configuration_and_names_every_problem(proxies, web, tmp_path):
    origin = web(page)
    acl = tmp_path / "acl"
    acl.write_text("deny path /no\n")
    proxy = proxies({"acl": {"file": str(acl)}, **auth(alice="old")})
    good = open(proxy.config_path, encoding="utf-8").read()

    def still_serves():
        assert fetch(proxy, origin.authority, "/yes", [basic("alice", "old")]).status == 200
        assert fetch(proxy, origin.authority, "/no", [basic("alice", "old")]).status == 403
        assert fetch(proxy, origin.authority, "/yes").status == 407
    with socks5_as(proxy, "alice", "old", origin.host, origin.port) as tunnel:
        bad = "wrokers: 2\nlimits:\n  max_sessions: -1\n  idle_timeout_s: soon\nhttp: {via: perhaps}\nlisten: [{addr: nowhere}]\nlog_level: loud\n"
        said = proxy.reload(text=bad, refused=True)
        for place, word in ((":1:", "wrokers"), (":3:", "limits.max_sessions"), (":4:", "limits.idle_timeout_s"), (":5:", "http.via"),
                            (":6:", "addr"), (":7:", "log_level")):
            assert any(proxy.config_path + place in line and word in line for line in said.splitlines()), (place, said)
        still_serves()
        acl.write_text("deny path /yes\ndeny hots x\ndeny port 0\n")
        said = proxy.reload(text=good, refused=True)
        assert "%s:2:" % acl in said and "%s:3:" % acl in said, said
        still_serves()
        os.unlink(acl)
        assert str(acl) in proxy.hup(refused=True)
        still_serves()
        os.rename(proxy.config_path, proxy.config_path + ".gone")
        assert proxy.config_path in proxy.hup(refused=True)
        still_serves()
        tunnel.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert recv_exact(tunnel, 8) == b"HTTP/1.1"
    acl.write_text("deny path /yes\n")
    proxy.reload(text=good)
    assert fetch(proxy, origin.authority, "/no", [basic("alice", "old")]).status == 200


def test_access_log_that_cannot_be_opened_refuses_the_reload(proxies, web, tmp_path):
    origin = web(page)
    path = str(tmp_path / "log")
    proxy = proxies({"access_log": {"path": path}})
    said = proxy.reload({"access_log": {"path": str(tmp_path / "no" / "folder")}}, refused=True)
    assert str(tmp_path / "no" / "folder") in said
    fetch(proxy, origin.authority)
    accesslines.wait_lines(path, 1)


def test_restart_only_keys_keep_their_values_and_say_so(proxies, web, tmp_path):
    origin = web(page)
    proxy = proxies({"pid_file": str(tmp_path / "pid")})
    threads = proxy.threads()
    changed = {"workers": 3, "pin_workers": True, "backend": "epoll" if proxy.backend == "io_uring" else "io_uring", "user": "nobody",
               "group": "nogroup", "pid_file": str(tmp_path / "other"), "limits": {"tcp_pool_blocks": 64}}
    said = proxy.reload({**changed, "http": {"via": False}})
    for key in ("workers", "pin_workers", "user", "group", "pid_file", "limits.tcp_pool_blocks"):
        assert any("reload: %s has changed" % key in line and "restart" in line for line in said.splitlines()), (key, said)
    assert proxy.threads() == threads and proxy.status("Uid").split()[0] == str(os.getuid())
    assert os.path.exists(tmp_path / "pid") and not os.path.exists(tmp_path / "other")
    fetch(proxy, origin.authority)
    assert not origin.requests[0].get("Via"), "the rest applies"
    assert "restart" in proxy.hup(), "and it is said each time"
    proxy.rewrite()


def test_options_of_the_command_line_win_on_reload_too(proxies, web):
    origin = web(page)
    proxy = proxies(options=["http.via=false"])
    proxy.reload({"http": {"via": True}})
    fetch(proxy, origin.authority)
    assert not origin.requests[0].get("Via")


def test_without_a_file_it_reloads_the_defaults(proxies, origins):
    origin = origins(o.echo)
    port = free_port()
    proxy = proxies(use_file=False, port=port, options=["listen.0.addr=127.0.0.1", "listen.0.port=%d" % port, "listen.0.protocols=socks5,http",
                                                       "workers=2", "shutdown_timeout_s=1", "listen=[]"][:-1], args=["-c", os.devnull])
    proxy.hup()
    assert socks5_code(proxy, origin.host, origin.port) == 0


# -- under load ---------------------------------------------------------------------------------

@pytest.mark.limit(120)
def test_hundred_reloads_during_two_hundred_downloads(proxies, origins, web):
    """CASES 53: every sum right, and nothing of the old ones stays."""
    size = 300000
    body = pattern(5, size)
    source = origins(o.source(7, size, pause_s=0.05))

    def slow_page(_request, _conn, _stream):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
        return [head, *[part for at in range(0, size, 60000) for part in (body[at:at + 60000], 0.05)]]
    origin = web(slow_page)
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}, "acl": {"rules": ["deny host h%d.test" % i for i in range(3000)]},
                     "auth": {"users": [{"name": "u%d" % i, "pbkdf2": RECORD["old"]} for i in range(200)]}})
    import hashlib
    want = {"get": (size, hashlib.sha256(body).hexdigest()), "tunnel": (size, pattern_sha(7, size))}

    def download(number):
        if number % 3 == 0:
            r = fetch(proxy, origin.authority, timeout=60)
            return "get", (len(r.body), hashlib.sha256(r.body).hexdigest())
        with TUNNELS["socks5" if number % 3 == 1 else "connect"](proxy, source.host, source.port, timeout=60) as s:
            return "tunnel", recv_sha_to_end(s)
    count = scaled(200, 40)
    reloads = scaled(100, 20)
    numbers = iter(range(count))
    lock = threading.Lock()

    def some():
        out = []
        while True:
            with lock:
                n = next(numbers, None)
            if n is None:
                return out
            out.append(download(n))
    proxy.hup()
    baseline = proxy.fd_count()     # splice's pipes are kept for later, and no matter
    running = [Background(some) for _ in range(25)]
    rss = []
    for i in range(reloads):
        proxy.reload({"http": {"keepalive_timeout_s": 30 + i}}, timeout=20)
        rss.append(proxy.rss_kib())
    results = [r for b in running for r in b.result(90)]
    assert len(results) == count
    for kind, got in results:
        assert got == want[kind], kind
    wait_until(lambda: proxy.fd_count() - proxy.pipe_count() <= baseline, 10, lambda: "descriptors flat: %d, now %s" % (baseline, proxy.fds()))
    if not SANITIZED:       # a quarantine never gives back
        settled = rss[len(rss) // 4]
        for _ in range(20):
            proxy.hup()
        grown = proxy.rss_kib() - settled
        # each configuration is about 1 MiB here; a leak would have 75 of them
        assert grown < 12 * 1024, "RSS grew by %d KiB" % grown


def test_burst_of_signals_is_one_or_more_reloads_and_harmless(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies()
    for _ in range(200):
        proxy.signal(signal.SIGHUP)
        proxy.signal(signal.SIGUSR1)
    proxy.rewrite({"acl": {"rules": ["deny host last.test"]}})
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: socks5_code(proxy, "last.test", 1) == 2, 5, "the last configuration holds")
    assert socks5_code(proxy, origin.host, origin.port) == 0


def test_while_draining_logs_are_opened_again_and_reloads_refused(proxies, origins, tmp_path):
    origin = origins(o.echo)
    log, pid_file = tmp_path / "access.log", tmp_path / "pid"
    proxy = proxies({"shutdown_timeout_s": 20, "pid_file": str(pid_file), "access_log": {"path": str(log)}})
    with socks5(proxy, origin.host, origin.port) as s:
        proxy.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in proxy.log(), 5, "draining")
        log.rename(tmp_path / "access.log.1")
        proxy.signal(signal.SIGUSR1)
        wait_until(log.exists, 5, "the access log under its name")
        proxy.signal(signal.SIGHUP)
        wait_until(lambda: "reload refused: draining" in proxy.log(), 5, "a refused reload")
        status = (tmp_path / "pid.reload").read_text().splitlines()
        assert status[0].startswith("RELOAD 1 refused ") and "draining" in status[1] and status[-1] == "END 1", status
        proxy.signal(signal.SIGUSR2)
        wait_until(lambda: "upgrade refused: draining" in proxy.log(), 5, "a refused upgrade")
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"
    assert proxy.wait(8) == 0
    assert log.read_text().count("\n") == 1, "the session's line is in the new file"


def test_reload_during_handshakes(proxies, origins):
    """Sessions in the middle of theirs keep what they started with."""
    origin = origins(o.echo)
    proxy = proxies(auth(alice="old"))
    socks = [proxy.connect() for _ in range(10)]
    for s in socks:
        s.sendall(b"\x05\x01\x02")
        assert recv_exact(s, 2) == b"\x05\x02"
    proxy.reload(auth(bob="new"))
    from clients import socks5_read_reply, socks5_request, socks5_userpass
    for s in socks:
        with s:
            s.sendall(socks5_userpass("alice", "old"))
            assert recv_exact(s, 2) == b"\x01\x00"
            s.sendall(socks5_request(origin.host, origin.port))
            assert socks5_read_reply(s).code == 0

# SPDX-License-Identifier: ISC
"""Passwords on the wire, for SOCKS5 and HTTP (SPEC 4, 5, 6; CASES 1, 2, 17c, 23, 41)."""

import shutil
import socket
import subprocess
import threading
import time

import pytest

import origins as o
from clients import (Http, basic, connect_request, connect_status, fetch, get_request, http, is_ended, recv_exact,
                     recv_to_end, send_bytewise, socks4_read_reply, socks4_request, socks5_as, socks5_greeting,
                     socks5_login, socks5_read_reply, socks5_request, socks5_userpass)
from test_tools import netcat
from util import SLOW, Background, pattern, password_record, wait_until

ALICE = ("alice", "open sesame")
BOB = ("b\u00f6b", "p\u00e4ss:w\u00f6rd")      # UTF-8, and a colon in the password
ALL = ["socks5", "socks4", "http"]
COSTLY = 120000     # iterations of a record that --hash-password makes


def auth(**kw):
    return {"auth": {"require_password": True, "users": [
        {"name": name, "pbkdf2": password_record(password)} for name, password in (ALICE, BOB)], **kw}}


@pytest.fixture
def locked(proxies):
    return proxies(auth(), protocols=ALL)


def page(request, _conn, _stream):
    return o.ok(b"page " + request.target.encode())


# -- SOCKS5 ----------------------------------------------------------------------

@pytest.mark.parametrize("who", [ALICE, BOB], ids=["ascii", "utf-8"])
def test_right_password_opens_a_tunnel(locked, origins, who):
    origin = origins(o.echo)
    with socks5_as(locked, *who, origin.host, origin.port) as s:
        s.sendall(b"hello")
        assert recv_exact(s, 5) == b"hello"


@pytest.mark.parametrize("user,password", [
    ("alice", "wrong"), ("alice", "open sesam"), ("alice", "open sesame "), ("alice", ""), ("alic", "open sesame"),
    ("ALICE", "open sesame"), ("", ""), ("", "open sesame"), ("nobody", "x"), ("x" * 255, "y" * 255), ("alice\0", "open sesame"),
])
def test_wrong_password_is_answered_and_closed(locked, origins, user, password):
    origin = origins(o.echo)
    with locked.connect() as s:
        assert socks5_login(s, user, password) != 0
        # nothing more comes, and a request behind it is not served
        assert recv_to_end(s)[0] == b""
    assert origin.accepted == 0


@pytest.mark.parametrize("greeting,answer", [
    (b"\x05\x01\x02", b"\x05\x02"), (b"\x05\x02\x01\x02", b"\x05\x02"), (b"\x05\x02\x00\x02", b"\x05\x02"),
    (b"\x05\x01\x00", b"\x05\xff"), (b"\x05\x02\x00\x01", b"\x05\xff"), (b"\x05\x00", b"\x05\xff"),
    (b"\x05\xff" + bytes(range(255)), b"\x05\x02"),
], ids=lambda v: v.hex()[:12])
def test_method_where_a_password_is_needed(locked, greeting, answer):
    with locked.connect() as s:
        s.sendall(greeting)
        assert recv_exact(s, 2) == answer
        if answer[1] == 0xff:
            assert is_ended(s)
        else:
            s.settimeout(0.2)
            with pytest.raises(socket.timeout):
                s.recv(1)


def test_login_a_byte_at_a_time(locked, origins):
    origin = origins(o.echo)
    with locked.connect() as s:
        send_bytewise(s, socks5_greeting(2))
        assert recv_exact(s, 2) == b"\x05\x02"
        send_bytewise(s, socks5_userpass(*ALICE))
        assert recv_exact(s, 2) == b"\x01\x00"
        send_bytewise(s, socks5_request(origin.host, origin.port))
        assert socks5_read_reply(s).code == 0
        send_bytewise(s, b"payload")
        assert recv_exact(s, 7) == b"payload"


@pytest.mark.parametrize("payload", [b"p", pattern(1, 30000)], ids=["1", "30000"])
def test_greeting_login_request_and_payload_in_one_segment(locked, origins, payload):
    origin = origins(o.answer_after_fin(lambda got: b"got %d" % len(got)))
    for _ in range(2):      # the second time the password is known
        with locked.connect() as s:
            s.sendall(socks5_greeting(2) + socks5_userpass(*ALICE) + socks5_request(origin.host, origin.port) + payload)
            s.shutdown(socket.SHUT_WR)
            assert recv_exact(s, 4) == b"\x05\x02\x01\x00"
            assert socks5_read_reply(s).code == 0
            assert recv_to_end(s) == (b"got %d" % len(payload), "fin")
    assert origin.result(0) == origin.result(1) == payload


def test_wrong_password_with_a_request_behind_it_dials_nobody(locked, origins):
    origin = origins(o.echo)
    with locked.connect() as s:
        s.sendall(socks5_greeting(2) + socks5_userpass("alice", "no") + socks5_request(origin.host, origin.port) + b"x" * 5000)
        data, how = recv_to_end(s)
        assert (data[:2], data[2:3], data[3:4] != b"\0", how) == (b"\x05\x02", b"\x01", True, "fin"), data
        assert len(data) == 4
    assert origin.accepted == 0


@pytest.mark.parametrize("message", [b"\x05\x05alice\x01x", b"\x00\x00\x00", b"GET / HTTP/1.1\r\n\r\n"], ids=lambda v: v[:3].hex())
def test_login_that_is_none_is_closed(locked, message):
    with locked.connect() as s:
        s.sendall(socks5_greeting(2))
        assert recv_exact(s, 2) == b"\x05\x02"
        s.sendall(message)
        data, _ = recv_to_end(s)
        assert data == b"" or (data[:1] == b"\x01" and data[1:2] != b"\0"), data


def test_client_that_leaves_while_its_password_is_looked_at(proxies, origins):
    origin = origins(o.echo)
    proxy = proxies({"auth": {"require_password": True, "users": [
        {"name": "alice", "pbkdf2": password_record(ALICE[1], COSTLY)}]}})
    baseline = proxy.socket_count()
    for _ in range(20):
        s = proxy.connect()
        s.sendall(socks5_greeting(2) + socks5_userpass("alice", "wrong"))
        o.reset(s)
    proxy.settled_sockets(baseline)
    with socks5_as(proxy, *ALICE, origin.host, origin.port, source="127.0.0.9"):
        pass


def test_socks4_is_refused_where_a_password_is_needed(locked, origins):
    origin = origins(o.echo)
    for host in (origin.host, "localhost"):
        with locked.connect() as s:
            s.sendall(socks4_request(host, origin.port, b"alice"))
            assert socks4_read_reply(s) == 91
            assert is_ended(s)
    assert origin.accepted == 0


# -- HTTP --------------------------------------------------------------------------

def check_challenge(r, realm="ringway"):
    assert r.status == 407, r
    assert r.get("Proxy-Authenticate") == ['Basic realm="%s", charset="UTF-8"' % realm], r.fields
    assert r.first("Proxy-Status", "").startswith("ringway; error="), r.fields
    assert r.first("Content-Length") is not None and r.body, r.raw_head
    assert not r.get("WWW-Authenticate")


def test_credentials_only_after_the_407_on_the_same_connection(locked, web):
    origin = web(page)
    with http(locked) as c:
        for path in ("/1", "/2"):
            check_challenge(c.ask(get_request(origin.authority, path)))
            r = c.ask(get_request(origin.authority, path, [basic(*ALICE)]))
            assert (r.status, r.body) == (200, b"page " + path.encode())
    assert len(origin.requests) == 2
    for q in origin.requests:
        assert not q.get("Proxy-Authorization") and b"Basic" not in q.raw_head


def test_connect_with_credentials_only_after_the_407(locked, origins):
    origin = origins(o.echo)
    with http(locked) as c:
        check_challenge(c.ask(connect_request(origin.authority), method="CONNECT"))
        check_challenge(c.ask(connect_request(origin.authority, [basic("alice", "no")]), method="CONNECT"))
        assert c.ask(connect_request(origin.authority, [basic(*BOB)]), method="CONNECT").status == 200
        c.send(b"through")
        assert c.stream.exactly(7) == b"through"


@pytest.mark.parametrize("field", [
    basic("alice", "wrong"), basic("nobody", "open sesame"), basic("", ""), "Proxy-Authorization: Basic", "Proxy-Authorization:",
    "Proxy-Authorization: Basic !!!!", "Proxy-Authorization: Basic YWxpY2U=", "Proxy-Authorization: Bearer YWxpY2U6b3Blbg==",
    "Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU=", "Proxy-Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU", "X: y",
], ids=lambda f: f[:45])
def test_anything_but_the_right_credentials_is_407(locked, web, field):
    origin = web(page)
    check_challenge(fetch(locked, origin.authority, fields=[field]))
    check_challenge(connect_status(locked, origin.authority, fields=[field]))
    assert not origin.requests


def test_scheme_is_case_insensitive(locked, web):
    origin = web(page)
    field = basic(*ALICE).replace("Basic", "bASIC")
    assert fetch(locked, origin.authority, fields=[field]).status == 200


def test_each_request_of_a_connection_needs_them(locked, web):
    """CASES 23: a password said once does not cover the next request."""
    origin = web(page)
    with http(locked) as c:
        assert c.ask(get_request(origin.authority, "/a", [basic(*ALICE)])).status == 200
        check_challenge(c.ask(get_request(origin.authority, "/b")))
        check_challenge(c.ask(get_request(origin.authority, "/c", [basic("alice", "no")])))
        assert c.ask(get_request(origin.authority, "/d", [basic(*BOB)])).status == 200
    assert [q.target for q in origin.requests] == ["/a", "/d"]


def test_pipelined_requests_are_answered_in_order(locked, web):
    origin = web(page)
    with http(locked) as c:
        c.send(get_request(origin.authority, "/1", [basic(*ALICE)]), get_request(origin.authority, "/2"),
               get_request(origin.authority, "/3", [basic(*BOB)]))
        assert [c.read().status for _ in range(3)] == [200, 407, 200]
    assert [q.target for q in origin.requests] == ["/1", "/3"]


def test_head_and_http10_get_a_407_too(locked, web):
    origin = web(page)
    with http(locked) as c:
        r = c.ask(get_request(origin.authority, method="HEAD"), method="HEAD")
        assert r.status == 407 and r.get("Proxy-Authenticate")
        assert c.ask(get_request(origin.authority, "/x", [basic(*ALICE)])).body == b"page /x"
    with http(locked) as c:
        check_challenge(c.ask(get_request(origin.authority, version="HTTP/1.0")))
        assert c.ended()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_client_that_sends_a_mebibyte_reads_the_407(locked, web, chunked):
    """CASES 17c."""
    origin = web(page)
    body = pattern(3, 1 << 20)
    if chunked:
        fields, data = ["Transfer-Encoding: chunked"], b"100000\r\n" + body + b"\r\n0\r\n\r\n"
    else:
        fields, data = ["Content-Length: %d" % len(body)], body
    for _ in range(3):
        with http(locked) as c:
            c.send(get_request(origin.authority, "/", fields, "POST"))
            sender = Background(c.sock.sendall, data)
            check_challenge(c.read())
            try:
                sender.result(10)
            except OSError:
                pass        # closed behind the answer, which was read
    assert not origin.requests


def test_upload_with_the_right_password(locked, web):
    origin = web(page)
    body = pattern(4, 1 << 20)
    assert fetch(locked, origin.authority, "/up", [basic(*ALICE)], "POST", body).status == 200
    assert origin.requests[0].body == body and not origin.requests[0].get("Proxy-Authorization")


def test_realm_is_shown_and_quoted(proxies, web):
    proxy = proxies(auth(realm='The "inner" \\ net'))
    origin = web(page)
    check_challenge(fetch(proxy, origin.authority), 'The \\"inner\\" \\\\ net')


# -- who is asked, who is known --------------------------------------------------------

def test_listener_auth_inherit_required_none(proxies, origins, web):
    from util import free_port
    tcp, origin = origins(o.echo), web(page)
    for require in (True, False):
        listen = [{"addr": "127.0.0.1", "port": free_port(), "auth": mode, "protocols": ALL} for mode in ("inherit", "required", "none")]
        proxy = proxies({"auth": {**auth()["auth"], "require_password": require}}, listen=listen)
        for entry in listen:
            proxy.port = entry["port"]
            asks = entry["auth"] == "required" or (entry["auth"] == "inherit" and require)
            with proxy.connect() as s:
                s.sendall(socks5_greeting(0, 2))
                assert recv_exact(s, 2) == (b"\x05\x02" if asks else b"\x05\x00"), (require, entry)
            with proxy.connect() as s:
                s.sendall(socks4_request(tcp.host, tcp.port))
                assert socks4_read_reply(s) == (91 if asks else 90)
            assert fetch(proxy, origin.authority).status == (407 if asks else 200)
            # credentials that nobody asked for are no error, and stay here
            assert fetch(proxy, origin.authority, fields=[basic(*ALICE)]).status == 200
            assert not origin.requests[-1].get("Proxy-Authorization")
        proxy.stop()


def test_users_file(proxies, web, tmp_path):
    origin = web(page)
    path = tmp_path / "users"
    path.write_text("# people\n\ncarol:%s\n%s:%s\n" % (password_record("c"), "d\u00e4ve", password_record("d:d")), encoding="utf-8")
    path.chmod(0o600)
    proxy = proxies(auth(users_file=str(path)))
    for who, status in ((("carol", "c"), 200), (("d\u00e4ve", "d:d"), 200), (ALICE, 200), (("carol", "x"), 407), (("# people", ""), 407)):
        assert fetch(proxy, origin.authority, fields=[basic(*who)]).status == status, who
    path.write_text("carol:%s\n" % password_record("new"), encoding="utf-8")
    proxy.hup()
    for who, status in ((("carol", "new"), 200), (("carol", "c"), 407), (("d\u00e4ve", "d:d"), 407)):
        assert fetch(proxy, origin.authority, fields=[basic(*who)]).status == status, who


def test_bad_users_refuse_the_start_and_are_all_named(proxies, tmp_path):
    path = tmp_path / "users"
    path.write_text("carol:%s\nnocolon\ndave:md5$1$x$y\ncarol:%s\n" % (password_record("c"), password_record("d")))
    path.chmod(0o600)
    proxy = proxies({"auth": {"require_password": True, "users_file": str(path), "users": [{"name": "eve", "pbkdf2": "sha256$5$a$b"}]}},
                    start=False)
    proxy.start(wait=False)
    assert proxy.wait() == 1
    proxy.returncode = 0
    for place in ("%s:2:" % path, "%s:3:" % path, "%s:4:" % path, "auth.users"):
        assert place in proxy.log(), proxy.log()


def test_hash_password_makes_records_that_work(proxies, web):
    from proxy import run
    done = run("--hash-password", "s3cret \u00fc")
    assert done.returncode == 0
    kind, iterations, _salt, _hash = done.out.strip().split("$")
    assert (kind, iterations) == ("sha256", "120000"), done.out
    again = run("--hash-password", "s3cret \u00fc")
    assert again.out != done.out, "a salt of its own"
    origin = web(page)
    proxy = proxies({"auth": {"require_password": True, "users": [{"name": "eve", "pbkdf2": done.out.strip()}]}})
    assert fetch(proxy, origin.authority, fields=[basic("eve", "s3cret \u00fc")]).status == 200
    assert fetch(proxy, origin.authority, fields=[basic("eve", "s3cret u")]).status == 407


def test_hash_password_reads_one_line(tmp_path):
    from proxy import run
    path = tmp_path / "in"
    for text, code in (("a line\nanother\n", 0), ("no newline", 0), ("\n", 1), ("", 1)):
        path.write_text(text)
        with open(path, "rb") as f:
            done = run("--hash-password", stdin=f)
        assert done.returncode == code, (text, done)
        if code == 0:
            line = text.split("\n")[0]
            _, n, salt, _ = done.out.strip().split("$")
            import base64
            assert done.out.strip() == password_record(line, int(n), base64.b64decode(salt))
        else:
            assert done.err.strip() and not done.out.strip()


# -- throttling -------------------------------------------------------------------------

def guess(proxy, source=None, password="wrong"):
    """The status byte of one wrong login."""
    with proxy.connect(source=source) as s:
        return socks5_login(s, "alice", password)


def test_source_is_throttled_and_others_are_not(proxies, web, origins):
    origin, tcp = web(page), origins(o.echo)
    proxy = proxies(auth(failures_per_minute=5))
    for i in range(5):
        assert guess(proxy, "127.0.0.2", "wrong%d" % i) != 0
    # over it: even the right password is refused, by both protocols
    assert guess(proxy, "127.0.0.2", ALICE[1]) != 0
    with http(proxy, source="127.0.0.2") as c:
        assert c.ask(get_request(origin.authority, fields=[basic(*ALICE)])).status in (407, 429, 503)
    # but the others are not, and one that is wrong itself has its own count
    for source in ("127.0.0.3", "127.0.0.4"):
        assert guess(proxy, source) != 0
        with socks5_as(proxy, *ALICE, tcp.host, tcp.port, source=source):
            pass
        with http(proxy, source=source) as c:
            assert c.ask(get_request(origin.authority, fields=[basic(*ALICE)])).status == 200
    assert "wrong" not in proxy.log() or "password" in proxy.log()
    assert ALICE[1] not in proxy.log()


def test_failures_per_minute_zero_is_no_limit(proxies, origins):
    tcp = origins(o.echo)
    proxy = proxies(auth(failures_per_minute=0))
    for i in range(40):
        assert guess(proxy, None, "wrong%d" % i) != 0
    with socks5_as(proxy, *ALICE, tcp.host, tcp.port):
        pass


def test_right_passwords_are_never_throttled(proxies, origins):
    tcp = origins(o.echo)
    proxy = proxies(auth(failures_per_minute=3))
    for _ in range(20):
        with socks5_as(proxy, *ALICE, tcp.host, tcp.port):
            pass


@pytest.mark.parametrize("limit", [20, 0], ids=["throttled", "each-hashed"])
def test_workers_stay_responsive_under_two_hundred_wrong_passwords_a_second(proxies, origins, limit, capsys):
    """CASES 41.  Even with every one of them hashed at full price."""
    origin = origins(o.echo)
    proxy = proxies({"auth": {"require_password": True, "failures_per_minute": limit, "users": [
        {"name": name, "pbkdf2": password_record(ALICE[1], COSTLY)} for name in ("alice", "newcomer")]},
        "limits": {"max_sessions_per_ip": 0}})
    stop = threading.Event()
    sent = [0]

    def flood():
        socks, began = [], time.monotonic()
        while not stop.is_set():
            time.sleep(max(0, began + sent[0] / 200 - time.monotonic()))
            try:
                s = proxy.connect(source="127.0.0.66")
                s.sendall(socks5_greeting(2) + socks5_userpass("alice" if sent[0] % 2 else "nobody", "wrong%d" % sent[0]))
                socks.append(s)
            except OSError:
                pass
            sent[0] += 1
            while len(socks) > 400:
                socks.pop(0).close()
        for s in socks:
            s.close()
    tunnels = [socks5_as(proxy, *ALICE, origin.host, origin.port) for _ in range(4)]
    flooder = Background(flood)
    latencies, began = [], time.monotonic()
    try:
        while time.monotonic() - began < 2.0:
            for s in tunnels:
                t = time.monotonic()
                s.sendall(b"ping")
                assert recv_exact(s, 4) == b"ping"
                latencies.append(time.monotonic() - t)
            time.sleep(0.005)
        t = time.monotonic()
        with socks5_as(proxy, "newcomer", ALICE[1], origin.host, origin.port, timeout=20):
            login = time.monotonic() - t
    finally:
        stop.set()
        for s in tunnels:
            s.close()
    flooder.result()
    latencies.sort()
    median, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    with capsys.disabled():
        print("\n  %s: %d wrong passwords in 2 s (limit %d a minute): ping median %.2f ms, p99 %.2f ms, worst %.2f ms; "
              "login of another address %.0f ms " % (proxy.backend, sent[0], limit, median * 1e3, p99 * 1e3,
                                                     latencies[-1] * 1e3, login * 1e3), end="")
    assert sent[0] > 100
    assert median < 0.05 * SLOW and p99 < 0.25 * SLOW and latencies[-1] < 1.0 * SLOW
    assert login < 5 * SLOW


def test_unknown_users_cost_what_known_ones_cost(proxies):
    proxy = proxies({"workers": 1, "auth": {"require_password": True, "failures_per_minute": 0, "users": [
        {"name": "alice", "pbkdf2": password_record(ALICE[1], COSTLY)}]}})

    def cost(user, n=4):
        before = time.monotonic()
        for i in range(n):
            with proxy.connect() as s:
                assert socks5_login(s, user, "wrong%d%s" % (i, time.monotonic())) != 0
        return time.monotonic() - before
    cost("warm")
    known, unknown = min(cost("alice") for _ in range(3)), min(cost("mallory") for _ in range(3))
    assert 0.5 < known / unknown < 2, (known, unknown)


# -- programs that people use --------------------------------------------------------------

@pytest.mark.parametrize("way", ["http", "tunnel", "socks5", "socks5h"])
def test_curl_with_a_password(locked, web, way):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    origin = web(page)

    def curl(user, *more):
        at = "%s://127.0.0.1:%d" % ("http" if way == "tunnel" else way, locked.port)
        done = subprocess.run(["curl", "-sS", "-m", "20", "--noproxy", "", "-x", at, "-U", user, *(["-p"] if way == "tunnel" else []),
                               *more, "-w", " %{http_code} %{http_connect}", "http://%s/x" % origin.authority],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30 * SLOW)
        return done.returncode, done.stdout
    assert curl("%s:%s" % ALICE)[1].startswith(b"page /x 200")
    assert curl("%s:%s" % BOB)[1].startswith(b"page /x 200")
    if way in ("http", "tunnel"):
        # asks without, then with, on one connection
        assert curl("%s:%s" % ALICE, "--proxy-anyauth")[1].startswith(b"page /x 200")
    code, out = curl("alice:wrong")
    assert (b"407" in out) if way == "http" else code in (56, 97), (code, out)
    for q in origin.requests:
        assert b"Proxy-" not in q.raw_head


def test_netcat_is_asked_for_a_password_it_cannot_send(locked, origins):
    """OpenBSD's nc knows user names for CONNECT alone (-P) and asks for the
    password on a terminal: here it must fail, not hang or get through."""
    origin = origins(o.echo)
    for protocol in ("5", "4"):
        done = subprocess.run([netcat(), "-N", "-w", "5", "-X", protocol, "-P", "alice", "-x", "127.0.0.1:%d" % locked.port,
                               origin.host, str(origin.port)], input=b"hello", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=20 * SLOW)
        assert done.returncode != 0 and done.stdout == b"", done
    assert origin.accepted == 0


def test_netcat_connect_with_a_password_on_its_terminal(locked, origins):
    """nc -X connect -P asks on /dev/tty: it gets one."""
    import os
    import pty
    origin = origins(o.answer_after_fin(lambda got: b"<" + got + b">"))
    nc = netcat()
    master, slave = pty.openpty()
    inp, out = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(os.open(os.ttyname(slave), os.O_RDWR))     # becomes the controlling terminal
            os.dup2(inp[0], 0)
            os.dup2(out[1], 1)
            os.closerange(3, 1024)
            os.execv(nc, [nc, "-N", "-w", "10", "-X", "connect", "-P", "alice", "-x", "127.0.0.1:%d" % locked.port, origin.host,
                          str(origin.port)])
        finally:
            os._exit(127)
    try:
        os.close(inp[0])
        os.close(out[1])
        prompt = b""
        while b"assword" not in prompt:
            prompt += os.read(master, 1000)
        os.write(master, ALICE[1].encode() + b"\n")
        os.write(inp[1], b"hello")
        os.close(inp[1])
        got = b""
        while True:
            data = os.read(out[0], 1000)
            if not data:
                break
            got += data
        assert got == b"<hello>", got
    finally:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)
        for fd in (master, slave, out[0]):
            os.close(fd)


def test_reset_during_an_http_login_leaves_nothing(proxies, web):
    origin = web(page)
    proxy = proxies({"auth": {"require_password": True, "users": [{"name": "alice", "pbkdf2": password_record(ALICE[1], COSTLY)}]}})
    baseline = proxy.socket_count()
    for i in range(20):
        c = Http(proxy.connect())
        c.send(get_request(origin.authority, fields=[basic("alice", "wrong%d" % i)]))
        if i % 2:
            o.reset(c.sock)
        else:
            c.sock.close()
    proxy.settled_sockets(baseline)
    wait_until(lambda: proxy.alive(), 1)
    with http(proxy, source="127.0.0.7") as c:
        assert c.ask(get_request(origin.authority, fields=[basic(*ALICE)])).status == 200

# SPDX-License-Identifier: ISC
"""The access log: exactly the form of SPEC 13.2, one line a request or tunnel,
whatever came of it; rotation and a full disk (CASES 17)."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

import origins as o
from accesslines import parse_json, parse_text, read, wait_lines
from clients import (basic, connect_request, connect_status, fetch, get_request, http, http_connect, recv_exact, recv_to_end,
                     socks4, socks5, socks5_as, socks5_code, socks5_login)
from util import SLOW, Background, free_port, password_record, wait_until

ALL = ["socks5", "socks4", "http"]


def page(request, _conn, _stream):
    return o.ok(b"page")


@pytest.fixture
def logged(proxies, tmp_path):
    """logged(config, format="text") -> a proxy and the path of its access log."""
    def make(config=None, **kw):
        path = tmp_path / ("access%d.log" % len(os.listdir(tmp_path)))
        keys = {k: kw.pop(k) for k in ("format", "flush_ms", "buffer", "immediate") if k in kw}
        config = dict(config or {})
        config["access_log"] = {"path": str(path), **keys}
        return proxies({"workers": 1, **config}, protocols=ALL, **kw), str(path)
    return make


# -- each kind of line ------------------------------------------------------------------

def test_forwarded_request(logged, web):
    origin = web(page)
    proxy, path = logged()
    before = time.time()
    fetch(proxy, origin.authority, "/resource/1?q=a%20b", method="POST", body=b"12345")
    (line,) = wait_lines(path, 1)
    assert line.request == "POST http://%s/resource/1?q=a%%20b HTTP/1.1" % origin.authority \
        or line.request == "POST /resource/1?q=a%20b HTTP/1.1", line
    assert (line.client, line.host, line.upstream) == ("127.0.0.1", origin.authority, origin.authority)
    assert (line.status, line.bytes, line.up, line.acl, line.rule) == (200, 4, 5, "ALLOW", "default")
    assert (line.user, line.proto) == (None, "http") and line.id > 0 and 0 < line.dur_us < 5e6 * SLOW
    import calendar
    stamp = calendar.timegm(time.strptime(line.time[:19], "%Y-%m-%dT%H:%M:%S"))
    assert before - 2 <= stamp <= time.time() + 1


def test_tunnels_of_each_protocol(logged, origins):
    origin = origins(o.echo)
    proxy, path = logged()
    where = (origin.host, origin.port)
    for n, (open_tunnel, request, status, proto) in enumerate((
            (socks5, "CONNECT %s:%d SOCKS5", 0, "socks5"), (socks4, "CONNECT %s:%d SOCKS4", 90, "socks4"),
            (http_connect, "CONNECT %s:%d HTTP/1.1", 200, "connect"))):
        with open_tunnel(proxy, *where) as s:
            s.sendall(b"x" * 1000)
            recv_exact(s, 1000)
            s.shutdown(socket.SHUT_WR)
            recv_to_end(s)
        line = wait_lines(path, n + 1)[n]
        assert line.request == request % where and (line.status, line.proto) == (status, proto), line
        assert (line.bytes, line.up) == (1000, 1000) and line.host == line.upstream == "%s:%d" % where
        assert (line.acl, line.rule) == ("ALLOW", "default")


def test_failed_connects_have_a_line(logged, dns):
    proxy, path = logged({"resolver": {"servers": [dns.address]}})
    port = free_port()
    assert socks5_code(proxy, "127.0.0.1", port) == 5
    assert connect_status(proxy, "127.0.0.1:%d" % port).status == 502
    assert fetch(proxy, "127.0.0.1:%d" % port).status == 502
    assert fetch(proxy, "nosuch.test").status == 502
    lines = wait_lines(path, 4)
    assert [e.status for e in lines] == [5, 502, 502, 502]
    assert [e.bytes for e in lines[:2]] == [0, 0]
    assert lines[0].host == "127.0.0.1:%d" % port and lines[3].host.startswith("nosuch.test") and lines[3].upstream is None


def test_denials_have_a_line_with_their_cause(logged, origins):
    origin = origins(o.echo)
    record = password_record("pw")
    proxy, path = logged({"auth": {"require_password": True, "users": [{"name": "al ice", "pbkdf2": record}]},
                          "acl": {"rules": ["deny   host  denied.test"]}})
    assert fetch(proxy, "denied.test").status == 407
    assert fetch(proxy, "denied.test", fields=[basic("al ice", "no")]).status == 407
    assert fetch(proxy, "denied.test", fields=[basic("al ice", "pw")]).status == 403
    assert connect_status(proxy, "denied.test:443", fields=[basic("al ice", "pw")]).status == 403
    with proxy.connect() as s:
        assert socks5_login(s, "mallory", "x") != 0
        recv_to_end(s)
    with socks5_as(proxy, "al ice", "pw", origin.host, origin.port):
        pass
    lines = wait_lines(path, 6)
    assert [e.status for e in lines[:4]] == [407, 407, 403, 403]
    assert [e.acl for e in lines[2:4]] == ["DENY", "DENY"] and [e.rule for e in lines[2:4]] == ["deny host denied.test"] * 2
    assert [e.user for e in lines[2:4]] == ["al\\x20ice"] * 2 and lines[5].user == "al\\x20ice"
    assert all(e.rule != "default" for e in lines[:2]) and lines[4].status != 0 and lines[4].rule == "password"


def test_source_that_is_not_listed_has_a_line(logged):
    proxy, path = logged({"auth": {"whitelist": ["127.0.0.1"]}})
    with proxy.connect(source="127.0.0.77") as s:
        recv_to_end(s)
    (line,) = wait_lines(path, 1)
    assert (line.client, line.request, line.host, line.upstream, line.rule) == ("127.0.0.77", None, None, None, "whitelist")
    assert line.acl != "ALLOW"


@pytest.mark.parametrize("raw,status", [
    (b"NONSENSE\r\n\r\n", 400), (b"GET http://a/ HTTP/1.1\r\nHost : a\r\n\r\n", 400), (b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 501), (b"GET http://a/ HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"GET http://a/" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", 414), (b"GET http://a/ HTTP/1.1\r\nX: " + b"x" * 70000 + b"\r\n\r\n", 431),
    (b"\x05\x00", None), (b"\x05\x01\x00\x05\x01\x00\x07\x7f\0\0\x01\0\x50", None), (b"\x16\x03\x01\x02\x00", None),
], ids=lambda v: v[:14].decode("latin-1") if isinstance(v, bytes) else str(v))
def test_malformed_input_has_exactly_one_line(logged, raw, status):
    proxy, path = logged()
    with proxy.connect() as s:
        s.sendall(raw)
        s.shutdown(socket.SHUT_WR)
        answer = recv_to_end(s)
    proxy.stop()
    lines = read(path)
    assert len(lines) == 1, (answer, proxy.log())
    line = lines[0]
    assert status is None or line.status == status, line
    assert line.acl != "ALLOW" and line.rule not in (None, "default"), line
    assert os.path.getsize(path) < 20000, "long targets are cut"


def test_keep_alive_has_a_line_a_request(logged, web):
    origin = web(page)
    proxy, path = logged()
    with http(proxy) as c:
        for i in range(5):
            assert c.ask(get_request(origin.authority, "/%d" % i)).status == 200
    lines = wait_lines(path, 5)
    assert [re.search(r"/(\d) HTTP", e.request).group(1) for e in lines] == list("01234")
    assert len({e.id for e in lines}) == 1, "one session"


def test_cut_answers_and_clients_that_left_have_a_line(logged, web, origins):
    origin = web(lambda *_: [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n12345", o.Close])
    proxy, path = logged()
    fetch(proxy, origin.authority)
    (line,) = wait_lines(path, 1)
    assert (line.status, line.bytes) == (200, 5)
    silent = origins(o.silent)
    with http(proxy) as c:
        c.send(get_request(silent.authority))
        wait_until(lambda: silent.accepted == 1, 5, "it arrived")
        o.reset(c.sock)
    assert wait_lines(path, 2)[1].upstream == silent.authority


def test_clients_that_say_nothing_have_none(logged):
    proxy, path = logged()
    for _ in range(5):
        proxy.connect().close()
    proxy.stop()
    assert read(path) == []


# -- escaping ---------------------------------------------------------------------------------

HOSTILE = b"\x1b]0;x\x07\"\\ \x7f\x80\xff\xc2\x9b\n2026-01-01T00:00:00.000Z 6.6.6.6 \"GET /fake\" status=200"


@pytest.mark.parametrize("form,parse", [("text", parse_text), ("json", parse_json)])
def test_hostile_bytes_cannot_break_a_line(logged, form, parse):
    proxy, path = logged({"resolver": {"servers": ["127.0.0.1:9"], "timeout_ms": 50, "attempts": 1}}, format=form)
    sent = [b"GET " + HOSTILE.replace(b"\n", b"") + b" HTTP/1.1\r\n\r\n", b"GET http://a/" + HOSTILE + b" HTTP/1.1\r\n\r\n",
            b"\x1b[31m evil\r\n\r\n", b"G\"T /\\x0a HTTP/1.1\r\n\r\n", b"GET http://a\"b/ HTTP/1.1\r\nHost: x\"y\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b=\"c\" status=200\r\n\r\n", b"-\r\n\r\n"]
    count = 0
    for raw in sent:
        with proxy.connect() as s:
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            recv_to_end(s)
        count += 1
    name = HOSTILE[:80]
    with proxy.connect() as s:
        s.sendall(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\0\x50")
        recv_to_end(s)
    proxy.stop()
    with open(path, "rb") as f:
        data = f.read()
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", data), data
    lines = read(path, parse)
    assert count <= len(lines) <= count + 1
    assert not any(e.client == "6.6.6.6" for e in lines)


def test_user_of_the_name_dash_is_not_nobody(logged, web):
    origin = web(page)
    proxy, path = logged({"auth": {"require_password": True, "users": [{"name": "-", "pbkdf2": password_record("x")}]}})
    assert fetch(proxy, origin.authority, fields=[basic("-", "x")]).status == 200
    (line,) = wait_lines(path, 1)
    assert line.user == "\\x2d"


# -- JSON ----------------------------------------------------------------------------------------

def test_json_has_the_same_fields(logged, web, origins):
    origin, tcp = web(page), origins(o.echo)
    record = password_record("pw")

    def play(proxy):
        fetch(proxy, origin.authority, "/a")
        fetch(proxy, origin.authority, "/b", [basic("alice", "pw")])
        with socks5_as(proxy, "alice", "pw", tcp.host, tcp.port) as s:
            s.sendall(b"xyz")
            recv_exact(s, 3)
            s.shutdown(socket.SHUT_WR)
            recv_to_end(s)
        with proxy.connect() as s:
            s.sendall(b"NONSENSE \"\\\r\n\r\n")
            recv_to_end(s)
        with proxy.connect(source="127.0.0.8") as s:
            recv_to_end(s)
    seen = []
    for form, parse in (("text", parse_text), ("json", parse_json)):
        proxy, path = logged({"auth": {"require_password": True, "whitelist": ["127.0.0.1"],
                                       "users": [{"name": "alice", "pbkdf2": record}]}}, format=form)
        play(proxy)
        seen.append(wait_lines(path, 5, parse))
        proxy.stop()
    for text, json in zip(*seen):
        for key in text:
            if key == "request" and text.request and "NONSENSE" in text.request:
                assert json.request == 'NONSENSE "\\' and text.request == "NONSENSE \\x22\\x5c"
            elif key not in ("time", "dur_us"):
                assert text[key] == json[key], (key, text, json)


# -- when it is written ----------------------------------------------------------------------------

def test_off_by_default_and_standard_output(proxies, web, tmp_path):
    origin = web(page)
    proxy = proxies()
    fetch(proxy, origin.authority)
    assert not any("access" in what for what in proxy.fds().values())
    out = proxies({"access_log": {"path": "-"}}, name="out")
    fetch(out, origin.authority, "/to-stdout")
    wait_until(lambda: " \"GET " in out.log() and "/to-stdout" in out.log(), 5, "a line on standard output")
    line = [raw for raw in out.log().splitlines() if "/to-stdout" in raw]
    parse_text(line[0].encode())


def test_flush_ms_and_immediate(logged, web):
    origin = web(page)

    def delay(**kw):
        proxy, path = logged(**kw)
        fetch(proxy, origin.authority)
        began = time.monotonic()
        wait_until(lambda: os.path.getsize(path) > 0, 5, "a line", every=0.005)
        return time.monotonic() - began
    # Earlier is allowed, as when the writer is just awake; always earlier would be no buffer.
    assert any(delay(flush_ms=1500) > 0.7 for _ in range(3))
    assert delay(flush_ms=20) < 0.6 * SLOW
    assert delay(flush_ms=5000, immediate=True) < 0.5 * SLOW


def test_full_buffer_is_written_before_flush_ms(logged, web):
    origin = web(page)
    proxy, path = logged(flush_ms=30000, buffer=4096)
    with http(proxy) as c:
        for _ in range(60):
            c.ask(get_request(origin.authority, "/" + "x" * 200))
    wait_until(lambda: os.path.getsize(path) >= 4096, 5, "written when the buffer is full")
    proxy.stop()
    assert len(read(path)) == 60, "and the rest at the end"
    big, path2 = logged(flush_ms=30000, buffer=1 << 20)
    with http(big) as c:
        for _ in range(60):
            c.ask(get_request(origin.authority, "/" + "x" * 200))
    time.sleep(0.2)
    assert os.path.getsize(path2) == 0, "a large one holds them"


def test_lines_in_the_buffer_are_written_at_the_end(logged, web):
    origin = web(page)
    proxy, path = logged(flush_ms=60000)
    for _ in range(10):
        fetch(proxy, origin.authority)
    proxy.stop()
    assert len(read(path)) == 10


# -- CASES 17 -----------------------------------------------------------------------------------------

def test_rotation_under_load_loses_and_halves_no_line(proxies, web, tmp_path):
    origin = web(page)
    path = str(tmp_path / "access.log")
    proxy = proxies({"access_log": {"path": path, "flush_ms": 5}})
    stop = threading.Event()

    def client(number):
        n = 0
        with http(proxy) as c:
            while not stop.is_set():
                assert c.ask(get_request(origin.authority, "/%d-%d" % (number, n))).status == 200
                n += 1
        return n
    running = [Background(client, i) for i in range(4)]
    rotated = []
    for i in range(12):
        time.sleep(0.1)
        old = path + ".%d" % i
        os.rename(path, old)
        rotated.append(old)
        proxy.signal(signal.SIGUSR1)
        wait_until(lambda: os.path.exists(path), 5, "the new file", every=0.005)
    stop.set()
    counts = [b.result() for b in running]
    proxy.stop()
    paths = [re.search(r"/(\d+-\d+) HTTP", e.request).group(1) for name in [*rotated, path] for e in read(name)]
    assert sorted(paths) == sorted("%d-%d" % (i, n) for i, count in enumerate(counts) for n in range(count))
    assert sum(1 for name in rotated if os.path.getsize(name)) > 6, "the load was there"


def test_reopen_that_fails_keeps_the_old_file_and_says_so(proxies, web, tmp_path):
    origin = web(page)
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "access.log"
    proxy = proxies({"access_log": {"path": str(path)}})
    fetch(proxy, origin.authority, "/1")
    wait_lines(path, 1)
    folder.rename(tmp_path / "moved")
    proxy.signal(signal.SIGUSR1)
    wait_until(lambda: "access log" in proxy.log() and "error" in proxy.log(), 5, "the error is told")
    fetch(proxy, origin.authority, "/2")
    wait_lines(tmp_path / "moved" / "access.log", 2)


def own_mounts():
    """preexec: a mount namespace of its own with a tmpfs of 64 KiB on `full`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) != 0 or libc.mount(b"none", b"/", None, (1 << 18) | 16384, None) != 0:
        os._exit(126)
    if libc.mount(b"tmpfs", os.path.join(os.getcwd(), "full").encode(), b"tmpfs", 0, b"size=64k") != 0:
        os._exit(126)


def test_full_disk_drops_whole_lines_and_the_proxy_goes_on(proxies, web, tmp_path):
    (tmp_path / "full").mkdir()
    if subprocess.run(["true"], preexec_fn=own_mounts, cwd=str(tmp_path)).returncode != 0:
        pytest.skip("no mount namespace of our own")
    origin = web(page)
    path = str(tmp_path / "full" / "access.log")
    proxy = proxies({"access_log": {"path": path, "flush_ms": 5}}, preexec=own_mounts)
    seen = "/proc/%d/root%s" % (proxy.pid, path)
    with http(proxy) as c:
        for _ in range(600):
            assert c.ask(get_request(origin.authority, "/" + "x" * 100)).status == 200
    wait_until(lambda: os.path.getsize(seen) > 60000, 5, "full")
    wait_until(lambda: "access log" in proxy.log(), 5, "it is told")
    with open(seen, "rb") as f:
        data = f.read()
    assert data.endswith(b"\n") and len([parse_text(raw) for raw in data.splitlines()]) < 600
    # room again: it goes on with whole lines
    os.truncate(seen, 0)
    for i in range(5):
        assert fetch(proxy, origin.authority, "/after-%d" % i).status == 200
    wait_until(lambda: os.path.exists(seen) and b"/after-4" in open(seen, "rb").read(), 5, "it writes again")
    for raw in open(seen, "rb").read().splitlines():
        parse_text(raw)
    log = [line for line in proxy.log().splitlines() if "access log" in line]
    assert len(log) < 60, "rate-limited"


def test_nobody_reads_the_pipe_and_the_proxy_goes_on(proxies, web, tmp_path):
    origin = web(page)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        proxy = proxies({"access_log": {"path": str(fifo), "flush_ms": 5, "buffer": 4096}})
        with http(proxy) as c:
            for _ in range(1500):
                assert c.ask(get_request(origin.authority, "/" + "x" * 100)).status == 200
        proxy.stop()
    finally:
        os.close(reader)

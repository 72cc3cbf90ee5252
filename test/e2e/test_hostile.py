# SPDX-License-Identifier: ISC
"""What attackers and newcomers found: each kind of fault has its case here."""
import os
import re
import socket
import struct
import time

import pytest

import origins as o
from util import free_port, wait_until


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def test_idle_timeout_shorter_than_the_upstreams_ends_a_stuck_upload(proxies, origins):
    origin = origins(o.silent)
    proxy = proxies({"limits": {"idle_timeout_s": 1}})
    with proxy.connect() as s:
        s.settimeout(15)
        start = time.monotonic()
        s.sendall(b"POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc" % origin.authority.encode())
        assert s.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - start < 10


def test_pipelining_client_that_resets_frees_its_exchange(proxies, origins):
    origin = origins(o.silent)
    proxy = proxies()
    before = proxy.socket_count()
    s = proxy.connect()
    one = b"GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n" % origin.authority.encode()
    s.sendall(one + one)
    wait_until(lambda: proxy.socket_count() >= before + 2, 5, "an exchange under way")
    reset(s)
    proxy.settled_sockets(before)


def test_pipelined_connect_behind_a_request_is_served(proxies, web, origins):
    """The watch on a client that pipelines must not be armed when the stream is handed over."""
    origin, echo = web(o.always(o.ok(b"hello"))), origins(o.echo)
    proxy = proxies()
    with proxy.connect() as s:
        s.settimeout(10)
        s.sendall(b"GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n" % origin.authority.encode() +
                  b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nearly" % echo.authority.encode())
        got = b""
        while not got.endswith(b"early"):
            data = s.recv(4096)
            assert data, got
            got += data
        assert got.count(b"HTTP/1.1 200") == 2


def test_first_heads_time_runs_from_accept(proxies):
    proxy = proxies({"limits": {"handshake_timeout_s": 2}})
    with proxy.connect() as s:
        s.settimeout(10)
        start = time.monotonic()
        time.sleep(1.5)
        s.sendall(b"GET http://a/ HT")
        assert s.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - start < 3.2


def test_unix_path_that_is_not_ours_any_more_stays(proxies, tmp_path):
    path = str(tmp_path / "s")
    proxy = proxies(listen=[{"addr": "127.0.0.1", "port": free_port()}, {"addr": "unix:" + path}])
    os.unlink(path)
    with open(path, "w") as f:
        f.write("mine")
    proxy.stop()
    with open(path) as f:
        assert f.read() == "mine"


def test_many_short_fields_are_no_lack_of_memory(proxies, web):
    origin = web(o.always(o.ok(b"hello")))
    proxy = proxies({"limits": {"header_count": 2000}})
    fields = b"".join(b"x%d:y\r\n" % i for i in range(1500))
    with proxy.connect() as s:
        s.settimeout(10)
        s.sendall(b"GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n" % (origin.authority.encode(), fields))
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("ext", [b';a="', b";a=\xff", b';a="\\"'])
def test_chunk_extension_that_parsers_read_differently_is_refused(proxies, web, ext):
    origin = web(o.always(o.ok(b"hello")))
    proxy = proxies()
    with proxy.connect() as s:
        s.settimeout(10)
        s.sendall(b"POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3%s\r\nabc\r\n0\r\n\r\n"
                  % (origin.authority.encode(), ext))
        assert s.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_log_never_goes_to_a_client_when_stderr_was_closed(proxies, origins):
    """Descriptor 2 must not become a socket."""
    proxy = proxies(wrap=["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"])
    fds = proxy.fds()
    assert all(fds[n] == "/dev/null" for n in (0, 1, 2)), fds


def test_log_reader_that_stopped_stops_nobody(proxies, origins, tmp_path):
    echo = origins(o.echo)
    fifo = str(tmp_path / "log")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    proxy = proxies(wrap=["sh", "-c", 'exec "$@" 2>%s' % fifo, "sh"], args=["-l", "trace"])
    deadline = time.monotonic() + 30
    for _ in range(600):                # trace lines enough to fill the pipe many times over
        with proxy.connect() as s:
            s.settimeout(10)
            s.sendall(b"\x05\x01\x00\x05\x01\x00\x01" + socket.inet_aton(echo.host) + struct.pack(">H", echo.port) + b"x")
            got = b""
            while len(got) < 13:
                got += s.recv(64)
            assert got[-1:] == b"x"
        assert time.monotonic() < deadline
    seen = bytearray()

    def says_what_was_lost():
        try:
            seen.extend(os.read(reader, 1 << 16))
        except BlockingIOError:
            pass
        return b" lost=" in seen
    for _ in range(8):                  # room again
        says_what_was_lost()
    with proxy.connect() as s:          # the next line says what was lost
        s.sendall(b"\x05\x01\x09")
        s.settimeout(10)
        assert s.recv(16) == b"\x05\xff"
    wait_until(says_what_was_lost, 5, "a line that counts the lost ones")
    proxy.stop()
    os.close(reader)


def test_early_data_of_a_client_that_leaves_while_its_target_is_dialled(proxies, netns):
    with netns:
        proxy = proxies({"limits": {"connect_timeout_s": 30}})
        before = proxy.socket_count()
        s = proxy.connect()
        s.sendall(b"\x05\x01\x00\x05\x01\x00\x01" + socket.inet_aton("10.99.0.2") + b"\x00\x50" + b"early")
        wait_until(lambda: proxy.tcp_states().get("SYN_SENT", 0) == 1, 10, "a dial under way")
        time.sleep(1.5)
        reset(s)
        proxy.settled_sockets(before)


@pytest.mark.skipif(os.getuid() != 0, reason="gives root up")
def test_clients_are_spread_over_the_workers_after_root_was_given_up(proxies):
    """Sockets of different owners are no SO_REUSEPORT group: one would get every client."""
    proxy = proxies({"user": "nobody", "workers": 4, "log_level": "debug"})
    for _ in range(80):
        proxy.connect().close()
    wait_until(lambda: proxy.log().count("session started") >= 80, 10, "80 sessions")
    workers = set(re.findall(r"debug (w\d) \d+ session started", proxy.log()))
    assert len(workers) == 4, workers


def test_check_finds_rules_users_and_keys_at_once(tmp_path):
    from proxy import run
    path = tmp_path / "c.yaml"
    path.write_text('foo: 1\nacl: { rules: ["deny hst x"] }\nauth: { whitelist: [nonsense] }\n')
    done = run("-t", path)
    for word in ("foo", "hst", "nonsense"):
        assert word in done.out + done.err
    assert done.returncode == 1


def test_undecided_dst_rule_is_not_named_as_the_one_that_allowed(proxies, tmp_path):
    log = tmp_path / "access"
    proxy = proxies({"acl": {"rules": ["deny dst 10.0.0.0/8"]},
                     "access_log": {"path": str(log), "flush_ms": 1}})
    with proxy.connect() as s:
        s.settimeout(10)
        s.sendall(b"GET http://127.1/ HTTP/1.1\r\nHost: x\r\n\r\n")     # no name, so no address
        assert s.recv(4096).startswith(b"HTTP/1.1 50")
    wait_until(lambda: log.exists() and log.read_text().count("\n") == 1, 5, "a line")
    assert 'rule="deny dst' not in log.read_text()

# SPDX-License-Identifier: ISC
"""The command line (SPEC 1, 2)."""

import re

import pytest

import origins as o
from clients import recv_exact, socks5, socks5_code
from proxy import run
from util import free_port, wait_until

PROBLEM = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<col>\d+): (?P<path>[^:]*): (?P<what>.+)$")


def problems(text):
    return [m.groupdict() for m in map(PROBLEM.match, text.splitlines()) if m]


def write(tmp_path, text, name="ringway.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_version_names_backends_the_one_used_and_why():
    for flag in ("-V", "--version"):
        done = run(flag)
        assert done.returncode == 0
        assert re.search(r"\bringway\b.*\d", done.out.splitlines()[0]), done.out
        assert re.search(r"^backends compiled: .*\b(epoll|kqueue)\b", done.out, re.M), done.out
        used = [line for line in done.out.splitlines() if re.search(r"\b(io_uring|epoll|kqueue)\b", line)]
        # the compiled ones, and the one that would be used with the reason
        assert used and any(len(line.split()) > 3 for line in used), done.out


def test_version_follows_the_asked_backend(backend):
    done = run("-b", backend, "--version")
    assert done.returncode == 0 and backend in done.out


def test_help_names_every_option():
    for flag in ("-h", "--help"):
        done = run(flag)
        assert done.returncode == 0
        for word in ("--config", "--log-level", "--backend", "--check", "--version", "--help", "-o"):
            assert word in done.out, done.out


@pytest.mark.parametrize("args", [
    ["--no-such"], ["-Z"], ["-c"], ["--config"], ["-b"], ["-o"], ["-o", "novalue"], ["stray"], ["--check"], ["--version=x"],
], ids=" ".join)
def test_usage_errors_exit_2_with_a_line(args):
    done = run(*args)
    assert done.returncode == 2, (done.returncode, done.err)
    assert done.err.strip() and not done.out.strip(), (done.out, done.err)


@pytest.mark.parametrize("args", [["-b", "nosuch"], ["-l", "loud"]], ids=" ".join)
def test_bad_values_of_options_are_told_with_the_good_ones(args):
    done = run(*args)
    assert done.returncode in (1, 2)
    assert args[1] in done.err and {"-b": "io_uring", "-l": "debug"}[args[0]] in done.err, done.err


def test_check_of_a_good_file_exits_0(tmp_path, backend):
    path = write(tmp_path, "workers: 1\nbackend: %s\nlisten:\n  - addr: 127.0.0.1\n    port: %d\n"
                 "    protocols: [socks5, socks4, http]\nlimits:\n  idle_timeout_s: 5\nresolver:\n  servers: [127.0.0.1]\n"
                 % (backend, free_port()))
    for flag in ("-t", "--check"):
        done = run(flag, path)
        assert done.returncode == 0, done.err
        assert not problems(done.err + done.out)


BAD = """\
workers: many
listen:
  - addr: 127.0.0.1
    port: 99999
    protocls: [socks5]
limits:
  idle_timeout_s: -1
  idle_timeout_s: 5
resolver:
  prefer: ipv5
nonsense: true
"""


def test_all_problems_are_listed_with_their_places(tmp_path, backend):
    path = write(tmp_path, BAD)
    for args in (["--check", path], ["-c", path, "-b", backend]):
        done = run(*args)
        assert done.returncode == 1, done.err
        found = problems(done.out + done.err)     # --check reports on stdout
        places = {(int(p["line"])) for p in found}
        assert {1, 4, 5, 7, 8, 10, 11} <= places, done.out + done.err
        assert all(p["file"] == str(path) for p in found)
        by_line = {int(p["line"]): p for p in found}
        assert by_line[1]["path"] == "workers" and by_line[4]["path"].startswith("listen") and "port" in by_line[4]["path"]
        assert "protocols" in by_line[5]["what"], "the nearest known key: " + by_line[5]["what"]
        assert by_line[1]["col"] == "10", by_line[1]


@pytest.mark.parametrize("text,line", [
    ("workers: [1\n", None), ("\tworkers: 1\n", 1), ("workers: 1\nworkers: 2\n", 2), ("a: &x 1\nb: *x\n", None),
    ("- 1\n", 1), ("workers: 1\n  bad: indent\n", None), ("\x00", None), ("workers: 1\n\xff\n", None),
    ("workers: 999999999999999999999\n", 1), ("listen: []\n", 1), ("listen:\n  - port: 0\n", 2),
], ids=lambda v: repr(v)[:24])
def test_broken_files_name_the_place(tmp_path, text, line):
    path = tmp_path / "bad.yaml"
    path.write_bytes(text.encode("latin-1"))
    done = run("--check", path)
    assert done.returncode == 1, done.err
    told = done.out + done.err
    assert str(path) in told, told
    if line:
        assert "%s:%d:" % (path, line) in told, told


def test_missing_file_is_told():
    for args in (["-c", "/nonexistent/ringway.yaml"], ["--check", "/nonexistent/ringway.yaml"]):
        done = run(*args)
        assert done.returncode == 1
        assert "/nonexistent/ringway.yaml" in done.out + done.err


def test_empty_file_is_the_defaults(tmp_path):
    assert run("--check", write(tmp_path, "")).returncode == 0
    assert run("--check", write(tmp_path, "# nothing\n")).returncode == 0


def test_option_sets_a_key_by_its_path(proxies, origins):
    origin = origins(o.echo)
    port = free_port()
    proxy = proxies(start=False, options=["listen.0.port=%d" % port, "limits.handshake_timeout_s=7", "workers=1"])
    proxy.port = port
    proxy.start()
    assert socks5_code(proxy, origin.host, origin.port) == 0
    assert proxy.alive()


def test_option_without_a_file_listens_there(proxies, origins):
    """The defaults have a second listener, [::1]:1080: it is moved too."""
    origin = origins(o.echo)
    port = free_port()
    proxy = proxies(use_file=False, port=port,
                    options=["listen.0.port=%d" % port, "listen.1.port=%d" % port, "shutdown_timeout_s=1"])
    with socks5(proxy, origin.host, origin.port) as s:
        s.sendall(b"x")
        assert recv_exact(s, 1) == b"x"


@pytest.mark.parametrize("option,names", [
    ("nosuch.key=1", "nosuch"), ("limits.idle_timeout=5", "idle_timeout_s"), ("workers=many", "workers"),
    ("listen.0.port=0", "port"), ("listen.0.port=70000", "port"), ("limits=3", "limits"), ("=1", ""),
    ("limits.idle_timeout_s=", "idle_timeout_s"),
])
def test_bad_option_values_are_told_and_refused(tmp_path, option, names):
    path = write(tmp_path, "workers: 1\n")
    for args in (["--check", path, "-o", option], ["-c", path, "-o", option]):
        done = run(*args)
        assert done.returncode in (1, 2), (option, done.err)
        told = done.out + done.err
        assert names in told and told.strip(), told


def test_check_sees_options_too(tmp_path):
    path = write(tmp_path, "workers: 1\n")
    assert run("--check", path, "-o", "workers=2").returncode == 0
    assert run("-t", path, "-o", "workers=2", "-o", "limits.max_sessions=5").returncode == 0


def test_log_level_changes_what_is_written(proxies, origins):
    origin = origins(o.echo)
    sizes = {}
    for level in ("error", "trace"):
        proxy = proxies(args=["-l", level], name=level)
        assert socks5_code(proxy, origin.host, origin.port) == 0
        proxy.stop()
        sizes[level] = len(proxy.log())
    assert sizes["error"] == 0, "an ordinary session writes nothing at level error"
    assert sizes["trace"] > 0


def test_log_lines_have_a_time_and_a_level(proxies):
    proxy = proxies()
    wait_until(lambda: proxy.backend in proxy.log(), 5, "the start names the backend")
    lines = proxy.log().splitlines()
    for line in lines:
        assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (error|warn|info|debug|trace) ", line), line


def test_log_cannot_be_broken_by_clients(proxies):
    proxy = proxies(args=["-l", "trace"])
    with proxy.connect() as s:
        s.sendall(b"GET http://a\x1b[31m\nfake error line/ HTTP/1.1\r\n\r\n")
        s.settimeout(5)
        s.recv(4096)
    with proxy.connect() as s:
        name = b"x\x1b[31m\n2026-01-01T00:00:00Z error fake"
        s.sendall(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\0\x50")
        s.settimeout(12)
        s.recv(4096)
    proxy.stop()
    log = proxy.log()
    assert "\x1b" not in log
    assert not any(line.startswith(("fake", "2026-01-01T00:00:00Z")) for line in log.splitlines()), log

# SPDX-License-Identifier: ISC
"""io_uring refused, as container runtimes refuse it (SPEC 14, issue: shows)."""

import re

import pytest

import origins as o
from clients import fetch, recv_exact, socks5
from conftest import BACKENDS
from proxy import Proxy, run
from util import free_port, wait_until

REFUSED = {"EPERM": r"EPERM|not permitted", "ENOSYS": r"ENOSYS|not implemented", "EACCES": r"EACCES|[Pp]ermission denied"}

pytestmark = [pytest.mark.skipif("io_uring" not in BACKENDS, reason="io_uring is not asked for"),
              pytest.mark.parametrize("errno", sorted(REFUSED))]


@pytest.fixture(autouse=True)
def compiled_with_io_uring():
    if "io_uring" not in run("--version").out:
        pytest.skip("this build has no io_uring")


def test_auto_serves_on_epoll_and_says_why(tmp_path, seccomp_exec, origins, web, errno):
    origin, page = origins(o.echo), web(lambda *_: o.ok(b"page"))
    proxy = Proxy(tmp_path, None, wrap=[seccomp_exec, errno])
    try:
        proxy.start()
        with socks5(proxy, origin.host, origin.port) as s:
            s.sendall(b"hi")
            assert recv_exact(s, 2) == b"hi"
        assert fetch(proxy, page.authority).body == b"page"
        wait_until(lambda: "epoll" in proxy.log(), 5, "the log names the backend in use")
        line = [text for text in proxy.log().splitlines() if "io_uring" in text]
        assert re.search(REFUSED[errno], "\n".join(line)), proxy.log()
        assert any("anon_inode:[eventpoll]" in what for what in proxy.fds().values())
        proxy.stop()
    finally:
        proxy.kill()


def test_version_says_epoll_and_why(seccomp_exec, errno):
    done = run("--version", wrap=[seccomp_exec, errno])
    assert done.returncode == 0
    assert "epoll" in done.out and re.search(REFUSED[errno], done.out), done.out


def test_named_io_uring_fails_with_a_clear_line(tmp_path, seccomp_exec, errno):
    path = tmp_path / "c.yaml"
    path.write_text("listen: [{addr: 127.0.0.1, port: %d}]\n" % free_port())
    for args in (["-c", path, "-b", "io_uring"], ["-c", path, "-o", "backend=io_uring"]):
        done = run(*args, wrap=[seccomp_exec, errno])
        assert done.returncode == 1, (done.returncode, done.err)
        assert "io_uring" in done.err and re.search(REFUSED[errno], done.err), done.err
        assert len([text for text in done.err.splitlines() if " error " in text or "io_uring" in text]) <= 3, done.err

# SPDX-License-Identifier: ISC
"""Programs that people use, against nginx as the origin: curl in every way it
knows a proxy, netcat, socat, PySocks."""

import hashlib
import os
import shutil
import subprocess
import time

import pytest

import origins as o
from clients import recv_exact
from util import SLOW, free_port, pattern, pattern_sha, wait_until

MIB = 1 << 20
BIG = 20 * MIB


class Nginx:
    """http and https on free ports; PUT under /up, files under /."""

    def __init__(self, root):
        self.root = root
        self.http, self.https = free_port(), free_port()
        for name in ("www/up", "tmp"):
            os.makedirs(os.path.join(root, name))
        with open(os.path.join(root, "www/index.html"), "w", encoding="ascii") as f:
            f.write("the page\n")
        with open(os.path.join(root, "www/big"), "wb") as f:
            f.write(pattern(42, BIG))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", root + "/key.pem", "-out", root + "/cert.pem", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
        temp = "\n".join("  %s_temp_path %s/tmp/%s;" % (n, root, n)
                         for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(root + "/nginx.conf", "w", encoding="ascii") as f:
            f.write("""daemon off; worker_processes 1; pid %(root)s/nginx.pid; error_log %(root)s/error.log;
%(user)s
events { worker_connections 512; }
http {
%(temp)s
  access_log %(root)s/access.log; client_max_body_size 0; default_type text/plain;
  server {
    listen 127.0.0.1:%(http)d; listen 127.0.0.1:%(https)d ssl;
    ssl_certificate %(root)s/cert.pem; ssl_certificate_key %(root)s/key.pem;
    root %(root)s/www;
    location /up/ { dav_methods PUT; create_full_put_path on; }
  }
}
""" % {"root": root, "temp": temp, "http": self.http, "https": self.https,
       "user": "user root;" if os.geteuid() == 0 else ""})
        self.process = subprocess.Popen(["nginx", "-p", root, "-c", root + "/nginx.conf", "-e", root + "/error.log"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers, 10, "nginx listens")

    def answers(self):
        assert self.process.poll() is None, "nginx ended: " + open(self.root + "/error.log", encoding="utf-8").read()
        import socket
        try:
            socket.create_connection(("127.0.0.1", self.https), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    for tool in ("nginx", "openssl", "curl"):
        if shutil.which(tool) is None:
            pytest.skip(tool + " is not installed")
    server = Nginx(str(tmp_path_factory.mktemp("nginx")))
    yield server
    server.stop()


# how to say it to curl, and whether the origin's scheme may be plain http
WAYS = {
    "socks5h": lambda p: ["-x", "socks5h://127.0.0.1:%d" % p.port],
    "socks5": lambda p: ["-x", "socks5://127.0.0.1:%d" % p.port],
    "socks4": lambda p: ["-x", "socks4://127.0.0.1:%d" % p.port],
    "socks4a": lambda p: ["-x", "socks4a://127.0.0.1:%d" % p.port],
    "http": lambda p: ["-x", "http://127.0.0.1:%d" % p.port],
    "tunnel": lambda p: ["-p", "-x", "http://127.0.0.1:%d" % p.port],
}


def curl(proxy, nginx, way, *args, scheme="http", path="/", timeout=60, host="localhost"):
    port = nginx.https if scheme == "https" else nginx.http
    command = ["curl", "-sS", "--noproxy", "", "-4", "--max-time", str(int(timeout * SLOW)), "--cacert", nginx.root + "/cert.pem",
               *WAYS[way](proxy), *args, "%s://%s:%d%s" % (scheme, host, port, path)]
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=timeout * SLOW + 5)
    assert done.returncode == 0, "curl: exit %d: %s" % (done.returncode, done.stderr.decode("utf-8", "replace"))
    return done.stdout


@pytest.fixture
def all_protocols(proxies):
    return proxies(protocols=["socks5", "socks4", "http"])


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("way", sorted(WAYS))
def test_curl_page_download_and_upload(all_protocols, nginx, way, scheme, tmp_path):
    assert curl(all_protocols, nginx, way, scheme=scheme) == b"the page\n"
    assert hashlib.sha256(curl(all_protocols, nginx, way, scheme=scheme, path="/big")).hexdigest() == pattern_sha(42, BIG)
    body = tmp_path / "body"
    body.write_bytes(pattern(7, 5 * MIB))
    name = "%s-%s-%s" % (all_protocols.backend, way, scheme)
    curl(all_protocols, nginx, way, "-T", str(body), scheme=scheme, path="/up/" + name)
    with open(nginx.root + "/www/up/" + name, "rb") as f:
        assert hashlib.sha256(f.read()).hexdigest() == pattern_sha(7, 5 * MIB)
    os.unlink(nginx.root + "/www/up/" + name)


def test_curl_many_urls_on_one_connection(proxy, nginx):
    urls = ["http://localhost:%d/?%d" % (nginx.http, i) for i in range(20)]
    out = curl(proxy, nginx, "http", "-w", "%{http_code}:%{num_connects}\n", *urls, path="/?last").decode()
    assert out.count("the page") == 21 and out.count("200:") == 21
    assert out.count("200:1") == 1, "curl had to connect again:\n" + out


def test_curl_chunked_upload_and_head_and_range(proxy, nginx, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(pattern(8, MIB))
    name = "chunked-" + proxy.backend
    curl(proxy, nginx, "http", "-T", str(body), "-H", "Transfer-Encoding: chunked", path="/up/" + name)
    with open(nginx.root + "/www/up/" + name, "rb") as f:
        assert f.read() == body.read_bytes()
    assert b"Content-Length: %d" % BIG in curl(proxy, nginx, "http", "-I", path="/big")
    assert curl(proxy, nginx, "http", "-r", "100-199", path="/big") == pattern(42, BIG)[100:200]


def test_curl_expect_100_continue(proxy, nginx, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(pattern(9, MIB))
    started = time.monotonic()
    name = "expect-" + proxy.backend
    curl(proxy, nginx, "http", "-T", str(body), "-H", "Expect: 100-continue", "--expect100-timeout", "20", path="/up/" + name)
    assert time.monotonic() - started < 10 * SLOW, "the 100 did not come through"


def test_curl_parallel_downloads(proxy, nginx, tmp_path):
    """Eight at a time over every way, sums right."""
    jobs = []
    for way in ("socks5h", "http", "tunnel"):
        for i in range(3):
            out = tmp_path / ("%s%d" % (way, i))
            command = ["curl", "-sS", "--max-time", "60", *WAYS[way](proxy), "-o", str(out), "http://127.0.0.1:%d/big" % nginx.http]
            jobs.append((out, subprocess.Popen(command, stderr=subprocess.PIPE)))
    for out, job in jobs:
        err = job.communicate(timeout=90)[1]
        assert job.returncode == 0, err
        assert hashlib.sha256(out.read_bytes()).hexdigest() == pattern_sha(42, BIG), out.name


@pytest.mark.parametrize("way", ["http", "tunnel", "socks5h"])
def test_curl_names_the_failure(proxy, nginx, way):
    """What a person sees when the origin is not there."""
    done = subprocess.run(["curl", "-sS", "-m", "20", *WAYS[way](proxy), "-o", "/dev/null", "-w", "%{http_code} %{http_connect}",
                           "http://127.0.0.1:%d/" % free_port()], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if way == "http":
        assert done.returncode == 0 and done.stdout == b"502 000", done
    elif way == "tunnel":
        assert done.returncode == 56 and done.stdout.endswith(b"502"), done
    else:
        assert done.returncode == 97, done


def netcat():
    for name in ("nc.openbsd", "nc"):
        path = shutil.which(name)
        if path and b"-X" in subprocess.run([path, "-h"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout:
            return path
    pytest.skip("OpenBSD's netcat is not installed")


@pytest.mark.parametrize("protocol", ["5", "4", "connect"])
def test_netcat(all_protocols, origins, protocol):
    origin = origins(o.answer_after_fin(lambda got: b"<" + got + b">"))
    done = subprocess.run([netcat(), "-N", "-w", "10", "-X", protocol, "-x", "127.0.0.1:%d" % all_protocols.port,
                           origin.host, str(origin.port)], input=b"hello", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=20 * SLOW)
    assert done.stdout == b"<hello>", done


@pytest.mark.parametrize("address", ["SOCKS4:127.0.0.1:127.0.0.1:{o},socksport={p}",
                                     "SOCKS4A:127.0.0.1:localhost:{o},socksport={p}",
                                     "PROXY:127.0.0.1:localhost:{o},proxyport={p}"], ids=lambda a: a.split(":")[0])
def test_socat(all_protocols, origins, address):
    if shutil.which("socat") is None:
        pytest.skip("socat is not installed")
    origin = origins(o.answer_after_fin(lambda got: b"<" + got + b">"))
    done = subprocess.run(["socat", "-t10", "-", address.format(o=origin.port, p=all_protocols.port)], input=b"hello",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20 * SLOW)
    assert done.stdout == b"<hello>", done


@pytest.mark.parametrize("kind", ["SOCKS5", "SOCKS4", "HTTP"])
@pytest.mark.parametrize("rdns", [True, False])
def test_pysocks(all_protocols, origins, kind, rdns):
    socks = pytest.importorskip("socks")
    origin = origins(o.echo)
    s = socks.socksocket()
    s.settimeout(10)
    s.set_proxy(getattr(socks, kind), "127.0.0.1", all_protocols.port, rdns=rdns)
    with s:
        s.connect(("localhost" if kind != "SOCKS4" or rdns else "127.0.0.1", origin.port))
        s.sendall(b"by PySocks")
        assert recv_exact(s, 10) == b"by PySocks"

# SPDX-License-Identifier: ISC
"""Programs of others that speak UDP through SOCKS5: PySocks, Dante's client,
redsocks; and the benchmark's load generator as a soak of numbered datagrams."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from dnsserver import DnsServer
from udpclient import Echo, any_free_range, drops, final_counters, has_gso, no_association_left
from util import RINGWAY, SLOW, free_port, scaled, wait_until

LOAD = os.path.join(os.path.dirname(RINGWAY), "bench", "load")


def need(*programs):
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = [shutil.which(p, path=path) for p in programs]
    for program, where in zip(programs, found):
        if where is None:
            pytest.skip(program + " is not installed")
    return found


@pytest.fixture
def names():
    with DnsServer() as server:
        server.add("www.test", "192.0.2.55")
        yield server


# -- PySocks -------------------------------------------------------------------------------

@pytest.mark.parametrize("rdns", [True, False])
def test_pysocks_asks_a_dns_server(proxies, names, rdns):
    """It names the one-letter domain "0", or 0.0.0.0, in its request (CASES 43)."""
    import dns.message
    import dns.rdatatype
    import socket
    socks = pytest.importorskip("socks")
    proxy = proxies()
    with socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5 * SLOW)
        s.set_proxy(socks.SOCKS5, "127.0.0.1", proxy.port, rdns=rdns)
        for n in range(5):
            query = dns.message.make_query("www.test", "A")
            s.sendto(query.to_wire(), (names.host, names.port))
            data, source = s.recvfrom(4096)
            assert source == (names.host, names.port)
            answer = dns.message.from_wire(data)
            assert answer.id == query.id and answer.answer[0][0].address == "192.0.2.55"
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert (counted["udp"], counted["udp_up"], counted["udp_down"]) == (1, 5, 5) and drops(counted) == {}, counted


def test_pysocks_lets_the_relay_resolve(proxies, names):
    import socket
    socks = pytest.importorskip("socks")
    names.add("echo.test", "127.0.0.1")
    proxy = proxies({"resolver": {"servers": [names.address]}, "udp": {"resolve_domain": True}})
    with Echo() as echo, socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5 * SLOW)
        s.set_proxy(socks.SOCKS5, "127.0.0.1", proxy.port, rdns=True)
        s.sendto(b"by name", ("echo.test", echo.where[1]))
        assert s.recvfrom(100) == (b"by name", echo.where)


def test_pysocks_connected(proxies):
    import socket
    socks = pytest.importorskip("socks")
    proxy = proxies()
    with Echo() as echo, socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5 * SLOW)
        s.set_proxy(socks.SOCKS5, "127.0.0.1", proxy.port)
        s.connect(echo.where)
        for n in range(10):
            s.send(b"%d" % n)
            assert s.recv(100) == b"%d" % n


# -- Dante's client --------------------------------------------------------------------------

DANTE = """\
route {
  from: 0.0.0.0/0 to: 0.0.0.0/0 via: 127.0.0.1 port = %d
  proxyprotocol: socks_v5
  protocol: tcp udp
  method: none
  command: connect udpassociate
}
"""

# A program that knows nothing of SOCKS; dig's sendmmsg(2) passes Dante's client by.
ASKER = """\
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
where = ("127.0.0.1", int(sys.argv[1]))
for n in range(20):
    s.sendto(b"%d" % n, where)
    assert s.recvfrom(100) == (b"%d" % n, where)
print("answered")
"""


def test_dante_client_socksifies(proxies, tmp_path):
    (socksify,) = need("socksify")
    proxy = proxies()
    conf = tmp_path / "socks.conf"
    conf.write_text(DANTE % proxy.port)
    # without the second, networks of this machine, loopback among them, are reached directly
    env = dict(os.environ, SOCKS_CONF=str(conf), SOCKS_AUTOADD_LANROUTES="no")
    with Echo() as echo:
        done = subprocess.run([socksify, sys.executable, "-S", "-c", ASKER, str(echo.where[1])], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=30 * SLOW)
        assert done.stdout.endswith(b"answered\n"), done
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert (counted["udp_up"], counted["udp_down"]) == (20, 20) and drops(counted) == {}, counted


# -- redsocks ------------------------------------------------------------------------------------

REDSOCKS = """\
base { log_debug = off; log_info = on; log = stderr; daemon = off; redirector = generic; }
redudp { local_ip = 127.0.0.1; local_port = %d; ip = 127.0.0.1; port = %d; dest_ip = 127.0.0.1; dest_port = %d; udp_timeout = 20; }
"""


def test_dig_by_redsocks(proxies, names, tmp_path):
    """redudp with a fixed destination: its programs ask it as if it were the DNS server."""
    redsocks, dig = need("redsocks", "dig")
    proxy = proxies()
    conf = tmp_path / "redsocks.conf"
    at = free_port(udp=True)
    conf.write_text(REDSOCKS % (at, proxy.port, names.port))
    with open(tmp_path / "redsocks.log", "wb") as log:
        relay = subprocess.Popen([redsocks, "-c", str(conf)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: b"started" in (tmp_path / "redsocks.log").read_bytes(), 5, "redsocks is up")
        for _ in range(3):
            done = subprocess.run([dig, "@127.0.0.1", "-p", str(at), "www.test", "A", "+notcp", "+short", "+tries=1", "+time=5"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20 * SLOW)
            assert done.stdout == b"192.0.2.55\n", (done, (tmp_path / "redsocks.log").read_bytes())
    finally:
        relay.terminate()
        relay.wait()
    no_association_left(proxy)
    counted = final_counters(proxy)
    assert (counted["udp"], counted["udp_up"], counted["udp_down"]) == (3, 3, 3) and drops(counted) == {}, counted


# -- numbered datagrams, many ------------------------------------------------------------------------

def soak(proxies, seconds, down, gso):
    """Every datagram has a number and a sum: none may come twice or altered, none be lost but where a counter says so."""
    if not os.access(LOAD, os.X_OK):
        pytest.skip("%s is not built" % LOAD)
    if gso and not has_gso():
        pytest.skip("no UDP_SEGMENT in this kernel")
    low = any_free_range(16)
    proxy = proxies({"limits": {"max_sessions_per_ip": 0}, "udp": {"max_pps": 0, "port_range": [low, low + 15]}})
    began = time.monotonic()
    done = subprocess.run([LOAD, "udp", "--via", "socks5", "--proxy", "127.0.0.1:%d" % proxy.port, "--assocs", "8", "--window", "64",
                           "--warmup", "0.2", "--seconds", str(seconds), "--gso", str(gso), "--down", str(down), "--payload", "600",
                           "--sleep"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds * 4 + 60 * SLOW)
    assert done.returncode == 0, done
    facts = json.loads(done.stdout)
    no_association_left(proxy)
    counted = final_counters(proxy)
    lost = drops(counted)
    print("%s down=%d gso=%d: %d sent, %d came, %d lost, drops %s in %.1f s"
          % (proxy.backend, down, gso, facts["sent"], facts["received"], facts["lost"], lost, time.monotonic() - began))
    assert (facts["errors"], facts["dup"], facts["altered"]) == (0, 0, 0), facts
    assert facts["lost"] <= sum(lost.values()), (facts, counted)
    assert facts["received"] > scaled(10000, 100) * seconds, facts
    return facts["received"]


@pytest.mark.parametrize("down", [0, 1], ids=["up", "down"])
@pytest.mark.parametrize("gso", [0, 1], ids=["single", "segmented"])
def test_numbered_datagrams(proxies, down, gso):
    soak(proxies, 1, down, gso)


@pytest.mark.long
@pytest.mark.limit(600)
def test_ten_million_numbered_datagrams(proxies):
    """Seconds enough for ten million on a usual machine; as many as there are on a slow one."""
    came = sum(soak(proxies, seconds, down, gso) for seconds, down, gso in ((20, 0, 0), (20, 1, 0), (5, 0, 1), (5, 1, 1)))
    print("%d datagrams" % came)
    assert came > scaled(1000000)

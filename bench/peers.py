# SPDX-License-Identifier: ISC
"""The contenders: ringway as it is run in three ways, and the proxies that it
is compared with.  Each is started with a configuration that is fair to it: one
worker unless WORKERS says more, no logs, no limits in the way, long timeouts."""

import os
import pwd
import re
import shutil
import socket
import subprocess
import time

import machine

HOST = machine.LOOPBACK
ORIGIN_PORT = 9000
READY_S = 15


class Failed(Exception):
    """A contender that can't do what is asked of it; the text is the reason."""


def first_line(argv):
    try:
        out = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=10).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return out.strip().splitlines()[0].strip() if out.strip() else ""


def package_version(package):
    """For programs that do not tell."""
    if shutil.which("dpkg-query"):
        return first_line(["dpkg-query", "-W", "-f", "${Version}", package])
    return ""


class Contender:
    """One proxy: install check, version, start, stop.  `vias` are the ways by
    which the load generator can go through it."""
    name = ""
    program = ""
    vias = ()
    udp = False
    files = 0			# RLIMIT_NOFILE, 0 = ours
    ours = False
    suites = ()			# where it takes part; empty: wherever it can
    listed = True		# whether the report tells its version

    def __init__(self, options):
        self.options = options
        self.port = 0
        self.process = None
        self.dir = None
        self.suite = None

    # -- what each kind says of itself

    def path(self):
        extra = os.pathsep + "/usr/sbin" + os.pathsep + "/usr/local/sbin"
        return shutil.which(self.program, path=os.environ.get("PATH", "") + extra)

    def missing(self):
        """Why it can't be run here, or None."""
        return None if self.path() else "%s is not installed ('make deps bench' installs it)" % self.program

    def version(self):
        return first_line([self.path(), "-v"])

    def config(self):
        return ""

    def command(self, config_file):
        raise NotImplementedError

    # -- what is the same for all

    def start(self, cpus, workdir, port, suite):
        """Returns when it accepts connections; raises Failed."""
        self.port, self.suite = port, suite
        self.dir = os.path.join(workdir, "%s-%d" % (self.name, port))
        os.mkdir(self.dir)
        # Those that give up root write here.
        os.chmod(self.dir, 0o777)
        config_file = os.path.join(self.dir, "conf")
        with open(config_file, "w", encoding="ascii") as f:
            f.write(self.config())
        self.log = os.path.join(self.dir, "log")
        with open(self.log, "wb") as log:
            self.process = machine.spawn(self.command(config_file), cpus, self.files, stdout=log, stderr=log, cwd=self.dir)
        self.wait_ready()

    def wait_ready(self):
        until = time.monotonic() + READY_S
        while True:
            if self.process.poll() is not None:
                reason = self.last_words() or "exit status %s" % self.process.returncode
                self.process = None
                raise Failed("does not start: " + reason)
            try:
                socket.create_connection((HOST, self.port), 1).close()
                return
            except OSError:
                pass
            if time.monotonic() > until:
                self.stop()
                raise Failed("did not listen within %d s" % READY_S)
            time.sleep(0.05)

    def last_words(self):
        lines = [line for line in machine.read(self.log).splitlines() if line.strip()]
        # Folders of the run are nobody's business.
        return lines[-1].replace(self.dir + "/", "").strip()[:200] if lines else ""

    def stop(self):
        if self.process is not None:
            machine.end(self.process)
            self.process = None
        if self.dir is not None:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None


class Ringway(Contender):
    ours = True
    udp = True
    vias = ("socks5", "connect")
    backend = "io_uring"
    user = ""

    def path(self):
        path = os.path.join(self.options.build, "ringway")
        return path if os.access(path, os.X_OK) else None

    def missing(self):
        if self.path() is None:
            return "ringway is not built ('make')"
        if self.user:
            try:
                pwd.getpwnam(self.user)
            except KeyError:
                return "there is no user " + self.user
        return None

    def version(self):
        return first_line([self.path(), "--version"])

    def config(self):
        user = "user: %s\n" % self.user if self.user else ""
        return """%sworkers: %d
backend: %s
shutdown_timeout_s: 0
listen:
  - addr: %s
    port: %d
    protocols: [socks5, http]
limits:
  max_sessions: %d
  max_sessions_per_ip: 0
  handshake_timeout_s: 3600
  idle_timeout_s: 3600
%s""" % (user, self.options.workers, self.backend, HOST, self.port, max(100, machine.nofile() - 100),
       "udp:\n  max_pps: 0\n" if self.suite == "udp" else "")

    def command(self, config_file):
        return [self.path(), "-c", config_file]


class RingwayRing(Ringway):
    name = "ringway"


class RingwayEpoll(Ringway):
    name = "ringway-epoll"
    listed = False
    backend = "epoll"


class RingwayUser(Ringway):
    name = "ringway-user"
    listed = False
    user = "nobody"


class Haproxy(Contender):
    name = program = "haproxy"
    vias = ("plain",)

    def config(self):
        files = machine.nofile()
        # Each session has two descriptors, each pipe as well; both must fit.
        pipes = 8 if self.suite == "idle" else files // 5
        return """global
    nbthread %d
    maxconn %d
    maxpipes %d
defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    option splice-request
    option splice-response
listen l
    bind %s:%d
    server s %s:%d
""" % (self.options.workers, (files - 64 - 2 * pipes) // 2, pipes, HOST, self.port, HOST, ORIGIN_PORT)

    def command(self, config_file):
        return [self.path(), "-db", "-q", "-f", config_file]


class Nginx(Contender):
    """As it comes: its buffer is 16 KiB a direction."""
    name = program = "nginx"
    vias = ("plain",)
    buffer = "16k"

    def module(self):
        """The stream module's file when it is a separate one, "" when it is
        compiled in, None when it is not there."""
        told = subprocess.run([self.path(), "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False).stdout.decode("utf-8", "replace")
        if re.search(r"--with-stream(\s|$)", told):
            return ""
        where = re.search(r"--modules-path=(\S+)", told)
        places = [where.group(1)] if where else []
        for place in places + ["/usr/lib/nginx/modules", "/usr/lib64/nginx/modules"]:
            if os.path.exists(place + "/ngx_stream_module.so"):
                return place + "/ngx_stream_module.so"
        return None

    def missing(self):
        return super().missing() or (None if self.module() is not None else
                                     "nginx has no stream module ('make deps bench' installs it)")

    def half_close(self):
        """The setting that lets one direction go on when the other has ended, where nginx knows it."""
        told = re.search(r"/(\d+)\.(\d+)\.(\d+)", self.version())
        return "proxy_half_close on;" if told and tuple(map(int, told.groups())) >= (1, 21, 4) else ""

    def config(self):
        module = self.module()
        return """daemon off;
%sworker_processes %d;
worker_rlimit_nofile %d;
user root;
pid %s/pid;
error_log /dev/null crit;
events { worker_connections %d; }
stream {
    access_log off;
    proxy_buffer_size %s;
    proxy_timeout 1h;
    %s
    server { listen %s:%d backlog=4096; proxy_pass %s:%d; }
}
""" % ("load_module %s;\n" % module if module else "", self.options.workers, machine.nofile(), self.dir,
       machine.nofile(), self.buffer, self.half_close(), HOST, self.port, HOST, ORIGIN_PORT)

    def command(self, config_file):
        return [self.path(), "-p", self.dir, "-c", config_file, "-e", os.path.join(self.dir, "log")]


class NginxTuned(Nginx):
    """With a buffer for bulk."""
    name = "nginx-64k"
    listed = False
    suites = ("relay",)
    buffer = "64k"


class Danted(Contender):
    name = program = "danted"
    vias = ("socks5",)
    udp = True
    # It closes every possible descriptor at each fork, and polls by that number.
    files = 2048

    def path(self):
        return super().path() or shutil.which("sockd", path="/usr/sbin:/usr/local/sbin:/usr/bin")

    def config(self):
        return """logoutput: /dev/null
internal: %s port = %d
external: %s
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: root
timeout.negotiate: 3600
timeout.io: 0
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
""" % (HOST, self.port, HOST)

    def command(self, config_file):
        return [self.path(), "-f", config_file, "-p", os.path.join(self.dir, "pid")]


class Microsocks(Contender):
    name = program = "microsocks"
    vias = ("socks5",)

    def version(self):
        return ("microsocks " + package_version("microsocks")).strip()

    def command(self, config_file):
        return [self.path(), "-i", HOST, "-p", str(self.port)]


class Squid(Contender):
    name = program = "squid"
    vias = ("connect",)

    def config(self):
        return """http_port %s:%d
http_access allow all
cache deny all
cache_mem 0
memory_pools off
access_log none
cache_log /dev/null
cache_store_log none
logfile_rotate 0
netdb_filename none
pinger_enable off
client_db off
pid_filename none
coredump_dir %s
max_filedescriptors %d
workers %d
shutdown_lifetime 0 seconds
request_start_timeout 1 hour
read_timeout 1 hour
dns_nameservers %s
""" % (HOST, self.port, self.dir, machine.nofile(), self.options.workers, HOST)

    def command(self, config_file):
        return [self.path(), "-N", "-f", config_file]


class Tinyproxy(Contender):
    name = program = "tinyproxy"
    vias = ("connect",)

    def config(self):
        return """Port %d
Listen %s
Timeout 3600
MaxClients 20000
LogLevel Critical
LogFile "/dev/null"
DisableViaHeader Yes
""" % (self.port, HOST)

    def command(self, config_file):
        return [self.path(), "-d", "-c", config_file]


class Bare(Contender):
    """bench/bare.c, the kernel's part of a relay and nothing else: what can be had."""
    name = "bare"
    vias = ("plain",)
    listed = False
    suites = ("relay", "ping")

    def path(self):
        path = os.path.join(self.options.build, "bench", "bare")
        return path if os.access(path, os.X_OK) else None

    def missing(self):
        return None if self.path() else "bench/bare is not built ('make bench' builds it)"

    def command(self, config_file):
        how = "splice" if self.suite == "relay" else "copy"
        return [self.path(), how, str(self.port), str(ORIGIN_PORT)]


OURS = (RingwayRing, RingwayEpoll, RingwayUser)
PEERS = (Haproxy, Nginx, NginxTuned, Danted, Microsocks, Squid, Tinyproxy, Bare)
BASE, FLOOR = RingwayRing.name, Bare.name


def names_of(wanted):
    """The peers that "all", "none" or a list of names means."""
    names = [c.name for c in PEERS]
    if wanted in (["all"], ["none"]):
        return names if wanted == ["all"] else []
    for name in wanted:
        if name not in names:
            raise machine.Refused("bench: PEERS: there is no %s (%s, all, none)" % (name, ", ".join(names)))
    return wanted


def choose(options):
    """The contenders, and (name, reason) of those that can't be run here."""
    chosen, skipped = [], []
    for kind in OURS + tuple(p for p in PEERS if p.name in options.peers):
        contender = kind(options)
        why = contender.missing()
        if why:
            skipped.append((contender.name, why))
        else:
            chosen.append(contender)
    return chosen, skipped

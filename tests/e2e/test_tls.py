"""https by the daemon itself: certificates, what clients see when one is wrong, renewal, and that everything HTTP does works over it."""
import contextlib
import http.client
import json
import os
import pty
import select
import signal
import socket
import ssl
import subprocess
import time

import daemon as _daemon
from hutchtest import *

DOMAIN = "hutch.test"
QUIET = {"HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "0", "HUTCH_CONFIG": "none"}
HUTCH = _daemon.program("hutch")
beside = shared_daemon("beside", **{**QUIET, "HUTCH_POOL_CONTAINER": 1})  # the runner's; the tests have one of their own


# ---- a daemon with a certificate --------------------------------------------------------------------------------------

class SecureClient(Client):
    """The test client over https. `name` is what the certificate must be for, and the Host of raw requests."""

    def __init__(self, addr, key, ca, name="localhost", timeout=60.0):
        super().__init__(addr=addr, key=key, timeout=timeout)
        self.context, self.name = ssl.create_default_context(cafile=ca), name

    def _conn(self, timeout):
        conn = http.client.HTTPSConnection(self.addr[0], self.addr[1], timeout=timeout, context=self.context)
        name, context, addr = self.name, self.context, self.addr

        def connect():
            conn.sock = context.wrap_socket(socket.create_connection(addr, timeout), server_hostname=name)
        conn.connect = connect
        return conn


class Secure:
    def __init__(self, names=(DOMAIN,), **env):
        self.d = _daemon.Daemon(name="tls", env={**QUIET, "HUTCH_DOMAIN": DOMAIN, **env})
        self.folder = os.path.join(self.d.home, "tls")
        self.ca, self.cert, self.key_file = (os.path.join(self.folder, f) for f in ("ca.pem", "server.pem", "server.key"))
        self.said = self.self_signed(*names)
        self.d.env.update({"HUTCH_TLS_CERT": self.cert, "HUTCH_TLS_KEY": self.key_file})

    def self_signed(self, *names):
        args = [a for n in names for a in ("--name", n)]
        p = subprocess.run([HUTCH, "tls", "self-signed", *args], env=self.d.env, capture_output=True, text=True, timeout=60)
        equal(p.returncode, 0, p.stderr)
        return p.stdout

    @property
    def addr(self):
        return ("127.0.0.1", self.d.port)

    @property
    def log(self):
        return open(self.d.log_path, errors="replace").read()

    def client(self, name="localhost"):
        return SecureClient(self.addr, self.api_key, self.ca, name)

    def raw(self, context=None, name=DOMAIN, session=None):
        """A TLS connection, made by hand."""
        context = context or ssl.create_default_context(cafile=self.ca)
        s = socket.create_connection(self.addr, 20)
        return context.wrap_socket(s, server_hostname=name, session=session)

    def hutch(self, *args, url=None, ca=True, stdin=b"", seconds=60, **env):
        e = {k: v for k, v in os.environ.items() if not k.startswith("HUTCH_")}
        e.update(HUTCH_URL=url or f"https://localhost:{self.d.port}", HUTCH_API_KEY=self.api_key, HUTCH_HOME=self.d.top, HUTCH_RUN=self.d.top, HUTCH_CONFIG="none", **env)
        if ca:
            e["HUTCH_CA"] = self.ca
        return subprocess.run([HUTCH, *args], input=stdin, env=e, capture_output=True, timeout=seconds)

    def serial(self):
        """Of the certificate that is served."""
        der = self.raw(ssl._create_unverified_context()).getpeercert(True)
        return sha(der)


@contextlib.contextmanager
def secure(t, start=True, **env):
    s = Secure(**env)
    try:
        if start:
            s.d.start(settle=False)
            s.api_key = s.d.new_key()["key"]
        yield s
    finally:
        left = s.d.stop() if s.d.proc and s.d.proc.poll() is None else []
        s.d.destroy()
    equal(left, [], "what the daemon left")


def ask(s, request, host=DOMAIN):
    """One request on a TLS socket, the whole answer; the server must end with a notice (a bare end raises)."""
    s.sendall(f"{request}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    got = b""
    while True:
        b = s.recv(65536)
        if not b:
            return got
        got += b


# ---- making and showing certificates ----------------------------------------------------------------------------------

@plain
@beside
def self_signed_makes_an_authority_and_tells_what_to_do(t):
    home = os.path.join(t.tmp, "home")
    env = {**os.environ, "HUTCH_HOME": home, "HUTCH_CONFIG": "none"}

    def hutch(*args):
        return subprocess.run([HUTCH, "tls", *args], env=env, capture_output=True, text=True, timeout=60)
    p = hutch("self-signed", "--name", "a.example.org", "--name", "192.0.2.7")
    equal(p.returncode, 0, p.stderr)
    for line in (f"HUTCH_TLS_CERT={home}/tls/server.pem", f"HUTCH_TLS_KEY={home}/tls/server.key", "HUTCH_DOMAIN=a.example.org",
                 f"HUTCH_CA={home}/tls/ca.pem", f"NODE_EXTRA_CA_CERTS={home}/tls/ca.pem", f"SSL_CERT_FILE={home}/tls/ca.pem", "REQUESTS_CA_BUNDLE", f"--cacert {home}/tls/ca.pem"):
        contains(p.stdout, line)
    mode = {f: oct(os.stat(f"{home}/tls/{f}").st_mode & 0o777) for f in os.listdir(f"{home}/tls")}
    equal(mode, {"ca.pem": "0o644", "ca.key": "0o600", "server.pem": "0o644", "server.key": "0o600"})
    equal(os.stat(f"{home}/tls/server.key").st_uid, 64882, "the daemon can read it")
    equal(os.stat(f"{home}/tls/ca.key").st_uid, 0, "the authority's key is root's")
    names = subprocess.run(["openssl", "x509", "-in", f"{home}/tls/server.pem", "-noout", "-ext", "subjectAltName"], capture_output=True, text=True).stdout
    for name in ("DNS:a.example.org", "DNS:*.a.example.org", "IP Address:192.0.2.7", "DNS:localhost", "IP Address:127.0.0.1", "IP Address:0:0:0:0:0:0:0:1"):
        contains(names, name)
    lacks(names, "*.192.0.2.7")
    p = subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", f"{home}/tls/ca.pem", f"{home}/tls/server.pem"], capture_output=True, text=True)
    equal(p.returncode, 0, p.stdout + p.stderr)

    shown = json.loads(hutch("show", "--json").stdout)
    equal(shown["subject"], "CN = a.example.org")
    contains(shown["names"], "*.a.example.org")
    true(390 < shown["days_left"] < 398, str(shown))
    contains(hutch("show").stdout, "days left")

    ca = open(f"{home}/tls/ca.pem").read()
    equal(hutch("self-signed").returncode, 0)  # renewed: whoever trusts the authority need not be told
    equal(open(f"{home}/tls/ca.pem").read(), ca)
    contains(hutch("show").stdout, "*.hutch.localhost")
    p = hutch("self-signed", "--name", "not a name")
    equal(p.returncode, 64)
    contains(p.stderr, "is not a host name or address")
    os.unlink(f"{home}/tls/ca.key")
    p = hutch("self-signed")
    true(p.returncode != 0)
    contains(p.stderr, "ca.key is not: remove ca.pem")
    os.rename(f"{home}/tls", f"{home}/elsewhere")  # never through a link: the home is the daemon's
    os.symlink(f"{home}/elsewhere", f"{home}/tls")
    true(hutch("self-signed").returncode != 0)


@plain
@beside
@timeout(120)
def a_start_with_a_bad_certificate_fails_and_says_why(t):
    def refused(want, **env):
        s.d.env.update(env)
        p = subprocess.run([_daemon.program("hutchd")], env=s.d.env, capture_output=True, text=True, timeout=30)
        true(p.returncode != 0)
        contains(p.stderr, want)
    with secure(t, start=False) as s:
        cert, key = s.d.env["HUTCH_TLS_CERT"], s.d.env["HUTCH_TLS_KEY"]
        refused("HUTCH_TLS_CERT is set, HUTCH_TLS_KEY is not", HUTCH_TLS_KEY="")
        refused("must be absolute paths", HUTCH_TLS_KEY="server.key")
        refused("none: No such file or directory", HUTCH_TLS_KEY=s.folder + "/none")
        refused("certificate and key do not belong together", HUTCH_TLS_KEY=s.folder + "/ca.key")
        refused("there is no PEM private key without a password", HUTCH_TLS_KEY=cert)
        refused("there is no PEM certificate", HUTCH_TLS_CERT=key, HUTCH_TLS_KEY=key)
        equal(s.d.pids("hutch-spawn"), [], "nothing was started for it")


# ---- what is spoken ---------------------------------------------------------------------------------------------------

@plain
@beside
@timeout(120)
def speaks_modern_tls_and_nothing_else(t):
    with secure(t) as s:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            c = ssl.create_default_context(cafile=s.ca)
            c.minimum_version = c.maximum_version = version
            c.set_alpn_protocols(["h2", "http/1.1"])
            with s.raw(c) as conn:
                equal(conn.selected_alpn_protocol(), "http/1.1")
                true(any(x in conn.cipher()[0] for x in ("GCM", "CHACHA20")), conn.cipher()[0])
                contains(ask(conn, "GET /healthz HTTP/1.1"), b"HTTP/1.1 200 ")
        for flags, want in ((["-tls1_1"], "protocol version"), (["-tls1_2", "-cipher", "AES128-SHA"], "handshake failure"), (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"], "handshake failure")):
            p = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{s.d.port}", *flags[:1], *(flags[1:] or ["-cipher", "ALL:@SECLEVEL=0"])],
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
            true(p.returncode != 0, f"{flags} was accepted")
            contains(p.stderr, want, str(flags))
        # sessions are taken up again
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            c = ssl.create_default_context(cafile=s.ca)
            c.minimum_version = c.maximum_version = version
            first = s.raw(c)
            equal(first.session_reused, False)
            contains(ask(first, "GET /healthz HTTP/1.1"), b" 200 ")
            with s.raw(c, session=first.session) as again:
                equal(again.session_reused, True)
                contains(ask(again, "GET /healthz HTTP/1.1"), b" 200 ")
            first.close()


@plain
@beside
@timeout(120)
def plain_http_is_told_to_use_https(t):
    with secure(t) as s:
        conn = http.client.HTTPConnection("127.0.0.1", s.d.port, timeout=20)
        conn.request("POST", "/v1/sandboxes", body=b"{}", headers={"Authorization": "Bearer " + s.api_key, "Content-Type": "application/json"})
        r = conn.getresponse()
        equal(r.status, 400)
        contains(json.loads(r.read())["error"]["message"], "speaks https")
        equal(s.d.client.get("/v1/sandboxes")["sandboxes"], [], "nothing was made")
        p = s.hutch("ls", url=f"http://localhost:{s.d.port}")
        equal(p.returncode, 64)
        contains(p.stderr, b"this port speaks https")
        equal(s.d.client.health()["status"], "ok")  # the socket stays what it was


@plain
@beside
@timeout(120)
def one_slow_greeting_holds_up_nobody(t):
    with secure(t) as s:
        silent = [socket.create_connection(s.addr, 30) for _ in range(20)]
        for c in silent[:10]:
            c.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello
        begun = time.monotonic()
        threads = Threads()

        def one(i):
            with s.raw() as c:
                return ask(c, "GET /healthz HTTP/1.1")[:12]
        for i in range(100):
            threads.go(one, i)
        equal(set(threads.join(50)), {b"HTTP/1.1 200"})
        for c in silent:
            c.settimeout(max(1.0, begun + 40 - time.monotonic()))
            equal(c.recv(100), b"", "a peer that says nothing is dropped")
            c.close()


# ---- everything over it -----------------------------------------------------------------------------------------------

INSIDE = b"""
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"inside {self.headers.get_all('X-Forwarded-Proto')}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8077), H).serve_forever()
"""


@tiers("container")
@beside
@timeout(180)
def the_api_works_over_https(t):
    with secure(t) as s:
        c = s.client()
        refuses("unauthenticated", SecureClient(s.addr, "e2b_" + "0" * 40, s.ca).get, "/v1/sandboxes")
        box = c.create(isolation="container", template="base")
        try:
            # lines as they come
            st = c.stream("POST", f"/v1/sandboxes/{box.id}/exec", json_body={"cmd": ["sh", "-c", "echo one; read x; echo $x"], "stream": True, "keep_stdin": True})
            lines = (json.loads(x) for x in st.lines())
            started = next(x for x in lines if x["event"] == "started")
            true(next(x for x in lines if x["event"] == "stdout"))
            c.call("POST", f"/v1/sandboxes/{box.id}/processes/{started['pid']}/stdin", query={"eof": 1}, body=b"two\n")
            equal([x["exit"]["code"] for x in lines if x["event"] == "exit"], [0])
            # much, both ways; the reader is slow at first
            data = Pattern(24 << 20)
            c.call("PUT", f"/v1/sandboxes/{box.id}/files", query={"path": "/tmp/big"}, body=iter(data), deadline=60)
            st = c.stream("GET", f"/v1/sandboxes/{box.id}/files", query={"path": "/tmp/big"}, deadline=60)
            time.sleep(1)
            rss = int(open(f"/proc/{s.d.pid}/statm").read().split()[1]) * 4096
            true(rss < 200 << 20, f"{rss >> 20} MiB resident while a client does not read")
            equal(sha(st.read()), data.sha())
            # server-sent events
            st = c.stream("GET", "/v1/events", query={"since": 0}, headers={"Accept": "text/event-stream"})
            true(next(x for x in st.sse() if box.id in x[2]))
            # a terminal
            ws = WebSocket(c, f"/v1/sandboxes/{box.id}/pty?cols=80&rows=24&cmd=sh", {"Authorization": "Bearer " + s.api_key, "Host": "localhost"}, 30)
            ws.send_frame(2, b"echo from-the-$((40+2))\n")
            got = b""
            while b"from-the-42" not in got:
                m = ws.recv()
                got += m if isinstance(m, bytes) else b""
            ws.close()
            # a port inside, by name
            box.put("/tmp/serve.py", INSIDE)
            box.background(["python3", "/tmp/serve.py"])
            host = f"8077-{box.id}.{DOMAIN}"
            answer = until(lambda: (lambda a: a if b" 200 " in a[:20] else None)(ask(s.raw(name=host), "GET / HTTP/1.1\r\nX-Forwarded-Proto: gopher", host)), 20, "the port answers")
            true(answer.endswith(b"inside ['https']"), answer)
            url = c.get(f"/v1/sandboxes/{box.id}/url", port=8077)["url"]
            equal(url, f"https://{host}:{s.d.port}/")
        finally:
            box.kill()


@tiers("container")
@beside
@timeout(180)
def the_command_line_works_over_https(t):
    with secure(t) as s:
        def ok(*args, **kw):
            p = s.hutch(*args, **kw)
            equal(p.returncode, 0, f"{args}: {p.stderr.decode()}")
            return p.stdout
        ok("create", "--name", "box", "--isolation", "container", "-t", "base")
        contains(ok("ls"), b"box")
        equal(s.hutch("exec", "box", "--", "sh", "-c", "exit 9").returncode, 9)
        data = os.urandom(3 << 20)
        equal(ok("exec", "box", "--", "cat", stdin=data), data)
        path, back = os.path.join(t.tmp, "up"), os.path.join(t.tmp, "down")
        open(path, "wb").write(data)
        ok("cp", path, "box:/tmp/up")
        ok("cp", "box:/tmp/up", back)
        true(open(back, "rb").read() == data, "the file came back whole")
        os.mkdir(os.path.join(t.tmp, "tree"))
        open(os.path.join(t.tmp, "tree", "a"), "wb").write(data[:100000])
        ok("cp", os.path.join(t.tmp, "tree"), "box:/tmp/tree")
        equal(ok("exec", "box", "--", "sha256sum", "/tmp/tree/a").split()[0].decode(), sha(data[:100000]))
        for _ in range(5):
            equal(ok("run", "--isolation", "container", "--", "echo", "once"), b"once\n")
        equal(len(ok("ls", "-q").split()), 1, "what run made is gone")
        contains(ok("doctor"), b"certificate")
        contains(ok("url", "box", "80"), b"https://80-")
        contains(terminal(s, "sh", "box"), b"answer-42")
        # an upload that is refused is answered, not cut off
        p = s.hutch("cp", path, "nobody:/tmp/x")
        contains(p.stderr, b"nobody")
        ok("kill", "box")
        equal(s.hutch("down").returncode != 0, True, "only on the socket")


def terminal(s, *args):
    """A verb at a terminal: types a line, leaves, returns what was shown."""
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(HUTCH_URL=f"https://localhost:{s.d.port}", HUTCH_API_KEY=s.api_key, HUTCH_CA=s.ca, HUTCH_CONFIG="none")
        os.execv(HUTCH, [HUTCH, *args])
    shown, end = b"", time.monotonic() + 30
    try:
        typed = 0
        while time.monotonic() < end:
            if not select.select([fd], [], [], 1.0)[0]:
                continue
            try:
                b = os.read(fd, 65536)
            except OSError:
                break
            if not b:
                break
            shown += b
            if not typed and (b"$" in shown or b"#" in shown):
                typed = 1
                os.write(fd, b"echo answer-$((40+2)); exit\n")
    finally:
        os.close(fd)
        with contextlib.suppress(ProcessLookupError):
            if time.monotonic() >= end:
                os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return shown


@tiers("container")
@beside
@timeout(120)
def the_names_of_e2b_clients_are_ours(t):
    """A client that knows only a domain calls api.DOMAIN, and {port}-{id}.DOMAIN for what is inside."""
    with secure(t, HUTCH_DEFAULT_ISOLATION="container") as s:
        api = f"api.{DOMAIN}"
        auth = f"X-API-Key: {s.api_key}\r\n"

        def call(host, line, extra="", body=b""):
            head = f"{line}\r\n{auth}{extra}Content-Length: {len(body)}\r\nContent-Type: application/json"
            with s.raw(name=host) as c:
                c.sendall(f"{head}\r\nHost: {host}:{s.d.port}\r\nConnection: close\r\n\r\n".encode() + body)
                got = b""
                while b := c.recv(65536):
                    got += b
            return int(got.split()[1]), got.partition(b"\r\n\r\n")[2]
        status, body = call(api, "POST /sandboxes HTTP/1.1", body=json.dumps({"templateID": "base", "metadata": {}, "timeout": 60}).encode())
        equal(status, 201, body)
        sid = json.loads(body)["sandboxID"]
        try:
            equal(call(f"49983-{sid}.{DOMAIN}", "GET /health HTTP/1.1")[0], 204)
            equal(call(api, f"GET /sandboxes/{sid} HTTP/1.1")[0], 200)
            equal(call(f"other.{DOMAIN}", f"GET /sandboxes/{sid} HTTP/1.1")[0], 403, "no other name below the domain is")
        finally:
            equal(call(api, f"DELETE /sandboxes/{sid} HTTP/1.1")[0], 204)


# ---- renewal ----------------------------------------------------------------------------------------------------------

def short_lived(s, days):
    """A certificate of the same authority, for the same key, that ends soon."""
    csr, out = os.path.join(s.folder, "csr"), os.path.join(s.folder, "short")
    subprocess.run(["openssl", "req", "-new", "-key", s.key_file, "-subj", "/CN=short", "-out", csr], check=True, capture_output=True)
    ext = os.path.join(s.folder, "ext")
    open(ext, "w").write(f"subjectAltName=DNS:localhost,DNS:{DOMAIN}\n")
    subprocess.run(["openssl", "x509", "-req", "-in", csr, "-CA", s.ca, "-CAkey", s.folder + "/ca.key", "-days", str(days), "-extfile", ext, "-out", out], check=True, capture_output=True)
    os.chmod(out, 0o644)
    os.rename(out, s.cert)


@plain
@beside
@timeout(180)
def certificates_are_renewed_without_a_restart(t):
    with secure(t) as s:
        was, pid = s.serial(), s.d.pid
        open_before = s.raw()
        open_before.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        true(open_before.recv(65536))

        s.self_signed(DOMAIN)  # by itself
        now = until(lambda: (lambda x: x if x != was else None)(s.serial()), 20, "the new certificate is served")
        contains(s.log, "a new certificate is in force: CN = hutch.test")
        contains(ask(open_before, "GET /healthz HTTP/1.1"), b" 200 ", "whoever was connected stays so")

        # a key that belongs to another certificate, then rubbish: the old pair stays, and the log says why
        good = open(s.key_file).read()
        for text, why in ((open(s.folder + "/ca.key").read(), "do not belong together"), ("rubbish\n", "there is no PEM private key")):
            open(s.key_file, "w").write(text)
            os.kill(pid, signal.SIGHUP)
            until(lambda: why in s.log, 10, f"{why!r} in the log")
            equal(s.serial(), now)
        contains(s.log, "the new certificate is not used, the old one stays")
        open(s.key_file, "w").write(good)
        os.kill(pid, signal.SIGHUP)
        until(lambda: s.log.count("a new certificate is in force") == 2, 10, "it is taken again")

        short_lived(s, 5)
        os.kill(pid, signal.SIGHUP)
        until(lambda: "ends on" in s.log and "days" in s.log, 10, "a warning")
        check = {x["name"]: x for x in s.d.client.get("/v1/doctor")["checks"]}["certificate"]
        equal(check["status"], "warn", str(check))
        contains(check["fix"], "renew")
        equal(s.d.pid, pid)


@plain
@beside
@timeout(120)
def a_key_that_only_root_can_read_is_good_for_a_start(t):
    with secure(t, start=False) as s:
        os.chown(s.key_file, 0, 0)
        s.d.start(settle=False)
        s.api_key = s.d.new_key()["key"]
        contains(s.log, "a new certificate is taken over by a restart only")
        equal(s.client().get("/v1/sandboxes")["sandboxes"], [])


# ---- what the command line says ---------------------------------------------------------------------------------------

@plain
@beside
@timeout(120)
def the_command_line_tells_what_is_wrong_with_a_certificate(t):
    with secure(t) as s:
        def refused(*wants, **kw):
            p = s.hutch("ls", **kw)
            true(p.returncode not in (0, 139), f"{p.returncode}")
            for w in wants:
                contains(p.stderr.decode(), w)
        equal(s.hutch("ls").returncode, 0)
        equal(s.hutch("--cacert", s.ca, "ls", ca=False).returncode, 0)
        equal(s.hutch("ls", url=f"https://127.0.0.1:{s.d.port}").returncode, 0)
        refused("no secure connection to localhost: certificate: ", "HUTCH_CA=FILE or --cacert", ca=False)
        refused("it is for hutch.test, *.hutch.test, localhost, 127.0.0.1, ::1", "use one of those names", url=f"https://127.1:{s.d.port}")
        refused("No such file or directory", ca=False, HUTCH_CA="/nonexistent/ca.pem")
        plain = _daemon.free_port()
        listener = socket.create_server(("127.0.0.1", plain))
        threads = Threads()

        def speak_plainly():
            c, _ = listener.accept()
            c.recv(1000)
            c.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            c.close()
        threads.go(speak_plainly)
        refused("no secure connection", "does not speak TLS", url=f"https://localhost:{plain}")
        threads.join(10)
        listener.close()
        short_lived(s, 0)
        os.kill(s.d.pid, signal.SIGHUP)
        until(lambda: "ended on" in s.log or "ends on" in s.log, 10, "a warning")
        until(lambda: b"it is valid from" in s.hutch("ls").stderr, 20, "it has ended")
        refused("renew the certificate")
        refused("hutchd is not running", url=f"https://localhost:{_daemon.free_port()}")

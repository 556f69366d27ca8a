"""An internet for tests: a network namespace behind a veth pair, with a DNS
server, web servers with and without TLS, an echo server and a UDP sink on
addresses of 198.18.<n>.0/24. The servers are threads of the test process; only
their sockets live in the namespace, and it goes with them. The daemon is told
to ask that DNS server, and its operator's ceiling names that one range (it is
a closed one); every other private address stays closed.

    from hutchtest import *
    from outside import gated

    @tiers("vm", "container")
    @gated
    def some_test(t):
        o = t.outside
        box = t.box(network={"mode": "allow", "allow": ["allowed.test"]})

All tests marked so share one daemon. o.asked: names the DNS server was asked
for; o.hits: what reached a server, each a dict(addr, port, data).
"""
import atexit
import ctypes
import gzip
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

import hutchtest as ht

WEB, OTHER, DNS = 10, 20, 53
A, CNAME, TXT, AAAA, HTTPS = 1, 5, 16, 28, 65


def _name(n):
    return b"".join(bytes([len(p)]) + p.encode() for p in n.strip(".").split(".")) + b"\0"


class Outside:
    def __init__(self):
        self.lock = threading.Lock()
        self.asked, self.hits = [], []
        self.dir = tempfile.mkdtemp(prefix="hutch-outside-")
        os.chmod(self.dir, 0o755)
        atexit.register(shutil.rmtree, self.dir, True)
        self._space()
        self._certs()
        self.zone = {}
        self.ttl = 60
        self.reset()
        for fn, s in ((self._dns_udp, self.s_dns), (self._dns_tcp, self.s_dns_tcp), *((self._udp, s) for s in self.s_udp)):
            threading.Thread(target=fn, args=(s,), daemon=True).start()
        for s, handler in self.listeners:
            threading.Thread(target=self._accept, args=(s, handler), daemon=True).start()

    def ip(self, host=WEB):
        return f"198.18.{self.n}.{host}"

    def ip6(self, host=WEB):
        return f"fd98:18:{self.n:x}::{host:x}"

    @property
    def net6(self):
        return f"fd98:18:{self.n:x}::/64"

    @property
    def net(self):
        return f"198.18.{self.n}.0/24"

    def reset(self):
        with self.lock:
            self.asked.clear()
            self.hits.clear()
            self.answer = None  # fn(name, type) -> list of (type, ttl, data) or None
            self.proxy_says = 0
            self.site = None    # fn(method, path, headers, body) -> (type, bytes) or None: what the web servers answer instead
            self.zone = {"allowed.test": [self.ip()], "www.allowed.test": [self.ip()], "api.allowed.test": [self.ip()], "other.test": [self.ip(OTHER)],
                         "shared.test": [self.ip()], "private.test": ["10.0.0.1"], "metadata.test": ["169.254.169.254"], "loop.test": ["127.0.0.1"],
                         "mixed.test": ["10.0.0.1", self.ip()], "cname.test": ("CNAME", "private.test"), "alias.test": ("CNAME", "allowed.test"), "six.test": [self.ip6()]}

    def hit(self, addr, port, data):
        with self.lock:
            self.hits.append({"addr": addr, "port": port, "data": data})

    # -- set-up

    def _space(self):
        """The namespace is made by a child; once our sockets are in it, they keep it."""
        child = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up; echo up; exec sleep 600"], stdout=subprocess.PIPE)
        try:
            child.stdout.readline()
            for i in range(250):
                self.n = (os.getpid() + i) % 250 + 1
                link = f"outside{self.n}"
                if subprocess.run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(child.pid)], capture_output=True).returncode == 0:
                    break
            def run(*args):
                subprocess.run(args, check=True, capture_output=True)
            inside = ("nsenter", "-t", str(child.pid), "-n", "ip")
            run("ip", "addr", "add", f"{self.ip(1)}/24", "dev", link)
            run("ip", "-6", "addr", "add", f"{self.ip6(1)}/64", "dev", link, "nodad")
            run("ip", "link", "set", link, "up")
            for host in (WEB, OTHER, DNS):
                run(*inside, "addr", "add", f"{self.ip(host)}/24", "dev", "eth0")
            run(*inside, "-6", "addr", "add", f"{self.ip6()}/64", "dev", "eth0", "nodad")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "route", "add", "default", "via", self.ip(1))
            failed = []

            def bind():  # a thread of its own: it stays in that namespace, the others do not
                try:
                    fd = os.open(f"/proc/{child.pid}/ns/net", os.O_RDONLY)
                    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000):
                        raise OSError(ctypes.get_errno(), "setns")
                    os.close(fd)
                    self._bind()
                except OSError as e:
                    failed.append(e)
            th = threading.Thread(target=bind)
            th.start()
            th.join()
            if failed:
                raise failed[0]
        finally:
            child.kill()
            child.wait()

    def _bind(self):
        made = []

        def sock(kind, host, port, six=False):
            s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, kind)
            made.append(s)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((self.ip6(host) if six else self.ip(host), port))
            if kind == socket.SOCK_STREAM:
                s.listen(256)
            return s
        try:
            self.s_dns = sock(socket.SOCK_DGRAM, DNS, 53)
            self.s_dns_tcp = sock(socket.SOCK_STREAM, DNS, 53)
            self.s_udp = [sock(socket.SOCK_DGRAM, WEB, 7777), sock(socket.SOCK_DGRAM, WEB, 443), sock(socket.SOCK_DGRAM, OTHER, 7777), sock(socket.SOCK_DGRAM, WEB, 7777, six=True)]
            self.listeners = [(sock(socket.SOCK_STREAM, DNS, 3128), self._proxy)]
            for host in (WEB, OTHER):
                self.listeners += [(sock(socket.SOCK_STREAM, host, 80), self._http), (sock(socket.SOCK_STREAM, host, 443), self._https),
                                   (sock(socket.SOCK_STREAM, host, 7), self._echo), (sock(socket.SOCK_STREAM, host, 8080), self._http),
                                   (sock(socket.SOCK_STREAM, host, 25), self._echo), (sock(socket.SOCK_STREAM, host, 853), self._echo)]
        except OSError:
            for s in made:
                s.close()
            raise

    def _certs(self):
        def run(*args):
            subprocess.run(["openssl", *args], cwd=self.dir, check=True, capture_output=True)
        run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=outside test CA",
            "-keyout", "ca.key", "-out", "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE")
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=outside", "-keyout", "leaf.key", "-out", "leaf.csr")
        with open(os.path.join(self.dir, "ext"), "w") as f:
            f.write("subjectAltName=DNS:allowed.test,DNS:*.allowed.test,DNS:other.test,DNS:shared.test,DNS:alias.test\n")
        run("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "ext", "-out", "leaf.pem")
        self.ca = os.path.join(self.dir, "ca.pem")
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(os.path.join(self.dir, "leaf.pem"), os.path.join(self.dir, "leaf.key"))

    # -- DNS

    def _lookup(self, name, qtype):
        got = self.answer(name, qtype) if self.answer else None
        if got is not None:
            return 0, got
        z = self.zone.get(name)
        if z is None:
            return 3, []
        if isinstance(z, tuple):
            rc, rest = self._lookup(z[1], qtype)
            return 0, [(CNAME, self.ttl, _name(z[1]), name)] + [(r[0], r[1], r[2], r[3] if len(r) > 3 else z[1]) for r in rest]
        if qtype == TXT:
            return 0, [(TXT, self.ttl, b"\x05hello")]
        if qtype == AAAA:
            return 0, [(AAAA, self.ttl, socket.inet_pton(socket.AF_INET6, a)) for a in z if ":" in a]
        return 0, [(A, self.ttl, socket.inet_aton(a)) for a in z if ":" not in a] if qtype == A else []

    def _reply(self, q):
        labels, at = [], 12
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]].decode("latin-1"))
            at += 1 + q[at]
        qtype = struct.unpack(">H", q[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        with self.lock:
            self.asked.append(name)
        rc, rrs = self._lookup(name, qtype)
        out = q[:2] + struct.pack(">HHHHH", 0x8180 | rc, 1, len(rrs), 0, 0) + q[12:at + 5]
        for r in rrs:
            out += _name(r[3] if len(r) > 3 else name) + struct.pack(">HHIH", r[0], 1, r[1], len(r[2])) + r[2]
        return out

    def _dns_udp(self, s):
        while True:
            try:
                q, who = s.recvfrom(4096)
                s.sendto(self._reply(q), who)
            except (IndexError, OSError, struct.error):
                pass

    def _dns_tcp(self, s):
        while True:
            c, _ = s.accept()
            try:
                n = struct.unpack(">H", c.recv(2))[0]
                r = self._reply(c.recv(n))
                c.sendall(struct.pack(">H", len(r)) + r)
            except (IndexError, OSError, struct.error):
                pass
            c.close()

    def _udp(self, s):
        while True:
            d, who = s.recvfrom(65536)
            self.hit(*s.getsockname()[:2], d)
            s.sendto(d, who)

    # -- TCP

    def _accept(self, s, handler):
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            c.settimeout(60)
            threading.Thread(target=self._serve, args=(c, handler, s.getsockname()), daemon=True).start()

    def _serve(self, c, handler, me):
        try:
            handler(c, me)
        except (OSError, ValueError):
            pass
        try:
            c.close()
        except OSError:
            pass

    def _proxy(self, c, me):
        """An HTTP proxy through which any address can be had: it leads to our own servers. o.proxy_says: a status that refuses."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            d = c.recv(1)
            if not d:
                return
            head += d
        self.hit(*me, head)
        status = self.proxy_says or (200 if head.startswith(b"CONNECT ") else 405)
        c.sendall(b"HTTP/1.1 %d said the proxy\r\nVia: it\r\n\r\n" % status)
        if status == 200:
            host, _, port = head.split()[1].decode().rpartition(":")
            {80: self._http, 443: self._https}.get(int(port), self._echo)(c, (host, int(port)))

    def _echo(self, c, me):
        self.hit(*me, b"(connected)")
        while True:
            d = c.recv(65536)
            if not d:
                return
            self.hit(*me, d)
            c.sendall(d)

    def _https(self, c, me):
        tls = self.tls.wrap_socket(c, server_side=True)
        tls.settimeout(60)
        self._http(tls, me)

    def _http(self, c, me):
        """Answers with what it saw, as JSON. /redirect?URL sends there; /echo?TEXT answers TEXT; /slow keeps sending; /ws changes to an echo;
        /tell tells the Authorization it got in a header and byte by byte, packed if the client takes that; /ranged tells the part of it that Range asks for;
        /h2c changes to that and answers whatever comes."""
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                d = c.recv(65536)
                if not d:
                    if data:
                        self.hit(*me, data)
                    return
                data += d
            head, _, data = data.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            self.hit(*me, head)
            method, path = lines[0].decode("latin-1").split(" ")[:2]
            headers = {}
            for line in lines[1:]:
                k, _, v = line.partition(b":")
                headers.setdefault(k.decode("latin-1").lower(), v.strip().decode("latin-1"))
            need = int(headers.get("content-length", 0))
            while len(data) < need:
                data += c.recv(65536)
            body, data = data[:need], data[need:]
            if path.startswith("/redirect?"):
                c.sendall(b"HTTP/1.1 302 Found\r\nLocation: " + path[10:].encode() + b"\r\nContent-Length: 0\r\n\r\n")
                continue
            if path == "/slow":
                c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(300):
                    c.sendall(b"2\r\n.\n\r\n")
                    time.sleep(0.1)
                return
            if path == "/ws":
                c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                return self._echo(c, me)
            if path == "/h2c" and headers.get("upgrade"):
                c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
                return self._echo(c, me)
            if path == "/ranged":
                out, part = headers.get("authorization", "").encode(), headers.get("range", "")
                if part:
                    a, b = (int(x) for x in part.removeprefix("bytes=").split("-"))
                    c.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d\r\n\r\n" % (a, b, len(out), b + 1 - a) + out[a:b + 1])
                else:
                    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(out) + out)
                continue
            if path == "/tell":
                out, packed = headers.get("authorization", "").encode(), "gzip" in headers.get("accept-encoding", "")
                c.sendall(b"HTTP/1.1 200 OK\r\nX-Saw: " + out + b"\r\nTransfer-Encoding: chunked\r\n" + (b"Content-Encoding: gzip\r\n" if packed else b"") + b"\r\n")
                for b in gzip.compress(out) if packed else out:
                    c.sendall(b"1\r\n%c\r\n" % b)
                c.sendall(b"0\r\n\r\n")
                continue
            kind = "application/json"
            page = self.site(method, path, headers, body) if self.site else None
            out = page[1] if page else path[6:].encode() if path.startswith("/echo?") else json.dumps(
                {"server": me[0], "port": me[1], "method": method, "path": path, "headers": headers, "body": body.decode("latin-1")}).encode()
            if page:
                kind = page[0]
            if method == "HEAD":
                out = b""
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(out)) + out)


_the = None


def outside():
    global _the
    if _the is None:
        _the = Outside()
    return _the


class _Late:
    """A setting that is known once the outside is there."""

    def __init__(self, fn):
        self.fn = fn

    def __str__(self):
        return self.fn(outside())


ENV = {
    "HUTCH_NETWORK_CEILING": _Late(lambda o: json.dumps({"mode": "open", "private": [o.net, o.net6]})),
    "HUTCH_RESOLVERS": _Late(lambda o: o.ip(DNS)),
    "SSL_CERT_FILE": _Late(lambda o: o.ca),
    "HUTCH_POOL_VM": 1, "HUTCH_POOL_PRESTARTED": 0, "HUTCH_POOL_CONTAINER": 2,
}


def gated(fn):
    """The test runs against the daemon that has this outside; t.outside is it, freshly reset."""
    def body(t):
        t.outside = outside()
        t.outside.reset()
        fn(t)
    body.__name__ = fn.__name__
    body.__code__ = body.__code__.replace(co_firstlineno=fn.__code__.co_firstlineno, co_filename=fn.__code__.co_filename)
    for k, v in fn.__dict__.items():
        setattr(body, k, v)
    return ht.shared_daemon("outside", **ENV)(body)


# ---- inside the sandbox -------------------------------------------------------------------------------------------
CLIENT = r'''
import errno, json, os, socket, ssl, struct, sys, time
R = {}
def name_of(e):
    return errno.errorcode.get(e.errno, str(e)) if isinstance(e, OSError) and e.errno else type(e).__name__ + ": " + str(e)
def tcp(addr, data=b"hello", port=None, wait=5):
    """What came back, or the error's name. Closed without a byte: "closed"."""
    try:
        s = socket.create_connection(addr, timeout=wait)
        if data: s.sendall(data)
        got = s.recv(65536)
        return got.decode("latin-1") if got else "closed"
    except (TimeoutError, socket.timeout): return "TIMEOUT"
    except OSError as e: return name_of(e)
HELD = []
def hold(addr, n):
    """n connections to an echo server that stay open in HELD; what each answered, "" if nothing."""
    def one():
        try:
            s = socket.create_connection(addr, timeout=10)
            HELD.append(s)
            s.sendall(b"x")
            return s.recv(9).decode()
        except OSError: return ""
    return [one() for _ in range(n)]
def http(addr, host=None, path="/", method="GET", head="", raw=None, port=80, wait=10):
    """(status, body) or (0, error)."""
    req = raw if raw is not None else ("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n" % (method, path, host or addr, head)).encode("latin-1")
    try:
        s = socket.create_connection((addr, port), timeout=wait)
        s.sendall(req)
        return answer(s)
    except (TimeoutError, socket.timeout): return (0, "TIMEOUT")
    except OSError as e: return (0, name_of(e))
def answer(s):
    got = b""
    try:
        while True:
            d = s.recv(65536)
            if not d: break
            got += d
            h, sep, b = got.partition(b"\r\n\r\n")
            n = [int(l.split(b":")[1]) for l in h.split(b"\r\n") if l.lower().startswith(b"content-length:")]
            if sep and n and len(b) >= n[0]: break
    except ConnectionResetError:
        if not got: return (0, "ECONNRESET")
    if not got: return (0, "closed")
    if not got.startswith(b"HTTP/"): return (0, "alert" if got[:1] == b"\x15" else repr(got[:40]))
    h, _, b = got.partition(b"\r\n\r\n")
    return (int(h.split()[1]), b.decode("latin-1"))
def tls(addr, sni, host=None, path="/", head="", port=443, ca=None, wait=10):
    c = ssl.create_default_context(cafile=ca) if ca else ssl._create_unverified_context()
    try:
        s = c.wrap_socket(socket.create_connection((addr, port), timeout=wait), server_hostname=sni)
        s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n" % (path, host or sni, head)).encode())
        return answer(s)
    except (TimeoutError, socket.timeout): return (0, "TIMEOUT")
    except ssl.SSLError as e: return (0, "ssl " + (e.reason or str(e)))
    except OSError as e: return (0, name_of(e))
TTLS, COUNTS = [], []  # of the last answers: each record's, how many records
def query(name, qtype=1, server="10.77.0.1", over="udp", wait=5, raw=None):
    """(rcode, [addresses]) or the error's name."""
    q = raw or (struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode("latin-1") for p in name.split(".")) + b"\0" + struct.pack(">HH", qtype, 1))
    try:
        if over == "tcp":
            s = socket.create_connection((server, 53), timeout=wait)
            s.sendall(struct.pack(">H", len(q)) + q)
            r = s.recv(65536)[2:]
        else:
            s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(wait)
            s.connect((server, 53)); s.send(q)
            r = s.recv(65536)
        if not r: return "closed"
        at = 12
        while r[at]: at += 1 + r[at]
        at += 5
        got = []
        for _ in range(struct.unpack(">H", r[6:8])[0]):
            while r[at] and r[at] < 192: at += 1 + r[at]
            at += 2 if r[at] >= 192 else 1
            typ, _, ttl, n = struct.unpack(">HHIH", r[at:at + 10])
            TTLS.append(ttl)
            if typ == 1: got.append(socket.inet_ntoa(r[at + 10:at + 14]))
            at += 10 + n
        COUNTS.append(struct.unpack(">H", r[6:8])[0])
        return (r[3] & 15, got)
    except (TimeoutError, socket.timeout): return "TIMEOUT"
    except OSError as e: return name_of(e)
def udp(addr, data=b"x", wait=2):
    fam = socket.AF_INET6 if ":" in addr[0] else socket.AF_INET
    s = socket.socket(fam, socket.SOCK_DGRAM); s.settimeout(wait)
    try:
        s.connect(addr); s.send(data)
        return s.recv(65536).decode("latin-1")
    except (TimeoutError, socket.timeout): return "TIMEOUT"
    except OSError as e: return name_of(e)
'''


def inside(box, code, user=None, deadline=60, **kw):
    """Run lines that fill R inside; returns R. `O` is what the test passes as keywords."""
    import textwrap
    text = CLIENT + "class O: pass\n" + "".join(f"O.{k} = {v!r}\n" for k, v in kw.items()) + textwrap.dedent(code) + "\nprint('REPORT ' + json.dumps(R))\n"
    box.put("/tmp/net.py", text.encode(), mode="0755")
    r = box.exec(["python3", "/tmp/net.py"], deadline=deadline, timeout_ms=deadline * 1000 - 5000, **({"user": user} if user else {}))
    for line in reversed(r.text.splitlines()):
        if line.startswith("REPORT "):
            return json.loads(line[7:])
    raise AssertionError(f"no report from inside: {r!r} {r.stderr!r}")


def egress(t, box, **query):
    """All records of the sandbox's log, once its writer has caught up."""
    got, cursor = [], None
    while True:
        page = t.c.get(f"/v1/sandboxes/{box.id}/egress", **{"limit": 1000, **query, **({"cursor": cursor} if cursor else {})})
        got += page["records"]
        cursor = page["next"]
        if not cursor:
            return got


def logged(t, box, seconds=10, **want):
    """Wait for a record with these members; a value ending in … is a prefix, a callable decides."""
    def fits(r):
        for k, v in want.items():
            x = r.get(k)
            if callable(v):
                if not v(x):
                    return False
            elif isinstance(v, str) and v.endswith("…"):
                if not str(x or "").startswith(v[:-1]):
                    return False
            elif x != v:
                return False
        return True
    end = ht.Deadline(seconds)
    while True:
        rs = egress(t, box)
        for r in rs:
            if fits(r):
                return r
        if end.over:
            raise AssertionError(f"no line with {want} in the egress log: " + "\n".join(json.dumps({k: v for k, v in r.items() if k not in ('hash', 'box', 'sandbox', 'time')}) for r in rs))
        time.sleep(0.05)

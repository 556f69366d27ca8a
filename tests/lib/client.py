"""A client for the native API of hutch, for tests.

Thin on purpose: http.client for the head, our own readers for what streams
(NDJSON, SSE, WebSocket). Every wait has a deadline; a wait that runs out
raises Late, never hangs. Nothing is retried: a test must see every failure.
"""
import base64
import hashlib
import http.client
import json
import os
import select
import socket
import struct
import time
from urllib.parse import quote, urlencode

LONG = 60.0  # default deadline of one call, seconds


class Late(Exception):
    """A deadline passed."""


class ApiError(Exception):
    """A typed error of the daemon."""

    def __init__(self, status, code, message, hint=None, request_id=None, body=b""):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message = status, code, message
        self.hint, self.request_id, self.body = hint, request_id, body


class Untyped(Exception):
    """An error answer without the documented body: always a bug of the daemon."""


# Every limit of the tests times this: for machines that are slow by nature (tests/stock).
PATIENCE = float(os.environ.get("HUTCH_TEST_PATIENCE", "1"))


class Deadline:
    """A point in time on the monotonic clock."""

    def __init__(self, seconds):
        seconds *= PATIENCE
        self.at = time.monotonic() + seconds
        self.seconds = seconds

    @property
    def left(self):
        return self.at - time.monotonic()

    @property
    def over(self):
        return self.left <= 0

    def check(self, what="wait"):
        left = self.left
        if left <= 0:
            raise Late(f"{what}: nothing within {self.seconds:.1f} s")
        return left


def until(fn, seconds=10.0, what=None, step=0.02):
    """Call fn until it answers something true, at most `seconds`; returns that answer.
    Polling is for state that offers no event (files of /proc, a process table)."""
    end = Deadline(seconds)
    while True:
        got = fn()
        if got:
            return got
        if end.over:
            raise Late(f"{what or getattr(fn, '__name__', 'condition')}: not true within {seconds:.1f} s")
        time.sleep(min(step, max(end.left, 0.001)))
        step = min(step * 1.5, 0.25)


# ---- transport ----------------------------------------------------------------------------------------------------

class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(self.timeout)
        s.connect(self.path)
        self.sock = s


class Response:
    """A whole answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:200]!r}>"


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, conn, sock, resp, deadline):
        self._conn, self._sock, self._resp = conn, sock, resp
        self.deadline = deadline
        self.status, self.headers = resp.status, resp.headers
        self._buf = b""
        self.ended = False

    def read1(self, n=1 << 16):
        """Some bytes, or b"" at the end."""
        self._sock.settimeout(self.deadline.check("stream"))
        try:
            return self._resp.read1(n)
        except (socket.timeout, TimeoutError):
            raise Late(f"stream: nothing within {self.deadline.seconds:.1f} s") from None

    def read(self):
        parts = []
        while True:
            b = self.read1()
            if not b:
                return b"".join(parts)
            parts.append(b)

    def lines(self):
        """Lines without their newline; a last unfinished line too."""
        buf = self._buf
        parts = [buf] if buf else []
        while True:
            b = self.read1()
            if not b:
                self.ended = True
                rest = b"".join(parts)
                self._buf = b""
                if rest:
                    yield rest
                return
            if b"\n" not in b:
                parts.append(b)
                continue
            parts.append(b)
            whole = b"".join(parts).split(b"\n")
            tail = whole.pop()
            parts = [tail] if tail else []
            self._buf = tail
            for line in whole:
                yield line

    def events(self):
        """NDJSON objects."""
        for line in self.lines():
            if line:
                yield json.loads(line)

    def sse(self):
        """(event, id, data) of server-sent events; comments are skipped."""
        event, ident, data = None, None, []
        for raw in self.lines():
            line = raw.rstrip(b"\r").decode()
            if line == "":
                if event is not None or data:
                    yield (event or "message", ident, "\n".join(data))
                event, data = None, []
                continue
            if line.startswith(":"):
                continue
            name, _, value = line.partition(":")
            if value.startswith(" "):
                value = value[1:]
            if name == "event":
                event = value
            elif name == "id":
                ident = value
            elif name == "data":
                data.append(value)

    def fileno(self):
        return self._sock.fileno()

    def abort(self):
        """Leave without reading the rest, as a client that crashed."""
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.close()

    def close(self):
        for x in (self._resp, self._conn, self._sock):
            try:
                x.close()
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def error_of(status, body):
    """ApiError from an error answer, or Untyped if it is not the documented shape."""
    try:
        e = json.loads(body)["error"]
        err = ApiError(status, e["code"], e["message"], e.get("hint"), e.get("request_id"), body)
    except (ValueError, KeyError, TypeError):
        raise Untyped(f"status {status} without a typed error: {body[:300]!r}") from None
    want = STATUS_OF.get(err.code)
    if want is None:
        raise Untyped(f"unknown error code {err.code!r} (status {status})")
    if want != status:
        raise Untyped(f"code {err.code!r} came with status {status}, documented is {want}")
    if not err.message:
        raise Untyped(f"error {err.code!r} says nothing")
    return err


STATUS_OF = {"invalid": 400, "unauthenticated": 401, "denied": 403, "forbidden": 403, "not_found": 404, "conflict": 409, "gone": 410,
             "too_large": 413, "quota": 429, "rate": 429, "canceled": 499, "internal": 500, "unsupported": 501,
             "guest": 502, "unavailable": 503, "timeout": 504}


class Client:
    """One way to reach one daemon: Client(sock="/…/hutch.sock") or Client(addr=("127.0.0.1", n), key="e2b_…")."""

    def __init__(self, sock=None, addr=None, key=None, timeout=LONG):
        self.sock, self.addr, self.key, self.timeout = sock, addr, key, timeout

    def with_key(self, key):
        return Client(self.sock, self.addr, key, self.timeout)

    # -- plumbing

    def _conn(self, timeout):
        if self.sock:
            return _UnixConnection(self.sock, timeout)
        return http.client.HTTPConnection(self.addr[0], self.addr[1], timeout=timeout)

    def dial(self, timeout=None):
        """A raw connected socket."""
        c = self._conn(timeout or self.timeout)
        c.connect()
        return c.sock

    def _headers(self, extra):
        h = {}
        if self.key:
            h["Authorization"] = f"Bearer {self.key}"
        h.update(extra or {})
        return h

    def stream(self, method, path, query=None, json_body=None, body=None, headers=None, deadline=None, ok=True):
        """Send and return the Stream once the head is there. ok: raise the typed error for status >= 400."""
        end = Deadline(deadline or self.timeout)
        if query:
            path += ("&" if "?" in path else "?") + urlencode(query, doseq=True)
        h = self._headers(headers)
        if json_body is not None:
            body = json.dumps(json_body).encode()
            h.setdefault("Content-Type", "application/json")
        conn = self._conn(end.seconds)
        try:
            # A body iterator or file without a length goes out chunked.
            chunked = body is not None and not isinstance(body, (bytes, bytearray, str)) and "Content-Length" not in h
            conn.request(method, path, body=body, headers=h, encode_chunked=chunked)
        except (BrokenPipeError, ConnectionResetError):
            # The daemon may refuse early (too large); its answer is still to be read.
            if conn.sock is None:
                raise
        except (socket.timeout, TimeoutError):
            conn.close()
            raise Late(f"{method} {path}: not sent within {end.seconds:.1f} s") from None
        sock = conn.sock
        try:
            sock.settimeout(max(end.left, 0.001))
            resp = conn.getresponse()
        except (socket.timeout, TimeoutError):
            conn.close()
            raise Late(f"{method} {path}: no answer within {end.seconds:.1f} s") from None
        except BaseException:
            conn.close()
            raise
        s = Stream(conn, sock, resp, end)
        if ok and s.status >= 400:
            body = s.read()
            s.close()
            raise error_of(s.status, body)
        return s

    def call(self, method, path, query=None, json_body=None, body=None, headers=None, deadline=None, ok=True):
        with self.stream(method, path, query, json_body, body, headers, deadline, ok) as s:
            return Response(s.status, s.headers, s.read())

    def get(self, path, /, **query):
        return self.call("GET", path, query=query or None).json()

    def post(self, path, obj=None, **kw):
        r = self.call("POST", path, json_body=obj if obj is not None else {}, **kw)
        return r.json() if r.body else None

    def put(self, path, obj=None, **kw):
        r = self.call("PUT", path, json_body=obj, **kw)
        return r.json() if r.body else None

    def delete(self, path, /, **query):
        return self.call("DELETE", path, query=query or None)

    def raw(self, data, deadline=10.0, half_close=False):
        """Send exact bytes, read one answer. Returns Response, or None if the daemon closed without answering."""
        end = Deadline(deadline)
        s = self.dial(deadline)
        try:
            try:
                s.sendall(data)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass
            resp = http.client.HTTPResponse(s, method="GET")
            try:
                s.settimeout(end.check("raw answer"))
                resp.begin()
                return Response(resp.status, resp.headers, resp.read())
            except (http.client.BadStatusLine, ConnectionResetError, BrokenPipeError):
                return None
            except (socket.timeout, TimeoutError):
                raise Late(f"raw request: no answer within {deadline:.1f} s") from None
            finally:
                resp.close()
        finally:
            s.close()

    def websocket(self, path, query=None, headers=None, deadline=None):
        if query:
            path += "?" + urlencode(query, doseq=True)
        return WebSocket(self, path, self._headers(headers), deadline or self.timeout)

    # -- the API

    def health(self, deadline=5.0):
        return self.call("GET", "/healthz", deadline=deadline).json()

    def create(self, deadline=None, **members):
        r = self.call("POST", "/v1/sandboxes", json_body=members, deadline=deadline)
        if r.status != 201:
            raise Untyped(f"create answered {r.status}")
        return Box(self, r.json())

    def sandboxes(self, **query):
        """All pages."""
        got, cursor = [], None
        while True:
            q = dict(query)
            if cursor:
                q["cursor"] = cursor
            page = self.get("/v1/sandboxes", **q)
            got += page["sandboxes"]
            cursor = page["next"]
            if not cursor:
                return got

    def box(self, ident):
        return Box(self, {"id": ident})


class Exec:
    """The answer of a waiting exec."""

    def __init__(self, obj):
        self.obj = obj
        self.exit = obj["exit"]
        self.pid = obj.get("pid")
        self.stdout = self._bytes("stdout")
        self.stderr = self._bytes("stderr")

    def _bytes(self, name):
        if self.obj.get(name) is not None:
            return self.obj[name].encode()
        if self.obj.get(name + "_base64") is not None:
            return base64.b64decode(self.obj[name + "_base64"])
        return b""

    @property
    def code(self):
        """Exit status, or None if it did not exit by itself."""
        return self.exit["code"] if self.exit["kind"] == "exit" else None

    @property
    def text(self):
        return self.stdout.decode(errors="replace")

    def __repr__(self):
        return f"<exec {self.exit} out={self.stdout[:300]!r} err={self.stderr[:600]!r}>"


def event_bytes(ev):
    """The output bytes that a stream event carries."""
    if "data" in ev:
        return ev["data"].encode()
    return base64.b64decode(ev.get("data_base64", ""))


class ExecStream:
    """A streaming exec or a re-attachment. Iterate for events; or collect()."""

    def __init__(self, stream):
        self.stream = stream
        self._it = stream.events()
        self.pid = None
        self.offset = None
        self.seen = []

    def __iter__(self):
        return self

    def __next__(self):
        ev = next(self._it)
        if ev["event"] == "started":
            self.pid, self.offset = ev["pid"], ev.get("offset")
        return ev

    def started(self):
        """Read up to the started event."""
        for ev in self:
            if ev["event"] == "started":
                return self
        raise AssertionError("stream ended before 'started'")

    def wait_output(self, needle, names=("stdout", "stderr")):
        """Read until `needle` was seen in the output; returns all bytes read so far."""
        got = b""
        for ev in self:
            if ev["event"] in names:
                got += event_bytes(ev)
                if needle in got:
                    return got
            elif ev["event"] in ("exit", "interrupted"):
                raise AssertionError(f"stream ended with {ev} before {needle!r}; output {got[-500:]!r}")
        raise AssertionError(f"stream ended before {needle!r}; output {got[-500:]!r}")

    def collect(self, sink=None):
        """Read to the end. Returns dict(stdout, stderr, lost, last). sink(name, bytes) gets the bytes instead."""
        out = {"stdout": [], "stderr": []}
        lost, last = 0, None
        for ev in self:
            kind = ev["event"]
            if kind in out:
                b = event_bytes(ev)
                if sink:
                    sink(kind, b)
                else:
                    out[kind].append(b)
            elif kind == "lost":
                lost += ev["bytes"]
            elif kind in ("exit", "interrupted"):
                last = ev
        self.close()
        return {"stdout": b"".join(out["stdout"]), "stderr": b"".join(out["stderr"]), "lost": lost, "last": last}

    def abort(self):
        self.stream.abort()

    def close(self):
        self.stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Box:
    """A sandbox as the client sees it."""

    def __init__(self, client, obj):
        self.c, self.obj, self.id = client, obj, obj["id"]
        self.p = "/v1/sandboxes/" + quote(self.id)

    def __repr__(self):
        return f"<box {self.id}>"

    def via(self, client):
        """The same sandbox through another client."""
        return Box(client, self.obj)

    def info(self):
        self.obj = self.c.get(self.p)
        return self.obj

    def patch(self, **members):
        return self.c.call("PATCH", self.p, json_body=members).json()

    def timeout(self, seconds):
        return self.c.post(self.p + "/timeout", {"timeout_s": seconds})

    def keepalive(self, **members):
        return self.c.post(self.p + "/keepalive", members)

    def kill(self):
        return self.c.call("DELETE", self.p)

    def pause(self, deadline=60, **members):
        return self.c.call("POST", self.p + "/pause", json_body=members, deadline=deadline).json()

    def resume(self, deadline=60, **members):
        return self.c.call("POST", self.p + "/resume", json_body=members, deadline=deadline).json()

    def recover(self, deadline=120, **members):
        return self.c.call("POST", self.p + "/recover", json_body=members, deadline=deadline).json()

    def snapshot(self, deadline=60, **members):
        return self.c.call("POST", self.p + "/snapshots", json_body=members, deadline=deadline).json()

    def rollback(self, snapshot, deadline=120, **members):
        return self.c.call("POST", self.p + "/rollback", json_body={"snapshot": snapshot, **members}, deadline=deadline).json()

    def fork(self, deadline=120, **members):
        return self.c.call("POST", self.p + "/fork", json_body=members, deadline=deadline).json()

    def wait_state(self, *states, seconds=20.0):
        def there():
            o = self.info()
            return o if o["state"] in states else None
        return until(there, seconds, f"{self.id} in state {'/'.join(states)}")

    # -- commands

    def exec(self, cmd, deadline=None, **members):
        r = self.c.call("POST", self.p + "/exec", json_body={"cmd": cmd, **members}, deadline=deadline)
        return Exec(r.json())

    def ok(self, cmd, **members):
        """exec that must exit with 0; returns its text."""
        r = self.exec(cmd, **members)
        if r.exit != {"kind": "exit", "code": 0}:
            raise AssertionError(f"{cmd!r}: {r!r}")
        return r.text

    def stream(self, cmd, deadline=None, **members):
        return ExecStream(self.c.stream("POST", self.p + "/exec", json_body={"cmd": cmd, "stream": True, **members}, deadline=deadline))

    def background(self, cmd, **members):
        r = self.c.call("POST", self.p + "/exec", json_body={"cmd": cmd, "background": True, **members})
        if r.status != 201:
            raise AssertionError(f"background exec answered {r.status}")
        return r.json()["pid"]

    def attach(self, pid, offset=None, deadline=None):
        q = {} if offset is None else {"offset": offset}
        return ExecStream(self.c.stream("GET", f"{self.p}/processes/{pid}/stream", query=q, deadline=deadline))

    def processes(self):
        return self.c.get(self.p + "/processes")["processes"]

    def process(self, pid):
        return self.c.get(f"{self.p}/processes/{pid}")

    def wait_process(self, pid, seconds=20.0):
        """Wait until a background process has ended; returns its entry."""
        def done():
            o = self.process(pid)
            return None if o["running"] else o
        return until(done, seconds, f"process {pid} to end")

    def stdin(self, pid, data=b"", eof=False):
        return self.c.call("POST", f"{self.p}/processes/{pid}/stdin", query={"eof": 1} if eof else None, body=data)

    def signal(self, pid, sig, **members):
        return self.c.call("POST", f"{self.p}/processes/{pid}/signal", json_body={"signal": sig, **members})

    def resize(self, pid, cols, rows):
        return self.c.call("POST", f"{self.p}/processes/{pid}/resize", json_body={"cols": cols, "rows": rows})

    def pty(self, deadline=None, **query):
        return self.c.websocket(self.p + "/pty", query=query, deadline=deadline)

    # -- files

    def put(self, path, data, deadline=None, **query):
        return self.c.call("PUT", self.p + "/files", query={"path": path, **query}, body=data, deadline=deadline,
                           headers={"Content-Type": "application/octet-stream"}).json()

    def get(self, path, deadline=None, **query):
        return self.c.call("GET", self.p + "/files", query={"path": path, **query}, deadline=deadline).body

    def head(self, path, **query):
        return self.c.call("HEAD", self.p + "/files", query={"path": path, **query}, ok=False)

    def rm(self, path, **query):
        return self.c.call("DELETE", self.p + "/files", query={"path": path, **query})

    def stat(self, path, **query):
        return self.c.get(self.p + "/files/stat", path=path, **query)

    def move(self, src, dst, **members):
        return self.c.post(self.p + "/files/move", {"from": src, "to": dst, **members})

    def attr(self, path, **members):
        return self.c.post(self.p + "/files/attr", {"path": path, **members})

    def symlink(self, target, path):
        return self.c.post(self.p + "/files/symlink", {"target": target, "path": path})

    def ls(self, path, **query):
        return self.c.get(self.p + "/dirs", path=path, **query)["entries"]

    def mkdir(self, path, **query):
        return self.c.call("POST", self.p + "/dirs", query={"path": path, **query}).json()

    def watch(self, path, deadline=None, **query):
        """Iterator over (event, object); returns once the daemon said ready."""
        return Watch(self.c.stream("GET", self.p + "/watch", query={"path": path, **query}, deadline=deadline))

    # -- observing

    # ---- code contexts ----
    def eval(self, code, deadline=None, **members):
        return self.c.post(f"/v1/sandboxes/{self.id}/eval", {"code": code, **members}, deadline=deadline)

    def eval_stream(self, code, deadline=None, **members):
        return self.c.stream("POST", f"/v1/sandboxes/{self.id}/eval", json_body={"code": code, "stream": True, **members}, deadline=deadline)

    def contexts(self):
        return self.c.get(f"/v1/sandboxes/{self.id}/contexts")["contexts"]

    def context(self, what=None, method="POST", deadline=None, **members):
        """Without `what` a new one; else "ID", "ID/restart" or "ID/interrupt"."""
        path = f"/v1/sandboxes/{self.id}/contexts" + (f"/{what}" if what else "")
        r = self.c.call(method, path, json_body=members if not what else None, deadline=deadline)
        return r.json() if r.body else None

    def metrics(self):
        return self.c.get(self.p + "/metrics")

    def logs(self, **query):
        return self.c.get(self.p + "/logs", **query)["entries"]

    def console(self):
        return self.c.get(self.p + "/console")["lines"]


class Watch:
    def __init__(self, stream):
        self.stream = stream
        self._it = stream.sse()
        ev = next(self._it)
        if ev[0] != "ready":
            raise AssertionError(f"first watch event is {ev}, not ready")

    def __iter__(self):
        return self

    def __next__(self):
        kind, _, data = next(self._it)
        return kind, (json.loads(data) if data else {})

    def until(self, want):
        """Read changes until want(list of (type, name)) is true; returns the list."""
        got = []
        for kind, obj in self:
            if kind == "change":
                got.append((obj["type"], obj["name"]))
            else:
                got.append((kind, None))
            if want(got):
                return got
        raise AssertionError(f"watch ended; seen {got[-50:]}")

    def close(self):
        self.stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- WebSocket (RFC 6455), client side, no extensions ----------------------------------------------------------------

WS_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
WS_TEXT, WS_BINARY, WS_CLOSE, WS_PING, WS_PONG = 1, 2, 8, 9, 10


class WebSocket:
    def __init__(self, client, path, headers, deadline):
        self.deadline = Deadline(deadline)
        self.sock = client.dial(deadline)
        self._in = b""
        self.close_code = None
        key = base64.b64encode(os.urandom(16))
        host = "localhost" if client.sock else "%s:%d" % client.addr
        head = [f"GET {path} HTTP/1.1", f"Host: {headers.pop('Host', host)}", "Upgrade: websocket", "Connection: Upgrade",
                f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13"]
        head += [f"{k}: {v}" for k, v in headers.items()]
        self.sock.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
        answer = self._until(b"\r\n\r\n")
        lines = answer.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:] if x)}
        if self.status != 101:
            body = self._in
            n = int(self.headers.get("content-length", "0"))
            while len(body) < n:
                more = self._recv()
                if not more:
                    break
                body += more
            self.close()
            raise error_of(self.status, body)
        want = base64.b64encode(hashlib.sha1(key + WS_GUID).digest()).decode()
        if self.headers.get("sec-websocket-accept") != want:
            raise AssertionError("wrong Sec-WebSocket-Accept")

    def _recv(self):
        self.sock.settimeout(self.deadline.check("websocket"))
        try:
            return self.sock.recv(1 << 16)
        except (socket.timeout, TimeoutError):
            raise Late(f"websocket: nothing within {self.deadline.seconds:.1f} s") from None

    def _until(self, mark):
        while mark not in self._in:
            b = self._recv()
            if not b:
                raise AssertionError(f"closed during the handshake: {self._in[:200]!r}")
            self._in += b
        head, _, self._in = self._in.partition(mark)
        return head

    def _need(self, n):
        while len(self._in) < n:
            b = self._recv()
            if not b:
                return False
            self._in += b
        return True

    def send_frame(self, opcode, payload, fin=True, mask=True):
        head = bytes([(0x80 if fin else 0) | opcode])
        n, m = len(payload), 0x80 if mask else 0
        if n < 126:
            head += bytes([m | n])
        elif n < 65536:
            head += bytes([m | 126]) + struct.pack(">H", n)
        else:
            head += bytes([m | 127]) + struct.pack(">Q", n)
        if mask:
            k = os.urandom(4)
            head += k
            long = (k * (n // 4 + 1))[:n]
            payload = (int.from_bytes(payload, "big") ^ int.from_bytes(long, "big")).to_bytes(n, "big")
        self.sock.settimeout(self.deadline.check("websocket send"))
        self.sock.sendall(head + payload)

    def send(self, data):
        """bytes go as a binary message, anything else as JSON text."""
        if isinstance(data, (bytes, bytearray)):
            self.send_frame(WS_BINARY, bytes(data))
        else:
            self.send_frame(WS_TEXT, json.dumps(data).encode())

    def _frame(self):
        if not self._need(2):
            return None
        b0, b1 = self._in[0], self._in[1]
        if b0 & 0x70:
            raise AssertionError("reserved bits set")
        if b1 & 0x80:
            raise AssertionError("a server must not mask (RFC 6455 5.1)")
        n, at = b1 & 0x7F, 2
        if n == 126:
            if not self._need(4):
                return None
            n, at = struct.unpack(">H", self._in[2:4])[0], 4
        elif n == 127:
            if not self._need(10):
                return None
            n, at = struct.unpack(">Q", self._in[2:10])[0], 10
        if not self._need(at + n):
            return None
        payload, self._in = self._in[at:at + n], self._in[at + n:]
        return b0 & 0x0F, bool(b0 & 0x80), payload

    def recv(self):
        """Next message: bytes (binary) or object (JSON text); None once closed."""
        kind, parts = None, []
        while True:
            f = self._frame()
            if f is None:
                return None
            op, fin, payload = f
            if op == WS_PING:
                self.send_frame(WS_PONG, payload)
                continue
            if op == WS_PONG:
                continue
            if op == WS_CLOSE:
                self.close_code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005
                try:
                    self.send_frame(WS_CLOSE, payload[:2])
                except (OSError, Late):
                    pass
                return None
            if op:
                kind = op
            parts.append(payload)
            if fin:
                whole = b"".join(parts)
                return json.loads(whole) if kind == WS_TEXT else whole

    def wait_for(self, needle):
        """Terminal bytes up to and including `needle`."""
        got = b""
        while needle not in got:
            m = self.recv()
            if m is None:
                raise AssertionError(f"closed ({self.close_code}) before {needle!r}; seen {got[-500:]!r}")
            if isinstance(m, bytes):
                got += m
            elif "exit" in m:
                raise AssertionError(f"exit {m} before {needle!r}; seen {got[-500:]!r}")
        return got

    def drain(self):
        """Everything to the end: (terminal bytes, last JSON message with exit or None)."""
        got, end = b"", None
        while True:
            m = self.recv()
            if m is None:
                return got, end
            if isinstance(m, bytes):
                got += m
            elif "exit" in m:
                end = m["exit"]

    def close(self):
        try:
            self.sock.close()
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def readable(sock, seconds):
    return bool(select.select([sock], [], [], seconds)[0])

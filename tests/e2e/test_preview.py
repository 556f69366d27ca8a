"""Ports inside, reached from outside: HTTP, server-sent events, WebSocket, tokens, waking up, and what must not be reached."""
import json
import socket

from client import WebSocket
from hutchtest import *

TIERS = tiers("vm", "container")

SERVER = r'''
import base64, hashlib, http.server, json, os, struct, sys, time
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def reply(self, body, kind="application/json", extra=()):
        self.send_response(200)
        self.send_header("Content-Type", kind); self.send_header("Content-Length", str(len(body)))
        for k, v in extra: self.send_header(k, v)
        self.end_headers(); self.wfile.write(body)
    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while True:
                n = int(self.rfile.readline(), 16); part = self.rfile.read(n); self.rfile.readline()
                if not n: break
                body += part
        else: body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.reply(json.dumps({"got": body.decode(), "headers": dict(self.headers)}).encode())
    def do_GET(self):
        if self.path == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.end_headers()
            self.close_connection = True
            for i in range(3):
                self.wfile.write(b"data: %d\n\n" % i); self.wfile.flush()
                while not os.path.exists("/tmp/event%d" % i): time.sleep(0.02)
            return
        if self.path == "/ws":
            a = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade"); self.send_header("Sec-WebSocket-Accept", a); self.end_headers()
            self.close_connection = True
            h = self.rfile.read(2); n = h[1] & 127; k = self.rfile.read(4)
            text = bytes(c ^ k[i % 4] for i, c in enumerate(self.rfile.read(n)))
            self.wfile.write(bytes([0x81, len(text)]) + text); self.wfile.flush()
            self.rfile.read(6)
            return
        self.reply(json.dumps({"path": self.path, "headers": dict(self.headers)}).encode(), extra=[("Set-Cookie", "a=1; Domain=localhost; Path=/"), ("Set-Cookie", "b=2; HttpOnly")])
http.server.ThreadingHTTPServer(("127.0.0.1", 8099), H).serve_forever()
'''


def serve(box):
    box.put("/tmp/serve.py", SERVER.encode())
    box.background(["python3", "/tmp/serve.py"])


class Answer:
    def __init__(self, raw):
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if raw else 0
        self.fields = [tuple(x.split(": ", 1)) for x in lines[1:]]

    def all(self, name):
        return [v for k, v in self.fields if k.lower() == name]


def ask(t, box, path="/", method="GET", headers=(), body=b"", port=8099, host=None):
    with socket.create_connection(("127.0.0.1", t.d.port), timeout=60) as s:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'{port}-{box.id}.localhost'}", "Connection: close", *headers]
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        got = b""
        while True:
            d = s.recv(65536)
            if not d:
                return Answer(got)
            got += d


def ready(t, box, **kw):
    until(lambda: ask(t, box, **kw).status == 200, 30, "the server inside")


@TIERS
def http_and_what_is_passed_on(t):
    box = t.box()
    serve(box)
    ready(t, box)
    a = ask(t, box, "/x?y=1", headers=["X-Own: 1", "Connection: close, X-Hop", "X-Hop: 1"])
    got = json.loads(a.body)
    equal((a.status, got["path"], got["headers"].get("X-Own"), got["headers"].get("X-Hop")), (200, "/x?y=1", "1", None))
    equal(got["headers"]["Host"], f"8099-{box.id}.localhost")
    equal(a.all("set-cookie"), ["a=1; Path=/", "b=2; HttpOnly"], "a cookie is for this host alone, not for its neighbours")
    a = ask(t, box, "/", "POST", ["Transfer-Encoding: chunked"], b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")
    equal(json.loads(a.body)["got"], "hello world")


@TIERS
def events_arrive_as_they_happen(t):
    box = t.box()
    serve(box)
    ready(t, box)
    with socket.create_connection(("127.0.0.1", t.d.port), timeout=60) as s:
        s.sendall(f"GET /events HTTP/1.1\r\nHost: 8099-{box.id}.localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
        got = b""
        for i in range(3):
            while b"data: %d" % i not in got:
                d = s.recv(65536)
                true(d, f"ended before event {i}: {got}")
                got += d
            box.put(f"/tmp/event{i}", b"")  # only now does the server go on


@TIERS
def websocket(t):
    box = t.box()
    serve(box)
    ready(t, box)
    ws = WebSocket(t.c, "/ws", {"Host": f"8099-{box.id}.localhost"}, 60)
    ws.send_frame(1, b"there and back")
    true(ws._need(16), "an answer")
    equal(ws._in[2:16], b"there and back")
    ws.close()


@TIERS
def with_a_token(t):
    box, other = t.box(preview="token"), t.box(preview="token")
    serve(box)
    u = t.c.get(f"{box.p}/url", port=8099)
    true(u["token"] and u["header"], u)
    ready(t, box, headers=[f"{u['header']}: {u['token']}"])
    equal(ask(t, box).status, 403)
    equal(ask(t, box, headers=[f"{u['header']}: {t.c.get(f'{other.p}/url', port=8099)['token']}"]).status, 403, "each has its own")
    seen = json.loads(ask(t, box, headers=[f"{u['header']}: {u['token']}"]).body)["headers"]
    lacks(json.dumps(seen), u["token"], "what opens the door is not told inside")
    equal(t.c.get(f"{t.box().p}/url", port=8099)["token"], None)
    refuses("invalid", t.box, preview="friends")
    # E2B's names for it, and the host that the server is to see
    made = t.c.post("/sandboxes", {"templateID": "base", "metadata": {"hutch.isolation": t.tier}, "network": {"allowPublicTraffic": False, "maskRequestHost": "app.local:${PORT}"}})
    t.cleanup_later(lambda: t.c.delete(f"/sandboxes/{made['sandboxID']}"))
    theirs = t.c.box(made["sandboxID"])
    serve(theirs)
    token = f"{u['header']}: {made['trafficAccessToken']}"
    ready(t, theirs, headers=[token])
    equal(ask(t, theirs).status, 403)
    seen = json.loads(ask(t, theirs, headers=[token]).body)["headers"]
    equal(seen["Host"], "app.local:8099")
    lacks(json.dumps(seen), made["trafficAccessToken"])


@TIERS
def ways_that_lead_nowhere(t):
    box, other = t.box(), t.box()
    serve(box)
    ready(t, box)
    for port in (61880, 61881, 61882, 61883):
        true(ask(t, box, port=port).status != 200, f"port {port} is the gate's")
    # a request for one sandbox cannot name another, or the daemon
    equal(ask(t, box, headers=[f"E2b-Sandbox-Id: {other.id}", "E2b-Sandbox-Port: 8099"]).status, 200, "the host decides on a host of a sandbox")
    equal(json.loads(ask(t, box, "/v1/sandboxes").body)["path"], "/v1/sandboxes", "a path of ours is the server's inside")
    equal(ask(t, box, f"http://8099-{other.id}.localhost/").status, 400, "two hosts in one request")
    equal(ask(t, box, host=f"8099-{other.id}.localhost").status, 502, "nothing listens there")
    true(ask(t, box, host=f"8099-{box.id}x.localhost").status in (400, 404, 502))


@TIERS
@timeout(120)
def traffic_wakes_a_paused_sandbox(t):
    box = t.box(auto_resume=True)
    serve(box)
    ready(t, box)
    t.c.post(f"{box.p}/pause", {})
    equal(box.info()["state"], "paused")
    a = ask(t, box)
    if t.tier == "vm":
        equal(a.status, 200, "the very request that woke it is answered")
    else:
        equal(a.status, 502, "a container comes back without its processes: nobody listens yet")
        serve(box)
        ready(t, box)
    equal(box.info()["state"], "running")


@TIERS
def our_credentials_stay_outside(t):
    """A client that sends them to a preview by mistake does not give them to the code inside."""
    box = t.box()
    serve(box)
    ready(t, box)
    key, token = t.d.new_key("preview")["key"], t.c.get(f"/sandboxes/{box.id}")["envdAccessToken"]
    for header in (f"X-API-Key: {key}", f"Authorization: Bearer {key}", f"X-Access-Token: {token}", f"Authorization: Bearer {token}", f"X-Other: {key}"):
        a = ask(t, box, "/", headers=[header, "X-Own: 1"])
        equal((a.status, json.loads(a.body)["headers"].get("X-Own")), (200, "1"))
        for secret in (key, token):
            lacks(a.body.decode(), secret, header)
    a = ask(t, box, "/", headers=["Authorization: Bearer its-own", "Cookie: session=1"])
    equal([json.loads(a.body)["headers"].get(k) for k in ("Authorization", "Cookie")], ["Bearer its-own", "session=1"], "what is the server's own passes")


@TIERS
def the_domain_that_e2b_clients_are_told(t):
    """Without HUTCH_DOMAIN it is what the client called the daemon, under which previews are, and never E2B's own."""
    box = t.box()
    serve(box)
    ready(t, box)
    key = t.d.new_key("domain")["key"]
    told = t.d.tcp(key).get(f"/sandboxes/{box.id}")["domain"]
    equal(told, f"localhost:{t.d.port}")
    equal(t.c.get(f"/sandboxes/{box.id}")["domain"], told, "over the socket too")
    equal(ask(t, box, host=f"8099-{box.id}.{told}").status, 200, "and it leads there")

"""The table of docs/doors.md, walked: every way in, with every credential. The rows are known by their ids; one that stands only there or only
here is a failure, and so is a route or a port of the daemon that no row is about."""
import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import time
from urllib.parse import quote

import daemon
from hutchtest import *

TIERS = tiers("vm", "container")
DOC = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "docs", "doors.md")
PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Content-Type": "text/plain"}
WRONG = "0" * 40
SEEN = set()  # ids of rows that a test below is about, filled by @row

SERVER = r'''
import base64, hashlib, http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        key = self.headers.get("Sec-WebSocket-Key")
        if key:
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode())
            self.end_headers(); self.close_connection = True; return
        self.send_response(200); self.send_header("Content-Length", "6"); self.end_headers(); self.wfile.write(b"inside")
http.server.ThreadingHTTPServer(("127.0.0.1", 8099), H).serve_forever()
'''
SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}


def row(*ids):
    SEEN.update(ids)
    return lambda fn: fn


# ---- asking -------------------------------------------------------------------------------------------------------

def ask(t, method, path, headers=(), body=b"", host="localhost", over=None):
    """One request over TCP (or `over`), exactly these headers. A list of pairs may repeat a name."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
        if not any(k.lower() == "content-type" for k, _ in pairs):
            pairs.append(("Content-Type", "application/json"))
    if not any(k == "Connection" for k, _ in pairs):
        pairs.append(("Connection", "close"))
    if body or method in ("POST", "PUT", "PATCH"):
        pairs.append(("Content-Length", str(len(body))))
    head = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}"] + [f"{k}: {v}" for k, v in pairs])
    return (over or t.d.tcp()).raw(head.encode() + b"\r\n\r\n" + body, 90)


def grants(r):
    """What lets a page of another site read the answer."""
    return r.headers.get("Access-Control-Allow-Origin")


def at(box, port, by="host"):
    """host and headers that name a port of a sandbox"""
    if by == "host":
        return f"{port}-{box.id}.preview.example", {}
    return "localhost", {"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": str(port)}


def to(t, box, port, method, path, headers=None, body=b"", by="host"):
    host, named = at(box, port, by)
    return ask(t, method, path, {**named, **(headers or {})}, body, host)


class Sandbox:
    """One made in some way, and all the credentials there are for it."""

    def __init__(self, t, made):
        self.box = made if isinstance(made, Box) else t.c.box(made["sandboxID"])
        told = t.c.post(f"/v2/sandboxes/{self.box.id}/connect", {"timeout": 300})
        self.token, self.traffic = told["envdAccessToken"], told["trafficAccessToken"]
        self.preview = t.c.get(f"{self.box.p}/url", port=8099)["token"]
        true(self.token and self.traffic and len({self.token, self.traffic, self.preview}) == 3, told)


def e2b(t, path="/v2/sandboxes", **members):
    made = t.c.post(path, {"templateID": "base", "metadata": {"hutch.isolation": t.tier or "container"}, **members})
    t.cleanup_later(lambda: t.c.delete(f"/sandboxes/{made['sandboxID']}"))
    return Sandbox(t, made)


def revoked(t):
    k = t.d.new_key("revoked")
    t.c.delete(f"/v1/keys/{k['id']}")
    return k["key"]


TRAFFIC = "E2b-Traffic-Access-Token"


def cases(t, sb, other, traffic=None):
    """Credentials for the ports that do something in a sandbox: name -> (headers, do they open envd and /execute, do they open /contexts).
    traffic: a token that comes with all of them, for one whose ports are private."""
    key = t.d.new_key("doors")["key"]
    no = {
        "none": {},
        "page": PAGE,
        "wrong": {"X-Access-Token": WRONG},
        "empty": {"X-Access-Token": ""},
        "longer": {"X-Access-Token": sb.token + "0"},
        "anothers": {"X-Access-Token": other.token},
        "wrong-key": {"X-API-Key": "e2b_" + WRONG},
        "revoked-key": {"Authorization": f"Bearer {revoked(t)}"},
        "cookie": {"Cookie": f"X-Access-Token={sb.token}; access_token={sb.token}; key={key}"},
        "basic": {"Authorization": "Basic " + base64.b64encode(f"user:{sb.token}".encode()).decode()},
        "page-wrong": {**PAGE, "X-Access-Token": other.token},
        "wrong-beside-key": {"X-Access-Token": WRONG, "X-API-Key": key},
        **({} if traffic else {"traffic": {TRAFFIC: sb.traffic}, "page-traffic": {**PAGE, TRAFFIC: sb.traffic}, "anothers-traffic": {TRAFFIC: other.traffic}, "wrong-traffic": {TRAFFIC: WRONG}}),
    }
    yes = {"token": {"X-Access-Token": sb.token}, "page-token": {**PAGE, "X-Access-Token": sb.token}, "key": {"X-API-Key": key}, "bearer": {"Authorization": f"Bearer {key}"}}
    also = {TRAFFIC: traffic} if traffic else {}

    def contexts(h):  # a wrong token or key decides alone
        return {**also, **h}.get(TRAFFIC) == sb.traffic and not {"X-Access-Token", "X-API-Key"} & set(h) and "Bearer" not in h.get("Authorization", "")
    return {**{n: ({**also, **h}, False, contexts(h)) for n, h in no.items()}, **{n: ({**also, **h}, True, True) for n, h in yes.items()}}


def readable(note, r, opened):
    """Of a refusal a page of another site reads nothing; of what its credential opened, all."""
    equal(grants(r), "*" if opened else None, f"{note}: CORS")
    lacks(str(r.headers).lower(), "allow-credentials", note)


def typed(note, r):
    """A refusal says what is missing."""
    e = json.loads(r.body)
    equal(e["code"], r.status, note)
    true(re.search("token|key|signature", e["message"].lower()), f"{note}: {e}")


def walk_execute(t, sb, names, by):
    """/execute with each of these credentials; what ran leaves a file, so that a refusal that ran the code all the same is seen."""
    for name, (headers, opens, _) in names.items():
        code = {"code": f"open('/tmp/ran-{by}-{name}', 'w').close(); print(6 * 7)"}
        r = to(t, sb.box, 49999, "POST", "/execute", headers, json.dumps(code).encode(), by)
        note = f"/execute {by} {name}"
        equal(r.status, 200 if opens else 401, note)
        readable(note, r, opens)
        if opens:
            contains(r.body, b'"text":"42\\n"', note)
        else:
            typed(note, r)
            lacks(r.body, b"42", note)
    ran = set(sb.box.exec(["sh", "-c", f"ls /tmp | grep ran-{by}- || true"]).text.split())
    equal(ran, {f"ran-{by}-{n}" for n, (_, opens, _) in names.items() if opens}, "what ran")


def contexts_of(t, sb):
    return {c["id"] for c in t.c.get(f"{sb.box.p}/contexts")["contexts"]}


def walk_contexts(t, sb, names, by):
    r = to(t, sb.box, 49999, "POST", "/contexts", names["token"][0], {"language": "python"}, by)
    equal(r.status, 200, r.body)
    cid = r.json()["id"]
    for name, (headers, _, opens) in names.items():
        for method, path in (("GET", "/contexts"), ("POST", "/contexts"), ("DELETE", f"/contexts/{cid}"), ("POST", f"/contexts/{cid}/restart")):
            if opens and method != "GET":
                continue  # below, once
            before = contexts_of(t, sb)
            r = to(t, sb.box, 49999, method, path, headers, b'{"language":"python"}' if path == "/contexts" and method == "POST" else b"", by)
            note = f"{method} {path} {by} {name}"
            equal(r.status, 200 if opens else 401, note)
            readable(note, r, opens)
            equal(contexts_of(t, sb), before, note)
            if not opens:
                typed(note, r)
    last = [h for h, _, opens in names.values() if opens][0]
    equal(to(t, sb.box, 49999, "POST", f"/contexts/{cid}/restart", last, by=by).status, 200)
    equal(to(t, sb.box, 49999, "DELETE", f"/contexts/{cid}", last, by=by).status, 200)
    true(cid not in contexts_of(t, sb))


RPC = {"/process.Process/List": {}, "/process.Process/Start": {"process": {"cmd": "/bin/touch", "args": ["/tmp/rpc"]}},
       "/filesystem.Filesystem/MakeDir": {"path": "/tmp/rpc"}, "/filesystem.Filesystem/ListDir": {"path": "/"}, "/filesystem.Filesystem/Remove": {"path": "/tmp/kept"}}


def walk_envd(t, sb, names, by):
    sb.box.put("/tmp/kept", b"kept")
    for name, (headers, opens, _) in names.items():
        for method, path, body in (("GET", "/envs", b""), ("GET", "/metrics", b""), ("GET", "/files?path=/tmp/kept", b""), ("HEAD", "/files?path=/tmp/kept", b""),
                                   ("POST", "/files?path=/tmp/rpc", b"x"), ("POST", "/files/compose", b"{}"), *(("POST", p, json.dumps(b).encode()) for p, b in RPC.items())):
            note = f"{method} {path} {by} {name}"
            if opens and method == "POST" and path != "/process.Process/List":
                continue  # what they do is tested elsewhere
            h = {**headers, "Content-Type": "application/json"} if opens else headers
            if method == "HEAD":
                host, named = at(sb.box, 49983, by)
                with socket.create_connection(("127.0.0.1", t.d.port), timeout=60) as s:
                    s.sendall("\r\n".join([f"HEAD {path} HTTP/1.1", f"Host: {host}", "Connection: close"] + [f"{k}: {v}" for k, v in {**named, **h}.items()] + ["", ""]).encode())
                    equal(s.recv(12), b"HTTP/1.1 200" if opens else b"HTTP/1.1 401", note)
                continue
            r = to(t, sb.box, 49983, method, path, h, body, by)
            equal(r.status, 200 if opens else 401, note)
            readable(note, r, opens)
            if not opens:
                typed(note, r)
    equal(sb.box.exec(["sh", "-c", "ls -d /tmp/kept /tmp/rpc 2>/dev/null"]).text, "/tmp/kept\n", "nothing was done")


# ---- the rows -----------------------------------------------------------------------------------------------------

@row("envd", "execute", "contexts")
@TIERS
@timeout(280)
def what_the_daemon_does_in_a_sandbox(t):
    """The same for whatever made it: the native API, E2B's, E2B's with secure: false, and with private ports."""
    native, other, private = Sandbox(t, t.box()), e2b(t), Sandbox(t, t.box(preview="token"))
    walks = [(native, other, None, ("host", "header"))]
    if t.tier == "container":  # the check knows no tiers: one of them is enough where all is slow
        theirs = e2b(t, network={"allowPublicTraffic": False})
        walks += [(other, native, None, ("host",)), (e2b(t, "/sandboxes", secure=False, timeout=300), native, None, ("host", "header")),
                  (private, other, private.preview, ("host",)), (theirs, native, theirs.preview, ("host",)), (theirs, private, theirs.traffic, ("header",))]
    for sb, neighbour, traffic, ways in walks:
        for by in ways:
            names = cases(t, sb, neighbour, traffic)
            walk_envd(t, sb, names, by)
            walk_execute(t, sb, names, by)
            walk_contexts(t, sb, names, by)
    for path in ("/execute", "/contexts", "/health"):
        r = to(t, private.box, 49999, "POST" if path == "/execute" else "GET", path, {"X-Access-Token": private.token}, b'{"code":"1"}' if path == "/execute" else b"")
        equal((r.status, grants(r)), (403, None), f"{path}: its own token, but not that of its ports")


def signature(token, path, op="read", user="", until=None):
    raw = ":".join([path, op, user, token] + ([str(until)] if until is not None else []))
    return "v1_" + base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")


def url(sb_token, signed, op="read", until=None, **shown):
    q = {"path": signed, "signature": signature(sb_token, signed, op, until=until), **({"signature_expiration": until} if until is not None else {}), **shown}
    return "/files?" + "&".join(f"{k}={quote(str(v), safe='')}" for k, v in q.items())


@row("envd-signed", "signed")
@TIERS
def signed_urls(t):
    sb, other = Sandbox(t, t.box()), e2b(t)
    sb.box.put("/tmp/a", b"of this one")
    sb.box.put("/tmp/b", b"another file")
    now = int(time.time())
    good = {"right": url(sb.token, "/tmp/a"), "in time": url(sb.token, "/tmp/a", until=now + 600)}
    wrong = {"none": "/files?path=/tmp/a", "wrong": "/files?path=/tmp/a&signature=v1_" + "A" * 43, "anothers": url(other.token, "/tmp/a"), "no token": url("", "/tmp/a"),
             "expired": url(sb.token, "/tmp/a", until=now - 5), "no number": url(sb.token, "/tmp/a", until="x"), "later": url(sb.token, "/tmp/a", until=now - 5, signature_expiration=now + 600),
             "never": url(sb.token, "/tmp/a", until=now - 5).split("&signature_expiration")[0], "other file": url(sb.token, "/tmp/a", path="/tmp/b"),
             "other user": url(sb.token, "/tmp/a", username="root"), "to write": url(sb.token, "/tmp/a", "write"), "traffic": url(sb.traffic, "/tmp/a")}
    for page in ({}, PAGE):
        h = {k: v for k, v in page.items() if k != "Content-Type"}
        for name, path in {**good, **wrong}.items():
            for where in ("host", "header", "plain"):
                note = f"{name} by {where} {'of a page' if page else ''}"
                r = ask(t, "GET", path, h) if where == "plain" else to(t, sb.box, 49983, "GET", path, h, by=where)
                expect = (where == "plain" and name == "anothers" and 404) or (200 if name in good else 401)
                equal(r.status, expect, note)
                equal(grants(r), "*" if expect != 401 else None, note)
                if name in good:
                    equal(r.body, b"of this one", note)
                elif expect == 401:
                    typed(note, r)
                    lacks(r.body, b"of this one", note)
        for path in (url(sb.token, "/tmp/w"), url(other.token, "/tmp/w", "write"), "/files?path=/tmp/w"):
            true(to(t, sb.box, 49983, "POST", path, {**h, "Content-Type": "application/octet-stream"}, b"x").status == 401, path)
        for method, path in (("DELETE", good["right"]), ("PUT", good["right"]), ("POST", good["right"]), ("POST", good["right"].replace("/files", "/files/compose")), ("GET", good["right"].replace("/files", "/envs"))):
            equal(to(t, sb.box, 49983, method, path, {**h, "X-HTTP-Method-Override": "GET", "Content-Type": "application/octet-stream"}, b"x").status, 401, f"{method} {path}: a signature is for /files, and one direction")
    equal(sb.box.exec(["sh", "-c", "ls /tmp/w 2>/dev/null; cat /tmp/a"]).text, "of this one")
    equal(to(t, sb.box, 49983, "POST", url(sb.token, "/tmp/w", "write"), {"Content-Type": "application/octet-stream"}, b"x").status, 200)
    equal(to(t, sb.box, 49983, "GET", good["right"], {"X-Access-Token": other.token}).status, 401, "a token that was sent decides alone")
    equal(to(t, other.box, 49983, "GET", good["right"]).status, 401, "of one sandbox, shown to another")


@row("sandbox-health")
@plain
def looking_whether_it_runs(t):
    sb = Sandbox(t, t.create(isolation="container"))
    for port, status in ((49983, 204), (49999, 200)):
        for headers, may_read in (({}, False), (PAGE, False), ({"X-Access-Token": WRONG}, False), ({**PAGE, "X-Access-Token": sb.token}, True)):
            r = to(t, sb.box, port, "GET", "/health", headers)
            equal((r.status, r.body, grants(r)), (status, b'"OK"' if port == 49999 else b"", "*" if may_read else None), f"{port} {headers}")
        r = to(t, sb.box, port, "OPTIONS", "/execute", {"Origin": "https://app.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-access-token"})
        equal((r.status, grants(r), r.headers["Access-Control-Allow-Headers"], r.headers["Access-Control-Allow-Credentials"]), (204, "*", "x-access-token", None))


@row("preview", "preview-socket", "preview-token")
@TIERS
def ports_inside(t):
    public, private, other = Sandbox(t, t.box()), Sandbox(t, t.box(preview="token")), Sandbox(t, t.box(preview="token"))
    key = t.d.new_key("previews")["key"]
    for sb in (public, private):
        sb.box.put("/tmp/serve.py", SERVER.encode())
        sb.box.background(["python3", "/tmp/serve.py"])
        until(lambda: to(t, sb.box, 8099, "GET", "/", {TRAFFIC: sb.traffic}).status == 200, 60, "the server inside")
    for name, headers, path, opens in (
            ("none", {}, "/", False), ("page", PAGE, "/", False), ("wrong", {TRAFFIC: WRONG}, "/", False), ("anothers", {TRAFFIC: other.preview}, "/", False), ("anothers of E2B", {TRAFFIC: other.traffic}, "/", False),
            ("query", {}, f"/?token={private.preview}&e2b-traffic-access-token={private.preview}", False), ("cookie", {"Cookie": f"e2b-traffic-access-token={private.preview}"}, "/", False),
            ("access token", {"X-Access-Token": private.token}, "/", False), ("key", {"X-API-Key": key}, "/", False),
            ("right", {TRAFFIC: private.preview}, "/", True), ("right of E2B", {TRAFFIC: private.traffic}, "/", True), ("page with it", {**PAGE, TRAFFIC: private.preview}, "/", True)):
        for by in ("host", "header"):
            for upgrade in ({}, SOCKET):
                note = f"{name} {by} {'WebSocket' if upgrade else ''}"
                r = to(t, public.box, 8099, "GET", path, {**headers, **upgrade}, by=by)
                equal(r.status, 101 if upgrade else 200, f"public {note}")
                r = to(t, private.box, 8099, "GET", path, {**headers, **upgrade}, by=by)
                equal(r.status, (101 if upgrade else 200) if opens else 403, note)
                equal(grants(r), None, "of ports inside only the server inside speaks")
                if not opens:
                    typed(note, r)


@row("asleep")
@TIERS
@timeout(150)
def nobody_wakes_it_without_a_credential(t):
    sb = Sandbox(t, t.box(auto_resume=True, preview="token"))
    t.c.post(f"{sb.box.p}/pause", {"standby": t.tier == "container"})  # with its memory: else traffic wakes nobody
    both = {TRAFFIC: sb.preview}
    for port, method, path, headers, status in (
            (49983, "GET", "/health", {}, 502), (49983, "GET", "/envs", {}, 401), (49983, "POST", "/process.Process/List", PAGE, 401), (49983, "GET", "/files?path=/etc/passwd", {"X-Access-Token": WRONG}, 401),
            (49999, "POST", "/execute", {}, 403), (49999, "POST", "/execute", both, 401), (49999, "GET", "/contexts", {**both, **PAGE}, 401), (49999, "GET", "/health", both, 502),
            (8099, "GET", "/", {}, 403), (8099, "GET", "/", {TRAFFIC: WRONG}, 403)):
        for by in ("host", "header"):
            equal(to(t, sb.box, port, method, path, headers, b"{}" if method == "POST" else b"", by).status, status, f"{port} {path} {headers}")
    equal(sb.box.info()["state"], "paused")
    equal(to(t, sb.box, 49983, "GET", "/envs", {"X-Access-Token": sb.token}).status, 200)
    equal(sb.box.info()["state"], "running")


@plain
def what_is_refused_keeps_nobody_busy(t):
    """A sandbox that ends when it is idle is not kept by those who may not use it."""
    box = t.create(isolation="container", preview="token", idle_timeout_s=2)
    end = Deadline(20)
    while t.c.box(box.id).info()["state"] == "running":
        for port, method, path in ((49999, "POST", "/execute"), (49999, "GET", "/health"), (49983, "GET", "/health"), (49983, "GET", "/envs"), (8099, "GET", "/")):
            to(t, box, port, method, path)
        end.check("it is idle")
        time.sleep(0.1)


@plain
def names_that_lead_astray(t):
    """However a sandbox is named, it is the same door; who is named twice is named by Host."""
    sb, other = Sandbox(t, t.create(isolation="container")), Sandbox(t, t.create(isolation="container"))
    i, o, run = sb.box.id, other.box.id, b'{"code":"open(\'/tmp/astray\', \'w\')"}'
    theirs = {"X-Access-Token": other.token}
    named = {"E2b-Sandbox-Id": i, "E2b-Sandbox-Port": "49999"}
    hosts = [f"49999-{i}.x", f"49999-{i.upper()}.X", f"49999-{i}.x.", f"49999-{i}.", f"49999-{i}.x:80", f"049999-{i}.x", f"49999-{i}-{o}.x", f"49999-{i}-x.localhost", f"49999-{i}.127.0.0.1"]
    for host in hosts:
        for headers in ({}, PAGE, theirs, {**theirs, "E2b-Sandbox-Id": o, "E2b-Sandbox-Port": "49999"}, {"E2b-Sandbox-Id": o, "E2b-Sandbox-Port": "8099"}, {"X-Forwarded-Host": "localhost", "X-Original-URL": "/health", "X-HTTP-Method-Override": "GET"}):
            r = ask(t, "POST", "/execute", headers, run, host)
            equal((r.status, grants(r)), (401, None), f"{host} {headers}")
    for headers, host in (({**named, **theirs}, "localhost"), (named, "127.0.0.1"), (named, "sandbox.evil.example"), (named, f"localhost:{t.d.port}"),
                          ([("E2b-Sandbox-Id", o), ("E2b-Sandbox-Id", i), ("E2b-Sandbox-Port", "49999"), ("X-Access-Token", sb.token)], "localhost"),
                          ([("E2b-Sandbox-Id", i), ("E2b-Sandbox-Id", o), *theirs.items(), ("E2b-Sandbox-Port", "49999")], "localhost"),
                          ([*named.items(), ("X-Access-Token", WRONG), ("X-Access-Token", sb.token)], "localhost")):
        true(ask(t, "POST", "/execute", headers, run, host).status in (400, 401), f"{host} {headers}")
    for path in ("/execute/", "//execute", "/./execute", "/x/../execute", "/EXECUTE", "/execute?path=/health", "/health/../execute", "/%65xecute", "/execute;x", "/contexts/../execute", f"http://49999-{i}.x/execute"):
        true(ask(t, "POST", path, {}, run, f"49999-{i}.x").status in (400, 401), path)
    for host in (f"49999-{i}", f"49999_{i}.x", f"{i}.x", f"x.49999-{i}.x", f"-{i}.x", "49999-.x"):
        true(ask(t, "POST", "/execute", named, run, host).status in (400, 401, 403), host)
    for box in (sb.box, other.box):
        equal(box.exec(["sh", "-c", "ls /tmp/astray 2>/dev/null || true"]).text, "", "nothing ran")
    ok = ask(t, "POST", "/execute", {"X-Access-Token": sb.token, "E2b-Sandbox-Id": o, "E2b-Sandbox-Port": "8099"}, run, f"49999-{i.upper()}.X.:80")
    equal(ok.status, 200, "the same door with its key")
    equal((sb.box.exec(["ls", "/tmp/astray"]).code, other.box.exec(["ls", "/tmp/astray"]).code), (0, 2), "and the sandbox that Host names")


@row("native", "socket", "socket-only", "terminal", "healthz")
@plain
def native_api(t):
    key, dead = t.d.new_key("native")["key"], revoked(t)
    sb = Sandbox(t, t.create(isolation="container"))
    sock = t.d.client
    no = ({}, {"X-API-Key": "e2b_" + WRONG}, {"Authorization": f"Bearer {dead}"}, {"X-Access-Token": sb.token}, {"Authorization": f"Bearer {sb.token}"}, {TRAFFIC: sb.traffic}, {"Cookie": f"key={key}"})
    for path in ("/v1/sandboxes", "/metrics", "/v1/openapi.json", f"{sb.box.p}/contexts", f"{sb.box.p}/files?path=/etc/passwd", f"/v1/sandboxes?api_key={key}"):
        for headers in no:
            equal(ask(t, "GET", path, headers).status, 401, f"{path} {headers}")
            equal(ask(t, "GET", path, {**PAGE, **headers}).status, 403, f"{path} of a page")
        if "api_key" in path:
            continue
        equal(ask(t, "GET", path, {"X-API-Key": key}).status, 200, path)
        equal(ask(t, "GET", path, over=sock).status, 200, f"{path}: root on the socket")
        r = ask(t, "GET", path, {**PAGE, "X-API-Key": key})
        equal((r.status, grants(r)), (403, None), f"{path}: a page with a key")
        equal(ask(t, "GET", path, {"X-API-Key": key}, host="evil.example").status, 403, f"{path}: rebound")
        equal(ask(t, "GET", path, PAGE, over=sock).status, 403, path)
    for headers, want in (({}, 401), ({"X-API-Key": key, "Origin": "https://evil.example"}, 403), ({"X-API-Key": dead}, 401), ({"X-API-Key": key}, 101)):
        equal(ask(t, "GET", f"{sb.box.p}/pty", {**SOCKET, **headers}).status, want, f"terminal {headers}")
    stranger, known = as_nobody(t, {}), as_nobody(t, {"X-API-Key": key})
    true(stranger in ("refused", "401") and known in ("refused", "200"), f"another uid on the socket: {stranger} without a key, {known} with one")
    equal(ask(t, "POST", "/v1/shutdown", {"X-API-Key": key}, {}).status, 403)
    equal(ask(t, "POST", "/v1/shutdown", {}, {}).status, 401)
    equal(ask(t, "GET", "/v1/tenants", {"X-API-Key": key}).status, 403)
    equal(ask(t, "GET", "/v1/tenants", over=sock).status, 200)
    equal((ask(t, "GET", "/healthz").status, ask(t, "GET", "/healthz", PAGE).status), (200, 403))
    # the socket's peer is not believed on the ports of a sandbox
    for port, path, body in ((49999, "/execute", b'{"code":"1"}'), (49983, "/process.Process/List", b"{}")):
        equal(ask(t, "POST", path, at(sb.box, port, "header")[1], body, over=sock).status, 401, "root on the socket")


def as_nobody(t, headers):
    """The status that another user of this machine gets on the socket."""
    code = ("import os, socket, sys\nos.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\ns = socket.socket(socket.AF_UNIX)\n"
            "try: s.connect(sys.argv[1])\nexcept PermissionError: print('refused'); sys.exit()\ns.sendall(sys.argv[2].encode()); print(s.recv(64).split()[1].decode())")
    text = "\r\n".join(["GET /v1/sandboxes HTTP/1.1", "Host: localhost", "Connection: close"] + [f"{k}: {v}" for k, v in headers.items()] + ["", ""])
    return subprocess.run(["/usr/bin/python3", "-c", code, os.path.join(t.d.run, "hutch.sock"), text], capture_output=True, text=True, timeout=20).stdout.strip()


@row("control", "control-health", "volume", "upload")
@plain
def control_plane(t):
    key, dead = t.d.new_key("control")["key"], revoked(t)
    sb = Sandbox(t, t.create(isolation="container"))
    for path in ("/sandboxes", "/v2/sandboxes", f"/sandboxes/{sb.box.id}", "/templates", "/volumes", "/secrets", "/snapshots"):
        for headers in ({}, PAGE, {"X-API-Key": "e2b_" + WRONG}, {"X-API-Key": dead}, {"X-Access-Token": sb.token}, {"Authorization": f"Bearer {sb.token}"}):
            equal(ask(t, "GET", path, headers).status, 401, f"{path} {headers}")
        equal(ask(t, "GET", path, {"X-API-Key": key}).status, 200, path)
        r = ask(t, "GET", path, {**PAGE, "X-API-Key": key})
        equal((r.status, grants(r)), (200, "*"), f"{path}: a page with a key")
        equal(ask(t, "GET", path, {"X-API-Key": key}, host="evil.example").status, 403, f"{path}: rebound")
    equal(ask(t, "POST", "/sandboxes", PAGE, b'{"templateID":"base"}').status, 401)
    r = ask(t, "GET", "/health", PAGE)
    equal((r.status, r.body), (200, b"OK"))

    one, two = (t.c.post("/volumes", {"name": n}) for n in ("doors-one", "doors-two"))
    for v in (one, two):
        t.cleanup_later(lambda v=v: t.c.call("DELETE", f"/volumes/{v['volumeID']}", ok=False))
    at_root = f"/volumecontent/{one['volumeID']}/dir?path=/"
    for headers in ({}, PAGE, {"Authorization": f"Bearer {WRONG}"}, {"Authorization": f"Bearer {two['token']}"}, {"Authorization": f"Bearer {key}"}, {"X-API-Key": key}, {"X-Access-Token": one["token"]}):
        for method in ("GET", "POST"):
            equal(ask(t, method, at_root, headers).status, 401, f"{method} {at_root} {headers}")
    for headers in ({}, PAGE):
        equal(ask(t, "GET", at_root, {**headers, "Authorization": f"Bearer {one['token']}"}).status, 200)
    equal(t.c.call("DELETE", f"/volumes/{one['volumeID']}").status, 204)
    equal(ask(t, "GET", at_root, {"Authorization": f"Bearer {one['token']}"}).status, 404, "with the volume went its token")

    made = t.c.post("/v3/templates", {"name": "doors"})
    t.cleanup_later(lambda: t.c.call("DELETE", f"/templates/{made['templateID']}", ok=False))
    digest, another = hashlib.sha256(b"doors").hexdigest(), hashlib.sha256(b"other").hexdigest()
    good = t.c.get(f"/templates/{made['templateID']}/files/{digest}")["url"].split("/", 3)[3]
    past = re.sub(r"until=\d+", f"until={int(time.time()) - 5}", good)
    for path in (good.split("?")[0], re.sub("signature=.", "signature=_", good), re.sub("signature=.*", "signature=" + WRONG, good), past, re.sub(r"until=(\d+)", r"until=\g<1>9", good), good.replace(digest, another)):
        for headers in ({}, PAGE, {"X-API-Key": key}):
            equal(ask(t, "PUT", f"/{path}", headers, b"x").status, 403, path)
    cache = os.path.join(t.d.home, "cache")
    stored = lambda: [os.path.join(cache, n) for n in os.listdir(cache) if digest in n]  # noqa: E731
    equal(stored(), [])
    t.cleanup_later(lambda: [os.unlink(p) for p in stored()])
    equal(ask(t, "PUT", f"/{good}", {}, b"x").status, 200)
    equal(len(stored()), 1)


@row("mcp", "mcp-link", "oauth")
@tiers("container")
def mcp_with_every_credential(t):
    key, box = t.d.new_key("doors")["key"], t.box()
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
    cases = {"none": ({}, 401), "wrong": ({"X-API-Key": "e2b_" + WRONG}, 401), "revoked": ({"Authorization": f"Bearer {revoked(t)}"}, 401),
             "page": ({**PAGE, "X-API-Key": key, "Content-Type": "application/json"}, 403), "key": ({"X-API-Key": key}, 200), "bearer": ({"Authorization": f"Bearer {key}"}, 200)}
    for name, (headers, status) in cases.items():
        equal(ask(t, "POST", "/mcp", headers, hello).status, status, name)
    session = t.c.call("POST", "/mcp", json_body=hello).headers["Mcp-Session-Id"]
    equal(ask(t, "DELETE", "/mcp", {"Mcp-Session-Id": session}).status, 401, "a session is no key")
    equal(ask(t, "DELETE", "/mcp", {"Mcp-Session-Id": session, "X-API-Key": key}).status, 404, "another's session")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "download_file", "arguments": {"sandbox": box.id, "path": "/etc/hostname"}}}
    answer = t.c.call("POST", "/mcp?tools=full", json_body=call, headers={"Mcp-Session-Id": session, "Accept": "application/json"}).json()
    link = "/" + answer["result"]["structuredContent"]["url"].split("/", 3)[3]
    equal(ask(t, "GET", link).status, 200)
    equal(ask(t, "GET", link, PAGE).status, 403)
    equal(ask(t, "GET", link[:-4] + "AAAA").status, 403)
    equal(ask(t, "PUT", link, {}, b"x").status, 403)
    box.kill()
    true(ask(t, "GET", link).status in (404, 410), "with the sandbox went its links")
    equal(ask(t, "GET", "/.well-known/oauth-protected-resource").status, 404)


# ---- nothing is missing -------------------------------------------------------------------------------------------

OPEN = {"GET /healthz": "healthz", "GET /health": "control-health", "* /volumecontent/{volume}/{what}": "volume", "PUT /templates/{tid}/files/{hash}": "upload", "* /files": "signed",
        "PUT /mcp/files/{link}": "mcp-link", "GET /mcp/files/{link}": "mcp-link", "GET /.well-known/{what}": "oauth", "GET /.well-known/{what}/{rest*}": "oauth"}
PORTS = {"49983": "envd", "49999": "execute"}


@plain
@timeout(120)
def every_route_and_port_has_its_row(t):
    """What the program itself lists: no route but those named here answers without a key, and no port is served that the table lacks."""
    with open(DOC) as f:
        text = f.read()
    listed = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.M))
    equal(SEEN, listed, "rows of docs/doors.md, and of this file")
    lines = [x.split() for x in subprocess.run([daemon.program("hutchd"), "--doors"], capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()]
    equal({x[1]: f"port {x[1]}" in text for x in lines if x[0] == "port"}, {p: True for p in PORTS}, "ports that the daemon serves itself")
    equal({f"{x[1]} {x[2]}" for x in lines if x[0] == "route" and x[3] == "open"}, set(OPEN), "routes without a key")
    true(set(OPEN.values()) | set(PORTS.values()) <= listed)
    dead, before = revoked(t), {b["id"] for b in t.c.sandboxes()}
    routes = [x for x in lines if x[0] == "route"]
    true(len(routes) > 100, len(routes))
    for _, method, pattern, asks in routes:
        if asks == "open":
            continue
        path = re.sub(r"\{[a-z]+\}", "iaaaaaaaaaaaaaaaaaaaa", pattern)
        for m in ("GET", "POST", "PUT", "PATCH", "DELETE") if method == "*" else (method,):
            for headers in ({}, {"X-API-Key": dead}, {"Content-Type": "text/plain"}):
                equal(ask(t, m, path, headers, b"{}" if m != "GET" else b"").status, 401, f"{m} {path} {headers}")
            r = ask(t, m, path, PAGE, b"{}" if m != "GET" else b"")
            equal(r.status, 403 if path.startswith(("/v1/", "/metrics", "/mcp")) else 401, f"{m} {path} of a page")
    equal({b["id"] for b in t.c.sandboxes()}, before)

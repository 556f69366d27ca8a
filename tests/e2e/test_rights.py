"""Many users of one daemon: every route of every dialect, with the keys of everybody who should not. The routes come from the daemon
(`hutchd --doors`): one without a row in ROUTES is a failure, and so is a row without a route."""
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time

import daemon
from hutchtest import *

DAEMON = shared_daemon("rights", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=1, HUTCH_DEFAULT_ISOLATION="container")
ABSENT = "i" + "0" * 20  # the form of an id, and nobody's

# What a route is about. `thing`: it names something by id; another's is not found. `list`: shows what the caller sees. `make`: makes or
# runs something of the caller's own. `admin`, `host` (operator or admin), `scrape`: of the host. `key`: any key may read it. `open`: no key.
THING, LIST, MAKE, ADMIN, HOST, SCRAPE, KEY, OPEN = "thing", "list", "make", "admin", "host", "scrape", "key", "open"
CHANGING_GETS = {"GET /v1/sandboxes/{id}/pty", "GET /v1/sandboxes/{id}/url", "GET /mcp", "GET /templates/{tid}/files/{hash}"}
N = "/v1/sandboxes/{id}"
V = "/v1/volumes/{volume}"
ROUTES = {
    **{f"{m} {N}": THING for m in ("GET", "PATCH", "DELETE")},
    **{f"GET {N}/{x}": THING for x in ("console contexts contexts/{cid} dirs egress files files/stat logs metrics network processes processes/{pid} "
                                      "processes/{pid}/stream pty url watch").split()},
    **{f"POST {N}/{x}": THING for x in ("contexts contexts/{cid}/interrupt contexts/{cid}/restart dirs eval exec files/attr files/move files/symlink fork "
                                       "keepalive pause processes/{pid}/resize processes/{pid}/signal processes/{pid}/stdin recover restore resume "
                                       "rollback snapshots timeout").split()},
    **{f"PUT {N}/{x}": THING for x in ("files", "network")},
    **{f"DELETE {N}/{x}": THING for x in ("files", "contexts/{cid}")},
    **{f"{m} {V}": THING for m in ("GET", "DELETE")},
    **{f"GET {V}/{x}": THING for x in ("dirs", "files", "files/stat")},
    **{f"POST {V}/{x}": THING for x in ("dirs", "files/attr", "files/move", "files/symlink")},
    **{f"{m} {V}/files": THING for m in ("PUT", "DELETE")},
    **{f"{m} /v1/snapshots/{{snapshot}}": THING for m in ("GET", "DELETE")},
    "GET /v1/snapshots/{snapshot}/pack": THING,
    **{f"{m} /v1/templates/{{name}}": THING for m in ("GET", "DELETE")},
    "DELETE /v1/secrets/{name}": THING,
    "DELETE /v1/keys/{id}": THING,
    **{f"GET /v1/{x}": LIST for x in "sandboxes events snapshots templates volumes secrets keys usage".split()},
    **{f"POST /v1/{x}": MAKE for x in "sandboxes volumes keys eval snapshots/import templates/{name}/build templates/{name}/import".split()},
    "PUT /v1/secrets/{name}": MAKE,
    "POST /v1/templates": ADMIN, "POST /v1/shutdown": ADMIN, "PUT /v1/signers/{name}": ADMIN, "DELETE /v1/signers/{name}": ADMIN,
    "GET /v1/doctor": HOST, "GET /v1/signers": HOST, "GET /v1/tenants": HOST,
    "GET /metrics": SCRAPE, "GET /v1/openapi.json": KEY, "GET /healthz": OPEN,
    # E2B
    **{f"{m} /sandboxes/{{id}}": THING for m in ("GET", "DELETE")},
    **{f"POST /sandboxes/{{id}}/{x}": THING for x in "connect fork pause refreshes resume snapshots timeout".split()},
    "POST /v2/sandboxes/{id}/connect": THING, "PUT /sandboxes/{id}/network": THING,
    **{f"GET {p}": THING for p in ("/sandboxes/{id}/logs", "/v2/sandboxes/{id}/logs", "/sandboxes/{id}/metrics")},
    **{f"GET {p}": LIST for p in ("/sandboxes", "/v2/sandboxes", "/sandboxes/metrics", "/snapshots", "/volumes", "/secrets", "/templates", "/v2/templates")},
    **{f"POST {p}": MAKE for p in ("/sandboxes", "/v2/sandboxes", "/volumes", "/secrets", "/v2/templates", "/v3/templates")},
    **{f"{m} /volumes/{{volume}}": THING for m in ("GET", "DELETE")},
    **{f"{m} /secrets/{{secret}}": THING for m in ("GET", "POST", "DELETE")},
    **{f"{m} /templates/{{tid}}": THING for m in ("GET", "PATCH", "DELETE")},
    "PATCH /v2/templates/{tid}": THING, "GET /templates/aliases/{alias}": THING, "GET /templates/{tid}/tags": THING,
    "POST /templates/tags": THING, "DELETE /templates/tags": THING,
    "GET /templates/{tid}/files/{hash}": THING, "POST /v2/templates/{tid}/builds/{bid}": THING,
    "GET /templates/{tid}/builds/{bid}/logs": THING, "GET /templates/{tid}/builds/{bid}/status": THING,
    "GET /health": OPEN, "* /files": OPEN, "* /volumecontent/{volume}/{what}": OPEN, "PUT /templates/{tid}/files/{hash}": OPEN,
    # MCP: what its tools name is in test_mcp.another_tenants_things_do_not_exist
    **{f"{m} /mcp": MAKE for m in ("POST", "GET", "DELETE")},
    **{f"{m} /mcp/files/{{link}}": OPEN for m in ("PUT", "GET")},
    "GET /.well-known/{what}": OPEN, "GET /.well-known/{what}/{rest*}": OPEN,
}
# Queries and bodies without which a call is refused before anything is looked up.
QUERY = {
    "/files": "path=/tmp/x", "/files/stat": "path=/tmp/x", "/dirs": "path=/tmp", "/watch": "path=/tmp", "/url": "port=80", "/sandboxes/metrics": "sandbox_ids={sandbox}",
    "/v1/events": "follow=0&since=0", "/v1/snapshots/import": "name=x",
}
BODY = {
    "exec": {"cmd": ["true"]}, "eval": {"code": "1"}, "attr": {"path": "/x", "mode": "0600"}, "move": {"from": "/a", "to": "/b"},
    "symlink": {"target": "a", "path": "/b"}, "timeout": {"timeout_s": 60}, "signal": {"signal": "SIGTERM"}, "resize": {"cols": 1, "rows": 1},
    "rollback": {"snapshot": "x"}, "restore": {"snapshot": "x"}, "POST /v1/sandboxes": {}, "POST /v1/volumes": {"name": "new", "size_mib": 16},
    "POST /v1/keys": {"name": "new"}, "POST /v1/eval": {"language": "python", "code": "1"}, "PUT /v1/secrets/{name}": {"value": "v"},
    "POST /v1/templates": {"builtin": "base"}, "PUT /v1/signers/{name}": {"key": "0" * 64}, "POST /v1/shutdown": {"keep": True},
    "POST /sandboxes": {"templateID": "base"}, "POST /v2/sandboxes": {"templateID": "base"}, "POST /volumes": {"name": "new"},
    "POST /secrets": {"name": "new", "value": "v"}, "POST /secrets/{secret}": {"value": "v"}, "POST /v2/templates": {"alias": "new"},
    "POST /v3/templates": {"name": "new"}, "POST /templates/tags": {"target": "{template}", "tags": ["x"]},
    "DELETE /templates/tags": {"name": "{template}", "tags": ["x"]}, "POST /sandboxes/{id}/timeout": {"timeout": 60},
}


class Side:
    """A tenant with one thing of each kind, and keys of every role."""

    def __init__(self, t, name):
        self.name = name
        self.keys = {role: t.d.new_key(f"{name}-{role}", role=role, tenant=name) for role in ("member", "viewer", "operator")}
        self.c = t.d.tcp(self.keys["member"]["key"])
        self.box = self.c.create(name="box", isolation="container", timeout_s=1800)
        self.volume = self.c.post("/v1/volumes", {"name": "data", "size_mib": 16})
        self.c.put("/v1/secrets/token", {"value": f"of-{name}"})
        self.secret = self.c.get("/v1/secrets")["secrets"][0]
        self.snapshot = self.box.snapshot(name="shot")
        made = self.c.post("/v3/templates", {"name": "mine"})
        self.template, self.build = made["templateID"], made["buildID"]
        t.cleanup_later(self.gone)

    def gone(self):
        self.box.kill()
        self.c.delete(f"/v1/snapshots/{self.snapshot['id']}")
        self.c.delete(f"/v1/volumes/{self.volume['id']}")
        self.c.delete("/v1/secrets/token")
        self.c.delete(f"/templates/{self.template}")

    def ids(self):
        return [self.box.id, self.volume["id"], self.secret["id"], self.snapshot["id"], self.template] + [k["id"] for k in self.keys.values()]


def fill(route, side):
    """method, path and body of a route, with what it names being that side's; side None: nobody's"""
    method, pattern = route.split()
    of = {"id": side.box.id, "volume": side.volume["id"], "snapshot": side.snapshot["id"], "secret": side.secret["id"], "tid": side.template,
          "bid": side.build, "alias": side.template, "name": side.secret["id"]} if side else {
          "id": ABSENT, "volume": ABSENT, "snapshot": ABSENT, "secret": ABSENT, "tid": ABSENT, "bid": ABSENT, "alias": ABSENT, "name": ABSENT}
    of.update(pid="1", cid="c0", hash="0" * 64, what="path")
    if pattern.startswith("/v1/keys"):
        of["id"] = side.keys["member"]["id"] if side else ABSENT
    if pattern.startswith("/v1/templates"):
        of["name"] = side.template if side else ABSENT
    path = re.sub(r"\{(\w+)\}", lambda m: of[m[1]], pattern)
    query = next((q for end, q in QUERY.items() if pattern.endswith(end)), "")
    body = BODY.get(route, BODY.get(pattern.rsplit("/", 1)[-1])) if method in ("POST", "PUT", "PATCH", "DELETE") else None
    text = json.dumps(body if body is not None else {}).replace("{template}", of["tid"]) if method in ("POST", "PUT", "PATCH") or body else None
    return method if method != "*" else "GET", path + ("?" + query.replace("{sandbox}", of["id"]) if query else ""), text


def ask(client, route, side):
    method, path, text = fill(route, side)
    headers = {"Content-Type": "application/json"} if text is not None and not path.endswith("files?path=/tmp/x") else {}
    if path.endswith("/pty"):
        headers.update({"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="})
    return client.call(method, path, body=text.encode() if text is not None else None, headers=headers, ok=False)


def plainly(r, *ids):
    """An answer without what differs between two askings: ids and the number of the request."""
    text = re.sub(rb'"request_id":"\w+"', b"", r.body)
    for i in ids:
        text = text.replace(i.encode(), b"ID")
    return r.status, text


def changes(route):
    return not route.startswith("GET ") or route in CHANGING_GETS


def routes():
    out = subprocess.run([daemon.program("hutchd"), "--doors"], capture_output=True, text=True, check=True, timeout=20).stdout
    return {f"{m} {p}" for kind, m, p, *_ in (x.split() for x in out.splitlines()) if kind == "route"}


@plain
@DAEMON
def every_route_has_a_row(t):
    have = routes()
    equal(sorted(have - set(ROUTES)), [], "routes that no row of ROUTES is about")
    equal(sorted(set(ROUTES) - have), [], "rows of ROUTES without a route")


@plain
@DAEMON
@timeout(300)
def anothers_do_not_exist(t):
    a, b = Side(t, "a"), Side(t, "b")
    mine = a.ids()
    for route in sorted(r for r, kind in ROUTES.items() if kind == THING):
        theirs = ask(a.c, route, b)
        nobodys = ask(a.c, route, None)
        true(theirs.status == 404 or b'"code":"not_found"' in theirs.body, f"{route} with another's id: {theirs}")
        equal(plainly(theirs, *b.ids(), b.build), plainly(nobodys, ABSENT), f"{route} tells that there is such a thing")
    for route in sorted(r for r, kind in ROUTES.items() if kind == LIST):
        for key in (a.keys["member"], a.keys["viewer"]):
            r = ask(t.d.tcp(key["key"]), route, b)
            equal(r.status, 200, route)
            for i in b.ids():
                lacks(r.body, i.encode(), f"{route} shows what is another's")
    contains([x["id"] for x in a.c.get("/v1/sandboxes")["sandboxes"]], a.box.id)
    # nothing of it was touched
    equal(b.box.info()["state"], "running")
    b.box.ok(["true"])
    true(all(i in mine for i in a.ids()))


@plain
@DAEMON
@timeout(300)
def roles(t):
    a, b = Side(t, "a"), Side(t, "b")
    by = {role: t.d.tcp(k["key"]) for role, k in a.keys.items()}
    overseer = t.d.tcp(t.d.client.post("/v1/keys", {"name": "overseer", "role": "operator"})["key"])
    scrape = t.d.tcp(t.d.client.post("/v1/keys", {"name": "prometheus", "role": "metrics"})["key"])
    brief = t.d.client.post("/v1/keys", {"name": "brief", "tenant": "a", "expires_s": 1})
    revoked = t.d.new_key("revoked", role="member", tenant="a")
    t.c.delete(f"/v1/keys/{revoked['id']}")
    time.sleep(1.2)
    dead = [t.d.tcp(k["key"]) for k in (brief, revoked)]
    contains(refuses("unauthenticated", dead[0].get, "/v1/sandboxes").message, "expired")

    def forbidden(r, route, who):
        true(r.status == 403 and (route.split()[1].startswith("/v1") is False and route != "GET /metrics" or b'"forbidden"' in r.body), f"{who} on {route}: {r}")
        contains(r.body, b"role", f"{who} on {route}: it says which role is needed")

    for route, kind in sorted(ROUTES.items()):
        if kind == OPEN:
            continue
        for c in dead:
            equal(ask(c, route, a).status, 401, route)
        r = ask(scrape, route, a)
        equal(r.status, 200, route) if kind == SCRAPE else forbidden(r, route, "metrics")
        if kind == SCRAPE:
            forbidden(ask(by["member"], route, a), route, "member")
        if kind == ADMIN:
            forbidden(ask(by["member"], route, a), route, "member")
            forbidden(ask(by["operator"], route, a), route, "operator")
        elif kind == HOST:
            forbidden(ask(by["viewer"], route, a), route, "viewer")
            forbidden(ask(by["member"], route, a), route, "member")
        elif changes(route):
            forbidden(ask(by["viewer"], route, a), route, "viewer")
            forbidden(ask(overseer, route, a), route, "operator without a tenant")
            if kind == THING and "/v1/templates" not in route and route != "POST /templates/tags":  # b has none that is built; see templates_are_a_tenants_own
                r = ask(by["operator"], route, b)
                true(r.status == 403, f"operator of another tenant on {route}: {r}")
        elif kind == THING and route.startswith("GET /v1/sandboxes/{id}") and "{pid}" not in route and "{cid}" not in route and "watch" not in route:
            true(ask(overseer, route, b).status not in (401, 403), f"an operator reads: {route}")
    a.box.ok(["true"])
    # who only looks gets nothing that opens a sandbox or a volume
    for c in (by["viewer"], overseer):
        lacks(c.get(f"/sandboxes/{a.box.id}"), "envdAccessToken")
        lacks(c.get(f"/volumes/{a.volume['id']}"), "token")
    contains(by["member"].get(f"/sandboxes/{a.box.id}"), "envdAccessToken")


@plain
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=1, HUTCH_DEFAULT_ISOLATION="container")
@timeout(300)
def what_is_named_inside_a_request(t):
    a, b = Side(t, "a"), Side(t, "b")
    # a secret of another: by its name there is the own one, by what it is called inside nothing
    net = {"mode": "allow", "allow": ["evil.test"], "inject": [{"domain": "evil.test", "secret": "token", "header": "X"}]}
    only_b = {**net, "inject": [{**net["inject"][0], "secret": "b-only"}]}
    b.c.put("/v1/secrets/b-only", {"value": "v"})
    t.cleanup_later(lambda: b.c.delete("/v1/secrets/b-only"))
    for secret in ("b-only", "b-only@b", "token@b", b.secret["id"]):
        body = {**net, "inject": [{**net["inject"][0], "secret": secret}]}
        refuses("invalid", a.c.create, network=body, isolation="container")
        refuses("invalid", a.c.put, f"{a.box.p}/network", body)
    equal(a.c.put(f"{a.box.p}/network", net)["network"]["inject"][0]["secret"], "token")
    # what an admin sets for a's sandbox names a's secrets, and the operator's where a has none; never another tenant's
    refuses("invalid", t.c.put, f"{a.box.p}/network", only_b)
    for extra in ({"snapshot": b.snapshot["id"]}, {"volumes": [{"volume": b.volume["id"], "path": "/mnt"}]}, {"template": b.template}, {"tenant": "b"}):
        e = refuses("not_found invalid forbidden", a.c.create, isolation="container", **extra)
        equal(e.code, {"snapshot": "not_found", "volumes": "invalid", "template": "not_found", "tenant": "forbidden"}[next(iter(extra))], extra)
    refuses("not_found", a.c.post, f"{a.box.p}/rollback", {"snapshot": b.snapshot["id"]})
    refuses("not_found", a.c.post, f"{a.box.p}/restore", {"snapshot": b.snapshot["id"]})
    # names are the tenant's own: both have a box, data, token, shot and mine
    equal(a.c.get("/v1/sandboxes/box")["id"], a.box.id)
    equal(b.c.get("/v1/snapshots/shot")["id"], b.snapshot["id"])
    equal(a.c.get("/v1/volumes/data")["id"], a.volume["id"])
    refuses("conflict", t.c.get, "/v1/sandboxes/box")
    refuses("conflict", t.c.get, "/v1/volumes/data")
    equal(t.c.get(f"/v1/sandboxes/{b.box.id}")["tenant"], "b")
    # the daemon starts again: whose is whose is stored
    t.d.shutdown(keep=True)
    t.d.start(settle=False)
    equal(a.c.get("/v1/sandboxes/box")["id"], a.box.id)
    equal([x["id"] for x in b.c.get("/v1/volumes")["volumes"]], [b.volume["id"]])
    equal([x["id"] for x in a.c.get("/v1/secrets")["secrets"]], [a.secret["id"]])
    refuses("not_found", a.c.get, f"/v1/volumes/{b.volume['id']}")


@plain
@DAEMON
@timeout(300)
def templates_are_a_tenants_own(t):
    a, b = (t.d.tcp(t.d.new_key(n, role="member")["key"]) for n in ("ta", "tb"))
    def build(c, name, recipe):
        form = f'--X\r\nContent-Disposition: form-data; name="recipe"\r\n\r\n{recipe}\r\n--X--\r\n'.encode()
        r = c.call("POST", f"/v1/templates/{name}/build", body=form, headers={"Content-Type": "multipart/form-data; boundary=X"}, deadline=240)
        return json.loads(r.body.splitlines()[-1])
    refuses("forbidden", a.post, "/v1/templates", {"builtin": "base"})
    mine = build(a, "base", "FROM base\nENV WHOSE=a\n")["template"]
    t.cleanup_later(lambda: t.c.delete(f"/v1/templates/{mine['id']}"))
    equal(mine["tenant"], "ta")
    equal(a.get("/v1/templates/base")["id"], mine["id"], "one's own before what all share")
    shared = b.get("/v1/templates/base")
    equal(shared["tenant"], None)
    lacks([x["id"] for x in b.get("/v1/templates")["templates"]], mine["id"])
    for call in (b.get, b.delete):
        refuses("not_found", call, f"/v1/templates/{mine['id']}")
    refuses("not_found", b.create, template=mine["id"], isolation="container")
    equal(b.call("POST", "/sandboxes", json_body={"templateID": mine["id"]}, ok=False).status, 404)
    contains(refuses("not_found", build, b, "x", f"FROM {mine['id']}\n").message, "no such template")
    refuses("forbidden", a.delete, f"/v1/templates/{shared['id']}")
    refuses("forbidden", t.d.tcp(t.d.new_key("ob", role="operator", tenant="tb")["key"]).delete, f"/v1/templates/{mine['id']}")
    # a shared template with a tag of one's own stays when that goes
    a.post("/templates/tags", {"target": "isolate", "tags": ["x"]})
    tagged = a.get("/templates/aliases/isolate")["templateID"]
    equal(a.delete(f"/templates/{tagged}").status, 204)
    b.get("/v1/templates/isolate")
    for c, want in ((a, "a"), (b, "")):
        box = c.create(isolation="container")
        t.boxes.append(box)
        equal(box.ok(["sh", "-c", "echo $WHOSE"]).strip(), want)


@plain
@DAEMON
def doors_know_the_tenant(t):
    a, b = Side(t, "a"), Side(t, "b")
    def health(key, box, port=49983, path="/files?path=/etc/hostname&username=root"):
        return t.d.tcp().call("GET", path, headers={"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": str(port), "X-API-Key": key}, ok=False)
    member, viewer = a.keys["member"]["key"], a.keys["viewer"]["key"]
    equal(health(member, a.box).status, 200)
    equal(health(viewer, a.box).status, 403)
    class gone:
        id = ABSENT
    for port in (49983, 49999):
        path = "/contexts" if port == 49999 else "/files?path=/etc/hostname"
        theirs, nobodys = health(member, b.box, port, path), health(member, gone, port, path)
        equal(plainly(theirs, b.box.id), plainly(nobodys, ABSENT), f"port {port}")
        equal(theirs.status, 502)


@plain
@DAEMON
def scopes_take_away(t):
    def key(**scope):
        return t.d.tcp(t.d.client.post("/v1/keys", {"name": "s", "tenant": "s", "scope": scope})["key"])
    c = key(templates=["base"], isolation=["container"], memory_mib=256, network={"mode": "allow", "allow": ["good.test"]})
    box = c.create(isolation="container", memory_mib=256, network={"mode": "open"})
    t.boxes.append(box)
    contains(box.info()["network"]["limited"], "ceiling of the key")
    equal(refuses("forbidden", c.create, isolation="container", memory_mib=257).message.split(":")[0], "memory_mib")
    contains(refuses("forbidden", c.create, isolation="vm", memory_mib=128).message, "'vm'")
    contains(refuses("forbidden", c.create, template="notebook", isolation="container", memory_mib=128).message, "notebook")
    refuses("forbidden", c.post, "/v1/eval", {"language": "python", "code": "1"})
    big = t.d.tcp(t.d.client.post("/v1/keys", {"name": "s2", "tenant": "s"})["key"]).create(name="big", isolation="container", memory_mib=512)
    t.boxes.append(big)
    refuses("forbidden", c.post, f"/v1/sandboxes/{big.id}/fork", {"count": 1})
    # a policy that it sets for a sandbox of a colleague is under its ceiling too
    contains(c.put(f"{big.p}/network", {"mode": "open"})["network"]["limited"], "ceiling of the key")


@plain
@DAEMON
def keys_make_keys(t):
    post = t.d.client.post
    maker = t.d.tcp(post("/v1/keys", {"name": "maker", "tenant": "m", "scope": {"keys": True}, "expires_s": 3600})["key"])
    plain_member = t.d.tcp(post("/v1/keys", {"name": "plain", "tenant": "m"})["key"])
    e = refuses("forbidden", plain_member.post, "/v1/keys", {"name": "x"})
    contains(e.message, "admin")
    made = maker.post("/v1/keys", {"name": "made"})
    equal((made["tenant"], made["role"]), ("m", "member"))
    true(made["expires_at"], "no longer than the key that made it")
    for more in ({"tenant": "other"}, {"role": "admin"}, {"role": "operator"}, {"role": "metrics"}):
        refuses("forbidden", maker.post, "/v1/keys", {"name": "x", **more})
    equal(sorted(k["name"] for k in maker.get("/v1/keys")["keys"]), ["made", "maker", "plain"])
    other = t.d.new_key("other", role="member")
    refuses("not_found", maker.delete, f"/v1/keys/{other['id']}")
    refuses("forbidden", plain_member.delete, f"/v1/keys/{made['id']}")
    equal(maker.delete("/v1/keys/made").status, 204)
    limited = t.d.tcp(post("/v1/keys", {"name": "l", "tenant": "l", "scope": {"keys": True, "memory_mib": 64}})["key"])
    refuses("forbidden", limited.post, "/v1/keys", {"name": "x", "scope": {}})
    equal(limited.post("/v1/keys", {"name": "x"})["scope"], {"memory_mib": 64})
    for bad in ({"role": "root"}, {"tenant": "a b"}, {"tenant": "a@b"}, {"expires_s": 0}, {"scope": {"isolation": ["paper"]}}, {"scope": []}):
        refuses("invalid", post, "/v1/keys", {"name": "x", **bad})


@plain
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0, HUTCH_TENANTS='{"bound": {"running": 5}, "*": {"running": 9}}')
def keys_of_before(t):
    """A home whose keys had no roles: one of a tenant that the operator named is bound to it, the others may what they always could."""
    keys = {name: t.d.new_key(name) for name in ("bound", "free")}
    t.d.shutdown()
    with sqlite3.connect(os.path.join(t.d.home, "state.db")) as db:
        db.execute("UPDATE keys SET role=NULL, tenant=NULL, scope=NULL")
    db.close()
    t.d.start(settle=False)
    for _ in range(2):
        listed = {k["name"]: (k["tenant"], k["role"]) for k in t.c.get("/v1/keys")["keys"]}
        equal({n: listed[n] for n in keys}, {"bound": ("bound", "member"), "free": ("free", "admin")})
        equal(t.d.tcp(keys["free"]["key"]).call("GET", "/v1/doctor").status, 200)
        refuses("forbidden", t.d.tcp(keys["bound"]["key"]).get, "/v1/doctor")
        t.d.shutdown()
        t.d.start(settle=False)


@plain
@DAEMON
def a_key_that_ends_while_the_body_comes(t):
    """What it had begun must not be done in the name of nobody, which is the operator's."""
    for method, path, kind in (("PUT", "/v1/secrets/late", "application/json"), ("POST", "/v1/volumes", "application/json"),
                               ("POST", "/secrets", "application/json"), ("POST", "/mcp", "application/json"),
                               ("POST", "/v1/templates/late/import", "application/x-tar"),
                               ("POST", "/v1/templates/late/build", "multipart/form-data; boundary=X")):
        key = t.d.new_key("late", role="member")
        body = {"/v1/volumes": b'{"name":"late","size_mib":16}', "/secrets": b'{"name":"late","value":"v"}', "/v1/secrets/late": b'{"value":"v"}',
                "/mcp": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}',
                "/v1/templates/late/import": b"x" * 1024,
                "/v1/templates/late/build": b'--X\r\nContent-Disposition: form-data; name="recipe"\r\n\r\nFROM base\n\r\n--X--\r\n'}[path]
        with socket.create_connection(("127.0.0.1", t.d.port), timeout=20) as s:
            s.sendall((f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key['key']}\r\nAccept: application/json, text/event-stream\r\n"
                       f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body[:-1])
            time.sleep(0.2)  # its head is read, the key was good
            equal(t.d.tcp(key["key"]).delete(f"/v1/keys/{key['id']}").status, 204)
            s.sendall(body[-1:])
            answer = b""
            while part := s.recv(65536):
                answer += part
        contains(answer.split(b"\r\n", 1)[0], b" 401 ", f"{method} {path}: {answer[:400]}")
    lacks([x["name"] for x in t.c.get("/v1/secrets")["secrets"]], "late")
    lacks([x["name"] for x in t.c.get("/v1/volumes")["volumes"]], "late")
    lacks([x["name"] for x in t.c.get("/v1/templates")["templates"]], "late")


@plain
@DAEMON
def a_name_is_ones_own_for_an_admin_too(t):
    """A tenant that was there first must not be given what an administrator means for himself."""
    a = Side(t, "a")
    t.d.client.put("/v1/secrets/token", {"value": "operators"})
    t.cleanup_later(lambda: t.d.client.delete(f"/v1/secrets/{[x['id'] for x in t.c.get('/v1/secrets')['secrets'] if not x['tenant']][0]}"))
    equal(sorted(str(x["tenant"]) for x in t.c.get("/v1/secrets")["secrets"] if x["name"] == "token"), ["None", "a"])
    a.c.post(f"/sandboxes/{a.box.id}/snapshots", {"name": "base"})
    theirs = [x for x in a.c.get("/v1/snapshots")["snapshots"] if x["id"] != a.snapshot["id"]]
    t.cleanup_later(lambda: [a.c.delete(f"/v1/snapshots/{x['id']}") for x in theirs])
    made = t.d.client.post("/sandboxes", {"templateID": "base", "metadata": {"hutch.isolation": "container"}})
    t.cleanup_later(lambda: t.d.client.delete(f"/v1/sandboxes/{made['sandboxID']}"))
    equal(t.c.get(f"/v1/sandboxes/{made['sandboxID']}")["snapshot"], None)

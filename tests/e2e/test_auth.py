"""Keys, and what a browser on the same machine must not be able to do."""
import json
import os
import re
import stat

from hutchtest import *


@plain
def tcp_needs_a_key(t):
    c = t.d.tcp()
    for path in ("/v1/sandboxes", "/v1/templates", "/v1/keys", "/v1/events", "/v1/doctor", "/v1/sandboxes/iaaaaaaaaaaaaaaaaaaaa", "/v1/nothing"):
        refuses("unauthenticated", c.call, "GET", path)
    refuses("unauthenticated", c.create)
    for bad in ("", "x", "e2b_" + "0" * 40, "e2b_" + "g" * 40, "e2b_", "E2B_" + "0" * 40, "a" * 5000):
        refuses("unauthenticated", t.d.tcp(bad).call, "GET", "/v1/sandboxes")
    refuses("unauthenticated", c.call, "GET", "/v1/sandboxes", headers={"Authorization": "Basic dTpw"})
    refuses("unauthenticated", c.call, "GET", "/v1/sandboxes", headers={"X-API-Key": "nope"})
    equal(c.call("GET", "/healthz").status, 200)


@plain
def keys_live_and_die(t):
    k = t.d.new_key("ci")
    true(re.fullmatch(r"e2b_[0-9a-f]{40}", k["key"]), k)
    c = t.d.tcp(k["key"])
    c.sandboxes()
    equal(t.d.tcp().call("GET", "/v1/sandboxes", headers={"X-API-Key": k["key"]}).status, 200)
    listed = {x["id"]: x for x in t.c.get("/v1/keys")["keys"]}
    x = listed[k["id"]]
    equal(x["name"], "ci")
    true("key" not in x, "a key is shown once")
    true(k["key"].startswith(x["prefix"]) and len(x["prefix"]) < 20, x)
    true(x["last_used_at"], "its last use is noted")
    equal(t.c.delete(f"/v1/keys/{k['id']}").status, 204)
    refuses("unauthenticated", c.call, "GET", "/v1/sandboxes")
    refuses("not_found", t.c.delete, f"/v1/keys/{k['id']}")
    for bad in ({}, {"name": ""}, {"name": 5}, {"name": "x" * 300}, {"name": "a", "admin": True}):
        try:
            t.c.post("/v1/keys", bad)
            true(bad == {}, f"accepted {bad}")
        except ApiError as e:
            equal(e.code, "invalid")


@plain
def keys_are_not_stored(t):
    k = t.d.new_key("secret-one")["key"]
    t.d.tcp(k).sandboxes()
    for top, _, files in os.walk(t.d.home):
        for f in files:
            p = os.path.join(top, f)
            if os.path.isfile(p) and os.path.getsize(p) < 50 << 20 and not p.endswith((".ext4", ".qcow2", "ram")):
                with open(p, "rb") as r:
                    lacks(r.read(), k[4:].encode(), f"the key in {f}")
    with open(t.d.log_path, "rb") as r:
        lacks(r.read(), k[4:].encode(), "the key in the log")


@plain
def revoked_key_ends_now(t):
    k = t.d.new_key("gone")
    c = t.d.tcp(k["key"])
    box = t.create(isolation="container").via(c)
    box.exec(["true"])
    t.c.delete(f"/v1/keys/{k['id']}")
    refuses("unauthenticated", box.exec, ["true"])


@plain
def admin_key_file(t):
    p = os.path.join(t.d.home, "admin.key")
    if os.path.exists(p):
        equal(stat.S_IMODE(os.stat(p).st_mode), 0o600)
        with open(p) as f:
            t.d.tcp(f.read().strip()).sandboxes()


@plain
def sockets_have_tight_modes(t):
    st = os.stat(os.path.join(t.d.run, "hutch.sock"))
    true(stat.S_ISSOCK(st.st_mode))
    for top, _, files in os.walk(t.d.run):
        for f in files:
            p = os.path.join(top, f)
            if stat.S_ISSOCK(os.lstat(p).st_mode) and f != "hutch.sock":
                equal(os.lstat(p).st_mode & 0o007, 0, f"{f} is open to everybody")


@plain
def other_local_users_need_a_key(t):
    """The socket may be reachable, but a foreign uid is nobody without a key."""
    code = ("import socket,sys,os\n"
            "os.setgroups([]); os.setresgid(65534,65534,65534); os.setresuid(65534,65534,65534)\n"
            "s=socket.socket(socket.AF_UNIX)\n"
            "try: s.connect(sys.argv[1])\n"
            "except PermissionError: print('refused'); sys.exit()\n"
            "s.sendall(b'GET /v1/sandboxes HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n"
            "print(s.recv(64).split()[1].decode())")
    import subprocess
    out = subprocess.run(["/usr/bin/python3", "-c", code, os.path.join(t.d.run, "hutch.sock")], capture_output=True, text=True, timeout=20)
    true(out.stdout.strip() in ("refused", "401"), out)


@plain
def host_header_is_checked(t):
    """DNS rebinding: a page of evil.example resolves to 127.0.0.1 and asks with its own Host."""
    k = t.d.new_key("host")["key"]
    port = t.d.port
    auth = {"Authorization": f"Bearer {k}"}

    def get(host, c):
        h = dict(auth)
        h["Host"] = host
        return c.call("GET", "/v1/sandboxes", headers=h, ok=False)
    tcp = t.d.tcp()
    for good in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        equal(get(good, tcp).status, 200, good)
    for bad in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", f"127.0.0.1:{port}.evil.example",
                "0.0.0.0.evil.example", "a@127.0.0.1", "127.0.0.1:99999", "local host"):
        r = get(bad, tcp)
        true(r.status in (400, 403, 421), f"Host {bad!r} answered {r.status}")
        error_of(r.status, r.body)
    r = get("evil.example", t.c)
    true(r.status in (400, 403, 421), f"the unix socket took Host evil.example: {r.status}")
    for raw in (b"GET /v1/sandboxes HTTP/1.1\r\n\r\n", b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"):
        r = t.c.raw(raw)
        equal(r.status, 400)


@plain
def origin_is_checked(t):
    k = t.d.new_key("origin")["key"]
    tcp = t.d.tcp(k)
    for bad in ("http://evil.example", "https://localhost.evil.example", "null", f"http://127.0.0.1.evil.example:{t.d.port}", "file://"):
        for c in (tcp, t.c):
            r = c.call("GET", "/v1/sandboxes", headers={"Origin": bad}, ok=False)
            equal(r.status, 403, f"Origin {bad}")
            equal(error_of(r.status, r.body).code, "denied")
    equal(tcp.call("GET", "/v1/sandboxes", headers={"Origin": f"http://127.0.0.1:{t.d.port}"}).status, 200)
    r = tcp.call("OPTIONS", "/v1/sandboxes", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}, ok=False)
    true(r.headers.get("Access-Control-Allow-Origin") in (None, ""), "no CORS grant to strangers")


@tiers("vm", "container")
def websocket_origin_is_checked(t):
    box = t.box()
    k = t.d.new_key("ws")["key"]
    c = t.d.tcp(k)
    with refuses("denied"):
        c.websocket(box.p + "/pty", headers={"Origin": "http://evil.example"})
    with refuses("unauthenticated"):
        t.d.tcp().websocket(box.p + "/pty")
    ws = c.websocket(box.p + "/pty")
    ws.send(b"echo o''k\n")
    ws.wait_for(b"ok")
    ws.close()


@plain
def simple_requests_of_a_form_are_refused(t):
    """CSRF: a form can send text/plain, urlencoded and multipart across origins without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain; charset=application/json"):
        r = t.c.call("POST", "/v1/sandboxes", body=b'{"isolation":"container"}', headers={"Content-Type": kind}, ok=False)
        true(r.status in (400, 403), f"{kind}: {r.status}")
        error_of(r.status, r.body)
    equal(t.c.sandboxes(), [])
    r = t.c.call("POST", "/v1/sandboxes", body=b'{"isolation":"container"}', headers={"Content-Type": "application/json; charset=utf-8"}, ok=False)
    equal(r.status, 201)
    t.boxes.append(Box(t.c, r.json()))


@plain
def cookies_and_urls_are_no_keys(t):
    k = t.d.new_key("url")["key"]
    c = t.d.tcp()
    for q in ("key", "api_key", "token", "access_token"):
        refuses("unauthenticated invalid", c.call, "GET", f"/v1/sandboxes?{q}={k}")
    refuses("unauthenticated", c.call, "GET", "/v1/sandboxes", headers={"Cookie": f"key={k}"})


@plain
def shutdown_is_for_the_socket_only(t):
    k = t.d.new_key("down")["key"]
    refuses("denied not_found unauthenticated", t.d.tcp(k).call, "POST", "/v1/shutdown", json_body={"keep": False})
    t.c.health()


@plain
def answers_do_not_invite_a_browser(t):
    r = t.c.call("GET", "/v1/sandboxes")
    true(r.headers.get("Content-Type", "").startswith("application/json"), r.headers)
    equal(r.headers.get("X-Content-Type-Options"), "nosniff")
    box = t.create(isolation="container")
    box.put("x.html", b"<script>alert(1)</script>")
    r = t.c.call("GET", box.p + "/files", query={"path": "x.html"})
    true("html" not in r.headers.get("Content-Type", ""), "a guest's file must not run as a page of ours")


@plain
def error_bodies_echo_nothing_dangerous(t):
    r = t.c.call("GET", "/v1/sandboxes/%3Cscript%3Ealert(1)%3C%2Fscript%3E", ok=False)
    true(r.headers.get("Content-Type", "").startswith("application/json"))
    e = error_of(r.status, r.body)
    true(json.loads(r.body)["error"]["request_id"], e)

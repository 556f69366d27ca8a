"""MCP at /mcp and over `hutch mcp`, with a client of a few lines. The SDKs and the official conformance tool are in tests/conform/mcp."""
import base64
import json
import os
import subprocess
import threading
import time
import urllib.request

import daemon
from hutchtest import *

DAEMON = shared_daemon("mcp", HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0")  # without VMs that wait it is there sooner


def TIERS(fn):
    return DAEMON(tiers("vm", "container")(fn))


def ONE(fn):
    """What the tier does not matter for."""
    return DAEMON(tiers("container")(fn))


MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


class Mcp:
    """One client: legacy with a session, or modern."""

    def __init__(self, t, version="2025-11-25", path="/mcp?tools=full", key=None, over=None):
        self.t, self.version, self.path, self.session, self.n = t, version, path, None, 0
        self.c = over or (t.d.tcp(key) if key else t.c)
        if version != MODERN:
            r = self.post("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
            self.hello = r.json()["result"]
            self.session = r.headers["Mcp-Session-Id"]
            equal(self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status, 202)

    def head(self, msg):
        h = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.session:
            h["Mcp-Session-Id"] = self.session
        if self.version == MODERN and isinstance(msg, dict) and "id" in msg:
            h |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": msg["method"]}
            name = msg["params"].get("name") or msg["params"].get("uri")
            if name:
                h["Mcp-Name"] = name
        return h

    def send(self, msg, headers=None, deadline=90):
        """headers: None as value drops one."""
        h = {k: v for k, v in {**self.head(msg), **(headers or {})}.items() if v is not None}
        body = msg if isinstance(msg, bytes) else json.dumps(msg).encode()
        return self.c.call("POST", self.path, body=body, headers=h, ok=False, deadline=deadline)

    def message(self, method, params=None, ident=None, progress=None):
        self.n += 1
        params = dict(params or {})
        meta = dict(params.get("_meta", {}))
        if self.version == MODERN:
            meta |= {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        if progress is not None:
            meta["progressToken"] = progress
        if meta:
            params["_meta"] = meta
        return {"jsonrpc": "2.0", "id": self.n if ident is None else ident, "method": method, "params": params}

    def post(self, method, params=None, headers=None, **kw):
        return self.send(self.message(method, params, **kw), headers)

    def ask(self, method, params=None, **kw):
        """The answer, whichever form it has."""
        r = self.post(method, params, **kw)
        return messages(r)[-1]

    def tool(self, which, /, ok=True, **arguments):
        r = self.ask("tools/call", {"name": which, "arguments": arguments})
        true("result" in r, r)
        r = r["result"]
        equal(bool(r.get("isError")), not ok, r)
        if not ok:
            return r["content"][0]["text"]
        self.last = r
        return r["structuredContent"]

    def stream(self, msg, deadline=90):
        return self.c.stream("POST", self.path, body=json.dumps(msg).encode(), headers=self.head(msg), ok=False, deadline=deadline)


def messages(r):
    """All JSON-RPC messages of an answer."""
    if r.headers.get("Content-Type", "").startswith("text/event-stream"):
        return [json.loads(line[6:]) for line in r.body.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(r.body)]


def ended(t):
    """Kills what a test's clients made."""
    t.cleanup_later(lambda: [t.c.delete(f"/v1/sandboxes/{s['id']}") for s in t.c.get("/v1/sandboxes")["sandboxes"] if s["state"] not in ("gone", "stopping")])


def own(t, tier=None, **members):
    """A sandbox of the tier under test."""
    return t.box(**members).id


# ---- the whole path ------------------------------------------------------------------------------------------------

@TIERS
@timeout(200)
def code_commands_and_files(t):
    m = Mcp(t)
    sb = own(t)
    r = m.tool("run_code", sandbox=sb, code="x = 6 * 7\nprint('out')\nx")
    equal((r["sandbox"], r["status"], r["exit_code"], r["stdout"], r["result"]), (sb, "exited", 0, "out\n", "42"))
    contains(m.last["content"][0]["text"].split("\n")[0], sb)
    equal(m.tool("run_code", sandbox=sb, code="x + 1")["result"], "43")
    r = m.tool("run_code", sandbox=sb, code="1/0")
    equal((r["status"], r["exit_code"], r["error"]["name"]), ("exited", 1, "ZeroDivisionError"))
    r = m.tool("run_code", sandbox=sb, code="x", restart=True)
    equal(r["error"]["name"], "NameError")
    r = m.tool("run_command", sandbox=sb, command="cat; pwd; echo $A >&2; exit 3", stdin="in\n", cwd="/tmp", env={"A": "b"})
    equal((r["exit_code"], r["stdout"], r["stderr"]), (3, "in\n/tmp\n", "b\n"))
    equal(m.tool("run_command", sandbox=sb, command="kill -9 $$")["exit_code"], 137)
    equal(m.tool("write_file", sandbox=sb, path="d/a.txt", content="one\ntwo\n"), {"sandbox": sb, "path": "/home/user/d/a.txt", "bytes": 8, "created": True})
    r = m.tool("edit_file", sandbox=sb, path="d/a.txt", edits=[{"old": "two", "new": "2"}])
    equal((r["replacements"], "-two\n+2\n" in r["diff"]), (1, True))
    contains(m.tool("edit_file", sandbox=sb, path="d/a.txt", edits=[{"old": "one", "new": "1"}, {"old": "no", "new": ""}], ok=False), "edits[1].old")
    r = m.tool("read_file", sandbox=sb, path="d/a.txt")
    equal((r["total_lines"], r["truncated"], m.last["content"][0]["text"].split("\n", 1)[1]), (2, False, "1\tone\n2\t2\n"))
    equal([e["path"] for e in m.tool("list_files", sandbox=sb, glob="**/*.txt")["entries"]], ["d/a.txt"])
    m.tool("write_file", sandbox=sb, path="s", content=base64.b64encode(b"#!/bin/sh\necho run\n").decode(), encoding="base64", executable=True)
    equal(m.tool("run_command", sandbox=sb, command="./s")["stdout"], "run\n")
    equal(m.tool("kill_sandbox", sandbox=sb), {"id": sb, "state": "gone"})
    equal(m.tool("kill_sandbox", sandbox=sb), {"id": sb, "state": "gone"})
    contains(m.tool("run_command", sandbox=sb, command="true", ok=False), "has ended")


@TIERS
@timeout(200)
def states_come_and_go(t):
    m = Mcp(t)
    sb = own(t)
    m.tool("write_file", sandbox=sb, path="f", content="before")
    snap = m.tool("snapshot_sandbox", sandbox=sb, name="mcp-before")
    t.cleanup_later(lambda: t.c.delete(f"/v1/snapshots/{snap['snapshot']}"))
    m.tool("write_file", sandbox=sb, path="f", content="after")
    copy = m.tool("fork_sandbox", sandbox=sb)["sandboxes"][0]["id"]
    equal(m.tool("run_command", sandbox=copy, command="cat f")["stdout"], "after")
    m.tool("kill_sandbox", sandbox=copy)
    equal(m.tool("restore_sandbox", sandbox=sb, snapshot="mcp-before")["state"], "running")
    equal(m.tool("run_command", sandbox=sb, command="cat f")["stdout"], "before")
    listed = m.tool("list_sandboxes")
    true(sb in [x["id"] for x in listed["sandboxes"]] and snap["snapshot"] in [x["id"] for x in listed["snapshots"]], listed)
    m.tool("kill_sandbox", sandbox=sb)


@ONE
def outputs_obey_their_schemas(t):
    """Every schema that is served is the contract's, and results have what it requires."""
    m = Mcp(t)
    with open(os.path.join(daemon.REPO, "src", "api", "mcp", "tools.json")) as f:
        contract = json.load(f)["tools"]
    listed = m.ask("tools/list")["result"]["tools"]
    equal(listed, [{k: v for k, v in tool.items() if k != "set"} for tool in contract])
    for query, want in (("minimal", ["minimal"]), ("standard", ["minimal", "standard"])):
        names = [x["name"] for x in Mcp(t, path=f"/mcp?tools={query}").ask("tools/list")["result"]["tools"]]
        equal(names, [x["name"] for x in contract if x["set"] in want])
    equal([x["name"] for x in Mcp(t, path="/mcp?tools=read_file,run_code").ask("tools/list")["result"]["tools"]], ["read_file", "run_code"])
    equal(Mcp(t, path="/mcp").ask("tools/call", {"name": "set_network", "arguments": {}})["error"]["code"], -32602)
    sb = own(t)
    for name, args in (("run_command", {"command": "true"}), ("expose_port", {"port": 80}), ("download_file", {"path": "/etc/hostname"}), ("upload_file", {"path": "x"}),
                       ("set_network", {"mode": "none"}), ("read_egress", {}), ("list_files", {}), ("read_file", {"path": "/etc/passwd"})):
        r = m.tool(name, sandbox=sb, **args)
        schema = next(x for x in contract if x["name"] == name)["outputSchema"]
        equal([k for k in schema["required"] if k not in r], [], name)
        equal([k for k in r if k not in schema["properties"]], [], name)
    m.tool("kill_sandbox", sandbox=sb)


# ---- time ----------------------------------------------------------------------------------------------------------

@ONE
def long_work_goes_on_and_is_read(t):
    m, sb = Mcp(t), own(t)
    r = m.tool("run_command", sandbox=sb, command="echo a; sleep 2; echo b", wait_s=0.5)
    equal((r["status"], r["stdout"]), ("running", "a\n"))
    other = Mcp(t, MODERN)  # the id is enough
    equal(other.tool("read_process", process_id=r["process_id"])["stdout"], "b\n")
    equal(other.tool("read_process", process_id=r["process_id"])["status"], "exited")
    r = m.tool("run_command", sandbox=sb, command="cat", background=True)
    equal(r["status"], "running")
    equal(m.tool("read_process", process_id=r["process_id"], input="hello\n")["stdout"], "hello\n")
    r = m.tool("stop_process", process_id=r["process_id"])
    equal((r["status"], r["exit_code"]), ("killed", 143))
    equal(m.tool("run_command", sandbox=sb, command="sleep 60", timeout_s=1)["status"], "timed_out")
    r = m.tool("run_code", sandbox=sb, code="import time\nprint('in', flush=True)\ntime.sleep(60)", wait_s=1)
    equal((r["status"], r["stdout"]), ("running", "in\n"))
    equal(m.tool("stop_process", process_id=r["process_id"])["status"], "killed")
    contains(m.tool("read_process", process_id="p_1", ok=False), "p_1")


@ONE
def progress_comes_and_stops(t):
    m, sb = Mcp(t), own(t)
    r = m.post("tools/call", {"name": "run_command", "arguments": {"sandbox": sb, "command": "for i in 1 2 3; do echo line $i; sleep 1; done"}}, progress="tok")
    got = messages(r)
    notes = [x["params"] for x in got if x.get("method") == "notifications/progress"]
    true(len(notes) >= 2 and all(n["progressToken"] == "tok" for n in notes), got)
    true(all(a["progress"] < b["progress"] for a, b in zip(notes, notes[1:])), notes)
    contains(notes[0]["message"], "line 1")
    equal(got[-1]["result"]["structuredContent"]["stdout"], "line 1\nline 2\nline 3\n")


def sleeping(t, sb, mark):
    return int(t.c.box(sb).exec(["sh", "-c", f"pgrep -fc '^sleep {mark}' || true"]).text)


@ONE
def cancelling_kills_the_process(t):
    sb = own(t)
    m = Mcp(t)
    msg = m.message("tools/call", {"name": "run_command", "arguments": {"sandbox": sb, "command": "sleep 7331"}}, ident="c1")
    s = m.stream(msg)
    until(lambda: sleeping(t, sb, 7331) == 1, what="it runs")
    equal(m.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c1"}}).status, 202)
    lacks(s.read(), b'"result"')
    until(lambda: sleeping(t, sb, 7331) == 0, what="it is gone")
    modern = Mcp(t, MODERN)  # there, to leave is to cancel
    s = modern.stream(modern.message("tools/call", {"name": "run_command", "arguments": {"sandbox": sb, "command": "sleep 7332"}}))
    until(lambda: sleeping(t, sb, 7332) == 1, what="it runs")
    s.abort()
    until(lambda: sleeping(t, sb, 7332) == 0, what="it is gone")
    s = m.stream(m.message("tools/call", {"name": "run_command", "arguments": {"sandbox": sb, "command": "sleep 7333"}}))
    until(lambda: sleeping(t, sb, 7333) == 1, what="it runs")
    s.abort()  # in a session it is not
    time.sleep(3)
    equal(sleeping(t, sb, 7333), 1)


@ONE
def a_broken_stream_is_taken_up_again(t):
    m, sb = Mcp(t), own(t)
    s = m.stream(m.message("tools/call", {"name": "run_command", "arguments": {"sandbox": sb, "command": "sleep 3; echo late"}}, progress=1))
    seen = None
    for event, ident, data in s.sse():
        seen = ident
        if data and json.loads(data).get("method"):
            break
    s.abort()
    h = {"Accept": "text/event-stream", "Mcp-Session-Id": m.session, "Last-Event-ID": seen}
    got = t.c.call("GET", "/mcp", headers=h)
    equal(messages(got)[-1]["result"]["structuredContent"]["stdout"], "late\n")
    h["Last-Event-ID"] = [line[4:] for line in got.body.decode().split("\n") if line.startswith("id: ")][-1]
    equal(t.c.call("GET", "/mcp", headers=h, ok=False).status, 405)


# ---- much ----------------------------------------------------------------------------------------------------------

@ONE
@timeout(200)
def large_output_is_cut_and_kept(t):
    m, sb = Mcp(t), own(t)
    r = m.tool("run_command", sandbox=sb, command="seq 1 300000")
    true(r["truncated"] and len(r["stdout"]) < 20000 and r["stdout"].startswith("1\n2\n") and r["stdout"].endswith("300000\n"), r["stdout"][-200:])
    contains(r["stdout"], "bytes omitted")
    equal(m.tool("run_command", sandbox=sb, command=f"wc -c < {r['full_output']}; md5sum < {r['full_output']}; seq 1 300000 | md5sum")["stdout"].split()[0], "1988895")
    out = m.tool("run_command", sandbox=sb, command=f"md5sum < {r['full_output']}; seq 1 300000 | md5sum")["stdout"].split("\n")
    equal(out[0], out[1])
    equal(m.tool("run_command", sandbox=sb, command=r"printf '\033[31mred\033[0m 10%%\r100%%\n\377'")["stdout"], "100%\n\ufffd")
    r = m.tool("run_code", sandbox=sb, code="print('x' * 3000000)")
    true(r["truncated"] and r["full_output"], r)


@ONE
def pictures_are_blocks(t):
    m, sb = Mcp(t), own(t)
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 100).decode()
    r = m.tool("run_code", sandbox=sb, code=f"display({{'image/png': '{png}'}}, raw=True)")
    equal(r["images"], 1)
    equal([b for b in m.last["content"] if b["type"] == "image"], [{"type": "image", "data": png, "mimeType": "image/png"}])
    m.tool("write_file", sandbox=sb, path="p.png", content=png, encoding="base64")
    equal(m.tool("read_file", sandbox=sb, path="p.png")["mime_type"], "image/png")
    equal(m.last["content"][1]["type"], "image")
    m.tool("run_command", sandbox=sb, command="head -c 100 /dev/zero > z.bin")
    m.tool("read_file", sandbox=sb, path="z.bin")
    equal((m.last["content"][1]["type"], m.last["content"][1]["uri"]), ("resource_link", f"hutch://{sb}/files/home/user/z.bin"))


@ONE
@timeout(250)
def two_hundred_calls_of_twenty_clients(t):
    ended(t)
    boxes, team = [own(t) for _ in range(4)], Threads()

    def client(i):
        m = Mcp(t, MODERN if i % 2 else "2025-11-25")
        for k in range(10):
            equal(m.tool("run_command", sandbox=boxes[i % 4], command=f"echo {i}-{k}")["stdout"], f"{i}-{k}\n")

    for i in range(20):
        team.go(client, i)
    team.join(200)


# ---- sessions and sandboxes ----------------------------------------------------------------------------------------

@tiers("container")
@own_daemon(HUTCH_DEFAULT_ISOLATION="container")
def a_session_and_its_sandbox_survive_a_restart(t):
    ended(t)
    m = Mcp(t)
    a = m.tool("write_file", path="kept", content="here")
    equal(m.tool("run_command", command="cat kept")["sandbox"], a["sandbox"])
    long = m.tool("run_command", command="echo first; sleep 6; echo last", wait_s=0.5)
    other = Mcp(t)
    equal(t.c.call("DELETE", "/mcp", headers={"Mcp-Session-Id": other.session}).status, 200)
    t.d.shutdown(keep=True)
    t.d.start(settle=False)
    r = m.tool("run_command", command="cat kept")
    equal((r["sandbox"], r["stdout"]), (a["sandbox"], "here"))
    got = ""
    for _ in range(5):
        r = m.tool("read_process", process_id=long["process_id"])
        got += r["stdout"]
        if r["status"] == "exited":
            break
    contains(got, "last\n")
    equal(other.post("tools/list").status, 404, "one that was deleted stays so")
    wrong = Mcp(t)
    wrong.session = m.session[:-4] + "AAAA"
    equal(wrong.post("tools/list").status, 404)


@tiers("container")
@own_daemon(HUTCH_DEFAULT_ISOLATION="container")
def default_sandboxes_have_a_lease(t):
    ended(t)
    m = Mcp(t)
    team, seen = Threads(), []
    for _ in range(4):
        team.go(lambda: seen.append(Mcp.tool(m, "run_command", command="true")["sandbox"]))
    team.join(60)
    equal(len(set(seen)), 1, "calls at once share it")
    row = t.c.get(f"/v1/sandboxes/{seen[0]}")
    equal((row["idle_timeout_s"], row["on_idle"]), (3600, "kill"))
    modern = Mcp(t, MODERN)
    first = modern.tool("run_command", command="true")["sandbox"]
    contains(modern.last["content"][0]["text"], f"New sandbox {first}")
    true(first != modern.tool("run_command", command="true")["sandbox"])
    row = t.c.get(f"/v1/sandboxes/{first}")
    equal((row["idle_timeout_s"], row["timeout_s"], row["on_idle"]), (600, 3600, "kill"))
    named = Mcp(t, MODERN, path="/mcp?sandbox=work")
    a, b = named.tool("run_command", command="true")["sandbox"], named.tool("run_command", command="true")["sandbox"]
    equal((a, t.c.get("/v1/sandboxes/work")["id"]), (b, a))
    equal(m.tool("create_sandbox", name="work")["created"], False)


@ONE
def another_tenants_things_do_not_exist(t):
    one, two = (t.d.new_key(n, role="member")["key"] for n in ("mcp-one", "mcp-two"))
    a, b = Mcp(t, key=one), Mcp(t, key=two)
    sb = a.tool("create_sandbox", isolation="container")["id"]
    r = a.tool("run_command", sandbox=sb, command="sleep 30", wait_s=0.3)
    contains(b.tool("run_command", sandbox=sb, command="true", ok=False), "does not exist")
    contains(b.tool("read_process", process_id=r["process_id"], ok=False), "does not exist")
    equal(b.tool("list_sandboxes")["sandboxes"], [])
    equal(b.ask("resources/read", {"uri": f"hutch://{sb}/files/etc/hostname"})["error"]["code"], -32002)
    b.session = a.session
    equal(b.post("tools/list").status, 404)
    contains(b.c.call("POST", "/mcp", headers={"Content-Type": "application/json"}, body=b"{}", ok=False).body.decode(), "jsonrpc")
    a.tool("kill_sandbox", sandbox=sb)


# ---- the wire ------------------------------------------------------------------------------------------------------

@ONE
def errors_have_their_codes(t):
    m, n = Mcp(t), Mcp(t, MODERN)
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        old = Mcp(t, version)
        equal(old.hello["protocolVersion"], version)
        tool = old.ask("tools/list")["result"]["tools"][0]
        equal(("outputSchema" in tool, "annotations" in tool), (version >= "2025-06-18", version >= "2025-03-26"))
    equal(Mcp(t, "1999-01-01").hello["protocolVersion"], "2025-11-25")
    equal(m.ask("ping")["result"], {})
    equal((m.post("nope").status, m.ask("nope")["error"]["code"]), (200, -32601))
    r = n.post("nope")
    equal((r.status, r.json()["error"]["code"]), (404, -32601))
    equal(n.post("ping").status, 404)
    equal(m.ask("ping", ident="7")["id"], "7")
    equal(m.ask("ping", ident=7)["id"], 7)
    for body, status, code in ((b"{", 400, -32700), (b"[]", 400, -32600), (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
                               (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600), (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600)):
        r = m.send(body)
        equal((r.status, r.json()["error"]["code"]), (status, code), body)
    batch = Mcp(t, "2025-03-26")
    equal([x["id"] for x in batch.send([{"jsonrpc": "2.0", "id": i, "method": "ping"} for i in (1, 2)]).json()], [1, 2])
    equal(m.ask("tools/call", {"name": "nope"})["error"]["code"], -32602)
    contains(m.tool("run_command", comand="x", ok=False), "did you mean 'command'")
    contains(m.tool("run_command", command="x", wait_s=301, ok=False), "wait_s")
    equal(m.ask("resources/list", {"cursor": "x"})["error"]["code"], -32602)
    equal(n.ask("resources/read", {"uri": "hutch://nobody/"})["error"]["code"], -32602)
    call = {"name": "list_sandboxes", "arguments": {}}
    for headers, status, code in (({"Mcp-Name": "other"}, 400, -32020), ({"Mcp-Method": "ping"}, 400, -32020), ({"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
                                  ({"Mcp-Name": None}, 400, -32020), ({"Mcp-Name": "=?base64?" + base64.b64encode(b"list_sandboxes").decode() + "?="}, 200, None)):
        r = n.post("tools/call", call, headers=headers)
        equal((r.status, messages(r)[-1].get("error", {}).get("code")), (status, code), headers)
    bad = n.message("tools/list")
    bad["params"]["_meta"][META + "protocolVersion"] = "1900-01-01"
    r = n.send(bad, {"MCP-Protocol-Version": "1900-01-01"})
    equal((r.status, r.json()["error"]["code"], r.json()["error"]["data"]["requested"]), (400, -32022, "1900-01-01"))
    r = m.send({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}, {"Mcp-Session-Id": None})
    equal((r.status, r.json()["error"]["code"]), (400, -32602))
    d = n.ask("server/discover")["result"]
    equal((d["resultType"], d["supportedVersions"][0], d["cacheScope"]), ("complete", MODERN, "public"))


@ONE
def http_is_checked(t):
    m, key = Mcp(t), t.d.new_key("mcp-http")["key"]
    tcp = t.d.tcp()
    hello = json.dumps(m.message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})).encode()

    def post(headers, body=hello):
        return tcp.call("POST", "/mcp", body=body, headers={"Content-Type": "application/json", **headers}, ok=False)
    r = post({})
    equal((r.status, r.headers["WWW-Authenticate"]), (401, 'Bearer realm="hutch"'))
    contains(post({"Authorization": "Bearer e2b_" + "0" * 40}).headers["WWW-Authenticate"], "invalid_token")
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        r = tcp.call("GET", path, ok=False)
        equal((r.status, r.headers["Content-Type"]), (404, "application/json"), path)
    good = {"Authorization": f"Bearer {key}"}
    equal(post(good).status, 200)
    equal(post({"X-API-Key": key}).status, 200)
    equal(post({**good, "Origin": "https://evil.example"}).status, 403)
    equal(post({**good, "Host": "evil.example"}).status, 403)
    equal(post({**good, "Content-Type": "text/plain"}).status, 415)
    equal(post({**good, "Accept": "image/png"}).status, 406)
    contains(post({**good, "Accept": "text/event-stream"}).headers["Content-Type"], "text/event-stream")
    equal(post({**good, "Accept": "application/json"}).headers["Content-Type"], "application/json")
    r = tcp.call("PUT", "/mcp", headers=good, ok=False)
    true(r.status == 405 and "POST" in r.headers["Allow"], r.headers)
    equal(tcp.call("GET", "/mcp", headers=good, ok=False).status, 405)
    equal(tcp.call("DELETE", "/mcp", headers=good, ok=False).status, 405)
    equal(post({**good, "MCP-Protocol-Version": "2031-01-01"}, body=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()).status, 400)
    big = json.dumps(m.message("tools/call", {"name": "nope", "arguments": {"x": "y" * (12 << 20)}})).encode()
    equal(m.send(big).status, 200)
    equal(m.send(b" " * (33 << 20)).status, 413)


@ONE
def resources_are_listed_read_and_watched(t):
    m, sb = Mcp(t), own(t)
    m.tool("write_file", sandbox=sb, path="dé/a.md", content="# t")
    uri = f"hutch://{sb}/files/home/user/d%C3%A9/a.md"
    listed = {r["uri"] for r in m.ask("resources/list")["result"]["resources"]}
    true({uri, f"hutch://{sb}/"} <= listed, listed)
    equal(m.ask("resources/read", {"uri": uri})["result"]["contents"], [{"uri": uri, "mimeType": "text/markdown", "text": "# t"}])
    equal(json.loads(m.ask("resources/read", {"uri": f"hutch://{sb}/"})["result"]["contents"][0]["text"])["id"], sb)
    r = m.ask("resources/read", {"uri": f"hutch://{sb}/files/home/user/d%C3%A9"})["result"]["contents"][0]
    equal((r["mimeType"], r["text"]), ("inode/directory", "a.md\n"))
    for bad in (f"hutch://{sb}/files/home/../etc/passwd", f"hutch://{sb}/files/nope", "hutch://x/", "file:///etc/passwd", f"hutch://{sb}/files/a%00b"):
        equal(m.ask("resources/read", {"uri": bad})["error"]["code"], -32002, bad)
    m.tool("run_command", sandbox=sb, command="head -c 6000000 /dev/zero > big; head -c 2000 /dev/urandom > bin")
    r = m.ask("resources/read", {"uri": f"hutch://{sb}/files/home/user/big"})["error"]
    equal((r["code"], r["data"]["size"]), (-32602, 6000000))
    equal(len(base64.b64decode(m.ask("resources/read", {"uri": f"hutch://{sb}/files/home/user/bin"})["result"]["contents"][0]["blob"])), 2000)
    p = m.tool("run_command", sandbox=sb, command="echo o; echo e >&2; sleep 30", wait_s=0.5)["process_id"]
    equal(m.ask("resources/read", {"uri": f"hutch://{sb}/processes/{p}/stderr"})["result"]["contents"][0]["text"], "e\n")
    push = t.c.stream("GET", "/mcp", headers={"Accept": "text/event-stream", "Mcp-Session-Id": m.session})
    equal(t.c.call("GET", "/mcp", headers={"Accept": "text/event-stream", "Mcp-Session-Id": m.session}, ok=False).status, 409)
    equal(m.ask("resources/subscribe", {"uri": uri})["result"], {})
    m.tool("write_file", sandbox=sb, path="dé/a.md", content="# u")
    for _, _, data in push.sse():
        if json.loads(data)["method"] == "notifications/resources/updated":
            equal(json.loads(data)["params"]["uri"], uri)
            break
    push.close()
    n = Mcp(t, MODERN)
    s = n.stream(n.message("subscriptions/listen", {"notifications": {"resourcesListChanged": True, "resourceSubscriptions": [uri]}}, ident="listen:0"))
    it = (json.loads(data) for _, _, data in s.sse())
    ack = next(it)
    equal((ack["method"], ack["params"]["notifications"]["resourceSubscriptions"]), ("notifications/subscriptions/acknowledged", [uri]))
    m.tool("write_file", sandbox=sb, path="dé/a.md", content="# v")
    seen = next(x for x in it if x["method"] == "notifications/resources/updated")
    equal(seen["params"]["_meta"][META + "subscriptionId"], "listen:0")
    s.close()


@ONE
def links_need_no_key(t):
    m, sb = Mcp(t, key=t.d.new_key("mcp-links")["key"]), None
    sb = m.tool("create_sandbox", isolation="container")["id"]
    up = m.tool("upload_file", sandbox=sb, path="in/u.bin")
    equal(up["path"], "/home/user/in/u.bin")
    tcp = t.d.tcp()
    there = up["upload_url"].split("/mcp/")[1]
    equal(tcp.call("PUT", "/mcp/" + there, body=b"bytes", ok=False).status, 201)
    equal(tcp.call("PUT", "/mcp/" + there, body=b"again", ok=False).status, 403, "works once")
    equal(tcp.call("GET", "/mcp/" + there, ok=False).status, 403, "is for one direction")
    down = m.tool("download_file", sandbox=sb, path="in/u.bin")
    with urllib.request.urlopen(down["url"], timeout=30) as r:
        equal(r.read(), b"bytes")
    packed = m.tool("download_file", sandbox=sb, path="in")["url"]
    with urllib.request.urlopen(packed, timeout=30) as r:
        equal(r.read()[:2], b"\x1f\x8b")
    short = m.tool("download_file", sandbox=sb, path="in/u.bin", ttl_s=1)["url"].split("/mcp/")[1]
    until(lambda: tcp.call("GET", "/mcp/" + short, ok=False).status == 403, what="it expires")
    broken = down["url"].split("/mcp/")[1]
    equal(tcp.call("GET", "/mcp/" + ("A" if broken[6] != "A" else "B").join((broken[:6], broken[7:])), ok=False).status, 403)
    contains(m.tool("upload_file", sandbox=sb, path="x", url="http://127.0.0.1:1/", ok=False), "could not be fetched")
    m.tool("kill_sandbox", sandbox=sb)


# ---- stdio ---------------------------------------------------------------------------------------------------------

class Stdio:
    def __init__(self, t, *args):
        env = {**os.environ, "HUTCH_RUN": t.d.run, "HUTCH_HOME": t.d.home, "HUTCH_CONFIG": "none", "HUTCH_NO_START": "1"}
        self.p = subprocess.Popen([daemon.program("hutch"), "mcp", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        t.cleanup_later(lambda: self.p.poll() is None and self.p.kill())
        self.got, self.more = {}, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            with self.more:
                m = json.loads(line)
                self.got[m.get("id")] = m
                self.more.notify_all()

    def say(self, text):
        self.p.stdin.write(text if isinstance(text, bytes) else (json.dumps(text) + "\n").encode())
        self.p.stdin.flush()

    def answer(self, ident, seconds=30):
        with self.more:
            true(self.more.wait_for(lambda: ident in self.got, seconds), f"answer to {ident}; got {list(self.got)}")
            return self.got[ident]

    def hello(self):
        self.say({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self.answer(0)["result"]


def call(ident, name, **arguments):
    return {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@ONE
def stdio_serves_many_at_once(t):
    sb = own(t)
    s = Stdio(t, "--tools", "minimal", "--sandbox", sb)
    s.say({"jsonrpc": "2.0", "id": "p0", "method": "ping"})
    equal(s.answer("p0")["result"], {})
    equal(s.hello()["serverInfo"]["name"], "hutch")
    s.say({"jsonrpc": "2.0", "id": "l", "method": "tools/list"})
    equal([x["name"] for x in s.answer("l")["result"]["tools"]], ["run_code", "run_command", "read_file", "write_file"])
    s.say(call(1, "run_command", command="sleep 4; echo slow"))
    s.say(call(2, "run_command", command="sleep 7441"))
    s.say(b"\r\n\n" + json.dumps(call(3, "run_command", command="echo 'a\nb'")).encode() + b"\r\n")
    equal(s.answer(3)["result"]["structuredContent"]["stdout"], "a\nb\n")
    s.say({"jsonrpc": "2.0", "id": "p1", "method": "ping"})
    s.answer("p1")
    true(1 not in s.got)
    until(lambda: sleeping(t, sb, 7441) == 1, what="it runs")
    s.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    until(lambda: sleeping(t, sb, 7441) == 0, what="it is gone")
    equal(s.answer(1)["result"]["structuredContent"]["stdout"], "slow\n")
    s.say(b"{\n")
    equal(s.answer(None)["error"]["code"], -32700)
    meta = {"_meta": {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}}
    s.say({"jsonrpc": "2.0", "id": "m", "method": "tools/call", "params": {"name": "run_command", "arguments": {"command": "sleep 7442"}, **meta}})
    until(lambda: sleeping(t, sb, 7442) == 1, what="a modern one runs")
    s.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "m"}})
    until(lambda: sleeping(t, sb, 7442) == 0, what="it is gone")
    s.say(call(9, "run_command", command="sleep 7443"))
    until(lambda: sleeping(t, sb, 7443) == 1, what="it runs")
    s.p.stdin.close()
    equal(s.p.wait(10), 0)
    until(lambda: sleeping(t, sb, 7443) == 0, what="what was in flight is called off")
    true(2 not in s.got and "m" not in s.got, "a cancelled call has no answer")


@tiers("container")
@own_daemon(HUTCH_DEFAULT_ISOLATION="container")
def stdio_outlives_a_restart(t):
    ended(t)
    s = Stdio(t)
    s.hello()
    s.say(call(1, "write_file", path="f", content="kept"))
    s.answer(1)
    t.d.shutdown(keep=True)
    s.say(call(2, "run_command", command="cat f"))
    time.sleep(1)
    t.d.start(settle=False)
    equal(s.answer(2)["result"]["structuredContent"]["stdout"], "kept")
    s.p.stdin.close()
    equal(s.p.wait(10), 0)


@DAEMON
@plain
def install_adds_and_keeps(t):
    home = t.tmp
    os.makedirs(f"{home}/.cursor")
    with open(f"{home}/.cursor/mcp.json", "w") as f:
        f.write('{\n  "mcpServers": {\n    "other": {"command": "x {"}\n  }, "keep": [1,2]\n}\n')
    run = lambda *a: subprocess.run([daemon.program("hutch"), "mcp", "install", *a], env={**os.environ, "HOME": home, "HUTCH_CONFIG": "none"}, capture_output=True, text=True)
    r = run("cursor", "--sandbox", "work")
    equal(r.returncode, 0, r.stderr)
    contains(r.stdout, "written to")
    got = json.load(open(f"{home}/.cursor/mcp.json"))
    equal((got["mcpServers"]["hutch"]["args"], got["mcpServers"]["other"], got["keep"]), (["mcp", "--sandbox", "work"], {"command": "x {"}, [1, 2]))
    contains(run("cursor", "--sandbox", "work").stdout, "already in")
    true(run("cursor").returncode != 0, "another entry of ours is not overwritten")
    for client, file in (("claude-code", ".claude.json"), ("vscode", ".config/Code/User/mcp.json"), ("codex", ".codex/config.toml")):
        equal(run(client).returncode, 0, client)
        contains(open(f"{home}/{file}").read(), '"mcp"', client)
    with open(f"{home}/.claude.json", "w") as f:
        f.write("// mine\n{}")
    r = run("claude-code")
    true(r.returncode != 0 and "left alone" in r.stderr and "add it by hand" in r.stderr, r.stderr)
    equal(open(f"{home}/.claude.json").read(), "// mine\n{}")

"""docs/api.md is true: its example requests are sent, and what comes back has the members and types that the tables say.

The tables are asked for as /v1/openapi.json, which is made from the same rows as the page. Every operation is either
sent here or in NOT_SENT with the reason.
"""
import json
import os
import re

from hutchtest import *

PAGE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "docs", "api.md")
NOT_SENT = {
    "recoverSandbox": "needs a sandbox that failed: test_recovery.py",
    "sandboxConsole": "a VM's; answered in test_observe.py",
    "openTerminal": "WebSocket: test_pty.py",
    "resizeProcess": "needs a terminal: test_pty.py",
    "watchFiles": "does not end: test_watch.py",
    "exportSnapshot": "not of a directory: test_packs.py", "importSnapshot": "test_packs.py",
    "buildTemplate": "minutes: test_templates.py", "importTemplate": "minutes: test_templates.py", "removeTemplate": "test_templates.py",
    "runProgram": "needs the template isolate: test_isolate.py",
    "shutdown": "the daemon is shared",
}


def examples():
    """operationId → (method, path with query, body or None), from the page."""
    text = open(PAGE, encoding="utf-8").read()
    found = {}
    for ident, request in re.findall(r"^`[A-Z]+ \S+` \(`(\w+)`\).*?```http\n(.*?)```", text, re.M | re.S):
        head, _, body = request.partition("\n\n")
        method, target = head.splitlines()[0].split(" ", 1)
        found[ident] = (method, target, body.strip("\n") or None)
    return found


class Shapes:
    """Compares values with JSON Schemas of the kinds that the document uses; anything else in a schema is an error."""

    def __init__(self, doc):
        self.doc = doc
        self.seen = set()

    def check(self, v, s, at):
        if "$ref" in s:
            name = s["$ref"].rsplit("/", 1)[1]
            self.seen.add(name)
            return self.check(v, self.doc["components"]["schemas"][name], at)
        for one in s.get("allOf", ()):
            self.check(v, one, at)
        for key in ("anyOf", "oneOf"):
            if key in s:
                why = []
                for one in s[key]:
                    try:
                        return self.check(v, one, at)
                    except AssertionError as e:
                        why.append(str(e))
                raise AssertionError(f"{at}: {v!r} is none of: {'; '.join(why)}")
        kinds = s.get("type", [])
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if self.is_a(v, kind):
                break
        else:
            true(not kinds, f"{at}: {v!r} is not {kinds}")
        if "enum" in s:
            true(v in s["enum"], f"{at}: {v!r} is none of {s['enum']}")
        if s.get("format") == "date-time":
            true(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", v), f"{at}: {v!r} is no time")
        if isinstance(v, list) and "items" in s:
            for i, one in enumerate(v):
                self.check(one, s["items"], f"{at}[{i}]")
        if isinstance(v, dict) and "properties" in s:
            equal(set(s.get("required", [])) - set(v), set(), f"{at}: missing members")
            equal(set(v) - set(s["properties"]), set(), f"{at}: members that no table has")
            for k, one in v.items():
                self.check(one, s["properties"][k], f"{at}.{k}")

    @staticmethod
    def is_a(v, kind):
        plain = {"string": str, "boolean": bool, "array": list, "object": dict, "null": type(None)}
        if kind == "integer":
            return isinstance(v, int) and not isinstance(v, bool)
        if kind == "number":
            return isinstance(v, (int, float)) and not isinstance(v, bool)
        return isinstance(v, plain[kind])


class Sender:
    def __init__(self, t):
        self.t, self.page = t, examples()
        self.shapes = Shapes(t.c.get("/v1/openapi.json"))
        self.ops = {op["operationId"]: op for path in self.shapes.doc["paths"].values() for op in path.values()}
        self.sent, self.names = set(), {}

    def send(self, ident, change=None, body=None):
        """The example as it stands on the page, with {captures} filled in; change: members to add for this tier."""
        method, target, text = self.page[ident]
        if change:
            text = json.dumps({**json.loads(text), **change})
        if body is not None:
            text = body
        path = re.sub(r"\{(\w+)\}", lambda m: str(self.names[m[1]]), target)
        kind = "application/json" if text is None or text.startswith("{") else "application/octet-stream"
        r = self.t.c.call(method, path, body=text.encode() if text is not None else None, headers={"Content-Type": kind} if text is not None else {}, deadline=120)
        self.sent.add(ident)
        return self.compare(ident, r)

    def compare(self, ident, r):
        answers = self.ops[ident]["responses"]
        true(str(r.status) in answers, f"{ident}: {r.status} is not one of {sorted(answers)}")
        content = answers[str(r.status)].get("content", {})
        if not content:
            equal(r.body, b"", f"{ident}: a body that the document does not announce")
            return None
        kind = r.headers.get_content_type()
        true(kind in content, f"{ident}: {kind} is not one of {sorted(content)}")
        schema = content[kind]["schema"]
        if kind == "application/json":
            self.shapes.check(r.json(), schema, ident)
            return r.json()
        if kind == "application/x-ndjson":
            for line in r.body.splitlines():
                self.shapes.check(json.loads(line), schema["contentSchema"], ident)
        return r.body


@plain
def examples_of_the_page(t):
    s = Sender(t)
    equal(set(s.page), set(s.ops), "the page and the document have the same operations")
    box = s.send("createSandbox", {"isolation": "container"})
    t.boxes.append(Box(t.c, box))
    s.names.update(id=box["id"], name="base")
    for ident in ("listSandboxes", "getSandbox", "changeSandbox", "keepAlive", "setTimeout", "getUrl", "sandboxMetrics", "sandboxLogs", "events",
                  "health", "prometheus", "doctor", "getTenants", "openapi", "listTemplates", "getTemplate", "buildBuiltin"):
        s.send(ident)

    s.send("exec")
    for more in ({"stream": True}, {"cmd": ["false"]}, {"cmd": "kill -9 $$"}, {"cmd": "printf '\\377'"}, {"cmd": "sleep 9", "timeout_ms": 50}):
        s.send("exec", more)
    s.names["pid"] = s.send("exec", {"cmd": ["cat"], "background": True, "keep_stdin": True, "tag": "web"})["pid"]
    for ident in ("listProcesses", "getProcess", "writeStdin", "streamProcess"):
        s.send(ident)
    s.names["pid"] = s.send("exec", {"cmd": ["sleep", "60"], "background": True})["pid"]
    s.send("signalProcess")

    s.send("eval")
    s.send("eval", {"stream": True, "code": "print(1)\n1/0"})
    s.names["cid"] = s.send("createContext")["id"]
    for ident in ("listContexts", "getContext", "restartContext", "interruptContext", "removeContext"):
        s.send(ident)

    for ident in ("writeFile", "readFile", "statFile", "changeFile", "linkFile", "moveFile", "makeDirectory", "listDirectory"):
        s.send(ident)
    s.send("writeFile")
    s.send("removeFile")

    s.names["volume"] = s.send("createVolume")["id"]
    for ident in ("listVolumes", "getVolume", "writeVolumeFile", "readVolumeFile", "statVolumeFile", "changeVolumeFile", "linkVolumeFile", "moveVolumeFile",
                  "makeVolumeDirectory", "listVolumeDirectory", "writeVolumeFile", "removeVolumeFile", "deleteVolume"):
        s.send(ident)

    s.names["name"] = "api-token"
    for ident in ("setSecret", "listSecrets", "deleteSecret"):
        s.send(ident)
    s.names["name"] = "build-host"
    for ident in ("trustSigner", "listSigners", "distrustSigner"):
        s.send(ident)
    box_id = s.names["id"]
    s.names["id"] = s.send("createKey")["id"]
    s.send("listKeys")
    s.send("revokeKey")
    s.names["id"] = box_id

    for ident in ("setNetwork", "getNetwork", "listEgress"):
        s.send(ident)
    s.names["snapshot"] = s.send("takeSnapshot")["id"]
    for ident in ("listSnapshots", "getSnapshot", "getUsage", "rollbackSandbox"):
        s.send(ident)
    t.c.call("POST", f"/v1/sandboxes/{box_id}/dirs", query={"path": "/home/user/tree"})
    tree = t.c.post(f"/v1/sandboxes/{box_id}/snapshots", {"name": "tree", "path": "/home/user/tree"})
    s.send("restoreDirectory")
    t.c.call("DELETE", f"/v1/snapshots/{tree['id']}")
    for one in s.send("forkSandbox")["forks"]:
        t.boxes.append(Box(t.c, one["sandbox"]))
    for ident in ("pauseSandbox", "getSandbox", "resumeSandbox", "killSandbox", "getSandbox"):
        s.send(ident)
    for fork in t.boxes[1:]:
        fork.kill()
    s.send("deleteSnapshot")
    equal(set(s.ops) - s.sent, set(NOT_SENT), "sent, or in NOT_SENT with the reason")


@plain
def refusals_have_the_shape_of_a_problem(t):
    s = Sender(t)
    problem = {"$ref": "#/components/schemas/Problem"}
    for method, path, body in (("GET", "/v1/sandboxes/none", None), ("POST", "/v1/sandboxes", b'{"memory_mib":1}'), ("GET", "/v1/nothing", None), ("POST", "/v1/keys", b"{")):
        r = t.c.call(method, path, body=body, headers={"Content-Type": "application/json"} if body else {}, ok=False)
        true(r.status >= 400)
        s.shapes.check(r.json(), problem, path)
    r = t.c.call("POST", "/v1/sandboxes", body=b'{"tiemout_s":3}', headers={"Content-Type": "application/json"}, ok=False)
    equal(r.json()["error"]["message"], "tiemout_s: unknown member; did you mean timeout_s?")

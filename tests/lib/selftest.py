"""Tests of the harness itself, against small fakes: no daemon needed.

    python3 tests/lib/selftest.py
"""
import base64
import collections
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import census  # noqa: E402
import client  # noqa: E402
import daemon  # noqa: E402
import hutchtest as ht  # noqa: E402
import oci  # noqa: E402
import tarfile  # noqa: E402
import io  # noqa: E402


class Fake:
    """A server that answers each connection with a script: a function of the socket."""

    def __init__(self, script):
        self.dir = tempfile.mkdtemp()
        self.path = os.path.join(self.dir, "s")
        self.srv = socket.socket(socket.AF_UNIX)
        self.srv.bind(self.path)
        self.srv.listen(8)
        self.script = script
        threading.Thread(target=self._run, daemon=True).start()
        self.c = client.Client(sock=self.path, timeout=5)

    def _run(self):
        while True:
            s, _ = self.srv.accept()
            threading.Thread(target=self._one, args=(s,), daemon=True).start()

    def _one(self, s):
        head = b""
        while b"\r\n\r\n" not in head:
            b = s.recv(4096)
            if not b:
                return
            head += b
        try:
            self.script(s, head)
        finally:
            s.close()


def chunked(s, pieces, pause=0.0):
    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
    for p in pieces:
        s.sendall(b"%x\r\n%s\r\n" % (len(p), p))
        if pause:
            time.sleep(pause)
    s.sendall(b"0\r\n\r\n")


def test_ndjson_split_anywhere():
    lines = b"".join(json.dumps({"event": "stdout", "data": "x" * n}).encode() + b"\n" for n in (1, 0, 70000, 3))
    f = Fake(lambda s, h: chunked(s, [lines[i:i + 1000] for i in range(0, len(lines), 1000)]))
    got = [len(e["data"]) for e in f.c.stream("GET", "/x").events()]
    ht.equal(got, [1, 0, 70000, 3])
    f = Fake(lambda s, h: chunked(s, [lines[i:i + 1] for i in range(0, 200)] + [lines[200:]]))
    ht.equal(len(list(f.c.stream("GET", "/x").events())), 4)


def test_stream_deadline():
    def script(s, h):
        s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
        time.sleep(5)
    f = Fake(script)
    st = f.c.stream("GET", "/x", deadline=0.5)
    it = st.events()
    ht.equal(next(it), {})
    began = time.monotonic()
    try:
        next(it)
        raise AssertionError("no deadline")
    except client.Late:
        pass
    ht.within(time.monotonic() - began, 0.2, 2.0)


def test_sse():
    text = b": hello\n\nevent: ready\ndata: {}\n\nid: 7\nevent: change\ndata: {\"a\":\ndata: 1}\n\n: keepalive\n\ndata: x\n\n"
    f = Fake(lambda s, h: chunked(s, [text[i:i + 3] for i in range(0, len(text), 3)]))
    got = list(f.c.stream("GET", "/x").sse())
    ht.equal(got, [("ready", None, "{}"), ("change", "7", '{"a":\n1}'), ("message", "7", "x")])


def test_typed_errors():
    def answer(status, body):
        return lambda s, h: s.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
    ok = json.dumps({"error": {"code": "not_found", "message": "no", "hint": None, "request_id": "r1"}}).encode()
    f = Fake(answer(404, ok))
    e = ht.refuses("not_found", f.c.call, "GET", "/x")
    ht.equal(e.status, 404)
    for status, body in ((404, b"not here"), (500, ok), (404, b'{"error":{"code":"nope","message":"x"}}')):
        f = Fake(answer(status, body))
        try:
            f.c.call("GET", "/x")
            raise AssertionError("accepted")
        except client.Untyped:
            pass


def ws_frame(op, payload, fin=True):
    head = bytes([(0x80 if fin else 0) | op])
    n = len(payload)
    if n < 126:
        head += bytes([n])
    elif n < 65536:
        head += bytes([126]) + struct.pack(">H", n)
    else:
        head += bytes([127]) + struct.pack(">Q", n)
    return head + payload


def test_websocket():
    seen = {}

    def script(s, head):
        key = [x.split(b": ")[1] for x in head.split(b"\r\n") if x.lower().startswith(b"sec-websocket-key")][0]
        acc = base64.b64encode(hashlib.sha1(key + client.WS_GUID).digest())
        s.sendall(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + acc + b"\r\n\r\n")
        big = os.urandom(70000)
        seen["big"] = big
        s.sendall(ws_frame(1, b'{"started":{"pid":5}}') + ws_frame(9, b"hi") + ws_frame(2, big[:100], fin=False))
        s.sendall(ws_frame(0, big[100:]))
        buf = b""
        while len(buf) < 2 + 4 + 2 + 2 + 4 + 3:
            buf += s.recv(4096)
        k = buf[2:6]
        seen["pong"] = (buf[0], bytes(b ^ k[i % 4] for i, b in enumerate(buf[6:8])))
        k = buf[10:14]
        seen["msg"] = (buf[8], bytes(b ^ k[i % 4] for i, b in enumerate(buf[14:17])))
        s.sendall(ws_frame(8, struct.pack(">H", 1000)))
        time.sleep(0.2)
    f = Fake(script)
    ws = f.c.websocket("/pty", query={"cmd": ["a", "b c"]})
    ht.equal(ws.recv(), {"started": {"pid": 5}})
    got = ws.recv()
    ht.equal(got, seen["big"])
    ws.send(b"abc")
    ht.equal(ws.recv(), None)
    ht.equal(ws.close_code, 1000)
    ht.equal(seen["pong"], (0x8A, b"hi"))
    ht.equal(seen["msg"], (0x82, b"abc"))


def test_pattern():
    p = ht.Pattern(200001)
    whole = b"".join(p)
    ht.equal(len(whole), 200001)
    ht.equal(ht.sha(whole), p.sha())
    ht.equal(whole, b"".join(ht.Pattern(200001)))


def test_census_sees_processes_files_and_cgroups():
    home, run = tempfile.mkdtemp(), tempfile.mkdtemp()
    c = census.Census(home, run)
    before = c.settled(quiet=0.2)
    ht.equal(census.leaks({}, before), [])
    p = subprocess.Popen(["sleep", "60"], env={"HUTCH_RUN": run})
    os.makedirs(home + "/boxes/iabcdefghij0123456789")
    try:
        ht.until(lambda: c.mine(), 5)
        left = census.leaks(before, c.sample())
        text = "\n".join(left)
        ht.contains(text, "process: guest process sleep: 0 before, 1 after")
        ht.contains(text, "file: boxes/<id>/: 0 before, 1 after")
        # A second one of another run is not ours.
        q = subprocess.Popen(["sleep", "60"], env={"HUTCH_RUN": "/elsewhere"})
        ht.equal(len(c.mine()), 1)
        q.kill()
        q.wait()
    finally:
        p.kill()
        p.wait()
    os.rmdir(home + "/boxes/iabcdefghij0123456789")
    os.rmdir(home + "/boxes")
    ht.equal(census.wait_clean(c, before, 3), [])


def test_census_counts_children_of_ours():
    home, run = tempfile.mkdtemp(), tempfile.mkdtemp()
    c = census.Census(home, run)
    p = subprocess.Popen(["sh", "-c", "env -i setsid sleep 61 & wait"], env={"HUTCH_RUN": run, "PATH": os.environ["PATH"]})
    try:
        ht.until(lambda: any(x.comm == "sleep" for x in c.mine()), 5)
        p.kill()
        p.wait()
        # The orphan has no mark of ours left, but it was seen.
        left = c.sample()
        ht.equal(left["process"]["guest process sleep"], 1)
    finally:
        for x in c.mine():
            os.kill(x.pid, 9)


def test_census_leaves_threads_of_the_kernel_out():
    """KVM has one for each VM, in the VM's control group. Here a child of ours is called one, in its line of /proc."""
    home, run = tempfile.mkdtemp(), tempfile.mkdtemp()
    c, read = census.Census(home, run), census._read
    p = subprocess.Popen(["sleep", "60"], env={"HUTCH_RUN": run})

    def as_kernel(path, *mode):
        text = read(path, *mode)
        if path != f"/proc/{p.pid}/stat":
            return text
        head, tail = text.rsplit(")", 1)
        rest = tail.split()
        rest[6] = str(int(rest[6]) | 0x00200000)  # PF_KTHREAD of field 9, flags
        return f"{head}) {' '.join(rest)}"
    try:
        ht.until(lambda: c.mine(), 5)
        ht.equal(c.sample()["process"]["guest process sleep"], 1)
        census._read = as_kernel
        ht.equal(c.sample().get("process", {}), {})
    finally:
        census._read = read
        p.kill()
        p.wait()


def test_leak_diff_normalises_ids():
    C = collections.Counter
    a = {"cgroup": C({census.norm("/sys/x/hutch-iabcdefghij0123456789"): 2})}
    b = {"cgroup": C({census.norm("/sys/x/hutch-izzzzzzzzzz0123456789"): 2})}
    ht.equal(census.norm("hutch-iabcdefghij0123456789"), "hutch-<id>")
    ht.equal(census.leaks(a, b), [])
    b["cgroup"]["/sys/x/hutch-<id>"] = 9
    a["cgroup"] = C({"/sys/x/hutch-<id>": 2})
    ht.equal(census.leaks(a, b), ["cgroup: /sys/x/hutch-<id>: 2 before, 9 after"])


def test_link_copy():
    src, dst = tempfile.mkdtemp(), tempfile.mkdtemp()
    os.makedirs(src + "/templates/t1/vm")
    os.makedirs(src + "/boxes/x")
    for f in ("templates/t1/rootfs.ext4", "state.db", "state.db-wal", "admin.key", "boxes/x/disk"):
        with open(f"{src}/{f}", "w") as w:
            w.write(f)
    daemon.link_copy(src, dst)
    ht.equal(os.stat(dst + "/templates/t1/rootfs.ext4").st_nlink, 2)
    ht.equal(os.stat(dst + "/state.db").st_nlink, 1)
    ht.true(os.path.exists(dst + "/state.db-wal"))
    ht.true(not os.path.exists(dst + "/boxes") and not os.path.exists(dst + "/admin.key"))


def test_sanitizer_reports_are_found_once():
    was, daemon.SANITIZED = daemon.SANITIZED, True
    try:
        d = daemon.Daemon(seed=None, listen=False)
        ht.contains(d.env["ASAN_OPTIONS"], f"log_path={d.reports}/")
        open(d.log_path, "w").write("INFO ready\n")
        ht.equal(d.sanitizer_reports(), "")
        open(d.reports + "/r.17", "w").write("==17==ERROR: AddressSanitizer: heap-use-after-free")
        os.makedirs(d.home + "/log")
        open(d.home + "/log/egress.log", "w").write("src/gate/dns.c:3:1: runtime error: signed integer overflow")
        got = d.sanitizer_reports()
        ht.contains(got, "heap-use-after-free")
        ht.contains(got, "signed integer overflow")
        ht.equal(d.sanitizer_reports(), "")
        d.destroy()
    finally:
        daemon.SANITIZED = was


def test_until_and_threads():
    try:
        ht.until(lambda: False, 0.2)
        raise AssertionError("no deadline")
    except client.Late:
        pass
    th = ht.Threads()
    th.go(lambda: 1)
    th.go(lambda: 2)
    ht.equal(th.join(2), [1, 2])
    th = ht.Threads()
    th.go(lambda: 1 / 0)
    try:
        th.join(2)
        raise AssertionError("swallowed")
    except ZeroDivisionError:
        pass


def test_oci_archives_are_wellformed():
    tree = oci.tiny_tree()
    for make in (oci.oci_layout, oci.docker_archive):
        blob = make(tree, env=["A=b"], workdir="/w", user="0", cmd=["/bin/sh"])
        names = tarfile.open(fileobj=io.BytesIO(blob)).getnames()
        ht.true(any(n in names for n in ("index.json", "manifest.json")), names)
    # Every program of the tree can find its libraries inside the tree.
    ht.true("bin/sh" in tree, sorted(tree))


def main():
    ok = bad = 0
    for name, fn in sorted(globals().items()):
        if name.startswith("test_") and callable(fn):
            try:
                fn()
                ok += 1
                print(f"ok - harness.{name[5:]}")
            except Exception as e:
                import traceback
                bad += 1
                print(f"not ok - harness.{name[5:]}: {type(e).__name__}: {e}")
                traceback.print_exc()
    print(f"harness: {ok} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hutch-selftest-") as tempfile.tempdir:  # whatever the fakes make goes with it
        status = main()
    sys.exit(status)

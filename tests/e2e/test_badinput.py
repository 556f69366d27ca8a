"""What comes in broken is refused with a type, and the daemon stays healthy."""
import json
import socket
import time

from hutchtest import *


def healthy(t):
    equal(t.c.health()["status"], "ok")


def post(t, body, path="/v1/sandboxes", kind="application/json"):
    r = t.c.call("POST", path, body=body, headers={"Content-Type": kind}, ok=False)
    if r.status < 400:
        t.boxes.append(Box(t.c, r.json()))
        raise AssertionError(f"accepted {body[:100]!r}")
    return error_of(r.status, r.body)


@plain
def broken_json(t):
    for body in (b"", b"{", b"[]", b"null", b"7", b'"x"', b"{'a':1}", b'{"isolation":"container",}', b'{"a":1}{"b":2}', b'{"isolation":"container"} x',
                 b'{"cpu":NaN}', b'{"cpu":Infinity}', b'{"cpu":01}', b'{"cpu":+1}', b'{"cpu":.5}', b'{"name":"\xff"}', b'{"name":"\xed\xa0\x80"}',
                 b'{"name":"\\ud800"}', b'{"name":"a\x01"}', b"\xef\xbb\xbf{}x", b"{\x00}", b'{"name":"\\u0000"}', b"\x80"):
        if body == b"":
            continue
        equal(post(t, body).code, "invalid", body)
    equal(t.c.sandboxes(), [])
    healthy(t)


@plain
def duplicate_and_unknown_members(t):
    equal(post(t, b'{"isolation":"container","isolation":"vm"}').code, "invalid")
    equal(post(t, b'{"metadata":{"a":"1","a":"2"},"isolation":"container"}').code, "invalid")
    e = post(t, b'{"isolation":"container","memory":512}')
    equal(e.code, "invalid")
    contains(e.message, "memory", "the message names the member")
    healthy(t)


@plain
def numbers(t):
    for n in ("1e999", "-1", "0", "1e308", "9" * 400, "18446744073709551616", "-9223372036854775809", "9223372036854775807", "1.5"):
        for member in ("memory_mib", "timeout_s", "disk_mib"):
            e = post(t, ('{"isolation":"container","%s":%s}' % (member, n)).encode())
            equal(e.code, "invalid", f"{member}={n}")
    for n in ("1e999", "-1", "0", "65", "9" * 400):
        equal(post(t, ('{"isolation":"container","cpu":%s}' % n).encode()).code, "invalid", f"cpu={n}")
    healthy(t)


@plain
def depth_and_width(t):
    equal(post(t, b'{"metadata":' * 5000 + b"1" + b"}" * 5000).code, "invalid")
    equal(post(t, b"[" * 100000).code, "invalid")
    wide = b'{"metadata":{' + b",".join(b'"k%d":"v"' % i for i in range(20000)) + b"}}"
    true(post(t, wide).code in ("invalid", "too_large"))
    healthy(t)


@plain
def oversize_body(t):
    big = b'{"name":"' + b"a" * (64 << 20) + b'"}'
    equal(post(t, big).code, "too_large")
    r = t.c.raw(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{")
    equal(r.status, 413, "refused by its announced length, before it is sent")
    healthy(t)


@plain
def oversize_head(t):
    for head in (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"a" * 200_000 + b"\r\n\r\n",
                 b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(5000)) + b"\r\n"):
        r = t.c.raw(head)
        true(r is None or r.status in (400, 413, 414, 431), r)
    healthy(t)


@plain
def smuggling_shapes(t):
    """One strict parser: whatever could be read in two ways is refused and the connection closed."""
    base = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    shapes = {
        "length and chunked": base + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": base + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "list of lengths": base + b"Content-Length: 2, 2\r\n\r\n{}",
        "signed length": base + b"Content-Length: +2\r\n\r\n{}",
        "hex length": base + b"Content-Length: 0x2\r\n\r\n{}",
        "huge length": base + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
        "other coding": base + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "odd coding": base + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "two codings": base + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "space before colon": base + b"Content-Length : 2\r\n\r\n{}",
        "folded": base + b"X-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\n{}",
        "bare LF": b"POST /v1/sandboxes HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}",
        "bare CR": base + b"X-A: a\rb\r\nContent-Length: 2\r\n\r\n{}",
        "NUL": base + b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
        "chunk junk": base + b"Transfer-Encoding: chunked\r\n\r\n2x\r\n{}\r\n0\r\n\r\n",
        "chunk overflow": base + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}",
        "chunk without CRLF": base + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
        "chunked in 1.0": base.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "version": b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
        "no version": b"GET /healthz\r\n\r\n",
        "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40 + b"\r\n\r\n",
        "space in target": b"GET /health z HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "control in target": b"GET /health\x01z HTTP/1.1\r\nHost: localhost\r\n\r\n",
    }
    for name, data in shapes.items():
        r = t.c.raw(data)
        true(r is None or 400 <= r.status < 600 and r.status != 500, f"{name}: {r}")
        if r is not None and r.body and name not in ("garbage",):
            error_of(r.status, r.body) if r.status in (400, 413) else None
    equal(t.c.sandboxes(), [])
    healthy(t)


@plain
def paths_are_not_files(t):
    for p in ("/v1/sandboxes/..%2f..%2fetc%2fpasswd", "/v1/sandboxes/%2e%2e/%2e%2e/keys", "/v1/../healthz", "//healthz", "/v1/templates/..%2f..%2fstate.db",
              "/v1/templates/%00", "/v1/sandboxes/a%ff", "/v1/sandboxes/%zz", "/v1/sandboxes/%", "/%2e%2e/%2e%2e/etc/passwd"):
        r = t.c.call("GET", p, ok=False)
        true(r.status in (400, 404), f"{p}: {r.status}")
        lacks(r.body, b"root:")
        error_of(r.status, r.body)
    healthy(t)


@plain
def odd_queries(t):
    box = t.create(isolation="container")
    for q in ("path=%ff", "path=/tmp&path=/etc/passwd", "path=/tmp&unknown=1", "path=%00", "path", "&&&", "path=/tmp%0a", "pa%74h=/etc/hostname&offset=1&offset=2"):
        r = t.c.call("GET", f"{box.p}/files?{q}", ok=False)
        true(r.status in (200, 400, 404), f"{q}: {r.status}")
        if r.status >= 400:
            error_of(r.status, r.body)
    healthy(t)


@plain
def slow_heads_are_cut(t):
    """Slowloris: an unfinished head does not keep a place for ever, and others are served meanwhile."""
    slow = []
    for _ in range(50):
        s = t.c.dial(5)
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        slow.append(s)
    for _ in range(20):
        healthy(t)
    end = Deadline(45)
    closed = 0
    for s in slow[:5]:
        s.settimeout(max(end.left, 0.1))
        try:
            while s.recv(4096):
                pass
            closed += 1
        except (TimeoutError, socket.timeout):
            pass
        except OSError:
            closed += 1
    for s in slow:
        s.close()
    equal(closed, 5, "unfinished heads are cut within 45 s")


@plain
def many_idle_connections(t):
    conns = []
    try:
        for _ in range(500):
            conns.append(t.c.dial(5))
        for _ in range(10):
            healthy(t)
    finally:
        for s in conns:
            s.close()
    healthy(t)


@plain
def pipelined_and_reused_connections(t):
    s = t.c.dial(10)
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    s.sendall(one * 5)
    got = b""
    end = Deadline(10)
    while got.count(b"HTTP/1.1 200") < 5:
        s.settimeout(end.check("five answers"))
        b = s.recv(65536)
        true(b, "closed early")
        got += b
    s.sendall(b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" + one)
    while got.count(b"HTTP/1.1 200") < 6:
        s.settimeout(end.check("an answer after an error"))
        b = s.recv(65536)
        true(b, "closed after a harmless error")
        got += b
    s.close()


@plain
def body_that_never_comes(t):
    s = t.c.dial(5)
    s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    healthy(t)
    s.close()
    s = t.c.dial(5)
    s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    s.shutdown(socket.SHUT_WR)
    s.settimeout(10)
    got = s.recv(4096)
    true(got == b"" or got.startswith(b"HTTP/1.1 4"), got[:100])
    s.close()
    equal(t.c.sandboxes(), [])


@plain
def compressed_bodies_do_not_explode(t):
    import gzip
    bomb = gzip.compress(b'{"name":"' + b"a" * (50 << 20) + b'"}')
    r = t.c.call("POST", "/v1/sandboxes", body=bomb, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}, ok=False)
    true(r.status in (400, 413), r.status)
    error_of(r.status, r.body)
    healthy(t)


@plain
def random_bytes(t):
    """A cheap fuzz of the front door; the real one is `make fuzz`."""
    import random
    rng = random.Random(4882)
    seeds = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
             b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"]
    end = Deadline(8)
    n = 0
    while not end.over and n < 400:
        b = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 6)):
            i = rng.randrange(len(b))
            if rng.random() < 0.5:
                b[i] = rng.randrange(256)
            else:
                del b[i:i + rng.randint(1, 5)]
            if not b:
                b = bytearray(b"x")
        try:
            r = t.c.raw(bytes(b), deadline=1.0, half_close=True)
            true(r is None or r.status != 500, f"{bytes(b)!r} answered 500")
        except Late:
            pass
        except Exception as e:
            if "HTTP" not in type(e).__name__ and not isinstance(e, (OSError, ValueError)):
                raise
        n += 1
    healthy(t)
    t.note(f"{n} requests")
    for s in t.c.sandboxes():
        t.boxes.append(Box(t.c, s))


@tiers("vm", "container")
def exec_with_odd_bytes(t):
    box = t.box()
    for body in (b'{"cmd":["a\\u0000b"]}', b'{"cmd":["true"],"env":{"A":"\\u0000"}}', b'{"cmd":"\xff"}',
                 b'{"cmd":["true"],"tag":"a\\nb"}', b'{"cmd":["true"],"tag":""}'):
        r = t.c.call("POST", box.p + "/exec", body=body, headers={"Content-Type": "application/json"}, ok=False)
        equal(r.status, 400, body)
        error_of(r.status, r.body)
    many = json.dumps({"cmd": ["true"] + ["x"] * 200_000}).encode()
    r = t.c.call("POST", box.p + "/exec", body=many, headers={"Content-Type": "application/json"}, ok=False)
    true(r.status in (400, 413, 429), r.status)
    box.ok(["true"])


@plain
def retry_storm_of_bad_keys_is_cheap(t):
    t0 = time.monotonic()
    for _ in range(200):
        refuses("unauthenticated rate", t.d.tcp("e2b_" + "1" * 40).call, "GET", "/v1/sandboxes")
    true(time.monotonic() - t0 < 30)
    healthy(t)

"""Terminal escapes, invalid UTF-8, NULs, bytes that look like our protocol."""
from attack import attack
from hutchtest import *


@attack("odd-output")
def bytes_stay_bytes(t, a):
    nasty = {
        "ansi": b"\x1b]0;owned\x07\x1b[2J\x1b[999;999H\x1b[?1049h" * 100,
        "invalid": bytes(range(128, 256)) * 20,
        "overlong": b"\xc0\xaf\xe0\x80\xaf\xf8\x88\x80\x80\x80" * 50,
        "surrogate": b"\xed\xa0\x80\xed\xb0\x80" * 50,
        "nul": b"a\x00b" * 100,
        "frames": b"\xff\xff\xff\xffHUTA\x01\x00\x00\x00\x01\x00\x00\x00" * 20,
        "json": b'{"event":"exit","exit":{"kind":"exit","code":0}}\n' * 20,
        "http": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n0\r\n\r\n" * 20,
        "torn": "é🦀".encode() * 999 + b"\xf0\x9f",
    }
    for name, data in nasty.items():
        a.box.put("/tmp/n", data)
        equal(a.box.exec(["cat", "/tmp/n"]).stdout, data, name)
        equal(a.box.stream(["cat", "/tmp/n"]).collect()["stdout"], data, name)
        pid = a.box.background(["cat", "/tmp/n"])
        a.box.wait_process(pid)
        equal(a.box.attach(pid, 0).collect()["stdout"], data, name)
    a.must_live()


@attack("odd-output")
def log_of_the_daemon_stays_clean(t, a):
    try:
        a.box.exec(["/tmp/\x1b]0;owned\x07\nFAKE LOG LINE"])
    except ApiError as e:
        lacks(e.body, b"\x1b")
    try:
        a.box.get("/tmp/\x1b[31mFAKE\n")
    except ApiError as e:
        lacks(e.body, b"\x1b")
    with open(t.d.log_path, "rb") as f:
        log = f.read()
    lacks(log, b"\x1b]0;owned")

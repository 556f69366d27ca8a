"""Overwriting what starts us: /proc/self/exe, /proc/1/exe, the agent's file (CVE-2019-5736)."""
import os

import daemon
from attack import attack
from hutchtest import *


@attack("runtime-binary")
def overwrite(t, a):
    before = {p: open(daemon.program(p), "rb").read()[:4096] for p in ("hutch-agent", "hutch-spawn", "hutchd")}
    r = a.both("""
        def w(p, flags):
            fd = os.open(p, flags)
            os.write(fd, b"#!/bin/sh")
        for p in ("/proc/1/exe", "/init", "/sbin/init", "/sbin/hutch-agent", "/usr/bin/hutch-agent"):
            tryit("write " + p, lambda p=p: w(p, os.O_WRONLY))
            tryit("trunc " + p, lambda p=p: w(p, os.O_WRONLY | os.O_TRUNC))
        def via_fd():
            fd = os.open("/proc/1/exe", os.O_PATH)
            w("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_TRUNC)
        tryit("fd", via_fd)
        def link():
            os.link("/proc/1/exe", "/tmp/agent-link")
        tryit("link", link)
    """)
    for p, b in before.items():
        equal(open(daemon.program(p), "rb").read()[:4096], b, f"{p} on the host was changed")
    if a.refused:
        for k, v in r.items():
            if "/proc/1/exe" in k or k.startswith("fd"):
                true(not v.startswith("ok"), f"{k}: {v}")
    t.box().ok(["true"])
    a.alive()

"""Environment, arguments, names and paths of the host are not visible inside."""
import os

from attack import attack
from hutchtest import *


@attack("host-environ")
def nothing_of_the_host(t, a):
    text = a.box.ok("env; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '; cat /proc/self/cgroup; cat /proc/cmdline; hostname; cat /proc/self/mountinfo", user="root")
    for word in [t.d.home, t.d.run, "HUTCH_HOME", "HUTCH_RUN", "HUTCH_LISTEN", "hutchd", "hutch-spawn", "qemu", os.uname().nodename + "\n"]:
        if len(word) > 3:
            lacks(text, word, "a trace of the host")
    for k in os.environ:
        v = os.environ[k]
        if len(v) > 12 and k not in ("PATH", "LANG", "HOME", "TERM", "PWD"):
            lacks(text, v, f"the value of ${k} of the host")


@attack("host-environ")
def only_its_own_processes(t, a):
    out = a.box.ok(["ps", "-eo", "pid=,args="], user="root")
    lacks(out, "hutchd")
    lacks(out, "runner.py")
    pids = [int(l.split()[0]) for l in out.splitlines()]
    equal(min(pids), 1)

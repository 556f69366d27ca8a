"""Thousands of orphans handed to PID 1: it reaps them all."""

from attack import attack
from hutchtest import *


@attack("zombie-flood", limit=150)
def orphans(t, a):
    many = 1000 if t.tier == "vm" and not SLOW else 10000  # a fork is dear on an emulated processor
    r = a.box.exec(["sh", "-c", f"i=0; while [ $i -lt {many} ]; do (: &) || sleep 0.01; i=$((i+1)); done; echo $i"], user="root",
                   timeout_ms=120000, deadline=130)
    equal(r.text.strip(), str(many), r)
    until(lambda: a.box.ok(["sh", "-c", "ps -eo stat= | grep -c Z || true"]).strip() == "0", 30, "no zombie is left")
    a.must_live()

"""Swapping a folder for a link while file calls run: they never leave what was asked."""
import os

from attack import attack
from hutchtest import *


@attack("symlink-race", limit=100)
def swap(t, a):
    """A recursive removal that follows a link put there between check and use would empty /etc."""
    pid = a.box.background(["python3", "-c", "import os,time\nos.makedirs('/home/user/r/real',exist_ok=True)\nos.chdir('/home/user/r')\nend=time.time()+12\nprint('up',flush=True)\nwhile time.time()<end:\n  try:\n    os.symlink('/etc','tmp'); os.rename('tmp','dir')\n  except OSError: pass\n  try: os.unlink('dir')\n  except OSError: pass\n  try: os.mkdir('dir')\n  except OSError: pass\n  try: os.rmdir('dir')\n  except OSError: pass"])
    a.box.attach(pid, 0, deadline=20).wait_output(b"up")
    end = Deadline(8)
    n = 0
    while not end.over:
        for call in (lambda: a.box.rm("/home/user/r/dir", recursive=1), lambda: a.box.ls("/home/user/r", depth=9), lambda: a.box.mkdir("/home/user/r/dir/sub")):
            try:
                call()
            except ApiError:
                pass
            n += 1
    a.box.signal(pid, 9)
    contains(a.box.get("/etc/passwd"), b"root:", "a recursive removal went through the link")
    t.note(f"{n} calls")
    a.must_live()

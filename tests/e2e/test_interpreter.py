"""Code contexts on template base: Python without IPython, JavaScript, Bash. What needs numpy, R or a JVM is in
test_notebook.py. What happens inside a kernel is the same in both tiers: those tests run in one."""
import json
import time

from hutchtest import *


def main_text(r):
    """The text of the cell's value; a failure shows the whole answer."""
    true(r["status"] == "ok", r)
    values = [x["data"]["text/plain"] for x in r["results"] if x["main"]]
    equal(len(values), 1, r)
    return values[0]


@tiers("vm", "container")
def a_cell_has_a_value_output_and_a_number(t):
    box = t.box()
    r = box.eval("import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    equal((r["status"], r["stdout"], r["stderr"], r["execution_count"], r["language"]), ("ok", "out\n", "err\n", 1, "python"))
    equal(r["results"], [{"main": True, "data": {"text/plain": "21"}}])
    equal((r["error"], r["state_lost"], r["truncated"]), (None, False, False))
    r = box.eval("x * 2")
    equal((main_text(r), r["execution_count"]), ("40", 2))
    equal(box.eval("x = 5;")["results"], [])
    equal(box.eval("{'a': [1, None, float('nan')], 'ü': 'é'}")["results"][0]["data"]["application/json"], {"a": [1, None, None], "ü": "é"})
    equal(box.ok(["pwd"]), "/home/user\n")
    equal(main_text(box.eval("import os; os.getcwd(), os.getuid()")), "('/home/user', 1000)")


@tiers("container")
def errors_have_name_value_and_the_lines_of_the_cell(t):
    box = t.box()
    r = box.eval("def f(n):\n    return 1 / n\n\nf(0)")
    equal((r["status"], r["error"]["name"], r["error"]["value"]), ("error", "ZeroDivisionError", "division by zero"))
    true("return 1 / n" in r["error"]["traceback"] and "hutch_kernel" not in r["error"]["traceback"], r["error"]["traceback"])
    equal(box.eval("if x\n  1")["error"]["name"], "SyntaxError")
    equal(box.eval("import sys; sys.exit(3)")["error"]["name"], "SystemExit")
    equal(box.eval("input()")["error"]["name"], "EOFError")
    equal(main_text(box.eval("f(4)")), "0.25")


@tiers("container")
def python_as_in_a_notebook(t):
    box = t.box()
    equal(box.eval("!echo one; pwd")["stdout"], "one\n/home/user\n")
    equal(main_text(box.eval("lines = !printf 'a\\nb\\n'\nlines")), "['a', 'b']")
    equal(box.eval("%%bash\necho from $0")["stdout"], "from bash\n")
    equal(main_text(box.eval("%cd /tmp\nimport os; os.getcwd()")), "'/tmp'")
    equal(main_text(box.eval("import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 7\nawait f()")), "7")
    equal(main_text(box.eval("asyncio.run(f())")), "7")
    equal(main_text(box.eval("    a = 1\n    a + 1")), "2")
    r = box.eval("display({'text/html': '<b>x</b>'}, raw=True)\nclass Y:\n    def _repr_html_(self): return '<i>y</i>'\nY()")
    equal([(x["main"], x["data"].get("text/html")) for x in r["results"]], [(False, "<b>x</b>"), (True, "<i>y</i>")])
    # everything that prints is caught: C, child processes, forks
    r = box.eval("import os, subprocess\nos.write(1, b'raw\\n')\nsubprocess.run(['echo', 'child'])\n"
                 "pid = os.fork()\nif not pid:\n    print('fork', flush=True); os._exit(0)\n_ = os.waitpid(pid, 0)\nprint('last')")
    equal(r["stdout"].split(), ["raw", "child", "fork", "last"])
    r = box.eval("for i in range(40):\n    print('a%d' % i)\n    subprocess.run(['echo', 'b%d' % i])\n    print('c%d' % i)", deadline=60)
    equal(r["stdout"].split(), [f"{c}{i}" for i in range(40) for c in "abc"], "in the order in which it was printed")
    equal(main_text(box.eval("asyncio.get_running_loop().is_running(), asyncio.get_event_loop() is asyncio.get_running_loop()")), "(True, True)")
    equal(main_text(box.eval("await asyncio.sleep(0); asyncio.get_running_loop().is_running()")), "True")


@tiers("vm", "container")
def javascript_as_in_a_notebook(t):
    box = t.box()
    js = lambda code, **m: box.eval(code, language="javascript", deadline=60, **m)
    equal(js("console.log('hello')")["stdout"], "hello\n")
    equal(main_text(js("const add = (a, b) => a + b\nadd(1, 2)")), "3")
    equal(main_text(js("const add = (a, b) => a * b\nadd(3, 4)")), "12", "a name can be declared again")
    equal(main_text(js("import { basename } from 'path'\nconst { v } = await Promise.resolve({ v: basename('/a/b') })\nv")), "'b'")
    equal(main_text(js("v + typeof basename")), "'bfunction'")
    equal(js("({a: [1, {b: 'ü'}]})")["results"][0]["data"]["application/json"], {"a": [1, {"b": "ü"}]})
    r = js("throw new TypeError('bad')")
    equal((r["error"]["name"], r["error"]["value"]), ("TypeError", "bad"))
    equal(js("let = ;")["error"]["name"], "SyntaxError")
    equal(js("require('child_process').execSync('head -c 200000 /dev/zero | tr \"\\\\0\" x', {stdio: 'inherit'})")["stdout"], "x" * 200000)
    equal(main_text(js("process.env.FOO", env={"FOO": "1"})), "'1'")
    equal(js("process.env.FOO")["results"], [])
    r = box.eval("let x: number = 1", language="ts", deadline=60)
    equal(r["status"], "error", "base has no TypeScript compiler, and says so")
    true("code-interpreter" in r["error"]["value"], r)


@tiers("container")
def javascript_that_ends_or_fails(t):
    box = t.box()
    js = lambda code: box.eval(code, language="javascript", deadline=30)
    equal(js("x = 1; process.on('exit', () => console.log('bye'))")["status"], "ok")
    r = js("process.exit(3)")
    equal((r["stdout"], r["error"]["name"], r["error"]["value"]), ("bye\n", "KernelEnded", "exited with status 3"))
    equal(main_text(js("typeof x")), "'undefined'")
    r = js("Promise.reject(new RangeError('left')); 1")
    equal(main_text(r), "1")
    true(r["stderr"].startswith("Uncaught (in promise) RangeError: left") and "kernel.mjs" not in r["stderr"], r["stderr"])
    equal(js("const f = () => [1].map(() => { throw new Error('outer', { cause: new Error('inner') }) })\nf()")["error"]["traceback"].split("\n    at ")[0], "Error: outer")
    trace = js("f()")["error"]["traceback"]
    true("[cause]: Error: inner" in trace and "node:" not in trace, trace)


@tiers("container")
def a_command_that_prints_for_ever_holds_no_cell(t):
    box = t.box()
    for language, start, stop in (("python", "import subprocess; p = subprocess.Popen(['yes'])", "p.kill()"), ("bash", "yes &", "kill $!")):
        for code in (start, "1 + 1" if language == "python" else "true", stop):
            equal(box.eval(code, language=language, deadline=12)["status"], "ok", code)


@tiers("container")
def bash_keeps_its_state(t):
    box = t.box()
    sh = lambda code, **m: box.eval(code, language="bash", **m)
    equal(sh("x=5; f() { echo \"f $x $1\"; }; cd /tmp")["stdout"], "")
    equal(sh("f a; pwd")["stdout"], "f 5 a\n/tmp\n")
    equal(sh("echo $FOO", env={"FOO": "it's"})["stdout"], "it's\n")
    equal(sh("echo ${FOO:-none}")["stdout"], "none\n")
    r = sh("ls /no/such/thing")
    equal((r["status"], r["error"]["name"], r["error"]["value"]), ("error", "ExitStatus", "2"))
    true("No such file" in r["stderr"], r)
    equal(sh("cat; echo read nothing")["stdout"], "read nothing\n")
    r = sh("set -o pipefail; yes | head -n 1; echo $?; set +o pipefail")
    equal((r["stdout"], r["stderr"]), ("y\n141\n", ""), "a pipe that nobody reads ends its writer")
    r = sh("echo before; exit 3")
    equal((r["stdout"], r["error"]["value"]), ("before\n", "3"))
    equal(sh("echo ${x:-gone}")["stdout"], "gone\n", "a shell that exited is a new one in the next cell")


@tiers("vm", "container")
def contexts_are_apart(t):
    box = t.box(env={"BOX": "1"})
    before = box.contexts()
    equal([(c["language"], c["default"], c["cwd"]) for c in before], [("python", True, "/home/user"), ("javascript", True, "/home/user")])
    box.eval("x = 1")
    a = box.context(language="python", cwd="/tmp", env={"A": "7"})
    equal((a["language"], a["cwd"], a["default"], a["state"]), ("python", "/tmp", False, "idle"))
    equal(box.contexts()[-1]["id"], a["id"])
    equal(main_text(box.eval("import os; os.getcwd(), os.environ['A'], os.environ['BOX']", context=a["id"])), "('/tmp', '7', '1')")
    equal(box.eval("x", context=a["id"])["error"]["name"], "NameError")
    equal(main_text(box.eval("x")), "1")
    box.eval("y = 2", context=a["id"])
    b = box.context(a["id"] + "/restart")
    equal((b["id"], b["cwd"]), (a["id"], "/tmp"))
    r = box.eval("y", context=a["id"])
    equal((r["error"]["name"], r["execution_count"]), ("NameError", 1))
    equal(main_text(box.eval("import os; os.getcwd()", context=a["id"])), "'/tmp'")
    unused = box.context(language="bash")["id"]
    pid = next(p["pid"] for p in box.processes() if p["running"] and (p["tag"] or "").endswith(unused))
    box.ok(["kill", "-9", str(pid)])
    until(lambda: not any(p["running"] and (p["tag"] or "").endswith(unused) for p in box.processes()), 20, "its kernel is gone")
    true(unused in [c["id"] for c in box.contexts()], "a context outlives a kernel that ran nothing")
    equal(box.eval("echo $PWD", context=unused)["stdout"], "/home/user\n")
    box.context(unused, method="DELETE")
    equal(box.context(a["id"], method="DELETE"), None)
    true(a["id"] not in [c["id"] for c in box.contexts()])
    refuses("not_found", box.eval, "1", context=a["id"])
    refuses("not_found", box.context, a["id"], method="DELETE")
    refuses("not_found invalid", box.context, language="python", cwd="/no/such/dir")
    refuses("unsupported", box.eval, "1", language="r")
    refuses("invalid", box.eval, "1", language="cobol")
    refuses("invalid", box.eval, "1", language="python", context=before[0]["id"])
    equal(main_text(box.eval("x", context=before[0]["id"])), "1", "a default context has an id too")


@tiers("container")
def the_environment_of_one_cell(t):
    box = t.box(env={"A": "sandbox"})
    get = "import os; os.environ.get('A'), os.environ.get('B')"
    equal(main_text(box.eval(get)), "('sandbox', None)")
    equal(main_text(box.eval(get, env={"A": "cell", "B": "cell"})), "('cell', 'cell')")
    equal(main_text(box.eval(get)), "('sandbox', None)")


@tiers("container")
def a_new_kernel_runs_nothing_of_its_directory(t):
    """Who may make a context (with a preview's token, on E2B's port) may not run what lies there under the name of a library."""
    box = t.box()
    for name in ("IPython", "asyncio", "json", "ast", "sitecustomize", "usercustomize"):
        box.put(f"/home/user/up/{name}.py", b"open('/tmp/ran', 'a').write(__name__)\nraise ImportError\n")
    c = box.context(language="python", cwd="/home/user/up")
    box.context(c["id"] + "/restart")
    equal(box.exec(["cat", "/tmp/ran"]).text, "")
    box.put("/home/user/up/mine.py", b"x = 42\n")
    equal(main_text(box.eval("import mine; mine.x", context=c["id"])), "42", "a cell finds what lies beside it")


@tiers("container")
def a_stream_comes_as_it_is_printed(t):
    box = t.box()
    box.eval("1")
    with box.eval_stream("import time\nfor i in range(3):\n    print(i)\n    time.sleep(0.4)\n'end'") as s:
        got, at = [], []
        for ev in s.events():
            if ev["event"] == "keepalive":
                continue
            got.append(ev)
            at.append(time.monotonic())
    equal([e["event"] for e in got], ["started", "count", "stdout", "stdout", "stdout", "result", "end"])
    equal([e["text"] for e in got[2:5]], ["0\n", "1\n", "2\n"])
    true(at[4] - at[2] > 0.3, "lines were held back")
    equal((got[5]["data"]["text/plain"], got[6]["status"]), ("'end'", "ok"))


LOOPS = {"python": "while True: pass", "javascript": "while (true) {}", "bash": "while :; do :; done"}
SLEEPS = {"python": "import time; time.sleep(1000)", "javascript": "await new Promise(r => setTimeout(r, 1e6))", "bash": "sleep 1000; echo not reached"}


def interrupted(t, box, language, code, after=0.3):
    with box.eval_stream(code, language=language) as s:
        first = next(iter(s.events()))
        time.sleep(after)
        box.context(first["context"] + "/interrupt")
        rest = [e for e in s.events() if e["event"] not in ("keepalive", "count", "stdout", "stderr")]
    equal([e["event"] for e in rest], ["error", "end"], rest)
    equal((rest[0]["name"], rest[1]["status"], rest[1]["state_lost"]), ("KeyboardInterrupt", "interrupted", False))


@tiers("vm", "container")
@timeout(180)
def an_interrupt_keeps_the_state(t):
    box = t.box()
    for language in LOOPS:
        box.eval("x=41", language=language, deadline=60)
        interrupted(t, box, language, SLEEPS[language])
        interrupted(t, box, language, LOOPS[language])
    for code in ("await null; while (true) {}", "while (true) await null", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
                 "require('child_process').execSync('sleep 1000')"):
        interrupted(t, box, "javascript", code)
    interrupted(t, box, "python", "import subprocess; subprocess.run(['sleep', '1000'])")
    interrupted(t, box, "python", "!sleep 1000")
    equal(main_text(box.eval("x + 1")), "42")
    equal(main_text(box.eval("x + 1", language="js")), "42")
    equal(box.eval("echo $((x + 1))", language="bash")["stdout"], "42\n")


@tiers("vm", "container")
@timeout(180)
def an_interrupt_may_come_at_any_moment(t):
    """Before the code has begun, while it is read, on its way into a system call."""
    box = t.box()
    for language in LOOPS:
        box.eval("", language=language, deadline=60)
        for after in (0, 0, 0.001, 0.002, 0.005, 0.01):
            interrupted(t, box, language, SLEEPS[language], after)
            interrupted(t, box, language, LOOPS[language], after)
    # a command that begins after the signal came, in code that gives the loop no turn before
    code = "console.log('now'); const end = Date.now() + 60; while (Date.now() < end); require('child_process').execSync('sleep 1000')"
    with box.eval_stream(code, language="javascript") as s:
        first = next(e for e in s.events() if e["event"] == "started")
        next(e for e in s.events() if e["event"] == "stdout")
        box.context(first["context"] + "/interrupt")
        equal([e for e in s.events()][-1]["status"], "interrupted")
    # Python notes this one and would never look: it met a thread, and the main one waits in the kernel
    code = "import signal, threading, time\nthreading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()\ntime.sleep(1000)"
    equal(box.eval(code, deadline=60)["error"]["name"], "KeyboardInterrupt")
    # once is once: what a cell does about it is left alone
    r = box.eval("try:\n    " + code.replace("\n", "\n    ") + "\nexcept KeyboardInterrupt:\n    time.sleep(1.5); print('tidy')", deadline=60)
    equal((r["status"], r["stdout"]), ("ok", "tidy\n"))


@tiers("vm", "container")
def a_deadline_interrupts_and_then_kills(t):
    box = t.box()
    box.eval("x = 1")
    r = box.eval("import time\nprint('begun')\ntime.sleep(1000)", timeout_ms=300)
    equal((r["status"], r["stdout"], r["error"]["name"], r["state_lost"]), ("timeout", "begun\n", "KeyboardInterrupt", False))
    equal(r["problem"]["code"], "timeout")
    equal(main_text(box.eval("x")), "1")
    r = box.eval("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout_ms=300, deadline=60)
    equal((r["status"], r["state_lost"], r["problem"]["code"]), ("timeout", True, "timeout"))
    r = box.eval("x", deadline=60)
    equal((r["error"]["name"], r["execution_count"]), ("NameError", 1))


@tiers("vm", "container")
def a_client_that_leaves_interrupts_its_cell(t):
    box = t.box()
    box.eval("x = 1")
    s = box.eval_stream("import time\ntry:\n    print('begun'); time.sleep(1000)\nexcept KeyboardInterrupt:\n    stopped = True")
    next(e for e in s.events() if e["event"] == "stdout")
    s.abort()
    equal(main_text(box.eval("x, stopped", deadline=20)), "(1, True)")
    # before it has properly begun, likewise
    s = box.eval_stream("import time; time.sleep(1000)")
    next(iter(s.events()))
    s.abort()
    equal(main_text(box.eval("x", deadline=20)), "1")


@tiers("container")
def an_interrupt_hits_the_cell_it_was_meant_for(t):
    """However early it comes, and never the next one."""
    box = t.box()
    cx = box.eval("n = 0")["context"]
    for _ in range(30):
        s = box.eval_stream("n += 1\nfor i in range(10 ** 9): pass")
        next(iter(s.events()))
        s.abort()
        equal(main_text(box.eval("'after'", deadline=10)), "'after'")
    for _ in range(30):  # just about when it ends by itself
        s = box.eval_stream("'short'")
        next(iter(s.events()))
        box.context(cx + "/interrupt")
        s.abort()
        equal(main_text(box.eval("'after'", deadline=10)), "'after'")


@tiers("container")
@timeout(60)
def background_work_goes_on_between_cells(t):
    box = t.box()
    box.eval("import asyncio, threading, time\nseen = []\nasync def tick():\n    for i in range(3):\n        await asyncio.sleep(0.05); seen.append(i)\ntask = asyncio.create_task(tick())")
    until(lambda: main_text(box.eval("seen")) == "[0, 1, 2]", 10, "the task runs between cells")
    # a thread that wakes the loop while nothing else would
    box.eval("async def waits():\n    seen.append(await asyncio.get_running_loop().run_in_executor(None, lambda: time.sleep(0.2) or 'thread'))\ntask = asyncio.create_task(waits())")
    until(lambda: "thread" in main_text(box.eval("seen")), 10, "a thread wakes the loop")
    equal(main_text(box.eval("asyncio.get_running_loop() is asyncio.get_event_loop()")), "True")
    equal(main_text(box.eval("async with asyncio.timeout(5): v = await asyncio.sleep(0, 9)\nv")), "9")


@tiers("container")
def a_container_comes_back_without_its_kernels(t):
    """Its memory cannot be kept: contexts begin anew, and the answer says so by its number."""
    box = t.box()
    box.eval("x = 1")
    own = box.context(language="bash")["id"]
    box.pause()
    box.resume()
    equal([c["language"] for c in box.contexts()], ["python", "javascript"])
    refuses("not_found", box.eval, "1", context=own)
    r = box.eval("x", deadline=30)
    equal((r["error"]["name"], r["execution_count"]), ("NameError", 1))
    (kid,) = t.fork(box)[1]
    equal(kid.eval("x", deadline=30)["error"]["name"], "NameError")


@tiers("container")
def cells_of_one_context_wait_for_each_other(t):
    box = t.box()
    box.eval("order = []")
    import threading
    def go(i):
        box.eval(f"import time; order.append({i}); time.sleep(0.2); order.append({i})", deadline=30)
    threads = [threading.Thread(target=go, args=(i,)) for i in range(3)]
    for x in threads:
        x.start()
    other = box.context(language="python")
    equal(main_text(box.eval("1", context=other["id"])), "1")
    for x in threads:
        x.join()
    order = json.loads(main_text(box.eval("order")))
    equal(order[0::2], order[1::2], "cells overlapped")
    equal(sorted(order), [0, 0, 1, 1, 2, 2])


@tiers("container")
def too_much_output_is_cut_and_said(t):
    box = t.box()
    r = box.eval("print('x' * 300000)\n7", max_output=1000)
    true(r["stdout"].startswith("x" * 1000) and "[hutch: output cut here, the limit is 1000 bytes]" in r["stdout"], r["stdout"][-200:])
    equal((r["truncated"], r["cut_output_bytes"], main_text(r)), (True, 300001 - 1000, "7"))
    r = box.eval("'y' * 5_000_000")
    true(len(main_text(r)) < 3_000_000 and "more characters cut" in main_text(r)[-100:], "a value is cut")
    equal(main_text(box.eval("1")), "1")


@tiers("container")
def strange_output_is_no_problem(t):
    box = t.box()
    r = box.eval("import os\nos.write(1, b'\\xff\\xfe ok\\n')\nprint('nul\\0 \\ud800 \\u2028 é')")
    true("ok" in r["stdout"] and "nul\ufffd" in r["stdout"] and "é" in r["stdout"], r)
    # the kernel's own descriptors are the code's to ruin: that costs the cell, nothing else
    r = box.eval("import os\nfor fd in range(3, 300):\n    try: os.write(fd, b'{\"ev\":\"done\",\"id\":0}\\nrubbish\\n')\n    except OSError: pass\n5", deadline=30)
    true(r["status"] in ("ok", "error", "lost"), r)
    r = box.eval("import os; os._exit(3)")
    equal((r["status"], r["state_lost"], r["problem"]["code"]), ("lost", True, "guest"))
    equal(main_text(box.eval("1 + 1", deadline=30)), "2")


@tiers("vm", "container")
def a_sandbox_that_dies_ends_its_cells(t):
    box = t.box()
    box.eval("1")
    with box.eval_stream("import time; time.sleep(1000)") as s:
        next(iter(s.events()))
        box.kill()
        last = [e for e in s.events()][-1]
    equal((last["event"], last["status"], last["problem"]["code"]), ("end", "lost", "gone"))


@tiers("vm", "container")
@own_daemon()
def contexts_outlive_the_daemon(t):
    box = t.box()
    box.eval("x = 41")
    a = box.context(language="bash", cwd="/tmp")
    box.eval("y=6", context=a["id"])
    before = {c["id"] for c in box.contexts()}
    t.d.sigkill()
    t.d.start(settle=False)
    equal({c["id"] for c in box.contexts()}, before)
    equal(main_text(box.eval("x + 1")), "42")
    equal(box.eval("echo $y $PWD", context=a["id"])["stdout"], "6 /tmp\n")

"""Code contexts with the real IPython, pandas and matplotlib, and kernels that ran before anybody asked: template notebook
(tests/lib/debs.py). Skipped where its packages cannot be had."""
import base64
import os
import struct
import subprocess

import debs
from daemon import program
from hutchtest import *


def book(t, **members):
    """A sandbox of template notebook."""
    if debs.NOTEBOOK not in [x["name"] for x in t.c.get("/v1/templates")["templates"]]:
        skip("the seed home has no template notebook: its packages could not be had")
    return t.box(template=debs.NOTEBOOK, timeout_s=600, **members)


def waiting(t, **members):
    """… whose kernels were running before it was created. A VM has them in its snapshot, a container if it waited."""
    def try_one():
        box = book(t, **members)
        if t.tier == "vm" or box.info()["start"]["path"] == "slot":
            return box
        box.kill()
        return None
    return until(try_one, 120, "a container that waited with its kernels", step=0.5)


def value(r):
    true(r["status"] == "ok", r)
    return [x["data"]["text/plain"] for x in r["results"] if x["main"]][0]


@tiers("vm", "container")
@timeout(240)
def kernels_run_before_anybody_asks(t):
    box = waiting(t, env={"A": "7"})
    equal(t.c.get(f"/v1/templates/{debs.NOTEBOOK}")["kernels"], ["python", "javascript"])
    tags = {p["tag"] for p in box.processes() if p["running"]}
    equal(tags, {"kernel:python:default", "kernel:javascript:default"})
    equal([(c["language"], c["state"]) for c in box.contexts()], [("python", "idle"), ("javascript", "idle")])
    r = box.eval("import sys, os; [m in sys.modules for m in ('numpy', 'pandas', 'matplotlib.pyplot')]", deadline=60)
    equal((value(r), r["execution_count"]), ("[True, True, True]", 1))
    equal(value(box.eval("os.environ['A'], os.getcwd(), os.getuid()")), "('7', '/home/user', 1000)")
    equal(value(box.eval("get_ipython().hutch.light.plan('1') is not None, get_ipython().events.callbacks['post_execute']")), "(True, [])",
          "a figure was drawn, and cells still take the short way")
    equal(value(box.eval("[k for k in dir() if not k.startswith('_')], Out.get(0)")), "(['In', 'Out', 'exit', 'get_ipython', 'os', 'quit', 'sys'], None)")
    js = box.eval("[process.env.A, typeof _, process.cwd()]", language="js", deadline=60)
    equal((value(js), js["execution_count"]), ("[ '7', 'undefined', '/home/user' ]", 1))
    equal({p["tag"] for p in box.processes() if p["running"]}, tags, "the same processes went on")


DRAW = "import random, numpy, uuid, ssl, secrets; [random.random(), numpy.random.rand(), uuid.uuid4().hex, uuid.uuid1().hex, ssl.RAND_bytes(8).hex(), secrets.token_hex(4)]"
DRAW_JS = "[Math.random(), require('crypto').randomBytes(8).toString('hex'), require('crypto').randomUUID(), require('crypto').generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' }).x].map(String)"


@tiers("vm", "container")
@timeout(240)
def copies_of_a_kernel_draw_different_numbers(t):
    boxes = [waiting(t), waiting(t)]
    for language, code in (("python", DRAW), ("javascript", DRAW_JS)):
        a, b = [box.eval(code, language=language, deadline=60)["results"][0]["data"]["application/json"] for box in boxes]
        equal(len(a), len(b))
        equal([x for x, y in zip(a, b) if x == y], [], "drawn twice")


@tiers("vm")
@timeout(240)
def a_kernel_survives_a_pause(t):
    box = book(t)
    box.eval("import pandas as pd; df = pd.DataFrame({'a': [1, 2]}); x = 41", deadline=60)
    box.eval("const y = 6", language="js", deadline=60)
    box.pause()
    box.resume()
    r = box.eval("x + 1, df.a.sum()", deadline=60)
    equal((value(r), r["execution_count"]), ("(42, 3)", 2))
    equal(value(box.eval("y * 7", language="js", deadline=60)), "42")


@tiers("vm")
@timeout(240)
def kernels_in_a_fork_are_copies(t):
    """State comes along, in every context; what is drawn or changed afterwards is each machine's own."""
    box = book(t)
    own = box.context(language="python", cwd="/tmp", deadline=120)["id"]
    box.eval("import random, numpy; random.seed(7); numpy.random.seed(7); x = [1]", deadline=60)
    box.eval("y = 'own'", context=own, deadline=60)
    box.eval("let z = [1]", language="js", deadline=60)
    _, kids = t.fork(box, count=2)
    everyone = [box, *kids]
    ids = lambda b: [(c["language"], c["cwd"], c["default"], c["state"]) for c in b.contexts()]
    for kid in kids:
        equal(ids(kid), ids(box))
        equal((value(kid.eval("x", deadline=60)), value(kid.eval("y, __import__('os').getcwd()", context=own, deadline=60)), value(kid.eval("z", language="js", deadline=60))),
              ("[1]", "('own', '/tmp')", "[ 1 ]"))
    for language, code in (("python", DRAW), ("javascript", DRAW_JS)):
        drawn = [b.eval(code, language=language, deadline=60)["results"][0]["data"]["application/json"] for b in everyone]
        for same in zip(*drawn):
            equal(len(set(same)), 3, f"{language}: drawn twice")
    for i, b in enumerate(everyone):
        b.eval(f"x.append({i})", deadline=60)
        b.eval(f"z.push({i})", language="js", deadline=60)
    equal([value(b.eval("x", deadline=60)) for b in everyone], [f"[1, {i}]" for i in range(3)])
    equal([value(b.eval("z", language="js", deadline=60)) for b in everyone], [f"[ 1, {i} ]" for i in range(3)])


@tiers("vm")
@timeout(180)
def a_cell_that_runs_during_a_fork(t):
    """The parent's goes on; the child's has no client there and is interrupted by the child's first."""
    box = book(t)
    box.eval("import time; n = 0", deadline=60)
    with box.eval_stream("print('begun')\nwhile n < 10: time.sleep(0.3); n += 1\nn", deadline=120) as s:
        next(e for e in s.events() if e["event"] == "stdout")
        (kid,) = t.fork(box)[1]
        true(int(value(kid.eval("n", deadline=60))) < 10)
        last = [e for e in s.events() if e["event"] in ("result", "end")]
    equal((last[0]["data"]["text/plain"], last[1]["status"]), ("10", "ok"))


@tiers("container")
@timeout(180)
def values_show_themselves(t):
    box = book(t)
    one = lambda code: box.eval(code, deadline=60)["results"][-1]["data"]
    df = one("import pandas as pd\npd.DataFrame({'a': [1, 2], 'when': pd.to_datetime(['2024-01-02', None]), 'f': [0.5, float('nan')]})")
    equal(df["e2b/data"], {"a": [1, 2], "when": ["2024-01-02T00:00:00", None], "f": [0.5, None]})
    true("<table" in df["text/html"] and "when" in df["text/plain"], df)
    true("background-color" in one("pd.DataFrame({'a': [1, 2]}).style.highlight_max()")["text/html"], "a Styler")
    equal(one("pd.Series([1, 2], name='s')")["text/plain"], "0    1\n1    2\nName: s, dtype: int64")
    equal(one("list(range(2000))")["text/plain"].count(","), 1999, "sequences are not cut")
    for code, types in (("HTML('<b>x</b>')", {"text/html"}), ("Markdown('# x')", {"text/markdown"}), ("Latex('$x$')", {"text/latex"}), ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", {"image/svg+xml"}),
                        ("JSON({'a': 1})", {"application/json"}), ("Javascript('1')", {"application/javascript"}),
                        ("Image(data=b'\\xff\\xd8\\xff' + b'x' * 20, format='jpeg')", {"image/jpeg"}), ("Pdf()", {"application/pdf"})):
        got = one("from IPython.display import *\nclass Pdf:\n    def _repr_pdf_(self): return b'%PDF-1.4'\n" + code)
        equal(set(got) - {"text/plain"}, types, code)
    equal(base64.b64decode(got["application/pdf"]), b"%PDF-1.4")
    equal(one("display({'application/x-own': 'mine', 'text/plain': 'p'}, raw=True)"), {"application/x-own": "mine", "text/plain": "p"})
    r = box.eval("from PIL import Image\nim = Image.new('RGB', (7, 5))\nim.show()\nim.save('/tmp/x.png')\nim", deadline=60)
    sizes = [struct.unpack(">II", base64.b64decode(x["data"]["image/png"])[16:24]) for x in r["results"]]
    equal(sizes, [(7, 5)] * 3)


@tiers("container")
@timeout(180)
def python_as_ipython_does_it(t):
    box = book(t)
    equal(box.eval("!echo hi", deadline=60)["stdout"], "hi\n")
    equal(value(box.eval("%timeit -n1 -r1 pass\nx = !echo a\nx.n")), "'a'")
    trace = box.eval("y = 0\n1 / y")["error"]["traceback"]
    true("----> 2 1 / y" in trace and "\x1b" not in trace, trace)
    true("%nosuchmagic" in box.eval("%nosuchmagic")["stderr"], "a magic that is not there is said")
    equal(value(box.eval("import asyncio\nawait asyncio.sleep(0, 7)")), "7")
    equal(value(box.eval("    z = 3\n    z + 1")), "4")
    equal(box.eval("%%bash\necho $0")["stdout"], "bash\n")
    equal(box.eval("%matplotlib inline\nimport matplotlib.pyplot as plt\nfig = plt.figure()")["results"], [], "an empty figure is no result")


# A cell that is Python as it stands does not go through all of IPython (light.py): it must look as if it had.
SEEN = """
import os
if os.environ.get("WHOLE"):  # somebody listens: the whole of IPython
    get_ipython().events.register("post_run_cell", lambda result: None)
def show(ip=get_ipython()):
    ns, h = ip.user_ns, ip.history_manager
    print(len(ns["In"]), ns["In"][-2:], [ns.get(k) for k in ("_i", "_ii", "_iii", "_i4")], ns["Out"], [ns.get(k) for k in ("_", "__", "___", "_3")], ip.execution_count,
          ip.last_execution_succeeded, h.input_hist_raw[-1])
"""
CELLS = ["1 + 1", "'a';", "x = 5", "x * 2  # twice", "print(1); x", "if x:\n    x\n", "None", "[x, {'k': x}]", "0.1 + 0.2", "1 / 0", "x +", "def f():\n    return undefined\nf()",
         "class A:\n    def __repr__(self): return 'A!'\nA()", "import sys; sys.exit(3)", "_", "_i", "In[-1]", "assert x == 6, 'no'", "x = 7\nreturn", "x", "raise KeyboardInterrupt", "'\\n%x'",
         "float('nan'), True, b'b', 1j", "for i in range(2): i", "if x: x", "x; 1", "# nothing", "'doc'", "(lambda: 1)()", "y: int = 3", "(x,\n y)",
         "import os", "del y", "y", "'\\u00e4\\0\\ud800'", "print('a', end='')", "'x' * 60000 == 1", "_ = 4", "5", "Out", "from __future__ import annotations",
         "def g(v: Nope): pass\ng.__annotations__"]


@tiers("container")
@timeout(120)
def light_cells_look_like_ipythons(t):
    box = book(t)
    both = [box.context(language="python", env=env, deadline=60)["id"] for env in ({}, {"WHOLE": "1"})]
    for context in both:
        equal(box.eval(SEEN, context=context, deadline=60)["status"], "ok")
    for code in CELLS:
        light, whole = [], []
        for context, got in zip(both, (light, whole)):
            for cell in (code, "show()"):
                r = box.eval(cell, context=context)
                got.append([r[k] for k in ("status", "execution_count", "stdout", "stderr", "results", "error")])
        equal(light, whole, code)


@tiers("container")
def one_line_may_still_be_a_magic(t):
    box = book(t)
    equal(value(box.eval("pwd", deadline=60)), "'/home/user'")
    true(box.eval("ls -d .")["stdout"].startswith("."), "an alias without its sign")
    equal(value(box.eval("pwd = 3\npwd")), "3")
    equal(value(box.eval("pwd")), "3")
    equal(box.eval("%config InteractiveShell.ast_node_interactivity = 'all'")["status"], "ok")
    equal([x["data"]["text/plain"] for x in box.eval("1\n2")["results"]], ["1", "2"])


# What E2B's clients read out of a figure: [code, expected members]
T = "import matplotlib.pyplot as plt, datetime, numpy as np\n"
POINTS = lambda e: [[p[0], p[1]] for p in e["points"]]
CHARTS = [
    ("plt.plot([1, 2], [3, 4], label='a'); plt.plot([1, 2], [5, 6]); plt.xlabel('Time (s)'); plt.ylabel('Load [kg]'); plt.title('T')",
     {"type": "line", "title": "T", "x_label": "Time (s)", "x_unit": "s", "y_label": "Load [kg]", "y_unit": "kg", "x_scale": "linear", "y_scale": "linear",
      "elements": [{"label": "a", "points": [[1, 3], [2, 4]]}, {"label": "Line 2", "points": [[1, 5], [2, 6]]}]}),
    ("plt.plot([1, 10, 100]); plt.yscale('log')", {"type": "line", "title": None, "x_label": None, "x_unit": None, "y_scale": "log", "elements": [{"label": "Line 1", "points": [[0, 1], [1, 10], [2, 100]]}]}),
    ("plt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)], [1, 2])",
     {"x_scale": "datetime", "elements": [{"label": "Line 1", "points": [["2024-01-01T00:00:00+00:00", 1], ["2024-01-03T00:00:00+00:00", 2]]}]}),
    ("plt.plot(['x', 'y', 'z'], [1, 2, 3])", {"x_scale": "categorical", "x_tick_labels": ["x", "y", "z"], "elements": [{"label": "Line 1", "points": [["x", 1], ["y", 2], ["z", 3]]}]}),
    ("plt.scatter([1, 2], [3, 4], label='p'); plt.scatter([5], [6])",
     {"type": "scatter", "elements": [{"label": "p", "points": [[1, 3], [2, 4]]}, {"label": "Scatter 2", "points": [[5, 6]]}]}),
    ("plt.bar(['A', 'B'], [100, 200]); plt.ylabel('n (pcs)')",
     {"type": "bar", "y_unit": "pcs", "elements": [{"label": "A", "group": "Group 1", "value": 100}, {"label": "B", "group": "Group 1", "value": 200}]}),
    ("plt.barh(['A', 'B'], [1.5, 2]); plt.xlabel('n'); plt.ylabel('who')",
     {"type": "bar", "x_label": "who", "y_label": "n", "elements": [{"label": "A", "group": "Group 1", "value": 1.5}, {"label": "B", "group": "Group 1", "value": 2}]}),
    ("x = np.arange(2); plt.bar(x - .2, [1, 2], .4, label='a'); plt.bar(x + .2, [3, 4], .4, label='b'); plt.xticks(x, ['m', 'n'])",
     {"type": "bar", "elements": [{"label": "m", "group": "a", "value": 1}, {"label": "n", "group": "a", "value": 2}, {"label": "m", "group": "b", "value": 3}, {"label": "n", "group": "b", "value": 4}]}),
    ("plt.pie([90, 10], labels=['No', 'Yes'])", {"type": "pie", "elements": [{"label": "No", "angle": 324, "radius": 1}, {"label": "Yes", "angle": 36, "radius": 1}]}),
    ("plt.boxplot([[95, 89, 76, 91, 84, 87]], labels=['B'], patch_artist=True)",
     {"type": "box_and_whisker", "elements": [{"label": "B", "min": 84, "first_quartile": 84.75, "median": 88, "third_quartile": 90.5, "max": 95, "outliers": [76]}]}),
    ("plt.boxplot([[1, 2, 3, 4, 5]], labels=['h'], patch_artist=True, vert=False); plt.xlabel('v')",
     {"type": "box_and_whisker", "y_label": "v", "elements": [{"label": "h", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 5, "outliers": []}]}),
    ("plt.boxplot([[1, 2, 3, 4, 10], [2, 3, 4, 5, 6]], labels=['A', 'B'], patch_artist=True, vert=False); plt.xlabel('Score (p)')",
     {"type": "box_and_whisker", "x_label": None, "y_label": "Score (p)", "y_unit": "p",
      "elements": [{"label": "A", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 4, "outliers": [10]},
                   {"label": "B", "min": 2, "first_quartile": 3, "median": 4, "third_quartile": 5, "max": 6, "outliers": []}]}),
    ("plt.boxplot([[1, 2, 4]], labels=['n'], patch_artist=True, notch=True, showmeans=True, vert=False)",
     {"type": "box_and_whisker", "elements": [{"label": "n", "min": 1, "first_quartile": 1.5, "median": 2, "third_quartile": 3, "max": 4, "outliers": []}]}),
    ("plt.hist([0, 1, 2], bins=4)", {"type": "bar", "elements": [{"label": "0.25", "group": "Group 1", "value": 1}, {"label": "0.75", "group": "Group 1", "value": 0},
                                                                 {"label": "1.25", "group": "Group 1", "value": 1}, {"label": "1.75", "group": "Group 1", "value": 1}]}),
    ("plt.hist([0, 1, 2], bins=[0, 0.8, 1.2, 2])", {"type": "bar", "elements": [{"label": "0.4", "group": "Group 1", "value": 1}, {"label": "1.00", "group": "Group 1", "value": 1},
                                                                                {"label": "1.6", "group": "Group 1", "value": 1}]}),
    ("plt.bar(['A', 'B'], [1, 2], yerr=[.1, .2], capsize=3)", {"type": "bar", "elements": [{"label": "A", "group": "Group 1", "value": 1}, {"label": "B", "group": "Group 1", "value": 2}]}),
    ("plt.errorbar([1, 2], [3, 4], yerr=.1, label='e')", {"type": "line", "elements": [{"label": "e", "points": [[1, 3], [2, 4]]}]}),
    ("plt.pie([3, 1], labels=['a', 'b'], autopct='%d', explode=[0, .1], shadow=True)", {"type": "pie", "elements": [{"label": "a", "angle": 270, "radius": 1}, {"label": "b", "angle": 90, "radius": 1}]}),
    ("plt.plot([1, 2]); plt.savefig('/tmp/plot.png'); plt.savefig('/tmp/plot.jpg')", {"type": "line"}),
    ("plt.imshow([[1, 2], [3, 4]])", {"type": "unknown", "elements": []}),
    ("plt.figure(); plt.plot([], [])", {"type": "line"}),
]


@tiers("container")
@timeout(240)
def figures_come_with_their_data(t):
    box = book(t)
    for code, want in CHARTS:
        r = box.eval(T + code + "\nplt.show()", deadline=60)
        true(r["status"] == "ok" and len(r["results"]) == 1, (code, r["error"], len(r["results"])))
        data = r["results"][0]["data"]
        true(data["text/plain"].startswith("<Figure size"), data["text/plain"])
        width, height = struct.unpack(">II", base64.b64decode(data["image/png"])[16:24])
        true(width > 300 and height > 200, (width, height))
        chart = data["e2b/chart"]
        equal({k: chart.get(k, "missing") for k in want}, want, code)
        keys = {"type", "title", "elements"}
        if chart["type"] in ("line", "scatter", "bar", "box_and_whisker"):
            keys |= {"x_label", "y_label", "x_unit", "y_unit"}
        if chart["type"] in ("line", "scatter"):
            keys |= {"x_ticks", "x_tick_labels", "x_scale", "y_ticks", "y_tick_labels", "y_scale"}
        equal(set(chart), keys, code)
    r = box.eval(T + "fig, a = plt.subplots(1, 2); fig.suptitle('S'); a[0].plot([1, 2]); a[0].set_title('left'); a[1].scatter([1], [2])")
    chart = r["results"][-1]["data"]["e2b/chart"]
    equal((chart["type"], chart["title"], [(c["type"], c["title"]) for c in chart["elements"]]), ("superchart", "S", [("line", "left"), ("scatter", None)]))
    r = box.eval(T + "plt.plot([1]); plt.show(); plt.plot([2]); print('between')")
    equal(([len(x["data"].get("image/png", "")) > 0 for x in r["results"]], r["stdout"]), ([True, True], "between\n"))


@tiers("container")
@timeout(180)
def r_draws_and_tabulates(t):
    box = book(t)
    run = lambda code, **m: box.eval(code, language="r", deadline=120, **m)
    r = run("d <- data.frame(n = c(1.5, NA), s = c('a<b', 'ü'), l = c(TRUE, FALSE), when = as.Date(c('2024-01-02', NA)))\nd")
    data = r["results"][-1]["data"]
    equal((data["e2b/data"], r["results"][-1]["main"]), ({"n": [1.5, None], "s": ["a<b", "ü"], "l": [True, False], "when": ["2024-01-02", None]}, True))
    true("a&lt;b" in data["text/html"] and "2024-01-02" in data["text/plain"], data)
    r = run("plot(1:3); hist(c(1, 2, 2)); cat('drawn\\n'); invisible(7)")
    equal((r["stdout"], [struct.unpack(">II", base64.b64decode(x["data"]["image/png"])[16:24]) for x in r["results"]]), ("drawn\n", [(640, 480)] * 2))
    equal(run("nrow(d)", env={"X": "1"})["results"][0]["data"]["text/plain"], "[1] 2")
    e = run("f <- function(x) stop('no ', x)\nf(3)")["error"]
    equal((e["name"], e["value"]), ("Error", "no 3"))
    true("f(3)" in e["traceback"], e)
    equal(run("1 +")["error"]["name"], "ParseError")
    r = run("Sys.sleep(60)", timeout_ms=1000)
    equal((r["status"], r["state_lost"]), ("timeout", False))
    equal(value(run("nrow(d)")), "[1] 2", "the state is kept")


@tiers("container")
@timeout(180)
def java_and_typescript_keep_their_state(t):
    box = book(t)
    run = lambda language, code, **m: box.eval(code, language=language, deadline=120, **m)
    equal(value(run("java", "import java.util.stream.*;\nrecord P(String n, int a) {}\nvar all = List.of(new P(\"x\", 1), new P(\"y\", 2));\n"
                            "all.stream().map(P::n).collect(Collectors.joining(\",\"))")), '"x,y"')
    r = run("java", "System.err.println(\"e\"); int sum = 0;\nfor (var p : all) sum += p.a();\nSystem.out.println(sum);")
    equal((r["status"], r["stdout"], r["stderr"]), ("ok", "3\n", "e\n"))
    e = run("java", "all.get(5)")["error"]
    true("IndexOutOfBounds" in e["name"] and e["traceback"], e)
    true(run("java", "int x = \"s\";")["error"], "an error of the compiler")
    r = run("java", "Thread.sleep(60000);", timeout_ms=1500)
    equal((r["status"], r["state_lost"]), ("timeout", False))
    equal(value(run("java", "sum")), "3")
    equal(run("typescript", "import { basename } from 'node:path'\ninterface P { n: string }\nenum E { A = 5 }\nconst p: P = { n: basename('/a/b') }")["status"], "ok")
    equal(value(run("ts", "const late = await new Promise<number>((r) => setTimeout(() => r(E.A), 5)); [p.n, late] as const")), "[ 'b', 5 ]")
    e = run("ts", "function f(x: unknown): never { throw new RangeError(String(x)) }\nf(3)")["error"]
    equal((e["name"], e["value"]), ("RangeError", "3"))
    r = run("ts", "for (;;);", timeout_ms=1000)
    equal((r["status"], r["state_lost"]), ("timeout", False))
    equal(value(run("ts", "p.n")), "'b'")


@tiers("vm", "container")
@timeout(180)
def the_command_line_shows_tables_and_saves_figures(t):
    box = book(t)
    code = ("import pandas as pd, matplotlib.pyplot as plt\ndf = pd.DataFrame({'city': ['Oslo', 'Rome'], 'degrees': [3.5, 18.0]})\n"
            "df.plot.bar(x='city'); plt.show()\nprint('mean', df.degrees.mean())\ndf")
    p = subprocess.run([program("hutch"), "eval", "--in", box.id, "--save", t.tmp, code], env={**t.d.env, "HUTCH_NO_START": "1"}, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=120)
    equal((p.stdout, p.returncode), ("mean 10.75\n   city  degrees\n0  Oslo      3.5\n1  Rome     18.0\n", 0), p.stderr)
    true("saved " in p.stderr and p.stderr.rstrip().endswith("eval-1.png"), p.stderr)
    with open(os.path.join(t.tmp, "eval-1.png"), "rb") as f:
        true(f.read(8) == b"\x89PNG\r\n\x1a\n", "a picture")


@tiers("container")
def kernels_are_languages(t):
    kind, body = oci_form("FROM base\nKERNELS python cobol\n")
    e = refuses("invalid", t.c.call, "POST", "/v1/templates/nope/build", body=body, headers={"Content-Type": kind})
    true("cobol" in e.message, e)


def oci_form(recipe):
    import oci
    return oci.recipe_form(recipe)

"""The isolate tier: POST /v1/eval, one program, one value, no sandbox."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import daemon as _daemon
from hutchtest import *


def ev(t, language, code, deadline=60, **members):
    return t.c.post("/v1/eval", {"language": language, "code": code, **members}, deadline=deadline)


def value(t, language, code, **members):
    r = ev(t, language, code, **members)
    equal(r["error"], None, f"{language}: {code}")
    return r["value"]


def error(t, language, code, want, **members):
    r = ev(t, language, code, **members)
    true(r["error"] is not None, f"{code}: no error, value {r['value']}")
    equal(r["error"]["code"], want, f"{code}: {r['error']}")
    true(r["error"]["message"], "says something")
    equal(r["value"], None)
    return r


def interpreters(t):
    """Processes that are not the keeper's in jails of this daemon."""
    return [p for p in t.d.census.mine() if p.comm in ("python3", "node", "php", "ruby", "python3.11", "node-MainThread", "MainThread")]


@plain
@own_daemon()
@timeout(90)
def python(t):
    r = ev(t, "python", "print('hi')\nimport sys\nprint('there', file=sys.stderr)\n[x * 2 for x in input['n']]", input={"n": [1, 2]})
    equal((r["value"], r["stdout"], r["stderr"], r["error"], r["exit_code"], r["signal"]), ([2, 4], "hi\n", "there\n", None, 0, None))
    equal(r["language"], "python")
    true(r["template"] in ("base", "isolate"))
    equal((r["isolation"]["tier"], r["isolation"]["accel"]), ("isolate", "none"))
    true("seccomp" in r["isolation"]["boundary"] and "kernel" in r["isolation"]["boundary"])
    true(r["usage"]["cpu_ms"] > 0 and r["duration_ms"] > 0)
    equal(value(t, "python", "x = 1"), None, "no last expression")
    equal(value(t, "python", ""), None)
    equal(value(t, "python", "def double(x):\n    return x * 2", function="double", input=21), 42)
    equal(value(t, "python", "import math; math.factorial(30)"), 265252859812191058636308480000000)
    equal(value(t, "python", "'grüße 🦀 ' + input", input="é"), "grüße 🦀 é")
    equal(value(t, "python", "__name__"), "__main__")
    equal(value(t, "python", "input"), None, "without input it is null")
    # what the standard library offers without files
    equal(value(t, "python", "import json, re, datetime, hashlib, decimal, statistics, base64, itertools, collections, csv, io\n"
                             "hashlib.sha256(b'x').hexdigest()[:8] + re.sub('a', 'b', 'aa') + str(datetime.date(2020, 2, 29))"), "2d711642bb2020-02-29")
    equal(value(t, "python", "import time; time.localtime(0)[:6]"), [1970, 1, 1, 0, 0, 0])
    e = error(t, "python", "def f(x):\n    return 1 / x\nf(0)", "exception")
    equal((e["error"]["type"], e["error"]["message"], e["exit_code"]), ("ZeroDivisionError", "division by zero", 1))
    true('line 2, in f' in e["error"]["traceback"] and "return 1 / x" in e["error"]["traceback"], e["error"]["traceback"])
    true("driver" not in e["error"]["traceback"], "only the program's own frames")
    equal(error(t, "python", "x =", "exception")["error"]["type"], "SyntaxError")
    equal(error(t, "python", "return 1", "exception")["error"]["type"], "SyntaxError")
    equal(error(t, "python", "import numpy", "exception")["error"]["type"], "ModuleNotFoundError")
    equal(error(t, "python", "def f(): return f()\nf()", "exception")["error"]["type"], "RecursionError")
    equal(error(t, "python", "1", "exception", function="nothing")["error"]["type"], "NameError")
    for bad in ("{1, 2}", "float('nan')", "object()", "a = []; a.append(a); a"):
        error(t, "python", bad, "not_json")
    r = error(t, "python", "import sys; print('x'); sys.exit(3)", "exit")
    equal((r["exit_code"], r["stdout"]), (3, "x\n"))
    equal(ev(t, "python", "import sys; sys.exit()")["error"], None)
    r = ev(t, "python", "import sys; sys.stdout.buffer.write(b'\\xff\\xfe'); None")
    true("stdout" not in r and r["stdout_base64"] == "//4=")


@plain
@own_daemon()
@timeout(90)
def javascript(t):
    r = ev(t, "js", "console.log('hi', {a: 1}); console.error('there'); input.n.map(x => x * 2)", input={"n": [1, 2]})
    equal((r["value"], r["stdout"], r["stderr"], r["error"]), ([2, 4], "hi { a: 1 }\n", "there\n", None))
    equal(value(t, "js", "undefined"), None)
    equal(value(t, "js", "const x = 5; x"), 5)
    equal(value(t, "js", "const a = await Promise.resolve(7); a * 2"), 14, "await at the top")
    equal(value(t, "js", "new Promise(r => setTimeout(() => r('late'), 20))"), "late")
    equal(value(t, "js", "async function f(x) { return x.a + 1 }", function="f", input={"a": 1}), 2)
    equal(value(t, "js", "const g = (x) => x", function="g", input="s"), "s")
    equal(value(t, "js", "require('crypto').createHash('sha256').update('x').digest('hex').slice(0, 8)"), "2d711642")
    equal(value(t, "js", "require('zlib').gunzipSync(require('zlib').gzipSync('hello')).toString()"), "hello")
    equal(value(t, "js", "new Date(0).toISOString() + typeof structuredClone"), "1970-01-01T00:00:00.000Zfunction")
    e = error(t, "js", "function f() {\n  throw new TypeError('boo')\n}\nf()", "exception")
    equal((e["error"]["type"], e["error"]["message"]), ("TypeError", "boo"))
    true("<program>:2" in e["error"]["traceback"] and "/run/" not in e["error"]["traceback"], e["error"]["traceback"])
    equal(error(t, "js", "x = ", "exception")["error"]["type"], "SyntaxError")
    error(t, "js", "Promise.reject(new Error('r'))", "exception")
    error(t, "js", "setTimeout(() => { throw new Error('late') }, 5); new Promise(() => 0)", "exception")
    true("never comes" in error(t, "js", "new Promise(() => 0)", "exception")["error"]["message"])
    true("Cannot find module" in error(t, "js", "require('left-pad')", "exception")["error"]["message"])
    error(t, "js", "10n", "not_json")
    error(t, "js", "const a = {}; a.a = a; a", "not_json")
    equal(error(t, "js", "process.exit(3)", "exit")["exit_code"], 3)
    true(value(t, "js", "Math.random()") != value(t, "js", "Math.random()"), "each call has its own chance")
    true(value(t, "js", "crypto.randomUUID()") != value(t, "js", "crypto.randomUUID()"))


@plain
@own_daemon()
@timeout(120)
def php_and_ruby(t):
    if not any(x["name"] == "isolate" for x in t.c.get("/v1/templates")["templates"]):
        skip("no template isolate: its packages could not be had")
    r = ev(t, "php", "echo 'hi'; fwrite(STDERR, 'there'); return array_map(fn($x) => $x * 2, $input['n']);", input={"n": [1, 2]})
    equal((r["value"], r["stdout"], r["stderr"], r["error"], r["template"]), ([2, 4], "hi", "there", None, "isolate"))
    equal(value(t, "php", "1 + 1"), 2, "an expression")
    equal(value(t, "php", "<?php return 'x';"), "x")
    equal(value(t, "php", "function f($x) { return $x['a']; }", function="f", input={"a": [1]}), [1])
    e = error(t, "php", "function f() {\n  throw new DomainException('boo');\n}\nf();", "exception")
    equal((e["error"]["type"], e["error"]["message"]), ("DomainException", "boo"))
    true("line 2" in e["error"]["traceback"])
    equal(error(t, "php", "x x x;", "exception")["error"]["type"], "ParseError")
    error(t, "php", "NAN", "not_json")
    equal(error(t, "php", "exit(3);", "exit")["exit_code"], 3)
    error(t, "php", "$a = []; while (true) $a[] = str_repeat('x', 1000);", "memory", timeout_ms=30000)
    true(value(t, "php", "mt_rand()") != value(t, "php", "mt_rand()"))
    error(t, "php", "while (true);", "timeout", timeout_ms=400)
    error(t, "php", "while (true);", "cpu", cpu_ms=150, timeout_ms=30000)
    error(t, "php", "while (true) echo str_repeat('x', 99);", "output", timeout_ms=30000)
    error(t, "php", "function f($n) { return f($n + 1) + 1; } f(0);", "memory", timeout_ms=30000)
    equal(value(t, "php", "[preg_match('/^(a+)+$/', str_repeat('a', 64) . 'b'), preg_last_error_msg()]"), [False, "Backtrack limit exhausted"], "PHP's own limit")
    r = ev(t, "ruby", "puts 'hi'; warn 'there'; input['n'].map { |x| x * 2 }", input={"n": [1, 2]})
    equal((r["value"], r["stdout"], r["stderr"], r["error"]), ([2, 4], "hi\n", "there\n", None))
    equal(value(t, "ruby", "def f(x) = x + 1", function="f", input=1), 2)
    equal(value(t, "ruby", "require 'json'; require 'set'; Set[1, 2].to_a"), [1, 2])
    e = error(t, "ruby", "def f\n  raise ArgumentError, 'boo'\nend\nf", "exception")
    equal((e["error"]["type"], e["error"]["message"]), ("ArgumentError", "boo"))
    true("<program>:2" in e["error"]["traceback"] and "/run/" not in e["error"]["traceback"])
    equal(error(t, "ruby", "require 'socket'", "exception")["error"]["type"], "LoadError")
    equal(error(t, "ruby", "exit 3", "exit")["exit_code"], 3)
    error(t, "ruby", "a = []; loop { a << 'x' * 1_000_000 }", "memory", timeout_ms=30000)
    true(value(t, "ruby", "rand") != value(t, "ruby", "rand"))
    error(t, "ruby", "loop {}", "timeout", timeout_ms=400)
    error(t, "ruby", "loop {}", "cpu", cpu_ms=150, timeout_ms=30000)
    error(t, "ruby", "loop { puts 'x' * 99 }", "output", timeout_ms=30000)
    equal(error(t, "ruby", "def f(n) = f(n + 1)\nf(0)", "exception")["error"]["type"], "SystemStackError")
    error(t, "ruby", "/^(a+)+$/ =~ 'a' * 40 + 'b'", "timeout", timeout_ms=400)
    for lang, code in (("python", "1+1"), ("js", "1+1")):
        equal(value(t, lang, code), 2)
        equal(value(t, lang, code, template="base"), 2)


def languages(t):
    """Those of the template there is; PHP and Ruby come with `isolate`."""
    return ("python", "js", "php", "ruby") if any(x["name"] == "isolate" for x in t.c.get("/v1/templates")["templates"]) else ("python", "js")


@plain
@own_daemon()
@timeout(120)
def what_comes_out_may_go_in(t):
    """The value of one call is an input of the next, whatever it is; what a language cannot read is its exception."""
    same = {"python": "input", "js": "input", "php": "$input", "ruby": "input"}
    deep = 1
    for _ in range(198):
        deep = [deep]
    for lang in languages(t):
        for x in (deep, "a\0b", "\U0001f980 é", {"a": {"b": [None, True, -1, 2.5]}}, 9007199254740991, [[], "}", '"input":1'], ""):
            equal(value(t, lang, same[lang], input=x), x, lang)
    for lang in ("python", "ruby"):
        if lang in languages(t):
            equal(value(t, lang, "input * 10", input=10 ** 30), 10 ** 31)
            equal(value(t, lang, "input", input=10 ** 40), 10 ** 40)
    sys.set_int_max_str_digits(0)
    equal(value(t, "python", "10 ** 6000"), 10 ** 6000, "integers of any size")
    equal(value(t, "python", "input == '\\ud800'", input="\ud800"), True)
    if "php" in languages(t):
        equal(error(t, "php", "1", "exception", input="\ud800")["error"]["type"], "JsonException", "it was read behind the filter, so this is an answer")
        equal(value(t, "php", "'a;b{'"), "a;b{", "a string is no statement")
    for code in ("() => 1", "Symbol('x')", "NaN", "-Infinity", "10n"):
        error(t, "js", code, "not_json")


@plain
@own_daemon()
@timeout(120)
def to_its_end(t):
    """What a program leaves for its end is done, and what it printed on the way there is not lost."""
    ends = {"python": "import atexit\natexit.register(print, 'bye')\n1", "js": "process.on('exit', () => console.log('bye')); 1",
            "php": "register_shutdown_function(function () { echo \"bye\\n\"; }); return 1;", "ruby": "at_exit { puts 'bye' }; 1"}
    for lang in languages(t):
        r = ev(t, lang, ends[lang])
        equal((r["value"], r["stdout"], r["error"], r["exit_code"]), (1, "bye\n", None, 0), lang)
    r = ev(t, "python", "import sys, io\nprint('kept', end='')\nsys.stdout = io.StringIO()\nprint('not shown')\n2")
    equal((r["value"], r["stdout"]), (2, "kept"))
    r = ev(t, "js", "setTimeout(() => console.log('timer'), 20); (async () => { for (let i = 0; i < 5; i++) await 0; console.log('promise') })(); 5")
    equal((r["value"], r["stdout"], r["error"]), (5, "promise\ntimer\n", None), "as node would")
    r = ev(t, "js", "setTimeout(() => console.log('timer'), 5)")
    equal((r["value"], r["stdout"], r["error"]), (None, "timer\n", None))
    error(t, "js", "setInterval(() => 0, 5); 1", "timeout", timeout_ms=300)
    error(t, "js", "setTimeout(() => { throw new TypeError('late') }, 5); 1", "exception")
    equal(error(t, "js", "process.exitCode = 3; 1", "exit")["exit_code"], 3)
    equal(value(t, "js", "new Promise(r => process.stdin.on('data', r).on('end', () => r('empty')))"), "empty")


@plain
@own_daemon()
@timeout(120)
def messages(t):
    """An exception is told whole, whatever stands in its message."""
    thrown = {"python": ["raise ValueError('a\\0b')", "raise ValueError('a\\ud800b')"], "js": ["throw new RangeError('a\\0b')", "throw new RangeError('a\\ud800b')"],
              "php": ["throw new DomainException(\"a\\0b\");", "throw new DomainException(\"a\\xffb\");"], "ruby": ["raise ArgumentError, \"a\\0b\"", "raise ArgumentError, \"a\\xffb\""]}
    for lang in languages(t):
        for code in thrown[lang]:
            e = error(t, lang, code, "exception")["error"]
            equal((e["message"], e["type"]), ("a\ufffdb", {"python": "ValueError", "js": "RangeError", "php": "DomainException", "ruby": "ArgumentError"}[lang]), code)
    e = error(t, "python", "import asyncio", "exception")["error"]
    true("driver" not in e["traceback"] and "import asyncio" in e["traceback"], e["traceback"])
    if "php" in languages(t):
        equal(error(t, "php", "throw new class('anon') extends Exception {};", "exception")["error"]["message"], "anon")
        equal(error(t, "php", "class A implements JsonSerializable { function jsonSerialize(): mixed { throw new Exception('no'); } } return new A;", "not_json")["error"]["message"], "no")
        equal(value(t, "php", "getenv()"), {"LANG": "C.UTF-8", "TZ": "UTC0"})
        error(t, "php", "ini_set('memory_limit', '-1'); return strlen(str_repeat('x', 1 << 29));", "memory")
        equal(error(t, "ruby", "class E < StandardError; def message = raise('x'); end; raise E", "exception")["error"]["type"], "E")
        equal(value(t, "ruby", "binding.local_variables"), ["input"], "nothing of the driver's")


@plain
@own_daemon()
@timeout(120)
def chance(t):
    """No two calls draw the same, from any source a language has."""
    sources = {"python": "import random, uuid, secrets, os\n[random.random(), random.Random().random(), str(uuid.uuid4()), str(uuid.uuid1()), secrets.token_hex(8), os.urandom(8).hex()]",
               "js": "[Math.random(), require('vm').runInNewContext('Math.random()'), crypto.randomUUID(), require('crypto').randomInt(2 ** 40), "
                     "require('crypto').randomBytes(8).toString('hex'), crypto.getRandomValues(new Uint32Array(2)).join()]",
               "php": "[mt_rand() . mt_rand(), lcg_value(), uniqid('', true), random_int(0, PHP_INT_MAX), bin2hex(random_bytes(8)), str_shuffle('abcdefghijklmnopqrstuvwxyz')]",
               "ruby": "[rand, Random.rand, Random.new.rand, SecureRandom.hex(8), [*1..30].shuffle.join, Random.bytes(8).unpack1('H*')]"}
    for lang in languages(t):
        drawn = [value(t, lang, sources[lang]) for _ in range(3)]
        for k in range(len(drawn[0])):
            equal(len({str(d[k]) for d in drawn}), 3, f"{lang}, source {k}: {[d[k] for d in drawn]}")


@plain
@own_daemon()
@timeout(90)
def limits(t):
    for lang, spin in (("python", "while True: pass"), ("js", "for (;;);")):
        value(t, lang, "1")
        r = error(t, lang, "print('begun')\n" + spin if lang == "python" else "console.log('begun');" + spin, "timeout", timeout_ms=400)
        equal((r["signal"], r["exit_code"], r["stdout"]), (9, None, "begun\n"))
        r = error(t, lang, spin, "cpu", cpu_ms=150, timeout_ms=30000)
        true(r["usage"]["cpu_ms"] >= 150)
    r = error(t, "python", "x = []\nwhile True: x.append(bytearray(1 << 20))", "memory", memory_mib=64, timeout_ms=30000)
    within(r["usage"]["memory_bytes"], 32 << 20, 100 << 20, "peak")
    error(t, "python", "'a' * (1 << 40)", "memory")
    error(t, "js", "const a = []; for (;;) a.push(new Array(1000).fill(1.5))", "memory", memory_mib=64, timeout_ms=30000)
    error(t, "js", "new Uint8Array(1 << 30)", "memory")
    r = error(t, "python", "while True: print('x' * 99)", "output", max_output=10000, timeout_ms=30000)
    equal(len(r["stdout"]), 10000)
    error(t, "js", "for (;;) console.log('x'.repeat(99))", "output", timeout_ms=30000)
    error(t, "python", "'x' * 2_000_000", "output")
    error(t, "python", "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')", "timeout", timeout_ms=400)
    error(t, "js", "/^(a+)+$/.test('a'.repeat(64) + 'b')", "timeout", timeout_ms=400)
    error(t, "python", "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()", "memory", memory_mib=32, timeout_ms=60000)
    big = "x" * 700_000
    equal(value(t, "python", "len(input)", input=big), 700_000, "more than fits into one frame")


@plain
@own_daemon()
@timeout(60)
def refusals(t):
    refuses("invalid", ev, t, "perl", "1")
    refuses("invalid", ev, t, "python", "1", timeout_ms=0)
    refuses("invalid", ev, t, "python", "1", memory_mib=1)
    refuses("invalid", ev, t, "python", "1", nonsense=1)
    refuses("quota", ev, t, "python", "1", memory_mib=60000)
    refuses("not_found", ev, t, "python", "1", template="no-such-template")
    refuses("too_large invalid", ev, t, "python", "x" * 3_000_000)
    e = refuses("unsupported", ev, t, "php", "1", template="base")
    true("php" in e.message and "base" in e.message and "isolate" in e.hint, f"{e.message} | {e.hint}")
    refuses("unsupported", ev, t, "ruby", "1", template="base")
    e = refuses("unsupported", t.c.create, isolation="isolate")
    true("/v1/eval" in e.message)
    equal(value(t, "python", "1 + 1"), 2)


@plain
@own_daemon(HUTCH_MIN_ISOLATION="container")
def a_floor_above_it(t):
    refuses("denied", ev, t, "python", "1")


@plain
@own_daemon(HUTCH_ISOLATE_IDLE="1", HUTCH_ISOLATE_CALLS="2")
@timeout(90)
def comes_and_goes(t):
    true(not interpreters(t), "nothing before the first call")
    pids = {value(t, "python", "import os; os.getpid()") for _ in range(4)}
    equal(len(pids), 4, "a process each")
    true(interpreters(t))
    until(lambda: not interpreters(t), 20, "the idle jail goes")
    # more than may run at once: they wait their turn
    out = []

    def one(i):
        out.append(value(t, "python", f"import time; time.sleep(0.1); {i}"))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    equal(sorted(out), list(range(8)))
    # whoever leaves takes the process along
    s = t.c.dial()
    body = json.dumps({"language": "python", "code": "import time\ntime.sleep(60)", "timeout_ms": 60000}).encode()
    s.sendall(b"POST /v1/eval HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    until(lambda: len(interpreters(t)) >= 2, 20, "it runs")
    s.close()
    until(lambda: len(interpreters(t)) <= 1, 20, "it is gone")
    # the interpreter itself is killed from outside: one call fails typed, the next works
    equal(value(t, "python", "1"), 1)
    zygotes = interpreters(t)
    true(zygotes)
    for p in zygotes:
        os.kill(p.pid, signal.SIGKILL)
    def again():
        try:
            return value(t, "python", "2") == 2
        except ApiError as e:
            true(e.code in ("guest", "unavailable"), e.code)
            return False
    until(again, 20, "a new interpreter")


def beside(n, fn):
    """n times fn(i) at once -> threads to be joined, and what they returned or raised"""
    out = []

    def one(i):
        try:
            out.append(fn(i))
        except ApiError as e:
            out.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for x in threads:
        x.start()
    return threads, out


class _Client:
    """What ev() wants of a test: its client."""

    def __init__(self, c):
        self.c = c


@plain
@own_daemon(HUTCH_ISOLATE_CALLS="2", HUTCH_TENANTS='{"small": {"memory_mib": 200}}')
@timeout(90)
def tenants(t):
    """Each has jails of its own: whoever fills his waits for himself. His memory is bounded in all of them together."""
    busy, quick, small = (_Client(t.d.tcp(t.d.new_key(name)["key"])) for name in ("busy", "quick", "small"))
    equal([value(x, "python", "1") for x in (busy, quick, small)], [1, 1, 1])
    threads, out = beside(8, lambda i: value(busy, "python", f"import time; time.sleep(1.5); {i}", timeout_ms=20000))
    until(lambda: len(interpreters(t)) >= 5, 20, "two of them run, beside three interpreters")
    begun = time.monotonic()
    for n in range(5):
        equal(value(quick, "python", f"{n}"), n)
    equal(value(t, "python", "'operator'"), "operator")
    within(time.monotonic() - begun, 0, 3, "seconds for six calls of others")
    for x in threads:
        x.join()
    equal(sorted(out), list(range(8)), "none was lost")
    # 128 MiB each: the second waits for the first, also in another language
    e = refuses("quota", ev, small, "python", "1", memory_mib=201)
    true("200 MiB" in e.message, e.message)
    clock = "import time; a = time.monotonic(); time.sleep(0.4); (a, time.monotonic())"
    js = "const a = performance.timeOrigin + performance.now(); new Promise(r => setTimeout(() => r(1), 400))"
    value(small, "js", "1")
    begun = time.monotonic()
    threads, out = beside(4, lambda i: value(small, ("python", "js")[i % 2], (clock, js)[i % 2]))
    for x in threads:
        x.join()
    equal(len(out), 4)
    within(time.monotonic() - begun, 1.6, 20, "one after the other")
    spans = sorted(x for x in out if x != 1)
    true(spans[0][1] <= spans[1][0], spans)
    # who stands in the way goes: the other jail of this tenant goes on when the one whose turn it was is gone
    def pythons():
        return [p for p in interpreters(t) if p.comm.startswith("python3")]

    def parent(p):
        with open(f"/proc/{p.pid}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    threads, out = beside(1, lambda i: ev(small, "python", "import time; time.sleep(30)", timeout_ms=40000))
    until(lambda: len(pythons()) >= 5, 20, "it runs")
    more, late = beside(1, lambda i: value(small, "js", "5", timeout_ms=40000))
    for pid in {parent(p) for p in pythons()}:
        os.kill(pid, signal.SIGKILL)  # the wardens, and with them their jails
    for x in threads + more:
        x.join(20)
    equal((out[0].code, late), ("guest", [5]))


@plain
@own_daemon(HUTCH_ISOLATE_JAILS="3")
@timeout(90)
def so_many_and_no_more(t):
    """A jail nobody uses makes room for another; where all are at work the newcomer is told so."""
    def jails():
        return len(interpreters(t))
    one, two = (_Client(t.d.tcp(t.d.new_key(name)["key"])) for name in ("one", "two"))
    sleep = "import time; time.sleep(4); 1"
    for x in (one, two, t):
        for lang in ("python", "js"):
            equal(value(x, lang, "1 + 1"), 2)
    until(lambda: jails() == 3, 20, "three stay")
    threads, out = beside(1, lambda i: value(one, "python", sleep, timeout_ms=20000))
    more, late = beside(1, lambda i: value(t, "python", sleep, timeout_ms=20000))
    last, third = beside(1, lambda i: value(two, "python", sleep, timeout_ms=20000))
    until(lambda: jails() == 6, 20, "three work")
    e = refuses("rate", ev, t, "js", "1")
    true("HUTCH_ISOLATE_JAILS" in e.message, e.message)
    equal(value(t, "python", "2"), 2, "there is room where one is")
    for x in threads + more + last:
        x.join()
    equal(out + late + third, [1, 1, 1])
    # of three a tenant has two at most, the operator all
    busy = [beside(1, lambda i, lang=lang: value(one, lang, code, timeout_ms=20000)) for lang, code in (("python", sleep), ("js", "new Promise(r => setTimeout(r, 4000))"))]
    until(lambda: jails() >= 5, 20, "both work")
    e = refuses("rate", ev, one, "python", "1", template="notebook")
    true("of this tenant" in e.message, e.message)
    equal(value(two, "python", "3"), 3)
    for threads, out in busy:
        for x in threads:
            x.join()


@plain
@own_daemon()
@timeout(60)
def survives_a_restart_of_the_daemon(t):
    equal(value(t, "python", "1 + 1"), 2)
    t.d.sigkill()
    t.d.start(settle=False)
    until(lambda: not interpreters(t), 20, "jails are not taken over")
    equal(value(t, "python", "2 + 2"), 4)


@plain
@own_daemon()
@timeout(60)
def command_line(t):
    def run(*args, stdin=b""):
        p = subprocess.run([_daemon.program("hutch"), *args], env={**t.d.env, "HUTCH_NO_START": "1"}, input=stdin, capture_output=True, timeout=60)
        return p.returncode, p.stdout.decode(), p.stderr.decode()

    equal(run("eval", "--isolation", "isolate", "6 * 7"), (0, "42\n", ""))
    equal(run("eval", "--isolation", "isolate", "-l", "js", "({a: [1, 'x']})"), (0, '{"a":[1,"x"]}\n', ""))
    equal(run("eval", "--isolation", "isolate", "--input", '{"a": 2}', "input['a'] ** 100")[1], f"{2 ** 100}\n")
    equal(run("eval", "--isolation", "isolate", "--input", "-", "-l", "js", "input.length", stdin=b"[1,2,3]")[1], "3\n")
    equal(run("eval", "--isolation", "isolate", "-", stdin=b"print('x')"), (0, "x\n", ""))
    code, out, err = run("eval", "--isolation", "isolate", "-", stdin=b"print(1)\n#\0\nprint(2)")
    true(code == 64 and not out and "byte 10 is NUL" in err, f"a part of a program is not run: {code} {out} {err}")
    code, out, err = run("eval", "--isolation", "isolate", "-", stdin=b"print(1)\n#" + b"x" * (9 << 20))
    true(code == 65 and not out and "8 MiB" in err, f"{code} {out} {err}")
    code, out, err = run("eval", "--isolation", "isolate", "--input", "-", "-", stdin=b"1")
    true(code == 64 and "one standard input" in err, f"{code} {err}")
    code, out, err = run("eval", "--isolation", "isolate", "1 / 0")
    true(code == 1 and not out and "ZeroDivisionError" in err, err)
    code, out, err = run("eval", "--isolation", "isolate", "open('/etc/passwd')")
    true(code == 159 and "openat" in err, f"{code} {err}")
    code, out, err = run("eval", "--isolation", "isolate", "--timeout", "1", "while True: pass")
    true(code == 124 and "timeout" in err, f"{code} {err}")
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "script.py")
        with open(path, "w") as f:
            f.write("import sys\nprint('from a file')\nsys.exit(5)\n")
        equal(run("run", "--isolation", "isolate", path), (5, "from a file\n", ""))
        true(run("run", "--isolation", "isolate", "--env", "A=1", path)[0] == 64)
        true(run("run", "--isolation", "isolate", path, "argument")[0] == 64)
    true(run("run", "--isolation", "isolate", "--", "ls")[0] == 64)
    j = json.loads(run("eval", "--isolation", "isolate", "--json", "1")[1])
    equal((j["value"], j["isolation"]["tier"]), (1, "isolate"))

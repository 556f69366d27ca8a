"""An isolate's program against its walls: every kind of system call outside the list ends it by name, and the neighbour,
another call of the same interpreter, notices nothing."""
import os
import threading

from hutchtest import *


def ev(t, language, code, **members):
    return t.c.post("/v1/eval", {"language": language, "code": code, **members}, deadline=60)


def forbidden(t, language, code, names, note=""):
    """Dies with `forbidden`; names: what the call may be called, "" allows that it could not say."""
    r = ev(t, language, code)
    e = r["error"]
    true(e and e["code"] == "forbidden", f"{note or code}: {e or r['value']}")
    true((e["syscall"] or "") in names.split("|"), f"{note or code}: died of {e['syscall']}, want {names}")
    equal((r["value"], r["exit_code"], r["signal"]), (None, None, 31), code)


# A program's view of the kernel through Python's os module: one or more of each class of system call.
PYTHON = [
    # files: reading, writing, looking, changing
    ("open('/etc/passwd')", "openat"), ("open('/tmp/x', 'w')", "openat"), ("os.open('.', 0)", "openat"), ("os.stat('/')", "newfstatat|stat"),
    ("os.lstat('/')", "newfstatat|lstat"), ("os.fstat(0)", "newfstatat|fstat"), ("os.listdir('/')", "openat"), ("os.access('/', 4)", "access|faccessat"),
    ("os.mkdir('/tmp/x')", "mkdir"), ("os.rmdir('/tmp')", "rmdir"), ("os.unlink('/x')", "unlink"), ("os.rename('/a', '/b')", "rename"),
    ("os.symlink('a', '/b')", "symlink"), ("os.link('/a', '/b')", "link|linkat"), ("os.readlink('/proc/self/exe')", "readlink"), ("os.chmod('/', 0)", "chmod"),
    ("os.chown('/', 0, 0)", "chown"), ("os.truncate('/x', 0)", "truncate"), ("os.utime('/')", "utimensat"), ("os.statvfs('/')", "statfs"),
    ("os.getcwd()", "getcwd"), ("os.chdir('/')", "chdir"), ("os.umask(0)", "umask"), ("os.getxattr('/', 'user.x')", "getxattr"), ("os.sync()", "sync"),
    ("os.mkfifo('/tmp/x')", "mknod|mknodat"), ("os.mknod('/tmp/x')", "mknod|mknodat"), ("os.chroot('/')", "chroot"), ("os.fsync(1)", "fsync"),
    # descriptors
    ("os.pipe()", "pipe2|pipe"), ("os.dup(1)", "fcntl|dup"), ("os.dup2(1, 9)", "dup2|dup3"), ("os.memfd_create('x')", "memfd_create"), ("os.eventfd(0)", "eventfd2"),
    ("os.lseek(0, 0, 0)", "lseek"), ("os.ftruncate(0, 0)", "ftruncate"), ("os.sendfile(1, 0, 0, 9)", "sendfile"), ("os.pread(0, 1, 0)", "pread64"),
    ("os.splice(0, 1, 9)", "splice"), ("os.copy_file_range(0, 1, 9)", "copy_file_range"), ("os.set_blocking(1, False)", "ioctl|fcntl"), ("os.openpty()", "openat"),
    ("os.set_inheritable(1, True)", "ioctl|fcntl"), ("os.lockf(0, 1, 1)", "fcntl"),
    # processes, programs, threads
    ("os.fork()", "clone"), ("os.system('id')", "clone"), ("os.posix_spawn('/bin/sh', ['sh'], {})", "clone"),
    ("os.execv('/bin/sh', ['sh'])", "execve"), ("os.kill(1, 9)", "kill"), ("os.kill(os.getpid(), 15)", "kill"), ("os.killpg(0, 9)", "kill"),
    ("os.waitpid(-1, 0)", "wait4"), ("os.pidfd_open(1)", "pidfd_open"), ("__import__('_thread').start_new_thread(print, ())", "clone"),
    ("__import__('_signal').raise_signal(15)", "tgkill"),
    # rights and limits
    ("os.setuid(0)", "setuid|"), ("os.setgid(0)", "setgid|"), ("os.setresuid(0, 0, 0)", "setresuid|"), ("os.setgroups([])", "setgroups|"), ("os.setsid()", "setsid"),
    ("os.setpgid(0, 0)", "setpgid"), ("os.nice(-5)", "setpriority|getpriority"), ("os.sched_setaffinity(0, {0})", "sched_setaffinity"),
    ("os.sched_setscheduler(0, 0, os.sched_param(0))", "sched_setscheduler"), ("os.setpriority(0, 0, 5)", "setpriority"), ("os.getgroups()", "getgroups"),
    # signals and timers: SIGSYS is not the program's to handle
    ("__import__('_signal').signal(31, print)", "rt_sigaction"), ("__import__('_signal').setitimer(0, 1)", "setitimer"), ("__import__('_signal').alarm(5)", "alarm"),
    # network, and what Python has built in besides
    ("__import__('_socket').socket()", "socket"), ("__import__('_socket').socketpair()", "socketpair"), ("__import__('_socket').getaddrinfo('a.b', 80)", "socket|openat|newfstatat"),
    ("__import__('_socket').sethostname('x')", "sethostname|"), ("__import__('select').epoll()", "epoll_create1"), ("__import__('fcntl').fcntl(1, 3)", "fcntl"),
    ("__import__('fcntl').flock(0, 2)", "flock"), ("__import__('fcntl').ioctl(1, 0x5412, 'x')", "ioctl"), ("__import__('syslog').syslog('x')", "socket"),
    ("__import__('pwd').getpwuid(0)", "openat|socket|newfstatat"), ("__import__('_posixsubprocess').fork_exec([b'a'], [b'/bin/id'], True, (), None, None, -1, -1, -1, -1, -1, -1, "
     "9, 9, True, True, 0, None, None, None, -1, None, True)", "clone|vfork"),
    ("os.uname()", "uname"),
    # clocks: not to be set, and none that counts what another process computes (CPU clocks of pids 1 and 2, and of a descriptor)
    ("time.clock_settime(0, 5)", "clock_settime"), ("time.clock_gettime((~1 << 3) | 2)", "clock_gettime"), ("time.clock_gettime((~2 << 3) | 2)", "clock_gettime"),
    ("time.clock_getres((~2 << 3) | 2)", "clock_getres"), ("time.clock_gettime((~0 << 3) | 3)", "clock_gettime"),
]


@plain
@own_daemon()
@timeout(120)
def python_calls(t):
    equal(ev(t, "python", "1")["value"], 1)
    for code, names in PYTHON:
        forbidden(t, "python", "import os, time\n" + code, names)
    equal(ev(t, "python", "1 + 1")["value"], 2)


@plain
@own_daemon()
@timeout(120)
def python_tricks(t):
    # no library that could make calls of its own, and no way to load one
    for name in ("ctypes", "_ctypes", "socket", "mmap", "subprocess", "multiprocessing", "asyncio", "signal", "resource", "cffi"):
        e = ev(t, "python", f"import {name}")["error"]
        true(e, f"{name} can be imported")
        equal((e["code"], e["type"]), ("exception", "ModuleNotFoundError"), name)
    forbidden(t, "python", "import sys\nimport importlib._bootstrap_external as b\nsys.path[:] = ['/usr/lib/python3.11', '/usr/lib/python3.11/lib-dynload']\n"
                           "sys.path_hooks.append(b.FileFinder.path_hook((b.SourceFileLoader, ['.py'])))\nsys.meta_path.insert(0, b.PathFinder)\nimport ctypes",
              "newfstatat|stat|openat")
    forbidden(t, "python", "import _imp, types\n_imp.create_dynamic(types.SimpleNamespace(name='x', origin='/usr/lib/python3.11/lib-dynload/no-such.so'))", "openat|newfstatat")
    # SIGSYS blocked: it dies all the same, only without a name
    forbidden(t, "python", "import _signal\n_signal.pthread_sigmask(0, [31])\nopen('/etc/passwd')", "|openat")
    # no descriptor but its own four, and those cannot be widened
    equal(ev(t, "python", "import os\nbad = 0\nfor fd in range(4, 200):\n    try: os.read(fd, 1)\n    except OSError as e: bad += e.errno == 9\nbad")["value"], 196)
    for code in ("os.write(0, b'x')", "os.read(1, 1)", "os.read(3, 1)"):
        equal(ev(t, "python", "import os\n" + code)["error"]["type"], "OSError", code)
    # lies on the result pipe reach nobody but their own caller
    for lie in ("b'V1'", "b'E{}'", "b'L'", "b'\\x00SYS' + bytes(28)", "b'x' * 100000"):
        r = ev(t, "python", f"import os\nos.write(3, {lie})\n5")
        true(r["error"] is None or r["error"]["code"] in ("not_json", "exception", "output"), f"{lie}: {r['error']}")
        equal(r["exit_code"], 0)
    r = ev(t, "python", "import os\nos.close(3)\n5")
    equal((r["value"], r["error"]["code"]), (None, "exit"))
    r = ev(t, "python", "import os\nos.close(1); os.close(2); os.close(0)\n5")
    equal(r["value"], 5)
    # what it may know of the machine: nothing
    for code in ("sysconf('SC_PHYS_PAGES')", "sysconf('SC_AVPHYS_PAGES')"):
        true(ev(t, "python", "import os\nos." + code)["value"] != eval("os." + code), code)
    equal(ev(t, "python", "import os\nos.sched_getaffinity(0)")["error"]["type"], "PermissionError")
    equal(ev(t, "python", "import os\nos.getloadavg()")["error"]["type"], "OSError")
    equal(ev(t, "python", "import os; sorted(os.environ)")["value"], ["LANG", "TZ"])
    equal(ev(t, "python", "import os; (os.getuid(), os.getgid(), os.getppid())")["value"], [1000, 1000, 1])


JS = [
    ("require('fs').readFileSync('/etc/passwd')", "openat"), ("require('fs').writeFileSync('/tmp/x', '')", "openat"), ("require('fs').readdirSync('/')", "openat"),
    ("require('fs').statSync('/')", "statx|stat"), ("require('fs').promises.readFile('/etc/passwd')", "clone"), ("require('fs').mkdirSync('/tmp/x')", "mkdir"),
    ("require('child_process').execSync('id')", "epoll_create1|socketpair|clone|pipe2|eventfd2"), ("require('child_process').spawn('id')", "socketpair|clone|pipe2|eventfd2"),
    ("require('net').connect(80, '127.0.0.1')", "socket"), ("require('net').createServer().listen(8080)", "socket"), ("require('dgram').createSocket('udp4').bind(5)", "socket|clone|openat"),
    ("require('http').get('http://127.0.0.1/'); new Promise(() => 0)", "socket|openat|clone"), ("new (require('worker_threads').Worker)('1', {eval: true})", "clone|epoll_create1|eventfd2"),
    ("process.kill(1, 9)", "kill"), ("process.chdir('/')", "chdir"), ("process.setuid(0)", "setuid|tgkill|"), ("process.umask(0)", "umask"),
    ("process.dlopen({exports: {}}, '/lib/x86_64-linux-gnu/libutil.so.1')", "openat"), ("process.report.writeReport('/tmp/x')", "openat|uname|getcwd"),
    ("require('os').networkInterfaces()", "socket"), ("require('v8').writeHeapSnapshot('/tmp/x')", "openat"), ("require('inspector').open()", "clone|socket|eventfd2|epoll_create1|"),
]


@plain
@own_daemon()
@timeout(120)
def javascript_calls(t):
    equal(ev(t, "js", "1")["value"], 1)
    for code, names in JS:
        forbidden(t, "js", code, names)
    # no code is made at run time by the machine: no WebAssembly, no compiler
    equal(ev(t, "js", "typeof WebAssembly")["value"], "undefined")
    # what one call does to the objects all share, the next does not see
    ev(t, "js", "Object.prototype.polluted = 1; Array.prototype.map = () => 'no'; JSON.stringify = () => '1'; globalThis.left = 1")
    equal(ev(t, "js", "[[1].map(x => x + 1)[0], ({}).polluted === undefined, typeof left]")["value"], [2, True, "undefined"])
    equal(ev(t, "js", "JSON.stringify = () => '{'; 7")["value"], 7, "the driver keeps its own")
    # the way into the fork server is closed behind it
    forbidden(t, "js", "const m = {exports: {}}; process.dlopen(m, '/run/zygote.so'); m.exports.serve()", "openat")


@plain
@own_daemon()
@timeout(120)
def every_number(t):
    """Ruby can make any system call by number: all of them, but those on the list."""
    if not any(x["name"] == "isolate" for x in t.c.get("/v1/templates")["templates"]):
        skip("no template isolate: its packages could not be had")
    listed = {0, 1, 3, 7, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 23, 24, 25, 28, 35, 39, 60, 63, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110, 131, 157, 186, 201, 204, 219,
              223, 226, 228, 229, 230, 231, 232, 233, 271, 281, 302, 318}
    numbers = [n for n in range(0, 470) if n not in listed and not 335 <= n <= 423]
    missed = []
    todo, lock = list(numbers), threading.Lock()

    def work():
        while True:
            with lock:
                if not todo:
                    return
                n = todo.pop()
            r = ev(t, "ruby", f"syscall({n}, 0, 0, 0, 0, 0, 0)")
            if not r["error"] or r["error"]["code"] != "forbidden":
                missed.append((n, r["error"] or r["value"]))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    equal(missed, [], f"{len(numbers)} numbers")
    # locks are the process's own: waiting and waking in private memory, no other operation, none on pages of files that other calls have too
    for op, ok in ((0x81, True), (0x8a, True), (1, False), (0, False), (9, False), (10, False), (0x83, False), (0x84, False), (0x85, False), (0x86, False), (0x8b, False), (0x8c, False)):
        code = f"x = [0].pack('L'); syscall(202, [x].pack('p').unpack1('Q'), {op}, 1, 0, 0, 0xffffffff)"
        if ok:
            equal(ev(t, "ruby", code)["value"], 0, f"futex {op:#x}")
        else:
            forbidden(t, "ruby", code, "futex")
    forbidden(t, "ruby", "syscall(28, 0, 4096, 12)", "madvise", "MADV_MERGEABLE")
    for code, names in (("File.read('/etc/passwd')", "openat"), ("fork", "clone"), ("`id`", "newfstatat|pipe2|clone"), ("exec 'id'", "newfstatat|execve"),
                        ("Process.kill(9, 1)", "kill"), ("Thread.new { 1 }.value", "clone"), ("Dir.pwd", "getcwd"), ("IO.pipe", "pipe2")):
        forbidden(t, "ruby", code, names)
    for code, names in (("file_get_contents('/etc/passwd')", "newfstatat|openat"), ("system('id')", "clone"), ("shell_exec('id')", "clone"), ("pcntl_fork()", "clone"),
                        ("fsockopen('127.0.0.1', 80)", "socket"), ("posix_kill(1, 9)", "kill"), ("include '/etc/passwd';", "newfstatat|openat"), ("mail('a', 'b', 'c')", "clone|"),
                        ("return FFI::cdef('int open(const char *p, int f);')->open('/etc/passwd', 0);", "openat")):
        forbidden(t, "php", code, names)


@plain
@own_daemon()
@timeout(150)
def neighbours(t):
    """Calls that do their worst, many at a time, beside one that computes: its answers stay right, and none is lost."""
    for lang in ("python", "js"):
        equal(ev(t, lang, "1")["value"], 1)
    worst = [("python", "while True: pass", "timeout cpu"), ("python", "x = []\nwhile True: x.append(bytearray(1 << 20))", "memory timeout"),
             ("python", "while True: print('x' * 4096)", "output timeout"), ("python", "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')", "timeout"),
             ("python", "import os; os.fork()", "forbidden timeout"), ("python", "9 ** 9 ** 9", "timeout memory"), ("js", "for (;;);", "timeout"),
             ("js", "const a = []; for (;;) a.push(new Array(1000).fill(1.5))", "memory timeout"), ("js", "'a'.repeat(1 << 28)", "memory timeout"),
             ("python", "import os; os.abort()", "crashed timeout"), ("js", "process.abort()", "crashed timeout"), ("python", "def f(n): return f(n + 1)\nf(0)", "exception timeout")]
    over, wrong = threading.Event(), []

    def attack(k):
        i = k
        while not over.is_set():
            lang, code, want = worst[i % len(worst)]
            r = ev(t, lang, code, timeout_ms=700, memory_mib=64)
            if not r["error"] or r["error"]["code"] not in want.split():
                wrong.append((code, r["error"] or r["value"]))
            i += 5
    threads = [threading.Thread(target=attack, args=(k,)) for k in range(5)]
    for x in threads:
        x.start()
    try:
        for n in range(40):
            lang = ("python", "js")[n % 2]
            r = ev(t, lang, "sum(range(input))" if lang == "python" else "[...Array(input).keys()].reduce((a, b) => a + b, 0)", input=1000 + n, timeout_ms=60000)
            equal((r["value"], r["stdout"], r["error"]), ((1000 + n) * (999 + n) // 2, "", None), f"call {n}")
    finally:
        over.set()
        for x in threads:
            x.join()
    equal(wrong, [])
    equal(ev(t, "python", "2 + 2")["value"], 4)


# Ruby writes to every page it can find that it already had (madvise with MADV_POPULATE_WRITE), then takes what its limit leaves.
ALL_IT_CAN = """
map = syscall(9, 0, 4096, 3, 0x22, -1, 0) >> 20 << 20
heap = [[0].pack('L') * 100].pack('p').unpack1('Q') >> 20 << 20
[[map, 130], [heap, 70]].each do |from, mib|
  (-20..mib).each do |k|
    syscall(28, from + (k << 20), 1 << 20, 23)
  rescue SystemCallError
    256.times { |i| syscall(28, from + (k << 20) + i * 4096, 4096, 23) rescue nil }
  end
end
[1 << 20, 1 << 16].each { |size| loop { syscall(9, 0, size, 3, 0x8022, -1, 0) } rescue nil }
sleep 3
"""


@plain
@own_daemon(HUTCH_ISOLATE_MEMORY="1024", HUTCH_ISOLATE_CALLS="64")
@timeout(150)
def none_dies_for_the_others(t):
    """A crowd of small calls, each of which takes its copy of the interpreter and all of its 16 MiB: none is killed for what they have together."""
    if not any(x["name"] == "isolate" for x in t.c.get("/v1/templates")["templates"]):
        skip("no template isolate: its packages could not be had")
    equal(ev(t, "ruby", "1")["value"], 1)
    out = []
    threads = [threading.Thread(target=lambda: out.append(t.c.post("/v1/eval", {"language": "ruby", "code": ALL_IT_CAN, "memory_mib": 16, "timeout_ms": 60000}, deadline=140)))
               for _ in range(48)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    equal([r["error"] for r in out if r["error"]], [])
    equal(len(out), 48)
    true(max(r["usage"]["memory_bytes"] for r in out) > 24 << 20, "that is more than their limit")
    equal(ev(t, "ruby", "2", memory_mib=1024)["value"], 2, "one that wants all of it runs alone")

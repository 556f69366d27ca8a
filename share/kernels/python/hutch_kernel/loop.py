"""The life of a kernel: requests in, cells run one after another, background tasks of asyncio in between."""
import asyncio
import fcntl
import gc
import importlib
import json
import os
import platform
import random
import select
import signal
import sys
import threading

from . import rich
from .ears import Ears
from .wire import Output, Wire

parse = json.JSONDecoder().scan_once  # what json.loads() comes down to
WARM = ("numpy", "pandas", "matplotlib.pyplot")
REHEARSAL = ("""
try:
    import pandas
    __hutch = pandas.DataFrame({"a": [1, 2, 3], "b": [4.5, 5.5, 6.5], "c": list("xyx")})
    print(__hutch.groupby("c").sum(), __hutch.describe())
    __hutch["a"].mean(), __hutch.sort_values("b"), __hutch[__hutch["a"] > 1]
except ImportError:
    __hutch = [str(i) for i in range(3)]
    print(__hutch)
__hutch
""", "1 + 1", "await __import__('asyncio').sleep(0)")


class Kernel:
    def __init__(self, requests, wire, out):
        self.requests, self.wire, self.out = requests, wire, out
        self.sandbox = None
        self.pending = b""
        self.queue = []
        self.running = False
        self.early = False  # SIGINT came while no cell ran
        self.begun = False  # a cell has run
        self.task = None    # the cell's, if it has to wait for something
        self.thread = threading.get_ident()
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.poll = select.poll()
        self.poll.register(requests, select.POLLIN)
        self.poll.register(self.loop._ssock, select.POLLIN)  # other threads wake the loop through it
        self.shell = None
        self.figures = rich.Figures(lambda fig: self.shell.publish(fig))
        self.helper = rich.helpers(self.figures.show, lambda v: self.shell.publish(v))

    def start(self, warm):
        sys.meta_path.insert(0, self.helper)
        try:
            from . import ipy as shell
        except ImportError:
            from . import plain as shell
        self.shell = shell.Shell(self.out, self.wire)
        for name in WARM if warm else ():
            try:
                importlib.import_module(name)
            except Exception as e:
                os.write(self.log, ("warm %s: %s\n" % (name, e)).encode())
        self.helper.now()
        if "matplotlib.pyplot" in sys.modules:
            self._draw_once()
        if warm:  # what is there now is there to stay: the collector need not touch it, and copies go on sharing its pages
            gc.collect()
            gc.freeze()

    def _draw_once(self):
        """Fonts, renderers and PNG writers load at the first figure: let that be now."""
        plt = sys.modules["matplotlib.pyplot"]
        fig, ax = plt.subplots()
        ax.plot([0, 1], [0, 1])
        ax.set_title("x")
        rich.figure(fig)
        plt.close("all")

    # ---- signals ----
    def on_sigint(self, signo, frame):
        if not self.running:
            self.early = True
        elif self.wire.sending:
            self.wire.interrupted = True
        else:
            raise KeyboardInterrupt

    # ---- requests ----
    def read(self):
        try:
            b = os.read(self.requests, 1 << 16)  # more would come from a mapping of its own, made and unmade every time
        except BlockingIOError:
            return
        if not b:
            os._exit(0)
        self.pending += b
        *lines, self.pending = self.pending.split(b"\n")
        self.queue += [parse(line.decode("ascii"), 0)[0] for line in lines if line]

    def next_request(self):
        while not self.queue:
            loop = self.loop
            if loop._ready or loop._scheduled or len(loop._selector._fd_to_key) > 1:
                loop.run_until_complete(self.readable())
                self.read()
                continue
            for fd, _ in self.poll.poll():  # nothing in the background: no need for the loop
                if fd == self.requests:
                    self.read()
                else:
                    loop.call_soon(loop.stop)
                    loop.run_forever()
        return self.queue.pop(0)

    async def readable(self):
        """Until there is a request; the loop's other work goes on."""
        ready = self.loop.create_future()
        self.loop.add_reader(self.requests, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            self.loop.remove_reader(self.requests)

    def adopt(self, q):
        os.environ.update(q.get("env") or {})
        if self.sandbox != q["sandbox"]:
            self.sandbox = q["sandbox"]
            self.reseed()
        self.wire.event("adopted", hears=True)

    def reseed(self):
        """A copy of a running kernel must not draw the same numbers as its siblings."""
        random.seed()
        numpy = sys.modules.get("numpy.random")
        if numpy:
            numpy.seed()
        ssl = sys.modules.get("ssl") or sys.modules.get("_ssl")
        if ssl:
            ssl.RAND_add(os.urandom(64), 64.0)
        tempfile = sys.modules.get("tempfile")
        if tempfile:
            tempfile._name_sequence = None
        uuid = sys.modules.get("uuid")
        if uuid:
            uuid._node = uuid._last_timestamp = None

    def rehearse(self):
        """Run cells before anybody asked for one: the next finds what it needs in memory. Nothing of them is seen or stays."""
        names = self.shell.namespace
        kept, count = dict(names), self.shell.count
        self.shell.failed = True  # what goes wrong is nobody's
        try:
            for code in REHEARSAL:
                self.cell(code)
        except BaseException as e:
            os.write(self.log, ("rehearsal: %s\n" % e).encode())
        names.clear()
        names.update(kept)
        self.shell.forget(count)
        self.out.drain()
        self.wire.event("rehearsed")

    # ---- cells ----
    def run(self, q):
        wire = self.wire
        wire.current = cell = q["id"]
        env, kept = q.get("env"), None
        if not self.begun:
            # The code's own directory, as in an interactive interpreter; not before there is code: who may start a kernel may not run
            # what lies in its directory under the name of a library.
            self.begun = True
            sys.path.insert(0, "")
        if env:
            kept = {k: os.environ.get(k) for k in env}
            os.environ.update(env)
        self.shell.failed = False
        self.task = None
        try:
            self.running = True  # SIGINT counts from here on
            wire.hold('{"ev":"count","id":%d,"n":%d}' % (cell, self.shell.count))
            if self.early and self.meant(cell):
                raise KeyboardInterrupt
            self.cell(q["code"])
        except KeyboardInterrupt:
            self.running = False
            self.cancel(self.task)
            self.shell.error("KeyboardInterrupt", "", "KeyboardInterrupt")
        except BaseException as e:  # an error of ours, or SystemExit that came out of the loop
            self.running = False
            self.shell.error(type(e).__name__, str(e), "%s: %s" % (type(e).__name__, e))
        finally:
            self.running = self.early = wire.interrupted = False
        if kept:
            for k, v in kept.items():
                if v is None:
                    os.environ.pop(k, None)
                else:
                    os.environ[k] = v
        self.out.drain()
        wire.send('{"ev":"done","id":%d}' % cell)
        wire.current = None

    def meant(self, cell):
        """Whether the SIGINT that came before this cell had begun was for it: its line was sent before the signal."""
        self.read()
        return any(q.get("op") == "interrupt" and q.get("id") == cell for q in self.queue)

    def cancel(self, task):
        """It waited for something: it learns of the end the usual way."""
        if task and not task.done():
            task.cancel()
            self.loop.run_until_complete(asyncio.wait({task}, timeout=1))

    def cell(self, code):
        """Inside our loop, as far as the code can tell. Only what is to be awaited needs the loop to turn."""
        asyncio._set_running_loop(self.loop)
        self.loop._thread_id = self.thread  # is_running(): libraries ask before they choose between await and run()
        try:
            rest = self.shell.begin(code)
        finally:
            self.loop._thread_id = None
            asyncio._set_running_loop(None)
        if rest:
            self.task = self.loop.create_task(rest)
            self.loop.run_until_complete(self.task)
        self.figures.show()

    def serve(self):
        self.wire.event("ready", language="python", version=platform.python_version(), hears=True)
        while True:
            try:
                q = self.next_request()
            except (KeyboardInterrupt, SystemExit):
                continue  # of a task in the background
            op = q.get("op")
            if op == "run":
                self.run(q)
            elif op == "adopt":
                self.adopt(q)
            elif op == "rehearse":
                self.rehearse()


def _let_asyncio_run():
    """asyncio.run() in a cell: cells run inside our loop, which would refuse it. A loop of its own, one level down."""
    kept = asyncio.run

    def run(main, **kwargs):
        outer = asyncio._get_running_loop()
        if outer is None:
            return kept(main, **kwargs)
        task = asyncio.current_task(outer)
        asyncio._set_running_loop(None)
        if task:
            asyncio.tasks._leave_task(outer, task)
        try:
            return kept(main, **kwargs)
        finally:
            asyncio._set_running_loop(outer)
            if task:
                asyncio.tasks._enter_task(outer, task)
            asyncio.set_event_loop(outer)
    run.__doc__ = kept.__doc__
    asyncio.run = asyncio.runners.run = run


def _no_input(prompt=""):
    raise EOFError("input() has nobody to ask in a code context")


def serve(warm):
    # 0, 1 and 2 belong to the code from here on; the protocol moves to numbers nobody expects
    requests = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 200)
    answers = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 200)
    log = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 200)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.set_blocking(requests, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # our threads begin like this: the main one shall have it
    wire = Wire(answers)
    out = Output(wire)
    out.start()
    kernel = Kernel(requests, wire, out)
    kernel.log = log
    Ears(kernel.on_sigint)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    import builtins
    builtins.input = _no_input
    _let_asyncio_run()
    kernel.start(warm)
    kernel.serve()

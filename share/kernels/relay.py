"""hutch's kernels other than Python's: this program owns the line protocol (README.md) and drives an interpreter.

    python3 -IS relay.py javascript|typescript|bash|r|java

The interpreter's standard output and error are pipes we read, so whatever it, its libraries and its children print is
caught. Before a control message of the interpreter is passed on, what lies in those pipes is: order is kept.

Everything is one poll loop; SIGINT is for the interpreter (we are in its process group) and ignored here."""
import base64
import codecs
import fcntl
import os
import select
import signal
import sys
import termios
from _json import encode_basestring_ascii as quote

PIECE = 48 << 10
HOLD_MS = 8
VALUE_MAX = 8 << 20
BUNDLE_MAX = 12 << 20
HERE = os.path.dirname(os.path.realpath(__file__))


def clean(b):
    text = b.decode("utf-8", "replace")
    return text.replace("\0", "\ufffd")


class Relay:
    """What all languages share. An interpreter is a subclass: argv, env, and how a cell reaches it."""
    language = None
    REHEARSAL = ""  # a cell that is run before anybody asked for one, so that the next finds what it needs in memory

    def __init__(self):
        self.poll = select.poll()
        self.sandbox = None  # whom we work for
        self.running = False
        self.cell = None     # id of the one that runs; None while one is rehearsed
        self.queue = []
        self.count = 0
        self.failed = False
        self.pending = b""   # of requests
        self.control = b""   # of the interpreter's messages
        self.decoders = {}
        self.held, self.held_stream, self.held_size = [], None, 0  # text that waits a moment for more

    # ---- the protocol ----
    def send(self, ev, **fields):
        out = '{"ev":' + quote(ev)
        for k, v in fields.items():
            if v is True or v is False:
                v = "true" if v else "false"
            elif isinstance(v, dict):
                v = "{" + ",".join(quote(a) + ":" + quote(b) for a, b in v.items()) + "}"
            elif isinstance(v, int):
                v = str(v)
            else:
                v = quote(v)
            out += "," + quote(k) + ":" + v
        data = memoryview((out + "}\n").encode("ascii"))
        while data:
            try:
                data = data[os.write(self.answers, data):]
            except OSError:
                os._exit(0)

    def text(self, stream, text):
        if self.cell is None or not text:
            return
        if stream != self.held_stream:
            self.flush()
            self.held_stream = stream
        self.held.append(text)
        self.held_size += len(text)
        if self.held_size > PIECE:
            self.flush()

    def flush(self):
        text = "".join(self.held)
        self.held, self.held_size = [], 0
        for at in range(0, len(text), PIECE):
            self.send("out", id=self.cell, stream=self.held_stream, text=text[at:at + PIECE])

    def error(self, name, value, traceback):
        if self.cell is not None and not self.failed:
            self.failed = True
            self.flush()
            self.send("error", id=self.cell, name=name, value=value, traceback=traceback)

    def result(self, main, data):
        if self.cell is None:
            return
        kept, total = {}, 0
        for mime, value in sorted(data.items(), key=lambda d: (d[0] != "text/plain", len(d[1]))):
            if len(value) > VALUE_MAX or total + len(value) > BUNDLE_MAX:
                if mime != "text/plain":
                    continue
                value = value[:VALUE_MAX // 4] + "\n[hutch: cut here]"
            total += len(value)
            kept[mime] = value
        self.flush()
        self.send("result", id=self.cell, main=main, data=kept)

    def done(self):
        self.drain(final=True)
        self.flush()
        cell, self.cell, self.running = self.cell, None, False
        if cell is None:
            self.send("rehearsed")
        else:
            self.send("done", id=cell)

    # ---- the interpreter's output ----
    def drain(self, final=False):
        for fd, stream in ((self.out, "stdout"), (self.err, "stderr")):
            left = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)  # and not what is printed while we look: that may never end
            while left > 0:
                b = os.read(fd, min(left, 65536))
                left -= len(b)
                self.raw(fd, stream, b)
            if final:
                rest = self.decoders[fd].decode(b"", True)
                self.decoders[fd].reset()
                self.text(stream, rest)

    def raw(self, fd, stream, b):
        self.text(stream, self.decoders[fd].decode(b).replace("\0", "\ufffd"))

    # ---- start ----
    def spawn(self):
        """The interpreter, with 3 and 4 (and 5) as its README says."""
        in3, self.to = os.pipe()
        self.frm, out4 = os.pipe()
        in5, self.bell = os.pipe()
        os.set_blocking(self.bell, False)  # not every interpreter reads it
        self.out, out1 = os.pipe()
        self.err, out2 = os.pipe()
        null = os.open("/dev/null", os.O_RDONLY)
        env = dict(os.environ)
        env.update(self.extra_env())
        argv = self.argv()
        self.pid = os.fork()
        if not self.pid:
            try:
                place = {0: in3 if self.on_stdin else null, 1: out1, 2: out2, 3: in3, 4: out4, 5: in5}
                high = {k: os.dup2(v, 100 + k) for k, v in place.items()}
                for k, v in high.items():
                    os.dup2(v, k, inheritable=True)
                os.closerange(6, 256)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what we start would too: `yes | head` is to end quietly
                os.execvpe(argv[0], argv, env)
            except OSError as e:
                os.write(2, ("%s: %s\n" % (argv[0], e.strerror)).encode())
            os._exit(127)
        for fd in (in3, out4, in5, out1, out2, null):
            os.close(fd)
        for fd in (self.out, self.err, self.frm):
            os.set_blocking(fd, False)
            self.poll.register(fd, select.POLLIN)
        for fd in (self.out, self.err):
            self.decoders[fd] = codecs.getincrementaldecoder("utf-8")("replace")

    on_stdin = False

    def extra_env(self):
        return {}

    # ---- messages of the interpreter ----
    def take(self, n):
        """n bytes of the control stream, or None; waiting is the loop's."""
        if len(self.control) < self.at + n:
            return None
        b = self.control[self.at:self.at + n]
        self.at += n
        return b

    def line(self):
        end = self.control.find(b"\n", self.at)
        if end < 0:
            return None
        b = self.control[self.at:end]
        self.at = end + 1
        return b.decode("ascii", "replace").split(" ")

    def messages(self):
        """As many whole messages as there are."""
        while True:
            self.at = 0
            head = self.line()
            if head is None or not self.message(head):
                return
            self.control = self.control[self.at:]

    def message(self, head):
        kind = head[0]
        if kind == "out":  # a text that must stay one piece
            b = self.take(int(head[2]))
            if b is None:
                return False
            self.drain()
            self.flush()
            self.text(head[1], clean(b))
            self.flush()
        elif kind == "result":
            data = {}
            for _ in range(int(head[2])):
                part = self.line()
                b = self.take(int(part[1])) if part else None
                if b is None:
                    return False
                data[part[0]] = base64.b64encode(b).decode("ascii") if len(part) > 2 else clean(b)
            self.drain()
            self.result(head[1] == "1", data)
        elif kind == "error":
            parts = [self.take(int(n)) for n in head[1:4]]
            if None in parts:
                return False
            self.drain()
            self.error(*map(clean, parts))
        elif kind == "begun":  # from here on an interrupt is heard
            if self.cell is not None:
                self.send("count", id=self.cell, n=self.count)
        elif kind == "done":
            if self.running:
                self.done()
        elif kind == "ready":
            self.started = True
            self.send("ready", language=self.language, version=head[1] if len(head) > 1 else "")
        return True

    started = False

    # ---- requests ----
    def start_cell(self, q):
        self.drain()  # what was printed between cells belongs to none
        self.running, self.cell, self.failed = True, q["id"], False
        self.count += self.cell is not None
        self.run(q["code"], q.get("env") or {})

    def adopt(self, q):
        """A kernel that came out of a snapshot is told once whom it works for; one that was started for it knows already."""
        if self.sandbox != q["sandbox"]:
            self.sandbox = q["sandbox"]
            self.tell("adopt", "", q.get("env") or {})
        self.send("adopted")

    def run(self, code, env):
        self.tell("run", code, env)

    def tell(self, what, code, env):
        code = code.encode("utf-8", "replace")
        parts = [b"%s %d %d\n" % (what.encode("ascii"), len(code), len(env)), code]
        for k, v in env.items():
            kv = ("%s=%s" % (k, v)).encode("utf-8", "replace")
            parts += [b"%d\n" % len(kv), kv]
        self.write(b"".join(parts))

    def write(self, b):
        """To the interpreter; its pipes are read meanwhile, so neither side can wait for the other for ever."""
        os.set_blocking(self.to, False)
        data = memoryview(b)
        while data:
            try:
                data = data[os.write(self.to, data):]
            except BlockingIOError:
                p = select.poll()
                p.register(self.to, select.POLLOUT)
                p.register(self.out, select.POLLIN)
                p.register(self.err, select.POLLIN)
                p.poll()
                self.drain()
            except BrokenPipeError:
                return

    def request(self, q):
        op = q.get("op")
        if op == "run":
            self.queue.append(q)
        elif op == "adopt":
            self.adopt(q)
        elif op == "rehearse":
            self.queue.append({"id": None, "code": self.REHEARSAL})
        elif op == "interrupt" and self.running and q["id"] in (0, self.cell):
            self.interrupt()

    def interrupt(self):
        """The signal came along, but a command that is started a moment later has not heard it, and whoever waits for that one
        waits for ever. So commands are told again, ever more rarely, while the cell runs on."""
        cell, wait = self.cell, 1
        try:
            os.write(self.bell, b"i")
        except OSError:
            pass

        def again(*_):
            nonlocal wait
            if self.running and self.cell == cell:
                self.strike()
                wait *= 2
                signal.alarm(wait)
        signal.signal(signal.SIGALRM, again)
        signal.alarm(wait)

    def strike(self):
        """All of our group but the interpreter: that has heard, and may be tidying up."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    group = int(f.read().rpartition(b")")[2].split()[2])
                if group == os.getpgrp() and int(name) not in (os.getpid(), self.pid):
                    os.kill(int(name), signal.SIGINT)
            except (OSError, IndexError):
                pass  # it has ended

    # ---- the loop ----
    def serve(self):
        import json
        self.requests, self.answers = os.dup(0), os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.spawn()
        self.poll.register(self.requests, select.POLLIN)
        while True:
            ready = self.poll.poll(HOLD_MS if self.held else None)
            if not ready:
                self.flush()
            for fd, _ in ready:
                if fd == self.requests:
                    b = os.read(fd, 1 << 16)
                    if not b:
                        os.kill(self.pid, signal.SIGKILL)
                        os._exit(0)
                    self.pending += b
                    *lines, self.pending = self.pending.split(b"\n")
                    for line in lines:
                        if line.strip():
                            self.request(json.loads(line))
                elif fd == self.frm:
                    self.listen()
                    break  # the others may be other descriptors now
                else:
                    self.drain()
            if self.started and not self.running and self.queue:
                self.start_cell(self.queue.pop(0))

    def listen(self):
        try:
            b = os.read(self.frm, 1 << 16)
        except BlockingIOError:
            return
        if not b:
            self.ended()
            return
        self.control += b
        self.messages()

    def ended(self):
        """The interpreter is gone, and with it the state of this context. A new one takes its place."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if not self.started:
            try:
                os.write(2, os.read(self.err, 4096))
            except OSError:
                pass
            os._exit(code if code > 0 else 1)
        if self.running:
            self.drain(final=True)
            what = "exited with status %d" % code if code >= 0 else "was ended by signal %d" % -code
            self.error(*self.last_words(code, what))
            self.done()
        for fd in (self.out, self.err, self.frm):
            self.poll.unregister(fd)
        for fd in (self.out, self.err, self.frm, self.to, self.bell):
            os.close(fd)
        self.count, self.control, self.started = 0, b"", False
        self.spawn()

    def last_words(self, code, what):
        return "KernelEnded", what, "the %s interpreter %s; the next cell gets a new one" % (self.language, what)


class Bash(Relay):
    """An interactive bash without a terminal: SIGINT takes it back to its prompt, with its state kept. Commands come on its
    standard input; the cell itself has /dev/null there."""
    language = "bash"
    on_stdin = True
    PLAINT = b"bash: ["  # … 3: 1 (255)] tcsetattr: Inappropriate ioctl for device: what it says of its missing terminal whenever a signal ends a command
    tail = b""           # of standard error: may become one

    def argv(self):
        return ["bash", "--norc", "--noprofile", "--noediting", "-i"]

    def extra_env(self):
        return {"PS1": "", "PS2": "", "PROMPT_COMMAND": ""}

    def spawn(self):
        super().spawn()
        self.write(b"set +o history +H; PS1= PS2=; unset PROMPT_COMMAND; printf 'ready %s\\n' \"$BASH_VERSION\" >&4\n")

    def raw(self, fd, stream, b):
        if fd == self.err:
            lines = (self.tail + b).splitlines(True)
            last = lines[-1]
            self.tail = lines.pop() if not last.endswith(b"\n") and last[:len(self.PLAINT)] == self.PLAINT[:len(last)] else b""
            b = b"".join(line for line in lines if not (line.startswith(self.PLAINT) and b"] tcsetattr: " in line))
        super().raw(fd, stream, b)

    def drain(self, final=False):
        super().drain(final)
        if final and self.tail:
            self.text("stderr", clean(self.tail))
            self.tail = b""

    @staticmethod
    def quoted(s):
        return "'" + s.replace("'", "'\\''").replace("\0", "") + "'"

    def tell(self, what, code, env):
        """The only thing it is told this way is to adopt: its environment."""
        self.write("".join("export %s=%s\n" % (k, self.quoted(v)) for k, v in env.items()).encode("utf-8", "replace"))

    def run(self, code, env):
        before, after = "", ""
        for i, (k, v) in enumerate(env.items()):
            before += "__hutch_s%d=${%s+x}; __hutch_v%d=${%s-}; export %s=%s\n" % (i, k, i, k, k, self.quoted(v))
            after += "if [ -n \"$__hutch_s%d\" ]; then %s=$__hutch_v%d; else unset %s; fi; unset __hutch_s%d __hutch_v%d\n" % (i, k, i, k, i, i)
        # one line: an interrupt after the first word of it takes the rest along
        text = before + "printf 'begun\\n' >&4; eval " + self.quoted(code) + " </dev/null 3<&- 4>&- 5<&-\n__hutch_status=$?\n" + after + "printf 'status %d\\n' \"$__hutch_status\" >&4\n"
        self.write(text.encode("utf-8", "replace"))

    def strike(self):
        """A signal that meets bash between the fork and the exec of a command is heard by neither: it waits for the command,
        which has its handlers but not its ears."""
        os.killpg(0, signal.SIGINT)

    def message(self, head):
        if head[0] != "status":
            return super().message(head)
        self.drain()
        code = int(head[1])
        if code == 130:
            self.error("KeyboardInterrupt", "", "KeyboardInterrupt")
        elif code:
            self.error("ExitStatus", str(code), "the last command exited with status %d" % code)
        if self.running:
            self.done()
        return True

    def last_words(self, code, what):
        return "ExitStatus", str(code), "the shell " + what + "; the next cell gets a new one"


class Javascript(Relay):
    language = "javascript"
    REHEARSAL = "console.log(await Promise.resolve([1, `${Math.PI}`])); display({ a: [1, \"b\"] })"

    def argv(self):
        return ["node", "--no-force-async-hooks-checks", "--experimental-import-meta-resolve", "--no-warnings", HERE + "/node/kernel.mjs", self.language]


class Typescript(Javascript):
    language = "typescript"


class R(Relay):
    language = "r"

    def argv(self):
        return ["Rscript", "--vanilla", HERE + "/r/kernel.R"]

    def extra_env(self):
        return {} if any(os.environ.get(k) for k in ("LANG", "LC_ALL")) else {"LANG": "C.UTF-8"}


class Java(Relay):
    language = "java"

    def argv(self):
        classes = HERE + "/java/classes"
        if os.path.isdir(classes):
            return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", classes, "Kernel"]
        return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", HERE + "/java/Kernel.java"]


def main():
    kinds = {k.language: k for k in (Bash, Javascript, Typescript, R, Java)}
    kinds[sys.argv[1]]().serve()


main()

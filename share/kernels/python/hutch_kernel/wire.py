"""The kernel's end of the line protocol, and everything the code of a cell prints.

Three ways lead here: sys.stdout and sys.stderr (text), the pipes that stand at descriptors 1 and 2 (C libraries, child
processes), and results. Writers may be any thread; a line is written whole or not at all, also when SIGINT arrives."""
import codecs
import fcntl
import io
import os
import select
import sys
import termios
import threading
import time
from json.encoder import encode_basestring_ascii as quote

PIECE = 48 << 10       # characters of text in one line
DELAY = 0.01           # text is held this long for more of it
VALUE_MAX = 8 << 20    # of one MIME type
TEXT_MAX = 2 << 20     # of text/plain
BUNDLE_MAX = 12 << 20  # of one result


def clean(text):
    """Text that JSON readers everywhere take: no NUL, no lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


class Wire:
    """The saved standard output. `current` is the id of the cell that runs, None between cells."""

    def __init__(self, fd):
        self.fd = fd
        self.lock = threading.RLock()
        self.current = None
        self.held = ""            # lines that wait for the next, which follows at once: one write
        self.child = False        # a forked child has no business here
        os.register_at_fork(after_in_child=self.forked)
        self.main = threading.get_ident()
        self.sending = False      # in the main thread
        self.interrupted = False  # SIGINT came meanwhile

    def forked(self):
        self.child = True

    def hold(self, line):
        """A line that need not go before the next one does."""
        with self.lock:
            self.held += line + "\n"

    def send(self, line):
        if self.child:
            return
        main = threading.get_ident() == self.main
        with self.lock:
            if main:
                self.sending = True
            try:
                line, self.held = self.held + line + "\n", ""
                data = line.encode("ascii")
                n = os.write(self.fd, data)
                if n < len(data):
                    data = memoryview(data)
                    while n < len(data):
                        n += os.write(self.fd, data[n:])
            except OSError:
                os._exit(0)  # nobody is there any more
            finally:
                if main:
                    self.sending = False
        if main and self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def event(self, ev, **fields):
        self.send(self.line(ev, **fields))

    def line(self, ev, **fields):
        parts = ['{"ev":' + quote(ev)]
        for k, v in fields.items():
            parts.append("," + quote(k) + ":")
            if v is True or v is False:
                parts.append("true" if v else "false")
            elif isinstance(v, int):
                parts.append(str(v))
            elif isinstance(v, dict):
                parts.append("{" + ",".join(quote(a) + ":" + (quote(b) if isinstance(b, str) else str(b)) for a, b in v.items()) + "}")
            else:
                parts.append(quote(clean(str(v))))
        return "".join(parts) + "}"

    def text(self, stream, text):
        cell = self.current
        if cell is None:
            return  # printed by a thread after its cell had ended
        text = clean(text)
        for at in range(0, len(text), PIECE):
            self.send('{"ev":"out","id":%d,"stream":"%s","text":%s}' % (cell, stream, quote(text[at:at + PIECE])))

    def result(self, data, main):
        if self.current is None or not data:
            return
        kept, omitted, total = {}, {}, 0
        for mime in sorted(data, key=lambda m: (m != "text/plain", len(data[m]))):
            value = clean(data[mime])
            if mime == "text/plain" and len(value) > TEXT_MAX:
                omitted[mime] = len(value)
                value = value[:TEXT_MAX] + "\n[hutch: %d more characters cut]" % (len(value) - TEXT_MAX)
            if len(value) > VALUE_MAX or total + len(value) > BUNDLE_MAX:
                omitted[mime] = len(value)
                continue
            total += len(value)
            kept[mime] = value
        if not kept:
            kept["text/plain"] = "[hutch: a result of %d characters was left out]" % sum(omitted.values())
        self._result(kept, main, {"omitted": omitted} if omitted else {})

    def value(self, text):
        """The cell's value, if that has nothing but a text."""
        cell = self.current
        if cell is None or self.child or len(text) > PIECE:
            self.result({"text/plain": text}, True)
        else:
            self.hold('{"ev":"result","id":%d,"main":true,"data":{"text/plain":%s}}' % (cell, quote(clean(text))))

    def _result(self, data, main, fields):
        line = self.line("result", id=self.current, main=main, data=data, **fields)
        if main and not self.child:
            self.hold(line)
        else:
            self.send(line)


class _Bytes(io.RawIOBase):
    """sys.stdout.buffer: bytes that join the text."""

    def __init__(self, out):
        self.out = out
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self):
        return True

    def fileno(self):
        return self.out.fileno()

    def write(self, b):
        self.out.write(self.decoder.decode(bytes(b)))
        return len(b)


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr."""
    encoding = "utf-8"
    errors = "replace"

    def __init__(self, output, name, fd):
        self.output, self.name, self.fd = output, name, fd
        self.buffer = _Bytes(self)

    def fileno(self):
        return self.fd

    def writable(self):
        return True

    def isatty(self):
        return False

    def reconfigure(self, **_):
        pass

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        if text:
            self.output.put(self.name, self.fd, text)
        return len(text)

    def flush(self):
        self.output.flush()

    def close(self):
        pass  # print() must work on in the next cell


class Output:
    """Collects text for a moment, so that one print() is one line of the protocol, and keeps its order."""

    def __init__(self, wire):
        self.wire = wire
        self.lock = threading.RLock()
        self.name, self.parts, self.size = None, [], 0
        self.quiet = threading.Lock()  # open: there is something for the flusher
        self.quiet.acquire()
        self.raw = {}  # reading end -> (stream name, decoder)
        self.poll = select.poll()  # of these, for whoever has the lock
        self.fed = False  # something came through them since the last cell's end
        self.fflush = None
        self.stdout = Stream(self, "stdout", 1)
        self.stderr = Stream(self, "stderr", 2)

    def start(self):
        """Put our pipes at 1 and 2 and begin to listen to them."""
        for name, fd in (("stdout", 1), ("stderr", 2)):
            r, w = os.pipe()
            try:
                fcntl.fcntl(w, 1031, 1 << 20)  # F_SETPIPE_SZ: room for code that prints while it holds the interpreter
            except OSError:
                pass
            os.set_blocking(r, False)
            os.dup2(w, fd, inheritable=True)
            os.close(w)
            self.raw[r] = (name, codecs.getincrementaldecoder("utf-8")("replace"))
            self.poll.register(r, select.POLLIN)
        sys.stdout, sys.stderr = self.stdout, self.stderr
        os.register_at_fork(after_in_child=self._in_child)
        threading.Thread(target=self._flusher, name="hutch-flush", daemon=True).start()
        threading.Thread(target=self._reader, name="hutch-read", daemon=True).start()

    def _in_child(self):
        self.lock = threading.RLock()
        self.parts, self.size = [], 0

    def put(self, name, fd, text):
        if self.wire.child:  # it prints through the pipe, like any other program
            data = text.encode("utf-8", "replace")
            while data:
                data = data[os.write(fd, data):]
            return
        with self.lock:
            if fd and not (text == "\n" and self.parts):  # print() comes twice: once is enough to ask
                self._take()  # what a command or a library has printed meanwhile comes first
            if self.name != name:
                self.flush()
                self.name = name
            self.parts.append(text)
            self.size += len(text)
            if self.size >= PIECE:
                self.flush()
            elif self.quiet.locked():
                self.quiet.release()

    def flush(self):
        if not self.parts or self.wire.child:
            return
        with self.lock:
            if self.parts:
                text, self.parts, self.size = "".join(self.parts), [], 0
                self.wire.text(self.name, text)

    def _flusher(self):
        while True:
            self.quiet.acquire()
            time.sleep(DELAY)
            self.quiet.acquire(False)  # what came meanwhile goes now
            self.flush()

    def _take(self):
        """Whatever lies in the pipes now, and not what is printed while we look: a command in the background may never stop."""
        with self.lock:
            for r, _ in self.poll.poll(0):
                name, decoder = self.raw[r]
                left = int.from_bytes(fcntl.ioctl(r, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)
                while left > 0:
                    b = os.read(r, min(left, 65536))
                    left -= len(b)
                    self.fed = True
                    text = decoder.decode(b)
                    if text:
                        self.put(name, 0, text)

    def _reader(self):
        poll = select.poll()
        for r in self.raw:
            poll.register(r, select.POLLIN)
        while True:
            poll.poll()
            self._take()

    def drain(self):
        """At the end of a cell: everything printed so far is on the wire afterwards."""
        ctypes = sys.modules.get("ctypes")
        if ctypes:  # what C code printed may still lie in its buffers
            try:
                if not self.fflush:
                    self.fflush = ctypes.CDLL(None).fflush
                self.fflush(None)
            except Exception:
                pass
        with self.lock:
            self._take()
            if self.fed:
                self.fed = False
                for name, decoder in self.raw.values():
                    rest = decoder.decode(b"", True)
                    decoder.reset()
                    if rest:
                        self.put(name, 0, rest)
            self.flush()

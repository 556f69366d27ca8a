"""Interrupts that are heard for certain.

Python notes a SIGINT and runs its handler at the next opportunity. A signal that comes just before a system call that waits
(time.sleep(), a read, a lock) finds the last opportunity gone: it is noted, nobody is woken, and the cell waits on. So every
signal also leaves a byte here, which the handler takes away; where one stays, the main thread is struck again."""
import fcntl
import os
import select
import signal
import socket
import threading
import time

FIRST, LAST = 0.05, 1.0  # seconds between two strikes, doubling


def _out_of_the_way(end):
    """Numbers nobody expects: code that closes what it does not know shall not hit these."""
    moved = socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 200))
    end.close()
    moved.setblocking(False)
    return moved


class Ears:
    """Made in the main thread, with SIGINT blocked: the thread begins so, and no other than the main one is to have it."""

    def __init__(self, handler):
        self.handler = handler
        self.notes, self.pen = map(_out_of_the_way, socket.socketpair())
        self.child = False
        os.register_at_fork(after_in_child=self.forked)
        signal.signal(signal.SIGINT, self.on_sigint)
        signal.set_wakeup_fd(self.pen.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self.watch, name="hutch-ears", daemon=True).start()

    def forked(self):
        self.child = True
        signal.set_wakeup_fd(-1)

    def on_sigint(self, signo, frame):
        if not self.child:
            self.forget()
        self.handler(signo, frame)

    def forget(self):
        try:
            while self.notes.recv(4096):
                pass
        except OSError:
            pass

    def unheard(self):
        """Whether a SIGINT waits for our handler. Notes of other signals, and those for a handler that the code put in its
        place, are nothing to us."""
        try:
            noted = self.notes.recv(4096, socket.MSG_PEEK)
        except OSError:
            return False
        if signal.SIGINT in noted and signal.getsignal(signal.SIGINT) == self.on_sigint:
            return True
        self.forget()
        return False

    def watch(self):
        main = threading.main_thread().ident
        ready = select.poll()
        ready.register(self.notes, select.POLLIN)
        while True:
            ready.poll()
            wait = FIRST
            while self.unheard():
                time.sleep(wait)
                if self.unheard():
                    signal.pthread_kill(main, signal.SIGINT)
                wait = min(2 * wait, LAST)

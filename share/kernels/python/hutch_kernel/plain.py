"""Cells without IPython: the same behaviour where code relies on it. The value of a trailing expression is displayed,
`!cmd` runs a shell command, `%` and `%%` are magics (see magics.py), `await` works at top level, indented code is taken
as it is, `_` and `Out` hold results, tracebacks show the cell's lines and not ours."""
import ast
import builtins
import inspect
import linecache
import os
import re
import signal
import subprocess
import sys
import textwrap
import traceback
import types

from . import magics, rich


def shell_command(cmd):
    """Run through the shell with output in our pipes; returns the status (negative: the signal)."""
    with subprocess.Popen(cmd, shell=True, executable="/bin/bash" if os.path.exists("/bin/bash") else None, stdin=subprocess.DEVNULL, stdout=1, stderr=2) as p:
        while True:
            try:
                return p.wait()
            except KeyboardInterrupt:  # the command got the same signal
                try:
                    p.wait(1)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()
                raise


def shell_output(cmd):
    """`x = !cmd`: its lines."""
    p = subprocess.run(cmd, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    return p.stdout.splitlines()


_ESCAPE = re.compile(r"^(\s*)(?:([A-Za-z_][\w.,\s]*?)\s*=\s*)?(!!?|%)\s*(.*)$")


def transform(code):
    """IPython's syntax as Python. Code that is Python already is left alone, strings and all."""
    code = textwrap.dedent(code.expandtabs(8) if code.startswith("\t") else code)
    if code.lstrip().startswith("%%"):
        head, _, body = code.lstrip().partition("\n")
        name, _, line = head[2:].partition(" ")
        return "get_ipython().run_cell_magic(%r, %r, %r)" % (name, line.strip(), body)
    try:
        _parse(code)
        return code
    except SyntaxError:
        pass
    out, changed = [], False
    lines = code.split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        m = _ESCAPE.match(line)
        if m and not (m.group(3) == "%" and not m.group(4)):
            indent, target, kind, rest = m.groups()
            while rest.endswith("\\") and i + 1 < len(lines):
                i += 1
                rest = rest[:-1] + lines[i].strip()
            if kind == "%":
                name, _, args = rest.partition(" ")
                call = "get_ipython().run_line_magic(%r, %r)" % (name, args.strip())
            elif target or kind == "!!":
                call = "get_ipython().getoutput(%r)" % rest
            else:
                call = "get_ipython().system(%r)" % rest
            line = indent + (target + " = " if target else "") + call
            changed = True
        out.append(line)
        i += 1
    if changed:
        new = "\n".join(out)
        try:
            _parse(new)
            return new
        except SyntaxError:
            pass
    return code


def _parse(code, name="<cell>"):
    return compile(code, name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


class Facade:
    """get_ipython() of a kernel without IPython."""

    def __init__(self, shell):
        self._shell = shell
        self.user_ns = shell.namespace

    def _expand(self, text):
        def value(m):
            name = m.group(1) or m.group(2)
            try:
                return str(eval(name, self.user_ns))
            except Exception:
                return m.group(0)
        return re.sub(r"\{([^{}]+)\}|\$([A-Za-z_]\w*)", value, text)

    def system(self, cmd):
        self._shell.out.flush()
        self.user_ns["_exit_code"] = shell_command(self._expand(cmd))

    def getoutput(self, cmd):
        return shell_output(self._expand(cmd))

    def run_line_magic(self, name, line):
        return self._shell.magics.line(name, self._expand(line))

    def run_cell_magic(self, name, line, cell):
        return self._shell.magics.cell(name, self._expand(line), cell)


class Shell:
    def __init__(self, out, wire):
        self.out, self.wire, self.failed = out, wire, False
        self.count = 1
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        self.namespace = self.module.__dict__
        self.facade = Facade(self)
        self.magics = magics.Magics(self)
        self.reset()
        builtins.get_ipython = lambda: self.facade
        builtins.display = self.display

    def reset(self):
        for name in list(self.namespace):
            if not name.startswith("__"):
                del self.namespace[name]
        self.namespace.update({"__builtins__": builtins, "__name__": "__main__", "In": [""], "Out": {}})

    # ---- showing ----
    def display(self, *values, raw=False, **_):
        """Show values in the results of this cell."""
        for v in values:
            if raw:
                self.publish_data(v, main=False)
            else:
                self.publish(v)

    def publish(self, value):
        self.publish_data(rich.bundle(value), main=False)

    def publish_data(self, data, main):
        self.out.flush()
        self.wire.result(rich.settle(data), main)

    def error(self, name, value, trace):
        if not self.failed:
            self.failed = True
            self.out.flush()
            self.wire.event("error", id=self.wire.current, name=name, value=value, traceback=trace)

    def show_error(self):
        kind, e, tb = sys.exc_info()
        here = os.path.dirname(__file__) + os.sep
        while tb is not None and tb.tb_frame.f_code.co_filename.startswith(here):
            tb = tb.tb_next
        rule = "-" * 75 + "\n"
        lines = traceback.format_exception(kind, e, tb)
        self.error(kind.__name__, str(e), rule + "".join(lines).rstrip("\n"))

    def last_value(self, value):
        if value is None:
            return
        ns = self.namespace
        if ns.get("_") is not value:
            ns["___"], ns["__"], ns["_"] = ns.get("__", ""), ns.get("_", ""), value
        ns["_%d" % self.count] = ns["Out"][self.count] = value
        if type(value) in rich.ONE_LINE:
            self.out.flush()
            self.wire.value(repr(value))
        else:
            self.publish_data(rich.bundle(value), main=True)

    # ---- running ----
    def begin(self, code):
        """Runs the cell, or returns what is to be awaited for that."""
        rest = None
        self.namespace["In"].append(code)
        try:
            rest = self.run_code(code)
        except BaseException:
            self.show_error()
        finally:
            self.count += rest is None
        return rest and self.finish(rest)

    async def finish(self, rest):
        try:
            await rest
        except BaseException as e:
            if isinstance(e, GeneratorExit):
                raise
            self.show_error()
        finally:
            self.count += 1

    def forget(self, count):
        """As if no cell had run since the one with this number was the next."""
        self.count = count
        del self.namespace["In"][count:]
        self.namespace["Out"].clear()

    def run_code(self, code, name=None):
        """As begin(), without the cell around it."""
        name = name or "Cell In[%d]" % self.count
        text = transform(code)
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        tree = _parse(text, name)
        quiet = text.rstrip().endswith(";")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts = [compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)] if tree.body else []
        if last is not None:
            parts.append(compile(ast.Expression(last.value), name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        show = last is not None and not quiet
        if any(p.co_flags & inspect.CO_COROUTINE for p in parts):
            return self.awaited(parts, show)
        value = None
        for part in parts:
            value = eval(part, self.namespace)
        if show:
            self.last_value(value)
        return None

    async def awaited(self, parts, show):
        value = None
        for part in parts:
            value = eval(part, self.namespace)
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
        if show:
            self.last_value(value)

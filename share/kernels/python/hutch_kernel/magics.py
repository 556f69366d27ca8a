"""The magics that code in the wild uses, for kernels without IPython."""
import io
import os
import shlex
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout


class Magics:
    def __init__(self, shell):
        self.shell = shell

    def line(self, name, line):
        fn = getattr(self, "line_" + name, None)
        if not fn:
            raise NameError("%%%s is not available without IPython" % name)
        return fn(line)

    def cell(self, name, line, cell):
        fn = getattr(self, "cell_" + name, None)
        if not fn:
            raise NameError("%%%%%s is not available without IPython" % name)
        return fn(line, cell)

    # ---- the shell ----
    def line_cd(self, line):
        path = os.path.expanduser(line.strip().strip("'\"") or "~")
        os.chdir(path)
        print(os.getcwd())

    def line_pwd(self, line):
        return os.getcwd()

    def line_ls(self, line):
        self.shell.facade.system("ls " + line)

    def line_env(self, line):
        if not line:
            return dict(os.environ)
        for sep in ("=", " "):
            if sep in line:
                k, _, v = line.partition(sep)
                os.environ[k.strip()] = v.strip()
                print("env: %s=%s" % (k.strip(), v.strip()))
                return None
        return os.environ[line]

    line_set_env = line_env

    def line_pip(self, line):
        self.shell.facade.system(shlex.quote(sys.executable) + " -m pip " + line)

    def line_sx(self, line):
        return self.shell.facade.getoutput(line)

    def _script(self, argv, cell):
        self.shell.out.flush()
        p = subprocess.run(argv, input=cell.encode(), stdout=1, stderr=2)
        if p.returncode:
            raise subprocess.CalledProcessError(p.returncode, argv)

    def cell_bash(self, line, cell):
        self._script(["bash", *shlex.split(line)], cell)

    def cell_sh(self, line, cell):
        self._script(["sh", *shlex.split(line)], cell)

    def cell_script(self, line, cell):
        self._script(shlex.split(line), cell)

    # ---- files ----
    def cell_writefile(self, line, cell):
        args = shlex.split(line)
        mode = "a" if "-a" in args or "--append" in args else "w"
        path = os.path.expanduser([a for a in args if not a.startswith("-")][0])
        print(("Appending to " if mode == "a" else "Overwriting " if os.path.exists(path) else "Writing ") + path)
        with open(path, mode) as f:
            f.write(cell)

    def line_run(self, line):
        args = shlex.split(line)
        path = os.path.expanduser(args[0])
        kept = sys.argv
        sys.argv = args
        try:
            with open(path) as f:
                exec(compile(f.read(), path, "exec"), self.shell.namespace)
        finally:
            sys.argv = kept

    # ---- time ----
    def _timed(self, code):
        wall, cpu = time.perf_counter(), time.process_time()
        value = None
        try:
            value = eval(compile(code, "<timed>", "eval"), self.shell.namespace)
        except SyntaxError:
            exec(compile(code, "<timed>", "exec"), self.shell.namespace)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print("CPU times: total: %s\nWall time: %s" % (_span(cpu), _span(wall)))
        return value

    def line_time(self, line):
        return self._timed(line)

    def cell_time(self, line, cell):
        return self._timed(cell)

    def line_timeit(self, line):
        import timeit
        t = timeit.Timer(line, globals=self.shell.namespace)
        n, _ = t.autorange()
        runs = [v / n for v in t.repeat(7, n)]
        mean = sum(runs) / len(runs)
        dev = (sum((v - mean) ** 2 for v in runs) / len(runs)) ** 0.5
        print("%s ± %s per loop (mean ± std. dev. of 7 runs, %d loops each)" % (_span(mean), _span(dev), n))

    def cell_timeit(self, line, cell):
        self.line_timeit((line + "\n" if line else "") + cell)

    # ---- the namespace ----
    def _names(self):
        return sorted(k for k in self.shell.namespace if not k.startswith("_") and k not in ("In", "Out"))

    def line_who(self, line):
        print("  ".join(self._names()) or "Interactive namespace is empty.")

    def line_who_ls(self, line):
        return self._names()

    def line_whos(self, line):
        for k in self._names():
            print("%-20s %-16s %.60r" % (k, type(self.shell.namespace[k]).__name__, self.shell.namespace[k]))

    def line_reset(self, line):
        self.shell.reset()

    def line_history(self, line):
        print("\n".join(self.shell.namespace["In"][1:]))

    # ---- display ----
    def cell_capture(self, line, cell):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            exec(compile(cell, "<captured>", "exec"), self.shell.namespace)
        if line.strip():
            self.shell.namespace[line.strip()] = type("Captured", (), {"stdout": out.getvalue(), "stderr": err.getvalue(), "__str__": lambda s: s.stdout})()

    def _show(mime):
        def show(self, line, cell):
            self.shell.publish_data({mime: cell}, main=False)
        return show

    cell_html, cell_HTML = _show("text/html"), _show("text/html")
    cell_markdown, cell_latex, cell_svg, cell_SVG = _show("text/markdown"), _show("text/latex"), _show("image/svg+xml"), _show("image/svg+xml")
    cell_javascript, cell_js = _show("application/javascript"), _show("application/javascript")

    # ---- nothing to do here ----
    def _nothing(self, line):
        return None

    line_matplotlib = line_config = line_load_ext = line_reload_ext = line_autoreload = line_precision = _nothing


def _span(s):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if s >= size:
            return "%.3g %s" % (s / size, unit)
    return "%.3g ns" % (s / 1e-9)

"""Cells through IPython: its syntax, magics, formatters and tracebacks, with our publishing."""
import sys
import warnings

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.lib.pretty import _repr_pprint
from traitlets.config import Config

from . import rich
from .light import Light, underscores, values


class _Hook(DisplayHook):
    def __init__(self, shell=None, **kwargs):
        super().__init__(shell=shell, **kwargs)
        self.ip, self.hutch, self.names = shell, shell.hutch, shell.user_ns
        self.format, self.bare = shell.display_formatter.format, shell.display_formatter.bare
        self.counts = values(shell, "execution_count")
        self.history = values(shell.history_manager, "input_hist_parsed", "output_hist_reprs")
        self.mine = values(self, "exec_result")

    def quiet(self):
        cells = self.history["input_hist_parsed"]
        return bool(cells) and ";" in cells[-1] and super().quiet()

    def __call__(self, result=None):
        self.check_for_underscore()
        if result is None or self.quiet():
            return
        text, data = self.bare(result), None
        if text is None:
            data, _ = self.format(result)
        number = self.counts["execution_count"]
        underscores(self, self.names, number, result)
        if self.mine["exec_result"] is not None:
            self.mine["exec_result"].result = result
        if data:
            self.hutch.publish_data(data, main=True)
            self.log_output(data)
        elif text is not None:
            self.hutch.publish_text(text)
            self.history["output_hist_reprs"][number] = text
            if self.ip.logger.log_output:
                self.log_output({"text/plain": text})


class _Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        self.shell.hutch.publish_data(data, main=False)

    def clear_output(self, wait=False):
        pass  # a stream of lines cannot take anything back


# Values that have nothing but their text, unless somebody registered more for their type: asking a dozen formatters costs more than all the rest.
BARE = (bool, int, float, complex, str, bytes, list, tuple, dict, set)


class _Formatter(DisplayFormatter):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.text = self.formatters["text/plain"]
        self.printers = self.text.type_printers
        self.others = [f.type_printers for mime, f in self.formatters.items() if mime != "text/plain"]
        self.registered = sum(map(len, self.others))

    def _only_text(self, kind):
        return kind in BARE and (sum(map(len, self.others)) == self.registered or not any(kind in printers for printers in self.others))

    def bare(self, obj):
        """Its text, if that is all there is of it and repr(); else None."""
        kind = type(obj)
        if kind in rich.ONE_LINE and self._only_text(kind) and self.printers.get(kind, _repr_pprint) is _repr_pprint:
            return repr(obj)
        return None

    def format(self, obj, include=None, exclude=None):
        data, metadata = {}, {}
        if self._only_text(type(obj)):
            data["text/plain"] = self.text(obj)
        else:
            data, metadata = super().format(obj, include, exclude)
        if data:
            rich.augment(obj, data)
            if include:
                data = {k: v for k, v in data.items() if k in include or k.startswith("e2b/")}
            if exclude:
                data = {k: v for k, v in data.items() if k not in exclude}
        return data, metadata


class _Shell(InteractiveShell):
    hutch = None

    def init_display_formatter(self):
        self.display_formatter = _Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return "inline", "agg"  # figures are shown as results whatever is asked for

    def ask_exit(self):
        pass

    def _showtraceback(self, etype, evalue, stb):
        self.hutch.error(etype.__name__, str(evalue), self.InteractiveTB.stb2text(stb) if not isinstance(stb, str) else stb)

    def system(self, cmd):
        """`!cmd`: through the pipes at 1 and 2, so its output comes as it is printed."""
        self.user_ns["_exit_code"] = self.hutch.shell_command(self.var_expand(cmd, depth=1))


class Shell:
    """What the loop drives. `out` is the Output, `wire` the Wire."""

    def __init__(self, out, wire):
        self.out, self.wire, self.failed = out, wire, False
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "NoColor"
        config.InteractiveShell.xmode = "Context"
        config.InteractiveShell.autoindent = False
        config.PlainTextFormatter.max_seq_length = 0
        _Shell.hutch = self
        self.ip = _Shell.instance(config=config, displayhook_class=_Hook, display_pub_class=_Publisher)
        self.namespace = self.ip.user_ns
        self.values = values(self.ip, "execution_count")
        self.light = Light(self.ip)
        warnings.filterwarnings("ignore", message="To exit: use")  # a cell cannot leave

    @property
    def count(self):
        return self.values["execution_count"]

    def publish_data(self, data, main):
        self.out.flush()
        self.wire.result(rich.settle(data), main)

    def publish_text(self, text):
        self.out.flush()
        self.wire.value(text)

    def publish(self, value):
        from IPython.display import display
        display(value)

    def error(self, name, value, traceback):
        if not self.failed:
            self.failed = True
            self.out.flush()
            self.wire.event("error", id=self.wire.current, name=name, value=value, traceback=traceback)

    def shell_command(self, cmd):
        from .plain import shell_command
        self.out.flush()
        return shell_command(cmd)

    def begin(self, code):
        """Runs the cell, or returns what is to be awaited for that."""
        plan = self.light.plan(code)
        if not plan:
            return self.run(code)
        self.settle(self.light.run(code, plan))
        return None

    async def run(self, code):
        """The whole of IPython."""
        ip = self.ip
        broken = None
        try:
            cell = ip.transform_cell(code)
        except Exception:
            broken = sys.exc_info()
            cell = code
        result = None
        try:
            result = await ip.run_cell_async(code, store_history=True, transformed_cell=cell, preprocessing_exc_tuple=broken)
        finally:
            ip.events.trigger("post_execute")
            ip.events.trigger("post_run_cell", result)
        self.settle(result)

    def settle(self, result):
        """SystemExit of a cell is an error of that cell."""
        if result is not None and result.error_in_exec is not None and not self.failed:
            e = result.error_in_exec
            self.error(type(e).__name__, str(e), type(e).__name__ + ": " + str(e))

    def forget(self, count):
        """As if no cell had run since the one with this number was the next."""
        h = self.ip.history_manager
        self.ip.execution_count = count
        del h.input_hist_parsed[count:], h.input_hist_raw[count:]
        h._i = h._ii = h._iii = h._i00 = ""
        self.ip.displayhook._ = self.ip.displayhook.__ = self.ip.displayhook.___ = ""
        self.namespace["Out"].clear()

"""Cells that are Python as they stand, without IPython's layers in between.

Most cells need none of what IPython's run_cell() can do, and under emulation its hundreds of calls cost more than the cell.
What such a cell is to see of IPython is the same: In, Out, _, the traceback, the cell's number. Everything else (magics,
shell lines, indented code, top-level await, hooks that somebody registered) is IPython's own, as is whatever is not
understood here: plan() says None then."""
import ast
import builtins
import inspect
import re
import sys

from IPython.core.autocall import IPyAutocall
from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult
from IPython.core.macro import Macro

WORD = re.compile(r"[^\W\d][\w.]*")


def put(obj, **traits):
    """Set traits that nobody observes, without asking who does: that takes ten times as long."""
    obj._trait_values.update(traits)


class Light:
    def __init__(self, ip):
        self.ip = ip
        self.namespace, self.history, self.hook, self.magics = ip.user_ns, ip.history_manager, ip.displayhook, ip.magics_manager.magics["line"]
        tm = ip.input_transformer_manager
        self.lists = [*ip.events.callbacks.values(), tm.cleanup_transforms, tm.line_transforms, tm.token_transformers]
        self.hooks = self._hooks()
        # for good: a cell need not put them in place and take them away again
        ip.builtin_trap.__enter__()
        ip.display_trap.__enter__()

    def _hooks(self):
        """Where others can reach into the life of a cell."""
        ip = self.ip
        return [*map(len, self.lists), len(ip.input_transformers_post), len(ip.ast_transformers), ip.custom_exceptions, ip.ast_node_interactivity, ip.autocall,
                ip.logger.log_active]

    def plan(self, code):
        """[code objects] and the cell's name, or None."""
        ip = self.ip
        if not code or code[0] in " \t\n%!?" or code.startswith("In [") or self._hooks() != self.hooks:
            return None
        word = WORD.match(code)
        if word and "\n" not in code.rstrip("\n"):  # one line may be a magic without its sign
            word = word.group()
            if word in self.magics or isinstance(self.namespace.get(word), (Macro, IPyAutocall)):
                return None
        compiler = ip.compile
        flags = compiler.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        text = code if code.endswith("\n") else code + "\n"
        try:
            tree = compile(text, "<cell>", "exec", flags | ast.PyCF_ONLY_AST, True)
            body = tree.body
            if not body or isinstance(body[0], ast.ImportFrom) and body[0].module == "__future__":
                return None
            name = compiler.cache(text, ip.execution_count, raw_code=code)
            last = [ast.Interactive([body.pop()])] if isinstance(body[-1], ast.Expr) else []
            parts = [compile(tree, name, "exec", flags, True)] if body else []
            parts += [compile(node, name, "single", flags, True) for node in last]
        except Exception:
            return None
        if any(p.co_flags & inspect.CO_COROUTINE for p in parts):
            return None
        return parts, text

    def run(self, code, plan):
        ip = self.ip
        parts, text = plan
        result = ExecutionResult(ExecutionInfo(code, True, False, True, None))
        result.execution_count = number = ip.execution_count
        self.namespace.pop("__warningregistry__", None)
        self._remember(number, text.rstrip("\n"), code.rstrip("\n"))
        put(self.hook, exec_result=result)
        kept = sys.excepthook
        sys.excepthook = ip.excepthook
        ok = False
        try:
            ok = self._execute(parts, result)
        finally:
            sys.excepthook = kept
            put(self.hook, exec_result=None)
            put(ip, last_execution_succeeded=ok, last_execution_result=result, execution_count=number + 1)
        return result

    def _execute(self, parts, result):
        __tracebackhide__ = "__ipython_bottom__"  # IPython's sign: frames above this one are nobody's business
        ip = self.ip
        try:
            for part in parts:
                exec(part, ip.user_global_ns, ip.user_ns)
            return True
        except SystemExit as e:
            result.error_in_exec = e
            ip.showtraceback(exception_only=True)
        except BaseException as e:
            result.error_in_exec = e
            ip.showtraceback(running_compiled_code=True)
        return False

    def _remember(self, number, text, raw):
        """In, _i and their kin. There is no database behind them here."""
        h = self.history
        h.input_hist_parsed.append(text)
        h.input_hist_raw.append(raw)
        earlier = {"_i": h._i00, "_ii": h._i, "_iii": h._ii}
        put(h, _i00=raw, **earlier)
        self.namespace.update(earlier)
        self.namespace["_i%d" % number] = raw


def underscores(hook, value):
    """DisplayHook.update_user_ns(): _, __, ___, _3 and Out[3], unless the code uses these names itself."""
    ns = hook.shell.user_ns
    out = ns["_oh"]
    if value is out or not hook.cache_size:
        return
    if len(out) >= hook.cache_size and hook.do_full_cache:
        hook.cull_cache()
    mine = all(name not in ns or getattr(hook, name) is ns[name] for name in ("_", "__", "___"))
    hook.___, hook.__, hook._ = hook.__, hook._, value
    if mine and "_" not in builtins.__dict__:
        ns["_"], ns["__"], ns["___"] = hook._, hook.__, hook.___
    if hook.do_full_cache:
        number = hook.prompt_count
        ns["_%d" % number] = out[number] = value

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
COMPOUND = frozenset(("if", "for", "while", "with", "try", "def", "class", "async", "match"))  # what begins like this contains statements


def values(obj, *names):
    """The values of an object's traits. To go by them, past the descriptors that nobody has use for here, takes a tenth of the time."""
    for name in names:
        getattr(obj, name)  # it has one from here on
    return obj._trait_values


class Light:
    def __init__(self, ip):
        self.ip = ip
        self.namespace, self.magics = ip.user_ns, ip.magics_manager.magics["line"]
        self.values = values(ip, "execution_count", "input_transformers_post", "ast_transformers", "ast_node_interactivity", "autocall")
        self.history = values(ip.history_manager, "input_hist_parsed", "input_hist_raw", "_i00", "_i", "_ii", "_iii")
        self.hook = values(ip.displayhook, "exec_result")
        tm = ip.input_transformer_manager
        self.lists = [*ip.events.callbacks.values(), tm.cleanup_transforms, tm.line_transforms, tm.token_transformers]
        self.hooks = self._hooks()
        # for good: a cell need not put them in place and take them away again
        ip.builtin_trap.__enter__()
        ip.display_trap.__enter__()

    def _hooks(self):
        """Where others can reach into the life of a cell."""
        ip, v = self.ip, self.values
        return [*map(len, self.lists), len(v["input_transformers_post"]), len(v["ast_transformers"]), v["ast_node_interactivity"], v["autocall"],
                ip.custom_exceptions, ip.logger.log_active]

    def plan(self, code):
        """[code objects] and the cell's name, or None."""
        if code[:1] in " \t\n%!?" or code.startswith("In [") or "__future__" in code or self._hooks() != self.hooks:
            return None
        text = code if code.endswith("\n") else code + "\n"
        compiler, number = self.ip.compile, self.values["execution_count"]
        flags = compiler.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            if "\n" not in code.rstrip("\n"):
                match = WORD.match(code)
                word = match and match.group()
                if word in self.magics or isinstance(self.namespace.get(word), (Macro, IPyAutocall)):  # one line may be a magic without its sign
                    return None
                if ";" not in code and word not in COMPOUND:  # one statement: it need not be taken apart
                    part = compile(text, compiler.cache(text, number, raw_code=code), "single", flags, True)
                    return None if part.co_flags & inspect.CO_COROUTINE else ([part], text)
            tree = compile(text, "<cell>", "exec", flags | ast.PyCF_ONLY_AST, True)
            body = tree.body
            if not body:
                return None
            name = compiler.cache(text, number, raw_code=code)
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
        result.execution_count = number = self.values["execution_count"]
        self.namespace.pop("__warningregistry__", None)
        self._remember(number, text.rstrip("\n"), code.rstrip("\n"))
        self.hook["exec_result"] = result
        kept = sys.excepthook
        sys.excepthook = ip.excepthook
        ok = False
        try:
            ok = self._execute(parts, result)
        finally:
            sys.excepthook = kept
            self.hook["exec_result"] = None
            self.values.update(last_execution_succeeded=ok, last_execution_result=result, execution_count=number + 1)
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
        h["input_hist_parsed"].append(text)
        h["input_hist_raw"].append(raw)
        earlier = {"_i": h["_i00"], "_ii": h["_i"], "_iii": h["_ii"]}
        h.update(earlier)
        h["_i00"] = raw
        self.namespace.update(earlier)
        self.namespace["_i%d" % number] = raw


def underscores(hook, ns, number, value):
    """DisplayHook.update_user_ns(): _, __, ___, _3 and Out[3], unless the code uses these names itself."""
    out = ns["_oh"]
    if value is out or not hook.cache_size:
        return
    if len(out) >= hook.cache_size and hook.do_full_cache:
        hook.cull_cache()
    a, b, c = hook._, hook.__, hook.___
    hook.___, hook.__, hook._ = b, a, value
    if ns.get("_", a) is a and ns.get("__", b) is b and ns.get("___", c) is c and "_" not in builtins.__dict__:
        ns["_"], ns["__"], ns["___"] = value, a, b
    if hook.do_full_cache:
        ns["_%d" % number] = out[number] = value

"""What a value looks like: MIME bundles, and the libraries that need help to show themselves.

Values of a bundle are strings; bytes become base64, objects for JSON types become JSON text."""
import base64
import datetime
import decimal
import importlib.abc
import importlib.machinery
import io
import json
import math
import pprint
import sys

ONE_LINE = frozenset((bool, int, float, str))  # kinds that have nothing but their text, which is repr()
JSON_DEPTH = 24  # hutchd reads 32 levels, some of them are its own
REPRS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


class Unfit(Exception):
    """Not something for JSON."""


def plain(value, depth=0):
    """value as what json.dumps takes; NaN becomes None, dates ISO strings. Unfit if it is not that kind of thing."""
    if value is None or value is True or value is False or type(value) is str:
        return value
    if depth > JSON_DEPTH:
        raise Unfit
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        out = {}
        for k, v in value.items():
            if not isinstance(k, (str, int, float, bool)) and k is not None:
                k = str(k)
            out[k] = plain(v, depth + 1)
        return out
    if isinstance(value, (list, tuple)):
        return [plain(v, depth + 1) for v in value]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat() if value == value else None  # NaT is not equal to itself
    if isinstance(value, decimal.Decimal):
        return float(value) if value.is_finite() else None
    item = getattr(value, "item", None)  # numpy's scalars
    if callable(item) and getattr(value, "shape", None) == ():
        return plain(item(), depth + 1)
    raise Unfit


def to_json(value):
    """JSON text, or None."""
    try:
        return json.dumps(plain(value), allow_nan=False)
    except (Unfit, ValueError, TypeError, RecursionError):
        return None


def is_json(mime):
    return mime == "application/json" or mime.startswith("e2b/") or mime.endswith("+json")


def settle(data):
    """A bundle as some library made it -> strings only."""
    out = {}
    for mime, value in data.items():
        if value is None:
            continue
        if is_json(mime):
            value = to_json(value)
        elif isinstance(value, (bytes, bytearray)):
            value = base64.b64encode(value).decode("ascii")
        elif isinstance(value, (dict, list)):
            value = to_json(value)
        elif not isinstance(value, str):
            value = str(value)
        elif mime.startswith("image/") and not mime.startswith("image/svg"):
            value = value.replace("\n", "")
        if value is not None:
            out[mime] = value
    return out


def text_of(value):
    try:
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return pprint.pformat(value, width=79, sort_dicts=False)
        return repr(value)
    except Exception as e:
        return "<%s: its repr() failed: %s>" % (type(value).__name__, e)


def bundle(value):
    """The MIME bundle of a value, without IPython. Not settled."""
    data = {}
    cls = type(value)
    whole = getattr(cls, "_repr_mimebundle_", None)
    if whole:
        try:
            got = value._repr_mimebundle_(include=None, exclude=None)
            data.update(got[0] if isinstance(got, tuple) else got or {})
        except Exception:
            pass
    for method, mime in REPRS:
        if mime in data or not hasattr(cls, method):
            continue
        try:
            got = getattr(value, method)()
        except Exception:
            continue
        if got is not None:
            data[mime] = got[0] if isinstance(got, tuple) else got
    data.setdefault("text/plain", text_of(value))
    augment(value, data)
    return data


def augment(value, data):
    """What neither IPython nor the object says by itself."""
    if isinstance(value, (dict, list)):
        data.setdefault("application/json", value)
        return
    module = type(value).__module__
    if module.startswith("matplotlib.") and _is_figure(value):
        data.update(figure(value))
    elif module.startswith("pandas.") and "pandas" in sys.modules and isinstance(value, sys.modules["pandas"].DataFrame):
        data["e2b/data"] = frame(value)


# ---- pandas ----

def frame(df):
    """{"column": [values]}; times as ISO strings."""
    out = {}
    for i, name in enumerate(df.columns):
        out[str(name)] = [_cell(v) for v in df.iloc[:, i].tolist()]
    return out


def _cell(v):
    try:
        return plain(v)
    except Unfit:
        return str(v)


# ---- matplotlib ----

def _is_figure(value):
    figure_ = sys.modules.get("matplotlib.figure")
    return figure_ is not None and isinstance(value, figure_.Figure)


def figure(fig):
    data = {"text/plain": "<Figure size %dx%d with %d Axes>" % (*fig.bbox.size, len(fig.axes))}
    b = io.BytesIO()
    fig.savefig(b, format="png", bbox_inches="tight")
    data["image/png"] = b.getvalue()
    try:
        from . import charts
        data["e2b/chart"] = charts.chart(fig)
    except Exception:
        pass  # an odd figure still has its picture
    return data


class Figures:
    """Shows what pyplot holds: at show(), and what is left when a cell ends. Knows no backend, so it works with all."""

    def __init__(self, publish):
        self.publish = publish  # value -> None

    def show(self):
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if not helpers or not helpers.Gcf.figs:
            return
        for manager in helpers.Gcf.get_all_fig_managers():
            fig = manager.canvas.figure
            helpers.Gcf.destroy(manager.num)
            if fig.axes or fig.texts or fig.images or fig.lines or fig.patches:
                self.publish(fig)


# ---- libraries that are helped as they are imported ----

class Helper(importlib.abc.MetaPathFinder):
    """Calls a function with a module right after it was loaded for the first time."""

    def __init__(self, table):
        self.table = table

    def now(self):
        for name in list(self.table):
            if name in sys.modules:
                self._help(name, sys.modules[name])

    def _help(self, name, module):
        fn = self.table.pop(name, None)
        if fn:
            try:
                fn(module)
            except Exception as e:
                print("hutch: %s could not be prepared: %s" % (name, e), file=sys.stderr)

    def find_spec(self, name, path=None, target=None):
        if name not in self.table:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec and spec.loader and hasattr(spec.loader, "exec_module"):
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    self._help(name, module)
                try:
                    spec.loader.exec_module = exec_module
                except AttributeError:
                    return None
                return spec
        return None


def helpers(show_figures, publish):
    def matplotlib(module):
        module.use("agg")

    def pyplot(module):
        def show(*args, **kwargs):
            """Show all figures in the results of this cell."""
            show_figures()
        module.show = show
        module.install_repl_displayhook = lambda: None  # draws after every cell what nobody looks at, and costs IPython's whole way for each
        module.ioff()

    def by_matplotlib(frame):
        """savefig() is on its way: the figure itself is shown anyway, with the data behind it."""
        return frame.f_globals.get("__name__", "").startswith("matplotlib.")

    def image(module):
        kept_save = module.Image.save

        def show(self, title=None, **kwargs):
            publish(self)

        def save(self, fp, format=None, **params):
            kept_save(self, fp, format, **params)
            if (isinstance(fp, str) or hasattr(fp, "__fspath__")) and not by_matplotlib(sys._getframe(1)):
                publish(self)
        module.Image.show, module.Image.save = show, save

    return Helper({"matplotlib": matplotlib, "matplotlib.pyplot": pyplot, "PIL.Image": image})

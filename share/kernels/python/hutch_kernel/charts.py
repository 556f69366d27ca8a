"""The data behind a matplotlib figure, in the form E2B's SDKs read: line, scatter, bar, pie, box_and_whisker,
superchart (several axes), unknown. The figure has been drawn before, so its tick labels are there."""
import re

from matplotlib import dates
from matplotlib.collections import PathCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Shadow, Wedge
from matplotlib.text import Text
from matplotlib.ticker import ScalarFormatter

POINTS_MAX = 100_000  # of one element


def chart(fig):
    charts = [c for c in map(_axes, fig.axes) if c]
    if not charts:
        return {}
    if len(charts) == 1:
        return charts[0]
    title = getattr(fig, "_suptitle", None)
    return {"type": "superchart", "title": (title.get_text() or None) if title else None, "elements": charts}


# ---- which kind ----

def _axes(ax):
    own = getattr(ax, "_children", None)
    if own is None:
        own = [*ax.lines, *ax.patches, *ax.collections, *ax.images]
    # The caps and bars of errorbar(), bar(yerr=) and their like say how sure the data are, and are none; the line through the points is.
    trimmings = [a for c in _error_bars(ax) for part in c.lines[1:] for a in part]
    own = [a for a in own if not isinstance(a, (Text, Shadow)) and a not in trimmings]
    if not own:
        return None
    kind, fn = _kind(own)
    out = {"type": kind, "title": ax.get_title() or None, "elements": []}
    if fn:
        out.update(fn(ax, own))
    return out


def _kind(own):
    if all(isinstance(a, Line2D) for a in own):
        return "line", _line
    if all(isinstance(a, (PathPatch, Line2D)) for a in own):
        return "box_and_whisker", _box
    rest = [a for a in own if not _is_rule(a)]
    if rest and all(isinstance(a, PathCollection) for a in rest):
        return "scatter", _scatter
    if rest and all(isinstance(a, Wedge) for a in rest):
        return "pie", _pie
    if rest and all(isinstance(a, Rectangle) for a in rest):
        return "bar", _bar
    return "unknown", None


def _error_bars(ax):
    return [c for c in ax.containers if isinstance(c, ErrorbarContainer)]


def _is_rule(a):
    """A straight line across: a grid or reference line, not data."""
    if not isinstance(a, Line2D):
        return False
    xs, ys = list(a.get_xdata()), list(a.get_ydata())
    return len(xs) == 2 and (xs[0] == xs[1] or ys[0] == ys[1])


# ---- numbers, labels, scales ----

def _number(v, digits=10):
    """A plain float, without the noise of the last digits."""
    return float("%.*g" % (digits, float(v)))


def _unit(label):
    m = re.search(r"\s\((.*?)\)|\[(.*?)\]", label or "")
    return (m.group(1) or m.group(2) or None) if m else None


def _names(ax):
    x, y = ax.get_xlabel() or None, ax.get_ylabel() or None
    return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}


def _swap(d):
    d["x_label"], d["y_label"] = d["y_label"], d["x_label"]
    d["x_unit"], d["y_unit"] = d["y_unit"], d["x_unit"]


def _is_date(axis):
    converter = axis.get_converter() if hasattr(axis, "get_converter") else getattr(axis, "converter", None)
    return isinstance(converter, (dates.DateConverter, dates._SwitchableDateConverter)) or isinstance(axis.get_major_locator(), dates.DateLocator)


def _date(v):
    return dates.num2date(v).isoformat()


def _ticks(axis, scale):
    at = axis.get_ticklocs()
    return [_date(v) for v in at] if scale == "datetime" else [float(v) for v in at]


def _tick_labels(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def _scale(axis):
    if _is_date(axis):
        return "datetime"
    if axis.get_scale() != "linear":
        return axis.get_scale()
    at, labels = list(axis.get_ticklocs()), _tick_labels(axis)
    if at and at == list(range(len(at))) and labels != [str(i) for i in range(len(at))] and any(labels):
        if not all(_same_number(t, v) for t, v in zip(labels, at)):
            return "categorical"
    return "linear"


def _same_number(text, v):
    try:
        return float(text.replace("\N{MINUS SIGN}", "-")) == v
    except ValueError:
        return False


def _grid(ax):
    d = _names(ax)
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        scale = _scale(axis)
        d[name + "_ticks"] = _ticks(axis, scale)
        d[name + "_tick_labels"] = _tick_labels(axis)
        d[name + "_scale"] = scale
    return d


def _points(d, xs, ys, given_xs=None, given_ys=None):
    def column(scale, values, given):
        if scale == "datetime":
            return [_date(v) for v in values]
        if scale == "categorical" and given is not None and len(given) == len(values) and all(isinstance(g, str) for g in given):
            return [str(g) for g in given]
        return [float(v) for v in values]
    xs, ys = list(xs)[:POINTS_MAX], list(ys)[:POINTS_MAX]
    return list(zip(column(d["x_scale"], xs, given_xs), column(d["y_scale"], ys, given_ys)))


# ---- the kinds ----

def _line(ax, own):
    d = _grid(ax)
    d["elements"] = []
    through = {c.lines[0]: c.get_label() for c in _error_bars(ax)}
    for line in own:
        label = str(through.get(line) or line.get_label())
        if label.startswith("_"):
            label = "Line %d" % (len(d["elements"]) + 1)
        xy = line.get_xydata()
        d["elements"].append({"label": label, "points": _points(d, xy[:, 0], xy[:, 1], _given(line.get_xdata(orig=True)), _given(line.get_ydata(orig=True)))})
    return d


def _given(values):
    try:
        return list(values)
    except TypeError:
        return None


def _scatter(ax, own):
    d = _grid(ax)
    d["elements"] = []
    for c in own:
        if not isinstance(c, PathCollection):
            continue
        label = str(c.get_label())
        if label.startswith("_"):
            label = "Scatter %d" % (len(d["elements"]) + 1)
        xy = c.get_offsets()
        d["elements"].append({"label": label, "points": _points(d, xy[:, 0], xy[:, 1])})
    return d


def _pie(ax, own):
    return {"elements": [{"label": w.get_label(), "angle": _number(abs(w.theta2 - w.theta1), 7), "radius": _number(w.r)} for w in own if isinstance(w, Wedge)]}


def _label_at(axis, centre, width):
    """The tick a bar or box stands on, or beside in a group; failing that, where it stands. Ticks that nobody named are a ruler: one of
    them near a bar says nothing."""
    reach = 1e-9 if isinstance(axis.get_major_formatter(), ScalarFormatter) else max(abs(width), 1e-9)
    best, far = None, None
    for at, tick in zip(axis.get_ticklocs(), axis.get_ticklabels()):
        if tick.get_text() and (far is None or abs(at - centre) < far):
            best, far = tick.get_text(), abs(at - centre)
    if best is not None and far <= reach:
        return best
    return "%.8g" % centre


def _bar(ax, own):
    d = _names(ax)
    bars = [a for a in own if isinstance(a, Rectangle)]
    groups = [(list(c.patches), str(c.get_label()), getattr(c, "orientation", None)) for c in ax.containers if hasattr(c, "patches")]
    if not groups:
        groups = [(bars, "_", None)]
    known = [g[2] for g in groups if g[2]]
    if known:
        lying = all(k == "horizontal" for k in known)
    else:
        lying = len(bars) > 1 and len({_number(b.get_height()) for b in bars}) == 1
    elements = []
    for i, (patches, name, _) in enumerate(groups):
        if name.startswith("_"):
            name = "Group %d" % (i + 1)
        for b in patches:
            if lying:
                label, value = _label_at(ax.yaxis, b.get_y() + b.get_height() / 2, b.get_height()), b.get_width()
            else:
                label, value = _label_at(ax.xaxis, b.get_x() + b.get_width() / 2, b.get_width()), b.get_height()
            elements.append({"label": label, "group": name, "value": _number(value)})
    if lying:
        _swap(d)
    d["elements"] = elements
    return d


def _box(ax, own):
    """A box is a patch; its whiskers, caps, median and outliers are lines about it."""
    d = _names(ax)
    boxes = [a for a in own if isinstance(a, PathPatch)]
    lines = [([float(v) for v in a.get_xdata()], [float(v) for v in a.get_ydata()], a) for a in own if isinstance(a, Line2D)]
    lying = _boxes_lie(boxes, lines)
    if lying:
        _swap(d)
        lines = [(ys, xs, a) for xs, ys, a in lines]
    elements = []
    for box in boxes:
        v = _corners(box)
        across, along = (v[:, 1], v[:, 0]) if lying else (v[:, 0], v[:, 1])
        elements.append(_one_box(ax.yaxis if lying else ax.xaxis, across, along, lines))
    d["elements"] = elements
    return d


def _corners(box):
    """Two opposite ones at least. The notch of a box that has one may reach beyond them."""
    v = box.get_path().vertices
    return v[[0, 5]] if len(v) in (11, 12) else v


def _boxes_lie(boxes, lines):
    """Whiskers leave a box in the middle of two opposite edges: which way?"""
    def leave(low, high, middle, along, across):
        return len(along) == 2 and all(abs(v - middle) < 1e-9 for v in across) and (abs(min(along) - high) < 1e-9 or abs(max(along) - low) < 1e-9)
    upright = flat = 0
    for box in boxes:
        v = _corners(box)
        (left, bottom), (right, top) = v.min(axis=0), v.max(axis=0)
        for xs, ys, _ in lines:
            upright += leave(bottom, top, (left + right) / 2, ys, xs)
            flat += leave(left, right, (bottom + top) / 2, xs, ys)
    return flat > upright


def _one_box(axis, across, along, lines):
    left, right, q1, q3 = across.min(), across.max(), along.min(), along.max()
    centre, eps = (left + right) / 2, 1e-9 * max(1.0, abs(right))
    low, high, median, outliers = q1, q3, None, []
    for xs, ys, line in lines:
        inside = xs and min(xs) >= left - eps and max(xs) <= right + eps
        if line.get_linestyle() in ("None", "", " ") and all(abs(x - centre) < eps for x in xs):
            outliers += [_number(y) for y in ys]
        elif len(xs) == 2 and abs(xs[0] - centre) < eps and abs(xs[1] - centre) < eps:  # a whisker
            low, high = min(low, *ys), max(high, *ys)
        elif median is None and len(xs) == 2 and inside and ys[0] == ys[1] and q1 - eps <= ys[0] <= q3 + eps and abs(max(xs) - min(xs) - (right - left)) < 1e-6:
            median = ys[0]
    if median is None:  # a notched box has a shorter median line
        inner = [ys[0] for xs, ys, _ in lines if len(xs) == 2 and min(xs) >= left - eps and max(xs) <= right + eps and ys[0] == ys[1] and q1 <= ys[0] <= q3]
        median = inner[0] if inner else (q1 + q3) / 2
    return {"label": _label_at(axis, centre, right - left), "min": _number(low), "first_quartile": _number(q1), "median": _number(median),
            "third_quartile": _number(q3), "max": _number(high),
            "outliers": sorted({y for y in outliers if not low <= y <= high})}  # within: the mark of a mean

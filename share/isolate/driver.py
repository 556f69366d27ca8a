# Python in an isolate. Loads what callers may import, then forks once per call
# (os.fork is src/zygote/zygote.c's) and in the child runs one program:
#
#   0  {"code": …, "input": …, "function": …, "memory": bytes it may use}   to its end
#   1, 2  what the program prints
#   3  V + value as JSON, or E + {"kind", "type", "message", "traceback"}
#
# Nothing is imported after the fork: there are no files any more.
import atexit
import gc
import os
import sys

# The whole of what a program finds. Each is loaded once, and shared by all calls.
MODULES = """
    abc array ast base64 binascii bisect builtins calendar cmath codecs collections collections.abc colorsys contextlib copy
    copyreg csv dataclasses datetime decimal difflib enum errno fractions functools gc graphlib hashlib heapq hmac html
    html.entities html.parser inspect io ipaddress itertools json json.decoder json.encoder keyword linecache locale math
    numbers operator pprint queue quopri random re reprlib secrets shlex stat statistics string stringprep struct sys
    textwrap threading time timeit token tokenize traceback types typing unicodedata urllib urllib.parse uuid warnings
    weakref xml xml.etree xml.etree.ElementTree zlib gzip bz2 lzma pickle os os.path
    encodings.ascii encodings.cp1252 encodings.cp437 encodings.hex_codec encodings.base64_codec encodings.idna encodings.latin_1
    encodings.iso8859_1 encodings.iso8859_15 encodings.punycode encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape
    encodings.utf_16 encodings.utf_16_be encodings.utf_16_le encodings.utf_32 encodings.utf_7 encodings.utf_8_sig encodings.zlib_codec
""".split()
# Of the template, if it has them.
LARGE = ["numpy", "numpy.linalg", "numpy.random", "numpy.fft", "pandas"]
SITE = ["/usr/lib/python3/dist-packages", "/usr/local/lib/python3/dist-packages"]
NAME = "<program>"


def load():
    import importlib

    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:  # a smaller Python: the program learns it from its own import
            pass
    for name in ("OPENBLAS", "OMP", "MKL"):
        os.environ[name + "_NUM_THREADS"] = "1"  # threads would not be there after the fork
    sys.path.extend(SITE)
    for name in LARGE:
        try:
            importlib.import_module(name)
        except Exception:
            pass


class Absent:
    """The last finder: says what is going on instead of looking for files."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not available in an isolate", name=name)
        raise ModuleNotFoundError(f"No module named {name!r} (nothing can be installed in an isolate)", name=name)


def close_doors():
    import importlib.machinery as machinery
    import linecache
    import time

    sys.path[:] = []
    sys.path_hooks[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [machinery.BuiltinImporter, machinery.FrozenImporter, Absent]
    linecache.updatecache = lambda filename, module_globals=None: []
    linecache.lazycache = lambda filename, module_globals: False
    uuid = sys.modules.get("uuid")
    if uuid:  # uuid1 with a random node, as where no network card is found: not by asking for one
        uuid._GETTERS, uuid._generate_time_safe, uuid._UuidCreate = [], None, None
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # the limit of processor time is limit enough
    atexit._clear()  # what modules want to do at the interpreter's own end
    time.localtime(0)
    os.environ.clear()
    os.environ["LANG"] = "C.UTF-8"
    os.environ["TZ"] = "UTC0"
    for name in ("__main__", "importlib.machinery"):
        sys.modules.pop(name, None)


def send(kind, payload):
    data = kind + payload
    while data:
        data = data[os.write(3, data):]


def own_frames(tb):
    """Those of the program: without the driver's around them, and without its finder's at the end."""
    while tb and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    at = tb
    while at and at.tb_next:
        if at.tb_next.tb_frame.f_code.co_filename == __file__:
            at.tb_next = None
        at = at.tb_next
    return tb


def fail(json, kind, error, tb=None):
    import traceback

    name = type(error).__name__
    try:
        message = str(error)
    except Exception:
        message = ""
    try:
        text = "".join(traceback.format_exception(type(error), error, tb, limit=64, chain=True)) if kind == "exception" else ""
    except Exception:
        text = ""
    send(b"E", json({"kind": kind, "type": name, "message": message[:4096], "traceback": text[-16384:]}).encode())


def run(request, scope):
    """-> the value of the last expression, or of the function that was asked for"""
    import ast

    tree = compile(request["code"], NAME, "exec", ast.PyCF_ONLY_AST)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not request.get("function"):
        last = compile(ast.Expression(tree.body.pop().value), NAME, "eval")
    exec(compile(tree, NAME, "exec"), scope)
    if last is not None:
        return eval(last, scope)
    if request.get("function"):
        try:
            function = scope[request["function"]]
        except KeyError:
            raise NameError(f"the program defines no function {request['function']!r}") from None
        return function(request.get("input"))
    return None


def read_request():
    import io
    import json
    import linecache
    import types

    data = b""
    while True:
        piece = os.read(0, 1 << 20)
        if not piece:
            break
        data += piece
    request = json.loads(data)
    code = request["code"]
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__["input"] = request.get("input")
    sys.argv[:] = [NAME]
    sys.stdin = io.StringIO()
    return request, main.__dict__


def program():
    """-> exit status"""
    import json

    dumps = json.dumps
    status = 1
    try:
        value = run(*read_request())
        status = 0
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if status == 1 and not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
        value = None
    except MemoryError as e:
        sys.modules.pop("__main__", None)
        fail(dumps, "memory", e)
    except SyntaxError as e:
        fail(dumps, "exception", e)
    except BaseException as e:
        fail(dumps, "exception", e, own_frames(e.__traceback__))
    if status == 0:
        try:
            text = dumps(value, allow_nan=False)
        except MemoryError as e:
            status = 1
            fail(dumps, "memory", e)
        except Exception as e:
            status = 1
            fail(dumps, "not_json", e)
        else:
            send(b"V", text.encode())
    atexit._run_exitfuncs()
    return status


def main():
    load()
    close_doors()
    gc.collect()
    gc.freeze()
    streams = sys.stdout, sys.stderr
    os.getppid()  # the next fork is ours, not one of a module that was loaded
    os.fork()
    os.getppid()  # from here on only what share/seccomp/isolate-call.profile lists; nothing of the caller's was read yet
    for stream in streams:
        stream.reconfigure(line_buffering=True)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    try:
        status = program()
    except BaseException:  # it closed the result pipe, or left no memory to speak of
        os._exit(1)
    for stream in (*streams, sys.stdout, sys.stderr):  # the program may have put others in their place
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(status & 255)


main()

"""hutch's Python kernel: entry point. See ../README.md for the protocol.

    python3 kernel.py [--warm]

--warm loads the usual libraries before the first cell; one that is missing is skipped."""
import os
import sys


def main():
    here = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0] or ".") == here:
        sys.path.pop(0)
    sys.path.insert(0, here)
    from hutch_kernel import loop
    sys.path.remove(here)
    warm = "--warm" in sys.argv[1:]
    sys.argv = [""]
    loop.serve(warm)


if __name__ == "__main__":
    main()

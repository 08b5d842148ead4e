"""The process Lean runs in: sets its limits, then becomes Lean.

Run by path, not imported: ``_lean_child.py MEMORY_MIB CPU_SECONDS exec|load FILE ARG…``.
``exec`` replaces the process by the program ``FILE``; ``load`` calls ``lean_main`` in the shared
library ``FILE``. A memory limit of 0 is none.
"""

from __future__ import annotations

import os
import sys

# What a Lean process reserves without using it: 1 GiB of stack for its first thread, four more
# stacks (see ``engine._ENVIRONMENT``), and the mapped library. An address-space limit counts these.
RESERVED_MIB = 2048


def main(argv: list[str]) -> int:
    """Set the limits and run Lean; its exit code if it returns, 127 if it cannot start."""
    memory, seconds, how, file = int(argv[0]), int(argv[1]), argv[2], argv[3]
    try:
        import resource
    except ImportError:  # not a Unix: the caller's clock is the only limit
        pass
    else:
        _limit(resource.RLIMIT_CORE, 0)
        # Backstop for a caller that was itself killed; its own clock strikes first.
        _limit(resource.RLIMIT_CPU, seconds)
        if memory:
            _limit(resource.RLIMIT_AS, (memory + RESERVED_MIB) << 20)
    arguments = ["lean" if how == "load" else file, *argv[4:]]
    try:
        if how == "exec":
            os.execv(file, arguments)
        import ctypes

        lean_main = ctypes.CDLL(file).lean_main
    except (OSError, AttributeError) as problem:
        print(f"cannot start {file}: {problem}", file=sys.stderr)
        return 127
    lean_main.restype = ctypes.c_int
    encoded = [os.fsencode(a) for a in arguments]
    return int(lean_main(len(encoded), (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)))


def _limit(which: int, value: int) -> None:
    """Lower the limit ``which`` to ``value``, or to the hard limit already in force."""
    import resource

    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Meanings of library names that a user gives in a Python file.

The file is code the user runs: it is executed only when it is named on the command line, never
found or loaded otherwise. It assigns a dictionary ``NAMES``: each key is a name with its signature
in Lean, each value its meaning in NumPy, called with one value per binder, implicit ones included
(or ``None`` where the name is only to be known)::

    import numpy as np

    NAMES = {
        "swish {n : Nat} (x : Vec n) : Vec n": lambda n, x: x / (1 + np.exp(-x)),
    }

What the values look like is told in :mod:`obligations.ops.base`.
"""

from __future__ import annotations

import re
import runpy
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from obligations.errors import InputError, ObligationsError, Source, Span
from obligations.lean import parse_signature
from obligations.ops import Entry, entry


@dataclass(frozen=True, slots=True)
class UserNames:
    """What a file gives: signatures by name, and meanings of those that have one."""

    entries: Mapping[str, Entry]
    values: Mapping[str, Callable[..., Any]]


NOTHING = UserNames({}, {})


def load_names(path: str) -> UserNames:
    """Run a file of names.

    Raises
    ------
    ObligationsError
        When there is no such file, it raises, or its ``NAMES`` are not as they must be.
    """
    if not Path(path).is_file():
        raise ObligationsError(f"{path}: no such file")
    try:
        found = runpy.run_path(path).get("NAMES")
    except SyntaxError as error:
        raise ObligationsError(f"{path}:{error.lineno or 1}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        # A file that ends the program would end the check with it, and with its own exit code.
        raise ObligationsError(f"{path}:{_line(error, path)}: {_told(error)}") from None
    if not isinstance(found, dict):
        raise ObligationsError(
            f"{path}: it assigns no dictionary NAMES",
            hint='NAMES = {"swish {n : Nat} (x : Vec n) : Vec n": lambda n, x: …}',
        )
    entries: dict[str, Entry] = {}
    values: dict[str, Callable[..., Any]] = {}
    for key, meaning in found.items():
        name, signature = _split(path, key)
        entries[name] = entry(signature)
        if meaning is None:
            continue
        if not callable(meaning):
            raise ObligationsError(f"{path}: NAMES[{key!r}] is no function")
        values[name] = _guarded(path, name, meaning)
    return UserNames(entries, values)


_NAMED = re.compile(r"\s*([^\s(){}\[\]:]+)\s*(.*)\Z", re.DOTALL)


def _split(path: str, key: object) -> tuple[str, str]:
    match = _NAMED.match(key) if isinstance(key, str) else None
    if match is None or ":" not in match[2]:
        raise ObligationsError(f"{path}: NAMES has {key!r}, which is no name with its signature")
    source = Source(f"{path}, NAMES", str(key))
    try:
        parse_signature(match[2], source, Span(1, match.start(2) + 1))
    except InputError as error:
        raise InputError(source, error.span, error.message, hint=error.hint) from None
    return match[1], match[2]


def _guarded(path: str, name: str, meaning: Callable[..., Any]) -> Callable[..., Any]:
    """``meaning``, an exception of its own told with its line."""

    @wraps(meaning)
    def value(*args: Any) -> Any:
        try:
            return meaning(*args)
        except ObligationsError:
            raise
        except (Exception, SystemExit) as error:
            raise ObligationsError(
                f"{name} ({path}:{_line(error, path)}) raised {_told(error)}"
            ) from None

    return value


def _line(error: BaseException, path: str) -> int:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return lines[-1] if lines and lines[-1] is not None else 1


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

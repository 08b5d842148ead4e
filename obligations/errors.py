"""Errors a user can meet, each with the place in the input it speaks of."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LARGEST = 64 * 2**20
"""The largest file that is read, in bytes."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name it is reported under (a path, or ``<built-in>/x.net``)."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Line ``number`` (from 1), without its end; empty when there is none."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 1 <= number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source: ``line`` and ``column`` count from 1, ``width`` in characters."""

    line: int
    column: int
    width: int = 1


def place(text: str, position: int, width: int = 1) -> Span:
    """Where the character at ``position`` of ``text`` stands."""
    line_start = text.rfind("\n", 0, position) + 1
    return Span(text.count("\n", 0, position) + 1, position - line_start + 1, max(1, width))


class ObligationsError(Exception):
    """What the tool cannot do, in one message for the user; the command exits with 2."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def render(self) -> str:
        """The message as it is shown."""
        return f"error: {self.message}" + (f"\n  {self.hint}" if self.hint else "")


class InputError(ObligationsError):
    """Input that cannot be read or resolved, with its place and, if any, the nearest valid name."""

    def __init__(self, source: Source, span: Span, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.source = source
        self.span = span

    def render(self) -> str:
        """``file:line:column: error: …``, the offending line, and a caret under the text."""
        span = self.span
        line = self.source.line(span.line)
        head = f"{self.source.name}:{span.line}:{span.column}: error: {self.message}"
        out = [head]
        if line.strip():
            start = max(0, min(span.column - 1, len(line)))
            # A very long line is shown around the caret only.
            cut = max(0, start - 60) if len(line) > 120 else 0
            shown = line[cut : cut + 120]
            before = shown[: start - cut]
            width = max(1, min(span.width, len(shown) - len(before)))
            pad = "".join("\t" if c == "\t" else " " * _columns(c) for c in before)
            marked = shown[len(before) : len(before) + width]
            carets = "^" * max(1, sum(_columns(c) for c in marked))
            out += [f"  {shown}", f"  {pad}{carets}"]
        if self.hint:
            out.append(f"  {self.hint}")
        return "\n".join(out)


def _columns(char: str) -> int:
    """How many terminal columns ``char`` takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint ``did you mean …?`` with the nearest of ``known``, or the valid names, or nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    if names and len(names) <= 12:
        return "valid here: " + ", ".join(names)
    return ""


def decode(name: str, data: bytes) -> str:
    """``data`` as UTF-8 text; :class:`InputError` at the first byte that is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        start = before.rfind(b"\n") + 1
        column = len(before[start:].decode("utf-8", "replace")) + 1
        raise InputError(
            Source(name, data.decode("utf-8", "replace")),
            Span(line, column),
            f"not UTF-8 text: byte 0x{data[error.start]:02x}",
            hint="save the file as UTF-8",
        ) from None


def read_source(path: str | Path, suffix: str) -> Source:
    """The text of a file; the nearest file with the suffix is named where there is none.

    Raises
    ------
    ObligationsError
        When there is no such file, it cannot be read, is not UTF-8 text, or is larger than
        :data:`LARGEST`.
    """
    name, where = str(path), Path(path)
    try:
        with where.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        folder = where.parent
        beside = [p.name for p in folder.glob(f"*{suffix}")] if folder.is_dir() else []
        raise ObligationsError(f"{name}: no such file", hint=nearest(where.name, beside)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ObligationsError(f"{name}: cannot be read: {reason}") from None
    if len(data) > LARGEST:
        raise ObligationsError(f"{name}: larger than {LARGEST // 2**20} MiB")
    return Source(name, decode(name, data))

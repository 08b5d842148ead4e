"""Edits of a Lean file's text, by declaration, for tests."""

from __future__ import annotations

import re
from pathlib import Path

from obligations.errors import Source
from obligations.lean.source import FileDeclaration, read

OUT = Path(__file__).resolve().parents[2] / "out"


def generated(module: str) -> str:
    """The text of a committed tie file."""
    return (OUT / f"{module}.lean").read_text("utf-8")


def declaration(text: str, name: str) -> FileDeclaration:
    """The declaration of a name, without its namespace."""
    return next(d for d in read(Source("edited.lean", text)).declarations if d.name == name)


def edited(text: str, name: str, old: str, new: str, *, nth: int = 0) -> str:
    """``text`` with ``old`` replaced in one declaration; white space in it matches any.

    ``nth`` picks an occurrence. The declaration must have it.
    """
    d = declaration(text, name)
    piece = text[d.at.start : d.at.end]
    pattern = r"\s+".join(re.escape(part) for part in old.split())
    found = list(re.finditer(pattern, piece))
    assert len(found) > nth, f"{name} has no {old!r}"
    at = found[nth]
    piece = piece[: at.start()] + new + piece[at.end() :]
    return text[: d.at.start] + piece + text[d.at.end :]


def without(text: str, name: str) -> str:
    """``text`` without a declaration."""
    d = declaration(text, name)
    return text[: d.at.start] + text[d.at.end :]


def only(text: str, names: set[str]) -> str:
    """A file of these declarations in the same frame."""
    file = read(Source("edited.lean", text))
    first = min(d.at.start for d in file.declarations)
    kept = [d.at.text for d in file.declarations if d.name in names]
    last = max(d.at.end for d in file.declarations)
    return text[:first] + "\n\n".join(kept) + text[last:]

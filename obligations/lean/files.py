"""Lean files from disk."""

from __future__ import annotations

from pathlib import Path

from obligations.errors import Source, read_source


def load(path: str | Path) -> Source:
    """The text of a Lean file; see :func:`~obligations.errors.read_source`."""
    return read_source(path, ".lean")

"""Lean files from disk."""

from __future__ import annotations

from pathlib import Path

from obligations.errors import ObligationsError, Source, nearest

LARGEST = 64 * 2**20
"""The largest file that is read, in bytes."""


def load(path: str | Path) -> Source:
    """The text of a Lean file.

    Raises
    ------
    ObligationsError
        When there is no such file, it cannot be read, is not UTF-8 text, or is larger than
        :data:`LARGEST`.
    """
    from obligations.errors import decode

    name, where = str(path), Path(path)
    try:
        with where.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        folder = where.parent
        beside = [p.name for p in folder.glob("*.lean")] if folder.is_dir() else []
        raise ObligationsError(f"{name}: no such file", hint=nearest(where.name, beside)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ObligationsError(f"{name}: cannot be read: {reason}") from None
    if len(data) > LARGEST:
        raise ObligationsError(f"{name}: larger than {LARGEST // 2**20} MiB")
    return Source(name, decode(name, data))

"""Records as plain data and back, for JSON.

JSON has no number that is not finite: one is a string, ``"inf"``, ``"-inf"`` or ``"nan"``, and
such a string is read where a number is expected.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, TypeVar

from obligations.errors import ObligationsError

_T = TypeVar("_T")


def plain(value: object) -> Any:
    """A record, or records in lists and dictionaries, as JSON can have it."""
    import msgspec

    # A number of NumPy has the Python number in it.
    return _finite(msgspec.to_builtins(value, enc_hook=lambda x: x.item()))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else str(value)
        case list() | tuple():
            return [_finite(x) for x in value]
        case dict():
            return {k: _finite(x) for k, x in value.items()}
    return value


def text(value: object, indent: int | None = 2) -> str:
    """JSON, its last newline included; in one line where ``indent`` is ``None``."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def loaded(raw: bytes) -> Any:
    """What a text of JSON has; raises :class:`ObligationsError` with the reason if it is none."""
    try:
        # Python's reader also takes the words that older files may have: Infinity, NaN.
        found = json.loads(raw)
        # A lone half of a surrogate pair could not be printed.
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise ObligationsError(f"no JSON: {error}") from None


def record(data: object, kind: type[_T]) -> _T:
    """The record that plain data is of; fields that ``kind`` does not have are passed over.

    Raises
    ------
    ObligationsError
        The data is of no such record: the field, and what it has instead.
    """
    import msgspec

    try:
        return msgspec.convert(data, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        reason, _, place = str(error).partition(" - at `$")
        where = place.rstrip("`").removeprefix(".")
        raise ObligationsError(f"{where}: {reason}" if where else reason) from None

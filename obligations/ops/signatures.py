"""The names a tie file may use, with their signatures, as an elaboration environment.

Signatures come from the operation table and from the net description; nothing is parsed before a
term mentions the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from obligations.lean import Environment, Signature, syntax as s
from obligations.ops.table import per_table

Entry = Callable[[], tuple[Signature, s.Term | None]]


@cache
def _parsed(signature: str, definition: str | None) -> tuple[Signature, s.Term | None]:
    from obligations.lean import parse_signature, parse_term

    return parse_signature(signature), None if definition is None else parse_term(definition)


def entry(signature: str, definition: str | None = None) -> Entry:
    """The environment's entry for a signature in Lean syntax, parsed when first asked for."""
    return lambda: _parsed(signature, definition)


@per_table
def library() -> Mapping[str, Entry]:
    """Every name of the operation table."""
    from obligations.ops.table import names

    return {n.name: entry(n.signature, n.definition) for n in names().values()}


def environment(extra: Mapping[str, Entry] | None = None) -> Environment:
    """A fresh environment: the library's names and ``extra`` (a net's own)."""
    return Environment({**library(), **(extra or {})}, ("GradNodeB", "StableHLO", "BackLinks"))

"""The operation table: everything the tool knows of each operation, one module per family.

A new operation is one entry in its family's module; a new family is one module, named in
:func:`_families`. Nothing is built before the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from obligations.ops.join import JOIN_TOKEN, JOIN_WORD

if TYPE_CHECKING:
    from obligations.ops.base import (
        Convention,
        Family,
        FileDefinition,
        Loss,
        Name,
        Operation,
        Padding,
        Precision,
        Stage,
    )

__all__ = [
    "JOIN_TOKEN",
    "JOIN_WORD",
    "by_token",
    "conventions",
    "definitions",
    "lookup",
    "losses",
    "names",
    "operations",
    "precisions",
    "stages",
    "words",
]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@cache
def _families() -> tuple[Family, ...]:
    from obligations.ops import (
        activation,
        batchnorm,
        conv,
        core,
        dense,
        depthwise,
        drop,
        loss,
        pool,
    )

    modules = (core, conv, depthwise, batchnorm, activation, pool, dense, drop, loss)
    return tuple(module.FAMILY for module in modules)


def _table(entries: Iterable[tuple[_Key, _Value]]) -> Mapping[_Key, _Value]:
    table: dict[_Key, _Value] = {}
    for key, value in entries:
        if key in table:
            raise ValueError(f"the operation table has {key!r} twice")
        table[key] = value
    return MappingProxyType(table)


@cache
def operations() -> Mapping[tuple[str, int, Padding | None], Operation]:
    """Every operation by ``(word, stride, padding)``."""
    return _table(
        ((op.word, op.stride, op.padding), op) for f in _families() for op in f.operations
    )


def lookup(word: str, stride: int = 1, padding: Padding | None = None) -> Operation | None:
    """The operation, where ``padding`` decides only if there is more than one; ``None`` if none."""
    table = operations()
    return table.get((word, stride, padding)) or table.get((word, stride, None))


@cache
def words() -> tuple[str, ...]:
    """What a net description calls the operations, in table order."""
    return tuple(dict.fromkeys(op.word for op in operations().values()))


@cache
def names() -> Mapping[str, Name]:
    """Every constant of the Lean library the table knows, as a tie file spells it."""
    return _table((name.name, name) for f in _families() for name in f.names)


@cache
def stages() -> tuple[Stage, ...]:
    """Every named composition of operations."""
    return tuple(stage for f in _families() for stage in f.stages)


@cache
def definitions() -> Mapping[str, FileDefinition]:
    """The definitions a tie file makes itself, by name."""
    return _table((d.name, d) for f in _families() for d in f.definitions)


@cache
def losses() -> Mapping[str, Loss]:
    """Every loss by the words that a description may begin with."""
    return _table((words, loss) for f in _families() for loss in f.losses for words in loss.says)


@cache
def conventions() -> Mapping[str, Convention]:
    """What a description may state, by name; the loss may be any of the table."""
    from obligations.ops.loss import convention

    own = [c for f in _families() for c in f.conventions]
    return _table((c.name, c) for c in (*own, convention(tuple(losses()))))


@cache
def precisions() -> Mapping[str, Precision]:
    """The values of the setting every net has, the default first."""
    return _table((p.word, p) for f in _families() for p in f.precisions)


@cache
def by_token() -> Mapping[str, tuple[Operation, ...]]:
    """The operations a render's backward token can belong to; none for the fan-in ``addVB``."""
    table: dict[str, tuple[Operation, ...]] = {JOIN_TOKEN: ()}
    for op in operations().values():
        token = op.backward.token
        if token is not None:
            table[token] = (*table.get(token, ()), op)
    return MappingProxyType(table)

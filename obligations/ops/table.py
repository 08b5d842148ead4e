"""The table itself: every family's entries, and what adds to it for a while.

A new operation is one entry in its family's module; a new family is one module, named in
:data:`_FAMILIES`. Nothing is built before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import cache, wraps
from importlib import import_module
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from obligations.ops.base import (
    Backward,
    Convention,
    Family,
    FileDefinition,
    Loss,
    Name,
    Operation,
    Optimizer,
    Padding,
    Precision,
    Stage,
)
from obligations.ops.join import JOIN_TOKEN
from obligations.ops.loss import convention

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_P = ParamSpec("_P")

_FAMILIES = (
    "core",
    "conv",
    "depthwise",
    "batchnorm",
    "activation",
    "pool",
    "dense",
    "drop",
    "join",
    "loss",
    "optimizer",
)


Table = tuple[Family, ...]
"""The families, those that are added last."""


def _table(entries: Iterable[tuple[_Key, _Value]]) -> Mapping[_Key, _Value]:
    table: dict[_Key, _Value] = {}
    for key, value in entries:
        if key in table:
            raise ValueError(f"the operation table has {key!r} twice")
        table[key] = value
    return MappingProxyType(table)


@cache
def _own() -> Table:
    modules = (import_module(f"obligations.ops.{name}") for name in _FAMILIES)
    return tuple(module.FAMILY for module in modules)


_ADDED: ContextVar[Table | None] = ContextVar("table", default=None)


def _current() -> Table:
    """The table as it is here and now."""
    return _ADDED.get() or _own()


def per_table(build: Callable[_P, _Value]) -> Callable[_P, _Value]:
    """Keep what ``build`` gives for as long as the table it was built from."""
    made: dict[tuple[Any, ...], tuple[Table, _Value]] = {}

    @wraps(build)
    def kept(*args: _P.args, **kwargs: _P.kwargs) -> _Value:
        table = _current()
        key = (id(table), *args, *kwargs.items())
        if key not in made:
            # The table is kept beside the value, so that no other one takes its number.
            made[key] = table, build(*args, **kwargs)
        return made[key][1]

    return kept


Entry = (
    Family | Operation | Name | Stage | FileDefinition | Loss | Convention | Precision | Optimizer
)
"""What can be added to the table."""


@contextmanager
def extended(*entries: Entry) -> Iterator[None]:
    """The table with more entries after its own, for as long as the context lasts.

    Parameters
    ----------
    entries
        Records of the table; a whole :class:`Family` at once where there are several.

    Raises
    ------
    ValueError
        Where an entry has the key of one that is there.
    TypeError
        Where something is no record of the table.

    Examples
    --------
    >>> from obligations import ops
    >>> from dataclasses import replace
    >>> leaky = replace(ops.lookup("relu"), word="leaky", kinks=(0.0,))
    >>> with ops.extended(leaky):
    ...     "leaky" in ops.words()
    True
    >>> "leaky" in ops.words()
    False
    """
    for entry in entries:
        if not isinstance(entry, Entry):
            raise TypeError(f"{entry!r} is no entry of the table: {Entry}")
    families = [entry for entry in entries if isinstance(entry, Family)]
    single: dict[str, tuple[Any, ...]] = {}
    for f in fields(Family):
        kind = f.metadata["of"]
        single[f.name] = tuple(e for e in entries if isinstance(e, kind))
    token = _ADDED.set((*_current(), *families, Family(**single)))
    try:
        for keyed in (operations, names, definitions, losses, conventions, precisions, optimizers):
            keyed()  # two entries of one key are told here
        yield
    finally:
        _ADDED.reset(token)


@per_table
def operations() -> Mapping[tuple[str, int, Padding | None], Operation]:
    """Every operation by ``(word, stride, padding)``."""
    return _table((op.key, op) for f in _current() for op in f.operations)


def lookup(word: str, stride: int = 1, padding: Padding | None = None) -> Operation | None:
    """The operation, where ``padding`` decides only if there is more than one; ``None`` if none."""
    table = operations()
    return table.get((word, stride, padding)) or table.get((word, stride, None))


def words() -> tuple[str, ...]:
    """What a net description calls the operations, in table order."""
    return tuple(dict.fromkeys(op.word for op in operations().values() if not op.is_sum))


@per_table
def names() -> Mapping[str, Name]:
    """Every constant of the Lean library the table knows, as a tie file spells it."""
    return _table((name.name, name) for f in _current() for name in f.names)


@per_table
def stages() -> tuple[Stage, ...]:
    """Every named composition of operations."""
    return tuple(stage for f in _current() for stage in f.stages)


@per_table
def definitions() -> Mapping[str, FileDefinition]:
    """The definitions a tie file makes itself, by name."""
    return _table((d.name, d) for f in _current() for d in f.definitions)


@per_table
def optimizers() -> Mapping[str, Optimizer]:
    """Every optimizer by its word."""
    return _table((o.word, o) for f in _current() for o in f.optimizers)


@per_table
def losses() -> Mapping[str, Loss]:
    """Every loss by the words that a description may begin with."""
    return _table((words, x) for f in _current() for x in f.losses for words in x.says)


@per_table
def conventions() -> Mapping[str, Convention]:
    """What a description may state, by name; the loss may be any of the table."""
    own = [c for f in _current() for c in f.conventions]
    return _table((c.name, c) for c in (*own, convention(tuple(losses()))))


@per_table
def precisions() -> Mapping[str, Precision]:
    """The values of the setting every net has, the default first."""
    return _table((p.word, p) for f in _current() for p in f.precisions)


@per_table
def by_token() -> Mapping[str, tuple[tuple[Operation, Backward], ...]]:
    """The steps a render's backward token can stand for; none for the fan-in ``addVB``."""
    table: dict[str, tuple[tuple[Operation, Backward], ...]] = {JOIN_TOKEN: ()}
    for op in operations().values():
        for step in op.backward:
            if step.token is not None:
                table[step.token] = (*table.get(step.token, ()), (op, step))
    return MappingProxyType(table)

"""Where an operand's elements come from, through transposes, pads, reverses and slices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from obligations.stablehlo.value_graph import Values

#: Kinds that only move elements (or put zeros between them).
MOVING = frozenset({"transpose", "pad", "reverse", "slice"})


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of an operand: element ``i`` of ``dim`` stands at ``scale · i + offset``.

    ``dim`` is None for a dimension of size one that the base does not have. ``size`` is the
    operand's size, ``count`` the base's.
    """

    dim: int | None
    scale: int
    offset: int
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class Trace:
    """The value an operand is made of, the shape it is read at, and the operand's axes."""

    base: int
    view: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def plain(self) -> bool:
        """Whether every axis is the base's own, in its own place of elements."""
        return all(a.scale == 1 and a.offset == 0 and a.size == a.count for a in self.axes)


def trace(values: Values, index: int, shape: Sequence[int], stops: Collection[int] = ()) -> Trace:
    """Follow an operand read at ``shape`` down to what it moves; values in ``stops`` end it."""
    view = tuple(shape)
    axes = [Axis(d, 1, 0, n, n) for d, n in enumerate(view)]
    while index not in stops:
        value = values[index]
        if view != value.view:
            moved = _between(view, value.view)
            if moved is None:
                break
            axes = [_at(a, None if a.dim is None else moved.get(a.dim), value.view) for a in axes]
            view = value.view
        if value.kind not in MOVING:
            break
        if value.kind == "slice" and any(n != 1 for n in value.attributes["stride"]):
            break
        inner = value.views[0]
        axes = [_inside(a, value.kind, value.attributes, inner) for a in axes]
        index, view = value.inputs[0], inner
    return Trace(index, view, tuple(axes))


def read_at(operand: Trace, view: Sequence[int]) -> Trace:
    """The same trace with its base read at ``view``, when that differs by sizes of one."""
    moved = None if operand.view == tuple(view) else _between(operand.view, view)
    if moved is None:
        return operand
    axes = (_at(a, None if a.dim is None else moved.get(a.dim), view) for a in operand.axes)
    return Trace(operand.base, tuple(view), tuple(axes))


def _between(a: Sequence[int], b: Sequence[int]) -> dict[int, int] | None:
    """Which dimension of ``b`` each of ``a`` is, when they differ by dimensions of size one."""
    left = [i for i, n in enumerate(a) if n != 1]
    right = [i for i, n in enumerate(b) if n != 1]
    if [a[i] for i in left] != [b[i] for i in right]:
        return None
    return dict(zip(left, right, strict=True))


def _at(axis: Axis, dim: int | None, view: Sequence[int]) -> Axis:
    return Axis(dim, axis.scale, axis.offset, axis.size, 1 if dim is None else view[dim])


def _inside(axis: Axis, kind: str, attributes: Any, inner: Sequence[int]) -> Axis:
    """The axis in terms of the operand of one moving operation."""
    dim = axis.dim
    if dim is None:
        return axis
    if kind == "transpose":
        return _at(axis, cast("int", attributes["dims"][dim]), inner)
    scale, offset = axis.scale, axis.offset
    if kind == "pad":
        offset += scale * attributes["low"][dim]
        scale *= attributes["interior"][dim] + 1
    elif kind == "reverse" and dim in attributes["dims"]:
        offset += scale * (inner[dim] - 1)
        scale = -scale
    elif kind == "slice":
        offset -= scale * attributes["start"][dim]
    return Axis(dim, scale, offset, axis.size, inner[dim])

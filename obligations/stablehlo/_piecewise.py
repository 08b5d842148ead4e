"""What is one thing on one side of a number and another on the other: bounds and masks."""

from __future__ import annotations

import math
from typing import TypeAlias, cast

from obligations.stablehlo.value_graph import Value, Values

_NOT = {"GT": "LE", "GE": "LT", "LT": "GE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_SWAP = {"GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE", "EQ": "EQ", "NE": "NE"}

#: Kinds of values that may be bounds, masks or predicates.
PIECEWISE = frozenset({"maximum", "minimum", "clamp", "select", "compare", "and", "or", "not"})

#: The most predicates that are looked through, one within the other.
_DEPTH = 8

Test: TypeAlias = tuple[int, str, float]
"""A saved value, a relation, a number."""


def bounds(values: Values, value: Value) -> tuple[int, float, float] | None:
    """``x``, low and high of a value that is ``x`` kept between two numbers."""
    if value.kind == "clamp":
        low, high = values[value.inputs[0]].number, values[value.inputs[2]].number
        return None if low is None or high is None else (value.inputs[1], low, high)
    if value.kind == "select":
        test, kept, other = (values[i] for i in value.inputs)
        if test.kind == "compare" and test.attributes["direction"] in ("GT", "GE"):
            left, right = test.inputs
            zero = values[right].number
            if left == kept.id and zero is not None and values[other.id].number == zero:
                return kept.id, zero, math.inf
        return None
    limits = {"maximum": -math.inf, "minimum": math.inf}
    index = value.id
    for _ in range(2):
        current = values[index]
        if current.kind not in limits or not math.isinf(limits[current.kind]):
            break
        a, b = current.inputs
        n, x = values[b].number, a
        if n is None:
            n, x = values[a].number, b
        if n is None:
            break
        limits[current.kind], index = n, x
    return None if index == value.id else (index, limits["maximum"], limits["minimum"])


def predicate(
    values: Values, index: int, positive: bool = True, depth: int = 0
) -> list[Test] | None:
    """A predicate, or what it is not, as tests that all hold."""
    value = values[index]
    if depth > _DEPTH:
        return None
    if value.kind == "compare":
        left, right = value.inputs
        direction = str(value.attributes["direction"])
        n, saved = values[right].number, left
        if n is None:
            n, saved, direction = values[left].number, right, _SWAP[direction]
        if n is None:
            return None
        return [(saved, direction if positive else _NOT[direction], n)]
    if value.kind == "not":
        return predicate(values, value.inputs[0], not positive, depth + 1)
    if value.kind == ("and" if positive else "or"):
        parts = [predicate(values, i, positive, depth + 1) for i in value.inputs]
        if all(p is not None for p in parts):
            return [t for p in parts for t in cast("list[Test]", p)]
    return None


def selected(values: Values, value: Value) -> tuple[int, list[Test]] | None:
    """The value a select keeps where its tests hold, being zero elsewhere."""
    test, a, c = value.inputs
    for kept, other, positive in ((a, c, True), (c, a, False)):
        if values[other].number == 0 and values[kept].number is None:
            found = predicate(values, test, positive)
            return None if found is None else (kept, found)
    return None

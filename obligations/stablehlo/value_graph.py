"""The SSA graph of a function, and its values up to what does not change them.

Two SSA names are one *value* here when the operations say the same numbers in the same row-major
order: a reshape is the value it reshapes, a second computation of the same thing is the first, the
order of a sum's operands does not matter, ``x + 0`` is ``x``, ``convert`` is transparent. What is
recognised is recognised between values, so none of these can hide it; each value keeps the
operations that compute it, with their lines.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeAlias, cast

import networkx as nx

from obligations.errors import ObligationsError
from obligations.stablehlo.ir import MAX_CALLS, Dense, Function, Operation, TensorType

#: The most operations that are met, calls followed.
MAX_OPERATIONS = 2_000_000


def graph(function: Function) -> nx.DiGraph:
    """The SSA graph: a node a name, an edge from each operand to each result.

    Nodes carry ``kind`` (``argument`` for arguments), ``line`` and ``type``; an edge carries
    ``positions``, the operand places it stands at. The return is the node ``return``.
    """
    out = nx.DiGraph()
    for a in function.arguments:
        out.add_node(a.name, kind="argument", line=a.line, type=a.type)
    for op in function.operations:
        for name, kind in zip(op.results, op.result_types, strict=True):
            out.add_node(name, kind=op.kind, line=op.line, type=kind)
        if op.kind == "return":
            out.add_node("return", kind="return", line=op.line, type=None)
        for name in op.results or ("return",):
            for place, operand in enumerate(op.operands):
                if out.has_edge(operand, name):
                    out[operand][name]["positions"] += (place,)
                else:
                    out.add_edge(operand, name, positions=(place,))
    return out


@dataclass(frozen=True, slots=True)
class Step:
    """One operation that computes a value: its line, and operand values in order."""

    operation: Operation
    inputs: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Value:
    """A value: the operation kind that makes it, of which values, at which shape.

    ``kind`` is the operation's, or ``argument``, or ``splat``, ``number`` everywhere.
    ``view`` is the shape at which the first operation made it; ``views`` are the shapes at which
    its operands were read. ``steps`` are all operations that compute it. ``name`` is the first SSA
    name it has.
    """

    id: int
    kind: str
    inputs: tuple[int, ...]
    attributes: Mapping[str, Any]
    view: tuple[int, ...]
    views: tuple[tuple[int, ...], ...]
    name: str
    number: float | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def line(self) -> int:
        """Where it is first computed; 0 for an argument."""
        return self.steps[0].operation.line if self.steps else 0


@dataclass(frozen=True, slots=True)
class Converted:
    """A ``convert``, transparent to values: the value it converts, from and to, its line."""

    value: int
    source: str
    target: str
    line: int


Onward: TypeAlias = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Values:
    """All values of a function; an operand's number is always below its user's.

    ``graph`` has their numbers as nodes and an edge from each operand to each of its users.
    """

    function: Function
    table: Sequence[Value]
    graph: nx.DiGraph
    ids: Mapping[str, int]
    zero_adds: Mapping[int, int]
    converts: tuple[Converted, ...]
    returned: tuple[int, ...]

    def __getitem__(self, index: int) -> Value:
        return self.table[index]

    def name(self, index: int) -> str:
        """The first SSA name of a value."""
        return self.table[index].name

    def users(self, index: int) -> list[int]:
        """The values an operand of which is ``index``, in order."""
        return list(self.graph.successors(index))

    def below(
        self, start: Iterable[int], onward: Onward | None = None, most: int | None = None
    ) -> set[int]:
        """``start`` and all values computed from it.

        Where ``onward`` is given, only by edges (value, user) that it admits; ``most`` bounds how
        many values there are, the nearest first.
        """
        return _reached(self.graph, start, onward, most)

    def above(
        self, ends: Iterable[int], onward: Onward | None = None, most: int | None = None
    ) -> set[int]:
        """``ends`` and all values they are computed from; ``onward`` is asked (value, operand)."""
        return _reached(self.graph.reverse(copy=False), ends, onward, most)


def _reached(
    graph: nx.DiGraph, start: Iterable[int], onward: Onward | None, most: int | None
) -> set[int]:
    if onward is not None:
        graph = nx.subgraph_view(graph, filter_edge=onward)
    layers = nx.bfs_layers(graph, list(start))
    return set(islice(chain.from_iterable(layers), most))


#: Kinds that act on each element alone, so that their operands' shape is no matter.
# fmt: off
ELEMENTWISE = frozenset({
    "add", "subtract", "multiply", "divide", "power", "remainder", "negate", "abs", "sign",
    "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "sine",
    "cosine", "floor", "ceil", "sqrt", "rsqrt", "cbrt", "is_finite", "and", "or", "xor", "not",
    "maximum", "minimum", "clamp", "compare", "select",
})
# fmt: on
#: Those that a sum of products is written with.
LINEAR = frozenset({"add", "subtract", "multiply", "divide", "negate"})
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
#: Not the same value when written twice.
_FRESH = frozenset({"rng", "rng_bit_generator", "custom_call", "infeed", "recv"})
#: What makes one number of the numbers that operands are everywhere.
_FOLDED: Mapping[str, Callable[..., float]] = {
    **dict.fromkeys(("broadcast_in_dim", "transpose", "reverse", "slice"), float),
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negate": operator.neg,
    "sqrt": math.sqrt,
    "rsqrt": lambda n: 1 / math.sqrt(n),
}
_FLIP = {"LT": "GT", "LE": "GE"}


def values(function: Function, functions: Mapping[str, Function] | None = None) -> Values:
    """Number the values of ``function``, its calls to ``functions`` followed.

    Raises :class:`ObligationsError` for calls nested deeper than :data:`MAX_CALLS`.
    """
    build = _Numbering()
    shapes = {a.name: a.type for a in function.arguments}
    names = {name: build.argument(name, kind) for name, kind in shapes.items()}
    returned = _number(build, function, functions or {}, names, shapes, ())
    return Values(
        function,
        build.table,
        build.graph,
        names,
        build.zero_adds,
        tuple(build.converts),
        returned,
    )


def _number(
    build: _Numbering,
    function: Function,
    functions: Mapping[str, Function],
    names: dict[str, int],
    shapes: dict[str, TensorType],
    callers: tuple[str, ...],
) -> tuple[int, ...]:
    if len(callers) > MAX_CALLS:
        raise ObligationsError(f"calls nest deeper than {MAX_CALLS} (at @{function.name})")
    for op in function.operations[:-1]:
        build.count += 1
        if build.count > MAX_OPERATIONS:
            raise ObligationsError(f"more than {MAX_OPERATIONS} operations, calls followed")
        inputs = tuple(names[n] for n in op.operands)
        types = tuple(shapes[n] for n in op.operands)
        callee = functions.get(str(op.attributes.get("callee", ""))) if op.kind == "call" else None
        if callee is not None and len(callee.arguments) == len(inputs):
            inner = {a.name: v for a, v in zip(callee.arguments, inputs, strict=True)}
            inside = {a.name: a.type for a in callee.arguments}
            path = (*callers, op.results[0] if op.results else callee.name)
            outcome = _number(build, callee, functions, inner, inside, path)
        else:
            outcome = tuple(
                build.result(op, i, inputs, types, callers) for i in range(len(op.results))
            )
        for name, kind, value in zip(op.results, op.result_types, outcome, strict=True):
            names[name] = value
            shapes[name] = kind
    return tuple(names[n] for n in function.returned)


class _Numbering:
    """Values made so far, found again by what they are."""

    def __init__(self) -> None:
        self.table: list[Value] = []
        self.graph = nx.DiGraph()
        self.found: dict[Any, int] = {}
        self.zero_adds: dict[int, int] = {}
        self.converts: list[Converted] = []
        self.count = 0

    def argument(self, name: str, kind: TensorType) -> int:
        return self._make("argument", (), {"name": name}, kind, (), name, None)

    def _make(
        self,
        kind: str,
        inputs: tuple[int, ...],
        attributes: Mapping[str, Any],
        outcome: TensorType,
        views: tuple[tuple[int, ...], ...],
        name: str,
        key: Any,
        number: float | None = None,
    ) -> int:
        index = len(self.table)
        self.table.append(
            Value(index, kind, inputs, attributes, outcome.shape, views, name, number)
        )
        self.graph.add_node(index)
        self.graph.add_edges_from((i, index) for i in inputs)
        if key is not None:
            self.found[key] = index
        return index

    def splat(self, number: float, outcome: TensorType, name: str) -> int:
        key = ("splat", number if number == number else "nan")
        if key in self.found:
            return self.found[key]
        return self._make("splat", (), {}, outcome, (), name, key, number)

    def result(
        self,
        op: Operation,
        place: int,
        inputs: tuple[int, ...],
        types: tuple[TensorType, ...],
        callers: tuple[str, ...],
    ) -> int:
        """The value of result ``place`` of ``op``; within a call its name leads with the call's."""
        outcome, name = op.result_types[place], "/".join((*callers, op.results[place]))
        shapes = tuple(t.shape for t in types)
        same = self._transparent(op, place, inputs, types, outcome)
        if same is not None:
            return same
        if op.kind == "constant":
            dense = cast("Dense", op.attributes["value"])
            if dense.splat is not None:
                return self.splat(dense.splat, outcome, name)
        splat = self._fold(op, inputs)
        if splat is not None:
            return self.splat(splat, outcome, name)
        made = self._key(op, place, inputs, shapes, outcome)
        found = self.found.get(made.key)
        if found is None:
            found = self._make(
                op.kind, made.inputs, made.attributes, outcome, made.views, name, made.key
            )
        self.table[found].steps.append(Step(op, inputs))
        return found

    def _transparent(
        self,
        op: Operation,
        place: int,
        inputs: tuple[int, ...],
        types: tuple[TensorType, ...],
        outcome: TensorType,
    ) -> int | None:
        """The operand that ``op`` only passes on, if that is all it does."""
        kind = op.kind
        if kind in ("reshape", "copy"):
            return inputs[0]
        if kind == "optimization_barrier":
            return inputs[place]
        if kind == "convert":
            self.converts.append(Converted(inputs[0], types[0].element, outcome.element, op.line))
            return inputs[0]
        if kind in ("add", "subtract", "multiply", "divide"):
            neutral = 0.0 if kind in ("add", "subtract") else 1.0
            left, right = (self.table[i].number for i in inputs)
            if right == neutral and left is None:
                kept = inputs[0]
            elif kind in ("add", "multiply") and left == neutral:
                kept = inputs[1]
            else:
                return None
            if kind == "add":
                self.zero_adds.setdefault(kept, op.line)
            return kept
        if kind == "broadcast_in_dim" and types[0].size == outcome.size:
            moved = zip(types[0].shape, op.ints("dims"), strict=True)
            real = [to for n, to in moved if n != 1]
            return inputs[0] if real == sorted(real) else None
        if kind == "transpose":
            dims = op.ints("dims")
            if _still(dims, types[0].shape):
                return inputs[0]
            inner = self.table[inputs[0]]
            if inner.kind == "transpose" and inner.view == types[0].shape:
                whole = tuple(inner.attributes["dims"][d] for d in dims)
                return inner.inputs[0] if _still(whole, inner.views[0]) else None
            return None
        if kind == "reverse":
            return inputs[0] if all(types[0].shape[d] == 1 for d in op.ints("dims")) else None
        if kind == "pad" and not any((*op.ints("low"), *op.ints("high"), *op.ints("interior"))):
            return inputs[0]
        if kind == "slice" and types[0].shape == outcome.shape:
            return inputs[0]
        return None

    def _fold(self, op: Operation, inputs: tuple[int, ...]) -> float | None:
        """The one number everywhere in the result, when constants say so."""
        numbers = [self.table[i].number for i in inputs]
        if op.kind not in _FOLDED or None in numbers:
            return None
        try:
            return _FOLDED[op.kind](*numbers)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None

    def _key(
        self,
        op: Operation,
        place: int,
        inputs: tuple[int, ...],
        shapes: tuple[tuple[int, ...], ...],
        outcome: TensorType,
    ) -> _Made:
        """What makes the result the value it is, and the key it is found again by."""
        kind: str = op.kind
        attributes: Mapping[str, Any] = op.attributes
        if kind in ELEMENTWISE:
            if kind == "compare" and attributes.get("direction") in _FLIP:
                # `a < b` is `b > a`: one direction to look for.
                attributes = {"direction": _FLIP[str(attributes["direction"])]}
                inputs, shapes = inputs[::-1], shapes[::-1]
            order = tuple(sorted(inputs)) if kind in _COMMUTATIVE else inputs
            key: tuple[Any, ...] = (kind, order, *attributes.items())
            return _Made(inputs, attributes, shapes, key)
        if kind == "broadcast_in_dim":
            return self._broadcast(op, inputs, shapes, outcome)
        if kind == "transpose":
            inner = self.table[inputs[0]]
            if inner.kind == "transpose" and inner.view == shapes[0]:
                dims = tuple(inner.attributes["dims"][d] for d in op.ints("dims"))
                attributes, inputs, shapes = {"dims": dims}, inner.inputs, inner.views
        regions: Any = ()
        if op.regions:
            combiners = tuple(r.combiner for r in op.regions)
            regions = combiners if all(combiners) else op.line
            if kind == "reduce" and all(combiners):
                attributes, regions = {**attributes, "applies": combiners[0]}, ()
        if kind in _FRESH:
            regions = (op.line, place)
        key = (kind, inputs, shapes, outcome.shape, place, *sorted(attributes.items()), regions)
        if kind == "reduce":
            # A dimension of size one that stays is as good as none.
            axes = op.ints("dimensions")
            kept = [i for i, n in enumerate(shapes[0]) if n != 1 or i in axes]
            sizes = tuple(shapes[0][i] for i in kept)
            key = (kind, inputs, sizes, tuple(kept.index(i) for i in axes), place, regions)
            key = (*key, attributes.get("applies"))
        if kind == "constant":
            key = (*key, outcome.element)
        return _Made(inputs, attributes, shapes, key)

    def _broadcast(
        self,
        op: Operation,
        inputs: tuple[int, ...],
        shapes: tuple[tuple[int, ...], ...],
        outcome: TensorType,
    ) -> _Made:
        """Broadcasts by which dimensions of the result vary; a broadcast of one is one."""
        kept = [(n, to) for n, to in zip(shapes[0], op.ints("dims"), strict=True) if n != 1]
        source = inputs[0]
        inner = self.table[source]
        if inner.kind == "broadcast_in_dim":
            real = [i for i, n in enumerate(inner.view) if n != 1]
            if [inner.view[i] for i in real] == [n for n, _ in kept]:
                to = dict(zip(real, (t for _, t in kept), strict=True))
                pairs = zip(inner.views[0], inner.attributes["dims"], strict=True)
                kept = [(n, to[d]) for n, d in pairs]
                source = inner.inputs[0]
        sizes, dims = tuple(n for n, _ in kept), tuple(t for _, t in kept)
        key = ("broadcast_in_dim", source, sizes, dims, outcome.shape)
        return _Made((source,), {"dims": dims}, (sizes,), key)


@dataclass(frozen=True, slots=True)
class _Made:
    """A value to be: its operands, attributes and the shapes it reads them at; its key."""

    inputs: tuple[int, ...]
    attributes: Mapping[str, Any]
    views: tuple[tuple[int, ...], ...]
    key: Any


def _still(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a transpose moves nothing but dimensions of size one."""
    real = [d for d in dims if shape[d] != 1]
    return real == sorted(real)

"""Each operation of the table on several roads: what they differ by, at which sizes.

The emitted formula is the table's Lean text, computed. The complex-step derivative of the forward
uses no backward formula. A third road may be given: tests hold both against JAX's derivative of a
forward written for itself. The roads share no code below the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from obligations.errors import ObligationsError
from obligations.ops import Array, Loss, Operation, length, losses, operations
from obligations.shadow import (
    backward_step,
    gradient_nodes,
    mask_length,
    random_mask,
    relative_error,
    rng_for,
    tensor,
    type_shape,
    vjp,
)
from obligations.statements import template

SIDES = (1, 3, 5, 7)
"""Sides of the kernels."""

SIZES = {"N": 2, "ic": 4, "oc": 3, "c": 4, "h": 5, "w": 7, "a": 6, "n": 12, "K": 5}
"""Batch, widths, the output's rows and columns, classes: no two that could be taken for another."""

Gradients = Mapping[str, Array]
"""By each input's symbol for the cotangent there, and by each parameter's symbol."""


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Numbers for one operation.

    Attributes
    ----------
    operation
        Or a loss, which the table has beside the operations.
    dims
        Its symbols; the output's ``h w``.
    parameters
        Trained ones by symbol, with a probe axis of length 1.
    fixed
        What is not trained: ``ε``, a mask, what a loss takes.
    xs, dy
        The inputs and the cotangent at the output, each ``(1, N · size)``.
    """

    operation: Operation | Loss
    dims: Mapping[str, int]
    parameters: Mapping[str, Array]
    fixed: Mapping[str, Array]
    xs: tuple[Array, ...]
    dy: Array

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the inputs."""
        operation = self.operation
        return ("x",) if isinstance(operation, Loss) else tuple(i.symbol for i in operation.inputs)

    @property
    def name(self) -> str:
        """What a reader calls the operation."""
        operation = self.operation
        return operation.word if isinstance(operation, Loss) else title(operation)

    @property
    def side(self) -> int | None:
        """The kernel's side, where it has one."""
        kernel = None if isinstance(self.operation, Loss) else self.operation.kernel
        return None if kernel is None else self.dims[kernel.axes[0]]


Road = Callable[[Point], Gradients]


def title(operation: Operation) -> str:
    """``strided convolution, XLA padding``."""
    noun = operation.noun or operation.word
    return noun if operation.padding is None else f"{noun}, {operation.padding} padding"


# -- points ------------------------------------------------------------------------------------


def points(seeds: Iterable[int] = (0,)) -> Iterator[Point]:
    """Every operation of the table at every kernel side and seed, then every loss."""
    seeds = tuple(seeds)
    for operation in operations().values():
        if operation.is_sum:
            continue
        kernel = operation.kernel
        for side in (kernel.sides or SIDES) if kernel else (0,):
            for seed in seeds:
                yield point(operation, side, seed)
    for loss in dict.fromkeys(losses().values()):
        for seed in seeds:
            yield loss_point(loss, seed)


def point(operation: Operation, side: int, seed: int) -> Point:
    """Random numbers for an operation; its input is on both sides of each kink, none near one."""
    rng = rng_for(seed, side, title(operation))
    sides = dict.fromkeys(operation.kernel.axes, side) if operation.kernel else {}
    # An axis of an operation that is yet to come.
    dims = {**dict.fromkeys(operation.symbols(), 3), **SIZES, **sides}
    fixed = {p.symbol: tensor(p, (), rng) for p in operation.parameters if not p.trained}
    parameters = {
        p.symbol: tensor(p, type_shape(template(p.type), dims), rng)
        for p in operation.parameters
        if p.trained
    }
    fixed |= {
        m.symbol: random_mask(rng, mask_length(template(m.type), dims)) for m in operation.options
    }
    xs = tuple(
        _spread(rng, operation.kinks, n) if operation.kinks else rng.normal(0.0, 1.5, (1, n))
        for n in (length(i.axes, dims) for i in operation.inputs)
    )
    dy = rng.normal(size=(1, length(operation.output, dims)))
    return Point(operation, dims, parameters, fixed, xs, dy)


def _spread(rng: np.random.Generator, kinks: Sequence[float], n: int) -> Array:
    """Values on every side of the kinks, from 0.1 to 12 away from the outer ones."""
    edges = np.array([min(kinks) - 12.1, *sorted(kinks), max(kinks) + 12.1])
    low, span = edges[:-1] + 0.1, np.diff(edges) - 0.2
    which = rng.permutation(np.arange(n) % len(span))
    values: Array = low[which] + span[which] * rng.random((1, n))
    return values


def loss_point(loss: Loss, seed: int) -> Point:
    """Random numbers for a loss at random logits."""
    rng = rng_for(seed, 0, loss.word)
    n, k = SIZES["N"], SIZES["K"]
    fixed = loss.draw((*loss.data, *loss.constants), rng, n, k)
    x = rng.normal(0.0, 3.0, (1, n * k))
    return Point(loss, {"N": n, "K": k}, {}, fixed, (x,), np.ones((1, 1)))


# -- roads -------------------------------------------------------------------------------------


def formula(at: Point) -> Gradients:
    """The emitted step and gradient nodes; nothing where no render emits the operation's."""
    operation = at.operation
    if isinstance(operation, Loss):
        (z,) = at.xs
        return {"x": operation.gradient(at.dims["N"], at.dims["K"], at.fixed, z)}
    params = {**at.parameters, **at.fixed}
    steps = {
        symbol: backward_step(operation, symbol, at.dims, params, at.xs, at.dy)
        for symbol in at.symbols
        if operation.step(symbol).lean
    }
    return {**steps, **gradient_nodes(operation, at.dims, params, at.xs, at.dy)}


def forward(at: Point) -> Callable[..., Array]:
    """The operation's forward, ``(parameters, *xs)`` to its value; the loss's is ``(p, 1)``."""
    operation = at.operation
    if isinstance(operation, Loss):
        value = operation.value
        return lambda parameters, x: value(at.dims["N"], at.dims["K"], at.fixed, x)
    run = operation.run
    return lambda parameters, *xs: run(at.dims, {**parameters, **at.fixed}, *xs)


def input_gradient(at: Point, symbol: str) -> Array:
    """The derivative of the forward at every index of an input."""
    f, place = forward(at), at.symbols.index(symbol)

    def into(x: Array) -> Array:
        return f(at.parameters, *at.xs[:place], x, *at.xs[place + 1 :])

    return vjp(into, at.xs[place], at.dy)


def complex_step(at: Point) -> Gradients:
    """The derivative of the forward at every index of the input and of each parameter."""
    f = forward(at)
    found = {symbol: input_gradient(at, symbol) for symbol in at.symbols}
    for symbol, value in at.parameters.items():

        def of(flat: Array, symbol: str = symbol, shape: tuple[int, ...] = value.shape) -> Array:
            return f({**at.parameters, symbol: flat.reshape(-1, *shape[1:])}, *at.xs)

        found[symbol] = vjp(of, value.reshape(1, -1), at.dy)
    return found


ROADS: Mapping[str, Road] = {"formula": formula, "complex step": complex_step}


# -- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One gradient of one operation.

    Attributes
    ----------
    gradient
        ``x`` for the cotangent at the input, or the parameter's symbol.
    sizes
        What it was measured at.
    errors
        Per pair of roads the worst relative error, ``max|a − b| / max(|a|∞, |b|∞)``, of all
        sizes and seeds; no entry where a road has no such gradient.
    """

    operation: str
    gradient: str
    sizes: str
    errors: Mapping[tuple[str, str], float]


def measure(
    roads: Mapping[str, Road] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    found: Iterable[Point] | None = None,
) -> tuple[Line, ...]:
    """Every gradient of every operation on the given roads.

    Parameters
    ----------
    roads
        By name; :data:`ROADS` where none are given.
    found
        Points to measure at, instead of all of them.

    Raises
    ------
    ObligationsError
        When a gradient has another number of entries on one road than on another.
    """
    roads = ROADS if roads is None else roads
    worst: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    sides: dict[str, dict[int, None]] = {}
    for at in points(seeds) if found is None else found:
        gradients = {name: road(at) for name, road in roads.items()}
        if at.side is not None:
            sides.setdefault(at.name, {})[at.side] = None
        for symbol in (*at.symbols, *at.parameters):
            errors = worst.setdefault((at.name, symbol), {})
            for a, b in combinations(roads, 2):
                one, other = gradients[a].get(symbol), gradients[b].get(symbol)
                if one is None or other is None:
                    continue
                if one.size != other.size:
                    raise ObligationsError(
                        f"{at.name}, {symbol}: {one.size} entries by {a}, {other.size} by {b}"
                    )
                error = relative_error(one.reshape(-1), other.reshape(-1))
                errors[a, b] = max(errors.get((a, b), 0.0), error)
    known = {title(o): o for o in operations().values()}
    return tuple(
        Line(name, symbol, _sizes(known.get(name), sides.get(name, {})), errors)
        for (name, symbol), errors in worst.items()
    )


def _sizes(operation: Operation | None, sides: Iterable[int]) -> str:
    if operation is None:
        return _values(("N", "K"))
    inside = [a for operand in operation.inputs for a in operand.axes]
    sides_ = operation.kernel.axes if operation.kernel else ()
    text = _values(s for s in operation.symbols() if s not in sides_)
    strided = [a.partition("*") for a in inside if "*" in a]
    doubled = [str(int(factor) * SIZES.get(name, 3)) for factor, _, name in strided]
    if doubled:
        text += f" from {'×'.join(doubled)}"
    kernels = " ".join(f"{k}×{k}" for k in sides)
    return f"{text}, {kernels}" if kernels else text


def _values(symbols: Iterable[str]) -> str:
    return " ".join(f"{s}={SIZES.get(s, 3)}" for s in symbols)

"""Each operation of the table on several roads: what they differ by, at which sizes.

The emitted formula is the table's Lean text, computed. The complex-step derivative of the forward
uses no backward formula. A third road may be given: tests hold both against JAX's derivative of a
forward written for itself. The roads share no code below the samples.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from obligations.errors import ObligationsError
from obligations.ops import Array, Loss, Operation, losses, operations
from obligations.shadow import (
    backward_step,
    gradient_nodes,
    random_mask,
    relative_error,
    tensor,
    type_shape,
    vjp,
)

SIDES = (1, 3, 5, 7)
"""Sides of the kernels."""

SIZES = {"N": 2, "ic": 4, "oc": 3, "c": 4, "h": 5, "w": 7, "a": 6, "n": 12, "K": 5}
"""Batch, widths, the output's rows and columns, classes: no two that could be taken for another."""

Gradients = Mapping[str, Array]
"""By ``x`` for the cotangent at the input, and by each parameter's symbol."""


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
    x, dy
        The input and the cotangent at the output, ``(1, N · size)``.
    """

    operation: Operation | Loss
    dims: Mapping[str, int]
    parameters: Mapping[str, Array]
    fixed: Mapping[str, Array]
    x: Array
    dy: Array

    @property
    def name(self) -> str:
        """What a reader calls the operation."""
        operation = self.operation
        return operation.word if isinstance(operation, Loss) else title(operation)

    @property
    def side(self) -> int | None:
        """The kernel's side, where it has one."""
        return self.dims.get("kH")


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
        for side in operation.sides or (SIDES if operation.kernel else (0,)):
            for seed in seeds:
                yield point(operation, side, seed)
    for loss in dict.fromkeys(losses().values()):
        for seed in seeds:
            yield loss_point(loss, seed)


def point(operation: Operation, side: int, seed: int) -> Point:
    """Random numbers for an operation; its input is on both sides of each kink, none near one."""
    from obligations.lean import parse_term

    rng = _rng(title(operation), side, seed)
    # An axis of an operation that is yet to come.
    known = {a.removeprefix("2*"): 3 for axes in operation.axes for a in axes}
    dims = {**known, **SIZES} | ({"kH": side, "kW": side} if operation.kernel else {})
    into, out = (_length(axes, dims) for axes in operation.axes)
    fixed = {symbol: tensor(symbol, (), rng) for symbol in operation.hyper}
    parameters = {
        p.symbol: tensor(p.symbol, type_shape(parse_term(p.type), dims), rng)
        for p in operation.parameters
    }
    masks = set(operation.backward.operands) - {"x", *parameters, *fixed}
    fixed |= {symbol: random_mask(rng, into) for symbol in sorted(masks)}
    x = _spread(rng, into) if operation.kinks else rng.normal(0.0, 1.5, (1, into))
    return Point(operation, dims, parameters, fixed, x, rng.normal(size=(1, out)))


def _rng(name: str, side: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, side, zlib.crc32(name.encode())])


def _length(axes: tuple[str, ...], dims: Mapping[str, int]) -> int:
    sizes = [2 * dims[a[2:]] if a.startswith("2*") else dims[a] for a in axes]
    return dims["N"] * int(np.prod(sizes))


def _spread(rng: np.random.Generator, n: int) -> Array:
    """Values below 0, in (0, 6) and above 6, none within 0.1 of either."""
    low, span = np.array([-3.0, 0.1, 6.1]), np.array([2.9, 5.8, 3.0])
    which = rng.permutation(np.arange(n) % 3)
    values: Array = low[which] + span[which] * rng.random((1, n))
    return values


def loss_point(loss: Loss, seed: int) -> Point:
    """Random numbers for a loss at random logits."""
    rng = _rng(loss.word, 0, seed)
    n, k = SIZES["N"], SIZES["K"]
    fixed = loss.draw((*loss.data, *loss.constants), rng, n, k)
    x = rng.normal(0.0, 3.0, (1, n * k))
    return Point(loss, {"N": n, "K": k}, {}, fixed, x, np.ones((1, 1)))


# -- roads -------------------------------------------------------------------------------------


def formula(at: Point) -> Gradients:
    """The emitted step and gradient nodes; nothing where no render emits the operation's."""
    operation = at.operation
    if isinstance(operation, Loss):
        return {"x": operation.gradient(at.dims["N"], at.dims["K"], at.fixed, at.x)}
    if not operation.backward.lean:
        return {}
    params = {**at.parameters, **at.fixed}
    step = backward_step(operation, at.dims, params, at.x, at.dy)
    return {"x": step, **gradient_nodes(operation, at.dims, params, at.x, at.dy)}


def forward(at: Point) -> Callable[[Mapping[str, Array], Array], Array]:
    """The operation's forward, ``(parameters, x)`` to its value; the loss's is ``(p, 1)``."""
    operation = at.operation
    if isinstance(operation, Loss):
        value = operation.value
        return lambda parameters, x: value(at.dims["N"], at.dims["K"], at.fixed, x)
    run = operation.run
    return lambda parameters, x: run(at.dims, {**parameters, **at.fixed}, x)


def complex_step(at: Point) -> Gradients:
    """The derivative of the forward at every index of the input and of each parameter."""
    f = forward(at)
    found = {"x": vjp(lambda x: f(at.parameters, x), at.x, at.dy)}
    for symbol, value in at.parameters.items():

        def of(flat: Array, symbol: str = symbol, shape: tuple[int, ...] = value.shape) -> Array:
            return f({**at.parameters, symbol: flat.reshape(-1, *shape[1:])}, at.x)

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
        for symbol in ("x", *at.parameters):
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
    inside, outside = operation.axes
    text = _values(("N", *dict.fromkeys(a.removeprefix("2*") for a in (*inside, *outside))))
    doubled = [str(2 * SIZES.get(a[2:], 3)) for a in inside if a.startswith("2*")]
    if doubled:
        text += f" from {'×'.join(doubled)}"
    kernels = " ".join(f"{k}×{k}" for k in sides)
    return f"{text}, {kernels}" if kernels else text


def _values(symbols: Iterable[str]) -> str:
    return " ".join(f"{s}={SIZES.get(s, 3)}" for s in symbols)

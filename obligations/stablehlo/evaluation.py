"""A StableHLO function on NumPy arrays: small artifacts computed, any value on the way returned.

Each operation follows the StableHLO specification's section of its name. All float element types
are computed in one precision, so a ``convert`` between them changes nothing; complex values are
carried through (ordering by the real part), which is what a complex-step derivative needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from obligations.errors import ObligationsError, nearest
from obligations.stablehlo.ir import MAX_CALLS, Dense, Function, Operation, TensorType

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a function returned, and the values asked for by name."""

    results: tuple[Array, ...]
    values: Mapping[str, Array]


def evaluate(
    function: Function,
    arguments: Mapping[str, Array] | Sequence[Array],
    *,
    functions: Mapping[str, Function] | None = None,
    at: Sequence[str] = (),
    dtype: type[Any] = np.float64,
) -> Evaluation:
    """Evaluate ``function``.

    Parameters
    ----------
    function
        The function; ``functions`` are the module's others, for its calls.
    arguments
        One array an argument, by name or in order, of exactly the declared shape.
    at
        SSA names (without ``%``) of values of the function's body to return besides the results.
    dtype
        The NumPy type of every float: ``float64``, ``float32``, or ``complex128`` for derivatives.

    Raises
    ------
    ObligationsError
        For arguments that do not fit, an operation outside the table (with its line), a name in
        ``at`` that is not there, or an outcome whose shape is not the one the text declares.

    Notes
    -----
    One replica is computed: ``all_reduce`` combines as many equal copies as its group has members.
    """
    named = _arguments(function, arguments)
    values = _run(function, named, functions or {}, dtype, 0)
    missing = [name for name in at if name not in values]
    if missing:
        raise ObligationsError(
            f"no value %{missing[0]} in @{function.name}", hint=nearest(missing[0], values)
        )
    results = tuple(values[name] for name in function.returned)
    return Evaluation(results, {name: values[name] for name in at})


def _arguments(
    function: Function, arguments: Mapping[str, Array] | Sequence[Array]
) -> dict[str, Array]:
    names = [a.name for a in function.arguments]
    if not isinstance(arguments, Mapping):
        if len(arguments) != len(names):
            raise ObligationsError(
                f"@{function.name} takes {len(names)} arguments, not {len(arguments)}"
            )
        arguments = dict(zip(names, arguments, strict=True))
    for name in arguments:
        if name not in names:
            raise ObligationsError(
                f"@{function.name} has no argument %{name}", hint=nearest(name, names)
            )
    out = {}
    for a in function.arguments:
        if a.name not in arguments:
            raise ObligationsError(f"@{function.name}: no value for argument %{a.name}")
        value = np.asarray(arguments[a.name])
        if value.shape != a.type.shape:
            raise ObligationsError(
                f"argument %{a.name} has shape {value.shape}, its type is {a.type}"
            )
        out[a.name] = value
    return out


def _run(
    function: Function,
    arguments: Mapping[str, Array],
    functions: Mapping[str, Function],
    dtype: type[Any],
    depth: int,
) -> dict[str, Array]:
    values: dict[str, Array] = {
        a.name: _cast(arguments[a.name], a.type.element, dtype) for a in function.arguments
    }
    for op in function.operations[:-1]:
        inputs = [values[name] for name in op.operands]
        if op.kind == "call":
            callee = functions.get(str(op.attributes["callee"]))
            if callee is None or depth >= MAX_CALLS or len(callee.arguments) != len(inputs):
                raise ObligationsError(f"line {op.line}: cannot call @{op.attributes['callee']}")
            given = {a.name: x for a, x in zip(callee.arguments, inputs, strict=True)}
            inner = _run(callee, given, functions, dtype, depth + 1)
            outcome = [inner[name] for name in callee.returned]
        else:
            outcome = _apply(op, inputs, dtype)
        for name, kind, value in zip(op.results, op.result_types, outcome, strict=True):
            if value.shape != kind.shape:
                raise ObligationsError(
                    f"line {op.line}: {op.kind} gives shape {value.shape}, its type is {kind}"
                )
            values[name] = value
    return values


def _apply(op: Operation, inputs: list[Array], dtype: type[Any]) -> list[Array]:
    try:
        if op.kind == "constant":
            return [_constant(op, dtype)]
        if op.kind == "convert":
            return [_cast(inputs[0], op.result_types[0].element, dtype)]
        if op.kind == "iota":
            return [_cast(_iota(op), op.result_types[0].element, dtype)]
        if op.kind == "optimization_barrier":
            return list(inputs)
        with np.errstate(all="ignore"):
            return [_TABLE[op.kind](op, *inputs)]
    except KeyError:
        raise ObligationsError(
            f"line {op.line}: no evaluation for '{op.kind}'", hint=nearest(op.kind, _TABLE)
        ) from None
    except (ValueError, TypeError, IndexError, MemoryError) as bad:
        raise ObligationsError(f"line {op.line}: {op.kind}: {bad}") from None


def _cast(value: Array, element: str, dtype: type[Any]) -> Array:
    if element == "i1":
        return np.asarray(value if value.dtype == bool else value != 0)
    if element[:1] in ("f", "b") or element.startswith("complex"):
        return value.astype(dtype)
    return np.real(value).astype(np.int64)


def _constant(op: Operation, dtype: type[Any]) -> Array:
    dense = cast("Dense", op.attributes["value"])
    kind: TensorType = op.result_types[0]
    splat = dense.splat
    if splat is not None:
        return _cast(np.full(kind.shape, splat), kind.element, dtype)
    numbers = np.array(dense.numbers(), dtype=float)
    return _cast(numbers.reshape(kind.shape), kind.element, dtype)


def _iota(op: Operation) -> Array:
    shape = op.result_types[0].shape
    (axis,) = op.ints("dim")
    return np.broadcast_to(np.indices(shape, sparse=True)[axis], shape)


# ---- elementwise


def _order(x: Array) -> Array:
    """What complex values are compared by."""
    return x.real if np.iscomplexobj(x) else x


def _maximum(_op: Operation, a: Array, b: Array) -> Array:
    return np.where(_order(a) >= _order(b), a, b)


def _minimum(_op: Operation, a: Array, b: Array) -> Array:
    return np.where(_order(a) <= _order(b), a, b)


def _clamp(op: Operation, low: Array, x: Array, high: Array) -> Array:
    return _minimum(op, _maximum(op, x, np.broadcast_to(low, x.shape)), high)


def _compare(op: Operation, a: Array, b: Array) -> Array:
    by: dict[str, Callable[[Array, Array], Array]] = {
        "EQ": np.equal,
        "NE": np.not_equal,
        "GE": np.greater_equal,
        "GT": np.greater,
        "LE": np.less_equal,
        "LT": np.less,
    }
    return by[str(op.attributes["direction"])](_order(a), _order(b))


def _select(_op: Operation, p: Array, a: Array, b: Array) -> Array:
    return np.where(p, a, b)


def _each(f: Callable[..., Any]) -> Callable[..., Array]:
    def apply(_op: Operation, *inputs: Array) -> Array:
        shapes = {x.shape for x in inputs}
        if len(shapes) > 1:
            raise ValueError(f"operands have shapes {', '.join(map(str, sorted(shapes)))}")
        return np.asarray(f(*inputs))

    return apply


# ---- shapes


def _reshape(op: Operation, x: Array) -> Array:
    return x.reshape(op.result_types[0].shape)


def _broadcast(op: Operation, x: Array) -> Array:
    shape = op.result_types[0].shape
    along = [1] * len(shape)
    for axis, to in enumerate(op.ints("dims")):
        if x.shape[axis] not in (1, shape[to]):
            raise ValueError(f"dimension {axis} of {x.shape} does not fit {shape}")
        along[to] = x.shape[axis]
    return np.broadcast_to(x.reshape(along), shape)


def _transpose(op: Operation, x: Array) -> Array:
    return x.transpose(op.ints("dims"))


def _reverse(op: Operation, x: Array) -> Array:
    return np.flip(x, op.ints("dims"))


def _slice(op: Operation, x: Array) -> Array:
    bounds = zip(op.ints("start"), op.ints("limit"), op.ints("stride"), strict=True)
    return x[tuple(slice(*b) for b in bounds)]


def _concatenate(op: Operation, *inputs: Array) -> Array:
    return np.concatenate(inputs, axis=op.ints("dim")[0])


def _pad(op: Operation, x: Array, value: Array) -> Array:
    edges = tuple(zip(op.ints("low"), op.ints("high"), strict=True))
    return _spread(x, edges, tuple(n + 1 for n in op.ints("interior")), value)


def _spread(
    x: Array, edges: Sequence[tuple[int, int]], dilate: Sequence[int], value: Any = 0
) -> Array:
    """``x`` with ``dilate - 1`` of ``value`` between neighbours, and edges added (or cut off)."""
    inner = tuple((n - 1) * d + 1 if n else 0 for n, d in zip(x.shape, dilate, strict=True))
    whole = tuple(n + low + high for n, (low, high) in zip(inner, edges, strict=True))
    grown = tuple(n + max(a, 0) + max(b, 0) for n, (a, b) in zip(inner, edges, strict=True))
    out = np.full(grown, value, dtype=x.dtype)
    at = tuple(
        slice(max(low, 0), max(low, 0) + n, d)
        for n, (low, _), d in zip(inner, edges, dilate, strict=True)
    )
    out[at] = x
    cut = tuple(slice(max(-low, 0), None) for low, _ in edges)
    return out[cut][tuple(slice(0, n) for n in whole)]


# ---- contractions


def _dot_general(op: Operation, a: Array, b: Array) -> Array:
    contract = cast("Any", op.attributes["contracting"])
    batch = cast("Any", op.attributes["batching"])
    names = itertools.count()
    left = [next(names) for _ in a.shape]
    right = [next(names) for _ in b.shape]
    for i, j in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        right[j] = left[i]
    out = [left[i] for i in batch[0]]
    out += [n for i, n in enumerate(left) if i not in contract[0] and i not in batch[0]]
    out += [n for i, n in enumerate(right) if i not in contract[1] and i not in batch[1]]
    return np.asarray(np.einsum(a, left, b, right, out))


def _convolution(op: Operation, lhs: Array, rhs: Array) -> Array:
    inputs, kernel, outputs = cast("Any", op.attributes["dim_numbers"])
    spatial = range(lhs.ndim - 2)
    x = lhs.transpose([inputs.index(d) for d in ("b", "f", *spatial)])
    w = rhs.transpose([kernel.index(d) for d in ("o", "i", *spatial)])
    edges = ((0, 0), (0, 0), *cast("Any", op.attributes["pad"]))
    x = _spread(x, edges, (1, 1, *op.ints("lhs_dilate")))
    w = _spread(w, ((0, 0),) * w.ndim, (1, 1, *op.ints("rhs_dilate")))
    groups, batches = op.ints("feature_group_count")[0], op.ints("batch_group_count")[0]
    # A batch group is to the batch what a feature group is to the input features.
    parts = []
    for g in range(groups * batches):
        part = x[_part(x.shape[0], g if batches > 1 else 0, batches), :]
        part = part[:, _part(x.shape[1], g if groups > 1 else 0, groups)]
        kernels = w[_part(w.shape[0], g, groups * batches)]
        parts.append(_correlate(part, kernels, op.ints("stride")))
    y = np.concatenate(parts, axis=1)
    return y.transpose([("b", "f", *spatial).index(d) for d in outputs])


def _part(size: int, index: int, count: int) -> slice:
    if size % count:
        raise ValueError(f"{size} does not divide into {count} groups")
    n = size // count
    return slice(index * n, (index + 1) * n)


def _correlate(x: Array, w: Array, stride: Sequence[int]) -> Array:
    """``y[n, o, p] = Σ x[n, i, p·stride + k] · w[o, i, k]``, no padding."""
    rank = x.ndim - 2
    windows = sliding_window_view(x, w.shape[2:], axis=tuple(range(2, x.ndim)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in stride))]
    places = [4 + i for i in range(rank)]
    taps = [4 + rank + i for i in range(rank)]
    return np.asarray(np.einsum(windows, [0, 1, *places, *taps], w, [2, 1, *taps], [0, 2, *places]))


# ---- reductions

_REDUCE: dict[str, Callable[..., Any]] = {
    "add": np.add.reduce,
    "multiply": np.multiply.reduce,
    "maximum": lambda x, axis: np.take_along_axis(
        x, np.expand_dims(_order(x).argmax(axis), axis), axis
    ).squeeze(axis),
    "minimum": lambda x, axis: np.take_along_axis(
        x, np.expand_dims(_order(x).argmin(axis), axis), axis
    ).squeeze(axis),
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
}


def _combiner(op: Operation, region: int = 0) -> str:
    if "applies" in op.attributes:
        return str(op.attributes["applies"])
    return op.regions[region].combiner if len(op.regions) > region else ""


def _reduce(op: Operation, x: Array, init: Array) -> Array:
    how = _combiner(op)
    if how not in _REDUCE:
        raise ValueError(f"no evaluation for a reduction by '{how or 'its region'}'")
    axes = op.ints("dimensions")
    kept = [i for i in range(x.ndim) if i not in axes]
    flat = x.transpose([*kept, *axes]).reshape([x.shape[i] for i in kept] + [-1])
    out = np.asarray(_REDUCE[how](flat, axis=-1))
    return _TABLE[how](op, np.broadcast_to(init, out.shape), out)


def _windows(op: Operation, x: Array, fill: Any) -> Array:
    """The windows of ``x`` in their order, one flat axis of each window's elements last."""
    edges = cast("Any", op.attributes["padding"])
    size, spread = op.ints("window_dimensions"), op.ints("window_dilations")
    x = _spread(x, edges, op.ints("base_dilations"), fill)
    whole = tuple((n - 1) * d + 1 for n, d in zip(size, spread, strict=True))
    windows = sliding_window_view(x, whole)
    windows = windows[tuple(slice(None, None, s) for s in op.ints("window_strides"))]
    every: tuple[Any, ...] = (..., *(slice(None, None, d) for d in spread))
    windows = windows[every]
    return np.asarray(windows.reshape((*windows.shape[: x.ndim], -1)))


def _reduce_window(op: Operation, x: Array, init: Array) -> Array:
    how = _combiner(op)
    if how not in _REDUCE:
        raise ValueError(f"no evaluation for a window reduced by '{how or 'its region'}'")
    return np.asarray(_REDUCE[how](_windows(op, x, init), axis=-1))


def _select_and_scatter(op: Operation, x: Array, source: Array, init: Array) -> Array:
    choose, scatter = op.regions[0].combiner, op.regions[1].combiner
    if choose not in ("compare GE", "compare GT") or scatter != "add":
        raise ValueError("select by GE or GT and scatter by add are what is evaluated")
    windows = _windows(op, _order(x).astype(float), -np.inf)
    places = _windows(op, np.arange(x.size).reshape(x.shape), -1)
    if choose == "compare GE":
        # The one selected so far stays on a tie: the first of equals.
        best = windows.argmax(-1)
    else:
        best = windows.shape[-1] - 1 - windows[..., ::-1].argmax(-1)
    chosen = np.take_along_axis(places, best[..., None], -1)[..., 0]
    out = np.full(x.size, init, dtype=source.dtype)
    np.add.at(out, chosen[chosen >= 0], source[chosen >= 0])
    return out.reshape(x.shape)


def _all_reduce(op: Operation, x: Array) -> Array:
    count = 1 if op.replicas is None else op.replicas
    how = _combiner(op)
    if how not in ("add", "maximum", "minimum"):
        raise ValueError(f"no evaluation for replicas reduced by '{how or 'its region'}'")
    return x * count if how == "add" else x


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_TABLE: dict[str, Callable[..., Array]] = {
    "add": _each(np.add),
    "subtract": _each(np.subtract),
    "multiply": _each(np.multiply),
    "divide": _each(np.divide),
    "power": _each(np.power),
    "remainder": _each(np.fmod),
    "negate": _each(np.negative),
    "abs": _each(np.abs),
    "sign": _each(np.sign),
    "exponential": _each(np.exp),
    "exponential_minus_one": _each(np.expm1),
    "log": _each(np.log),
    "log_plus_one": _each(np.log1p),
    "logistic": _each(_logistic),
    "tanh": _each(np.tanh),
    "sine": _each(np.sin),
    "cosine": _each(np.cos),
    "floor": _each(np.floor),
    "ceil": _each(np.ceil),
    "sqrt": _each(np.sqrt),
    "rsqrt": _each(lambda x: 1 / np.sqrt(x)),
    "is_finite": _each(np.isfinite),
    "and": _each(np.bitwise_and),
    "or": _each(np.bitwise_or),
    "xor": _each(np.bitwise_xor),
    "not": _each(np.invert),
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp": _clamp,
    "compare": _compare,
    "select": _select,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "dot_general": _dot_general,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "select_and_scatter": _select_and_scatter,
    "all_reduce": _all_reduce,
}

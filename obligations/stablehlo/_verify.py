"""Whether an operation's types fit it: what a later reader of its dimensions relies on.

The rules are the StableHLO specification's constraints on shapes, for the operations whose
dimensions are looked at. An operation without a rule is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from obligations.stablehlo.ir import Operation, TensorType

Shapes: TypeAlias = Sequence[tuple[int, ...]]


def problem(op: Operation, types: Sequence[TensorType]) -> str | None:
    """What does not fit in ``op`` on operands of ``types``; None when nothing is seen."""
    if op.operand_types and op.kind != "call":
        if len(op.operand_types) != len(types):
            return f"{len(types)} operands and {len(op.operand_types)} operand types"
        for name, written, real in zip(op.operands, op.operand_types, types, strict=True):
            if written != real:
                return f"%{name} is {real}, written here as {written}"
    shapes = [t.shape for t in types]
    results = [t.shape for t in op.result_types]
    if any(n < 0 for s in (*shapes, *results) for n in s):
        return None
    if op.kind == "reduce":
        return _reductions(op, types)
    rule = _RULES.get(op.kind)
    if rule is None:
        return None
    count, check = rule
    if len(shapes) != count or len(results) != 1:
        return f"takes {count} operand{'s' * (count > 1)}, has {len(shapes)}"
    return check(op, shapes, results[0])


def _expect(what: str, found: Sequence[int], wanted: Sequence[int]) -> str | None:
    if tuple(found) == tuple(wanted):
        return None
    return f"{what} is {_text(found)}, should be {_text(wanted)}"


def _text(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _distinct(dims: Sequence[int], rank: int) -> str | None:
    if len(set(dims)) != len(dims) or any(not 0 <= d < rank for d in dims):
        return f"dimensions {list(dims)} are not distinct ones of {rank}"
    return None


def _each(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    for name, shape in zip(op.operands, shapes, strict=True):
        if shape != out:
            return _expect(f"the shape of %{name}", shape, out)
    return None


def _select(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    return None if shapes[0] in ((), out) and shapes[1:] == [out, out] else "shapes differ"


def _clamp(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    return None if shapes[1] == out and {shapes[0], shapes[2]} <= {(), out} else "shapes differ"


def _reshape(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    if math.prod(shapes[0]) != math.prod(out):
        return f"{_text(shapes[0])} has not as many elements as {_text(out)}"
    return None


def _transpose(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    dims = op.ints("dims")
    if sorted(dims) != list(range(len(shapes[0]))):
        return f"dims {list(dims)} are not a permutation of {len(shapes[0])}"
    return _expect("the result", out, [shapes[0][d] for d in dims])


def _broadcast(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    dims = op.ints("dims")
    if len(dims) != len(shapes[0]):
        return f"{len(dims)} dims for an operand of {len(shapes[0])} dimensions"
    bad = _distinct(dims, len(out))
    if bad:
        return bad
    for n, d in zip(shapes[0], dims, strict=True):
        if n not in (1, out[d]):
            return f"a dimension of {n} does not spread to {out[d]}"
    return None


def _reverse(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    return _distinct(op.ints("dims"), len(out)) or _expect("the result", out, shapes[0])


def _reduce(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    dims = op.ints("dimensions")
    kept = [n for d, n in enumerate(shapes[0]) if d not in dims]
    return _distinct(dims, len(shapes[0])) or _expect("the result", out, kept)


def _reductions(op: Operation, types: Sequence[TensorType]) -> str | None:
    """A ``reduce`` of one operand or several."""
    if len(types) != 2 * len(op.results):
        return f"{len(op.results)} results need {2 * len(op.results)} operands"
    for kind, out in zip(types, op.result_types, strict=False):
        found = _reduce(op, [kind.shape], out.shape)
        if found:
            return found
    return None


def _pad(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    edges = [op.ints(name) for name in ("low", "high", "interior")]
    if any(len(e) != len(shapes[0]) for e in edges) or min(edges[2], default=0) < 0:
        return "low, high and interior do not fit the operand"
    wanted = [
        n + low + high + inner * max(n - 1, 0)
        for n, low, high, inner in zip(shapes[0], *edges, strict=True)
    ]
    return _expect("the result", out, wanted)


def _slice(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    start, limit, stride = (op.ints(name) for name in ("start", "limit", "stride"))
    if not len(start) == len(limit) == len(stride) == len(shapes[0]):
        return "the ranges do not fit the operand"
    bounds = list(zip(shapes[0], start, limit, stride, strict=True))
    if any(not 0 <= a <= b <= n or s < 1 for n, a, b, s in bounds):
        return "a range lies outside the operand"
    return _expect("the result", out, [-(-(b - a) // s) for _, a, b, s in bounds])


def _dot(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    contract = cast("Any", op.attributes["contracting"])
    batch = cast("Any", op.attributes["batching"])
    for side in (0, 1):
        bad = _distinct((*contract[side], *batch[side]), len(shapes[side]))
        if bad:
            return bad
    for pair in (contract, batch):
        sizes = [[shapes[side][d] for d in pair[side]] for side in (0, 1)]
        if sizes[0] != sizes[1]:
            return f"contracts {_text(sizes[0])} with {_text(sizes[1])}"
    wanted = [shapes[0][d] for d in batch[0]]
    for side in (0, 1):
        used = (*contract[side], *batch[side])
        wanted += [n for d, n in enumerate(shapes[side]) if d not in used]
    return _expect("the result", out, wanted)


def _window_size(
    n: int, size: int, stride: int, edges: tuple[int, int], inner: int, spread: int
) -> int:
    whole = (n - 1) * inner + 1 + sum(edges) if n else sum(edges)
    reach = (size - 1) * spread + 1
    return 0 if whole < reach else (whole - reach) // stride + 1


def _convolution(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    a = cast("Any", op.attributes)
    spatial = list(range(len(out) - 2))
    for numbers, extra, shape in zip(
        a["dim_numbers"], (("b", "f"), ("o", "i"), ("b", "f")), (*shapes, out), strict=True
    ):
        if len(shape) != len(numbers) or set(numbers) != {*extra, *spatial}:
            return "dim_numbers do not fit the shapes"
    lhs, rhs, result = (
        dict(zip(numbers, shape, strict=True))
        for numbers, shape in zip(a["dim_numbers"], (*shapes, out), strict=True)
    )
    positive = (*a["stride"], *a["lhs_dilate"], *a["rhs_dilate"])
    groups, batches = a["feature_group_count"], a["batch_group_count"]
    if min((*positive, groups, batches)) < 1:
        return "strides, dilations and group counts must be positive"
    if lhs["f"] != rhs["i"] * groups or rhs["o"] % (groups * batches) or lhs["b"] % batches:
        return (
            f"{lhs['f']} input features, kernel {rhs['i']} to {rhs['o']}, {groups} feature groups "
            f"and {batches} batch groups do not fit"
        )
    wanted: dict[str | int, int] = {"b": lhs["b"] // batches, "f": rhs["o"]}
    for k in spatial:
        wanted[k] = _window_size(
            lhs[k], rhs[k], a["stride"][k], a["pad"][k], a["lhs_dilate"][k], a["rhs_dilate"][k]
        )
    return _expect("the result", [result[d] for d in wanted], list(wanted.values()))


def _windowed(op: Operation, shape: tuple[int, ...]) -> list[int] | str:
    a = cast("Any", op.attributes)
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    if any(len(a[name]) != len(shape) or min(a[name], default=1) < 1 for name in names):
        return "the window does not fit the operand"
    if len(a["padding"]) != len(shape):
        return "the padding does not fit the operand"
    size, strides, base, spread = (a[name] for name in names)
    return [
        _window_size(n, size[d], strides[d], a["padding"][d], base[d], spread[d])
        for d, n in enumerate(shape)
    ]


def _reduce_window(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    wanted = _windowed(op, shapes[0])
    return wanted if isinstance(wanted, str) else _expect("the result", out, wanted)


def _scatter(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    wanted = _windowed(op, shapes[0])
    if isinstance(wanted, str):
        return wanted
    if len(op.regions) != 2:
        return "takes two regions"
    return _expect("the source", shapes[1], wanted) or _expect("the result", out, shapes[0])


def _iota(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    return _distinct(op.ints("dim"), len(out))


def _constant(op: Operation, shapes: Shapes, out: tuple[int, ...]) -> str | None:
    dense = cast("Any", op.attributes["value"])
    if dense.splat is None and dense.text.count(",") + 1 != math.prod(out):
        # Strings of bytes and empty tensors are not counted.
        return None if '"' in dense.text or not dense.text else "lists another number of elements"
    return None


_Rule: TypeAlias = Callable[[Operation, Shapes, tuple[int, ...]], str | None]
_RULES: dict[str, tuple[int, _Rule]] = {
    "constant": (0, _constant),
    "iota": (0, _iota),
    "select": (3, _select),
    "clamp": (3, _clamp),
    "reshape": (1, _reshape),
    "transpose": (1, _transpose),
    "broadcast_in_dim": (1, _broadcast),
    "reverse": (1, _reverse),
    "pad": (2, _pad),
    "slice": (1, _slice),
    "dot_general": (2, _dot),
    "convolution": (2, _convolution),
    "reduce_window": (2, _reduce_window),
    "select_and_scatter": (3, _scatter),
    "all_reduce": (1, _each),
}
_BINARY = """
    add subtract multiply divide power remainder maximum minimum and or xor compare
"""
_UNARY = """
    negate abs sign exponential exponential_minus_one log log_plus_one logistic tanh sine cosine
    floor ceil sqrt rsqrt cbrt is_finite not convert
"""
_RULES |= dict.fromkeys(_BINARY.split(), (2, _each)) | dict.fromkeys(_UNARY.split(), (1, _each))

"""Pooling: the 3×3 stride-2 maximum of a stem, and the average over all rows and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from obligations.ops.artifact import Matched
from obligations.ops.base import (
    Array,
    Backward,
    Convention,
    Family,
    Input,
    Kernel,
    Name,
    Objection,
    Operation,
    Placed,
)
from obligations.ops.convolutional import taps
from obligations.ops.core import align, by_example, join, split


def _padded(c: int, h: int, w: int, x: Array) -> Array:
    """Images with ``-∞`` above and to the left: ``(p, m, c, 2h + 1, 2w + 1)``.

    Window ``i`` covers rows ``2i - 1 … 2i + 1``, so that only the top and the left stick out.
    """
    image = split(x, c, 2 * h, 2 * w)
    padded = np.full((*image.shape[:3], 2 * h + 1, 2 * w + 1), -np.inf, image.dtype)
    padded[..., 1:, 1:] = image
    return padded


def _windows(c: int, h: int, w: int, x: Array) -> Array:
    """The nine candidates of every window: ``(p, m, c, h, w, 9)``."""
    padded = _padded(c, h, w, x)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(-2, -1))
    return windows[:, :, :, ::2, ::2].reshape(*padded.shape[:3], h, w, 9)


def max_pool(c: int, h: int, w: int, x: Array) -> Array:
    """The largest of each window, by real part, and the first of equals.

    ``(p, *batch, c*2h*2w)`` to ``(p, *batch, c*h*w)``.
    """
    padded = _padded(c, h, w, x)
    best = padded[..., : 2 * h : 2, : 2 * w : 2]
    for i, j in np.ndindex(3, 3):
        other = padded[..., i : i + 2 * h : 2, j : j + 2 * w : 2]
        best = np.where(other.real > best.real, other, best)
    return join(best, x)


def max_pool_back(c: int, h: int, w: int, x: Array, dy: Array) -> Array:
    """``dy`` added at the argmax of each window of the saved ``x``, the first one of equals."""
    x, dy = align(x, dy)
    saved, cot = split(x.real, c, 2 * h, 2 * w), split(dy, c, h, w)
    grid = [
        (rows, columns)
        for _, *rows in taps(3, 2 * h, h, 2, 0)
        for _, *columns in taps(3, 2 * w, w, 2, 0)
    ]
    best = np.full((*saved.shape[:3], h, w), -np.inf)
    winner = np.zeros(best.shape, int)
    for tap, ((in_row, out_row), (in_col, out_col)) in enumerate(grid):
        candidate = saved[..., in_row, in_col]
        better = candidate > best[..., out_row, out_col]
        winner[..., out_row, out_col][better] = tap
        best[..., out_row, out_col][better] = candidate[better]
    lead = np.broadcast_shapes(saved.shape[:3], cot.shape[:3])
    dx = np.zeros((*lead, 2 * h, 2 * w), cot.dtype)
    for tap, ((in_row, out_row), (in_col, out_col)) in enumerate(grid):
        chosen = np.where(winner == tap, cot, cot.dtype.type(0))
        dx[..., in_row, in_col] += chosen[..., out_row, out_col]
    return join(dx, x, dy)


def _gap(dims: Mapping[str, int], x: Array) -> tuple[Array, Array]:
    rows = x.real.reshape(*x.shape[:-1], dims["N"], -1)
    ordered = np.sort(_windows(dims["c"], dims["h"], dims["w"], rows), axis=-1)
    largest, second = ordered[..., -1], ordered[..., -2]
    shape = (*x.shape[:-1], -1)
    # The input of this pool is a relu's output: a zero is a masked value, and so is its equal.
    return (largest - second).reshape(shape), (largest == 0).reshape(shape)


def _run_max(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
    c, h, w = dims["c"], dims["h"], dims["w"]
    return by_example(dims["N"], lambda rows: max_pool(c, h, w, rows), x)


def _max_back(n: int, c: int, h: int, w: int, x: Array, dy: Array) -> Array:
    dx = max_pool_back(c, h, w, x.reshape(*x.shape[:-1], n, -1), dy.reshape(*dy.shape[:-1], n, -1))
    return dx.reshape(*dx.shape[:-2], -1)


def average(c: int, h: int, w: int, x: Array) -> Array:
    """Mean over rows and columns: ``(p, *batch, c * h * w)`` to ``(p, *batch, c)``."""
    mean: Array = x.reshape(*x.shape[:-1], c, h * w).mean(axis=-1)
    return mean


def average_back(h: int, w: int, dy: Array) -> Array:
    """``dy / (h · w)`` at every row and column."""
    return np.repeat(dy / (h * w), h * w, axis=-1)


MAX_POOL = Operation(
    word="maxpool",
    role="pool",
    inputs=(Input("x", ("c", "2*h", "2*w")),),
    output=("c", "h", "w"),
    forward="batchMap N (maxPool3s2Flat c h w) x",
    run=_run_max,
    backward=(
        Backward(
            token="maxPool3s2BackB",
            operands=("x",),
            lean="mpInB N c h w x dy",
            says="sent to the maximum of each window of `{x}`",
        ),
    ),
    noun="max pool",
    stride=2,
    kernel=Kernel(sides=(3,)),
    window_gap=_gap,
    linear=False,
    artifact=Matched("window", combiner="maximum"),
)

AVERAGE_POOL = Operation(
    word="gap",
    role="pool",
    inputs=(Input("x", ("c", "h", "w")),),
    output=("c",),
    forward="batchMap N (globalAvgPoolFlat c h w) x",
    # Batch and channel are adjacent, so that the batch is so many more channels.
    run=lambda dims, params, x: average(dims["N"] * dims["c"], dims["h"], dims["w"], x),
    backward=(
        Backward(
            token="gapBackBatched",
            operands=(),
            lean="gapInB N c h w dy",
            says="spread evenly over rows and columns",
        ),
    ),
    noun="average pool",
    artifact=Matched("average"),
)

_NAMES = (
    Name(
        "maxPool3s2Flat",
        "(c h w : Nat) (x : Vec (c * (2 * h) * (2 * w))) : Vec (c * h * w)",
        value=max_pool,
    ),
    Name(
        "mpInB",
        "(N c h w : Nat) (x : Vec (N * (c * (2 * h) * (2 * w)))) (dy : Vec (N * (c * h * w)))"
        " : Vec (N * (c * (2 * h) * (2 * w)))",
        value=_max_back,
    ),
    Name("globalAvgPoolFlat", "(c h w : Nat) (x : Vec (c * h * w)) : Vec c", value=average),
    Name(
        "gapInB",
        "(N c h w : Nat) (dy : Vec (N * c)) : Vec (N * (c * h * w))",
        value=lambda n, c, h, w, dy: average_back(h, w, dy),
    ),
)


def _stated(
    words: str, sites: Sequence[Placed], operations: Iterable[Operation]
) -> Objection | None:
    """The pools of the sites have the window and stride that the words begin with."""
    pools = [(op, sizes) for op, sizes in sites if op.window_gap is not None]
    if not pools:
        return Objection("the convention speaks of pools, but no site is one")
    for op, sizes in pools:
        text = f"{sizes['kH']}×{sizes['kW']} stride {op.stride}"
        if re.match(rf"{text}\b", words.replace("x", "×")) is None:
            return Objection(f"a site is {text}, and the convention says not")
    return None


FAMILY = Family(
    operations=(MAX_POOL, AVERAGE_POOL),
    names=_NAMES,
    conventions=(Convention("pool", check=_stated),),
)

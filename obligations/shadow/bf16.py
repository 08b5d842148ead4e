"""Rounding to bfloat16, nearest even, in one step from float64."""

from __future__ import annotations

import numpy as np

from obligations.ops import Array

_DROPPED = np.uint64(45)  # of float64's 52 stored significand bits, bfloat16 keeps 7
_MASK = np.uint64((1 << 45) - 1)
_HALF = np.uint64((1 << 44) - 1)
_SMALLEST_NORMAL = 2.0**-126
_QUANTUM = 2.0**-133
_LARGEST = (2.0 - 2.0**-7) * 2.0**127


def round_bf16(x: Array) -> Array:
    """``x`` (float64, finite or not) rounded to the nearest bfloat16, ties to even.

    Values past the largest bfloat16 by half a unit or more become infinite; subnormals are kept.
    The rounding is direct: going through float32 would round twice.
    """
    x = np.asarray(x, dtype=np.float64)
    bits = x.view(np.uint64)
    odd = (bits >> _DROPPED) & np.uint64(1)
    with np.errstate(over="ignore"):
        rounded = ((bits + _HALF + odd) & ~_MASK).view(np.float64)
    # Below the smallest normal the spacing is constant; rint rounds ties to even.
    small = np.abs(x) < _SMALLEST_NORMAL
    out = np.where(small, np.rint(np.where(small, x, 0.0) / _QUANTUM) * _QUANTUM, rounded)
    out = np.where(np.abs(out) > _LARGEST, np.copysign(np.inf, x), out)
    return np.where(np.isfinite(x), out, x)

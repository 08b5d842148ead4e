"""The label-smoothed cross-entropy and its cotangent at the logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from obligations.ops.base import Array, Family, Name
from obligations.ops.core import align, join, split


def log_softmax(z: Array) -> Array:
    """Over the last axis, shifted by the largest real part so that nothing overflows."""
    shifted = z - z.real.max(axis=-1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def cross_entropy(t: Array, z: Array) -> Array:
    """``Σ_k t_k · (-log softmax(z)_k)``: two ``(p, *batch, K)`` to ``(p, *batch, 1)``."""
    target, logits = align(t, z)
    loss: Array = -(target * log_softmax(logits)).sum(axis=-1, keepdims=True)
    return loss


def smoothed_target(k: int, alpha: Array, t: Array) -> Array:
    """``(1 - α) · t + α / K``."""
    alpha, target = align(alpha, t)
    return (1 - alpha) * target + alpha / k


def smoothed_cotangent(n: int, k: int, alpha: Array, scale: Array, z: Array, t: Array) -> Array:
    """``(softmax(z) - t + α · t - α / K) / B`` per row; ``scale`` is ``B``.

    ``z`` and ``t`` are ``(p, *batch, N * (1 * K))``, and so is the result.
    """
    logits, target = split(z, n, k), split(t, n, k)
    shrink, share = split(alpha, 1, 1), split(scale, 1, 1)
    powers = np.exp(logits - logits.real.max(axis=-1, keepdims=True))
    softmax = powers / powers.sum(axis=-1, keepdims=True)
    return join((softmax - target + shrink * target - shrink / k) / share, z, t)


def _graph(n: int, k: int, alpha: Array, scale: Array, *rest: Any) -> Array:
    return smoothed_cotangent(n, k, alpha, scale, *rest[-2:])


_ROW_OF = "(Mat.unflatten (batchSlice N (1 * K) {} n) (0 : Fin 1))"
LOSS = "g"
"""What a whole-net statement calls the cotangent at the logits."""

LOSS_STRINGS = ("aStr", "negAK", "bStr", "logN", "ohN")
"""The names of constants in the loss's graph, which its value does not depend on."""

_GRAPH = f"smoothedLossCotGraph N K α B {' '.join(LOSS_STRINGS)} logits t"
_TARGET = "Mat.unflatten (batchSlice N (1 * K) t n) (0 : Fin 1)"
_LOGITS = "Mat.unflatten (batchSlice N (1 * K) logits n) (0 : Fin 1)"

ROWS = "rowB N K z"
"""Template of the logits ``z``, one row an example, as the loss's graph takes them."""

COTANGENT = f"unrowB N K (den ({_GRAPH}))"
"""Template of the cotangent at the logits."""

TARGET_SUMS_TO_ONE = f"∑ k : Fin K, {_TARGET} k = 1"
"""Template of what the loss row asks of an example's target."""

ROW = (
    f"den ({_GRAPH}) (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) ="
    " (pdiv (fun z' : Vec K => fun _ : Fin 1 =>"
    f" softCE K (smoothTarget K α ({_TARGET})) z') ({_LOGITS}) j 0) / B"
)
"""Template of the loss row: the emitted cotangent is the loss's derivative."""

ROW_PROOF = f"smoothedLossCotGraph_row N K hK α B {' '.join(LOSS_STRINGS)} _ t n j ht"
"""Template of its proof."""

_NAMES = (
    Name(
        "smoothedLossCotGraph",
        f"(N K : Nat) (α B : ℝ) ({' '.join(LOSS_STRINGS)} : String)"
        " (logits t : Vec (N * (1 * K))) : SHlo (N * (1 * K))",
        value=_graph,
        inert=LOSS_STRINGS,
    ),
    Name(
        "softCE",
        "(K : Nat) (t z : Vec K) : ℝ",
        value=lambda k, t, z: cross_entropy(t, z),
    ),
    Name("smoothTarget", "(K : Nat) (α : ℝ) (t : Vec K) : Vec K", value=smoothed_target),
    Name(
        "smoothedLossCotGraph_row",
        f"(N K : Nat) (hK : 0 < K) (α B : ℝ) ({' '.join(LOSS_STRINGS)} : String)"
        " (logits t : Vec (N * (1 * K))) (n : Fin N) (j : Fin K)"
        f" (ht : ∑ k : Fin K, {_ROW_OF.format('t')} k = 1)"
        " : den (smoothedLossCotGraph N K α B aStr negAK bStr logN ohN logits t)"
        " (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) ="
        " (pdiv (fun z' : Vec K => fun _ : Fin 1 =>"
        f" softCE K (smoothTarget K α {_ROW_OF.format('t')}) z') {_ROW_OF.format('logits')} j 0)"
        " / B",
        proves=True,
    ),
)

FAMILY = Family(names=_NAMES)

"""The label-smoothed cross-entropy: its numbers, and what Lean files say of it."""

from __future__ import annotations

import numpy as np

from obligations.ops.base import (
    Array,
    Convention,
    Family,
    Given,
    Loss,
    LossClaim,
    LossFault,
    Name,
    SoftmaxSeed,
    Values,
)
from obligations.ops.core import align, join, split

SEED = "g"
"""What a whole-net statement calls the cotangent at the logits."""


def convention(words: tuple[str, ...]) -> Convention:
    """What a description may say of the loss: the words of one that the table has."""
    return Convention(
        "loss", values=words, open_ended=True, unknown="the loss cannot be '{}'"
    )  # fmt: skip


# -- in numbers --------------------------------------------------------------------------------


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


def _value(n: int, k: int, given: Values, z: Array) -> Array:
    """The sum of the examples' smoothed cross-entropies, over ``B``: ``(p, 1)``."""
    target = smoothed_target(k, given["α"], split(given["t"], n, k)[:, 0])
    return np.asarray(cross_entropy(target, split(z, n, k)[:, 0]).sum(axis=1) / given["B"])


def smoothed_cotangent(n: int, k: int, alpha: Array, scale: Array, z: Array, t: Array) -> Array:
    """``(softmax(z) - t + α · t - α / K) / B`` per row; ``scale`` is ``B``.

    ``z`` and ``t`` are ``(p, *batch, N * (1 * K))``, and so is the result.
    """
    logits, target = split(z, n, k), split(t, n, k)
    shrink, share = split(alpha, 1, 1), split(scale, 1, 1)
    powers = np.exp(logits - logits.real.max(axis=-1, keepdims=True))
    softmax = powers / powers.sum(axis=-1, keepdims=True)
    return join((softmax - target + shrink * target - shrink / k) / share, z, t)


def _target(rng: np.random.Generator, n: int, k: int) -> Array:
    raw: Array = rng.uniform(0.1, 1.0, (n, k))
    return np.asarray(raw / raw.sum(axis=1, keepdims=True)).reshape(1, -1)


def _claims(rng: np.random.Generator, n: int, k: int) -> tuple[LossClaim, ...]:
    """At one-hot and mixed targets, and at one that does not sum to 1."""
    hot, other = (np.eye(k)[rng.integers(k, size=n)] for _ in range(2))
    share = rng.uniform(0.2, 0.8, (n, 1))
    mixed = share * hot + (1 - share) * other
    off = hot * rng.uniform(1.3, 1.9, (n, 1))
    hot, mixed, off = (t.reshape(1, -1) for t in (hot, mixed, off))
    return (
        LossClaim("one-hot targets", {"t": hot}),
        LossClaim("mixed targets", {"t": mixed}),
        LossClaim("a target that does not sum to 1", {"t": off}, "targets of sum > 1"),
    )


# -- in Lean -----------------------------------------------------------------------------------

_STRINGS = ("aStr", "negAK", "bStr", "logN", "ohN")
_TAKES = f"(α B : ℝ) ({' '.join(_STRINGS)} : String) (logits t : Vec (N * (1 * K)))"
_T, _Z = (f"Mat.unflatten (batchSlice N (1 * K) {v} n) (0 : Fin 1)" for v in ("t", "logits"))
_SUMS_TO_ONE = f"∑ k : Fin K, {_T} k = 1"


def _graph(alpha: str = "α", divisor: str = "B", logits: str = "logits", t: str = "t") -> str:
    return f"smoothedLossCotGraph N K {alpha} {divisor} {' '.join(_STRINGS)} {logits} {t}"


def _derivative(target: str = f"smoothTarget K α ({_T})", at: str = _Z, over: str = " / B") -> str:
    return f"(pdiv (fun z' : Vec K => fun _ : Fin 1 => softCE K ({target}) z') ({at}) j 0){over}"


_FAULTS = (
    LossFault("loss: α lost", "α is 0", graph=_graph(alpha="0")),
    LossFault("loss: 1/B lost", "B is 1", graph=_graph(divisor="1")),
    LossFault(
        "loss: α and B exchanged", "α and B are exchanged", graph=_graph(alpha="B", divisor="α")
    ),
    LossFault(
        "loss: wrong target",
        "logits and target are exchanged",
        graph=_graph(logits="t", t="logits"),
    ),
    LossFault("loss: wrong target", "the target is the logits", graph=_graph(t="logits")),
    LossFault("loss: 1/B lost", "1/B is lost", derivative=_derivative(over="")),
    LossFault("loss: α lost", "the target is not smoothed", derivative=_derivative(_T)),
    LossFault("loss: α lost", "α is 0", derivative=_derivative(f"smoothTarget K 0 ({_T})")),
    LossFault(
        "loss: wrong target",
        "the logits are smoothed instead of the target",
        derivative=_derivative(f"smoothTarget K α ({_Z})"),
    ),
    LossFault(
        "loss: wrong target",
        "it is taken at the target instead of the logits",
        derivative=_derivative(at=_T),
    ),
)

SMOOTHED = Loss(
    word="smoothed cross-entropy",
    says=("cross-entropy", "label-smoothed cross-entropy"),
    value=_value,
    gradient=lambda n, k, given, z: smoothed_cotangent(n, k, given["α"], given["B"], z, given["t"]),
    constants=(
        Given("α", "ℝ", lambda rng, n, k: np.array([[rng.uniform(0.05, 0.3)]])),
        Given("B", "ℝ", lambda rng, n, k: np.array([[rng.uniform(2.0, 5.0)]])),
    ),
    data=(Given("t", "Vec (N * (1 * K))", _target),),
    strings=_STRINGS,
    divisor="B",
    graph=_graph(),
    derivative=_derivative(),
    proof=f"smoothedLossCotGraph_row N K hK α B {' '.join(_STRINGS)} _ t n j ht",
    of_sizes=(("hK", "0 < K"),),
    of_data=(("ht", _SUMS_TO_ONE),),
    bound=("k", "z'"),
    marks=("smoothedLossCotGraph", "pdiv"),
    says_row="Row `n` is the derivative of the soft-target cross-entropy, over `B`; the targets of "
    "an example need only sum to 1 (`ht`).",
    faults=_FAULTS,
    claims=_claims,
    softmax=SoftmaxSeed(
        constants=lambda kept, batch: {"α": np.array([[1.0 - kept]]), "B": np.array([[batch]])},
        due=lambda given, k: (1.0 - given["α"].item(), given["α"].item() / k),
        chosen="α",
        share="α/K",
        plain="cross-entropy",
    ),
)

_NAMES = (
    Name(
        "smoothedLossCotGraph",
        f"(N K : Nat) {_TAKES} : SHlo (N * (1 * K))",
        value=lambda n, k, alpha, scale, *rest: smoothed_cotangent(n, k, alpha, scale, *rest[-2:]),
        inert=_STRINGS,
    ),
    Name("softCE", "(K : Nat) (t z : Vec K) : ℝ", value=lambda k, t, z: cross_entropy(t, z)),
    Name("smoothTarget", "(K : Nat) (α : ℝ) (t : Vec K) : Vec K", value=smoothed_target),
    Name(
        "smoothedLossCotGraph_row",
        f"(N K : Nat) (hK : 0 < K) {_TAKES} (n : Fin N) (j : Fin K) (ht : {_SUMS_TO_ONE})"
        f" : den ({_graph()}) (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) ="
        f" {_derivative()}",
        proves=True,
    ),
)

FAMILY = Family(names=_NAMES, losses=(SMOOTHED,))

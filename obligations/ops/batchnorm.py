"""Batch BatchNorm: statistics over batch, rows and columns, one pair per channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from obligations.ops.artifact import (
    DY,
    Formula,
    Gradient,
    deviation,
    inverse,
    mean,
    symbol,
    total,
)
from obligations.ops.base import (
    Array,
    Backward,
    Clause,
    Convention,
    Family,
    Form,
    Input,
    Name,
    Operation,
    Parameter,
    Synchronised,
)
from obligations.ops.core import join, split

# In a value split as (p, m, N, c, h * w), the axes a channel's statistics run over.
_SPREAD = (2, 4)


def forward(n: int, c: int, area: int, eps: Array, gamma: Array, beta: Array, x: Array) -> Array:
    """``γ · (x - μ) / √(var + ε) + β``, with the biased variance.

    ``x`` is ``(p, *batch, N * (c * area))``, and so is the result.
    """
    rows = split(x, n, c, area)
    centred = rows - rows.mean(axis=_SPREAD, keepdims=True)
    variance = (centred * centred).mean(axis=_SPREAD, keepdims=True)
    unit = centred / np.sqrt(variance + split(eps, 1, 1, 1))
    return join(split(gamma, 1, c, 1) * unit + split(beta, 1, c, 1), x)


def _saved(n: int, c: int, area: int, eps: Array, x: Array) -> tuple[Array, Array]:
    """``x̂`` and ``1 / √(var + ε)`` of a saved input, as ``(p, m, N, c, area)`` and broadcast.

    Written apart from :func:`forward`, so that a mistake there is not repeated here.
    """
    rows = split(x, n, c, area)
    count = n * area
    mean = np.einsum("pmnca->pmc", rows)[:, :, None, :, None] / count
    spread = np.einsum("pmnca,pmnca->pmc", rows - mean, rows - mean)[:, :, None, :, None]
    inverse = (spread / count + split(eps, 1, 1, 1)) ** -0.5
    return (rows - mean) * inverse, inverse


def input_gradient(
    n: int, c: int, area: int, eps: Array, gamma: Array, x: Array, dy: Array
) -> Array:
    """The three-term formula ``γ / √(var + ε) · (dy - mean(dy) - x̂ · mean(dy · x̂))``."""
    unit, inverse = _saved(n, c, area, eps, x)
    cot = split(dy, n, c, area)
    along = unit * (cot * unit).mean(axis=_SPREAD, keepdims=True)
    centred = cot - cot.mean(axis=_SPREAD, keepdims=True) - along
    return join(split(gamma, 1, c, 1) * inverse * centred, x, dy)


def gamma_gradient(n: int, c: int, area: int, eps: Array, x: Array, cot: Array) -> Array:
    """The channel sum of ``cot · x̂``: ``(p, *batch, c)``."""
    unit, _ = _saved(n, c, area, eps, x)
    return join((split(cot, n, c, area) * unit).sum(axis=_SPREAD), x, cot)


def gamma_magnitude(n: int, c: int, area: int, eps: Array, x: Array, cot: Array) -> Array:
    """The channel sum of ``|cot · x̂|``."""
    unit, _ = _saved(n, c, area, eps, x)
    return join(np.abs(split(cot, n, c, area) * unit).sum(axis=_SPREAD), x, cot)


def beta_gradient(n: int, c: int, area: int, cot: Array) -> Array:
    """The channel sum of ``cot``: ``(p, *batch, c)``."""
    return join(split(cot, n, c, area).sum(axis=_SPREAD), cot)


def _batch_bn(n: int, c: int, h: int, w: int, *rest: Array) -> Array:
    return forward(n, c, h * w, *rest)


_FLAT = "Vec (N * (c * h * w))"
_CHANNELS = "Vec (N * (c * (h * w)))"

_NAMES = (
    Name(
        "bnBatchLA",
        f"(N c h w : Nat) (ε : ℝ) (γ β : Vec c) (x : {_FLAT}) : {_FLAT}",
        value=_batch_bn,
    ),
    # Not a name of the library: the layer over the index its parameter nodes use.
    Name(
        "bnBatchFlat",
        f"(N c h w : Nat) (ε : ℝ) (γ β : Vec c) (x : {_CHANNELS}) : {_CHANNELS}",
        value=_batch_bn,
    ),
    Name(
        "bnInB",
        f"(N c h w : Nat) (ε : ℝ) (γ : Vec c) (x dy : {_FLAT}) : {_FLAT}",
        value=lambda n, c, h, w, *rest: input_gradient(n, c, h * w, *rest),
    ),
    Name(
        "bnBackB",
        f"(N c h w : Nat) (ε : ℝ) (hε : 0 < ε) (γ β : Vec c) (x dy : {_FLAT}) : {_FLAT}",
        definition=f"fun i => ∑ j : Fin (N * (c * h * w)),"
        f" pdiv (fun x' : {_FLAT} => bnBatchLA N c h w ε γ β x') x i j * dy j",
        inert=("hε", "β"),
    ),
    Name(
        "bnInB_eq_bnBackB",
        "(N c h w : Nat) (ε : ℝ) (hε : 0 < ε) (γ β : Vec c)"
        " : bnInB N c h w ε γ = bnBackB N c h w ε hε γ β",
        proves=True,
    ),
    Name(
        "SHlo.bnGammaGradB",
        f"{{N c h w : Nat}} (vN epsStr : String) (ε : ℝ) (v : {_CHANNELS})"
        " (e : SHlo (N * (c * (h * w)))) : SHlo c",
        value=lambda n, c, h, w, v_name, eps_name, *rest: gamma_gradient(n, c, h * w, *rest),
        magnitude=lambda n, c, h, w, v_name, eps_name, *rest: gamma_magnitude(n, c, h * w, *rest),
        inert=("vN", "epsStr"),
    ),
    Name(
        "SHlo.bnBetaGradB",
        "{N c h w : Nat} (e : SHlo (N * (c * (h * w)))) : SHlo c",
        value=lambda n, c, h, w, e: beta_gradient(n, c, h * w, e),
        magnitude=lambda n, c, h, w, e: beta_gradient(n, c, h * w, np.abs(e)),
    ),
    Name(
        "GradNodeB.BnPairTiedB",
        "(N c h w : Nat) (vN epsStr cotN : String) (ε : ℝ) (γ β : Vec c)"
        f" (v cot : {_CHANNELS}) : Prop",
        definition="(∀ idx : Fin c, den (SHlo.bnGammaGradB vN epsStr ε v (.operand cotN cot)) idx ="
        " ∑ j : Fin (N * (c * (h * w))),"
        " pdiv (fun γ' : Vec c => bnBatchFlat N c h w ε γ' β v) γ idx j * cot j)"
        " ∧ (∀ idx : Fin c, den (SHlo.bnBetaGradB (.operand cotN cot)) idx ="
        " ∑ j : Fin (N * (c * (h * w))),"
        " pdiv (fun β' : Vec c => bnBatchFlat N c h w ε γ β' v) β idx j * cot j)",
        inert=("vN", "epsStr", "cotN"),
    ),
    Name(
        "GradNodeB.bnPairTiedB_holds",
        "{N c h w : Nat} {vN epsStr cotN : String} {ε : ℝ} {γ β : Vec c}"
        f" {{v cot : {_CHANNELS}}}"
        " : GradNodeB.BnPairTiedB N c h w vN epsStr cotN ε γ β v cot",
        proves=True,
    ),
)


def _run(dims: Mapping[str, int], params: Mapping[str, Any], x: Array) -> Array:
    area = dims["h"] * dims["w"]
    return forward(dims["N"], dims["c"], area, params["ε"], params["γ"], params["β"], x)


Exchange = Callable[[list[Array]], list[Array]]
"""Per-channel sums, one a replica, to what each replica has after the exchange."""


def _synchronised_statistics(
    dims: Mapping[str, int], params: Mapping[str, Any], xs: list[Array], exchange: Exchange
) -> tuple[list[Array], list[Array], list[Array]]:
    """Per replica ``x̂``, ``1 / √(var + ε)`` and the count behind each sum; two sums go round."""
    n, c, area = dims["N"], dims["c"], dims["h"] * dims["w"]
    rows = [split(x, n, c, area) for x in xs]
    ones = [np.full((1, 1, 1, 1, 1), float(n * area)) for _ in xs]
    # How many examples stand behind a sum is known without an exchange of values.
    counts = exchange(ones)
    totals = exchange([r.sum(axis=_SPREAD, keepdims=True) for r in rows])
    centred = [r - t / k for r, t, k in zip(rows, totals, counts, strict=True)]
    squares = exchange([(v * v).sum(axis=_SPREAD, keepdims=True) for v in centred])
    eps = split(params["ε"], 1, 1, 1)
    inverse = [1 / np.sqrt(q / k + eps) for q, k in zip(squares, counts, strict=True)]
    return [v * i for v, i in zip(centred, inverse, strict=True)], inverse, counts


def _synchronised_forward(
    dims: Mapping[str, int], params: Mapping[str, Any], xs: list[Array], exchange: Exchange
) -> list[Array]:
    units, _, _ = _synchronised_statistics(dims, params, xs, exchange)
    gamma, beta = (split(params[s], 1, dims["c"], 1) for s in ("γ", "β"))
    return [join(gamma * u + beta, x) for u, x in zip(units, xs, strict=True)]


def _synchronised_backward(
    dims: Mapping[str, int],
    params: Mapping[str, Any],
    xs: list[Array],
    dys: list[Array],
    exchange: Exchange,
) -> tuple[list[Array], list[dict[str, Array]]]:
    n, c, area = dims["N"], dims["c"], dims["h"] * dims["w"]
    units, inverse, counts = _synchronised_statistics(dims, params, xs, exchange)
    cots = [split(dy, n, c, area) for dy in dys]
    own_sums = [v.sum(axis=_SPREAD, keepdims=True) for v in cots]
    own_along = [(v * u).sum(axis=_SPREAD, keepdims=True) for v, u in zip(cots, units, strict=True)]
    sums, along = exchange(own_sums), exchange(own_along)
    gamma = split(params["γ"], 1, c, 1)
    inputs = [
        join(gamma * i * (v - s / k - u * a / k), x)
        for v, u, i, s, a, k, x in zip(cots, units, inverse, sums, along, counts, xs, strict=True)
    ]
    own = [
        {"γ": a.reshape(1, -1), "β": s.reshape(1, -1)}
        for a, s in zip(own_along, own_sums, strict=True)
    ]
    return inputs, own


def _undefined(dims: Mapping[str, int], params: Mapping[str, Any], x: Array) -> Array:
    """``var + ε`` per channel: what the forward divides by the root of."""
    rows = split(x, dims["N"], dims["c"], dims["h"] * dims["w"])
    variance: Array = rows.var(axis=_SPREAD)
    return np.asarray(variance + params["ε"][:, None])


def draw_scale(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A γ: of both signs, and of a size that carries a normalised value past 6."""
    size: Array = rng.uniform(2.5, 5.0, shape)
    sign = np.where(np.arange(size.size) % 2 == rng.integers(2), 1.0, -1.0)
    return np.asarray(size * sign)


def draw_shift(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A β: around 1."""
    return np.asarray(rng.normal(0.0, 1.0, shape) + 1.0)


def draw_epsilon(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """An ε: positive, over some orders of magnitude."""
    return np.asarray(10.0 ** rng.uniform(-2.0, 0.3, (*shape, 1)))


EPSILON = Parameter(
    "ε", "ℝ", "epsilon", trained=False, follows="γ", positive=True, draw=draw_epsilon
)


def normalised(over: tuple[str, ...], summed: tuple[str, ...], statistics: str) -> Formula:
    """``γ · x̂ + β`` with statistics over some axes; γ and β vary along all that are not summed.

    The step is the three-term formula of :func:`input_gradient`, γ under its means, where it may
    vary along them.
    """
    unit = deviation(*over) * inverse("ε", *over)
    scaled = symbol("γ") * DY
    centred = scaled - mean(scaled, *over) - unit * mean(scaled * unit, *over)
    return Formula(
        forward=symbol("γ") * unit + symbol("β"),
        step=inverse("ε", *over) * centred,
        gradients=(
            Gradient("γ", total(DY * unit, *summed), "scaled sum"),
            Gradient("β", total(DY, *summed), "sum"),
        ),
        statistics=statistics,
        written="γ·i·(dy - Σ/n - d·i²·Σ/n)",
    )


BATCHNORM = Operation(
    word="bn",
    constant="removes",
    synchronised=Synchronised(_synchronised_forward, _synchronised_backward, (2, 2)),
    role="normalisation",
    inputs=(Input("x", ("c", "h", "w")),),
    output=("c", "h", "w"),
    forward="bnBatchLA N c h w ε γ β x",
    run=_run,
    backward=(
        Backward(
            token="bnBatchBack",
            operands=("γ", "x"),
            lean="bnInB N c h w ε γ x dy",
            rewrite="bnInB_eq_bnBackB N c h w ε hε γ β",
            says="back through the BatchNorm `{γ}` at its saved input",
        ),
    ),
    noun="BatchNorm",
    parameters=(
        Parameter("γ", "Vec c", "scale", base="g", draw=draw_scale),
        Parameter("β", "Vec c", "shift", base="bt", shifts=True, draw=draw_shift),
        EPSILON,
    ),
    clauses=(
        Clause(
            covers=("γ", "β"),
            plain=Form(
                "GradNodeB.BnPairTiedB N c h w vN epsStr cotN ε γ β"
                " (reassocB N c h w x) (reassocB N c h w cot)",
                "bnPairTiedB_holds",
            ),
        ),
    ),
    spread=lambda dims: dims["N"] * dims["h"] * dims["w"],
    undefined=_undefined,
    linear=False,
    artifact=normalised(("N", "h", "w"), ("N", "h", "w"), "batch"),
)

FAMILY = Family(
    operations=(BATCHNORM,),
    names=_NAMES,
    conventions=(
        Convention("batchnorm", values=("batch",), unknown="unknown statistics of BatchNorm '{}'"),
    ),
)

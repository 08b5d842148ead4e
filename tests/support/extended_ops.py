"""Operations that the table lacks, as entries: what a user of ``ops.extended`` writes.

Their Lean names are made up. Values are ``(p, *batch, n)`` as in :mod:`obligations.ops.base`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from obligations.ops import lookup
from obligations.ops.base import (
    Array,
    Backward,
    Clause,
    Family,
    Form,
    Input,
    Name,
    Operation,
    Parameter,
)
from obligations.ops.batchnorm import EPSILON, draw_scale, draw_shift
from obligations.ops.core import align, join, split

SITE = ("c", "h", "w")
FLAT = "Vec (N * (c * h * w))"

Dims = Mapping[str, int]
Params = Mapping[str, Array]


# -- smooth activations, of any shape ----------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def swish_back(x: Array, dy: Array) -> Array:
    x, dy = align(x, dy)
    s = sigmoid(x)
    return np.asarray(dy * s * (1 + x * (1 - s)))


def sigmoid_back(x: Array, dy: Array) -> Array:
    x, dy = align(x, dy)
    s = sigmoid(x)
    return np.asarray(dy * s * (1 - s))


def pointwise(word: str, run: Any, back: Any) -> Family:
    operation = Operation(
        word=word,
        role="activation",
        inputs=(Input("x", ("n",)),),
        output=("n",),
        any_shape=True,
        forward=f"{word} (N * n) x",
        run=lambda dims, params, x: run(x),
        backward=(
            Backward(
                token=f"{word}BackB",
                operands=("x",),
                lean=f"{word}BackB (N * n) x dy",
                says=f"times {word}' at `{{x}}`",
            ),
        ),
        linear=False,
    )
    return Family(
        operations=(operation,),
        names=(
            Name(word, "(n : Nat) (x : Vec n) : Vec n", value=lambda n, x: run(x)),
            Name(
                f"{word}BackB",
                "(n : Nat) (x dy : Vec n) : Vec n",
                value=lambda n, x, dy: back(x, dy),
            ),
        ),
    )


SWISH = pointwise("swish", lambda x: x * sigmoid(x), swish_back)
SIGMOID = pointwise("sigmoid", sigmoid, sigmoid_back)


# -- a gate: two inputs ------------------------------------------------------------------------


def gate_mul(n: int, c: int, h: int, w: int, x: Array, g: Array) -> Array:
    return join(split(x, n, c, h * w) * split(g, n, c, 1), x, g)


def gate_reduce(n: int, c: int, h: int, w: int, x: Array, dy: Array) -> Array:
    return join((split(x, n, c, h * w) * split(dy, n, c, h * w)).sum(axis=-1), x, dy)


GATE = Family(
    operations=(
        Operation(
            word="gate",
            role="layer",
            inputs=(Input("x", SITE), Input("g", ("c",))),
            output=SITE,
            forward="gateMul N c h w x g",
            run=lambda d, params, x, g: gate_mul(d["N"], d["c"], d["h"], d["w"], x, g),
            backward=(
                Backward("gateMulB", ("g",), "gateMul N c h w dy g", says="times `{g}`"),
                Backward(
                    "gateReduceB",
                    ("x",),
                    "gateReduce N c h w x dy",
                    says="times `{x}`, summed over rows and columns",
                    input="g",
                ),
            ),
            linear=False,
        ),
    ),
    names=(
        Name(
            "gateMul",
            f"(N c h w : Nat) (x : {FLAT}) (g : Vec (N * c)) : {FLAT}",
            value=gate_mul,
        ),
        Name("gateReduce", f"(N c h w : Nat) (x dy : {FLAT}) : Vec (N * c)", value=gate_reduce),
    ),
)


def se_forward(d: Dims, p: Params, x: Array) -> Array:
    n, c, area = d["N"], d["c"], d["h"] * d["w"]
    rows = split(x, n, c, area).mean(axis=-1)
    e1 = rows @ p["W1"][:, None] + p["b1"][:, None, None]
    e2 = (e1 * sigmoid(e1)) @ p["W2"][:, None] + p["b2"][:, None, None]
    return gate_mul(n, c, d["h"], d["w"], x, join(sigmoid(e2), x))


def se_back(n: int, c: int, h: int, w: int, r: int, *rest: Array) -> Array:
    """``σ(e2) ⊙ dy + bcast(E1 · W1ᵀ) / (h · w)``: both paths of the gate at once."""
    w1, b1, w2, b2, x, dy = rest
    rows = split(x, n, c, h * w).mean(axis=-1)
    e1 = rows @ w1[:, None] + b1[:, None, None]
    e2 = (e1 * sigmoid(e1)) @ w2[:, None] + b2[:, None, None]
    grad = split(gate_reduce(n, c, h, w, x, dy), n, c)
    back = swish_back(e1, sigmoid_back(e2, grad) @ np.swapaxes(w2, -1, -2)[:, None])
    pooled = back @ np.swapaxes(w1, -1, -2)[:, None] / (h * w)
    direct = split(gate_mul(n, c, h, w, dy, join(sigmoid(e2), x)), n, c, h * w)
    return join(direct + pooled[..., None], x, dy)


SE = Family(
    operations=(
        Operation(
            word="seBlock",
            inputs=(Input("x", SITE),),
            output=SITE,
            forward=None,
            run=se_forward,
            parameters=(
                Parameter("W1", "Mat c r", "weight"),
                Parameter("b1", "Vec r", "bias"),
                Parameter("W2", "Mat r c", "weight"),
                Parameter("b2", "Vec c", "bias"),
            ),
            backward=(
                Backward(
                    "seBackBatched",
                    ("W1", "b1", "W2", "b2", "x"),
                    "seInB N c h w r W1 b1 W2 b2 x dy",
                    says="back through the gate and past it",
                ),
            ),
            linear=False,
        ),
    ),
    names=(
        Name(
            "seInB",
            "(N c h w r : Nat) (W1 : Mat c r) (b1 : Vec r) (W2 : Mat r c) (b2 : Vec c)"
            f" (x dy : {FLAT}) : {FLAT}",
            value=se_back,
        ),
    ),
)


# -- layer normalisation over channels, at each position ------------------------------------------


def _unit(n: int, c: int, area: int, eps: Array, x: Array) -> tuple[Array, Array]:
    rows = split(x, n, c, area)
    centred = rows - rows.mean(axis=3, keepdims=True)
    variance = (centred * centred).mean(axis=3, keepdims=True)
    inverse = 1 / np.sqrt(variance + split(eps, 1, 1, 1))
    return centred * inverse, inverse


def ln(n: int, c: int, h: int, w: int, eps: Array, gamma: Array, beta: Array, x: Array) -> Array:
    unit, _ = _unit(n, c, h * w, eps, x)
    return join(split(gamma, 1, c, 1) * unit + split(beta, 1, c, 1), x)


def ln_back(n: int, c: int, h: int, w: int, eps: Array, gamma: Array, x: Array, dy: Array) -> Array:
    unit, inverse = _unit(n, c, h * w, eps, x)
    cot = split(dy, n, c, h * w) * split(gamma, 1, c, 1)
    along = unit * (cot * unit).mean(axis=3, keepdims=True)
    return join(inverse * (cot - cot.mean(axis=3, keepdims=True) - along), x, dy)


def ln_gamma(n: int, c: int, h: int, w: int, eps: Array, x: Array, cot: Array) -> Array:
    unit, _ = _unit(n, c, h * w, eps, x)
    return join((split(cot, n, c, h * w) * unit).sum(axis=(2, 4)), x, cot)


def ln_gamma_size(n: int, c: int, h: int, w: int, eps: Array, x: Array, cot: Array) -> Array:
    unit, _ = _unit(n, c, h * w, eps, x)
    return join(np.abs(split(cot, n, c, h * w) * unit).sum(axis=(2, 4)), x, cot)


def ln_beta(n: int, c: int, h: int, w: int, cot: Array) -> Array:
    return join(split(cot, n, c, h * w).sum(axis=(2, 4)), cot)


LAYERNORM = Family(
    operations=(
        Operation(
            word="ln",
            noun="layer normalisation",
            role="normalisation",
            inputs=(Input("x", SITE),),
            output=SITE,
            forward="lnB N c h w ε γ β x",
            run=lambda d, p, x: ln(d["N"], d["c"], d["h"], d["w"], p["ε"], p["γ"], p["β"], x),
            parameters=(
                Parameter("γ", "Vec c", "scale", base="g", draw=draw_scale),
                Parameter("β", "Vec c", "shift", base="bt", draw=draw_shift),
                EPSILON,
            ),
            backward=(
                Backward(
                    "lnBackB",
                    ("γ", "x"),
                    "lnInB N c h w ε γ x dy",
                    says="back through the normalisation `{γ}`",
                ),
            ),
            clauses=(
                Clause(
                    ("γ", "β"),
                    Form(
                        "GradNodeB.LnPairTiedB N c h w vN epsStr cotN ε γ β x cot",
                        "lnPairTiedB_holds",
                    ),
                ),
            ),
            linear=False,
            spread=lambda d: 8 * d["c"],
        ),
    ),
    names=(
        Name(
            "lnB",
            f"(N c h w : Nat) (ε : ℝ) (γ β : Vec c) (x : {FLAT}) : {FLAT}",
            value=ln,
        ),
        Name(
            "lnInB",
            f"(N c h w : Nat) (ε : ℝ) (γ : Vec c) (x dy : {FLAT}) : {FLAT}",
            value=ln_back,
        ),
        Name(
            "SHlo.lnGammaGradB",
            f"{{N c h w : Nat}} (vN epsStr : String) (ε : ℝ) (v : {FLAT})"
            " (e : SHlo (N * (c * h * w))) : SHlo c",
            value=lambda n, c, h, w, v_name, eps_name, *rest: ln_gamma(n, c, h, w, *rest),
            magnitude=lambda n, c, h, w, v_name, eps_name, *rest: ln_gamma_size(n, c, h, w, *rest),
            inert=("vN", "epsStr"),
        ),
        Name(
            "SHlo.lnBetaGradB",
            "{N c h w : Nat} (e : SHlo (N * (c * h * w))) : SHlo c",
            value=ln_beta,
            magnitude=lambda n, c, h, w, e: ln_beta(n, c, h, w, np.abs(e)),
        ),
        Name(
            "GradNodeB.LnPairTiedB",
            "(N c h w : Nat) (vN epsStr cotN : String) (ε : ℝ) (γ β : Vec c)"
            f" (v cot : {FLAT}) : Prop",
            definition="(∀ idx : Fin c,"
            " den (SHlo.lnGammaGradB (N := N) (h := h) (w := w) vN epsStr ε v (.operand cotN cot))"
            " idx = ∑ j : Fin (N * (c * h * w)),"
            " pdiv (fun γ' : Vec c => lnB N c h w ε γ' β v) γ idx j * cot j)"
            " ∧ (∀ idx : Fin c,"
            " den (SHlo.lnBetaGradB (N := N) (h := h) (w := w) (.operand cotN cot)) idx ="
            " ∑ j : Fin (N * (c * h * w)),"
            " pdiv (fun β' : Vec c => lnB N c h w ε γ β' v) β idx j * cot j)",
            inert=("vN", "epsStr", "cotN"),
        ),
        Name(
            "GradNodeB.lnPairTiedB_holds",
            "{N c h w : Nat} {vN epsStr cotN : String} {ε : ℝ} {γ β : Vec c}"
            f" {{v cot : {FLAT}}} : GradNodeB.LnPairTiedB N c h w vN epsStr cotN ε γ β v cot",
            proves=True,
        ),
    ),
)


# -- attention: three inputs, positions as tokens ------------------------------------------------


def _attention(n: int, c: int, area: int, *qkv: Array) -> tuple[Array, Array, Array, Array]:
    q, k, v = (split(x, n, c, area) for x in qkv)
    scores = np.swapaxes(q, -1, -2) @ k / np.sqrt(c)
    powers = np.exp(scores - scores.real.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True), q, k, v


def attention(n: int, c: int, h: int, w: int, *qkv: Array) -> Array:
    """``softmax(qᵀ k / √c)`` over the keys, times the values: each ``(c, h · w)``."""
    share, _, _, v = _attention(n, c, h * w, *qkv)
    return join(v @ np.swapaxes(share, -1, -2), *qkv)


def _scores_back(n: int, c: int, area: int, *given: Array) -> tuple[Array, Array, Array]:
    *qkv, dy = given
    share, q, k, v = _attention(n, c, area, *qkv)
    to_share = np.swapaxes(split(dy, n, c, area), -1, -2) @ v
    inner = (to_share * share).sum(axis=-1, keepdims=True)
    return share * (to_share - inner) / np.sqrt(c), q, k


def attention_q(n: int, c: int, h: int, w: int, *given: Array) -> Array:
    scores, _, k = _scores_back(n, c, h * w, *given)
    return join(k @ np.swapaxes(scores, -1, -2), *given)


def attention_k(n: int, c: int, h: int, w: int, *given: Array) -> Array:
    scores, q, _ = _scores_back(n, c, h * w, *given)
    return join(q @ scores, *given)


def attention_v(n: int, c: int, h: int, w: int, *given: Array) -> Array:
    """What is linear in the values needs none of them saved."""
    q, k, dy = given
    share, *_ = _attention(n, c, h * w, q, k, k)
    return join(split(dy, n, c, h * w) @ share, *given)


_QKV = f"(N c h w : Nat) (q k v : {FLAT})"
ATTENTION = Family(
    operations=(
        Operation(
            word="attention",
            role="layer",
            inputs=tuple(Input(s, SITE) for s in "qkv"),
            output=SITE,
            forward="attnB N c h w q k v",
            run=lambda d, params, *qkv: attention(d["N"], d["c"], d["h"], d["w"], *qkv),
            backward=tuple(
                Backward(
                    f"attn{s.upper()}BackB",
                    ("q", "k", "v") if s != "v" else ("q", "k"),
                    f"attn{s.upper()}InB N c h w q k {'' if s == 'v' else 'v '}dy",
                    says=f"back through the attention to its {s}",
                    input=s,
                )
                for s in "qkv"
            ),
            linear=False,
        ),
    ),
    names=(
        Name("attnB", f"{_QKV} : {FLAT}", value=attention),
        Name("attnQInB", f"{_QKV} (dy : {FLAT}) : {FLAT}", value=attention_q),
        Name("attnKInB", f"{_QKV} (dy : {FLAT}) : {FLAT}", value=attention_k),
        Name("attnVInB", f"(N c h w : Nat) (q k dy : {FLAT}) : {FLAT}", value=attention_v),
    ),
)


# -- a convolution without bias --------------------------------------------------------------------


def without_bias() -> Operation:
    """The table's convolution at the bias zero."""
    conv = lookup("conv")
    assert conv is not None
    (step,) = conv.backward
    plain = next(c.plain for c in conv.clauses if c.covers == ("W",))

    def run(dims: Dims, params: Params, x: Array) -> Array:
        return conv.run(dims, {**params, "b": np.zeros((1, dims["oc"]))}, x)

    zero = "(fun _ => 0)"
    return replace(
        conv,
        word="convn",
        noun="convolution without bias",
        parameters=tuple(p for p in conv.parameters if p.symbol == "W"),
        forward=f"batchMap N (flatConv W {zero}) x",
        run=run,
        backward=(replace(step, token="convnBackBatched", lean=f"cInB N W {zero} dy"),),
        clauses=(Clause(("W",), replace(plain, text=plain.text.replace(" b ", f" {zero} "))),),
    )


def bias_or_not() -> Operation:
    """The table's convolution, whose bias a site may leave out."""
    conv = lookup("conv")
    assert conv is not None
    weight, bias = conv.parameters
    (step,) = conv.backward
    return replace(
        conv,
        word="convo",
        noun="convolution with a bias or none",
        parameters=(weight, replace(bias, default="(fun _ => 0)")),
        backward=(replace(step, token="convoBackBatched"),),
    )

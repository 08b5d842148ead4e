"""The dense layer ``x · W + b``, its weight written input × output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from obligations.ops.artifact import Matched
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
from obligations.ops.core import align, by_example, draw_weight, join, split


def dense(a: int, weight: Array, bias: Array, x: Array) -> Array:
    """``(p, *batch, a)`` to ``(p, *batch, c)``."""
    return join(split(x, a) @ weight + split(bias, weight.shape[-1]), x)


def input_gradient(n: int, weight: Array, dy: Array) -> Array:
    """``dy · Wᵀ`` per row: ``(p, *batch, N * c)`` to ``(p, *batch, N * a)``."""
    return join(np.einsum("pac,pmnc->pmna", weight, split(dy, n, weight.shape[-1])), dy)


def weight_gradient(n: int, a: int, c: int, x: Array, cot: Array) -> Array:
    """``xᵀ · cot``: ``(p, *batch, a * c)``."""
    x, cot = align(x, cot)
    return join(np.einsum("pmna,pmnc->pmac", split(x, n, a), split(cot, n, c)), x, cot)


def bias_gradient(n: int, c: int, cot: Array) -> Array:
    """The row sum of ``cot``: ``(p, *batch, c)``."""
    return join(split(cot, n, c).sum(axis=2), cot)


def _run(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
    weight, bias = params["W"], params["b"]
    return by_example(dims["N"], lambda rows: dense(dims["a"], weight, bias, rows), x)


_NAMES = (
    Name(
        "dense",
        "{a c : Nat} (W : Mat a c) (b : Vec c) (x : Vec a) : Vec c",
        value=lambda a, c, w, b, x: dense(a, w, b, x),
    ),
    Name(
        "rowDenseBackFlat",
        "(N a c : Nat) (W : Mat a c) (dy : Vec (N * c)) : Vec (N * a)",
        value=lambda n, a, c, w, dy: input_gradient(n, w, dy),
    ),
    Name(
        "SHlo.denseWeightGradB",
        "{N a c : Nat} (xN : String) (x : Vec (N * a)) (e : SHlo (N * c)) : SHlo (a * c)",
        value=lambda n, a, c, name, x, e: weight_gradient(n, a, c, x, e),
        magnitude=lambda n, a, c, name, x, e: weight_gradient(n, a, c, np.abs(x), np.abs(e)),
        inert=("xN",),
    ),
    Name(
        "SHlo.denseBiasGradB",
        "{N c : Nat} (e : SHlo (N * c)) : SHlo c",
        value=lambda n, c, e: bias_gradient(n, c, e),
        magnitude=lambda n, c, e: bias_gradient(n, c, np.abs(e)),
    ),
    Name(
        "GradNodeB.DenseWTiedB",
        "(N : Nat) {a c : Nat} (xN cotN : String) (x : Vec (N * a)) (W : Mat a c) (b : Vec c)"
        " (cot : Vec (N * c)) : Prop",
        definition="∀ idx : Fin (a * c),"
        " den (SHlo.denseWeightGradB xN x (.operand cotN cot)) idx ="
        " ∑ n : Fin N, ∑ j : Fin c,"
        " pdiv (fun v' : Vec (a * c) => dense (Mat.unflatten v') b (batchSlice N a x n))"
        " (Mat.flatten W) idx j * batchSlice N c cot n j",
        inert=("xN", "cotN", "b"),
    ),
    Name(
        "GradNodeB.denseWTiedB_holds",
        "{N a c : Nat} {xN cotN : String} {x : Vec (N * a)} {W : Mat a c} {b : Vec c}"
        " {cot : Vec (N * c)} : GradNodeB.DenseWTiedB N xN cotN x W b cot",
        proves=True,
    ),
    Name(
        "GradNodeB.DenseBTiedB",
        "(N : Nat) {a c : Nat} (cotN : String) (W : Mat a c) (x : Vec (N * a)) (b : Vec c)"
        " (cot : Vec (N * c)) : Prop",
        definition="∀ o : Fin c, den (SHlo.denseBiasGradB (.operand cotN cot)) o ="
        " ∑ n : Fin N, ∑ j : Fin c,"
        " pdiv (fun b' : Vec c => dense W b' (batchSlice N a x n)) b o j"
        " * batchSlice N c cot n j",
        inert=("cotN", "W", "x"),
    ),
    Name(
        "GradNodeB.denseBTiedB_holds",
        "{N a c : Nat} {cotN : String} {W : Mat a c} {x : Vec (N * a)} {b : Vec c}"
        " {cot : Vec (N * c)} : GradNodeB.DenseBTiedB N cotN W x b cot",
        proves=True,
    ),
)

DENSE = Operation(
    word="dense",
    role="layer",
    inputs=(Input("x", ("a",)),),
    output=("c",),
    forward="batchMap N (dense W b) x",
    run=_run,
    backward=(
        Backward(
            token="denseRowBack",
            operands=("W",),
            lean="rowDenseBackFlat N a c W dy",
            says="back through the dense layer `{W}`",
        ),
    ),
    noun="dense layer",
    artifact=Matched("dense"),
    parameters=(
        Parameter("W", "Mat a c", "weight", draw=lambda shape, rng: draw_weight(shape, rng, 0)),
        Parameter("b", "Vec c", "bias"),
    ),
    clauses=(
        Clause(
            covers=("W",),
            plain=Form("GradNodeB.DenseWTiedB N xN cotN x W b cot", "denseWTiedB_holds"),
        ),
        # The bias gradient reads no input: the library states it at zero.
        Clause(
            covers=("b",),
            plain=Form("GradNodeB.DenseBTiedB N cotN W (fun _ => 0) b cot", "denseBTiedB_holds"),
        ),
    ),
)

FAMILY = Family(operations=(DENSE,), names=_NAMES)

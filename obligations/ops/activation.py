"""Pointwise activations with kinks: relu and relu6."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from obligations.ops.artifact import DY, Formula, X, between
from obligations.ops.base import Array, Backward, Family, Input, Name, Operation
from obligations.ops.core import align


def relu(x: Array) -> Array:
    """``max(x, 0)``; complex values branch on the real part."""
    return np.where(x.real > 0, x, x.dtype.type(0))


def relu6(x: Array) -> Array:
    """``min(max(x, 0), 6)``; complex values branch on the real part."""
    return np.where(x.real < 6, relu(x), x.dtype.type(6))


def relu_mask(pre: Array, dy: Array) -> Array:
    """``dy`` where ``pre > 0``, else 0."""
    saved, cot = align(pre, dy)
    return np.where(saved.real > 0, cot, cot.dtype.type(0))


def relu6_mask(pre: Array, dy: Array) -> Array:
    """``dy`` where ``0 < pre < 6``, else 0."""
    saved, cot = align(pre, dy)
    return np.where((saved.real > 0) & (saved.real < 6), cot, cot.dtype.type(0))


def _run_relu(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
    return relu(x)


def _run_relu6(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
    return relu6(x)


_SITE = ("c", "h", "w")

RELU = Operation(
    word="relu",
    role="activation",
    inputs=(Input("x", _SITE),),
    output=_SITE,
    forward="relu (N * (c * h * w)) x",
    run=_run_relu,
    backward=(
        Backward(
            token="selectPosB",
            operands=("x",),
            lean="reluMaskB (N * (c * h * w)) x dy",
            says="kept where `{x} > 0`",
        ),
    ),
    kinks=(0.0,),
    linear=False,
    artifact=Formula(between(0.0, X), DY * (X > 0), called="mask", otherwise="clip"),
)

RELU6 = Operation(
    word="relu6",
    role="activation",
    inputs=(Input("x", _SITE),),
    output=_SITE,
    forward=None,
    run=_run_relu6,
    backward=(
        Backward(
            token="selectMidB",
            operands=("x",),
            lean="relu6MaskB (N * (c * h * w)) x dy",
            says="kept where `0 < {x} < 6`",
        ),
    ),
    kinks=(0.0, 6.0),
    linear=False,
    artifact=Formula(between(0.0, X, 6.0), DY * (X > 0) * (X < 6), called="mask", otherwise="clip"),
)

_NAMES = (
    Name("relu", "(n : Nat) (x : Vec n) : Vec n", value=lambda n, x: relu(x)),
    Name(
        "reluMaskB",
        "(n : Nat) (pre dy : Vec n) : Vec n",
        value=lambda n, pre, dy: relu_mask(pre, dy),
    ),
    Name(
        "relu6MaskB",
        "(n : Nat) (pre dy : Vec n) : Vec n",
        value=lambda n, pre, dy: relu6_mask(pre, dy),
    ),
)

FAMILY = Family(operations=(RELU, RELU6), names=_NAMES)

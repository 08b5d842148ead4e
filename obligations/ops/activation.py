"""Pointwise activations with kinks: relu and relu6."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from obligations.errors import nearest
from obligations.ops.artifact import DY, Formula, X, between
from obligations.ops.base import (
    Array,
    Backward,
    Convention,
    Family,
    Input,
    Name,
    Objection,
    Operation,
    Placed,
)
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


_SITE = ("c", "h", "w")

RELU = Operation(
    word="relu",
    role="activation",
    inputs=(Input("x", _SITE),),
    output=_SITE,
    forward="relu (N * (c * h * w)) x",
    run=lambda dims, params, x: relu(x),
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
    run=lambda dims, params, x: relu6(x),
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


def _stated(
    words: str, sites: Sequence[Placed], operations: Iterable[Operation]
) -> Objection | None:
    """The activations that the words name are those of the sites."""
    table = {op.word for op in operations if op.role == "activation"}
    used = {op.word for op, _ in sites} & table
    named = set(re.findall(r"\w+", words)) - {"and"}
    for word in sorted(named - used):
        if word not in table:
            return Objection(f"unknown activation '{word}'", nearest(word, table))
        return Objection(f"the convention says {word}, but no site is a {word}")
    for word in sorted(used - named):
        return Objection(f"the convention does not say {word}, but a site is a {word}")
    return None


FAMILY = Family(
    operations=(RELU, RELU6),
    names=_NAMES,
    conventions=(Convention("activation", check=_stated),),
)

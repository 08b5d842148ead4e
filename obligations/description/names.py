"""Dimensions, shapes, and how names in a render become names in Lean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from sympy import Integer, Symbol

from obligations.description.model import Dim, Shape
from obligations.ops import Parameter

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@cache
def symbol(name: str) -> Dim:
    """The dimension called ``name``: a positive integer symbol."""
    return Symbol(name, integer=True, positive=True)


@cache
def number(value: int) -> Dim:
    """The size ``value``."""
    return Integer(value)


def show_dim(dim: Dim) -> str:
    """``2h``, ``oc``, ``224``."""
    factor, rest = dim.as_coeff_Mul()
    if rest == 1:
        return str(factor)
    return str(rest) if factor == 1 else f"{factor}{rest}"


def show_shape(shape: Shape) -> str:
    """``ic × 2h × 2w``."""
    return " × ".join(show_dim(d) for d in shape)


def substitute(shape: Shape, values: Mapping[Dim, Dim]) -> Shape:
    """``shape`` with symbols replaced."""
    return tuple(d.xreplace(values) for d in shape)


def split(render: str, of: Parameter) -> tuple[str, str] | None:
    """What stands before and after the part of ``render`` that means the parameter's symbol."""
    for base in (of.base or of.symbol, of.symbol):
        if render.startswith(base):
            return "", render[len(base) :]
        if render.endswith(base):
            return render[: -len(base)], ""
        if base in render:
            before, _, after = render.partition(base)
            return before, after
    return None


def lean_name(render: str, of: Parameter, after: Parameter | None = None) -> str:
    """The record field of a parameter, from its name in the render and its symbol.

    ``g1`` is ``γ₁``, ``ebt`` is ``eβ``, ``Wp`` stays. With ``after``, the field of what is called
    after another parameter of the site: ε after ``g1`` is ``ε₁``. A name that its symbol does not
    occur in stands for itself.
    """
    parts = split(render, after or of)
    if parts is None:
        return render
    before, behind = parts
    if re.fullmatch(r"[0-9]+", behind):
        behind = behind.translate(_SUBSCRIPTS)
    return f"{before}{of.symbol}{behind}"


def count(amount: int, what: str) -> str:
    """``1 operand``, ``2 operands``, ``no operands``."""
    return f"{amount or 'no'} {what}{'' if amount == 1 else 's'}"

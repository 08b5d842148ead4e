"""Dropout on a mask that is given: an optional site, absent where the mask is."""

from __future__ import annotations

from obligations.ops.artifact import Matched
from obligations.ops.base import Array, Backward, Family, Input, Mask, Name, Operation
from obligations.ops.core import align


def dropout(mask: Array | None, x: Array) -> Array:
    """``mask · x`` entry by entry, or ``x`` where there is no mask."""
    if mask is None:
        return x
    scale, rows = align(mask, x)
    return scale * rows


DROPOUT = Operation(
    word="dropout",
    inputs=(Input("x", ("n",)),),
    output=("n",),
    options=(Mask("cd", "Option (Vec (N * n))"),),
    forward="dropoutOpt cd x",
    run=lambda dims, params, x: dropout(params.get("cd"), x),
    artifact=Matched("mask"),
    # The mask `cd` is neither a parameter nor a saved activation: a net binds it as an option.
    backward=(
        Backward(
            token="dropoutB",
            operands=("cd",),
            lean="dropoutOpt cd dy",
            says="through the mask `{cd}` of the forward",
        ),
    ),
)

_NAMES = (
    Name(
        "dropout",
        "{n : Nat} (m x : Vec n) : Vec n",
        value=lambda n, m, x: dropout(m, x),
    ),
    Name(
        "dropoutOpt",
        "{n : Nat} (cd : Option (Vec n)) (x : Vec n) : Vec n",
        value=lambda n, cd, x: dropout(cd, x),
    ),
)

FAMILY = Family(operations=(DROPOUT,), names=_NAMES)

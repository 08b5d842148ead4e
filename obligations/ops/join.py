"""The sum of values of one shape: its cotangent is that of each of them.

Where a value is read more than once, the chain adds what comes back. A render writes this
``addVB(a, b)``, and a tie file spells it out.
"""

from __future__ import annotations

from obligations.ops.artifact import Matched
from obligations.ops.base import Family, Input, Join, Operation

JOIN_TOKEN = "addVB"
"""What a render calls the sum of cotangents."""

SUM_WORD = "+"
"""What a description writes between the addends."""


SUM = Operation(
    word=SUM_WORD,
    noun="sum",
    role="sum",
    inputs=(Input("x", ("n",)),),
    output=("n",),
    any_shape=True,
    forward=None,
    run=lambda dims, params, *xs: sum(xs[1:], xs[0]),
    backward=(),
    constant="keeps",
    artifact=Matched("sum"),
    joins=(
        Join("residual F x", ("F", "x")),
        Join("residualProj P F x", ("P", "F")),
    ),
)

FAMILY = Family(operations=(SUM,))

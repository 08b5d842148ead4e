"""The sum of two sites, and the fan-in of two cotangents it has for a backward.

It takes two inputs and has no Lean name, so it is no :class:`~obligations.ops.base.Operation`: a
net writes ``a = n2 + xin``, a render ``addVB(%dc1, %da)``, and Lean ``fun i => a i + b i``.
"""

from __future__ import annotations

from typing import Final

JOIN_WORD: Final = "+"
JOIN_TOKEN: Final = "addVB"

"""A render chain as it is written: statements and reads, nothing resolved.

The text is read by ``grammar/render.lark`` (see :mod:`obligations.description.reader`);
:mod:`obligations.statements.dag` finds what each operation's incoming cotangent is.
"""

from __future__ import annotations

from dataclasses import dataclass

from obligations.errors import Span


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as written: ``g2``, ``%dc1`` (``text`` with its ``%``)."""

    text: str
    span: Span

    @property
    def is_value(self) -> bool:
        """Whether it names a chain value (``%dc1``) and not a site or weight."""
        return self.text.startswith("%")


@dataclass(frozen=True, slots=True)
class Call:
    """``op(a, b)``, or ``op`` alone; ``from_`` is the cotangent it is said to read."""

    token: str
    operands: tuple[Operand, ...]
    span: Span
    from_: Operand | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """``if flag then x else y``."""

    flag: str
    then: Call | Operand
    otherwise: Call | Operand
    span: Span


@dataclass(frozen=True, slots=True)
class Statement:
    """``%name = …``."""

    name: str
    value: Call | Choice | Operand
    span: Span


@dataclass(frozen=True, slots=True)
class Read:
    """One parameter of ``W1,b1 ← %dn1``: which chain value its gradient node reads."""

    parameter: str
    cotangent: str
    span: Span
    cotangent_span: Span

"""A Lean declaration as it is printed, read and elaborated, and the tactics of its proof."""

from __future__ import annotations

from dataclasses import dataclass

from obligations.lean.syntax import Binder, Term


@dataclass(frozen=True, slots=True)
class Tactic:
    """One tactic: words and terms in order, printed with a space where the pieces have none.

    ``block`` holds tactics indented under this one (a bullet's second and later lines).
    """

    pieces: tuple[str | Term, ...]
    block: tuple[Tactic, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """A Lean declaration to be printed.

    Exactly one of ``value`` (a definition's body) and ``proof`` is set.
    """

    keyword: str
    name: str
    binders: tuple[Binder, ...]
    type: Term
    value: Term | None = None
    proof: tuple[Tactic, ...] = ()
    attributes: tuple[str, ...] = ()
    doc: str = ""

    @property
    def term(self) -> Term:
        """The value it has, or what it states where it has none."""
        return self.type if self.value is None else self.value

"""The central type: one statement of a tie file, where it comes from, and how it is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from obligations.lean import Declaration

ObligationKind = Literal[
    "step",  # a backward step the library lacks, defined in the file
    "value",  # a reducible definition of a saved activation
    "cotangent",  # a cotangent of the emitted chain
    "graph",  # a block's backward graph composed in the file
    "graph lemma",  # that it denotes the certificate's backward
    "tie",  # an emitted input cotangent is the certificate's backward
    "bundle",  # every parameter of a block tied to the cotangent it reads
    "bundle proof",
    "capstone",
    "loss",
]


@dataclass(frozen=True, slots=True)
class Slot:
    """One clause of a bundle as it should be: the parameters it ties and at which chain value.

    ``parameters`` are render names; ``site`` the layer; ``cotangent`` the chain value (``%dn1``).
    """

    parameters: tuple[str, ...]
    site: str
    cotangent: str


@dataclass(frozen=True, slots=True)
class Obligation:
    """A declaration and what it is about.

    Attributes
    ----------
    block, kinds
        The block it speaks of (``""`` for the whole net) and
        the kinds of it that it holds for.
    chain
        For a cotangent: the chain value it defines (``%dn2``).
    site
        For a cotangent or a saved value: the forward site.
    slots
        For a bundle: its clauses in order.
    roles
        For a declaration read from a file: what the description calls a binder, where the file
        calls it otherwise.
    """

    kind: ObligationKind
    declaration: Declaration
    block: str = ""
    kinds: tuple[str, ...] = ()
    chain: str = ""
    site: str = ""
    slots: tuple[Slot, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The declaration's name."""
        return self.declaration.name

"""What was checked, one row per obligation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

BOUND = 1e-9
"""The largest relative error at which a statement holds."""

Verdict = Literal[
    "holds",
    "fails",
    "not the gradient",
    "incomplete",
    "not evaluated",
    "not evaluable",
    "no statement",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One obligation in the ledger.

    Attributes
    ----------
    name, kind
        The declaration and what it is.
    sizes
        The numbers it was evaluated at, as text.
    errors
        The worst relative error of each column: ``value``, ``cotangent``, ``statement``,
        ``intent``.
    margin
        The smallest distance from a kink at the samples; ``None`` where there is none.
    verdict
        Whether it holds.
    notes
        What a reader must know: the tensors that theory makes zero, where it fails.
    """

    name: str
    kind: str
    sizes: str
    errors: Mapping[str, float]
    margin: float | None
    verdict: Verdict
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """The largest error of any column."""
        return max(self.errors.values(), default=0.0)


def _plain(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "sizes": row.sizes,
        # JSON has no infinity: an error without bound is null.
        "errors": {c: e if isfinite(e) else None for c, e in row.errors.items()},
        "margin": row.margin,
        "verdict": row.verdict,
        "notes": list(row.notes),
    }


@dataclass(frozen=True, slots=True)
class Zero:
    """A tensor whose gradient is zero by theory, why, and the size of what was found."""

    tensor: str
    reason: str
    found: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows of one net, what was scaled, and which tensors have a zero gradient.

    ``rows`` has one row a declaration, in the file's order; ``further`` what is claimed beside
    the file: each tie's hypotheses, replicas, rounding, targets.
    """

    net: str
    rows: tuple[Row, ...]
    scale: str
    zeros: tuple[Zero, ...]
    seconds: float
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = field(default=())
    further: tuple[Row, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether every row holds."""
        return not self.failing()

    def failing(self) -> tuple[Row, ...]:
        """The rows that do not hold."""
        return tuple(r for r in (*self.rows, *self.further) if r.verdict != "holds")

    def as_json(self) -> dict[str, Any]:
        """Plain data, for ``--json``."""
        return {
            "net": self.net,
            "ok": self.ok,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "seconds": round(self.seconds, 3),
            "bound": BOUND,
            "rows": [_plain(r) for r in self.rows],
            "further": [_plain(r) for r in self.further],
            "zero_by_theory": [
                {"tensor": z.tensor, "reason": z.reason, "found": z.found} for z in self.zeros
            ],
            "notes": list(self.notes),
        }

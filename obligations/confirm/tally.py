"""The worst of each column over the samples of one obligation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from obligations.errors import ObligationsError
from obligations.ledger import BOUND, ERRORS, Row, Verdict, Zero, worst
from obligations.ops import Array
from obligations.shadow import Equation, relative_error
from obligations.statements import Obligation

Progress = Callable[[str], None]

COLUMNS = frozenset(c.name for c in ERRORS)


@dataclass(slots=True)
class Tally:
    """The worst of each column over the samples of one obligation."""

    errors: dict[str, float] = field(default_factory=dict)
    margin: float = float("inf")
    sizes: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    verdict: Verdict = Verdict.HOLDS

    def add(self, column: str, error: float, note: str = "") -> None:
        assert column in COLUMNS, column
        self.errors[column] = worst((self.errors.get(column, 0.0), error)) or 0.0
        if note and not error <= BOUND:
            self.notes[note] = None

    def compare(self, column: str, got: Any, wanted: Array, about: str = "") -> None:
        """Add what two arrays differ by; a note says where, and what it is about."""
        got = np.asarray(got)
        self.add(column, relative_error(got, wanted), about + where(got, wanted))

    def equations(self, found: Iterable[Equation], about: str = "") -> float:
        """Add what the sides of each equation differ by; the worst of these."""
        worst = 0.0
        for e in found:
            worst = max(worst, e.error())
            self.add("statement", e.error(), about + where(e.left, e.right))
        return worst

    def over(self) -> bool:
        """Whether a column is over the bound."""
        return any(not e <= BOUND for e in self.errors.values())

    def worse(self, verdict: Verdict, note: str) -> None:
        if self.verdict.good:
            self.verdict = verdict
        self.notes[note] = None

    def counted(self, name: str, count: int) -> None:
        """A parameter has one clause, or the verdict says how many."""
        if count != 1:
            times = "no clause" if count == 0 else f"{count} clauses"
            self.worse(Verdict.INCOMPLETE, f"{name} has {times}")

    def row(self, obligation: Obligation) -> Row:
        verdict = self.verdict
        if verdict.good:
            over = {c for c, e in self.errors.items() if not e <= BOUND}
            ties = obligation.kind in ("bundle", "bundle proof", "capstone")
            if over and ties and "statement" not in over:
                verdict = Verdict.NOT_THE_GRADIENT
            elif over:
                verdict = Verdict.FAILS
            elif not self.errors:
                verdict = Verdict.NOT_EVALUATED
        return Row(
            obligation.name,
            obligation.kind,
            ", ".join(self.sizes),
            self.errors,
            None if self.margin == float("inf") else self.margin,
            verdict,
            tuple(self.notes),
        )


def found_zero(zeros: dict[str, Zero], zero: Zero) -> None:
    """Add a zero gradient to ``zeros``; of those of one tensor, the largest that was found."""
    old = zeros.get(zero.tensor, zero)
    zeros[zero.tensor] = replace(zero, found=max(zero.found, old.found))


def guarded(tally: Tally, evaluate: Callable[[], None], tolerant: bool) -> None:
    """Run ``evaluate``; where ``tolerant``, what cannot be evaluated is a verdict in ``tally``."""
    if not tolerant:
        evaluate()
        return
    try:
        evaluate()
    except ObligationsError as error:
        tally.worse(Verdict.NOT_EVALUABLE, error.message)
    except NUMERIC as error:
        tally.worse(Verdict.NOT_EVALUABLE, f"its values do not fit together: {error}")
    except RecursionError:
        tally.worse(Verdict.NOT_EVALUABLE, "nested too deeply")


def where(a: Array, b: Array) -> str:
    """The index where two arrays differ most, and the numbers there."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    i = int(np.argmax(np.abs(a - b)))
    return f"index {i}: {a.reshape(-1)[i]:.6g} against {b.reshape(-1)[i]:.6g}"


NUMERIC = (ArithmeticError, AssertionError, IndexError, KeyError, TypeError, ValueError)
"""What NumPy and a value's functions raise at values that do not belong together."""

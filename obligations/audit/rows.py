"""What an audit finds: a row per convention, with every place where it does not hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A place where a convention does not hold.

    ``line`` counts from 1; ``where`` names the place in the net's own terms.
    """

    line: int
    where: str
    found: str
    expected: str

    def message(self) -> str:
        """One sentence."""
        return f"{self.where}: {self.found}, expected {self.expected}"


@dataclass(slots=True)
class Row:
    """One convention: at how many of ``total`` ``units`` it holds.

    ``stated`` is what the description says of it; ``note`` what else was seen; ``failed`` are the
    places where it does not hold; ``beyond`` counts what was found beside the ``total``. A row with
    ``judged`` false only tells what is there.
    """

    convention: str
    units: str
    stated: str
    note: str = ""
    judged: bool = True
    total: int = 0
    failed: set[str] = field(default_factory=set)
    beyond: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    def count(self, where: str, problems: Iterable[Mismatch]) -> None:
        """One more place, with what is wrong there."""
        self.total += 1
        for problem in problems:
            self.failed.add(where)
            self.mismatches.append(problem)

    def unknown(self, where: str) -> None:
        """One more place, of which nothing can be said: what it depends on was not found."""
        self.total += 1
        self.failed.add(where)
        self.note = "where nothing is told, what it depends on was not found"

    def check(self, line: int, where: str, found: object, expected: object, what: str = "") -> None:
        """One more place: ``found`` against ``expected``."""
        self.count(where, difference(line, where, found, expected, what))

    def extra(self, line: int, where: str, found: str, expected: str) -> None:
        """Something beside the places that are counted."""
        self.beyond += 1
        self.mismatches.append(Mismatch(line, where, found, expected))

    @property
    def failing(self) -> int:
        """At how many of the places it does not hold."""
        return len(self.failed)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.judged or not (self.mismatches or self.failed)

    @property
    def said(self) -> str:
        """``holds at 36 of 36 sites``, ``differs at 1 of 36 sites, 1 besides``."""
        of = f"of {self.total} {self.units}"
        if not self.judged:
            return f"noted: {self.total - self.failing} {of}" if self.total else "noted"
        if self.ok:
            return f"holds at {self.total} {of}"
        if not self.failing:
            return f"differs: {self.beyond} besides {self.total} {self.units}"
        return f"differs at {self.failing} {of}" + f", {self.beyond} besides" * bool(self.beyond)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "convention": self.convention,
            "stated": self.stated,
            "holds": self.ok if self.judged else None,
            "at": self.total - self.failing,
            "of": self.total,
            "besides": self.beyond,
            "units": self.units,
            "note": self.note,
            "differences": self.mismatches,
        }


@dataclass(slots=True)
class Ledger:
    """Rows while they are filled, in the order in which they were opened."""

    open: dict[str, Row] = field(default_factory=dict)

    def row(self, convention: str, units: str = "sites", stated: str = "") -> Row:
        """The row of a convention, opened when it is not."""
        return self.open.setdefault(convention, Row(convention, units, stated))

    def note(self, convention: str, text: str) -> None:
        """A row that only tells."""
        self.row(convention).judged = False
        self.row(convention).note = text

    def rows(self) -> tuple[Row, ...]:
        """The rows, the mismatches of each by line."""
        for row in self.open.values():
            row.mismatches.sort(key=lambda m: m.line)
        return tuple(self.open.values())


def difference(
    line: int, where: str, found: object, expected: object, what: str = ""
) -> list[Mismatch]:
    """A mismatch when the two are not equal."""
    if found == expected:
        return []
    lead = f"{what} " if what else ""
    return [Mismatch(line, where, f"{lead}{text(found)}", text(expected))]


def unless(ok: bool, line: int, where: str, found: str, expected: str) -> list[Mismatch]:
    """A mismatch unless a condition holds."""
    return [] if ok else [Mismatch(line, where, found, expected)]


def close(found: Sequence[float], expected: Sequence[float]) -> bool:
    """Whether numbers are the expected ones, but for the digits that a file writes."""
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)


def text(value: object) -> str:
    """A found or expected thing as a reader takes it."""
    if isinstance(value, tuple):
        if all(isinstance(v, int) for v in value):
            return "×".join(map(str, value)) or "none"
        return ", ".join(text(v) for v in value) or "none"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)

"""What was checked, one row per obligation, and the columns that a ledger has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from obligations.ledger.plain import plain
from obligations.ledger.tables import Column, Table
from obligations.ledger.verdicts import Verdict

BOUND = 1e-9
"""The largest relative error at which a statement holds."""


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
        The worst relative error of each column; :data:`ERRORS` has what they are.
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

    @classmethod
    def without_numbers(cls, name: str, kind: str, verdict: Verdict, *notes: str) -> Row:
        """A row of what was not evaluated."""
        return cls(name, kind, "", {}, None, verdict, notes)

    @property
    def worst(self) -> float | None:
        """The largest error of any column, ``None`` where there is none."""
        return worst(self.errors.values())


def worst(errors: Iterable[float]) -> float | None:
    """The largest error; one that is no number is larger than any."""
    return max(errors, key=lambda e: (e != e, e), default=None)


def number(value: float | None) -> str:
    """An error or a margin; nothing where there is none."""
    if value is None:
        return ""
    return "0" if value == 0 else "∞" if value == float("inf") else f"{value:.1e}"


# -- columns -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """A row as tables show it.

    ``at`` is the line it stands at in a file, ``lean`` what Lean says of it.
    """

    row: Row
    at: int | None = None
    lean: str = ""


ELABORATED = "elaborated"
"""What the column of Lean says of a declaration that it has nothing against."""


def _error(name: str, means: str) -> Column[Line]:
    def cell(line: Line) -> str:
        return number(line.row.errors.get(name))

    return Column(name, cell, means, role="number", optional=True)


ERRORS = (
    _error("value", "a definition of a value against the forward"),
    _error("cotangent", "a cotangent, defined or read, against the forward's derivative there"),
    _error("statement", "the two sides of the statement"),
    _error(
        "intent",
        "each gradient node against the derivative of the whole block, or net, in that parameter",
    ),
    _error("zero", "how large a gradient is that theory makes zero"),
    _error("render", "the render's chain at a site that takes its cotangent from the certificate"),
)
"""The columns of relative errors, in the order they are shown; a row has some of them."""

COLUMNS: tuple[Column[Line], ...] = (
    Column("line", lambda x: x.at, "where it stands in the file", role="number", optional=True),
    Column("name", lambda x: x.row.name, "the declaration", role="name", code=True),
    Column("kind", lambda x: x.row.kind, "what it is"),
    Column("sizes", lambda x: x.row.sizes, "the numbers it was evaluated at"),
    *ERRORS,
    Column("worst", lambda x: number(x.row.worst), "the largest of its errors", role="number"),
    Column(
        "margin",
        lambda x: number(x.row.margin),
        "the smallest distance of a sample from a kink",
        role="number",
    ),
    Column("verdict", lambda x: x.row.verdict, "what was found", role="verdict"),
    Column("Lean", lambda x: x.lean, "what Lean's elaboration says of it", optional=True),
)
"""All that a ledger can show of a row, in the order it is shown."""

NARROW = frozenset(["line", "name", "worst", "margin", "verdict"])
"""What there is room for in a narrow terminal; elsewhere each error has its column."""


def ledger_table(
    lines: Sequence[Line],
    *,
    narrow: bool = False,
    name: str = "name",
    allow_unknown: bool = False,
    told: bool = True,
) -> Table:
    """The table of a ledger.

    Parameters
    ----------
    narrow
        One column for all errors, and neither kinds nor sizes.
    name
        What the column of names is headed.
    allow_unknown
        Whether what was not evaluated speaks against nothing.
    told
        Whether what speaks against a statement has its notes under it; elsewhere they have.
    """

    def ok(line: Line) -> bool | None:
        return line.row.verdict.judged(allow_unknown=allow_unknown)

    def verdict(line: Line) -> str:
        # What Lean has against a declaration stands here where there is no column for it.
        beside = narrow and line.lean not in ("", ELABORATED)
        return line.row.verdict + (f"; Lean: {line.lean}" if beside else "")

    own: dict[str, dict[str, Any]] = {"name": {"heading": name}, "verdict": {"cell": verdict}}
    shown = (c for c in COLUMNS if (c.name in NARROW if narrow else c.name != "worst"))
    return Table.of(
        (replace(c, **own.get(c.name, {})) for c in shown),
        lines,
        ok=ok,
        notes=lambda x: x.row.notes if told or ok(x) is not False else (),
        style=lambda x: x.row.verdict.style,
    )


def further_table(rows: Iterable[Row], *, narrow: bool = False) -> Table:
    """The table of what is claimed beside the file, what was found last."""
    columns: tuple[Column[Row], ...] = (
        Column("beside the file", lambda r: r.name, role="name"),
        Column("kind", lambda r: r.kind),
        Column("sizes", lambda r: r.sizes),
        Column("error", lambda r: number(r.worst), role="number"),
        Column("verdict", lambda r: r.verdict, role="verdict"),
        Column("found", lambda r: "; ".join(r.notes)),
    )
    return Table.of(
        (c for c in columns if not (narrow and c.name in ("kind", "sizes"))),
        rows,
        ok=lambda r: r.verdict.good,
        style=lambda r: r.verdict.style,
    )


def legend(table: Table, rows: Iterable[Row]) -> tuple[str, ...]:
    """What the numbers and the verdicts of a ledger mean, a paragraph each."""
    found = {row.verdict for row in rows}
    verdicts = [v for v in Verdict if v in found]
    said = [f"{c.title.capitalize()}: {c.means}." for c in table.columns if c.role == "number"]
    return (
        f"Numbers are relative errors; a row holds up to {BOUND:.0e}. {' '.join(said)}",
        "Verdicts: " + "; ".join(f"{v}, {v.means}" for v in verdicts) + ".",
    )[: 1 + bool(verdicts)]


# -- a ledger ----------------------------------------------------------------------------------


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
        return tuple(r for r in (*self.rows, *self.further) if not r.verdict.good)

    def as_json(self) -> Any:
        """Plain data, for ``--json``."""
        return plain(
            {
                "net": self.net,
                "ok": self.ok,
                "scale": self.scale,
                "seeds": self.seeds,
                "seconds": round(self.seconds, 3),
                "bound": BOUND,
                "columns": {
                    c.name: c.means for c in ERRORS if any(c.name in r.errors for r in self.rows)
                },
                "rows": self.rows,
                "further": self.further,
                "zero_by_theory": self.zeros,
                "notes": self.notes,
            }
        )

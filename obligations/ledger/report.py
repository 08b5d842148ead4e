"""A ledger on a terminal: its rows, then what a reader must know beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

from obligations.ledger.rows import (
    BOUND,
    Ledger,
    Line,
    Row,
    Zero,
    further_table,
    ledger_table,
    number,
    worst,
)
from obligations.ledger.tables import WIDE, is_terminal, paragraph, show, width


def narrow(stream: IO[str]) -> bool:
    """Whether ``stream`` is a terminal that has no room for all columns of a ledger."""
    return is_terminal(stream) and width(stream) < WIDE


def show_ledger(
    found: Ledger,
    stream: IO[str] | None = None,
    *,
    lean: Mapping[str, str] | None = None,
    told: str = "",
) -> None:
    """Print a ledger: a row per obligation, then what a reader must know beside it.

    Parameters
    ----------
    found
        The ledger.
    stream
        Where to; standard output by default.
    lean
        What Lean says of each declaration, by name; it gets a column.
    told
        Lean's version and verdict, printed under the rows.
    """
    out = sys.stdout if stream is None else stream
    said = lean or {}
    lines = [Line(r, lean=said.get(r.name, "")) for r in found.rows]
    show(ledger_table(lines, narrow=narrow(out)), out)
    beside = [*after(found), *(told.split("\n") if told else ())]
    _write(beside, out)
    if found.further:
        out.write("\n")
        show(further_table(found.further, narrow=True), out)
    _write([summary(found)], out)


def _write(paragraphs: Iterable[str], out: IO[str]) -> None:
    room = width(out)
    out.writelines(line + "\n" for text in paragraphs for line in paragraph(text, room))


def after(found: Ledger) -> Iterator[str]:
    """What stands under the rows: notes, zeros, the scale, what was left out."""
    yield from (f"{row.name}: {note}" for row in found.rows for note in row.notes)
    for reason, zeros in reasons(found.zeros).items():
        tensors = f"{len(zeros)} tensors" if len(zeros) > 1 else "1 tensor"
        largest = number(worst(z.found for z in zeros))
        yield f"zero by theory: {tensors}, {reason}; largest found {largest}"
        yield "  " + placed(zeros)
    yield f"whole net: {found.scale}"
    yield from (f"left out: {note}" for note in found.notes)


def summary(found: Ledger) -> str:
    """The ledger in a line."""
    head = _held(found.rows)
    if found.further:
        head += f", and {_held(found.further)} beside the file"
    seeds = f"seed {found.seeds[0]}" if len(found.seeds) == 1 else f"{len(found.seeds)} seeds"
    return f"{found.net}: {head}; {worst_of(found.rows)}; {seeds}; {found.seconds:.1f} s"


def worst_of(rows: Iterable[Row]) -> str:
    """The largest error of some rows, and the bound."""
    errors = worst(e for r in rows for e in r.errors.values())
    return f"worst error {number(errors or 0.0)}, bound {number(BOUND)}"


def _held(rows: Sequence[Row]) -> str:
    failing = sum(not r.verdict.good for r in rows)
    if failing:
        return f"{failing} of {len(rows)} do not hold"
    return f"{len(rows)} of {len(rows)} hold"


def reasons(zeros: Iterable[Zero]) -> dict[str, list[Zero]]:
    """Zeros by their reason, the place that the reason ends in left off."""
    out: dict[str, list[Zero]] = {}
    for zero in zeros:
        out.setdefault(zero.reason.rpartition(" at ")[0] or zero.reason, []).append(zero)
    return out


def placed(zeros: Iterable[Zero]) -> str:
    """Tensors layer by layer, each with the place its reason ends in: ``b2: eb (en), db (dn)``."""
    layers: dict[str, list[str]] = {}
    for zero in zeros:
        layer, dot, tensor = zero.tensor.rpartition(".")
        _, at, place = zero.reason.rpartition(" at ")
        near = ", ".join(x.removeprefix(layer + dot) for x in place.split(", "))
        layers.setdefault(layer, []).append(f"{tensor} ({near})" if at else tensor)
    return "; ".join(f"{k}: {', '.join(v)}" if k else ", ".join(v) for k, v in layers.items())

"""What the commands print: tables that fit the terminal, plain columns when nobody looks.

Rich is used on a terminal only. Piped output has one row per line, columns apart by two spaces or
more, no colour and no line drawing.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from obligations.ledger.rows import BOUND, Ledger, Row, Zero

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100
WIDE = 120
"""Terminal columns from which a ledger shows all its columns."""

_STYLES = {"holds": "green", "total": "bold"}


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person looks at ``stream``."""
    return stream.isatty()


def width(stream: IO[str]) -> int:
    """Columns of the terminal ``stream`` is, or of plain text."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else PLAIN_WIDTH


def columns(text: str) -> int:
    """How many terminal columns ``text`` takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, soft_wrap=False)


# -- tables ------------------------------------------------------------------------------------


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    total: bool = False,
    stream: IO[str] | None = None,
) -> None:
    """Print a table.

    Parameters
    ----------
    headers, rows
        Texts, one per column.
    numbers
        Columns that are set to the right.
    total
        Whether the last row sums up the others.
    stream
        Where to; standard output by default.
    """
    out = sys.stdout if stream is None else stream
    found = [list(row) for row in rows]
    if is_terminal(out):
        _rich_table(headers, found, numbers, total, out)
        return
    for line in plain(headers, found, numbers):
        out.write(line + "\n")


def plain(
    headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int] = ()
) -> Iterator[str]:
    """A table as lines of plain text, no column cut or wrapped."""
    sizes = [max(columns(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    for row in (headers, *rows):
        cells = []
        for i, cell in enumerate(row):
            pad = " " * (sizes[i] - columns(cell))
            cells.append(pad + cell if i in numbers else cell + pad)
        yield "  ".join(cells).rstrip()


def _rich_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Collection[int],
    total: bool,
    stream: IO[str],
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, header in enumerate(headers):
        shown.add_column(
            header,
            justify="right" if i in numbers else "left",
            no_wrap=i in numbers,
            overflow="fold",
        )
    for n, row in enumerate(rows):
        last = total and n + 1 == len(rows)
        shown.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row), end_section=last)
    _console(stream).print(shown)


# -- ledgers -----------------------------------------------------------------------------------

_COLUMNS = ("value", "cotangent", "statement", "intent", "zero")


def number(value: float | None) -> str:
    """An error or a margin; nothing where there is none."""
    if value is None or value == float("inf"):
        return ""
    return "0" if value == 0 else f"{value:.1e}"


def error_columns(rows: Iterable[Row]) -> list[str]:
    """The columns of errors that rows have, in the order they are shown."""
    used = dict.fromkeys(c for row in rows for c in row.errors)
    return [*(c for c in _COLUMNS if c in used), *(c for c in used if c not in _COLUMNS)]


ELABORATED = "elaborated"
"""What the column of Lean says of a declaration that it has nothing against."""


def ledger(
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
    lean = lean or {}
    kept = error_columns(found.rows)
    if is_terminal(out) and width(out) < WIDE:
        headers = ["name", "worst", "margin", "verdict"]
        rows = [[r.name, number(r.worst), number(r.margin), _verdict(r, lean)] for r in found.rows]
        numbers: Collection[int] = (1, 2)
    else:
        headers = ["name", "kind", "sizes", *kept, "margin", "verdict"]
        rows = [_wide(r, kept) for r in found.rows]
        numbers = range(3, 4 + len(kept))
        if lean:
            headers.append("Lean")
            rows = [[*row, lean.get(row[0], "")] for row in rows]
    table(headers, rows, numbers=numbers, stream=out)
    for line in after(found, width(out)):
        out.write(line + "\n")
    for paragraph in told.split("\n") if told else ():
        for line in _paragraph(paragraph, width(out)):
            out.write(line + "\n")
    if found.further:
        out.write("\n")
        _further(found.further, out)
    for line in _paragraph(summary(found), width(out)):
        out.write(line + "\n")


def _further(rows: Sequence[Row], out: IO[str]) -> None:
    """What is claimed beside the file, what was found last."""
    table(
        ("beside the file", "error", "verdict", "found"),
        [
            [r.name, number(max(r.errors.values(), default=None)), r.verdict, "; ".join(r.notes)]
            for r in rows
        ],
        numbers=(1,),
        stream=out,
    )


def _verdict(row: Row, lean: Mapping[str, str]) -> str:
    """A row's verdict, with Lean's where that is another."""
    said = lean.get(row.name, ELABORATED)
    return row.verdict if said == ELABORATED else f"{row.verdict}; Lean: {said}"


def _wide(row: Row, kept: Sequence[str]) -> list[str]:
    errors = [number(row.errors.get(c)) for c in kept]
    return [row.name, row.kind, row.sizes, *errors, number(row.margin), row.verdict]


def after(found: Ledger, wide: int = PLAIN_WIDTH) -> Iterator[str]:
    """What stands under the rows: notes, zeros, the scale, what was left out."""
    for row in found.rows:
        for note in row.notes:
            yield from _paragraph(f"{row.name}: {note}", wide)
    for reason, zeros in reasons(found.zeros).items():
        tensors = f"{len(zeros)} tensors" if len(zeros) > 1 else "1 tensor"
        largest = number(max(z.found for z in zeros))
        yield from _paragraph(f"zero by theory: {tensors}, {reason}; largest found {largest}", wide)
        yield from _paragraph("  " + placed(zeros), wide)
    yield from _paragraph(f"whole net: {found.scale}", wide)
    for note in found.notes:
        yield from _paragraph(f"left out: {note}", wide)


def summary(found: Ledger) -> str:
    """The ledger in a line."""
    head = _held(found.rows)
    if found.further:
        head += f", and {_held(found.further)} beside the file"
    worst = number(max((r.worst for r in found.rows), default=0.0)) or "0"
    seeds = f"seed {found.seeds[0]}" if len(found.seeds) == 1 else f"{len(found.seeds)} seeds"
    return (
        f"{found.net}: {head}; worst error {worst}, bound {number(BOUND)}; {seeds}; "
        f"{found.seconds:.1f} s"
    )


def _held(rows: Sequence[Row]) -> str:
    failing = sum(r.verdict != "holds" for r in rows)
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


def _paragraph(text: str, wide: int) -> Iterator[str]:
    """``text`` wrapped, further lines two columns in."""
    lead = len(text) - len(text.lstrip())
    line, room = " " * lead, max(20, wide)
    empty = True
    for word in text.split():
        if not empty and columns(line) + 1 + columns(word) > room:
            yield line
            line, empty = "  ", True
        line += word if empty else f" {word}"
        empty = False
    yield line


# -- progress ----------------------------------------------------------------------------------


@contextmanager
def working(what: str) -> Iterator[Any]:
    """A status line on standard error while something runs, if that is a terminal.

    Gives a function that takes what is worked on now.
    """
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    console = _console(sys.stderr)
    with console.status(what) as status:
        yield lambda now: status.update(f"{what}: {now}")

"""Tables: one record, set as plain columns, for a terminal, as Markdown or on a page.

Rich is used on a terminal only. Piped output has one row per line, columns apart by two spaces or
more, no colour and no line drawing. (:mod:`obligations.show.page` sets a table on a page.)
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100
WIDE = 120
"""Terminal columns from which a ledger shows all its columns."""

T = TypeVar("T")


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person looks at ``stream``."""
    return stream.isatty()


def width(stream: IO[str]) -> int:
    """Columns of the terminal ``stream`` is, or of plain text."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else PLAIN_WIDTH


def columns(text: str) -> int:
    """How many terminal columns ``text`` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, soft_wrap=False)


# -- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """What a table shows of each of its items.

    Attributes
    ----------
    name
        What it is, and its heading where ``heading`` is empty.
    cell
        What is shown of an item; ``None`` is shown as nothing.
    means
        What a legend says of it, without a full stop.
    role
        A number is set to the right; a name names its row; a verdict is what was
        found of it.
    code
        Whether its texts are code.
    optional
        Whether it is left out of a table in which it has nothing to show.
    """

    name: str
    cell: Callable[[T], object]
    means: str = ""
    heading: str = ""
    role: Literal["", "name", "number", "verdict"] = ""
    code: bool = False
    optional: bool = False

    @property
    def title(self) -> str:
        """What stands above it."""
        return self.heading or self.name


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a table: a text for each column.

    ``ok`` is None where nothing is judged, ``notes`` stand under it on a page, and ``style`` is
    the colour of its verdict.
    """

    cells: tuple[str, ...]
    ok: bool | None = None
    notes: tuple[str, ...] = ()
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; with ``total``, its last row sums up the others."""

    columns: tuple[Column[Any], ...]
    entries: tuple[Entry, ...]
    total: bool = False

    @classmethod
    def of(
        cls,
        columns: Iterable[Column[T]],
        items: Iterable[T],
        *,
        ok: Callable[[T], bool | None] = lambda _: None,
        notes: Callable[[T], tuple[str, ...]] = lambda _: (),
        style: Callable[[T], str] = lambda _: "",
        total: Sequence[object] = (),
    ) -> Table:
        """The table of some items; ``total`` is its last row, if there is one."""
        found = tuple(items)
        shown = [(c, _texts(map(c.cell, found))) for c in columns]
        shown = [(c, texts) for c, texts in shown if any(texts) or not c.optional]
        rows = zip(*(texts for _, texts in shown), strict=True)
        entries = [Entry(r, ok(x), notes(x), style(x)) for x, r in zip(found, rows, strict=True)]
        entries += [Entry(_texts(total))] if total else []
        return cls(tuple(c for c, _ in shown), tuple(entries), bool(total))


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple("" if v is None else str(v) for v in values)


def show(table: Table, stream: IO[str] | None = None) -> None:
    """Print a table, to standard output where nothing else is said."""
    out = sys.stdout if stream is None else stream
    if is_terminal(out):
        _print(table, out)
    else:
        out.writelines(line + "\n" for line in plain_lines(table))


def plain_lines(table: Table) -> Iterator[str]:
    """A table as lines of plain text, no column cut or wrapped."""
    rows = [_texts(c.title for c in table.columns), *(e.cells for e in table.entries)]
    sizes = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    for cells in rows:
        yield "  ".join(
            " " * (size - columns(text)) + text
            if column.role == "number"
            else text + " " * (size - columns(text))
            for column, size, text in zip(table.columns, sizes, cells, strict=True)
        ).rstrip()


def markdown_lines(table: Table) -> Iterator[str]:
    """A table as lines of Markdown, the notes of a row beside its verdict."""
    yield _piped(c.title for c in table.columns)
    rules = {"number": "---:"}
    yield "|" + "|".join(rules.get(c.role, "---") for c in table.columns) + "|"
    for entry in table.entries:
        cells = []
        for column, text in zip(table.columns, entry.cells, strict=True):
            if column.role == "verdict" and entry.notes:
                text += f" ({'; '.join(entry.notes)})"
            text = unmarked(text)
            cells.append(f"`{text}`" if column.code else text)
        yield _piped(cells)


def unmarked(text: str) -> str:
    """``text`` as a cell of Markdown, nothing in it a mark."""
    return text.replace("|", "\\|").replace("`", "")


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _print(table: Table, stream: IO[str]) -> None:
    """A table on a terminal, its texts broken where they do not fit."""
    from rich import box
    from rich.table import Table as Shown
    from rich.text import Text

    shown = Shown(box=box.SIMPLE_HEAD, pad_edge=False)
    # The widest columns are broken first, so that numbers are last.
    for column in table.columns:
        side: Literal["left", "right"] = "right" if column.role == "number" else "left"
        shown.add_column(column.title, justify=side, overflow="fold")
    for entry in table.entries:
        last = table.total and entry is table.entries[-1]
        styles = {"verdict": entry.style, "name": "bold" if last else ""}
        cells = zip(table.columns, entry.cells, strict=True)
        shown.add_row(*(Text(text, styles.get(c.role, "")) for c, text in cells), end_section=last)
    _console(stream).print(shown)


# -- words -------------------------------------------------------------------------------------


def paragraph(text: str, wide: int, indent: str = "  ") -> Iterator[str]:
    """``text`` wrapped, further lines two columns in, or by ``indent``."""
    lead = len(text) - len(text.lstrip())
    line, room = " " * lead, max(20, wide)
    empty = True
    for word in text.split():
        if not empty and columns(line) + 1 + columns(word) > room:
            yield line
            line, empty = indent, True
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

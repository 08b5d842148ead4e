"""One HTML page of what was found: nothing loaded from elsewhere, readable without colour.

A :class:`Page` is plain data; :func:`render` sets it with ``page.html.j2``. What holds and what
does not is said in words and with a mark, and what does not hold stands first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obligations.errors import Source
from obligations.ledger import BOUND

if TYPE_CHECKING:
    import jinja2

    from obligations.audit import Audit
    from obligations.confirm import FileLedger
    from obligations.description import Net
    from obligations.diff import Comparison
    from obligations.ledger import Ledger, Row, Zero
    from obligations.show.model import Picture
    from obligations.statements import Difference, Section


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a table; ``ok`` is None where nothing is judged, ``notes`` stand under it."""

    cells: tuple[str, ...]
    ok: bool | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first column names the row.

    ``numbers`` are the columns set to the right, ``code`` those set as code; ``verdict`` is the
    column that gets the mark.
    """

    headers: tuple[str, ...]
    entries: tuple[Entry, ...]
    numbers: frozenset[int] = frozenset()
    code: frozenset[int] = frozenset({0})
    verdict: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where something differs: what is to be said of it, and the lines that show it."""

    place: str
    texts: tuple[str, ...]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A titled part of a chapter."""

    title: str
    words: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    table: Table | None = None
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """What was found of one subject, a net or a file."""

    title: str
    ok: bool
    summary: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: what was done, on what, and what was found."""

    command: str
    title: str
    chapters: tuple[Chapter, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing on the page fails."""
        return all(c.ok for c in self.chapters)


# -- pages of the commands ---------------------------------------------------------------------


def net_chapter(
    net: Net,
    sections: Mapping[str, Section],
    differences: Sequence[Difference],
    ledger: Ledger | None = None,
) -> Chapter:
    """A net: its differences and ledger, its blocks drawn, its conventions.

    Parameters
    ----------
    net, sections
        As :func:`obligations.statements.derive.sections` gives them.
    differences
        As :func:`obligations.writing.tie_file.differences` gives them.
    ledger
        What was confirmed; None where the differences kept it from being so.
    """
    from obligations.ledger import summary

    parts: list[Part] = []
    if differences:
        parts.append(
            Part(
                "Differences",
                ("Where the conventions are not what the forward implies.",),
                findings(differences, net.source),
            )
        )
    if ledger is not None:
        parts += ledger_parts(ledger)
    parts += [blocks_part(sections), conventions_part(net)]
    ok = not differences and (ledger is None or ledger.ok)
    if ledger is None:
        places = "1 place" if len(differences) == 1 else f"{len(differences)} places"
        said = f"the conventions differ from the forward in {places}; nothing was evaluated"
        if not differences:
            said = "the conventions are what the forward implies"
    else:
        said = summary(ledger).removeprefix(f"{ledger.net}: ")
    return Chapter(net.name, ok, said, tuple(parts))


def diff_chapter(found: Comparison, sections: Mapping[str, Section] | None = None) -> Chapter:
    """Two files compared: the pieces that differ, every declaration, and a net's blocks."""
    from obligations import diff

    details = tuple(diff.details(found))
    entries = []
    for name, pair in zip(diff.short_names(found), found.pairs, strict=True):
        places = ("" if p is None else f"{p[0]}:{p[1]}" for p in pair.places)
        entries.append(Entry((name, pair.said, *places), pair.agrees))
    table = Table(
        ("declaration", "verdict", "A", "B"),
        _first(entries),
        numbers=frozenset({2, 3}),
        verdict=1,
    )
    pieces = []
    for name, pair in details:
        lines = list(pair.notes)
        for d in pair.differences:
            lines.append(f"{d.note}:" if d.note else "differs:")
            for word, side in (("A", d.left), ("B", d.right)):
                if side is None:
                    lines.append(f"  {word}  nothing")
                else:
                    lines.append(f"  {word}  {f'{side.line}:{side.column}':8} {side.text}")
        if pair.more:
            lines.append(f"and {pair.more} more")
        pieces.append(Finding(name, (pair.said,), tuple(lines)))
    parts = [Part("Declarations", (f"A is {found.left}, B is {found.right}.",), table=table)]
    if pieces:
        parts.insert(0, Part("Differences", findings=tuple(pieces)))
    if sections is not None:
        parts.append(blocks_part(sections))
    return Chapter(
        f"{found.left} against {found.right}", found.ok, diff.summary(found), tuple(parts)
    )


def file_chapter(
    found: FileLedger,
    summary: str,
    sections: Mapping[str, Section] | None = None,
    *,
    allow_unknown: bool = False,
) -> Chapter:
    """A Lean file checked: what is wrong, a row for each declaration, its net's blocks."""
    from obligations.confirm import BAD

    refused = BAD if allow_unknown else BAD | {"not evaluable"}
    ledger = found.ledger
    wrong = []
    for row, place in zip(ledger.rows, found.places, strict=True):
        if row.verdict in refused:
            _, *lines = place.shown.split("\n") if place.shown else ("", *row.notes)
            at = f"{ledger.net}:{place.line}:{place.column}"
            said = f"{row.name}: {row.verdict}"
            if place.shown:
                said = place.shown.split("\n")[0].removeprefix(f"{at}: ")
            wrong.append(Finding(at, (said,), _outdented(lines)))
    parts = [Part("Findings", findings=tuple(wrong))] if wrong else []
    rows = [
        Entry(
            (*cells[:4], str(place.line), *cells[4:]),
            True if row.verdict == "holds" else False if row.verdict in refused else None,
            () if row.verdict in refused else row.notes,
        )
        for row, cells, place in zip(ledger.rows, _cells(ledger.rows), found.places, strict=True)
    ]
    columns = _columns(ledger.rows)
    table = Table(
        (*columns[:4], "line", *columns[4:]),
        _first(rows),
        numbers=frozenset(range(4, len(columns) + 1)),
        verdict=1,
    )
    parts.append(Part("Ledger", (_READING,), table=table))
    parts += _zeros_part(ledger.zeros)
    if sections is not None:
        parts.append(blocks_part(sections))
    ok = found.ok(allow_unknown=allow_unknown)
    return Chapter(ledger.net, ok, summary.removeprefix(f"{ledger.net}: "), tuple(parts))


def audit_chapter(found: Audit, sections: Mapping[str, Section] | None = None) -> Chapter:
    """A training step audited: what differs, a row for each convention, the net's blocks."""
    from obligations.audit import steps as audit

    wrong = []
    for row, mismatch in found.mismatches:
        head, *lines = audit.shown(found, row, mismatch).split("\n")
        span = found.place(mismatch)
        at = f"{found.source.name}:{span.line}:{span.column}"
        wrong.append(Finding(at, (head.removeprefix(f"{at}: "),), _outdented(lines)))
    parts = [Part("Differences", findings=tuple(wrong))] if wrong else []
    entries = [
        Entry((r.convention, r.said, r.stated, r.note), r.ok if r.judged else None)
        for r in found.rows
    ]
    table = Table(
        ("convention", "verdict", "description", "found"),
        _first(entries),
        code=frozenset(),
        verdict=1,
    )
    parts.append(Part("Conventions", (f"{found.net} against the artifact.",), table=table))
    if sections is not None:
        parts.append(blocks_part(sections))
    said = audit.summary(found).removeprefix(f"{found.net}: ")
    return Chapter(found.source.name, found.ok, said, tuple(parts))


# -- parts -------------------------------------------------------------------------------------


def findings(differences: Iterable[Difference], source: Source) -> tuple[Finding, ...]:
    """Differences of renders by their places, each with its line and a caret."""
    at: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for d in differences:
        _, *lines = d.render(source).split("\n")
        place = f"{source.name}:{d.span.line}:{d.span.column}"
        at.setdefault((place, _outdented(lines)), []).append(d.message)
    return tuple(Finding(place, tuple(texts), lines) for (place, lines), texts in at.items())


def _outdented(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines without the indentation they share."""
    lead = min((len(x) - len(x.lstrip(" ")) for x in lines if x.strip()), default=0)
    return tuple(x[lead:] for x in lines)


_READING = (
    "Numbers are relative errors; a row holds up to {bound}. Value and cotangent: a definition "
    "against the forward and its derivative. Statement: its two sides. Intent: each gradient node "
    "against the derivative of the whole block, or net, in that parameter. Zero: what theory makes "
    "zero. Margin: the smallest distance of a sample from a kink."
).format(bound=f"{BOUND:.0e}")


def _columns(rows: Sequence[Row]) -> tuple[str, ...]:
    from obligations.ledger import error_columns

    return ("name", "verdict", "kind", "sizes", *error_columns(rows), "margin")


def _cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows of a ledger under :func:`_columns`."""
    from obligations.ledger import error_columns, number

    kept = error_columns(rows)
    return [
        (
            row.name,
            row.verdict,
            row.kind,
            row.sizes,
            *(number(row.errors.get(c)) for c in kept),
            number(row.margin),
        )
        for row in rows
    ]


def ledger_parts(ledger: Ledger) -> list[Part]:
    """A ledger: its rows, what is claimed beside them, what theory makes zero."""
    columns = _columns(ledger.rows)
    rows = [
        Entry(cells, row.verdict == "holds", row.notes)
        for row, cells in zip(ledger.rows, _cells(ledger.rows), strict=True)
    ]
    table = Table(columns, _first(rows), numbers=frozenset(range(4, len(columns))), verdict=1)
    words = [_READING]
    if ledger.scale:
        words.append(f"The whole net is evaluated at {ledger.scale}.")
    words += [f"Left out: {note}." for note in ledger.notes]
    out = [Part("Ledger", tuple(words), table=table)]
    if ledger.further:
        out.append(Part("Beside the file", table=_further(ledger.further)))
    return out + _zeros_part(ledger.zeros)


def _zeros_part(zeros: Sequence[Zero]) -> list[Part]:
    from obligations.ledger import number, placed, reasons

    entries = [
        Entry((reason, str(len(same)), number(max(z.found for z in same)), placed(same)))
        for reason, same in reasons(zeros).items()
    ]
    table = Table(
        ("reason", "tensors", "largest", "where"),
        tuple(entries),
        numbers=frozenset({1, 2}),
        code=frozenset(),
    )
    words = ("Gradients that are zero whatever the data, and how large they were found.",)
    return [Part("Zero by theory", words, table=table)] if entries else []


def _further(rows: Iterable[Row]) -> Table:
    from obligations.ledger import number

    return Table(
        ("claim", "verdict", "kind", "sizes", "error", "found"),
        _first(
            Entry(
                (
                    row.name,
                    row.verdict,
                    row.kind,
                    row.sizes,
                    number(max(row.errors.values(), default=None)),
                    "; ".join(row.notes),
                ),
                row.verdict == "holds",
            )
            for row in rows
        ),
        numbers=frozenset({4}),
        code=frozenset(),
        verdict=1,
    )


def blocks_part(sections: Mapping[str, Section]) -> Part:
    """Every block under each of its kinds, drawn; those that differ first."""
    from obligations.show.model import pictures

    shown = sorted(pictures(sections), key=lambda p: not p.differences)
    return Part("Blocks", pictures=tuple(shown))


def conventions_part(net: Net) -> Part:
    """What the description states, where, and what turns red when it is broken."""
    entries = [
        Entry(
            (
                c.name,
                c.value,
                f"recorded {c.red}" if c.recorded else c.red,
                str(c.span.line),
            )
        )
        for c in net.conventions.values()
    ]
    table = Table(
        ("convention", "value", "what turns red when it is broken", "line"),
        tuple(entries),
        numbers=frozenset({3}),
        code=frozenset(),
    )
    return Part("Conventions", (f"As {net.source.name} states them.",), table=table)


def _first(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries in their order, those that fail before the others."""
    return tuple(sorted(entries, key=lambda e: e.ok is not False))


# -- setting -----------------------------------------------------------------------------------


def render(page: Page) -> str:
    """The page as HTML, complete in itself."""
    from obligations import __version__
    from obligations.show.svg_drawing import clean

    return clean(_template().render(page=page, version=__version__)) + "\n"


def write(path: Path, page: Page) -> None:
    """Write a page whole; :class:`obligations.errors.ObligationsError` if it cannot be."""
    from obligations.writing import replace_file

    replace_file(path, render(page))


@cache
def _template() -> jinja2.Template:
    import jinja2
    from markupsafe import Markup

    from obligations.show.svg_drawing import STYLE, legend, svg

    def drawn(picture: Picture) -> Any:
        return Markup(svg(picture, inline=True))

    # The drawings escape what they say themselves; everything else is escaped here.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        style=Markup(STYLE),
        legend=lambda bad: [(Markup(sample), words) for sample, words in legend(differences=bad)],
        drawn=drawn,
    )
    text = (resources.files("obligations.show") / "page.html.j2").read_text("utf-8")
    return environment.from_string(text)

"""One HTML page of what was found: nothing loaded from elsewhere, readable without colour.

A :class:`Page` is plain data; :func:`render` sets it with ``page.html.j2``. What holds and what
does not is said in words and with a mark, and what does not hold stands first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from obligations import __version__, audit, confirm, diff
from obligations.description import Net
from obligations.errors import Source
from obligations.ledger import (
    Column,
    Ledger,
    Line,
    Table,
    Zero,
    further_table,
    ledger_table,
    legend,
    number,
    placed,
    reasons,
    summary,
    worst,
)
from obligations.show.model import Picture, pictures
from obligations.show.svg_drawing import STYLE, clean, legend as samples, svg
from obligations.statements import Difference, Section
from obligations.writing import replace_file


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
    parts += [*blocks_parts(sections), conventions_part(net)]
    ok = not differences and (ledger is None or ledger.ok)
    if ledger is None:
        places = "1 place" if len(differences) == 1 else f"{len(differences)} places"
        said = f"the conventions differ from the forward in {places}; nothing was evaluated"
        if not differences:
            said = "the conventions are what the forward implies"
    else:
        said = summary(ledger).removeprefix(f"{ledger.net}: ")
    return Chapter(net.name, ok, said, tuple(parts))


def diff_chapter(found: diff.Comparison, sections: Mapping[str, Section] | None = None) -> Chapter:
    """Two files compared: the pieces that differ, every declaration, and a net's blocks."""
    pairs = diff.named(found)
    pieces = []
    for name, pair in pairs:
        lines = tuple(f"{words}{piece}" for words, piece, _ in diff.details(pair))
        if lines:
            pieces.append(Finding(name, (pair.said,), lines))
    words = (f"A is {found.left}, B is {found.right}.",)
    parts = [Part("Declarations", words, table=_paged(diff.table(pairs)))]
    if pieces:
        parts.insert(0, Part("Differences", findings=tuple(pieces)))
    parts += blocks_parts(sections)
    return Chapter(
        f"{found.left} against {found.right}", found.ok, diff.summary(found), tuple(parts)
    )


def file_chapter(
    found: confirm.FileLedger,
    summary: str,
    sections: Mapping[str, Section] | None = None,
    *,
    allow_unknown: bool = False,
) -> Chapter:
    """A Lean file checked: what is wrong, a row for each declaration, its net's blocks."""
    ledger = found.ledger
    wrong = []
    for row, place in zip(ledger.rows, found.places, strict=True):
        if row.verdict.judged(allow_unknown=allow_unknown) is False:
            first, *lines = place.shown.split("\n") if place.shown else ("", *row.notes)
            # Trouble within a declaration has a place of its own.
            at, _, said = first.partition(": error: ")
            at = at or f"{ledger.net}:{place.line}:{place.column}"
            wrong.append(Finding(at, (said or f"{row.name}: {row.verdict}",), _outdented(lines)))
    parts = [Part("Findings", findings=tuple(wrong))] if wrong else []
    # What is wrong has its notes among the findings.
    table = ledger_table(found.lines(), allow_unknown=allow_unknown, told=False)
    parts.append(Part("Ledger", legend(table, ledger.rows), table=_paged(table)))
    parts += _zeros_part(ledger.zeros)
    parts += blocks_parts(sections)
    ok = found.ok(allow_unknown=allow_unknown)
    return Chapter(ledger.net, ok, summary.removeprefix(f"{ledger.net}: "), tuple(parts))


def audit_chapter(found: audit.Audit, sections: Mapping[str, Section] | None = None) -> Chapter:
    """A training step audited: what differs, a row for each convention, the net's blocks."""
    wrong = []
    for row, mismatch in found.mismatches:
        head, *lines = audit.shown(found, row, mismatch).split("\n")
        span = found.place(mismatch)
        at = f"{found.source.name}:{span.line}:{span.column}"
        wrong.append(Finding(at, (head.removeprefix(f"{at}: "),), _outdented(lines)))
    parts = [Part("Differences", findings=tuple(wrong))] if wrong else []
    words = (f"{found.net} against the artifact.",)
    parts.append(Part("Conventions", words, table=_paged(found.table())))
    parts += blocks_parts(sections)
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


def ledger_parts(ledger: Ledger) -> list[Part]:
    """A ledger: its rows, what is claimed beside them, what theory makes zero."""
    table = ledger_table([Line(row) for row in ledger.rows])
    words = list(legend(table, ledger.rows))
    if ledger.scale:
        words.append(f"The whole net is evaluated at {ledger.scale}.")
    words += [f"Left out: {note}." for note in ledger.notes]
    out = [Part("Ledger", tuple(words), table=_paged(table))]
    if ledger.further:
        out.append(Part("Beside the file", table=_paged(further_table(ledger.further))))
    return out + _zeros_part(ledger.zeros)


def _zeros_part(zeros: Sequence[Zero]) -> list[Part]:
    columns: tuple[Column[tuple[str, list[Zero]]], ...] = (
        Column("reason", lambda x: x[0], role="name"),
        Column("tensors", lambda x: len(x[1]), role="number"),
        Column("largest", lambda x: number(worst(z.found for z in x[1])), role="number"),
        Column("where", lambda x: placed(x[1])),
    )
    table = Table.of(columns, reasons(zeros).items())
    words = ("Gradients that are zero whatever the data, and how large they were found.",)
    return [Part("Zero by theory", words, table=table)] if zeros else []


def blocks_parts(sections: Mapping[str, Section] | None) -> list[Part]:
    """Every block under each of its kinds, drawn; those that differ first."""
    shown = sorted(pictures(sections or {}), key=lambda p: not p.differences)
    return [] if sections is None else [Part("Blocks", pictures=tuple(shown))]


def conventions_part(net: Net) -> Part:
    """What the description states, where, and what turns red when it is broken."""
    columns: tuple[Column[Any], ...] = (
        Column("convention", lambda c: c.name, role="name"),
        Column("value", lambda c: c.value),
        Column(
            "what turns red when it is broken",
            lambda c: f"recorded {c.red}" if c.recorded else c.red,
        ),
        Column("line", lambda c: c.span.line, role="number"),
    )
    table = Table.of(columns, net.conventions.values())
    return Part("Conventions", (f"As {net.source.name} states them.",), table=table)


def _paged(table: Table) -> Table:
    """A table for a page: what fails before the rest, and each verdict beside what it is of."""
    roles = {c.role: i for i, c in enumerate(table.columns)}
    lead = [roles["name"], roles["verdict"]]
    order = [*lead, *(i for i in range(len(table.columns)) if i not in lead)]
    entries = sorted(table.entries, key=lambda e: e.ok is not False)
    return replace(
        table,
        columns=tuple(table.columns[i] for i in order),
        entries=tuple(replace(e, cells=tuple(e.cells[i] for i in order)) for e in entries),
    )


# -- setting -----------------------------------------------------------------------------------


def render(page: Page) -> str:
    """The page as HTML, complete in itself."""
    return clean(_template().render(page=page, version=__version__)) + "\n"


def write(path: Path, page: Page) -> None:
    """Write a page whole; :class:`obligations.errors.ObligationsError` if it cannot be."""
    replace_file(path, render(page))


@cache
def _template() -> jinja2.Template:
    def drawn(picture: Picture) -> Any:
        return Markup(svg(picture, inline=True))

    # The drawings escape what they say themselves; everything else is escaped here.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        style=Markup(STYLE),
        legend=lambda bad: [(Markup(sample), words) for sample, words in samples(differences=bad)],
        drawn=drawn,
    )
    text = (resources.files("obligations.show") / "page.html.j2").read_text("utf-8")
    return environment.from_string(text)

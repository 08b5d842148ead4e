"""The part of ``obligations check`` that evaluates Lean files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from obligations.commands.batching import Batch
    from obligations.confirm import FileLedger

_Function = TypeVar("_Function", bound=Callable[..., Any])


NOTES = 4
"""How much is printed of one declaration; ``--json`` has all."""


def options(function: _Function) -> _Function:
    """The options for Lean files."""
    for option in (
        click.option(
            "--allow-unknown",
            is_flag=True,
            help="For a Lean file: what cannot be evaluated does not fail it.",
        ),
        click.option(
            "--names",
            metavar="FILE.py",
            help="For a Lean file: run FILE.py, which gives meanings of library names.",
        ),
        click.option(
            "--net",
            "net_of_files",
            metavar="NET",
            help="For a Lean file: the net it is about (default: found by the names it uses).",
        ),
    ):
        function = option(function)
    return function


def run(
    paths: Sequence[str],
    batch: Batch,
    *,
    net: str | None,
    names: str | None,
) -> Iterator[FileLedger]:
    """Check files one by one and print what is found."""
    from obligations.confirm import NOTHING, check, load_names
    from obligations.lean import load
    from obligations.ledger import tables as report

    sources = [load(path) for path in paths]
    meanings = NOTHING if names is None else load_names(names)
    for source in sources:
        with report.working(f"checking {source.name}") as progress:
            found = check(
                source,
                net=net,
                names=meanings,
                seeds=batch.seeds,
                only=batch.only,
                progress=progress,
            )
        show(found)
        sys.stdout.flush()
        yield found


def show(found: FileLedger) -> None:
    """Print a row per declaration, then what is to be said of each, then the sum."""
    from obligations.ledger import tables as report

    ledger = found.ledger
    columns = report.error_columns(ledger.rows)
    wide = not report.is_terminal(sys.stdout) or report.width(sys.stdout) >= report.WIDE
    rows = []
    for row, place in zip(ledger.rows, found.places, strict=True):
        errors = [report.number(row.errors.get(c)) for c in columns]
        margin = report.number(row.margin)
        if wide:
            rows.append([str(place.line), row.name, row.kind, row.sizes, *errors, margin])
        else:
            rows.append([str(place.line), row.name, report.number(row.worst), margin])
        rows[-1].append(row.verdict)
    if wide:
        headers = ["line", "declaration", "kind", "sizes", *columns, "margin", "verdict"]
        numbers = {0, *range(4, 5 + len(columns))}
    else:
        headers = ["line", "declaration", "worst", "margin", "verdict"]
        numbers = {0, 2, 3}
    report.table(headers, rows, numbers=numbers)
    for row, place in zip(ledger.rows, found.places, strict=True):
        if place.shown:
            click.echo(place.shown)
            continue
        for note in row.notes[:NOTES]:
            click.echo(f"{ledger.net}:{place.line}:{place.column}: {row.name}: {note}")
        if len(row.notes) > NOTES:
            click.echo(f"  and {len(row.notes) - NOTES} more of {row.name}")
    if ledger.zeros:
        click.echo(f"zero by theory: {len(ledger.zeros)} tensors, and found zero")
    if ledger.scale:
        click.echo(f"whole net: {ledger.scale}")
    click.echo(summary(found))


def summary(found: FileLedger) -> str:
    """The file in a line."""
    from obligations.ledger import BOUND, tables as report

    ledger = found.ledger
    counts: dict[str, int] = {}
    for row in ledger.rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    said = ", ".join(f"{n} {_SAID.get(verdict, verdict)}" for verdict, n in counts.items())
    worst = max((e for r in ledger.rows for e in r.errors.values()), default=0.0)
    net = f"names of {found.net}" if found.net else "no net's names"
    return (
        f"{ledger.net}: {said or 'no declarations, so that nothing was evaluated'}; "
        f"worst error {report.number(worst) or '∞'}, "
        f"bound {report.number(BOUND)}; {net}; {ledger.seconds:.1f} s"
    )


_SAID = {
    "holds": "hold",
    "fails": "fail",
    "no statement": "without a statement",
}

"""The part of ``obligations check`` that evaluates Lean files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from obligations import confirm, lean
from obligations.commands.batching import Batch
from obligations.commands.options import together
from obligations.ledger import ledger_table, narrow, show, working, worst_of

NOTES = 4
"""How much is printed of one declaration; ``--json`` has all."""


options = together(
    click.option(
        "--net",
        "net_of_files",
        metavar="NET",
        help="For a Lean file: the net it is about (default: found by the names it uses).",
    ),
    click.option(
        "--names",
        metavar="FILE.py",
        help="For a Lean file: run FILE.py, which gives meanings of library names.",
    ),
    click.option(
        "--allow-unknown",
        is_flag=True,
        help="For a Lean file: what cannot be evaluated does not fail it.",
    ),
)
"""The options for Lean files."""


def run(
    paths: Sequence[str],
    batch: Batch,
    *,
    net: str | None,
    names: str | None,
) -> Iterator[confirm.FileLedger]:
    """Check files one by one and print what is found."""
    sources = [lean.load(path) for path in paths]
    meanings = confirm.NOTHING if names is None else confirm.load_names(names)
    for source in sources:
        with working(f"checking {source.name}") as progress:
            found = confirm.check(
                source,
                net=net,
                names=meanings,
                seeds=batch.seeds,
                only=batch.only,
                progress=progress,
            )
        print_file(found)
        sys.stdout.flush()
        yield found


def print_file(found: confirm.FileLedger) -> None:
    """Print a row per declaration, then what is to be said of each, then the sum."""
    ledger = found.ledger
    show(ledger_table(found.lines(), narrow=narrow(sys.stdout), name="declaration"))
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


def summary(found: confirm.FileLedger) -> str:
    """The file in a line."""
    ledger = found.ledger
    counts = Counter(row.verdict for row in ledger.rows)
    said = ", ".join(f"{n} {verdict.counted}" for verdict, n in counts.items())
    net = f"names of {found.net}" if found.net else "no net's names"
    return (
        f"{ledger.net}: {said or 'no declarations, so that nothing was evaluated'}; "
        f"{worst_of(ledger.rows)}; {net}; {ledger.seconds:.1f} s"
    )

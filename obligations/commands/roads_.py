"""``obligations roads``."""

from typing import Any

import click

from obligations import confirm
from obligations.ledger import BOUND, Column, Table, show, working


@click.command("roads")
@click.option(
    "--seeds",
    metavar="K",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Measure at K random samples of each size.",
)
def command(seeds: int) -> int:
    """Hold every emitted formula against the complex-step derivative of its forward.

    A line is one gradient of one operation of the table: of its input x, or of a parameter. Its
    error is the worst of all kernels and samples, relative to the largest entry.
    """
    with working("every operation of the table"):
        lines = confirm.measure(seeds=range(seeds))

    errors = [line.errors.get(("formula", "complex step")) for line in lines]
    said = ["not emitted" if e is None else f"{e:.1e}" for e in errors]
    columns: tuple[Column[Any], ...] = (
        Column("operation", lambda x: x[0].operation, role="name"),
        Column("gradient", lambda x: x[0].gradient),
        Column("worst relative error", lambda x: x[1], role="number"),
        Column("at", lambda x: x[0].sizes),
    )
    show(Table.of(columns, zip(lines, said, strict=True)))
    worst = max(e for e in errors if e is not None)
    missing = errors.count(None)
    click.echo(
        f"{len(lines) - missing} gradients, worst error {worst:.1e}, bound {BOUND:.0e}; "
        f"{missing} of operations whose backward no render emits"
    )
    return 0 if worst <= BOUND else 1

"""``obligations list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from obligations.description import Net


@click.command("list")
def command() -> int:
    """List the built-in nets and the options of each."""
    from obligations.description import load
    from obligations.ledger import Column, Table, show
    from obligations.resources import built_in_nets

    def options(net: Net) -> str:
        own = (f"{o.name}={'|'.join(o.values)}" for o in net.options)
        return " ".join(("precision=switch|f32", *own))

    columns: tuple[Column[tuple[str, Net]], ...] = (
        Column("net", lambda x: x[0], role="name"),
        Column("module", lambda x: x[1].module),
        Column("options, the default first", lambda x: options(x[1])),
    )
    show(Table.of(columns, [(name, load(name)) for name in built_in_nets()]))
    return 0

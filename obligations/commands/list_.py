"""``obligations list``."""

from typing import Any

import click

from obligations import description, ops
from obligations.ledger import Column, Table, show
from obligations.resources import built_in_nets


@click.command("list")
def command() -> int:
    """List the built-in nets and the options of each."""
    settings = f"precision={'|'.join(ops.precisions())}"
    columns: tuple[Column[Any], ...] = (
        Column("net", lambda x: x[0], role="name"),
        Column("module", lambda x: x[1].module),
        Column("options, the default first", lambda x: " ".join((settings, *x[2]))),
    )
    nets = [(name, description.load(name)) for name in built_in_nets()]
    own = ([f"{o.name}={'|'.join(o.values)}" for o in net.options] for _, net in nets)
    show(Table.of(columns, [(*x, options) for x, options in zip(nets, own, strict=True)]))
    return 0
